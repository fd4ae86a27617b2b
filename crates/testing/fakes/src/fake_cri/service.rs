//! The two gRPC services, method by method.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use cri_api::v1 as wire;
use cri_api::v1::image_service_server::ImageService;
use cri_api::v1::runtime_service_server::RuntimeService;
use futures_util::{StreamExt, stream};
use model::annotations::POD_UID_LABEL;
use model::{CgroupDriver, ContainerId, PodUid, SandboxId};
use ports::Runtime;
use ports::runtime::{RuntimeHint, Scope, Streams};
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status};

use super::{answer, request, stats};

#[derive(Clone, Debug)]
pub(super) struct Service {
    runtime: Arc<dyn Runtime>,
    /// Entries in a part of a streamed list; `None`: lists are not streamed.
    part: Option<usize>,
    stream_calls: Arc<AtomicUsize>,
}

impl Service {
    /// `stream_calls` counts the calls for streamed lists.
    pub(super) fn new(
        runtime: Arc<dyn Runtime>,
        part: Option<usize>,
        stream_calls: Arc<AtomicUsize>,
    ) -> Self {
        Self { runtime, part, stream_calls }
    }

    /// Begins a call for a streamed list; returns the number of entries in a part.
    fn begin_stream(&self) -> Result<usize, Status> {
        self.stream_calls.fetch_add(1, Ordering::Relaxed);
        self.part.ok_or_else(|| Status::unimplemented("lists are not streamed"))
    }
}

/// A list as a stream of its parts.
fn parts<E, P: Send + 'static>(
    entries: Vec<E>,
    size: usize,
    part: impl Fn(Vec<E>) -> P,
) -> Answer<BoxStream<P>> {
    let (mut entries, mut parts) = (entries.into_iter().peekable(), Vec::new());
    while entries.peek().is_some() {
        parts.push(Ok(part(entries.by_ref().take(size).collect())));
    }
    Ok(Response::new(Box::pin(stream::iter(parts))))
}

type Answer<T> = Result<Response<T>, Status>;

/// Converts the result of the port into the response of the wire.
macro_rules! answered {
    ($result:expr, $value:pat => $answer:expr) => {
        match $result {
            Ok($value) => Ok(Response::new($answer)),
            Err(error) => Err(answer::error(&error)),
        }
    };
}

fn seconds(wire: i64) -> Duration {
    Duration::from_secs(u64::try_from(wire).unwrap_or(0))
}

fn scope(selector: Option<&String>) -> Scope {
    selector.map_or(Scope::Node, |uid| Scope::Pod(PodUid::new(uid)))
}

#[tonic::async_trait]
impl RuntimeService for Service {
    async fn version(&self, _: Request<wire::VersionRequest>) -> Answer<wire::VersionResponse> {
        answered!(self.runtime.version().await, version => answer::version(version))
    }

    async fn status(&self, _: Request<wire::StatusRequest>) -> Answer<wire::StatusResponse> {
        answered!(self.runtime.status().await, status => answer::status(status))
    }

    async fn runtime_config(
        &self,
        _: Request<wire::RuntimeConfigRequest>,
    ) -> Answer<wire::RuntimeConfigResponse> {
        answered!(self.runtime.cgroup_driver().await, driver => {
            let driver = match driver {
                CgroupDriver::Cgroupfs => wire::CgroupDriver::Cgroupfs,
                CgroupDriver::Systemd => wire::CgroupDriver::Systemd,
            };
            let linux = wire::LinuxRuntimeConfiguration { cgroup_driver: driver.into() };
            wire::RuntimeConfigResponse { linux: Some(linux) }
        })
    }

    async fn update_runtime_config(
        &self,
        request: Request<wire::UpdateRuntimeConfigRequest>,
    ) -> Answer<wire::UpdateRuntimeConfigResponse> {
        let network = request.into_inner().runtime_config.and_then(|config| config.network_config);
        let cidr = network.unwrap_or_default().pod_cidr;
        answered!(self.runtime.set_pod_cidr(&cidr).await, () => wire::UpdateRuntimeConfigResponse {})
    }

