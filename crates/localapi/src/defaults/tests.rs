//! Which fields get defaults, and which stay unchanged.

use serde_json::{Value, json};

use super::apply;

fn defaulted(resource: &str, mut object: Value) -> Value {
    apply(resource, &mut object);
    let once = object.clone();
    apply(resource, &mut object);
    assert_eq!(object, once, "doing it twice changes nothing more");
    object
}

/// One container with a name, an image and these fields.
fn container(fields: Value) -> Value {
    let mut container = json!({"name": "c", "image": "i:1"});
    let object = container.as_object_mut().expect("a map");
    object.extend(fields.as_object().expect("a map").clone());
    defaulted("pods", json!({"spec": {"containers": [container]}}))["spec"]["containers"][0].take()
}

#[test]
fn minimal_pod_gets_all_defaults() {
    let pod = defaulted("pods", json!({"spec": {"containers": [{"name": "c", "image": "nginx"}]}}));
    let expected = json!({
        "spec": {
            "containers": [{
                "name": "c",
                "image": "nginx",
                "imagePullPolicy": "Always",
                "resources": {},
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
            }],
            "dnsPolicy": "ClusterFirst",
            "enableServiceLinks": true,
            "preemptionPolicy": "PreemptLowerPriority",
            "priority": 0,
            "restartPolicy": "Always",
            "schedulerName": "default-scheduler",
            "securityContext": {},
            "serviceAccount": "default",
            "serviceAccountName": "default",
            "terminationGracePeriodSeconds": 30,
            "tolerations": [
                {
                    "key": "node.kubernetes.io/not-ready",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                },
                {
                    "key": "node.kubernetes.io/unreachable",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                },
            ],
        },
        "status": {"phase": "Pending", "qosClass": "BestEffort"},
    });
    assert_eq!(pod, expected);
}

#[test]
fn set_fields_of_a_pod_are_not_changed() {
    let spec = json!({
        "containers": [{
            "name": "c",
            "image": "i",
            "imagePullPolicy": "Never",
            "resources": {},
            "terminationMessagePath": "/x",
            "terminationMessagePolicy": "FallbackToLogsOnError",
        }],
        "dnsPolicy": "None",
        "enableServiceLinks": false,
        "preemptionPolicy": "Never",
        "priority": 5,
        "restartPolicy": "Never",
        "schedulerName": "mine",
        "securityContext": {"runAsUser": 0},
        "serviceAccount": "robot",
        "serviceAccountName": "robot",
        "terminationGracePeriodSeconds": 0,
        "tolerations": [{"operator": "Exists"}],
    });
    let status = json!({"phase": "Running", "qosClass": "Burstable"});
    let pod = json!({"spec": spec, "status": status});
    assert_eq!(defaulted("pods", pod.clone()), pod);
}

#[test]
fn image_pull_policy_depends_on_the_tag() {
    for (image, expected) in [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("nginx:1", "IfNotPresent"),
        ("host:5000/nginx", "Always"),
        ("host:5000/nginx:1", "IfNotPresent"),
        ("nginx@sha256:0", "IfNotPresent"),
        ("nginx:latest@sha256:0", "Always"),
        ("", "IfNotPresent"),
    ] {
        assert_eq!(container(json!({"image": image}))["imagePullPolicy"], expected, "{image}");
    }
}

