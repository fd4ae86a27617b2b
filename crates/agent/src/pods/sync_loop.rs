//! The sync loop: merges the config sources and keeps one worker for each pod.
//!
//! Owns the desired pods and the table of workers. Never calls the runtime and never waits for a pod: slow work is done in
//! the workers' tasks. No orphan is removed before every source has reported a complete set; no pod starts before the
//! runtime was listed once, nor while a container of another pod of the same full name may run, nor, if one ended lately, before
//! the next listing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api_agent::meta::key_of_pod;
use api_core::reflector::ObjectKey;
use base_agent::cache::{InRuntime, Listed};
use base_agent::pods_view::load_pod;
use base_core::pod_stage::RuntimePresence;
use kubelet_core::pods::ended_names::EndedNames;
use kubelet_core::pods::housekeeping::{CleanupInputs, WorkerProgress, compute_cleanup};
use kubelet_core::pods::name_waits::{self, NameWaits, WAITING_FOR_PREVIOUS_POD};
use model::{MonoTime, PodRef, PodSource, PodUid, pod_status};
use sources_agent::SourceSet;
use sources_core::{DesiredPod, PodChange, PodOp, Sources, SourcesReady};
use tokio::sync::{mpsc, watch};
use volumes_agent::metrics::VolumeMetrics;

use crate::heartbeat::Heartbeat;
use crate::metrics::{KubeletMetrics, PodMetrics, WaitMetrics};
use crate::pods::handles::PodHandles;
use crate::pods::worker::{DesiredState, PodWorker};

const HOUSEKEEPING_PERIOD: Duration = Duration::from_secs(2);
const SCAN_PERIOD: Duration = Duration::from_secs(60);
/// Delay of the next scan for leftovers.
const LEFTOVER_PAUSE: Duration = Duration::from_secs(10);
#[derive(Debug)]
struct WorkerHandle {
    pod: PodRef,
    desired_state: watch::Sender<DesiredState>,
    /// Another pod of the full name ended shortly before: this one starts only after a listing that began later than this.
    listed_after: Option<MonoTime>,
}

/// A pod that has no worker yet, because a container of an older pod of its full name may run.
#[derive(Debug)]
struct HeldPod {
    desired: DesiredPod,
    behind: PodUid,
}

/// Publishes which sources have reported.
#[derive(Clone, Debug)]
pub struct SourcesReadiness {
    /// All have reported.
    pub reported: watch::Sender<bool>,
    /// All have reported a complete set: pods that they do not have are orphans.
    pub complete: watch::Sender<bool>,
    /// The static pods of all sources.
    pub static_pods: watch::Sender<BTreeSet<ObjectKey>>,
}

impl Default for SourcesReadiness {
    fn default() -> Self {
        Self {
            reported: watch::Sender::new(false),
            complete: watch::Sender::new(false),
            static_pods: watch::Sender::new(BTreeSet::new()),
        }
    }
}

#[derive(Debug)]
pub struct SyncLoop {
    handles: Arc<PodHandles>,
    heartbeat: Heartbeat,
    sets: mpsc::Receiver<SourceSet>,
    sources: Sources,
    readiness: SourcesReadiness,
    /// Sources that have reported a complete set at least once.
    complete: SourcesReady,
    workers: BTreeMap<PodUid, WorkerHandle>,
    /// By full name, the newest one wins.
    held_back: BTreeMap<String, HeldPod>,
    name_waits: NameWaits,
    ended: EndedNames,
    /// A worker waits for a listing.
    awaits_listing: bool,
    listings: watch::Receiver<Option<Listed>>,
    /// Housekeeping has run once; from then on it runs periodically.
    has_run_housekeeping: bool,
    finished_sender: mpsc::Sender<PodUid>,
    finished: mpsc::Receiver<PodUid>,
    /// Pods with a directory or a cgroup on this machine, found by a periodic scan.
    on_disk: (mpsc::Sender<BTreeSet<PodUid>>, mpsc::Receiver<BTreeSet<PodUid>>),
    /// Result of the last scan, until housekeeping has used it.
    dirs: BTreeSet<PodUid>,
    /// Pods of the API that cannot be decoded: whether they should run is not known, so what runs of them is left alone.
    undecodable: BTreeSet<PodUid>,
    next_scan: MonoTime,
}

