//! Each case maps a line of pods and a line of devices to the assigned devices.

use model::devices::PluginDevice;
use proptest::prelude::*;
use serde_json::json;

use super::super::NO_HINTS;
use super::*;

const X: &str = "example.com/x";

/// `i:1 s:2 c:1`: an init container, a sidecar and a regular one, with so many devices each; named by kind and position.
fn pod(line: &str) -> Pod {
    let (mut init, mut regular) = (Vec::new(), Vec::new());
    for (at, word) in line.split_whitespace().enumerate() {
        let (kind, count) = word.split_once(':').unwrap();
        let mut container = json!({"name": format!("{kind}{at}"), "resources": {"limits": {X: count}}});
        match kind {
            "c" => regular.push(container),
            "i" => init.push(container),
            _ => {
                container["restartPolicy"] = "Always".into();
                init.push(container);
            }
        }
    }
    let pod = json!({"metadata": {"uid": "u"}, "spec": {"containers": regular, "initContainers": init}});
    serde_json::from_value(pod).unwrap()
}

/// `a b!`: two devices, the second of which is not well.
fn registry(devices: &str) -> Registry {
    let mut registry = Registry::default();
    let plugin = registry.connected(X);
    let device = |word: &str| PluginDevice {
        id: word.trim_end_matches('!').to_owned(),
        is_healthy: !word.ends_with('!'),
        numa_nodes: Vec::new(),
    };
    registry.listed(X, plugin, devices.split_whitespace().map(device).collect());
    registry
}

/// `c0=ab`: the first container has devices a and b.
fn held(line: &str) -> PodDevices {
    let mut devices = PodDevices::default();
    for word in line.split_whitespace() {
        let (container, ids) = word.split_once('=').unwrap();
        let ids = ids.chars().map(|id| (id.to_string(), Vec::new())).collect();
        devices.insert(container, X, Given { devices: ids, response: Some(AllocateResponse::default()) });
    }
    devices
}

fn shown(devices: &PodDevices) -> String {
    let ids = |given: &Given| given.devices.keys().map(String::as_str).collect::<String>();
    let container =
        |(name, resources): (&String, &BTreeMap<String, Given>)| format!("{name}={}", ids(&resources[X]));
    devices.containers.iter().map(container).collect::<Vec<_>>().join(" ")
}

#[track_caller]
fn check(line: &str, devices: &str, others: &str, own: &str, expected: &str) {
    let (registry, other, own) = (registry(devices), held(others), held(own));
    let claims = Claims { registry: &registry, others: &[&other], own: &own, hints: &NO_HINTS };
    let made = compute_pod_devices(&pod(line), &claims);
    assert_eq!(made.map_or_else(|why| why.to_string(), |made| shown(&made)), expected);
}

#[test]
fn containers_get_free_devices() {
    check("c:1 c:2", "a b c", "", "", "c0=a c1=bc");
    check("c:1", "a b", "x=a", "", "c0=b");
    check("c:0", "a", "x=a", "", "");
    let few = |requested, available| {
        format!(
            "requested number of devices unavailable for {X}. Requested: {requested}, Available: {available}"
        )
    };
    check("c:1", "a", "x=a", "", &few(1, 0));
    check("c:3", "a b c!", "", "", &few(3, 2));
    check("c:1 c:2", "a b", "", "", &few(2, 1));
    let sick = format!("no healthy devices present; cannot allocate unhealthy devices {X}");
    check("c:1", "a! b!", "", "", &sick);
}

#[test]
fn devices_of_init_containers_are_reused_but_not_those_of_sidecars() {
    check("i:2 c:1", "a b", "", "", "c1=a i0=ab");
    check("i:1 i:2 c:2", "a b", "", "", "c2=ab i0=a i1=ab");
    check("i:1 c:1 c:1", "a b", "", "", "c1=a c2=b i0=a");
    check("s:1 c:1", "a b", "", "", "c1=b s0=a");
    check("i:2 s:1 c:1", "a b", "", "", "c2=b i0=ab s1=a");
    check(
        "i:1 s:1 c:1",
        "a",
        "",
        "",
        &format!("requested number of devices unavailable for {X}. Requested: 1, Available: 0"),
    );
}

#[test]
fn pod_keeps_its_assigned_devices() {
    check("c:1 c:1", "a b", "", "c0=b", "c0=b c1=a");
    check("i:1 c:1", "a b", "", "i0=b", "c1=b i0=b");
    let changed = format!("pod \"u\" container \"c0\" changed request for resource \"{X}\" from 1 to 2");
    check("c:2", "a b", "", "c0=b", &changed);
    let sick =
        format!("previously allocated devices are no longer healthy; cannot allocate unhealthy devices {X}");
    check("c:1", "a b!", "", "c0=b", &sick);
}

