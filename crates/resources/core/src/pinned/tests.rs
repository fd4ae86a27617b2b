//! Pods on a machine with two NUMA nodes of 1 GiB: CPUs 0, 1, 4 and 5 are on node 0.

mod speed;

use config::{Features, KubeletConfiguration};
use fixtures::two_numa_nodes;
use model::PodUid;
use model::containers::find_container;
use model::devices::PluginDevice;
use model::k8s::Pod;
use serde_json::{Value, json};

use super::*;
use crate::devices::assign::{Claims, compute_preferred, up_to};
use crate::devices::{NO_HINTS, PodDevices, Registry};
use crate::quantities::Amounts;
use crate::rejection::Rejection;

const MIB: u64 = 1 << 20;

fn policies_with(change: &Value) -> Result<PinPolicies, PinPolicyError> {
    policies_of(change, Features::default())
}

fn policies_of(change: &Value, features: Features) -> Result<PinPolicies, PinPolicyError> {
    let mut config = json!({
        "cpuManagerPolicy": "static",
        "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
        "memoryManagerPolicy": "Static",
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "124Mi"}}],
        "topologyManagerPolicy": "single-numa-node",
        "reservedSystemCPUs": "0,4",
        "systemReserved": {"memory": "24Mi"},
    });
    for (name, value) in change.as_object().unwrap() {
        config[name] = value.clone();
    }
    let config: KubeletConfiguration = serde_json::from_value(config).unwrap();
    let reserved = Amounts::from(
        [("cpu", "2"), ("memory", "124Mi")]
            .map(|(name, amount)| (name.to_owned(), model::Amount::parse(amount).unwrap())),
    );
    let settings = PinSettings { config: &config, features, reserved: &reserved };
    PinPolicies::of(&settings, &two_numa_nodes(1024 * MIB))
}

fn policies() -> PinPolicies {
    policies_with(&json!({})).unwrap()
}

/// A Guaranteed pod, unless the CPU is no whole number.
fn pod(name: &str, cpu: &str) -> Pod {
    let amounts = json!({"cpu": cpu, "memory": "100Mi"});
    serde_json::from_value(json!({
        "metadata": {"name": name, "uid": name},
        "spec": {"containers": [{"name": "main", "resources": {"limits": amounts, "requests": amounts}}]},
    }))
    .unwrap()
}

/// The policies of a node with `PodLevelResourceManagers` and the scope `pod`.
fn pod_level_policies() -> PinPolicies {
    let features =
        Features { pod_level_resources: true, pod_level_resource_managers: true, ..Features::default() };
    policies_of(&json!({"topologyManagerScope": "pod"}), features).unwrap()
}

/// A pod with resources of its own: one container has a part of them for itself, two share the rest.
fn divided_pod(cpu: &str) -> Pod {
    let own = json!({"cpu": "2", "memory": "50Mi"});
    let of_pod = json!({"cpu": cpu, "memory": "100Mi"});
    serde_json::from_value(json!({
        "metadata": {"name": "divided", "uid": "divided"},
        "spec": {
            "resources": {"limits": of_pod, "requests": of_pod},
            "initContainers": [{"name": "init"}],
            "containers": [{"name": "main", "resources": {"limits": own, "requests": own}}, {"name": "log"}],
        },
    }))
    .unwrap()
}

fn tally(policies: &PinPolicies, pinned: &Pinned, pod: &Pod) -> (Tally, Option<Pinned>) {
    let (registry, own) = (Registry::default(), PodDevices::default());
    let claims = Claims { registry: &registry, others: &[], own: &own, hints: &NO_HINTS };
    let mut tally = Tally::default();
    let placed = compute_placement(pod, policies, pinned, &claims, &mut tally);
    (tally, placed.ok().and_then(|placement| placement.pinned))
}

fn place(policies: &PinPolicies, pinned: &Pinned, pod: &Pod) -> Result<Placement, Rejection> {
    let (registry, own) = (Registry::default(), PodDevices::default());
    let claims = Claims { registry: &registry, others: &[], own: &own, hints: &NO_HINTS };
    compute_placement(pod, policies, pinned, &claims, &mut Tally::default())
}

fn pins(policies: &PinPolicies, pinned: &Pinned, pod: &Pod) -> (String, String, bool) {
    let pins = policies.pins_of(pinned, pod, &find_container(pod, "main").unwrap());
    (pins.cpus, pins.memory_nodes, pins.has_no_quota)
}

