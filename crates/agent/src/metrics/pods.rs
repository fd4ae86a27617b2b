//! Numbers about single pods on their way: how long each part of it took, what ended, what the node needed to be ready.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kubelet_core::stats::exposition::{DEFAULT_BUCKETS, Kind, Value, family, line};
use model::{ContainerKind, ContainerObservation};

use super::histogram::write_plain;
use super::table::{Counts, Family, Histograms};
use super::{CONTAINER_TYPES, Histogram, POD_START, container_type};

/// Limits for how long a status takes into the API, in seconds.
const STATUS_SYNC: &[f64] = &[0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0];
/// Limits for pulls, in seconds.
const PULL: &[f64] = &[
    1.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0, 600.0, 900.0, 1200.0, 1800.0,
    2700.0, 3600.0,
];
/// Names of image sizes, each with the MiB from which on it is meant.
const IMAGE_SIZES: [(u64, &str); 12] = [
    (0, "0-10MB"),
    (10, "10MB-100MB"),
    (100, "100MB-500MB"),
    (500, "500MB-1GB"),
    (1 << 10, "1GB-5GB"),
    (5 << 10, "5GB-10GB"),
    (10 << 10, "10GB-20GB"),
    (20 << 10, "20GB-30GB"),
    (30 << 10, "30GB-40GB"),
    (40 << 10, "40GB-60GB"),
    (60 << 10, "60GB-100GB"),
    (100 << 10, "GT100GB"),
];

/// The way of a node that was new to its cluster, from power on to ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeStart {
    /// From power on to the start of this process.
    pub(crate) pre_kubelet: Duration,
    /// From there to the first try to register.
    pub(crate) pre_registration: Duration,
    /// From there to the Node's being made.
    pub(crate) registration: Duration,
    /// From there to its being ready.
    pub(crate) post_registration: Duration,
}

/// The way of a pod of the API from its creation to the API's knowing that it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PodStart {
    pub(crate) since_created: Duration,
    /// Without pulls and init containers; `None` for pods with volumes whose speed is not the kubelet's.
    pub(crate) own_part: Option<Duration>,
    pub(crate) has_own_network: bool,
}

#[derive(Debug)]
pub(crate) struct PodMetrics {
    start_total: Histogram,
    start_own_part: Histogram,
    /// Nanoseconds of the first pod with a network of its own.
    first_with_network: OnceLock<u64>,
    status_sync: Histogram,
    inspected: Histogram,
    pulls: Histograms,
    image_requests: Counts,
    terminated: Counts,
    preemptions: Counts,
    image_volumes: AtomicU64,
    image_volumes_shown: AtomicU64,
    image_volume_errors: AtomicU64,
    /// Pods whose worker knows them from the runtime only.
    runtime_only: AtomicU64,
    volume_walks: Histograms,
    node_start: OnceLock<NodeStart>,
}

impl Default for PodMetrics {
    fn default() -> Self {
        Self {
            start_total: Histogram::new(POD_START),
            start_own_part: Histogram::new(POD_START),
            first_with_network: OnceLock::new(),
            status_sync: Histogram::new(STATUS_SYNC),
            inspected: Histogram::new(DEFAULT_BUCKETS),
            pulls: Histograms::new(PULL),
            image_requests: Counts::default(),
            terminated: Counts::default(),
            preemptions: Counts::default(),
            image_volumes: AtomicU64::default(),
            image_volumes_shown: AtomicU64::default(),
            image_volume_errors: AtomicU64::default(),
            runtime_only: AtomicU64::default(),
            volume_walks: Histograms::new(DEFAULT_BUCKETS),
            node_start: OnceLock::new(),
        }
    }
}

impl PodMetrics {
    /// The API knows that a pod runs.
    pub(crate) fn runs(&self, start: PodStart) {
        self.start_total.observe(start.since_created);
        if let Some(own_part) = start.own_part {
            self.start_own_part.observe(own_part);
        }
        if start.has_own_network {
            let nanoseconds = u64::try_from(start.since_created.as_nanos()).unwrap_or(u64::MAX);
            // Of all others nothing is kept.
            let _ = self.first_with_network.set(nanoseconds);
        }
    }

    /// The API has what was to be said of a pod, so long after that was known.
    pub(crate) fn status_synced(&self, took: Duration) {
        self.status_sync.observe(took);
    }

