//! ListMetricDescriptors and ListPodSandboxMetrics.

use cri_api::v1 as wire;
use model::stats::{MetricDescriptor, SandboxMetrics};
use ports::runtime::RuntimeResult;

use crate::CriRuntime;
use crate::convert::stats;
use crate::entries::Method;

const DESCRIPTORS: Method = Method {
    name: "ListMetricDescriptors",
    path: "/runtime.v1.RuntimeService/ListMetricDescriptors",
    stream: None,
    is_of_images: false,
};
const METRICS: Method = Method {
    name: "ListPodSandboxMetrics",
    path: "/runtime.v1.RuntimeService/ListPodSandboxMetrics",
    stream: Some("/runtime.v1.RuntimeService/StreamPodSandboxMetrics"),
    is_of_images: false,
};

pub(crate) async fn list_metric_descriptors(cri: &CriRuntime) -> RuntimeResult<Vec<MetricDescriptor>> {
    let take = |entry| Ok(stats::descriptor(entry));
    cri.list(DESCRIPTORS, &wire::ListMetricDescriptorsRequest {}, take).await
}

pub(crate) async fn list_sandbox_metrics(cri: &CriRuntime) -> RuntimeResult<Vec<SandboxMetrics>> {
    let take = |entry| Ok(stats::metrics(entry));
    cri.list(METRICS, &wire::ListPodSandboxMetricsRequest {}, take).await
}
