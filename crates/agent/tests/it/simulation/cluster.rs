//! The second mode: a node of a cluster. Users create, delete and recreate pods, controllers change them, the API becomes
//! unreachable, compacts its history and answers too late, has objects that no client can decode, and the agent is killed. Invariants, checked at every change of the
//! API and at every start of a container:
//! - the kubelet deletes no object from the API while a container of that pod runs;
//! - a phase never goes back, and what is Succeeded or Failed in the API runs nothing;
//! - a UID that has ended, or is gone, is not run again;
//! - those of pods that are resized in place (`resizes.rs`).
//!
//! And once the faults end, the running pods are those of the API, and the API has their status.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fakes::{ClusterFault, FakeCluster, Outage, Program, Verb};
use model::ContainerState;
use model::k8s::Pod;
use parking_lot::Mutex;
use serde_json::json;

use super::api_checker::{ApiChecker, is_over};
use super::hostile;
use super::random::Dice;
use super::resizes::{self, RESIZED};
use super::{assert_detected, first_line, pinned_in, play_all};
use crate::pods::{Manifest, container, pod};
use crate::recording_runtime::Act;
use crate::world::{World, seconds};

const NAMES: [&str; 6] = ["web", "job", "slow", "fails", "kept", "restarted"];
const CHECK_INTERVAL: Duration = Duration::from_millis(200);
const SETTLE_TIMEOUT: Duration = Duration::from_secs(300);
/// Runs in addition to those that failed once.
const SEEDS: usize = 40;

#[test]
fn api_faults_never_keep_pod_status_from_converging() {
    play_all(pinned_in(include_str!("pinned_cluster.txt")), SEEDS, run);
}

/// A runtime that reports running containers as exited makes the kubelet break the invariants; if that were not detected, the
/// invariants would be worthless.
#[test]
fn simulation_detects_a_violated_api_invariant() {
    let broken = |seed| run_with(seed, |world| world.runtime.report_false_stops());
    assert_detected(0..10, broken, |why| first_line(why).ends_with("is Succeeded and runs"));
}

/// The runtime reports that it changed resources, and did not.
#[test]
fn simulation_detects_a_resize_that_is_not_carried_out() {
    let broken = |seed| run_with(seed, |world| world.runtime.ignore_updates());
    assert_detected(1..10, broken, |why| first_line(why).contains(" requests "));
}

/// A container of a pod whose policy does not restart it is stopped: users change its image.
#[test]
fn simulation_detects_a_container_that_a_resize_must_not_restart() {
    let broken = |seed| {
        run_with(seed, |world| {
            let api = world.api().clone();
            world.runtime.watch_updates(move || {
                let Some(mut pod) = api.object::<Pod>("default", "kept") else { return };
                pod.spec.as_mut().unwrap().containers[0].image = Some("kept:2".to_owned());
                api.put(&pod);
            });
        })
    };
    assert_detected(1..10, broken, |why| first_line(why).contains("kept is stopped 1 times"));
}

fn run(seed: u64) -> Result<(), String> {
    run_with(seed, |_| {})
}

fn run_with(seed: u64, breaks: impl Fn(&mut World)) -> Result<(), String> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let mut run = Run::new(seed);
        breaks(&mut run.world);
        let result = run.play(seed).await;
        result.map_err(|why| format!("{why}\n{:#?}\n{}", run.steps, run.world.describe()))
    })
}

struct Run {
    world: World,
    checker: Arc<Mutex<ApiChecker>>,
    steps: Vec<String>,
}

