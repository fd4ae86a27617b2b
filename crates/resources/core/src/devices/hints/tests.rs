//! The tables of the original's tests of topology hints of devices, as text. Cases are separated by empty lines.
//!
//! `Dev1@0 Dev2@01 Dev3 Dev4-7@1`: devices and their NUMA nodes. `pod1/c/x=Dev1,Dev2`: a container that has them.
//! `pod1 i:a(x=1) s:b() c:c(x=2)`: a pod with an init container, a sidecar and a container, with their limits.

use std::collections::BTreeMap;

use model::devices::{AllocateResponse, PluginDevice};
use proptest::prelude::*;
use serde_json::json;

use super::super::assign::{Given, compute_pod_devices, compute_preference, compute_preferred};
use super::super::{Hints, NO_HINTS};
use super::*;

struct Case<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> Case<'a> {
    fn get(&self, key: &str) -> &'a str {
        self.0.get(key).copied().unwrap_or_default()
    }
}

fn cases(text: &str) -> Vec<Case<'_>> {
    let case = |text| str::lines(text).map(|line| line.split_once(": ").unwrap()).collect();
    text.split("\n\n").map(|text| Case(case(text))).collect()
}

fn devices(words: &str) -> Vec<PluginDevice> {
    let device = |word: &str| {
        let (id, nodes) = word.split_once('@').unwrap_or((word, ""));
        let nodes: Vec<i64> = nodes.chars().map(|digit| digit.to_digit(10).unwrap().into()).collect();
        let number = |text: &str| text.parse::<u32>().unwrap();
        let ids: Vec<String> = match id.split_once('-') {
            Some((first, last)) => {
                (number(&first[3..])..=number(last)).map(|number| format!("Dev{number}")).collect()
            }
            None => vec![id.to_owned()],
        };
        ids.into_iter().map(move |id| PluginDevice { id, is_healthy: true, numa_nodes: nodes.clone() })
    };
    words.split_whitespace().flat_map(device).collect()
}

/// Resources are separated by `|`, and named first.
fn registry(text: &str) -> Registry {
    let mut registry = Registry::default();
    for text in text.split('|') {
        let (resource, words) = text.trim().split_once(' ').unwrap();
        let plugin = registry.connected(resource);
        registry.listed(resource, plugin, devices(words));
    }
    registry
}

fn pod(text: &str) -> Pod {
    let mut words = text.split_whitespace();
    let uid = words.next().unwrap();
    let (mut init, mut regular) = (Vec::new(), Vec::new());
    for word in words {
        let (kind, rest) = word.strip_suffix(')').unwrap().split_once(':').unwrap();
        let (name, limits) = rest.split_once('(').unwrap();
        let limits = limits.split(',').filter_map(|limit| limit.split_once('='));
        let limits: BTreeMap<&str, &str> = limits.collect();
        let mut container = json!({"name": name, "resources": {"limits": limits}});
        match kind {
            "c" => regular.push(container),
            "i" => init.push(container),
            _ => {
                container["restartPolicy"] = "Always".into();
                init.push(container);
            }
        }
    }
    let spec = json!({"initContainers": init, "containers": regular});
    serde_json::from_value(json!({"metadata": {"uid": uid}, "spec": spec})).unwrap()
}

/// The devices of that pod, or of all others.
fn held(text: &str, is_it: impl Fn(&str) -> bool) -> PodDevices {
    let mut devices = PodDevices::default();
    for word in text.split_whitespace() {
        let (owner, ids) = word.split_once('=').unwrap();
        let (pod, place) = owner.split_once('/').unwrap();
        let (container, resource) = place.split_once('/').unwrap();
        if !is_it(pod) {
            continue;
        }
        let ids = ids.split(',').map(|id| (id.to_owned(), Vec::new())).collect();
        let given = Given { devices: ids, response: Some(AllocateResponse::default()) };
        devices.containers.entry(container.to_owned()).or_default().insert(resource.to_owned(), given);
    }
    devices
}

fn hint(text: &str) -> TopologyHint {
    let (nodes, sign) = text.split_at(text.len() - 1);
    let digits = nodes.chars().map(|digit| digit.to_digit(10).unwrap());
    TopologyHint { nodes: Some(NumaMask::of(digits)), is_preferred: sign == "+" }
}

