//! What a volume of a CSI driver is made from.

use std::collections::BTreeMap;

use super::Lifecycle;
use crate::selinux::READ_WRITE_ONCE_POD;

/// The name of a Secret, which may be in another namespace than the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretName {
    pub namespace: String,
    pub name: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsiPlan {
    /// The name of the PersistentVolume, or of the volume if it has none; that of the plan has no slashes.
    pub spec_name: String,
    pub driver: String,
    /// The volume, as its driver knows it.
    pub handle: String,
    pub lifecycle: Lifecycle,
    /// Containers see the device itself.
    pub is_device: bool,
    pub fs_type: String,
    pub attributes: BTreeMap<String, String>,
    pub access_modes: Vec<String>,
    pub mount_options: Vec<String>,
    pub stage_secret: Option<SecretName>,
    pub publish_secret: Option<SecretName>,
    pub expand_secret: Option<SecretName>,
    /// The volume is of an in-tree type that has moved to the driver.
    pub is_migrated: bool,
}

impl CsiPlan {
    /// One pod at a time uses the volume: `ReadWriteOncePod` is its only access mode.
    #[must_use]
    pub fn is_of_one_pod(&self) -> bool {
        matches!(&*self.access_modes, [mode] if mode == READ_WRITE_ONCE_POD)
    }
}
