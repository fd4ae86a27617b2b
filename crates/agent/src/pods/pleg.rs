//! The pod lifecycle event generator (PLEG): turns listings of the runtime into observations of single pods.
//!
//! Owns the last listing; observations are interpreted elsewhere. It lists sandboxes and containers once a second, less often
//! while the node has no pod, and inspects only pods whose entries changed, each in its own task with the runtime's deadlines, so
//! that a hung call delays no other pod. Hints of the runtime and requests of workers trigger an immediate inspection of one pod.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use base_agent::cache::{InRuntime, ListedImages, PodCache};
use base_agent::context::Context;
use base_agent::events::Recorder;
use base_agent::metrics::Metrics;
use base_core::pod_stage::RuntimePresence;
use config::Features;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use jiff::Timestamp;
use kubelet_core::pods::pleg::{
    Listing, PodListing, RelistNeed, compute_pleg_diff, inspection_retry_delay, is_final, relist_period,
    relist_problem,
};
use model::{
    ContainerObservation, ContainerState, MonoTime, PodObservation, PodRef, PodUid, SandboxObservation,
    SandboxState,
};
use parking_lot::Mutex;
use ports::runtime::{ContainerSummary, RuntimeError, RuntimeHint, RuntimeResult, SandboxSummary, Scope};
use ports::{Clock, Runtime};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;

use super::mounted_images::find_images;
use crate::metrics::{KubeletMetrics, PlegMetrics, PodMetrics};
use crate::node_view::NodeView;

/// Requests for an inspection beyond this number wait for the next relist.
const REQUEST_QUEUE: usize = 200;
/// Delay before the hint stream is opened again.
const HINT_RETRY: Duration = Duration::from_secs(5);
/// The same if the runtime does not support hints.
const HINT_REFUSED_RETRY: Duration = Duration::from_secs(60);

/// Requests inspections of pods.
#[derive(Clone, Debug)]
pub struct PlegHandle {
    requests: mpsc::Sender<PodRef>,
    relist: Arc<Notify>,
    health: Arc<Mutex<Health>>,
    features: Features,
}

#[derive(Clone, Debug, Default)]
struct Health {
    /// When the last listing began, successful or not.
    last_began: Option<MonoTime>,
    last_relist: Option<MonoTime>,
    /// Pods whose inspection keeps failing.
    stuck: BTreeMap<PodUid, StuckPod>,
    /// Pods that the next successful relist must inspect, whether or not their entries changed.
    owed: BTreeMap<PodUid, PodRef>,
}

/// A pod that cannot be inspected.
#[derive(Clone, Debug)]
struct StuckPod {
    pod: PodRef,
    error: String,
    failures: u32,
    retry_at: MonoTime,
}

impl PlegHandle {
    /// Requests an inspection that begins after this call; with the next relist if the queue is full or inspections on
    /// demand are disabled.
    pub fn inspect(&self, pod: &PodRef) {
        let is_queued = self.features.on_demand_relist && self.requests.try_send(pod.clone()).is_ok();
        if !is_queued {
            self.health.lock().owed.insert(pod.uid.clone(), pod.clone());
        }
    }

    /// Requests a relist that begins after this call.
    pub(crate) fn relist(&self) {
        self.relist.notify_one();
    }

    /// Why the PLEG is unhealthy, if it is.
    #[must_use]
    pub fn problem(&self, now: MonoTime) -> Option<String> {
        relist_problem(self.health.lock().last_relist, now, self.features)
    }

    /// Pods that cannot be inspected, with the error.
    #[must_use]
    pub fn stuck_pods(&self) -> Vec<(PodRef, String)> {
        self.health.lock().stuck.values().map(|stuck| (stuck.pod.clone(), stuck.error.clone())).collect()
    }
}

/// From the stream of the runtime's events.
enum HintEvent {
    Open,
    Hint(RuntimeHint),
}

/// An inspection under way.
struct InFlight {
    began: MonoTime,
    /// Another one was requested meanwhile.
    is_due_again: bool,
}

