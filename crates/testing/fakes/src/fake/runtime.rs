//! The fake as a `Runtime`: each method applies its fault, then does its step.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::{BoxStream, StreamExt};
use model::request::{
    ContainerRequest, ExecResult, ImageObservation, ImageRequest, LinuxResources, RegistryAuth,
    SandboxRequest,
};
use model::stats::{ContainerStats, FilesystemUsage, MetricDescriptor, SandboxMetrics, SandboxStats};
use model::{CgroupDriver, ContainerId, ContainerObservation, SandboxId, SandboxObservation};
use ports::runtime::{
    ContainerSummary, ImageFilesystems, Runtime, RuntimeCondition, RuntimeError, RuntimeHandler, RuntimeHint,
    RuntimeResult, RuntimeStatus, RuntimeVersion, SandboxSummary, Scope, Streams,
};
use tokio_stream::wrappers::BroadcastStream;

use super::FakeRuntime;
use super::faults::Method;
use super::state::{Moment, State, sandbox_title};

impl FakeRuntime {
    /// One method: record it, apply its fault, do the step, answer (or fail to).
    async fn act<T: Send>(
        &self,
        method: Method,
        subject: String,
        step: impl FnOnce(&mut State, Moment) -> RuntimeResult<T> + Send,
    ) -> RuntimeResult<T> {
        let ending = self.begin(method, subject).await?;
        let result = step(&mut self.shared.state.lock(), self.moment());
        self.end(method, ending, result).await
    }

    async fn read<T: Send>(
        &self,
        method: Method,
        step: impl FnOnce(&State, Moment) -> RuntimeResult<T> + Send,
    ) -> RuntimeResult<T> {
        self.act(method, String::new(), |state, now| step(state, now)).await
    }

    fn title_of(&self, id: &ContainerId) -> String {
        self.shared.state.lock().container_title(id)
    }

    fn sandbox_title_of(&self, id: &SandboxId) -> String {
        self.shared.state.lock().sandbox_title(id)
    }

    fn hint_about(&self, id: &ContainerId) {
        let pod = self.shared.state.lock().pod_of_container(id);
        pod.into_iter().for_each(|uid| self.hint(uid));
    }
}

#[async_trait]
impl Runtime for FakeRuntime {
    async fn version(&self) -> RuntimeResult<RuntimeVersion> {
        self.read(Method::Version, |state, _| {
            let (name, version) = if state.is_crio { ("cri-o", "1.36.3") } else { ("fake", "1.0.0") };
            let [api, name, version, runtime_api] = ["0.1.0", name, version, "v1"].map(str::to_owned);
            Ok(RuntimeVersion { api, name, version, runtime_api })
        })
        .await
    }

    async fn status(&self) -> RuntimeResult<RuntimeStatus> {
        let condition = |ready: bool, reason: &str| RuntimeCondition {
            status: ready,
            reason: if ready { String::new() } else { reason.to_owned() },
            message: if ready { String::new() } else { format!("scripted: {reason}") },
        };
        self.read(Method::Status, |state, _| {
            Ok(RuntimeStatus {
                runtime_ready: condition(state.runtime_ready, "RuntimeNotReady"),
                network_ready: condition(state.network_ready, "NetworkPluginNotReady"),
                handlers: vec![RuntimeHandler {
                    name: String::new(),
                    recursive_read_only_mounts: true,
                    user_namespaces: state.user_namespaces,
                }],
                supplemental_groups_policy: true,
                user_namespaces_host_network: state.user_namespaces_host_network,
            })
        })
        .await
    }

    async fn cgroup_driver(&self) -> RuntimeResult<CgroupDriver> {
        self.read(Method::RuntimeConfig, |state, _| Ok(state.cgroup_driver)).await
    }

    async fn list_sandboxes(&self, scope: &Scope) -> RuntimeResult<Vec<SandboxSummary>> {
        self.read(Method::ListPodSandbox, |state, _| Ok(state.list_sandboxes(scope))).await
    }

