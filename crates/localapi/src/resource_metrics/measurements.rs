//! What the kubelet of a node answers (`stats/v1alpha1`), reduced to the usage of CPU, memory and swap.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;

/// A rate is of the time since the reading before. The kubelet reads its counters at least this often, requested or not, in seconds.
const MAX_WINDOW: i64 = 300;

#[derive(Debug, Deserialize)]
struct Summary {
    node: NodeStats,
    #[serde(default)]
    pods: Vec<PodStats>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeStats {
    node_name: String,
    #[serde(flatten)]
    stats: Stats,
}

/// Of the node or a container.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stats {
    start_time: Option<String>,
    cpu: Option<CpuStats>,
    memory: Option<MemoryStats>,
    swap: Option<SwapStats>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodStats {
    pod_ref: PodRef,
    #[serde(default)]
    containers: Vec<ContainerStats>,
}

#[derive(Debug, Deserialize)]
struct PodRef {
    name: String,
    namespace: String,
    uid: String,
}

#[derive(Debug, Deserialize)]
struct ContainerStats {
    name: String,
    #[serde(flatten)]
    stats: Stats,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CpuStats {
    time: String,
    usage_nano_cores: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct MemoryStats {
    working_set_bytes: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SwapStats {
    swap_usage_bytes: Option<u64>,
}

/// What a container or the whole node uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) at: Timestamp,
    /// When the counter of CPU time began.
    started: Option<Timestamp>,
    pub(super) cpu_nanocores: u64,
    /// The working set.
    pub(super) memory_bytes: u64,
    /// `None` if it is not measured.
    pub(super) swap_bytes: Option<u64>,
}

/// A container, or the node itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) name: String,
    pub(super) usage: Usage,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PodUsage {
    pub(super) uid: String,
    pub(super) containers: Vec<Part>,
}

/// The measurements of a node. What has no complete one is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Measurements {
    node: Option<Part>,
    /// By namespace and name.
    pods: BTreeMap<(String, String), PodUsage>,
    /// When the node was measured before this, if that is known.
    previous: Option<Timestamp>,
}

impl Measurements {
    /// Reads the answer of a kubelet; `before` is its answer before this one.
    pub(crate) fn parse(text: &[u8], before: Option<&Self>) -> Result<Self, String> {
        let summary: Summary =
            serde_json::from_slice(text).map_err(|error| format!("unknown answer: {error}"))?;
        let node = part(summary.node.node_name, summary.node.stats);
        let mut pods = BTreeMap::new();
        for PodStats { pod_ref: PodRef { name, namespace, uid }, containers } in summary.pods {
            let containers: Option<Vec<Part>> =
                containers.into_iter().map(|container| part(container.name, container.stats)).collect();
            if let Some(containers) = containers.filter(|containers| !containers.is_empty()) {
                pods.insert((namespace, name), PodUsage { uid, containers });
            }
        }
        let measured_at = |of: &Self| of.node.as_ref().map(|node| node.usage.at);
        let mut read = Self { node, pods, previous: None };
        read.previous = before.and_then(|before| {
            // The kubelet may answer twice with one sample.
            if measured_at(before) == measured_at(&read) { before.previous } else { measured_at(before) }
        });
        Ok(read)
    }

    pub(super) fn node(&self, name: &str) -> Option<&Part> {
        self.node.as_ref().filter(|node| node.name == name)
    }

    pub(super) fn pod(&self, namespace: &str, name: &str) -> Option<&PodUsage> {
        self.pods.get(&(namespace.to_owned(), name.to_owned()))
    }

    /// The longest time of which this rate may be, which the kubelet does not say: other clients may have read the counter meanwhile.
    pub(super) fn window_seconds(&self, usage: &Usage) -> i64 {
        let since = [usage.started, self.previous].into_iter().flatten().filter(|since| *since < usage.at);
        let longest = |since: Timestamp| usage.at.duration_since(since).as_secs().clamp(1, MAX_WINDOW);
        since.max().map_or(MAX_WINDOW, longest)
    }
}

/// `None` unless both CPU and memory are measured.
fn part(name: String, stats: Stats) -> Option<Part> {
    let Stats { start_time, cpu, memory, swap } = stats;
    let cpu = cpu?;
    let usage = Usage {
        at: cpu.time.parse().ok()?,
        started: start_time.and_then(|time| time.parse().ok()),
        cpu_nanocores: cpu.usage_nano_cores?,
        memory_bytes: memory?.working_set_bytes?,
        swap_bytes: swap.and_then(|swap| swap.swap_usage_bytes),
    };
    Some(Part { name, usage })
}
