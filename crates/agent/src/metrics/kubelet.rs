//! The metrics of pods and their containers.
//!
//! Owns the values. A family without labels is one atomic; one with labels is a short table whose
//! keys come from fixed sets, so that the number of series is bounded.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use model::{ContainerKind, ContainerState};
use parking_lot::Mutex;
use stats_core::exposition::{DEFAULT_BUCKETS, Kind, Value, family, line};

use base_agent::metrics::{Histogram, one, write_plain};

/// Buckets for the start of pods, in seconds.
pub(super) const POD_START: &[f64] = &[
    0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 20.0, 30.0, 45.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0,
    480.0, 600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0,
];
const CONTAINERS_PER_POD: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0];
/// Reasons and handlers come from outside; beyond this number they are counted together.
const MAX_KEYS: usize = 50;

/// Counts of one family by one label.
pub(super) type ByLabel = Mutex<BTreeMap<String, u64>>;

/// The kind of a pod worker's pass, for the label `operation_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkerPass {
    Create,
    /// The pod has changed.
    Update,
    Sync,
    Kill,
}

#[derive(Debug)]
pub(crate) struct KubeletMetrics {
    /// By state, in the order of [`CONTAINER_STATES`].
    pub(super) containers: [AtomicU64; 4],
    pub(super) running_pods: AtomicU64,
    pub(super) desired_static_pods: AtomicU64,
    pub(super) desired_api_pods: AtomicU64,
    pub(super) restarted_static_pods: AtomicU64,
    pub(super) restarted_api_pods: AtomicU64,
    pub(super) started_pods: AtomicU64,
    pub(super) started_pod_errors: AtomicU64,
    pub(super) started_pods_with_own_users: AtomicU64,
    pub(super) started_pod_with_own_users_errors: AtomicU64,
    pub(super) sandbox_took: Mutex<BTreeMap<String, Histogram>>,
    pub(super) sandbox_errors: ByLabel,
    /// By kind, in the order of [`CONTAINER_TYPES`].
    pub(super) started_containers: [AtomicU64; 3],
    /// By kind and reason, separated by a space.
    pub(super) started_container_errors: ByLabel,
    pub(super) containers_per_pod: Histogram,
    pub(super) worker_passes: [Histogram; 4],
    pub(super) worker_start: Histogram,
    pub(super) pod_start: Histogram,
    pub(super) rejections: ByLabel,
    pub(super) orphaned_pods: AtomicU64,
    pub(super) hook_fallbacks: AtomicU64,
    pub(super) cut_sleeps: AtomicU64,
}

pub(super) const CONTAINER_STATES: [&str; 4] = ["created", "running", "exited", "unknown"];
pub(super) const CONTAINER_TYPES: [&str; 3] = ["container", "init_container", "ephemeral_container"];
const WORKER_PASSES: [&str; 4] = ["create", "update", "sync", "kill"];

impl Default for KubeletMetrics {
    fn default() -> Self {
        let usual = || Histogram::new(DEFAULT_BUCKETS);
        Self {
            containers: Default::default(),
            running_pods: AtomicU64::default(),
            desired_static_pods: AtomicU64::default(),
            desired_api_pods: AtomicU64::default(),
            restarted_static_pods: AtomicU64::default(),
            restarted_api_pods: AtomicU64::default(),
            started_pods: AtomicU64::default(),
            started_pod_errors: AtomicU64::default(),
            started_pods_with_own_users: AtomicU64::default(),
            started_pod_with_own_users_errors: AtomicU64::default(),
            sandbox_took: Mutex::default(),
            sandbox_errors: Mutex::default(),
            started_containers: Default::default(),
            started_container_errors: Mutex::default(),
            containers_per_pod: Histogram::of_numbers(CONTAINERS_PER_POD),
            worker_passes: [usual(), usual(), usual(), usual()],
            worker_start: usual(),
            pod_start: Histogram::new(POD_START),
            rejections: Mutex::default(),
            orphaned_pods: AtomicU64::default(),
            hook_fallbacks: AtomicU64::default(),
            cut_sleeps: AtomicU64::default(),
        }
    }
}

