//! The agent's own counters, in Prometheus text. Names and types are those of contract B.4.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use kubelet_core::cgroup_driver::LOSING_SUPPORT_IN;

use crate::certificates::CertificateFigures;
use crate::images::figures::ImageFigures;

/// Counters and gauges; each without labels is one atomic, so counting costs nothing worth measuring.
#[derive(Debug, Default)]
pub struct Metrics {
    relists: AtomicU64,
    relist_failures: AtomicU64,
    running_containers: AtomicU64,
    running_pods: AtomicU64,
    desired_pods: AtomicU64,
    started_pods: AtomicU64,
    started_pod_errors: AtomicU64,
    started_containers: AtomicU64,
    started_container_errors: AtomicU64,
    orphaned_pods: AtomicU64,
    runtime_loses_support: AtomicBool,
    hook_fallbacks: AtomicU64,
    cut_sleeps: AtomicU64,
    pub(crate) images: ImageFigures,
    /// They are shown beside these.
    pub certificates: CertificateFigures,
}

impl Metrics {
    pub(crate) fn relist(&self, is_ok: bool) {
        self.relists.fetch_add(1, Ordering::Relaxed);
        self.relist_failures.fetch_add(u64::from(!is_ok), Ordering::Relaxed);
    }

    pub(crate) fn running_containers(&self, count: usize) {
        self.running_containers.store(count as u64, Ordering::Relaxed);
    }

    pub(crate) fn set_desired(&self, count: usize) {
        self.desired_pods.store(count as u64, Ordering::Relaxed);
    }

    pub(crate) fn desired(&self) -> usize {
        usize::try_from(self.desired_pods.load(Ordering::Relaxed)).unwrap_or(usize::MAX)
    }

    pub(crate) fn set_running(&self, count: usize) {
        self.running_pods.store(count as u64, Ordering::Relaxed);
    }

    pub(crate) fn pod_started(&self, is_ok: bool) {
        self.started_pods.fetch_add(1, Ordering::Relaxed);
        self.started_pod_errors.fetch_add(u64::from(!is_ok), Ordering::Relaxed);
    }

    pub(crate) fn container_started(&self, is_ok: bool) {
        self.started_containers.fetch_add(1, Ordering::Relaxed);
        self.started_container_errors.fetch_add(u64::from(!is_ok), Ordering::Relaxed);
    }

    pub(crate) fn orphan_found(&self) {
        self.orphaned_pods.fetch_add(1, Ordering::Relaxed);
    }

    /// The runtime is too old for a coming release.
    pub(crate) fn runtime_loses_support(&self) {
        self.runtime_loses_support.store(true, Ordering::Relaxed);
    }

    /// A handler that was to be reached over TLS answered without.
    pub(crate) fn hook_fell_back(&self) {
        self.hook_fallbacks.fetch_add(1, Ordering::Relaxed);
    }

    /// A sleep handler was still sleeping when the grace period ended.
    pub(crate) fn sleep_was_cut(&self) {
        self.cut_sleeps.fetch_add(1, Ordering::Relaxed);
    }

    /// Prometheus text format 0.0.4.
    #[must_use]
    pub fn render(&self, node_name: &str) -> String {
        let mut text = String::with_capacity(2048);
        line(&mut text, "kubelet_node_name", "gauge", "The node's name; the count is always 1.");
        let _ = writeln!(text, "kubelet_node_name{{node={node_name:?}}} 1");
        let gauges = [
            ("kubelet_running_pods", &self.running_pods, "Pods that have a running sandbox."),
            ("kubelet_running_containers", &self.running_containers, "Containers that run now."),
            ("kubelet_desired_pods", &self.desired_pods, "Pods this node is asked to run."),
        ];
        for (name, value, help) in gauges {
            line(&mut text, name, "gauge", help);
            let _ = writeln!(text, "{name} {}", value.load(Ordering::Relaxed));
        }
        if self.runtime_loses_support.load(Ordering::Relaxed) {
            let name = "kubelet_cri_losing_support";
            line(&mut text, name, "gauge", "The release that will not work with this container runtime.");
            let _ = writeln!(text, "{name}{{version={LOSING_SUPPORT_IN:?}}} 1");
        }
        let counters = [
            ("kubelet_started_pods_total", &self.started_pods, "Pod sandboxes whose start was tried."),
            (
                "kubelet_started_pods_errors_total",
                &self.started_pod_errors,
                "Pod sandboxes whose start failed.",
            ),
            (
                "kubelet_started_containers_total",
                &self.started_containers,
                "Containers whose start was tried.",
            ),
            (
                "kubelet_started_containers_errors_total",
                &self.started_container_errors,
                "Containers whose start failed.",
            ),
            (
                "kubelet_orphaned_runtime_pods_total",
                &self.orphaned_pods,
                "Pods found running that nobody asked for.",
            ),
            (
                "kubelet_lifecycle_handler_http_fallbacks_total",
                &self.hook_fallbacks,
                "HTTPS lifecycle handlers that only worked over plain HTTP.",
            ),
            (
                "kubelet_sleep_action_terminated_early_total",
                &self.cut_sleeps,
                "Sleep handlers that the end of the grace period cut short.",
            ),
        ];
        for (name, value, help) in counters {
            line(&mut text, name, "counter", help);
            let _ = writeln!(text, "{name} {}", value.load(Ordering::Relaxed));
        }
        self.images.render(&mut text);
        text
    }
}

fn line(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}
