//! The end of Events: an hour after the last change of one, as in a real cluster, and earlier for the oldest if there are very many.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::api::Api;
use crate::object::text;
use crate::store::{Key, NotStored, Objects, Write};

const LIFETIME: SignedDuration = SignedDuration::from_hours(1);
/// Each is about a kilobyte of memory.
const MAX_EVENTS: usize = 5000;
const INTERVAL: Duration = Duration::from_secs(600);
const EVENTS: &str = "events";

/// The last time at which something happened to an event.
fn last_change(event: &Value) -> Timestamp {
    let times = ["/series/lastObservedTime", "/lastTimestamp", "/eventTime", "/metadata/creationTimestamp"];
    let parsed = times.into_iter().filter_map(|time| text(event, time).parse::<Timestamp>().ok());
    parsed.max().unwrap_or(Timestamp::UNIX_EPOCH)
}

/// The events to remove, at most `max` stay.
fn expired(objects: &Objects, now: Timestamp, max: usize) -> Vec<Key> {
    let mut all = objects.map_of(EVENTS, |key, event| (last_change(event), key.clone()));
    all.sort_unstable();
    let too_many = all.len().saturating_sub(max);
    let is_old = |changed: Timestamp| now.duration_since(changed) >= LIFETIME;
    let removed = all.iter().enumerate().filter(|(at, (changed, _))| *at < too_many || is_old(*changed));
    removed.map(|(_, (_, key))| key.clone()).collect()
}

pub(super) async fn run(api: Arc<Api>) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            () = api.closing.cancelled() => return,
        }
        let now = api.now();
        for key in api.store.read(|objects| expired(objects, now, MAX_EVENTS)) {
            let removed = api.store.write(&key, |_, current| {
                Ok::<_, NotStored>(current.map_or(Write::Keep, |current| Write::Remove((**current).clone())))
            });
            if let Err(error) = removed {
                tracing::warn!(err = %error, "failed to remove an old event; trying again later");
                break;
            }
            // Other changes come between.
            tokio::task::yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::store::Store;

    fn expired_of(events: &[(&str, Value)], max: usize) -> Vec<String> {
        let store = Store::new(10);
        for (name, times) in events {
            let mut event = times.clone();
            event["metadata"]["name"] = json!(name);
            let key = Key::new(EVENTS, "a", name);
            store.write(&key, |_, _| Ok::<_, NotStored>(Write::Put(event))).unwrap();
        }
        let now = "2026-01-01T12:00:00Z".parse().unwrap();
        store.read(|objects| expired(objects, now, max)).into_iter().map(|key| key.name).collect()
    }

    #[test]
    fn event_ends_an_hour_after_its_last_change() {
        let created = |time: &str| json!({"metadata": {"creationTimestamp": time}});
        let mut repeated = created("2026-01-01T09:00:00Z");
        repeated["series"] = json!({"lastObservedTime": "2026-01-01T11:30:00.000000Z"});
        let events = [
            ("new", created("2026-01-01T11:00:01Z")),
            ("old", created("2026-01-01T11:00:00Z")),
            ("repeated", repeated),
        ];
        assert_eq!(expired_of(&events, 10), ["old"]);
        assert_eq!(expired_of(&events, 1), ["old", "new"]);
    }
}