/// The index of a kind in [`CONTAINER_TYPES`].
pub(super) const fn container_type(kind: ContainerKind) -> usize {
    match kind {
        ContainerKind::Regular => 0,
        ContainerKind::Init | ContainerKind::Sidecar => 1,
        ContainerKind::Ephemeral => 2,
    }
}

pub(super) fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

pub(super) fn write_by_label(text: &mut String, name: &str, help: &str, label: &str, table: &ByLabel) {
    family(text, name, Kind::Counter, help);
    for (key, count) in &*table.lock() {
        line(text, name, &[(label, key)], Value::Integer(*count), None);
    }
}

fn one_more(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn count(table: &ByLabel, key: String) {
    let mut table = table.lock();
    let is_full = table.len() >= MAX_KEYS && !table.contains_key(&key);
    *table.entry(if is_full { "Other".to_owned() } else { key }).or_default() += 1;
}

impl KubeletMetrics {
    pub(crate) fn set_containers(&self, states: impl Iterator<Item = ContainerState>) {
        let mut counts = [0_u64; 4];
        for state in states {
            counts[match state {
                ContainerState::Created => 0,
                ContainerState::Running => 1,
                ContainerState::Exited => 2,
                ContainerState::Unknown => 3,
            }] += 1;
        }
        for (gauge, count) in self.containers.iter().zip(counts) {
            gauge.store(count, Ordering::Relaxed);
        }
    }

    pub(crate) fn set_desired(&self, from_manifests: usize, from_api: usize) {
        self.desired_static_pods.store(from_manifests as u64, Ordering::Relaxed);
        self.desired_api_pods.store(from_api as u64, Ordering::Relaxed);
    }

    pub(crate) fn desired(&self) -> usize {
        let both = [&self.desired_static_pods, &self.desired_api_pods];
        let all: u64 = both.iter().map(|count| count.load(Ordering::Relaxed)).sum();
        usize::try_from(all).unwrap_or(usize::MAX)
    }

    pub(crate) fn set_running(&self, count: usize) {
        self.running_pods.store(count as u64, Ordering::Relaxed);
    }

    /// A pod was removed and created again with the same UID.
    pub(crate) fn pod_restarted(&self, is_static: bool) {
        one_more(if is_static { &self.restarted_static_pods } else { &self.restarted_api_pods });
    }

    /// A sandbox was requested from the runtime.
    pub(crate) fn pod_started(&self, handler: &str, has_own_users: bool, took: Duration, is_ok: bool) {
        one_more(&self.started_pods);
        if has_own_users {
            one_more(&self.started_pods_with_own_users);
        }
        {
            let mut took_by_handler = self.sandbox_took.lock();
            let is_full = took_by_handler.len() >= MAX_KEYS && !took_by_handler.contains_key(handler);
            let key = if is_full { "Other" } else { handler };
            took_by_handler
                .entry(key.to_owned())
                .or_insert_with(|| Histogram::new(DEFAULT_BUCKETS))
                .observe(took);
        }
        if !is_ok {
            one_more(&self.started_pod_errors);
            count(&self.sandbox_errors, handler.to_owned());
            if has_own_users {
                one_more(&self.started_pod_with_own_users_errors);
            }
        }
    }

    /// The start of a container was attempted; `failure` is the reason if it failed.
    pub(crate) fn container_started(&self, kind: ContainerKind, failure: Option<&str>) {
        let index = container_type(kind);
        one_more(&self.started_containers[index]);
        if let Some(reason) = failure {
            count(&self.started_container_errors, format!("{} {reason}", CONTAINER_TYPES[index]));
        }
    }

    /// A pod was admitted with this many containers.
    pub(crate) fn pod_admitted(&self, containers: usize) {
        self.containers_per_pod.observe_number(containers as u64);
    }

    pub(crate) fn worker_passed(&self, pass: WorkerPass, took: Duration) {
        let index = match pass {
            WorkerPass::Create => 0,
            WorkerPass::Update => 1,
            WorkerPass::Sync => 2,
            WorkerPass::Kill => 3,
        };
        self.worker_passes[index].observe(took);
    }

    /// A pod's first pass began; `after` is the time since the pod was first seen.
    pub(crate) fn worker_started(&self, after: Duration) {
        self.worker_start.observe(after);
    }

    /// A pod is running; `since_seen` is the time since it was first seen.
    pub(crate) fn pod_running(&self, since_seen: Duration) {
        self.pod_start.observe(since_seen);
    }

    /// A pod was rejected.
    pub(crate) fn rejected(&self, reason: &str) {
        count(&self.rejections, reason.to_owned());
    }

    pub(crate) fn orphan_found(&self) {
        one_more(&self.orphaned_pods);
    }

    /// An HTTPS handler succeeded only over plain HTTP.
    pub(crate) fn hook_fell_back(&self) {
        one_more(&self.hook_fallbacks);
    }

    /// A sleep handler was still sleeping when the grace period ended.
    pub(crate) fn sleep_was_cut(&self) {
        one_more(&self.cut_sleeps);
    }

    /// Starts of pods and containers, and the work for each pod.
    pub(super) fn write_starts(&self, text: &mut String) {
        let plain = [
            ("kubelet_started_pods_total", "Number of attempts to start a pod sandbox.", &self.started_pods),
            (
                "kubelet_started_pods_errors_total",
                "Number of failed attempts to start a pod sandbox.",
                &self.started_pod_errors,
            ),
            (
                "kubelet_started_user_namespaced_pods_total",
                "Number of attempts to start a pod sandbox with its own user namespace.",
                &self.started_pods_with_own_users,
            ),
            (
                "kubelet_started_user_namespaced_pods_errors_total",
                "Number of failed attempts to start a pod sandbox with its own user namespace.",
                &self.started_pod_with_own_users_errors,
            ),
            (
                "kubelet_lifecycle_handler_http_fallbacks_total",
                "Number of HTTPS lifecycle handlers that succeeded only over plain HTTP.",
                &self.hook_fallbacks,
            ),
            (
                "kubelet_sleep_action_terminated_early_total",
                "Number of sleep handlers that ended early because the grace period ended.",
                &self.cut_sleeps,
            ),
        ];
        for (name, help, counter) in plain {
            one(text, name, Kind::Counter, help, &[], read(counter));
        }
        let name = "kubelet_started_containers_total";
        family(text, name, Kind::Counter, "Number of attempts to start a container, by type.");
        for (kind, count) in CONTAINER_TYPES.iter().zip(&self.started_containers) {
            line(text, name, &[("container_type", kind)], Value::Integer(read(count)), None);
        }
        let name = "kubelet_started_containers_errors_total";
        family(
            text,
            name,
            Kind::Counter,
            "Number of failed attempts to start a container, by type and reason.",
        );
        for (key, count) in &*self.started_container_errors.lock() {
            let (kind, code) = key.split_once(' ').unwrap_or(("", key));
            line(text, name, &[("code", code), ("container_type", kind)], Value::Integer(*count), None);
        }
        let name = "kubelet_run_podsandbox_duration_seconds";
        family(
            text,
            name,
            Kind::Histogram,
            "Duration in seconds of RunPodSandbox calls, by runtime handler.",
        );
        for (handler, took) in &*self.sandbox_took.lock() {
            took.write(text, name, &[("runtime_handler", handler)]);
        }
        let name = "kubelet_run_podsandbox_errors_total";
        write_by_label(
            text,
            name,
            "Number of failed RunPodSandbox calls, by runtime handler.",
            "runtime_handler",
            &self.sandbox_errors,
        );
        let name = "kubelet_pod_worker_duration_seconds";
        family(
            text,
            name,
            Kind::Histogram,
            "Duration in seconds of the sync of one pod, by operation type: create, update, sync or kill.",
        );
        for (pass, took) in WORKER_PASSES.iter().zip(&self.worker_passes) {
            took.write(text, name, &[("operation_type", pass)]);
        }
        let plain: [(&str, &str, &Histogram); 3] = [
            ("kubelet_containers_per_pod_count", "Number of containers per pod.", &self.containers_per_pod),
            (
                "kubelet_pod_worker_start_duration_seconds",
                "Duration in seconds from first seeing a pod to its first sync.",
                &self.worker_start,
            ),
            (
                "kubelet_pod_start_duration_seconds",
                "Duration in seconds from first seeing a pod until it is running.",
                &self.pod_start,
            ),
        ];
        write_plain(text, &plain);
    }
}