/// Logs and records that the worker of a pod panicked, and when it is restarted. Its containers keep running.
fn report_worker_panic(handles: Arc<PodHandles>, pod: PodRef) -> impl Fn(Duration) {
    move |delay| {
        tracing::error!(%pod, podUID = %pod.uid, ?delay, "Pod worker panicked, restarting it");
        let message = format!("error syncing pod: pod worker panicked, restarting it in {delay:?}");
        handles.ctx.recorder.warning(&pod, None, "FailedSync", message);
    }
}

impl SyncLoop {
    #[must_use]
    pub fn new(
        handles: Arc<PodHandles>,
        heartbeat: Heartbeat,
        sets: mpsc::Receiver<SourceSet>,
        expected: Vec<PodSource>,
        readiness: SourcesReadiness,
    ) -> Self {
        let (finished_sender, finished) = mpsc::channel(256);
        Self {
            listings: handles.cache.listings(),
            has_run_housekeeping: false,
            handles,
            heartbeat,
            sets,
            complete: SourcesReady::new(expected.iter().copied()),
            sources: Sources::new(expected),
            readiness,
            workers: BTreeMap::new(),
            held_back: BTreeMap::new(),
            name_waits: NameWaits::default(),
            ended: EndedNames::default(),
            awaits_listing: false,
            finished_sender,
            finished,
            on_disk: mpsc::channel(1),
            dirs: BTreeSet::new(),
            undecodable: BTreeSet::new(),
            next_scan: MonoTime::ZERO,
        }
    }

    /// Runs until dropped. Every select arm is cancel safe: channels lose nothing.
    pub async fn run(mut self) {
        let clock = self.handles.ctx.clock;
        let mut next_housekeeping = clock.mono() + HOUSEKEEPING_PERIOD;
        let mut progress = self.handles.pods.changes();
        self.record_reported();
        loop {
            self.heartbeat.beat(clock.mono().since_start());
            tokio::select! {
                biased;
                Some(uid) = self.finished.recv() => self.worker_finished(&uid),
                Some(set) = self.sets.recv() => self.handle_set(set),
                Some(uids) = self.on_disk.1.recv() => self.dirs = uids,
                () = self.handles.leftovers.notified() => {
                    self.next_scan = self.next_scan.min(clock.mono() + LEFTOVER_PAUSE);
                }
                Ok(()) = self.listings.changed(), if !self.has_run_housekeeping || self.awaits_listing => {
                    self.run_first_housekeeping();
                }
                Ok(()) = progress.changed(), if !self.held_back.is_empty() => self.start_held(),
                () = clock.sleep_until(next_housekeeping) => {
                    self.run_housekeeping();
                    self.start_held();
                    self.start_unblocked();
                    self.report_name_waits();
                    self.report_waits();
                    next_housekeeping = clock.mono() + HOUSEKEEPING_PERIOD;
                }
            }
        }
    }

    fn handle_set(&mut self, set: SourceSet) {
        if set.is_complete {
            self.complete.saw(set.source);
        } else if !self.complete.has_seen(set.source) {
            tracing::warn!(source = %set.source, "Failed to parse manifests and to read their checkpoint, keeping orphaned pods until one of both succeeds");
        }
        if set.source == PodSource::Api {
            self.undecodable = set.undecodable;
        }
        let merged = self.sources.set(set.source, set.pods, self.handles.ctx.clock.now().wall);
        for duplicate in &merged.duplicates {
            self.handles.ctx.recorder.warning(&duplicate.pod, None, "FailedValidation", duplicate.message());
        }
        for change in &merged.changes {
            self.apply(change);
        }
        let from_api = self.sources.pods().filter(|(source, _)| *source == PodSource::Api).count();
        self.handles
            .ctx
            .metrics
            .get::<KubeletMetrics>()
            .set_desired(self.sources.pods().count() - from_api, from_api);
        self.record_reported();
        self.run_first_housekeeping();
    }

