//! The columns and cells of tables.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{age, render};

/// The current time of these tests.
const NOW: &str = "2026-01-02T00:00:00Z";
/// Two and a half minutes earlier.
const RECENT: &str = "2026-01-01T23:57:30Z";

fn table(resource: &str, objects: &[Value]) -> Value {
    render(resource, objects, NOW.parse().expect("a time"))
}

/// The column names, wide ones in brackets, and the row.
fn shown(resource: &str, object: Value) -> String {
    let table = table(resource, &[object]);
    let columns = table["columnDefinitions"].as_array().expect("columns");
    let cells = table["rows"][0]["cells"].as_array().expect("cells");
    assert_eq!(columns.len(), cells.len(), "{resource}: a cell for each column");
    for (column, cell) in columns.iter().zip(cells) {
        let fits = match column["type"].as_str() {
            Some("boolean") => cell.is_boolean(),
            Some("integer") => cell.is_number(),
            _ => cell.is_string() || cell.is_number(),
        };
        assert!(fits, "{resource}: {cell} in {column}");
    }
    let names = columns.iter().map(|column| {
        let name = column["name"].as_str().unwrap_or_default();
        if column["priority"] == 1 { format!("[{name}]") } else { name.to_owned() }
    });
    let cells = cells.iter().map(|cell| cell.as_str().map_or_else(|| cell.to_string(), str::to_owned));
    format!("{}\n{}", names.collect::<Vec<_>>().join("|"), cells.collect::<Vec<_>>().join("|"))
}

fn named(fields: Value) -> Value {
    let mut object = json!({"metadata": {"name": "x", "creationTimestamp": RECENT}});
    object.as_object_mut().expect("a map").extend(fields.as_object().expect("a map").clone());
    object
}

#[test]
fn durations_are_formatted_with_two_units_at_most() {
    let (minute, hour, day) = (60, 3600, 86_400);
    for (seconds, expected) in [
        (-2, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (9 * minute + 59, "9m59s"),
        (10 * minute + 1, "10m"),
        (3 * hour - 1, "179m"),
        (3 * hour, "3h"),
        (3 * hour + 61, "3h1m"),
        (8 * hour + 61, "8h"),
        (47 * hour, "47h"),
        (2 * day, "2d"),
        (2 * day + hour, "2d1h"),
        (8 * day + hour, "8d"),
        (729 * day, "729d"),
        (730 * day, "2y"),
        (731 * day, "2y1d"),
        (8 * 365 * day + day, "8y"),
    ] {
        assert_eq!(age::human(seconds), expected, "{seconds}");
    }
    let now: Timestamp = NOW.parse().expect("a time");
    assert_eq!(age::since("", now), "<unknown>");
    assert_eq!(age::since("2026-01-01T23:59:00.123456Z", now), "59s");
}

#[test]
fn table_rows_contain_the_metadata_of_their_objects() {
    let object = named(json!({"spec": {"secret": 1}}));
    let table = table("widgets", &[object]);
    let expected = json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {},
        "columnDefinitions": [
            {"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0},
            {"name": "Age", "type": "string", "format": "", "description": "", "priority": 0},
        ],
        "rows": [{
            "cells": ["x", "2m30s"],
            "object": {
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": {"name": "x", "creationTimestamp": RECENT},
            },
        }],
    });
    assert_eq!(table, expected);
}

/// READY, STATUS and RESTARTS of a pod with two containers and these fields.
fn pod(fields: Value) -> String {
    let mut pod = named(json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}]}}));
    for (pointer, value) in fields.as_object().expect("a map") {
        let mut place = &mut pod;
        for key in pointer.split('.') {
            place = &mut place[key];
        }
        *place = value.clone();
    }
    let table = table("pods", &[pod]);
    let cells = &table["rows"][0]["cells"];
    let text = |index: usize| cells[index].as_str().unwrap_or_default().to_owned();
    format!("{} {} {}", text(1), text(2), text(3))
}

fn running() -> Value {
    json!({"name": "c", "ready": true, "restartCount": 0, "state": {"running": {}}})
}

