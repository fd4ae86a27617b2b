//! Implements the `Runtime` port with the CRI (v1, gRPC): one file for each call.
//!
//! Owns the connection to the container runtime's sockets, the deadline of every call, and the conversion between `model`
//! types and CRI messages.
//!
//! Architecture invariants:
//! - protobuf types stay inside: the public API has only `model` and `ports` types;
//! - nothing is retried and nothing is decided here; an error has the call, and whether it may have taken effect;
//! - any response of a runtime, however malformed, becomes an error or a plain value, never a panic; a malformed entry of a list is
//!   left out.
#![forbid(unsafe_code)]

mod call;
mod channel;
mod convert;
mod endpoint;
mod entries;
mod exec_answer;
mod listed;
mod response_fields;
mod rewrite;
mod trace;
mod verb;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use cri_api::v1::image_service_client::ImageServiceClient;
use cri_api::v1::runtime_service_client::RuntimeServiceClient;
use futures_util::stream::BoxStream;
use model::request::{
    ContainerRequest, ExecResult, ImageObservation, ImageRequest, LinuxResources, RegistryAuth,
    SandboxRequest,
};
use model::stats::{ContainerStats, MetricDescriptor, SandboxMetrics, SandboxStats};
use model::{CgroupDriver, ContainerId, ContainerObservation, SandboxId, SandboxObservation};
use ports::TraceContext;
use ports::runtime::{
    CallObserver, ContainerSummary, ImageFilesystems, Runtime, RuntimeHint, RuntimeResult, RuntimeStatus,
    RuntimeVersion, SandboxSummary, Scope, Streams,
};
use tonic::service::interceptor::InterceptedService;

pub use endpoint::{Endpoint, EndpointError};

use crate::call::Call;
use crate::channel::Connection;
use crate::entries::{ListStreaming, Logged};
use crate::listed::Listed;
use crate::rewrite::Rewritten;
use crate::trace::PropagateTrace;

/// The connection, with the trace context added to each call.
type Traced = InterceptedService<Connection, PropagateTrace>;

/// A container runtime with one or two Unix sockets.
///
/// Connects on first use and again whenever the connection broke, so that a runtime may start later than the kubelet and
/// may be restarted at any time.
#[derive(Debug)]
pub struct CriRuntime {
    runtime: Connection,
    images: Connection,
    trace: PropagateTrace,
    /// The image service has its own socket.
    has_images_apart: bool,
    request_timeout: Duration,
    listed: Listed,
    logged: Logged,
    list_streaming: ListStreaming,
    warnings: Vec<String>,
    observer: OnceLock<Arc<dyn CallObserver>>,
}

impl CriRuntime {
    /// A runtime at `runtime_endpoint`, with its image service at `image_endpoint` (empty: the same one). Does not connect
    /// yet. Must be called inside a tokio runtime, which runs the connection's tasks.
    ///
    /// `request_timeout` is the deadline of an ordinary call (`runtimeRequestTimeout`).
    pub fn new(
        runtime_endpoint: &str,
        image_endpoint: &str,
        request_timeout: Duration,
    ) -> Result<Self, EndpointError> {
        let runtime_at = Endpoint::parse(runtime_endpoint)?;
        let images_at =
            if image_endpoint.is_empty() { runtime_at.clone() } else { Endpoint::parse(image_endpoint)? };

        let runtime = Connection::new(runtime_at.path());
        let has_images_apart = images_at.path() != runtime_at.path();
        let images = if has_images_apart { Connection::new(images_at.path()) } else { runtime.clone() };
        let mut warnings: Vec<String> =
            [runtime_at, images_at].into_iter().filter_map(Endpoint::into_warning).collect();
        warnings.dedup();

        Ok(Self {
            runtime,
            images,
            trace: PropagateTrace::default(),
            has_images_apart,
            request_timeout,
            listed: Listed::default(),
            logged: Logged::default(),
            list_streaming: ListStreaming::default(),
            warnings,
            observer: OnceLock::new(),
        })
    }

    /// The same with a trace context on each call.
    #[must_use]
    pub fn traced(self, context: Option<Arc<dyn TraceContext>>) -> Self {
        Self { trace: PropagateTrace(context), ..self }
    }

