//! Devices of a plugin, from its registration to a pod that uses them: through the API, in a container, and over a kill of the
//! kubelet.

use fakes::DevicePlugin;
use grpc_api::pod_resources as v1;
use grpc_api::pod_resources::pod_resources_lister_client::PodResourcesListerClient;
use grpc_api::pod_resources_alpha::{self as v1alpha1, pod_resources_lister_client as alpha};
use serde_json::{Value, json};

use super::{Cluster, bound};
use crate::node::{FOREVER, container, restarts, shell_pod};
use crate::pod_resources::{channel, within};

const THING: &str = "example.com/thing";
const SOCKETS: &str = "root/device-plugins";

/// A pod that requests so many devices and prints what it sees of them.
fn device_pod(name: &str, count: &str) -> Value {
    let script =
        format!("echo $PLUGGED; ls /dev/plugged-*; test -s /plugged/users && echo mounted; {FOREVER}");
    let mut pod = bound(shell_pod(name, &script));
    pod["spec"]["containers"][0]["resources"] = json!({"limits": {THING: count}});
    pod
}

/// Waits until the Node shows these numbers: allocatable and capacity.
#[track_caller]
fn wait_for_devices(cluster: &Cluster, allocatable: &str, capacity: &str) {
    cluster.node.eventually("the node has so many devices", |_| {
        let node = cluster.kubectl.get("node", "node")?;
        let amount = |list: &str| node["status"][list][THING].as_str().unwrap_or_default().to_owned();
        let found = (amount("allocatable"), amount("capacity"));
        if found == (allocatable.to_owned(), capacity.to_owned()) {
            Ok(())
        } else {
            Err(format!("{found:?}"))
        }
    });
}

/// Registers as soon as the kubelet listens.
#[track_caller]
fn register(cluster: &Cluster, plugin: &mut DevicePlugin) {
    cluster.node.eventually("the plugin is registered", |_| plugin.register());
}

#[track_caller]
fn wait_until_rejected(cluster: &Cluster, name: &str, message: &str) {
    let pod = cluster.pod_when(name, "has failed", |pod| pod["status"]["phase"] == "Failed");
    assert_eq!(pod["status"]["reason"], "UnexpectedAdmissionError", "{}", pod["status"]);
    let expected = format!("Pod was rejected: Allocate failed due to {message}, which is unexpected");
    assert_eq!(pod["status"]["message"], expected);
}

/// What the PodResources API returns while the first pod has a device.
fn check_pod_resources(cluster: &Cluster) {
    let device = |id: &str| v1::ContainerDevices {
        resource_name: THING.to_owned(),
        device_ids: vec![id.to_owned()],
        topology: Some(v1::TopologyInfo { nodes: vec![v1::NumaNode { id: 0 }] }),
    };
    within(async {
        let channel = channel(&cluster.node).await;
        let mut client = PodResourcesListerClient::new(channel.clone());
        let all = client.get_allocatable_resources(v1::AllocatableResourcesRequest {}).await;
        assert_eq!(all.expect("an answer").into_inner().devices, [device("null"), device("zero")]);
        let listed = client.list(v1::ListPodResourcesRequest {}).await.expect("a list").into_inner();
        assert_eq!(listed.pod_resources[0].containers[0].devices, [device("zero")]);
        let mut old = alpha::PodResourcesListerClient::new(channel);
        let listed = old.list(v1alpha1::ListPodResourcesRequest {}).await.expect("a list").into_inner();
        let devices = &listed.pod_resources[0].containers[0].devices;
        assert_eq!(
            (devices[0].resource_name.as_str(), &*devices[0].device_ids),
            (THING, &["zero".to_owned()][..])
        );
    });
}

