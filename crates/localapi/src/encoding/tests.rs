//! Expected values: `pkg/apis/core/v1` types as kube-apiserver 1.36.2 wrote them (`tests/recorded`), and the table of
//! `TestQuantityString` in `apimachinery/pkg/api/resource`.

use serde_json::{Value, json};

use super::complete;
use super::quantity::canonical;

#[track_caller]
fn check(resource: &str, object: &Value, expected: &Value) {
    let mut written = object.clone();
    complete(resource, &mut written);
    assert_eq!(written, *expected);
    complete(resource, &mut written);
    assert_eq!(written, *expected, "the second time");
}

#[test]
fn pod_status_gets_empty_structs_and_null_times() {
    check(
        "pods",
        &json!({"spec": {"containers": [{"name": "c"}]}, "status": {
            "conditions": [{"type": "Ready", "status": "True", "reason": ""}],
            "containerStatuses": [{"name": "c", "state": {"terminated": {"exitCode": 1, "message": null}}}],
            "initContainerStatuses": [{"name": "i", "state": {"running": {}}, "ready": true}],
        }}),
        &json!({"spec": {"containers": [{"name": "c", "resources": {}}]}, "status": {
            "conditions": [{"type": "Ready", "status": "True", "lastProbeTime": null, "lastTransitionTime": null}],
            "containerStatuses": [{"name": "c", "ready": false, "restartCount": 0, "image": "", "imageID": "",
                "state": {"terminated": {"exitCode": 1, "startedAt": null, "finishedAt": null}}, "lastState": {}}],
            "initContainerStatuses": [{"name": "i", "ready": true, "restartCount": 0, "image": "", "imageID": "",
                "state": {"running": {"startedAt": null}}, "lastState": {}}],
        }}),
    );
}

#[test]
fn node_status_gets_empty_structs_and_null_image_names() {
    let written = |status: Value| {
        let mut node = json!({"spec": {}, "status": status});
        complete("nodes", &mut node);
        node["status"].clone()
    };
    let images = written(json!({"images": [{"names": [], "sizeBytes": 1}, {"names": ["a"]}]}));
    assert_eq!(images["images"], json!([{"names": null, "sizeBytes": 1}, {"names": ["a"]}]));
    assert_eq!(images["daemonEndpoints"], json!({"kubeletEndpoint": {"Port": 0}}));
    assert_eq!(images["nodeInfo"]["kubeProxyVersion"], json!(""));
}

#[test]
fn empty_optional_fields_are_omitted_and_empty_structs_stay() {
    check(
        "pods",
        &json!({
            "metadata": {"name": "p", "labels": {}, "annotations": {"a": ""}, "finalizers": [], "ownerReferences": null},
            "spec": {"volumes": [{"name": "e", "emptyDir": {}}], "securityContext": {}, "nodeSelector": {},
                "unknown": {"deep": {}}},
            "status": {"phase": "Running", "message": "", "podIPs": [], "resources": {"limits": {}}},
        }),
        &json!({
            "metadata": {"name": "p", "annotations": {"a": ""}},
            "spec": {"volumes": [{"name": "e", "emptyDir": {}}], "securityContext": {}, "unknown": {"deep": {}}},
            "status": {"phase": "Running", "resources": {}},
        }),
    );
}

#[test]
fn times_are_truncated_to_seconds_except_micro_times() {
    check(
        "pods",
        &json!({"spec": {}, "status": {"startTime": "2026-01-01T00:00:00.987Z"}}),
        &json!({"spec": {}, "status": {"startTime": "2026-01-01T00:00:00Z"}}),
    );
    check(
        "leases",
        &json!({"spec": {"renewTime": "2026-01-01T00:00:00.987654Z"}}),
        &json!({"spec": {"renewTime": "2026-01-01T00:00:00.987654Z"}}),
    );
}

#[test]
fn unknown_kinds_are_not_changed() {
    check(
        "widgets",
        &json!({"spec": {"list": [], "nothing": null}}),
        &json!({"spec": {"list": [], "nothing": null}}),
    );
}

#[test]
fn user_data_is_not_changed() {
    check(
        "configmaps",
        &json!({"data": {"message": "", "a": "1000m"}}),
        &json!({"data": {"message": "", "a": "1000m"}}),
    );
}

#[test]
fn quantities_are_written_in_canonical_form() {
    for (text, expected) in [
        ("1000m", "1"),
        ("100m", "100m"),
        ("0.5", "500m"),
        ("1.1", "1100m"),
        ("1024Mi", "1Gi"),
        ("1Ki", "1Ki"),
        ("1023Ki", "1023Ki"),
        ("0.5Gi", "512Mi"),
        ("1000", "1k"),
        ("1000000", "1M"),
        ("2", "2"),
        ("0", "0"),
        ("0Ki", "0"),
        ("9007199254740988Ki", "9007199254740988Ki"),
        ("265142110657", "265142110657"),
        ("1e3", "1e3"),
        ("nonsense", "nonsense"),
    ] {
        let mut value = json!(text);
        canonical(&mut value);
        assert_eq!(value, json!(expected), "{text}");
    }
    let mut number = json!(2);
    canonical(&mut number);
    assert_eq!(number, json!("2"));
}

#[test]
fn number_of_volumes_in_a_csi_node_is_no_quantity() {
    let driver =
        json!({"name": "d.example", "nodeID": "n", "topologyKeys": null, "allocatable": {"count": 7}});
    let mut object = json!({"metadata": {"name": "n"}, "spec": {"drivers": [driver]}});
    complete("csinodes", &mut object);
    assert_eq!(object["spec"]["drivers"][0]["allocatable"], json!({"count": 7}));
}