fn ended(reason: &str, exit_code: i64, signal: i64) -> Value {
    let state = json!({"terminated": {"reason": reason, "exitCode": exit_code, "signal": signal}});
    json!({"name": "c", "ready": false, "restartCount": 0, "state": state})
}

fn waiting(reason: &str) -> Value {
    json!({"name": "c", "ready": false, "restartCount": 0, "state": {"waiting": {"reason": reason}}})
}

#[test]
fn pod_status_column_summarizes_containers() {
    let ready = json!([{"type": "Ready", "status": "True"}]);
    for (fields, expected) in [
        (json!({"status.phase": "Pending"}), "0/2 Pending 0"),
        (json!({"status.phase": "Failed", "status.reason": "Evicted"}), "0/2 Evicted 0"),
        (
            json!({"status.phase": "Pending",
                "status.conditions": [{"type": "PodScheduled", "reason": "SchedulingGated", "status": "False"}]}),
            "0/2 SchedulingGated 0",
        ),
        (
            json!({"status.phase": "Pending", "status.containerStatuses": [waiting("ContainerCreating")]}),
            "0/2 ContainerCreating 0",
        ),
        (
            json!({"status.phase": "Running", "status.containerStatuses": [running(), running()]}),
            "2/2 Running 0",
        ),
        (
            json!({"status.phase": "Running", "status.containerStatuses": [running(), waiting("CrashLoopBackOff")]}),
            "1/2 CrashLoopBackOff 0",
        ),
        // The first container determines the status.
        (
            json!({"status.phase": "Running", "status.containerStatuses": [ended("Error", 1, 0), waiting("X")]}),
            "0/2 Error 0",
        ),
        (
            json!({"status.phase": "Succeeded", "status.containerStatuses": [ended("Completed", 0, 0)]}),
            "0/2 Completed 0",
        ),
        (
            json!({"status.phase": "Running", "status.containerStatuses": [ended("Completed", 0, 0), running()],
                "status.conditions": ready}),
            "1/2 Running 0",
        ),
        (
            json!({"status.phase": "Running", "status.containerStatuses": [ended("Completed", 0, 0), running()]}),
            "1/2 NotReady 0",
        ),
        (
            json!({"status.phase": "Failed", "status.containerStatuses": [ended("", 3, 0)]}),
            "0/2 ExitCode:3 0",
        ),
        (
            json!({"status.phase": "Failed", "status.containerStatuses": [ended("", 137, 9)]}),
            "0/2 Signal:9 0",
        ),
        (
            json!({"status.phase": "Running", "status.containerStatuses": [running(), running()],
                "metadata.deletionTimestamp": NOW}),
            "2/2 Terminating 0",
        ),
        (
            json!({"status.phase": "Running", "status.reason": "NodeLost", "metadata.deletionTimestamp": NOW}),
            "0/2 Unknown 0",
        ),
        (
            json!({"status.phase": "Succeeded", "metadata.deletionTimestamp": NOW,
                "status.containerStatuses": [ended("Completed", 0, 0)]}),
            "0/2 Completed 0",
        ),
    ] {
        assert_eq!(pod(fields.clone()), expected, "{fields}");
    }
}

#[test]
fn pod_status_column_shows_init_containers_during_initialization() {
    let init = json!([{"name": "i"}, {"name": "c"}]);
    for (statuses, expected) in [
        (json!([waiting("PodInitializing"), waiting("PodInitializing")]), "0/2 Init:0/2 0"),
        (json!([running(), waiting("PodInitializing")]), "0/2 Init:0/2 0"),
        (json!([ended("Completed", 0, 0), running()]), "0/2 Init:1/2 0"),
        (json!([ended("Error", 1, 0)]), "0/2 Init:Error 0"),
        (json!([ended("", 1, 0)]), "0/2 Init:ExitCode:1 0"),
        (json!([ended("", 1, 9)]), "0/2 Init:Signal:9 0"),
        (json!([waiting("CrashLoopBackOff")]), "0/2 Init:CrashLoopBackOff 0"),
        (json!([ended("Completed", 0, 0), ended("Completed", 0, 0)]), "0/2 PodInitializing 0"),
    ] {
        let fields = json!({
            "spec.initContainers": init,
            "status.phase": "Pending",
            "status.initContainerStatuses": statuses,
            "status.containerStatuses": [waiting("PodInitializing")],
        });
        assert_eq!(pod(fields), expected, "{statuses}");
    }
}

