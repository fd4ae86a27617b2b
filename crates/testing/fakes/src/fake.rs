//! A simulated container runtime: containers run, exit after a while, ignore SIGTERM; images are pulled; calls fail, hang, or
//! succeed and answer too late. All on tokio's time, so paused time makes hours pass at once.
//!
//! Owns: [`FakeRuntime`], a handle that can be cloned and survives any number of kubelets. It starts no task: the state of a
//! container follows from when it was started and from its [`Program`].

mod faults;
mod images;
mod logs;
mod program;
mod runtime;
mod state;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use model::request::{ContainerRequest, ImageObservation, ImageRequest, LinuxResources, SandboxRequest};
use model::{CgroupDriver, ContainerId, ContainerObservation, PodUid, SandboxObservation};
use parking_lot::Mutex;
use ports::Clock;
use ports::runtime::{RuntimeHint, Scope};
use tokio::sync::broadcast;

pub use faults::{Fault, Method};
pub use program::{Exec, Program};

use self::faults::Script;
use self::program::Programs;
use self::state::{Moment, State};

/// 2026-01-01T00:00:00Z, when virtual clocks begin.
pub(crate) const EPOCH_SECONDS: i64 = 1_767_225_600;

/// One call that changed (or should have changed) something, or ran a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallRecord {
    /// Since the runtime was created.
    pub at: Duration,
    pub method: Method,
    /// `web`, `web#1` for a sandbox, `web/app`, `web/app#2` for a container (with its attempt, if not the first), or
    /// an image.
    pub subject: String,
}

impl std::fmt::Display for CallRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} {} {}", self.at, self.method.name(), self.subject)
    }
}

/// By how many events a slow listener may fall behind; it misses the rest.
const HINTS_KEPT: usize = 1024;

/// The fake. Clones share everything.
#[derive(Clone, Debug)]
pub struct FakeRuntime {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    clock: Clock,
    state: Mutex<State>,
    script: Mutex<Script>,
    programs: Mutex<Programs>,
    /// Replaced when the runtime goes down, which ends the streams of all listeners.
    hints: Mutex<broadcast::Sender<RuntimeHint>>,
}

impl Default for FakeRuntime {
    fn default() -> Self {
        Self::new()
    }
}

impl FakeRuntime {
    /// An empty runtime on a virtual clock. Every image can be pulled, every container runs until it is stopped.
    #[must_use]
    pub fn new() -> Self {
        let epoch = Timestamp::from_second(EPOCH_SECONDS).unwrap_or(Timestamp::UNIX_EPOCH);
        Self::with_clock(Clock::starting_at(epoch))
    }

    /// Like [`Self::new`], with timestamps from the given clock.
    #[must_use]
    pub fn with_clock(clock: Clock) -> Self {
        let (hints, _) = broadcast::channel(HINTS_KEPT);
        let shared = Shared {
            clock,
            state: Mutex::default(),
            script: Mutex::default(),
            programs: Mutex::default(),
            hints: Mutex::new(hints),
        };
        Self { shared: Arc::new(shared) }
    }

    fn moment(&self) -> Moment {
        Moment { at: tokio::time::Instant::now(), wall: self.shared.clock.now().wall }
    }

    // ---- scripting ----

    /// Sets the program of containers of that name (or, if no name matches, of that image).
    pub fn program(&self, name_or_image: &str, program: Program) -> &Self {
        self.programs(name_or_image, vec![program])
    }

    /// Sets one program for each instance in turn; the last one applies to all further ones.
    pub fn programs(&self, name_or_image: &str, programs: Vec<Program>) -> &Self {
        self.shared.programs.lock().set(name_or_image, programs);
        self
    }

    /// The fault applies to the next call of that method. Faults queue up.
    pub fn fault(&self, method: Method, fault: Fault) -> &Self {
        self.shared.script.lock().push(method, fault);
        self
    }

    /// The fault applies to every call of that method after the queued ones; `None` ends it.
    pub fn fault_always(&self, method: Method, fault: Option<Fault>) -> &Self {
        self.shared.script.lock().set_always(method, fault);
        self
    }

    /// Clears every fault and is reachable again. Latencies stay, and calls that hang already continue to hang.
    pub fn clear_faults(&self) {
        self.shared.script.lock().clear_faults();
    }

