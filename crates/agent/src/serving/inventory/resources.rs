//! What is allocated to pods, ResourceClaims, and plugins.

use std::collections::{BTreeMap, BTreeSet};

use model::containers::all_containers;
use model::dra::ClaimId;
use model::inventory::{AllocationItem, ClaimDriverItem, ClaimItem, Inventory, PluginItem, PodSelection};
use model::k8s::{Quantity, ResourceRequirements};
use model::{ContainerRef, PodRef, PodUid, QosClass};
use resources_agent::claims::drivers::Drivers;
use resources_core::allocations::{Allocation, Allocations};
use resources_core::claims::table::Entry;

use super::pod_names;
use crate::metrics::{PluginMetrics, PluginSocket};
use crate::serving::explain::{is_selected, selected};
use crate::serving::node_api::AgentApi;

const DEVICE_PLUGIN: &str = "DevicePlugin";

/// A namespace is that of the claim; words and labels are about the pods that use it.
pub(super) fn claims(api: &AgentApi, of: &PodSelection) -> Inventory<ClaimItem> {
    let (names, claims) = (pod_names(&api.lookup), &api.handles.resources.claims);
    let drivers = claims.drivers();
    let pods: BTreeSet<PodUid> =
        selected(&api.lookup, of).into_iter().map(|entry| entry.identity.uid).collect();
    let is_for_all = of.words.is_empty() && of.labels.is_empty();
    let items: Vec<ClaimItem> = claims.read(|table| {
        let is_meant = |(id, entry): &(ClaimId, &Entry)| {
            let is_in_namespace = of.namespace.is_empty() || id.namespace == of.namespace;
            is_in_namespace && (is_for_all || entry.pods.iter().any(|pod| pods.contains(pod)))
        };
        let items = table.claims().filter(is_meant).map(|(id, entry)| ClaimItem {
            namespace: id.namespace,
            name: id.name,
            uid: id.uid,
            is_prepared: entry.is_prepared(),
            is_busy: entry.is_busy(),
            drivers: drivers_of(entry, drivers),
            used_by: entry.pods.iter().map(|uid| name_of(uid, &names)).collect(),
        });
        items.collect()
    });
    items.into()
}

fn name_of(uid: &PodUid, names: &BTreeMap<PodUid, String>) -> String {
    names.get(uid).cloned().unwrap_or_else(|| uid.to_string())
}

fn drivers_of(entry: &Entry, drivers: &Drivers) -> Vec<ClaimDriverItem> {
    let of_driver = |(name, state): (&String, &resources_core::claims::table::DriverState)| {
        let devices = state.devices.iter().map(|device| format!("{}/{}", device.pool, device.name));
        ClaimDriverItem {
            name: name.clone(),
            is_prepared: state.is_prepared,
            is_registered: drivers.is_registered(name),
            devices: devices.collect(),
        }
    };
    entry.drivers.iter().map(of_driver).collect()
}

pub(super) fn allocations(api: &AgentApi, of: &PodSelection) -> Inventory<AllocationItem> {
    let node_name = &api.lookup.ctx.settings.node_name;
    let items: Vec<AllocationItem> = api.handles.resources.admissions.read(|table| {
        let is_meant = |allocation: &Allocation<'_>| {
            let pod = allocation.pod();
            is_selected(of, &PodRef::of(pod), pod.metadata.labels.as_ref(), node_name)
        };
        table.held().filter(is_meant).flat_map(|allocation| of_pod(table, &allocation)).collect()
    });
    items.into()
}

fn of_pod(table: &Allocations, allocation: &Allocation<'_>) -> Vec<AllocationItem> {
    let pod = allocation.pod();
    let (identity, qos) = (PodRef::of(pod), QosClass::of(pod));
    let runs = |container: &ContainerRef<'_>| !allocation.has_ended(container.name());
    let item = |container: ContainerRef<'_>| {
        let (name, resources) = (container.name(), container.resources());
        let (requests, limits) = (resources.and_then(requests), resources.and_then(limits));
        let pinned = table.pinned().1;
        let cpus = pinned.cpus.exclusive(&identity.uid, name);
        let nodes = pinned.memory.nodes_of(&identity.uid, name);
        let nodes = nodes.iter().flat_map(|nodes| nodes.ids()).map(|id| id.to_string());
        AllocationItem {
            namespace: identity.namespace.to_string(),
            pod: identity.name.to_string(),
            pod_uid: identity.uid.to_string(),
            container: name.to_owned(),
            qos_class: qos.to_string(),
            cpu_request: amount(requests, "cpu"),
            cpu_limit: amount(limits, "cpu"),
            memory_request: amount(requests, "memory"),
            memory_limit: amount(limits, "memory"),
            exclusive_cpus: cpus.map(ToString::to_string).unwrap_or_default(),
            memory_nodes: nodes.collect::<Vec<_>>().join(","),
            devices: devices(table, &identity.uid, name),
        }
    };
    all_containers(pod).filter(runs).map(item).collect()
}

type Quantities = BTreeMap<String, Quantity>;

const fn requests(resources: &ResourceRequirements) -> Option<&Quantities> {
    resources.requests.as_ref()
}

const fn limits(resources: &ResourceRequirements) -> Option<&Quantities> {
    resources.limits.as_ref()
}

fn amount(quantities: Option<&Quantities>, resource: &str) -> String {
    let quantity = quantities.and_then(|quantities| quantities.get(resource));
    quantity.map(|quantity| quantity.0.clone()).unwrap_or_default()
}

fn devices(table: &Allocations, pod: &PodUid, container: &str) -> Vec<String> {
    let Some((_, devices)) = table.devices_of(pod) else { return Vec::new() };
    let given = devices.containers.get(container).into_iter().flatten();
    given
        .flat_map(|(resource, given)| given.devices.keys().map(move |id| format!("{resource}={id}")))
        .collect()
}

pub(super) fn plugins(api: &AgentApi) -> Inventory<PluginItem> {
    let sockets = api.lookup.ctx.metrics.get::<PluginMetrics>().sockets();
    let mut items: Vec<PluginItem> =
        sockets.into_iter().filter(|socket| socket.is_found).map(plugin).collect();
    for (resource, is_connected, healthy, all) in api.handles.resources.devices.plugins() {
        let known = items.iter_mut().find(|item| item.kind == DEVICE_PLUGIN && item.name == resource);
        let counted = |item: &mut PluginItem| {
            (item.healthy_devices, item.devices) = (Some(healthy), Some(all));
            item.is_registered = is_connected;
        };
        match known {
            Some(item) => counted(item),
            None => {
                let kind = DEVICE_PLUGIN.to_owned();
                let mut item = PluginItem { kind, name: resource, ..PluginItem::default() };
                counted(&mut item);
                items.push(item);
            }
        }
    }
    items.into()
}

fn plugin(socket: PluginSocket) -> PluginItem {
    PluginItem {
        kind: socket.kind,
        name: socket.name,
        is_registered: socket.is_registered,
        socket: socket.path,
        error: socket.error,
        ..PluginItem::default()
    }
}
