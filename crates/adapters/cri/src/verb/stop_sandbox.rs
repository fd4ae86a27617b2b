//! StopPodSandbox and RemovePodSandbox. Both are idempotent: nothing to stop is success.

use cri_api::v1 as wire;
use model::SandboxId;
use ports::runtime::RuntimeResult;

use crate::CriRuntime;

pub(crate) async fn stop_sandbox(cri: &CriRuntime, id: &SandboxId) -> RuntimeResult<()> {
    let call = cri.call("StopPodSandbox");
    let request = wire::StopPodSandboxRequest { pod_sandbox_id: id.as_str().to_owned() };
    call.ok_if_gone(cri.runtime().stop_pod_sandbox(call.request(request))).await
}

pub(crate) async fn remove_sandbox(cri: &CriRuntime, id: &SandboxId) -> RuntimeResult<()> {
    let call = cri.call("RemovePodSandbox");
    let request = wire::RemovePodSandboxRequest { pod_sandbox_id: id.as_str().to_owned() };
    call.ok_if_gone(cri.runtime().remove_pod_sandbox(call.request(request))).await
}
