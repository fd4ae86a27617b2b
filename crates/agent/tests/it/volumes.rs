//! Scenarios of volumes with claims on paused time: operations that take long, and programs that do not answer.

use std::path::Path;
use std::time::Duration;

use fakes::{HostFault, HostMethod};
use model::k8s::{PersistentVolume, PersistentVolumeClaim};
use ports::node_api::Measurements;
use ports::{Files, Mounts};
use serde_json::{Value, json};
use volumes_core::quota::FIRST_PROJECT;

use crate::fibre_channel::uid;
use crate::pods::{Manifest, container, container_with, pod};
use crate::world::{PODS, World, seconds};

const EMPTY_DIRS: &str = "volumes/kubernetes.io~empty-dir";

fn from<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

/// A node with a claim `data`, bound to a volume of that kind.
pub(crate) async fn with_claim(source: Value) -> World {
    let mut world = World::of_cluster();
    let claim: PersistentVolumeClaim = world.api().put(&from(json!({
        "metadata": {"name": "data", "namespace": "default"},
        "spec": {"volumeName": "pv"}, "status": {"phase": "Bound"},
    })));
    let mut spec = source;
    spec["claimRef"] = json!({"namespace": "default", "name": "data", "uid": claim.metadata.uid});
    world.api().put(&from::<PersistentVolume>(json!({"metadata": {"name": "pv"}, "spec": spec})));
    world.start().await;
    world.until("the node is ready", World::is_node_ready).await;
    world
}

pub(crate) fn user(name: &str) -> Manifest {
    let mounts = json!({"volumeMounts": [{"name": "data", "mountPath": "/data"}]});
    pod(name, [container_with("app", mounts)]).spec(json!({
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        "securityContext": {"fsGroup": 7},
    }))
}

/// A node with a claim `data` on a block device with a filesystem, and the programs that a device needs.
async fn with_device() -> World {
    let world = with_claim(json!({"local": {"path": "/dev/disk"}})).await;
    world.host.put_device("/dev/disk").set_program("fsck", Ok("")).set_program("mount", Ok(""));
    world.host.set_program("blkid", Ok("DEVNAME=/dev/disk\nTYPE=ext4\n"));
    world
}

fn device_mounts(world: &World) -> usize {
    world.host.mounts().iter().filter(|mount| mount.starts_with("ext4 ")).count()
}

fn mount_calls(world: &World) -> usize {
    world.host.program_calls().iter().filter(|call| call.path.ends_with("mount")).count()
}

/// How often that event was recorded.
pub(crate) fn count_events(world: &World, reason: &str, text: &str) -> usize {
    let events = world.agent.as_ref().unwrap().recorder().latest();
    events.iter().filter(|event| event.reason == reason && event.message.contains(text)).count()
}

