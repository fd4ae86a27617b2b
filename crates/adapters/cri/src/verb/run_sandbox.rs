//! RunPodSandbox: creates and starts a sandbox with its network.

use cri_api::v1 as wire;
use model::SandboxId;
use model::request::SandboxRequest;
use ports::runtime::RuntimeResult;

use crate::CriRuntime;
use crate::convert::sandbox;

pub(crate) async fn run_sandbox(cri: &CriRuntime, request: &SandboxRequest) -> RuntimeResult<SandboxId> {
    // The runtime may have to pull the sandbox image and set up the network: twice the usual deadline.
    let call = cri.call_within("RunPodSandbox", Some(cri.request_timeout.saturating_mul(2)));
    let message = wire::RunPodSandboxRequest {
        config: Some(Box::new(sandbox::config(request))),
        runtime_handler: request.runtime_handler.clone(),
    };
    let answer = call.answer(cri.runtime().run_pod_sandbox(call.request(message))).await?;
    if answer.pod_sandbox_id.is_empty() {
        return Err(call.malformed(format!("PodSandboxId is not set for sandbox {:?}", request.pod)));
    }
    Ok(SandboxId::from(answer.pod_sandbox_id))
}
