//! Which NUMA nodes the memory and huge pages of a container come from (docs/behaviour/memory-manager.md).
//!
//! Owns the policy `Static`: the hints for the topology manager, the allocation, what is free on each node, and the format of
//! `memory_manager_state`. Writing the file and the cgroups is not done here. The policy `None` has no [`MemoryPolicy`]; of the
//! original's policies, `BestEffort` is for Windows only.

mod allocate;
pub mod checkpoint;
mod hints;
mod nodes;
mod pod_memory;
mod policy;
mod provider;
mod requests;
mod reserved;
mod reusable;
mod shared_pool;
mod state;
#[cfg(test)]
mod tests;
mod validate;

pub use nodes::{MemoryTable, NodeMap, NodeState};
pub use pod_memory::PodMemory;
pub use policy::{MemoryPolicy, MemoryPolicyError, PodLevelGates};
pub use reserved::{ReservedMemory, ReservedMemoryError, compute_reserved_memory};
pub use state::{Block, Blocks, MemoryState};
pub use validate::StateError;

use crate::rejection::Rejection;

/// The resource that is not huge pages.
const MEMORY: &str = "memory";

/// Bytes by resource: `memory`, `hugepages-2Mi`.
type Bytes = std::collections::BTreeMap<String, u64>;

fn is_memory(resource: &str) -> bool {
    resource == MEMORY || resource.starts_with("hugepages-")
}

/// Why a container or a pod gets no memory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum MemoryError {
    #[error("[memorymanager] failed to represent quantity as int64")]
    NotAnInteger,
    #[error(
        "[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available"
    )]
    NoDefault,
    #[error("[memorymanager] failed to find the default preferred hint")]
    DefaultNotPreferred,
    #[error("[memorymanager] failed to find NUMA nodes to extend the current topology hint")]
    NoExtension,
    #[error("[memorymanager] failed to find the extended preferred hint")]
    ExtensionNotPreferred,
    #[error("[memorymanager] preferred hint violates NUMA node allocation")]
    MixesGroups,
    #[error("pod rejected, pod has shared init containers but no {0} available for them")]
    NothingForInit(String),
    #[error(
        "pod rejected, sum of exclusive container {0} requests equals pod budget, leaving no memory for shared containers"
    )]
    NothingShared(String),
}

impl MemoryError {
    fn rejection(&self) -> Rejection {
        match self {
            Self::NothingForInit(_) | Self::NothingShared(_) => {
                Rejection { reason: "EmptyPodSharedPoolError".into(), message: self.to_string() }
            }
            Self::NotAnInteger
            | Self::NoDefault
            | Self::DefaultNotPreferred
            | Self::NoExtension
            | Self::ExtensionNotPreferred
            | Self::MixesGroups => Rejection {
                reason: "UnexpectedAdmissionError".into(),
                message: format!("Allocate failed due to {self}, which is unexpected"),
            },
        }
    }
}