    /// Finds orphans of an earlier kubelet as soon as possible, because pods of the same full name wait for their end.
    fn run_first_housekeeping(&mut self) {
        self.start_unblocked();
        if !self.has_run_housekeeping && self.listings.borrow().is_some() && *self.readiness.complete.borrow()
        {
            self.has_run_housekeeping = true;
            self.run_housekeeping();
        }
    }

    fn record_reported(&mut self) {
        let notify = |channel: &watch::Sender<bool>, now: bool| {
            channel.send_if_modified(|known| std::mem::replace(known, now) != now);
        };
        let statics = self.sources.pods().filter(|(source, _)| source.is_static());
        let statics: BTreeSet<ObjectKey> = statics.map(|(_, pod)| key_of_pod(&pod.identity)).collect();
        self.readiness
            .static_pods
            .send_if_modified(|known| std::mem::replace(known, statics.clone()) != statics);
        notify(&self.readiness.reported, self.sources.ready().all_ready());
        notify(&self.readiness.complete, self.complete.all_ready());
    }

    fn apply(&mut self, change: &PodChange) {
        let PodChange { op, source, desired } = change;
        let identity = desired.identity.clone();
        tracing::info!(pod = %identity, podUID = %identity.uid, %source, ?op, "SyncLoop");
        match op {
            PodOp::Add => self.add(desired.clone()),
            PodOp::Update | PodOp::Delete | PodOp::Reconcile => match self.workers.get(&identity.uid) {
                Some(worker) => {
                    worker.desired_state.send_modify(|state| state.desired = Some(desired.clone()))
                }
                None => self.add(desired.clone()),
            },
            PodOp::Remove => self.remove(&identity),
        }
    }

    fn add(&mut self, pod: DesiredPod) {
        let identity = pod.identity.clone();
        if let Some(worker) = self.workers.get(&identity.uid) {
            // The same UID was added again while its worker still terminates it: the worker starts over afterwards.
            worker.desired_state.send_modify(|state| {
                state.desired = Some(pod);
                state.is_removed = false;
            });
            return;
        }
        self.begin_or_hold(pod);
    }

    /// Starts the worker of a pod, unless a container of another one of its full name may run.
    fn begin_or_hold(&mut self, desired: DesiredPod) {
        let pod = desired.identity.clone();
        match self.predecessor(&pod) {
            Some(behind) => {
                tracing::info!(%pod, podUID = %pod.uid, behind = %behind, "Pod waits until the containers of the previous pod of the same full name have ended");
                self.held_back.insert(pod.full_name(), HeldPod { desired, behind });
            }
            None => self.begin(pod, desired),
        }
    }

    /// Other pods of the full name that have a worker.
    fn others(&self, pod: &PodRef) -> impl Iterator<Item = &PodUid> {
        let is_other =
            move |worker: &&WorkerHandle| worker.pod.uid != pod.uid && worker.pod.has_full_name_of(pod);
        self.workers.values().filter(is_other).map(|worker| &worker.pod.uid)
    }

    /// One of these of which a container may run.
    fn predecessor(&self, pod: &PodRef) -> Option<PodUid> {
        self.others(pod).find(|uid| self.may_run(uid)).cloned()
    }

    /// Whether a container of a pod with a worker may run. One that no source has, and of which the kubelet knows only what the
    /// runtime has, starts nothing.
    fn may_run(&self, uid: &PodUid) -> bool {
        let Some(worker) = self.workers.get(uid) else { return false };
        if let Some(entry) = self.handles.pods.get(uid) {
            return entry.progress.may_run();
        }
        let is_known = worker.desired_state.borrow().desired.is_some();
        let observed = || self.handles.cache.get(uid).is_none_or(|observed| !observed.is_stopped());
        is_known || observed()
    }

