//! The sync loop: merges the sources and keeps one worker for each pod.
//!
//! Owns the desired pods and the table of workers. Never calls the runtime, never waits for a pod: whatever takes time
//! happens in a worker's own task. Nothing is torn down before every source has reported once, and left nothing out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kubelet_core::housekeeping::{CleanupInputs, RuntimePresence, WorkerProgress, compute_cleanup};
use kubelet_core::sources::{PodChange, PodOp, Sources, SourcesReady};
use model::containers::spec_of;
use model::k8s::Pod;
use model::{MonoTime, PodObservation, PodRef, PodSource, PodUid};
use tokio::sync::{mpsc, watch};

use crate::engine::Engine;
use crate::pods_view::load_pod;
use crate::sources::SourceSet;
use crate::worker::{Order, PodWorker};

const HOUSEKEEPING_PERIOD: Duration = Duration::from_secs(2);
const SCAN_PERIOD: Duration = Duration::from_secs(60);
/// A loop that has not gone round for this long is stuck; `/healthz` says so.
pub const STUCK_AFTER: Duration = Duration::from_secs(120);

/// When the loop last went round, for the health check.
#[derive(Clone, Debug, Default)]
pub struct Heartbeat {
    nanos: Arc<AtomicU64>,
}

impl Heartbeat {
    fn beat(&self, since_start: Duration) {
        self.nanos.store(u64::try_from(since_start.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    #[must_use]
    pub fn last(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::Relaxed))
    }
}

#[derive(Debug)]
struct WorkerHandle {
    pod: PodRef,
    orders: watch::Sender<Order>,
}

/// Where the loop tells how far the sources are.
#[derive(Clone, Debug)]
pub struct SourcesReadiness {
    /// All have reported.
    pub reported: watch::Sender<bool>,
    /// All have reported, and left nothing out: what they do not name is wanted by nobody and may be cleaned up.
    pub complete: watch::Sender<bool>,
}

impl Default for SourcesReadiness {
    fn default() -> Self {
        Self { reported: watch::Sender::new(false), complete: watch::Sender::new(false) }
    }
}

#[derive(Debug)]
pub struct SyncLoop {
    engine: Arc<Engine>,
    heartbeat: Heartbeat,
    sets: mpsc::Receiver<SourceSet>,
    sources: Sources,
    readiness: SourcesReadiness,
    /// Sources that could read everything they have at least once.
    complete: SourcesReady,
    workers: BTreeMap<PodUid, WorkerHandle>,
    /// Pods whose name an older pod still has; by full name, the newest one wins.
    held_back: BTreeMap<String, Arc<Pod>>,
    finished_sender: mpsc::Sender<PodUid>,
    finished: mpsc::Receiver<PodUid>,
    /// Pods that left a directory on this machine; found by a scan now and then.
    on_disk: (mpsc::Sender<BTreeSet<PodUid>>, mpsc::Receiver<BTreeSet<PodUid>>),
    /// The last scan's, until it has been acted on.
    dirs: BTreeSet<PodUid>,
    next_scan: MonoTime,
}

impl SyncLoop {
    #[must_use]
    pub fn new(
        engine: Arc<Engine>,
        heartbeat: Heartbeat,
        sets: mpsc::Receiver<SourceSet>,
        expected: Vec<PodSource>,
        readiness: SourcesReadiness,
    ) -> Self {
        let (finished_sender, finished) = mpsc::channel(256);
        Self {
            engine,
            heartbeat,
            sets,
            complete: SourcesReady::new(expected.iter().copied()),
            sources: Sources::new(expected),
            readiness,
            workers: BTreeMap::new(),
            held_back: BTreeMap::new(),
            finished_sender,
            finished,
            on_disk: mpsc::channel(1),
            dirs: BTreeSet::new(),
            next_scan: MonoTime::ZERO,
        }
    }

