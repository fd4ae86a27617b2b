//! Defaults of volumes.

use serde_json::json;

use super::Tree;
use super::image::pull_policy;
use super::tree::{child, items, section, set, set_absent, text};

/// The default mode of files in a volume.
const FILE_MODE: i32 = 0o644;
/// The default expiration of a projected token, in seconds.
const TOKEN_SECONDS: i32 = 3600;

pub(super) fn apply(volume: &mut Tree) {
    // A volume without a source is an emptyDir.
    if volume.iter().all(|(key, value)| key == "name" || value.is_null()) {
        volume.insert("emptyDir".to_owned(), json!({}));
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(files) = child(volume, source) {
            set_absent(files, "defaultMode", FILE_MODE);
        }
    }
    if let Some(downward) = child(volume, "downwardAPI") {
        field_references(downward);
    }
    if let Some(projected) = child(volume, "projected") {
        items(projected, "sources").for_each(projection);
    }
    if let Some(host_path) = child(volume, "hostPath") {
        set_absent(host_path, "type", "");
    }
    if let Some(image) = child(volume, "image") {
        let policy = pull_policy(text(image, "reference"));
        set(image, "pullPolicy", policy);
    }
    if let Some(claim) = child(volume, "ephemeral").and_then(|source| child(source, "volumeClaimTemplate"))
        && let Some(spec) = section(claim, "spec")
    {
        set(spec, "volumeMode", "Filesystem");
    }
    network(volume);
}

fn projection(source: &mut Tree) {
    if let Some(token) = child(source, "serviceAccountToken") {
        set_absent(token, "expirationSeconds", TOKEN_SECONDS);
    }
    if let Some(downward) = child(source, "downwardAPI") {
        field_references(downward);
    }
}

fn field_references(downward: &mut Tree) {
    for item in items(downward, "items") {
        reference(item);
    }
}

/// A reference to a field of the pod or to a resource of a container.
pub(super) fn reference(holder: &mut Tree) {
    if let Some(field) = child(holder, "fieldRef") {
        set(field, "apiVersion", "v1");
    }
    if let Some(resource) = child(holder, "resourceFieldRef") {
        set(resource, "divisor", "0");
    }
}

/// Network volume types with defaults.
fn network(volume: &mut Tree) {
    if let Some(iscsi) = child(volume, "iscsi") {
        set(iscsi, "iscsiInterface", "default");
    }
    if let Some(rbd) = child(volume, "rbd") {
        set(rbd, "pool", "rbd");
        set(rbd, "user", "admin");
        set(rbd, "keyring", "/etc/ceph/keyring");
    }
    if let Some(disk) = child(volume, "azureDisk") {
        set(disk, "cachingMode", "ReadWrite");
        set(disk, "kind", "Shared");
        set(disk, "fsType", "ext4");
        set_absent(disk, "readOnly", false);
    }
    if let Some(disk) = child(volume, "scaleIO") {
        set(disk, "storageMode", "ThinProvisioned");
        set(disk, "fsType", "xfs");
    }
}
