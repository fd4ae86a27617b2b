//! The metrics of pods, their containers, and of calls to the runtime.
//!
//! Owns the values; `render` writes them. A family without labels is one atomic; one with labels is a short table whose
//! keys come from fixed sets, so that the number of series is bounded.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use model::{ContainerKind, ContainerState};
use parking_lot::Mutex;
use ports::runtime::CallObserver;
use stats_core::exposition::DEFAULT_BUCKETS;
use stats_core::operations::operation_type;

use base_agent::metrics::{Counts, Histogram};

/// Buckets for the start of pods, in seconds.
pub(super) const POD_START: &[f64] = &[
    0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 20.0, 30.0, 45.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0,
    480.0, 600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0,
];
const CONTAINERS_PER_POD: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0];
/// Buckets for calls to the runtime, in seconds: each is 2.5 times the one before.
const RUNTIME_CALL: &[f64] = &[
    0.005,
    0.0125,
    0.031_25,
    0.078_125,
    0.195_312_5,
    0.488_281_25,
    1.220_703_125,
    3.051_757_812_5,
    7.629_394_531_25,
    19.073_486_328_125,
    47.683_715_820_312_5,
    119.209_289_550_781_25,
    298.023_223_876_953_1,
    745.058_059_692_382_8,
];
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
pub struct KubeletMetrics {
    pub(super) relist_took: Histogram,
    pub(super) relist_interval: Histogram,
    /// Seconds since 1970.
    pub(super) relisted_at: AtomicU64,
    pub(super) hint_streams: AtomicU64,
    pub(super) hint_stream_errors: AtomicU64,
    pub(super) hint_stream_took: Histogram,
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
    pub(super) runtime_loses_support: AtomicBool,
    pub(super) hook_fallbacks: AtomicU64,
    pub(super) cut_sleeps: AtomicU64,
    pub(super) calls: Mutex<BTreeMap<&'static str, Calls>>,
    /// By call.
    pub(super) malformed_entries: Counts,
    pub(super) cgroup_samples: Histogram,
    pub(super) disk_samples: Histogram,
}

#[derive(Debug)]
pub(super) struct Calls {
    pub(super) took: Histogram,
    pub(super) failed: u64,
}

pub(super) const CONTAINER_STATES: [&str; 4] = ["created", "running", "exited", "unknown"];
pub(super) const CONTAINER_TYPES: [&str; 3] = ["container", "init_container", "ephemeral_container"];
pub(super) const WORKER_PASSES: [&str; 4] = ["create", "update", "sync", "kill"];

impl Default for KubeletMetrics {
    fn default() -> Self {
        let usual = || Histogram::new(DEFAULT_BUCKETS);
        Self {
            relist_took: usual(),
            relist_interval: usual(),
            relisted_at: AtomicU64::default(),
            hint_streams: AtomicU64::default(),
            hint_stream_errors: AtomicU64::default(),
            hint_stream_took: usual(),
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
            runtime_loses_support: AtomicBool::default(),
            hook_fallbacks: AtomicU64::default(),
            cut_sleeps: AtomicU64::default(),
            calls: Mutex::default(),
            malformed_entries: Counts::default(),
            cgroup_samples: usual(),
            disk_samples: usual(),
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

fn one_more(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn count(table: &ByLabel, key: String) {
    let mut table = table.lock();
    let is_full = table.len() >= MAX_KEYS && !table.contains_key(&key);
    *table.entry(if is_full { "Other".to_owned() } else { key }).or_default() += 1;
}

impl KubeletMetrics {
    /// A relist has ended. `since_last` is from the beginning of the one before.
    pub(crate) fn relisted(&self, took: Duration, since_last: Option<Duration>, now: Timestamp) {
        self.relist_took.observe(took);
        if let Some(interval) = since_last {
            self.relist_interval.observe(interval);
        }
        self.relisted_at.store(u64::try_from(now.as_second()).unwrap_or(0), Ordering::Relaxed);
    }

    /// The runtime's stream of events was requested.
    pub(crate) fn hint_stream_requested(&self, took: Duration, is_ok: bool) {
        if is_ok {
            one_more(&self.hint_streams);
            self.hint_stream_took.observe(took);
        } else {
            one_more(&self.hint_stream_errors);
        }
    }

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

    /// The runtime is too old for a future release.
    pub(crate) fn runtime_loses_support(&self) {
        self.runtime_loses_support.store(true, Ordering::Relaxed);
    }

    /// An HTTPS handler succeeded only over plain HTTP.
    pub(crate) fn hook_fell_back(&self) {
        one_more(&self.hook_fallbacks);
    }

    /// A sleep handler was still sleeping when the grace period ended.
    pub(crate) fn sleep_was_cut(&self) {
        one_more(&self.cut_sleeps);
    }

    /// Duration of a sample of cgroups and procfs.
    pub(crate) fn cgroups_sampled(&self, took: Duration) {
        self.cgroup_samples.observe(took);
    }

    /// Duration of a sample of the disks.
    pub(crate) fn disks_sampled(&self, took: Duration) {
        self.disk_samples.observe(took);
    }
}

impl CallObserver for KubeletMetrics {
    fn called(&self, call: &'static str, took: Duration, is_ok: bool) {
        let mut calls = self.calls.lock();
        let new = || Calls { took: Histogram::new(RUNTIME_CALL), failed: 0 };
        let known = calls.entry(operation_type(call)).or_insert_with(new);
        known.took.observe(took);
        known.failed += u64::from(!is_ok);
    }

    fn entry_malformed(&self, call: &'static str) {
        self.malformed_entries.add(&[call]);
    }
}