    async fn run_pod_sandbox(
        &self,
        request: Request<wire::RunPodSandboxRequest>,
    ) -> Answer<wire::RunPodSandboxResponse> {
        let request = request.into_inner();
        let sandbox = request::sandbox(*request.config.unwrap_or_default(), request.runtime_handler);
        answered!(self.runtime.run_sandbox(&sandbox).await, id => {
            wire::RunPodSandboxResponse { pod_sandbox_id: id.as_str().to_owned() }
        })
    }

    async fn stop_pod_sandbox(
        &self,
        request: Request<wire::StopPodSandboxRequest>,
    ) -> Answer<wire::StopPodSandboxResponse> {
        let id = SandboxId::from(request.into_inner().pod_sandbox_id);
        answered!(self.runtime.stop_sandbox(&id).await, () => wire::StopPodSandboxResponse {})
    }

    async fn remove_pod_sandbox(
        &self,
        request: Request<wire::RemovePodSandboxRequest>,
    ) -> Answer<wire::RemovePodSandboxResponse> {
        let id = SandboxId::from(request.into_inner().pod_sandbox_id);
        answered!(self.runtime.remove_sandbox(&id).await, () => wire::RemovePodSandboxResponse {})
    }

    async fn pod_sandbox_status(
        &self,
        request: Request<wire::PodSandboxStatusRequest>,
    ) -> Answer<wire::PodSandboxStatusResponse> {
        let request = request.into_inner();
        let id = SandboxId::from(request.pod_sandbox_id);
        let mut info = BTreeMap::new();
        if request.verbose {
            info.extend(self.runtime.sandbox_info(&id).await.ok().map(|text| ("info".to_owned(), text)));
        }
        answered!(self.runtime.sandbox_status(&id).await, status => wire::PodSandboxStatusResponse {
            status: Some(answer::sandbox_status(status)),
            info,
            ..Default::default()
        })
    }

    async fn list_pod_sandbox(
        &self,
        request: Request<wire::ListPodSandboxRequest>,
    ) -> Answer<wire::ListPodSandboxResponse> {
        let filter = request.into_inner().filter.unwrap_or_default();
        let scope = scope(filter.label_selector.get(POD_UID_LABEL));
        answered!(self.runtime.list_sandboxes(&scope).await, listed => {
            let wanted = listed.into_iter().filter(|s| filter.id.is_empty() || s.id.as_str() == filter.id);
            wire::ListPodSandboxResponse { items: wanted.map(answer::sandbox_summary).collect() }
        })
    }

    async fn create_container(
        &self,
        request: Request<wire::CreateContainerRequest>,
    ) -> Answer<wire::CreateContainerResponse> {
        let request = request.into_inner();
        let sandbox_id = SandboxId::from(request.pod_sandbox_id);
        let container = request::container(*request.config.unwrap_or_default());
        let sandbox = request::sandbox(*request.sandbox_config.unwrap_or_default(), String::new());
        answered!(self.runtime.create_container(&sandbox_id, &container, &sandbox).await, id => {
            wire::CreateContainerResponse { container_id: id.as_str().to_owned() }
        })
    }

    async fn start_container(
        &self,
        request: Request<wire::StartContainerRequest>,
    ) -> Answer<wire::StartContainerResponse> {
        let id = ContainerId::from(request.into_inner().container_id);
        answered!(self.runtime.start_container(&id).await, () => wire::StartContainerResponse {})
    }

    async fn stop_container(
        &self,
        request: Request<wire::StopContainerRequest>,
    ) -> Answer<wire::StopContainerResponse> {
        let request = request.into_inner();
        let id = ContainerId::from(request.container_id);
        let stopped = self.runtime.stop_container(&id, seconds(request.timeout)).await;
        answered!(stopped, () => wire::StopContainerResponse {})
    }

    async fn remove_container(
        &self,
        request: Request<wire::RemoveContainerRequest>,
    ) -> Answer<wire::RemoveContainerResponse> {
        let id = ContainerId::from(request.into_inner().container_id);
        answered!(self.runtime.remove_container(&id).await, () => wire::RemoveContainerResponse {})
    }

    async fn list_containers(
        &self,
        request: Request<wire::ListContainersRequest>,
    ) -> Answer<wire::ListContainersResponse> {
        let filter = request.into_inner().filter.unwrap_or_default();
        let scope = scope(filter.label_selector.get(POD_UID_LABEL));
        answered!(self.runtime.list_containers(&scope).await, listed => {
            let wanted = listed.into_iter().filter(|c| filter.id.is_empty() || c.id.as_str() == filter.id);
            wire::ListContainersResponse { containers: wanted.map(answer::container_summary).collect() }
        })
    }