fn text(cpus: &str, nodes: &str, has_no_quota: bool) -> (String, String, bool) {
    (cpus.to_owned(), nodes.to_owned(), has_no_quota)
}

#[test]
fn guaranteed_pod_gets_whole_cores_and_memory_of_one_node_and_others_the_rest() {
    let policies = policies();
    let idle = policies.start(Pinned::default()).unwrap();
    let (exclusive, shared) = (pod("exclusive", "4"), pod("shared", "500m"));
    let placed = place(&policies, &idle, &exclusive).unwrap().pinned.unwrap();
    let placed = place(&policies, &placed, &shared).unwrap().pinned.unwrap();
    assert_eq!(pins(&policies, &placed, &exclusive), text("2-3,6-7", "1", true));
    assert_eq!(pins(&policies, &placed, &shared), text("0-1,4-5", "0", false));
    assert!(policies.disable_quota_of_pod(&placed, &exclusive));
    assert!(!policies.disable_quota_of_pod(&placed, &shared));
}

const GPU: &str = "example.com/gpu";

/// Devices 0 and 1 on node 0, devices 2 and 3 on node 1.
fn gpus() -> Registry {
    let mut registry = Registry::default();
    let plugin = registry.connected(GPU);
    let devices =
        (0..4).map(|n| PluginDevice { id: n.to_string(), is_healthy: true, numa_nodes: vec![n / 2] });
    registry.listed(GPU, plugin, devices.collect());
    registry
}

/// Without the memory manager, which would keep the memory of both nodes together for the first container.
fn gpu_policies(topology: &str) -> PinPolicies {
    let change =
        json!({"topologyManagerPolicy": topology, "memoryManagerPolicy": "None", "reservedMemory": []});
    policies_with(&change).unwrap()
}

/// The first container has three devices, the second one a device and a core.
fn gpu_pod() -> Pod {
    let limits = |cpu: &str, gpus: &str| {
        let amounts = json!({"cpu": cpu, "memory": "50Mi", GPU: gpus});
        json!({"limits": amounts, "requests": amounts})
    };
    serde_json::from_value(json!({
        "metadata": {"name": "gpus", "uid": "gpus"},
        "spec": {"containers": [
            {"name": "three", "resources": limits("500m", "3")},
            {"name": "main", "resources": limits("2", "1")},
        ]},
    }))
    .unwrap()
}

fn ids(devices: &PodDevices, container: &str) -> String {
    devices.get(container, GPU).unwrap().devices.keys().map(String::as_str).collect::<Vec<_>>().join(",")
}

/// The devices of the first container, once the plugin prefers others.
fn prefer_the_last_three(pod: &Pod, placed: &Placement, claims: &Claims<'_>) -> PodDevices {
    let own = up_to(pod, "three", placed.devices.clone());
    let claims = Claims { own: &own, hints: &placed.hints, ..*claims };
    compute_preferred(&claims, "three", GPU, &["1", "2", "3"].map(str::to_owned))
}

/// The Go kubelet asks the plugin about the first container before it aligns the second one.
#[test]
fn containers_after_one_with_preferred_devices_are_aligned_with_what_is_left() {
    let policies = gpu_policies("best-effort");
    assert!(policies.align_containers());
    let idle = policies.start(Pinned::default()).unwrap();
    let (registry, pod, none) = (gpus(), gpu_pod(), PodDevices::default());
    let claims = Claims { registry: &registry, others: &[], own: &none, hints: &NO_HINTS };
    let placed = compute_placement(&pod, &policies, &idle, &claims, &mut Tally::default()).unwrap();
    let pinned = placed.pinned.clone().unwrap();
    assert_eq!((ids(&placed.devices, "three"), ids(&placed.devices, "main")), ("0,1,2".into(), "3".into()));
    assert_eq!(pins(&policies, &pinned, &pod).0, "2,6", "a core of node 1, like the device");

    let own = prefer_the_last_three(&pod, &placed, &claims);
    let claims = Claims { own: &own, hints: &placed.hints, ..claims };
    let again = compute_placement_after(&pod, "three", &policies, &pinned, &claims).unwrap();
    let pinned = again.pinned.unwrap();
    assert_eq!((ids(&again.devices, "three"), ids(&again.devices, "main")), ("1,2,3".into(), "0".into()));
    assert_eq!(pins(&policies, &pinned, &pod).0, "1,5", "a core of node 0, like the device");
    assert_eq!(again.hints.get("three"), placed.hints.get("three"));
    let cpus = |pinned: &Pinned| pinned.cpus.all_exclusive().len();
    assert_eq!(cpus(&pinned), 2, "the core of node 1 is free again");
}

