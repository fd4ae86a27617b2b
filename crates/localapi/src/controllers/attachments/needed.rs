//! Which volumes the pods of a node need attached. Pure.

use std::collections::BTreeMap;

use model::k8s::{PersistentVolume, Volume};
use serde::Deserialize;
use serde_json::{Value, json};
use volumes_core::attachment::attachment_name;
use volumes_core::csi::migration::{translate_inline, translate_persistent_volume};
use volumes_core::csi::paths::unique_name;

use super::super::volumes::claim_of_pod_volume;
use super::{DRIVERS, PODS};
use crate::object::{self, items, text};
use crate::store::{Key, Objects};

/// A volume that a driver attaches, and the pods that need it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Needed {
    /// As in the status of the Node.
    pub(super) unique_name: String,
    pub(super) driver: String,
    /// `spec.source` of the VolumeAttachment.
    pub(super) source: Value,
    /// In events: the name of the PersistentVolume.
    pub(super) volume: String,
    pub(super) pods: Vec<Key>,
}

/// A volume as its driver knows it.
#[derive(Clone, Debug, PartialEq)]
struct DriverVolume {
    driver: String,
    handle: String,
    source: Value,
    volume: String,
}

/// By the name of the VolumeAttachment.
pub(super) fn needed(node: &str, objects: &Objects) -> BTreeMap<String, Needed> {
    let mut all: BTreeMap<String, Needed> = BTreeMap::new();
    let of_node = objects.of(PODS, None).filter(|(_, pod)| text(pod, "/spec/nodeName") == node);
    for (key, pod) in of_node.filter(|(_, pod)| !has_ended(pod)) {
        for volume in items(pod, "/spec/volumes") {
            let Some(found) = driver_volume(pod, volume, objects) else { continue };
            if !is_attached_by_a_controller(&found.driver, objects) {
                continue;
            }
            let name = attachment_name(&found.handle, &found.driver, node);
            let needed = all.entry(name).or_insert_with(|| Needed {
                unique_name: unique_name(&found.driver, &found.handle),
                driver: found.driver,
                source: found.source,
                volume: found.volume,
                pods: Vec::new(),
            });
            if needed.pods.last() != Some(key) {
                needed.pods.push(key.clone());
            }
        }
    }
    all
}

/// Whether a pod has volumes that may have to be attached: from the pod alone.
pub(super) fn may_need(pod: &Value) -> bool {
    items(pod, "/spec/volumes")
        .iter()
        .any(|volume| claim_of_pod_volume(pod, volume).is_some() || inline_volume(pod, volume).is_some())
}

/// A pod that is being deleted has ended when none of its containers runs.
fn has_ended(pod: &Value) -> bool {
    let runs = |status: &Value| {
        let is = |state: &str| status.pointer(state).is_some_and(|state| !state.is_null());
        !is("/state/terminated") && !is("/state/waiting")
    };
    ["Succeeded", "Failed"].contains(&text(pod, "/status/phase"))
        || (object::is_terminating(pod) && !items(pod, "/status/containerStatuses").iter().any(runs))
}

/// A driver without an object is taken as one that needs it, as in the original.
fn is_attached_by_a_controller(driver: &str, objects: &Objects) -> bool {
    let object = objects.get(&Key::new(DRIVERS, "", driver));
    object.and_then(|driver| driver.pointer("/spec/attachRequired")) != Some(&Value::Bool(false))
}

fn driver_volume(pod: &Value, volume: &Value, objects: &Objects) -> Option<DriverVolume> {
    let Some(key) = claim_of_pod_volume(pod, volume) else { return inline_volume(pod, volume) };
    let claim = objects.get(&key).filter(|claim| text(claim, "/status/phase") == "Bound")?;
    let name = text(claim, "/spec/volumeName");
    let found = objects.get(&Key::new("persistentvolumes", "", name))?;
    if text(found, "/spec/claimRef/uid") != object::uid(claim) {
        return None;
    }
    let (driver, handle) = source_of(found)?;
    let source = json!({"persistentVolumeName": name});
    Some(DriverVolume { driver, handle, source, volume: name.to_owned() })
}

/// The driver of a PersistentVolume and its handle, also of a type whose code has moved to a driver.
fn source_of(volume: &Value) -> Option<(String, String)> {
    if let Some(csi) = volume.pointer("/spec/csi") {
        return Some((text(csi, "/driver").to_owned(), text(csi, "/volumeHandle").to_owned()));
    }
    let volume = PersistentVolume::deserialize(volume).ok()?;
    let source = translate_persistent_volume(&volume)?.ok()?.csi?;
    Some((source.driver, source.volume_handle))
}

/// A volume in the spec of a pod of a type whose code has moved to a driver. Other volumes there are never attached.
fn inline_volume(pod: &Value, volume: &Value) -> Option<DriverVolume> {
    let volume = Volume::deserialize(volume).ok()?;
    let translated = translate_inline(&volume, object::namespace(pod))?.ok()?;
    let source = translated.spec.csi.clone()?;
    Some(DriverVolume {
        driver: source.driver,
        handle: source.volume_handle,
        source: json!({"inlineVolumeSpec": translated.spec}),
        volume: translated.name,
    })
}
