//! ListPodSandbox.

use cri_api::v1 as wire;
use ports::runtime::{RuntimeResult, SandboxSummary, Scope};

use crate::CriRuntime;
use crate::convert::{sandbox, selector};

pub(crate) async fn list_sandboxes(cri: &CriRuntime, scope: &Scope) -> RuntimeResult<Vec<SandboxSummary>> {
    let call = cri.call("ListPodSandbox");
    let filter =
        selector(scope).map(|label_selector| wire::PodSandboxFilter { label_selector, ..Default::default() });
    let request = call.request(wire::ListPodSandboxRequest { filter });
    let answer = call.answer(cri.runtime().list_pod_sandbox(request)).await?;
    Ok(answer.items.into_iter().filter_map(sandbox::summary).collect())
}