    /// One pod was looked at.
    pub(crate) fn inspected(&self, took: Duration) {
        self.inspected.observe(took);
    }

    /// An image was pulled.
    pub(crate) fn pulled(&self, size_bytes: u64, took: Duration) {
        let size = size_bytes >> 20;
        let name = IMAGE_SIZES.iter().rev().find(|(from, _)| *from <= size).map_or("N/A", |(_, name)| name);
        self.pulls.observe(&[if size_bytes == 0 { "N/A" } else { name }], took);
    }

    /// A container wanted an image.
    pub(crate) fn image_asked(&self, policy: &'static str, present: Option<bool>, must_pull: Option<bool>) {
        let label = |known| match known {
            Some(true) => "true",
            Some(false) => "false",
            None => "unknown",
        };
        self.image_requests.add(&[label(present), policy, label(must_pull)]);
    }

    /// A container has ended.
    pub(crate) fn terminated(&self, kind: ContainerKind, ended: &ContainerObservation) {
        let code = ended.exit_code.to_string();
        self.terminated.add(&[CONTAINER_TYPES[container_type(kind)], &code, &ended.reason]);
    }

    /// So many pods make way for one that needs more of `resource` than there is.
    pub(crate) fn made_way(&self, pods: usize, resource: &str) {
        for _ in 0..pods {
            self.preemptions.add(&[resource]);
        }
    }

