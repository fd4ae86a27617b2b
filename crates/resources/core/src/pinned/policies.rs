//! The policies of the managers on this machine, from the configuration.

use config::{Features, KubeletConfiguration};
use model::cpu_set::CpuSet;
use model::topology::{MachineTopology, NumaMask};

use super::Pinned;
use crate::cpus::{CpuCounts, CpuOptionGates, CpuPolicy, CpuPolicyError, CpuPolicySettings, InvalidCpuState};
use crate::memory::{
    MemoryPolicy, MemoryPolicyError, PodLevelGates, ReservedMemoryError, StateError, compute_reserved_memory,
};
use crate::quantities::Amounts;
use crate::topology::{PolicyKind, Scope, TopologyPolicy, TopologyPolicyError};

/// What the policies depend on.
#[derive(Clone, Copy, Debug)]
pub struct PinSettings<'a> {
    pub config: &'a KubeletConfiguration,
    pub features: Features,
    /// What Node Allocatable reserves.
    pub reserved: &'a Amounts,
}

/// Why a manager does not start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PinPolicyError {
    #[error("failed to initialize cpu manager: {0}")]
    Cpus(#[from] CpuPolicyError),
    #[error("failed to initialize memory manager: {0}")]
    Reserved(#[from] ReservedMemoryError),
    #[error("failed to initialize memory manager: {0}")]
    Memory(#[from] MemoryPolicyError),
    #[error("failed to initialize topology manager: {0}")]
    Topology(#[from] TopologyPolicyError),
    #[error("start cpu manager error: {0}")]
    CpuState(#[from] InvalidCpuState),
    #[error("start memory manager error: {0}")]
    MemoryState(#[from] StateError),
}

/// The policies of the CPU, memory and topology managers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinPolicies {
    pub(super) cpus: CpuPolicy,
    /// `None`: the policy `None`.
    pub(super) memory: Option<MemoryPolicy>,
    pub(super) topology: TopologyPolicy,
    /// The NUMA nodes of the machine.
    pub(super) nodes: NumaMask,
    /// `PodLevelResourceManagers`.
    pub(super) has_pod_level_managers: bool,
    /// `DisableCPUQuotaWithExclusiveCPUs`.
    pub(super) disables_quota: bool,
}

impl Default for PinPolicies {
    /// No CPU and no memory is pinned.
    fn default() -> Self {
        Self {
            cpus: CpuPolicy::None,
            memory: None,
            topology: TopologyPolicy::none(),
            nodes: NumaMask::EMPTY,
            has_pod_level_managers: false,
            disables_quota: false,
        }
    }
}

impl PinPolicies {
    /// The configuration has a policy other than `none`, or options that need a check.
    #[must_use]
    pub fn are_configured(config: &KubeletConfiguration) -> bool {
        config.cpu_manager_policy != "none"
            || !config.cpu_manager_policy_options.is_empty()
            || config.memory_manager_policy != "None"
            || config.topology_manager_policy != "none"
    }

    /// Each container is aligned by itself, so that the devices of one matter for those after it.
    #[must_use]
    pub fn align_containers(&self) -> bool {
        self.topology.kind() != PolicyKind::None && self.topology.scope() == Scope::Container
    }

    /// # Errors
    /// The configuration does not fit the machine.
    pub fn of(settings: &PinSettings<'_>, machine: &MachineTopology) -> Result<Self, PinPolicyError> {
        let PinSettings { config, features, .. } = settings;
        let topology = TopologyPolicy::new(
            &config.topology_manager_policy,
            &config.topology_manager_scope,
            &config.topology_manager_policy_options,
            machine,
        )?;
        let has_pod_level_managers = features.pod_level_resource_managers && features.pod_level_resources;
        let cpus = cpu_policy(settings, machine, &topology, has_pod_level_managers)?;
        let gates = PodLevelGates {
            resources: features.pod_level_resources,
            managers: features.pod_level_resource_managers,
        };
        let memory = match config.memory_manager_policy.as_str() {
            MemoryPolicy::NAME => {
                let reserved = compute_reserved_memory(machine, settings.reserved, &config.reserved_memory)?;
                Some(MemoryPolicy::new(machine, &reserved, gates)?)
            }
            // Validation has refused every other name.
            _ => None,
        };
        Ok(Self {
            cpus,
            memory,
            topology,
            nodes: NumaMask::of(machine.numa_nodes.iter().map(|node| node.id)),
            has_pod_level_managers,
            disables_quota: features.disable_cpu_quota_with_exclusive_cpus,
        })
    }

    /// Nothing is decided by these policies.
    #[must_use]
    pub fn are_none(&self) -> bool {
        self.cpus == CpuPolicy::None && self.memory.is_none() && self.topology.kind() == PolicyKind::None
    }

    /// Numbers of CPUs; none without the policy `static`.
    #[must_use]
    pub fn cpu_counts(&self, pinned: &Pinned) -> CpuCounts {
        match &self.cpus {
            CpuPolicy::None => CpuCounts::default(),
            CpuPolicy::Static(policy) => policy.counts(&pinned.cpus),
        }
    }

    #[must_use]
    pub const fn cpus(&self) -> &CpuPolicy {
        &self.cpus
    }

    #[must_use]
    pub const fn memory(&self) -> Option<&MemoryPolicy> {
        self.memory.as_ref()
    }

    #[must_use]
    pub const fn topology(&self) -> &TopologyPolicy {
        &self.topology
    }

    #[must_use]
    pub const fn has_pod_level_managers(&self) -> bool {
        self.has_pod_level_managers
    }

    /// The state with which the kubelet starts, from that of an earlier one.
    ///
    /// # Errors
    /// It is not one of this machine and these policies.
    pub fn start(&self, state: Pinned) -> Result<Pinned, PinPolicyError> {
        let cpus = self.cpus.start(state.cpus)?;
        let memory = match &self.memory {
            Some(policy) => policy.restore(state.memory)?,
            None => state.memory,
        };
        Ok(Pinned { cpus, memory })
    }
}

fn cpu_policy(
    settings: &PinSettings<'_>,
    machine: &MachineTopology,
    topology: &TopologyPolicy,
    pod_level: bool,
) -> Result<CpuPolicy, CpuPolicyError> {
    let PinSettings { config, features, reserved } = settings;
    // Validation has checked the list.
    let reserved_cpus: CpuSet = config.reserved_system_cpus.parse().unwrap_or_default();
    let gates = CpuOptionGates {
        alpha: features.cpu_manager_policy_alpha_options,
        beta: features.cpu_manager_policy_beta_options,
    };
    let settings = CpuPolicySettings {
        policy: &config.cpu_manager_policy,
        options: &config.cpu_manager_policy_options,
        gates,
        reserved_cpus: &reserved_cpus,
        reserved: reserved.get("cpu").copied(),
        is_single_numa_node: topology.kind() == PolicyKind::SingleNumaNode,
        pod_level,
    };
    CpuPolicy::of(&settings, machine)
}
