//! Writes events to the API.
//!
//! Owns the correlator's memory of recent events, by which events are counted up, combined or dropped
//! (`api_core::events`). Events are hints for people: one that cannot be written is dropped after a few attempts, and
//! none ever delays what it reports.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use api_core::events::{EventCorrelator, EventKey, EventStep, Occurrence};
use api_core::retry::compute_retry_delay;
use base_agent::context::Context;
use base_agent::events::{
    ClaimRef, Event, EventObject, EventType, MAX_MESSAGE, PersistentVolumeRef, Queued, Recorder,
};
use base_agent::pods_view::PodsView;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use model::PodRef;
use model::k8s::{self, Node, ObjectReference};
use model::text::cut_owned;
use ports::cluster::{ClusterError, ClusterResult, Part, Patch};
use ports::{Clock, Cluster};
use tokio::sync::mpsc;

use super::reflector::StoreReader;

/// Attempts for a call that may succeed later, and the time between them.
const MAX_ATTEMPTS: u32 = 12;
const RETRY: Duration = Duration::from_secs(10);
/// How long the exit of the process waits for its last event.
const LAST_EVENT_TIMEOUT: Duration = Duration::from_secs(2);

/// Concurrent calls, each about another object.
const MAX_CONCURRENT_CALLS: usize = 16;
/// Events that may wait for earlier ones about the same object; further ones wait in the recorder's queue.
const WAITING: usize = 1000;

/// Writes events until dropped. Events about one object are written one after another, because later ones count up what
/// earlier ones created; a call that hangs does not delay events about other objects.
#[derive(Debug)]
pub struct EventWriter {
    ctx: Arc<Context>,
    /// For the resource version of a pod and the field path of a container.
    pods: PodsView,
    cluster: Arc<dyn Cluster>,
    node: StoreReader<Node>,
    correlator: EventCorrelator,
    /// By object: the events that wait while a call about it is under way.
    lanes: BTreeMap<Lane, VecDeque<Queued>>,
    /// Number of events that wait in all lanes.
    waiting: usize,
    calls: FuturesUnordered<BoxFuture<'static, Sent>>,
}

/// The UID of what events are about; empty: the node.
type Lane = Arc<str>;

/// Result of a call.
struct Sent {
    lane: Lane,
    key: EventKey,
    outcome: ClusterResult<k8s::Event>,
    /// For a patch: the event to create if there is nothing to patch.
    instead: Option<Box<k8s::Event>>,
}

/// The call to make.
enum Call {
    Create(Box<k8s::Event>),
    Patch { namespace: String, name: String, patch: Patch },
}

impl EventWriter {
    pub fn new(
        ctx: Arc<Context>,
        pods: PodsView,
        cluster: Arc<dyn Cluster>,
        node: StoreReader<Node>,
    ) -> Self {
        Self {
            correlator: EventCorrelator::new(&ctx.settings.node_name),
            ctx,
            pods,
            cluster,
            node,
            lanes: BTreeMap::new(),
            waiting: 0,
            calls: FuturesUnordered::new(),
        }
    }

    pub async fn run(mut self, mut events: mpsc::Receiver<Queued>) {
        let mut is_open = true;
        while is_open || !self.calls.is_empty() {
            let takes_more = is_open && self.calls.len() < MAX_CONCURRENT_CALLS && self.waiting < WAITING;
            tokio::select! {
                event = events.recv(), if takes_more => match event {
                    Some(queued) => self.handle(queued),
                    None => is_open = false,
                },
                Some(sent) = self.calls.next() => self.handle_result(sent),
            }
        }
    }

    fn handle(&mut self, queued: Queued) {
        let lane = match &queued {
            Queued::Event(event) => lane_of(&event.about),
            Queued::PodGone(pod) => pod.uid.as_str().into(),
        };
        match self.lanes.get_mut(&lane) {
            Some(waiting) => {
                waiting.push_back(queued);
                self.waiting += 1;
            }
            None => self.send(lane, queued),
        }
    }