    /// Runs until dropped. Every select arm is cancel safe: channels lose nothing.
    pub async fn run(mut self) {
        let clock = self.engine.clock;
        let mut next_housekeeping = clock.mono() + HOUSEKEEPING_PERIOD;
        self.note_reported();
        loop {
            self.heartbeat.beat(clock.mono().since_start());
            tokio::select! {
                biased;
                Some(uid) = self.finished.recv() => self.bury(&uid),
                Some(set) = self.sets.recv() => self.take_set(set),
                Some(uids) = self.on_disk.1.recv() => self.dirs = uids,
                () = clock.sleep_until(next_housekeeping) => {
                    self.keep_house();
                    next_housekeeping = clock.mono() + HOUSEKEEPING_PERIOD;
                }
            }
        }
    }

    fn take_set(&mut self, set: SourceSet) {
        if set.is_complete {
            self.complete.saw(set.source);
        } else if !self.complete.has_seen(set.source) {
            tracing::warn!(source = %set.source, "Some manifests cannot be used, and may describe pods that run: until they can, what nobody asks for is left alone");
        }
        let merged = self.sources.set(set.source, set.pods);
        for duplicate in &merged.duplicates {
            self.engine.recorder.warning(
                &PodRef::of(&duplicate.pod),
                None,
                "FailedValidation",
                duplicate.message(),
            );
        }
        for change in &merged.changes {
            self.apply(change);
        }
        self.engine.metrics.set_desired(self.sources.pods().count());
        self.note_reported();
    }

    fn note_reported(&mut self) {
        let tell = |channel: &watch::Sender<bool>, now: bool| {
            channel.send_if_modified(|known| std::mem::replace(known, now) != now);
        };
        tell(&self.readiness.reported, self.sources.ready().all_ready());
        tell(&self.readiness.complete, self.complete.all_ready());
    }

    fn apply(&mut self, change: &PodChange) {
        let PodChange { op, source, pod } = change;
        let identity = PodRef::of(pod);
        tracing::info!(pod = %identity, uid = %identity.uid, %source, ?op, "SyncLoop");
        match op {
            PodOp::Add => self.add(pod.clone()),
            PodOp::Update | PodOp::Delete | PodOp::Reconcile => match self.workers.get(&identity.uid) {
                Some(worker) => worker.orders.send_modify(|order| order.desired = Some(pod.clone())),
                None => self.add(pod.clone()),
            },
            PodOp::Remove => self.remove(&identity),
        }
    }

    fn add(&mut self, pod: Arc<Pod>) {
        let identity = PodRef::of(&pod);
        if let Some(worker) = self.workers.get(&identity.uid) {
            // The same UID came back while its worker was still taking it down: the worker starts over afterwards.
            worker.orders.send_modify(|order| {
                order.desired = Some(pod);
                order.is_removed = false;
            });
            return;
        }
        let full_name = identity.full_name();
        if self.workers.values().any(|worker| worker.pod.full_name() == full_name) {
            tracing::info!(pod = %identity, uid = %identity.uid, "Pod waits until its predecessor of the same name is gone");
            self.held_back.insert(full_name, pod);
            return;
        }
        self.start_worker(identity, Order { desired: Some(pod), ..Order::default() });
    }

    fn remove(&mut self, pod: &PodRef) {
        self.held_back.retain(|_, waiting| PodRef::of(waiting).uid != pod.uid);
        if let Some(worker) = self.workers.get(&pod.uid) {
            worker.orders.send_modify(|order| order.is_removed = true);
        }
    }

    fn start_worker(&mut self, pod: PodRef, order: Order) {
        let (orders, receiver) = watch::channel(order);
        let (engine, finished) = (self.engine.clone(), self.finished_sender.clone());
        let (identity, uid) = (pod.clone(), pod.uid.clone());
        let is_known = receiver.borrow().desired.is_some();
        // From now on the pod counts as cared for.
        let followed = engine.cache.subscribe(&uid);
        self.workers.insert(pod.uid.clone(), WorkerHandle { pod, orders });
        self.engine.tasks.spawn("pod worker", async move {
            let remembered = match is_known {
                true => None,
                false => load_pod(&*engine.host, &engine.settings.paths, &identity.uid).await.map(Arc::new),
            };
            let identity = remembered.as_deref().map_or(identity, PodRef::of);
            let (worker, first) = PodWorker::new(engine, identity, receiver, remembered);
            drop(followed);
            worker.run(first).await;
            // The loop outlives its workers, except at shutdown, when nobody needs to know.
            let _ = finished.send(uid).await;
        });
    }

