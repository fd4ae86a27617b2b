//! The values the API fills in where a client wrote none.
//!
//! Owns defaults, and the additions of those admission plugins that every cluster has. Never corrects or refuses what
//! was written: a field of the wrong type is left for validation. Doing it twice changes nothing more.

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

/// Fills in every default of an object of `resource` (the plural name).
///
/// For created and for updated objects alike: the state a new object starts in (`Pending`, `Active`) is a default too.
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
        "csidrivers" => kinds::csi_driver(object),
        _ => {}
    }
}

type Tree = Map<String, Value>;
