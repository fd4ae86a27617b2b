//! One pod with every kind of CSI volume, and volumes that grow: while their pod runs, and before it is started. What metrics and
//! statistics say about them.

use model::csi::VolumeCondition;
use serde_json::{Value, json};

use super::{DRIVER, SIZE, Setup, wait_for_output};
use crate::cluster::volumes::bind;
use crate::cluster::{Cluster, bound};
use crate::node::{FOREVER, Node, shell_pod, uid};

/// The size of a volume at first, as the API has it.
const SMALL: &str = "16Mi";
const LARGE: &str = "32Mi";
/// Prints when the filesystem at `/data` has more than 16 MiB.
const PRINT_GROWTH: &str =
    "until test $(df -k /data | awk 'END {print $2}') -gt 20000; do sleep 0.1; done; echo grown";

/// A filesystem that can grow while it is mounted on every machine, with a claim whose status has its size.
fn claim_growing(setup: &Setup, name: &str) {
    let attributes = json!({"size": SIZE, "medium": "memory"});
    let source =
        json!({"driver": DRIVER, "volumeHandle": name, "fsType": "ext4", "volumeAttributes": attributes});
    bind(&setup.cluster, name, json!({"csi": source, "capacity": {"storage": SMALL}}));
    change_claim(&setup.cluster, name, |status| {
        *status = json!({"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": SMALL}});
    });
}

fn change_claim(cluster: &Cluster, name: &str, change: impl Fn(&mut Value)) {
    let path = format!("/api/v1/namespaces/default/persistentvolumeclaims/{name}");
    cluster.kubectl.change_status(&path, |claim| change(&mut claim["status"]));
}