#[test]
fn device_plugin_devices_are_allocated_and_kept_over_a_kubelet_kill() {
    let mut cluster = Cluster::start();
    cluster.wait_until_ready();
    let dir = cluster.node.path(SOCKETS);
    let mut plugin = DevicePlugin::serve(&dir, THING, "null zero");
    let other = plugin.register_as("v1alpha1").expect_err("it uses a different protocol");
    assert!(other.starts_with("requested API version \"v1alpha1\" is not supported by kubelet."), "{other}");
    register(&cluster, &mut plugin);
    wait_for_devices(&cluster, "2", "2");

    cluster.kubectl.apply(&[device_pod("first", "1")]);
    let first = cluster.running("first");
    cluster.node.eventually("it sees its device", |node| {
        let output = node.logs(&first, "main");
        if output == "zero\n/dev/plugged-zero\nmounted\n" { Ok(()) } else { Err(output) }
    });
    let expected = ["GetPreferredAllocation null,zero", "Allocate zero", "PreStartContainer zero"];
    assert_eq!(plugin.calls(), expected);
    check_pod_resources(&cluster);
    cluster.kubectl.apply(&[device_pod("second", "2")]);
    let few = format!("requested number of devices unavailable for {THING}. Requested: 2, Available: 1");
    wait_until_rejected(&cluster, "second", &few);
    plugin.set("null! zero");
    wait_for_devices(&cluster, "1", "2");

    cluster.node.kill_kubelet();
    cluster.node.start_kubelet();
    register(&cluster, &mut plugin);
    wait_for_devices(&cluster, "1", "2");
    cluster.kubectl.apply(&[device_pod("third", "1")]);
    let few = format!("requested number of devices unavailable for {THING}. Requested: 1, Available: 0");
    wait_until_rejected(&cluster, "third", &few);
    let still = cluster.running("first");
    assert_eq!(container(&still, "main")["containerID"], container(&first, "main")["containerID"]);
    // A kubelet that never called the plugin's Allocate knows its response from the checkpoint.
    cluster.node.signal_container(&still, "main", "TERM");
    let again = cluster.pod_when("first", "runs again", |pod| {
        restarts(pod, "main") == 1 && pod["status"]["phase"] == "Running"
    });
    cluster.node.eventually("it sees the same", |node| {
        let output = node.logs(&again, "main");
        if output == "zero\n/dev/plugged-zero\nmounted\n" { Ok(()) } else { Err(output) }
    });
    assert_eq!(plugin.calls()[3..], ["PreStartContainer zero"]);

    cluster.kubectl.ok(&["delete", "pod", "first"]);
    cluster.wait_until_gone(&first);
    cluster.kubectl.apply(&[device_pod("fourth", "1")]);
    cluster.running("fourth");
    drop(plugin);
    wait_for_devices(&cluster, "0", "2");
    let metrics = cluster.node.get("/metrics").expect("metrics");
    let line = format!("kubelet_device_plugin_registration_total{{resource_name=\"{THING}\"}} 1\n");
    assert!(metrics.contains(&line), "{metrics}");
    let line = format!("kubelet_device_plugin_alloc_duration_seconds_count{{resource_name=\"{THING}\"}} 1\n");
    assert!(metrics.contains(&line), "{metrics}");
}

/// Waits until the API shows this health of the pod's devices; returns the pod.
#[track_caller]
fn wait_for_health(cluster: &Cluster, name: &str, expected: &[(&str, &str)]) -> Value {
    let one = |(id, health): &(&str, &str)| json!({"resourceID": id, "health": health});
    let resources: Vec<Value> = expected.iter().map(one).collect();
    let expected = json!([{"name": THING, "resources": resources}]);
    cluster.pod_when(name, "has the health of its devices", |pod| {
        pod["status"]["containerStatuses"][0]["allocatedResourcesStatus"] == expected
    })
}

/// `device_plugin_failures_pod_status_test.go` of the Go kubelet, and a plugin that goes and comes back.
#[test]
fn device_health_is_shown_in_the_pod_status_and_follows_the_plugin() {
    let cluster = Cluster::start();
    cluster.wait_until_ready();
    let mut plugin = DevicePlugin::serve(&cluster.node.path(SOCKETS), THING, "null zero full");
    register(&cluster, &mut plugin);
    wait_for_devices(&cluster, "3", "3");
    cluster.kubectl.apply(&[device_pod("pair", "2"), bound(shell_pod("plain", FOREVER))]);
    let first = cluster.running("pair");
    let plain = cluster.running("plain");
    assert_eq!(plain["status"]["containerStatuses"][0]["allocatedResourcesStatus"], Value::Null);
    // The plugin prefers the devices at the end of the sorted list.
    wait_for_health(&cluster, "pair", &[("null", "Healthy"), ("zero", "Healthy")]);
    plugin.set("null zero! full");
    wait_for_health(&cluster, "pair", &[("null", "Healthy"), ("zero", "Unhealthy")]);
    plugin.set("full! null zero");
    let healthy = wait_for_health(&cluster, "pair", &[("null", "Healthy"), ("zero", "Healthy")]);

    // Only a device that no pod has changes: the Node shows it, and the pod is not patched.
    plugin.set("full null zero");
    wait_for_devices(&cluster, "3", "3");
    let quiet = cluster.running("pair");
    assert_eq!(quiet["metadata"]["resourceVersion"], healthy["metadata"]["resourceVersion"]);

    drop(plugin);
    wait_for_health(&cluster, "pair", &[("null", "Unknown"), ("zero", "Unknown")]);
    let mut plugin = DevicePlugin::serve(&cluster.node.path(SOCKETS), THING, "null! zero full");
    register(&cluster, &mut plugin);
    let last = wait_for_health(&cluster, "pair", &[("null", "Unhealthy"), ("zero", "Healthy")]);
    assert_eq!(container(&last, "main")["containerID"], container(&first, "main")["containerID"]);
    let plain_now = cluster.running("plain");
    assert_eq!(plain_now["metadata"]["resourceVersion"], plain["metadata"]["resourceVersion"]);
}
