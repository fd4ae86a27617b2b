//! Capacity of a node and what pods may use of it (docs/behaviour/node-status.md): capacity less what is reserved and what
//! hard eviction thresholds keep free. Never measures anything.

use std::collections::BTreeMap;

use config::KubeletConfiguration;
use model::Amount;
use model::cpu_set::CpuSet;
use model::k8s::Quantity;
use model::quantity::binary_text;
use resources_core::quantities::Amounts;
use resources_core::quantities::DeviceAmounts;
use resources_core::quantities::Quantities;
use resources_core::quantities::is_extended_resource;

use super::NodeMachine;
use crate::node::eviction::threshold::Level;

const HUGEPAGES: &str = "hugepages-";
/// Resources of every node.
const NATIVE: [&str; 4] = ["cpu", "memory", "pods", "ephemeral-storage"];

/// The capacity. Extended resources that other clients wrote to the Node stay.
#[must_use]
pub fn compute_capacity(
    config: &KubeletConfiguration,
    machine: &NodeMachine,
    devices: &BTreeMap<String, DeviceAmounts>,
    existing: &Quantities,
) -> Quantities {
    let mut capacity: Quantities = existing
        .iter()
        .filter(|(name, _)| is_extended_resource(name))
        .map(|(n, q)| (n.clone(), q.clone()))
        .collect();
    capacity.insert("cpu".to_owned(), Quantity(machine.cpus.to_string()));
    capacity.insert("memory".to_owned(), binary(i128::from(machine.memory_bytes)));
    capacity.insert("pods".to_owned(), Quantity(max_pods(config, machine).to_string()));
    if let Some(bytes) = machine.ephemeral_storage_bytes.filter(|_| config.local_storage_capacity_isolation) {
        capacity.insert("ephemeral-storage".to_owned(), binary(i128::from(bytes)));
    }
    for (size, bytes) in &machine.hugepages {
        capacity.insert(format!("{HUGEPAGES}{size}"), binary(i128::from(*bytes)));
    }
    for (name, amounts) in devices {
        capacity.insert(name.clone(), Quantity(amounts.capacity.to_string()));
    }
    capacity
}

/// The maximum number of pods.
fn max_pods(config: &KubeletConfiguration, machine: &NodeMachine) -> i64 {
    let max = i64::from(config.max_pods);
    if config.pods_per_core <= 0 {
        return max;
    }
    (i64::from(config.pods_per_core) * i64::from(machine.cpus)).min(max)
}

/// What pods may use: capacity less `reserved`; memory also less huge pages; of devices, the healthy ones; never below
/// zero.
#[must_use]
pub fn compute_allocatable(
    capacity: &Quantities,
    reserved: &Amounts,
    devices: &BTreeMap<String, DeviceAmounts>,
) -> Quantities {
    let amount = |quantity: &Quantity| Amount::of(quantity).unwrap_or(Amount::ZERO);
    let hugepages: Amount =
        capacity.iter().filter(|(name, _)| name.starts_with(HUGEPAGES)).map(|(_, q)| amount(q)).sum();
    let mut allocatable = Quantities::new();
    for (name, quantity) in capacity {
        let mut left = amount(quantity) - reserved.get(name).copied().unwrap_or(Amount::ZERO);
        if name == "memory" {
            left = left.max(Amount::ZERO) - hugepages;
        }
        let left = left.max(Amount::ZERO);
        let shown =
            if is_bytes(name) { binary(i128::from(left.units())) } else { Quantity(left.to_string()) };
        allocatable.insert(name.clone(), shown);
    }
    for (name, amounts) in devices {
        allocatable.insert(name.clone(), Quantity(amounts.allocatable.to_string()));
    }
    allocatable
}

/// What pods may not use: reserved for Kubernetes and the system, and what a hard eviction threshold keeps free.
#[must_use]
pub fn reserved_amounts(
    config: &KubeletConfiguration,
    capacity: &Quantities,
    ignores_eviction: bool,
) -> Amounts {
    let mut reserved = reserved_for_node(config);
    if !ignores_eviction {
        let hard = config.effective_eviction_hard();
        for (signal, name) in [("memory.available", "memory"), ("nodefs.available", "ephemeral-storage")] {
            if let (Some(text), Some(whole)) = (hard.get(signal), capacity.get(name)) {
                let kept = threshold(text, Amount::of(whole).unwrap_or(Amount::ZERO));
                add(&mut reserved, name, kept);
            }
        }
    }
    reserved
}

/// What is reserved for Kubernetes and the system. Validation has checked the texts; one that cannot be parsed reserves
/// nothing.
#[must_use]
pub fn reserved_for_node(config: &KubeletConfiguration) -> Amounts {
    let mut reserved = Amounts::new();
    let own_cpus = count_cpus(&config.reserved_system_cpus);
    for (name, text) in config.kube_reserved.iter().chain(&config.system_reserved) {
        // A list of reserved CPUs replaces both amounts.
        if name != "cpu" || own_cpus.is_none() {
            add(&mut reserved, name, Amount::parse(text).unwrap_or(Amount::ZERO));
        }
    }
    if let Some(cpus) = own_cpus {
        add(&mut reserved, "cpu", Amount::from_units(cpus));
    }
    reserved
}

fn add(amounts: &mut Amounts, name: &str, amount: Amount) {
    let entry = amounts.entry(name.to_owned()).or_default();
    *entry = *entry + amount;
}

/// `100Mi`, or `10%` of the capacity, rounded as for eviction.
fn threshold(text: &str, whole: Amount) -> Amount {
    let level = Level::parse(text).filter(|level| !level.is_off());
    level.map_or(Amount::ZERO, |level| Amount::from_units(level.of(whole.units())))
}

/// The number of CPUs in a list like `0-3,8`; `None` if it is empty or invalid.
fn count_cpus(list: &str) -> Option<i64> {
    let cpus: CpuSet = list.parse().ok()?;
    i64::try_from(cpus.len()).ok().filter(|count| *count > 0)
}

fn is_bytes(name: &str) -> bool {
    name == "memory" || name == "ephemeral-storage" || name.starts_with(HUGEPAGES)
}

fn binary(bytes: i128) -> Quantity {
    Quantity(binary_text(bytes))
}

/// Resources without which a node is not ready.
#[must_use]
pub(super) fn missing_capacity(capacity: &Quantities, config: &KubeletConfiguration) -> Vec<&'static str> {
    let needs_storage = config.local_storage_capacity_isolation;
    let is_needed = |name: &&str| *name != "ephemeral-storage" || needs_storage;
    NATIVE.into_iter().filter(is_needed).filter(|name| !capacity.contains_key(*name)).collect()
}
