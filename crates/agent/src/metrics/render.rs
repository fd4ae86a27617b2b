//! `/metrics`: the kubelet's own metrics as Prometheus text, format 0.0.4.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use api_agent::metrics::ApiMetrics;
use base_agent::metrics::{Family, Histogram, Metrics, one, write_plain};
use config::{FeatureGates, Stage};
use kubelet_core::node::cgroup_driver::LOSING_SUPPORT_IN;
use model::{PodRef, PodUid};
use parking_lot::Mutex;
use resources_core::cpus::CpuCounts;
use stats_core::exposition::{Kind, Value, family, line};
use stats_core::process::{ProcessFacts, write_process};
use stats_core::sample::DiskSample;
use stats_core::volumes::write_disks;
use volumes_agent::metrics::VolumeMetrics;
use volumes_core::plan::VolumeCount;

use super::kubelet::{CONTAINER_STATES, CONTAINER_TYPES, KubeletMetrics, WORKER_PASSES};
use super::{
    CgroupMetrics, ClaimMetrics, DeviceMetrics, EvictionMetrics, ImageMetrics, PinMetrics, PluginMetrics,
    PodMetrics, RequestMetrics, ResizeMetrics, ShutdownMetrics,
};

/// Values that other tasks own, passed in for each scrape.
#[derive(Debug)]
pub(crate) struct ExternalMetrics<'a> {
    pub(crate) node_name: &'a str,
    pub(crate) is_cgroup_v2: bool,
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
    write_build(&mut text, from.gates);
    write_pods(&mut text, &own, &pods, from);
    write_starts(&mut text, &own);
    write_pleg(&mut text, &own);
    write_calls(&mut text, &own);
    metrics.get::<CgroupMetrics>().write(&mut text);
    write_costs(&mut text, &own);
    api.write_malformed_objects(&mut text);
    write_resource_managers(&mut text, &metrics.get::<PinMetrics>(), from);
    pods.write(&mut text, metrics);
    metrics.get::<RequestMetrics>().write(&mut text);
    api.write_calls(&mut text);
    metrics.get::<ImageMetrics>().render(&mut text);
    write_volumes(&mut text, &from.volumes);
    metrics.get::<VolumeMetrics>().render(&mut text);
    metrics.get::<EvictionMetrics>().render(&mut text);
    metrics.get::<ShutdownMetrics>().render(&mut text, from.gates);
    metrics.get::<DeviceMetrics>().render(&mut text);
    metrics.get::<ClaimMetrics>().render(&mut text);
    metrics.get::<ResizeMetrics>().render(&mut text);
    metrics.get::<PluginMetrics>().render(&mut text);
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

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

