use config::Features;
use serde_json::{Value, json};

use super::*;
use crate::pods::request::tests::node;
use base_core::node_facts::Swap;

fn pod(requests: Value, limits: Value, policy: &str) -> Pod {
    let resize_policy = json!([{"resourceName": "memory", "restartPolicy": policy}]);
    let resources = json!({"requests": requests, "limits": limits});
    let container = json!({"name": "c", "resources": resources, "resizePolicy": resize_policy});
    serde_json::from_value(json!({"spec": {"containers": [container]}})).unwrap()
}

fn guaranteed(cpu: &str, memory: &str) -> Pod {
    let amounts = json!({"cpu": cpu, "memory": memory});
    pod(amounts.clone(), amounts, "NotRequired")
}

fn detail(requested: &Pod, allocated: &Pod, node: &NodeFacts) -> Option<&'static str> {
    compute_infeasible(requested, allocated, node).map(|infeasible| infeasible.detail)
}

/// A node with the static policies of both managers.
fn with_static_policies(resize_exclusive_cpus: bool, resize_exclusive_memory: bool) -> NodeFacts {
    let mut node = node();
    let config = std::sync::Arc::make_mut(&mut node.config);
    config.cpu_manager_policy = "static".to_owned();
    config.memory_manager_policy = "Static".to_owned();
    node.features = Features { resize_exclusive_cpus, resize_exclusive_memory, ..node.features };
    node
}

/// The cases of the Go kubelet's tests.
#[test]
fn exclusive_resources_of_guaranteed_pods_are_not_resized() {
    let allocated = guaranteed("1", "1000M");
    let (cpu, memory) = (guaranteed("2", "1000M"), guaranteed("1", "2000M"));
    let both = guaranteed("2", "2000M");
    let by_cpu = Some("guaranteed_pod_cpu_manager_static_policy");
    let by_memory = Some("guaranteed_pod_memory_manager_static_policy");
    assert_eq!(detail(&cpu, &allocated, &with_static_policies(false, true)), by_cpu);
    assert_eq!(detail(&memory, &allocated, &with_static_policies(true, false)), by_memory);
    assert_eq!(detail(&both, &allocated, &with_static_policies(false, false)), by_cpu);
    assert_eq!(detail(&cpu, &allocated, &with_static_policies(true, false)), None);
    assert_eq!(detail(&memory, &allocated, &with_static_policies(false, true)), None);
    assert_eq!(detail(&both, &allocated, &node()), None, "no static policy");
    let burstable = |cpu: &str| pod(json!({"cpu": cpu}), json!({}), "NotRequired");
    assert_eq!(detail(&burstable("2"), &burstable("1"), &with_static_policies(false, false)), None);
    assert_eq!(
        compute_infeasible(&both, &allocated, &with_static_policies(false, false)).unwrap().message,
        "Resize is infeasible for Guaranteed Pods alongside CPU Manager policy \"static\""
    );
    assert_eq!(
        compute_infeasible(&memory, &allocated, &with_static_policies(true, false)).unwrap().message,
        "Resize is infeasible for Guaranteed Pods alongside Memory Manager policy \"Static\""
    );
}

/// The cases of the Go kubelet's tests.
#[test]
fn memory_of_containers_with_swap_is_not_resized_without_a_restart() {
    let mut with_swap = node();
    with_swap.cgroup_v2 = true;
    with_swap.swap = Swap::Limited { node_swap_bytes: 1 << 30 };
    let burstable =
        |memory: &str, policy: &str| pod(json!({"cpu": "1", "memory": memory}), json!({}), policy);
    let resize = |policy: &str, node: &NodeFacts| {
        compute_infeasible(&burstable("500Mi", policy), &burstable("1Gi", policy), node)
    };
    assert_eq!(resize("RestartContainer", &node()), None);
    assert_eq!(resize("NotRequired", &node()), None);
    assert_eq!(resize("RestartContainer", &with_swap), None);
    let refused = resize("NotRequired", &with_swap).unwrap();
    assert_eq!(refused.message, "In-place resize of containers with swap is not supported.");
    assert_eq!(refused.detail, "swap_limitation");
}

#[test]
fn resources_of_the_pod_as_a_whole_need_their_feature_gate() {
    let with = |cpu: &str| {
        let mut pod = pod(json!({}), json!({}), "NotRequired");
        pod.spec.as_mut().unwrap().resources =
            serde_json::from_value(json!({"requests": {"cpu": cpu}})).unwrap();
        pod
    };
    let off = |mut node: NodeFacts| {
        node.features.pod_level_resize = false;
        node
    };
    assert_eq!(detail(&with("2"), &with("1"), &node()), None);
    assert_eq!(detail(&with("2"), &with("1"), &off(node())), Some("plr_feature_gate_off"));
    assert_eq!(detail(&with("1"), &with("1"), &off(node())), None);
}
