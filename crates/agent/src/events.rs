//! Events about pods and the node: to the log, and to the queue for the API where there is one.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use model::text::cut_owned;
use model::{Now, PodRef};
use parking_lot::Mutex;
use ports::Clock;
use tokio::sync::mpsc;

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

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When it happened.
    pub at: Now,
    /// `None` for events about the node.
    pub pod: Option<PodRef>,
    pub container: Option<String>,
    pub kind: EventType,
    pub reason: Cow<'static, str>,
    pub message: String,
    pub annotations: Vec<(&'static str, String)>,
}

/// Records events; clones share the queue and the memory.
#[derive(Clone, Debug)]
pub struct Recorder {
    clock: Clock,
    latest: Arc<Mutex<VecDeque<Event>>>,
    kept: usize,
    /// To the event writer; `None` for a standalone kubelet.
    queue: Option<mpsc::Sender<Event>>,
}

impl Recorder {
    /// Keeps the latest `kept` events for [`Self::latest`].
    #[must_use]
    pub fn new(clock: Clock, kept: usize) -> Self {
        Self { clock, latest: Arc::default(), kept, queue: None }
    }

    /// The same recorder with a queue for the API, and the end of the queue that the event writer reads.
    pub(crate) fn with_queue(self) -> (Self, mpsc::Receiver<Event>) {
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
        self.record(Some(pod), container, (EventType::Normal, reason.into(), message.into()), Vec::new());
    }

    pub fn warning(
        &self,
        pod: &PodRef,
        container: Option<&str>,
        reason: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) {
        self.record(Some(pod), container, (EventType::Warning, reason.into(), message.into()), Vec::new());
    }

    /// A warning with annotations, for programs to read.
    pub fn annotated_warning(
        &self,
        pod: &PodRef,
        reason: &'static str,
        message: String,
        annotations: Vec<(&'static str, String)>,
    ) {
        self.record(Some(pod), None, (EventType::Warning, reason.into(), message), annotations);
    }

    pub fn node_warning(&self, reason: impl Into<Cow<'static, str>>, message: impl Into<String>) {
        self.record(None, None, (EventType::Warning, reason.into(), message.into()), Vec::new());
    }

    pub fn node_normal(&self, reason: impl Into<Cow<'static, str>>, message: impl Into<String>) {
        self.record(None, None, (EventType::Normal, reason.into(), message.into()), Vec::new());
    }

    /// The latest events, oldest first: as many as the recorder keeps.
    #[must_use]
    pub fn latest(&self) -> Vec<Event> {
        self.latest.lock().iter().cloned().collect()
    }

    fn record(
        &self,
        pod: Option<&PodRef>,
        container: Option<&str>,
        (kind, reason, message): (EventType, Cow<'static, str>, String),
        annotations: Vec<(&'static str, String)>,
    ) {
        let message = cut_owned(message, MAX_MESSAGE);
        let annotations: Vec<_> =
            annotations.into_iter().map(|(name, text)| (name, cut_owned(text, MAX_ANNOTATION))).collect();
        let name = pod.map(ToString::to_string);
        tracing::info!(pod = name, containerName = container, r#type = ?kind, %reason, message, "Event");
        let container = container.map(str::to_owned);
        let event =
            Event { at: self.clock.now(), pod: pod.cloned(), container, kind, reason, message, annotations };
        self.keep(&event);
        let Some(queue) = &self.queue else { return };
        if let Err(error) = queue.try_send(event) {
            let reason = error.into_inner().reason;
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
}
