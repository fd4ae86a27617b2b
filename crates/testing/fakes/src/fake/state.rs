//! The state of the fake runtime and its changes. Synchronous and without a clock: every step gets the time as an argument.

mod stats;
mod streams;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use model::annotations::{CONTAINER_NAME_LABEL, CONTAINER_TERMINATION_MESSAGE_PATH};
use model::observation::{ImageMount, NamespaceMode, ObservedResources, ObservedUser};
use model::request::{ContainerRequest, LinuxResources, Mount, SandboxRequest};
use model::{
    CgroupDriver, ContainerId, ContainerObservation, ContainerRecord, ContainerState, PodRef, PodUid,
    SandboxId, SandboxObservation, SandboxState,
};
use ports::runtime::{ContainerSummary, RuntimeResult, SandboxSummary, Scope};
use tokio::time::Instant;

use super::faults::Method;
use super::images::Images;
use super::logs;
use super::program::{BY_SIGKILL, Exec, Program};
pub(super) use stats::metric_descriptors;

/// One point in time on both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) at: Instant,
    pub(super) wall: Timestamp,
}

impl Moment {
    fn after(self, time: Duration) -> Self {
        Self { at: self.at + time, wall: self.wall.checked_add(time).unwrap_or(Timestamp::MAX) }
    }
}

/// What is mounted where the container writes its termination message.
fn message_file(request: &ContainerRequest) -> String {
    let path = request.annotations.get(CONTAINER_TERMINATION_MESSAGE_PATH);
    let mount = request.mounts.iter().find(|mount| path == Some(&mount.container_path));
    mount.map(|mount| mount.host_path.clone()).unwrap_or_default()
}

#[derive(Debug)]
pub(super) struct Sandbox {
    pub(super) request: SandboxRequest,
    /// The current resources of the pod: the sandbox's own part, and all of it.
    pub(super) resources: (Option<LinuxResources>, Option<LinuxResources>),
    serial: u64,
    created: Moment,
    ready: bool,
    address: Option<IpAddr>,
}

#[derive(Debug)]
pub(super) struct Container {
    pub(super) request: ContainerRequest,
    pub(super) resources: LinuxResources,
    sandbox: SandboxId,
    pod: String,
    uid: PodUid,
    serial: u64,
    created: Moment,
    started: Option<Moment>,
    /// When it exited or will exit, as far as is known, and the exit code.
    end: Option<(Moment, i32)>,
    log: PathBuf,
    program: Program,
}

impl Container {
    fn state(&self, now: Moment) -> ContainerState {
        match (&self.started, &self.end) {
            (_, Some((end, _))) if end.at <= now.at => ContainerState::Exited,
            (Some(_), _) => ContainerState::Running,
            (None, _) => ContainerState::Created,
        }
    }

    /// Moves the exit forward, never back.
    fn end_no_later(&mut self, moment: Moment, code: i32) -> Moment {
        match &self.end {
            Some((end, _)) if end.at <= moment.at => *end,
            Some(_) | None => {
                self.end = Some((moment, code));
                moment
            }
        }
    }

    pub(super) fn title(&self) -> String {
        numbered(format!("{}/{}", self.pod, self.request.name), self.request.attempt)
    }
}

/// What a runtime reports of the limits that it was asked for.
fn observed_resources(from: &LinuxResources) -> Option<ObservedResources> {
    let quota = from.cpu_quota.zip(from.cpu_period).filter(|(quota, period)| *quota > 0 && *period > 0);
    let positive = |number: &i64| *number > 0;
    let observed = ObservedResources {
        cpu_shares: from.cpu_shares.filter(positive),
        cpu_limit_milli: quota.map(|(quota, period)| quota * 1000 / period),
        memory_limit: from.memory_limit_bytes.filter(positive),
    };
    (observed != ObservedResources::default()).then_some(observed)
}

