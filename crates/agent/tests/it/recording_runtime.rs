//! A runtime in front of the fake one that records every call with the state at that moment, and can fail the calls of one pod
//! alone. Calls may outlive their client: the runtime completes them although no client waits for the response.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fakes::{FakeRuntime, Fault, Method};
use futures_util::stream::BoxStream;
use model::request::{
    ContainerRequest, ExecResult, ImageObservation, ImageRequest, LinuxResources, RegistryAuth,
    SandboxRequest,
};
use model::stats::{ContainerStats, MetricDescriptor, SandboxMetrics, SandboxStats};
use model::{
    CgroupDriver, ContainerId, ContainerObservation, ContainerState, SandboxId, SandboxObservation,
    SandboxState,
};
use parking_lot::Mutex;
use ports::Runtime;
use ports::runtime::{
    ContainerSummary, ImageFilesystems, RuntimeError, RuntimeHint, RuntimeResult, RuntimeStatus,
    RuntimeVersion, SandboxSummary, Scope, Streams,
};
use tokio::task::JoinSet;

/// Called with every act, before any fault applies to it.
pub(crate) type OnAct = Arc<dyn Fn(&Act) + Send + Sync>;

/// Why the runtime refuses to create a container; `None` if it does not.
type CreationCheck = Arc<dyn Fn(&ContainerRequest) -> Option<String> + Send + Sync>;

/// A state-changing call of the agent to the runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    RunSandbox(model::PodRef),
    StopSandbox(SandboxId),
    RemoveSandbox(SandboxId),
    Start(ContainerId),
    Stop(ContainerId),
    Remove(ContainerId),
}

#[derive(Clone)]
pub(crate) struct RecordingRuntime {
    fake: FakeRuntime,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Default)]
struct Shared {
    /// By pod name and method.
    faults: BTreeMap<(String, Method), Fault>,
    on_act: Option<OnAct>,
    /// Every so many acts are carried out even if the client goes away; 0 for none.
    outliving_every: u64,
    acts: u64,
    outliving: JoinSet<()>,
    execs: BTreeMap<ContainerId, u32>,
    overlapping_execs: Vec<String>,
    lies: bool,
    ignores_updates: bool,
    on_update: Option<Arc<dyn Fn() + Send + Sync>>,
    check_creation: Option<CreationCheck>,
    /// The acts, with their object, that a lying runtime only reported as done.
    pretended: BTreeSet<(Pretended, String)>,
}

/// Acts that a lying runtime only pretends to carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Pretended {
    Stop,
    Remove,
    StopSandbox,
    RemoveSandbox,
}

impl std::fmt::Debug for RecordingRuntime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecordingRuntime").finish_non_exhaustive()
    }
}

impl RecordingRuntime {
    pub(crate) fn new(fake: FakeRuntime) -> Self {
        Self { fake, shared: Arc::default() }
    }

    /// From now on, the fault applies to calls of that method for that pod (`web-node`); `None` ends it.
    pub(crate) fn fault(&self, pod: &str, method: Method, fault: Option<Fault>) {
        let key = (pod.to_owned(), method);
        let mut shared = self.shared.lock();
        match fault {
            Some(fault) => shared.faults.insert(key, fault),
            None => shared.faults.remove(&key),
        };
    }

    pub(crate) fn watch(&self, on_act: OnAct) {
        self.shared.lock().on_act = Some(on_act);
    }

    pub(crate) fn complete_cancelled_calls(&self, every: u64) {
        self.shared.lock().outliving_every = every;
    }

    /// From now on a stopped container keeps running while the runtime reports that it has exited: a kubelet that relies on this
    /// breaks the invariants that protect running containers. It shows that the checks detect that.
    pub(crate) fn report_false_stops(&self) {
        self.shared.lock().lies = true;
    }

    /// From now on the runtime reports that it changed the resources of containers, and does not.
    pub(crate) fn ignore_updates(&self) {
        self.shared.lock().ignores_updates = true;
    }

    /// Called at each change of the resources of a container.
    pub(crate) fn watch_updates(&self, on_update: impl Fn() + Send + Sync + 'static) {
        self.shared.lock().on_update = Some(Arc::new(on_update));
    }

    /// From now on the runtime refuses to create a container for which this returns a message.
    pub(crate) fn check_creation(
        &self,
        check: impl Fn(&ContainerRequest) -> Option<String> + Send + Sync + 'static,
    ) {
        self.shared.lock().check_creation = Some(Arc::new(check));
    }

