//! The fields of ClusterTrustBundles that a kubelet reads. They are the same in every version of the API, of which a server may
//! have only an older one.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{ClusterResourceScope, Metadata, Resource};
use serde::{Deserialize, Serialize};

/// `certificates.k8s.io` `ClusterTrustBundle`, read only.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrustBundle {
    #[serde(default)]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: TrustBundleSpec,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TrustBundleSpec {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub signer_name: String,
    /// PEM.
    pub trust_bundle: String,
}

impl Resource for TrustBundle {
    const API_VERSION: &'static str = "certificates.k8s.io/v1beta1";
    const GROUP: &'static str = "certificates.k8s.io";
    const KIND: &'static str = "ClusterTrustBundle";
    const VERSION: &'static str = "v1beta1";
    const URL_PATH_SEGMENT: &'static str = "clustertrustbundles";
    type Scope = ClusterResourceScope;
}

impl Metadata for TrustBundle {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
