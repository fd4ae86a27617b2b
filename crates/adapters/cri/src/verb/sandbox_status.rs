//! PodSandboxStatus.

use cri_api::v1 as wire;
use model::{SandboxId, SandboxObservation};
use ports::runtime::RuntimeResult;

use crate::CriRuntime;
use crate::convert::sandbox;

pub(crate) async fn sandbox_status(cri: &CriRuntime, id: &SandboxId) -> RuntimeResult<SandboxObservation> {
    let call = cri.call("PodSandboxStatus");
    let request = wire::PodSandboxStatusRequest { pod_sandbox_id: id.as_str().to_owned(), verbose: false };
    let answer = call.answer(cri.runtime().pod_sandbox_status(call.request(request))).await?;
    answer
        .status
        .and_then(sandbox::observation)
        .ok_or_else(|| call.malformed(format!("no status or metadata for pod sandbox {id}")))
}

/// containerd and CRI-O return JSON below the key `info` for a verbose request.
pub(crate) async fn sandbox_info(cri: &CriRuntime, id: &SandboxId) -> RuntimeResult<String> {
    let call = cri.call("PodSandboxStatus");
    let request = wire::PodSandboxStatusRequest { pod_sandbox_id: id.as_str().to_owned(), verbose: true };
    let mut answer = call.answer(cri.runtime().pod_sandbox_status(call.request(request))).await?;
    Ok(answer.info.remove("info").unwrap_or_default())
}