    /// Whether the act is only pretended; from now on the runtime reports it as done.
    fn pretends(&self, act: Pretended, id: &str) -> bool {
        let mut shared = self.shared.lock();
        if shared.lies {
            shared.pretended.insert((act, id.to_owned()));
        }
        shared.lies
    }

    fn has_pretended(&self, act: Pretended, id: &str) -> bool {
        self.shared.lock().pretended.contains(&(act, id.to_owned()))
    }

    /// Exec commands that were started in a container while another one ran there.
    pub(crate) fn overlapping_execs(&self) -> Vec<String> {
        self.shared.lock().overlapping_execs.clone()
    }

    fn record(&self, act: &Act) {
        let on_act = self.shared.lock().on_act.clone();
        if let Some(on_act) = on_act {
            on_act(act);
        }
    }

    async fn apply_fault(&self, pod: Option<String>, method: Method) -> RuntimeResult<()> {
        let Some(pod) = pod else { return Ok(()) };
        let fault = self.shared.lock().faults.get(&(pod, method)).cloned();
        let call = method.name();
        match fault {
            None => Ok(()),
            Some(Fault::Hang) => std::future::pending().await,
            Some(Fault::TimedOut | Fault::TimedOutAfterDoing) => {
                let deadline = Duration::from_secs(10);
                let _ = tokio::time::timeout(deadline, std::future::pending::<()>()).await;
                Err(RuntimeError::TimedOut { call, deadline })
            }
            Some(Fault::Slow(time)) => {
                let _ = tokio::time::timeout(time, std::future::pending::<()>()).await;
                Ok(())
            }
            Some(Fault::Unavailable | Fault::UnavailableAfterDoing) => {
                Err(RuntimeError::Unavailable { call, message: "scripted".to_owned() })
            }
            Some(Fault::Unimplemented) => {
                Err(RuntimeError::Unimplemented { call, message: "scripted".to_owned() })
            }
            Some(Fault::NotFound) => Err(RuntimeError::NotFound { call, message: "scripted".to_owned() }),
            Some(Fault::Failed(message)) => Err(RuntimeError::Failed { call, message }),
        }
    }

    /// Carries out an act; sometimes to its end although the client has gone.
    async fn carry_out<T, F>(&self, act: impl FnOnce(FakeRuntime) -> F) -> RuntimeResult<T>
    where
        T: Send + 'static,
        F: Future<Output = RuntimeResult<T>> + Send + 'static,
    {
        let act = act(self.fake.clone());
        let outlives = {
            let mut shared = self.shared.lock();
            shared.acts += 1;
            shared.outliving_every != 0 && shared.acts.is_multiple_of(shared.outliving_every)
        };
        if !outlives {
            return act.await;
        }
        let (sender, receiver) = tokio::sync::oneshot::channel();
        self.shared.lock().outliving.spawn(async move {
            // The client may be gone.
            let _ = sender.send(act.await);
        });
        receiver.await.unwrap()
    }

    fn pod_of_sandbox(&self, id: &SandboxId) -> Option<String> {
        self.fake.sandboxes().into_iter().find(|s| s.id == *id).map(|s| s.pod.name.to_string())
    }

    fn pod_of(&self, id: &ContainerId) -> Option<String> {
        let (_, container) = self.fake.containers().into_iter().find(|(_, c)| c.id == *id)?;
        self.pod_of_sandbox(&container.sandbox_id)
    }
}

#[async_trait]
impl Runtime for RecordingRuntime {
    async fn version(&self) -> RuntimeResult<RuntimeVersion> {
        self.fake.version().await
    }

    async fn status(&self) -> RuntimeResult<RuntimeStatus> {
        self.fake.status().await
    }

    async fn cgroup_driver(&self) -> RuntimeResult<CgroupDriver> {
        self.fake.cgroup_driver().await
    }

    async fn list_sandboxes(&self, scope: &Scope) -> RuntimeResult<Vec<SandboxSummary>> {
        let mut all = self.fake.list_sandboxes(scope).await?;
        all.retain(|sandbox| !self.has_pretended(Pretended::RemoveSandbox, sandbox.id.as_str()));
        for sandbox in all.iter_mut().filter(|s| self.has_pretended(Pretended::StopSandbox, s.id.as_str())) {
            sandbox.state = SandboxState::NotReady;
        }
        Ok(all)
    }

    async fn list_containers(&self, scope: &Scope) -> RuntimeResult<Vec<ContainerSummary>> {
        let mut all = self.fake.list_containers(scope).await?;
        all.retain(|container| !self.has_pretended(Pretended::Remove, container.id.as_str()));
        for container in all.iter_mut().filter(|c| self.has_pretended(Pretended::Stop, c.id.as_str())) {
            container.state = ContainerState::Exited;
        }
        Ok(all)
    }