/// Result of the inspection of one pod.
struct Inspection {
    pod: PodRef,
    result: RuntimeResult<PodObservation>,
    took: Duration,
}

pub struct Pleg {
    runtime: Arc<dyn Runtime>,
    clock: Clock,
    cache: PodCache,
    metrics: Metrics,
    recorder: Recorder,
    health: Arc<Mutex<Health>>,
    requests: mpsc::Receiver<PodRef>,
    relist: Arc<Notify>,
    features: Features,
    /// Since when the runtime's stream of events is open.
    events_since: Option<MonoTime>,
    /// The last listing, updated by inspections since.
    known: Listing,
    /// The identities of the pods in `known`.
    identities: BTreeMap<PodUid, PodRef>,
    in_flight: BTreeMap<PodUid, InFlight>,
    inspections: JoinSet<Inspection>,
    /// The listing under way, if any: at most one.
    relisting: JoinSet<(MonoTime, RuntimeResult<Lists>)>,
}

type Lists = (Vec<SandboxSummary>, Vec<ContainerSummary>);

impl std::fmt::Debug for Pleg {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pleg").field("known", &self.known.len()).finish_non_exhaustive()
    }
}

impl Pleg {
    /// Starts the task.
    #[must_use]
    pub fn start(ctx: &Context, cache: PodCache, node: watch::Receiver<NodeView>) -> PlegHandle {
        let (sender, requests) = mpsc::channel(REQUEST_QUEUE);
        let features = ctx.node_facts.features;
        let (health, relist) = (Arc::new(Mutex::new(Health::default())), Arc::new(Notify::new()));
        let pleg = Self {
            runtime: ctx.runtime.clone(),
            clock: ctx.clock,
            cache,
            metrics: ctx.metrics.clone(),
            recorder: ctx.recorder.clone(),
            health: health.clone(),
            requests,
            relist: relist.clone(),
            features,
            events_since: None,
            known: Listing::new(),
            identities: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            inspections: JoinSet::new(),
            relisting: JoinSet::new(),
        };
        ctx.tasks.spawn("PLEG", pleg.run_once_named(node));
        PlegHandle { requests: sender, relist, health, features }
    }

    /// Observes nothing before the runtime has reported its name: the container IDs in the API begin with it.
    async fn run_once_named(self, mut node: watch::Receiver<NodeView>) {
        // The sender is dropped when the kubelet ends.
        if node.wait_for(|view| !view.runtime_name().is_empty()).await.is_ok() {
            self.run().await;
        }
    }

    /// Runs until dropped. Every select arm is cancel safe: channels and join sets lose nothing, and the listing is
    /// started again if it is abandoned.
    async fn run(mut self) {
        let mut hints = self.hints_after(Duration::ZERO);
        let mut last_relist = None;
        loop {
            let next_relist = last_relist.map_or(self.clock.mono(), |at| at + self.relist_period());
            tokio::select! {
                biased;
                Some(done) = self.inspections.join_next(), if !self.inspections.is_empty() => {
                    self.finish_inspection(done);
                }
                Some(pod) = self.requests.recv() => self.start_inspection(pod),
                event = hints.next() => match event {
                    Some(HintEvent::Open) => self.events_since = Some(self.clock.mono()),
                    Some(HintEvent::Hint(hint)) => self.handle_hint(&hint),
                    // The runtime may have been restarted; the next listing shows every missed event.
                    None => {
                        self.events_since = None;
                        hints = self.hints_after(HINT_RETRY);
                    }
                },
                Some(listing) = self.relisting.join_next(), if !self.relisting.is_empty() => {
                    self.finish_relist(listing);
                    last_relist = Some(self.clock.mono());
                }
                () = self.relist.notified(), if self.relisting.is_empty() => self.start_relist(),
                () = self.clock.sleep_until(next_relist), if self.relisting.is_empty() => self.start_relist(),
            }
        }
    }

