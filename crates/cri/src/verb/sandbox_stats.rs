//! PodSandboxStats and ListPodSandboxStats.

use cri_api::v1 as wire;
use model::SandboxId;
use model::stats::SandboxStats;
use ports::runtime::{RuntimeResult, Scope};

use crate::CriRuntime;
use crate::convert::{selector, stats};

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
    let call = cri.call("ListPodSandboxStats");
    let filter = selector(scope)
        .map(|label_selector| wire::PodSandboxStatsFilter { label_selector, ..Default::default() });
    let request = call.request(wire::ListPodSandboxStatsRequest { filter });
    let answer = call.answer(cri.runtime().list_pod_sandbox_stats(request)).await?;
    Ok(answer.stats.into_iter().filter_map(stats::sandbox).collect())
}
