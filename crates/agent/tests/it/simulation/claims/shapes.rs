//! The claims of the simulation: two drivers, the pods that use them, and their objects in the API.

use std::collections::{BTreeMap, BTreeSet};

use fakes::Program;
use model::k8s::{Pod, PodStatus, ResourceClaim};
use serde_json::{Value, json};

use crate::csi::from;
use crate::pods::{Manifest, container_with, pod};
use crate::world::{World, seconds};

/// A driver, and the CDI class of its devices.
pub(super) struct Driver {
    pub(super) name: &'static str,
    pub(super) class: &'static str,
}

pub(super) const DRIVERS: [Driver; 2] = [
    Driver { name: "gpu.example.com", class: "example.com/gpu" },
    Driver { name: "nic.example.com", class: "example.com/nic" },
];
/// Indices into [`DRIVERS`].
const GPU: usize = 0;
const NIC: usize = 1;
/// The extended resource that the scheduler backs with a claim.
const EXTENDED: &str = "example.com/extended";

/// Where the claim of a pod comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// By name; it may be shared.
    Named(&'static str),
    /// Made for the pod from a template.
    Template,
    /// Made by the scheduler for the pod's extended resource.
    Extended,
}

/// A claim that a pod uses.
#[derive(Clone, Copy, Debug)]
pub(super) struct PodClaim {
    /// Its name in the pod.
    entry: &'static str,
    pub(super) source: Source,
    drivers: &'static [usize],
}

const fn named(name: &'static str, drivers: &'static [usize]) -> PodClaim {
    PodClaim { entry: name, source: Source::Named(name), drivers }
}

const SHARED: PodClaim = named("shared", &[GPU]);
const FIRST: PodClaim = named("first", &[GPU]);
const SECOND: PodClaim = named("second", &[GPU]);

/// By name: what the pod uses.
pub(super) const PODS_OF: [(&str, &[PodClaim]); 9] = [
    ("own", &[named("own", &[GPU])]),
    ("shared-a", &[SHARED]),
    ("shared-b", &[SHARED, named("net", &[NIC])]),
    ("both", &[named("both", &[GPU, NIC])]),
    // Its init container uses the first one only.
    ("two", &[FIRST, SECOND]),
    ("template", &[PodClaim { entry: "made", source: Source::Template, drivers: &[NIC] }, SECOND]),
    ("extended", &[PodClaim { entry: "extended", source: Source::Extended, drivers: &[GPU] }]),
    ("job", &[named("job", &[GPU, NIC])]),
    ("plain", &[]),
];

/// The claims that users may replace.
pub(super) const NAMED: [&str; 7] = ["own", "shared", "net", "both", "first", "second", "job"];

pub(super) fn claims_of(pod: &str) -> &'static [PodClaim] {
    PODS_OF.iter().find(|(name, _)| *name == pod).map_or(&[], |(_, claims)| claims)
}

/// The devices of each container of a pod, by their CDI names.
pub(super) type Devices = BTreeMap<&'static str, BTreeSet<String>>;

pub(super) fn program(world: &World) {
    world
        .fake
        .program("app", Program::runs().stopping(seconds(1), 0))
        .program("init", Program::exits(0, seconds(1)))
        .program("job", Program::exits(0, seconds(8)));
}

/// The name of the container that runs.
pub(super) fn container_of(pod: &str) -> &'static str {
    if pod == "job" { "job" } else { "app" }
}

fn manifest(name: &str) -> Manifest {
    let claims = claims_of(name);
    let entries: Vec<Value> = claims
        .iter()
        .filter_map(|claim| match claim.source {
            Source::Named(of) => Some(json!({"name": claim.entry, "resourceClaimName": of})),
            Source::Template => Some(json!({"name": claim.entry, "resourceClaimTemplateName": "template"})),
            Source::Extended => None,
        })
        .collect();
    let used: Vec<Value> = entries.iter().map(|entry| json!({"name": entry["name"]})).collect();
    let has_extended = claims.iter().any(|claim| claim.source == Source::Extended);
    let amounts = if has_extended { json!({EXTENDED: "1"}) } else { json!({}) };
    let resources = json!({"claims": used, "limits": amounts, "requests": amounts});
    let made = pod(name, [container_with(container_of(name), json!({"resources": resources}))]);
    let made = match name {
        "two" => made.init([container_with("init", json!({"resources": {"claims": [{"name": "first"}]}}))]),
        "job" => made.restart_policy("Never"),
        _ => made,
    };
    let made = if entries.is_empty() { made } else { made.spec(json!({"resourceClaims": entries})) };
    made.spec(json!({"terminationGracePeriodSeconds": 5}))
}

/// The names of the pod's claims, in the order of [`claims_of`]; those that are made for it end with this number.
fn names(pod: &str, number: u64) -> Vec<String> {
    let name = |claim: &PodClaim| match claim.source {
        Source::Named(name) => name.to_owned(),
        Source::Template | Source::Extended => format!("{pod}-{}-{number}", claim.entry),
    };
    claims_of(pod).iter().map(name).collect()
}

