//! ContainerStatus, completed with the sandbox of the container.

use cri_api::v1 as wire;
use model::{ContainerId, ContainerObservation};
use ports::runtime::{RuntimeError, RuntimeResult};

use super::list_containers::sandbox_of;
use crate::CriRuntime;
use crate::convert::container;

const NAME: &str = "ContainerStatus";

pub(crate) async fn container_status(
    cri: &CriRuntime,
    id: &ContainerId,
) -> RuntimeResult<ContainerObservation> {
    let call = cri.call(NAME);
    let request = wire::ContainerStatusRequest { container_id: id.as_str().to_owned(), verbose: false };
    let answer = call.answer(cri.runtime().container_status(call.request(request))).await?;
    let status = answer.status.ok_or_else(|| call.malformed(format!("no status for container {id}")))?;

    let sandbox_id = match cri.listed.sandbox_of(id) {
        Some(known) => known,
        None => {
            let message = || format!("container {id} was removed while its status was read");
            let found = sandbox_of(cri, id).await?;
            found.ok_or_else(|| RuntimeError::NotFound { call: NAME, message: message() })?
        }
    };
    container::observation(status, sandbox_id)
        .ok_or_else(|| call.malformed(format!("no metadata for container {id}")))
}