fn image_mount(mount: &Mount) -> Option<ImageMount> {
    let image = mount.image.as_ref()?.reference.clone();
    Some(ImageMount { container_path: mount.container_path.clone(), image, image_ref: None })
}

fn numbered(name: String, attempt: u32) -> String {
    if attempt == 0 { name } else { format!("{name}#{attempt}") }
}

/// `web`, or `web#2` for a later attempt.
pub(super) fn sandbox_title(request: &SandboxRequest) -> String {
    numbered(request.pod.name.to_string(), request.attempt)
}

#[derive(Debug)]
pub(super) struct State {
    sandboxes: BTreeMap<SandboxId, Sandbox>,
    containers: BTreeMap<ContainerId, Container>,
    pub(super) images: Images,
    serial: u64,
    pub(super) double_starts: Vec<String>,
    pub(super) writes_logs: bool,
    pub(super) runtime_ready: bool,
    pub(super) network_ready: bool,
    pub(super) user_namespaces: bool,
    pub(super) user_namespaces_host_network: bool,
    /// Answers as CRI-O does.
    pub(super) is_crio: bool,
    pub(super) pod_cidr: String,
    pub(super) cgroup_driver: CgroupDriver,
    /// The address of the streaming server, such as `http://127.0.0.1:1`.
    pub(super) streaming: String,
}

impl Default for State {
    fn default() -> Self {
        Self {
            sandboxes: BTreeMap::new(),
            containers: BTreeMap::new(),
            images: Images::default(),
            serial: 0,
            double_starts: Vec::new(),
            writes_logs: false,
            runtime_ready: true,
            network_ready: true,
            user_namespaces: true,
            user_namespaces_host_network: false,
            is_crio: false,
            pod_cidr: String::new(),
            cgroup_driver: CgroupDriver::Cgroupfs,
            streaming: streams::CLOSED_PORT.to_owned(),
        }
    }
}

impl State {
    fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    // ---- sandboxes ----

    pub(super) fn run_sandbox(&mut self, request: &SandboxRequest, now: Moment) -> RuntimeResult<SandboxId> {
        let same = |s: &Sandbox| s.request.pod == request.pod && s.request.attempt == request.attempt;
        if let Some((id, _)) = self.sandboxes.iter().find(|(_, sandbox)| same(sandbox)) {
            if self.is_crio {
                return Ok(id.clone());
            }
            let name = sandbox_title(request);
            let message =
                format!("failed to reserve sandbox name {name:?}: name {name:?} is reserved for {id}");
            return Err(Method::RunPodSandbox.already_exists(message));
        }
        let serial = self.next_serial();
        let address = match request.security.namespaces.network {
            NamespaceMode::Node if !request.hostname.is_empty() && !self.is_crio => {
                let message = "unable to set hostname without a private UTS namespace";
                return Err(Method::RunPodSandbox.failed(message));
            }
            NamespaceMode::Node => None,
            NamespaceMode::Pod | NamespaceMode::Container | NamespaceMode::Target(_) => Some(address(serial)),
        };
        let id = SandboxId::from(format!("sandbox-{serial:04}"));
        let resources = (request.overhead.clone(), request.resources.clone());
        let mut request = request.clone();
        if self.is_crio {
            request.labels.insert(CONTAINER_NAME_LABEL.to_owned(), "POD".to_owned());
        }
        let sandbox = Sandbox { request, resources, serial, created: now, ready: true, address };
        self.sandboxes.insert(id.clone(), sandbox);
        Ok(id)
    }

    /// Kills what runs in the sandbox. Succeeds if there is no such sandbox.
    pub(super) fn stop_sandbox(&mut self, id: &SandboxId, now: Moment) {
        if let Some(sandbox) = self.sandboxes.get_mut(id) {
            sandbox.ready = false;
        }
        for container in self.containers.values_mut().filter(|c| c.sandbox == *id) {
            if container.started.is_some() {
                container.end_no_later(now, BY_SIGKILL);
            }
        }
    }

