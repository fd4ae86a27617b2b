//! Events about pods, their claims and volumes, and the node: to the log, and to the queue for the API where there is one.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use base_core::trail::NewStep;
use model::k8s::{PersistentVolume, PersistentVolumeClaim};
use model::text::cut_owned;
use model::{Now, PodRef};
use parking_lot::Mutex;
use ports::Clock;
use tokio::sync::mpsc;

use crate::trails::PodTrails;

/// A longer message is truncated: hooks, probes and runtimes may return megabytes, and the API rejects longer messages in
/// events of `events.k8s.io`.
pub const MAX_MESSAGE: usize = 1024;
/// A longer annotation is truncated.
const MAX_ANNOTATION: usize = 16 << 10;
/// Events that may wait for the API; further ones are only logged.
const WAITING: usize = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    Normal,
    Warning,
}

/// What an event is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventObject {
    Node,
    Pod(PodRef),
    Claim(Box<ClaimRef>),
    PersistentVolume(Box<PersistentVolumeRef>),
}

/// A PersistentVolumeClaim, as events name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRef {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub resource_version: Option<String>,
}

impl ClaimRef {
    #[must_use]
    pub fn of(claim: &PersistentVolumeClaim) -> Self {
        let metadata = claim.metadata.clone();
        Self {
            namespace: metadata.namespace.unwrap_or_default(),
            name: metadata.name.unwrap_or_default(),
            uid: metadata.uid.unwrap_or_default(),
            resource_version: metadata.resource_version,
        }
    }
}

/// A PersistentVolume, as events name it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PersistentVolumeRef {
    pub name: String,
    pub uid: String,
    pub resource_version: Option<String>,
}

impl PersistentVolumeRef {
    #[must_use]
    pub fn of(volume: &PersistentVolume) -> Self {
        let metadata = volume.metadata.clone();
        Self {
            name: metadata.name.unwrap_or_default(),
            uid: metadata.uid.unwrap_or_default(),
            resource_version: metadata.resource_version,
        }
    }
}

impl EventObject {
    /// The pod, if it is one.
    #[must_use]
    pub const fn pod(&self) -> Option<&PodRef> {
        match self {
            Self::Pod(pod) => Some(pod),
            Self::Node | Self::Claim(_) | Self::PersistentVolume(_) => None,
        }
    }

    const fn claim(&self) -> Option<&ClaimRef> {
        match self {
            Self::Claim(claim) => Some(claim),
            Self::Node | Self::Pod(_) | Self::PersistentVolume(_) => None,
        }
    }

    fn persistent_volume(&self) -> Option<&str> {
        match self {
            Self::PersistentVolume(volume) => Some(&volume.name),
            Self::Node | Self::Pod(_) | Self::Claim(_) => None,
        }
    }

