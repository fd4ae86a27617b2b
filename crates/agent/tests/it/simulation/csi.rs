//! The third mode: pods with volumes of two CSI drivers. Users create, delete and recreate pods; calls of the drivers fail, hang, or
//! are carried out without an answer; drivers end, start, and register again; the API is unreachable, the disk fails, the kubelet is
//! killed in the middle of calls, and the machine starts again. Invariants, checked at every start and stop of a container and
//! several times a second:
//! - no call that the CSI specification forbids: two calls for one volume at once, a volume unstaged while it is published, published
//!   while it is not staged, or published at two places if it is for one pod;
//! - no container runs without the volumes of its pod;
//! - what a pod wrote in a volume is not deleted through its mount;
//! - a volume that a controller attaches is in use in the API as long as it is staged.
//!
//! And once the faults end, exactly the volumes that pods need are staged and published, and no driver is called any more.

mod checker;
mod shapes;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use fakes::{ClusterFault, CsiFault, CsiMethod, FakeCsiDriver, HostFault, HostMethod, Outage, Program, Verb};
use model::ContainerState;
use model::k8s::Pod;
use parking_lot::Mutex;
use ports::plugins::PluginInfo;

use self::checker::{Checker, all_published};
use self::shapes::{FILES, Frame, PODS_OF, ROOT, attach_all, drivers, manifest, put_objects, volumes_of};
use super::cluster::by_uid;
use super::random::Dice;
use super::{assert_detected, first_line, pinned_in, play_all};
use crate::recording_runtime::Act;
use crate::world::{PODS, World, seconds};

const CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// The wait after a call without an answer, and the longest back-off after it.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(900);
/// For this long a settled node calls no driver.
const UNCHANGED_FOR: Duration = Duration::from_secs(200);
/// Within this time a call hangs, or the kubelet is not killed during one.
const CALL_TIMEOUT: Duration = Duration::from_secs(20);

const METHODS: [CsiMethod; 6] = [
    CsiMethod::NodeStageVolume,
    CsiMethod::NodeUnstageVolume,
    CsiMethod::NodePublishVolume,
    CsiMethod::NodeUnpublishVolume,
    CsiMethod::NodeGetCapabilities,
    CsiMethod::NodeGetInfo,
];
const DISK: [HostMethod; 11] = [
    HostMethod::EnsureDir,
    HostMethod::WriteFile,
    HostMethod::ReadFile,
    HostMethod::ListDir,
    HostMethod::RemoveFile,
    HostMethod::RemoveTree,
    HostMethod::EnsureSymlink,
    HostMethod::EnsureHostPath,
    HostMethod::SetTreeGroup,
    HostMethod::IsMountPoint,
    HostMethod::UnmountTree,
];

#[test]
fn csi_driver_faults_never_lose_a_volume_or_leave_one_behind() {
    play_all(pinned_in(include_str!("pinned_csi.txt")), SEEDS, run);
}

/// Runs in addition to those that failed once.
const SEEDS: usize = 8;

/// Without the data that a kubelet writes before it calls a driver, the next kubelet cannot know of the volume; if that were not
/// detected, the end of the simulation would be worthless.
#[test]
fn simulation_detects_a_csi_volume_that_is_left_behind() {
    let broken = |seed| run_with(seed, |run| run.loses_data = true);
    assert_detected(1..6, broken, |why| {
        first_line(why) == "timed out waiting until the volumes are as the pods need them"
    });
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
    Fault(usize, CsiMethod),
    Stopped(usize),
    Unregistered(usize),
}

struct Run {
    world: World,
    frame: Frame,
    drivers: [(&'static str, FakeCsiDriver); 2],
    checker: Arc<Mutex<Checker>>,
    storms: Vec<(Duration, Storm)>,
    steps: Vec<String>,
    /// Each kill of the kubelet takes the data of staged volumes with it.
    loses_data: bool,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed, "csi frame");
        let frame = Frame {
            is_attached: dice.one_in(3),
            files_stages: dice.one_in(2),
            stages_without_mount: dice.one_in(2),
        };
        let mut world = World::of_cluster();
        world.seed = seed;
        world.fake.program("app", Program::runs().stopping(seconds(1), 0));
        world.api().set_deadline(seconds(10));
        put_objects(&world, frame);
        let drivers = drivers(&world, frame);
        let checker = Checker::new(frame, &world.fake, &world.host, world.api(), &drivers);
        let checker = Arc::new(Mutex::new(checker));
        let of_runtime = checker.clone();
        world.runtime.watch(Arc::new(move |act: &Act| {
            if let Act::Start(id) | Act::Stop(id) = act {
                of_runtime.lock().check_container(id);
            }
        }));
        Self { world, frame, drivers, checker, storms: Vec::new(), steps: Vec::new(), loses_data: false }
    }