    fn relist_period(&self) -> Duration {
        let health = self.health.lock();
        // Only the first listing after the stream was opened shows earlier changes.
        let are_events_complete = self.events_since.is_some_and(|since| health.last_relist >= Some(since));
        let need = RelistNeed {
            are_events_complete,
            is_owing: !health.owed.is_empty() || !health.stuck.is_empty(),
            has_failed: health.last_relist != health.last_began,
            // A worker that starts now asks for its first look, which ends the wait of the loop.
            is_node_empty: self.known.is_empty() && self.cache.has_no_subscriber(),
        };
        relist_period(self.features, need)
    }

    /// A stream that requests hints after a pause and passes them on. It ends with the runtime's stream, or if there is none.
    /// The loop continues meanwhile, because a runtime may be slow to answer.
    fn hints_after(&self, pause: Duration) -> BoxStream<'static, HintEvent> {
        let (runtime, clock, metrics) = (self.runtime.clone(), self.clock, self.metrics.clone());
        let opened = async move {
            clock.sleep_until(clock.mono() + pause).await;
            let asked_at = clock.mono();
            let answer = runtime.hints().await;
            metrics
                .get::<PlegMetrics>()
                .hint_stream_requested(clock.mono().saturating_since(asked_at), answer.is_ok());
            match answer {
                Ok(hints) => {
                    tracing::debug!("Connecting to the container event stream");
                    stream::once(async { HintEvent::Open }).chain(hints.map(HintEvent::Hint)).boxed()
                }
                Err(RuntimeError::Unimplemented { .. }) => {
                    tracing::debug!(
                        "Container runtime does not support container events, relisting every second only"
                    );
                    // The runtime may be replaced by one that supports them, without a restart of the kubelet.
                    clock.sleep_until(clock.mono() + HINT_REFUSED_RETRY).await;
                    stream::empty().boxed()
                }
                Err(error) => {
                    tracing::debug!(err = %error, "Container event stream ended");
                    stream::empty().boxed()
                }
            }
        };
        stream::once(opened).flatten().boxed()
    }

    fn handle_hint(&mut self, hint: &RuntimeHint) {
        tracing::debug!(podUID = %hint.pod, "Received container event");
        if let Some(pod) = self.identities.get(&hint.pod).cloned() {
            self.start_inspection(pod);
        }
    }

    fn start_relist(&mut self) {
        let (runtime, began) = (self.runtime.clone(), self.clock.mono());
        self.relisting.spawn(async move { (began, list(&*runtime, &Scope::Node).await) });
    }

    fn finish_relist(&mut self, listing: Result<(MonoTime, RuntimeResult<Lists>), tokio::task::JoinError>) {
        let Ok((began, listing)) = listing else {
            tracing::error!("PLEG relist panicked, retrying in one second");
            return;
        };
        let now = self.clock.now();
        let interval = self.health.lock().last_began.replace(began).map(|last| began.saturating_since(last));
        self.metrics.get::<PlegMetrics>().relisted(now.mono.saturating_since(began), interval, now.wall);
        let (sandboxes, containers) = match listing {
            Ok(lists) => lists,
            // The log counts lines that repeat.
            Err(error) => return tracing::warn!(err = %error, "Relist failed, retrying each second"),
        };
        self.health.lock().last_relist = Some(began);
        self.metrics
            .get::<KubeletMetrics>()
            .set_containers(containers.iter().map(|container| container.state));
        let (mut listing, identities) = by_pod(&sandboxes, &containers);
        self.correct(&mut listing, began);
        self.cache.publish_listing(
            began,
            presence(&listing, &identities),
            self.images_of_unseen(&containers),
        );
        let owed = self.take_owed(now.mono);
        let relook: BTreeSet<PodUid> = owed.keys().cloned().collect();
        let diff = compute_pleg_diff(&self.known, &listing, &relook);
        for event in &diff.events {
            tracing::debug!(podUID = %event.pod, what = ?event.what, "SyncLoop (PLEG): event for pod");
        }
        self.identities.extend(identities);
        self.identities.extend(owed);
        for uid in diff.look {
            let shows_change = self.in_flight.get(&uid).is_some_and(|inspection| inspection.began >= began);
            if let Some(pod) = self.identities.get(&uid).cloned().filter(|_| !shows_change) {
                self.start_inspection(pod);
            }
        }
        update(&mut self.known, listing);
        self.identities.retain(|uid, _| self.known.contains_key(uid) || self.in_flight.contains_key(uid));
    }

    /// Pods that are to be inspected now, whether or not their entries changed; those that could not be inspected when their back-off
    /// has ended.
    fn take_owed(&self, now: MonoTime) -> BTreeMap<PodUid, PodRef> {
        let health = &mut *self.health.lock();
        let mut owed = std::mem::take(&mut health.owed);
        let due = health.stuck.values().filter(|stuck| stuck.retry_at <= now);
        owed.extend(due.map(|stuck| (stuck.pod.uid.clone(), stuck.pod.clone())));
        owed
    }

    /// The images of containers that the last observation of their pod may lack, because the pod was not inspected or cannot be.
    fn images_of_unseen(&self, containers: &[ContainerSummary]) -> ListedImages {
        let health = self.health.lock();
        let is_unseen = |uid: &PodUid| health.stuck.contains_key(uid) || self.cache.get(uid).is_none();
        let mut images = ListedImages::new();
        for container in containers.iter().filter(|container| is_unseen(&container.pod.uid)) {
            images.entry(container.pod.uid.clone()).or_default().insert(container.image_id.clone());
        }
        images
    }

    /// Pods that were inspected since the listing began are as the inspection shows them: a start seen by both would otherwise be
    /// a change back and forth, with an inspection each time.
    fn correct(&self, listing: &mut Listing, began: MonoTime) {
        let inspected =
            self.cache.in_runtime().into_iter().filter(|observation| observation.taken_at >= began);
        listing.extend(inspected.map(|observation| (observation.pod.uid.clone(), listing_of(&observation))));
    }

    fn start_inspection(&mut self, pod: PodRef) {
        if let Some(inspection) = self.in_flight.get_mut(&pod.uid) {
            inspection.is_due_again = true;
            return;
        }
        let (runtime, clock, began) = (self.runtime.clone(), self.clock, self.clock.mono());
        let has_digests = self.features.image_volume_digests;
        self.in_flight.insert(pod.uid.clone(), InFlight { began, is_due_again: false });
        let previous = self.cache.get(&pod.uid);
        self.inspections.spawn(async move {
            let mut result = inspect(&*runtime, &clock, &pod, previous.as_deref()).await;
            if let (true, Ok(observation)) = (has_digests, &mut result) {
                find_images(&*runtime, observation, previous.as_deref()).await;
            }
            Inspection { pod, result, took: clock.mono().saturating_since(began) }
        });
    }

    fn finish_inspection(&mut self, done: Result<Inspection, tokio::task::JoinError>) {
        let Ok(Inspection { pod, result, took }) = done else {
            tracing::error!("Inspection of a pod panicked, it is repeated with the next change");
            self.in_flight.clear();
            return;
        };
        self.metrics.get::<PodMetrics>().inspected(took);
        match result {
            Ok(observation) => self.publish(pod.clone(), observation),
            Err(error) => {
                self.report_new_sandbox(&pod, &error);
                self.inspection_failed(&pod, error.to_string());
            }
        }
        if self.in_flight.remove(&pod.uid).is_some_and(|inspection| inspection.is_due_again) {
            self.start_inspection(pod);
        }
    }

    /// Records once that the status of a sandbox cannot be read that was just created: none was ready before.
    fn report_new_sandbox(&self, pod: &PodRef, error: &RuntimeError) {
        let is_new = self.cache.get(&pod.uid).is_some_and(|before| {
            before.sandboxes.iter().all(|sandbox| sandbox.state != SandboxState::Ready)
        });
        let is_first = !self.health.lock().stuck.contains_key(&pod.uid);
        if is_new && is_first && error.call() == "PodSandboxStatus" {
            let message = format!("Unable to get pod sandbox status: {}", error.rpc_message());
            self.recorder.warning(pod, None, "FailedPodSandBoxStatus", message);
        }
    }

    /// Each error of a pod is logged once. A pod without entries in the runtime would not be inspected again by a changed entry, so the
    /// inspection is repeated, with back-off.
    fn inspection_failed(&self, pod: &PodRef, error: String) {
        let (mut health, now) = (self.health.lock(), self.clock.mono());
        let before = health.stuck.get(&pod.uid);
        if before.is_none_or(|before| before.error != error) {
            tracing::warn!(pod = %pod, podUID = %pod.uid, err = error, "Failed to inspect pod, retrying");
        } else {
            tracing::debug!(pod = %pod, podUID = %pod.uid, err = error, "Failed to inspect pod, retrying");
        }
        let failures = before.map_or(0, |before| before.failures).saturating_add(1);
        let retry_at = now + inspection_retry_delay(failures);
        health.stuck.insert(pod.uid.clone(), StuckPod { pod: pod.clone(), error, failures, retry_at });
    }

    fn publish(&mut self, pod: PodRef, observation: PodObservation) {
        self.health.lock().stuck.remove(&pod.uid);
        if observation.is_empty() {
            self.known.remove(&pod.uid);
            self.identities.remove(&pod.uid);
            self.cache.publish_absent(pod, observation.taken_at);
            return;
        }
        // The next relist need not repeat this inspection.
        self.known.insert(pod.uid.clone(), listing_of(&observation));
        self.identities.insert(pod.uid.clone(), pod.clone());
        let now = self.clock.now().wall;
        let may_change = |c: &ContainerObservation| c.state == ContainerState::Exited && !is_final(c, now);
        if observation.containers.iter().any(may_change) {
            self.health.lock().owed.insert(pod.uid.clone(), pod);
        }
        self.cache.publish(observation);
    }
}

