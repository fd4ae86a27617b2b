//! The devices of a node: those of all ResourceSlices that name it, and what they share.

use std::collections::{BTreeMap, BTreeSet};

use model::Amount;
use model::k8s::VolumeNodeAffinity;
use serde::Deserialize;
use serde_json::{Value, json};
use volumes_core::node_affinity::check_node_affinity;

use super::super::{NODES, SLICES};
use super::InUse;
use crate::amounts;
use crate::cel::{Attribute, Device as SelectedDevice, Input, Version};
use crate::object::{items, text};
use crate::store::{Key, Objects};

/// The devices of a node that are considered.
const MAX_DEVICES: usize = 10_000;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DeviceId {
    pub(super) driver: String,
    pub(super) pool: String,
    pub(super) device: String,
}

impl DeviceId {
    /// Of a result of an allocation.
    pub(super) fn of(result: &Value) -> Self {
        let field = |field: &str| text(result, field).to_owned();
        Self { driver: field("/driver"), pool: field("/pool"), device: field("/device") }
    }
}

/// A counter of a pool that several devices share.
pub(super) type Counter = (String, String, String, String);

#[derive(Debug)]
pub(super) struct Device {
    pub(super) id: DeviceId,
    pub(super) input: Input,
    /// By domain and name.
    pub(super) attributes: BTreeMap<(String, String), Attribute>,
    pub(super) capacity: BTreeMap<(String, String), Amount>,
    pub(super) taints: Vec<Value>,
    consumes: Vec<(Counter, Amount)>,
    /// Only nodes with its name or labels have it.
    pub(super) is_local: bool,
}

/// Something that devices of which no request can be satisfied belong to.
#[derive(Debug, Default)]
pub(super) struct Inventory {
    pub(super) devices: Vec<Device>,
    counters: BTreeMap<Counter, Amount>,
    /// `driver/pool` of those whose slices are not all there.
    pub(super) incomplete: Vec<String>,
    /// `driver/pool` of those in which a name occurs twice.
    pub(super) invalid: Vec<String>,
    /// How many devices are left out because a controller would have to prepare them after their allocation.
    pub(super) with_binding_conditions: usize,
}

/// The slices of a pool with the newest generation.
#[derive(Default)]
struct Pool<'a> {
    generation: i64,
    slices: Vec<&'a Value>,
}

impl Inventory {
    pub(super) fn of_node(node: &str, objects: &Objects) -> Result<Self, String> {
        let labels = objects.get(&Key::new(NODES, "", node)).map(|node| labels(node)).unwrap_or_default();
        let here = Here { node, labels: &labels };
        let mut pools: BTreeMap<(&str, &str), Pool<'_>> = BTreeMap::new();
        for (_, slice) in objects.of(SLICES, None) {
            let spec = &slice["spec"];
            let is_here = match spec["perDeviceNodeSelection"] == true {
                true => items(spec, "/devices").iter().any(|device| here.selects(device)),
                false => here.selects(spec),
            };
            if !is_here {
                continue;
            }
            let generation = spec.pointer("/pool/generation").and_then(Value::as_i64).unwrap_or_default();
            let pool = pools.entry((text(spec, "/driver"), text(spec, "/pool/name"))).or_default();
            if generation > pool.generation {
                *pool = Pool { generation, slices: Vec::new() };
            }
            if generation == pool.generation {
                pool.slices.push(spec);
            }
        }
        let mut inventory = Self::default();
        for ((driver, name), pool) in pools {
            inventory.add(driver, name, &pool, &here)?;
        }
        Ok(inventory)
    }

    fn add(&mut self, driver: &str, name: &str, pool: &Pool<'_>, here: &Here<'_>) -> Result<(), String> {
        let expected =
            pool.slices.first().and_then(|spec| spec.pointer("/pool/resourceSliceCount")?.as_u64());
        if expected != Some(pool.slices.len() as u64) {
            self.incomplete.push(format!("{driver}/{name}"));
            return Ok(());
        }
        let devices =
            || pool.slices.iter().flat_map(|spec| items(spec, "/devices").iter().map(move |it| (spec, it)));
        let mut names = BTreeSet::new();
        if !devices().all(|(_, device)| names.insert(text(device, "/name"))) {
            self.invalid.push(format!("{driver}/{name}"));
            return Ok(());
        }
        for set in pool.slices.iter().flat_map(|spec| items(spec, "/sharedCounters")) {
            for (counter, amount) in counters(set) {
                self.counters.insert(key(driver, name, text(set, "/name"), &counter), amount);
            }
        }
        for (spec, device) in devices() {
            if self.devices.len() >= MAX_DEVICES {
                return Err(format!("this node has more than {MAX_DEVICES} devices"));
            }
            let is_per_device = spec["perDeviceNodeSelection"] == true;
            let selection = if is_per_device { device } else { spec };
            if is_per_device && !here.selects(device) {
                continue;
            }
            if items(device, "/bindingConditions").is_empty() {
                self.devices.push(Device::of(driver, name, device, selection["allNodes"] != true)?);
            } else {
                self.with_binding_conditions += 1;
            }
        }
        Ok(())
    }

