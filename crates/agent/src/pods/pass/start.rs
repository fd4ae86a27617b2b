//! Starts containers: image, request, create, start, postStart hook.
//!
//! A container that was created but never started, now or by an earlier run of the kubelet, is started instead of created
//! again: a create call that timed out may have succeeded.

use std::collections::BTreeMap;
use std::net::IpAddr;

use api_core::env_objects::EnvObjects;
use base_core::downward::DownwardFacts;
use images_agent::{ImageFailure, PodKeyring, PodLogin, ReadyImage, WantedImage};
use images_core::pull::container_event;
use images_core::pull_secrets::{keyring_of, missing_secrets_message};
use kubelet_core::pods::create_error::{create_error_message, create_error_reason};
use kubelet_core::pods::env::compute_env;
use kubelet_core::pods::hash::container_hash;
use kubelet_core::pods::plan::{KillContainer, KillReason, StartContainer};
use kubelet_core::pods::request::{ContainerInputs, PodFacts, compute_container_request};
use model::containers::{ContainerRef, find_container, spec_of};
use model::devices::AllocateResponse;
use model::k8s::Pod;
use model::request::{ContainerRequest, MountedImage, SandboxRequest};
use model::{ContainerId, ContainerKind, ContainerObservation, ContainerState, PodObservation, SandboxId};
use ports::RuntimeError;
use resources_agent::Resources;
use resources_core::amounts::Amounts;
use resources_core::claims::containers::without_claimed_resources;
use resources_core::cpus::CpuPolicy;
use resources_core::devices::allocate_response::{show_devices, with_env};
use volumes_core::image::{check_runtime, image_volumes};

use super::image_volumes::{self, PulledImages};
use super::prepare::{Prepared, mount_points, sandbox_request};
use super::trail::Work;
use super::{PassContext, PassEvent, Retry, Waiting, claims, files};
use crate::metrics::{KubeletMetrics, PodMetrics};
use crate::pods::handles::PodHandles;
use crate::pods::hooks::{HookContext, run_handler};

/// Why a container was not started.
#[derive(Debug)]
struct Failure {
    reason: &'static str,
    message: String,
    retry: Retry,
}

impl Failure {
    fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), retry: Retry::BackingOff }
    }
}

impl From<ImageFailure> for Failure {
    fn from(failure: ImageFailure) -> Self {
        let retry = failure.retry_at.map_or(Retry::BackingOff, Retry::At);
        Self { reason: failure.reason, message: failure.message, retry }
    }
}

/// Starts the containers one after another, in the order of the plan: ephemeral containers, init containers, then regular
/// containers in the order of the spec. A running postStart hook delays later containers. Returns when to retry if one
/// failed.
pub async fn start_all(
    context: &PassContext,
    prepared: &Prepared,
    sandbox: &SandboxId,
    starts: &[StartContainer],
) -> Option<Retry> {
    let attempt = context.observed.sandboxes.iter().find(|s| s.id == *sandbox).map_or(0, |s| s.attempt);
    let request = match sandbox_request(context, prepared, attempt) {
        Ok(request) => request,
        Err(error) => {
            tracing::warn!(pod = %context.identity, err = %error, "Failed to start containers");
            return Some(Retry::BackingOff);
        }
    };
    let has_secrets = spec_of(&context.pod).image_pull_secrets.is_some();
    let keyring = context.traced_if(has_secrets, Work::ReadPullSecrets, pod_keyring(context)).await;
    let login = PodLogin { keyring, objects: context.objects.clone() };
    let image_volumes = match starts.is_empty() {
        true => PulledImages::new(),
        false => Box::pin(image_volumes::pull_all(context, &request, &login)).await,
    };
    let start_context =
        StartContext { context, prepared, sandbox, sandbox_request: &request, login: &login, image_volumes };
    let mut retry = None;
    for start in starts {
        let outcome = start_context.start(start).await;
        retry = Retry::earliest(retry, outcome);
        // Later containers depend on an init container; the failure of any other one affects only itself.
        if outcome.is_some() && start.kind == ContainerKind::Init {
            break;
        }
    }
    retry
}

