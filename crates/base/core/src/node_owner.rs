//! The Node as the owner of other objects: they are removed with it.

use model::k8s::OwnerReference;

pub fn owner_reference(node: &str, uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: node.to_owned(),
        uid: uid.to_owned(),
        ..OwnerReference::default()
    }
}
