//! Volumes with PersistentVolumeClaims, rejected ones, and atomic updates.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fixtures::reduced;
use serde_json::{Value, json};

use crate::node::{FOREVER, container, once_pod, shell_pod, uid};

use super::block_devices::LoopDevice;
use super::{Cluster, bound};

/// How often a reader reads while its volume changes.
const READS: usize = 400_000;

/// A PersistentVolume with its claim, bound to each other as a controller would.
pub(crate) fn bind(cluster: &Cluster, name: &str, spec: Value) {
    let mut volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": format!("pv-{name}")},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]},
    });
    for (field, value) in spec.as_object().expect("fields") {
        volume["spec"][field] = value.clone();
    }
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "volumeName": format!("pv-{name}"),
            "resources": {"requests": {"storage": "1Gi"}}},
    });
    cluster.kubectl.create(&[claim]);
    let claim = cluster.kubectl.get("pvc", name).expect("a claim");
    volume["spec"]["claimRef"] = json!({"kind": "PersistentVolumeClaim", "namespace": "default", "name": name, "uid": claim["metadata"]["uid"]});
    cluster.kubectl.create(&[volume]);
}

/// As the controller does that binds claims: with the capacity of the volume, or else the kubelet would expand it.
pub(crate) fn set_bound(cluster: &Cluster, name: &str) {
    let mut claim = cluster.kubectl.get("pvc", name).expect("a claim");
    let capacity = json!({"storage": "1Gi"});
    claim["status"] = json!({"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": capacity});
    cluster.kubectl.write_claim_status(name, &claim);
}

pub(crate) fn with_claim(mut pod: Value, claim: &str, use_: Value) -> Value {
    pod["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]);
    for (field, value) in use_.as_object().expect("fields") {
        pod["spec"]["containers"][0][field] = value.clone();
    }
    bound(pod)
}

pub(crate) fn mounted() -> Value {
    json!({"volumeMounts": [{"name": "data", "mountPath": "/data"}]})
}

/// An event of the pod reports it.
fn wait_for_event(cluster: &Cluster, pod: &str, message: &str) {
    cluster.node.eventually(&format!("{pod} has the event: {message}"), |_| {
        let events = cluster.events("Pod", pod);
        if events.iter().any(|event| event.contains(message)) { Ok(()) } else { Err(format!("{events:?}")) }
    });
}

#[test]
fn persistent_volume_claims_mount_directories_and_devices_and_report_failures() {
    let cluster = Cluster::start();
    cluster.wait_until_ready();
    let disk = cluster.node.path("disk");
    fs::create_dir_all(disk.join("sub")).expect("a directory");
    fs::write(disk.join("sub/file"), "kept").expect("a file");
    fs::set_permissions(disk.join("sub/file"), fs::Permissions::from_mode(0o600)).expect("permissions");

    bind(&cluster, "late", json!({"local": {"path": disk}}));
    let mut pod = with_claim(shell_pod("late", FOREVER), "late", mounted());
    pod["spec"]["securityContext"] = json!({"fsGroup": 4242});
    cluster.kubectl.apply(&[pod]);
    let message = "Unable to attach or mount volumes: unmounted volumes=[data], unattached volumes=[], failed to process \
                 volumes=[data]: error processing PVC default/late: PVC is not bound";
    wait_for_event(&cluster, "late", message);
    set_bound(&cluster, "late");
    let late = cluster.running("late");
    let metadata = fs::metadata(disk.join("sub/file")).expect("a file");
    assert_eq!((metadata.gid(), metadata.mode() & 0o7777), (4242, 0o660), "it was given to the pod's group");
    let at =
        cluster.node.path("root/pods").join(uid(&late)).join("volumes/kubernetes.io~local-volume/pv-late");
    assert_eq!(fs::read_to_string(at.join("sub/file")).expect("a file"), "kept");
    cluster.node.eventually("the claim is measured", |node| {
        let metrics = node.get("/metrics")?;
        let lines = [
            "kubelet_volume_stats_capacity_bytes{namespace=\"default\",persistentvolumeclaim=\"late\"}",
            "volume_manager_total_volumes{plugin_name=\"kubernetes.io/local-volume\",state=\"actual_state_of_world\"} 1",
        ];
        let missing = lines.iter().find(|line| !metrics.contains(**line));
        missing.map_or(Ok(()), |line| Err(format!("no {line} in {metrics}")))
    });

    let mut second = with_claim(shell_pod("second", FOREVER), "late", mounted());
    second["spec"]["securityContext"] = json!({"fsGroup": 4343});
    cluster.kubectl.apply(&[second]);
    wait_for_event(
        &cluster,
        "second",
        "The requested fsGroup is 4343, but the volume pv-late has GID 4242. The volume may not be shareable.",
    );
    let second = cluster.running("second");

    let block = LoopDevice::make(cluster.node.path("disk-file"));
    fs::write(&block.device, "of a disk").expect("the device is written to");
    bind(&cluster, "raw", json!({"local": {"path": block.device}, "volumeMode": "Block"}));
    set_bound(&cluster, "raw");
    let mapped = json!({"volumeDevices": [{"name": "data", "devicePath": "/dev/mine"}]});
    cluster.kubectl.apply(&[
        with_claim(shell_pod("raw", "head -c 9 /dev/mine; echo; exec sleep 3600"), "raw", mapped),
        with_claim(once_pod("wrong", "true"), "raw", mounted()),
    ]);
    let raw = cluster.running("raw");
    cluster.node.eventually("the container has the device", |node| {
        let output = node.logs(&raw, "main");
        if output.starts_with("of a disk") { Ok(()) } else { Err(output) }
    });
    wait_for_event(&cluster, "raw", "MapVolume.MapPodDevice succeeded for volume \"pv-raw\" volumeMapPath ");
    let map = cluster.node.path("root/plugins/kubernetes.io/local-volume/volumeDevices/pv-raw");
    let mapped_for_pod = fs::metadata(map.join(uid(&raw)));
    assert!(mapped_for_pod.is_ok_and(|file| file.file_type().is_block_device()), "bound for the pod");
    // A volume that needs no attachment; others wait for it first.
    cluster.kubectl.apply(&[json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "d.example"},
        "spec": {"attachRequired": false},
    })]);
    bind(&cluster, "driver", json!({"csi": {"driver": "d.example", "volumeHandle": "h"}}));
    set_bound(&cluster, "driver");
    cluster.kubectl.apply(&[with_claim(once_pod("driver", "true"), "driver", mounted())]);
    for (pod, message) in [
        ("wrong", "volume data has volumeMode Block, but is specified in volumeMounts"),
        ("driver", "driver name d.example not found in the list of registered CSI drivers"),
    ] {
        wait_for_event(&cluster, pod, message);
    }
    for pod in [late, second, raw] {
        cluster.kubectl.ok(&[
            "delete",
            "pod",
            pod["metadata"]["name"].as_str().expect("a name"),
            "--wait=false",
        ]);
        cluster.wait_until_gone(&pod);
    }
    assert!(!map.exists(), "no pod has the device any more");
    assert_eq!(
        fs::read_to_string(disk.join("sub/file")).expect("a file"),
        "kept",
        "the disk content is unchanged"
    );
}