#[test]
fn sidecars_count_as_ready_containers() {
    let sidecar = json!({"name": "s", "ready": true, "started": true, "restartCount": 2, "state": {"running": {}},
        "lastState": {"terminated": {"finishedAt": RECENT}}});
    let mut starting = sidecar.clone();
    starting["started"] = json!(false);
    for (statuses, containers, expected) in [
        (json!([sidecar]), json!([running(), running()]), "3/3 Running 2 (2m30s ago)"),
        (json!([starting]), json!([waiting("PodInitializing")]), "0/3 Init:0/1 2 (2m30s ago)"),
    ] {
        let fields = json!({
            "spec.initContainers": [{"name": "s", "restartPolicy": "Always"}],
            "status.phase": "Running",
            "status.initContainerStatuses": statuses,
            "status.containerStatuses": containers,
        });
        assert_eq!(pod(fields), expected, "{statuses}");
    }
}

#[test]
fn restarts_column_contains_the_age_of_the_last_restart() {
    let restarted = |count: i64, finished: &str| {
        let mut container = running();
        container["restartCount"] = json!(count);
        container["lastState"] = json!({"terminated": {"finishedAt": finished}});
        container
    };
    let containers = [restarted(1, "2026-01-01T00:00:00Z"), restarted(2, RECENT)];
    let fields = json!({"status.phase": "Running", "status.containerStatuses": containers});
    assert_eq!(pod(fields), "2/2 Running 3 (2m30s ago)");
}

#[test]
fn rows_of_terminated_pods_have_a_completed_condition() {
    let row = |phase: &str| table("pods", &[json!({"status": {"phase": phase}})])["rows"][0].take();
    assert_eq!(row("Running").get("conditions"), None);
    let condition = &row("Failed")["conditions"][0];
    assert_eq!(condition["type"], "Completed");
    assert_eq!(condition["reason"], "Failed");
}

