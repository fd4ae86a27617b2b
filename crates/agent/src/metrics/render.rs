//! `/metrics`: the kubelet's own metrics as Prometheus text, format 0.0.4.

use std::collections::BTreeMap;

use api_agent::metrics::ApiMetrics;
use base_agent::metrics::{Metrics, one};
use config::{FeatureGates, Stage};
use images_agent::metrics::ImageMetrics;
use model::{BuildInfo, PodRef, PodUid};
use resources_agent::metrics::{CgroupMetrics, ClaimMetrics, DeviceMetrics, PinMetrics};
use resources_core::cpus::CpuCounts;
use stats_agent::metrics::StatsMetrics;
use stats_core::exposition::{Kind, Value, family, line};
use stats_core::process::{ProcessFacts, write_process};
use stats_core::sample::DiskSample;
use stats_core::volumes::write_disks;
use volumes_agent::metrics::VolumeMetrics;
use volumes_core::plan::VolumeCount;

use super::kubelet::{CONTAINER_STATES, KubeletMetrics, read, write_by_label};
use super::{
    EvictionMetrics, PlegMetrics, PluginMetrics, PodMetrics, RequestMetrics, ResizeMetrics, RuntimeMetrics,
    ShutdownMetrics, WaitMetrics,
};

/// Values that other tasks own, passed in for each scrape.
#[derive(Debug)]
pub(crate) struct ExternalMetrics<'a> {
    pub(crate) node_name: &'a str,
    pub(crate) build: BuildInfo,
    pub(crate) is_cgroup_v2: bool,
    /// Of container metrics: `cadvisor` or `cri`.
    pub(crate) provider: &'static str,
    /// Pods that have not ended: static pods, and pods from the API.
    pub(crate) active_pods: (u64, u64),
    /// Static pods that have a mirror pod.
    pub(crate) mirror_pods: u64,
    pub(crate) ephemeral_containers: u64,
    pub(crate) volumes: BTreeMap<String, VolumeCount>,
    pub(crate) process: Option<ProcessFacts>,
    pub(crate) disks: Option<&'a DiskSample>,
    pub(crate) pods: &'a BTreeMap<PodUid, PodRef>,
    /// Number of pods by the state of their worker.
    pub(crate) working_pods: WorkingPods,
    pub(crate) gates: &'a FeatureGates,
    /// Bytes protected for Guaranteed and for Burstable pods; `None` with the gate `MemoryQoS` off.
    pub(crate) reserved_memory: Option<(u64, u64)>,
    pub(crate) cpus: CpuCounts,
    /// `PodLevelResourceManagers`.
    pub(crate) has_pod_level_managers: bool,
}

/// By what the worker does, whether the pod is still desired, and whether it is a static pod; the labels are
/// [`LIFECYCLES`], [`CONFIGS`] and [`STATIC`].
pub(crate) type WorkingPods = [[[u64; 2]; 2]; 3];

const LIFECYCLES: [&str; 3] = ["sync", "terminating", "terminated"];
const CONFIGS: [&str; 2] = ["desired", "orphan"];
const STATIC: [&str; 2] = ["", "true"];

/// Every family that has samples.
pub(crate) fn write(metrics: &Metrics, from: &ExternalMetrics<'_>) -> String {
    let mut text = String::with_capacity(16 << 10);
    let (own, api) = (metrics.get::<KubeletMetrics>(), metrics.get::<ApiMetrics>());
    let pods = metrics.get::<PodMetrics>();
    write_node(&mut text, from);
    write_build(&mut text, from);
    write_pods(&mut text, &own, &pods, from);
    own.write_starts(&mut text);
    metrics.get::<PlegMetrics>().write(&mut text);
    metrics.get::<RuntimeMetrics>().write(&mut text);
    metrics.get::<CgroupMetrics>().write(&mut text);
    metrics.get::<StatsMetrics>().write(&mut text);
    api.write_malformed_objects(&mut text);
    write_resource_managers(&mut text, &metrics.get::<PinMetrics>(), from);
    pods.write(&mut text, metrics);
    metrics.get::<WaitMetrics>().write(&mut text);
    metrics.get::<RequestMetrics>().write(&mut text);
    api.write_calls(&mut text);
    metrics.get::<ImageMetrics>().write(&mut text);
    write_volumes(&mut text, &from.volumes);
    metrics.get::<VolumeMetrics>().write(&mut text);
    metrics.get::<EvictionMetrics>().write(&mut text);
    metrics.get::<ShutdownMetrics>().write(&mut text, from.gates);
    metrics.get::<DeviceMetrics>().write(&mut text);
    metrics.get::<ClaimMetrics>().write(&mut text);
    metrics.get::<ResizeMetrics>().write(&mut text);
    metrics.get::<PluginMetrics>().write(&mut text);
    if let Some(disks) = from.disks {
        write_disks(&mut text, disks, from.pods);
    }
    if let Some(process) = &from.process {
        write_process(&mut text, process);
    }
    text
}

