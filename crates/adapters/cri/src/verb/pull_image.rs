//! PullImage. The only call without a deadline: the caller limits the duration of a pull.

use cri_api::v1 as wire;
use model::request::{ImageRequest, RegistryAuth, SandboxRequest};
use ports::runtime::RuntimeResult;

use crate::CriRuntime;
use crate::convert::{image, sandbox};

pub(crate) async fn pull_image(
    cri: &CriRuntime,
    request: &ImageRequest,
    auth: Option<&RegistryAuth>,
    sandbox_request: &SandboxRequest,
) -> RuntimeResult<String> {
    let call = cri.call_within("PullImage", None);
    let message = wire::PullImageRequest {
        image: Some(image::spec(request)),
        auth: auth.map(image::auth),
        sandbox_config: Some(Box::new(sandbox::config(sandbox_request))),
    };
    let answer = call.answer(cri.images().pull_image(call.request(message))).await?;
    if answer.image_ref.is_empty() {
        return Err(call.malformed(format!("imageRef of image {:?} is not set", request.image)));
    }
    Ok(answer.image_ref)
}
