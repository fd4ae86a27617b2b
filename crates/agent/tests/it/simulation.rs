//! The simulation: minutes of a node's life with random events and every kind of fault, again and again. At every moment the
//! invariants hold; and once the faults end, the node converges to what the manifests specify.
//!
//! `SIM_SEED=n` runs one seed, `SIM_SEEDS=a..b` a range; `scripts/simulate` runs twenty thousand. Seeds that once failed are kept in `simulation/pinned.txt`.

mod api_checker;
mod claims;
mod cluster;
mod csi;
mod hostile;
mod hostile_cluster;
mod invariants;
mod node;
mod random;
mod resizes;
mod schedule;
mod shapes;

use config::{Features, GoDuration};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fakes::{HostFault, Service};
use model::k8s::Pod;
use parking_lot::Mutex;
use sources_core::static_pod::{Origin, parse_manifest};
use tokio::sync::Notify;

use self::invariants::InvariantChecker;
use self::schedule::{Schedule, Step};
use self::shapes::{Outcome, PROBED_PORT, Shape};
use crate::pods::{container, pod};
use crate::recording_runtime::Act;
use crate::world::{LINKS, MANIFESTS, POD_LOGS, PODS, World, manifest_path, seconds};

/// How often the invariants are checked, in addition to every act.
const CHECK_INTERVAL: Duration = Duration::from_millis(1000);
/// Within this time, a node without faults settles.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(480);
/// A node that is in its desired state for this long has settled: longer than the slowest call takes, which may be a kill.
const SETTLED_FOR: Duration = Duration::from_secs(45);
/// For this long it then must not change.
const UNCHANGED_FOR: Duration = Duration::from_secs(60);
/// Runs in addition to those that failed once, half as many on a slow machine. All modes together have 120; `scripts/simulate` plays many
/// more.
const SEEDS: usize = 40;
const SERVER_PORT: u16 = 8080;
const SERVER_URL: &str = "http://manifests:8080/all";

#[test]
fn simulated_faults_never_violate_invariants_and_the_node_settles() {
    play_all(pinned_in(include_str!("simulation/pinned.txt")), SEEDS, run);
}

/// Plays the seeds of the environment, or the pinned ones and the first ones, on every processor.
fn play_all(pinned: impl Iterator<Item = u64>, first: usize, run: impl Fn(u64) -> Result<(), String> + Sync) {
    let usual = pinned.chain((0..).take(fixtures::reduced(first)));
    let (seeds, next) = (chosen(usual), AtomicUsize::new(0));
    let failures = Mutex::new(Vec::new());
    let play = || {
        while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(why) = run(*seed) {
                failures.lock().push((*seed, why));
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(seeds.len());
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(play))));
    let mut failures: Vec<(u64, String)> = failures.into_inner();
    failures.sort_unstable();
    let first_lines =
        failures.iter().map(|(seed, why)| format!("{seed}: {}", why.lines().take(3).collect::<String>()));
    let list = first_lines.collect::<Vec<_>>().join("\n");
    assert!(failures.is_empty(), "failing seeds:\n{list}\nSIM_SEED={}: {}", failures[0].0, failures[0].1);
}

fn chosen(usual: impl Iterator<Item = u64>) -> Vec<u64> {
    match (std::env::var("SIM_SEED"), std::env::var("SIM_SEEDS")) {
        (Ok(seed), _) => vec![seed.parse().unwrap()],
        (_, Ok(range)) => {
            let (from, to) = range.split_once("..").unwrap();
            (from.parse().unwrap()..to.parse().unwrap()).collect()
        }
        _ => usual.collect(),
    }
}

fn pinned_in(text: &str) -> impl Iterator<Item = u64> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines.map(|line| line.trim().parse().unwrap())
}

/// One of these seeds, played with a node that is broken on purpose, fails as expected: if it did not, the invariants would be worthless.
/// The ranges begin shortly before the first that does, so that the tests are short.
#[track_caller]
fn assert_detected(
    seeds: Range<u64>,
    play_broken: impl Fn(u64) -> Result<(), String>,
    is_expected: impl Fn(&str) -> bool,
) {
    let mut seen: Vec<String> = Vec::new();
    let is_detected = seeds.filter_map(|seed| play_broken(seed).err()).any(|why| {
        seen.push(first_line(&why).to_owned());
        is_expected(&why)
    });
    assert!(is_detected, "seen instead: {seen:#?}");
}

fn first_line(why: &str) -> &str {
    why.lines().next().unwrap_or_default()
}