#[test]
fn columns_of_every_resource() {
    for (resource, object, expected) in [
        (
            "pods",
            json!({"spec": {"nodeName": "n", "readinessGates": [{"conditionType": "g"}, {"conditionType": "h"}]},
                "status": {"podIPs": [{"ip": "10.0.0.1"}], "conditions": [{"type": "g", "status": "True"}]}}),
            "Name|Ready|Status|Restarts|Age|[IP]|[Node]|[Nominated Node]|[Readiness Gates]\n\
             x|0/0||0|2m30s|10.0.0.1|n|<none>|1/2",
        ),
        (
            "nodes",
            json!({
                "metadata": {"name": "n", "labels": {"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "a"}},
                "spec": {"unschedulable": true},
                "status": {
                    "conditions": [{"type": "Ready", "status": "True"}],
                    "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
                    "nodeInfo": {"kubeletVersion": "v1.36.0", "osImage": "Debian", "kernelVersion": "6.1",
                        "containerRuntimeVersion": "containerd://2"},
                },
            }),
            "Name|Status|Roles|Age|Version|[Internal-IP]|[External-IP]|[OS-Image]|[Kernel-Version]|[Container-Runtime]\n\
             n|Ready,SchedulingDisabled|a,worker|<unknown>|v1.36.0|10.0.0.1|<none>|Debian|6.1|containerd://2",
        ),
        (
            "nodes",
            json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}),
            "Name|Status|Roles|Age|Version|[Internal-IP]|[External-IP]|[OS-Image]|[Kernel-Version]|[Container-Runtime]\n\
             x|NotReady|<none>|2m30s||<none>|<none>|<unknown>|<unknown>|<unknown>",
        ),
        (
            "events",
            json!({"type": "Normal", "reason": "Pulled", "message": " done\n", "count": 3,
                "firstTimestamp": "2026-01-01T23:00:00Z", "lastTimestamp": RECENT,
                "involvedObject": {"kind": "Pod", "name": "p", "fieldPath": "spec.containers{c}"},
                "source": {"component": "kubelet", "host": "n"}}),
            "Last Seen|Type|Reason|Object|[Subobject]|[Source]|Message|[First Seen]|[Count]|[Name]\n\
             2m30s|Normal|Pulled|pod/p|spec.containers{c}|kubelet, n|done|60m|3|x",
        ),
        (
            "events",
            json!({"eventTime": RECENT, "firstTimestamp": null, "reportingComponent": "k",
                "involvedObject": {"kind": "Node"}}),
            "Last Seen|Type|Reason|Object|[Subobject]|[Source]|Message|[First Seen]|[Count]|[Name]\n\
             2m30s|||node||k||2m30s|1|x",
        ),
        ("leases", json!({"spec": {"holderIdentity": "n"}}), "Name|Holder|Age\nx|n|2m30s"),
        ("namespaces", json!({"status": {"phase": "Active"}}), "Name|Status|Age\nx|Active|2m30s"),
        ("configmaps", json!({"data": {"a": "1"}, "binaryData": {"b": ""}}), "Name|Data|Age\nx|2|2m30s"),
        ("secrets", json!({"type": "Opaque", "data": {"a": ""}}), "Name|Type|Data|Age\nx|Opaque|1|2m30s"),
        ("serviceaccounts", json!({"secrets": [{}]}), "Name|Age\nx|2m30s"),
        ("runtimeclasses", json!({"handler": "runc"}), "Name|Handler|Age\nx|runc|2m30s"),
        ("csinodes", json!({"spec": {"drivers": [{}, {}]}}), "Name|Drivers|Age\nx|2|2m30s"),
        (
            "services",
            json!({"spec": {"type": "NodePort", "clusterIPs": ["10.0.0.1"], "selector": {"b": "2", "a": "1"},
                "ports": [{"port": 80, "protocol": "TCP"}, {"port": 53, "nodePort": 30000, "protocol": "UDP"}]}}),
            "Name|Type|Cluster-IP|External-IP|Port(s)|Age|[Selector]\n\
             x|NodePort|10.0.0.1|<none>|80/TCP,53:30000/UDP|2m30s|a=1,b=2",
        ),
        (
            "persistentvolumes",
            json!({"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany", "ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Retain", "claimRef": {"namespace": "n", "name": "c"},
                "storageClassName": "s", "volumeMode": "Block"}, "status": {"phase": "Bound"}}),
            "Name|Capacity|Access Modes|Reclaim Policy|Status|Claim|StorageClass|VolumeAttributesClass|Reason|Age|[VolumeMode]\n\
             x|1Gi|RWO,RWX|Retain|Bound|n/c|s|<unset>||2m30s|Block",
        ),
        (
            "persistentvolumeclaims",
            json!({"spec": {"volumeName": "v"}, "status": {"phase": "Bound", "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOncePod"]}}),
            "Name|Status|Volume|Capacity|Access Modes|StorageClass|VolumeAttributesClass|Age|[VolumeMode]\n\
             x|Bound|v|1Gi|RWOP||<unset>|2m30s|<unset>",
        ),
        (
            "certificatesigningrequests",
            json!({"spec": {"signerName": "s", "username": "u", "expirationSeconds": 3600},
                "status": {"conditions": [{"type": "Approved"}], "certificate": "x"}}),
            "Name|Age|SignerName|Requestor|RequestedDuration|Condition\nx|2m30s|s|u|60m|Approved,Issued",
        ),
        (
            "volumeattachments",
            json!({"spec": {"attacher": "a", "nodeName": "n", "source": {"persistentVolumeName": "v"}},
                "status": {"attached": true}}),
            "Name|Attacher|PV|Node|Attached|Age\nx|a|v|n|true|2m30s",
        ),
        (
            "csidrivers",
            json!({"spec": {"volumeLifecycleModes": ["Persistent", "Ephemeral"], "tokenRequests": [{"audience": "a"}]}}),
            "Name|AttachRequired|PodInfoOnMount|StorageCapacity|TokenRequests|RequiresRepublish|Modes|Age\n\
             x|true|false|false|a|false|Persistent,Ephemeral|2m30s",
        ),
    ] {
        assert_eq!(shown(resource, named(object)), expected, "{resource}");
    }
}

