//! The policies of the topology manager, their options and their scope.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use model::topology::MachineTopology;

use super::merge::{Merge, hints_of_resources};
use super::numa_info::NumaInfo;
use super::{ProviderHints, TopologyHint};

/// The number of NUMA nodes that is allowed unless an option raises it.
const DEFAULT_MAX_NODES: i64 = 8;
const PREFER_CLOSEST: &str = "prefer-closest-numa-nodes";
const MAX_ALLOWABLE: &str = "max-allowable-numa-nodes";

/// Which merged hints a pod is admitted with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyKind {
    /// Hints are not requested.
    None,
    /// Every one.
    BestEffort,
    /// Preferred ones.
    Restricted,
    /// Preferred ones of a single node.
    SingleNumaNode,
}

impl PolicyKind {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::BestEffort => "best-effort",
            Self::Restricted => "restricted",
            Self::SingleNumaNode => "single-numa-node",
        }
    }

    fn of(name: &str) -> Option<Self> {
        [Self::None, Self::BestEffort, Self::Restricted, Self::SingleNumaNode]
            .into_iter()
            .find(|kind| kind.name() == name)
    }
}

/// What is aligned: each container, or all containers of a pod together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Container,
    Pod,
}

impl Scope {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Container => "container",
            Self::Pod => "pod",
        }
    }
}

/// Why the topology manager does not start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopologyPolicyError {
    #[error("unknown Topology Manager Policy option: {0:?}")]
    UnknownOption(String),
    #[error("bad value for option {PREFER_CLOSEST:?}: strconv.ParseBool: parsing {0:?}: invalid syntax")]
    NotABool(String),
    #[error("unable to convert policy option to integer {MAX_ALLOWABLE:?}: strconv.Atoi: parsing {0:?}: {1}")]
    NotANumber(String, &'static str),
    #[error("the minimum value of {MAX_ALLOWABLE:?} should not be less than {DEFAULT_MAX_NODES}")]
    TooFewNodes,
    #[error("cannot discover NUMA topology: error getting NUMA distances from cadvisor")]
    NoDistances,
    #[error("unsupported on machines with more than {0} NUMA Nodes")]
    TooManyNodes(i64),
    #[error("unknown policy: {0:?}")]
    UnknownPolicy(String),
    #[error("unknown scope: {0:?}")]
    UnknownScope(String),
}

/// The options of the policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Options {
    prefers_closest: bool,
    max_nodes: i64,
}

impl Options {
    /// All options of 1.36 are stable, so that no feature gate hides one.
    fn parse(options: &BTreeMap<String, String>) -> Result<Self, TopologyPolicyError> {
        let mut parsed = Self { prefers_closest: false, max_nodes: DEFAULT_MAX_NODES };
        for (name, value) in options {
            match name.as_str() {
                PREFER_CLOSEST => parsed.prefers_closest = go_bool(value)?,
                MAX_ALLOWABLE => parsed.max_nodes = go_number(value)?,
                _ => return Err(TopologyPolicyError::UnknownOption(name.clone())),
            }
            if parsed.max_nodes < DEFAULT_MAX_NODES {
                return Err(TopologyPolicyError::TooFewNodes);
            }
        }
        Ok(parsed)
    }
}

/// What Go reads as a boolean.
fn go_bool(text: &str) -> Result<bool, TopologyPolicyError> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(TopologyPolicyError::NotABool(text.to_owned())),
    }
}

fn go_number(text: &str) -> Result<i64, TopologyPolicyError> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let why = if is_number { "value out of range" } else { "invalid syntax" };
    let number = text.parse().ok().filter(|_| is_number);
    number.ok_or_else(|| TopologyPolicyError::NotANumber(text.to_owned(), why))
}

/// The topology manager of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopologyPolicy {
    kind: PolicyKind,
    scope: Scope,
    numa: NumaInfo,
    prefers_closest: bool,
}

/// The result of merging hints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Affinity {
    /// Where the resources are to be allocated.
    pub hint: TopologyHint,
    pub is_admitted: bool,
}

impl TopologyPolicy {
    /// The policy `none`.
    #[must_use]
    pub fn none() -> Self {
        Self {
            kind: PolicyKind::None,
            scope: Scope::Container,
            numa: NumaInfo::default(),
            prefers_closest: false,
        }
    }

    /// From the configuration: the names of policy and scope, and the policy options, which count for the machine only under a
    /// policy that aligns.
    ///
    /// # Errors
    /// A name or an option is invalid, or the machine has too many NUMA nodes or reports no distances.
    pub fn new(
        policy: &str,
        scope: &str,
        options: &BTreeMap<String, String>,
        machine: &MachineTopology,
    ) -> Result<Self, TopologyPolicyError> {
        let kind = PolicyKind::of(policy);
        if kind == Some(PolicyKind::None) {
            return Ok(Self::none());
        }
        let Options { prefers_closest, max_nodes } = Options::parse(options)?;
        let nodes = &machine.numa_nodes;
        if prefers_closest && nodes.iter().any(|node| node.distances.is_empty()) {
            return Err(TopologyPolicyError::NoDistances);
        }
        let max_nodes = max_nodes.min(i64::from(u64::BITS));
        if i64::try_from(nodes.len()).is_ok_and(|count| count > max_nodes) {
            return Err(TopologyPolicyError::TooManyNodes(max_nodes));
        }
        let kind = kind.ok_or_else(|| TopologyPolicyError::UnknownPolicy(policy.to_owned()))?;
        let known = [Scope::Container, Scope::Pod].into_iter().find(|known| known.name() == scope);
        let scope = known.ok_or_else(|| TopologyPolicyError::UnknownScope(scope.to_owned()))?;
        Ok(Self { kind, scope, numa: NumaInfo::of(nodes), prefers_closest })
    }

    #[must_use]
    pub const fn kind(&self) -> PolicyKind {
        self.kind
    }

    #[must_use]
    pub const fn scope(&self) -> Scope {
        self.scope
    }

    /// An admitted pod or container has all its aligned resources on one NUMA node; the metrics of alignment count only these.
    #[must_use]
    pub fn guarantees_alignment(&self) -> bool {
        self.kind == PolicyKind::SingleNumaNode
    }

    /// Merges the hints of all providers.
    #[must_use]
    pub fn merge(&self, providers: &[ProviderHints]) -> Affinity {
        let hints = hints_of_resources(providers);
        let merge = Merge { numa: &self.numa, prefers_closest: self.prefers_closest };
        match self.kind {
            PolicyKind::None => Affinity { hint: TopologyHint::default(), is_admitted: true },
            PolicyKind::BestEffort => Affinity { hint: merge.best(&hints), is_admitted: true },
            PolicyKind::Restricted => {
                let hint = merge.best(&hints);
                Affinity { hint, is_admitted: hint.is_preferred }
            }
            PolicyKind::SingleNumaNode => {
                let mut hint = Merge { prefers_closest: false, ..merge }.best(&single_node(&hints));
                if hint.nodes == Some(self.numa.all()) {
                    hint.nodes = None;
                }
                Affinity { hint, is_admitted: hint.is_preferred }
            }
        }
    }
}

/// Without the hints that are not preferred or have several nodes.
fn single_node(hints: &[Vec<TopologyHint>]) -> Vec<Vec<TopologyHint>> {
    let is_single =
        |hint: &&TopologyHint| hint.is_preferred && hint.nodes.is_none_or(|nodes| nodes.count() == 1);
    hints.iter().map(|hints| hints.iter().filter(is_single).copied().collect()).collect()
}