fn manifest(name: &str) -> Manifest {
    if RESIZED.contains(&name) {
        return resizes::manifest(name).spec(json!({"terminationGracePeriodSeconds": 5}));
    }
    let policy = if ["job", "fails"].contains(&name) { "Never" } else { "Always" };
    pod(name, [container(name)]).restart_policy(policy).spec(json!({"terminationGracePeriodSeconds": 5}))
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut world = World::of_cluster();
        world.seed = seed;
        world
            .fake
            .program("web", Program::runs())
            .program("job", Program::exits(0, seconds(8)))
            .program("slow", Program::runs().stopping(seconds(4), 0))
            .program("fails", Program::exits(3, seconds(5)));
        world.api().set_deadline(seconds(10));
        let checker = Arc::new(Mutex::new(ApiChecker::new(&world.fake)));
        let of_api = checker.clone();
        world.api().watch_changes(move |plural, before, after| {
            if plural == "pods" {
                of_api.lock().pod_changed(before, after);
            }
        });
        let of_runtime = checker.clone();
        world.runtime.watch(Arc::new(move |act: &Act| match act {
            Act::Start(id) => of_runtime.lock().starts(id),
            Act::Stop(id) => of_runtime.lock().stops(id),
            Act::RunSandbox(_) | Act::StopSandbox(_) | Act::RemoveSandbox(_) | Act::Remove(_) => {}
        }));
        Self { world, checker, steps: Vec::new() }
    }

    async fn play(&mut self, seed: u64) -> Result<(), String> {
        let (mut kinds, mut times) = (Dice::new(seed, "api kinds"), Dice::new(seed, "api times"));
        let mut dice_of_objects = Dice::new(seed, "hostile objects");
        self.world.start().await;
        for _ in 0..kinds.between(10, 30) {
            let pause = if times.one_in(2) { times.between(0, 300) } else { times.between(0, 10_000) };
            self.advance(Duration::from_millis(pause)).await?;
            self.step(&mut kinds, &mut times).await?;
            if dice_of_objects.one_in(3) {
                self.steps.push(hostile::step(&self.world, &mut dice_of_objects));
            }
        }
        self.world.api().clear_faults();
        self.wait_until_settled().await?;
        for name in NAMES {
            self.world.api().remove::<Pod>("default", name, None);
        }
        self.until("everything is removed", |w| w.api().all::<Pod>().is_empty() && w.traces().is_empty())
            .await
    }

    async fn step(&mut self, kinds: &mut Dice, times: &mut Dice) -> Result<(), String> {
        let name = kinds.pick(&NAMES);
        let kind = kinds.between(0, 20);
        self.steps.push(format!("{:?}: {kind} {name}", self.world.now()));
        match kind {
            0..=3 if self.world.in_api(name).is_none() => drop(self.world.create(&manifest(name))),
            0..=3 => self.recreate(name),
            4 | 5 => drop(self.world.api().remove::<Pod>("default", name, None)),
            6 => self.touch(name),
            7 => drop(self.world.api().compact()),
            8 => drop(self.world.api().end_watches()),
            9 => self.fault(kinds),
            10 => {
                let kind = kinds.pick(&[Outage::Refused, Outage::Silent]);
                self.world.api().set_outage(Some(kind));
                self.advance(Duration::from_millis(times.between(100, 40_000))).await?;
                self.world.api().set_outage(None);
            }
            14..=19 => self.resize(kinds),
            11 => drop(self.world.fake.end_container(name, name, kinds.pick(&[0, 1]))),
            _ => {
                self.world.crash().await;
                self.advance(Duration::from_millis(times.between(0, 8_000))).await?;
                self.world.start().await;
            }
        }
        Ok(())
    }

    /// Deleted by force, and created again with a new UID at the same moment.
    fn recreate(&mut self, name: &str) {
        if let Some(uid) = self.world.in_api(name).and_then(|pod| pod.metadata.uid) {
            self.checker.lock().forced.insert(uid);
        }
        self.world.api().remove::<Pod>("default", name, Some(0));
        self.world.create(&manifest(name));
    }

    /// Another client writes a label and a condition of its own.
    fn touch(&self, name: &str) {
        let Some(mut pod) = self.world.in_api(name) else { return };
        let now = self.world.now().as_millis().to_string();
        pod.metadata.labels.get_or_insert_default().insert("touched".to_owned(), now);
        self.world.api().put(&pod);
    }

    fn resize(&mut self, kinds: &mut Dice) {
        let name = kinds.pick(&RESIZED);
        let pod = self.world.in_api(name).filter(|pod| pod.metadata.deletion_timestamp.is_none());
        if pod.is_none() {
            return;
        }
        // The API announces the change to the checker, so that it must not be locked then.
        let mut resizes = std::mem::take(&mut self.checker.lock().resizes);
        let resized = resizes.resize(&self.world, name, kinds);
        self.checker.lock().resizes = resizes;
        self.steps.extend(resized.map(|amounts| format!("{name} is resized to {amounts}")));
    }

    fn fault(&self, kinds: &mut Dice) {
        let faults = [
            ClusterFault::Unreachable,
            ClusterFault::UnreachableAfterDoing,
            ClusterFault::TimedOut,
            ClusterFault::TimedOutAfterDoing,
            ClusterFault::Slow(seconds(3)),
        ];
        let verb = kinds.pick(&[Verb::Patch, Verb::Delete, Verb::List, Verb::Watch, Verb::Create]);
        self.world.api().fault(verb, "", kinds.pick(&faults));
    }

    async fn advance(&mut self, time: Duration) -> Result<(), String> {
        let until = self.world.now() + time;
        loop {
            self.observe()?;
            let left = until.saturating_sub(self.world.now());
            if left.is_zero() {
                return Ok(());
            }
            tokio::time::sleep(left.min(CHECK_INTERVAL)).await;
        }
    }

    fn observe(&self) -> Result<(), String> {
        let mut checker = self.checker.lock();
        let running = checker.running();
        let exceeded = checker.resizes.check_allocations(&self.world, &running);
        checker.violations.extend(exceeded);
        checker.violations.first().map_or(Ok(()), |violation| Err(violation.clone()))
    }

    async fn wait_until_settled(&mut self) -> Result<(), String> {
        self.until("the API status matches the runtime", is_settled).await?;
        self.advance(seconds(40)).await?;
        if is_settled(&self.world) { Ok(()) } else { Err("it did not stay like this".to_owned()) }
    }

    async fn until(&mut self, what: &str, condition: impl Fn(&World) -> bool) -> Result<(), String> {
        let deadline = self.world.now() + SETTLE_TIMEOUT;
        while !condition(&self.world) {
            self.advance(CHECK_INTERVAL).await?;
            if self.world.now() > deadline {
                let differences = resize_differences(&self.world);
                return Err(format!("timed out waiting until {what} {differences:?}"));
            }
        }
        Ok(())
    }
}