    /// The API has no event about an object without a name: of a pod that an earlier kubelet left, only the UID may be known.
    fn has_name(&self) -> bool {
        match self {
            Self::Node => true,
            Self::Pod(pod) => !pod.name.is_empty(),
            Self::Claim(claim) => !claim.name.is_empty(),
            Self::PersistentVolume(volume) => !volume.name.is_empty(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When it happened.
    pub at: Now,
    pub about: EventObject,
    pub container: Option<String>,
    pub kind: EventType,
    pub reason: Cow<'static, str>,
    pub message: String,
    pub annotations: Vec<(&'static str, String)>,
}

/// What the event writer is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Queued {
    Event(Event),
    /// No event about this pod follows.
    PodGone(PodRef),
}

/// Records events; clones share the queue and the memory.
#[derive(Clone, Debug)]
pub struct Recorder {
    clock: Clock,
    /// Each event about a pod is a step of its trail, too.
    pub trails: PodTrails,
    latest: Arc<Mutex<VecDeque<Event>>>,
    kept: usize,
    /// To the event writer; `None` for a standalone kubelet.
    queue: Option<mpsc::Sender<Queued>>,
}

impl Recorder {
    /// Keeps the latest `kept` events for [`Self::latest`].
    #[must_use]
    pub fn new(clock: Clock, kept: usize) -> Self {
        Self { clock, trails: PodTrails::new(clock), latest: Arc::default(), kept, queue: None }
    }

    /// The same recorder with a queue for the API, and the end of the queue that the event writer reads.
    pub fn with_queue(self) -> (Self, mpsc::Receiver<Queued>) {
        let (sender, receiver) = mpsc::channel(WAITING);
        (Self { queue: Some(sender), ..self }, receiver)
    }

    pub fn normal(
        &self,
        pod: &PodRef,
        container: Option<&str>,
        reason: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) {
        self.record(
            EventObject::Pod(pod.clone()),
            container,
            EventType::Normal,
            reason.into(),
            message.into(),
            Vec::new(),
        );
    }

    pub fn warning(
        &self,
        pod: &PodRef,
        container: Option<&str>,
        reason: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) {
        self.record(
            EventObject::Pod(pod.clone()),
            container,
            EventType::Warning,
            reason.into(),
            message.into(),
            Vec::new(),
        );
    }

    /// A warning with annotations, for programs to read.
    pub fn annotated_warning(
        &self,
        pod: &PodRef,
        reason: &'static str,
        message: String,
        annotations: Vec<(&'static str, String)>,
    ) {
        self.record(
            EventObject::Pod(pod.clone()),
            None,
            EventType::Warning,
            reason.into(),
            message,
            annotations,
        );
    }

    pub fn node_warning(&self, reason: impl Into<Cow<'static, str>>, message: impl Into<String>) {
        self.record(EventObject::Node, None, EventType::Warning, reason.into(), message.into(), Vec::new());
    }

    pub fn node_normal(&self, reason: impl Into<Cow<'static, str>>, message: impl Into<String>) {
        self.record(EventObject::Node, None, EventType::Normal, reason.into(), message.into(), Vec::new());
    }

    /// The same event about a pod and about the claim of a volume that it uses.
    pub fn with_claim(
        &self,
        pod: &PodRef,
        claim: &PersistentVolumeClaim,
        kind: EventType,
        reason: &'static str,
        message: &str,
    ) {
        for about in [EventObject::Pod(pod.clone()), EventObject::Claim(Box::new(ClaimRef::of(claim)))] {
            self.record(about, None, kind, reason.into(), message.to_owned(), Vec::new());
        }
    }

    pub fn persistent_volume_warning(
        &self,
        volume: &PersistentVolumeRef,
        reason: &'static str,
        message: String,
    ) {
        let about = EventObject::PersistentVolume(Box::new(volume.clone()));
        self.record(about, None, EventType::Warning, reason.into(), message, Vec::new());
    }

    /// No event about this pod, or another with its UID, follows. If too many events are waiting, it is forgotten when newer ones need
    /// its place.
    pub fn pod_gone(&self, pod: &PodRef) {
        if let Some(queue) = &self.queue {
            let _ = queue.try_send(Queued::PodGone(pod.clone()));
        }
    }

    /// Events that wait for the event writer.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.queue.as_ref().map_or(0, |queue| queue.max_capacity().saturating_sub(queue.capacity()))
    }

    /// The latest events, oldest first: as many as the recorder keeps.
    #[must_use]
    pub fn latest(&self) -> Vec<Event> {
        self.latest.lock().iter().cloned().collect()
    }

    fn record(
        &self,
        about: EventObject,
        container: Option<&str>,
        kind: EventType,
        reason: Cow<'static, str>,
        message: String,
        annotations: Vec<(&'static str, String)>,
    ) {
        let message = cut_owned(message, MAX_MESSAGE);
        let annotations: Vec<_> =
            annotations.into_iter().map(|(name, text)| (name, cut_owned(text, MAX_ANNOTATION))).collect();
        let pod = about.pod().map(ToString::to_string);
        let claim = about.claim().map(|claim| format!("{}/{}", claim.namespace, claim.name));
        let volume = about.persistent_volume();
        match kind {
            EventType::Normal => {
                tracing::info!(pod, persistentVolumeClaim = claim, persistentVolume = volume, containerName = container, r#type = ?kind, %reason, message, "Event");
            }
            EventType::Warning => {
                tracing::warn!(pod, persistentVolumeClaim = claim, persistentVolume = volume, containerName = container, r#type = ?kind, %reason, message, "Event");
            }
        }
        let is_warning = kind == EventType::Warning;
        let step =
            NewStep { reason: reason.clone(), container, message: &message, is_warning, is_event: true };
        match &about {
            EventObject::Pod(pod) => self.trails.record(&pod.uid, &step),
            EventObject::Node => self.trails.record_of_node(&step),
            EventObject::PersistentVolume(volume) => {
                self.trails.record_of_node(&NewStep { container: Some(&volume.name), ..step });
            }
            // The pod that uses the claim has the same event.
            EventObject::Claim(_) => {}
        }
        let container = container.map(str::to_owned);
        let event = Event { at: self.clock.now(), about, container, kind, reason, message, annotations };
        self.keep(&event);
        let Some(queue) = self.queue.as_ref().filter(|_| event.about.has_name()) else { return };
        let reason = event.reason.clone();
        if queue.try_send(Queued::Event(event)).is_err() {
            tracing::warn!(%reason, "Too many events are waiting for the API server, dropping event");
        }
    }

    fn keep(&self, event: &Event) {
        if self.kept == 0 {
            return;
        }
        let mut latest = self.latest.lock();
        if latest.len() == self.kept {
            latest.pop_front();
        }
        latest.push_back(event.clone());
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn event_messages_are_truncated_to_a_kibibyte_at_a_character() {
        let recorder = Recorder::new(Clock::starting_at(Timestamp::UNIX_EPOCH), 2);
        recorder.node_warning("Failed", "x".repeat(MAX_MESSAGE));
        recorder.node_warning("Failed", "ä".repeat(8 << 20));
        let messages: Vec<String> = recorder.latest().into_iter().map(|event| event.message).collect();
        assert_eq!(messages[0], "x".repeat(MAX_MESSAGE));
        assert_eq!(messages[1], format!("{}...", "ä".repeat((MAX_MESSAGE - 3) / 2)));
        assert!(messages[1].capacity() <= MAX_MESSAGE, "the rest is not kept");
    }
    #[tokio::test(start_paused = true)]
    async fn events_about_pods_without_a_name_are_not_for_the_api() {
        let (recorder, mut queue) = Recorder::new(Clock::starting_at(Timestamp::UNIX_EPOCH), 2).with_queue();
        recorder.warning(&PodRef::new("", "", "uid"), None, "Failed", "an orphan");
        recorder.warning(&PodRef::new("default", "web", "uid"), None, "Failed", "a pod");
        let Some(Queued::Event(event)) = queue.recv().await else { panic!("no event") };
        assert_eq!(event.message, "a pod");
        assert_eq!(recorder.latest().len(), 2);
    }
}
