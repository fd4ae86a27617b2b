//! The sixth mode: pods with ResourceClaims of two drivers: claims of their own, shared ones, several at once, those made from a template
//! and those that the scheduler made for an extended resource. Users create, delete and recreate pods, by force as well, and replace
//! claims; drivers refuse, do not answer, answer without effect, die and come back, register late and are replaced by a new instance; CDI
//! files are lost; the API, the runtime and the disk fail; the kubelet is killed before, during and after each call, write and act; the
//! machine starts again, with CDI files and the drivers' own state gone. Invariants, checked at each call of a driver, at each start of a
//! container, at each change of the API and several times a second:
//! - those of the second mode (`api_checker.rs`);
//! - no driver is called for a claim while another call for it is under way;
//! - no claim is unprepared while a container runs with it;
//! - no container starts or runs without the devices of its claims, or with one that is not prepared;
//! - the object of a pod that is not deleted by force does not go before its claims are unprepared.
//!
//! And once the faults end, exactly the claims of pods are prepared and in the state file, no driver is called any more, and without
//! pods nothing is prepared and the state file is empty.

mod break_tests;
mod checker;
mod shapes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use config::GoDuration;
use fakes::{
    ClusterFault, DraFault, DraMethod, FakeDraDriver, Fault, HostFault, HostMethod, Method, Outage, Verb,
};
use model::ContainerState;
use model::k8s::Pod;
use parking_lot::Mutex;
use ports::plugins::PluginInfo;
use resources_core::claims::checkpoint::parse_dra_state;
use tokio::sync::Notify;

use self::checker::Checker;
use self::shapes::{DRIVERS, NAMED, PODS_OF, container_of};
use super::api_checker::is_over;
use super::cluster::by_uid;
use super::random::Dice;
use super::{pinned_in, play_all};
use crate::recording_runtime::Act;
use crate::world::{World, seconds};

const ROOT: &str = "/var/lib/kubelet";
const STATE: &str = "/var/lib/kubelet/dra_manager_state";
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// The same once the faults have ended.
const SETTLED_CHECK_INTERVAL: Duration = Duration::from_secs(2);
const SETTLE_TIMEOUT: Duration = Duration::from_secs(900);
/// A node that is in its final state for this long has settled: no call or wait of a retry takes longer.
const SETTLED_FOR: Duration = Duration::from_secs(60);
/// For this long a settled node calls no driver: two rounds of the loop that unprepares claims of pods that are gone.
const UNCHANGED_FOR: Duration = Duration::from_secs(130);
/// Within this time the kubelet is killed at the chosen moment, or not at all.
const KILL_TIMEOUT: Duration = Duration::from_secs(20);
/// Runs in addition to those that failed once.
const SEEDS: usize = 8;

const METHODS: [Method; 8] = [
    Method::RunPodSandbox,
    Method::StopPodSandbox,
    Method::RemovePodSandbox,
    Method::CreateContainer,
    Method::StartContainer,
    Method::StopContainer,
    Method::RemoveContainer,
    Method::PullImage,
];
const CALLS: [DraMethod; 2] = [DraMethod::Prepare, DraMethod::Unprepare];

#[test]
fn driver_faults_never_lose_or_leave_a_claim_or_start_a_pod_without_it() {
    play_all(pinned_in(include_str!("pinned_claims.txt")), SEEDS, run);
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
        result.map_err(|why| format!("{why}\n{}", run.describe()))
    })
}

/// What ends by itself.
#[derive(Clone, Copy, Debug)]
enum Storm {
    Outage,
    Runtime(Method),
    Fault(usize, DraMethod),
    Stopped(usize),
    /// The driver is not registered.
    Away(usize),
    /// Both instances of the driver are registered; the older one, with this number, goes.
    Update(usize, u64),
}