    pub(super) fn remove_sandbox(&mut self, id: &SandboxId) {
        self.containers.retain(|_, container| container.sandbox != *id);
        self.sandboxes.remove(id);
    }

    pub(super) fn sandbox_title(&self, id: &SandboxId) -> String {
        self.sandboxes.get(id).map_or_else(|| id.to_string(), |s| sandbox_title(&s.request))
    }

    pub(super) fn pod_of(&self, id: &SandboxId) -> Option<PodUid> {
        self.sandboxes.get(id).map(|sandbox| sandbox.request.pod.uid.clone())
    }

    pub(super) fn list_sandboxes(&self, scope: &Scope) -> Vec<SandboxSummary> {
        let wanted = |s: &Sandbox| covers(scope, &s.request.pod.uid);
        let summary = |(id, s): (&SandboxId, &Sandbox)| SandboxSummary {
            id: id.clone(),
            pod: s.request.pod.clone(),
            attempt: s.request.attempt,
            state: sandbox_state(s),
        };
        self.sandboxes.iter().filter(|(_, s)| wanted(s)).map(summary).collect()
    }

    /// The cgroup that the sandbox was requested in.
    pub(super) fn cgroup_parent(&self, id: &SandboxId) -> Option<&str> {
        Some(&self.sandboxes.get(id)?.request.cgroup_parent)
    }

    pub(super) fn sandbox_status(&self, id: &SandboxId) -> RuntimeResult<SandboxObservation> {
        let not_found = || Method::PodSandboxStatus.not_found(format!("sandbox {id}: not found"));
        let sandbox = self.sandboxes.get(id).ok_or_else(not_found)?;
        Ok(SandboxObservation {
            id: id.clone(),
            pod: sandbox.request.pod.clone(),
            attempt: sandbox.request.attempt,
            state: sandbox_state(sandbox),
            created_at: sandbox.created.wall,
            ips: sandbox.address.filter(|_| sandbox.ready).into_iter().collect(),
            network: sandbox.request.security.namespaces.network.clone(),
            runtime_handler: sandbox.request.runtime_handler.clone(),
        })
    }

    // ---- containers ----

    pub(super) fn create_container(
        &mut self,
        sandbox_id: &SandboxId,
        request: &ContainerRequest,
        program: Program,
        now: Moment,
    ) -> RuntimeResult<ContainerId> {
        let method = Method::CreateContainer;
        let sandbox = self.sandboxes.get(sandbox_id);
        let sandbox = sandbox.ok_or_else(|| method.not_found(format!("sandbox {sandbox_id}: not found")))?;
        let same = |c: &Container| {
            c.sandbox == *sandbox_id && c.request.name == request.name && c.request.attempt == request.attempt
        };
        if let Some((id, container)) = self.containers.iter().find(|(_, c)| same(c)) {
            if self.is_crio {
                return Ok(id.clone());
            }
            let name = container.title();
            let message =
                format!("failed to reserve container name {name:?}: name {name:?} is reserved for {id}");
            return Err(method.already_exists(message));
        }
        if self.images.find(&request.image).is_none() {
            return Err(method.failed(format!("failed to resolve image {:?}: not found", request.image)));
        }
        let log = PathBuf::from(&sandbox.request.log_directory).join(&request.log_path);
        let (pod, uid) = (sandbox.request.pod.name.to_string(), sandbox.request.pod.uid.clone());
        let serial = self.next_serial();
        let id = ContainerId::from(format!("container-{serial:04}"));
        let container = Container {
            request: request.clone(),
            resources: request.resources.clone(),
            sandbox: sandbox_id.clone(),
            pod,
            uid,
            serial,
            created: now,
            started: None,
            end: None,
            log,
            program,
        };
        self.containers.insert(id.clone(), container);
        Ok(id)
    }