#[test]
fn resource_without_a_device_plugin_is_ignored() {
    let pod = pod("c:1");
    let (registry, own) = (Registry::default(), PodDevices::default());
    let claims = Claims { registry: &registry, others: &[], own: &own, hints: &NO_HINTS };
    assert_eq!(compute_pod_devices(&pod, &claims), Ok(PodDevices::default()));
}

#[test]
fn device_shortage_has_the_message_of_the_go_kubelet() {
    let why = DeviceShortage::TooFew { resource: "nvidia.com/gpu".to_owned(), requested: 1, available: 0 };
    let Rejection { reason, message } = rejection(&why);
    assert_eq!(reason, "UnexpectedAdmissionError");
    assert_eq!(
        message,
        "Allocate failed due to requested number of devices unavailable for nvidia.com/gpu. Requested: 1, Available: 0, which is unexpected"
    );
}

#[track_caller]
fn check_preferred(own: &str, container: &str, preferred: &str, expected: &str) {
    let (registry, other, own) = (registry("a b c d e!"), held("x=d"), held(own));
    let claims = Claims { registry: &registry, others: &[&other], own: &own, hints: &NO_HINTS };
    let preferred: Vec<String> = preferred.chars().map(String::from).collect();
    assert_eq!(shown(&compute_preferred(&claims, container, X, &preferred)), expected);
}

#[test]
fn preferred_devices_are_used_if_they_are_free() {
    check_preferred("c0=ab", "c0", "bc", "c0=bc");
    check_preferred("c0=ab", "c0", "c", "c0=ac");
    check_preferred("c0=ab", "c0", "", "c0=ab");
    // Allocated, unhealthy, unknown, named twice, more than requested.
    check_preferred("c0=ab", "c0", "dez", "c0=ab");
    check_preferred("c0=ab", "c0", "cc", "c0=ac");
    check_preferred("c0=a", "c0", "cb", "c0=c");
    check_preferred("c0=a c1=b", "c0", "b", "c0=a c1=b");
    // What an init container had before is reused, whatever the plugin prefers.
    check_preferred("c1=ab i0=a", "c1", "bc", "c1=ab i0=a");
    check_preferred("c1=ab i0=a", "c1", "c", "c1=ac i0=a");
    check_preferred("c0=a", "other", "b", "c0=a");
}

#[test]
fn preferred_allocation_request_has_available_and_required_devices() {
    let (registry, other, own) = (registry("a b c d e!"), held("x=d"), held("c1=ab i0=a"));
    let claims = Claims { registry: &registry, others: &[&other], own: &own, hints: &NO_HINTS };
    let request = compute_preference(&claims, "c1", X).unwrap();
    assert_eq!(
        (request.available.concat(), request.needed.concat(), request.wanted),
        ("abc".to_owned(), "a".to_owned(), 2)
    );
}

proptest! {
    /// Whatever comes: a container has as many as it asks for, all of them well, and none that another pod has or that
    /// two containers hold that run next to each other.
    #[test]
    fn no_device_is_assigned_twice(
        asks in proptest::collection::vec((0..3_usize, 0..4_usize), 1..5),
        taken in proptest::collection::btree_set(0..8_u8, 0..4),
        liked in proptest::collection::vec(0..10_u8, 0..6),
    ) {
        let letter = |n: &u8| char::from(b'a' + n);
        let line: Vec<String> = asks.iter().map(|(kind, count)| format!("{}:{count}", ["i", "s", "c"][*kind])).collect();
        let pod = pod(&line.join(" "));
        let registry = registry("a b c d e f g! h");
        let other = held(&format!("x={}", taken.iter().map(letter).collect::<String>()));
        let none = PodDevices::default();
        let claims = Claims { registry: &registry, others: &[&other], own: &none, hints: &NO_HINTS };
        let Ok(mut made) = compute_pod_devices(&pod, &claims) else { return Ok(()) };
        let liked: Vec<String> = liked.iter().map(|n| letter(n).to_string()).collect();
        for container in made.containers.clone().keys() {
            let claims = Claims { own: &made, ..claims };
            made = compute_preferred(&claims, container, X, &liked);
        }
        let mut others: Vec<&String> = Vec::new();
        for container in init_containers(&pod).chain(regular_containers(&pod)) {
            let Some(given) = made.get(container.name(), X) else { continue };
            let requested = wanted(&container, &registry)[X];
            prop_assert_eq!(given.devices.len(), requested);
            for id in given.devices.keys() {
                prop_assert!(registry.healthy(X).any(|healthy| healthy == id) && !other.ids().any(|(_, t)| t == id));
                prop_assert!(!others.contains(&id), "{} twice in {:?}", id, shown(&made));
            }
            if container.kind != ContainerKind::Init {
                others.extend(given.devices.keys());
            }
        }
    }
}