    /// A container that is to start mounts so many volumes that show images.
    pub(crate) fn image_volumes_asked(&self, count: usize) {
        self.image_volumes.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// It was created with them, or not.
    pub(crate) fn images_shown(&self, count: usize, is_ok: bool) {
        let counter = if is_ok { &self.image_volumes_shown } else { &self.image_volume_errors };
        counter.fetch_add(count as u64, Ordering::Relaxed);
    }

    pub(crate) fn set_runtime_only(&self, count: usize) {
        self.runtime_only.store(count as u64, Ordering::Relaxed);
    }

    pub(crate) fn runtime_only(&self) -> u64 {
        self.runtime_only.load(Ordering::Relaxed)
    }

    /// A volume was measured; `kind` is its directory: `kubernetes.io~empty-dir`.
    pub(crate) fn volume_measured(&self, kind: &str, took: Duration) {
        self.volume_walks.observe(&[&kind.replacen('~', "/", 1)], took);
    }

    /// The node is ready for the first time. Only the first word counts.
    pub(crate) fn node_is_ready(&self, start: NodeStart) {
        let _ = self.node_start.set(start);
    }

    pub(crate) fn write(&self, text: &mut String) {
        let plain = [
            (
                "kubelet_pod_start_total_duration_seconds",
                "From the creation of a pod in the API to the API's knowing that it runs.",
                &self.start_total,
            ),
            (
                "kubelet_pod_start_sli_duration_seconds",
                "The same without pulls and init containers, of pods with no volumes from elsewhere.",
                &self.start_own_part,
            ),
            (
                "kubelet_pod_status_sync_duration_seconds",
                "From a change of a pod's status to the API's having it.",
                &self.status_sync,
            ),
            ("kubelet_pleg_pod_relist_duration_seconds", "How long a look at one pod took.", &self.inspected),
        ];
        write_plain(text, &plain);
        if let Some(nanoseconds) = self.first_with_network.get() {
            let name = "kubelet_first_network_pod_start_sli_duration_seconds";
            let help = "From the creation of the first pod with a network of its own to its running.";
            family(text, name, Kind::Gauge, help);
            line(text, name, &[], Value::Nanoseconds(*nanoseconds), None);
        }
        let of = Family::new("kubelet_image_pull_duration_seconds", &["image_size_in_bytes"], "Pulls.");
        self.pulls.write(text, of);
        let name = "kubelet_image_manager_ensure_image_requests_total";
        let labels = &["present_locally", "pull_policy", "pull_required"];
        let of = Family::new(name, labels, "Containers that wanted an image.");
        self.image_requests.write(text, Kind::Counter, of);
        let name = "kubelet_terminated_containers_total";
        let of = Family::new(name, &["container_type", "exit_code", "reason"], "Containers that have ended.");
        self.terminated.write(text, Kind::Counter, of);
        let plain = [
            (
                "kubelet_image_volume_requested_total",
                "Image volumes that were asked for.",
                &self.image_volumes,
            ),
            (
                "kubelet_image_volume_mounted_succeed_total",
                "Those that were mounted.",
                &self.image_volumes_shown,
            ),
            ("kubelet_image_volume_mounted_errors_total", "Those that were not.", &self.image_volume_errors),
        ];
        for (name, help, counter) in plain {
            family(text, name, Kind::Counter, help);
            line(text, name, &[], Value::Integer(counter.load(Ordering::Relaxed)), None);
        }
        let name = "kubelet_preemptions";
        let of = Family::new(name, &["preemption_signal"], "Pods that made way for a critical one.");
        self.preemptions.write(text, Kind::Counter, of);
        let name = "kubelet_volume_metric_collection_duration_seconds";
        let of = Family::new(name, &["metric_source"], "How long it took to measure a volume.");
        self.volume_walks.write(text, of);
        self.write_node_start(text);
    }

    fn write_node_start(&self, text: &mut String) {
        let Some(start) = self.node_start.get() else { return };
        let NodeStart { pre_kubelet, pre_registration, registration, post_registration } = *start;
        let whole = pre_kubelet + pre_registration + registration + post_registration;
        for (part, help, took) in [
            ("pre_kubelet_", "From power on to the start of the kubelet.", pre_kubelet),
            ("pre_registration_", "From there to the first try to register.", pre_registration),
            ("registration_", "From there to being registered.", registration),
            ("post_registration_", "From there to being ready.", post_registration),
            ("", "From power on to being ready.", whole),
        ] {
            let name = format!("kubelet_node_startup_{part}duration_seconds");
            family(text, &name, Kind::Gauge, help);
            line(text, &name, &[], Value::Float(took.as_secs_f64()), None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(metrics: &PodMetrics) -> String {
        let mut text = String::new();
        metrics.write(&mut text);
        text
    }

    #[test]
    fn pulls_are_told_apart_by_the_size_of_what_came() {
        let metrics = PodMetrics::default();
        for bytes in [0, 1, (10 << 20) - 1, 10 << 20, 3 << 30, 200 << 30] {
            metrics.pulled(bytes, Duration::from_secs(7));
        }
        let text = written(&metrics);
        for (size, count) in [("N/A", 1), ("0-10MB", 2), ("10MB-100MB", 1), ("1GB-5GB", 1), ("GT100GB", 1)] {
            let line = format!(
                "kubelet_image_pull_duration_seconds_count{{image_size_in_bytes=\"{size}\"}} {count}\n"
            );
            assert!(text.contains(&line), "{line} in {text}");
        }
    }

    #[test]
    fn of_the_first_pod_with_a_network_the_time_is_kept_and_of_no_other() {
        let metrics = PodMetrics::default();
        let start = |seconds, has_own_network| PodStart {
            since_created: Duration::from_secs(seconds),
            own_part: Some(Duration::from_secs(1)),
            has_own_network,
        };
        metrics.runs(start(1, false));
        assert!(!written(&metrics).contains("first_network"));
        metrics.runs(start(30, true));
        metrics.runs(start(2, true));
        let text = written(&metrics);
        assert!(text.contains("\nkubelet_first_network_pod_start_sli_duration_seconds 30\n"), "{text}");
        assert!(text.contains("\nkubelet_pod_start_total_duration_seconds_sum 33\n"), "{text}");
        assert!(text.contains("\nkubelet_pod_start_sli_duration_seconds_sum 3\n"), "{text}");
    }

    #[test]
    fn a_node_that_was_new_tells_how_it_came_to_be_ready() {
        let metrics = PodMetrics::default();
        assert!(!written(&metrics).contains("node_startup"));
        let seconds = Duration::from_millis;
        metrics.node_is_ready(NodeStart {
            pre_kubelet: seconds(20_000),
            pre_registration: seconds(500),
            registration: seconds(250),
            post_registration: seconds(1000),
        });
        let text = written(&metrics);
        assert!(text.contains("\nkubelet_node_startup_registration_duration_seconds 0.25\n"), "{text}");
        assert!(text.contains("\nkubelet_node_startup_duration_seconds 21.75\n"), "{text}");
    }
}