    /// Starts the pods whose predecessors have ended.
    fn start_held(&mut self) {
        let ended = |held: &HeldPod| !self.may_run(&held.behind);
        let names: Vec<String> =
            self.held_back.iter().filter(|(_, held)| ended(held)).map(|(name, _)| name.clone()).collect();
        for name in names {
            if let Some(held) = self.held_back.remove(&name) {
                self.begin_or_hold(held.desired);
            }
        }
    }

    /// Records an event for each wait of a pod that lasts and that no other event names.
    fn report_waits(&self) {
        let recorder = &self.handles.ctx.recorder;
        for (uid, wait) in recorder.trails.take_due_waits() {
            let Some(worker) = self.workers.get(&uid) else { continue };
            let message = wait.with_detail(&self.handles.volumes.unattached(&uid));
            recorder.warning(&worker.pod, wait.container.as_deref(), wait.reason, message);
            if wait.is_first {
                self.handles.ctx.metrics.get::<WaitMetrics>().reported(wait.reason);
            }
        }
    }

    /// Records an event for each pod that has waited for another one of its full name for long.
    fn report_name_waits(&mut self) {
        let held = self.held_back.values().map(|held| (held.desired.identity.clone(), held.behind.clone()));
        let waiting = self.workers.values().filter(|worker| worker.desired_state.borrow().must_wait);
        let mut waiting = waiting.peekable();
        let in_runtime = waiting.peek().and_then(|_| self.handles.cache.presence());
        let behind = |worker: &WorkerHandle| {
            Some((worker.pod.clone(), in_the_way(&worker.pod, in_runtime.as_ref()?)?))
        };
        let waiting = held.chain(waiting.filter_map(behind)).collect();
        for (pod, behind) in self.name_waits.observe(waiting, self.handles.ctx.clock.mono()) {
            let message = name_waits::message(&behind);
            self.handles.ctx.recorder.warning(&pod, None, WAITING_FOR_PREVIOUS_POD, message);
            self.handles.ctx.metrics.get::<WaitMetrics>().reported(WAITING_FOR_PREVIOUS_POD);
        }
    }

    /// Starts the worker of a pod that is desired.
    fn begin(&mut self, pod: PodRef, desired: DesiredPod) {
        let now = self.handles.ctx.clock.mono();
        let has_another = self.others(&pod).next().is_some() || self.ended.has_another(&pod, now);
        let listed_after = has_another.then_some(now);
        if listed_after.is_some() {
            self.awaits_listing = true;
            self.handles.pleg.relist();
        }
        let must_wait = self.must_wait(&pod, listed_after, self.handles.cache.presence().as_ref());
        let state = DesiredState { desired: Some(desired), must_wait, ..DesiredState::default() };
        self.start_worker(pod, listed_after, state);
    }

    /// Whether another pod of that full name may still run, possibly one without a worker yet.
    fn must_wait(
        &self,
        pod: &PodRef,
        listed_after: Option<MonoTime>,
        in_runtime: Option<&InRuntime>,
    ) -> bool {
        let is_listed = listed_after.is_none_or(|after| self.handles.cache.listed_at() >= Some(after));
        !is_listed || in_runtime.is_none_or(|pods| in_the_way(pod, pods).is_some())
    }

    /// Starts pods that waited, once no other pod of their full name runs.
    fn start_unblocked(&mut self) {
        let waiting = |worker: &&WorkerHandle| worker.desired_state.borrow().must_wait;
        self.awaits_listing = false;
        if !self.workers.values().any(|worker| waiting(&worker)) {
            return;
        }
        let in_runtime = self.handles.cache.presence();
        for worker in self.workers.values().filter(waiting) {
            if !self.must_wait(&worker.pod, worker.listed_after, in_runtime.as_ref()) {
                worker.desired_state.send_modify(|state| state.must_wait = false);
            }
        }
        self.awaits_listing =
            self.workers.values().filter(waiting).any(|worker| worker.listed_after.is_some());
    }

