//! ContainerStats and ListContainerStats.

use cri_api::v1 as wire;
use model::ContainerId;
use model::stats::ContainerStats;
use ports::runtime::{RuntimeResult, Scope};

use crate::CriRuntime;
use crate::convert::{selector, stats};
use crate::entries::Method;

const METHOD: Method = Method {
    name: "ListContainerStats",
    path: "/runtime.v1.RuntimeService/ListContainerStats",
    stream: Some("/runtime.v1.RuntimeService/StreamContainerStats"),
    is_of_images: false,
};

pub(crate) async fn container_stats(cri: &CriRuntime, id: &ContainerId) -> RuntimeResult<ContainerStats> {
    let call = cri.call("ContainerStats");
    let request = wire::ContainerStatsRequest { container_id: id.as_str().to_owned() };
    let answer = call.answer(cri.runtime().container_stats(call.request(request))).await?;
    answer
        .stats
        .and_then(stats::container)
        .ok_or_else(|| call.malformed(format!("no stats or attributes for container {id}")))
}

pub(crate) async fn list_container_stats(
    cri: &CriRuntime,
    scope: &Scope,
) -> RuntimeResult<Vec<ContainerStats>> {
    let filter = selector(scope)
        .map(|label_selector| wire::ContainerStatsFilter { label_selector, ..Default::default() });
    let take = |entry| stats::container(entry).ok_or("it has no attributes");
    cri.list(METHOD, &wire::ListContainerStatsRequest { filter }, take).await
}