#[test]
fn columns_of_roles_and_bindings() {
    for (resource, object, expected) in [
        ("roles", json!({}), "Name|Created At\nx|2026-01-01T23:57:30Z"),
        ("clusterroles", json!({}), "Name|Created At\nx|2026-01-01T23:57:30Z"),
        (
            "rolebindings",
            json!({"roleRef": {"kind": "Role", "name": "r"}, "subjects": [
                {"kind": "User", "name": "a"}, {"kind": "Group", "name": "g"}, {"kind": "User", "name": "b"},
                {"kind": "ServiceAccount", "namespace": "n", "name": "s"}]}),
            "Name|Role|Age|[Users]|[Groups]|[ServiceAccounts]\nx|Role/r|2m30s|a, b|g|n/s",
        ),
        (
            "clusterrolebindings",
            json!({"roleRef": {"kind": "ClusterRole", "name": "r"}}),
            "Name|Role|Age|[Users]|[Groups]|[ServiceAccounts]\nx|ClusterRole/r|2m30s|||",
        ),
    ] {
        assert_eq!(shown(resource, named(object)), expected, "{resource}");
    }
}

#[test]
fn external_ip_of_a_service_depends_on_its_type() {
    let ingress = json!({"loadBalancer": {"ingress": [{"hostname": "h"}, {"ip": "1.1.1.1"}]}});
    for (spec, status, expected) in [
        (json!({"type": "ClusterIP"}), json!({}), "<none>"),
        (json!({"type": "ClusterIP", "externalIPs": ["1.2.3.4"]}), json!({}), "1.2.3.4"),
        (json!({"type": "LoadBalancer"}), json!({}), "<pending>"),
        (json!({"type": "LoadBalancer", "externalIPs": ["1.2.3.4"]}), ingress, "1.1.1.1,h,1.2.3.4"),
        (json!({"type": "ExternalName", "externalName": "x.y"}), json!({}), "x.y"),
        (json!({}), json!({}), "<unknown>"),
    ] {
        let table = table("services", &[json!({"spec": spec, "status": status})]);
        assert_eq!(table["rows"][0]["cells"][3], expected, "{spec}");
    }
}

#[test]
fn certificate_signing_request_condition_column() {
    for (status, expected) in [
        (json!({}), "Pending"),
        (json!({"conditions": [{"type": "Approved"}, {"type": "Denied"}]}), "Denied"),
        (json!({"conditions": [{"type": "Approved"}, {"type": "Failed"}]}), "Approved,Failed"),
    ] {
        let table = table("certificatesigningrequests", &[json!({"status": status})]);
        assert_eq!(table["rows"][0]["cells"][5], expected, "{status}");
    }
}

#[test]
fn claims_and_slices_of_devices_have_their_state_and_driver() {
    for (resource, object, expected) in [
        ("resourceclaims", json!({"spec": {}}), "Name|State|Age\nx|pending|2m30s"),
        (
            "resourceclaims",
            json!({"status": {"allocation": {}, "reservedFor": [{"name": "p"}]}}),
            "Name|State|Age\nx|allocated,reserved|2m30s",
        ),
        (
            "resourceslices",
            json!({"spec": {"nodeName": "n", "driver": "d", "pool": {"name": "p"}}}),
            "Name|Node|Driver|Pool|Age\nx|n|d|p|2m30s",
        ),
    ] {
        assert_eq!(shown(resource, named(object)), expected, "{resource}");
    }
}