/// For nodes with that label.
fn in_zone(mut source: Value, zone: &str) -> Value {
    let expression = json!({"key": "zone", "operator": "In", "values": [zone]});
    source["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}});
    source
}

fn set_zone(world: &World, zone: &str) {
    let mut node = world.node().unwrap();
    node.metadata.labels.get_or_insert_default().insert("zone".to_owned(), zone.to_owned());
    world.api().put(&node);
}

#[tokio::test(start_paused = true)]
async fn volume_of_other_nodes_is_not_mounted_and_a_mounted_one_stays() {
    let mut world = with_claim(in_zone(json!({"local": {"path": "/disk"}}), "a")).await;
    world.host.put("/disk/file", "kept");
    world.create(&user("web"));
    let text = "MountVolume.NodeAffinity check failed for volume \"pv\" : no matching NodeSelectorTerms";
    world.until("the event is recorded", |w| count_events(w, "FailedMount", text) > 2).await;
    assert!(world.host.mounts().is_empty(), "{:?}", world.host.mounts());
    set_zone(&world, "a");
    world.until("the pod runs", |w| w.is_ready_in_api("web")).await;
    set_zone(&world, "b");
    world.restart().await;
    world.advance(seconds(300)).await;
    assert!(world.is_ready_in_api("web"));
    assert_eq!(count_events(&world, "FailedMount", text), 0);
}

#[tokio::test(start_paused = true)]
async fn device_of_other_nodes_is_not_mapped() {
    let source = json!({"local": {"path": "/dev/disk"}, "volumeMode": "Block"});
    let world = with_claim(in_zone(source, "a")).await;
    world.host.put_device("/dev/disk").set_program("losetup", Ok(""));
    let devices = json!({"volumeDevices": [{"name": "data", "devicePath": "/dev/mine"}]});
    world.create(&pod("web", [container_with("app", devices)]).spec(json!({
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
    })));
    let text = "MapVolume.NodeAffinity check failed for volume \"pv\" : no matching NodeSelectorTerms";
    world.until("the event is recorded", |w| count_events(w, "FailedMount", text) > 0).await;
    set_zone(&world, "a");
    world.until("the pod runs", |w| w.is_ready_in_api("web")).await;
}

#[tokio::test(start_paused = true)]
async fn device_with_another_filesystem_is_an_event_on_its_persistent_volume() {
    let world = with_device().await;
    world.host.set_program("blkid", Ok("DEVNAME=/dev/disk\nTYPE=xfs\n"));
    world.host.set_program("mount", Err("wrong fs type"));
    world.create(&user("web"));
    world.until("the event is there", |w| !w.api_events("FailedMountOnFilesystemMismatch").is_empty()).await;
    let event = world.api_events("FailedMountOnFilesystemMismatch").remove(0);
    let about = &event.involved_object;
    assert_eq!((about.kind.as_deref(), about.name.as_deref()), (Some("PersistentVolume"), Some("pv")));
    assert!(about.uid.is_some() && about.namespace.is_none(), "{about:?}");
    assert_eq!(event.metadata.namespace.as_deref(), Some("default"));
    let message = event.message.unwrap();
    let expected = "MountVolume failed for volume \"pv\" failed to mount the volume as \"ext4\", it already contains xfs. Mount error: ";
    assert!(message.starts_with(expected), "{message}");
    assert!(count_events(&world, "FailedMount", "it already contains xfs") > 0);
}

/// The paths of the Go kubelet (`local.go`, `GetGlobalMapPath` and `GetPodDeviceMapPath`).
#[tokio::test(start_paused = true)]
async fn local_block_device_is_bound_for_each_pod_kept_open_and_unmapped_after_it() {
    let mut world = with_claim(json!({"local": {"path": "/dev/disk"}, "volumeMode": "Block"})).await;
    world.host.put_device("/dev/disk").set_program("losetup", Ok(""));
    let map = "/var/lib/kubelet/plugins/kubernetes.io/local-volume/volumeDevices/pv";
    let devices = json!({"volumeDevices": [{"name": "data", "devicePath": "/dev/mine"}]});
    let mapped = |name: &str| {
        pod(name, [container_with("app", devices.clone())]).spec(json!({
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        }))
    };
    world.create(&mapped("one"));
    world.until("it runs", |w| w.is_ready_in_api("one")).await;
    let one = uid(&world, "one");
    assert_eq!(world.host.mounts(), [format!("bind {map}/{one}")]);
    let link = format!("{PODS}/{one}/volumeDevices/kubernetes.io~local-volume/pv");
    assert_eq!(world.host.resolve(link.as_ref()).await.unwrap(), Path::new("/dev/disk"));
    for path in [
        format!("globalMapPath {map:?}"),
        format!("volumeMapPath \"{PODS}/{one}/volumeDevices/kubernetes.io~local-volume\""),
    ] {
        let text = format!("MapVolume.MapPodDevice succeeded for volume \"pv\" {path}");
        assert_eq!(count_events(&world, "SuccessfulMountVolume", &text), 1, "{text}");
    }

    world.create(&mapped("two"));
    world.until("both run", |w| w.is_ready_in_api("two")).await;
    let two = uid(&world, "two");
    world.delete("one", Some(1));
    world.until("one is unmapped", |w| w.host.mounts() == [format!("bind {map}/{two}")]).await;
    world.crash().await;
    world.delete("two", Some(1));
    world.start().await;
    world.until("nothing is left of it", |w| w.host.mounts().is_empty() && !w.host.exists(map)).await;
}

#[tokio::test(start_paused = true)]
async fn slow_fs_group_ownership_change_is_reported_and_ends_with_its_pod() {
    let world = with_claim(json!({"local": {"path": "/mnt/disk"}})).await;
    world.host.put("/mnt/disk/file", "");
    world.host.fault(HostMethod::SetTreeGroup, HostFault::Hangs);
    world.create(&user("web"));
    let slow = |world: &World| {
        let text = "is taking longer than expected, consider using OnRootMismatch";
        count_events(world, "VolumePermissionChangeInProgress", text)
    };
    world
        .until("the disk is bound", |w| w.host.mounts().iter().any(|mount| mount.starts_with("bind ")))
        .await;
    world.advance(seconds(29)).await;
    assert_eq!(slow(&world), 0);
    world.advance(seconds(2)).await;
    assert_eq!(slow(&world), 1, "after half a minute");
    world.advance(seconds(58)).await;
    assert_eq!(slow(&world), 1);
    world.advance(seconds(2)).await;
    assert_eq!(slow(&world), 2, "and after each further minute");
    world.delete("web", Some(1));
    world.until("nothing is mounted", |w| w.host.mounts().is_empty()).await;
    let metrics = world.metrics().await;
    for act in ["volume_apply_access_control", "volume_mount"] {
        let line = format!(
            "storage_operation_duration_seconds_count{{migrated=\"false\",operation_name=\"{act}\",status=\"fail-unknown\",volume_plugin=\"kubernetes.io/local-volume\"}} 1"
        );
        assert!(metrics.contains(&line), "{line}\n{metrics}");
    }
    let line = "storage_operation_duration_seconds_count{migrated=\"false\",operation_name=\"volume_unmount\",status=\"success\",volume_plugin=\"kubernetes.io/local-volume\"} 1";
    assert!(metrics.contains(line), "{metrics}");
}

#[tokio::test(start_paused = true)]
async fn leftovers_of_a_timed_out_mount_are_removed_before_the_next_mount() {
    let world = with_claim(json!({"nfs": {"server": "nas", "path": "/export"}})).await;
    world.host.set_program("mount", Ok(""));
    world.host.fault(HostMethod::RunProgram, HostFault::TimesOut);
    world.create(&user("web"));
    world
        .until("the event is recorded", |w| count_events(w, "FailedMount", "MountVolume.SetUp failed") == 1)
        .await;
    assert_eq!(world.host.program_calls().len(), 0, "it never ended");
    world.host.fault(HostMethod::UnmountTree, HostFault::Fails);
    world.advance(Duration::from_millis(600)).await;
    assert_eq!(world.host.program_calls().len(), 0, "not mounted while the last one is not cleaned up");
    world.until("it is mounted", |w| w.host.program_calls().len() == 1).await;
    let call = &world.host.program_calls()[0];
    let args: Vec<&str> = call.args.iter().map(String::as_str).collect();
    assert_eq!(args[..4], ["-t", "nfs", "--", "nas:/export"]);
    world.until("the pod runs", |w| w.is_ready_in_api("web")).await;
}

#[tokio::test(start_paused = true)]
async fn nfs_volume_is_mounted_by_the_mounter_of_the_flag() {
    let mut world = with_claim(json!({"nfs": {"server": "nas", "path": "/export"}})).await;
    world.settings.flags.experimental_mounter_path = "/opt/mounter".to_owned();
    world.restart().await;
    world.host.set_program("/opt/mounter", Err("no network"));
    world.create(&user("web"));
    let text = "Mounting command: /opt/mounter\nMounting arguments: mount -t nfs -- nas:/export";
    world.until("it is mounted", |w| count_events(w, "FailedMount", text) > 0).await;
}

#[tokio::test(start_paused = true)]
async fn device_with_a_timed_out_mount_is_mounted_again_or_unmounted_with_its_pod() {
    let world = with_device().await;
    world.host.fault_below(HostMethod::RunProgram, "mount", HostFault::TimesOutButDone);
    world.create(&user("web"));
    world
        .until("the event is recorded", |w| count_events(w, "FailedMount", "MountVolume.SetUp failed") == 1)
        .await;
    assert_eq!((device_mounts(&world), mount_calls(&world)), (1, 1), "mounted, but unknown to the kubelet");
    world.until("the pod runs", |w| w.is_ready_in_api("web")).await;
    assert_eq!((device_mounts(&world), mount_calls(&world)), (1, 2), "cleared, then mounted again");
    world.delete("web", Some(1));
    world.until("nothing is mounted", |w| w.host.mounts().is_empty()).await;

    world.host.fault_below(HostMethod::RunProgram, "mount", HostFault::TimesOutButDone);
    world.create(&user("gone"));
    world.until("the mount has timed out", |w| mount_calls(w) == 3).await;
    world.delete("gone", Some(1));
    world.until("the device is not mounted any more", |w| w.host.mounts().is_empty()).await;
    assert_eq!(mount_calls(&world), 3);
}

#[tokio::test(start_paused = true)]
async fn device_used_by_another_pod_stays_mounted_after_a_timed_out_bind_mount() {
    let world = with_device().await;
    world.create(&user("first"));
    world.until("the first pod runs", |w| w.is_ready_in_api("first")).await;
    world.host.fault(HostMethod::BindVolume, HostFault::TimesOut);
    world.create(&user("second"));
    world
        .until("the event is recorded", |w| count_events(w, "FailedMount", "MountVolume.SetUp failed") == 1)
        .await;
    world.until("the second pod runs", |w| w.is_ready_in_api("second")).await;
    assert_eq!((device_mounts(&world), mount_calls(&world)), (1, 1));
}

/// A pod with two volumes and user namespaces or not, and with a KiB in the first of them.
async fn ready_with_two(world: &World, name: &str, host_users: bool) {
    let volumes = json!([{"name": "a", "emptyDir": {}}, {"name": "b", "emptyDir": {}}]);
    let spec = json!({"hostUsers": host_users, "volumes": volumes});
    world.apply(&pod(name, [container("app")]).uid(&format!("uid-of-{name}")).spec(spec));
    world.until("the pod is ready", |w| w.is_ready(name)).await;
    world.host.put(format!("{PODS}/uid-of-{name}/{EMPTY_DIRS}/a/file"), vec![0; 1024]);
}

/// The projects of volumes, as `<pod>/<volume> <number>`.
fn projects(world: &World) -> Vec<String> {
    let short = |path: &Path| {
        let path = path.strip_prefix(PODS).ok()?.to_str()?.replace(&format!("/{EMPTY_DIRS}"), "");
        world.host.exists(format!("{PODS}/{}", path.replace('/', &format!("/{EMPTY_DIRS}/")))).then_some(path)
    };
    let all = world.host.projects();
    all.iter().filter_map(|(path, project)| Some(format!("{} {project}", short(path)?))).collect()
}

/// The usage of the pod's volumes in the summary.
async fn used(world: &World, name: &str) -> Vec<u64> {
    let text = world.measured(Measurements::Summary { only_cpu_and_memory: false }).await;
    let summary: Value = serde_json::from_str(&text).unwrap();
    let pods = summary["pods"].as_array().unwrap().iter();
    let mut of_pod = pods.filter(|pod| pod["podRef"]["uid"] == format!("uid-of-{name}"));
    let volumes = of_pod.next().unwrap()["volume"].as_array().unwrap().clone();
    volumes.iter().map(|volume| volume["usedBytes"].as_u64().unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn volumes_of_user_namespace_pods_are_measured_by_project_quota() {
    let mut world = World::new();
    world.features.quota_monitoring = true;
    world.host.enable_project_quotas();
    // Quotas of other programs are left alone.
    world.host.put("/srv/file", "theirs");
    world.host.set_project(Path::new("/srv"), FIRST_PROJECT + 1).await.unwrap();
    world.start().await;
    ready_with_two(&world, "one", false).await;
    ready_with_two(&world, "node", true).await;
    let of_one = ["uid-of-one/a 1048577", "uid-of-one/b 1048579"];
    assert_eq!(projects(&world), of_one);
    assert_eq!(used(&world, "one").await, [2048, 1024], "with what only the filesystem knows of");
    assert_eq!(used(&world, "node").await, [1024, 0], "found by walking");

    world.crash().await;
    world.start().await;
    ready_with_two(&world, "two", false).await;
    assert_eq!(projects(&world), [&of_one[..], &["uid-of-two/a 1048580", "uid-of-two/b 1048581"]].concat());
    world.advance(seconds(61)).await;
    assert_eq!(used(&world, "one").await, [2048, 1024]);
    world.remove("one");
    world.until("it is gone", |w| !w.traces().iter().any(|t| t.contains("uid-of-one"))).await;
    ready_with_two(&world, "three", false).await;
    assert_eq!(projects(&world)[..2], ["uid-of-three/a 1048577", "uid-of-three/b 1048579"]);
}

#[tokio::test(start_paused = true)]
async fn volumes_without_project_quota_are_measured_by_walking() {
    let mut world = World::new();
    world.features.quota_monitoring = true;
    world.start().await;
    ready_with_two(&world, "one", false).await;
    assert_eq!(used(&world, "one").await, [1024, 0]);
    // A volume that could use a quota from now on already has content, which would not be counted.
    world.host.enable_project_quotas();
    world.crash().await;
    world.start().await;
    world.until("the pod is ready", |w| w.is_ready("one")).await;
    world.advance(seconds(61)).await;
    assert_eq!(used(&world, "one").await[0], 1024);
    assert!(!projects(&world).contains(&"uid-of-one/a 1048577".to_owned()));
}
