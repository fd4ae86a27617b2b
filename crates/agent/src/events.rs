//! Events about pods and the node. Without an API server they go to the log and into a bounded memory of the latest.

use std::collections::VecDeque;
use std::sync::Arc;

use model::PodRef;
use parking_lot::Mutex;

/// How many events are remembered; the oldest go first.
const REMEMBERED: usize = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    Normal,
    Warning,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// `None` for events about the node.
    pub pod: Option<PodRef>,
    pub container: Option<String>,
    pub kind: EventType,
    pub reason: &'static str,
    pub message: String,
}

/// Takes events; clones share the memory.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    latest: Arc<Mutex<VecDeque<Event>>>,
}

impl Recorder {
    pub fn normal(
        &self,
        pod: &PodRef,
        container: Option<&str>,
        reason: &'static str,
        message: impl Into<String>,
    ) {
        self.record(Some(pod), container, EventType::Normal, reason, message.into());
    }

    pub fn warning(
        &self,
        pod: &PodRef,
        container: Option<&str>,
        reason: &'static str,
        message: impl Into<String>,
    ) {
        self.record(Some(pod), container, EventType::Warning, reason, message.into());
    }

    pub fn node_warning(&self, reason: &'static str, message: impl Into<String>) {
        self.record(None, None, EventType::Warning, reason, message.into());
    }

    pub fn node_normal(&self, reason: &'static str, message: impl Into<String>) {
        self.record(None, None, EventType::Normal, reason, message.into());
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
        kind: EventType,
        reason: &'static str,
        message: String,
    ) {
        let name = pod.map(ToString::to_string);
        tracing::info!(pod = name, container, r#type = ?kind, reason, message, "Event");
        let mut latest = self.latest.lock();
        if latest.len() == REMEMBERED {
            latest.pop_front();
        }
        let container = container.map(str::to_owned);
        latest.push_back(Event { pod: pod.cloned(), container, kind, reason, message });
    }
}