    async fn container_status(
        &self,
        request: Request<wire::ContainerStatusRequest>,
    ) -> Answer<wire::ContainerStatusResponse> {
        let id = ContainerId::from(request.into_inner().container_id);
        answered!(self.runtime.container_status(&id).await, status => wire::ContainerStatusResponse {
            status: Some(answer::container_status(status)),
            ..Default::default()
        })
    }

    async fn update_container_resources(
        &self,
        request: Request<wire::UpdateContainerResourcesRequest>,
    ) -> Answer<wire::UpdateContainerResourcesResponse> {
        let request = request.into_inner();
        let id = ContainerId::from(request.container_id);
        let resources = request::resources(request.linux.unwrap_or_default());
        let updated = self.runtime.update_container_resources(&id, &resources).await;
        answered!(updated, () => wire::UpdateContainerResourcesResponse {})
    }

    async fn reopen_container_log(
        &self,
        request: Request<wire::ReopenContainerLogRequest>,
    ) -> Answer<wire::ReopenContainerLogResponse> {
        let id = ContainerId::from(request.into_inner().container_id);
        answered!(self.runtime.reopen_log(&id).await, () => wire::ReopenContainerLogResponse {})
    }

    async fn exec_sync(&self, request: Request<wire::ExecSyncRequest>) -> Answer<wire::ExecSyncResponse> {
        let request = request.into_inner();
        let id = ContainerId::from(request.container_id);
        let ran = self.runtime.exec_sync(&id, &request.cmd, seconds(request.timeout)).await;
        answered!(ran, result => wire::ExecSyncResponse {
            stdout: result.stdout,
            stderr: result.stderr,
            exit_code: result.exit_code,
        })
    }

    async fn update_pod_sandbox_resources(
        &self,
        request: Request<wire::UpdatePodSandboxResourcesRequest>,
    ) -> Answer<wire::UpdatePodSandboxResourcesResponse> {
        let request = request.into_inner();
        let id = SandboxId::from(request.pod_sandbox_id);
        let overhead = request.overhead.map(request::resources);
        let resources = request::resources(request.resources.unwrap_or_default());
        let updated = self.runtime.update_sandbox_resources(&id, overhead.as_ref(), &resources).await;
        answered!(updated, () => wire::UpdatePodSandboxResourcesResponse {})
    }

    async fn checkpoint_container(
        &self,
        request: Request<wire::CheckpointContainerRequest>,
    ) -> Answer<wire::CheckpointContainerResponse> {
        let request = request.into_inner();
        let id = ContainerId::from(request.container_id);
        let done = self.runtime.checkpoint_container(&id, &request.location, seconds(request.timeout)).await;
        answered!(done, () => wire::CheckpointContainerResponse {})
    }

    async fn exec(&self, request: Request<wire::ExecRequest>) -> Answer<wire::ExecResponse> {
        let wire::ExecRequest { container_id, cmd, tty, stdin, stdout, stderr, .. } = request.into_inner();
        let streams = Streams { tty, stdin, stdout, stderr };
        let url = self.runtime.exec(&ContainerId::from(container_id), &cmd, streams).await;
        answered!(url, url => wire::ExecResponse { url })
    }

    async fn attach(&self, request: Request<wire::AttachRequest>) -> Answer<wire::AttachResponse> {
        let wire::AttachRequest { container_id, tty, stdin, stdout, stderr, .. } = request.into_inner();
        let streams = Streams { tty, stdin, stdout, stderr };
        let url = self.runtime.attach(&ContainerId::from(container_id), streams).await;
        answered!(url, url => wire::AttachResponse { url })
    }

    async fn port_forward(
        &self,
        request: Request<wire::PortForwardRequest>,
    ) -> Answer<wire::PortForwardResponse> {
        let request = request.into_inner();
        let ports: Result<Vec<u16>, _> = request.port.into_iter().map(u16::try_from).collect();
        let ports = ports.map_err(|error| Status::invalid_argument(format!("port: {error}")))?;
        let url = self.runtime.port_forward(&SandboxId::from(request.pod_sandbox_id), &ports).await;
        answered!(url, url => wire::PortForwardResponse { url })
    }