    /// The same with lists that the runtime streams in parts (`enabled`), so that a list may be larger than a message. A runtime that
    /// does not implement this is asked once.
    #[must_use]
    pub fn streaming_lists(self, enabled: bool) -> Self {
        Self { list_streaming: ListStreaming::new(enabled), ..self }
    }

    /// Warnings about deprecated spellings of the endpoints.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// A client; a cheap handle to the shared connection.
    fn runtime(&self) -> RuntimeServiceClient<Traced> {
        RuntimeServiceClient::with_interceptor(self.runtime.clone(), self.trace.clone())
            .max_decoding_message_size(channel::MAX_RECEIVE_BYTES)
    }

    /// A client for ExecSync, which truncates outputs.
    fn exec_client(&self) -> RuntimeServiceClient<InterceptedService<Rewritten, PropagateTrace>> {
        RuntimeServiceClient::with_interceptor(Rewritten(self.runtime.clone()), self.trace.clone())
    }

    fn images(&self) -> ImageServiceClient<Traced> {
        ImageServiceClient::with_interceptor(self.images.clone(), self.trace.clone())
            .max_decoding_message_size(channel::MAX_RECEIVE_BYTES)
    }

    /// A call with the usual deadline.
    fn call(&self, name: &'static str) -> Call<'_> {
        self.call_within(name, Some(self.request_timeout))
    }

    /// A call with another deadline, or without one.
    fn call_within(&self, name: &'static str, deadline: Option<Duration>) -> Call<'_> {
        Call::new(name, deadline, self.observer.get().map(|observer| &**observer))
    }
}

#[async_trait]
impl Runtime for CriRuntime {
    fn observe(&self, observer: Arc<dyn CallObserver>) {
        // A second observer is ignored, as documented in the port.
        let _ = self.observer.set(observer);
    }

    async fn version(&self) -> RuntimeResult<RuntimeVersion> {
        verb::version::version(self).await
    }

    async fn status(&self) -> RuntimeResult<RuntimeStatus> {
        verb::status::status(self).await
    }

    async fn cgroup_driver(&self) -> RuntimeResult<CgroupDriver> {
        verb::runtime_config::cgroup_driver(self).await
    }

    async fn list_sandboxes(&self, scope: &Scope) -> RuntimeResult<Vec<SandboxSummary>> {
        verb::list_sandboxes::list_sandboxes(self, scope).await
    }

    async fn list_containers(&self, scope: &Scope) -> RuntimeResult<Vec<ContainerSummary>> {
        verb::list_containers::list_containers(self, scope).await
    }

    async fn sandbox_status(&self, id: &SandboxId) -> RuntimeResult<SandboxObservation> {
        verb::sandbox_status::sandbox_status(self, id).await
    }

    async fn sandbox_info(&self, id: &SandboxId) -> RuntimeResult<String> {
        verb::sandbox_status::sandbox_info(self, id).await
    }

    async fn container_status(&self, id: &ContainerId) -> RuntimeResult<ContainerObservation> {
        verb::container_status::container_status(self, id).await
    }

    async fn run_sandbox(&self, request: &SandboxRequest) -> RuntimeResult<SandboxId> {
        verb::run_sandbox::run_sandbox(self, request).await
    }

    async fn stop_sandbox(&self, id: &SandboxId) -> RuntimeResult<()> {
        verb::stop_sandbox::stop_sandbox(self, id).await
    }

    async fn remove_sandbox(&self, id: &SandboxId) -> RuntimeResult<()> {
        verb::stop_sandbox::remove_sandbox(self, id).await
    }

    async fn create_container(
        &self,
        sandbox: &SandboxId,
        request: &ContainerRequest,
        sandbox_request: &SandboxRequest,
    ) -> RuntimeResult<ContainerId> {
        verb::create_container::create_container(self, sandbox, request, sandbox_request).await
    }

    async fn start_container(&self, id: &ContainerId) -> RuntimeResult<()> {
        verb::create_container::start_container(self, id).await
    }

    async fn stop_container(&self, id: &ContainerId, grace: Duration) -> RuntimeResult<()> {
        verb::stop_container::stop_container(self, id, grace).await
    }

    async fn remove_container(&self, id: &ContainerId) -> RuntimeResult<()> {
        verb::stop_container::remove_container(self, id).await
    }

    async fn update_container_resources(
        &self,
        id: &ContainerId,
        resources: &LinuxResources,
    ) -> RuntimeResult<()> {
        verb::update_resources::update_container_resources(self, id, resources).await
    }

    async fn update_sandbox_resources(
        &self,
        id: &SandboxId,
        overhead: Option<&LinuxResources>,
        resources: &LinuxResources,
    ) -> RuntimeResult<()> {
        verb::update_resources::update_sandbox_resources(self, id, overhead, resources).await
    }

    async fn checkpoint_container(
        &self,
        id: &ContainerId,
        location: &str,
        timeout: Duration,
    ) -> RuntimeResult<()> {
        verb::checkpoint::checkpoint_container(self, id, location, timeout).await
    }

    async fn reopen_log(&self, id: &ContainerId) -> RuntimeResult<()> {
        verb::reopen_log::reopen_log(self, id).await
    }

    async fn exec_sync(
        &self,
        id: &ContainerId,
        command: &[String],
        timeout: Duration,
    ) -> RuntimeResult<ExecResult> {
        verb::exec_sync::exec_sync(self, id, command, timeout).await
    }

    async fn exec(&self, id: &ContainerId, command: &[String], streams: Streams) -> RuntimeResult<String> {
        verb::streaming::exec(self, id, command, streams).await
    }

    async fn attach(&self, id: &ContainerId, streams: Streams) -> RuntimeResult<String> {
        verb::streaming::attach(self, id, streams).await
    }

    async fn port_forward(&self, id: &SandboxId, ports: &[u16]) -> RuntimeResult<String> {
        verb::streaming::port_forward(self, id, ports).await
    }

    async fn container_stats(&self, id: &ContainerId) -> RuntimeResult<ContainerStats> {
        verb::container_stats::container_stats(self, id).await
    }

    async fn list_container_stats(&self, scope: &Scope) -> RuntimeResult<Vec<ContainerStats>> {
        verb::container_stats::list_container_stats(self, scope).await
    }

    async fn sandbox_stats(&self, id: &SandboxId) -> RuntimeResult<SandboxStats> {
        verb::sandbox_stats::sandbox_stats(self, id).await
    }

    async fn list_sandbox_stats(&self, scope: &Scope) -> RuntimeResult<Vec<SandboxStats>> {
        verb::sandbox_stats::list_sandbox_stats(self, scope).await
    }

    async fn list_metric_descriptors(&self) -> RuntimeResult<Vec<MetricDescriptor>> {
        verb::sandbox_metrics::list_metric_descriptors(self).await
    }

    async fn list_sandbox_metrics(&self) -> RuntimeResult<Vec<SandboxMetrics>> {
        verb::sandbox_metrics::list_sandbox_metrics(self).await
    }

    async fn hints(&self) -> RuntimeResult<BoxStream<'static, RuntimeHint>> {
        verb::hints::hints(self).await
    }

    async fn list_images(&self) -> RuntimeResult<Vec<ImageObservation>> {
        verb::list_images::list_images(self).await
    }

    async fn image_status(&self, image: &ImageRequest) -> RuntimeResult<Option<ImageObservation>> {
        verb::image_status::image_status(self, image).await
    }

    async fn pull_image(
        &self,
        image: &ImageRequest,
        auth: Option<&RegistryAuth>,
        sandbox: &SandboxRequest,
    ) -> RuntimeResult<String> {
        verb::pull_image::pull_image(self, image, auth, sandbox).await
    }

    async fn remove_image(&self, image: &ImageRequest) -> RuntimeResult<()> {
        verb::remove_image::remove_image(self, image).await
    }

    async fn image_filesystems(&self) -> RuntimeResult<ImageFilesystems> {
        verb::image_filesystems::image_filesystems(self).await
    }

    async fn set_pod_cidr(&self, cidr: &str) -> RuntimeResult<()> {
        verb::runtime_config::set_pod_cidr(self, cidr).await
    }
}
