//! The metadata of objects in the API: what they are called, and which of two is newer.

use k8s_openapi::Metadata;
use kubelet_core::reflector::ObjectKey;
use model::k8s::{ObjectMeta, Pod};
use model::{PodSource, annotations};

/// The answer to a call of ours is newer than what the watch has shown: the same object, further on. Versions of one
/// object compare as numbers; one that is none has been overtaken.
pub(crate) fn is_newer<K: Metadata<Ty = ObjectMeta>>(answer: &K, seen: &K) -> bool {
    let number = |object| version_of::<K>(object).parse::<u64>().ok();
    answer.metadata().uid == seen.metadata().uid && number(answer) > number(seen)
}

/// The pod comes from this machine, and the API only shows it.
pub(super) fn is_static(pod: &Pod) -> bool {
    let source = pod.metadata.annotations.as_ref().and_then(|all| all.get(annotations::CONFIG_SOURCE));
    source.is_some_and(|source| source != PodSource::Api.as_str())
}

/// What the API calls the object.
pub(crate) fn key_of<K: Metadata<Ty = ObjectMeta>>(object: &K) -> ObjectKey {
    let meta = object.metadata();
    ObjectKey {
        namespace: meta.namespace.clone().unwrap_or_default(),
        name: meta.name.clone().unwrap_or_default(),
    }
}

/// Empty for an object that the API has not seen.
pub(super) fn version_of<K: Metadata<Ty = ObjectMeta>>(object: &K) -> &str {
    object.metadata().resource_version.as_deref().unwrap_or_default()
}