    async fn sandbox_info(&self, id: &SandboxId) -> RuntimeResult<String> {
        self.apply_fault(self.pod_of_sandbox(id), Method::PodSandboxStatus).await?;
        self.fake.sandbox_info(id).await
    }

    async fn sandbox_status(&self, id: &SandboxId) -> RuntimeResult<SandboxObservation> {
        self.apply_fault(self.pod_of_sandbox(id), Method::PodSandboxStatus).await?;
        let mut status = self.fake.sandbox_status(id).await?;
        if self.has_pretended(Pretended::StopSandbox, id.as_str()) {
            status.state = SandboxState::NotReady;
        }
        Ok(status)
    }

    async fn container_status(&self, id: &ContainerId) -> RuntimeResult<ContainerObservation> {
        self.apply_fault(self.pod_of(id), Method::ContainerStatus).await?;
        let mut status = self.fake.container_status(id).await?;
        if self.has_pretended(Pretended::Stop, id.as_str()) {
            status.state = ContainerState::Exited;
            status.finished_at = status.started_at;
        }
        Ok(status)
    }

    async fn run_sandbox(&self, request: &SandboxRequest) -> RuntimeResult<SandboxId> {
        self.record(&Act::RunSandbox(request.pod.clone()));
        self.apply_fault(Some(request.pod.name.to_string()), Method::RunPodSandbox).await?;
        let request = request.clone();
        self.carry_out(|fake| async move { fake.run_sandbox(&request).await }).await
    }

    async fn stop_sandbox(&self, id: &SandboxId) -> RuntimeResult<()> {
        self.record(&Act::StopSandbox(id.clone()));
        if self.pretends(Pretended::StopSandbox, id.as_str()) {
            return Ok(());
        }
        self.apply_fault(self.pod_of_sandbox(id), Method::StopPodSandbox).await?;
        let id = id.clone();
        self.carry_out(|fake| async move { fake.stop_sandbox(&id).await }).await
    }

    async fn remove_sandbox(&self, id: &SandboxId) -> RuntimeResult<()> {
        self.record(&Act::RemoveSandbox(id.clone()));
        if self.pretends(Pretended::RemoveSandbox, id.as_str()) {
            return Ok(());
        }
        self.apply_fault(self.pod_of_sandbox(id), Method::RemovePodSandbox).await?;
        let id = id.clone();
        self.carry_out(|fake| async move { fake.remove_sandbox(&id).await }).await
    }

    async fn create_container(
        &self,
        sandbox: &SandboxId,
        request: &ContainerRequest,
        sandbox_request: &SandboxRequest,
    ) -> RuntimeResult<ContainerId> {
        self.apply_fault(Some(sandbox_request.pod.name.to_string()), Method::CreateContainer).await?;
        let check = self.shared.lock().check_creation.clone();
        if let Some(message) = check.and_then(|check| check(request)) {
            return Err(RuntimeError::Failed { call: Method::CreateContainer.name(), message });
        }
        let (sandbox, request, of) = (sandbox.clone(), request.clone(), sandbox_request.clone());
        self.carry_out(|fake| async move { fake.create_container(&sandbox, &request, &of).await }).await
    }

    async fn start_container(&self, id: &ContainerId) -> RuntimeResult<()> {
        self.record(&Act::Start(id.clone()));
        self.apply_fault(self.pod_of(id), Method::StartContainer).await?;
        let id = id.clone();
        self.carry_out(|fake| async move { fake.start_container(&id).await }).await
    }

    async fn stop_container(&self, id: &ContainerId, grace: Duration) -> RuntimeResult<()> {
        self.record(&Act::Stop(id.clone()));
        self.apply_fault(self.pod_of(id), Method::StopContainer).await?;
        if self.pretends(Pretended::Stop, id.as_str()) {
            return Ok(());
        }
        let id = id.clone();
        self.carry_out(|fake| async move { fake.stop_container(&id, grace).await }).await
    }

    async fn remove_container(&self, id: &ContainerId) -> RuntimeResult<()> {
        self.record(&Act::Remove(id.clone()));
        if self.pretends(Pretended::Remove, id.as_str()) {
            return Ok(());
        }
        self.apply_fault(self.pod_of(id), Method::RemoveContainer).await?;
        let id = id.clone();
        self.carry_out(|fake| async move { fake.remove_container(&id).await }).await
    }

