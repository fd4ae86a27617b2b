//! The fourth mode: the whole node. Pods with devices, with CPUs of their own, with volumes in memory and with resizes; users and
//! controllers create, delete and replace them. Device plugins stop, devices become unhealthy, memory and disk run out, the node shuts
//! down or is about to, power fails, the API and the runtime fail, and the kubelet is killed. Invariants, checked at every change of
//! the API, at every start of a container and several times a second:
//! - those of the second mode (`api_checker.rs`);
//! - no device and no exclusive CPU has two live containers, and each instance of a container has the same ones;
//! - a critical pod is not evicted;
//! - no container lives when the kubelet lets the node shut down.
//!
//! And once the faults end, pods that run do, what ended has the status in the API that the kubelet had on disk (an evicted pod is Failed
//! because it was evicted), nothing is called any more, and without pods nothing is allocated and nothing is left.

mod break_tests;
mod checker;
mod machine;
mod shapes;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use fakes::{ClusterFault, Fault, HostFault, HostMethod, Method, Outage, Verb};
use model::ContainerState;
use model::k8s::Pod;
use parking_lot::Mutex;

use self::checker::Checker;
use self::shapes::{DEVICES, GPU, LASTING, NAMES, manifest};
use super::api_checker::is_over;
use super::cluster::by_uid;
use super::random::Dice;
use super::{pinned_in, play_all, resizes};
use crate::recording_runtime::Act;
use crate::world::{World, seconds};

const CHECK_INTERVAL: Duration = Duration::from_millis(200);
const SETTLE_TIMEOUT: Duration = Duration::from_secs(600);
/// A node that is in its final state for this long has settled: pressure conditions and pauses between retries are over.
const SETTLED_FOR: Duration = Duration::from_secs(90);
/// For this long a settled node then calls nothing.
const UNCHANGED_FOR: Duration = Duration::from_secs(60);
/// Runs in addition to those that failed once.
const SEEDS: usize = 12;

const METHODS: [Method; 9] = [
    Method::RunPodSandbox,
    Method::StopPodSandbox,
    Method::RemovePodSandbox,
    Method::CreateContainer,
    Method::StartContainer,
    Method::StopContainer,
    Method::RemoveContainer,
    Method::PullImage,
    Method::UpdateContainerResources,
];
const DISK: [HostMethod; 7] = [
    HostMethod::EnsureDir,
    HostMethod::WriteFile,
    HostMethod::ReadFile,
    HostMethod::RemoveTree,
    HostMethod::UnmountTree,
    HostMethod::EnsureTmpfs,
    HostMethod::BindSubPath,
];

#[test]
fn whole_node_keeps_allocations_and_final_statuses_through_every_fault() {
    play_all(pinned_in(include_str!("pinned_node.txt")), SEEDS, run);
}

fn run(seed: u64) -> Result<(), String> {
    run_with(seed, |_| {})
}

fn run_with(seed: u64, breaks: impl Fn(&mut Run)) -> Result<(), String> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let mut run = Run::new(seed);
        breaks(&mut run);
        let result = run.play(seed).await;
        result.map_err(|why| format!("{why}\n{:#?}\n{}", run.steps, run.world.describe()))
    })
}

/// What ends by itself.
#[derive(Clone, Copy, Debug)]
enum Storm {
    Outage,
    Runtime(Method),
    Memory,
    Disk,
    /// The device plugin is stopped, or has not registered yet.
    Plugin,
    Allocations,
}

struct Run {
    world: World,
    checker: Arc<Mutex<Checker>>,
    storms: Vec<(Duration, Storm)>,
    unhealthy: BTreeSet<&'static str>,
    steps: Vec<String>,
    /// Each kill of the kubelet takes files with this in their path with it.
    loses: Option<&'static str>,
    /// Longer once the faults have ended.
    check_interval: Duration,
}

impl Run {
    fn new(seed: u64) -> Self {
        let world = shapes::world(seed);
        let checker = Arc::new(Mutex::new(Checker::new(&world)));
        let of_api = checker.clone();
        world.api().watch_changes(move |plural, before, after| {
            if plural == "pods" {
                of_api.lock().api.pod_changed(before, after);
            }
        });
        let of_runtime = checker.clone();
        world.runtime.watch(Arc::new(move |act: &Act| {
            if let Act::Start(id) = act {
                let mut checker = of_runtime.lock();
                checker.api.starts(id);
                checker.check_assigned();
            }
        }));
        let (storms, unhealthy, steps) = (Vec::new(), BTreeSet::new(), Vec::new());
        Self { world, checker, storms, unhealthy, steps, loses: None, check_interval: CHECK_INTERVAL }
    }