fn write_volumes(text: &mut String, volumes: &BTreeMap<String, VolumeCount>) {
    if volumes.is_empty() {
        return;
    }
    let name = "volume_manager_total_volumes";
    family(text, name, Kind::Gauge, "Number of desired and of mounted volumes of pods, by volume plugin.");
    for (plugin, count) in volumes {
        for (state, count) in
            [("actual_state_of_world", count.actual), ("desired_state_of_world", count.desired)]
        {
            line(text, name, &[("plugin_name", plugin), ("state", state)], Value::Integer(count), None);
        }
    }
}

fn write_node(text: &mut String, from: &ExternalMetrics<'_>) {
    let labels = [("node", from.node_name)];
    one(text, "kubelet_node_name", Kind::Gauge, "The node's name; the value is always 1.", &labels, 1);
    let version = if from.is_cgroup_v2 { 2 } else { 1 };
    one(text, "kubelet_cgroup_version", Kind::Gauge, "cgroup version on the host (1 or 2).", &[], version);
    let labels = [("provider", from.provider)];
    one(
        text,
        "kubelet_metrics_provider",
        Kind::Gauge,
        "The provider of container metrics in use; the value is always 1.",
        &labels,
        1,
    );
}

/// Version and feature gates.
fn write_build(text: &mut String, from: &ExternalMetrics<'_>) {
    let mut numbers = config::KUBERNETES_VERSION.trim_start_matches('v').split('.');
    let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    let platform =
        format!("linux/{}", std::env::consts::ARCH.replace("x86_64", "amd64").replace("aarch64", "arm64"));
    let labels = [
        ("build_date", ""),
        ("compiler", "rustc"),
        ("git_commit", ""),
        ("git_tree_state", ""),
        ("git_version", config::KUBERNETES_VERSION),
        ("go_version", ""),
        ("major", major),
        ("minor", minor),
        ("platform", &*platform),
    ];
    let help = "The Kubernetes version that this kubelet implements; the value is always 1. The labels about Go are empty.";
    one(text, "kubernetes_build_info", Kind::Gauge, help, &labels, 1);
    let BuildInfo { version, commit, date } = from.build;
    let labels = [("commit", commit), ("date", date), ("version", version)];
    let help = "The build of the kubelet that runs here; the value is always 1.";
    one(text, "kubelet_rs_build_info", Kind::Gauge, help, &labels, 1);
    let name = "kubernetes_feature_enabled";
    family(text, name, Kind::Gauge, "Feature gates: 1 if enabled, 0 if disabled.");
    for (gate, is_on) in from.gates.all() {
        let stage = match gate.stage {
            Stage::Alpha => "ALPHA",
            Stage::Beta => "BETA",
            Stage::Ga => "",
            Stage::Deprecated => "DEPRECATED",
        };
        let labels = [("name", gate.name), ("stage", stage)];
        line(text, name, &labels, Value::Integer(u64::from(is_on)), None);
    }
    for (name, help) in [
        ("disabled_metrics_total", "Number of disabled metrics; always 0, because none can be disabled."),
        ("hidden_metrics_total", "Number of hidden deprecated metrics; always 0, because none is hidden."),
    ] {
        one(text, name, Kind::Counter, help, &[], 0);
    }
}

/// Two samples: static pods, and pods from the API.
fn by_source(text: &mut String, name: &str, kind: Kind, help: &str, from_manifests: u64, from_api: u64) {
    family(text, name, kind, help);
    line(text, name, &[("static", "")], Value::Integer(from_api), None);
    line(text, name, &[("static", "true")], Value::Integer(from_manifests), None);
}