    /// Takes what allocated devices consume out of the counters.
    pub(super) fn consume(&mut self, in_use: &InUse) {
        let used: Vec<usize> = (0..self.devices.len())
            .filter(|at| self.devices.get(*at).is_some_and(|device| in_use.contains_key(&device.id)))
            .collect();
        for at in used {
            self.counters = self.without(&self.counters, at);
        }
    }

    pub(super) const fn counters(&self) -> &BTreeMap<Counter, Amount> {
        &self.counters
    }

    /// The counters after this device has got what it consumes.
    pub(super) fn without(
        &self,
        counters: &BTreeMap<Counter, Amount>,
        at: usize,
    ) -> BTreeMap<Counter, Amount> {
        let mut rest = counters.clone();
        for (counter, amount) in self.consumed(at) {
            let entry = rest.entry(counter.clone()).or_default();
            *entry = *entry - *amount;
        }
        rest
    }

    pub(super) fn consumed(&self, at: usize) -> &[(Counter, Amount)] {
        self.devices.get(at).map(|device| device.consumes.as_slice()).unwrap_or_default()
    }
}

fn key(driver: &str, pool: &str, set: &str, counter: &str) -> Counter {
    (driver.to_owned(), pool.to_owned(), set.to_owned(), counter.to_owned())
}

/// `counters` of a set or of a consumption.
fn counters(of: &Value) -> impl Iterator<Item = (String, Amount)> {
    let counters = of.get("counters").and_then(Value::as_object).into_iter().flatten();
    counters.map(|(name, counter)| {
        let amount = counter.get("value").and_then(amounts::parse).unwrap_or_default();
        (name.clone(), amount)
    })
}

/// The node.
struct Here<'a> {
    node: &'a str,
    labels: &'a BTreeMap<String, String>,
}

impl Here<'_> {
    /// Whether a slice or a device names this node, selects it, or is on all nodes.
    fn selects(&self, of: &Value) -> bool {
        match text(of, "/nodeName") {
            "" => {}
            name => return name == self.node,
        }
        if of["allNodes"] == true {
            return true;
        }
        let Some(selector) = of.get("nodeSelector").filter(|selector| !selector.is_null()) else {
            return false;
        };
        let affinity = VolumeNodeAffinity::deserialize(json!({"required": selector}));
        affinity
            .is_ok_and(|affinity| check_node_affinity(Some(&affinity), self.node, Some(self.labels)).is_ok())
    }
}

fn labels(node: &Value) -> BTreeMap<String, String> {
    let labels = node.pointer("/metadata/labels").and_then(Value::as_object).into_iter().flatten();
    labels.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect()
}

impl Device {
    fn of(driver: &str, pool: &str, device: &Value, is_local: bool) -> Result<Self, String> {
        let id = DeviceId {
            driver: driver.to_owned(),
            pool: pool.to_owned(),
            device: text(device, "/name").to_owned(),
        };
        let entries = |field: &str| device.get(field).and_then(Value::as_object).into_iter().flatten();
        let mut attributes = BTreeMap::new();
        for (name, value) in entries("attributes") {
            let value = attribute(value)
                .ok_or_else(|| format!("device {}: attribute {name} has no supported value", id.device))?;
            attributes.insert(qualified(name, driver), value);
        }
        let capacity: BTreeMap<_, _> = entries("capacity")
            .filter_map(|(name, value)| Some((qualified(name, driver), amounts::parse(value.get("value")?)?)))
            .collect();
        let consumes = items(device, "/consumesCounters").iter().flat_map(|consumed| {
            let set = text(consumed, "/counterSet");
            counters(consumed).map(move |(counter, amount)| (key(driver, pool, set, &counter), amount))
        });
        let consumes = consumes.collect();
        let selected = SelectedDevice {
            driver: driver.to_owned(),
            attributes: attributes.clone(),
            capacity: capacity.clone(),
            allow_multiple_allocations: device["allowMultipleAllocations"] == true,
        };
        let taints = items(device, "/taints").to_vec();
        Ok(Self { id, input: selected.input(), attributes, capacity, taints, consumes, is_local })
    }
}

fn attribute(value: &Value) -> Option<Attribute> {
    if let Some(number) = value.get("int").and_then(Value::as_i64) {
        return Some(Attribute::Int(number));
    }
    if let Some(value) = value.get("bool").and_then(Value::as_bool) {
        return Some(Attribute::Bool(value));
    }
    if let Some(text) = value.get("string").and_then(Value::as_str) {
        return Some(Attribute::Text(text.to_owned()));
    }
    value.get("version").and_then(Value::as_str).and_then(Version::parse).map(Attribute::Version)
}

/// Domain and name. A name without a domain belongs to the driver.
pub(super) fn qualified(name: &str, driver: &str) -> (String, String) {
    let (domain, id) = name.split_once('/').unwrap_or((driver, name));
    (domain.to_owned(), id.to_owned())
}