    pub(super) fn start_container(&mut self, id: &ContainerId, now: Moment) -> RuntimeResult<()> {
        let method = Method::StartContainer;
        let sandboxes = &self.sandboxes;
        let twin = {
            let new = self.find(method, id)?;
            let is_twin = |c: &&Container| {
                c.uid == new.uid
                    && c.request.name == new.request.name
                    && c.state(now) == ContainerState::Running
            };
            self.containers.values().find(is_twin).map(Container::title)
        };
        let not_found = || method.not_found(format!("container {id}: not found"));
        let container = self.containers.get_mut(id).ok_or_else(not_found)?;
        match container.state(now) {
            ContainerState::Created => {}
            state @ (ContainerState::Running | ContainerState::Exited | ContainerState::Unknown) => {
                return Err(method.failed(format!("container is in {state:?} state")));
            }
        }
        if !sandboxes.get(&container.sandbox).is_some_and(|sandbox| sandbox.ready) {
            return Err(method.failed("sandbox container is not running"));
        }
        container.started = Some(now);
        container.end = container.program.ends.map(|(after, code)| (now.after(after), code));
        if self.writes_logs {
            logs::append(&container.log, &container.program.output, now.wall)
                .map_err(|error| method.failed(format!("log {}: {error}", container.log.display())))?;
        }
        if let Some(twin) = twin {
            let line = format!("{} started while {twin} ran", container.title());
            self.double_starts.push(line);
        }
        Ok(())
    }

    /// Signals the container; returns when it will have exited, or `None` if it does not run.
    pub(super) fn stop_container(
        &mut self,
        id: &ContainerId,
        grace: Duration,
        now: Moment,
    ) -> Option<Instant> {
        let container = self.containers.get_mut(id)?;
        match container.state(now) {
            ContainerState::Running => {}
            ContainerState::Created | ContainerState::Exited | ContainerState::Unknown => return None,
        }
        let (after, code) = match container.program.on_term {
            Some((after, code)) if after <= grace && !grace.is_zero() => (after, code),
            Some(_) | None => (grace, BY_SIGKILL),
        };
        Some(container.end_no_later(now.after(after), code).at)
    }

    pub(super) fn remove_container(&mut self, id: &ContainerId) {
        self.containers.remove(id);
    }

    pub(super) fn update_resources(
        &mut self,
        id: &ContainerId,
        resources: &LinuxResources,
    ) -> RuntimeResult<()> {
        let method = Method::UpdateContainerResources;
        let not_found = || method.not_found(format!("container {id}: not found"));
        let own = &mut self.containers.get_mut(id).ok_or_else(not_found)?.resources;
        // A runtime leaves what an update does not have.
        *own = LinuxResources {
            cpu_shares: resources.cpu_shares.or(own.cpu_shares),
            cpu_quota: resources.cpu_quota.or(own.cpu_quota),
            cpu_period: resources.cpu_period.or(own.cpu_period),
            memory_limit_bytes: resources.memory_limit_bytes.or(own.memory_limit_bytes),
            memory_swap_limit_bytes: resources.memory_swap_limit_bytes.or(own.memory_swap_limit_bytes),
            oom_score_adj: resources.oom_score_adj.or(own.oom_score_adj),
            cpuset_cpus: or_text(&resources.cpuset_cpus, &own.cpuset_cpus),
            cpuset_mems: or_text(&resources.cpuset_mems, &own.cpuset_mems),
            hugepage_limits: match resources.hugepage_limits.is_empty() {
                true => own.hugepage_limits.clone(),
                false => resources.hugepage_limits.clone(),
            },
            unified: own
                .unified
                .iter()
                .chain(&resources.unified)
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect(),
        };
        Ok(())
    }

    /// Reopens the log, as after a rename.
    pub(super) fn reopen_log(&self, id: &ContainerId, now: Moment) -> RuntimeResult<()> {
        let method = Method::ReopenContainerLog;
        let container = self.find(method, id)?;
        if container.state(now) != ContainerState::Running {
            return Err(method.failed("container is not running"));
        }
        if self.writes_logs {
            logs::append(&container.log, &[], now.wall)
                .map_err(|error| method.failed(format!("log {}: {error}", container.log.display())))?;
        }
        Ok(())
    }

