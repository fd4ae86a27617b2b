//! Pods in the API: their final status, their states, and their events.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::recording::Recording;
use super::{Difference, normal};

const LISTS: [&str; 3] = ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"];
/// Reasons of which either may be current at the time of the recording.
const PULL_REASONS: [&str; 2] = ["ErrImagePull", "ImagePullBackOff"];
/// Waiting reasons of a container between two runs.
const BETWEEN_RUNS: [&str; 2] = ["CrashLoopBackOff", "PostStartHookError"];
/// The count of a repeated event depends on the time of the recording; only once and several times are distinguished.
const OFTEN: u64 = 2;
const COUNT_SLACK: u64 = 2;

pub(super) fn compare(theirs: &Recording, ours: &Recording, found: &mut Vec<Difference>) {
    let names: BTreeSet<&String> = theirs.pods.keys().chain(ours.pods.keys()).collect();
    for name in names {
        match (theirs.pods.get(name), ours.pods.get(name)) {
            (Some(go), Some(own)) => {
                compare_final(name, go, own, found);
                compare_states(name, &go["patches"], &own["patches"], found);
                compare_events(name, &go["events"], &own["events"], found);
            }
            (go, own) => found.push(Difference::new(
                "pod",
                name,
                if go.is_some() { "recorded" } else { "missing" },
                if own.is_some() { "recorded" } else { "missing" },
            )),
        }
    }
}

// ---- final status ----

fn compare_final(name: &str, theirs: &Value, ours: &Value, found: &mut Vec<Difference>) {
    let (mut theirs, mut ours) = (theirs.clone(), ours.clone());
    for recording in [&mut theirs, &mut ours] {
        remove_unlimited(recording);
    }
    let (mut go, mut own) = (normal::value(&theirs["final"]), normal::value(&ours["final"]));
    settle_resources((&mut go, &theirs["patches"]), (&mut own, &ours["patches"]));
    settle_restarts(&mut go["status"], &mut own["status"]);
    differences(&format!("final {name}"), &final_leaves(&go), &final_leaves(&own), found);
}

/// The memory limit that the Go kubelet shows on version 1 of cgroups for a pod without one; ours shows none.
const UNLIMITED: &str = "9007199254740988Ki";

fn remove_unlimited(value: &mut Value) {
    if let Value::Object(fields) = value {
        if let Some(limits) = fields.get_mut("limits").and_then(Value::as_object_mut)
            && limits.get("memory").is_some_and(|limit| limit == UNLIMITED)
        {
            limits.remove("memory");
            if limits.is_empty() {
                fields.remove("limits");
            }
        }
        fields.values_mut().for_each(remove_unlimited);
    } else if let Value::Array(items) = value {
        items.iter_mut().for_each(remove_unlimited);
    }
}

/// `status.resources` shows what the pod was allocated, and from the first sync after it is shown as running what its cgroup
/// enforces: which of the two is there depends on the moment of the last sync. The values are the same if each kubelet showed
/// that of the other, too, for the same generation of the pod or a later one; a pod that has ended may have done so before ours
/// showed the second.
fn settle_resources(theirs: (&mut Value, &Value), ours: (&mut Value, &Value)) {
    let (go, own) = (&theirs.0["status"], &ours.0["status"]);
    let has_shown = |patches: &Value, other: &Value| {
        let generation = |status: &Value| status["observedGeneration"].as_u64();
        let is_same = |status: &Value| {
            status["resources"] == other["resources"] && generation(status) >= generation(other)
        };
        patches.as_array().into_iter().flatten().any(|patch| is_same(&patch["status"]))
    };
    let has_ended = |status: &Value| status["phase"] == "Failed" || status["phase"] == "Succeeded";
    let ours_may_be = || has_shown(ours.1, go) || (has_ended(go) && has_ended(own));
    if go["resources"] != own["resources"] && has_shown(theirs.1, own) && ours_may_be() {
        for pod in [theirs.0, ours.0] {
            pod["status"]["resources"] = json!("allocated or enforced");
        }
    }
}

/// A container that keeps restarting may be read while it runs or between two runs, and its pod is ready in the first case
/// only. How its last run ended must be the same.
fn settle_restarts(theirs: &mut Value, ours: &mut Value) {
    let mut is_between_runs = false;
    for list in LISTS {
        let mut own = containers_by_name(ours, list);
        for (name, go) in containers_by_name(theirs, list) {
            if let Some(own) = own.get_mut(&name) {
                is_between_runs |= settle_pair(go, own);
            }
        }
    }
    for status in [theirs, ours].into_iter().filter(|_| is_between_runs) {
        let conditions = status.get_mut("conditions").and_then(Value::as_array_mut);
        for condition in conditions.into_iter().flatten() {
            if condition["type"] == "Ready" || condition["type"] == "ContainersReady" {
                *condition = json!({"type": condition["type"], "status": "<any>"});
            }
        }
    }
}