    async fn list_containers(&self, scope: &Scope) -> RuntimeResult<Vec<ContainerSummary>> {
        self.read(Method::ListContainers, |state, now| Ok(state.list_containers(scope, now))).await
    }

    async fn sandbox_status(&self, id: &SandboxId) -> RuntimeResult<SandboxObservation> {
        self.read(Method::PodSandboxStatus, |state, _| state.sandbox_status(id)).await
    }

    async fn sandbox_info(&self, id: &SandboxId) -> RuntimeResult<String> {
        let found = self.read(Method::PodSandboxStatus, |state, _| {
            let parent = state.cgroup_parent(id).unwrap_or_default();
            let info = if state.is_crio {
                let annotations = r#"{"io.kubernetes.cri-o.ImageName":"registry.k8s.io/pause:3.10"}"#;
                let path = format!("{parent}/crio-{id}");
                format!(
                    r#"{{"runtimeSpec":{{"annotations":{annotations},"linux":{{"cgroupsPath":"{path}"}}}}}}"#
                )
            } else {
                let config = format!(r#"{{"linux":{{"cgroup_parent":"{parent}"}}}}"#);
                format!(r#"{{"image":"registry.k8s.io/pause:3.10","pid":77,"config":{config}}}"#)
            };
            state.sandbox_status(id).map(|_| info)
        });
        found.await
    }

    async fn container_status(&self, id: &ContainerId) -> RuntimeResult<ContainerObservation> {
        self.read(Method::ContainerStatus, |state, now| state.container_status(id, now)).await
    }

    async fn run_sandbox(&self, request: &SandboxRequest) -> RuntimeResult<SandboxId> {
        let id = self
            .act(Method::RunPodSandbox, sandbox_title(request), |state, now| state.run_sandbox(request, now))
            .await?;
        self.hint(request.pod.uid.clone());
        Ok(id)
    }

    async fn stop_sandbox(&self, id: &SandboxId) -> RuntimeResult<()> {
        let subject = self.sandbox_title_of(id);
        self.act(Method::StopPodSandbox, subject, |state, now| {
            state.stop_sandbox(id, now);
            Ok(())
        })
        .await?;
        let pod = self.shared.state.lock().pod_of(id);
        pod.into_iter().for_each(|uid| self.hint(uid));
        Ok(())
    }

    async fn remove_sandbox(&self, id: &SandboxId) -> RuntimeResult<()> {
        let (subject, pod) = (self.sandbox_title_of(id), self.shared.state.lock().pod_of(id));
        self.act(Method::RemovePodSandbox, subject, |state, _| {
            state.remove_sandbox(id);
            Ok(())
        })
        .await?;
        pod.into_iter().for_each(|uid| self.hint(uid));
        Ok(())
    }

    async fn create_container(
        &self,
        sandbox: &SandboxId,
        request: &ContainerRequest,
        sandbox_request: &SandboxRequest,
    ) -> RuntimeResult<ContainerId> {
        let names = [request.name.as_str(), &request.user_specified_image, &request.image];
        let program = self.shared.programs.lock().find(&names, request.attempt);
        let subject = format!("{}/{}", sandbox_request.pod.name, request.name);
        let subject = if request.attempt == 0 { subject } else { format!("{subject}#{}", request.attempt) };
        self.act(Method::CreateContainer, subject, |state, now| {
            state.create_container(sandbox, request, program, now)
        })
        .await
    }

    async fn start_container(&self, id: &ContainerId) -> RuntimeResult<()> {
        let subject = self.title_of(id);
        self.act(Method::StartContainer, subject, |state, now| state.start_container(id, now)).await?;
        self.hint_about(id);
        Ok(())
    }

    async fn stop_container(&self, id: &ContainerId, grace: Duration) -> RuntimeResult<()> {
        let ending = self.begin(Method::StopContainer, self.title_of(id)).await?;
        // The signal is sent once: the container exits even if the caller stops waiting.
        let end = self.shared.state.lock().stop_container(id, grace, self.moment());
        if let Some(end) = end {
            tokio::time::sleep_until(end).await;
        }
        self.hint_about(id);
        self.end(Method::StopContainer, ending, Ok(())).await
    }

    async fn remove_container(&self, id: &ContainerId) -> RuntimeResult<()> {
        let subject = self.title_of(id);
        self.act(Method::RemoveContainer, subject, |state, _| {
            state.remove_container(id);
            Ok(())
        })
        .await
    }

    async fn update_container_resources(
        &self,
        id: &ContainerId,
        resources: &LinuxResources,
    ) -> RuntimeResult<()> {
        let subject = self.title_of(id);
        self.act(Method::UpdateContainerResources, subject, |state, _| state.update_resources(id, resources))
            .await
    }

    async fn update_sandbox_resources(
        &self,
        id: &SandboxId,
        overhead: Option<&LinuxResources>,
        resources: &LinuxResources,
    ) -> RuntimeResult<()> {
        let subject = self.sandbox_title_of(id);
        self.act(Method::UpdatePodSandboxResources, subject, |state, _| {
            state.update_sandbox_resources(id, overhead, resources)
        })
        .await
    }

    async fn checkpoint_container(
        &self,
        id: &ContainerId,
        location: &str,
        _timeout: Duration,
    ) -> RuntimeResult<()> {
        let method = Method::CheckpointContainer;
        let subject = format!("{} to {location}", self.title_of(id));
        self.act(method, subject, |state, now| state.running(method, id, now)).await
    }

    async fn reopen_log(&self, id: &ContainerId) -> RuntimeResult<()> {
        let subject = self.title_of(id);
        self.act(Method::ReopenContainerLog, subject, |state, now| state.reopen_log(id, now)).await
    }

    async fn exec_sync(
        &self,
        id: &ContainerId,
        command: &[String],
        timeout: Duration,
    ) -> RuntimeResult<ExecResult> {
        let subject = format!("{}: {}", self.title_of(id), command.join(" "));
        let exec = self.act(Method::ExecSync, subject, |state, now| state.exec(id, command, now)).await?;
        if timeout.is_zero() || exec.takes <= timeout {
            tokio::time::sleep(exec.takes).await;
            Ok(exec.result)
        } else {
            tokio::time::sleep(timeout).await;
            if self.shared.state.lock().is_crio {
                let stderr = b"command timed out".to_vec();
                return Ok(ExecResult { stdout: Vec::new(), stderr, exit_code: -1 });
            }
            Err(RuntimeError::TimedOut { call: Method::ExecSync.name(), deadline: timeout })
        }
    }

    async fn exec(&self, id: &ContainerId, command: &[String], streams: Streams) -> RuntimeResult<String> {
        let method = Method::Exec;
        let subject = format!("{}: {}", self.title_of(id), command.join(" "));
        self.act(method, subject, |state, now| {
            check_streams(method, streams)?;
            state.streamable(method, id, now)?;
            Ok(state.stream_url("exec"))
        })
        .await
    }

    async fn attach(&self, id: &ContainerId, streams: Streams) -> RuntimeResult<String> {
        let method = Method::Attach;
        self.act(method, self.title_of(id), |state, now| {
            check_streams(method, streams)?;
            state.streamable(method, id, now)?;
            Ok(state.stream_url("attach"))
        })
        .await
    }

    async fn port_forward(&self, id: &SandboxId, ports: &[u16]) -> RuntimeResult<String> {
        let method = Method::PortForward;
        let subject = format!("{}: {ports:?}", self.sandbox_title_of(id));
        self.act(method, subject, |state, _| {
            state.ready(method, id)?;
            Ok(state.stream_url("portforward"))
        })
        .await
    }

    async fn container_stats(&self, id: &ContainerId) -> RuntimeResult<ContainerStats> {
        self.read(Method::ContainerStats, |state, now| state.container_stats(id, now)).await
    }

    async fn list_container_stats(&self, scope: &Scope) -> RuntimeResult<Vec<ContainerStats>> {
        self.read(Method::ListContainerStats, |state, now| Ok(state.list_container_stats(scope, now))).await
    }

    async fn sandbox_stats(&self, id: &SandboxId) -> RuntimeResult<SandboxStats> {
        self.read(Method::PodSandboxStats, |state, now| state.sandbox_stats(id, now)).await
    }

    async fn list_sandbox_stats(&self, scope: &Scope) -> RuntimeResult<Vec<SandboxStats>> {
        self.read(Method::ListPodSandboxStats, |state, now| Ok(state.list_sandbox_stats(scope, now))).await
    }

    async fn list_metric_descriptors(&self) -> RuntimeResult<Vec<MetricDescriptor>> {
        self.read(Method::ListMetricDescriptors, |_, _| Ok(super::state::metric_descriptors())).await
    }

    async fn list_sandbox_metrics(&self) -> RuntimeResult<Vec<SandboxMetrics>> {
        self.read(Method::ListPodSandboxMetrics, |state, now| Ok(state.list_sandbox_metrics(now))).await
    }

    async fn hints(&self) -> RuntimeResult<BoxStream<'static, RuntimeHint>> {
        let method = Method::GetContainerEvents;
        let receiver = self.shared.hints.lock().subscribe();
        let offered = self.shared.script.lock().offers_hints;
        self.read(method, |_, _| Ok(())).await?;
        if !offered {
            return Err(method.unimplemented());
        }
        // Missed events are no loss: they only trigger an inspection.
        Ok(BroadcastStream::new(receiver).filter_map(|hint| std::future::ready(hint.ok())).boxed())
    }

    async fn list_images(&self) -> RuntimeResult<Vec<ImageObservation>> {
        self.read(Method::ListImages, |state, _| Ok(state.images.list())).await
    }

    async fn image_status(&self, image: &ImageRequest) -> RuntimeResult<Option<ImageObservation>> {
        let method = Method::ImageStatus;
        self.act(method, String::new(), |state, _| {
            state.images.requests.insert(method, image.clone());
            Ok(state.images.find(&image.image).cloned())
        })
        .await
    }

    async fn pull_image(
        &self,
        image: &ImageRequest,
        auth: Option<&RegistryAuth>,
        _sandbox: &SandboxRequest,
    ) -> RuntimeResult<String> {
        let method = Method::PullImage;
        let user = auth.map(|auth| auth.username.clone()).unwrap_or_default();
        self.act(method, image.image.clone(), |state, _| {
            state.images.requests.insert(method, image.clone());
            state.images.pull(&image.image, &user).map_err(|message| method.failed(message))
        })
        .await
    }

    async fn remove_image(&self, image: &ImageRequest) -> RuntimeResult<()> {
        self.act(Method::RemoveImage, image.image.clone(), |state, _| {
            state.images.requests.insert(Method::RemoveImage, image.clone());
            state.images.remove(&image.image);
            Ok(())
        })
        .await
    }

    async fn image_filesystems(&self) -> RuntimeResult<ImageFilesystems> {
        self.read(Method::ImageFsInfo, |state, now| {
            let filesystem = |name: &str, used_bytes: u64| FilesystemUsage {
                time: Some(now.wall),
                mountpoint: format!("/var/lib/fake/{name}"),
                used_bytes: Some(used_bytes),
                inodes_used: Some(1),
            };
            Ok(ImageFilesystems {
                images: vec![filesystem("images", state.images.list().iter().map(|i| i.size_bytes).sum())],
                containers: vec![filesystem("containers", state.written_bytes())],
            })
        })
        .await
    }

    async fn set_pod_cidr(&self, cidr: &str) -> RuntimeResult<()> {
        self.act(Method::UpdateRuntimeConfig, cidr.to_owned(), |state, _| {
            cidr.clone_into(&mut state.pod_cidr);
            Ok(())
        })
        .await
    }
}

/// Requests that every runtime rejects.
fn check_streams(method: Method, streams: Streams) -> RuntimeResult<()> {
    if streams.tty && streams.stderr {
        return Err(method.failed("tty and stderr cannot both be true"));
    }
    if !(streams.stdin || streams.stdout || streams.stderr) {
        return Err(method.failed("one of stdin, stdout, or stderr must be set"));
    }
    Ok(())
}