/// The pod's status as the scheduler and the controllers leave it.
fn status(pod: &str, names: &[String]) -> PodStatus {
    let mut status = json!({"phase": "Pending"});
    for (claim, name) in claims_of(pod).iter().zip(names) {
        match claim.source {
            Source::Named(_) => {}
            Source::Template => {
                status["resourceClaimStatuses"] = json!([{"name": claim.entry, "resourceClaimName": name}]);
            }
            Source::Extended => {
                let mapping = json!({
                    "containerName": container_of(pod), "resourceName": EXTENDED, "requestName": "r",
                });
                status["extendedResourceClaimStatus"] =
                    json!({"resourceClaimName": name, "requestMappings": [mapping]});
            }
        }
    }
    from(status)
}

/// A user creates the pod, and the scheduler binds it once its claims are allocated and reserved for it. Returns its UID, and the devices
/// that its containers must get.
pub(super) fn create(world: &World, name: &str, number: u64) -> (String, Devices) {
    let names = names(name, number);
    let mut pod = Manifest::object(&manifest(name));
    pod.status = Some(status(name, &names));
    let pod: Pod = world.api().put(&pod);
    let mut devices = Devices::from([(container_of(name), BTreeSet::new())]);
    for (index, (claim, claim_name)) in claims_of(name).iter().zip(&names).enumerate() {
        let uid = put_claim(world, claim, claim_name, &pod);
        let of_claim = || claim.drivers.iter().map(|driver| format!("{}={uid}", DRIVERS[*driver].class));
        devices.entry(container_of(name)).or_default().extend(of_claim());
        if name == "two" && index == 0 {
            devices.insert("init", of_claim().collect());
        }
    }
    (pod.metadata.uid.unwrap_or_default(), devices)
}

/// The UIDs of the pods in the API for which the claim is reserved.
fn reserved_for(world: &World, claim: &ResourceClaim) -> Vec<Value> {
    let in_api: BTreeSet<String> =
        world.api().all::<Pod>().into_iter().filter_map(|pod| pod.metadata.uid).collect();
    let consumers = claim.status.iter().flat_map(|status| status.reserved_for.iter().flatten());
    let alive = consumers.filter(|consumer| in_api.contains(&consumer.uid));
    alive.map(|consumer| json!({"resource": "pods", "uid": consumer.uid})).collect()
}

fn put_claim(world: &World, claim: &PodClaim, name: &str, pod: &Pod) -> String {
    let known: Option<ResourceClaim> = world.api().object("default", name);
    let mut reserved = known.iter().flat_map(|known| reserved_for(world, known)).collect::<Vec<_>>();
    let uid = &pod.metadata.uid;
    reserved.push(json!({"resource": "pods", "uid": uid}));
    let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name, "uid": uid, "controller": true}]);
    let owners = if matches!(claim.source, Source::Named(_)) { json!([]) } else { owner };
    let device = |driver: &usize| json!({"request": "r", "driver": DRIVERS[*driver].name, "pool": "node", "device": "device-0"});
    let results: Vec<Value> = claim.drivers.iter().map(device).collect();
    let put: ResourceClaim = world.api().put(&from(json!({
        "metadata": {"name": name, "namespace": "default", "ownerReferences": owners},
        "status": {"reservedFor": reserved, "allocation": {"devices": {"results": results}}},
    })));
    put.metadata.uid.unwrap_or_default()
}

/// Claims that were made for pods that are gone go, too.
pub(super) fn collect_claims(world: &World) {
    for claim in world.api().all::<ResourceClaim>() {
        let is_owned = claim.metadata.owner_references.as_ref().is_some_and(|owners| !owners.is_empty());
        if is_owned && reserved_for(world, &claim).is_empty() {
            remove_claim(world, claim.metadata.name.as_deref().unwrap_or_default());
        }
    }
}

fn remove_claim(world: &World, name: &str) {
    world.api().remove::<ResourceClaim>("default", name, None);
}

/// A user deletes the claim, which the API server allows once no pod in the API uses it. The next one of this name has another UID.
pub(super) fn replace_claim(world: &World, name: &str) {
    let claim: Option<ResourceClaim> = world.api().object("default", name);
    if claim.is_some_and(|claim| reserved_for(world, &claim).is_empty()) {
        remove_claim(world, name);
    }
}

/// The drivers of a claim, and the UIDs of the pods that use it.
pub(super) struct Use {
    pub(super) drivers: BTreeSet<usize>,
    pub(super) pods: BTreeSet<String>,
}

/// What these pods use of the claims in the API, by the UID of the claim.
pub(super) fn uses(world: &World, pods: &BTreeSet<&str>) -> BTreeMap<String, Use> {
    let mut uses = BTreeMap::new();
    for claim in world.api().all::<ResourceClaim>() {
        let status = claim.status.unwrap_or_default();
        let consumers = status.reserved_for.iter().flatten().map(|consumer| consumer.uid.clone());
        let users: BTreeSet<String> = consumers.filter(|uid| pods.contains(uid.as_str())).collect();
        let devices =
            status.allocation.and_then(|allocation| allocation.devices?.results).unwrap_or_default();
        let index = |driver: &str| DRIVERS.iter().position(|known| known.name == driver);
        let drivers = devices.iter().filter_map(|device| index(&device.driver)).collect();
        if !users.is_empty() {
            uses.insert(claim.metadata.uid.unwrap_or_default(), Use { drivers, pods: users });
        }
    }
    uses
}
