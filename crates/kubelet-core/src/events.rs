//! Events for the API (contract B.10): how one looks, and which are counted, combined or dropped so that a pod in trouble
//! does not flood the cluster.
//!
//! Owns: the numbers, the names and what was said lately. Never: calling the API, or a rate over all events.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use model::Now;
use model::k8s::{Event, EventSource, ObjectMeta, ObjectReference, Time};
use serde_json::{Value, json};

use crate::lru::Lru;

/// So many kinds of events, objects with a budget, and events to be counted up are remembered, each.
pub const REMEMBERED: usize = 4096;
/// So many different messages of one kind are told one by one; those beyond are combined.
const SIMILAR: usize = 10;
/// Without an event of a kind for longer than this, its messages are told one by one again.
const SIMILAR_FOR: Duration = Duration::from_secs(600);
/// Events about one object at once, and how long it takes to earn another.
const BURST: f64 = 25.0;
const EARNED_EVERY: Duration = Duration::from_secs(300);

/// An event as the kubelet found it.
#[derive(Clone, Debug, PartialEq)]
pub struct Occurrence {
    pub about: ObjectReference,
    pub is_warning: bool,
    pub reason: String,
    pub message: String,
    /// For programs that want more than words.
    pub annotations: BTreeMap<String, String>,
}

/// What is to be done about it.
#[derive(Clone, Debug, PartialEq)]
pub enum EventStep {
    Create {
        event: Box<Event>,
        key: EventKey,
    },
    /// It was told before: a strategic merge patch with the new count. If the event is gone by now, create `event`.
    Patch {
        namespace: String,
        name: String,
        patch: Value,
        event: Box<Event>,
        key: EventKey,
    },
    /// There have been too many about this object.
    Drop,
}

/// Under which an event is counted; to be handed back when the API has taken it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventKey(String);

/// What was said lately. All three memories forget the least used beyond [`REMEMBERED`] entries.
#[derive(Debug)]
pub struct EventCorrelator {
    host: String,
    /// By kind of event: the messages seen.
    similar: Lru<String, Similar>,
    /// By object.
    budgets: Lru<String, Budget>,
    /// By whole event: how often it was told.
    told: Lru<String, Told>,
    /// The moment that the newest name was made from; no two are made from the same.
    named_at: Timestamp,
}

#[derive(Clone, Debug)]
struct Similar {
    /// Their digests.
    messages: BTreeSet<String>,
    last: Timestamp,
}

#[derive(Clone, Copy, Debug)]
struct Budget {
    left: f64,
    at: model::MonoTime,
}

#[derive(Clone, Debug, Default)]
struct Told {
    count: i32,
    first: Option<Time>,
    name: String,
}

impl EventCorrelator {
    /// `host` is the name of the node.
    #[must_use]
    pub fn new(host: &str) -> Self {
        Self {
            host: host.to_owned(),
            similar: Lru::new(REMEMBERED),
            budgets: Lru::new(REMEMBERED),
            told: Lru::new(REMEMBERED),
            named_at: Timestamp::UNIX_EPOCH,
        }
    }

    /// Decides about one event.
    pub fn correlate(&mut self, occurrence: Occurrence, now: Now) -> EventStep {
        let object = digest(&object_key(&occurrence.about));
        let kind = digest(&format!("{object}\n{}\n{}", occurrence.is_warning, occurrence.reason));
        let is_combined = self.is_one_too_many(&kind, &occurrence.message, now.wall);
        let (key, message) = if is_combined {
            (kind, format!("(combined from similar events): {}", occurrence.message))
        } else {
            let field = occurrence.about.field_path.as_deref().unwrap_or_default();
            (digest(&format!("{kind}\n{field}\n{}", occurrence.message)), occurrence.message.clone())
        };
        let mut event = self.event(occurrence, message, now.wall);
        let own_name = event.metadata.name.clone().unwrap_or_default();
        let told = self.told.get_or_insert_with(&key, Told::default);
        let is_known = told.count > 0;
        told.count = told.count.saturating_add(1);
        if is_known {
            event.metadata.name = Some(told.name.clone());
            event.first_timestamp.clone_from(&told.first);
            event.count = Some(told.count);
        } else {
            told.name = own_name;
            told.first.clone_from(&event.first_timestamp);
        }
        if !self.may_speak(&object, now) {
            return EventStep::Drop;
        }
        let (event, key) = (Box::new(event), EventKey(key));
        if !is_known {
            return EventStep::Create { event, key };
        }
        EventStep::Patch {
            namespace: event.metadata.namespace.clone().unwrap_or_default(),
            name: event.metadata.name.clone().unwrap_or_default(),
            patch: json!({"count": event.count, "lastTimestamp": event.last_timestamp, "message": event.message}),
            event,
            key,
        }
    }

