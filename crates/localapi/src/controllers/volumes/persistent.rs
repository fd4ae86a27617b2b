//! The next step of a volume. Pure.

use serde_json::{Value, json};

use super::{
    BOUND_BY_CONTROLLER, PROVISIONED_BY, PROVISIONER, VOLUME_PROTECTION, annotation, claim_of, claims,
};
use crate::object::{self, text};
use crate::store::Objects;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum VolumeStep {
    Nothing,
    Put(Value),
    /// Its claim is gone, and it should be deleted, but nothing here does that.
    Failed(Value),
    /// Remove its directory, and the volume.
    Delete,
}

/// What an administrator can do about it.
pub(super) const MANUAL_DELETION: &str = "its reclaim policy is Delete, and nothing here deletes what an administrator \
    has made: delete the data and the PersistentVolume manually, or set persistentVolumeReclaimPolicy to Retain";

pub(super) fn step(volume: &Value, objects: &Objects) -> VolumeStep {
    let phase = phase(volume, objects);
    if phase == "Released"
        && text(volume, "/spec/persistentVolumeReclaimPolicy") == "Delete"
        && is_local(volume)
    {
        // Its directory goes before the finalizer, so that a restart between the two removes it again.
        if !object::is_terminating(volume) {
            return VolumeStep::Delete;
        }
    }
    let mut next = volume.clone();
    if object::is_terminating(volume) && phase != "Bound" {
        let held = object::finalizers(volume).iter();
        let rest = held.filter(|finalizer| *finalizer != VOLUME_PROTECTION).cloned().collect();
        object::set_list(object::metadata(&mut next), "finalizers", rest);
    }
    if phase == "Available" && annotation(volume, BOUND_BY_CONTROLLER) == "yes" && claim_of(volume).is_some()
    {
        // The claim has got another volume.
        object::map_at(&mut next, "spec").remove("claimRef");
        if let Some(annotations) = next["metadata"]["annotations"].as_object_mut() {
            annotations.remove(BOUND_BY_CONTROLLER);
        }
    }
    let has_failed = phase == "Released" && needs_manual_deletion(volume);
    let status = object::map_at(&mut next, "status");
    if has_failed {
        status.insert("message".to_owned(), json!(MANUAL_DELETION));
    } else if status.get("message").is_some_and(|message| message == MANUAL_DELETION) {
        status.remove("message");
    }
    status.insert("phase".to_owned(), json!(if has_failed { "Failed" } else { phase }));
    match next == *volume {
        true => VolumeStep::Nothing,
        false if has_failed => VolumeStep::Failed(next),
        false => VolumeStep::Put(next),
    }
}

/// Whether the volume should be deleted and is neither a directory that was made here nor one of a CSI driver, whose provisioner
/// deletes it.
fn needs_manual_deletion(volume: &Value) -> bool {
    text(volume, "/spec/persistentVolumeReclaimPolicy") == "Delete"
        && annotation(volume, PROVISIONED_BY).is_empty()
        && volume.pointer("/spec/csi").is_none()
        && !object::is_terminating(volume)
}

fn is_local(volume: &Value) -> bool {
    annotation(volume, PROVISIONED_BY) == PROVISIONER
}

fn phase(volume: &Value, objects: &Objects) -> &'static str {
    let uid = text(volume, "/spec/claimRef/uid");
    let Some(key) = claim_of(volume).filter(|_| !uid.is_empty()) else { return "Available" };
    match objects.get(&key).filter(|claim| object::uid(claim) == uid) {
        None => "Released",
        Some(claim) => match text(claim, "/spec/volumeName") {
            "" => "Available",
            name if name == object::name(volume) => "Bound",
            _ => "Available",
        },
    }
}

/// A volume that is a directory of this machine.
pub(super) struct LocalVolume<'a> {
    pub(super) name: &'a str,
    pub(super) path: String,
    pub(super) node: &'a str,
    pub(super) class: &'a str,
    pub(super) policy: &'a str,
}

/// The object of such a volume, reserved for its claim.
pub(super) fn local(volume: &LocalVolume<'_>, claim: &Value) -> Value {
    let LocalVolume { name, path, node, class, policy } = volume;
    let storage = claim.pointer("/spec/resources/requests/storage").cloned().unwrap_or_else(|| json!("0"));
    let of_node = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [node]});
    json!({
        "metadata": {"name": name, "annotations": {PROVISIONED_BY: PROVISIONER}},
        "spec": {
            "accessModes": claim["spec"]["accessModes"],
            "capacity": {"storage": storage},
            "claimRef": claims::reference(claim),
            "local": {"path": path},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [of_node]}]}},
            "persistentVolumeReclaimPolicy": policy,
            "storageClassName": class,
            "volumeMode": "Filesystem",
        },
    })
}
