//! The fields of ResourceClaims that a kubelet reads. What a user asked for, and how devices are configured, is for the scheduler
//! and the driver.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{Metadata, NamespaceResourceScope, Resource};
use serde::{Deserialize, Serialize};

/// `resource.k8s.io` `ResourceClaim`, read only.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ResourceClaim {
    #[serde(default)]
    pub metadata: ObjectMeta,
    pub status: Option<ResourceClaimStatus>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceClaimStatus {
    /// `None` until the scheduler has allocated devices.
    pub allocation: Option<ClaimAllocation>,
    pub reserved_for: Option<Vec<ClaimConsumer>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClaimAllocation {
    pub devices: Option<ClaimDevices>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClaimDevices {
    pub results: Option<Vec<AllocatedDevice>>,
}

/// A device that the claim has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AllocatedDevice {
    pub driver: String,
}

/// What may use the claim: a pod, or a group of pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimConsumer {
    pub api_group: String,
    pub resource: String,
    pub name: String,
    pub uid: String,
}

impl Resource for ResourceClaim {
    const API_VERSION: &'static str = "resource.k8s.io/v1";
    const GROUP: &'static str = "resource.k8s.io";
    const KIND: &'static str = "ResourceClaim";
    const VERSION: &'static str = "v1";
    const URL_PATH_SEGMENT: &'static str = "resourceclaims";
    type Scope = NamespaceResourceScope;
}

impl Metadata for ResourceClaim {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
