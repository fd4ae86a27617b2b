//! Events for the API (docs/behaviour/api-server.md): their content, and which are counted, combined or dropped so that a
//! failing pod does not flood the cluster.
//!
//! Owns: the limits, the names and the memory of recent events. Never: calling the API, or a rate limit over all events.
//!
//! The memory of a pod lasts until [`EventCorrelator::forget`]; a pod that ended in another way loses it to newer ones. It stores
//! digests and numbers of a fixed size and no text, because thousands of small strings between allocations of deleted pods would keep
//! the pages around them in use.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use model::k8s::{Event, EventSource, ObjectMeta, ObjectReference, Time};
use model::{Now, RateLimiter};
use serde_json::{Value, json};

use crate::lru::Lru;

/// Maximum number of entries in each of the three memories: kinds of events, budgets, and events to count up.
pub const REMEMBERED: usize = 4096;
/// Maximum number of different messages of one kind that are sent individually; further ones are combined.
const SIMILAR: usize = 10;
/// After this time without an event of a kind, its messages are sent individually again.
const SIMILAR_FOR: Duration = Duration::from_secs(600);
/// Events of one type about one object that are sent at once, and one more every 300 s: warnings leave the budget of normal events.
const BURST: u32 = 25;
const PER_SECOND: f64 = 1.0 / 300.0;

/// An event as it occurred.
#[derive(Clone, Debug, PartialEq)]
pub struct Occurrence {
    pub about: ObjectReference,
    pub is_warning: bool,
    pub reason: String,
    pub message: String,
    /// Structured data for other programs.
    pub annotations: BTreeMap<String, String>,
}

/// What to do about an event.
#[derive(Clone, Debug, PartialEq)]
pub enum EventStep {
    Create {
        event: Box<Event>,
        key: EventKey,
    },
    /// It was sent before: a strategic merge patch with the new count. If the event does not exist any more, create
    /// `event`.
    Patch {
        namespace: String,
        name: String,
        patch: Value,
        event: Box<Event>,
        key: EventKey,
    },
    /// The budget of the object for events of this type is exceeded.
    Drop,
}

/// Key under which an event is counted; to be returned when the API has accepted it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventKey(Key);

/// The recent events. Each of the three memories evicts the least recently used of more than [`REMEMBERED`] entries.
#[derive(Debug)]
pub struct EventCorrelator {
    host: String,
    /// By kind of event: the messages seen.
    similar: Lru<Key, Similar>,
    /// By object and type.
    limiters: Lru<Key, RateLimiter>,
    /// By whole event: the number of times it was sent.
    sent: Lru<Key, SentEvent>,
    /// The time from which the newest name was made; each name has its own.
    named_at: Timestamp,
}

/// The different messages of a kind of event.
#[derive(Clone, Copy, Debug)]
struct Similar {
    /// Halves of the digests of the messages, which are enough for so few; the first `count` are in use.
    messages: [u32; SIMILAR],
    count: u32,
    last: Timestamp,
}

impl Similar {
    const fn new(now: Timestamp) -> Self {
        Self { messages: [0; SIMILAR], count: 0, last: now }
    }

    /// Whether there are now [`SIMILAR`] different messages. One of them is evicted then, so that they always fit.
    fn is_full_with(&mut self, message: u64) -> bool {
        let (message, count) = ((message >> 32) as u32, self.count as usize);
        if !self.messages[..count].contains(&message) {
            self.messages[count] = message;
            self.count += 1;
        }
        let is_full = self.count as usize == SIMILAR;
        if is_full {
            self.messages.rotate_left(1);
            self.count -= 1;
        }
        is_full
    }
}

#[derive(Clone, Copy, Debug)]
struct SentEvent {
    count: i32,
    first: Timestamp,
    /// Its name in the API is that of the object and this moment, see [`event_name`].
    named_at: Timestamp,
}

impl EventCorrelator {
    /// `host` is the name of the node.
    #[must_use]
    pub fn new(host: &str) -> Self {
        Self {
            host: host.to_owned(),
            similar: Lru::new(REMEMBERED),
            limiters: Lru::new(REMEMBERED),
            sent: Lru::new(REMEMBERED),
            named_at: Timestamp::UNIX_EPOCH,
        }
    }