    async fn play(&mut self, seed: u64) -> Result<(), String> {
        let (mut kinds, mut times) = (Dice::new(seed, "node kinds"), Dice::new(seed, "node times"));
        self.world.start().await;
        self.until("the node is ready", |run| run.world.is_node_ready()).await?;
        self.register_plugin().await;
        // The scheduler binds a pod with devices once the Node has them.
        self.until("the Node has the devices", |run| shapes::node_has_devices(&run.world)).await?;
        for _ in 0..3 {
            self.create(kinds.pick(&NAMES));
        }
        for _ in 0..kinds.between(10, 35) {
            let pause = if times.one_in(2) { times.between(0, 500) } else { times.between(0, 10_000) };
            self.advance(Duration::from_millis(pause)).await?;
            self.step(&mut kinds, &mut times).await?;
        }
        self.clear_faults().await;
        self.wait_until_settled().await?;
        self.stay_settled().await?;
        self.remove_everything().await
    }

    async fn step(&mut self, kinds: &mut Dice, times: &mut Dice) -> Result<(), String> {
        let name = kinds.pick(&NAMES);
        let kind = kinds.between(0, 42);
        let lasts = Duration::from_millis(times.between(100, 30_000));
        self.steps.push(format!("{:?}: {kind} {name}", self.world.now()));
        match kind {
            0..=9 => self.create_or_replace(name),
            10..=12 => drop(self.world.api().remove::<Pod>("default", name, None)),
            13 => self.recreate(name),
            14 => drop(self.world.fake.end_container(name, name, kinds.pick(&[0, 1]))),
            15 | 16 => self.api_fault(kinds),
            17 => {
                self.world.api().set_outage(Some(kinds.pick(&[Outage::Refused, Outage::Silent])));
                self.begin(Storm::Outage, lasts);
            }
            18 | 19 => {
                let (method, fault) = self.fault(kinds);
                self.world.fake.fault(method, fault);
            }
            20 => {
                let (method, fault) = self.fault(kinds);
                self.world.fake.fault_always(method, Some(fault));
                self.begin(Storm::Runtime(method), lasts);
            }
            21 => {
                let method = kinds.pick(&DISK);
                self.steps.push(format!("    {method:?} fails"));
                self.world.host.fault(method, HostFault::Fails);
            }
            22 | 23 => {
                shapes::use_memory(&self.world);
                shapes::set_memory_pressure(&self.world, true);
                self.begin(Storm::Memory, lasts);
            }
            24 => {
                shapes::set_disk_pressure(&self.world, true);
                self.begin(Storm::Disk, lasts);
            }
            25 => self.stop_plugin(lasts),
            26 | 27 => self.change_health(kinds.pick(&DEVICES)),
            28 => {
                self.world.plugins.set_allocation_error(GPU, Some("scripted"));
                self.begin(Storm::Allocations, lasts);
            }
            29 | 30 => self.resize(kinds),
            31..=34 => self.crash(lasts / 4, times).await?,
            35 | 36 => self.lose_power(lasts / 2, times).await?,
            37 | 38 => self.shut_down(kinds, times).await?,
            39 => {
                self.world.fake.kill_sandboxes(name);
                self.checker.lock().sandboxes_lost();
            }
            // Longer than pressure conditions last.
            40 => self.advance(seconds(60)).await?,
            _ => self.replace_ended(),
        }
        Ok(())
    }

    // ---- users and controllers ----

    fn create(&mut self, name: &str) {
        if self.world.in_api(name).is_none() {
            let pod = self.world.create(&manifest(name));
            self.checker.lock().add_pod(pod.metadata.uid.unwrap(), name);
        }
    }

    fn create_or_replace(&mut self, name: &str) {
        if is_over(&self.world.api_phase(name)) {
            self.world.api().remove::<Pod>("default", name, None);
        }
        self.create(name);
    }

    /// Deleted by force, and created again with a new UID at the same moment.
    fn recreate(&mut self, name: &str) {
        if let Some(uid) = self.world.in_api(name).and_then(|pod| pod.metadata.uid) {
            self.checker.lock().api.forced.insert(uid);
            self.world.api().remove::<Pod>("default", name, Some(0));
        }
        self.create(name);
    }

