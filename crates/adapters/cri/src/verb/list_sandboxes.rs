//! ListPodSandbox.

use cri_api::v1 as wire;
use ports::runtime::{RuntimeResult, SandboxSummary, Scope};

use crate::CriRuntime;
use crate::convert::selector;
use crate::entries::Method;

const METHOD: Method = Method {
    name: "ListPodSandbox",
    path: "/runtime.v1.RuntimeService/ListPodSandbox",
    stream: Some("/runtime.v1.RuntimeService/StreamPodSandboxes"),
    is_of_images: false,
};

pub(crate) async fn list_sandboxes(cri: &CriRuntime, scope: &Scope) -> RuntimeResult<Vec<SandboxSummary>> {
    let filter =
        selector(scope).map(|label_selector| wire::PodSandboxFilter { label_selector, ..Default::default() });
    let message = wire::ListPodSandboxRequest { filter };
    let listed = cri.list(METHOD, &message, |entry| cri.listed.sandbox(entry)).await?;
    let listed =
        cri.checked(METHOD.name, scope, listed, |sandbox| (sandbox.id.as_str(), sandbox.pod.uid.as_str()));
    cri.listed.keep_sandboxes(scope, &listed);
    Ok(listed)
}
