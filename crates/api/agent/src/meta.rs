//! The metadata of API objects: keys and resource versions.

use api_core::reflector::ObjectKey;
use model::PodRef;
use model::k8s::ApiObject;

/// Namespace and name of the pod.
pub fn key_of_pod(pod: &PodRef) -> ObjectKey {
    ObjectKey { namespace: pod.namespace.to_string(), name: pod.name.to_string() }
}

/// Namespace and name of the object.
pub(crate) fn key_of<K: ApiObject>(object: &K) -> ObjectKey {
    ObjectKey { namespace: object.namespace().to_owned(), name: object.name().to_owned() }
}
