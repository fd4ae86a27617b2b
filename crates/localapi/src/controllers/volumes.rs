//! Volumes and claims: binds each claim to a volume, makes a directory of this machine for claims of the storage class [`CLASS`], releases
//! volumes whose claims are gone, and keeps both as long as they are in use. Claims of other classes wait for the provisioner of their CSI
//! driver, as in a cluster.

mod claims;
mod directories;
mod ephemeral;
mod persistent;
#[cfg(test)]
mod tests;

use serde_json::{Value, json};

use super::{Controller, record};
use crate::admission::storage::{CLAIM_PROTECTION, VOLUME_PROTECTION};
use crate::api::Api;
use crate::object::{self, items, text};
use crate::registry;
use crate::resources;
use crate::store::{Change, Event, Key, NotStored, Objects, Write};
use claims::ClaimStep;
use persistent::{LocalVolume, VolumeStep};

/// The storage class of directories of this machine.
const CLASS: &str = "local";
const PROVISIONER: &str = "kubelet-rs.io/local";

const CLAIMS: &str = "persistentvolumeclaims";
const VOLUMES: &str = "persistentvolumes";
const PODS: &str = "pods";
const CLASSES: &str = "storageclasses";

const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";

/// The storage class that exists from the start; an administrator may change or delete it.
pub(crate) fn class() -> Value {
    json!({
        "metadata": {
            "name": CLASS,
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": PROVISIONER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
    })
}

fn claim_key(namespace: &str, name: &str) -> Key {
    Key::new(CLAIMS, namespace, name)
}

fn volume_key(name: &str) -> Key {
    Key::new(VOLUMES, "", name)
}

fn annotation<'a>(object: &'a Value, name: &str) -> &'a str {
    object["metadata"]["annotations"].get(name).and_then(Value::as_str).unwrap_or_default()
}

fn set_annotation(object: &mut Value, name: &str, value: &str) {
    let annotations = object::metadata(object).entry("annotations").or_insert_with(|| json!({}));
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.insert(name.to_owned(), json!(value));
    }
}

/// The claim that a volume is bound or reserved for.
fn claim_of(volume: &Value) -> Option<Key> {
    let name = text(volume, "/spec/claimRef/name");
    (!name.is_empty()).then(|| claim_key(text(volume, "/spec/claimRef/namespace"), name))
}

/// The claims that a pod names.
fn claims_of_pod(pod: &Value) -> impl Iterator<Item = Key> {
    items(pod, "/spec/volumes").iter().filter_map(|volume| claim_of_pod_volume(pod, volume))
}

/// The claim of a volume of a pod.
pub(super) fn claim_of_pod_volume(pod: &Value, volume: &Value) -> Option<Key> {
    let namespace = object::namespace(pod);
    let name = text(volume, "/persistentVolumeClaim/claimName");
    if !name.is_empty() {
        return Some(claim_key(namespace, name));
    }
    volume.get("ephemeral")?;
    Some(claim_key(namespace, &ephemeral::claim_name(pod, volume)))
}

fn unbound_claims(objects: &Objects) -> impl Iterator<Item = Key> {
    let unbound = objects.of(CLAIMS, None).filter(|(_, claim)| text(claim, "/status/phase") != "Bound");
    unbound.map(|(key, _)| key.clone())
}

pub(super) struct Volumes;

impl Controller for Volumes {
    const NAME: &'static str = "volumes";

    fn concerns(key: &Key, object: &Value) -> bool {
        match key.resource {
            CLAIMS | VOLUMES => true,
            PODS => claims_of_pod(object).next().is_some(),
            _ => false,
        }
    }

    fn affected(event: &Event, objects: &Objects) -> Vec<Key> {
        let both = || [Some(&*event.object), event.previous.as_deref()].into_iter().flatten();
        let mut keys = Vec::new();
        match event.key.resource {
            CLAIMS => {
                keys.extend(both().map(|claim| volume_key(text(claim, "/spec/volumeName"))));
                keys.push(event.key.clone());
            }
            VOLUMES => {
                keys.extend(both().filter_map(claim_of));
                keys.push(event.key.clone());
                if claim_of(&event.object).is_none() {
                    keys.extend(unbound_claims(objects));
                }
            }
            PODS => {
                let same = |previous: &Value| {
                    let fields = ["/spec/volumes", "/spec/nodeName", "/status/phase"];
                    fields.iter().all(|field| previous.pointer(field) == event.object.pointer(field))
                };
                let is_modified = event.change == Change::Modified;
                if !is_modified || !event.previous.as_deref().is_some_and(same) {
                    keys.extend(claims_of_pod(&event.object));
                    keys.extend(ephemeral::is_used(&event.object).then(|| event.key.clone()));
                }
            }
            CLASSES => keys.extend(unbound_claims(objects)),
            _ => {}
        }
        keys.retain(|key| !key.name.is_empty());
        keys
    }

    fn execute(api: &Api, key: &Key) -> Result<Vec<Key>, NotStored> {
        match key.resource {
            CLAIMS => advance_claim(api, key),
            VOLUMES => advance_volume(api, key),
            _ => ephemeral::create_claims(api, key).map(|()| Vec::new()),
        }
    }
}