    /// Starts to write an event about an object that has no call under way, or the next waiting one if this one is dropped.
    fn send(&mut self, lane: Lane, queued: Queued) {
        let mut next = Some(queued);
        while let Some(queued) = next {
            let event = match queued {
                Queued::Event(event) => event,
                Queued::PodGone(pod) => {
                    self.correlator.forget(&self.pod_reference(&pod, None));
                    next = self.next_of(&lane);
                    continue;
                }
            };
            let at = event.at;
            let occurrence = self.occurrence(event);
            match self.correlator.correlate(occurrence, at) {
                EventStep::Drop => next = self.next_of(&lane),
                EventStep::Create { event, key } => {
                    self.lanes.entry(lane.clone()).or_default();
                    return self.call(lane, key, Call::Create(event), None);
                }
                EventStep::Patch { namespace, name, patch, event, key } => {
                    self.lanes.entry(lane.clone()).or_default();
                    let patch = Patch::Strategic(patch);
                    return self.call(lane, key, Call::Patch { namespace, name, patch }, Some(event));
                }
            }
        }
        self.lanes.remove(&lane);
    }

    fn next_of(&mut self, lane: &Lane) -> Option<Queued> {
        let next = self.lanes.get_mut(lane)?.pop_front()?;
        self.waiting -= 1;
        Some(next)
    }

    fn handle_result(&mut self, sent: Sent) {
        let Sent { lane, key, outcome, instead } = sent;
        match (outcome, instead) {
            (Err(ClusterError::NotFound { .. }), Some(mut event)) => {
                event.metadata.resource_version = None;
                self.correlator.rename(&key, &mut event, self.ctx.clock.now().wall);
                return self.call(lane, key, Call::Create(event), None);
            }
            // Created or counted up; or an earlier attempt to create it succeeded although its call failed.
            (Ok(_), _) | (Err(ClusterError::AlreadyExists { .. }), None) => {}
            (Err(error), _) => {
                tracing::warn!(err = %error, "Failed to send event to the API server");
                self.correlator.event_lost(&key);
            }
        }
        match self.next_of(&lane) {
            Some(queued) => self.send(lane, queued),
            None => drop(self.lanes.remove(&lane)),
        }
    }

    fn call(&mut self, lane: Lane, key: EventKey, call: Call, instead: Option<Box<k8s::Event>>) {
        let (ctx, cluster) = (self.ctx.clone(), self.cluster.clone());
        let sent = async move {
            let outcome = call_with_retries(&ctx, &*cluster, &call).await;
            Sent { lane, key, outcome, instead }
        };
        self.calls.push(sent.boxed());
    }

    fn occurrence(&self, event: Event) -> Occurrence {
        let about = match &event.about {
            EventObject::Pod(pod) => self.pod_reference(pod, event.container.as_deref()),
            EventObject::Claim(claim) => claim_reference(claim),
            EventObject::PersistentVolume(volume) => persistent_volume_reference(volume),
            // Until the Node is observed its name is used as UID, as `kubectl describe node` expects.
            EventObject::Node => node_reference(&self.ctx.settings.node_name, self.node_uid()),
        };
        Occurrence {
            about,
            is_warning: event.kind == EventType::Warning,
            reason: event.reason.into_owned(),
            message: event.message,
            annotations: event.annotations.into_iter().map(|(key, text)| (key.to_owned(), text)).collect(),
        }
    }

    fn pod_reference(&self, pod: &PodRef, container: Option<&str>) -> ObjectReference {
        let shown = self.pods.get(&pod.uid).map(|entry| entry.pod);
        ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            name: Some(pod.name.to_string()),
            namespace: Some(pod.namespace.to_string()),
            uid: Some(pod.uid.to_string()),
            resource_version: shown.as_ref().and_then(|pod| pod.metadata.resource_version.clone()),
            field_path: container.and_then(|name| field_path(shown.as_deref()?, name)),
        }
    }

    fn node_uid(&self) -> String {
        let uid = super::reflector::own_node(&self.node.borrow()).and_then(|node| node.metadata.uid.clone());
        uid.unwrap_or_else(|| self.ctx.settings.node_name.clone())
    }
}