    pub(super) fn exec(&self, id: &ContainerId, command: &[String], now: Moment) -> RuntimeResult<Exec> {
        let running = self.running(Method::ExecSync, id, now);
        running.map_err(|error| match self.is_crio {
            true => Method::ExecSync.not_found(format!("container is not created or running: {error}")),
            false => error,
        })?;
        Ok((self.find(Method::ExecSync, id)?.program.on_exec)(command))
    }

    pub(super) fn container_title(&self, id: &ContainerId) -> String {
        self.containers.get(id).map_or_else(|| id.to_string(), Container::title)
    }

    pub(super) fn pod_of_container(&self, id: &ContainerId) -> Option<PodUid> {
        self.containers.get(id).map(|container| container.uid.clone())
    }

    fn image_id_of(&self, request: &ContainerRequest) -> String {
        self.images.find(&request.image).map_or_else(|| request.image.clone(), |image| image.id.clone())
    }

    pub(super) fn list_containers(&self, scope: &Scope, now: Moment) -> Vec<ContainerSummary> {
        let summary = |(id, c): (&ContainerId, &Container)| ContainerSummary {
            id: id.clone(),
            sandbox_id: c.sandbox.clone(),
            pod: PodRef::from_labels(|key| c.request.labels.get(key).map(String::as_str)),
            name: c.request.name.as_str().into(),
            attempt: c.request.attempt,
            state: c.state(now),
            image_id: self.image_id_of(&c.request).into(),
        };
        self.containers.iter().filter(|(_, c)| covers(scope, &c.uid)).map(summary).collect()
    }

    pub(super) fn container_status(
        &self,
        id: &ContainerId,
        now: Moment,
    ) -> RuntimeResult<ContainerObservation> {
        let container = self.find(Method::ContainerStatus, id)?;
        let state = container.state(now);
        let ended = container.end.filter(|_| state == ContainerState::Exited);
        let exit_code = ended.map_or(0, |(_, code)| code);
        let is_known = |moment: Moment| now.at >= moment.at + container.program.reason_after;
        let own = container.program.reason.filter(|_| ended.is_some_and(|(at, _)| is_known(at)));
        let reason = match (ended, own) {
            (None, _) => "",
            (Some(_), Some(reason)) => reason,
            (Some((_, 0)), None) => "Completed",
            (Some(_), None) => "Error",
        };
        let request = &container.request;
        Ok(ContainerObservation {
            id: id.clone(),
            sandbox_id: container.sandbox.clone(),
            name: Arc::from(request.name.as_str()),
            state,
            created_at: container.created.wall,
            started_at: container.started.map(|moment| moment.wall),
            finished_at: ended.map(|(moment, _)| moment.wall),
            exit_code,
            reason: reason.to_owned(),
            message: ended.map(|_| container.program.message.clone()).unwrap_or_default(),
            image: request.user_specified_image.clone(),
            image_id: self.image_id_of(request),
            log_path: container.log.display().to_string(),
            message_file: message_file(request),
            record: ContainerRecord::from_annotations(&request.annotations),
            user: request.security.run_as.uid.map(|uid| ObservedUser {
                uid,
                gid: request.security.run_as.gid.unwrap_or(0),
                supplemental_groups: request.security.supplemental_groups.clone(),
            }),
            resources: observed_resources(&container.resources),
            stop_signal: request.stop_signal.clone(),
            recursive_read_only_mounts: request
                .mounts
                .iter()
                .filter(|mount| mount.recursive_read_only)
                .map(|mount| mount.container_path.clone())
                .collect(),
            image_mounts: request.mounts.iter().filter_map(image_mount).collect(),
        })
    }

    fn find(&self, method: Method, id: &ContainerId) -> RuntimeResult<&Container> {
        self.containers.get(id).ok_or_else(|| method.not_found(format!("container {id}: not found")))
    }

