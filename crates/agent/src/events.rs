//! Events about pods and the node: to the log, into a bounded memory of the latest, and to the API where there is one.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use model::text::cut_owned;
use model::{Now, PodRef};
use parking_lot::Mutex;
use ports::Clock;
use tokio::sync::mpsc;

/// How many events are remembered; the oldest go first.
const REMEMBERED: usize = 1000;
/// A longer message is cut: hooks, probes and runtimes may say megabytes, and the API takes no more than this in events of
/// `events.k8s.io`.
pub const MAX_MESSAGE: usize = 1024;
/// A longer annotation is cut.
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

/// Takes events; clones share the memory.
#[derive(Clone, Debug)]
pub struct Recorder {
    clock: Clock,
    latest: Arc<Mutex<VecDeque<Event>>>,
    /// Set once, when the API is to be told.
    writer: Arc<OnceLock<mpsc::Sender<Event>>>,
}

impl Recorder {
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self { clock, latest: Arc::default(), writer: Arc::default() }
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

    /// With more for programs to read.
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

    /// From now on events also come out here. What happened before comes first.
    pub(crate) fn write_to(&self) -> mpsc::Receiver<Event> {
        let (sender, receiver) = mpsc::channel(WAITING);
        let latest = self.latest.lock();
        for event in latest.iter() {
            // There is room for all that are remembered.
            let _ = sender.try_send(event.clone());
        }
        // Only the first caller is told; there is one.
        let _ = self.writer.set(sender);
        receiver
    }

    /// The latest events, oldest first.
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
        let mut latest = self.latest.lock();
        if latest.len() == REMEMBERED {
            latest.pop_front();
        }
        let container = container.map(str::to_owned);
        let (at, pod) = (self.clock.now(), pod.cloned());
        let event = Event { at, pod, container, kind, reason, message, annotations };
        if let Some(writer) = self.writer.get() {
            match writer.try_reserve() {
                Ok(place) => place.send(event.clone()),
                Err(_) => {
                    tracing::warn!(reason = %event.reason, "Too many events are waiting for the API server, dropping event");
                }
            }
        }
        latest.push_back(event);
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_message_of_an_event_has_at_most_a_kibibyte_and_keeps_whole_characters() {
        let recorder = Recorder::new(Clock::starting_at(Timestamp::UNIX_EPOCH));
        recorder.node_warning("Failed", "x".repeat(MAX_MESSAGE));
        recorder.node_warning("Failed", "ä".repeat(8 << 20));
        let messages: Vec<String> = recorder.latest().into_iter().map(|event| event.message).collect();
        assert_eq!(messages[0], "x".repeat(MAX_MESSAGE));
        assert_eq!(messages[1], format!("{}...", "ä".repeat((MAX_MESSAGE - 3) / 2)));
        assert!(messages[1].capacity() <= MAX_MESSAGE, "the rest is not kept");
    }
}