    async fn play(&mut self, seed: u64) -> Result<(), String> {
        let (mut kinds, mut times) = (Dice::new(seed, "csi kinds"), Dice::new(seed, "csi times"));
        self.world.start().await;
        self.until("the node is ready", |run| run.world.is_node_ready()).await?;
        if self.frame.is_attached {
            attach_all(&self.world);
        }
        (0..2).for_each(|driver| self.register(driver));
        for _ in 0..kinds.between(10, 35) {
            let pause = if times.one_in(2) { times.between(0, 500) } else { times.between(0, 10_000) };
            self.advance(Duration::from_millis(pause)).await?;
            self.step(&mut kinds, &mut times).await?;
        }
        self.clear_faults();
        self.until("the volumes are as the pods need them", Self::is_settled).await?;
        self.stay_settled().await?;
        for pod in self.world.api().all::<Pod>() {
            self.world.api().remove::<Pod>("default", pod.metadata.name.as_deref().unwrap(), None);
        }
        self.until("everything is removed", |run| {
            run.world.api().all::<Pod>().is_empty() && run.world.traces().is_empty() && run.is_empty()
        })
        .await
    }

    async fn step(&mut self, kinds: &mut Dice, times: &mut Dice) -> Result<(), String> {
        let (name, _) = kinds.pick(&PODS_OF);
        let (kind, driver) = (kinds.between(0, 28), usize::from(kinds.one_in(3)));
        let lasts = Duration::from_millis(times.between(100, 30_000));
        self.steps.push(format!("{:?}: {kind} {name} {}", self.world.now(), self.drivers[driver].0));
        match kind {
            0..=4 => self.create(name),
            5..=7 => drop(self.world.api().remove::<Pod>("default", name, None)),
            8 => drop(self.world.api().remove::<Pod>("default", name, Some(0))),
            9 => drop(self.world.fake.end_container(name, "app", 1)),
            10 => self.api_fault(kinds),
            11 => {
                self.world.api().set_outage(Some(kinds.pick(&[Outage::Refused, Outage::Silent])));
                self.begin(Storm::Outage, lasts);
            }
            12..=17 => {
                let (method, fault) = self.fault(kinds);
                self.drivers[driver].1.fault(method, fault);
            }
            18 => {
                let (method, fault) = self.fault(kinds);
                self.drivers[driver].1.fault_always(method, Some(fault));
                self.begin(Storm::Fault(driver, method), lasts);
            }
            19 | 20 => drop(self.drivers[driver].1.release()),
            21 => {
                self.drivers[driver].1.stop();
                self.begin(Storm::Stopped(driver), lasts);
            }
            22 => {
                self.unregister(driver);
                self.begin(Storm::Unregistered(driver), lasts);
            }
            23 => self.crash(lasts / 4).await?,
            24 => self.crash_during_call(kinds.pick(&METHODS[..4]), driver).await?,
            25 => self.reboot(lasts / 2).await?,
            26 => {
                let below = kinds.pick(&[PODS.to_owned(), format!("{ROOT}/plugins/kubernetes.io")]);
                self.world.host.fault_below(kinds.pick(&DISK), below, HostFault::Fails);
            }
            // Longer than any call.
            _ => self.advance(seconds(130)).await?,
        }
        Ok(())
    }

    /// A pod that exists is deleted by force, and created again with a new UID at the same moment.
    fn create(&mut self, name: &'static str) {
        if self.world.in_api(name).is_some() {
            self.world.api().remove::<Pod>("default", name, Some(0));
        }
        let pod = self.world.create(&manifest(name));
        self.checker.lock().add_pod(pod.metadata.uid.unwrap(), name);
    }