fn shown(hints: &ProviderHints) -> String {
    let hint = |hint: &TopologyHint| {
        let ids: String = hint.nodes.unwrap().ids().map(|id| id.to_string()).collect();
        format!("{ids}{}", if hint.is_preferred { '+' } else { '-' })
    };
    let resource = |(name, hints): (&String, &Option<Vec<TopologyHint>>)| match hints {
        None => format!("{name} nil"),
        Some(hints) if hints.is_empty() => format!("{name} none"),
        Some(hints) => format!("{name} {}", hints.iter().map(hint).collect::<Vec<_>>().join(" ")),
    };
    hints.iter().map(resource).collect::<Vec<_>>().join(" | ")
}

fn check(case: &Case<'_>, hints: impl Fn(&DeviceProvider<'_>, &Pod) -> ProviderHints) {
    let (registry, pod) = (registry(case.get("devices")), pod(case.get("pod")));
    let allocated = case.get("allocated");
    let is_own = |uid: &str| Some(uid) == pod.metadata.uid.as_deref();
    let (own, other) = (held(allocated, is_own), held(allocated, |uid| !is_own(uid)));
    let claims = Claims { registry: &registry, others: &[&other], own: &own, hints: &NO_HINTS };
    let provider = DeviceProvider::new(&claims, NumaMask::of([0, 1]));
    assert_eq!(shown(&hints(&provider, &pod)), case.get("hints"), "{:?}", case.0);
}

#[test]
fn get_topology_hints_table() {
    for case in cases(include_str!("container_hints.txt")) {
        check(&case, |provider, pod| provider.container_hints(pod, &regular_containers(pod).next().unwrap()));
    }
}

#[test]
fn get_pod_topology_hints_table() {
    let both = [include_str!("container_hints.txt"), include_str!("pod_hints.txt")];
    for case in both.into_iter().flat_map(cases) {
        check(&case, |provider, pod| provider.pod_hints(pod));
    }
}

#[test]
fn get_pod_device_request_table() {
    let registry = registry("gpu Dev1 | nic Dev1");
    let of_gpu_and_nic = |init: [(u32, u32); 2], regular: [(u32, u32); 2]| {
        let container = |kind| move |(gpu, nic): (u32, u32)| format!("{kind}:x(cpu=2,gpu={gpu},nic={nic})");
        let all = init.map(container("i")).into_iter().chain(regular.map(container("c")));
        format!("p {}", all.collect::<Vec<_>>().join(" "))
    };
    for (text, expected) in [
        ("p".to_owned(), vec![]),
        ("p i:a(cpu=2,memory=1G,gpu=2)".to_owned(), vec![("gpu", 2)]),
        ("p i:a(cpu=2,gpu=2) i:b(cpu=2,gpu=4)".to_owned(), vec![("gpu", 4)]),
        ("p c:a(cpu=2,gpu=2)".to_owned(), vec![("gpu", 2)]),
        (of_gpu_and_nic([(2, 2), (2, 2)], [(1, 1), (1, 1)]), vec![("gpu", 2), ("nic", 2)]),
        (of_gpu_and_nic([(2, 1), (3, 2)], [(1, 1), (1, 0)]), vec![("gpu", 3), ("nic", 2)]),
        (of_gpu_and_nic([(2, 1), (2, 1)], [(3, 2), (3, 2)]), vec![("gpu", 6), ("nic", 4)]),
    ] {
        let expected: Vec<_> = expected.into_iter().map(|(name, count)| (name.to_owned(), count)).collect();
        assert_eq!(pod_requests(&pod(&text), &registry), expected, "{text}");
    }
}

#[test]
fn device_numa_nodes_table() {
    for (text, machine, expected) in [
        ("x a@3 b@5", vec![0, 3, 5, 7], vec![3, 5]),
        ("x a@4 b", vec![0, 4], vec![4]),
        ("x a b", vec![], vec![]),
        ("x a@0 b@9", vec![0, 1], vec![0]),
    ] {
        let nodes = device_nodes(&registry(text), "x", NumaMask::of(machine));
        assert_eq!(nodes, NumaMask::of(expected), "{text}");
    }
}