fn lane_of(about: &EventObject) -> Lane {
    match about {
        EventObject::Node => Arc::default(),
        EventObject::Pod(pod) => pod.uid.as_str().into(),
        EventObject::Claim(claim) => claim.uid.as_str().into(),
        EventObject::PersistentVolume(volume) => volume.uid.as_str().into(),
    }
}

fn claim_reference(claim: &ClaimRef) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("PersistentVolumeClaim".to_owned()),
        name: Some(claim.name.clone()),
        namespace: Some(claim.namespace.clone()),
        uid: Some(claim.uid.clone()),
        resource_version: claim.resource_version.clone(),
        field_path: None,
    }
}

fn persistent_volume_reference(volume: &PersistentVolumeRef) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("PersistentVolume".to_owned()),
        name: Some(volume.name.clone()),
        uid: Some(volume.uid.clone()),
        resource_version: volume.resource_version.clone(),
        ..ObjectReference::default()
    }
}

/// The field path of the container: `spec.containers{web}`.
fn field_path(pod: &k8s::Pod, container: &str) -> Option<String> {
    let found = model::containers::find_container(pod, container)?;
    let list = match found.kind {
        model::ContainerKind::Init | model::ContainerKind::Sidecar => "initContainers",
        model::ContainerKind::Regular => "containers",
        model::ContainerKind::Ephemeral => "ephemeralContainers",
    };
    Some(format!("spec.{list}{{{container}}}"))
}

/// Records a warning about the node of a process that is about to exit. It is sent once, and cancelled after two seconds.
pub async fn write_last_node_event(
    cluster: Option<&dyn Cluster>,
    node: &str,
    clock: Clock,
    reason: &'static str,
    message: String,
) {
    Recorder::new(clock, 0).node_warning(reason, message.as_str());
    let Some(cluster) = cluster else { return };
    let occurrence = Occurrence {
        about: node_reference(node, node.to_owned()),
        is_warning: true,
        reason: reason.to_owned(),
        message: cut_owned(message, MAX_MESSAGE),
        annotations: BTreeMap::new(),
    };
    let step = EventCorrelator::new(node).correlate(occurrence, clock.now());
    let (EventStep::Create { event, .. } | EventStep::Patch { event, .. }) = step else { return };
    let events = cluster.events();
    let deadline = clock.mono() + LAST_EVENT_TIMEOUT;
    let written = tokio::select! {
        written = events.create(event.metadata.namespace.as_deref().unwrap_or_default(), &event) => written.map(drop),
        () = clock.sleep_until(deadline) => return tracing::warn!(reason, "Timed out sending the last event to the API server"),
    };
    if let Err(error) = written {
        tracing::warn!(err = %error, reason, "Failed to send event to the API server");
    }
}

fn node_reference(name: &str, uid: String) -> ObjectReference {
    ObjectReference {
        kind: Some("Node".to_owned()),
        name: Some(name.to_owned()),
        uid: Some(uid),
        ..ObjectReference::default()
    }
}

/// Makes the call until it succeeds, cannot succeed, or has been attempted [`MAX_ATTEMPTS`] times.
async fn call_with_retries(ctx: &Context, cluster: &dyn Cluster, call: &Call) -> ClusterResult<k8s::Event> {
    let events = cluster.events();
    let mut tries = 1;
    loop {
        let outcome = match call {
            Call::Create(event) => {
                events.create(event.metadata.namespace.as_deref().unwrap_or_default(), event).await
            }
            Call::Patch { namespace, name, patch } => events.patch(namespace, name, Part::Whole, patch).await,
        };
        let requested = match outcome {
            Err(error) if error.may_pass() && tries < MAX_ATTEMPTS => {
                tracing::debug!(err = %error, tries, "Event is waiting to be sent to the API server");
                error.retry_after()
            }
            outcome => return outcome,
        };
        tries += 1;
        let wait = compute_retry_delay(RETRY, requested, ctx.rng.share());
        ctx.clock.sleep_until(ctx.clock.mono() + wait).await;
    }
}
