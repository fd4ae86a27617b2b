//! ListContainers. Also the source of each container's sandbox.

use cri_api::v1 as wire;
use model::{ContainerId, SandboxId};
use ports::runtime::{ContainerSummary, RuntimeResult, Scope};

use crate::CriRuntime;
use crate::convert::{container, selector};

const NAME: &str = "ListContainers";

pub(crate) async fn list_containers(cri: &CriRuntime, scope: &Scope) -> RuntimeResult<Vec<ContainerSummary>> {
    let filter =
        selector(scope).map(|label_selector| wire::ContainerFilter { label_selector, ..Default::default() });
    let listed: Vec<ContainerSummary> =
        list(cri, filter).await?.into_iter().filter_map(container::summary).collect();
    let origins = listed.iter().map(|c| (c.id.clone(), c.sandbox_id.clone()));
    match scope {
        Scope::Node => cri.origins.replace(origins),
        Scope::Pod(_) => cri.origins.learn_all(origins),
    }
    Ok(listed)
}

/// Lists one container by ID for its sandbox; `None` if the runtime does not have the container.
pub(crate) async fn sandbox_of(cri: &CriRuntime, id: &ContainerId) -> RuntimeResult<Option<SandboxId>> {
    let filter = wire::ContainerFilter { id: id.as_str().to_owned(), ..Default::default() };
    let listed = list(cri, Some(filter)).await?;
    let found = listed.into_iter().find(|c| c.id == id.as_str());
    Ok(found.map(|c| SandboxId::from(c.pod_sandbox_id)))
}

async fn list(
    cri: &CriRuntime,
    filter: Option<wire::ContainerFilter>,
) -> RuntimeResult<Vec<wire::Container>> {
    let call = cri.call(NAME);
    let request = call.request(wire::ListContainersRequest { filter });
    Ok(call.answer(cri.runtime().list_containers(request)).await?.containers)
}
