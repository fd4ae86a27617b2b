//! The resource metrics API (`metrics.k8s.io`), which `kubectl top` shows: how much CPU and memory nodes, pods and containers use, in the form
//! of metrics-server. Nothing of it is stored: the kubelet measures it when it is requested.
//!
//! `measurements` reads what a kubelet answers, `cache` keeps that for a second, and this module makes the objects of it. Pure but for the
//! cache.

mod cache;
mod measurements;
mod table;
#[cfg(test)]
mod tests;

use jiff::Timestamp;
use model::quantity::{binary_text, decimal_text};
use serde_json::{Value, json};

use crate::object;
use crate::resources::Resource;

pub(crate) use cache::UsageCache;
pub(crate) use measurements::Measurements;
pub(crate) use table::table;

use measurements::Usage;

/// An annotation of mirror pods: the kubelet knows the pod by this UID, and not by that of the mirror pod.
const MIRROR: &str = "/metadata/annotations/kubernetes.io~1config.mirror";

/// A NodeMetrics or PodMetrics, and what its row in a table shows.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Measured {
    pub(crate) object: Value,
    cpu_nanocores: u64,
    memory_bytes: u64,
    window: String,
}

/// The measurement of a stored Node or Pod; `None` if there is none, or not of all containers that run.
pub(crate) fn of_object(
    resource: &Resource,
    stored: &Value,
    measurements: &Measurements,
    now: Timestamp,
) -> Option<Measured> {
    let parts = if resource.namespaced {
        let pod = measurements.pod(object::namespace(stored), object::name(stored))?;
        if ![object::uid(stored), object::text(stored, MIRROR)].contains(&pod.uid.as_str()) {
            return None;
        }
        pod.containers.as_slice()
    } else {
        std::slice::from_ref(measurements.node(object::name(stored))?)
    };
    // Of several times the earliest counts, with its window.
    let earliest = parts.iter().map(|part| &part.usage).min_by_key(|usage| usage.at)?;
    let window = duration_text(measurements.window_seconds(earliest));
    let mut measured = json!({
        "kind": resource.kind,
        "apiVersion": resource.api_version(),
        "metadata": metadata(stored, now),
        "timestamp": object::time(earliest.at),
        "window": window,
    });
    if resource.namespaced {
        let container =
            |part: &measurements::Part| json!({"name": part.name, "usage": quantities(&part.usage)});
        measured["containers"] = parts.iter().map(container).collect();
    } else {
        measured["usage"] = quantities(earliest);
    }
    Some(Measured {
        object: measured,
        cpu_nanocores: parts.iter().fold(0, |sum, part| sum.saturating_add(part.usage.cpu_nanocores)),
        memory_bytes: parts.iter().fold(0, |sum, part| sum.saturating_add(part.usage.memory_bytes)),
        window,
    })
}

/// It is made now, and has the labels of what it measures.
fn metadata(stored: &Value, now: Timestamp) -> Value {
    let mut metadata = json!({"name": object::name(stored), "creationTimestamp": object::time(now)});
    if !object::namespace(stored).is_empty() {
        metadata["namespace"] = json!(object::namespace(stored));
    }
    let labels = stored.pointer("/metadata/labels").and_then(Value::as_object);
    if let Some(labels) = labels.filter(|labels| !labels.is_empty()) {
        metadata["labels"] = json!(labels);
    }
    metadata
}

fn quantities(usage: &Usage) -> Value {
    let mut quantities =
        json!({"cpu": cpu_text(usage.cpu_nanocores), "memory": binary_text(usage.memory_bytes.into())});
    if let Some(swap) = usage.swap_bytes {
        quantities["swap"] = json!(binary_text(swap.into()));
    }
    quantities
}

/// A quantity in its canonical form: the largest unit without a remainder.
fn cpu_text(nanocores: u64) -> String {
    let mut value = nanocores;
    for unit in ["n", "u", "m"] {
        if !value.is_multiple_of(1000) {
            return format!("{value}{unit}");
        }
        value /= 1000;
    }
    decimal_text(value.into())
}

/// As Go writes a duration.
fn duration_text(seconds: i64) -> String {
    match (seconds / 60, seconds % 60) {
        (0, seconds) => format!("{seconds}s"),
        (minutes, seconds) => format!("{minutes}m{seconds}s"),
    }
}
