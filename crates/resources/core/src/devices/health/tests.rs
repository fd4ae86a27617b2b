//! The values of `devicemanager/manager_test.go` of the Go kubelet, the rules of the API documentation, and their edges.

use std::time::Duration;

use model::MonoTime;
use model::devices::PluginDevice;
use serde_json::{Value, json};

use super::*;
use crate::devices::{Connection, Given};

const RESOURCE: &str = "domain1.com/resource1";

/// `a b!`: two devices, the second of which is unhealthy.
fn listed(line: &str) -> Vec<PluginDevice> {
    let device = |word: &str| PluginDevice {
        id: word.trim_end_matches('!').to_owned(),
        is_healthy: !word.ends_with('!'),
        numa_nodes: Vec::new(),
    };
    line.split_whitespace().map(device).collect()
}

/// `app:example.com/a=1,2`: the devices of a container.
fn devices(words: &str) -> PodDevices {
    let mut devices = PodDevices::default();
    for word in words.split_whitespace() {
        let (container, held) = word.split_once(':').expect("container:resource=ids");
        let (resource, ids) = held.split_once('=').expect("resource=ids");
        let ids = ids.split(',').filter(|id| !id.is_empty());
        let given = Given { devices: ids.map(|id| (id.to_owned(), Vec::new())).collect(), response: None };
        devices.insert(container, resource, given);
    }
    devices
}

fn plugin(line: &str) -> (Registry, Connection) {
    let mut registry = Registry::default();
    let connection = registry.connected(RESOURCE);
    registry.listed(RESOURCE, connection, listed(line));
    (registry, connection)
}

/// `dev1 Healthy, dev2 Unknown` of the container `app`.
fn shown(registry: &Registry, ids: &str) -> String {
    let health = compute_container_health(&devices(&format!("app:{RESOURCE}={ids}")), registry);
    let each = health["app"][0].resources.iter().flatten();
    let each = each.map(|one| format!("{} {}", one.resource_id, one.health.as_deref().unwrap_or("-")));
    each.collect::<Vec<_>>().join(", ")
}

fn at(seconds: u64) -> MonoTime {
    MonoTime::from_start(Duration::from_secs(seconds))
}

/// TestUpdateAllocatedResourcesStatus.
#[test]
fn allocated_resources_status_has_the_health_that_the_plugin_reports() {
    let mut registry = Registry::default();
    let connection = registry.connected("test-resource");
    registry.listed("test-resource", connection, listed("dev1 dev2!"));
    let health = compute_container_health(&devices("test-container:test-resource=dev1,dev2"), &registry);
    let resources = json!([
        {"resourceID": "dev1", "health": "Healthy"},
        {"resourceID": "dev2", "health": "Unhealthy"},
    ]);
    let expected = json!({"test-container": [{"name": "test-resource", "resources": resources}]});
    assert_eq!(json!(health), expected);
}

#[test]
fn device_health_is_sorted_by_resource_and_device_id() {
    let held = devices("app:z.com/a=2,10,1 app:a.com/z=x other:a.com/z=y empty:a.com/z=");
    let health = json!(compute_container_health(&held, &Registry::default()));
    let unknown = |ids: &[&str]| {
        let of_id = |id: &&str| json!({"resourceID": id, "health": "Unknown"});
        ids.iter().map(of_id).collect::<Value>()
    };
    let app = json!([
        {"name": "a.com/z", "resources": unknown(&["x"])},
        {"name": "z.com/a", "resources": unknown(&["1", "10", "2"])},
    ]);
    assert_eq!(health, json!({"app": app, "other": [{"name": "a.com/z", "resources": unknown(&["y"])}]}));
}