/// Devices, the nodes of the machine, free and reusable devices, how many are requested.
#[test]
fn generate_device_topology_hints_table() {
    for (text, machine, available, reusable, requested, expected) in [
        ("x a@0", 2, "a", "", 1, "0+"),
        ("x a@0 b@1", 34, "a b", "", 1, "0+ 1+ 01-"),
        ("x a@0 b@1", 2, "a b", "", 1, "0+ 1+ 01-"),
        ("x a@0", 4, "", "a", 1, "0+"),
        ("x a@0 b@1", 4, "b", "a", 2, "01+"),
    ] {
        let registry = registry(text);
        let own = PodDevices::default();
        let claims = Claims { registry: &registry, others: &[], own: &own, hints: &NO_HINTS };
        let provider = DeviceProvider::new(&claims, NumaMask::of(0..machine));
        let (available, reusable) =
            (available.split_whitespace().collect(), reusable.split_whitespace().collect());
        let hints = provider.generate("x", requested, &available, &reusable);
        let hints = ProviderHints::from([("x".to_owned(), Some(hints))]);
        assert_eq!(shown(&hints), format!("x {expected}"), "{text}");
    }
}

#[test]
fn devices_on_many_nodes_have_hints_for_single_nodes_and_all_together() {
    let few = combinations(NumaMask::of(0..3));
    assert_eq!(few.len(), 7);
    let many = combinations(NumaMask::of(0..17));
    assert_eq!(many.len(), 18);
    assert_eq!(many.last().map(|nodes| nodes.count()), Some(17));
}

const RESOURCE: &str = "resource";

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn topology_aligned_allocation_table() {
    for case in cases(include_str!("aligned.txt")) {
        let registry = registry(&format!("{RESOURCE} {}", case.get("devices")));
        let pod = pod(&format!("p c:c({RESOURCE}={})", case.get("request")));
        let none = PodDevices::default();
        let hints = Hints::from([("c".to_owned(), hint(case.get("hint")))]);
        let claims = Claims { registry: &registry, others: &[], own: &none, hints: &hints };
        let chosen = compute_pod_devices(&pod, &claims).unwrap();
        let claims = Claims { own: &chosen, ..claims };
        let chosen = compute_preferred(&claims, "c", RESOURCE, &words(case.get("preferred")));
        let given = &chosen.get("c", RESOURCE).unwrap().devices;
        let mut alignment: BTreeMap<i64, usize> = BTreeMap::new();
        for node in given.values().filter_map(|nodes| nodes.first()) {
            *alignment.entry(*node).or_default() += 1;
        }
        let alignment = alignment.iter().map(|(node, count)| format!("{node}={count}"));
        assert_eq!(alignment.collect::<Vec<_>>().join(" "), case.get("alignment"), "{:?}", case.0);
        assert_eq!(given.len().to_string(), case.get("request"));
        assert!(words(case.get("includes")).iter().all(|id| given.contains_key(id)), "{:?}", case.0);
    }
}

#[test]
fn get_preferred_allocation_parameters_table() {
    for case in cases(include_str!("preferred_parameters.txt")) {
        let registry = registry(&format!("{RESOURCE} {}", case.get("devices")));
        let reusable = words(case.get("reusable"));
        let pod =
            pod(&format!("p i:i({RESOURCE}={}) c:c({RESOURCE}={})", reusable.len(), case.get("request")));
        let elsewhere: Vec<String> =
            words(case.get("allocated")).into_iter().filter(|id| !reusable.contains(id)).collect();
        let has = |owner: &str, ids: &[String]| {
            let text = format!("{owner}/{RESOURCE}={}", ids.join(","));
            if ids.is_empty() { PodDevices::default() } else { held(&text, |_| true) }
        };
        let (own, other) = (has("p/i", &reusable), has("other/c", &elsewhere));
        let hints = Hints::from([("c".to_owned(), hint(case.get("hint")))]);
        let claims = Claims { registry: &registry, others: &[&other], own: &own, hints: &hints };
        let chosen = compute_pod_devices(&pod, &claims).unwrap();
        let request = compute_preference(&Claims { own: &chosen, ..claims }, "c", RESOURCE).unwrap();
        assert_eq!(request.available, words(case.get("available")), "{:?}", case.0);
        assert_eq!(request.needed, words(case.get("needed")), "{:?}", case.0);
        assert_eq!(request.wanted.to_string(), case.get("size"), "{:?}", case.0);
    }
}

