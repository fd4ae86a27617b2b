//! One pod with every kind of device: a claim from a template, a claim that another pod shares, an extended resource that a claim stands
//! for, and one of a device plugin; over kills of kubelet and driver, and a reboot that leaves no CDI file.

use fakes::DevicePlugin;
use model::dra::DraVersion;
use serde_json::{Value, json};

use super::drivers::{DRIVER, Setup};
use super::pod_with_claim;
use crate::node::{FOREVER, Node, container, restarts, shell_pod, uid};

const TPU: &str = "example.com/tpu";
const THING: &str = "example.com/thing";
const DEVICE_PLUGINS: &str = "root/device-plugins";
const CLAIMS: [&str; 3] = ["own-x", "shared", "tpu-x"];

/// A pod that prints what it sees of its devices; not bound yet, because the scheduler writes its status before.
fn every_kind() -> Value {
    let script = format!("echo own=$DRA_own_x shared=$DRA_shared tpu=$DRA_tpu_x plugged=$PLUGGED; {FOREVER}");
    let mut pod = shell_pod("all", &script);
    pod["spec"]["resourceClaims"] = json!([
        {"name": "own", "resourceClaimTemplateName": "template"},
        {"name": "shared", "resourceClaimName": "shared"},
    ]);
    pod["spec"]["containers"][0]["resources"] = json!({
        "claims": [{"name": "own"}, {"name": "shared"}],
        "limits": {TPU: "1", THING: "1"},
    });
    pod
}

/// The part of the scheduler: claims are allocated and reserved, the status of the pod names them, and the pod is bound.
fn schedule(setup: &Setup, all: &Value, other: &Value) {
    let user = |pod: &Value| json!({"resource": "pods", "name": pod["metadata"]["name"], "uid": uid(pod)});
    for (claim, owner, users) in [
        ("own-x", Some(all), vec![user(all)]),
        ("shared", None, vec![user(all), user(other)]),
        ("tpu-x", Some(all), vec![user(all)]),
    ] {
        setup.create_claim(claim, owner);
        let path = format!("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/{claim}");
        let device = json!({"request": "gpu", "driver": DRIVER, "pool": "node", "device": "device-0"});
        setup.cluster.kubectl.change_status(&path, |claim| {
            claim["status"] = json!({
                "allocation": {"devices": {"results": [device.clone()]}},
                "reservedFor": users.clone(),
            });
        });
    }
    setup.cluster.kubectl.change_status("/api/v1/namespaces/default/pods/all", |pod| {
        pod["status"]["resourceClaimStatuses"] = json!([{"name": "own", "resourceClaimName": "own-x"}]);
        pod["status"]["extendedResourceClaimStatus"] = json!({
            "resourceClaimName": "tpu-x",
            "requestMappings": [{"containerName": "main", "resourceName": TPU, "requestName": "gpu"}],
        });
    });
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": "all", "namespace": "default"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "node"},
    });
    setup.cluster.kubectl.post("/api/v1/namespaces/default/pods/all/binding", &binding.to_string());
}

/// The claims that are prepared, by name.
fn prepared(setup: &Setup) -> Vec<String> {
    let mut claims = setup.driver.prepared();
    claims.sort();
    claims
}

fn register(node: &Node, plugin: &mut DevicePlugin) {
    node.eventually("the device plugin is registered", |_| plugin.register());
}

/// The newest container sees all of its devices, as far as the runtime knows CDI.
#[track_caller]
fn sees_its_devices(node: &Node, pod: &Value) {
    let expected = match node.supports_cdi() {
        true => "own=own-x shared=shared tpu=tpu-x plugged=zero\n",
        false => "own= shared= tpu= plugged=zero\n",
    };
    node.eventually("the container sees its devices", |node| match node.logs(pod, "main") {
        output if output == expected => Ok(()),
        output => Err(output),
    });
}

#[test]
fn pod_with_every_kind_of_device_keeps_them_over_kills_and_gets_them_again_after_a_reboot() {
    let mut setup = Setup::start();
    let plugins = setup.cluster.node.path(DEVICE_PLUGINS);
    let mut plugin = DevicePlugin::serve(&plugins, THING, "zero");
    register(&setup.cluster.node, &mut plugin);
    setup.cluster.kubectl.create(&[every_kind(), pod_with_claim("other", "shared")]);
    let [all, other] = ["all", "other"]
        .map(|name| setup.cluster.pod_when(name, "is there", |pod| pod["metadata"]["uid"].is_string()));
    schedule(&setup, &all, &other);
    let running = setup.cluster.running("all");
    setup.cluster.running("other");
    assert_eq!(prepared(&setup), CLAIMS, "each once: {:?}", setup.driver.calls());
    sees_its_devices(&setup.cluster.node, &running);

    // Kubelet and driver die.
    let calls = setup.driver.calls();
    setup.cluster.node.kill_kubelet();
    setup.crash_driver();
    setup.cluster.node.start_kubelet();
    setup.register(DraVersion::V1);
    register(&setup.cluster.node, &mut plugin);
    let still = setup.cluster.running("all");
    assert_eq!(container(&still, "main")["containerID"], container(&running, "main")["containerID"]);
    assert_eq!(setup.driver.calls(), calls, "a running pod needs no call");

    // The machine starts again, with what is on its disk.
    setup.crash_driver();
    drop(plugin);
    setup.cluster.node.lose_power();
    setup.driver.remove_cdi_files();
    setup.driver.forget_calls();
    setup.cluster.node.resume_runtime();
    setup.cluster.node.start_kubelet();
    setup.register(DraVersion::V1);
    let mut plugin = DevicePlugin::serve(&plugins, THING, "zero");
    register(&setup.cluster.node, &mut plugin);
    let again = setup.cluster.pod_when("all", "runs again", |pod| {
        restarts(pod, "main") >= 1 && container(pod, "main")["state"]["running"].is_object()
    });
    sees_its_devices(&setup.cluster.node, &again);
    let calls = setup.driver.calls();
    for claim in CLAIMS {
        let is_meant = |call: &&String| call.starts_with("prepare") && call.contains(claim);
        assert_eq!(calls.iter().filter(is_meant).count(), 1, "{claim}: {calls:?}");
    }

    // The claim of both pods goes with the last one.
    setup.cluster.kubectl.ok(&["delete", "pod", "all"]);
    assert_eq!(prepared(&setup), ["shared"], "before the object went: {:?}", setup.driver.calls());
    setup.cluster.kubectl.ok(&["delete", "pod", "other"]);
    assert_eq!(prepared(&setup), Vec::<String>::new());
}