async fn list(runtime: &dyn Runtime, scope: &Scope) -> RuntimeResult<Lists> {
    tokio::try_join!(runtime.list_sandboxes(scope), runtime.list_containers(scope))
}

/// The pods of which the runtime has a sandbox or a container.
pub(crate) async fn identities(
    runtime: &dyn Runtime,
    scope: &Scope,
) -> RuntimeResult<BTreeMap<PodUid, PodRef>> {
    let (sandboxes, containers) = list(runtime, scope).await?;
    Ok(by_pod(&sandboxes, &containers).1)
}

/// Inspects one pod. Containers that cannot change any more (exited ones) are taken from the previous observation.
pub(crate) async fn inspect(
    runtime: &dyn Runtime,
    clock: &Clock,
    pod: &PodRef,
    previous: Option<&PodObservation>,
) -> RuntimeResult<PodObservation> {
    let (taken_at, now) = (clock.mono(), clock.now().wall);
    let (sandboxes, containers) = list(runtime, &Scope::Pod(pod.uid.clone())).await?;
    let sandboxes = futures_util::future::try_join_all(
        sandboxes.into_iter().map(|summary| inspect_sandbox(runtime, summary, previous)),
    );
    let containers = futures_util::future::try_join_all(
        containers.into_iter().map(|summary| inspect_container(runtime, summary, previous, now)),
    );
    let (sandboxes, containers) = tokio::try_join!(sandboxes, containers)?;
    let mut sandboxes: Vec<_> = sandboxes.into_iter().flatten().collect();
    let mut containers: Vec<_> = containers.into_iter().flatten().collect();
    // Kept as long as the pod lives, and the first element makes space for four.
    sandboxes.shrink_to_fit();
    containers.shrink_to_fit();
    sandboxes.sort_by_key(|s| Reverse((s.created_at, s.attempt)));
    containers.sort_by_key(|c| Reverse((c.created_at, c.record.restart_count)));
    Ok(PodObservation { pod: pod.clone(), sandboxes, containers: containers.into(), taken_at })
}

