//! `/metrics/resource`: CPU, memory and swap of node, pods and containers, for `kubectl top` and autoscaling.

use std::collections::BTreeMap;

use super::cgroup::CgroupSample;
use super::exposition::{Kind, Value, family, line};
use super::sample::{ContainerSample, NodeSample, PodSample};

type Number = fn(&CgroupSample) -> Option<Value>;

fn cpu(cgroup: &CgroupSample) -> Option<Value> {
    cgroup.cpu_nanoseconds.map(Value::Nanoseconds)
}

fn working_set(cgroup: &CgroupSample) -> Option<Value> {
    cgroup.memory.working_set.map(Value::Integer)
}

fn swap(cgroup: &CgroupSample) -> Option<Value> {
    cgroup.memory.swap.map(Value::Integer)
}

fn swap_limit(cgroup: &CgroupSample) -> Option<Value> {
    cgroup.memory.swap_limit.map(Value::Integer)
}

const CONTAINER: &[(&str, Kind, &str, Number)] = &[
    ("container_cpu_usage_seconds_total", Kind::Counter, "CPU time used by the container, in seconds.", cpu),
    (
        "container_memory_working_set_bytes",
        Kind::Gauge,
        "Working set of the container, in bytes.",
        working_set,
    ),
    ("container_swap_limit_bytes", Kind::Gauge, "Swap that the container may use, in bytes.", swap_limit),
    ("container_swap_usage_bytes", Kind::Gauge, "Swap used by the container, in bytes.", swap),
];
const NODE: &[(&str, Kind, &str, Number)] = &[
    ("node_cpu_usage_seconds_total", Kind::Counter, "CPU time used on the node, in seconds.", cpu),
    ("node_memory_working_set_bytes", Kind::Gauge, "Working set of the node, in bytes.", working_set),
    ("node_swap_usage_bytes", Kind::Gauge, "Swap used on the node, in bytes.", swap),
];
const POD: &[(&str, Kind, &str, Number)] = &[
    ("pod_cpu_usage_seconds_total", Kind::Counter, "CPU time used by the pod, in seconds.", cpu),
    ("pod_memory_working_set_bytes", Kind::Gauge, "Working set of the pod, in bytes.", working_set),
    ("pod_swap_usage_bytes", Kind::Gauge, "Swap used by the pod, in bytes.", swap),
];

/// Number of families.
pub const FAMILIES: usize = CONTAINER.len() + NODE.len() + POD.len() + 2;

/// One family, by its index. Only one family is in memory at a time.
#[must_use]
pub fn family_text(sample: &NodeSample, index: usize) -> String {
    let (mut text, at) = (String::new(), Some(sample.taken.wall));
    let pods = by_name(sample);
    let mut index = index;
    if let Some((name, kind, help, number)) = CONTAINER.get(index) {
        family(&mut text, name, *kind, help);
        each_container(&pods, |labels, container| {
            let placed = &container.placed;
            if let Some(value) = number(&placed.cgroup) {
                line(&mut text, name, labels, value, placed.measured_at.or(at));
            }
        });
        return text;
    }
    index -= CONTAINER.len();
    if let Some((name, kind, help, number)) = NODE.get(index) {
        family(&mut text, name, *kind, help);
        if let Some(value) = number(&sample.root.cgroup) {
            line(&mut text, name, &[], value, at);
        }
        return text;
    }
    index -= NODE.len();
    if let Some((name, kind, help, number)) = POD.get(index) {
        family(&mut text, name, *kind, help);
        for pod in pods.values() {
            let labels = [("namespace", &*pod.pod.namespace), ("pod", &*pod.pod.name)];
            let whole = pod.whole();
            if let Some(value) = number(&whole.cgroup) {
                line(&mut text, name, &labels, value, whole.measured_at.or(at));
            }
        }
        return text;
    }
    if index == POD.len() {
        start_times(&mut text, &pods)
    } else {
        scrape_error(&mut text, sample)
    }
    text
}

/// These lines identify pods by name, so of two pods with the same name only the newer one is exported: the older one is
/// terminating.
fn by_name(sample: &NodeSample) -> BTreeMap<(&str, &str), &PodSample> {
    let mut pods = BTreeMap::new();
    for pod in &sample.pods {
        let newest = pods.entry((&*pod.pod.namespace, &*pod.pod.name)).or_insert(pod);
        if newest.started < pod.started {
            *newest = pod;
        }
    }
    pods
}

fn each_container(
    pods: &BTreeMap<(&str, &str), &PodSample>,
    mut emit: impl FnMut(&[(&str, &str)], &ContainerSample),
) {
    for ((namespace, pod), sample) in pods {
        for container in &sample.containers {
            emit(&[("container", &container.name), ("namespace", namespace), ("pod", pod)], container);
        }
    }
}

/// Without the time of the sample: the value itself is a time.
fn start_times(text: &mut String, pods: &BTreeMap<(&str, &str), &PodSample>) {
    let name = "container_start_time_seconds";
    family(text, name, Kind::Gauge, "Start time of the container, in seconds since 1970.");
    each_container(pods, |labels, container| {
        let started = u64::try_from(container.started.as_nanosecond()).unwrap_or(0);
        line(text, name, labels, Value::Nanoseconds(started), None);
    });
}

fn scrape_error(text: &mut String, sample: &NodeSample) {
    let name = "resource_scrape_error";
    family(text, name, Kind::Gauge, "1 if something could not be measured, 0 otherwise.");
    line(text, name, &[], Value::Integer(u64::from(sample.is_incomplete)), None);
}
