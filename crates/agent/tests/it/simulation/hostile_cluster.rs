//! The fifth mode: a node of a cluster in which other users store objects that cannot be decoded, whose network delivers some lists late
//! or never, whose API server refuses requests because it is overloaded, and whose runtime fails in the first seconds of the kubelet.
//! Invariants, checked at every change of the API and at every start and stop of a container:
//! - those of the second mode (`api_checker.rs`);
//! - no running container of a pod that users want is stopped;
//! - while objects are malformed and lists late, a pod that needs none of them starts, and goes when it is deleted, in bounded time.
//!
//! And once the faults end, malformed objects cost only the pods that need them; and without these, all is as if they had never been.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fakes::{ClusterFault, Fault, Method, Outage, Program, Verb};
use model::k8s::{ConfigMap, Pod, RuntimeClass, Secret, Service};
use parking_lot::Mutex;
use ports::cluster::ClusterError;
use serde_json::{Value, json};

use super::api_checker::ApiChecker;
use super::random::Dice;
use super::{assert_detected, pinned_in, play_all};
use crate::pods::{Manifest, container, container_with, pod};
use crate::recording_runtime::Act;
use crate::world::{World, seconds};

/// Pods that need nothing but the pods of the API.
const FREE: [&str; 3] = ["free-a", "free-b", "free-c"];
/// One that needs the Services, and two that need an object of their own.
const BOUND: [&str; 3] = ["linked", "mapped", "secretive"];
const CHECK_INTERVAL: Duration = Duration::from_millis(200);
const SETTLE_TIMEOUT: Duration = Duration::from_secs(400);
/// How long a pod that needs no other object may take to start, and to go: longer than the back-off after an outage, twice.
const PROBE_TIMEOUT: Duration = Duration::from_secs(150);
/// Runs in addition to those that failed once.
const SEEDS: usize = 12;

#[test]
fn hostile_objects_slow_links_and_early_runtime_errors_cost_only_what_depends_on_them() {
    play_all(pinned_in(include_str!("pinned_hostile.txt")), SEEDS, run);
}

/// Without the kubelet's tolerance, no pod would start next to a malformed one: the watch of pods would never get beyond it.
#[test]
fn simulation_detects_a_pod_that_waits_for_a_fault_of_another() {
    let broken = |seed| {
        run_with(seed, |world| {
            world.api().fault_always(Verb::List, "pods", Some(ClusterFault::Unreachable));
        })
    };
    assert_detected(0..5, broken, |why| why.starts_with("timed out waiting until probe-"));
}

fn run(seed: u64) -> Result<(), String> {
    run_with(seed, |_| {})
}

fn run_with(seed: u64, breaks: impl Fn(&mut World)) -> Result<(), String> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let mut run = Run::new(seed);
        let result = run.play(seed, breaks).await;
        result.map_err(|why| format!("{why}\n{:#?}\n{}", run.steps, run.world.describe()))
    })
}

