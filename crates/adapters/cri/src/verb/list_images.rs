//! ListImages.

use cri_api::v1 as wire;
use model::request::ImageObservation;
use ports::runtime::{RuntimeResult, Scope};

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
    // An image without an id can neither be removed nor compared with those in use.
    let take = |image: wire::Image| match image.id.as_str() {
        "" => Err("it has no id"),
        _ => Ok(image::observation(image)),
    };
    let listed = cri.list(METHOD, &message, take).await?;
    Ok(cri.checked(METHOD.name, &Scope::Node, listed, |image| (image.id.as_str(), "")))
}
