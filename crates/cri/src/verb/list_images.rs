//! ListImages.

use cri_api::v1 as wire;
use model::request::ImageObservation;
use ports::runtime::RuntimeResult;

use crate::CriRuntime;
use crate::convert::image;

pub(crate) async fn list_images(cri: &CriRuntime) -> RuntimeResult<Vec<ImageObservation>> {
    let call = cri.call("ListImages");
    let request = call.request(wire::ListImagesRequest { filter: None });
    let answer = call.answer(cri.images().list_images(request)).await?;
    Ok(answer.images.into_iter().map(image::observation).collect())
}