#[test]
fn ports_probes_hooks_and_variables_get_defaults() {
    for (given, path, expected) in [
        (
            json!({"ports": [{"containerPort": 80}]}),
            "/ports/0",
            json!({"containerPort": 80, "protocol": "TCP"}),
        ),
        (
            json!({"livenessProbe": {"httpGet": {"port": 80}}}),
            "/livenessProbe",
            json!({
                "httpGet": {"port": 80, "path": "/", "scheme": "HTTP"},
                "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3,
            }),
        ),
        (
            json!({"readinessProbe": {"grpc": {"port": 1}, "periodSeconds": 5}}),
            "/readinessProbe",
            json!({
                "grpc": {"port": 1, "service": ""},
                "timeoutSeconds": 1, "periodSeconds": 5, "successThreshold": 1, "failureThreshold": 3,
            }),
        ),
        (
            json!({"lifecycle": {"preStop": {"httpGet": {"port": 1, "path": "/x", "scheme": "HTTPS"}}}}),
            "/lifecycle/preStop/httpGet",
            json!({"port": 1, "path": "/x", "scheme": "HTTPS"}),
        ),
        (
            json!({"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]}),
            "/env/0/valueFrom/fieldRef",
            json!({"apiVersion": "v1", "fieldPath": "spec.nodeName"}),
        ),
        (
            json!({"env": [{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}]}),
            "/env/0/valueFrom/resourceFieldRef",
            json!({"resource": "limits.cpu", "divisor": "0"}),
        ),
        (
            json!({"resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}}),
            "/resources/requests",
            json!({"cpu": "500m", "memory": "1Gi"}),
        ),
    ] {
        assert_eq!(container(given.clone()).pointer(path), Some(&expected), "{given}");
    }
}

#[test]
fn host_network_pod_gets_host_ports() {
    let pod = defaulted(
        "pods",
        json!({"spec": {"hostNetwork": true, "containers": [{"name": "c", "ports": [{"containerPort": 80}]}]}}),
    );
    let port = json!({"containerPort": 80, "hostPort": 80, "protocol": "TCP"});
    assert_eq!(pod["spec"]["containers"][0]["ports"][0], port);
}

#[test]
fn volumes_get_defaults() {
    for (given, expected) in [
        (json!({}), json!({"emptyDir": {}})),
        (json!({"secret": {"secretName": "s"}}), json!({"secret": {"secretName": "s", "defaultMode": 420}})),
        (json!({"configMap": {"defaultMode": 0}}), json!({"configMap": {"defaultMode": 0}})),
        (
            json!({"downwardAPI": {"items": [{"path": "p", "fieldRef": {"fieldPath": "metadata.name"}}]}}),
            json!({"downwardAPI": {"defaultMode": 420, "items": [
                {"path": "p", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}},
            ]}}),
        ),
        (
            json!({"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}),
            json!({"projected": {"defaultMode": 420, "sources": [
                {"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}},
            ]}}),
        ),
        (json!({"hostPath": {"path": "/x"}}), json!({"hostPath": {"path": "/x", "type": ""}})),
        (
            json!({"image": {"reference": "a:1"}}),
            json!({"image": {"reference": "a:1", "pullPolicy": "IfNotPresent"}}),
        ),
        (json!({"iscsi": {"lun": 0}}), json!({"iscsi": {"lun": 0, "iscsiInterface": "default"}})),
        (
            json!({"ephemeral": {"volumeClaimTemplate": {}}}),
            json!({"ephemeral": {"volumeClaimTemplate": {"spec": {"volumeMode": "Filesystem"}}}}),
        ),
    ] {
        let pod = defaulted("pods", json!({"spec": {"volumes": [given.clone()]}}));
        assert_eq!(pod["spec"]["volumes"][0], expected, "{given}");
    }
}

#[test]
fn pod_level_requests_default_to_the_sum_of_container_requests() {
    let with = |resources: Value| json!({"name": "c", "resources": resources});
    let pod = defaulted(
        "pods",
        json!({"spec": {
            "resources": {"limits": {"cpu": "4", "memory": "1Gi"}},
            "initContainers": [with(json!({"requests": {"cpu": "3"}}))],
            "containers": [with(json!({"requests": {"cpu": "1"}})), with(json!({"requests": {"cpu": "500m"}}))],
        }}),
    );
    let expected =
        json!({"limits": {"cpu": "4", "memory": "1Gi"}, "requests": {"cpu": "3", "memory": "1Gi"}});
    assert_eq!(pod["spec"]["resources"], expected);
    assert_eq!(pod["status"]["qosClass"], "Burstable");
}

#[test]
fn numeric_quantities_become_strings() {
    let resources =
        container(json!({"resources": {"limits": {"cpu": 1}, "requests": {"cpu": 0.5}}}))["resources"].take();
    assert_eq!(resources, json!({"limits": {"cpu": "1"}, "requests": {"cpu": "0.5"}}));
    let node = defaulted("nodes", json!({"status": {"capacity": {"pods": 110}}}));
    assert_eq!(node["status"]["allocatable"]["pods"], "110");
}

/// The kubelet sets the same defaults in static pods. This is the manifest of its golden test.
#[test]
fn pod_defaults_equal_those_of_the_kubelet_for_static_pods() {
    let mut ours = defaulted(
        "pods",
        json!({"spec": {
            "nodeName": "Node1",
            "hostNetwork": true,
            "tolerations": [{"effect": "NoExecute", "operator": "Exists"}],
            "initContainers": [{"name": "side", "image": "side:1", "restartPolicy": "Always",
                "startupProbe": {"tcpSocket": {"port": 80}}}],
            "containers": [{"name": "app", "image": "nginx", "ports": [{"containerPort": 80}],
                "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                    {"name": "B", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}],
                "resources": {"limits": {"cpu": 1, "memory": "1Gi"}, "requests": {"cpu": "500m"}},
                "livenessProbe": {"httpGet": {"port": 80}, "periodSeconds": 3},
                "readinessProbe": {"grpc": {"port": 9}},
                "lifecycle": {"preStop": {"httpGet": {"port": "web", "path": "/bye"}}},
                "volumeMounts": [{"name": "scratch", "mountPath": "/s"}]}],
            "volumes": [{"name": "scratch"}, {"name": "host", "hostPath": {"path": "/var"}},
                {"name": "info", "projected": {"sources": [{"downwardAPI": {"items": [
                    {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}}]}}],
        }}),
    )["spec"]
        .take();
    let spec = ours.as_object_mut().expect("a spec");
    for field in ["serviceAccount", "serviceAccountName", "priority", "preemptionPolicy"] {
        assert!(spec.remove(field).is_some(), "admission adds {field}");
    }
    let golden = include_str!("../../../sources/core/src/static_pod/golden/defaults.json");
    let golden: Value = serde_json::from_str(golden).expect("JSON");
    assert_eq!(ours, golden["spec"]);
}

#[test]
fn qos_class_depends_on_the_resources() {
    for (resources, expected) in [
        (json!({}), "BestEffort"),
        (json!({"requests": {"cpu": "1"}}), "Burstable"),
        (json!({"limits": {"cpu": "1", "memory": "1Gi"}}), "Guaranteed"),
    ] {
        let containers = json!([{"name": "c", "image": "i", "resources": resources}]);
        let pod = defaulted("pods", json!({"spec": {"containers": containers}}));
        assert_eq!(pod["status"]["qosClass"], expected, "{resources}");
    }
}

#[test]
fn admission_does_not_overwrite_set_fields() {
    let spec = |given: Value| defaulted("pods", json!({"spec": given}))["spec"].take();
    assert_eq!(spec(json!({"serviceAccountName": "a"}))["serviceAccount"], "a");
    assert_eq!(spec(json!({"serviceAccount": "a"}))["serviceAccountName"], "a");
    assert_eq!(spec(json!({"priorityClassName": "system-node-critical"}))["priority"], 2_000_001_000);
    assert_eq!(spec(json!({"priorityClassName": "unknown"})).get("priority"), None);
    let own = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoExecute", "tolerationSeconds": 1});
    let tolerations = spec(json!({"tolerations": [own]}))["tolerations"].take();
    assert_eq!(tolerations.as_array().map(Vec::len), Some(2));
    assert_eq!(tolerations[0]["tolerationSeconds"], 1);
    assert_eq!(tolerations[1]["key"], "node.kubernetes.io/unreachable");
}

#[test]
fn mirror_pod_gets_no_service_account() {
    let mirror = json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}, "spec": {}});
    let spec = defaulted("pods", mirror)["spec"].take();
    assert_eq!(spec.get("serviceAccountName"), None);
    assert_eq!(spec["dnsPolicy"], "ClusterFirst");
}

#[test]
fn other_kinds_get_defaults() {
    for (resource, given, expected) in [
        (
            "services",
            json!({"spec": {"clusterIP": "10.0.0.1", "ports": [{"port": 80}]}}),
            json!({
                "spec": {
                    "type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
                    "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"],
                    "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
                    "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
                },
                "status": {"loadBalancer": {}},
            }),
        ),
        (
            "services",
            json!({"spec": {"type": "ExternalName", "externalName": "x.y", "sessionAffinity": "ClientIP"}}),
            json!({
                "spec": {
                    "type": "ExternalName", "externalName": "x.y", "sessionAffinity": "ClientIP",
                    "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10800}},
                },
                "status": {"loadBalancer": {}},
            }),
        ),
        (
            "nodes",
            json!({"status": {"capacity": {"cpu": "2"}}}),
            json!({"spec": {}, "status": {"capacity": {"cpu": "2"}, "allocatable": {"cpu": "2"}}}),
        ),
        (
            "secrets",
            json!({"data": {"a": "MQ==", "b": "Mg=="}, "stringData": {"b": "3"}}),
            json!({"data": {"a": "MQ==", "b": "Mw=="}, "type": "Opaque"}),
        ),
        ("secrets", json!({"type": "x"}), json!({"type": "x"})),
        (
            "namespaces",
            json!({"metadata": {"name": "n"}}),
            json!({
                "metadata": {"name": "n", "labels": {"kubernetes.io/metadata.name": "n"}},
                "spec": {"finalizers": ["kubernetes"]},
                "status": {"phase": "Active"},
            }),
        ),
        (
            "namespaces",
            json!({"metadata": {"name": "n", "deletionTimestamp": "x"}, "status": {"phase": "Terminating"}}),
            json!({
                "metadata": {"name": "n", "deletionTimestamp": "x", "labels": {"kubernetes.io/metadata.name": "n"}},
                "spec": {},
                "status": {"phase": "Terminating"},
            }),
        ),
        (
            "persistentvolumes",
            json!({"spec": {"hostPath": {"path": "/x"}}}),
            json!({
                "spec": {
                    "hostPath": {"path": "/x", "type": ""},
                    "persistentVolumeReclaimPolicy": "Retain",
                    "volumeMode": "Filesystem",
                },
                "status": {"phase": "Pending"},
            }),
        ),
        (
            "persistentvolumeclaims",
            json!({}),
            json!({"spec": {"volumeMode": "Filesystem", "resources": {}}, "status": {"phase": "Pending"}}),
        ),
        ("certificatesigningrequests", json!({"spec": {}}), json!({"spec": {}, "status": {}})),
        ("leases", json!({"spec": {}}), json!({"spec": {}})),
    ] {
        assert_eq!(defaulted(resource, given.clone()), expected, "{resource} {given}");
    }
}

#[test]
fn fields_of_the_wrong_type_are_left_for_validation() {
    for resource in ["pods", "services", "nodes", "secrets", "namespaces", "persistentvolumes", "csidrivers"]
    {
        for broken in
            [json!(1), json!({"spec": 1, "status": [], "metadata": "x", "stringData": 1, "data": 2})]
        {
            defaulted(resource, broken);
        }
    }
    let broken = json!({"spec": {"containers": [1, {"ports": {}, "env": [2], "livenessProbe": "x", "resources": 3}],
        "volumes": "x", "tolerations": 4, "resources": {"limits": {"cpu": []}}}});
    defaulted("pods", broken);
}
