//! What the node enforces on all pods together, and on the cgroups of its own (docs/behaviour/resources-and-qos.md). Hard
//! eviction thresholds do not count here: pods that come close to the end of what the node has are evicted, not throttled.

use std::collections::BTreeMap;

use config::KubeletConfiguration;
use model::Amount;

use crate::node::reserved_for_node;
use crate::resources::cgroup::convert::cpu_shares;
use crate::resources::cgroup::numbers::CgroupNumbers;
use crate::resources::cgroup::pod::hugepage_limits;
use crate::resources::quantities::Quantities;
use crate::resources::requests::Requests;

/// What is enforced at start, and again until it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Enforcement {
    /// For the cgroup of all pods.
    pub all_pods: CgroupNumbers,
    /// In this order.
    pub reserved: Vec<ReservedCgroup>,
}

/// A cgroup that must be there already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservedCgroup {
    /// `System` or `Kube`, as messages have it.
    pub of: &'static str,
    /// As the configuration names it.
    pub cgroup: String,
    pub numbers: CgroupNumbers,
}

/// Decides what is enforced, by `enforceNodeAllocatable`. `most_processes`: how many the kernel has numbers for.
#[must_use]
pub fn compute_enforcement(
    config: &KubeletConfiguration,
    capacity: &Quantities,
    most_processes: Option<i64>,
    hugepage_sizes: &[String],
) -> Enforcement {
    if !config.cgroups_per_qos {
        return Enforcement::default();
    }
    let wants = |name: &str| config.enforce_node_allocatable.iter().any(|wanted| wanted == name);
    let mut amounts: Requests = capacity
        .iter()
        .filter_map(|(name, quantity)| Some((name.clone(), Amount::of(quantity).ok()?)))
        .collect();
    amounts.extend(most_processes.map(|most| ("pid".to_owned(), Amount::from_units(most))));
    if wants("pods") {
        for (name, reserved) in reserved_for_node(config) {
            if let Some(amount) = amounts.get_mut(&name) {
                *amount = (*amount - reserved).max(Amount::ZERO);
            }
        }
    }
    let mut reserved = Vec::new();
    for (of, name, texts, cgroup) in [
        ("System", "system-reserved", &config.system_reserved, &config.system_reserved_cgroup),
        ("Kube", "kube-reserved", &config.kube_reserved, &config.kube_reserved_cgroup),
    ] {
        let amounts = parsed(texts);
        let whole = wants(name).then(|| numbers(&amounts, &[]));
        let compressible = wants(&format!("{name}-compressible")).then(|| compressible(&amounts));
        let numbers = whole.or(compressible);
        reserved.extend(numbers.map(|numbers| ReservedCgroup { of, cgroup: cgroup.clone(), numbers }));
    }
    Enforcement { all_pods: numbers(&amounts, hugepage_sizes), reserved }
}

/// Of huge pages those sizes: one that nothing is said of may not be used.
fn numbers(amounts: &Requests, hugepage_sizes: &[String]) -> CgroupNumbers {
    let units = |name: &str| amounts.get(name).map(|amount| amount.units());
    CgroupNumbers {
        memory_limit: units("memory"),
        pids_limit: units("pid"),
        hugepage_limits: hugepage_limits(amounts, hugepage_sizes),
        ..compressible(amounts)
    }
}

/// Only what can be taken back at once.
fn compressible(amounts: &Requests) -> CgroupNumbers {
    let shares = amounts.get("cpu").map(|cpu| cpu_shares(cpu.milli()));
    CgroupNumbers { cpu_shares: shares, ..CgroupNumbers::default() }
}

/// Validation has seen the texts.
fn parsed(texts: &BTreeMap<String, String>) -> Requests {
    texts.iter().map(|(name, text)| (name.clone(), Amount::parse(text).unwrap_or(Amount::ZERO))).collect()
}
