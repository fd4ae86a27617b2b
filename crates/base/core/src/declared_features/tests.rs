//! What the Go kubelet 1.36.2 declared in a recording, and the rules of `component-helpers/nodedeclaredfeatures`.

use expect_test::expect;
use serde_json::{Value, json};

use super::*;

fn pod(spec: &Value) -> Pod {
    serde_json::from_value(json!({ "spec": spec })).expect("a pod")
}

fn undeclared(spec: &Value, features: Features) -> Option<String> {
    compute_undeclared(&pod(spec), features, false)
}

/// By default as in the recording `go-kubelet/_node.json`; then without one gate after the other.
#[test]
fn declared_features_follow_their_gates() {
    let all = Features::default();
    let cases = [
        ("default", all),
        ("no web sockets", Features { extend_websockets: false, ..all }),
        ("no pod-level resize", Features { pod_level_resize: false, ..all }),
        ("no resize of init containers", Features { resize_init_containers: false, ..all }),
        ("no restart of all containers", Features { restart_all_containers: false, ..all }),
        ("not declared", Features { node_declared_features: false, ..all }),
    ];
    let line =
        |(name, features)| format!("{name}: {}\n", compute_declared_features(features, false).join(" "));
    expect![[r#"
        default: ExtendWebSocketsToKubelet InPlacePodLevelResourcesVerticalScaling InPlacePodVerticalScalingInitContainers RestartAllContainersOnContainerExits
        no web sockets: InPlacePodLevelResourcesVerticalScaling InPlacePodVerticalScalingInitContainers RestartAllContainersOnContainerExits
        no pod-level resize: ExtendWebSocketsToKubelet InPlacePodVerticalScalingInitContainers RestartAllContainersOnContainerExits
        no resize of init containers: ExtendWebSocketsToKubelet InPlacePodLevelResourcesVerticalScaling RestartAllContainersOnContainerExits
        no restart of all containers: ExtendWebSocketsToKubelet InPlacePodLevelResourcesVerticalScaling InPlacePodVerticalScalingInitContainers
        not declared: 
    "#]]
    .assert_eq(&cases.into_iter().map(line).collect::<String>());
}

/// TestDeclaredFeaturesAdmitHandler, with the features that pods of 1.36 can require.
#[test]
fn pod_that_requires_an_undeclared_feature_is_rejected() {
    let restarting = |list: &str| {
        let codes = json!({"operator": "In", "values": [1]});
        let rules = json!([{"action": "RestartAllContainers", "exitCodes": codes}]);
        let mut spec = json!({"containers": [{"name": "b"}]});
        spec[list] = json!([{"name": "a", "restartPolicy": "Never", "restartPolicyRules": rules}]);
        spec
    };
    let on = Features::default();
    let off = Features { restart_all_containers: false, ..on };
    let rejected = |names: &str| Some(format!("Pod requires node features that are not available: {names}"));
    for list in ["containers", "initContainers"] {
        assert_eq!(undeclared(&restarting(list), on), None, "the requirement is met");
        assert_eq!(undeclared(&restarting(list), off), rejected("RestartAllContainersOnContainerExits"));
        let unchecked = Features { node_declared_features: false, ..off };
        assert_eq!(undeclared(&restarting(list), unchecked), None, "without the check");
    }
    assert_eq!(undeclared(&json!({"containers": [{"name": "a"}]}), off), None, "no requirement");
    let mut both = restarting("containers");
    (both["hostNetwork"], both["hostUsers"]) = (true.into(), false.into());
    assert_eq!(undeclared(&both, on), rejected("UserNamespacesHostNetworkSupport"));
    let names = "RestartAllContainersOnContainerExits, UserNamespacesHostNetworkSupport";
    assert_eq!(undeclared(&both, off), rejected(names));
    for (host_network, host_users) in [(true, true), (false, false), (false, true)] {
        let spec = json!({"containers": [], "hostNetwork": host_network, "hostUsers": host_users});
        assert_eq!(undeclared(&spec, on), None, "{spec}");
    }
}

#[test]
fn update_that_requires_an_undeclared_feature_is_reported() {
    let cpu = |amount: &str| json!({"requests": {"cpu": amount}});
    let with = |own: &str, init: &str, policy: Value, regular: &str| {
        pod(&json!({
            "resources": cpu(own),
            "initContainers": [{"name": "i", "resources": cpu(init), "restartPolicy": policy}],
            "containers": [{"name": "a", "resources": cpu(regular)}],
        }))
    };
    let old = |policy: Value| with("1", "1", policy, "1");
    let on = Features::default();
    let off = Features { pod_level_resize: false, resize_init_containers: false, ..on };
    let both = with("2", "2", Value::Null, "1");
    assert_eq!(compute_undeclared_update(&old(Value::Null), &both, on), None);
    let names = "InPlacePodLevelResourcesVerticalScaling, InPlacePodVerticalScalingInitContainers";
    let message = format!("Pod requires node features that are not available: {names}");
    assert_eq!(compute_undeclared_update(&old(Value::Null), &both, off), Some(message));
    let of_pod = compute_undeclared_update(&old(Value::Null), &with("2", "1", Value::Null, "1"), off);
    assert!(of_pod.is_some_and(|why| why.ends_with(": InPlacePodLevelResourcesVerticalScaling")));
    let sidecar = with("1", "2", json!("Always"), "1");
    assert_eq!(compute_undeclared_update(&old(json!("Always")), &sidecar, off), None, "a sidecar");
    let regular = with("1", "1", Value::Null, "2");
    assert_eq!(compute_undeclared_update(&old(Value::Null), &regular, off), None, "a regular container");
    let undeclared = Features { node_declared_features: false, ..off };
    assert_eq!(compute_undeclared_update(&old(Value::Null), &both, undeclared), None);
}

#[test]
fn user_namespaces_with_the_host_network_are_declared_with_their_gate_and_support_of_the_runtime_only() {
    let spec = json!({"containers": [], "hostNetwork": true, "hostUsers": false});
    for (gate, has_host_network, is_declared) in
        [(false, false, false), (false, true, false), (true, false, false), (true, true, true)]
    {
        let features = Features { user_namespaces_host_network: gate, ..Features::default() };
        let declared = compute_declared_features(features, has_host_network);
        assert_eq!(
            declared.contains(&USER_NAMESPACES_HOST_NETWORK),
            is_declared,
            "{gate} {has_host_network}"
        );
        let admitted = compute_undeclared(&pod(&spec), features, has_host_network).is_none();
        assert_eq!(admitted, is_declared, "{gate} {has_host_network}");
        assert!(declared.is_sorted());
    }
}