struct Run {
    world: World,
    checker: Arc<Mutex<ApiChecker>>,
    /// Faults of lists of these kinds, and of the runtime, with when they end.
    storms: Vec<(Duration, Storm)>,
    /// Pods whose present version is malformed, with the last good one.
    spoiled: BTreeMap<&'static str, Pod>,
    probes: u32,
    steps: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Storm {
    List(&'static str),
    Runtime(Method),
    Down,
}

fn manifest(name: &str) -> Manifest {
    let needs = |fields: Value| pod(name, [container_with("app", fields)]);
    let pod = match name {
        "linked" => pod(name, [container("app")]).spec(json!({"enableServiceLinks": true})),
        "mapped" => needs(json!({"envFrom": [{"configMapRef": {"name": "cfg"}}]})),
        "secretive" => needs(json!({"envFrom": [{"secretRef": {"name": "keys"}}]})),
        _ => pod(name, [container("app")]),
    };
    pod.spec(json!({"terminationGracePeriodSeconds": 5}))
}

/// JSON of an object of the namespace that no client decodes.
fn malformed(name: &str, fields: &Value) -> Value {
    let mut object = fields.clone();
    object["metadata"] = json!({"name": name, "namespace": "default"});
    object
}

fn good<K: serde::de::DeserializeOwned>(name: &str, fields: &Value) -> K {
    serde_json::from_value(malformed(name, fields)).unwrap()
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut world = World::of_cluster();
        world.seed = seed;
        world.fake.program("app", Program::runs());
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
            Act::Stop(id) => of_runtime.lock().stops_wanted(id),
            Act::RunSandbox(_) | Act::StopSandbox(_) | Act::RemoveSandbox(_) | Act::Remove(_) => {}
        }));
        let (storms, spoiled, steps) = (Vec::new(), BTreeMap::new(), Vec::new());
        Self { world, checker, storms, spoiled, probes: 0, steps }
    }

    async fn play(&mut self, seed: u64, breaks: impl Fn(&mut World)) -> Result<(), String> {
        let (mut kinds, mut times) = (Dice::new(seed, "hostile kinds"), Dice::new(seed, "hostile times"));
        self.repair_objects();
        self.world.start().await;
        for name in FREE.iter().chain(&BOUND) {
            self.world.create(&manifest(name));
        }
        self.until("all pods run", |run| run.unready().is_empty()).await?;
        breaks(&mut self.world);
        for _ in 0..kinds.between(8, 20) {
            let pause = if times.one_in(2) { times.between(0, 300) } else { times.between(0, 10_000) };
            self.advance(Duration::from_millis(pause)).await?;
            self.step(&mut kinds, &mut times).await?;
        }
        self.probe().await?;
        self.world.api().clear_faults();
        self.end_storms(Duration::MAX);
        self.until("pods that need no malformed object run", |run| run.unready_free().is_empty()).await?;
        self.repair_objects();
        for name in self.spoiled.keys().copied().collect::<Vec<_>>() {
            self.repair_pod(name);
        }
        self.world.api().remove::<Pod>("default", "bad", Some(0));
        self.until("all pods run", |run| run.unready().is_empty()).await?;
        self.advance(seconds(40)).await?;
        if !self.unready().is_empty() {
            return Err(format!("it did not stay like this: {:?}", self.unready()));
        }
        for name in FREE.iter().chain(&BOUND) {
            self.world.api().remove::<Pod>("default", name, None);
        }
        let is_empty = |run: &Self| run.world.api().all::<Pod>().is_empty() && run.world.traces().is_empty();
        self.until("everything is removed", is_empty).await
    }

    async fn step(&mut self, kinds: &mut Dice, times: &mut Dice) -> Result<(), String> {
        let kind = kinds.between(0, 22);
        let (name, lasts) = (kinds.pick(&FREE), Duration::from_millis(times.between(100, 40_000)));
        self.steps.push(format!("{:?}: {kind} {name} {lasts:?}", self.world.now()));
        match kind {
            0 => {
                let fields = json!({"spec": {"nodeName": "node", "containers": 7}});
                self.world.api().put_json::<Pod>(malformed("bad", &fields));
            }
            1 => drop(self.world.api().remove::<Pod>("default", "bad", Some(0))),
            2 | 3 => self.spoil_pod(name),
            4 => self.repair_pod(name),
            5..=8 => self.spoil_object(kinds),
            9 => self.repair_objects(),
            10 => drop(self.world.api().compact()),
            11 => drop(self.world.api().end_watches()),
            12 => {
                self.world.api().set_outage(Some(kinds.pick(&[Outage::Refused, Outage::Silent])));
                self.advance(lasts).await?;
                self.world.api().set_outage(None);
            }
            13..=15 => self.slow_list(kinds, lasts),
            16 | 17 => self.overload(kinds),
            18 | 19 => self.restart(kinds, lasts).await?,
            _ => self.probe().await?,
        }
        Ok(())
    }

    /// A user writes a status that no client decodes.
    fn spoil_pod(&mut self, name: &'static str) {
        let Some(pod) = self.world.in_api(name).filter(|pod| pod.metadata.deletion_timestamp.is_none())
        else {
            return;
        };
        let mut value = serde_json::to_value(&pod).unwrap();
        let condition = json!({"type": "x", "status": "True", "lastTransitionTime": "10000-01-01T19:59:59Z"});
        value["status"]["conditions"].as_array_mut().unwrap().push(condition);
        self.spoiled.insert(name, pod);
        self.world.api().put_json::<Pod>(value);
    }

    fn repair_pod(&mut self, name: &str) {
        if let Some(pod) = self.spoiled.remove(name) {
            self.world.api().put(&pod);
        }
    }

    fn spoil_object(&mut self, kinds: &mut Dice) {
        let api = self.world.api();
        match kinds.between(0, 5) {
            0 | 1 => drop(api.put_json::<Service>(malformed("bad", &json!({"spec": 7})))),
            2 => drop(api.put_json::<RuntimeClass>(malformed("bad", &json!({"handler": 7})))),
            3 => drop(api.put_json::<ConfigMap>(malformed("cfg", &json!({"data": 7})))),
            _ => drop(api.put_json::<Secret>(malformed("keys", &json!({"data": {"a": 7}})))),
        }
    }

    fn repair_objects(&mut self) {
        let api = self.world.api();
        api.put(&good::<ConfigMap>("cfg", &json!({"data": {"color": "red"}})));
        api.put(&good::<Secret>("keys", &json!({"data": {"a": "Yg=="}})));
        api.put(&good::<Service>(
            "web",
            &json!({"spec": {"clusterIP": "10.96.0.7", "ports": [{"port": 80}]}}),
        ));
        api.remove::<Service>("default", "bad", None);
        api.remove::<RuntimeClass>("", "bad", None);
    }

    /// Lists of a kind that probed pods do not need arrive late, or never.
    fn slow_list(&mut self, kinds: &mut Dice, lasts: Duration) {
        let plural = kinds.pick(&["services", "configmaps", "secrets", "runtimeclasses", "csidrivers"]);
        let fault = kinds.pick(&[ClusterFault::TimedOut, ClusterFault::Slow(seconds(8))]);
        self.world.api().fault_always(Verb::List, plural, Some(fault));
        self.begin(Storm::List(plural), lasts);
    }

    /// The server refuses some requests.
    fn overload(&self, kinds: &mut Dice) {
        let verb =
            kinds.pick(&[Verb::Patch, Verb::Delete, Verb::List, Verb::Watch, Verb::Create, Verb::Update]);
        let retry_after = kinds.pick(&[None, Some(seconds(1)), Some(seconds(5))]);
        let busy = ClusterError::Busy { call: String::new(), message: "later".to_owned(), retry_after };
        self.world.api().fault_times(verb, "", &ClusterFault::Refused(busy), 3);
    }

    /// The kubelet is killed; for some time after its next start the runtime fails or is not there.
    async fn restart(&mut self, kinds: &mut Dice, lasts: Duration) -> Result<(), String> {
        self.world.crash().await;
        self.advance(lasts / 8).await?;
        if kinds.one_in(4) {
            self.world.fake.set_down(true);
            self.begin(Storm::Down, lasts / 4);
        } else {
            let method = kinds.pick(&EARLY);
            let fault = kinds.pick(&[Fault::Failed("not yet".to_owned()), Fault::Unavailable]);
            self.world.fake.fault_always(method, Some(fault));
            self.begin(Storm::Runtime(method), lasts / 4);
        }
        self.world.start().await;
        Ok(())
    }

    /// Next to all malformed objects and late lists, a pod that needs none of them starts, and goes.
    async fn probe(&mut self) -> Result<(), String> {
        self.storms.retain(|(_, storm)| matches!(storm, Storm::List(_)) || end(&self.world, *storm));
        self.probes += 1;
        let name = format!("probe-{}", self.probes);
        self.world.create(&manifest(&name));
        let title = format!("{name}/app");
        self.within(PROBE_TIMEOUT, &format!("{name} runs"), |run| run.world.runs(&title)).await?;
        self.world.api().remove::<Pod>("default", &name, None);
        let is_gone = |run: &Self| run.world.in_api(&name).is_none() && !run.world.runs(&title);
        self.within(PROBE_TIMEOUT, &format!("{name} is gone"), is_gone).await
    }

    fn begin(&mut self, storm: Storm, lasts: Duration) {
        self.storms.retain(|(_, other)| *other != storm);
        self.storms.push((self.world.now() + lasts, storm));
    }

    /// Ends what is over by then.
    fn end_storms(&mut self, now: Duration) {
        let world = &self.world;
        self.storms.retain(|(until, storm)| *until > now || end(world, *storm));
    }

    async fn advance(&mut self, time: Duration) -> Result<(), String> {
        let until = self.world.now() + time;
        loop {
            self.end_storms(self.world.now());
            if let Some(violation) = self.checker.lock().violations.first() {
                return Err(violation.clone());
            }
            let left = until.saturating_sub(self.world.now());
            if left.is_zero() {
                return Ok(());
            }
            tokio::time::sleep(left.min(CHECK_INTERVAL)).await;
        }
    }

    async fn until(&mut self, what: &str, condition: impl Fn(&Self) -> bool) -> Result<(), String> {
        self.within(SETTLE_TIMEOUT, what, condition).await
    }

    async fn within(
        &mut self,
        timeout: Duration,
        what: &str,
        condition: impl Fn(&Self) -> bool,
    ) -> Result<(), String> {
        let deadline = self.world.now() + timeout;
        while !condition(self) {
            self.advance(CHECK_INTERVAL).await?;
            if self.world.now() > deadline {
                return Err(format!("timed out waiting until {what}; not ready: {:?}", self.unready()));
            }
        }
        Ok(())
    }

    /// Pods that are not ready in the API, or have other than one running container.
    fn unready(&self) -> Vec<&'static str> {
        let all = FREE.iter().chain(&BOUND).copied();
        all.filter(|name| !self.world.is_ready_in_api(name) || self.running_of(name) != 1).collect()
    }

    /// Of those that need no other object: one container runs, also of a pod that is malformed now.
    fn unready_free(&self) -> Vec<&'static str> {
        FREE.iter().copied().filter(|name| self.running_of(name) != 1).collect()
    }

    fn running_of(&self, name: &str) -> usize {
        let title = format!("{name}/app");
        let numbered = format!("{title}#");
        self.world.fake.running().iter().filter(|t| **t == title || t.starts_with(&numbered)).count()
    }
}

/// What a kubelet calls in its first seconds.
const EARLY: [Method; 9] = [
    Method::Version,
    Method::Status,
    Method::RuntimeConfig,
    Method::ListPodSandbox,
    Method::ListContainers,
    Method::PodSandboxStatus,
    Method::ContainerStatus,
    Method::ListImages,
    Method::ImageFsInfo,
];

/// Returns false: it is not kept.
fn end(world: &World, storm: Storm) -> bool {
    match storm {
        Storm::List(plural) => drop(world.api().fault_always(Verb::List, plural, None)),
        Storm::Runtime(method) => drop(world.fake.fault_always(method, None)),
        Storm::Down => drop(world.fake.set_down(false)),
    }
    false
}