/// Reads both keys through one opened directory, as a careful program does. `None`: the directory was removed meanwhile.
fn read_keys(volume: &Path) -> Option<(String, String)> {
    let data: PathBuf = volume.join(fs::read_link(volume.join("..data")).ok()?);
    Some((fs::read_to_string(data.join("a")).ok()?, fs::read_to_string(data.join("b")).ok()?))
}

#[test]
fn volume_update_is_atomic_whenever_it_is_read() {
    let cluster = Cluster::start();
    cluster.wait_until_ready();
    let config = |n: usize| {
        let text = format!("{n}:").repeat(2000);
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cfg"}, "data": {"a": text, "b": text}})
    };
    cluster.kubectl.apply(&[config(0)]);
    let mut pod = shell_pod("reader", FOREVER);
    pod["spec"]["volumes"] = json!([{"name": "cfg", "configMap": {"name": "cfg"}}]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "cfg", "mountPath": "/cfg"}]);
    cluster.kubectl.apply(&[bound(pod)]);
    let pod = cluster.running("reader");
    assert_eq!(container(&pod, "main")["restartCount"], 0);
    let volume = PathBuf::from(format!("/proc/{}/root/cfg", cluster.node.container_pid(&pod, "main")));
    let is_over = Arc::new(AtomicBool::new(false));
    let reader = std::thread::spawn({
        let (volume, is_over) = (volume.clone(), is_over.clone());
        move || {
            let (mut versions, mut gone) = (std::collections::BTreeSet::new(), 0_usize);
            for _ in 0..reduced(READS) {
                match read_keys(&volume) {
                    Some((a, b)) => {
                        assert_eq!(a, b, "two keys of one update");
                        assert!(a.len() > 3999, "a whole file");
                        versions.insert(a[..a.find(':').expect("a number")].to_owned());
                    }
                    None => gone += 1,
                }
            }
            is_over.store(true, Ordering::Relaxed);
            (versions.len(), gone)
        }
    });
    let mut updates = 0;
    while !is_over.load(Ordering::Relaxed) {
        updates += 1;
        cluster.kubectl.apply(&[config(updates)]);
    }
    let (versions, gone) = reader.join().expect("no half update");
    eprintln!("{updates} updates, {versions} versions seen, {gone} reads hit an update");
    assert!(versions > 3 && gone < reduced(READS) / 100, "{versions} versions, {gone} lost reads");
    let last = config(updates)["data"]["a"].clone();
    cluster.node.eventually("the last update is seen", |_| match read_keys(&volume) {
        Some((a, _)) if last == a.as_str() => Ok(()),
        other => Err(format!("{:?}", other.map(|(a, _)| a.chars().take(8).collect::<String>()))),
    });
}
