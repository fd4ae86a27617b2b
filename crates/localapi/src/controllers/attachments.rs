//! Volumes that are attached to a node before its kubelet mounts them, as the attach/detach controller of a cluster does it: creates the
//! VolumeAttachment that a CSI driver's external-attacher acts on, reports attached volumes in the status of the Node, and deletes the
//! VolumeAttachment once no pod needs the volume and the kubelet has unmounted it. What the attacher protects by finalizers, it releases itself.

mod needed;
mod plan;
#[cfg(test)]
mod tests;

use serde_json::{Value, json};

use super::{Controller, record};
use crate::api::Api;
use crate::object;
use crate::registry::{self, deletion::DeleteOptions, namespaces::ensure};
use crate::resources;
use crate::store::{Change, Event, Key, NotStored, Objects, Write};
use plan::{Plan, PodEvent};

const ATTACHMENTS: &str = "volumeattachments";
const DRIVERS: &str = "csidrivers";
const NODES: &str = "nodes";
const PODS: &str = "pods";

pub(super) struct Attachments;

impl Controller for Attachments {
    const NAME: &'static str = "attachments";

    fn concerns(key: &Key, _: &Value) -> bool {
        key.resource == NODES
    }

    /// The nodes, if something changed that decides about what is attached.
    fn affected(event: &Event, objects: &Objects) -> Vec<Key> {
        let fields: &[&str] = match event.key.resource {
            NODES => &["/status/volumesInUse", "/status/volumesAttached", "/metadata/annotations"],
            PODS => &[
                "/spec/nodeName",
                "/spec/volumes",
                "/status/phase",
                "/status/containerStatuses",
                "/metadata/deletionTimestamp",
            ],
            "persistentvolumeclaims" => &["/spec/volumeName", "/status/phase"],
            "persistentvolumes" => &["/spec"],
            ATTACHMENTS => &["/status", "/metadata/deletionTimestamp"],
            DRIVERS => &["/spec"],
            _ => return Vec::new(),
        };
        let same =
            |previous: &Value| fields.iter().all(|at| previous.pointer(at) == event.object.pointer(at));
        let is_same = event.change == Change::Modified && event.previous.as_deref().is_some_and(same);
        if is_same || (event.key.resource == PODS && !needed::may_need(&event.object)) {
            return Vec::new();
        }
        objects.of(NODES, None).map(|(key, _)| key.clone()).collect()
    }

    /// Reports what is attached, and not what will be detached; then creates and deletes VolumeAttachments. Their changes lead back to the
    /// node.
    fn execute(api: &Api, key: &Key) -> Result<Vec<Key>, NotStored> {
        let mut plan = Plan::default();
        let written = api.store.write(key, |objects, current| {
            let Some(node) = current else { return Ok::<_, NotStored>(Write::Keep) };
            plan = plan::plan(node, objects);
            let Some(attached) = plan.attached.take() else { return Ok(Write::Keep) };
            let mut next = (**node).clone();
            object::set_list(object::map_at(&mut next, "status"), "volumesAttached", attached);
            Ok(Write::Put(next))
        })?;
        let Some(node) = written.object else { return Ok(Vec::new()) };
        for event in &plan.events {
            report(api, event);
        }
        for attachment in plan.create {
            if let Err(error) = ensure(api, ATTACHMENTS, "", attachment.object) {
                let why = format!("failed to create a VolumeAttachment: {error}");
                for pod in attachment.pods {
                    report(api, &PodEvent::failed(pod, &attachment.volume, &why));
                }
            }
        }
        for name in &plan.delete {
            delete(api, &node, name);
        }
        Ok(Vec::new())
    }
}

fn report(api: &Api, event: &PodEvent) {
    let Some(pod) = api.store.get(&event.pod) else { return };
    record(api, &pod, event.kind, event.reason, &event.message);
}

fn delete(api: &Api, node: &Value, name: &str) {
    let key = Key::new(ATTACHMENTS, "", name);
    let Some(resource) = resources::stored(ATTACHMENTS) else { return };
    if let Err(error) = registry::delete(api, resource, &key, &DeleteOptions::default()) {
        tracing::warn!(err = %error, name, node = object::name(node), "failed to delete a VolumeAttachment");
    }
}

/// A VolumeAttachment for the attacher of a driver.
fn attachment(name: &str, driver: &str, node: &str, source: &Value) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {"attacher": driver, "nodeName": node, "source": source},
    })
}