struct Run {
    world: World,
    drivers: [FakeDraDriver; 2],
    /// The number of the newest instance of each driver.
    instances: [u64; 2],
    checker: Arc<Mutex<Checker>>,
    /// The number of the act at which the kubelet is killed.
    kill_at: Arc<Mutex<Option<u64>>>,
    kill_now: Arc<Notify>,
    storms: Vec<(Duration, Storm)>,
    steps: Vec<String>,
    /// How many pods were created.
    created: u64,
    /// Drivers lose their own state when the machine starts again.
    forgets: bool,
    check_interval: Duration,
    /// How many writes of the state of claims fail when all pods are removed.
    failing_writes: u64,
    /// Each kill of the kubelet takes the state of claims with it.
    loses_state: bool,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut frame = Dice::new(seed, "claims frame");
        let mut world = World::of_cluster();
        world.seed = seed;
        shapes::program(&world);
        for method in METHODS {
            world.fake.latency(method, Duration::from_millis(frame.between(1, 300)));
        }
        world.runtime.complete_cancelled_calls(frame.pick(&[0, 0, 1, 2, 3]));
        world.config.crash_loop_back_off.max_container_restart_period = GoDuration::from_secs(40);
        world.api().set_deadline(seconds(10));
        let drivers = DRIVERS.map(|driver| FakeDraDriver::new(driver.class));
        for driver in &drivers {
            driver.set_delay(Duration::from_millis(frame.pick(&[0, 50, 500, 3000])));
        }
        let checker = Arc::new(Mutex::new(Checker::new(&world.fake, &drivers)));
        let (kill_at, kill_now) = (Arc::new(Mutex::new(None)), Arc::new(Notify::new()));
        let run = Self {
            world,
            drivers,
            instances: [0, 0],
            checker,
            kill_at,
            kill_now,
            storms: Vec::new(),
            steps: Vec::new(),
            created: 0,
            forgets: frame.one_in(2),
            check_interval: CHECK_INTERVAL,
            failing_writes: frame.pick(&[0, 0, 1, 3, 8]),
            loses_state: false,
        };
        run.connect_checker();
        run
    }

    /// The checker observes every act, call and change at the moment it happens.
    fn connect_checker(&self) {
        let of_api = self.checker.clone();
        self.world.api().watch_changes(move |plural, before, after| {
            if plural == "pods" {
                of_api.lock().pod_changed(before, after);
            }
        });
        let (of_runtime, at, now) = (self.checker.clone(), self.kill_at.clone(), self.kill_now.clone());
        self.world.runtime.watch(Arc::new(move |act: &Act| {
            let mut checker = of_runtime.lock();
            checker.acts += 1;
            if let Act::Start(id) = act {
                checker.check_start(id);
            }
            if at.lock().take_if(|at| *at <= checker.acts).is_some() {
                now.notify_one();
            }
        }));
        for (driver, fake) in DRIVERS.iter().zip(&self.drivers) {
            let of_driver = self.checker.clone();
            fake.watch_calls(move |method, claims| of_driver.lock().check_call(driver.class, method, claims));
        }
        let drivers = self.drivers.clone();
        self.world.runtime.check_creation(move |request| {
            let known: BTreeSet<String> = drivers.iter().flat_map(FakeDraDriver::cdi_devices).collect();
            let unknown = request.cdi_devices.iter().filter(|device| !known.contains(*device));
            let unknown: Vec<&str> = unknown.map(String::as_str).collect();
            let message =
                || format!("failed to inject devices: unresolvable CDI devices {}", unknown.join(", "));
            (!unknown.is_empty()).then(message)
        });
    }

    async fn play(&mut self, seed: u64) -> Result<(), String> {
        let (mut kinds, mut times) = (Dice::new(seed, "claims kinds"), Dice::new(seed, "claims times"));
        self.world.start().await;
        self.until("the node is ready", |run| run.world.is_node_ready()).await?;
        (0..2).for_each(|driver| self.register(driver));
        for _ in 0..3 {
            let (name, _) = kinds.pick(&PODS_OF);
            self.create(name);
        }
        for _ in 0..kinds.between(10, 35) {
            let pause = if times.one_in(2) { times.between(0, 500) } else { times.between(0, 10_000) };
            self.advance(Duration::from_millis(pause)).await?;
            self.step(&mut kinds, &mut times).await?;
        }
        self.clear_faults();
        self.wait_until_settled().await?;
        self.stay_settled().await?;
        self.remove_everything().await
    }

    async fn step(&mut self, kinds: &mut Dice, times: &mut Dice) -> Result<(), String> {
        shapes::collect_claims(&self.world);
        let (name, _) = kinds.pick(&PODS_OF);
        let (kind, driver) = (kinds.between(0, 47), usize::from(kinds.one_in(3)));
        let lasts = Duration::from_millis(times.between(100, 30_000));
        self.steps.push(format!("{:?}: {kind} {name} {}", self.world.now(), DRIVERS[driver].name));
        match kind {
            0..=8 => self.create(name),
            9..=12 => drop(self.world.api().remove::<Pod>("default", name, None)),
            13 => self.remove_by_force(name),
            14 | 15 => self.recreate(name),
            16 => shapes::replace_claim(&self.world, kinds.pick(&NAMED)),
            17 => drop(self.world.fake.end_container(name, container_of(name), 1)),
            18 => self.world.fake.kill_sandboxes(name),
            19..=26 => self.driver_step(kind, driver, lasts, kinds),
            // Its next instance does not find its devices.
            27 | 28 => {
                self.drivers[driver].remove_cdi_files();
                self.world.fake.end_container(name, container_of(name), 1);
            }
            29 | 30 => self.api_fault(kinds),
            31 => {
                self.world.api().set_outage(Some(kinds.pick(&[Outage::Refused, Outage::Silent])));
                self.begin(Storm::Outage, lasts);
            }
            32 | 33 => self.runtime_fault(lasts, kinds),
            34 | 35 => self.disk_fault(kinds),
            36 => self.crash(lasts / 4).await?,
            37..=40 => self.crash_during_call(kinds, driver).await?,
            41 => self.crash_during_write().await?,
            42 | 43 => self.crash_at_act(kinds.between(1, 6), lasts / 10).await?,
            44 | 45 => self.reboot(lasts / 2, kinds, times).await?,
            // Longer than any call, and than a round of the loop.
            _ => self.advance(seconds(130)).await?,
        }
        Ok(())
    }

    // ---- users and controllers ----

    fn create(&mut self, name: &'static str) {
        if is_over(&self.world.api_phase(name)) {
            self.world.api().remove::<Pod>("default", name, None);
        }
        if self.world.in_api(name).is_none() {
            shapes::collect_claims(&self.world);
            self.created += 1;
            let (uid, devices) = shapes::create(&self.world, name, self.created);
            self.checker.lock().add_pod(uid, devices);
        }
    }

    fn remove_by_force(&self, name: &str) {
        if let Some(uid) = self.world.in_api(name).and_then(|pod| pod.metadata.uid) {
            self.checker.lock().api.forced.insert(uid);
            self.world.api().remove::<Pod>("default", name, Some(0));
        }
    }

    /// Deleted by force, and created again with a new UID at the same moment.
    fn recreate(&mut self, name: &'static str) {
        self.remove_by_force(name);
        self.create(name);
    }

    // ---- the drivers ----

    fn driver_step(&mut self, kind: u64, driver: usize, lasts: Duration, kinds: &mut Dice) {
        match kind {
            19..=22 => {
                let (method, fault) = self.fault(kinds);
                self.drivers[driver].fault(method, fault);
            }
            23 => {
                let (method, fault) = self.fault(kinds);
                self.drivers[driver].fault_always(method, Some(fault));
                self.begin(Storm::Fault(driver, method), lasts);
            }
            24 => {
                self.drivers[driver].set_running(false);
                self.begin(Storm::Stopped(driver), lasts);
            }
            25 => {
                self.unregister(driver);
                self.begin(Storm::Away(driver), lasts);
            }
            _ => {
                let older = self.instances[driver];
                self.instances[driver] += 1;
                self.register(driver);
                self.begin(Storm::Update(driver, older), lasts);
            }
        }
    }

    fn fault(&mut self, kinds: &mut Dice) -> (DraMethod, DraFault) {
        let faults = [
            DraFault::Fails("Internal", "scripted"),
            DraFault::Fails("Unavailable", "scripted"),
            DraFault::FailsAfterDoing("Internal", "scripted"),
            DraFault::FailsAfterDoing("DeadlineExceeded", "scripted"),
            DraFault::RefusesFirst("scripted"),
            DraFault::SkipsFirst,
            DraFault::Hangs,
            DraFault::HangsAfterDoing,
            DraFault::AnswersAfter(seconds(5)),
            DraFault::AnswersAfter(seconds(60)),
        ];
        let (method, fault) = (kinds.pick(&CALLS), kinds.pick(&faults));
        self.steps.push(format!("    {method:?} {fault:?}"));
        (method, fault)
    }

    fn socket(driver: usize, instance: u64) -> String {
        format!("{ROOT}/plugins_registry/{}-{instance}-reg.sock", DRIVERS[driver].name)
    }

    /// The newest instance of the driver.
    fn register(&self, driver: usize) {
        let (name, instance) = (DRIVERS[driver].name, self.instances[driver]);
        let endpoint = format!("{ROOT}/plugins/{name}/dra-{instance}.sock");
        self.world.plugins.add_dra_driver(&endpoint, &self.drivers[driver]);
        let socket = Self::socket(driver, instance);
        let (kind, name, supported_versions) =
            ("DRAPlugin".to_owned(), name.to_owned(), vec!["v1.DRAPlugin".to_owned()]);
        self.world.plugins.offer(&socket, PluginInfo { kind, name, endpoint, supported_versions });
        self.world.host.put_socket(&socket);
    }

    fn remove_instance(&self, driver: usize, instance: u64) {
        let socket = Self::socket(driver, instance);
        self.world.host.delete(&socket);
        self.world.plugins.withdraw(&socket);
    }

    fn unregister(&self, driver: usize) {
        (0..=self.instances[driver]).for_each(|instance| self.remove_instance(driver, instance));
    }

    // ---- other faults ----

    fn api_fault(&self, kinds: &mut Dice) {
        let faults = [
            ClusterFault::Unreachable,
            ClusterFault::UnreachableAfterDoing,
            ClusterFault::TimedOut,
            ClusterFault::TimedOutAfterDoing,
            ClusterFault::Slow(seconds(3)),
        ];
        let verb = kinds.pick(&[Verb::Patch, Verb::Get, Verb::Delete, Verb::List, Verb::Watch]);
        self.world.api().fault(verb, "", kinds.pick(&faults));
        if kinds.one_in(2) {
            self.world.api().end_watches();
        }
    }

    fn runtime_fault(&mut self, lasts: Duration, kinds: &mut Dice) {
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
        if kinds.one_in(4) {
            self.world.fake.fault_always(method, Some(fault));
            self.begin(Storm::Runtime(method), lasts);
        } else {
            self.world.fake.fault(method, fault);
        }
    }

    /// The state of claims cannot be written, or only seems to be.
    fn disk_fault(&mut self, kinds: &mut Dice) {
        let fault = kinds.pick(&[HostFault::Fails, HostFault::TimesOut, HostFault::TimesOutButDone]);
        self.steps.push(format!("    the next write of the state: {fault:?}"));
        self.world.host.fault_below(HostMethod::WriteFile, STATE, fault);
        self.checker.lock().has_stale_references = true;
    }

    // ---- faults that end ----

    fn begin(&mut self, storm: Storm, lasts: Duration) {
        self.steps.push(format!("    {storm:?} for {lasts:?}"));
        self.storms.push((self.world.now() + lasts, storm));
    }

    fn end(&self, storm: Storm) {
        match storm {
            Storm::Outage => drop(self.world.api().set_outage(None)),
            Storm::Runtime(method) => drop(self.world.fake.fault_always(method, None)),
            Storm::Fault(driver, method) => drop(self.drivers[driver].fault_always(method, None)),
            Storm::Stopped(driver) => self.drivers[driver].set_running(true),
            Storm::Away(driver) => self.register(driver),
            Storm::Update(driver, older) => self.remove_instance(driver, older),
        }
    }

    fn end_storms(&mut self, until: Duration) {
        let (over, lasting) = std::mem::take(&mut self.storms).into_iter().partition(|(at, _)| *at <= until);
        self.storms = lasting;
        over.into_iter().for_each(|(_, storm): (Duration, Storm)| self.end(storm));
    }

    fn clear_faults(&mut self) {
        self.steps.push(format!("{:?}: no faults from now on", self.world.now()));
        self.end_storms(Duration::MAX);
        self.world.api().clear_faults();
        self.world.fake.clear_faults();
        self.world.host.clear_faults();
        self.drivers.iter().for_each(|driver| _ = driver.clear_faults());
        // A job whose sandbox died at a bad moment never ends, as with the Go kubelet.
        self.world.api().remove::<Pod>("default", "job", None);
    }

    // ---- the kubelet and the machine ----

    async fn kill(&mut self) {
        self.steps.push(format!("    {:?}: killed", self.world.now()));
        self.world.crash().await;
        self.kill_at.lock().take();
        if self.loses_state {
            self.world.host.delete(STATE);
        }
    }

    async fn crash(&mut self, away: Duration) -> Result<(), String> {
        self.kill().await;
        self.advance(away).await?;
        self.start().await
    }

    /// A disk that fails in the first moment keeps the process from starting; the service manager tries again.
    async fn start(&mut self) -> Result<(), String> {
        self.world.seed += 1;
        let mut last = String::new();
        for _ in 0..10 {
            match self.world.try_start().await {
                Ok(agent) => {
                    self.world.agent = Some(agent);
                    return Ok(());
                }
                Err(error) => last = error.to_string(),
            }
            self.advance(seconds(1)).await?;
        }
        Err(format!("the kubelet does not start: {last}"))
    }

    /// Killed before or after the driver has done what it was asked for.
    async fn crash_during_call(&mut self, kinds: &mut Dice, driver: usize) -> Result<(), String> {
        let method = kinds.pick(&CALLS);
        let fault = kinds.pick(&[DraFault::Hangs, DraFault::HangsAfterDoing]);
        self.steps.push(format!("    during {method:?} {fault:?}"));
        self.drivers[driver].fault(method, fault);
        let deadline = self.world.now() + KILL_TIMEOUT;
        while self.drivers[driver].hanging() == 0 {
            if self.world.now() > deadline {
                return Ok(());
            }
            self.advance(CHECK_INTERVAL).await?;
        }
        self.crash(Duration::ZERO).await
    }

    /// Killed while it writes the state of claims.
    async fn crash_during_write(&mut self) -> Result<(), String> {
        // No other fault: one that is never met would look like a write that has not begun.
        self.world.host.clear_faults();
        self.world.host.fault_below(HostMethod::WriteFile, STATE, HostFault::Hangs);
        let deadline = self.world.now() + KILL_TIMEOUT;
        while self.world.host.pending_faults(HostMethod::WriteFile) > 0 {
            if self.world.now() > deadline {
                self.world.host.clear_faults();
                return Ok(());
            }
            self.advance(CHECK_INTERVAL).await?;
        }
        self.crash(Duration::ZERO).await
    }

    /// Killed at the nth act in the runtime from now on.
    async fn crash_at_act(&mut self, n: u64, away: Duration) -> Result<(), String> {
        let acts = self.checker.lock().acts;
        *self.kill_at.lock() = Some(acts + n);
        let kill_now = self.kill_now.clone();
        let deadline = self.world.now() + KILL_TIMEOUT;
        loop {
            tokio::select! {
                biased;
                () = kill_now.notified() => return self.crash(away).await,
                () = tokio::time::sleep(CHECK_INTERVAL) => self.advance(Duration::ZERO).await?,
            }
            if self.world.now() > deadline {
                self.kill_at.lock().take();
                return Ok(());
            }
        }
    }

    /// The machine starts again, after a power loss or not: CDI files are gone, and drivers register after a while.
    async fn reboot(&mut self, away: Duration, kinds: &mut Dice, times: &mut Dice) -> Result<(), String> {
        self.kill().await;
        if kinds.one_in(2) {
            self.world.host.power_cut();
        }
        self.world.fake.kill_all();
        self.world.host.reboot();
        self.world.cgroups.reboot();
        for driver in 0..2 {
            self.unregister(driver);
            if self.forgets {
                self.drivers[driver].forget_claims();
            } else {
                self.drivers[driver].remove_cdi_files();
            }
        }
        self.storms.retain(|(_, storm)| !matches!(storm, Storm::Away(_) | Storm::Update(..)));
        self.advance(away).await?;
        self.start().await?;
        for driver in 0..2 {
            self.begin(Storm::Away(driver), Duration::from_millis(times.between(0, 20_000)));
        }
        Ok(())
    }

    // ---- time ----

    async fn advance(&mut self, time: Duration) -> Result<(), String> {
        let until = self.world.now() + time;
        loop {
            self.end_storms(self.world.now());
            self.checker.lock().observe()?;
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

    async fn wait_until_settled(&mut self) -> Result<(), String> {
        self.check_interval = SETTLED_CHECK_INTERVAL;
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
            self.advance(seconds(2)).await?;
        }
    }

    /// How the node differs from what the API specifies.
    fn differences(&self) -> Vec<String> {
        let mut differences = Vec::new();
        let containers = self.world.fake.containers();
        let pods = by_uid(self.world.api());
        for (uid, pod) in &pods {
            let name = pod.metadata.name.as_deref().unwrap();
            let of_pod =
                containers.iter().filter(|(of, c)| of.as_str() == uid && c.state == ContainerState::Running);
            let running = of_pod.count();
            let is_over = is_over(&self.world.api_phase(name)) && name == "job";
            let is_ready = self.world.is_ready_in_api(name) && running == 1;
            if pod.metadata.deletion_timestamp.is_some() || !(is_ready || is_over && running == 0) {
                differences.push(format!("{name} runs {running}: {:?}", self.world.api_status(name)));
            }
        }
        let foreign = containers.iter().filter(|(uid, _)| !pods.contains_key(uid.as_str()));
        differences.extend(foreign.map(|(_, container)| format!("{} is of no pod", container.id)));
        differences.extend(self.claim_differences(&pods));
        differences
    }

    /// The claims of pods that have not ended are prepared and in the state file, and no others.
    fn claim_differences(&self, pods: &BTreeMap<String, Pod>) -> Vec<String> {
        let users = pods.iter().filter(|(_, pod)| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            !is_over(phase.unwrap_or_default())
        });
        let expected = shapes::uses(&self.world, &users.map(|(uid, _)| uid.as_str()).collect());
        let mut differences = Vec::new();
        for (driver, fake) in self.drivers.iter().enumerate() {
            let of_driver = expected.iter().filter(|(_, one)| one.drivers.contains(&driver));
            let wanted: BTreeSet<String> = of_driver.map(|(uid, _)| uid.clone()).collect();
            let prepared = fake.prepared_uids();
            if prepared != wanted {
                let name = DRIVERS[driver].name;
                differences.push(format!("{name} has prepared {prepared:?} instead of {wanted:?}"));
            }
        }
        let wanted: BTreeMap<String, BTreeSet<String>> =
            expected.into_iter().map(|(uid, one)| (uid, one.pods)).collect();
        let recorded = self.recorded();
        if recorded.as_ref() != Ok(&wanted) {
            differences.push(format!("the state file has {recorded:?} instead of {wanted:?}"));
        }
        differences
    }

    /// The pods of each claim, by UIDs, in the state file.
    fn recorded(&self) -> Result<BTreeMap<String, BTreeSet<String>>, String> {
        let Some(text) = self.world.host.text(STATE) else { return Ok(BTreeMap::new()) };
        let table = parse_dra_state(&text).map_err(|error| error.to_string())?;
        let pods = |entry: &resources_core::claims::table::Entry| {
            entry.pods.iter().map(|uid| uid.as_str().to_owned()).collect()
        };
        Ok(table.claims().map(|(id, entry)| (id.uid, pods(entry))).collect())
    }

    /// A settled node calls no driver, and changes nothing in the runtime.
    async fn stay_settled(&mut self) -> Result<(), String> {
        self.drivers.iter().for_each(|driver| _ = driver.forget_calls());
        self.world.fake.forget_calls();
        self.advance(UNCHANGED_FOR).await?;
        let mut calls: Vec<String> = self.drivers.iter().flat_map(FakeDraDriver::calls).collect();
        // Records of exited containers are removed now and then; stopping a dead sandbox is part of that.
        let is_cleaning = |line: &String| line.starts_with("Remove") || line.starts_with("StopPodSandbox");
        calls.extend(self.world.fake.call_lines().into_iter().filter(|line| !is_cleaning(line)));
        let differences = self.differences();
        match calls.is_empty() && differences.is_empty() {
            true => Ok(()),
            false => Err(format!("a settled node calls {calls:#?}, and differs: {differences:#?}")),
        }
    }

    async fn remove_everything(&mut self) -> Result<(), String> {
        for _ in 0..self.failing_writes {
            self.world.host.fault_below(HostMethod::WriteFile, STATE, HostFault::Fails);
        }
        for (name, _) in PODS_OF {
            self.world.api().remove::<Pod>("default", name, None);
        }
        let deadline = self.world.now() + SETTLE_TIMEOUT;
        loop {
            let mut left = self.claim_differences(&BTreeMap::new());
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

    fn describe(&self) -> String {
        let calls: Vec<Vec<String>> = self.drivers.iter().map(FakeDraDriver::calls).collect();
        format!("{:#?}\ncalls: {calls:#?}\n{}", self.steps, self.world.describe())
    }
}