    /// Pods that are to run and have ended are replaced, as controllers do.
    fn replace_ended(&mut self) {
        for name in LASTING {
            if is_over(&self.world.api_phase(name)) {
                self.world.api().remove::<Pod>("default", name, None);
                self.create(name);
            }
        }
    }

    fn resize(&mut self, kinds: &mut Dice) {
        let name = "kept";
        let pod = self.world.in_api(name).filter(|pod| pod.metadata.deletion_timestamp.is_none());
        if pod.is_none_or(|_| is_over(&self.world.api_phase(name))) {
            return;
        }
        // The API announces the change to the checker, so that it must not be locked then.
        let mut of_pods = std::mem::take(&mut self.checker.lock().api.resizes);
        let resized = of_pods.resize(&self.world, name, kinds);
        self.checker.lock().api.resizes = of_pods;
        self.steps.extend(resized.map(|amounts| format!("{name} is resized to {amounts}")));
    }

    // ---- faults ----

    fn api_fault(&self, kinds: &mut Dice) {
        let faults = [
            ClusterFault::Unreachable,
            ClusterFault::UnreachableAfterDoing,
            ClusterFault::TimedOut,
            ClusterFault::TimedOutAfterDoing,
            ClusterFault::Slow(seconds(3)),
        ];
        let verb = kinds.pick(&[Verb::Patch, Verb::Delete, Verb::List, Verb::Watch, Verb::Create]);
        self.world.api().fault(verb, "", kinds.pick(&faults));
        if kinds.one_in(3) {
            self.world.api().end_watches();
        }
    }

    fn fault(&mut self, kinds: &mut Dice) -> (Method, Fault) {
        let faults = [
            Fault::Failed("scripted".to_owned()),
            Fault::Unavailable,
            Fault::TimedOut,
            Fault::TimedOutAfterDoing,
            Fault::UnavailableAfterDoing,
            Fault::Slow(seconds(5)),
        ];
        let (method, fault) = (kinds.pick(&METHODS), kinds.pick(&faults));
        self.steps.push(format!("    {method:?} {fault:?}"));
        (method, fault)
    }

    fn begin(&mut self, storm: Storm, lasts: Duration) {
        self.steps.push(format!("    {storm:?} for {lasts:?}"));
        self.storms.push((self.world.now() + lasts, storm));
    }

    async fn end(&mut self, storm: Storm) {
        match storm {
            Storm::Outage => drop(self.world.api().set_outage(None)),
            Storm::Runtime(method) => drop(self.world.fake.fault_always(method, None)),
            Storm::Memory => shapes::set_memory_pressure(&self.world, false),
            Storm::Disk => shapes::set_disk_pressure(&self.world, false),
            Storm::Plugin => self.register_plugin().await,
            Storm::Allocations => self.world.plugins.set_allocation_error(GPU, None),
        }
    }

    async fn end_storms(&mut self, until: Duration) {
        let (over, lasting) = std::mem::take(&mut self.storms).into_iter().partition(|(at, _)| *at <= until);
        self.storms = lasting;
        let over: Vec<(Duration, Storm)> = over;
        for (_, storm) in over {
            self.end(storm).await;
        }
    }

    async fn clear_faults(&mut self) {
        self.steps.push(format!("{:?}: no faults from now on", self.world.now()));
        self.world.api().clear_faults();
        self.world.fake.clear_faults();
        self.world.host.clear_faults();
        self.unhealthy.clear();
        self.end_storms(Duration::MAX).await;
        self.register_plugin().await;
        // So that everything fits: other pods have CPUs for themselves.
        resizes::shrink(&self.world, "kept");
    }

    // ---- time ----

    async fn advance(&mut self, time: Duration) -> Result<(), String> {
        let until = self.world.now() + time;
        loop {
            self.end_storms(self.world.now()).await;
            self.checker.lock().observe(&self.world)?;
            let left = until.saturating_sub(self.world.now());
            if left.is_zero() {
                return Ok(());
            }
            tokio::time::sleep(left.min(self.check_interval)).await;
        }
    }