    fn remove(&mut self, pod: &PodRef) {
        self.held_back.retain(|_, held| held.desired.identity.uid != pod.uid);
        if let Some(worker) = self.workers.get(&pod.uid) {
            worker.desired_state.send_modify(|state| {
                state.is_removed = true;
                state.removals += 1;
            });
        }
    }

    fn start_worker(&mut self, pod: PodRef, listed_after: Option<MonoTime>, state: DesiredState) {
        let desired_state = watch::Sender::new(state);
        let receiver = desired_state.subscribe();
        let (handles, finished) = (self.handles.clone(), self.finished_sender.clone());
        let (identity, uid) = (pod.clone(), pod.uid.clone());
        let is_known = receiver.borrow().desired.is_some();
        // The subscription marks the pod as having a worker.
        let subscription = handles.cache.subscribe(&uid);
        self.workers.insert(pod.uid.clone(), WorkerHandle { pod, desired_state, listed_after });
        let (slot_handles, desired_state) = (handles.clone(), receiver.clone());
        let request_slot = move || {
            let desired = desired_state.borrow().desired.clone().filter(|pod| !has_ended(pod));
            desired.map(|desired| slot_handles.resources.admissions.request_slot(desired.pod))
        };
        let mut first_slot = Some(request_slot());
        let report = report_worker_panic(handles.clone(), identity.clone());
        self.handles.ctx.tasks.spawn_restarting("pod worker", self.handles.ctx.clock, report, move || {
            let (handles, identity, desired_state) = (handles.clone(), identity.clone(), receiver.clone());
            let (uid, finished, subscription) = (uid.clone(), finished.clone(), subscription.clone());
            // After a panic the pod is admitted as after a restart of the kubelet.
            let slot = first_slot.take().unwrap_or_else(&request_slot);
            // Boxed, because the task keeps space for it as long as the pod lives.
            let worker = Box::pin(async move {
                let remembered = match is_known {
                    true => None,
                    false => load_pod(&*handles.ctx.files, &handles.ctx.settings.paths, &identity.uid)
                        .await
                        .map(Arc::new),
                };
                let identity = remembered.as_ref().map_or(identity, |pod| PodRef::of(pod));
                let worker = PodWorker::new(handles, identity, desired_state, remembered, slot);
                drop(subscription);
                worker
            });
            async move {
                let (worker, first) = worker.await;
                worker.run(first).await;
                // The loop outlives its workers, except when the process ends.
                let _ = finished.send(uid).await;
            }
        });
    }

    /// A worker has ended: everything of its pod is removed.
    fn worker_finished(&mut self, uid: &PodUid) {
        let Some(worker) = self.workers.remove(uid) else { return };
        self.handles.pods.forget(uid);
        self.handles.resources.admissions.release(uid);
        let state = worker.desired_state.borrow().clone();
        self.ended.record(&worker.pod, self.handles.ctx.clock.mono());
        // A static pod may come back with its UID.
        if state.is_removed && state.desired.as_ref().is_some_and(|pod| pod.in_api.is_some()) {
            self.handles.ctx.recorder.pod_gone(&worker.pod);
        }
        if let (Some(pod), false) = (state.desired, state.is_removed) {
            // The pod was added again just when its worker ended.
            self.handles
                .ctx
                .metrics
                .get::<KubeletMetrics>()
                .pod_restarted(base_core::pod_kind::is_static_pod(&pod.pod));
            self.begin_or_hold(pod);
        }
        self.start_held();
        self.start_unblocked();
    }