#[test]
fn pod_is_rejected_if_preferred_devices_leave_a_container_without_aligned_ones() {
    let policies = gpu_policies("restricted");
    let idle = policies.start(Pinned::default()).unwrap();
    let on_node_0: Pod = pod("other", "2");
    // Only node 1 has a core left.
    let idle = place(&policies, &idle, &on_node_0).unwrap().pinned.unwrap();
    let (registry, pod, none) = (gpus(), gpu_pod(), PodDevices::default());
    let claims = Claims { registry: &registry, others: &[], own: &none, hints: &NO_HINTS };
    let placed = compute_placement(&pod, &policies, &idle, &claims, &mut Tally::default()).unwrap();
    let own = prefer_the_last_three(&pod, &placed, &claims);
    let claims = Claims { own: &own, hints: &placed.hints, ..claims };
    let pinned = placed.pinned.clone().unwrap();
    let rejected = compute_placement_after(&pod, "three", &policies, &pinned, &claims).unwrap_err();
    assert_eq!(rejected.reason, "TopologyAffinityError");
}

#[test]
fn pod_keeps_what_it_has() {
    let policies = policies();
    let idle = policies.start(Pinned::default()).unwrap();
    let pod = pod("exclusive", "2");
    let placed = place(&policies, &idle, &pod).unwrap().pinned.unwrap();
    assert_eq!(place(&policies, &placed, &pod).unwrap().pinned, None);
    assert_eq!(policies.start(placed.clone()).unwrap(), placed, "after a restart, too");
}

#[test]
fn pod_that_fits_no_single_node_is_not_admitted() {
    let policies = policies();
    let idle = policies.start(Pinned::default()).unwrap();
    let rejection = place(&policies, &idle, &pod("large", "6")).unwrap_err();
    assert_eq!(rejection.reason, "TopologyAffinityError");
    assert_eq!(rejection.message, "Resources cannot be allocated with Topology locality");
    let rejection = place(&policies, &idle, &pod("odd", "1")).unwrap_err();
    assert_eq!(rejection.reason, "SMTAlignmentError");
}

#[test]
fn release_gives_back_what_was_taken() {
    let policies = policies();
    let idle = policies.start(Pinned::default()).unwrap();
    let mut placed = place(&policies, &idle, &pod("a", "2")).unwrap().pinned.unwrap();
    assert!(placed.release(&PodUid::new("a")));
    assert!(!placed.release(&PodUid::new("a")));
    assert_eq!(placed, idle);
    let mut placed = place(&policies, &idle, &pod("a", "2")).unwrap().pinned.unwrap();
    assert!(placed.release_inactive(|_, _| false));
    assert!(!placed.release_inactive(|_, _| false));
    assert_eq!(placed, idle);
}

#[test]
fn node_without_policies_pins_nothing() {
    let policies = PinPolicies::default();
    assert!(policies.are_none());
    let placement = place(&policies, &Pinned::default(), &pod("a", "2")).unwrap();
    assert_eq!(placement, Placement::default());
    assert_eq!(pins(&policies, &Pinned::default(), &pod("a", "2")), text("", "", false));
}

#[test]
fn configuration_that_does_not_fit_the_machine_is_refused() {
    let refused = |change: &Value| policies_with(change).unwrap_err().to_string();
    assert_eq!(
        refused(&json!({"reservedSystemCPUs": "0,9"})),
        "failed to initialize cpu manager: new static policy error: [cpumanager] unable to build the reserved physical CPUs from \
         the reserved set: unknown CPU ID: 9"
    );
    assert_eq!(
        refused(&json!({"reservedMemory": [{"numaNode": 2, "limits": {"memory": "124Mi"}}]})),
        "failed to initialize memory manager: the reserved memory configuration references a NUMA node 2 that does not exist on \
         this machine"
    );
    assert_eq!(
        refused(&json!({"topologyManagerPolicyOptions": {"nearest": "true"}})),
        "failed to initialize topology manager: unknown Topology Manager Policy option: \"nearest\""
    );
}

