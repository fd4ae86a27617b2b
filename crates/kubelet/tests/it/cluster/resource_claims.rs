//! Pods with ResourceClaims: none starts without the devices that it asked for.

mod drivers;
mod every_kind;
mod health;

use serde_json::{Value, json};

use crate::node::{FOREVER, condition, shell_pod, uid};

use super::{Cluster, bound};

/// A pod that keeps running and uses this claim.
fn pod_with_claim(name: &str, claim: &str) -> Value {
    let mut pod = bound(shell_pod(name, FOREVER));
    pod["spec"]["resourceClaims"] = json!([{"name": "gpu", "resourceClaimName": claim}]);
    pod["spec"]["containers"][0]["resources"] = json!({"claims": [{"name": "gpu"}]});
    pod
}

#[track_caller]
fn wait_for_reason(cluster: &Cluster, pod: &str, why: &str) {
    let expected = format!("Failed to prepare dynamic resources: prepare dynamic resources: {why}");
    cluster.node.eventually("an event has the reason", |_| {
        let events = cluster.events("Pod", pod);
        let found = events.contains(&format!("FailedPrepareDynamicResources: {expected}"));
        if found { Ok(()) } else { Err(format!("{events:?}")) }
    });
}

/// Allocates a device of that driver to the claim, and reserves it for the pod, as the scheduler does.
fn allocate(cluster: &Cluster, claim: &str, driver: &str, pod_uid: &str) {
    let path = format!("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/{claim}");
    let device = json!({"request": "gpu", "driver": driver, "pool": "node", "device": "gpu-0"});
    cluster.kubectl.change_status(&path, |claim| {
        claim["status"] = json!({
            "allocation": {"devices": {"results": [device.clone()]}},
            "reservedFor": [{"resource": "pods", "name": "pod", "uid": pod_uid}],
        });
    });
}

#[test]
fn pod_with_a_resource_claim_gets_no_sandbox_without_its_devices() {
    let cluster = Cluster::start();
    cluster.wait_until_ready();
    cluster.kubectl.create(&[pod_with_claim("gpu", "shared")]);
    let pod = cluster.pod_when("gpu", "is there", |pod| pod["metadata"]["uid"].is_string());
    wait_for_reason(
        &cluster,
        "gpu",
        "fetch ResourceClaim shared: get resourceclaims default/shared: not found: resourceclaims.resource.k8s.io \"shared\" not found",
    );
    let request = json!({"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}});
    cluster.kubectl.apply(&[json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": "shared", "namespace": "default"}, "spec": {"devices": {"requests": [request]}},
    })]);
    allocate(&cluster, "shared", "gpu.example.com", &uid(&pod));
    wait_for_reason(&cluster, "gpu", "DRA driver gpu.example.com is not registered");
    let pod = cluster.pod_when("gpu", "waits", |pod| pod["status"]["phase"] == "Pending");
    assert_eq!(pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"], "ContainerCreating");
    assert_eq!(condition(&pod, "PodReadyToStartContainers"), "False");
    assert_eq!(cluster.node.runtime_ids(&uid(&pod)), Ok(Vec::new()), "no sandbox was made");

    cluster.kubectl.apply(&[bound(shell_pod("plain", FOREVER))]);
    cluster.running("plain");
    cluster.kubectl.delete("gpu");
    cluster.node.eventually("the waiting pod is gone", |_| match cluster.kubectl.get("pod", "gpu") {
        Ok(pod) => Err(pod["metadata"].to_string()),
        Err(_) => Ok(()),
    });
}
