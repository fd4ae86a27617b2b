//! ListImages.

use cri_api::v1 as wire;
use model::request::ImageObservation;
use ports::runtime::RuntimeResult;

use crate::CriRuntime;
use crate::convert::image;
use crate::entries::Method;

const METHOD: Method = Method {
    name: "ListImages",
    path: "/runtime.v1.ImageService/ListImages",
    stream: Some("/runtime.v1.ImageService/StreamImages"),
    is_of_images: true,
};

pub(crate) async fn list_images(cri: &CriRuntime) -> RuntimeResult<Vec<ImageObservation>> {
    let message = wire::ListImagesRequest { filter: None };
    // An image without an id can neither be removed nor compared with those in use. Garbage collection reports those with a handler.
    let take = |image: wire::Image| {
        let image = image::observation(image);
        if image.id.is_empty() && image.runtime_handler.is_empty() {
            return Err("it has no id");
        }
        Ok(image)
    };
    let listed = cri.list(METHOD, &message, take).await?;
    // A runtime may have a copy of an image for each handler.
    Ok(cri.distinct(METHOD.name, listed, |image| (image.id.as_str(), image.runtime_handler.as_str())))
}