    async fn update_container_resources(
        &self,
        id: &ContainerId,
        resources: &LinuxResources,
    ) -> RuntimeResult<()> {
        let (on_update, is_ignored) = {
            let shared = self.shared.lock();
            (shared.on_update.clone(), shared.ignores_updates)
        };
        if let Some(on_update) = on_update {
            on_update();
        }
        if is_ignored { Ok(()) } else { self.fake.update_container_resources(id, resources).await }
    }

    async fn reopen_log(&self, id: &ContainerId) -> RuntimeResult<()> {
        self.fake.reopen_log(id).await
    }

    async fn exec_sync(
        &self,
        id: &ContainerId,
        command: &[String],
        timeout: Duration,
    ) -> RuntimeResult<ExecResult> {
        self.apply_fault(self.pod_of(id), Method::ExecSync).await?;
        {
            let mut shared = self.shared.lock();
            let under_way = shared.execs.entry(id.clone()).or_default();
            *under_way += 1;
            if *under_way > 1 {
                shared.overlapping_execs.push(format!("{id}: {command:?}"));
            }
        }
        let result = self.fake.exec_sync(id, command, timeout).await;
        if let Some(under_way) = self.shared.lock().execs.get_mut(id) {
            *under_way = under_way.saturating_sub(1);
        }
        result
    }

    async fn update_sandbox_resources(
        &self,
        id: &SandboxId,
        overhead: Option<&LinuxResources>,
        resources: &LinuxResources,
    ) -> RuntimeResult<()> {
        self.fake.update_sandbox_resources(id, overhead, resources).await
    }

    async fn checkpoint_container(
        &self,
        id: &ContainerId,
        location: &str,
        timeout: Duration,
    ) -> RuntimeResult<()> {
        self.fake.checkpoint_container(id, location, timeout).await
    }

    async fn exec(&self, id: &ContainerId, command: &[String], streams: Streams) -> RuntimeResult<String> {
        self.fake.exec(id, command, streams).await
    }

    async fn attach(&self, id: &ContainerId, streams: Streams) -> RuntimeResult<String> {
        self.fake.attach(id, streams).await
    }

    async fn port_forward(&self, id: &SandboxId, ports: &[u16]) -> RuntimeResult<String> {
        self.fake.port_forward(id, ports).await
    }

    async fn container_stats(&self, id: &ContainerId) -> RuntimeResult<ContainerStats> {
        self.fake.container_stats(id).await
    }

    async fn list_container_stats(&self, scope: &Scope) -> RuntimeResult<Vec<ContainerStats>> {
        self.fake.list_container_stats(scope).await
    }

    async fn sandbox_stats(&self, id: &SandboxId) -> RuntimeResult<SandboxStats> {
        self.fake.sandbox_stats(id).await
    }

    async fn list_sandbox_stats(&self, scope: &Scope) -> RuntimeResult<Vec<SandboxStats>> {
        self.fake.list_sandbox_stats(scope).await
    }

    async fn list_metric_descriptors(&self) -> RuntimeResult<Vec<MetricDescriptor>> {
        self.fake.list_metric_descriptors().await
    }

    async fn list_sandbox_metrics(&self) -> RuntimeResult<Vec<SandboxMetrics>> {
        self.fake.list_sandbox_metrics().await
    }

    async fn hints(&self) -> RuntimeResult<BoxStream<'static, RuntimeHint>> {
        self.fake.hints().await
    }

    async fn list_images(&self) -> RuntimeResult<Vec<ImageObservation>> {
        self.fake.list_images().await
    }

    async fn image_status(&self, image: &ImageRequest) -> RuntimeResult<Option<ImageObservation>> {
        self.fake.image_status(image).await
    }

    async fn pull_image(
        &self,
        image: &ImageRequest,
        auth: Option<&RegistryAuth>,
        sandbox: &SandboxRequest,
    ) -> RuntimeResult<String> {
        self.apply_fault(Some(sandbox.pod.name.to_string()), Method::PullImage).await?;
        self.fake.pull_image(image, auth, sandbox).await
    }

    async fn remove_image(&self, image: &ImageRequest) -> RuntimeResult<()> {
        self.fake.remove_image(image).await
    }

    async fn image_filesystems(&self) -> RuntimeResult<ImageFilesystems> {
        self.fake.image_filesystems().await
    }

    async fn set_pod_cidr(&self, cidr: &str) -> RuntimeResult<()> {
        self.fake.set_pod_cidr(cidr).await
    }
}
