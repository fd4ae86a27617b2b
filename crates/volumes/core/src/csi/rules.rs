//! What the CSIDriver object of a driver asks for. A driver without an object gets the defaults.

use model::k8s::CSIDriver;

use super::Lifecycle;

/// Who changes the group of a volume's files to the pod's `fsGroup`; `fsGroupPolicy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupPolicy {
    /// The kubelet, if the volume is used by one node only and its filesystem is known.
    ReadWriteOnceWithFsType,
    /// The kubelet, always.
    File,
    /// Nothing changes it.
    None,
}

/// A token of the pod's service account that the driver wants with each call of NodePublishVolume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRule {
    pub audience: String,
    pub expiration_seconds: Option<i64>,
}

/// What a driver asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverRules {
    /// Volumes are attached to the node by a controller before the driver is called here.
    pub attach_required: bool,
    /// The pod's name and service account are among the attributes of the volume.
    pub pod_info_on_mount: bool,
    /// NodePublishVolume is called again with each sync of the pod.
    pub requires_republish: bool,
    /// The driver can mount with an SELinux context.
    pub selinux_mount: bool,
    pub tokens: Vec<TokenRule>,
    /// Tokens are among the secrets and not among the attributes.
    pub tokens_in_secrets: bool,
    /// Absent or unknown where the object says nothing sensible: volumes are not mounted then.
    group_policy: Option<GroupPolicy>,
    /// `None`: the driver has no object.
    lifecycles: Option<Vec<String>>,
}

impl DriverRules {
    #[must_use]
    pub fn of(driver: Option<&CSIDriver>) -> Self {
        let spec = driver.map(|driver| &driver.spec);
        let is_set = |value: Option<bool>| value == Some(true);
        let tokens = spec.and_then(|spec| spec.token_requests.as_deref()).unwrap_or_default();
        Self {
            attach_required: spec.and_then(|spec| spec.attach_required) != Some(false),
            pod_info_on_mount: is_set(spec.and_then(|spec| spec.pod_info_on_mount)),
            requires_republish: is_set(spec.and_then(|spec| spec.requires_republish)),
            selinux_mount: is_set(spec.and_then(|spec| spec.se_linux_mount)),
            tokens: tokens
                .iter()
                .map(|token| TokenRule {
                    audience: token.audience.clone(),
                    expiration_seconds: token.expiration_seconds,
                })
                .collect(),
            tokens_in_secrets: is_set(spec.and_then(|spec| spec.service_account_token_in_secrets)),
            group_policy: match spec {
                None => Some(GroupPolicy::ReadWriteOnceWithFsType),
                Some(spec) => spec.fs_group_policy.as_deref().and_then(group_policy),
            },
            lifecycles: spec.map(|spec| spec.volume_lifecycle_modes.clone().unwrap_or_default()),
        }
    }

    /// # Errors
    /// The object does not say who changes the group.
    pub fn group_policy(&self) -> Result<GroupPolicy, String> {
        self.group_policy
            .ok_or_else(|| "expected valid fsGroupPolicy, received nil value or empty string".to_owned())
    }

    /// # Errors
    /// The driver has no volumes that live that long. The text names it.
    pub fn check_lifecycle(&self, driver: &str, wanted: Lifecycle) -> Result<(), String> {
        let wanted_name = wanted.name();
        match (&self.lifecycles, wanted) {
            (None, Lifecycle::Persistent) => Ok(()),
            (None, Lifecycle::Ephemeral) => Err(format!(
                "volume mode {wanted_name:?} not supported by driver {driver} (no CSIDriver object)"
            )),
            (Some(offered), _) if offered.iter().any(|name| name == wanted_name) => Ok(()),
            (Some(offered), _) => {
                let offered: Vec<String> = offered.iter().map(|name| format!("{name:?}")).collect();
                Err(format!(
                    "volume mode {wanted_name:?} not supported by driver {driver} (only supports [{}])",
                    offered.join(" ")
                ))
            }
        }
    }
}

fn group_policy(name: &str) -> Option<GroupPolicy> {
    match name {
        "ReadWriteOnceWithFSType" => Some(GroupPolicy::ReadWriteOnceWithFsType),
        "File" => Some(GroupPolicy::File),
        "None" => Some(GroupPolicy::None),
        _ => None,
    }
}