fn containers_by_name<'a>(status: &'a mut Value, list: &str) -> BTreeMap<String, &'a mut Value> {
    let containers = status.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
    containers.map(|container| (container["name"].to_string(), container)).collect()
}

/// Whether one of the two was read while it ran, and the other between two runs.
fn settle_pair(theirs: &mut Value, ours: &mut Value) -> bool {
    let is_running = |container: &Value| container["state"]["running"].is_object();
    let keeps_restarting = |container: &Value| container["restartCount"].as_u64() >= Some(OFTEN);
    if !keeps_restarting(theirs) || !keeps_restarting(ours) {
        return false;
    }
    let is_between_runs = is_running(theirs) != is_running(ours);
    for container in [theirs, ours] {
        container["restartCount"] = json!("often");
        if is_between_runs {
            let state = &container["state"];
            let ended = if state["terminated"].is_object() { state } else { &container["lastState"] };
            let ended = &ended["terminated"];
            let ended = json!({"exitCode": ended["exitCode"], "reason": ended["reason"], "message": ended["message"]});
            container["state"] = json!({"last end": ended});
            for field in ["lastState", "containerID", "ready", "started"] {
                container[field] = json!("<any>");
            }
        }
    }
    is_between_runs
}

fn final_leaves(pod: &Value) -> BTreeMap<String, String> {
    if pod["metadata"].is_null() {
        return BTreeMap::from([("pod".to_owned(), "not in the API".to_owned())]);
    }
    let mut status = pod["status"].clone();
    for list in LISTS {
        for container in status.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            settle(container);
        }
    }
    let mut found = Vec::new();
    normal::leaves("", &status, &mut found);
    let annotations = pod["metadata"]["annotations"].as_object();
    for (key, value) in annotations.into_iter().flatten() {
        found.push((format!("annotations[{key}]"), value.to_string()));
    }
    found.into_iter().collect()
}

/// Between two runs of a container that restarts, either of two states may be read.
fn settle(container: &mut Value) {
    let reason = container["state"]["waiting"]["reason"].as_str().unwrap_or_default().to_owned();
    if PULL_REASONS.contains(&reason.as_str()) {
        container["state"] = json!({"waiting": PULL_REASONS.join(" or ")});
    }
    let has_restarted = container["restartCount"].as_u64() > Some(0) || container["restartCount"] == "often";
    let ended = if BETWEEN_RUNS.contains(&reason.as_str()) {
        container["lastState"]["terminated"].take()
    } else {
        container["state"]["terminated"].clone()
    };
    if has_restarted && !ended.is_null() {
        container["state"] = json!({"ended or in back-off": {
            "exitCode": ended["exitCode"], "reason": ended["reason"], "message": ended["message"]}});
        container["lastState"] = json!("<any>");
        container["restartCount"] = json!("more than 0");
        container["containerID"] = json!("<any>");
    }
}

pub(super) fn differences(
    subject: &str,
    theirs: &BTreeMap<String, String>,
    ours: &BTreeMap<String, String>,
    found: &mut Vec<Difference>,
) {
    let paths: BTreeSet<&String> = theirs.keys().chain(ours.keys()).collect();
    for path in paths {
        let (go, own) = (theirs.get(path), ours.get(path));
        if go != own {
            let shown = |value: Option<&String>| value.map_or("(none)", String::as_str).to_owned();
            found.push(Difference::new(subject, path, shown(go), shown(own)));
        }
    }
}

// ---- states ----

/// The transitions between states that only one of the two has.
fn compare_states(name: &str, theirs: &Value, ours: &Value, found: &mut Vec<Difference>) {
    let (theirs, ours) = (transitions(theirs), transitions(ours));
    let (short_theirs, short_ours) = (has_short_run(&theirs), has_short_run(&ours));
    let keys: BTreeSet<&String> = theirs.keys().chain(ours.keys()).collect();
    for key in keys {
        let is_readiness = key == "condition Ready" || key == "condition ContainersReady";
        let empty = BTreeSet::new();
        let (go, own) = (theirs.get(key).unwrap_or(&empty), ours.get(key).unwrap_or(&empty));
        for step in go.symmetric_difference(own) {
            let (all, other, is_short) =
                if go.contains(step) { (go, own, short_ours) } else { (own, go, short_theirs) };
            if is_skipped(step, all, other) || (is_readiness && is_short && is_way_back(step, other)) {
                continue;
            }
            let (go, own) = if go.contains(step) { ("yes", "no") } else { ("no", "yes") };
            let what = format!("{key}: {} -> {}", step.0, step.1);
            found.push(Difference::new(format!("states {name}"), what, go, own));
        }
    }
}

