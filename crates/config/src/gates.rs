//! Feature gates: which there are, whether they are on, and what the user may change.
//!
//! Owns the table of names and the rules for setting them. Never decides what a gate does: the crates read the fields of
//! [`Features`].

mod features;
mod table;

use std::collections::BTreeMap;

pub use features::Features;
pub use table::GATES;

/// The stage of a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Alpha,
    Beta,
    Ga,
    Deprecated,
}

/// One gate as Kubernetes 1.36 defines it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gate {
    pub name: &'static str,
    pub stage: Stage,
    pub default: bool,
    /// Only the default may be set.
    pub locked: bool,
}

/// A value that a gate cannot have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    #[error("unrecognized feature gate: {name}{hint}")]
    Unknown { name: String, hint: String },
    #[error("cannot set feature gate {name} to {value}, feature is locked to {}", !value)]
    Locked { name: &'static str, value: bool },
}

/// The outcome: every known gate, on or off.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeatureGates {
    /// Only what differs from the table.
    changed: BTreeMap<&'static str, bool>,
}

impl FeatureGates {
    /// Applies what the user set. Returns it with a warning for each deprecated or generally available gate that was
    /// set, and with all errors.
    ///
    /// `AllAlpha` and `AllBeta` are applied first, so that the setting of a single gate overrides them.
    #[must_use]
    pub fn resolve(wanted: &BTreeMap<String, bool>) -> (Self, Vec<String>, Vec<GateError>) {
        let mut changed = BTreeMap::new();
        let (mut warnings, mut errors) = (Vec::new(), Vec::new());
        for (group, stage) in [("AllAlpha", Stage::Alpha), ("AllBeta", Stage::Beta)] {
            if let Some(on) = wanted.get(group) {
                let members = GATES.iter().filter(|gate| gate.stage == stage && !gate.locked);
                changed.extend(members.filter(|gate| gate.default != *on).map(|gate| (gate.name, *on)));
            }
        }
        for (name, value) in
            wanted.iter().filter(|(name, _)| !["AllAlpha", "AllBeta"].contains(&name.as_str()))
        {
            let Some(gate) = find(name) else {
                errors.push(GateError::Unknown { name: name.clone(), hint: hint(name) });
                continue;
            };
            if gate.locked && gate.default != *value {
                errors.push(GateError::Locked { name: gate.name, value: *value });
                continue;
            }
            warnings.extend(warning(gate, *value));
            changed.insert(gate.name, *value);
        }
        changed.retain(|name, value| find(name).is_some_and(|gate| gate.default != *value));
        (Self { changed }, warnings, errors)
    }

    /// Whether the feature is on. An unknown gate is off.
    #[must_use]
    pub fn enabled(&self, name: &str) -> bool {
        self.changed.get(name).copied().unwrap_or_else(|| find(name).is_some_and(|gate| gate.default))
    }

    /// Every gate of the table with its stage and outcome, in alphabetical order; for `kubernetes_feature_enabled`.
    pub fn all(&self) -> impl Iterator<Item = (&'static Gate, bool)> {
        GATES.iter().map(|gate| (gate, self.enabled(gate.name)))
    }
}

/// The gate of that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Gate> {
    GATES.binary_search_by(|gate| gate.name.cmp(name)).ok().and_then(|index| GATES.get(index))
}

fn warning(gate: &Gate, value: bool) -> Option<String> {
    let name = gate.name;
    match gate.stage {
        Stage::Ga => {
            Some(format!("Setting GA feature gate {name}={value}. It will be removed in a future release."))
        }
        Stage::Deprecated => Some(format!(
            "Setting deprecated feature gate {name}={value}. It will be removed in a future release."
        )),
        Stage::Alpha | Stage::Beta => None,
    }
}

fn hint(name: &str) -> String {
    GATES
        .iter()
        .find(|gate| gate.name.eq_ignore_ascii_case(name))
        .map_or_else(String::new, |gate| format!(" (did you mean {}?)", gate.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(wanted: &[(&str, bool)]) -> (FeatureGates, Vec<String>, Vec<String>) {
        let wanted = wanted.iter().map(|(name, on)| ((*name).to_owned(), *on)).collect();
        let (gates, warnings, errors) = FeatureGates::resolve(&wanted);
        (gates, warnings, errors.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn gate_table_is_sorted_and_has_no_duplicates() {
        for pair in GATES.windows(2) {
            assert!(pair[0].name < pair[1].name, "{} before {}", pair[0].name, pair[1].name);
        }
    }

    #[test]
    fn gates_have_their_defaults_unless_they_are_set() {
        let gates = FeatureGates::default();
        assert!(gates.enabled("SidecarContainers"));
        assert!(gates.enabled("PLEGOnDemandRelist"));
        assert!(!gates.enabled("EventedPLEG"));
        assert!(!gates.enabled("NoSuchGate"));
    }

    #[test]
    fn alpha_and_beta_gates_can_be_set_without_a_word() {
        let (gates, warnings, errors) = resolve(&[("EventedPLEG", true), ("PLEGOnDemandRelist", false)]);
        assert!(gates.enabled("EventedPLEG"));
        assert!(!gates.enabled("PLEGOnDemandRelist"));
        assert_eq!((warnings.len(), errors.len()), (0, 0));
    }

    #[test]
    fn unknown_gate_is_an_error_with_a_hint() {
        let (_, _, errors) = resolve(&[("EventedPleg", true), ("Nonsense", true)]);
        assert_eq!(
            errors,
            [
                "unrecognized feature gate: EventedPleg (did you mean EventedPLEG?)",
                "unrecognized feature gate: Nonsense",
            ]
        );
    }

    #[test]
    fn locked_gate_accepts_only_its_default() {
        let (_, warnings, errors) = resolve(&[("SidecarContainers", false), ("NodeSwap", true)]);
        assert_eq!(errors, ["cannot set feature gate SidecarContainers to false, feature is locked to true"]);
        assert_eq!(
            warnings,
            ["Setting GA feature gate NodeSwap=true. It will be removed in a future release."]
        );
    }

    #[test]
    fn deprecated_gate_works_with_a_warning() {
        let (gates, warnings, errors) = resolve(&[("ChangeContainerStatusOnKubeletRestart", true)]);
        assert!(gates.enabled("ChangeContainerStatusOnKubeletRestart"));
        assert_eq!(
            warnings,
            [
                "Setting deprecated feature gate ChangeContainerStatusOnKubeletRestart=true. It will be removed in a future release."
            ]
        );
        assert!(errors.is_empty());
    }

    #[test]
    fn all_alpha_and_all_beta_leave_out_what_is_set_by_name() {
        let (gates, _, errors) =
            resolve(&[("AllAlpha", true), ("EventedPLEG", false), ("AllBeta", false), ("EnvFiles", true)]);
        assert!(errors.is_empty());
        assert!(gates.enabled("MemoryQoS") && !gates.enabled("EventedPLEG"));
        assert!(gates.enabled("EnvFiles") && !gates.enabled("ContainerCheckpoint"));
        assert!(gates.enabled("SidecarContainers"), "what is locked stays");
    }

    #[test]
    fn every_feature_gate_of_1_36_is_known() {
        let stages = |stage| GATES.iter().filter(|gate| gate.stage == stage).count();
        assert!(stages(Stage::Ga) > 40 && stages(Stage::Beta) > 35 && stages(Stage::Alpha) > 25);
        for name in
            ["CustomCPUCFSQuotaPeriod", "ServiceAccountTokenJTI", "WatchListClient", "NativeHistograms"]
        {
            assert!(find(name).is_some(), "{name}");
        }
    }
}
