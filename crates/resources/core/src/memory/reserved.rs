//! The memory of each NUMA node that is reserved for the system (`reservedMemory`).
//!
//! Over all nodes it must be what Node Allocatable reserves (kubeReserved, systemReserved and the hard eviction threshold).

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use config::MemoryReservation;
use model::Amount;
use model::quantity::{binary_text, decimal_text};
use model::topology::MachineTopology;

use super::{Bytes, is_memory};
use crate::quantities::Amounts;

/// Why the reservation of memory is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReservedMemoryError {
    #[error(
        "the reserved memory configuration references a NUMA node {0} that does not exist on this machine"
    )]
    UnknownNode(i32),
    #[error(
        "the total amount {total:?} of type {resource:?} is not equal to the value {expected:?} determined by Node Allocatable feature"
    )]
    NotEqual { resource: String, total: String, expected: String },
    #[error("could not covert a variable of type Quantity to int64")]
    NotAnInteger,
}

/// Reserved bytes by node and resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReservedMemory(pub(super) BTreeMap<u32, Bytes>);

impl ReservedMemory {
    pub(super) fn of(&self, node: u32, resource: &str) -> u64 {
        self.0.get(&node).and_then(|bytes| bytes.get(resource)).copied().unwrap_or(0)
    }

    pub(super) fn is_any(&self, resource: &str) -> bool {
        self.0.values().any(|bytes| bytes.get(resource).is_some_and(|bytes| *bytes > 0))
    }
}

/// Checks the reservations of the configuration against the machine and against what Node Allocatable reserves.
///
/// # Errors
/// A node does not exist, or the sums differ.
pub fn compute_reserved_memory(
    machine: &MachineTopology,
    node_allocatable: &Amounts,
    reservations: &[MemoryReservation],
) -> Result<ReservedMemory, ReservedMemoryError> {
    let mut totals = Amounts::new();
    let mut reserved = ReservedMemory::default();
    for reservation in reservations {
        let unknown = ReservedMemoryError::UnknownNode(reservation.numa_node);
        let node = u32::try_from(reservation.numa_node).map_err(|_| unknown.clone())?;
        if machine.numa_nodes.iter().all(|known| known.id != node) {
            return Err(unknown);
        }
        for (resource, quantity) in &reservation.limits {
            let amount = Amount::parse(&quantity.0).map_err(|_| ReservedMemoryError::NotAnInteger)?;
            let total = totals.entry(resource.clone()).or_default();
            *total = *total + amount;
            let bytes = whole(amount).ok_or(ReservedMemoryError::NotAnInteger)?;
            reserved.0.entry(node).or_default().insert(resource.clone(), bytes);
        }
    }
    check_totals(&totals, node_allocatable)?;
    Ok(reserved)
}

fn check_totals(totals: &Amounts, node_allocatable: &Amounts) -> Result<(), ReservedMemoryError> {
    let resources = node_allocatable.keys().filter(|resource| is_memory(resource)).chain(totals.keys());
    for resource in resources.collect::<BTreeSet<_>>() {
        let of = |amounts: &Amounts| amounts.get(resource).copied().unwrap_or_default();
        let (total, expected) = (of(totals), of(node_allocatable));
        if total != expected {
            let (total, expected) = (shown(total), shown(expected));
            return Err(ReservedMemoryError::NotEqual { resource: resource.clone(), total, expected });
        }
    }
    Ok(())
}

/// `None` for a fraction or a negative number.
pub(super) fn whole(amount: Amount) -> Option<u64> {
    (amount == Amount::from_units(amount.units())).then_some(())?;
    u64::try_from(amount.units()).ok()
}

/// With the suffix that makes it shorter, because the notation of the configuration is not known here.
fn shown(amount: Amount) -> String {
    if amount != Amount::from_units(amount.units()) {
        return amount.to_string();
    }
    let units = i128::from(amount.units());
    let (binary, decimal) = (binary_text(units), decimal_text(units));
    if binary.len() < decimal.len() { binary } else { decimal }
}