/// Whether the kubelet changes the group of a volume's files after it was published, unless the driver does it.
#[must_use]
pub fn changes_group(policy: GroupPolicy, volume: GroupFacts<'_>) -> bool {
    if volume.read_only {
        return false;
    }
    match policy {
        GroupPolicy::None => false,
        GroupPolicy::File => true,
        GroupPolicy::ReadWriteOnceWithFsType => {
            let is_of_one_node = |mode: &String| matches!(&**mode, "ReadWriteOnce" | "ReadWriteOncePod");
            !volume.fs_type.is_empty()
                && match volume.lifecycle {
                    Lifecycle::Ephemeral => true,
                    Lifecycle::Persistent => volume.access_modes.iter().any(is_of_one_node),
                }
        }
    }
}

/// What the decision about a volume's group depends on.
#[derive(Clone, Copy, Debug)]
pub struct GroupFacts<'a> {
    pub lifecycle: Lifecycle,
    pub fs_type: &'a str,
    pub access_modes: &'a [String],
    pub read_only: bool,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn rules(spec: Value) -> DriverRules {
        let driver = json!({"metadata": {"name": "d"}, "spec": spec});
        DriverRules::of(Some(&serde_json::from_value(driver).unwrap()))
    }

    /// The cases of the Go kubelet's `Test_csiMountMgr_supportsFSGroup`.
    #[test]
    fn the_group_of_files_is_changed_as_the_policy_says() {
        use GroupPolicy::{File, None, ReadWriteOnceWithFsType};
        use Lifecycle::{Ephemeral, Persistent};
        for (policy, lifecycle, fs_type, access_modes, expected) in [
            (File, Persistent, "", &[][..], true),
            (None, Persistent, "ext4", &["ReadWriteOnce"][..], false),
            (ReadWriteOnceWithFsType, Persistent, "", &["ReadWriteOnce"], false),
            (ReadWriteOnceWithFsType, Persistent, "ext4", &[], false),
            (ReadWriteOnceWithFsType, Persistent, "ext4", &["ReadWriteMany"], false),
            (ReadWriteOnceWithFsType, Persistent, "ext4", &["ReadWriteOnce"], true),
            (ReadWriteOnceWithFsType, Persistent, "ext4", &["ReadWriteOncePod"], true),
            (ReadWriteOnceWithFsType, Ephemeral, "ext4", &[], true),
        ] {
            let access_modes: Vec<String> = access_modes.iter().map(|mode| (*mode).to_owned()).collect();
            let facts = GroupFacts { lifecycle, fs_type, access_modes: &access_modes, read_only: false };
            assert_eq!(changes_group(policy, facts), expected, "{policy:?} {facts:?}");
            assert!(!changes_group(policy, GroupFacts { read_only: true, ..facts }), "read-only");
        }
    }

    #[test]
    fn a_driver_without_an_object_gets_the_defaults() {
        let rules = DriverRules::of(None);
        assert!(rules.attach_required && !rules.pod_info_on_mount && !rules.requires_republish);
        assert_eq!(rules.group_policy(), Ok(GroupPolicy::ReadWriteOnceWithFsType));
        assert_eq!(rules.check_lifecycle("d", Lifecycle::Persistent), Ok(()));
        let refused = "volume mode \"Ephemeral\" not supported by driver d (no CSIDriver object)";
        assert_eq!(rules.check_lifecycle("d", Lifecycle::Ephemeral), Err(refused.to_owned()));
    }

    #[test]
    fn an_object_says_which_lifecycles_its_driver_offers() {
        let rules = rules(json!({"volumeLifecycleModes": ["Persistent"], "attachRequired": false}));
        assert!(!rules.attach_required);
        let refused = "volume mode \"Ephemeral\" not supported by driver d (only supports [\"Persistent\"])";
        assert_eq!(rules.check_lifecycle("d", Lifecycle::Ephemeral), Err(refused.to_owned()));
        assert_eq!(rules.check_lifecycle("d", Lifecycle::Persistent), Ok(()));
    }

    #[test]
    fn an_object_without_a_group_policy_is_an_error() {
        let expected = "expected valid fsGroupPolicy, received nil value or empty string";
        assert_eq!(rules(json!({})).group_policy(), Err(expected.to_owned()));
        assert_eq!(rules(json!({"fsGroupPolicy": ""})).group_policy(), Err(expected.to_owned()));
        assert_eq!(rules(json!({"fsGroupPolicy": "File"})).group_policy(), Ok(GroupPolicy::File));
        assert_eq!(rules(json!({"fsGroupPolicy": "None"})).group_policy(), Ok(GroupPolicy::None));
    }
}
