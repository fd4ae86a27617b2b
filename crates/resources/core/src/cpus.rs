//! The CPU manager: which container has CPUs of its own, and which CPUs the others share (docs/behaviour/cpu-manager.md).
//!
//! Everything is a pure function over the machine's topology, the policy and [`CpuState`]; the same input gives the same CPUs. It never
//! knows the ids of containers, and never changes a cgroup.

mod allocate;
mod assign;
mod checkpoint;
mod counts;
mod exclusive;
mod hints;
mod options;
mod pod_level;
mod policy;
mod quota;
mod reconcile;
mod state;
mod topology;

#[cfg(test)]
mod tests;

pub use allocate::{AllocatedCpus, CpuAllocationError};
pub use checkpoint::{CPU_STATE_FILE, CpuStateError, Migration, parse_cpu_state, write_cpu_state};
pub use counts::CpuCounts;
pub use exclusive::{exclusive_cpus_of_container, exclusive_cpus_of_pod};
pub use options::{CpuOptionError, CpuOptionGates, CpuOptions};
pub use pod_level::PodCpus;
pub use policy::{CpuPolicy, CpuPolicyError, CpuPolicySettings, StaticCpuPolicy};
pub use quota::{CpuIsolation, disables_quota_of_container, disables_quota_of_pod};
pub use reconcile::{ContainerCpuState, CpuUpdate, compute_cpu_updates};
pub use state::{CpuState, InvalidCpuState};
pub use topology::CpuTopology;