    /// Every call of that method takes this long before it does anything.
    pub fn latency(&self, method: Method, latency: Duration) -> &Self {
        self.shared.script.lock().set_latency(method, latency);
        self
    }

    /// Every call fails as if the socket were closed, and streams end. Containers keep running.
    pub fn set_down(&self, down: bool) -> &Self {
        self.shared.script.lock().down = down;
        if down {
            *self.shared.hints.lock() = broadcast::channel(HINTS_KEPT).0;
        }
        self
    }

    /// How long a call waits before it times out; the duration of the timeout faults.
    pub fn set_request_timeout(&self, timeout: Duration) -> &Self {
        self.shared.script.lock().request_timeout = timeout;
        self
    }

    /// Offers `GetContainerEvents` (initially it does not).
    pub fn offer_hints(&self) -> &Self {
        self.shared.script.lock().offers_hints = true;
        self
    }

    /// Answers as CRI-O does, as far as the kubelet sees a difference: the contract suite holds it to a recording. Images that are
    /// on the node already keep their ids.
    pub fn like_crio(&self) -> &Self {
        self.offer_hints();
        let mut state = self.shared.state.lock();
        state.is_crio = true;
        state.images.plain_ids = true;
        drop(state);
        self
    }

    /// Reports that it does not support user namespaces (initially it does).
    pub fn without_user_namespaces(&self) -> &Self {
        self.shared.state.lock().user_namespaces = false;
        self
    }

    /// Reports that pods in the network of the node may have user namespaces (initially it does not).
    pub fn offer_user_namespaces_host_network(&self) -> &Self {
        self.shared.state.lock().user_namespaces_host_network = true;
        self
    }

    /// Sets the cgroup driver that it reports (initially cgroupfs).
    pub fn set_cgroup_driver(&self, driver: CgroupDriver) -> &Self {
        self.shared.state.lock().cgroup_driver = driver;
        self
    }

    /// Sets the base of the URLs for exec, attach and port-forward, such as `http://127.0.0.1:4000`. The fake serves no streams
    /// itself: without this, no server listens there.
    pub fn stream_from(&self, base: &str) -> &Self {
        base.clone_into(&mut self.shared.state.lock().streaming);
        self
    }

    /// Writes container logs to real files, below the log directories of the sandboxes.
    pub fn write_logs(&self) -> &Self {
        self.shared.state.lock().writes_logs = true;
        self
    }

    /// Sets whether the runtime, or its network, is ready in `Status`.
    pub fn set_ready(&self, runtime: bool, network: bool) -> &Self {
        let mut state = self.shared.state.lock();
        (state.runtime_ready, state.network_ready) = (runtime, network);
        drop(state);
        self
    }

    /// The image is on the node already.
    pub fn image(&self, name: &str) -> &Self {
        self.shared.state.lock().images.add(name);
        self
    }

    /// The runtime lists this image.
    pub fn put_image(&self, name: &str, image: ImageObservation) -> &Self {
        self.shared.state.lock().images.put(name, image);
        self
    }

    /// Pulling the image fails with this message.
    pub fn unpullable(&self, name: &str, message: &str) -> &Self {
        self.shared.state.lock().images.refuse(name, message);
        self
    }

    /// Only that user may pull the image.
    pub fn private(&self, name: &str, user: &str) -> &Self {
        self.shared.state.lock().images.keep_private(name, user);
        self
    }

    // ---- what happens from outside ----

    /// The newest running container of that pod and name exits by itself, now. Returns whether there was one.
    pub fn end_container(&self, pod: &str, container: &str, exit_code: i32) -> bool {
        let now = self.moment();
        let ended = self.shared.state.lock().end_container(pod, container, exit_code, now);
        ended.map(|uid| self.hint(uid)).is_some()
    }

    /// The sandboxes of that pod die, with everything in them, as if their pause process was killed.
    pub fn kill_sandboxes(&self, pod: &str) {
        let now = self.moment();
        let killed = self.shared.state.lock().kill_sandboxes_of(pod, now);
        killed.into_iter().for_each(|uid| self.hint(uid));
    }

    // ---- inspection ----

    /// The calls so far that changed something or ran a command, in the order they began.
    #[must_use]
    pub fn calls(&self) -> Vec<CallRecord> {
        self.shared.script.lock().calls.clone()
    }

