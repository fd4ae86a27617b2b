//! The metadata of API objects: keys and resource versions.

use k8s_openapi::Metadata;
use kubelet_core::api::reflector::ObjectKey;
use model::PodRef;
use model::k8s::ObjectMeta;

/// Namespace and name of the pod.
pub(crate) fn key_of_pod(pod: &PodRef) -> ObjectKey {
    ObjectKey { namespace: pod.namespace.to_string(), name: pod.name.to_string() }
}

/// Namespace and name of the object.
pub(crate) fn key_of<K: Metadata<Ty = ObjectMeta>>(object: &K) -> ObjectKey {
    let meta = object.metadata();
    ObjectKey {
        namespace: meta.namespace.clone().unwrap_or_default(),
        name: meta.name.clone().unwrap_or_default(),
    }
}