/// `None`: removed between the listing and the inspection.
async fn inspect_sandbox(
    runtime: &dyn Runtime,
    summary: SandboxSummary,
    previous: Option<&PodObservation>,
) -> RuntimeResult<Option<SandboxObservation>> {
    let known = previous.and_then(|p| p.sandboxes.iter().find(|s| s.id == summary.id));
    if let Some(known) = known.filter(|k| k.state == SandboxState::NotReady && summary.state == k.state) {
        return Ok(Some(known.clone()));
    }
    let status = none_if_gone(runtime.sandbox_status(&summary.id).await)?;
    // One copy of the texts, because an observation is kept as long as its pod.
    Ok(status.map(|status| SandboxObservation { id: summary.id, pod: summary.pod, ..status }))
}

async fn inspect_container(
    runtime: &dyn Runtime,
    summary: ContainerSummary,
    previous: Option<&PodObservation>,
    now: Timestamp,
) -> RuntimeResult<Option<ContainerObservation>> {
    let known = previous.and_then(|p| p.container(&summary.id));
    if let Some(known) = known.filter(|k| is_final(k, now) && summary.state == k.state) {
        return Ok(Some(known.clone()));
    }
    let status = none_if_gone(runtime.container_status(&summary.id).await)?;
    let ContainerSummary { id, sandbox_id, name, .. } = summary;
    Ok(status.map(|status| ContainerObservation { id, sandbox_id, name, ..status }))
}

