//! Settings that this build accepts without effect. The kubelet logs those that are set. docs/parity.tsv has the reason for each.

use serde_json::Value;

use crate::gates::{FeatureGates, find};
use crate::tree;

/// Fields of the configuration, as dotted wire names; a name includes all fields below it. Their defaults need nothing
/// that this build does not do.
const FIELDS: &[&str] = &[
    "contentType",
    "enableContentionProfiling",
    "logging.options.json.infoBufferSize",
    "logging.options.text.infoBufferSize",
];

/// Flags without a field, by name.
const FLAGS: &[&str] = &["housekeeping-interval", "max-housekeeping-interval"];

/// Feature gates whose feature this build does not have. Gates of other components are not listed.
const GATES: &[&str] = &["NativeHistograms"];

/// Feature gates whose feature cannot be switched off here, although the Go kubelet looks at them: without it, a pod would start with less
/// than the scheduler gave it.
const ALWAYS_ON: &[&str] = &["DRAConsumableCapacity", "DRAExtendedResource", "DRAPrioritizedList"];

/// Gates of [`GATES`] and [`ALWAYS_ON`] that differ from their default, as `featureGates.<name>`.
pub(crate) fn gates(gates: &FeatureGates) -> impl Iterator<Item = String> {
    let is_switched = |name: &&&str| find(name).is_some_and(|gate| gates.enabled(name) != gate.default);
    GATES.iter().chain(ALWAYS_ON).filter(is_switched).map(|name| format!("featureGates.{name}"))
}

/// Names of the fields of [`FIELDS`] that are set in the tree `set` and differ from the tree of defaults.
pub(crate) fn fields(set: &Value, defaults: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for name in FIELDS {
        let Some(part) = tree::get(set, name) else { continue };
        let nothing = Value::Null;
        let shape = tree::get(defaults, name).unwrap_or(&nothing);
        for (below, value) in tree::leaves(part, shape) {
            let path = if below.is_empty() { (*name).to_owned() } else { format!("{name}.{below}") };
            let is_default = tree::get(defaults, &path) == Some(value) || is_empty(value);
            if !is_default {
                found.push(path);
            }
        }
    }
    found
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Whether the flag is one of [`FLAGS`].
pub(crate) fn flag(name: &str) -> bool {
    FLAGS.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Features, KubeletConfiguration, flags};

    #[test]
    fn table_has_only_existing_names() {
        for name in FIELDS {
            assert!(tree::get(&KubeletConfiguration::shape(), name).is_some(), "{name}");
        }
        for name in FLAGS {
            assert!(flags::find(name).is_some_and(|flag| flag.field().is_none()), "{name}");
        }
        for name in GATES {
            assert!(find(name).is_some_and(|gate| !gate.locked), "{name}");
        }
        for name in ALWAYS_ON {
            assert!(find(name).is_some_and(|gate| !gate.locked && gate.default), "{name}");
        }
    }

    #[test]
    fn gate_has_an_effect_or_is_in_the_table() {
        for name in Features::GATES {
            assert!(find(name).is_some_and(|gate| !gate.locked), "{name}");
            assert!(!GATES.contains(name), "{name}");
        }
    }
}
