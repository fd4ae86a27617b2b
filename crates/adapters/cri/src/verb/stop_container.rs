//! StopContainer and RemoveContainer. Both are idempotent: nothing to stop is success.

use std::time::Duration;

use cri_api::v1 as wire;
use model::ContainerId;
use ports::runtime::RuntimeResult;

use super::whole_seconds;
use crate::CriRuntime;

pub(crate) async fn stop_container(cri: &CriRuntime, id: &ContainerId, grace: Duration) -> RuntimeResult<()> {
    // The runtime waits for the grace period before it kills; the deadline is added to it.
    let call = cri.call_within("StopContainer", Some(cri.request_timeout.saturating_add(grace)));
    let request =
        wire::StopContainerRequest { container_id: id.as_str().to_owned(), timeout: whole_seconds(grace) };
    call.ok_if_gone(cri.runtime().stop_container(call.request(request))).await
}

pub(crate) async fn remove_container(cri: &CriRuntime, id: &ContainerId) -> RuntimeResult<()> {
    let call = cri.call("RemoveContainer");
    let request = wire::RemoveContainerRequest { container_id: id.as_str().to_owned() };
    call.ok_if_gone(cri.runtime().remove_container(call.request(request))).await
}
