//! A resource of which a pod requests more than is free.

use std::fmt;

use model::Amount;

/// A resource of which too little is free. Amounts are in units, of CPU in thousandths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shortage {
    pub(super) resource: String,
    pub(super) requested: i64,
    pub(super) used: i64,
    pub(super) capacity: i64,
}

impl Shortage {
    /// The amount that must be freed.
    pub(super) const fn missing(&self) -> i64 {
        self.requested.saturating_sub(self.capacity.saturating_sub(self.used))
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, requested, used, capacity } = self;
        write!(
            f,
            "Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, capacity: {capacity}"
        )
    }
}

/// The unit in which a resource is compared and shown.
pub(super) fn measure(resource: &str, amount: Amount) -> i64 {
    if resource == "cpu" { amount.milli() } else { amount.units() }
}