/// As the external resizer leaves a volume that it has enlarged: the rest is the node's. The volume comes last: a node that sees it grow begins
/// at once, and a change of the claim meanwhile makes its own conflict, after which it expands once more.
fn enlarge(cluster: &Cluster, name: &str) {
    change_claim(cluster, name, |status| {
        status["allocatedResources"] = json!({"storage": LARGE});
        status["allocatedResourceStatuses"] = json!({"storage": "NodeResizePending"});
        status["conditions"] = json!([
            {"type": "FileSystemResizePending", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
        ]);
    });
    let patch = json!({"spec": {"capacity": {"storage": LARGE}}}).to_string();
    cluster.kubectl.ok(&["patch", "pv", &format!("pv-{name}"), "--type", "merge", "-p", &patch]);
}

/// The claim has its new size, and nothing is pending any more.
#[track_caller]
fn wait_until_large(cluster: &Cluster, claim: &str) {
    cluster.node.eventually("the claim has the size of its volume", |_| {
        let status = &cluster.kubectl.get("pvc", claim)?["status"];
        let is_empty = |field: &str| {
            let value = &status[field];
            value.is_null() || *value == json!({}) || *value == json!([])
        };
        let is_done = status["capacity"]["storage"] == LARGE
            && is_empty("allocatedResourceStatuses")
            && is_empty("conditions");
        if is_done { Ok(()) } else { Err(status.to_string()) }
    });
}

/// A claim's filesystem at `/data`, a claim's device at `/dev/mine`, and an inline volume at `/inline`.
fn pod_with_every_kind() -> Value {
    let write = "printf 'raw\\n' | dd of=/dev/mine 2>/dev/null; head -c 4 /dev/mine";
    let script = format!("{write}; echo inline > /inline/file; cat /inline/file; {PRINT_GROWTH}; {FOREVER}");
    let mut pod = shell_pod("all", &script);
    pod["spec"]["volumes"] = json!([
        {"name": "data", "persistentVolumeClaim": {"claimName": "disk"}},
        {"name": "device", "persistentVolumeClaim": {"claimName": "raw"}},
        {"name": "inline", "csi": {"driver": DRIVER}},
    ]);
    let container = &mut pod["spec"]["containers"][0];
    container["volumeDevices"] = json!([{"name": "device", "devicePath": "/dev/mine"}]);
    container["volumeMounts"] =
        json!([{"name": "data", "mountPath": "/data"}, {"name": "inline", "mountPath": "/inline"}]);
    bound(pod)
}

/// Waits until the metrics of the node have these samples; one that ends with a space has any value but 0.
#[track_caller]
fn wait_for_samples(node: &Node, samples: &[String]) {
    node.eventually("the metrics have the samples of the volumes", |node| {
        // Measures again after ten seconds; metrics alone do so after a minute.
        node.get("/stats/summary")?;
        let text = node.get("/metrics")?;
        let has = |sample: &String| {
            text.lines().any(|line| match line.strip_prefix(&**sample) {
                Some(rest) if sample.ends_with(' ') => rest != "0",
                Some(rest) => rest.is_empty(),
                None => false,
            })
        };
        match samples.iter().find(|sample| !has(sample)) {
            None => Ok(()),
            Some(missing) => Err(format!("no {missing} in {text}")),
        }
    });
}

/// Of the calls and operations, of the filesystem, and of the health of the volume.
fn check_metrics(setup: &Setup) {
    let call = |method: &str, code: &str| {
        let labels = format!("driver_name=\"{DRIVER}\",grpc_status_code=\"{code}\"");
        format!(
            "csi_operations_seconds_count{{{labels},method_name=\"/csi.v1.Node/{method}\",migrated=\"false\"}} "
        )
    };
    let operation = |name: &str| {
        let labels = format!("migrated=\"false\",operation_name=\"{name}\",status=\"success\"");
        format!(
            "storage_operation_duration_seconds_count{{{labels},volume_plugin=\"kubernetes.io/csi:{DRIVER}\"}} "
        )
    };
    let volume = |name: &str, value: &str| {
        format!("kubelet_volume_stats_{name}{{namespace=\"default\",persistentvolumeclaim=\"disk\"}} {value}")
    };
    let node = &setup.cluster.node;
    let mut samples: Vec<String> =
        ["NodeGetInfo", "NodeGetCapabilities", "NodeStageVolume", "NodePublishVolume"]
            .into_iter()
            .chain(["NodeExpandVolume", "NodeGetVolumeStats"])
            .map(|method| call(method, "OK"))
            .collect();
    samples.extend(
        ["verify_controller_attached_volume", "volume_mount", "map_volume", "volume_fs_resize"]
            .map(operation),
    );
    samples.extend(["available_bytes", "inodes", "inodes_free", "inodes_used"].map(|name| volume(name, "")));
    samples.push(volume("capacity_bytes", "33554432"));
    samples.push(volume("health_status_abnormal", "0"));
    wait_for_samples(node, &samples);
    let condition = VolumeCondition { is_abnormal: true, message: "a disk is failing".to_owned() };
    setup.driver.set_condition("disk", condition);
    wait_for_samples(node, &[volume("health_status_abnormal", "1")]);
    node.eventually("the pod has an event about the condition", |_| {
        let events = setup.cluster.events("Pod", "all");
        let expected = "VolumeConditionAbnormal: Volume data: a disk is failing";
        if events.iter().any(|event| event == expected) { Ok(()) } else { Err(format!("{events:?}")) }
    });
}

#[test]
fn csi_claim_of_a_pod_with_a_device_and_an_inline_volume_is_expanded_while_the_pod_runs() {
    let cluster = Cluster::with_node(Node::on_containerd(json!({
        "syncFrequency": "1s", "volumeStatsAggPeriod": "1s", "featureGates": {"CSIVolumeHealth": true},
    })));
    let spec = json!({
        "attachRequired": false, "podInfoOnMount": true, "volumeLifecycleModes": ["Persistent", "Ephemeral"],
    });
    let mut setup = Setup::with(cluster, &spec);
    setup.driver.set_capabilities(|capabilities| capabilities.volume_condition = true);
    setup.cluster.node.start_kubelet();
    setup.register();
    let cluster = &setup.cluster;
    claim_growing(&setup, "disk");
    setup.claim_device("raw");
    setup.create(pod_with_every_kind());
    let pod = cluster.running("all");
    wait_for_output(cluster, &pod, "raw\ninline\n");
    let expansions =
        || setup.driver.call_lines().into_iter().filter(|line| line.starts_with("NodeExpandVolume"));
    assert_eq!(expansions().count(), 0, "nothing has grown");

    enlarge(cluster, "disk");
    wait_until_large(cluster, "disk");
    wait_for_output(cluster, &pod, "raw\ninline\ngrown\n");
    assert_eq!(expansions().collect::<Vec<_>>(), ["NodeExpandVolume disk"]);
    let expected =
        "FileSystemResizeSuccessful: MountVolume.NodeExpandVolume succeeded for volume \"pv-disk\" node";
    cluster.node.eventually("the event is in the API", |_| {
        let events = cluster.events("Pod", "all");
        if events.iter().any(|event| event == expected) { Ok(()) } else { Err(format!("{events:?}")) }
    });
    let running = cluster.running("all");
    assert_eq!(
        (uid(&running), &running["status"]["containerStatuses"][0]["restartCount"]),
        (uid(&pod), &json!(0))
    );
    check_metrics(&setup);
    setup.delete_and_wait(&pod);
    setup.check_clean();

    claim_growing(&setup, "later");
    enlarge(cluster, "later");
    setup.create(super::claim_pod("later", PRINT_GROWTH, "later"));
    let later = cluster.running("later");
    wait_for_output(cluster, &later, "grown\n");
    wait_until_large(cluster, "later");
    let calls = setup.driver.call_lines();
    let expected = ["NodeStageVolume later", "NodePublishVolume later", "NodeExpandVolume later"];
    assert_eq!(calls[calls.len() - 3..], expected, "expanded at once, before the container is started");
    setup.delete_and_wait(&later);
    setup.check_clean();
}