    /// The API would not take an event: the next one of its kind is created rather than counted up.
    pub fn note_lost(&mut self, key: &EventKey) {
        self.told.remove(&key.0);
    }

    /// The event was created under another name than it was first told under, since that one was gone.
    pub fn note_created(&mut self, key: &EventKey, name: &str) {
        if let Some(told) = self.told.peek_mut(&key.0) {
            name.clone_into(&mut told.name);
        }
    }

    /// Whether the messages of this kind are too many to be told one by one.
    fn is_one_too_many(&mut self, kind: &str, message: &str, now: Timestamp) -> bool {
        let fresh = || Similar { messages: BTreeSet::new(), last: now };
        let similar = self.similar.get_or_insert_with(&kind.to_owned(), fresh);
        if now.duration_since(similar.last).unsigned_abs() > SIMILAR_FOR {
            similar.messages.clear();
        }
        similar.last = now;
        similar.messages.insert(digest(message));
        let is_too_many = similar.messages.len() >= SIMILAR;
        if is_too_many {
            // So that the set stays this small.
            similar.messages.pop_first();
        }
        is_too_many
    }

    /// Takes one event from the object's budget, if there is one left.
    fn may_speak(&mut self, object: &str, now: Now) -> bool {
        let budget =
            self.budgets.get_or_insert_with(&object.to_owned(), || Budget { left: BURST, at: now.mono });
        let earned = now.mono.saturating_since(budget.at).as_secs_f64() / EARNED_EVERY.as_secs_f64();
        *budget = Budget { left: (budget.left + earned).min(BURST), at: now.mono };
        let may_speak = budget.left >= 1.0;
        if may_speak {
            budget.left -= 1.0;
        }
        may_speak
    }

    /// A name for an event about that object which no other has.
    pub fn new_name(&mut self, object: &str, now: Timestamp) -> String {
        // Of two events in one moment, or after the clock was set back, the later one gets a name of its own.
        self.named_at = now.max(self.named_at + Duration::from_nanos(1));
        event_name(object, self.named_at)
    }

    fn event(&mut self, occurrence: Occurrence, message: String, now: Timestamp) -> Event {
        let about = occurrence.about;
        let namespace =
            about.namespace.clone().filter(|namespace| !namespace.is_empty()).unwrap_or("default".to_owned());
        let time = Time(Timestamp::from_second(now.as_second()).unwrap_or(now));
        Event {
            metadata: ObjectMeta {
                name: Some(self.new_name(about.name.as_deref().unwrap_or_default(), now)),
                namespace: Some(namespace),
                annotations: Some(occurrence.annotations).filter(|annotations| !annotations.is_empty()),
                ..ObjectMeta::default()
            },
            involved_object: about,
            reason: Some(occurrence.reason),
            message: Some(message),
            type_: Some(if occurrence.is_warning { "Warning" } else { "Normal" }.to_owned()),
            first_timestamp: Some(time.clone()),
            last_timestamp: Some(time),
            count: Some(1),
            source: Some(EventSource {
                component: Some("kubelet".to_owned()),
                host: Some(self.host.clone()),
            }),
            reporting_component: Some("kubelet".to_owned()),
            reporting_instance: Some(self.host.clone()),
            ..Event::default()
        }
    }
}

/// `<object>.<nanoseconds in hex>`.
fn event_name(object: &str, now: Timestamp) -> String {
    format!("{object}.{:x}", now.as_nanosecond())
}

/// What is remembered instead of a text, so that remembering costs the same however long it is: 128 bits of its SHA-256.
fn digest(text: &str) -> String {
    let mut digest = model::digest::sha256_hex(text.as_bytes());
    digest.truncate(32);
    digest
}

fn object_key(about: &ObjectReference) -> String {
    let parts = [&about.kind, &about.namespace, &about.name, &about.uid, &about.api_version];
    parts.map(|part| part.as_deref().unwrap_or_default()).join("\n")
}

#[cfg(test)]
mod tests;
