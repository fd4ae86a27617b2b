//! What CSI drivers say about this node, in the API: the CSINode, and an annotation and labels of the Node
//! (docs/behaviour/volumes.md).
//!
//! Owns: every field that is written, what a driver may say, how often a write is tried. Never: calling the API or a driver.
//! Entries, labels and annotations of others are never removed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::csi::NodeInfo;
use model::k8s::{CSIDriver, CSINode, CSINodeDriver, CSINodeSpec, Node, ObjectMeta, VolumeNodeResources};
use model::text::cut;
use serde_json::{Value, json};

use base_core::node_owner::owner_reference;

/// Why the node is not ready until its CSINode is written.
pub const NOT_INITIALIZED: &str = "CSINode is not yet initialized";
/// The ids that the node has for each driver, as JSON.
pub const NODE_ID_ANNOTATION: &str = "csi.volume.kubernetes.io/nodeid";
/// In-tree volume plugins whose volumes are handled by CSI drivers.
pub const MIGRATED_PLUGINS_ANNOTATION: &str = "storage.alpha.kubernetes.io/migrated-plugins";
const MIGRATED_PLUGINS: [&str; 7] = [
    "kubernetes.io/aws-ebs",
    "kubernetes.io/azure-disk",
    "kubernetes.io/azure-file",
    "kubernetes.io/cinder",
    "kubernetes.io/gce-pd",
    "kubernetes.io/portworx-volume",
    "kubernetes.io/vsphere-volume",
];

/// The longest name that the API accepts for a driver.
const MAX_DRIVER_NAME: usize = 63;
/// The longest node id that the API accepts.
const MAX_NODE_ID: usize = 192;
/// The size of a map in the CSI specification, in bytes.
const MAX_TOPOLOGY: usize = 4096;
/// Drivers in one CSINode.
const MAX_DRIVERS: usize = 256;
/// How much of a damaged annotation is repeated in an error.
const MAX_SHOWN: usize = 256;
/// The shortest `nodeAllocatableUpdatePeriodSeconds` that the API accepts.
const MIN_UPDATE_PERIOD: Duration = Duration::from_secs(10);

/// How often something is tried, and the delays between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retries {
    attempts: u32,
    first: Duration,
    factor: u32,
}

/// Of the initialization: 140 seconds in total.
pub const INIT_RETRIES: Retries = Retries { attempts: 6, first: Duration::from_millis(30), factor: 8 };
/// Of one write.
pub const WRITE_RETRIES: Retries = Retries { attempts: 4, first: Duration::from_millis(10), factor: 5 };
/// The share of a delay by which it may be longer.
const JITTER: f64 = 0.1;

impl Retries {
    /// The delay before the next attempt after so many have failed; `None` after the last. `random` is from 0 to 1.
    #[must_use]
    pub fn delay(&self, failed: u32, random: f64) -> Option<Duration> {
        let next = failed < self.attempts;
        let delay = self.first * self.factor.saturating_pow(failed.saturating_sub(1));
        next.then(|| delay.mul_f64(1.0 + JITTER * random.clamp(0.0, 1.0)))
    }
}

/// The error of a write whose last attempt has failed, with each different failure once.
#[must_use]
pub fn timed_out(what: &str, failures: &[String]) -> String {
    let mut seen = BTreeSet::new();
    let distinct: Vec<&str> =
        failures.iter().map(String::as_str).filter(|failure| seen.insert(*failure)).collect();
    let causes = match distinct.as_slice() {
        [one] => (*one).to_owned(),
        several => format!("[{}]", several.join(", ")),
    };
    format!("{what}: timed out waiting for the condition; caused by: {causes}")
}

/// The next call for the CSINode.
#[derive(Clone, Debug, PartialEq)]
pub enum CsiNodeWrite {
    Nothing,
    Create(Box<CSINode>),
    /// Replaces it if its resource version is still the known one.
    Update(Box<CSINode>),
    /// It belongs to an earlier Node of this name. The attempt fails with this text, and the next one creates it again.
    Delete {
        why: String,
    },
}

/// This node, as the owner of its CSINode.
#[derive(Clone, Copy, Debug)]
pub struct NodeRef<'a> {
    pub name: &'a str,
    pub uid: &'a str,
}

/// Creates the CSINode, or updates its annotation.
#[must_use]
pub fn compute_initialization(found: Option<&CSINode>, node: NodeRef<'_>) -> CsiNodeWrite {
    write(found, node, |_| {})
}