    /// A worker has ended: its pod has left no trace.
    fn bury(&mut self, uid: &PodUid) {
        let Some(worker) = self.workers.remove(uid) else { return };
        self.engine.pods.forget(uid);
        let order = worker.orders.borrow().clone();
        let full_name = worker.pod.full_name();
        if let (Some(pod), false) = (order.desired, order.is_removed) {
            // Asked for again in the very moment of its end.
            self.start_worker(worker.pod, Order { desired: Some(pod), ..Order::default() });
        } else if let Some(pod) = self.held_back.remove(&full_name) {
            self.start_worker(PodRef::of(&pod), Order { desired: Some(pod), ..Order::default() });
        }
    }

    /// Finds what nobody asks for any more, and has it taken down by workers of its own.
    fn keep_house(&mut self) {
        let in_runtime = self.engine.cache.in_runtime();
        let runtime: BTreeMap<PodUid, RuntimePresence> =
            in_runtime.iter().map(|o| (o.pod.uid.clone(), presence(o))).collect();
        let running = runtime.values().filter(|presence| **presence == RuntimePresence::MayRun).count();
        self.engine.metrics.set_running(running);
        let plan = compute_cleanup(&CleanupInputs {
            desired: &self.sources.pods().map(|(_, pod)| PodRef::of(pod).uid).collect(),
            workers: &self.workers.keys().map(|uid| (uid.clone(), WorkerProgress::Working)).collect(),
            runtime: &runtime,
            dirs: &std::mem::take(&mut self.dirs),
            sources_ready: *self.readiness.complete.borrow(),
        });
        for uid in plan.kill_orphans {
            self.engine.metrics.orphan_found();
            tracing::info!(%uid, "Pod in the runtime is not desired; taking it down");
            self.take_down(uid);
        }
        for uid in plan.remove_dirs {
            tracing::info!(%uid, "Directory of a pod that is not desired; cleaning up");
            self.take_down(uid);
        }
        if *self.readiness.complete.borrow() {
            self.scan_directories();
        }
    }

    /// A worker without a spec: it stops what runs, releases the volumes and removes the rest.
    fn take_down(&mut self, uid: PodUid) {
        if self.workers.contains_key(&uid) {
            return;
        }
        let observed = self.engine.cache.get(&uid);
        let pod = observed.map_or_else(|| PodRef::new("", "", uid), |observed| observed.pod.clone());
        self.start_worker(pod, Order { is_removed: true, ..Order::default() });
    }
}

impl SyncLoop {
    /// Looks for directories of pods that nobody takes care of, in a task of its own: a slow disk must not stop the
    /// loop.
    fn scan_directories(&mut self) {
        let now = self.engine.clock.mono();
        if now < self.next_scan {
            return;
        }
        self.next_scan = now + SCAN_PERIOD;
        let (engine, answer) = (self.engine.clone(), self.on_disk.0.clone());
        self.engine.tasks.spawn("pod directory scan", async move {
            match engine.host.list_dir(&engine.settings.paths.pods()).await {
                Ok(entries) => {
                    let uids =
                        entries.into_iter().filter(|e| e.is_dir).map(|e| PodUid::from(e.name)).collect();
                    // The loop lives as long as the process; at its end nobody needs the answer.
                    let _ = answer.send(uids).await;
                }
                Err(error) => {
                    let error = crate::volumes::chain(&error);
                    tracing::warn!(error, "Directories of pods cannot be listed; orphans among them stay");
                }
            }
        });
    }
}

fn presence(observed: &PodObservation) -> RuntimePresence {
    if observed.is_stopped() { RuntimePresence::Dead } else { RuntimePresence::MayRun }
}

/// Pods whose containers share the node's network are not bound to the runtime's network being ready.
#[must_use]
pub fn uses_host_network(pod: &Pod) -> bool {
    spec_of(pod).host_network.unwrap_or(false)
}
