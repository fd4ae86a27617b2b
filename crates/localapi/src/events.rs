//! Events are one kind under two groups: `v1` with its old field names, and `events.k8s.io/v1`. They are stored in the
//! first form; this module converts between the two.

use serde_json::Value;

use crate::object;

pub(crate) const GROUP: &str = "events.k8s.io";

/// (name in `v1`, name in `events.k8s.io/v1`); all other fields have the same name.
const NAMES: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

pub(crate) fn to_events_group(stored: &Value) -> Value {
    renamed(stored, "events.k8s.io/v1", |(core, events)| (core, events))
}

pub(crate) fn from_events_group(sent: Value) -> Value {
    renamed(&sent, "v1", |(core, events)| (events, core))
}

fn renamed(
    event: &Value,
    api_version: &str,
    direction: impl Fn((&'static str, &'static str)) -> (&'static str, &'static str),
) -> Value {
    let mut renamed = event.clone();
    for (from, to) in NAMES.iter().copied().map(direction) {
        if let Some(map) = renamed.as_object_mut()
            && let Some(value) = map.remove(from)
        {
            map.insert(to.to_owned(), value);
        }
    }
    if renamed.is_object() {
        renamed["apiVersion"] = Value::from(api_version);
        object::metadata(&mut renamed);
    }
    renamed
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn events_convert_between_both_groups_without_loss() {
        let core = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": "e"},
            "involvedObject": {"name": "p"},
            "message": "text",
            "reportingComponent": "kubelet",
            "reason": "Started",
        });
        let events = to_events_group(&core);
        assert_eq!(events["regarding"], json!({"name": "p"}));
        assert_eq!(events["note"], "text");
        assert_eq!(events["reportingController"], "kubelet");
        assert_eq!(events["apiVersion"], "events.k8s.io/v1");
        assert_eq!(from_events_group(events), core);
    }
}