    // ---- for tests ----

    pub(super) fn observe_all(&self, now: Moment) -> Vec<(PodUid, ContainerObservation)> {
        let observe =
            |(id, c): (&ContainerId, &Container)| Some((c.uid.clone(), self.container_status(id, now).ok()?));
        self.containers.iter().filter_map(observe).collect()
    }

    pub(super) fn running_requests(&self, now: Moment) -> Vec<(PodUid, ContainerRequest, LinuxResources)> {
        let running = self.containers.values().filter(|c| c.state(now) == ContainerState::Running);
        running.map(|c| (c.uid.clone(), c.request.clone(), c.resources.clone())).collect()
    }

    pub(super) fn request_of(&self, id: &ContainerId) -> Option<(PodUid, ContainerRequest)> {
        self.containers.get(id).map(|c| (c.uid.clone(), c.request.clone()))
    }

    pub(super) fn newest(&self, pod: &str, name: &str) -> Option<&Container> {
        let same = |c: &&Container| c.pod == pod && c.request.name == name;
        self.containers.values().filter(same).max_by_key(|c| c.serial)
    }

    pub(super) fn newest_sandbox(&self, pod: &str) -> Option<&Sandbox> {
        let same = |s: &&Sandbox| &*s.request.pod.name == pod;
        self.sandboxes.values().filter(same).max_by_key(|s| s.serial)
    }

    pub(super) fn end_container(&mut self, pod: &str, name: &str, code: i32, now: Moment) -> Option<PodUid> {
        let running = |c: &&mut Container| {
            c.pod == pod && c.request.name == name && c.state(now) == ContainerState::Running
        };
        let container = self.containers.values_mut().filter(running).max_by_key(|c| c.serial)?;
        container.end_no_later(now, code);
        Some(container.uid.clone())
    }

    pub(super) fn kill_sandboxes_of(&mut self, pod: &str, now: Moment) -> Vec<PodUid> {
        let of_pod = |(id, s): (&SandboxId, &Sandbox)| {
            (&*s.request.pod.name == pod).then(|| (id.clone(), s.request.pod.uid.clone()))
        };
        let killed: Vec<(SandboxId, PodUid)> = self.sandboxes.iter().filter_map(of_pod).collect();
        killed.iter().for_each(|(id, _)| self.stop_sandbox(id, now));
        killed.into_iter().map(|(_, uid)| uid).collect()
    }

    pub(super) fn titles_of_running(&self, now: Moment) -> Vec<String> {
        let is_running = |c: &&Container| c.state(now) == ContainerState::Running;
        let mut titles: Vec<String> =
            self.containers.values().filter(is_running).map(Container::title).collect();
        titles.sort_unstable();
        titles
    }

    pub(super) fn ready_sandboxes(&self) -> Vec<String> {
        let ready = self.sandboxes.values().filter(|sandbox| sandbox.ready);
        let mut pods: Vec<String> = ready.map(|sandbox| sandbox.request.pod.name.to_string()).collect();
        pods.sort_unstable();
        pods
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sandboxes.is_empty() && self.containers.is_empty()
    }
}

const fn sandbox_state(sandbox: &Sandbox) -> SandboxState {
    if sandbox.ready { SandboxState::Ready } else { SandboxState::NotReady }
}

fn covers(scope: &Scope, uid: &PodUid) -> bool {
    match scope {
        Scope::Node => true,
        Scope::Pod(wanted) => wanted == uid,
    }
}

/// Addresses out of 10.88.0.0/16, by serial number.
fn address(serial: u64) -> IpAddr {
    let [.., high, low] = serial.to_be_bytes();
    IpAddr::V4(Ipv4Addr::new(10, 88, high, low))
}

fn or_text(new: &str, old: &str) -> String {
    if new.is_empty() { old.to_owned() } else { new.to_owned() }
}