    /// Decides about one event.
    pub fn correlate(&mut self, occurrence: Occurrence, now: Now) -> EventStep {
        let object = digest(&object_key(&occurrence.about));
        let kind = Key { object, rest: digest(&format!("{}\n{}", occurrence.is_warning, occurrence.reason)) };
        let is_combined = self.is_one_too_many(kind, &occurrence.message, now.wall);
        let (key, message) = if is_combined {
            (kind, format!("(combined from similar events): {}", occurrence.message))
        } else {
            let field = occurrence.about.field_path.as_deref().unwrap_or_default();
            let rest = digest(&format!("{:x}\n{field}\n{}", kind.rest, occurrence.message));
            (Key { object, rest }, occurrence.message.clone())
        };
        let fresh =
            SentEvent { count: 0, first: whole_second(now.wall), named_at: self.new_moment(now.wall) };
        let sent = self.sent.get_or_insert_with(&key, || fresh);
        let is_known = sent.count > 0;
        sent.count = sent.count.saturating_add(1);
        let sent = *sent;
        let budget = Key { object, rest: u64::from(occurrence.is_warning) };
        let limiter =
            self.limiters.get_or_insert_with(&budget, || RateLimiter::new(PER_SECOND, BURST, now.mono));
        if !limiter.try_take(now.mono) {
            return EventStep::Drop;
        }
        let (event, key) = (Box::new(self.event(occurrence, message, sent, now.wall)), EventKey(key));
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

    /// No event about this object follows.
    pub fn forget(&mut self, about: &ObjectReference) {
        let object = digest(&object_key(about));
        self.similar.remove_all(|key| key.object == object);
        self.limiters.remove_all(|key| key.object == object);
        self.sent.remove_all(|key| key.object == object);
    }

    /// The API did not accept an event: the next one of its kind is created rather than counted up.
    pub fn event_lost(&mut self, key: &EventKey) {
        self.sent.remove(&key.0);
    }

    /// Renames an event that does not exist in the API any more, so that it can be created; later ones count it up.
    pub fn rename(&mut self, key: &EventKey, event: &mut Event, now: Timestamp) {
        let moment = self.new_moment(now);
        if let Some(sent) = self.sent.peek_mut(&key.0) {
            sent.named_at = moment;
        }
        let object = event.involved_object.name.as_deref().unwrap_or_default();
        event.metadata.name = Some(event_name(object, moment));
    }

    /// Whether there are too many different messages of this kind to send each of them.
    fn is_one_too_many(&mut self, kind: Key, message: &str, now: Timestamp) -> bool {
        let similar = self.similar.get_or_insert_with(&kind, || Similar::new(now));
        if now.duration_since(similar.last).unsigned_abs() > SIMILAR_FOR {
            similar.count = 0;
        }
        similar.last = now;
        similar.is_full_with(digest(message))
    }

    /// A unique time for a name. Of two events at the same time, or after the clock was set back, the later one gets the
    /// next nanosecond.
    fn new_moment(&mut self, now: Timestamp) -> Timestamp {
        self.named_at = now.max(self.named_at + Duration::from_nanos(1));
        self.named_at
    }

    fn event(&self, occurrence: Occurrence, message: String, sent: SentEvent, now: Timestamp) -> Event {
        let about = occurrence.about;
        let namespace =
            about.namespace.clone().filter(|namespace| !namespace.is_empty()).unwrap_or("default".to_owned());
        Event {
            metadata: ObjectMeta {
                name: Some(event_name(about.name.as_deref().unwrap_or_default(), sent.named_at)),
                namespace: Some(namespace),
                annotations: Some(occurrence.annotations).filter(|annotations| !annotations.is_empty()),
                ..ObjectMeta::default()
            },
            involved_object: about,
            reason: Some(occurrence.reason),
            message: Some(message),
            type_: Some(if occurrence.is_warning { "Warning" } else { "Normal" }.to_owned()),
            first_timestamp: Some(Time(sent.first)),
            last_timestamp: Some(Time(whole_second(now))),
            count: Some(sent.count),
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
fn event_name(object: &str, moment: Timestamp) -> String {
    format!("{object}.{:x}", moment.as_nanosecond())
}

fn whole_second(moment: Timestamp) -> Timestamp {
    Timestamp::from_second(moment.as_second()).unwrap_or(moment)
}

/// What an entry is about. The two digests together distinguish all events that the kubelet can remember.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    object: u64,
    rest: u64,
}

/// 64 bits of the SHA-256 of a text, so that an entry has the same size however long the text is.
fn digest(text: &str) -> u64 {
    let digest = model::digest::sha256(text.as_bytes());
    digest.as_ref().iter().take(size_of::<u64>()).fold(0, |number, byte| (number << 8) | u64::from(*byte))
}

fn object_key(about: &ObjectReference) -> String {
    let parts = [&about.kind, &about.namespace, &about.name, &about.uid, &about.api_version];
    parts.map(|part| part.as_deref().unwrap_or_default()).join("\n")
}

#[cfg(test)]
mod tests;