/// Adds the driver to the CSINode, or updates its entry.
#[must_use]
pub fn compute_install(
    found: Option<&CSINode>,
    node: NodeRef<'_>,
    driver: &str,
    info: &NodeInfo,
) -> CsiNodeWrite {
    write(found, node, |drivers| {
        let wanted = entry(driver, info);
        if drivers.iter().any(|known| is_same(known, &wanted)) {
            return;
        }
        drivers.retain(|known| known.name != driver);
        drivers.push(wanted);
    })
}

/// Changes how many volumes a driver allows on this node; a driver without an entry gets none.
#[must_use]
pub fn compute_allocatable_update(
    found: Option<&CSINode>,
    node: NodeRef<'_>,
    driver: &str,
    max_volumes: i64,
) -> CsiNodeWrite {
    let Some(found) = found else { return CsiNodeWrite::Nothing };
    write(Some(found), node, |drivers| {
        for known in drivers.iter_mut().filter(|known| known.name == driver) {
            if count_of(known) != count(max_volumes) {
                known.allocatable = allocatable(max_volumes);
            }
        }
    })
}

/// Removes the entry of the driver.
#[must_use]
pub fn compute_uninstall(found: Option<&CSINode>, driver: &str) -> CsiNodeWrite {
    let Some(found) = found.filter(|found| drivers_of(found).iter().any(|known| known.name == driver)) else {
        return CsiNodeWrite::Nothing;
    };
    let mut node = found.clone();
    node.spec.drivers.retain(|known| known.name != driver);
    CsiNodeWrite::Update(Box::new(node))
}

fn write(
    found: Option<&CSINode>,
    node: NodeRef<'_>,
    change: impl FnOnce(&mut Vec<CSINodeDriver>),
) -> CsiNodeWrite {
    let Some(found) = found else {
        let mut new = new_csi_node(node);
        change(&mut new.spec.drivers);
        return CsiNodeWrite::Create(Box::new(new));
    };
    if let Err(why) = check_owner(found, node) {
        return CsiNodeWrite::Delete { why };
    }
    let mut new = found.clone();
    if !has_migrated_plugins(found) {
        set_migrated_plugins(&mut new.metadata);
    }
    change(&mut new.spec.drivers);
    if new == *found { CsiNodeWrite::Nothing } else { CsiNodeWrite::Update(Box::new(new)) }
}

fn new_csi_node(node: NodeRef<'_>) -> CSINode {
    let owner = owner_reference(node.name, node.uid);
    let mut metadata = ObjectMeta {
        name: Some(node.name.to_owned()),
        owner_references: Some(vec![owner]),
        ..ObjectMeta::default()
    };
    set_migrated_plugins(&mut metadata);
    CSINode { metadata, spec: CSINodeSpec { drivers: Vec::new() } }
}

fn drivers_of(node: &CSINode) -> &[CSINodeDriver] {
    &node.spec.drivers
}

fn check_owner(found: &CSINode, node: NodeRef<'_>) -> Result<(), String> {
    let owners = found.metadata.owner_references.iter().flatten().filter(|owner| owner.kind == "Node");
    let mut old = "";
    for owner in owners {
        if owner.name == node.name && owner.uid == node.uid {
            return Ok(());
        }
        old = &owner.uid;
    }
    Err(format!(
        "CSINode {:?} was owned by different node (oldNodeID={old:?}, newNodeID={:?}), deleted it",
        node.name, node.uid
    ))
}

fn has_migrated_plugins(node: &CSINode) -> bool {
    let known = node.metadata.annotations.as_ref().and_then(|all| all.get(MIGRATED_PLUGINS_ANNOTATION));
    let known: BTreeSet<&str> = known.map(|names| names.split(',').collect()).unwrap_or_default();
    known == BTreeSet::from(MIGRATED_PLUGINS)
}

fn set_migrated_plugins(metadata: &mut ObjectMeta) {
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.insert(MIGRATED_PLUGINS_ANNOTATION.to_owned(), MIGRATED_PLUGINS.join(","));
}

fn entry(driver: &str, info: &NodeInfo) -> CSINodeDriver {
    CSINodeDriver {
        name: driver.to_owned(),
        node_id: info.node_id.clone(),
        topology_keys: Some(info.topology.keys().cloned().collect()),
        allocatable: allocatable(info.max_volumes_per_node),
    }
}

/// The API omits an empty list, and the order of topology keys has no meaning.
fn is_same(known: &CSINodeDriver, wanted: &CSINodeDriver) -> bool {
    let keys = |driver: &'_ CSINodeDriver| -> BTreeSet<String> {
        driver.topology_keys.iter().flatten().cloned().collect()
    };
    known.name == wanted.name
        && known.node_id == wanted.node_id
        && keys(known) == keys(wanted)
        && count_of(known) == count_of(wanted)
}

fn count_of(driver: &CSINodeDriver) -> Option<i32> {
    driver.allocatable.as_ref()?.count
}

