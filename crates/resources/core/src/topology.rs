//! Which NUMA nodes a container may use, so that its CPUs, memory and devices are near each other (docs/behaviour/topology-manager.md).
//!
//! Each provider (CPUs, memory, devices) suggests [`TopologyHint`]s for each resource that it gives out; the policy of the topology
//! manager merges them into one. Owns the merge, the policies and the order of hints and allocations in a pod; nothing is allocated
//! here.

pub mod align;
mod merge;
mod numa_info;
pub mod policy;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use model::topology::NumaMask;

pub use align::{HintProvider, compute_aligned_resources};
pub use policy::{Affinity, PolicyKind, Scope, TopologyPolicy, TopologyPolicyError};

/// NUMA nodes from which a resource can be given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TopologyHint {
    /// `None`: any node.
    pub nodes: Option<NumaMask>,
    /// No smaller number of nodes could ever have the requested amount.
    pub is_preferred: bool,
}

impl TopologyHint {
    /// What a provider without a preference suggests.
    pub const ANY: Self = Self { nodes: None, is_preferred: true };
    /// What stands for a resource that no combination of nodes can give.
    const IMPOSSIBLE: Self = Self { nodes: None, is_preferred: false };
}

/// The hints of a provider by resource. `None`: nodes do not matter to the resource. An empty list: no combination of nodes has the
/// requested amount. A provider without any resource has no preference.
pub type ProviderHints = BTreeMap<String, Option<Vec<TopologyHint>>>;
