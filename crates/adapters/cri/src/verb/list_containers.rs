//! ListContainers. Also the source of each container's sandbox.

use cri_api::v1 as wire;
use model::{ContainerId, SandboxId};
use ports::runtime::{ContainerSummary, RuntimeResult, Scope};

use crate::CriRuntime;
use crate::convert::selector;
use crate::entries::Method;

const METHOD: Method = Method {
    name: "ListContainers",
    path: "/runtime.v1.RuntimeService/ListContainers",
    stream: Some("/runtime.v1.RuntimeService/StreamContainers"),
    is_of_images: false,
};

pub(crate) async fn list_containers(cri: &CriRuntime, scope: &Scope) -> RuntimeResult<Vec<ContainerSummary>> {
    let filter =
        selector(scope).map(|label_selector| wire::ContainerFilter { label_selector, ..Default::default() });
    let listed = list(cri, filter).await?;
    let listed = cri
        .checked(METHOD.name, scope, listed, |container| (container.id.as_str(), container.pod.uid.as_str()));
    cri.listed.keep_containers(scope, &listed);
    Ok(listed)
}

/// Lists one container by ID for its sandbox; `None` if the runtime does not have the container.
pub(crate) async fn sandbox_of(cri: &CriRuntime, id: &ContainerId) -> RuntimeResult<Option<SandboxId>> {
    let filter = wire::ContainerFilter { id: id.as_str().to_owned(), ..Default::default() };
    let listed = list(cri, Some(filter)).await?;
    Ok(listed.into_iter().find(|container| container.id == *id).map(|container| container.sandbox_id))
}

async fn list(
    cri: &CriRuntime,
    filter: Option<wire::ContainerFilter>,
) -> RuntimeResult<Vec<ContainerSummary>> {
    let message = wire::ListContainersRequest { filter };
    cri.list(METHOD, &message, |entry| cri.listed.container(entry)).await
}
