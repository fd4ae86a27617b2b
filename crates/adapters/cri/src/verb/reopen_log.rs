//! ReopenContainerLog.

use cri_api::v1 as wire;
use model::ContainerId;
use ports::runtime::RuntimeResult;

use crate::CriRuntime;

pub(crate) async fn reopen_log(cri: &CriRuntime, id: &ContainerId) -> RuntimeResult<()> {
    let call = cri.call("ReopenContainerLog");
    let request = wire::ReopenContainerLogRequest { container_id: id.as_str().to_owned() };
    call.answer(cri.runtime().reopen_container_log(call.request(request))).await?;
    Ok(())
}
