//! Values of the language. Copies are cheap: texts, lists and maps are shared.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use model::Amount;

use super::MAX_COST;
use super::version::Version;

#[derive(Clone, Debug)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Double(f64),
    Text(Arc<str>),
    Quantity(Amount),
    Version(Arc<Version>),
    List(Arc<[Self]>),
    Map(Arc<Map>),
}

#[derive(Clone, Debug, Default)]
pub(super) struct Map {
    pub(super) entries: BTreeMap<Arc<str>, Value>,
    /// The domains of attributes and capacities: one that the device lacks has no entries, and is no error.
    pub(super) has_every_domain: bool,
}

impl Map {
    pub(super) fn get(&self, key: &str) -> Option<Value> {
        let found = self.entries.get(key).cloned();
        found.or_else(|| self.has_every_domain.then(|| Value::Map(Arc::default())))
    }
}

impl Value {
    pub(super) fn text(text: &str) -> Self {
        Self::Text(Arc::from(text))
    }

    pub(super) const fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Double(_) => "double",
            Self::Text(_) => "string",
            Self::Quantity(_) => "kubernetes.Quantity",
            Self::Version(_) => "kubernetes.Semver",
            Self::List(_) => "list",
            Self::Map(_) => "map",
        }
    }

    /// How many values it consists of, roughly: what a comparison costs. A shared part counts where it occurs; no more is counted than an
    /// evaluation may cost.
    pub(super) fn size(&self) -> u64 {
        let mut left = MAX_COST + 1;
        self.count(&mut left);
        MAX_COST + 1 - left
    }

    fn count(&self, left: &mut u64) {
        *left = left.saturating_sub(1);
        match self {
            Self::Text(text) => *left = left.saturating_sub(text.len() as u64 / 10),
            Self::List(items) => count_all(items.iter(), left),
            Self::Map(map) => count_all(map.entries.values(), left),
            Self::Null
            | Self::Bool(_)
            | Self::Int(_)
            | Self::Double(_)
            | Self::Quantity(_)
            | Self::Version(_) => {}
        }
    }

    /// Values of different types are not equal, but numbers are compared as numbers.
    pub(super) fn equals(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::List(one), Self::List(two)) => {
                one.len() == two.len() && one.iter().zip(two.iter()).all(|(one, two)| one.equals(two))
            }
            (Self::Map(one), Self::Map(two)) => {
                let (one, two) = (&one.entries, &two.entries);
                one.len() == two.len()
                    && one.iter().all(|(key, value)| two.get(key).is_some_and(|other| value.equals(other)))
            }
            _ => self.compare(other) == Some(Ordering::Equal),
        }
    }

    /// `None` where the values have no order.
    pub(super) fn compare(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Bool(one), Self::Bool(two)) => Some(one.cmp(two)),
            (Self::Int(one), Self::Int(two)) => Some(one.cmp(two)),
            (Self::Text(one), Self::Text(two)) => Some(one.cmp(two)),
            (Self::Quantity(one), Self::Quantity(two)) => Some(one.cmp(two)),
            (Self::Version(one), Self::Version(two)) => Some(one.cmp(two)),
            _ => self.as_double()?.partial_cmp(&other.as_double()?),
        }
    }

    /// As numbers of different types are compared.
    pub(super) const fn as_double(&self) -> Option<f64> {
        match self {
            Self::Int(number) => Some(*number as f64),
            Self::Double(number) => Some(*number),
            Self::Null
            | Self::Bool(_)
            | Self::Text(_)
            | Self::Quantity(_)
            | Self::Version(_)
            | Self::List(_)
            | Self::Map(_) => None,
        }
    }
}

/// Counts values as long as something is left.
fn count_all<'a>(values: impl Iterator<Item = &'a Value>, left: &mut u64) {
    for value in values {
        if *left == 0 {
            return;
        }
        value.count(left);
    }
}
