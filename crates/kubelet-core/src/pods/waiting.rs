//! Why containers of a pod wait, as the status shows it.

use std::collections::BTreeMap;

use model::MonoTime;

/// The reason of a container that crash-loop back-off holds.
pub const CRASH_LOOP: &str = "CrashLoopBackOff";

/// Why a container waits: the `reason` and `message` of its `state.waiting`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingState {
    pub reason: String,
    pub message: String,
}

/// The waiting states of a pod's containers, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WaitingContainers(BTreeMap<String, Entry>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    state: WaitingState,
    /// When the state was set, or the event of its back-off was last recorded.
    reported_at: MonoTime,
}

impl WaitingContainers {
    #[must_use]
    pub fn get(&self, container: &str) -> Option<&WaitingState> {
        self.0.get(container).map(|entry| &entry.state)
    }

    pub fn states(&self) -> impl Iterator<Item = &WaitingState> {
        self.0.values().map(|entry| &entry.state)
    }

    pub fn set(&mut self, container: &str, state: WaitingState, now: MonoTime) {
        self.0.insert(container.to_owned(), Entry { state, reported_at: now });
    }

    pub fn remove(&mut self, container: &str) {
        self.0.remove(container);
    }

    /// When the container's state was last reported, and the message of its back-off if it is in one.
    #[must_use]
    pub fn last_report(&self, container: &str) -> Option<(Option<&str>, MonoTime)> {
        let Entry { state, reported_at } = self.0.get(container)?;
        let message = (state.reason == CRASH_LOOP).then_some(state.message.as_str());
        Some((message, *reported_at))
    }
}