    /// Finds orphaned pods, and starts workers that terminate and remove them.
    fn run_housekeeping(&mut self) {
        let Some(in_runtime) = self.handles.cache.presence() else { return };
        let runtime: BTreeMap<PodUid, RuntimePresence> =
            in_runtime.iter().map(|(uid, (_, presence))| (uid.clone(), *presence)).collect();
        let running = runtime.values().filter(|presence| **presence == RuntimePresence::MayRun).count();
        self.handles.ctx.metrics.get::<KubeletMetrics>().set_running(running);
        let runtime_only =
            self.workers.values().filter(|worker| worker.desired_state.borrow().desired.is_none()).count();
        self.handles.ctx.metrics.get::<PodMetrics>().set_runtime_only(runtime_only);
        let desired = self.sources.pods().map(|(_, pod)| pod.identity.uid.clone());
        let desired = desired.chain(self.undecodable.iter().cloned()).collect();
        let plan = compute_cleanup(&CleanupInputs {
            desired: &desired,
            workers: &self.workers.keys().map(|uid| (uid.clone(), WorkerProgress::Working)).collect(),
            runtime: &runtime,
            dirs: &std::mem::take(&mut self.dirs),
            sources_ready: *self.readiness.complete.borrow(),
        });
        for uid in plan.kill_orphans {
            self.handles.ctx.metrics.get::<KubeletMetrics>().orphan_found();
            tracing::info!(podUID = %uid, "Killing pod that is running but not desired");
            let known = in_runtime.get(&uid).map(|(pod, _)| pod.clone());
            self.remove_orphan(uid, known);
        }
        for uid in plan.remove_dirs {
            tracing::info!(podUID = %uid, "Cleaning up orphaned pod");
            let known = in_runtime.get(&uid).map(|(pod, _)| pod.clone());
            self.remove_orphan(uid, known);
        }
        if *self.readiness.complete.borrow() {
            self.scan_directories();
        }
    }

    /// Starts a worker without a spec: it stops the pod, releases its volumes and removes the rest.
    fn remove_orphan(&mut self, uid: PodUid, known: Option<PodRef>) {
        if self.workers.contains_key(&uid) {
            return;
        }
        let pod = known.unwrap_or_else(|| PodRef::new("", "", uid));
        self.start_worker(pod, None, DesiredState { is_removed: true, ..DesiredState::default() });
    }
}

impl SyncLoop {
    /// Finds directories and cgroups of pods without a worker, in a separate task, because a slow disk must not block the
    /// loop.
    fn scan_directories(&mut self) {
        let now = self.handles.ctx.clock.mono();
        // Cgroups of pods can be listed only once their names are known.
        let knows_names =
            !self.handles.ctx.config().cgroups_per_qos || self.handles.cgroups.names.borrow().is_some();
        if now < self.next_scan || !knows_names {
            return;
        }
        self.next_scan = now + SCAN_PERIOD;
        self.handles.ctx.metrics.get::<VolumeMetrics>().orphan_sweep_started();
        let (handles, answer) = (self.handles.clone(), self.on_disk.0.clone());
        self.handles.ctx.tasks.spawn_isolated("pod directory scan", async move {
            let with_cgroups = handles.cgroups.all().await;
            match handles.ctx.files.list_dir(&handles.ctx.settings.paths.pods()).await {
                Ok(entries) => {
                    let dirs = entries.into_iter().filter(|e| e.is_dir).map(|e| PodUid::from(e.name));
                    let uids = dirs.chain(with_cgroups).collect();
                    // The receiver is dropped only when the process ends.
                    let _ = answer.send(uids).await;
                }
                Err(error) => {
                    let error = base_agent::error_chain::chain(&error);
                    tracing::warn!(
                        err = error,
                        "Failed to list pod directories, keeping orphaned directories"
                    );
                }
            }
        });
    }
}

/// Another pod of the full name that may run, as far as the runtime is known.
fn in_the_way(pod: &PodRef, in_runtime: &InRuntime) -> Option<PodUid> {
    let is_in_the_way = |(other, presence): &&(PodRef, RuntimePresence)| {
        other.uid != pod.uid && *presence == RuntimePresence::MayRun && other.has_full_name_of(pod)
    };
    in_runtime.values().find(is_in_the_way).map(|(other, _)| other.uid.clone())
}

/// The API has a final phase for the pod: it holds no resources.
fn has_ended(pod: &DesiredPod) -> bool {
    pod.status().is_some_and(|status| pod_status::has_ended(&status))
}
