//! The API objects that a pod's volumes need.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use model::annotations::OBJECT_TTL;
use model::containers::spec_of;
use model::k8s::{ConfigMap, Node, Pod, Secret, TrustBundle, Volume};

use super::bundle::BundleRequirement;

/// Lifetime of a token if the volume does not specify one.
const DEFAULT_TOKEN_SECONDS: i64 = 3600;

/// How long a read object is cached if the Node does not specify it.
const DEFAULT_TTL: Duration = Duration::from_secs(60);

/// How long a read object is cached with strategy `Cache`: the Node's annotation specifies it, in seconds.
#[must_use]
pub fn object_ttl(node: Option<&Node>) -> Duration {
    let annotation = node.and_then(|node| node.metadata.annotations.as_ref()?.get(OBJECT_TTL));
    let seconds = annotation.and_then(|text| text.parse::<i64>().ok());
    seconds.map_or(DEFAULT_TTL, model::time::wait_of)
}

/// An object in the pod's namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObjectName {
    ConfigMap(String),
    Secret(String),
}

/// A service account token in a volume.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TokenRequirement {
    /// Empty: the API server's own audience.
    pub audience: String,
    pub expiration_seconds: i64,
}

/// The objects that were read. A missing one does not exist in the API.
#[derive(Clone, Debug, Default)]
pub struct VolumeObjects {
    pub config_maps: BTreeMap<String, Arc<ConfigMap>>,
    pub secrets: BTreeMap<String, Arc<Secret>>,
    pub tokens: BTreeMap<TokenRequirement, String>,
    /// By name. `None`: this node does not read bundles.
    pub bundles: Option<BTreeMap<BundleRequirement, Vec<Arc<TrustBundle>>>>,
}

/// The API objects that the volumes of a pod need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequiredObjects {
    pub names: BTreeSet<ObjectName>,
    pub tokens: BTreeSet<TokenRequirement>,
    pub bundles: BTreeSet<BundleRequirement>,
}

/// Every object that some volume of the pod refers to, optional ones too.
#[must_use]
pub fn required_objects(pod: &Pod) -> RequiredObjects {
    let mut required = RequiredObjects::default();
    for volume in spec_of(pod).volumes.as_deref().unwrap_or_default() {
        required.add(volume);
    }
    required
}

impl RequiredObjects {
    /// The objects that one volume needs.
    #[must_use]
    pub fn of(volume: &Volume) -> Self {
        let mut required = Self::default();
        required.add(volume);
        required
    }

    fn add(&mut self, volume: &Volume) {
        if let Some(source) = &volume.config_map {
            self.names.insert(ObjectName::ConfigMap(source.name.clone()));
        }
        if let Some(name) = volume.secret.as_ref().and_then(|source| source.secret_name.clone()) {
            self.names.insert(ObjectName::Secret(name));
        }
        let projected = volume.projected.as_ref().and_then(|p| p.sources.as_deref()).unwrap_or_default();
        for source in projected {
            if let Some(source) = &source.config_map {
                self.names.insert(ObjectName::ConfigMap(source.name.clone()));
            }
            if let Some(source) = &source.secret {
                self.names.insert(ObjectName::Secret(source.name.clone()));
            }
            if let Some(token) = &source.service_account_token {
                self.tokens
                    .insert(TokenRequirement::new(token.audience.as_deref(), token.expiration_seconds));
            }
            self.bundles.extend(source.cluster_trust_bundle.as_ref().and_then(BundleRequirement::of));
        }
    }
}

impl TokenRequirement {
    #[must_use]
    pub fn new(audience: Option<&str>, expiration_seconds: Option<i64>) -> Self {
        Self {
            audience: audience.unwrap_or_default().to_owned(),
            expiration_seconds: expiration_seconds.unwrap_or(DEFAULT_TOKEN_SECONDS),
        }
    }
}