    async fn until(&mut self, what: &str, condition: impl Fn(&Self) -> bool) -> Result<(), String> {
        let deadline = self.world.now() + SETTLE_TIMEOUT;
        while !condition(self) {
            self.advance(CHECK_INTERVAL).await?;
            if self.world.now() > deadline {
                return Err(format!("timed out waiting until {what}"));
            }
        }
        Ok(())
    }

    // ---- the end ----

    /// Controllers replace what has ended until everything runs.
    async fn wait_until_settled(&mut self) -> Result<(), String> {
        self.check_interval = seconds(1);
        let deadline = self.world.now() + SETTLE_TIMEOUT;
        let mut since = None;
        loop {
            let (differences, now) = (self.differences(), self.world.now());
            if differences.is_empty() && now - *since.get_or_insert(now) >= SETTLED_FOR {
                return Ok(());
            }
            if !differences.is_empty() {
                since = None;
                self.replace_ended();
            }
            if now > deadline {
                return Err(format!("not settled within {SETTLE_TIMEOUT:?}: {differences:#?}"));
            }
            self.advance(seconds(5)).await?;
        }
    }

    /// How the node differs from what the API specifies.
    fn differences(&self) -> Vec<String> {
        let checker = self.checker.lock();
        let all = self.world.fake.containers();
        let pods = by_uid(self.world.api());
        let mut differences = checker.final_differences(&pods);
        differences.extend(checker.shared_cpus());
        let foreign = all.iter().filter(|(uid, _)| !pods.contains_key(uid.as_str()));
        differences.extend(foreign.map(|(_, container)| format!("{} is of no pod", container.id)));
        if !self.world.is_node_ready() {
            differences.push("the node is not ready".to_owned());
        }
        for (uid, pod) in &pods {
            let running =
                all.iter().filter(|(of, c)| of.as_str() == uid && c.state == ContainerState::Running);
            if !checker.may_stay_pending(uid, pod) {
                differences.extend(self.pod_difference(pod, running.count()));
            }
        }
        differences
    }

    fn pod_difference(&self, pod: &Pod, running: usize) -> Option<String> {
        let name = pod.metadata.name.as_deref()?;
        let phase = self.world.api_phase(name);
        if pod.metadata.deletion_timestamp.is_some() {
            return Some(format!("{name} is being deleted"));
        }
        let is_right = match LASTING.contains(&name) {
            true => self.world.is_ready_in_api(name) && running == 1,
            false => is_over(&phase) && running == 0,
        };
        if !is_right {
            return Some(format!(
                "{name} is {phase} with {running} containers: {:?}",
                self.world.api_status(name)
            ));
        }
        if name == "kept" { resizes::mismatch(&self.world, name, pod) } else { None }
    }

    /// A settled node calls neither the runtime nor the API, but for its own status and lease, and what it watches.
    async fn stay_settled(&mut self) -> Result<(), String> {
        self.world.fake.forget_calls();
        self.world.api().forget_calls();
        self.advance(UNCHANGED_FOR).await?;
        // Records of exited containers are removed now and then; stopping a dead sandbox is part of that.
        let is_cleaning = |line: &String| line.starts_with("Remove") || line.starts_with("StopPodSandbox");
        let of_runtime = self.world.fake.call_lines().into_iter().filter(|line| !is_cleaning(line));
        let is_usual = |line: &String| {
            line.starts_with("watch ") || line.contains(" leases ") || line == "patch nodes/status node"
        };
        let of_api = self.world.api().call_lines().into_iter().filter(|line| !is_usual(line));
        let calls: Vec<String> = of_runtime.chain(of_api).collect();
        let differences = self.differences();
        match calls.is_empty() && differences.is_empty() {
            true => Ok(()),
            false => Err(format!("a settled node calls {calls:#?}, and differs: {differences:#?}")),
        }
    }

    async fn remove_everything(&mut self) -> Result<(), String> {
        for name in NAMES {
            self.world.api().remove::<Pod>("default", name, None);
        }
        let deadline = self.world.now() + SETTLE_TIMEOUT;
        loop {
            let mut left = self.checker.lock().allocated();
            left.extend(self.world.traces());
            left.extend(self.world.api().all::<Pod>().iter().filter_map(|pod| pod.metadata.name.clone()));
            if left.is_empty() {
                return Ok(());
            }
            if self.world.now() > deadline {
                return Err(format!("something is left: {left:#?}"));
            }
            self.advance(seconds(1)).await?;
        }
    }
}
