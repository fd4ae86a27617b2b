//! Metrics of the CPU, memory and topology managers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use resources_core::cpus::CpuCounts;
use resources_core::pinned::{Attempts, Tally};
use stats_core::exposition::Kind;

use base_agent::metrics::{Counts, Family, Histograms, one};

/// Milliseconds.
const DURATION: &[f64] =
    &[0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4, 204.8, 409.6, 819.2];
const EXCLUSIVE: Family = Family::new(
    "kubelet_cpu_manager_exclusive_cpu_allocation_count",
    &[],
    "CPUs exclusively allocated to containers running on this node.",
);
const SHARED: Family = Family::new(
    "kubelet_cpu_manager_shared_pool_size_millicores",
    &[],
    "Shared CPU pool that the static policy keeps, in millicores; 0 with the policy none.",
);
const BY_NODE: Family = Family::new(
    "kubelet_cpu_manager_allocation_per_numa",
    &["numa_node"],
    "CPUs exclusively allocated to containers, by NUMA node.",
);
const CPU_REQUESTS: Family =
    Family::new("kubelet_cpu_manager_pinning_requests_total", &[], "CPU allocations that required pinning.");
const CPU_ERRORS: Family = Family::new(
    "kubelet_cpu_manager_pinning_errors_total",
    &[],
    "CPU allocations that required pinning and failed.",
);
const MEMORY_REQUESTS: Family = Family::new(
    "kubelet_memory_manager_pinning_requests_total",
    &[],
    "Memory allocations that required pinning.",
);
const MEMORY_ERRORS: Family = Family::new(
    "kubelet_memory_manager_pinning_errors_total",
    &[],
    "Memory allocations that required pinning and failed.",
);
const ADMISSIONS: Family = Family::new(
    "kubelet_topology_manager_admission_requests_total",
    &[],
    "Pods whose resources were to be aligned.",
);
const REFUSED: Family = Family::new(
    "kubelet_topology_manager_admission_errors_total",
    &[],
    "Pods whose resources could not be aligned.",
);
const TOOK: Family = Family::new(
    "kubelet_topology_manager_admission_duration_ms",
    &[],
    "Duration of the decision about the resources of a pod, in milliseconds.",
);
const ALIGNED: Family = Family::new(
    "kubelet_container_aligned_compute_resources_count",
    &["scope", "boundary"],
    "Allocations of aligned resources, by what is aligned and with what.",
);
const NOT_ALIGNED: Family = Family::new(
    "kubelet_container_aligned_compute_resources_failure_count",
    &["scope", "boundary"],
    "Allocations that failed because resources could not be aligned.",
);

const ALLOCATIONS: Family = Family::new(
    "resource_manager_allocations_total",
    &["resource_name", "source"],
    "Number of exclusive resource allocations performed by a resource manager.",
);
const ALLOCATION_ERRORS: Family = Family::new(
    "resource_manager_allocation_errors_total",
    &["resource_name", "source"],
    "Number of errors encountered during exclusive resource allocation.",
);
const ASSIGNMENTS: Family = Family::new(
    "resource_manager_container_assignments",
    &["resource_name", "assignment_type"],
    "Number of containers with a specific type of resource assignment.",
);

/// Attempts to allocate since the start.
#[derive(Debug, Default)]
struct Total {
    all: AtomicU64,
    failed: AtomicU64,
}

impl Total {
    fn add(&self, attempts: Attempts) {
        self.all.fetch_add(attempts.all, Ordering::Relaxed);
        self.failed.fetch_add(attempts.failed, Ordering::Relaxed);
    }

    fn write(&self, text: &mut String, all: Family, failed: Family) {
        number(text, Kind::Counter, all, self.all.load(Ordering::Relaxed));
        number(text, Kind::Counter, failed, self.failed.load(Ordering::Relaxed));
    }
}

#[derive(Debug)]
pub struct PinMetrics {
    cpus: Total,
    memory: Total,
    admissions: Total,
    took: Histograms,
    aligned: Counts,
    not_aligned: Counts,
    allocations: Counts,
    allocation_errors: Counts,
    assignments: Counts,
}

impl Default for PinMetrics {
    fn default() -> Self {
        Self {
            cpus: Total::default(),
            memory: Total::default(),
            admissions: Total::default(),
            took: Histograms::of_numbers(DURATION),
            aligned: Counts::default(),
            not_aligned: Counts::default(),
            allocations: Counts::default(),
            allocation_errors: Counts::default(),
            assignments: Counts::default(),
        }
    }
}

impl PinMetrics {
    /// What the admission of a pod has tried, and how long the decision took.
    pub fn decided(&self, tally: &Tally, took: Duration) {
        self.cpus.add(tally.cpus);
        self.memory.add(tally.memory);
        self.admissions.add(Attempts { all: 1, failed: tally.is_refused.into() });
        self.took.observe_number(&[], u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
        let assignments = &tally.assignments;
        for (counts, tried) in [
            (&self.aligned, &tally.aligned),
            (&self.not_aligned, &tally.not_aligned),
            (&self.allocations, &assignments.allocated),
            (&self.allocation_errors, &assignments.failed),
            (&self.assignments, &assignments.containers),
        ] {
            for ((first, second), count) in tried {
                counts.add_many(&[first, second], *count);
            }
        }
    }

    /// The topology manager has a policy: what it counts exists.
    pub fn alignment_exists(&self) {
        for counts in [&self.aligned, &self.not_aligned] {
            counts.set(&["container", "numa_node"], 0);
            counts.set(&["pod", "numa_node"], 0);
        }
    }

    /// The policy is `static`: what it counts exists.
    pub fn exclusive_cpus_exist(&self) {
        self.aligned.set(&["container", "physical_cpu"], 0);
        self.aligned.set(&["container", "uncore_cache"], 0);
        self.not_aligned.set(&["container", "physical_cpu"], 0);
    }

    /// `pod_level`: `PodLevelResourceManagers`.
    pub fn write(&self, text: &mut String, cpus: &CpuCounts, pod_level: bool) {
        number(text, Kind::Gauge, EXCLUSIVE, cpus.exclusive as u64);
        number(text, Kind::Gauge, SHARED, cpus.shared as u64 * 1000);
        let by_node = Counts::default();
        for (node, count) in &cpus.exclusive_by_node {
            by_node.set(&[&node.to_string()], *count as u64);
        }
        by_node.write(text, Kind::Gauge, BY_NODE);
        self.cpus.write(text, CPU_REQUESTS, CPU_ERRORS);
        self.memory.write(text, MEMORY_REQUESTS, MEMORY_ERRORS);
        self.admissions.write(text, ADMISSIONS, REFUSED);
        self.took.write(text, TOOK);
        self.aligned.write(text, Kind::Counter, ALIGNED);
        self.not_aligned.write(text, Kind::Counter, NOT_ALIGNED);
        if pod_level {
            self.allocations.write(text, Kind::Counter, ALLOCATIONS);
            self.allocation_errors.write(text, Kind::Counter, ALLOCATION_ERRORS);
            self.assignments.write(text, Kind::Counter, ASSIGNMENTS);
        }
    }
}

fn number(text: &mut String, kind: Kind, family: Family, value: u64) {
    one(text, family.name, kind, family.help, &[], value);
}
