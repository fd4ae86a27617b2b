//! ImageStatus.

use cri_api::v1 as wire;
use model::request::{ImageObservation, ImageRequest};
use ports::runtime::RuntimeResult;

use crate::CriRuntime;
use crate::convert::image;

pub(crate) async fn image_status(
    cri: &CriRuntime,
    request: &ImageRequest,
) -> RuntimeResult<Option<ImageObservation>> {
    let call = cri.call("ImageStatus");
    let message = wire::ImageStatusRequest { image: Some(image::spec(request)), verbose: false };
    let answer = call.answer(cri.images().image_status(call.request(message))).await?;
    let Some(found) = answer.image else { return Ok(None) };
    if found.id.is_empty() || found.size == 0 {
        let what = format!("Id or size of image {:?} is not set", request.image);
        return Err(call.malformed(what));
    }
    Ok(Some(image::observation(found)))
}
