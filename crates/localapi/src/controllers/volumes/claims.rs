//! The next step of a claim. Pure.

use model::Amount;
use serde_json::{Value, json};

use super::{
    BIND_COMPLETED, BOUND_BY_CONTROLLER, CLAIM_PROTECTION, CLASSES, PODS, PROVISIONER, VOLUMES, annotation,
    claim_of, claims_of_pod, set_annotation, volume_key,
};
use crate::amounts;
use crate::object::{self, items, text};
use crate::selector::LabelSelector;
use crate::store::{Key, Objects};

pub(super) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
pub(super) const STORAGE_PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
pub(super) const OLDER_STORAGE_PROVISIONER: &str = "volume.beta.kubernetes.io/storage-provisioner";

#[derive(Clone, Debug, PartialEq)]
pub(super) enum ClaimStep {
    Nothing,
    Put(Value),
    /// The volume that it was bound to is gone.
    Lost(Value),
    /// Reserve this volume for it.
    Bind(Key),
    /// Make a directory of this machine for it.
    Provision {
        class: String,
        policy: String,
    },
    /// Name the node and the provisioner for a CSI driver.
    SelectNode,
    Wait(Waiting),
}

/// Why a claim has no volume, as an event.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Waiting {
    /// `Warning` if an administrator must do something, else `Normal`.
    pub(super) kind: &'static str,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

fn waits(reason: &'static str, message: impl Into<String>) -> ClaimStep {
    ClaimStep::Wait(Waiting { kind: "Normal", reason, message: message.into() })
}

fn fails(reason: &'static str, message: String) -> ClaimStep {
    ClaimStep::Wait(Waiting { kind: "Warning", reason, message })
}

pub(super) fn step(claim: &Value, key: &Key, objects: &Objects) -> ClaimStep {
    if object::is_terminating(claim) {
        return release(claim, key, objects);
    }
    match text(claim, "/spec/volumeName") {
        "" => unbound(claim, key, objects),
        name => match objects.get(&volume_key(name)) {
            Some(volume) if is_bound_to(volume, claim) => completed(claim, volume),
            Some(volume) if is_free_for(volume, claim) => bind_named(claim, name, volume),
            Some(_) | None if annotation(claim, BIND_COMPLETED) == "yes" => lost(claim),
            Some(volume) => fails("FailedBinding", why_not_free(name, volume)),
            None => fails("FailedBinding", format!("volume {name:?} does not exist")),
        },
    }
}

/// A volume that the claim names is checked like any other, unless an administrator has reserved it for the claim, or they belonged together
/// before.
fn bind_named(claim: &Value, name: &str, volume: &Value) -> ClaimStep {
    let is_settled = claim_of(volume).is_some() || annotation(claim, BIND_COMPLETED) == "yes";
    match mismatch(volume, claim).filter(|_| !is_settled) {
        None => ClaimStep::Bind(volume_key(name)),
        Some(why) => fails("VolumeMismatch", format!("Cannot bind to requested volume {name:?}: {why}")),
    }
}

fn why_not_free(name: &str, volume: &Value) -> String {
    match object::is_terminating(volume) {
        true => format!("volume {name:?} is being deleted"),
        false => format!("volume {name:?} already bound to a different claim."),
    }
}

/// A claim that is being deleted stays until no pod uses it.
fn release(claim: &Value, key: &Key, objects: &Objects) -> ClaimStep {
    let finalizers = object::finalizers(claim);
    let is_protected = finalizers.iter().any(|finalizer| finalizer == CLAIM_PROTECTION);
    if !is_protected || is_used(key, objects) {
        return ClaimStep::Nothing;
    }
    let rest = finalizers.iter().filter(|finalizer| *finalizer != CLAIM_PROTECTION).cloned().collect();
    let mut next = claim.clone();
    object::set_list(object::metadata(&mut next), "finalizers", rest);
    ClaimStep::Put(next)
}

/// Whether a pod that has not ended names the claim.
fn is_used(key: &Key, objects: &Objects) -> bool {
    objects
        .of(PODS, Some(&key.namespace))
        .any(|(_, pod)| !object::has_ended(pod) && claims_of_pod(pod).any(|named| named == *key))
}

fn lost(claim: &Value) -> ClaimStep {
    if text(claim, "/status/phase") == "Lost" {
        return ClaimStep::Nothing;
    }
    let mut next = claim.clone();
    object::map_at(&mut next, "status").insert("phase".to_owned(), json!("Lost"));
    ClaimStep::Lost(next)
}

/// Writes down that claim and volume belong together.
fn completed(claim: &Value, volume: &Value) -> ClaimStep {
    let mut next = claim.clone();
    if text(claim, "/spec/volumeName").is_empty() {
        object::map_at(&mut next, "spec").insert("volumeName".to_owned(), json!(object::name(volume)));
        set_annotation(&mut next, BOUND_BY_CONTROLLER, "yes");
    }
    set_annotation(&mut next, BIND_COMPLETED, "yes");
    let status = object::map_at(&mut next, "status");
    status.insert("phase".to_owned(), json!("Bound"));
    for field in ["accessModes", "capacity"] {
        if let Some(value) = volume["spec"].get(field) {
            status.insert(field.to_owned(), value.clone());
        }
    }
    if next == *claim { ClaimStep::Nothing } else { ClaimStep::Put(next) }
}

