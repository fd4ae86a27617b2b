//! PodSandboxStats and ListPodSandboxStats.

use cri_api::v1 as wire;
use model::SandboxId;
use model::stats::SandboxStats;
use ports::runtime::{RuntimeResult, Scope};

use crate::CriRuntime;
use crate::convert::{selector, stats};
use crate::entries::Method;

const METHOD: Method = Method {
    name: "ListPodSandboxStats",
    path: "/runtime.v1.RuntimeService/ListPodSandboxStats",
    stream: Some("/runtime.v1.RuntimeService/StreamPodSandboxStats"),
    is_of_images: false,
};

pub(crate) async fn sandbox_stats(cri: &CriRuntime, id: &SandboxId) -> RuntimeResult<SandboxStats> {
    let call = cri.call("PodSandboxStats");
    let request = wire::PodSandboxStatsRequest { pod_sandbox_id: id.as_str().to_owned() };
    let answer = call.answer(cri.runtime().pod_sandbox_stats(call.request(request))).await?;
    answer
        .stats
        .and_then(stats::sandbox)
        .ok_or_else(|| call.malformed(format!("no stats or attributes for pod sandbox {id}")))
}

pub(crate) async fn list_sandbox_stats(cri: &CriRuntime, scope: &Scope) -> RuntimeResult<Vec<SandboxStats>> {
    let filter = selector(scope)
        .map(|label_selector| wire::PodSandboxStatsFilter { label_selector, ..Default::default() });
    let take = |entry| stats::sandbox(entry).ok_or("it has no attributes");
    cri.list(METHOD, &wire::ListPodSandboxStatsRequest { filter }, take).await
}