fn run(seed: u64) -> Result<(), String> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let schedule = Schedule::of(seed);
    runtime.block_on(async {
        let mut simulation = Simulation::new(seed, &schedule);
        let result = simulation.play(&schedule).await;
        result.map_err(|why| format!("{why}\n{schedule:#?}\n{}", simulation.world.describe()))
    })
}

struct Simulation {
    world: World,
    checker: Arc<Mutex<InvariantChecker>>,
    /// The pod in each slot: its shape, its version, whether versions share a UID, and its UID.
    slots: BTreeMap<u64, Slot>,
    /// When the faults of a method end, or the runtime is back.
    storms: Vec<(Duration, Option<fakes::Method>)>,
    crash_at: Arc<Mutex<Option<u64>>>,
    crash_now: Arc<Notify>,
    has_server: bool,
}

#[derive(Clone, Debug)]
struct Slot {
    shape: Shape,
    version: u64,
    keeps_uid: bool,
    uid: String,
}

fn slot_name(slot: u64) -> String {
    format!("pod{slot}")
}

impl Simulation {
    fn new(seed: u64, schedule: &Schedule) -> Self {
        let mut world = World::new();
        world.seed = seed;
        world.config.crash_loop_back_off.max_container_restart_period = GoDuration::from_secs(40);
        if schedule.has_server {
            world.config.static_pod_url = SERVER_URL.to_owned();
        }
        shapes::program(&world.fake);
        for (method, latency) in &schedule.latencies {
            world.fake.latency(*method, *latency);
        }
        world.runtime.complete_cancelled_calls(schedule.outliving_every);
        world.net.serve(PROBED_PORT, Service::http(200));
        let checker = Arc::new(Mutex::new(InvariantChecker::new(world.fake.clone(), world.clock)));
        let (crash_at, crash_now) = (Arc::new(Mutex::new(None)), Arc::new(Notify::new()));
        let (act_checker, at, now) = (checker.clone(), crash_at.clone(), crash_now.clone());
        world.runtime.watch(Arc::new(move |act: &Act| {
            let mut checker = act_checker.lock();
            checker.check(act);
            if at.lock().take_if(|at| *at <= checker.acts).is_some() {
                now.notify_one();
            }
        }));
        let has_server = schedule.has_server;
        Self { world, checker, slots: BTreeMap::new(), storms: Vec::new(), crash_at, crash_now, has_server }
    }

    async fn play(&mut self, schedule: &Schedule) -> Result<(), String> {
        if self.has_server {
            self.serve_manifests();
        }
        self.start().await;
        for (pause, step) in &schedule.steps {
            self.advance(*pause).await?;
            self.take(step).await?;
        }
        self.clear_faults().await;
        self.wait_until_settled().await?;
        self.stay_settled().await?;
        self.remove_everything().await
    }

    async fn start(&mut self) {
        // A disk that fails in the first moment keeps the process from starting; the service manager tries again.
        self.world.host.clear_faults();
        self.world.start().await;
        if let Some(agent) = &self.world.agent {
            self.checker.lock().agent_started(agent.sources_ready());
        }
    }

    async fn crash(&mut self, away: Duration) -> Result<(), String> {
        self.world.crash().await;
        self.checker.lock().agent_crashed();
        self.advance(away).await?;
        self.start().await;
        Ok(())
    }

    /// Lets time pass while the invariants are checked.
    async fn advance(&mut self, time: Duration) -> Result<(), String> {
        let until = self.world.now() + time;
        loop {
            self.end_storms();
            if let Some(first) = self.checker.lock().observe(self.world.agent.as_ref()) {
                return Err(format!("invariant broken: {first}"));
            }
            let left = until.saturating_sub(self.world.now());
            if left.is_zero() {
                return Ok(());
            }
            tokio::time::sleep(left.min(CHECK_INTERVAL)).await;
        }
    }

    fn end_storms(&mut self) {
        let now = self.world.now();
        let fake = &self.world.fake;
        self.storms.retain(|(until, method)| {
            if *until > now {
                return true;
            }
            match method {
                Some(method) => fake.fault_always(*method, None),
                None => fake.set_down(false),
            };
            false
        });
    }

