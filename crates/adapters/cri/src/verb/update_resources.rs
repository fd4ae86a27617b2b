//! UpdateContainerResources and UpdatePodSandboxResources.

use cri_api::v1 as wire;
use model::request::LinuxResources;
use model::{ContainerId, SandboxId};
use ports::runtime::{RuntimeError, RuntimeResult};

use crate::CriRuntime;
use crate::convert::resources;

pub(crate) async fn update_container_resources(
    cri: &CriRuntime,
    id: &ContainerId,
    to: &LinuxResources,
) -> RuntimeResult<()> {
    let call = cri.call("UpdateContainerResources");
    let request = wire::UpdateContainerResourcesRequest {
        container_id: id.as_str().to_owned(),
        linux: Some(resources::resources(to)),
        ..Default::default()
    };
    call.answer(cri.runtime().update_container_resources(call.request(request))).await?;
    Ok(())
}

pub(crate) async fn update_sandbox_resources(
    cri: &CriRuntime,
    id: &SandboxId,
    overhead: Option<&LinuxResources>,
    to: &LinuxResources,
) -> RuntimeResult<()> {
    let call = cri.call("UpdatePodSandboxResources");
    let request = wire::UpdatePodSandboxResourcesRequest {
        pod_sandbox_id: id.as_str().to_owned(),
        overhead: overhead.map(resources::resources),
        resources: Some(resources::resources(to)),
    };
    match call.answer(cri.runtime().update_pod_sandbox_resources(call.request(request))).await {
        Ok(_) => Ok(()),
        // Some versions of containerd implement the call only as this error, without the code Unimplemented.
        Err(RuntimeError::Failed { message, .. }) if message.contains("not implemented") => {
            Err(call.unimplemented(message))
        }
        Err(error) => Err(error),
    }
}
