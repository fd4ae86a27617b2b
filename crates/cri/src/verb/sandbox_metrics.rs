//! ListMetricDescriptors and ListPodSandboxMetrics.

use cri_api::v1 as wire;
use model::stats::{MetricDescriptor, SandboxMetrics};
use ports::runtime::RuntimeResult;

use crate::CriRuntime;
use crate::convert::stats;

pub(crate) async fn list_metric_descriptors(cri: &CriRuntime) -> RuntimeResult<Vec<MetricDescriptor>> {
    let call = cri.call("ListMetricDescriptors");
    let request = call.request(wire::ListMetricDescriptorsRequest {});
    let answer = call.answer(cri.runtime().list_metric_descriptors(request)).await?;
    Ok(answer.descriptors.into_iter().map(stats::descriptor).collect())
}

pub(crate) async fn list_sandbox_metrics(cri: &CriRuntime) -> RuntimeResult<Vec<SandboxMetrics>> {
    let call = cri.call("ListPodSandboxMetrics");
    let request = call.request(wire::ListPodSandboxMetricsRequest {});
    let answer = call.answer(cri.runtime().list_pod_sandbox_metrics(request)).await?;
    Ok(answer.pod_metrics.into_iter().map(stats::metrics).collect())
}