#[test]
fn plugin_has_no_choice_if_the_aligned_devices_are_as_many_as_requested() {
    let registry = registry("x Dev1@0 Dev2@0 Dev3@1");
    let none = PodDevices::default();
    let hints = Hints::from([("c".to_owned(), hint("0+"))]);
    let claims = Claims { registry: &registry, others: &[], own: &none, hints: &hints };
    let chosen = compute_pod_devices(&pod("p c:c(x=2)"), &claims).unwrap();
    assert_eq!(compute_preference(&Claims { own: &chosen, ..claims }, "c", "x"), None);
}

#[test]
fn provider_allocates_near_the_hint_and_rejects_a_pod_without_enough_devices() {
    let registry = registry("x Dev1@0 Dev2@1 Dev3@1");
    let none = PodDevices::default();
    let claims = Claims { registry: &registry, others: &[], own: &none, hints: &NO_HINTS };
    let mut provider = DeviceProvider::new(&claims, NumaMask::of([0, 1]));
    let (own, other) = (pod("p i:a(x=1) c:b(x=2)"), pod("q c:a(x=4)"));
    for container in init_containers(&own).chain(regular_containers(&own)) {
        provider.allocate(&own, &container, hint("1+")).unwrap();
    }
    let rejection = provider.allocate_pod(&other, hint("1+")).unwrap_err();
    assert_eq!(
        rejection.message,
        "Allocate failed due to requested number of devices unavailable for x. Requested: 4, Available: 1, which is unexpected"
    );
    let made = provider.into_devices();
    let ids = |container| made.get(container, "x").unwrap().devices.keys().cloned().collect::<Vec<_>>();
    assert_eq!((ids("a"), ids("b")), (words("Dev2"), words("Dev2 Dev3")));
}

proptest! {
    /// A container gets devices of other nodes only when it has all free ones on the nodes of its hint, and no device is given twice.
    #[test]
    fn devices_near_the_hint_are_given_first_and_none_twice(
        nodes in proptest::collection::vec(0..4_u8, 1..10),
        requested in proptest::collection::vec(1..4_usize, 1..4),
        mask in 1..8_u32,
    ) {
        let words = nodes.iter().enumerate().map(|(at, node)| match node {
            3 => format!("Dev{at}"),
            node => format!("Dev{at}@{node}"),
        });
        let registry = registry(&format!("x {}", words.collect::<Vec<_>>().join(" ")));
        let containers = requested.iter().enumerate().map(|(at, count)| format!("c:c{at}(x={count})"));
        let pod = pod(&format!("p {}", containers.collect::<Vec<_>>().join(" ")));
        let mask = NumaMask::of((0..3).filter(|id| mask & (1 << id) != 0));
        let chosen = TopologyHint { nodes: Some(mask), is_preferred: true };
        let hints: Hints = regular_containers(&pod).map(|own| (own.name().to_owned(), chosen)).collect();
        let none = PodDevices::default();
        let claims = Claims { registry: &registry, others: &[], own: &none, hints: &hints };
        let made = compute_pod_devices(&pod, &claims);
        prop_assert_eq!(made.is_ok(), requested.iter().sum::<usize>() <= nodes.len());
        let Ok(made) = made else { return Ok(()) };
        let is_aligned = |id: &str| !super::mask(registry.numa_nodes("x", id)).and(mask).is_empty();
        let given: Vec<&String> = made.all().flat_map(|(_, given)| given.devices.keys()).collect();
        let distinct: BTreeSet<&String> = given.iter().copied().collect();
        prop_assert_eq!(given.len(), distinct.len());
        let has_others = given.iter().any(|id| !is_aligned(id));
        let free_aligned = registry.healthy("x").filter(|id| is_aligned(id) && given.iter().all(|own| own != id)).count();
        prop_assert!(!has_others || free_aligned == 0);
    }
}
