//! CreateContainer and StartContainer.

use cri_api::v1 as wire;
use model::request::{ContainerRequest, SandboxRequest};
use model::{ContainerId, SandboxId};
use ports::runtime::RuntimeResult;

use crate::CriRuntime;
use crate::convert::{container, sandbox};

pub(crate) async fn create_container(
    cri: &CriRuntime,
    sandbox_id: &SandboxId,
    request: &ContainerRequest,
    sandbox_request: &SandboxRequest,
) -> RuntimeResult<ContainerId> {
    let call = cri.call("CreateContainer");
    let message = wire::CreateContainerRequest {
        pod_sandbox_id: sandbox_id.as_str().to_owned(),
        config: Some(Box::new(container::config(request))),
        sandbox_config: Some(Box::new(sandbox::config(sandbox_request))),
    };
    let answer = call.answer(cri.runtime().create_container(call.request(message))).await?;
    if answer.container_id.is_empty() {
        return Err(call.malformed(format!("ContainerId is not set for container {:?}", request.name)));
    }
    let id = ContainerId::from(answer.container_id);
    cri.listed.created(&id, sandbox_id, request, &sandbox_request.pod);
    Ok(id)
}

pub(crate) async fn start_container(cri: &CriRuntime, id: &ContainerId) -> RuntimeResult<()> {
    let call = cri.call("StartContainer");
    let request = wire::StartContainerRequest { container_id: id.as_str().to_owned() };
    call.answer(cri.runtime().start_container(call.request(request))).await?;
    Ok(())
}
