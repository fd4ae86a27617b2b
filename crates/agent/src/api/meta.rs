//! The metadata of API objects: keys and resource versions.

use k8s_openapi::Metadata;
use kubelet_core::api::reflector::ObjectKey;
use model::k8s::{ObjectMeta, Pod};
use model::{PodSource, annotations};

/// Whether the response to our write is newer than what the watch has shown of the same object. Resource versions of one
/// object compare as numbers; a version that is not a number counts as older.
pub(crate) fn is_newer<K: Metadata<Ty = ObjectMeta>>(answer: &K, seen: &K) -> bool {
    let number = |object| version_of::<K>(object).parse::<u64>().ok();
    answer.metadata().uid == seen.metadata().uid && number(answer) > number(seen)
}

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

/// Empty for an object that was never written to the API.
pub(super) fn version_of<K: Metadata<Ty = ObjectMeta>>(object: &K) -> &str {
    object.metadata().resource_version.as_deref().unwrap_or_default()
}
