//! The policy of the CPU manager: none, or static with its options and reserved CPUs.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use model::Amount;
use model::cpu_set::CpuSet;
use model::topology::MachineTopology;

use super::assign::assign;
use super::options::{CpuOptionError, CpuOptionGates, CpuOptions};
use super::state::{CpuState, InvalidCpuState};
use super::topology::CpuTopology;

/// What the configuration says about CPUs.
#[derive(Clone, Copy, Debug)]
pub struct CpuPolicySettings<'a> {
    /// `cpuManagerPolicy`.
    pub policy: &'a str,
    /// `cpuManagerPolicyOptions`.
    pub options: &'a BTreeMap<String, String>,
    pub gates: CpuOptionGates,
    /// `reservedSystemCPUs`; empty if not configured.
    pub reserved_cpus: &'a CpuSet,
    /// The CPU of `kubeReserved` and `systemReserved` together; `None` if neither has any.
    pub reserved: Option<Amount>,
    /// `topologyManagerPolicy` is `single-numa-node`.
    pub is_single_numa_node: bool,
    /// `PodLevelResourceManagers`, which needs `PodLevelResources`.
    pub pod_level: bool,
}

/// Why the CPU manager cannot start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CpuPolicyError {
    #[error("could not detect number of cpus")]
    NoCpus,
    #[error("unknown policy: \"{0}\"")]
    Unknown(String),
    #[error("new none policy error: None policy: received unsupported options={0}")]
    OptionsOfNone(String),
    #[error("[cpumanager] unable to determine reserved CPU resources for static policy")]
    ReservedUnknown,
    #[error(
        "[cpumanager] the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero"
    )]
    NothingReserved,
    #[error("new static policy error: {0}")]
    Options(#[from] CpuOptionError),
    #[error(
        "new static policy error: [cpumanager] unable to reserve the required amount of CPUs (size of {cpus} did not equal {count})"
    )]
    Reserved { cpus: CpuSet, count: usize },
    #[error(
        "new static policy error: [cpumanager] unable to build the reserved physical CPUs from the reserved set: unknown CPU ID: {0}"
    )]
    ReservedOffline(u32),
}

/// How CPUs are given to containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CpuPolicy {
    /// All containers share all CPUs.
    None,
    Static(Box<StaticCpuPolicy>),
}

/// Containers of Guaranteed pods that request whole CPUs get their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticCpuPolicy {
    pub(super) topology: CpuTopology,
    pub(super) options: CpuOptions,
    /// CPUs that no container has for its own.
    pub(super) reserved: CpuSet,
    /// The same with all threads of their cores.
    pub(super) reserved_cores: CpuSet,
    pub(super) pod_level: bool,
}

impl CpuPolicy {
    /// # Errors
    /// The configuration does not fit the machine.
    pub fn of(settings: &CpuPolicySettings<'_>, machine: &MachineTopology) -> Result<Self, CpuPolicyError> {
        if machine.processors.is_empty() {
            return Err(CpuPolicyError::NoCpus);
        }
        match settings.policy {
            "none" if settings.options.is_empty() => Ok(Self::None),
            "none" => Err(CpuPolicyError::OptionsOfNone(go_print(settings.options))),
            "static" => {
                let reserved = settings.reserved.ok_or(CpuPolicyError::ReservedUnknown)?;
                let count = usize::try_from(reserved.units()).unwrap_or_default();
                if count == 0 {
                    return Err(CpuPolicyError::NothingReserved);
                }
                Ok(Self::Static(Box::new(StaticCpuPolicy::of(settings, CpuTopology::of(machine), count)?)))
            }
            other => Err(CpuPolicyError::Unknown(other.to_owned())),
        }
    }

    /// The name in the configuration and in the state file.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Static(_) => "static",
        }
    }

    /// The state with which the kubelet starts, from that of an earlier one.
    ///
    /// # Errors
    /// The state is not one of this machine and policy.
    pub fn start(&self, state: CpuState) -> Result<CpuState, InvalidCpuState> {
        match self {
            Self::None => Ok(state),
            Self::Static(policy) => policy.start(state),
        }
    }

    /// CPUs that containers may have for their own.
    #[must_use]
    pub fn allocatable(&self) -> CpuSet {
        match self {
            Self::None => CpuSet::new(),
            Self::Static(policy) => policy.topology.cpus().difference(&policy.reserved),
        }
    }
}

impl StaticCpuPolicy {
    /// With `count` reserved CPUs: those of the settings, or those that a container of this size would get on the empty machine.
    pub(super) fn of(
        settings: &CpuPolicySettings<'_>,
        topology: CpuTopology,
        count: usize,
    ) -> Result<Self, CpuPolicyError> {
        let options = CpuOptions::parse(settings.options, settings.gates)?;
        options.check(&topology, settings.is_single_numa_node)?;
        let reserved = if settings.reserved_cpus.is_empty() {
            assign(&topology, options, topology.cpus(), count).unwrap_or_default()
        } else {
            settings.reserved_cpus.clone()
        };
        if reserved.len() != count {
            return Err(CpuPolicyError::Reserved { cpus: reserved, count });
        }
        if let Some(offline) = reserved.difference(topology.cpus()).first() {
            return Err(CpuPolicyError::ReservedOffline(offline));
        }
        let reserved_cores = topology.with_siblings(&reserved);
        Ok(Self { topology, options, reserved, reserved_cores, pod_level: settings.pod_level })
    }

    #[must_use]
    pub const fn topology(&self) -> &CpuTopology {
        &self.topology
    }

    /// `full-pcpus-only`.
    #[must_use]
    pub const fn gives_whole_cores(&self) -> bool {
        self.options.full_pcpus_only
    }

    #[must_use]
    pub const fn reserved(&self) -> &CpuSet {
        &self.reserved
    }

    pub(super) fn start(&self, state: CpuState) -> Result<CpuState, InvalidCpuState> {
        state.validated(self.topology.cpus(), &self.reserved, self.options)
    }

    /// CPUs of the shared pool that a container could have for its own.
    #[must_use]
    pub fn available(&self, state: &CpuState) -> CpuSet {
        state.default.difference(&self.reserved)
    }
}

/// As Go prints a map.
fn go_print(options: &BTreeMap<String, String>) -> String {
    let mut text = "map[".to_owned();
    for (at, (name, value)) in options.iter().enumerate() {
        let space = if at == 0 { "" } else { " " };
        // Writing to a string cannot fail.
        let _ = write!(text, "{space}{name}:{value}");
    }
    text.push(']');
    text
}