fn advance_claim(api: &Api, key: &Key) -> Result<Vec<Key>, NotStored> {
    let mut step = ClaimStep::Nothing;
    let written = api.store.write(key, |objects, current| {
        let Some(current) = current else { return Ok(Write::Keep) };
        step = claims::step(current, key, objects);
        Ok::<_, NotStored>(match &step {
            ClaimStep::Put(next) => registry::put_or_remove(next.clone()),
            ClaimStep::Lost(next) => Write::Put(next.clone()),
            ClaimStep::Nothing
            | ClaimStep::Bind(_)
            | ClaimStep::Provision { .. }
            | ClaimStep::SelectNode
            | ClaimStep::Wait(_) => Write::Keep,
        })
    })?;
    let Some(claim) = written.object else { return Ok(Vec::new()) };
    match step {
        ClaimStep::Nothing => {}
        ClaimStep::Put(_) => {
            if written.removed {
                registry::namespaces::after_removal(api, key);
            }
        }
        ClaimStep::Lost(_) => {
            let why = "Bound claim has lost its PersistentVolume. Data on the volume is lost!";
            record(api, &claim, "Warning", "ClaimLost", why);
        }
        ClaimStep::Bind(volume) => {
            reserve(api, &volume, &claim)?;
            return Ok(vec![key.clone()]);
        }
        ClaimStep::Provision { class, policy } => return provision(api, key, &claim, &class, &policy),
        ClaimStep::Wait(why) => record(api, &claim, why.kind, why.reason, &why.message),
        ClaimStep::SelectNode => select_node(api, key)?,
    }
    Ok(Vec::new())
}

/// Reserves a volume for a claim, unless another one was faster.
fn reserve(api: &Api, volume: &Key, claim: &Value) -> Result<(), NotStored> {
    api.store.write(volume, |_, current| {
        let Some(current) = current.filter(|volume| claims::is_free_for(volume, claim)) else {
            return Ok::<_, NotStored>(Write::Keep);
        };
        let mut next = (**current).clone();
        if claim_of(current).is_none() {
            set_annotation(&mut next, BOUND_BY_CONTROLLER, "yes");
        }
        object::map_at(&mut next, "spec").insert("claimRef".to_owned(), claims::reference(claim));
        Ok(Write::Put(next))
    })?;
    Ok(())
}

/// Makes a directory and the volume for it. The name has the UID of the claim, so that a repetition makes nothing twice.
fn provision(api: &Api, key: &Key, claim: &Value, class: &str, policy: &str) -> Result<Vec<Key>, NotStored> {
    let name = format!("pvc-{}", object::uid(claim));
    let Some(node) = api.behaviour.bind_to.as_deref() else { return Ok(Vec::new()) };
    let made = directories::make(api.behaviour.local_volumes.as_deref(), &name);
    let path = match made {
        Ok(path) => path.display().to_string(),
        Err(error) => {
            let why = format!("failed to provision volume with StorageClass {class:?}: {error}");
            record(api, claim, "Warning", "ProvisioningFailed", &why);
            return Ok(Vec::new());
        }
    };
    let volume = persistent::local(&LocalVolume { name: &name, path, node, class, policy }, claim);
    if let Err(error) = registry::namespaces::ensure(api, VOLUMES, "", volume) {
        let why = format!("failed to provision volume with StorageClass {class:?}: {error}");
        record(api, claim, "Warning", "ProvisioningFailed", &why);
        return Ok(Vec::new());
    }
    record(api, claim, "Normal", "ProvisioningSucceeded", &format!("Successfully provisioned volume {name}"));
    Ok(vec![key.clone()])
}

/// Names the node for the provisioner of a CSI driver, as a scheduler would.
fn select_node(api: &Api, key: &Key) -> Result<(), NotStored> {
    let Some(node) = api.behaviour.bind_to.as_deref() else { return Ok(()) };
    api.store.write(key, |objects, current| {
        let Some(current) = current else { return Ok::<_, NotStored>(Write::Keep) };
        let mut next = (**current).clone();
        set_annotation(&mut next, claims::SELECTED_NODE, node);
        let provisioner = claims::provisioner(current, objects).unwrap_or_default();
        set_annotation(&mut next, claims::STORAGE_PROVISIONER, provisioner);
        set_annotation(&mut next, claims::OLDER_STORAGE_PROVISIONER, provisioner);
        Ok(if next == **current { Write::Keep } else { Write::Put(next) })
    })?;
    Ok(())
}

fn advance_volume(api: &Api, key: &Key) -> Result<Vec<Key>, NotStored> {
    let mut step = VolumeStep::Nothing;
    api.store.write(key, |objects, current| {
        let Some(current) = current else { return Ok(Write::Keep) };
        step = persistent::step(current, objects);
        Ok::<_, NotStored>(match &step {
            VolumeStep::Put(next) => registry::put_or_remove(next.clone()),
            VolumeStep::Failed(next) => Write::Put(next.clone()),
            VolumeStep::Nothing | VolumeStep::Delete => Write::Keep,
        })
    })?;
    match step {
        VolumeStep::Nothing | VolumeStep::Put(_) => return Ok(Vec::new()),
        VolumeStep::Failed(volume) => {
            record(api, &volume, "Warning", "VolumeFailedDelete", persistent::MANUAL_DELETION);
            return Ok(Vec::new());
        }
        VolumeStep::Delete => {}
    }
    let Some(volume) = api.store.get(key) else { return Ok(Vec::new()) };
    if let Err(error) = directories::remove(api.behaviour.local_volumes.as_deref(), &key.name) {
        record(
            api,
            &volume,
            "Warning",
            "VolumeFailedDelete",
            &format!("failed to delete its directory: {error}"),
        );
        return Ok(Vec::new());
    }
    let options = registry::deletion::DeleteOptions::default();
    if let Some(resource) = resources::stored(VOLUMES)
        && let Err(error) = registry::delete(api, resource, key, &options)
    {
        tracing::warn!(err = %error, name = key.name, "failed to delete a volume; the next start does it");
    }
    Ok(vec![key.clone()])
}
