//! Defaults of fields that the client left unset.
//!
//! Owns defaults, and the fields that the admission plugins of every cluster add. Never changes or refuses a value that is
//! set: validation refuses fields of the wrong type. Idempotent.

mod claims;
mod image;
mod kinds;
mod pod;
mod probe;
mod requests;
#[cfg(test)]
mod tests;
mod tree;
mod volume;

use serde_json::{Map, Value};

pub(crate) use pod::qos_class;

/// Sets all defaults of an object of `resource` (the plural name).
///
/// For created and updated objects: the initial phase (`Pending`, `Active`) is a default, too.
pub fn apply(resource: &str, object: &mut Value) {
    let Some(object) = object.as_object_mut() else { return };
    match resource {
        "pods" => pod::apply(object),
        "services" => kinds::service(object),
        "nodes" => kinds::node(object),
        "secrets" => kinds::secret(object),
        "namespaces" => kinds::namespace(object),
        "persistentvolumes" => kinds::persistent_volume(object),
        "persistentvolumeclaims" => kinds::persistent_volume_claim(object),
        "certificatesigningrequests" => kinds::certificate_signing_request(object),
        "podcertificaterequests" => kinds::pod_certificate_request(object),
        "csidrivers" => kinds::csi_driver(object),
        "limitranges" => kinds::limit_range(object),
        "priorityclasses" => tree::set(object, "preemptionPolicy", "PreemptLowerPriority"),
        "resourceclaims" => claims::claim(object),
        "resourceclaimtemplates" => claims::template(object),
        "storageclasses" => kinds::storage_class(object),
        "rolebindings" | "clusterrolebindings" => kinds::role_binding(object),
        _ => {}
    }
}

type Tree = Map<String, Value>;
