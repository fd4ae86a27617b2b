//! UpdateContainerResources.

use cri_api::v1 as wire;
use model::ContainerId;
use model::request::LinuxResources;
use ports::runtime::RuntimeResult;

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
