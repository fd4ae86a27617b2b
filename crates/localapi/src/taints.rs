//! Taints: what keeps new pods from a node, and claims from a device, unless they tolerate it, and what ends pods that run. Pure.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::object::{self, items, text};

/// The key of the taint that a cordoned node has for the tolerations of pods.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// The effect of a taint that ends pods, too.
const NO_EXECUTE: &str = "NoExecute";

/// The first taint that keeps out what has these tolerations.
pub(crate) fn untolerated<'a>(taints: &'a [Value], tolerations: &[Value]) -> Option<&'a Value> {
    let keeps_out = |taint: &&Value| ["NoSchedule", NO_EXECUTE].contains(&text(taint, "/effect"));
    taints
        .iter()
        .filter(keeps_out)
        .find(|taint| !tolerations.iter().any(|toleration| tolerates(toleration, taint)))
}

fn tolerates(toleration: &Value, taint: &Value) -> bool {
    let is_or_any = |field: &str| {
        let given = text(toleration, field);
        given.is_empty() || given == text(taint, field)
    };
    let has_value = match text(toleration, "/operator") {
        "Exists" => true,
        "" | "Equal" => {
            !text(toleration, "/key").is_empty() && text(toleration, "/value") == text(taint, "/value")
        }
        _ => false,
    };
    is_or_any("/key") && is_or_any("/effect") && has_value
}

/// Why a node takes no new pod like this one, as a scheduler says it; `None` if it takes it.
pub(crate) fn refusal(node: &Value, pod: &Value) -> Option<String> {
    let tolerations = items(pod, "/spec/tolerations");
    let is_cordoned = node.pointer("/spec/unschedulable").and_then(Value::as_bool).unwrap_or_default();
    let cordon = [json!({"key": UNSCHEDULABLE, "effect": "NoSchedule"})];
    if is_cordoned && untolerated(&cordon, tolerations).is_some() {
        return Some("1 node(s) were unschedulable".to_owned());
    }
    let taint = untolerated(items(node, "/spec/taints"), tolerations)?;
    let (key, value) = (text(taint, "/key"), text(taint, "/value"));
    Some(format!("1 node(s) had untolerated taint {{{key}: {value}}}"))
}

/// When a pod must leave its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Eviction {
    Never,
    Now,
    At(Timestamp),
}

pub(crate) fn no_execute(node: &Value) -> impl Iterator<Item = &Value> {
    items(node, "/spec/taints").iter().filter(|taint| text(taint, "/effect") == NO_EXECUTE)
}

/// When a pod with these tolerations, which is on the node since `bound`, must leave it. Of the tolerations of a taint the first one counts, as
/// in the real controller, and of several taints the one whose toleration ends first.
pub(crate) fn eviction(node: &Value, tolerations: &[Value], bound: Timestamp) -> Eviction {
    let mut ends: Option<Timestamp> = None;
    for taint in no_execute(node) {
        let Some(toleration) = tolerations.iter().find(|toleration| tolerates(toleration, taint)) else {
            return Eviction::Now;
        };
        match toleration.get("tolerationSeconds").and_then(Value::as_i64) {
            None => {}
            Some(..=0) => return Eviction::Now,
            Some(seconds) => {
                let added = text(taint, "/timeAdded").parse::<Timestamp>().unwrap_or(bound);
                let end = added.max(bound).saturating_add(SignedDuration::from_secs(seconds));
                let end = end.unwrap_or(Timestamp::MAX);
                ends = Some(ends.map_or(end, |other| other.min(end)));
            }
        }
    }
    ends.map_or(Eviction::Never, Eviction::At)
}