fn write_node(text: &mut String, from: &ExternalMetrics<'_>) {
    let labels = [("node", from.node_name)];
    one(text, "kubelet_node_name", Kind::Gauge, "The node's name; the value is always 1.", &labels, 1);
    let version = if from.is_cgroup_v2 { 2 } else { 1 };
    one(text, "kubelet_cgroup_version", Kind::Gauge, "cgroup version on the host (1 or 2).", &[], version);
    let labels = [("provider", "cadvisor")];
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
fn write_build(text: &mut String, gates: &FeatureGates) {
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
    let name = "kubernetes_feature_enabled";
    family(text, name, Kind::Gauge, "Feature gates: 1 if enabled, 0 if disabled.");
    for (gate, is_on) in gates.all() {
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
    by_label(text, name, "Number of pods that this node rejected, by reason.", "reason", &metrics.rejections);
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

fn by_label(text: &mut String, name: &str, help: &str, label: &str, table: &Mutex<BTreeMap<String, u64>>) {
    family(text, name, Kind::Counter, help);
    for (key, count) in &*table.lock() {
        line(text, name, &[(label, key)], Value::Integer(*count), None);
    }
}

fn write_starts(text: &mut String, metrics: &KubeletMetrics) {
    let plain = [
        ("kubelet_started_pods_total", "Number of attempts to start a pod sandbox.", &metrics.started_pods),
        (
            "kubelet_started_pods_errors_total",
            "Number of failed attempts to start a pod sandbox.",
            &metrics.started_pod_errors,
        ),
        (
            "kubelet_started_user_namespaced_pods_total",
            "Number of attempts to start a pod sandbox with its own user namespace.",
            &metrics.started_pods_with_own_users,
        ),
        (
            "kubelet_started_user_namespaced_pods_errors_total",
            "Number of failed attempts to start a pod sandbox with its own user namespace.",
            &metrics.started_pod_with_own_users_errors,
        ),
        (
            "kubelet_lifecycle_handler_http_fallbacks_total",
            "Number of HTTPS lifecycle handlers that succeeded only over plain HTTP.",
            &metrics.hook_fallbacks,
        ),
        (
            "kubelet_sleep_action_terminated_early_total",
            "Number of sleep handlers that ended early because the grace period ended.",
            &metrics.cut_sleeps,
        ),
    ];
    for (name, help, counter) in plain {
        one(text, name, Kind::Counter, help, &[], read(counter));
    }
    let name = "kubelet_started_containers_total";
    family(text, name, Kind::Counter, "Number of attempts to start a container, by type.");
    for (kind, count) in CONTAINER_TYPES.iter().zip(&metrics.started_containers) {
        line(text, name, &[("container_type", kind)], Value::Integer(read(count)), None);
    }
    let name = "kubelet_started_containers_errors_total";
    family(text, name, Kind::Counter, "Number of failed attempts to start a container, by type and reason.");
    for (key, count) in &*metrics.started_container_errors.lock() {
        let (kind, code) = key.split_once(' ').unwrap_or(("", key));
        line(text, name, &[("code", code), ("container_type", kind)], Value::Integer(*count), None);
    }
    let name = "kubelet_run_podsandbox_duration_seconds";
    family(text, name, Kind::Histogram, "Duration in seconds of RunPodSandbox calls, by runtime handler.");
    for (handler, took) in &*metrics.sandbox_took.lock() {
        took.write(text, name, &[("runtime_handler", handler)]);
    }
    let name = "kubelet_run_podsandbox_errors_total";
    by_label(
        text,
        name,
        "Number of failed RunPodSandbox calls, by runtime handler.",
        "runtime_handler",
        &metrics.sandbox_errors,
    );
    let name = "kubelet_pod_worker_duration_seconds";
    family(
        text,
        name,
        Kind::Histogram,
        "Duration in seconds of the sync of one pod, by operation type: create, update, sync or kill.",
    );
    for (pass, took) in WORKER_PASSES.iter().zip(&metrics.worker_passes) {
        took.write(text, name, &[("operation_type", pass)]);
    }
    let plain: [(&str, &str, &Histogram); 3] = [
        ("kubelet_containers_per_pod_count", "Number of containers per pod.", &metrics.containers_per_pod),
        (
            "kubelet_pod_worker_start_duration_seconds",
            "Duration in seconds from first seeing a pod to its first sync.",
            &metrics.worker_start,
        ),
        (
            "kubelet_pod_start_duration_seconds",
            "Duration in seconds from first seeing a pod until it is running.",
            &metrics.pod_start,
        ),
    ];
    write_plain(text, &plain);
}

fn write_pleg(text: &mut String, metrics: &KubeletMetrics) {
    let plain = [
        (
            "kubelet_pleg_relist_duration_seconds",
            "Duration in seconds of PLEG relists.",
            &metrics.relist_took,
        ),
        (
            "kubelet_pleg_relist_interval_seconds",
            "Interval in seconds between the starts of PLEG relists.",
            &metrics.relist_interval,
        ),
        (
            "kubelet_evented_pleg_connection_latency_seconds",
            "Duration in seconds until the runtime opened its stream of container events.",
            &metrics.hint_stream_took,
        ),
    ];
    write_plain(text, &plain);
    let name = "kubelet_pleg_last_seen_seconds";
    let help = "Time when the PLEG was last active: end of the last relist, in Unix seconds.";
    one(text, name, Kind::Gauge, help, &[], read(&metrics.relisted_at));
    let help = "Number of discarded PLEG events; always 0, because the next relist finds every change.";
    one(text, "kubelet_pleg_discard_events", Kind::Counter, help, &[], 0);
    let name = "kubelet_evented_pleg_connection_success_count";
    let help = "Number of times the runtime opened its stream of container events.";
    one(text, name, Kind::Counter, help, &[], read(&metrics.hint_streams));
    let name = "kubelet_evented_pleg_connection_error_count";
    let help = "Number of times the runtime failed to open its stream of container events.";
    one(text, name, Kind::Counter, help, &[], read(&metrics.hint_stream_errors));
}

const MALFORMED_ENTRIES: Family = Family::new(
    "kubelet_rs_runtime_entries_malformed_total",
    &["call"],
    "Number of malformed entries in answers of the container runtime that were left out, by call.",
);

fn write_calls(text: &mut String, metrics: &KubeletMetrics) {
    if metrics.runtime_loses_support.load(Ordering::Relaxed) {
        let labels = [("version", LOSING_SUPPORT_IN)];
        let help = "Set to 1 if the container runtime lacks an API that is required from the Kubernetes release in the label.";
        one(text, "kubelet_cri_losing_support", Kind::Gauge, help, &labels, 1);
    }
    let calls = metrics.calls.lock();
    let name = "kubelet_runtime_operations_duration_seconds";
    family(text, name, Kind::Histogram, "Duration in seconds of runtime operations, by operation type.");
    for (operation, calls) in &*calls {
        calls.took.write(text, name, &[("operation_type", operation)]);
    }
    let name = "kubelet_runtime_operations_total";
    family(text, name, Kind::Counter, "Number of runtime operations, by operation type.");
    for (operation, calls) in &*calls {
        line(text, name, &[("operation_type", operation)], Value::Integer(calls.took.count()), None);
    }
    let name = "kubelet_runtime_operations_errors_total";
    family(text, name, Kind::Counter, "Number of failed runtime operations, by operation type.");
    for (operation, calls) in calls.iter().filter(|(_, calls)| calls.failed > 0) {
        line(text, name, &[("operation_type", operation)], Value::Integer(calls.failed), None);
    }
    metrics.malformed_entries.write(text, Kind::Counter, MALFORMED_ENTRIES);
}

fn write_resource_managers(text: &mut String, pins: &PinMetrics, from: &ExternalMetrics<'_>) {
    let name = "kubelet_pod_watch_events_dropped_total";
    let help = "Events dropped for slow watchers of the pods API; it is not served.";
    one(text, name, Kind::Counter, help, &[], 0);
    pins.render(text, &from.cpus, from.has_pod_level_managers);
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

/// Metrics that the Go kubelet does not have: the cost of measuring.
fn write_costs(text: &mut String, metrics: &KubeletMetrics) {
    let name = "kubelet_rs_sampling_duration_seconds";
    family(text, name, Kind::Histogram, "Duration in seconds of samples of cgroups and of disks.");
    metrics.cgroup_samples.write(text, name, &[("what", "cgroups")]);
    metrics.disk_samples.write(text, name, &[("what", "disks")]);
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
