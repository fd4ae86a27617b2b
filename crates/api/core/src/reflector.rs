//! List and watch: how a copy of a collection is kept up to date across all errors, so that no change is lost
//! (docs/behaviour/api-server.md).
//!
//! Owns: the next request, the delay after an error, and what stays in a copy of which an object cannot be decoded. Never: making a
//! call, holding a stream.

use std::time::Duration;

use model::{MalformedObject, MonoTime};

use super::retry::compute_retry_delay;

const FIRST_DELAY: Duration = Duration::from_millis(800);
const MAX_DELAY: Duration = Duration::from_secs(30);
/// Without an error for this long, the next one starts with the first delay again.
const RESET_AFTER: Duration = Duration::from_secs(120);
/// A stream that ends sooner than this without any event did not work.
const MIN_WATCH: Duration = Duration::from_secs(1);
/// A watch that ended is opened again within this time, and not at once: a server that stops ends those of all nodes together.
const RECONNECT_SPREAD: Duration = Duration::from_secs(5);
/// After this many watches from one resource version that began and failed without an event, the collection is listed again.
const MAX_FAILED_WATCHES: u32 = 3;

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReflectorStep {
    /// List what is not older than this resource version: `0` for what the server has in memory. `None`: as it is now.
    List {
        version: Option<String>,
    },
    /// Watch changes after this resource version.
    Watch {
        since: String,
    },
    Wait {
        until: MonoTime,
    },
}

/// The outcome of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReflectorEvent {
    /// The full list was stored.
    Listed { resource_version: String },
    /// The watch is open.
    WatchStarted,
    /// A change was stored, or a bookmark was received.
    Reached { resource_version: String },
    /// The server ended the stream, as it does every few minutes.
    Ended,
    /// Changes were lost: the resource version is older than the server's history.
    Expired,
    /// Changes were lost, or the server refuses to watch from this resource version: what it sent cannot be understood.
    Lost,
    /// The server is overloaded: it asks for no request before this much time has passed.
    Refused { retry_after: Duration },
    /// No request succeeded, or the stream broke. Watching from the same resource version may succeed later.
    Failed,
}

/// State of one copy of a collection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReflectorState {
    /// The resource version that was reached; `None` before the first list, and after a gap.
    since: Option<String>,
    /// The last resource version that was reached, also before a gap: no later list may be older.
    last: Option<String>,
    /// The server does not have that resource version, or a later one.
    is_last_lost: bool,
    watch: Option<Watch>,
    /// Watches in succession that began and failed without an event.
    failed_watches: u32,
    /// No request before this time.
    due: MonoTime,
    delay: Duration,
    last_error: Option<MonoTime>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Watch {
    started: MonoTime,
    has_reported: bool,
}

impl ReflectorState {
    #[must_use]
    pub fn next(&self, now: MonoTime) -> ReflectorStep {
        if now < self.due {
            return ReflectorStep::Wait { until: self.due };
        }
        match &self.since {
            Some(since) => ReflectorStep::Watch { since: since.clone() },
            None => ReflectorStep::List { version: self.list_version() },
        }
    }

    /// Handles an outcome. `random` is from 0 to 1 and spreads the retries of many nodes.
    pub fn handle(&mut self, event: ReflectorEvent, random: f64, now: MonoTime) {
        match event {
            ReflectorEvent::Listed { resource_version } => {
                self.is_last_lost = false;
                self.reach(resource_version);
            }
            ReflectorEvent::WatchStarted => self.watch = Some(Watch { started: now, has_reported: false }),
            ReflectorEvent::Reached { resource_version } => {
                self.failed_watches = 0;
                if let Some(watch) = &mut self.watch {
                    watch.has_reported = true;
                }
                // A watch cannot continue from an object without a resource version.
                if !resource_version.is_empty() {
                    self.reach(resource_version);
                }
            }
            ReflectorEvent::Ended => self.watch_ended(random, now),
            ReflectorEvent::Expired => {
                // One immediate list is right, but not repeatedly.
                let is_first = self.since.take().is_some();
                self.is_last_lost |= !is_first;
                self.watch = None;
                if !is_first {
                    self.back_off(random, now);
                }
            }
            ReflectorEvent::Refused { retry_after } => {
                self.watch = None;
                self.grow_delay(now);
                self.due = now + compute_retry_delay(self.delay, Some(retry_after), random);
            }
            ReflectorEvent::Lost => {
                (self.since, self.watch) = (None, None);
                self.back_off(random, now);
            }
            ReflectorEvent::Failed => {
                let spread = if self.watch.is_some() { RECONNECT_SPREAD } else { Duration::ZERO };
                self.watch_failed();
                self.grow_delay(now);
                self.due = now + self.delay + self.delay.max(spread).mul_f64(random.clamp(0.0, 1.0));
            }
        }
    }

    fn reach(&mut self, resource_version: String) {
        self.last = Some(resource_version.clone());
        self.since = Some(resource_version);
    }

    /// The storage of the server is only asked where its memory cannot answer.
    fn list_version(&self) -> Option<String> {
        match &self.last {
            _ if self.is_last_lost => None,
            Some(last) => Some(last.clone()),
            None => Some("0".to_owned()),
        }
    }

    fn watch_ended(&mut self, random: f64, now: MonoTime) {
        let watch = self.watch.take();
        let was_useful =
            watch.is_some_and(|watch| watch.has_reported || now.saturating_since(watch.started) >= MIN_WATCH);
        if was_useful {
            self.due = now + RECONNECT_SPREAD.mul_f64(random.clamp(0.0, 1.0));
        } else {
            self.back_off(random, now);
        }
    }

    /// Watching from one resource version is not tried forever: what comes after it may be what breaks the stream.
    fn watch_failed(&mut self) {
        let Some(watch) = self.watch.take() else { return };
        self.failed_watches = if watch.has_reported { 0 } else { self.failed_watches + 1 };
        if self.failed_watches >= MAX_FAILED_WATCHES {
            self.failed_watches = 0;
            self.since = None;
        }
    }

    fn back_off(&mut self, random: f64, now: MonoTime) {
        self.grow_delay(now);
        self.due = now + compute_retry_delay(self.delay, None, random);
    }

    fn grow_delay(&mut self, now: MonoTime) {
        let is_fresh = self.last_error.is_none_or(|last| now.saturating_since(last) > RESET_AFTER);
        self.delay = if is_fresh { FIRST_DELAY } else { (self.delay * 2).min(MAX_DELAY) };
        self.last_error = Some(now);
    }
}

/// Whether the last readable version of an object stays in the copy when its present version cannot be decoded: what is unknown is not
/// absent. An object with another UID has replaced it.
#[must_use]
pub fn keeps_last_version(last_uid: Option<&str>, present: &MalformedObject) -> bool {
    match (last_uid, present.uid.as_deref()) {
        (Some(last), Some(present)) => last == present,
        (None, _) | (_, None) => true,
    }
}

/// The name of an object in its collection.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectKey {
    pub namespace: String,
    pub name: String,
}

impl std::fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.namespace.is_empty() {
            return f.write_str(&self.name);
        }
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests;
