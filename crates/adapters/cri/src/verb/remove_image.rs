//! RemoveImage. Idempotent: no such image is success.

use cri_api::v1 as wire;
use model::request::ImageRequest;
use ports::runtime::RuntimeResult;

use crate::CriRuntime;
use crate::convert::image;

pub(crate) async fn remove_image(cri: &CriRuntime, request: &ImageRequest) -> RuntimeResult<()> {
    let call = cri.call("RemoveImage");
    let message = wire::RemoveImageRequest { image: Some(image::spec(request)) };
    call.ok_if_gone(cri.images().remove_image(call.request(message))).await
}
