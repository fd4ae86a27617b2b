//! Metrics of pod start-up, of images and containers of pods, and of node start-up.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use api_agent::metrics::ApiMetrics;
use base_agent::metrics::{Counts, Family, Histogram, Metrics, write_plain};
use images_agent::metrics::ImageMetrics;
use model::{ContainerKind, ContainerObservation};
use stats_core::exposition::{DEFAULT_BUCKETS, Kind, Value, family, line};
use volumes_agent::metrics::VolumeMetrics;

use super::kubelet::{CONTAINER_TYPES, POD_START, container_type};

/// Durations of the start-up of a node that was new to its cluster, from boot to ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeStart {
    /// From boot to the start of this process.
    pub(crate) pre_kubelet: Duration,
    /// From there to the first attempt to register.
    pub(crate) pre_registration: Duration,
    /// From there to the creation of the Node.
    pub(crate) registration: Duration,
    /// From there to the Node being ready.
    pub(crate) post_registration: Duration,
}

/// Start-up of a pod from the API, from its creation until the API has a status with all containers running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PodStart {
    pub(crate) since_created: Duration,
    /// Without image pulls and init containers; `None` for stateful pods, whose volumes' speed does not depend on the kubelet.
    pub(crate) own_part: Option<Duration>,
    pub(crate) has_own_network: bool,
}

#[derive(Debug)]
pub(crate) struct PodMetrics {
    start_total: Histogram,
    start_own_part: Histogram,
    /// Start-up of the first pod with its own network namespace, in nanoseconds.
    first_with_network: OnceLock<u64>,
    inspected: Histogram,
    terminated: Counts,
    preemptions: Counts,
    image_volumes: AtomicU64,
    image_volumes_mounted: AtomicU64,
    image_volume_errors: AtomicU64,
    /// Pods whose worker knows them from the runtime only.
    runtime_only: AtomicU64,
    node_start: OnceLock<NodeStart>,
}

impl Default for PodMetrics {
    fn default() -> Self {
        Self {
            start_total: Histogram::new(POD_START),
            start_own_part: Histogram::new(POD_START),
            first_with_network: OnceLock::new(),
            inspected: Histogram::new(DEFAULT_BUCKETS),
            terminated: Counts::default(),
            preemptions: Counts::default(),
            image_volumes: AtomicU64::default(),
            image_volumes_mounted: AtomicU64::default(),
            image_volume_errors: AtomicU64::default(),
            runtime_only: AtomicU64::default(),
            node_start: OnceLock::new(),
        }
    }
}

impl PodMetrics {
    /// The API has a status with all containers of the pod running.
    pub(crate) fn runs(&self, start: PodStart) {
        self.start_total.observe(start.since_created);
        if let Some(own_part) = start.own_part {
            self.start_own_part.observe(own_part);
        }
        if start.has_own_network {
            let nanoseconds = u64::try_from(start.since_created.as_nanos()).unwrap_or(u64::MAX);
            // Only the first counts.
            let _ = self.first_with_network.set(nanoseconds);
        }
    }

    /// A pod was inspected.
    pub(crate) fn inspected(&self, took: Duration) {
        self.inspected.observe(took);
    }

    /// A container has ended.
    pub(crate) fn terminated(&self, kind: ContainerKind, ended: &ContainerObservation) {
        let code = ended.exit_code.to_string();
        self.terminated.add(&[CONTAINER_TYPES[container_type(kind)], &code, &ended.reason]);
    }

    /// Pods were preempted for a critical pod, because the node lacks `resource`.
    pub(crate) fn preempted(&self, pods: usize, resource: &str) {
        for _ in 0..pods {
            self.preemptions.add(&[resource]);
        }
    }

