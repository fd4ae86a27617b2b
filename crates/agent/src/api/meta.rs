//! The metadata of API objects: keys and resource versions.

use k8s_openapi::Metadata;
use kubelet_core::api::reflector::ObjectKey;
use model::k8s::{ObjectMeta, Pod};
use model::{PodSource, annotations};

/// The pod comes from this machine; the API has only its mirror pod.
pub(super) fn is_static(pod: &Pod) -> bool {
    let source = pod.metadata.annotations.as_ref().and_then(|all| all.get(annotations::CONFIG_SOURCE));
    source.is_some_and(|source| source != PodSource::Api.as_str())
}

/// Namespace and name of the object.
pub(crate) fn key_of<K: Metadata<Ty = ObjectMeta>>(object: &K) -> ObjectKey {
    let meta = object.metadata();
    ObjectKey {
        namespace: meta.namespace.clone().unwrap_or_default(),
        name: meta.name.clone().unwrap_or_default(),
    }
}