/// How resized pods differ from what was requested.
fn resize_differences(world: &World) -> Vec<String> {
    let pods = RESIZED.iter().filter_map(|name| Some((name, world.in_api(name)?)));
    pods.filter_map(|(name, pod)| resizes::difference(world, name, &pod)).collect()
}

pub(super) fn by_uid(api: &FakeCluster) -> BTreeMap<String, Pod> {
    let all = api.all::<Pod>().into_iter();
    all.map(|pod| (pod.metadata.uid.clone().unwrap_or_default(), pod)).collect()
}

/// Each pod of the API is in the state that its program leads to, and nothing else runs.
fn is_settled(world: &World) -> bool {
    let in_api = by_uid(world.api());
    let all = world.fake.containers();
    let runs = |uid: &str| {
        all.iter().filter(|(of, c)| of.as_str() == uid && c.state == ContainerState::Running).count()
    };
    let is_foreign = all.iter().any(|(uid, _)| !in_api.contains_key(uid.as_str()));
    let is_as_reported = |(uid, pod): (&String, &Pod)| {
        let name = pod.metadata.name.clone().unwrap_or_default();
        let is_deleted = pod.metadata.deletion_timestamp.is_some();
        let expected = match name.as_str() {
            "job" => ["Succeeded", "Failed"].contains(&world.api_phase("job").as_str()) && runs(uid) == 0,
            "fails" => is_over(&world.api_phase("fails")) && runs(uid) == 0,
            _ if RESIZED.contains(&name.as_str()) && is_over(&world.api_phase(&name)) => runs(uid) == 0,
            _ => world.is_ready_in_api(&name) && runs(uid) == 1,
        };
        !is_deleted && expected
    };
    world.is_node_ready()
        && !is_foreign
        && in_api.iter().all(is_as_reported)
        && resize_differences(world).is_empty()
}