/// The API documentation of `ResourceHealth`: Unknown while the plugin is unregistered and has not registered again.
#[test]
fn device_health_is_unknown_until_the_plugin_reports_the_device_again() {
    let (mut registry, connection) = plugin("dev1 dev2!");
    assert_eq!(shown(&registry, "dev1,dev2"), "dev1 Healthy, dev2 Unhealthy");
    registry.vanished(RESOURCE, connection, at(0));
    assert_eq!(shown(&registry, "dev1,dev2"), "dev1 Unknown, dev2 Unknown");
    let again = registry.connected(RESOURCE);
    assert_eq!(shown(&registry, "dev1,dev2"), "dev1 Unknown, dev2 Unknown", "registered, and nothing listed");
    registry.listed(RESOURCE, again, listed("dev1"));
    assert_eq!(shown(&registry, "dev1,dev2"), "dev1 Healthy, dev2 Unknown", "one is missing in the list");
    let replacing = registry.connected(RESOURCE);
    assert_eq!(shown(&registry, "dev1"), "dev1 Healthy", "replaced while connected");
    registry.vanished(RESOURCE, replacing, at(0));
    registry.drop_expired(at(300));
    assert_eq!(shown(&registry, "dev1"), "dev1 Unknown");
    let restored = Registry::remembering([RESOURCE.to_owned()], at(0));
    assert_eq!(shown(&restored, "dev1"), "dev1 Unknown", "after a restart of the kubelet");
}

/// TestFeatureGateResourceHealthStatus: 200 pods with one device each.
#[test]
fn only_pods_whose_device_changed_its_health_are_affected() {
    let all: Vec<(PodUid, PodDevices)> = (0..200)
        .map(|n| (PodUid::new(format!("pod{n}")), devices(&format!("con{n}:{RESOURCE}=dev{n}"))))
        .collect();
    let line = |suffix: &str| (0..200).map(|n| format!("dev{n}{suffix} ")).collect::<String>();
    let (mut registry, connection) = plugin(&line(""));
    let health = |registry: &Registry| {
        health_of_pods(all.iter().map(|(uid, devices)| (uid.clone(), devices)), registry)
    };
    let mut affected_by = |list: &str| {
        let before = health(&registry);
        registry.listed(RESOURCE, connection, listed(list));
        let affected = compute_affected_pods(&before, &health(&registry));
        affected.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(affected_by(&line("")), [""; 0]);
    for n in 0..200 {
        let list = line("").replace(&format!("dev{n} "), &format!("dev{n}! "));
        assert_eq!(affected_by(&list), [format!("pod{n}")]);
        assert_eq!(affected_by(&list), [""; 0], "reported again");
        assert_eq!(affected_by(&line("")), [format!("pod{n}")]);
    }
    assert_eq!(affected_by(&line("!")).len(), 200);
    assert_eq!(affected_by(&format!("{}spare", line("!"))), [""; 0], "no pod has the new device");
}

/// The Go kubelet looks for the device's id among the devices of all resources.
#[test]
fn device_of_another_resource_with_the_same_id_affects_no_pod() {
    let mut registry = Registry::default();
    let (first, second) = (registry.connected("a.com/x"), registry.connected("b.com/x"));
    registry.listed("a.com/x", first, listed("0"));
    registry.listed("b.com/x", second, listed("0"));
    let pods = [("a", devices("app:a.com/x=0")), ("b", devices("app:b.com/x=0"))];
    let health = |registry: &Registry| {
        health_of_pods(pods.iter().map(|(uid, held)| (PodUid::new(*uid), held)), registry)
    };
    let before = health(&registry);
    registry.listed("b.com/x", second, listed("0!"));
    assert_eq!(compute_affected_pods(&before, &health(&registry)), [PodUid::new("b")]);
}

#[test]
fn only_extended_resources_and_claims_may_be_devices() {
    let of_init = json!({"name": "a", "resources": {"limits": {"example.com/gpu": "1"}}});
    let init: Pod =
        serde_json::from_value(json!({"spec": {"initContainers": [of_init], "containers": [{"name": "b"}]}}))
            .expect("a pod");
    assert!(may_have_devices(&init));
    let regular = |resource: &str| -> Pod {
        let container = json!({"name": "a", "resources": {"limits": {resource: "1"}}});
        serde_json::from_value(json!({"spec": {"containers": [container]}})).expect("a pod")
    };
    assert!(may_have_devices(&regular("example.com/gpu")));
    let claims = json!({"spec": {"resourceClaims": [{"name": "a"}], "containers": [{"name": "b"}]}});
    assert!(may_have_devices(&serde_json::from_value(claims).expect("a pod")));
    for resource in ["cpu", "hugepages-2Mi", "kubernetes.io/batch-cpu"] {
        assert!(!may_have_devices(&regular(resource)), "{resource}");
    }
}