/// Records in the taints that end pods when they were added, unless the client says it: waits of pods begin then, also after a restart.
pub(crate) fn record_times(new: &mut Value, old: Option<&Value>, now: Timestamp) {
    let before = old.map(|old| items(old, "/spec/taints")).unwrap_or_default();
    let taints = new.pointer_mut("/spec/taints").and_then(Value::as_array_mut);
    for taint in taints.into_iter().flatten() {
        if text(taint, "/effect") != NO_EXECUTE || !text(taint, "/timeAdded").is_empty() {
            continue;
        }
        let is_same = |other: &&Value| {
            ["/key", "/value", "/effect"].iter().all(|field| text(other, field) == text(taint, field))
        };
        let added = before.iter().find(is_same).map(|same| text(same, "/timeAdded"));
        let added = added.filter(|time| !time.is_empty()).map_or_else(|| object::time(now), str::to_owned);
        if let Some(taint) = taint.as_object_mut() {
            taint.insert("timeAdded".to_owned(), Value::String(added));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: &str = "2026-01-01T00:00:00Z";

    fn taint(key: &str, added: &str) -> Value {
        json!({"key": key, "value": "v", "effect": "NoExecute", "timeAdded": added})
    }

    fn tolerating(key: &str, seconds: Option<i64>) -> Value {
        json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds})
    }

    #[test]
    fn pod_leaves_a_node_at_once_or_when_the_first_of_its_tolerations_ends() {
        let at = |time: &str| Eviction::At(format!("2026-01-01T{time}Z").parse().unwrap());
        let (old, new) = ("2025-12-31T12:00:00Z", "2026-01-01T00:10:00Z");
        let no_schedule = json!({"key": "a", "effect": "NoSchedule"});
        let cases = [
            ("no taint", json!([]), json!([]), Eviction::Never),
            ("another effect", json!([no_schedule]), json!([]), Eviction::Never),
            ("not tolerated", json!([taint("a", new)]), json!([]), Eviction::Now),
            ("another key", json!([taint("a", new)]), json!([tolerating("b", None)]), Eviction::Now),
            ("forever", json!([taint("a", new)]), json!([tolerating("a", None)]), Eviction::Never),
            ("everything", json!([taint("a", new)]), json!([{"operator": "Exists"}]), Eviction::Never),
            ("a minute", json!([taint("a", new)]), json!([tolerating("a", Some(60))]), at("00:11:00")),
            ("no time", json!([taint("a", new)]), json!([tolerating("a", Some(0))]), Eviction::Now),
            ("negative", json!([taint("a", new)]), json!([tolerating("a", Some(-5))]), Eviction::Now),
            ("before the pod", json!([taint("a", old)]), json!([tolerating("a", Some(60))]), at("00:01:00")),
            ("time unknown", json!([taint("a", "")]), json!([tolerating("a", Some(60))]), at("00:01:00")),
            (
                "the first toleration counts",
                json!([taint("a", new)]),
                json!([tolerating("a", Some(60)), tolerating("a", Some(5)), tolerating("a", None)]),
                at("00:11:00"),
            ),
            (
                "two taints",
                json!([taint("a", new), taint("b", old)]),
                json!([tolerating("a", Some(60)), tolerating("b", Some(300))]),
                at("00:05:00"),
            ),
            (
                "one of two is tolerated forever",
                json!([taint("a", new), taint("b", old)]),
                json!([tolerating("b", None), tolerating("a", Some(60))]),
                at("00:11:00"),
            ),
            (
                "one of two is not tolerated",
                json!([taint("a", new), taint("b", new)]),
                json!([tolerating("a", Some(60))]),
                Eviction::Now,
            ),
            (
                "longer than time is",
                json!([taint("a", new)]),
                json!([tolerating("a", Some(i64::MAX))]),
                Eviction::At(Timestamp::MAX),
            ),
        ];
        for (name, taints, tolerations, expected) in cases {
            let node = json!({"spec": {"taints": taints}});
            let decided = eviction(&node, tolerations.as_array().unwrap(), BOUND.parse().unwrap());
            assert_eq!(decided, expected, "{name}");
        }
    }

    #[test]
    fn taint_that_ends_pods_keeps_the_time_at_which_it_was_added() {
        let now: Timestamp = "2026-01-02T00:00:00Z".parse().unwrap();
        let times = |new: Value, old: Value| {
            let (mut new, old) = (json!({"spec": {"taints": new}}), json!({"spec": {"taints": old}}));
            record_times(&mut new, Some(&old), now);
            let time = |taint: &Value| {
                taint.get("timeAdded").map_or("-".to_owned(), |time| text(time, "").to_owned())
            };
            items(&new, "/spec/taints").iter().map(time).collect::<Vec<_>>()
        };
        let sent = || json!({"key": "a", "value": "v", "effect": "NoExecute"});
        let now = object::time(now);
        let now = now.as_str();
        assert_eq!(times(json!([sent()]), json!([])), [now]);
        assert_eq!(times(json!([sent()]), json!([taint("a", BOUND)])), [BOUND]);
        assert_eq!(times(json!([sent()]), json!([taint("b", BOUND)])), [now]);
        assert_eq!(times(json!([taint("a", BOUND)]), json!([])), [BOUND]);
        let mut other = sent();
        other["value"] = json!("w");
        assert_eq!(times(json!([other]), json!([taint("a", BOUND)])), [now]);
        assert_eq!(times(json!([{"key": "a", "effect": "NoSchedule"}]), json!([])), ["-"]);
        assert_eq!(times(Value::Null, json!([])), Vec::<String>::new());
    }

    #[test]
    fn node_takes_new_pods_unless_it_is_cordoned_or_has_a_taint_that_they_do_not_tolerate() {
        let unschedulable = "1 node(s) were unschedulable";
        let tainted = "1 node(s) had untolerated taint {a: b}";
        let taints = |effect: &str| json!({"taints": [{"key": "a", "value": "b", "effect": effect}]});
        let cordoned = || json!({"unschedulable": true});
        let cases = [
            (json!({}), json!([]), None),
            (json!({"unschedulable": false}), json!([]), None),
            (cordoned(), json!([]), Some(unschedulable)),
            (cordoned(), json!([{"key": UNSCHEDULABLE, "operator": "Exists"}]), None),
            (cordoned(), json!([{"operator": "Exists"}]), None),
            (cordoned(), json!([{"key": "a", "operator": "Exists"}]), Some(unschedulable)),
            (taints("NoSchedule"), json!([]), Some(tainted)),
            (taints("NoExecute"), json!([]), Some(tainted)),
            (taints("PreferNoSchedule"), json!([]), None),
            (taints("NoSchedule"), json!([{"key": "a", "value": "b"}]), None),
            (taints("NoSchedule"), json!([{"key": "a", "operator": "Equal", "value": "b"}]), None),
            (taints("NoSchedule"), json!([{"key": "a", "value": "c"}]), Some(tainted)),
            (taints("NoSchedule"), json!([{"key": "a", "operator": "Exists"}]), None),
            (taints("NoSchedule"), json!([{"key": "a", "operator": "Gt", "value": "b"}]), Some(tainted)),
            (taints("NoExecute"), json!([{"operator": "Exists", "effect": "NoSchedule"}]), Some(tainted)),
            (taints("NoExecute"), json!([{"operator": "Exists", "effect": "NoExecute"}]), None),
        ];
        for (node, tolerations, expected) in cases {
            let pod = json!({"spec": {"tolerations": tolerations}});
            let refused = refusal(&json!({"spec": node}), &pod);
            assert_eq!(refused.as_deref(), expected, "{node} {tolerations}");
        }
    }
}