    async fn take(&mut self, step: &Step) -> Result<(), String> {
        let fake = self.world.fake.clone();
        let now = self.world.now();
        match step {
            Step::Apply { slot, shape, keeps_uid } => self.apply(*slot, *shape, 1, *keeps_uid),
            Step::Change { slot } => {
                if let Some(Slot { shape, version, keeps_uid, .. }) = self.slots.get(slot).cloned() {
                    self.apply(*slot, shape, version + 1, keeps_uid);
                }
            }
            Step::Remove { slot } => self.remove(*slot),
            Step::EndContainer { slot, code } => {
                let pod = format!("{}-node", slot_name(*slot));
                for name in ["app", "stubborn", "job", "proxy", "init-a"] {
                    fake.end_container(&pod, name, *code);
                }
            }
            Step::KillSandboxes { slot } => fake.kill_sandboxes(&format!("{}-node", slot_name(*slot))),
            Step::Fault { method, fault } => drop(fake.fault(*method, fault.clone())),
            Step::Storm { method, fault, lasts } => {
                fake.fault_always(*method, Some(fault.clone()));
                self.storms.push((now + *lasts, Some(*method)));
            }
            Step::Down { lasts } => {
                fake.set_down(true);
                self.storms.push((now + *lasts, None));
            }
            Step::Crash { away } => self.crash(*away).await?,
            Step::CrashAtAct { n, away } => self.crash_at_act(*n, *away).await?,
            Step::DiskFault { method } => drop(self.world.host.fault(*method, HostFault::Fails)),
            Step::Health { is_good: true } => self.heal(),
            Step::Health { is_good: false } => {
                self.world.net.serve(PROBED_PORT, Service::http(500));
                self.checker.lock().probes_failed();
            }
            Step::Server { is_up: true } => self.serve_manifests(),
            Step::Server { is_up: false } => drop(self.world.net.close(SERVER_PORT)),
        }
        Ok(())
    }

    async fn crash_at_act(&mut self, n: u64, away: Duration) -> Result<(), String> {
        let acts = self.checker.lock().acts;
        *self.crash_at.lock() = Some(acts + n);
        let crash_now = self.crash_now.clone();
        let deadline = self.world.now() + seconds(15);
        loop {
            tokio::select! {
                biased;
                () = crash_now.notified() => return self.crash(away).await,
                () = tokio::time::sleep(CHECK_INTERVAL) => self.advance(Duration::ZERO).await?,
            }
            if self.world.now() > deadline {
                self.crash_at.lock().take();
                return Ok(());
            }
        }
    }

    fn apply(&mut self, slot: u64, shape: Shape, version: u64, keeps_uid: bool) {
        let name = slot_name(slot);
        let manifest = shape.manifest(&name, version, keeps_uid);
        let parsed = parse(&manifest.text(), &manifest_path(&name).display().to_string());
        let uid = parsed.metadata.uid.clone().unwrap_or_default();
        let mut checker = self.checker.lock();
        if let Some(old) = self.slots.get(&slot).filter(|old| old.uid != uid) {
            checker.remove_pod(&old.uid);
        }
        // Completed work does not start again because its manifest changed; that is not tested here.
        checker.add_pod(shape, parsed);
        self.slots.insert(slot, Slot { shape, version, keeps_uid, uid });
        self.world.apply(&manifest);
    }

    fn remove(&mut self, slot: u64) {
        if let Some(old) = self.slots.remove(&slot) {
            self.checker.lock().remove_pod(&old.uid);
            self.world.remove(&slot_name(slot));
        }
    }

    fn heal(&self) {
        self.world.net.serve(PROBED_PORT, Service::http(200));
        self.checker.lock().probes_recovered();
    }

    /// The manifest server sends one pod of its own.
    fn serve_manifests(&self) {
        let manifest = pod("remote", [container("app")]);
        let parsed = parse_manifest(
            manifest.text().as_bytes(),
            &Origin::Url(SERVER_URL.to_owned()),
            "node",
            Features::default(),
        );
        self.checker.lock().add_pod(Shape::Plain, parsed.unwrap().pods.remove(0));
        self.world.net.serve(SERVER_PORT, Service::Http { status: 200, body: manifest.text() });
    }

    /// No fault happens from now on.
    async fn clear_faults(&mut self) {
        self.storms.clear();
        self.world.fake.clear_faults();
        self.world.host.clear_faults();
        self.heal();
        if self.has_server {
            self.serve_manifests();
        }
        if self.world.agent.is_none() {
            self.start().await;
        }
    }

    async fn wait_until_settled(&mut self) -> Result<(), String> {
        let deadline = self.world.now() + SETTLE_TIMEOUT;
        let mut since = None;
        loop {
            let (differences, now) = (self.differences(), self.world.now());
            if differences.is_empty() && now - *since.get_or_insert(now) >= SETTLED_FOR {
                return Ok(());
            }
            if !differences.is_empty() {
                since = None;
            }
            if now > deadline {
                return Err(format!("not settled within {SETTLE_TIMEOUT:?}: {differences:#?}"));
            }
            self.advance(seconds(1)).await?;
        }
    }

