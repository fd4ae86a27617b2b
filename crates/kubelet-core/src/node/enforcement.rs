//! The limits that the node enforces on all pods together and on the reserved cgroups
//! (docs/behaviour/resources-and-qos.md). Hard eviction thresholds are not part of them: pods that come close to the node's
//! capacity are evicted, not throttled.

use std::collections::BTreeMap;

use config::KubeletConfiguration;
use model::Amount;
use resources_core::cgroup::convert::cpu_shares;
use resources_core::cgroup::numbers::CgroupNumbers;
use resources_core::cgroup::pod::hugepage_limits;
use resources_core::quantities::Quantities;
use resources_core::requests::Requests;

use crate::node::reserved_for_node;

/// Limits that are set at start, and again until that succeeds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Enforcement {
    /// For the cgroup of all pods.
    pub all_pods: CgroupNumbers,
    /// In this order.
    pub reserved: Vec<ReservedCgroup>,
}

/// A cgroup that must exist already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservedCgroup {
    /// `System` or `Kube`, as in messages.
    pub of: &'static str,
    /// As in the configuration.
    pub cgroup: String,
    pub numbers: CgroupNumbers,
}

/// Decides what is enforced, by `enforceNodeAllocatable`. `max_processes`: the kernel's limit of process IDs.
#[must_use]
pub fn compute_enforcement(
    config: &KubeletConfiguration,
    capacity: &Quantities,
    max_processes: Option<i64>,
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
    amounts.extend(max_processes.map(|max| ("pid".to_owned(), Amount::from_units(max))));
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

/// The limit of huge pages is set for each of these sizes: a size without an amount gets the limit 0.
fn numbers(amounts: &Requests, hugepage_sizes: &[String]) -> CgroupNumbers {
    let units = |name: &str| amounts.get(name).map(|amount| amount.units());
    CgroupNumbers {
        memory_limit: units("memory"),
        pids_limit: units("pid"),
        hugepage_limits: hugepage_limits(amounts, hugepage_sizes),
        ..compressible(amounts)
    }
}

/// Only resources that can be taken back at once.
fn compressible(amounts: &Requests) -> CgroupNumbers {
    let shares = amounts.get("cpu").map(|cpu| cpu_shares(cpu.milli()));
    CgroupNumbers { cpu_shares: shares, ..CgroupNumbers::default() }
}

/// Validation has checked the texts.
fn parsed(texts: &BTreeMap<String, String>) -> Requests {
    texts.iter().map(|(name, text)| (name.clone(), Amount::parse(text).unwrap_or(Amount::ZERO))).collect()
}

#[cfg(test)]
mod tests;