fn is_bound_to(volume: &Value, claim: &Value) -> bool {
    text(volume, "/spec/claimRef/uid") == object::uid(claim)
}

/// Whether nothing else has the volume: it is reserved for no claim, or for this one.
pub(super) fn is_free_for(volume: &Value, claim: &Value) -> bool {
    if object::is_terminating(volume) {
        return false;
    }
    let Some(reserved) = claim_of(volume) else { return true };
    let uid = text(volume, "/spec/claimRef/uid");
    reserved.name == object::name(claim)
        && reserved.namespace == object::namespace(claim)
        && (uid.is_empty() || uid == object::uid(claim))
}

pub(super) fn reference(claim: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "name": object::name(claim),
        "namespace": object::namespace(claim),
        "uid": object::uid(claim),
        "resourceVersion": object::resource_version(claim),
    })
}

fn unbound(claim: &Value, key: &Key, objects: &Objects) -> ClaimStep {
    let name = class_name(claim);
    let class = objects.get(&Key::new(CLASSES, "", name));
    let binds_late = class.is_some_and(|class| text(class, "/volumeBindingMode") == "WaitForFirstConsumer");
    let is_early = binds_late && !is_used(key, objects);
    if let Some((volume, found)) = best(claim, objects, is_early) {
        return if is_bound_to(found, claim) {
            completed(claim, found)
        } else {
            ClaimStep::Bind(volume.clone())
        };
    }
    if name.is_empty() {
        let why = "no persistent volumes available for this claim and no storage class is set";
        return waits("FailedBinding", why);
    }
    let Some(class) = class else {
        return fails("ProvisioningFailed", format!("storageclass.storage.k8s.io \"{name}\" not found"));
    };
    if is_early {
        return waits("WaitForFirstConsumer", "waiting for first consumer to be created before binding");
    }
    match text(class, "/provisioner") {
        PROVISIONER => {
            let policy = text(class, "/reclaimPolicy").to_owned();
            ClaimStep::Provision { class: name.to_owned(), policy }
        }
        "kubernetes.io/no-provisioner" => fails("ProvisioningFailed", "no volume plugin matched".to_owned()),
        provisioner
            if annotation(claim, SELECTED_NODE).is_empty()
                || annotation(claim, STORAGE_PROVISIONER) != provisioner =>
        {
            ClaimStep::SelectNode
        }
        provisioner => waits(
            "ExternalProvisioning",
            format!(
                "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the system administrator. If volume creation is delayed, please verify that the provisioner is running and correctly registered."
            ),
        ),
    }
}

/// The provisioner of the claim's class.
pub(super) fn provisioner<'a>(claim: &Value, objects: &'a Objects) -> Option<&'a str> {
    objects.get(&Key::new(CLASSES, "", class_name(claim))).map(|class| text(class, "/provisioner"))
}

/// The class of a claim or volume; the annotation is its older form.
fn class_name(object: &Value) -> &str {
    match annotation(object, "volume.beta.kubernetes.io/storage-class") {
        "" => text(object, "/spec/storageClassName"),
        older => older,
    }
}

/// The volume for a claim: one that is reserved for it, or else the smallest that fits.
fn best<'a>(claim: &Value, objects: &'a Objects, only_reserved: bool) -> Option<(&'a Key, &'a Value)> {
    let volumes = || objects.of(VOLUMES, None).map(|(key, volume)| (key, &**volume));
    let reserved = volumes().find(|(_, volume)| claim_of(volume).is_some() && is_free_for(volume, claim));
    if only_reserved {
        return reserved;
    }
    reserved.or_else(|| {
        let fitting = volumes().filter(|(_, volume)| claim_of(volume).is_none() && fits(volume, claim));
        fitting.min_by_key(|(_, volume)| capacity(volume))
    })
}

fn capacity(volume: &Value) -> Amount {
    volume.pointer("/spec/capacity/storage").and_then(amounts::parse).unwrap_or_default()
}

fn fits(volume: &Value, claim: &Value) -> bool {
    let selected = claim.pointer("/spec/selector").is_none_or(|selector| {
        LabelSelector::of_object(selector).is_some_and(|selector| selector.matches(volume))
    });
    !object::is_terminating(volume) && selected && mismatch(volume, claim).is_none()
}

/// Why a volume cannot be that of a claim, whoever chose it.
fn mismatch(volume: &Value, claim: &Value) -> Option<&'static str> {
    let requested =
        claim.pointer("/spec/resources/requests/storage").and_then(amounts::parse).unwrap_or_default();
    let modes = items(volume, "/spec/accessModes");
    if capacity(volume) < requested {
        Some("requested PV is too small")
    } else if class_name(volume) != class_name(claim) {
        Some("storageClassName does not match")
    } else if text(volume, "/spec/volumeMode") != text(claim, "/spec/volumeMode") {
        Some("incompatible volumeMode")
    } else if !items(claim, "/spec/accessModes").iter().all(|mode| modes.contains(mode)) {
        Some("incompatible accessMode")
    } else {
        None
    }
}