    /// A settled node changes nothing of running pods.
    async fn stay_settled(&mut self) -> Result<(), String> {
        let restless: BTreeSet<String> = self
            .slots
            .iter()
            .filter(|(_, slot)| slot.shape.outcome() != Outcome::Ready)
            .map(|(slot, _)| slot_name(*slot))
            .collect();
        self.world.fake.forget_calls();
        self.advance(UNCHANGED_FOR).await?;
        let of_restless = |line: &String| restless.iter().any(|name| line.contains(name.as_str()));
        // Records of exited containers are removed now and then; stopping a dead sandbox is part of that.
        let is_cleaning = |line: &str| line.starts_with("Remove") || line.starts_with("StopPodSandbox");
        let acts: Vec<String> = self
            .world
            .fake
            .call_lines()
            .into_iter()
            .filter(|line| !line.starts_with("ExecSync") && !is_cleaning(line) && !of_restless(line))
            .collect();
        if acts.is_empty() { Ok(()) } else { Err(format!("a settled node acts: {acts:#?}")) }
    }

    /// Removes every manifest; nothing must be left.
    async fn remove_everything(&mut self) -> Result<(), String> {
        self.slots.keys().copied().collect::<Vec<_>>().into_iter().for_each(|slot| self.remove(slot));
        if self.has_server {
            let remote: Vec<String> = self.checker.lock().wanted.keys().cloned().collect();
            remote.iter().for_each(|uid| self.checker.lock().remove_pod(uid));
            let nothing = r#"{"apiVersion": "v1", "kind": "PodList", "items": []}"#;
            self.world.net.serve(SERVER_PORT, Service::Http { status: 200, body: nothing.to_owned() });
        }
        let deadline = self.world.now() + SETTLE_TIMEOUT;
        while !self.world.traces().is_empty() {
            if self.world.now() > deadline {
                return Err(format!("traces are left: {:#?} {MANIFESTS}", self.world.traces()));
            }
            self.advance(seconds(1)).await?;
        }
        Ok(())
    }

    /// What differs from the manifests.
    fn differences(&self) -> Vec<String> {
        let checker = self.checker.lock();
        let mut differences = Vec::new();
        let Some(agent) = &self.world.agent else { return vec!["no agent".to_owned()] };
        for (uid, want) in &checker.wanted {
            let entry = agent.pods().get(&uid.as_str().into());
            let status = entry.map(|entry| entry.status);
            let phase = status.as_ref().and_then(|s| s.phase.clone()).unwrap_or_default();
            let conditions = status.iter().flat_map(|s| s.conditions.iter().flatten());
            let is_ready = conditions.filter(|c| c.type_ == "Ready").any(|c| c.status == "True");
            let sandboxes = checker.ready_sandboxes(uid).len();
            let is_fine = match want.shape.outcome() {
                Outcome::Ready => {
                    phase == "Running" && is_ready && sandboxes == 1 && checker.runs_as_wanted(uid)
                }
                Outcome::Restarts => phase == "Running" && sandboxes == 1,
                Outcome::Done => matches!(phase.as_str(), "Succeeded" | "Failed") && sandboxes == 0,
            };
            if !is_fine {
                let why =
                    format!("{uid} ({:?}) is {phase}, ready: {is_ready}, sandboxes: {sandboxes}", want.shape);
                differences.push(why);
            }
        }
        let is_foreign = |text: &str| !checker.wanted.keys().any(|uid| text.contains(uid.as_str()));
        let sandboxes = self.world.fake.sandboxes().into_iter().map(|s| s.pod.uid.to_string());
        let containers = self.world.fake.containers().into_iter().map(|(uid, _)| uid.to_string());
        let files = [PODS, POD_LOGS].into_iter().flat_map(|directory| self.world.host.files_below(directory));
        let all = sandboxes.chain(containers).chain(files).chain(self.world.host.mounts());
        differences.extend(all.filter(|text| is_foreign(text)).map(|text| format!("left over: {text}")));
        let ids: Vec<String> = self.world.fake.containers().iter().map(|(_, c)| c.id.to_string()).collect();
        let links = self.world.host.files_below(LINKS).into_iter();
        let dead = links.filter(|link| !ids.iter().any(|id| link.contains(id.as_str())));
        differences.extend(dead.map(|link| format!("dead link: {link}")));
        differences
    }
}

fn parse(text: &str, path: &str) -> Pod {
    parse_manifest(text.as_bytes(), &Origin::File(path.to_owned()), "node", Features::default())
        .unwrap()
        .pods
        .remove(0)
}