    /// A container with this many image volumes is about to be created.
    pub(crate) fn image_volumes_requested(&self, count: usize) {
        self.image_volumes.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// The container was created with its image volumes, or its creation failed.
    pub(crate) fn image_volumes_created(&self, count: usize, is_ok: bool) {
        let counter = if is_ok { &self.image_volumes_mounted } else { &self.image_volume_errors };
        counter.fetch_add(count as u64, Ordering::Relaxed);
    }

    pub(crate) fn set_runtime_only(&self, count: usize) {
        self.runtime_only.store(count as u64, Ordering::Relaxed);
    }

    pub(crate) fn runtime_only(&self) -> u64 {
        self.runtime_only.load(Ordering::Relaxed)
    }

    /// The node is ready for the first time. Later calls have no effect.
    pub(crate) fn node_ready(&self, start: NodeStart) {
        let _ = self.node_start.set(start);
    }

    /// With the families of others that have always stood between them; `metrics` has those.
    pub(crate) fn write(&self, text: &mut String, metrics: &Metrics) {
        let plain = [
            (
                "kubelet_pod_start_total_duration_seconds",
                "Duration in seconds from the creation of a pod in the API until its status in the API has all containers running.",
                &self.start_total,
            ),
            (
                "kubelet_pod_start_sli_duration_seconds",
                "Duration in seconds to start a stateless pod, excluding time to pull images and run init containers, until its status in the API has all containers running.",
                &self.start_own_part,
            ),
        ];
        write_plain(text, &plain);
        metrics.get::<ApiMetrics>().write_status_sync(text);
        let plain = [(
            "kubelet_pleg_pod_relist_duration_seconds",
            "Duration in seconds of the inspection of one pod.",
            &self.inspected,
        )];
        write_plain(text, &plain);
        if let Some(nanoseconds) = self.first_with_network.get() {
            let name = "kubelet_first_network_pod_start_sli_duration_seconds";
            let help = "Duration in seconds to start the first pod with its own network namespace, from its creation until it was running.";
            family(text, name, Kind::Gauge, help);
            line(text, name, &[], Value::Nanoseconds(*nanoseconds), None);
        }
        metrics.get::<ImageMetrics>().write_pulls(text);
        let name = "kubelet_terminated_containers_total";
        let of = Family::new(
            name,
            &["container_type", "exit_code", "reason"],
            "Number of terminated containers, by type, exit code and reason.",
        );
        self.terminated.write(text, Kind::Counter, of);
        let plain = [
            (
                "kubelet_image_volume_requested_total",
                "Number of requested image volumes.",
                &self.image_volumes,
            ),
            (
                "kubelet_image_volume_mounted_succeed_total",
                "Number of image volumes that were mounted.",
                &self.image_volumes_mounted,
            ),
            (
                "kubelet_image_volume_mounted_errors_total",
                "Number of image volumes that could not be mounted.",
                &self.image_volume_errors,
            ),
        ];
        for (name, help, counter) in plain {
            family(text, name, Kind::Counter, help);
            line(text, name, &[], Value::Integer(counter.load(Ordering::Relaxed)), None);
        }
        let name = "kubelet_preemptions";
        let of = Family::new(
            name,
            &["preemption_signal"],
            "Number of pods preempted for a critical pod, by resource that the node lacked.",
        );
        self.preemptions.write(text, Kind::Counter, of);
        metrics.get::<VolumeMetrics>().write_measured(text);
        self.write_node_start(text);
    }

    fn write_node_start(&self, text: &mut String) {
        let Some(start) = self.node_start.get() else { return };
        let NodeStart { pre_kubelet, pre_registration, registration, post_registration } = *start;
        let whole = pre_kubelet + pre_registration + registration + post_registration;
        for (part, help, took) in [
            ("pre_kubelet_", "Duration in seconds of node start-up before the kubelet started.", pre_kubelet),
            (
                "pre_registration_",
                "Duration in seconds from the start of the kubelet to its first attempt to register the node.",
                pre_registration,
            ),
            ("registration_", "Duration in seconds of the registration of the node.", registration),
            (
                "post_registration_",
                "Duration in seconds from the registration of the node until it was ready.",
                post_registration,
            ),
            ("", "Duration in seconds of node start-up in total, until the node was ready.", whole),
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
        metrics.write(&mut text, &Metrics::default());
        text
    }

    #[test]
    fn only_the_first_pod_with_its_own_network_sets_its_start_metric() {
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
    fn node_startup_durations_are_reported_for_a_new_node() {
        let metrics = PodMetrics::default();
        assert!(!written(&metrics).contains("node_startup"));
        let seconds = Duration::from_millis;
        metrics.node_ready(NodeStart {
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