fn write_pods(text: &mut String, metrics: &KubeletMetrics, pods: &PodMetrics, from: &ExternalMetrics<'_>) {
    let help = "Number of pods that have a running sandbox.";
    one(text, "kubelet_running_pods", Kind::Gauge, help, &[], read(&metrics.running_pods));
    let name = "kubelet_running_containers";
    family(text, name, Kind::Gauge, "Number of containers in the runtime, by state.");
    for (state, count) in CONTAINER_STATES.iter().zip(&metrics.containers) {
        line(text, name, &[("container_state", state)], Value::Integer(read(count)), None);
    }
    by_source(
        text,
        "kubelet_desired_pods",
        Kind::Gauge,
        "Number of pods this node is instructed to run.",
        read(&metrics.desired_static_pods),
        read(&metrics.desired_api_pods),
    );
    let (static_pods, api_pods) = from.active_pods;
    by_source(
        text,
        "kubelet_active_pods",
        Kind::Gauge,
        "Number of pods that were admitted on this node and have not ended.",
        static_pods,
        api_pods,
    );
    write_working_pods(text, pods, from);
    let help = "Number of mirror pods of static pods that this kubelet tries to create.";
    one(text, "kubelet_mirror_pods", Kind::Gauge, help, &[], from.mirror_pods);
    let help = "Number of ephemeral containers in the pods of this node.";
    one(text, "kubelet_managed_ephemeral_containers", Kind::Gauge, help, &[], from.ephemeral_containers);
    let (static_pods, api_pods) = (read(&metrics.restarted_static_pods), read(&metrics.restarted_api_pods));
    let help = "Number of pods that were removed and created again with the same UID.";
    by_source(text, "kubelet_restarted_pods_total", Kind::Counter, help, static_pods, api_pods);
    let help = "Number of pods found in the container runtime that no source has.";
    let orphans = read(&metrics.orphaned_pods);
    one(text, "kubelet_orphaned_runtime_pods_total", Kind::Counter, help, &[], orphans);
    let name = "kubelet_admission_rejections_total";
    write_by_label(
        text,
        name,
        "Number of pods that this node rejected, by reason.",
        "reason",
        &metrics.rejections,
    );
}

fn write_working_pods(text: &mut String, pods: &PodMetrics, from: &ExternalMetrics<'_>) {
    let name = "kubelet_working_pods";
    family(
        text,
        name,
        Kind::Gauge,
        "Number of pods that have a worker, by lifecycle phase, whether the pod is desired, orphaned or known from the runtime only, and whether it is static.",
    );
    let mut sample = |config, lifecycle, is_static, count| {
        let labels = [("config", config), ("lifecycle", lifecycle), ("static", is_static)];
        line(text, name, &labels, Value::Integer(count), None);
    };
    for (lifecycle, counts) in LIFECYCLES.iter().zip(from.working_pods) {
        for (config, counts) in CONFIGS.iter().zip(counts) {
            for (is_static, count) in STATIC.iter().zip(counts) {
                sample(config, lifecycle, is_static, count);
            }
        }
        // Pods known from the runtime only are always terminating.
        let count = if *lifecycle == "terminating" { pods.runtime_only() } else { 0 };
        sample("runtime_only", lifecycle, "unknown", count);
    }
}

fn write_resource_managers(text: &mut String, pins: &PinMetrics, from: &ExternalMetrics<'_>) {
    pins.write(text, &from.cpus, from.has_pod_level_managers);
    write_memory_qos(text, from.reserved_memory);
}

fn write_memory_qos(text: &mut String, reserved: Option<(u64, u64)>) {
    let Some((min, low)) = reserved else { return };
    let name = "kubelet_memory_qos_node_memory_min_bytes";
    let help = "Memory that is never reclaimed from Guaranteed pods (memory.min), in bytes.";
    one(text, name, Kind::Gauge, help, &[], min);
    let name = "kubelet_memory_qos_node_memory_low_bytes";
    let help = "Memory that is reclaimed last from Burstable pods (memory.low), in bytes.";
    one(text, name, Kind::Gauge, help, &[], low);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_qos_node_memory_is_reported_only_with_the_gate() {
        let mut text = String::new();
        write_memory_qos(&mut text, None);
        assert_eq!(text, "");
        write_memory_qos(&mut text, Some((64, 32)));
        assert!(text.contains("\nkubelet_memory_qos_node_memory_min_bytes 64\n"), "{text}");
        assert!(text.contains("\nkubelet_memory_qos_node_memory_low_bytes 32\n"), "{text}");
    }
}