/// A state that lasts for less than a second may never be written: `a -> b` and `b -> c` then show as `a -> c`. That a
/// container ended is always written.
fn is_skipped(step: &Step, all: &BTreeSet<Step>, other: &BTreeSet<Step>) -> bool {
    let (from, to) = step;
    let may_be_skipped = |state: &String| !state.starts_with("terminated");
    let has =
        |steps: &BTreeSet<Step>, from: &String, to: &String| steps.contains(&(from.clone(), to.clone()));
    let has_detour = other.iter().any(|(a, b)| a == from && may_be_skipped(b) && has(other, b, to));
    let is_first = may_be_skipped(to) && all.iter().any(|(b, c)| b == to && has(other, from, c));
    let is_second = may_be_skipped(from) && all.iter().any(|(a, b)| b == from && has(other, a, to));
    has_detour || is_first || is_second
}

/// Whether a container is shown to have ended that was not shown to run: its run was too short.
fn has_short_run(steps: &BTreeMap<String, BTreeSet<Step>>) -> bool {
    let of_containers =
        steps.iter().filter(|(key, _)| key.starts_with("container ")).flat_map(|(_, steps)| steps);
    of_containers.into_iter().any(|(from, to)| from.starts_with("waiting") && to.starts_with("terminated"))
}

/// From ready to what was there before. The pod of a container whose first run was too short was not shown to be ready then,
/// but in a later one, or in none if these were too short as well.
fn is_way_back(step: &Step, other: &BTreeSet<Step>) -> bool {
    let (from, to) = step;
    let was_never_ready = !other.iter().any(|(_, state)| state.starts_with("True"));
    from.starts_with("True") && (was_never_ready || other.contains(&(to.clone(), from.clone())))
}

/// From one state to the next.
type Step = (String, String);

/// For the pod and for each container: `waiting ContainerCreating -> running`.
fn transitions(patches: &Value) -> BTreeMap<String, BTreeSet<Step>> {
    let mut last: BTreeMap<String, String> = BTreeMap::new();
    let mut steps: BTreeMap<String, BTreeSet<Step>> = BTreeMap::new();
    let mut note = |key: String, state: String| {
        let before = last.insert(key.clone(), state.clone()).unwrap_or_else(|| "(start)".to_owned());
        if before != state {
            steps.entry(key).or_default().insert((before, state));
        }
    };
    for patch in patches.as_array().into_iter().flatten() {
        let status = &patch["status"];
        if status["phase"].is_null() {
            continue;
        }
        let reason = status["reason"].as_str().map(|reason| format!(" {reason}")).unwrap_or_default();
        note("phase".to_owned(), format!("{}{reason}", status["phase"].as_str().unwrap_or_default()));
        for condition in status["conditions"].as_array().into_iter().flatten() {
            let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
            note(format!("condition {}", text("type")), format!("{} {}", text("status"), text("reason")));
        }
        for list in LISTS {
            for container in status[list].as_array().into_iter().flatten() {
                let container_name = container["name"].as_str().unwrap_or_default();
                note(format!("container {container_name}"), state(container));
            }
        }
    }
    steps
}

fn state(container: &Value) -> String {
    let Some((kind, of)) = container["state"].as_object().and_then(|state| state.iter().next()) else {
        return "(none)".to_owned();
    };
    let reason = of["reason"].as_str().unwrap_or_default();
    let code = of["exitCode"].as_i64().map(|code| format!(" {code}")).unwrap_or_default();
    let ready = if container["ready"] == true { " ready" } else { "" };
    format!("{kind} {reason}{code}{ready}")
}

// ---- events ----

fn compare_events(name: &str, theirs: &Value, ours: &Value, found: &mut Vec<Difference>) {
    let (theirs, ours) = (events(theirs), events(ours));
    let keys: BTreeSet<&String> = theirs.keys().chain(ours.keys()).collect();
    for key in keys {
        let (go, own) = (theirs.get(key).copied().unwrap_or(0), ours.get(key).copied().unwrap_or(0));
        let is_near = go > 0 && own > 0 && go.abs_diff(own) <= COUNT_SLACK;
        let is_near = is_near || (go >= OFTEN && own >= OFTEN);
        if go != own && !is_near {
            found.push(Difference::new(format!("events {name}"), key, times(go), times(own)));
        }
    }
}

fn times(count: u64) -> String {
    if count == 0 { "(none)".to_owned() } else { format!("{count} times") }
}

/// How often each event was counted.
fn events(events: &Value) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for event in events.as_array().into_iter().flatten() {
        let text = |field: &str| event[field].as_str().unwrap_or_default().to_owned();
        // The scheduler's.
        if text("reason") == "Scheduled" {
            continue;
        }
        let (kind, reason, place) = (text("type"), text("reason"), text("fieldPath"));
        let key = format!("{kind} {reason} {place}: {}", normal::text(&text("message")));
        *counts.entry(key).or_default() += event["count"].as_u64().unwrap_or(1).max(1);
    }
    counts
}