fn none_if_gone<T>(result: RuntimeResult<T>) -> RuntimeResult<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The lists by pod. Containers without the kubelet's labels, or with labels that no kubelet writes (a UID of `..` would
/// lead out of the pod's directory), are ignored.
fn by_pod(
    sandboxes: &[SandboxSummary],
    containers: &[ContainerSummary],
) -> (Listing, BTreeMap<PodUid, PodRef>) {
    let (mut listing, mut identities) = (Listing::new(), BTreeMap::new());
    for sandbox in sandboxes.iter().filter(|sandbox| sandbox.pod.path_problem().is_none()) {
        let pod = listing.entry(sandbox.pod.uid.clone()).or_insert_with(PodListing::default);
        pod.sandboxes.insert(sandbox.id.clone(), sandbox.state);
        identities.entry(sandbox.pod.uid.clone()).or_insert_with(|| sandbox.pod.clone());
    }
    for container in containers.iter().filter(|container| container.pod.path_problem().is_none()) {
        let pod = listing.entry(container.pod.uid.clone()).or_insert_with(PodListing::default);
        pod.containers.insert(container.id.clone(), container.state);
        identities.entry(container.pod.uid.clone()).or_insert_with(|| container.pod.clone());
    }
    (listing, identities)
}

/// Makes the listing the known one. What did not change stays where it is: what stays in memory must not move once a second.
fn update(known: &mut Listing, listing: Listing) {
    known.retain(|uid, _| listing.contains_key(uid));
    for (uid, pod) in listing {
        if known.get(&uid) != Some(&pod) {
            known.insert(uid, pod);
        }
    }
}

fn presence(listing: &Listing, identities: &BTreeMap<PodUid, PodRef>) -> InRuntime {
    let of = |pod: &PodListing| if pod.may_run() { RuntimePresence::MayRun } else { RuntimePresence::Dead };
    let pods =
        identities.iter().filter_map(|(uid, pod)| Some((uid.clone(), (pod.clone(), of(listing.get(uid)?)))));
    pods.collect()
}

fn listing_of(observation: &PodObservation) -> PodListing {
    PodListing {
        sandboxes: observation.sandboxes.iter().map(|s| (s.id.clone(), s.state)).collect(),
        containers: observation.containers.iter().map(|c| (c.id.clone(), c.state)).collect(),
    }
}
