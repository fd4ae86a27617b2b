//! ListPodSandbox.

use cri_api::v1 as wire;
use ports::runtime::{RuntimeResult, SandboxSummary, Scope};

use super::entries;
use crate::CriRuntime;
use crate::convert::selector;

pub(crate) async fn list_sandboxes(cri: &CriRuntime, scope: &Scope) -> RuntimeResult<Vec<SandboxSummary>> {
    let call = cri.call("ListPodSandbox");
    let filter =
        selector(scope).map(|label_selector| wire::PodSandboxFilter { label_selector, ..Default::default() });
    let request = call.request(wire::ListPodSandboxRequest { filter });
    let path = "/runtime.v1.RuntimeService/ListPodSandbox";
    let listed = call.answer(entries(cri, path, request, |entry| cri.listed.sandbox(entry))).await?;
    cri.listed.keep_sandboxes(scope, &listed);
    Ok(listed)
}
