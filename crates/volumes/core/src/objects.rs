//! The API objects that a pod's volumes show.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use base_core::object_name::ObjectName;
use base_core::service_account_token::TokenRequirement;
use model::Credential;
use model::annotations::OBJECT_TTL;
use model::k8s::{ConfigMap, Node, Secret, TrustBundle};

use super::bundle::BundleRequirement;
use super::pod_certificate::{CertificateId, CredentialError};

/// How long an object is cached if the Node does not specify it.
const DEFAULT_TTL: Duration = Duration::from_secs(60);

/// How long an object is cached with the strategy `Cache`: the Node's annotation, in seconds.
#[must_use]
pub fn object_ttl(node: Option<&Node>) -> Duration {
    let annotation = node.and_then(|node| node.metadata.annotations.as_ref()?.get(OBJECT_TTL));
    let seconds = annotation.and_then(|text| text.parse::<i64>().ok());
    seconds.map_or(DEFAULT_TTL, model::time::wait_of)
}

/// The objects that were found; one that does not exist is missing here.
#[derive(Clone, Debug, Default)]
pub struct VolumeObjects {
    pub config_maps: BTreeMap<String, Arc<ConfigMap>>,
    pub secrets: BTreeMap<String, Arc<Secret>>,
    pub tokens: BTreeMap<TokenRequirement, String>,
    /// `None`: this node does not support ClusterTrustBundles.
    pub bundles: Option<BTreeMap<BundleRequirement, Vec<Arc<TrustBundle>>>>,
    /// `None`: this node does not support certificates of pods.
    pub certificates: Option<BTreeMap<CertificateId, Result<Credential, CredentialError>>>,
}

/// The API objects that the volumes of a pod need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequiredObjects {
    pub names: BTreeSet<ObjectName>,
    pub tokens: BTreeSet<TokenRequirement>,
    pub bundles: BTreeSet<BundleRequirement>,
    pub certificates: BTreeSet<CertificateId>,
}
