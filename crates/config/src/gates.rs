//! Feature gates: which there are, whether they are on, and what the user may change.
//!
//! Owns the table of names and the rules for setting them. Never decides what a gate does: the crates read the fields of
//! [`Features`].

mod dependencies;
mod features;
mod table;

use std::collections::BTreeMap;

pub use features::Features;
pub use table::GATES;

use dependencies::DEPENDENCIES;

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
    #[error("{name} is enabled, but depends on features that are disabled: [{}]", .disabled.join(" "))]
    Needs { name: &'static str, disabled: Vec<&'static str> },
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
    /// `AllAlpha` and `AllBeta` are applied first, so that the setting of a single gate overrides them. Whether gates that are on need
    /// others that are off is checked once all could be set.
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
        let gates = Self { changed };
        if errors.is_empty() {
            errors.extend(gates.unmet_dependencies());
        }
        (gates, warnings, errors)
    }

    fn unmet_dependencies(&self) -> impl Iterator<Item = GateError> {
        DEPENDENCIES.iter().filter(|(name, _)| self.enabled(name)).filter_map(|(name, needed)| {
            let disabled: Vec<_> = needed.iter().copied().filter(|needed| !self.enabled(needed)).collect();
            (!disabled.is_empty()).then_some(GateError::Needs { name, disabled })
        })
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
        let (gates, _, errors) = resolve(&[("AllAlpha", true), ("EventedPLEG", false)]);
        assert_eq!(errors, Vec::<String>::new());
        assert!(gates.enabled("MemoryQoS") && !gates.enabled("EventedPLEG"));
        let (gates, _, errors) = resolve(&[("AllBeta", false), ("EnvFiles", true)]);
        assert_eq!(errors, Vec::<String>::new());
        assert!(gates.enabled("EnvFiles") && !gates.enabled("ContainerCheckpoint"));
        assert!(gates.enabled("SidecarContainers"), "what is locked stays");
    }

    #[test]
    fn gates_that_are_gone_are_refused() {
        for gone in ["MemoryManager", "DevicePluginCDIDevices", "RuntimeClassInImageCriAPI"] {
            assert_eq!(resolve(&[(gone, true)]).2.len(), 1, "{gone}");
        }
    }

    #[test]
    fn dependencies_are_sorted_and_name_gates_of_the_table() {
        assert!(DEPENDENCIES.is_sorted_by(|before, after| before.0 < after.0));
        for (name, needed) in DEPENDENCIES {
            assert!(needed.is_sorted(), "{name}");
            for name in needed.iter().chain([name]) {
                assert!(find(name).is_some(), "{name}");
            }
        }
        let defaults: Vec<_> = FeatureGates::default().unmet_dependencies().collect();
        assert_eq!(defaults, [], "the defaults need nothing that is off");
    }

    /// From the sources of Kubernetes 1.36: gates, and what each of them needs.
    #[test]
    fn dependencies_are_those_of_1_36() {
        let table = "\
            AuthorizeNodeWithSelectors: AuthorizeWithSelectors
            ClusterTrustBundleProjection: ClusterTrustBundle
            DRAAdminAccess DRAConsumableCapacity DRADeviceTaints DRAExtendedResource DRAListTypeAttributes \
            DRANodeAllocatableResources DRAPartitionableDevices DRAPrioritizedList DRAResourcePoolStatus \
            DRASchedulerFilterTimeout ResourceHealthStatus: DynamicResourceAllocation
            DRADeviceBindingConditions DRAResourceClaimGranularStatusAuthorization: DynamicResourceAllocation \
            DRAResourceClaimDeviceStatus
            DRADeviceTaintRules: DRADeviceTaints
            DRAWorkloadResourceClaims: DynamicResourceAllocation GenericWorkload
            DisableAllocatorDualWrite: MultiCIDRServiceAllocator
            ExtendWebSocketsToKubelet: NodeDeclaredFeatures
            GangScheduling TopologyAwareWorkloadScheduling WorkloadWithJob: GenericWorkload
            GracefulNodeShutdownBasedOnPodPriority WindowsGracefulNodeShutdown: GracefulNodeShutdown
            ImageVolumeWithDigest: ImageVolume
            InPlacePodLevelResourcesVerticalScaling: InPlacePodVerticalScaling PodLevelResources NodeDeclaredFeatures
            InPlacePodVerticalScalingExclusiveCPUs InPlacePodVerticalScalingExclusiveMemory: InPlacePodVerticalScaling
            InPlacePodVerticalScalingInitContainers: InPlacePodVerticalScaling NodeDeclaredFeatures
            MatchLabelKeysInPodTopologySpreadSelectorMerge: MatchLabelKeysInPodTopologySpread
            PodCertificateRequest: AuthorizeNodeWithSelectors
            PodLevelResourceManagers: PodLevelResources
            PodLifecycleSleepActionAllowZero: PodLifecycleSleepAction
            ProcMountType: UserNamespacesSupport
            ResourceHealthStatusMessage: ResourceHealthStatus
            RestartAllContainersOnContainerExits: ContainerRestartRules NodeDeclaredFeatures
            ServiceAccountTokenNodeBinding: ServiceAccountTokenNodeBindingValidation
            StaleControllerConsistencyDaemonSet StaleControllerConsistencyJob StaleControllerConsistencyReplicaSet \
            StaleControllerConsistencyStatefulSet: AtomicFIFO
            UserNamespacesHostNetworkSupport: UserNamespacesSupport NodeDeclaredFeatures
            WorkloadAwarePreemption: GangScheduling";
        let mut expected = BTreeMap::new();
        for line in table.lines() {
            let (gates, needed) = line.split_once(": ").unwrap();
            let mut needed: Vec<&str> = needed.split_whitespace().collect();
            needed.sort_unstable();
            expected.extend(gates.split_whitespace().map(|gate| (gate, needed.clone())));
        }
        let found: BTreeMap<&str, Vec<&str>> =
            DEPENDENCIES.iter().map(|(gate, needed)| (*gate, needed.to_vec())).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn gate_that_is_on_needs_the_gates_that_it_depends_on() {
        let errors = |wanted: &[(&str, bool)]| resolve(wanted).2;
        assert_eq!(
            errors(&[("NodeDeclaredFeatures", false)]),
            [
                "ExtendWebSocketsToKubelet is enabled, but depends on features that are disabled: [NodeDeclaredFeatures]",
                "InPlacePodLevelResourcesVerticalScaling is enabled, but depends on features that are disabled: [NodeDeclaredFeatures]",
                "InPlacePodVerticalScalingInitContainers is enabled, but depends on features that are disabled: [NodeDeclaredFeatures]",
                "RestartAllContainersOnContainerExits is enabled, but depends on features that are disabled: [NodeDeclaredFeatures]",
            ]
        );
        assert_eq!(
            errors(&[("NodeDeclaredFeatures", false), ("PodLevelResources", false)])[1],
            "InPlacePodLevelResourcesVerticalScaling is enabled, but depends on features that are disabled: [NodeDeclaredFeatures PodLevelResources]"
        );
        for alone in ["PodLevelResources", "ContainerRestartRules", "ResourceHealthStatus"] {
            assert_eq!(errors(&[(alone, false)]).len(), 1, "{alone}");
        }
        assert_eq!(errors(&[("ClusterTrustBundleProjection", true)]).len(), 1);
        assert_eq!(errors(&[("ClusterTrustBundleProjection", true), ("ClusterTrustBundle", true)]).len(), 0);
        assert_eq!(errors(&[("AllBeta", false)]).len(), 0, "it switches what depends on them off, too");
        assert_eq!(errors(&[("AllAlpha", true), ("AllBeta", true)]).len(), 0);
        let unknown = errors(&[("ContainerRestartRules", false), ("Nonsense", true)]);
        assert_eq!(
            unknown,
            ["unrecognized feature gate: Nonsense"],
            "the others are checked when all could be set"
        );
    }

    /// A block that a real cluster shares between its components.
    #[test]
    fn gates_of_other_components_are_accepted() {
        let shared = [
            ("GangScheduling", true),
            ("GenericWorkload", true),
            ("StaleControllerConsistencyJob", false),
            ("ManifestBasedAdmissionControlConfig", true),
            ("WindowsHostNetwork", false),
            ("UnlockWhileProcessingFIFO", true),
            ("RuntimeClassInImageCriApi", false),
            ("SchedulerAsyncAPICalls", true),
            ("LogarithmicScaleDown", true),
        ];
        let (gates, warnings, errors) = resolve(&shared);
        assert_eq!(errors, Vec::<String>::new());
        assert!(gates.enabled("GangScheduling") && !gates.enabled("StaleControllerConsistencyJob"));
        let warned: Vec<&str> =
            warnings.iter().filter_map(|text| text.split_once("gate ")?.1.split('=').next()).collect();
        assert_eq!(warned, ["LogarithmicScaleDown", "WindowsHostNetwork"]);
    }

    /// From the sources of Kubernetes 1.36: gate, stage, default, and whether it is locked.
    #[test]
    fn stages_defaults_and_locks_are_those_of_1_36() {
        let expected = [
            ("AllowServiceExternalIPs", Stage::Ga, true, false),
            ("AtomicFIFO", Stage::Beta, true, false),
            ("CRDObservedGenerationTracking", Stage::Beta, true, false),
            ("ClientsAllowCARotation", Stage::Beta, true, false),
            ("ClientsAllowTLSCacheGC", Stage::Beta, true, false),
            ("ConstrainedImpersonation", Stage::Beta, true, false),
            ("DRADeviceBindingConditions", Stage::Beta, true, false),
            ("DRAListTypeAttributes", Stage::Alpha, false, false),
            ("DRAResourceClaimGranularStatusAuthorization", Stage::Beta, true, false),
            ("DRAResourcePoolStatus", Stage::Alpha, false, false),
            ("DeclarativeValidationBeta", Stage::Beta, true, false),
            ("GangScheduling", Stage::Alpha, false, false),
            ("InOrderInformersBatchProcess", Stage::Beta, true, false),
            ("LogarithmicScaleDown", Stage::Ga, true, true),
            ("ManifestBasedAdmissionControlConfig", Stage::Alpha, false, false),
            ("MatchLabelKeysInPodTopologySpreadSelectorMerge", Stage::Beta, true, false),
            ("MutablePVNodeAffinity", Stage::Alpha, false, false),
            ("MutablePodResourcesForSuspendedJobs", Stage::Beta, true, false),
            ("MutableSchedulingDirectivesForSuspendedJobs", Stage::Beta, true, false),
            ("PersistentVolumeClaimUnusedSinceTime", Stage::Alpha, false, false),
            ("PreferSameTrafficDistribution", Stage::Ga, true, true),
            ("RuntimeClassInImageCriApi", Stage::Alpha, false, false),
            ("ServiceCIDRStatusFieldWiping", Stage::Deprecated, true, false),
            ("ShardedListAndWatch", Stage::Alpha, false, false),
            ("StaleControllerConsistencyDaemonSet", Stage::Beta, true, false),
            ("StaleControllerConsistencyJob", Stage::Beta, true, false),
            ("StaleControllerConsistencyReplicaSet", Stage::Beta, true, false),
            ("StaleControllerConsistencyStatefulSet", Stage::Beta, true, false),
            ("TopologyAwareWorkloadScheduling", Stage::Alpha, false, false),
            ("UnlockWhileProcessingFIFO", Stage::Beta, true, false),
            ("VolumeLimitScaling", Stage::Alpha, false, false),
            ("WindowsHostNetwork", Stage::Deprecated, false, false),
            ("WorkloadAwarePreemption", Stage::Alpha, false, false),
            ("WorkloadWithJob", Stage::Alpha, false, false),
        ];
        for (name, stage, default, locked) in expected {
            assert_eq!(find(name), Some(&Gate { name, stage, default, locked }));
        }
        assert_eq!(GATES.len(), 238);
    }
}
