//! The options of the static policy: their names, which gate each needs, and which exclude each other.

use std::collections::BTreeMap;

use super::topology::CpuTopology;

const FULL_PCPUS_ONLY: &str = "full-pcpus-only";
const DISTRIBUTE_CPUS_ACROSS_NUMA: &str = "distribute-cpus-across-numa";
const ALIGN_BY_SOCKET: &str = "align-by-socket";
const DISTRIBUTE_CPUS_ACROSS_CORES: &str = "distribute-cpus-across-cores";
const STRICT_CPU_RESERVATION: &str = "strict-cpu-reservation";
const PREFER_ALIGN_CPUS_BY_UNCORECACHE: &str = "prefer-align-cpus-by-uncorecache";

/// Pairs that cannot be used at the same time.
const EXCLUSIVE: [(&str, &str); 4] = [
    (FULL_PCPUS_ONLY, DISTRIBUTE_CPUS_ACROSS_CORES),
    (DISTRIBUTE_CPUS_ACROSS_NUMA, DISTRIBUTE_CPUS_ACROSS_CORES),
    (PREFER_ALIGN_CPUS_BY_UNCORECACHE, DISTRIBUTE_CPUS_ACROSS_CORES),
    (PREFER_ALIGN_CPUS_BY_UNCORECACHE, DISTRIBUTE_CPUS_ACROSS_NUMA),
];

/// The feature gates of options that are not generally available.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuOptionGates {
    /// `CPUManagerPolicyAlphaOptions`.
    pub alpha: bool,
    /// `CPUManagerPolicyBetaOptions`.
    pub beta: bool,
}

/// The options that are on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuOptions {
    /// Containers get whole cores, so that no two of them share one; other requests are refused.
    pub full_pcpus_only: bool,
    /// A request that needs several NUMA nodes takes the same number of CPUs from each.
    pub distribute_cpus_across_numa: bool,
    /// CPUs of one socket are as good as those of one NUMA node.
    pub align_by_socket: bool,
    /// Threads of different cores before those of the same.
    pub distribute_cpus_across_cores: bool,
    /// Reserved CPUs are not in the shared pool either.
    pub strict_cpu_reservation: bool,
    /// CPUs of one last-level cache if possible.
    pub prefer_align_cpus_by_uncorecache: bool,
}

/// Why the options of the static policy are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CpuOptionError {
    #[error("unknown CPU Manager Policy option: {0:?}")]
    Unknown(String),
    #[error("CPU Manager Policy Alpha-level Options not enabled, but option {0:?} provided")]
    Alpha(String),
    #[error("CPU Manager Policy Beta-level Options not enabled, but option {0:?} provided")]
    Beta(String),
    #[error("bad value for option {option:?}: strconv.ParseBool: parsing {value:?}: invalid syntax")]
    Value { option: String, value: String },
    #[error("static policy options {0} and {1} can not be used at the same time")]
    Exclusive(&'static str, &'static str),
    /// The Go kubelet spells the word like this.
    #[error(
        "Topolgy manager single-numa-node policy is incompatible with CPUManager {ALIGN_BY_SOCKET} policy option"
    )]
    SingleNumaNode,
    #[error(
        "Align by socket is not compatible with hardware where number of sockets are more than number of NUMA"
    )]
    MoreSocketsThanNumaNodes,
}

enum Maturity {
    Alpha,
    Beta,
    Stable,
}

fn maturity(option: &str) -> Option<Maturity> {
    match option {
        ALIGN_BY_SOCKET | DISTRIBUTE_CPUS_ACROSS_CORES => Some(Maturity::Alpha),
        DISTRIBUTE_CPUS_ACROSS_NUMA => Some(Maturity::Beta),
        FULL_PCPUS_ONLY | STRICT_CPU_RESERVATION | PREFER_ALIGN_CPUS_BY_UNCORECACHE => Some(Maturity::Stable),
        _ => None,
    }
}

impl CpuOptions {
    /// Reads `cpuManagerPolicyOptions`.
    ///
    /// # Errors
    /// An option is unknown, needs a gate that is off, is no boolean, or excludes another one.
    pub fn parse(texts: &BTreeMap<String, String>, gates: CpuOptionGates) -> Result<Self, CpuOptionError> {
        let mut options = Self::default();
        for (name, value) in texts {
            check_gate(name, gates)?;
            let is_on = parse_bool(value)
                .ok_or_else(|| CpuOptionError::Value { option: name.clone(), value: value.clone() })?;
            let Some(option) = options.option(name) else {
                return Err(CpuOptionError::Unknown(name.clone()));
            };
            *option = is_on;
        }
        for (one, other) in EXCLUSIVE {
            if options.is_on(one) && options.is_on(other) {
                return Err(CpuOptionError::Exclusive(one, other));
            }
        }
        Ok(options)
    }

    /// Whether the options can be used on this machine, with this policy of the topology manager.
    ///
    /// # Errors
    /// `align-by-socket` with the policy `single-numa-node`, or on a machine with more sockets than NUMA nodes.
    pub fn check(self, topology: &CpuTopology, is_single_numa_node: bool) -> Result<(), CpuOptionError> {
        if !self.align_by_socket {
            return Ok(());
        }
        if is_single_numa_node {
            return Err(CpuOptionError::SingleNumaNode);
        }
        if topology.sockets.len() > topology.numa_nodes.len() {
            return Err(CpuOptionError::MoreSocketsThanNumaNodes);
        }
        Ok(())
    }

    fn option(&mut self, name: &str) -> Option<&mut bool> {
        match name {
            FULL_PCPUS_ONLY => Some(&mut self.full_pcpus_only),
            DISTRIBUTE_CPUS_ACROSS_NUMA => Some(&mut self.distribute_cpus_across_numa),
            ALIGN_BY_SOCKET => Some(&mut self.align_by_socket),
            DISTRIBUTE_CPUS_ACROSS_CORES => Some(&mut self.distribute_cpus_across_cores),
            STRICT_CPU_RESERVATION => Some(&mut self.strict_cpu_reservation),
            PREFER_ALIGN_CPUS_BY_UNCORECACHE => Some(&mut self.prefer_align_cpus_by_uncorecache),
            _ => None,
        }
    }

    fn is_on(mut self, name: &str) -> bool {
        self.option(name).is_some_and(|option| *option)
    }
}

fn check_gate(option: &str, gates: CpuOptionGates) -> Result<(), CpuOptionError> {
    match maturity(option) {
        None => Err(CpuOptionError::Unknown(option.to_owned())),
        Some(Maturity::Alpha) if !gates.alpha => Err(CpuOptionError::Alpha(option.to_owned())),
        Some(Maturity::Beta) if !gates.beta => Err(CpuOptionError::Beta(option.to_owned())),
        Some(Maturity::Alpha | Maturity::Beta | Maturity::Stable) => Ok(()),
    }
}

/// As Go reads booleans.
fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}