    fn fault(&mut self, kinds: &mut Dice) -> (CsiMethod, CsiFault) {
        let faults = [
            CsiFault::Fails("Internal", "scripted"),
            CsiFault::Fails("Unavailable", "scripted"),
            CsiFault::Fails("ResourceExhausted", "scripted"),
            CsiFault::FailsAfterDoing("DeadlineExceeded", "scripted"),
            CsiFault::FailsAfterDoing("Unavailable", "scripted"),
            CsiFault::Hangs,
            CsiFault::AnswersAfter(seconds(3)),
            CsiFault::AnswersAfter(seconds(125)),
        ];
        let (method, fault) = (kinds.pick(&METHODS), kinds.pick(&faults));
        self.steps.push(format!("    {method:?} {fault:?}"));
        (method, fault)
    }

    fn api_fault(&self, kinds: &mut Dice) {
        let faults =
            [ClusterFault::Unreachable, ClusterFault::TimedOutAfterDoing, ClusterFault::Slow(seconds(3))];
        let verb = kinds.pick(&[Verb::Patch, Verb::Get, Verb::List, Verb::Watch, Verb::Update]);
        self.world.api().fault(verb, "", kinds.pick(&faults));
        if kinds.one_in(2) {
            self.world.api().end_watches();
        }
    }

    // ---- the drivers ----

    fn registration(&self, driver: usize) -> String {
        format!("{ROOT}/plugins_registry/{}-reg.sock", self.drivers[driver].0)
    }

    fn register(&self, driver: usize) {
        let (name, fake) = &self.drivers[driver];
        let endpoint = format!("{ROOT}/plugins/{name}/csi.sock");
        self.world.plugins.add_csi_driver(&endpoint, fake);
        let socket = self.registration(driver);
        let (kind, name, supported_versions) =
            ("CSIPlugin".to_owned(), (*name).to_owned(), vec!["1.0.0".to_owned()]);
        self.world.plugins.offer(&socket, PluginInfo { kind, name, endpoint, supported_versions });
        self.world.host.put_socket(&socket);
    }

    fn unregister(&self, driver: usize) {
        let socket = self.registration(driver);
        self.world.host.delete(&socket);
        self.world.plugins.withdraw(&socket);
    }

    // ---- faults that end ----

    fn begin(&mut self, storm: Storm, lasts: Duration) {
        self.steps.push(format!("    {storm:?} for {lasts:?}"));
        self.storms.push((self.world.now() + lasts, storm));
    }