    /// The same without times, as `StartContainer web/app`.
    #[must_use]
    pub fn call_lines(&self) -> Vec<String> {
        let line = |call: &CallRecord| format!("{} {}", call.method.name(), call.subject);
        self.shared.script.lock().calls.iter().map(line).collect()
    }

    /// Forgets the calls so far.
    pub fn forget_calls(&self) {
        self.shared.script.lock().calls.clear();
    }

    /// How often a method was called, reads included.
    #[must_use]
    pub fn count(&self, method: Method) -> u64 {
        self.shared.script.lock().count(method)
    }

    /// The pod CIDR that it was given.
    #[must_use]
    pub fn pod_cidr(&self) -> String {
        self.shared.state.lock().pod_cidr.clone()
    }

    /// `pod/container` or `pod/container#attempt` of all running containers, sorted.
    #[must_use]
    pub fn running(&self) -> Vec<String> {
        self.shared.state.lock().titles_of_running(self.moment())
    }

    /// Names of the pods that have a ready sandbox, sorted.
    #[must_use]
    pub fn ready_sandboxes(&self) -> Vec<String> {
        self.shared.state.lock().ready_sandboxes()
    }

    /// Whether the runtime has no trace of any pod.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shared.state.lock().is_empty()
    }

    /// Containers that were started while another instance of them ran. Must stay empty, whatever happens.
    #[must_use]
    pub fn double_starts(&self) -> Vec<String> {
        self.shared.state.lock().double_starts.clone()
    }

    /// Every sandbox, as an inspection would return it. No fault applies, and it is not counted.
    #[must_use]
    pub fn sandboxes(&self) -> Vec<SandboxObservation> {
        let state = self.shared.state.lock();
        let listed = state.list_sandboxes(&Scope::Node).into_iter();
        listed.filter_map(|summary| state.sandbox_status(&summary.id).ok()).collect()
    }

    /// Every container with the UID of its pod, as an inspection would return it. No fault applies, and it is not counted.
    #[must_use]
    pub fn containers(&self) -> Vec<(PodUid, ContainerObservation)> {
        self.shared.state.lock().observe_all(self.moment())
    }

    /// Every running container with the UID of its pod, the request that created it, and its current resources.
    #[must_use]
    pub fn running_requests(&self) -> Vec<(PodUid, ContainerRequest, LinuxResources)> {
        self.shared.state.lock().running_requests(self.moment())
    }

    /// The request that created the container, with the UID of its pod.
    #[must_use]
    pub fn request_of(&self, id: &ContainerId) -> Option<(PodUid, ContainerRequest)> {
        self.shared.state.lock().request_of(id)
    }

    /// Every sandbox dies with everything in it, as in a power cut. The runtime keeps its records.
    pub fn kill_all(&self) {
        let names: Vec<String> = self.sandboxes().iter().map(|s| s.pod.name.to_string()).collect();
        names.iter().for_each(|name| self.kill_sandboxes(name));
    }

    /// The request that created the newest instance of a container.
    #[must_use]
    pub fn container_request(&self, pod: &str, container: &str) -> Option<ContainerRequest> {
        self.shared.state.lock().newest(pod, container).map(|c| c.request.clone())
    }

    /// The newest request of a method about an image.
    #[must_use]
    pub fn image_request(&self, method: Method) -> Option<ImageRequest> {
        self.shared.state.lock().images.requests.get(&method).cloned()
    }

    /// The request that created the newest sandbox of a pod.
    #[must_use]
    pub fn sandbox_request(&self, pod: &str) -> Option<SandboxRequest> {
        self.shared.state.lock().newest_sandbox(pod).map(|s| s.request.clone())
    }

    /// The current resources of the newest instance of a container.
    #[must_use]
    pub fn resources(&self, pod: &str, container: &str) -> Option<LinuxResources> {
        self.shared.state.lock().newest(pod, container).map(|c| c.resources.clone())
    }

    /// The current resources of the newest sandbox of a pod: its own part (overhead), and the pod as a whole.
    #[must_use]
    pub fn sandbox_resources(&self, pod: &str) -> Option<(Option<LinuxResources>, Option<LinuxResources>)> {
        self.shared.state.lock().newest_sandbox(pod).map(|s| s.resources.clone())
    }

    fn hint(&self, pod: PodUid) {
        // There may be no listener.
        let _ = self.shared.hints.lock().send(RuntimeHint { pod });
    }
}