    async fn container_stats(
        &self,
        request: Request<wire::ContainerStatsRequest>,
    ) -> Answer<wire::ContainerStatsResponse> {
        let id = ContainerId::from(request.into_inner().container_id);
        answered!(self.runtime.container_stats(&id).await, measured => {
            wire::ContainerStatsResponse { stats: Some(stats::container(measured)) }
        })
    }

    async fn list_container_stats(
        &self,
        request: Request<wire::ListContainerStatsRequest>,
    ) -> Answer<wire::ListContainerStatsResponse> {
        let filter = request.into_inner().filter.unwrap_or_default();
        let scope = scope(filter.label_selector.get(POD_UID_LABEL));
        answered!(self.runtime.list_container_stats(&scope).await, listed => {
            wire::ListContainerStatsResponse { stats: listed.into_iter().map(stats::container).collect() }
        })
    }

    async fn pod_sandbox_stats(
        &self,
        request: Request<wire::PodSandboxStatsRequest>,
    ) -> Answer<wire::PodSandboxStatsResponse> {
        let id = SandboxId::from(request.into_inner().pod_sandbox_id);
        answered!(self.runtime.sandbox_stats(&id).await, measured => {
            wire::PodSandboxStatsResponse { stats: Some(stats::sandbox(measured)) }
        })
    }

    async fn list_pod_sandbox_stats(
        &self,
        request: Request<wire::ListPodSandboxStatsRequest>,
    ) -> Answer<wire::ListPodSandboxStatsResponse> {
        let filter = request.into_inner().filter.unwrap_or_default();
        let scope = scope(filter.label_selector.get(POD_UID_LABEL));
        answered!(self.runtime.list_sandbox_stats(&scope).await, listed => {
            wire::ListPodSandboxStatsResponse { stats: listed.into_iter().map(stats::sandbox).collect() }
        })
    }

    async fn list_metric_descriptors(
        &self,
        _: Request<wire::ListMetricDescriptorsRequest>,
    ) -> Answer<wire::ListMetricDescriptorsResponse> {
        answered!(self.runtime.list_metric_descriptors().await, descriptors => {
            let descriptors = descriptors.into_iter().map(stats::descriptor).collect();
            wire::ListMetricDescriptorsResponse { descriptors }
        })
    }

    async fn list_pod_sandbox_metrics(
        &self,
        _: Request<wire::ListPodSandboxMetricsRequest>,
    ) -> Answer<wire::ListPodSandboxMetricsResponse> {
        answered!(self.runtime.list_sandbox_metrics().await, listed => {
            let pod_metrics = listed.into_iter().map(stats::metrics).collect();
            wire::ListPodSandboxMetricsResponse { pod_metrics }
        })
    }

    async fn stream_pod_sandboxes(
        &self,
        request: Request<wire::StreamPodSandboxesRequest>,
    ) -> Answer<BoxStream<wire::StreamPodSandboxesResponse>> {
        let part = self.begin_stream()?;
        let request = wire::ListPodSandboxRequest { filter: request.into_inner().filter };
        let listed = self.list_pod_sandbox(Request::new(request)).await?.into_inner();
        parts(listed.items, part, |pod_sandboxes| wire::StreamPodSandboxesResponse { pod_sandboxes })
    }

    async fn stream_containers(
        &self,
        request: Request<wire::StreamContainersRequest>,
    ) -> Answer<BoxStream<wire::StreamContainersResponse>> {
        let part = self.begin_stream()?;
        let request = wire::ListContainersRequest { filter: request.into_inner().filter };
        let listed = self.list_containers(Request::new(request)).await?.into_inner();
        parts(listed.containers, part, |containers| wire::StreamContainersResponse { containers })
    }

    async fn stream_container_stats(
        &self,
        request: Request<wire::StreamContainerStatsRequest>,
    ) -> Answer<BoxStream<wire::StreamContainerStatsResponse>> {
        let part = self.begin_stream()?;
        let request = wire::ListContainerStatsRequest { filter: request.into_inner().filter };
        let listed = self.list_container_stats(Request::new(request)).await?.into_inner();
        parts(listed.stats, part, |container_stats| wire::StreamContainerStatsResponse { container_stats })
    }

