//! What is to be done about the attachments of one node. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use volumes_core::attachment::attachment_name;
use volumes_core::csi::PLUGIN as CSI;
use volumes_core::{fc, iscsi};

use super::needed::{Needed, needed};
use super::{ATTACHMENTS, attachment};
use crate::object::{self, items, text};
use crate::store::{Key, Objects};

/// On a Node whose volumes a controller attaches, and not its kubelet.
const MANAGED: &str = "/metadata/annotations/volumes.kubernetes.io~1controller-managed-attach-detach";

#[derive(Debug, Default, PartialEq)]
pub(super) struct Plan {
    /// `status.volumesAttached` of the Node, if it is another one.
    pub(super) attached: Option<Vec<Value>>,
    pub(super) create: Vec<NewAttachment>,
    /// The VolumeAttachments to delete, by name.
    pub(super) delete: Vec<String>,
    pub(super) events: Vec<PodEvent>,
}

/// A VolumeAttachment to create, and for whom.
#[derive(Debug, PartialEq)]
pub(super) struct NewAttachment {
    pub(super) object: Value,
    pub(super) volume: String,
    pub(super) pods: Vec<Key>,
}

#[derive(Debug, PartialEq)]
pub(super) struct PodEvent {
    pub(super) pod: Key,
    pub(super) kind: &'static str,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl PodEvent {
    pub(super) fn failed(pod: Key, volume: &str, why: &str) -> Self {
        let message = format!("AttachVolume.Attach failed for volume \"{volume}\" : {why}");
        Self { pod, kind: "Warning", reason: "FailedAttachVolume", message }
    }

    fn succeeded(pod: Key, volume: &str) -> Self {
        // The space at its end is that of the original.
        let message = format!("AttachVolume.Attach succeeded for volume \"{volume}\" ");
        Self { pod, kind: "Normal", reason: "SuccessfulAttachVolume", message }
    }
}

/// The state of a VolumeAttachment.
#[derive(Clone, Debug, PartialEq)]
enum State {
    Attached,
    Waiting,
    Failed(String),
    Terminating,
}

fn state(attachment: &Value) -> State {
    if object::is_terminating(attachment) {
        return State::Terminating;
    }
    if attachment.pointer("/status/attached") == Some(&Value::Bool(true)) {
        return State::Attached;
    }
    match attachment.pointer("/status/attachError").filter(|error| !error.is_null()) {
        Some(error) => State::Failed(text(error, "/message").to_owned()),
        None => State::Waiting,
    }
}

pub(super) fn plan(node: &Value, objects: &Objects) -> Plan {
    if node.pointer(MANAGED).and_then(Value::as_str) != Some("true") {
        return Plan::default();
    }
    let name = object::name(node);
    let needed = needed(name, objects);
    let in_use = in_use(node);
    let states: BTreeMap<&str, State> = objects
        .of(ATTACHMENTS, None)
        .filter(|(_, found)| text(found, "/spec/nodeName") == name)
        .map(|(key, found)| (key.name.as_str(), state(found)))
        .collect();
    let attached = attached(node, &needed, &in_use, &states);
    let create = needed.iter().filter(|(name, _)| !states.contains_key(name.as_str()));
    let is_kept = |found: &str| needed.contains_key(found) || in_use.contains_key(found);
    let delete = states.iter().filter(|(found, state)| {
        **state != State::Terminating && is_of_this_controller(found) && !is_kept(found)
    });
    Plan {
        create: create.map(|(attachment, needed)| new_attachment(attachment, name, needed)).collect(),
        delete: delete.map(|(found, _)| (*found).to_owned()).collect(),
        events: events(node, &needed, &states),
        attached: (items(node, "/status/volumesAttached") != attached).then_some(attached),
    }
}

fn new_attachment(name: &str, node: &str, needed: &Needed) -> NewAttachment {
    NewAttachment {
        object: attachment(name, &needed.driver, node, &needed.source),
        volume: needed.volume.clone(),
        pods: needed.pods.clone(),
    }
}

/// Those that others created for the node under names of their own stay.
fn is_of_this_controller(name: &str) -> bool {
    let digest = name.strip_prefix("csi-").unwrap_or_default();
    digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The volumes of drivers that the kubelet has mounted or is about to mount: their names in the Node's status, by those of the
/// VolumeAttachments.
fn in_use(node: &Value) -> BTreeMap<String, String> {
    let names = items(node, "/status/volumesInUse").iter().filter_map(Value::as_str);
    let of_drivers = names.filter_map(|name| {
        let (driver, handle) = name.strip_prefix(CSI)?.strip_prefix('/')?.split_once('^')?;
        Some((attachment_name(handle, driver, object::name(node)), name.to_owned()))
    });
    of_drivers.collect()
}

/// What the Node reports as attached: what an attacher has attached and a pod needs or the kubelet has mounted, and disks of the network in
/// use, which the node connects to itself. The order is that of the present list.
fn attached(
    node: &Value,
    needed: &BTreeMap<String, Needed>,
    in_use: &BTreeMap<String, String>,
    states: &BTreeMap<&str, State>,
) -> Vec<Value> {
    let is_attached = |name: &str| states.get(name) == Some(&State::Attached);
    let of_pods = needed.iter().map(|(name, needed)| (name, &needed.unique_name));
    let of_drivers = of_pods.chain(in_use).filter(|(name, _)| is_attached(name));
    let disks = items(node, "/status/volumesInUse").iter().filter_map(Value::as_str).filter(|name| {
        [fc::PLUGIN, iscsi::PLUGIN].iter().any(|plugin| name.starts_with(&format!("{plugin}/")))
    });
    let mut names: BTreeSet<&str> =
        of_drivers.map(|(_, unique_name)| unique_name.as_str()).chain(disks).collect();
    let mut list = Vec::new();
    for reported in items(node, "/status/volumesAttached") {
        if names.remove(text(reported, "/name")) {
            list.push(reported.clone());
        }
    }
    list.extend(names.into_iter().map(|name| json!({"name": name, "devicePath": ""})));
    list
}

/// What the pods get to know: an error of the attacher, and that a volume has become attached.
fn events(node: &Value, needed: &BTreeMap<String, Needed>, states: &BTreeMap<&str, State>) -> Vec<PodEvent> {
    let reported: BTreeSet<&str> =
        items(node, "/status/volumesAttached").iter().map(|volume| text(volume, "/name")).collect();
    let mut events = Vec::new();
    for (name, needed) in needed {
        let pods = needed.pods.iter().cloned();
        match states.get(name.as_str()) {
            Some(State::Failed(why)) => {
                events.extend(pods.map(|pod| PodEvent::failed(pod, &needed.volume, why)));
            }
            Some(State::Attached) if !reported.contains(needed.unique_name.as_str()) => {
                events.extend(pods.map(|pod| PodEvent::succeeded(pod, &needed.volume)));
            }
            Some(State::Attached | State::Waiting | State::Terminating) | None => {}
        }
    }
    events
}