/// The number of volumes as the API has it: none without a limit, and for a negative number, which has no meaning.
fn count(max_volumes: i64) -> Option<i32> {
    (max_volumes > 0).then(|| i32::try_from(max_volumes).unwrap_or(i32::MAX))
}

fn allocatable(max_volumes: i64) -> Option<VolumeNodeResources> {
    count(max_volumes).map(|count| VolumeNodeResources { count: Some(count) })
}

/// Refuses what a driver must not say: its text ends up in objects that every client of the API reads.
///
/// # Errors
/// Why the driver is refused.
pub fn check_node_info(driver: &str, info: &NodeInfo) -> Result<(), String> {
    if info.node_id.is_empty() {
        return Err("error adding CSI driver node info: driverNodeID must not be empty".to_owned());
    }
    let topology: usize = info.topology.iter().map(|(key, value)| key.len() + value.len()).sum();
    for (what, size, max) in [
        ("name", driver.len(), MAX_DRIVER_NAME),
        ("node ID", info.node_id.len(), MAX_NODE_ID),
        ("topology", topology, MAX_TOPOLOGY),
    ] {
        if size > max {
            return Err(format!(
                "error adding CSI driver node info: {what} of the driver has {size} bytes, but may have at most {max}"
            ));
        }
    }
    Ok(())
}

/// Refuses one driver more than a CSINode may have.
///
/// # Errors
/// Why the driver is refused.
pub fn check_driver_count(found: Option<&CSINode>, driver: &str) -> Result<(), String> {
    let others = found.map(drivers_of).unwrap_or_default().iter().filter(|known| known.name != driver);
    if others.count() < MAX_DRIVERS {
        return Ok(());
    }
    Err(format!("the CSINode has {MAX_DRIVERS} other drivers, which is the maximum"))
}

/// The patch of the Node's status subresource (which may change labels and annotations) that records the driver; `None` if it is
/// recorded already.
///
/// # Errors
/// The annotation is damaged, or a label has another value.
pub fn compute_node_install(node: &Node, driver: &str, info: &NodeInfo) -> Result<Option<Value>, String> {
    let mut patch = json!({});
    let mut ids = node_ids(node)?;
    if ids.get(driver) != Some(&info.node_id) {
        ids.insert(driver.to_owned(), info.node_id.clone());
        patch["metadata"]["annotations"] = json!({NODE_ID_ANNOTATION: json!(ids).to_string()});
    }
    let none = BTreeMap::new();
    let labels = node.metadata.labels.as_ref().unwrap_or(&none);
    for (key, value) in &info.topology {
        match labels.get(key) {
            Some(known) if known == value => {}
            Some(known) => {
                return Err(format!(
                    "detected topology value collision: driver reported {key:?}:{value:?} but existing label is \
                     {key:?}:{known:?}"
                ));
            }
            None => patch["metadata"]["labels"][key] = json!(value),
        }
    }
    Ok(Some(patch).filter(|patch| patch.get("metadata").is_some()))
}

/// The patch that removes the driver's id from the Node; its topology stays. `None` if there is no id.
///
/// # Errors
/// The annotation is damaged.
pub fn compute_node_uninstall(node: &Node, driver: &str) -> Result<Option<Value>, String> {
    let mut ids = node_ids(node)?;
    if ids.remove(driver).is_none() {
        return Ok(None);
    }
    let value = if ids.is_empty() { Value::Null } else { json!(json!(ids).to_string()) };
    Ok(Some(json!({"metadata": {"annotations": {NODE_ID_ANNOTATION: value}}})))
}

fn node_ids(node: &Node) -> Result<BTreeMap<String, String>, String> {
    let annotation = node.metadata.annotations.as_ref().and_then(|all| all.get(NODE_ID_ANNOTATION));
    let Some(text) = annotation.filter(|text| !text.is_empty()) else { return Ok(BTreeMap::new()) };
    let parsed: Option<BTreeMap<String, String>> = serde_json::from_str(text).map_err(|error| {
        let shown = cut(text, MAX_SHOWN);
        format!("failed to parse node's {NODE_ID_ANNOTATION:?} annotation value ({shown:?}) err={error}")
    })?;
    Ok(parsed.unwrap_or_default())
}

/// How often the driver is asked again how many volumes the node may have; `None`: only when it registers.
#[must_use]
pub fn update_period(driver: &CSIDriver) -> Option<Duration> {
    let seconds = driver.spec.node_allocatable_update_period_seconds.filter(|seconds| *seconds > 0)?;
    Some(Duration::from_secs(seconds.unsigned_abs()).max(MIN_UPDATE_PERIOD))
}

#[cfg(test)]
mod tests;