#[test]
fn state_of_another_machine_is_refused() {
    let mut state = policies().start(Pinned::default()).unwrap();
    state.cpus.default = "0-3".parse().unwrap();
    let error = policies().start(state).unwrap_err().to_string();
    assert!(error.starts_with("start cpu manager error: not all reserved cpus"), "{error}");
}

#[test]
fn decision_counts_what_it_tried() {
    let policies = policies();
    let idle = policies.start(Pinned::default()).unwrap();
    let tally_of = |pod: &Pod| tally(&policies, &idle, pod);
    let (tally, placed) = tally_of(&pod("a", "2"));
    assert_eq!((tally.cpus, tally.memory), (Attempts { all: 1, failed: 0 }, Attempts { all: 1, failed: 0 }));
    let expected = [
        (("container", "numa_node"), 1),
        (("container", "physical_cpu"), 1),
        (("container", "uncore_cache"), 1),
    ];
    assert_eq!(tally.aligned, BTreeMap::from(expected));
    assert!(!tally.is_refused);
    let counts = policies.cpu_counts(&placed.unwrap());
    assert_eq!((counts.exclusive, counts.shared), (2, 4));
    assert_eq!(counts.exclusive_by_node.iter().map(|(_, count)| count).sum::<usize>(), 2);
    let (tally, _) = tally_of(&pod("odd", "1"));
    assert_eq!((tally.cpus, tally.is_refused), (Attempts { all: 1, failed: 1 }, true));
    assert_eq!(tally.not_aligned, BTreeMap::from([(("container", "physical_cpu"), 1)]));
    let (tally, _) = tally_of(&pod("large", "6"));
    assert_eq!((tally.cpus, tally.is_refused), (Attempts::default(), true));
    assert_eq!(tally.not_aligned, BTreeMap::from([(("container", "numa_node"), 1)]));
}

/// `policy_static.go` of the CPU manager and of the memory manager (Allocate, AllocatePod).
#[test]
fn exclusive_allocations_are_counted_by_resource_and_source() {
    let policies = policies();
    let idle = policies.start(Pinned::default()).unwrap();
    let (first, placed) = tally(&policies, &idle, &pod("a", "2"));
    let of_node = BTreeMap::from([(("cpu", "node"), 1), (("memory", "node"), 1)]);
    assert_eq!((&first.assignments.allocated, &first.assignments.failed), (&of_node, &BTreeMap::new()));
    let exclusive = BTreeMap::from([(("cpu", "node_exclusive"), 1), (("memory", "node_exclusive"), 1)]);
    assert_eq!(first.assignments.containers, exclusive);
    let (again, _) = tally(&policies, &placed.unwrap(), &pod("a", "2"));
    assert_eq!(again.assignments, Assignments::default(), "what a pod has does not count again");
    let (refused, _) = tally(&policies, &idle, &pod("odd", "1"));
    assert_eq!(refused.assignments.failed, BTreeMap::from([(("cpu", "node"), 1)]));
}

#[test]
fn containers_of_a_pod_that_share_its_resources_are_counted_by_assignment() {
    let policies = pod_level_policies();
    let idle = policies.start(Pinned::default()).unwrap();
    let (first, placed) = tally(&policies, &idle, &divided_pod("4"));
    let of_pod = BTreeMap::from([(("cpu", "pod"), 3), (("memory", "pod"), 3)]);
    assert_eq!((&first.assignments.allocated, &first.assignments.failed), (&of_pod, &BTreeMap::new()));
    let by_type = [
        (("cpu", "pod_exclusive"), 1),
        (("cpu", "pod_shared"), 2),
        (("memory", "pod_exclusive"), 1),
        (("memory", "pod_shared"), 2),
    ];
    assert_eq!(first.assignments.containers, BTreeMap::from(by_type));
    let (again, _) = tally(&policies, &placed.unwrap(), &divided_pod("4"));
    assert_eq!(again.assignments, Assignments::default(), "what a pod has does not count again");
    let (refused, _) = tally(&policies, &idle, &divided_pod("3"));
    assert_eq!(refused.assignments.failed, BTreeMap::from([(("cpu", "pod"), 1)]));
}

#[test]
fn scope_and_policy_come_from_the_configuration() {
    let policies =
        policies_with(&json!({"topologyManagerPolicy": "restricted", "topologyManagerScope": "pod"}))
            .unwrap();
    let topology = policies.topology();
    assert_eq!((topology.kind().name(), topology.scope().name()), ("restricted", "pod"));
}
