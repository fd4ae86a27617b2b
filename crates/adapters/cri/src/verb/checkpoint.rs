//! CheckpointContainer.

use std::time::Duration;

use cri_api::v1 as wire;
use model::ContainerId;
use ports::runtime::RuntimeResult;

use super::whole_seconds;
use crate::CriRuntime;

pub(crate) async fn checkpoint_container(
    cri: &CriRuntime,
    id: &ContainerId,
    location: &str,
    timeout: Duration,
) -> RuntimeResult<()> {
    let call = cri.call_within("CheckpointContainer", Some(cri.request_timeout.max(timeout)));
    let request = wire::CheckpointContainerRequest {
        container_id: id.as_str().to_owned(),
        location: location.to_owned(),
        timeout: whole_seconds(timeout),
    };
    call.answer(cri.runtime().checkpoint_container(call.request(request))).await?;
    Ok(())
}