    async fn stream_pod_sandbox_stats(
        &self,
        request: Request<wire::StreamPodSandboxStatsRequest>,
    ) -> Answer<BoxStream<wire::StreamPodSandboxStatsResponse>> {
        let part = self.begin_stream()?;
        let request = wire::ListPodSandboxStatsRequest { filter: request.into_inner().filter };
        let listed = self.list_pod_sandbox_stats(Request::new(request)).await?.into_inner();
        parts(listed.stats, part, |pod_sandbox_stats| wire::StreamPodSandboxStatsResponse {
            pod_sandbox_stats,
        })
    }

    async fn stream_pod_sandbox_metrics(
        &self,
        request: Request<wire::StreamPodSandboxMetricsRequest>,
    ) -> Answer<BoxStream<wire::StreamPodSandboxMetricsResponse>> {
        let part = self.begin_stream()?;
        let request = request.map(|_| wire::ListPodSandboxMetricsRequest {});
        let listed = self.list_pod_sandbox_metrics(request).await?.into_inner();
        parts(listed.pod_metrics, part, |pod_sandbox_metrics| wire::StreamPodSandboxMetricsResponse {
            pod_sandbox_metrics,
        })
    }

    async fn get_container_events(
        &self,
        _: Request<wire::GetEventsRequest>,
    ) -> Answer<BoxStream<wire::ContainerEventResponse>> {
        let event = |hint: RuntimeHint| {
            let metadata =
                wire::PodSandboxMetadata { uid: hint.pod.as_str().to_owned(), ..Default::default() };
            let status = wire::PodSandboxStatus { metadata: Some(metadata), ..Default::default() };
            Ok(wire::ContainerEventResponse { pod_sandbox_status: Some(status), ..Default::default() })
        };
        answered!(self.runtime.hints().await, hints => Box::pin(hints.map(event)))
    }
}

#[tonic::async_trait]
impl ImageService for Service {
    async fn list_images(&self, _: Request<wire::ListImagesRequest>) -> Answer<wire::ListImagesResponse> {
        answered!(self.runtime.list_images().await, images => {
            wire::ListImagesResponse { images: images.into_iter().map(answer::image).collect() }
        })
    }

    async fn stream_images(
        &self,
        request: Request<wire::StreamImagesRequest>,
    ) -> Answer<BoxStream<wire::StreamImagesResponse>> {
        let part = self.begin_stream()?;
        let request = wire::ListImagesRequest { filter: request.into_inner().filter };
        let listed = self.list_images(Request::new(request)).await?.into_inner();
        parts(listed.images, part, |images| wire::StreamImagesResponse { images })
    }

    async fn image_status(
        &self,
        request: Request<wire::ImageStatusRequest>,
    ) -> Answer<wire::ImageStatusResponse> {
        let image = request::image(request.into_inner().image);
        answered!(self.runtime.image_status(&image).await, found => wire::ImageStatusResponse {
            image: found.map(answer::image),
            ..Default::default()
        })
    }

    async fn pull_image(&self, request: Request<wire::PullImageRequest>) -> Answer<wire::PullImageResponse> {
        let request = request.into_inner();
        let image = request::image(request.image);
        let auth = request.auth.map(request::auth);
        let sandbox = request::sandbox(*request.sandbox_config.unwrap_or_default(), String::new());
        let pulled = self.runtime.pull_image(&image, auth.as_ref(), &sandbox).await;
        answered!(pulled, image_ref => wire::PullImageResponse { image_ref })
    }

    async fn remove_image(
        &self,
        request: Request<wire::RemoveImageRequest>,
    ) -> Answer<wire::RemoveImageResponse> {
        let image = request::image(request.into_inner().image);
        answered!(self.runtime.remove_image(&image).await, () => wire::RemoveImageResponse {})
    }

    async fn image_fs_info(&self, _: Request<wire::ImageFsInfoRequest>) -> Answer<wire::ImageFsInfoResponse> {
        answered!(self.runtime.image_filesystems().await, filesystems => wire::ImageFsInfoResponse {
            image_filesystems: filesystems.images.into_iter().map(stats::filesystem).collect(),
            container_filesystems: filesystems.containers.into_iter().map(stats::filesystem).collect(),
        })
    }
}