/// What all containers of one pass share.
struct StartContext<'a> {
    context: &'a PassContext,
    prepared: &'a Prepared,
    sandbox: &'a SandboxId,
    sandbox_request: &'a SandboxRequest,
    login: &'a PodLogin,
    image_volumes: PulledImages,
}

/// The credentials of the pod's image pull secrets. Missing secrets do not prevent an attempt to pull.
async fn pod_keyring(context: &PassContext) -> PodKeyring {
    let (secrets, missing) = context.objects.pull_secrets().await;
    if !missing.is_empty() {
        let names: Vec<&str> = missing.iter().map(String::as_str).collect();
        let message = missing_secrets_message(&names);
        context.handles.ctx.recorder.warning(
            &context.identity,
            None,
            "FailedToRetrieveImagePullSecret",
            message,
        );
    }
    let secrets: Vec<_> = secrets.iter().map(|secret| &**secret).collect();
    keyring_of(&secrets)
}

impl StartContext<'_> {
    async fn start(&self, start: &StartContainer) -> Option<Retry> {
        let outcome = self.try_start(start).await;
        let failure = outcome.as_ref().err().map(|failure| failure.reason);
        self.context.handles.ctx.metrics.get::<KubeletMetrics>().container_started(start.kind, failure);
        match outcome {
            Ok(()) => {
                self.context.report(PassEvent::Started { container: start.name.to_string() }).await;
                None
            }
            Err(Failure { reason, message, retry }) => {
                let waiting = Waiting { reason: reason.to_owned(), message };
                self.context.report(PassEvent::Failed { container: start.name.to_string(), waiting }).await;
                Some(retry)
            }
        }
    }

    async fn try_start(&self, start: &StartContainer) -> Result<(), Failure> {
        let (id, restart_count) = match self.adoptable(start)? {
            // It was created with a count of its own, and its log file is named after that.
            Some(created) => (created.id.clone(), created.record.restart_count),
            None => {
                let image = Box::pin(self.image(start));
                let (image, shown) = self.context.traced(Work::EnsureImage, Some(&start.name), image).await?;
                let request = Box::pin(self.request(start, &image, &shown));
                let request =
                    self.context.traced(Work::ConfigureContainer, Some(&start.name), request).await?;
                self.record_amounts(start).await?;
                let created = self.create(start, &request);
                let created = self.context.traced(Work::CreateContainer, Some(&start.name), created).await;
                self.context
                    .handles
                    .ctx
                    .metrics
                    .get::<PodMetrics>()
                    .image_volumes_created(shown.len(), created.is_ok());
                (created?, start.restart_count)
            }
        };
        self.run(start, &id, restart_count).await
    }

    /// Its image, and those of its image volumes.
    async fn image(
        &self,
        start: &StartContainer,
    ) -> Result<(ReadyImage, BTreeMap<String, MountedImage>), Failure> {
        let (shown, name, policy) = {
            let pod = &*self.context.pod;
            let container = container_of(pod, start)?;
            let policy = container.image_pull_policy().map(str::to_owned);
            (self.shown_images(pod, &container)?, container.image().to_owned(), policy)
        };
        let wanted = WantedImage { container: Some(&start.name), image: &name, policy: policy.as_deref() };
        let (identity, sandbox) = (&self.context.identity, self.sandbox_request);
        let image = self.context.handles.images.ensure(identity, wanted, sandbox, self.login).await;
        let image =
            image.inspect_err(|failure| self.fail_event(&start.name, &container_event(failure.reason)))?;
        image_volumes::record_pull(self.context, &image).await;
        Ok((image, shown))
    }

    /// Records what the container will have before it is created, like the Go kubelet. On disk as well if that is a resize: a kubelet
    /// that starts later would restart the container for it once more.
    async fn record_amounts(&self, start: &StartContainer) -> Result<(), Failure> {
        let features = self.context.handles.ctx.node_facts.features;
        let amounts = {
            let pod = &*self.context.pod;
            Amounts::of_container(pod, &container_of(pod, start)?, features)
        };
        self.context.record_amounts(start.name.to_string(), amounts).await;
        Ok(())
    }

    /// The runtime's references to the images of the container's image volumes, by the name of the volume. Fails if one
    /// is missing.
    fn shown_images(
        &self,
        pod: &Pod,
        container: &ContainerRef<'_>,
    ) -> Result<BTreeMap<String, MountedImage>, Failure> {
        let handles = &self.context.handles;
        let volumes = image_volumes(pod, container);
        if volumes.is_empty() {
            return Ok(BTreeMap::new());
        }
        handles.ctx.metrics.get::<PodMetrics>().image_volumes_requested(volumes.len());
        let runtime = handles.node.view.borrow().version.clone();
        check_runtime(&runtime.name, &runtime.version, volumes.iter().any(|volume| volume.has_part))
            .map_err(|why| {
                self.fail_event(container.name(), &format!("Error: {why}"));
                Failure::new("CreateContainerConfigError", why)
            })?;
        let mut shown = BTreeMap::new();
        let mut failure = None;
        for volume in volumes {
            match self.image_volumes.get(volume.volume) {
                Some(Ok(image)) => {
                    shown.insert(volume.volume.to_owned(), image.clone());
                }
                Some(Err(why)) => {
                    self.fail_event(container.name(), &container_event(why.reason));
                    handles.ctx.metrics.get::<PodMetrics>().image_volumes_created(1, false);
                    failure = Some(why.clone());
                }
                None => {}
            }
        }
        failure.map_or(Ok(shown), |failure| Err(failure.into()))
    }

    /// The newest instance, if it was created from this spec in this sandbox and never started.
    fn adoptable(&self, start: &StartContainer) -> Result<Option<&ContainerObservation>, Failure> {
        let newest = self.context.observed.newest(&start.name);
        let Some(newest) = newest.filter(|newest| newest.state == ContainerState::Created) else {
            return Ok(None);
        };
        let pod = &*self.context.pod;
        let hash = container_hash(&container_of(pod, start)?);
        let is_ours = newest.record.hash == Some(hash) && newest.sandbox_id == *self.sandbox;
        Ok(is_ours.then_some(newest))
    }

    async fn request(
        &self,
        start: &StartContainer,
        image: &ReadyImage,
        shown: &BTreeMap<String, MountedImage>,
    ) -> Result<Box<ContainerRequest>, Failure> {
        let refused = |message: String| {
            self.fail_event(&start.name, &format!("Error: {message}"));
            Failure::new("CreateContainerConfigError", message)
        };
        let pod = &*self.context.pod;
        let container = &container_of(pod, start)?;
        let ips = self.pod_ips(pod);
        let handles = &self.context.handles;
        let allocatable = handles.allocatable.get();
        let downward = DownwardFacts {
            container: container.name(),
            pod_ips: &ips,
            host_ips: handles.ctx.host_ips(),
            allocatable: &allocatable,
        };
        let objects = self.context.objects.env().await.map_err(|error| refused(error.to_string()))?;
        let env_files = files::read_env_files(self.context, container, &self.prepared.volumes);
        let objects = EnvObjects { files: env_files.await.map_err(refused)?, ..objects };
        let env =
            compute_env(pod, container, &downward, &objects).map_err(|error| refused(error.to_string()))?;
        let claimed = claims::cdi_devices(self.context, pod, container).await;
        let claimed = claimed.map_err(|error| refused(error.to_string()))?;
        let response = self.plugin_devices(pod, container).await.map_err(refused)?;
        let env = with_env(&response, env);
        let hosts_file = files::ensure_hosts_file(self.context, container, &ips).await.map_err(refused)?;
        let facts = PodFacts { hosts_file, ..self.prepared.facts.clone() };
        let termination_log = files::ensure_termination_log(self.context, container, start.restart_count)
            .await
            .map_err(refused)?;
        let volumes = mount_points(pod, &self.prepared.volumes, shown);
        let sub_paths = files::ensure_sub_paths(self.context, container, &env, &self.prepared.volumes, shown)
            .await
            .map_err(refused)?;
        files::ensure_log_dir(self.context, self.sandbox_request, container).await.map_err(refused)?;
        let target = self.target_of(container);
        let request = compute_container_request(&ContainerInputs {
            pod,
            container: *container,
            node: &handles.ctx.node_facts,
            facts: &facts,
            restart_count: start.restart_count,
            hash: container_hash(container),
            image_ref: &image.reference,
            image: &image.observed,
            env: &env,
            volumes: &volumes,
            sub_paths: &sub_paths,
            termination_log: termination_log.as_deref(),
            target: target.as_ref(),
        });
        let mut request = Box::new(request.map_err(|error| refused(error.to_string()))?);
        request.cdi_devices = claimed;
        show_devices(&mut request, response);
        self.pin(pod, container, &mut request);
        Ok(request)
    }

    /// What device plugins have allocated to the container. They allocate nothing for resources that a claim stands for.
    async fn plugin_devices(
        &self,
        pod: &Pod,
        container: &ContainerRef<'_>,
    ) -> Result<AllocateResponse, String> {
        let status = claims::status_in_api(self.context);
        let pod = without_claimed_resources(pod, status.as_deref());
        let container = find_container(&pod, container.name()).unwrap_or(*container);
        self.context.handles.resources.devices.of_starting(&pod, &self.context.identity.uid, &container).await
    }

    /// The CPUs and memory nodes of the container.
    fn pin(&self, pod: &Pod, container: &ContainerRef<'_>, request: &mut ContainerRequest) {
        let pins = self.context.handles.resources.admissions.pins_of(pod, container);
        pins.lift_quota(&mut request.resources);
        request.resources.cpuset_cpus = pins.cpus;
        request.resources.cpuset_mems = pins.memory_nodes;
    }

    /// The running container whose process namespace an ephemeral one targets.
    fn target_of(&self, container: &ContainerRef<'_>) -> Option<ContainerId> {
        let ephemeral = match (container.kind, &container.spec) {
            (ContainerKind::Ephemeral, model::containers::SpecRef::Ephemeral(spec)) => spec,
            _ => return None,
        };
        let name = ephemeral.target_container_name.as_deref()?;
        self.context.observed.running().find(|c| &*c.name == name).map(|c| c.id.clone())
    }

    async fn create(
        &self,
        start: &StartContainer,
        request: &ContainerRequest,
    ) -> Result<ContainerId, Failure> {
        let runtime = &self.context.handles.ctx.runtime;
        match runtime.create_container(self.sandbox, request, self.sandbox_request).await {
            Ok(id) => {
                self.context.handles.resources.cpusets.record(&id, &request.resources.cpuset_cpus);
                let recorder = &self.context.handles.ctx.recorder;
                recorder.normal(&self.context.identity, Some(&start.name), "Created", "Container created");
                Ok(id)
            }
            Err(error) => {
                claims::handle_create_error(self.context, &error);
                let message = create_error_message(error.message(), &request.env);
                self.fail_event(&start.name, &format!("Error: {message}"));
                // If the call has succeeded after all, the next observation shows the container, which is then started.
                Err(Failure::new(create_error_reason(&message), message))
            }
        }
    }

    async fn run(&self, start: &StartContainer, id: &ContainerId, restart_count: u32) -> Result<(), Failure> {
        let handles = &self.context.handles;
        self.record_start(start)?;
        let started = handles.ctx.runtime.start_container(id);
        let started = self.context.traced(Work::StartContainer, Some(&start.name), started).await;
        if let Err(error) = started {
            self.fail_event(&start.name, &format!("Error: {}", error.message()));
            self.discard_if_refused(id, &error).await;
            return Err(Failure::new("RunContainerError", error.message()));
        }
        let recorder = &handles.ctx.recorder;
        recorder.normal(&self.context.identity, Some(&start.name), "Started", "Container started");
        self.settle_cpus(&start.name, id).await;
        files::link_log(self.context, self.sandbox_request, &start.name, id, restart_count).await;
        self.run_post_start(start, id).await
    }

    fn record_start(&self, start: &StartContainer) -> Result<(), Failure> {
        let pod = &*self.context.pod;
        self.context.handles.resources.admissions.record_start(pod, &container_of(pod, start)?);
        Ok(())
    }

    /// The shared pool may have changed since the container was created.
    async fn settle_cpus(&self, container: &str, id: &ContainerId) {
        let PodHandles { ctx, resources, .. } = &*self.context.handles;
        let Resources { admissions, cpusets, .. } = resources;
        if admissions.read(|table| matches!(table.pinned().0.cpus(), CpuPolicy::Static(_))) {
            cpusets.settle(ctx, admissions, &self.context.identity.uid, container, id).await;
        }
    }

    /// Removes a created container that cannot be started; otherwise it would be adopted forever.
    async fn discard_if_refused(&self, id: &ContainerId, error: &RuntimeError) {
        if error.is_uncertain() {
            return;
        }
        let runtime = &self.context.handles.ctx.runtime;
        let is_still_created =
            runtime.container_status(id).await.is_ok_and(|status| status.state == ContainerState::Created);
        if is_still_created && let Err(error) = runtime.remove_container(id).await {
            tracing::warn!(pod = %self.context.identity, containerID = %id, err = %error, "Failed to remove container that the runtime failed to start");
        }
    }

    async fn run_post_start(&self, start: &StartContainer, id: &ContainerId) -> Result<(), Failure> {
        let pod = &*self.context.pod;
        let container = &container_of(pod, start)?;
        let Some(handler) = container.lifecycle().and_then(|l| l.post_start.as_ref()) else { return Ok(()) };
        let handles = &self.context.handles;
        self.context.report(PassEvent::HookBegan { container: container.name().to_owned() }).await;
        let hook = HookContext {
            runtime: &*handles.ctx.runtime,
            net: &*handles.ctx.net,
            recorder: &handles.ctx.recorder,
            metrics: &handles.ctx.metrics,
            pod: &self.context.identity,
            pod_ip: self.pod_ips(pod).first().copied(),
            container_id: id,
            container_name: container.name(),
            container: Some(*container),
        };
        let ran = run_handler(&hook, handler);
        let ran = self.context.traced(Work::PostStartHook, Some(&start.name), ran).await;
        let Err(why) = ran else { return Ok(()) };
        tracing::warn!(pod = %self.context.identity, containerName = container.name(), err = why, "PostStart hook failed");
        let name = Some(container.name());
        // The output of the hook may contain secrets, so it is not part of the event, which more people can read.
        handles.ctx.recorder.warning(
            &self.context.identity,
            name,
            "FailedPostStartHook",
            "PostStartHook failed",
        );
        self.kill_after_hook(container, id).await;
        Err(Failure::new("PostStartHookError", why))
    }

    async fn kill_after_hook(&self, container: &ContainerRef<'_>, id: &ContainerId) {
        let handles = &self.context.handles;
        let Ok(observed) = handles.ctx.runtime.container_status(id).await else { return };
        let kill = KillContainer {
            id: id.clone(),
            name: container.name().into(),
            why: KillReason::PostStartHookFailed,
            grace: None,
        };
        let mut start_context = PodObservation::clone(&self.context.observed);
        start_context.containers.insert(0, observed);
        let context = PassContext { observed: start_context.into(), ..self.context.clone() };
        super::kill::kill_all(&context, &[kill]).await;
    }

    fn pod_ips(&self, pod: &Pod) -> Vec<IpAddr> {
        if files::uses_host_network(pod) {
            return self.context.handles.ctx.host_ips().to_vec();
        }
        let sandbox = self.context.observed.sandboxes.iter().find(|s| s.id == *self.sandbox);
        sandbox.map(|s| s.ips.clone()).unwrap_or_default()
    }

    fn fail_event(&self, container: &str, message: &str) {
        let recorder = &self.context.handles.ctx.recorder;
        recorder.warning(&self.context.identity, Some(container), "Failed", message);
    }
}

/// The plan starts only containers of the pod.
fn container_of<'p>(pod: &'p Pod, start: &StartContainer) -> Result<ContainerRef<'p>, Failure> {
    let missing =
        || Failure::new("CreateContainerConfigError", format!("the pod has no container {:?}", start.name));
    find_container(pod, &start.name).ok_or_else(missing)
}