    fn end(&self, storm: Storm) {
        match storm {
            Storm::Outage => drop(self.world.api().set_outage(None)),
            Storm::Fault(driver, method) => drop(self.drivers[driver].1.fault_always(method, None)),
            Storm::Stopped(driver) => drop(self.drivers[driver].1.start()),
            Storm::Unregistered(driver) => self.register(driver),
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
        self.world.host.clear_faults();
        for (_, driver) in &self.drivers {
            driver.clear_faults().release();
        }
    }

    // ---- the kubelet and the machine ----

    async fn crash(&mut self, away: Duration) -> Result<(), String> {
        self.world.crash().await;
        if self.loses_data {
            let files = self.world.host.files_below(format!("{ROOT}/plugins/kubernetes.io/csi")).into_iter();
            files
                .filter(|path| path.ends_with("vol_data.json"))
                .for_each(|path| _ = self.world.host.delete(path));
        }
        self.advance(away).await?;
        self.start().await
    }

    /// A disk that fails in the first moment keeps the process from starting; the service manager tries again.
    async fn start(&mut self) -> Result<(), String> {
        self.world.seed += 1;
        for _ in 0..10 {
            match self.world.try_start().await {
                Ok(agent) => {
                    self.world.agent = Some(agent);
                    return Ok(());
                }
                Err(_) => self.advance(seconds(1)).await?,
            }
        }
        Err("the kubelet does not start".to_owned())
    }

    async fn crash_during_call(&mut self, method: CsiMethod, driver: usize) -> Result<(), String> {
        self.steps.push(format!("    during {method:?}"));
        self.drivers[driver].1.fault(method, CsiFault::Hangs);
        let deadline = self.world.now() + CALL_TIMEOUT;
        while self.drivers[driver].1.hanging() == 0 {
            if self.world.now() > deadline {
                return Ok(());
            }
            self.advance(CHECK_INTERVAL).await?;
        }
        self.crash(Duration::ZERO).await
    }

    /// Files stay; processes, mounts and what the drivers had staged are gone.
    async fn reboot(&mut self, away: Duration) -> Result<(), String> {
        self.world.crash().await;
        PODS_OF.iter().for_each(|(name, _)| self.world.fake.kill_sandboxes(name));
        self.drivers.iter().for_each(|(_, driver)| _ = driver.reboot());
        self.checker.lock().forget_written();
        (0..2).for_each(|driver| self.unregister(driver));
        self.advance(away).await?;
        self.start().await?;
        (0..2).for_each(|driver| self.register(driver));
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
            tokio::time::sleep(left.min(CHECK_INTERVAL)).await;
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

    fn staged(&self) -> BTreeSet<String> {
        self.drivers.iter().flat_map(|(_, driver)| driver.staged().into_keys()).collect()
    }

    /// Each pod runs, exactly its volumes are staged and published, and there is data of no other.
    fn is_settled(&self) -> bool {
        let (mut staged, mut published, mut data) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let containers = self.world.fake.containers();
        let pods = by_uid(self.world.api());
        let is_running = pods.iter().all(|(uid, pod)| {
            let name = pod.metadata.name.as_deref().unwrap();
            for volume in volumes_of(name) {
                staged.extend(volume.staged(self.frame));
                data.extend(volume.data(self.frame));
                published.insert(volume.target(uid));
            }
            let of_pod =
                containers.iter().filter(|(of, c)| of.as_str() == uid && c.state == ContainerState::Running);
            of_pod.count() == 1
                && self.world.is_ready_in_api(name)
                && pod.metadata.deletion_timestamp.is_none()
        });
        let is_foreign = containers.iter().any(|(uid, _)| !pods.contains_key(uid.as_str()));
        let is_kept =
            self.left().into_iter().filter(|path| path.ends_with("vol_data.json")).collect::<BTreeSet<_>>()
                == data;
        // Volumes of deleted pods are torn down as long as their directories exist.
        let pod_dirs = self.world.host.files_below(PODS).into_iter();
        let is_left = pod_dirs
            .filter_map(|path| {
                path.strip_prefix(PODS)?.trim_start_matches('/').split('/').next().map(str::to_owned)
            })
            .any(|uid| !uid.is_empty() && !pods.contains_key(&uid));
        is_running
            && !is_foreign
            && !is_left
            && is_kept
            && self.staged() == staged
            && all_published(&self.drivers) == published
    }

    async fn stay_settled(&mut self) -> Result<(), String> {
        self.drivers.iter().for_each(|(_, driver)| _ = driver.forget_calls());
        self.advance(UNCHANGED_FOR).await?;
        let lines: Vec<String> = self.drivers.iter().flat_map(|(_, driver)| driver.call_lines()).collect();
        match lines.is_empty() && self.is_settled() {
            true => Ok(()),
            false => Err(format!("a settled node calls drivers: {lines:?}")),
        }
    }

    /// What volumes left behind, below the directory of staged volumes. The directories of drivers stay.
    fn left(&self) -> Vec<String> {
        let top = format!("{ROOT}/plugins/kubernetes.io/csi/");
        let kept = ["volumeDevices", "volumeDevices/staging", "volumeDevices/publish", shapes::DISK, FILES];
        let files = self.world.host.files_below(&top).into_iter();
        files.map(|path| path.replacen(&top, "", 1)).filter(|path| !kept.contains(&&**path)).collect()
    }

    fn is_empty(&self) -> bool {
        self.left().is_empty() && self.staged().is_empty() && all_published(&self.drivers).is_empty()
    }

    fn describe(&self) -> String {
        let calls: Vec<(&str, Vec<String>)> =
            self.drivers.iter().map(|(name, driver)| (*name, driver.call_lines())).collect();
        format!(
            "{:?}\n{:#?}\ncalls: {calls:#?}\nstaged: {:?}\npublished: {:?}\nleft: {:#?}\n{}",
            self.frame,
            self.steps,
            self.staged(),
            all_published(&self.drivers),
            self.left(),
            self.world.describe()
        )
    }
}
