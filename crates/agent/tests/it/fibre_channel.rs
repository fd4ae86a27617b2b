//! Disks of Fibre Channel networks on a made-up machine: links of udev and sysfs as the kernel fills them.

use std::path::Path;

use fakes::{HostFault, HostMethod};
use model::k8s::AttachedVolume;
use ports::Files;
use serde_json::{Value, json};

use crate::pods::{Manifest, container_with, pod};
use crate::volumes::{count_events, user, with_claim};
use crate::world::{World, seconds};

const WWN: &str = "500a0981891b8dc5";
const GLOBAL: &str = "/var/lib/kubelet/plugins/kubernetes.io/fc/500a0981891b8dc5-lun-3";
const NAME: &str = "kubernetes.io/fc/[500a0981891b8dc5]:3";
const SCAN: &str = "/sys/class/scsi_host/host2/scan";

fn attach(world: &World, name: &str) {
    let mut node = world.node().unwrap();
    node.status.get_or_insert_default().volumes_attached =
        Some(vec![AttachedVolume { name: name.to_owned(), device_path: String::new() }]);
    world.api().put(&node);
}

/// A node with a claim on LUN 3 of the target, which the controller has attached.
async fn with_disk(more: Value) -> World {
    let mut source = json!({"targetWWNs": [WWN], "lun": 3});
    source.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let world = with_claim(json!({"fc": source})).await;
    attach(&world, NAME);
    world
}

/// The node has a host adapter, whose disks were not looked for yet.
fn install_adapter(world: &World) {
    let host = &world.host;
    host.set_program("fsck", Ok("")).set_program("mount", Ok("")).set_program("blockdev", Ok(""));
    host.set_program("blkid", Ok("DEVNAME=/dev/sdx\nTYPE=ext4\n")).put(SCAN, "");
}

/// The kernel has found the disk, behind two ports of the adapter.
fn find_disk(world: &World, wwn: &str, disk: &str) {
    let host = &world.host;
    host.put_link(format!("/dev/disk/by-path/pci-0000:41:00.0-fc-0x{wwn}-lun-3"), format!("/dev/{disk}"));
    host.put_device(format!("/dev/{disk}")).put(format!("/sys/block/{disk}/device/delete"), "");
}

fn is_deleted(world: &World, disk: &str) -> bool {
    world.host.text(format!("/sys/block/{disk}/device/delete")).as_deref() == Some("1")
}

fn calls(world: &World, program: &str) -> Vec<String> {
    let calls = world.host.program_calls().into_iter().filter(|call| call.path.ends_with(program));
    calls.map(|call| call.args.join(" ")).collect()
}

/// A pod whose container sees the claim as a device.
pub(crate) fn device_user(name: &str) -> Manifest {
    let devices = json!({"volumeDevices": [{"name": "data", "devicePath": "/dev/mine"}]});
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    pod(name, [container_with("app", devices)]).spec(json!({"volumes": volumes}))
}

pub(crate) fn uid(world: &World, pod: &str) -> String {
    world.in_api(pod).unwrap().metadata.uid.unwrap()
}

fn in_use(world: &World) -> Vec<String> {
    world.node().unwrap().status.unwrap().volumes_in_use.unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn fibre_channel_disk_is_looked_for_mounted_once_for_all_pods_and_removed_after_the_last() {
    let world = with_disk(json!({})).await;
    install_adapter(&world);
    world.create(&user("one"));
    let text = "MountVolume.WaitForAttach failed for volume \"pv\" : no fc disk found";
    world.until("the disk is missing", |w| count_events(w, "FailedMount", text) > 0).await;
    assert_eq!(world.host.text(SCAN).as_deref(), Some("- - -"));
    find_disk(&world, WWN, "sdc");
    world.create(&user("two"));
    world.until("both run", |w| w.is_ready_in_api("one") && w.is_ready_in_api("two")).await;
    let mounts = world.host.mounts();
    assert!(mounts.contains(&format!("ext4 {GLOBAL}")), "{mounts:?}");
    assert_eq!(mounts.len(), 3, "{mounts:?}");
    assert_eq!(calls(&world, "mount"), [format!("-t ext4 -o defaults -- /dev/sdc {GLOBAL}")]);
    assert_eq!(in_use(&world), [NAME]);

    world.delete("one", Some(1));
    world.until("one is gone", |w| !w.is_ready_in_api("one") && w.host.mounts().len() == 2).await;
    world.advance(seconds(10)).await;
    assert!(!is_deleted(&world, "sdc"), "the other pod still uses it");
    world.delete("two", Some(1));
    world.until("it is not in use", |w| in_use(w).is_empty()).await;
    assert!(is_deleted(&world, "sdc"));
    assert_eq!(calls(&world, "blockdev"), ["--flushbufs /dev/sdc"]);
    assert!(world.host.mounts().is_empty());
    assert!(!world.host.exists(GLOBAL));
}

#[tokio::test(start_paused = true)]
async fn multipath_device_of_a_fibre_channel_disk_is_mounted_and_flushed_before_its_paths_are_removed() {
    let world = with_disk(json!({"targetWWNs": [WWN, "500a0981891b8dc6"], "readOnly": true})).await;
    attach(&world, "kubernetes.io/fc/[500a0981891b8dc5 500a0981891b8dc6]:3");
    install_adapter(&world);
    find_disk(&world, WWN, "sdc");
    find_disk(&world, "500a0981891b8dc6", "sdd");
    let host = &world.host;
    host.put_device("/dev/dm-1").put("/sys/block/dm-1/slaves/sdc", "").put("/sys/block/dm-1/slaves/sdd", "");
    world.create(&user("web"));
    world.until("it runs", |w| w.is_ready_in_api("web")).await;
    assert!(calls(&world, "mount")[0].contains("/dev/dm-1"), "{:?}", calls(&world, "mount"));
    assert_eq!(world.host.text(SCAN).as_deref(), Some(""), "there is no need to scan");

    world.host.set_program("multipath", Err("map in use"));
    world.delete("web", Some(1));
    world.until("the device is busy", |w| calls(w, "multipath").len() > 2).await;
    assert!(!is_deleted(&world, "sdc"));
    world.host.set_program("multipath", Ok(""));
    world.until("it is not in use", |w| in_use(w).is_empty()).await;
    assert!(is_deleted(&world, "sdc") && is_deleted(&world, "sdd"));
}

#[tokio::test(start_paused = true)]
async fn fibre_channel_disk_that_stays_busy_is_left_in_the_kernel_after_two_minutes() {
    let world = with_disk(json!({})).await;
    install_adapter(&world);
    find_disk(&world, WWN, "sdc");
    world.host.put_device("/dev/dm-1").put("/sys/block/dm-1/slaves/sdc", "");
    world.create(&user("web"));
    world.until("it runs", |w| w.is_ready_in_api("web")).await;
    world.host.set_program("multipath", Err("exit status 1"));
    world.delete("web", Some(1));
    world.until("it is not in use", |w| in_use(w).is_empty()).await;
    assert!((12..=14).contains(&calls(&world, "multipath").len()), "{:?}", calls(&world, "multipath"));
    assert!(!is_deleted(&world, "sdc"));
}

#[tokio::test(start_paused = true)]
async fn restarted_kubelet_reports_a_fibre_channel_disk_in_use_and_removes_it_after_its_pod() {
    let mut world = with_disk(json!({})).await;
    install_adapter(&world);
    find_disk(&world, WWN, "sdc");
    world.create(&user("web"));
    world.until("it runs", |w| w.is_ready_in_api("web")).await;
    world.restart().await;
    world.until("it runs", |w| w.is_ready_in_api("web")).await;
    assert_eq!(calls(&world, "mount").len(), 1);
    world.host.fault_below(HostMethod::RunProgram, "blockdev", HostFault::Hangs);
    world.delete("web", Some(1));
    world.until("the disk is unmounted", |w| w.host.mounts().is_empty()).await;
    world.restart().await;
    world.until("the disk is removed", |w| is_deleted(w, "sdc") && !w.host.exists(GLOBAL)).await;
    world.until("it is not in use", |w| in_use(w).is_empty()).await;
}

/// A volume in the pod's spec.
fn inline(name: &str, source: Value) -> Manifest {
    let mounts = json!({"volumeMounts": [{"name": "data", "mountPath": "/data"}]});
    pod(name, [container_with("app", mounts)]).spec(json!({"volumes": [{"name": "data", "fc": source}]}))
}

#[tokio::test(start_paused = true)]
async fn fibre_channel_disk_of_a_pods_spec_is_found_by_its_identifier_and_mounted_read_only() {
    let mut world = World::of_cluster();
    world.start().await;
    world.until("the node is ready", World::is_node_ready).await;
    install_adapter(&world);
    world.host.put_link("/dev/disk/by-id/scsi-VENDOR_disk_1", "/dev/sdc").put_device("/dev/sdc");
    attach(&world, "kubernetes.io/fc/[VENDOR disk 1]");
    world.create(&inline("web", json!({"wwids": ["VENDOR disk 1"], "readOnly": true})));
    world.until("it runs", |w| w.is_ready_in_api("web")).await;
    let global = "/var/lib/kubelet/plugins/kubernetes.io/fc/VENDOR_disk_1";
    assert_eq!(calls(&world, "mount"), [format!("-t ext4 -o ro -- /dev/sdc {global}")]);
    assert_eq!(in_use(&world), ["kubernetes.io/fc/[VENDOR disk 1]"]);
    world.delete("web", Some(1));
    world.until("it is not in use", |w| in_use(w).is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn fibre_channel_device_is_mapped_for_each_pod_kept_open_and_removed_after_the_last() {
    let source = json!({"fc": {"targetWWNs": [WWN], "lun": 3}, "volumeMode": "Block"});
    let mut world = with_claim(source).await;
    attach(&world, NAME);
    install_adapter(&world);
    let map = "/var/lib/kubelet/plugins/kubernetes.io/fc/volumeDevices/500a0981891b8dc5-lun-3";
    world.create(&device_user("one"));
    let text = "MapVolume.WaitForAttach failed for volume \"pv\" : no fc disk found";
    world.until("the disk is missing", |w| count_events(w, "FailedMapVolume", text) > 0).await;
    find_disk(&world, WWN, "sdc");
    let text = format!(
        "MapVolume.MapBlockVolume failed for volume \"pv\" : blkUtil.AttachFileDevice failed. globalMapPath:{map}"
    );
    world.until("losetup is missing", |w| count_events(w, "FailedMapVolume", &text) > 0).await;
    world.host.set_program("losetup", Ok(""));
    let one = uid(&world, "one");
    world.host.put_when_run(
        &format!("-f {map}/{one}"),
        "/sys/block/loop1/loop/backing_file",
        &format!("{map}/{one}\n"),
    );
    world.until("it runs", |w| w.is_ready_in_api("one")).await;
    assert_eq!(calls(&world, "losetup").last(), Some(&format!("-f {map}/{one}")));
    assert_eq!(world.host.mounts(), [format!("bind {map}/{one}")]);
    let link = format!("/var/lib/kubelet/pods/{one}/volumeDevices/kubernetes.io~fc/pv");
    assert_eq!(world.host.resolve(link.as_ref()).await.unwrap(), Path::new("/dev/sdc"));
    for path in [
        format!("globalMapPath {map:?}"),
        format!("volumeMapPath \"/var/lib/kubelet/pods/{one}/volumeDevices/kubernetes.io~fc\""),
    ] {
        let text = format!("MapVolume.MapPodDevice succeeded for volume \"pv\" {path}");
        assert_eq!(count_events(&world, "SuccessfulMountVolume", &text), 1, "{text}");
    }
    let before = calls(&world, "losetup").len();
    world.restart().await;
    world.until("it runs", |w| w.is_ready_in_api("one")).await;
    assert_eq!(calls(&world, "losetup").len(), before, "everything is there");

    world.create(&device_user("two"));
    world.until("both run", |w| w.is_ready_in_api("two")).await;
    let two = uid(&world, "two");
    world.delete("one", Some(1));
    world.until("one is unmapped", |w| w.host.mounts() == [format!("bind {map}/{two}")]).await;
    world.advance(seconds(10)).await;
    assert!(!is_deleted(&world, "sdc"), "the other pod still uses it");
    assert_eq!(in_use(&world), [NAME]);
    world.delete("two", Some(1));
    world.until("it is not in use", |w| in_use(w).is_empty()).await;
    assert!(is_deleted(&world, "sdc") && !world.host.exists(map));
    assert!(world.host.mounts().is_empty());
}

#[tokio::test(start_paused = true)]
async fn killed_kubelet_removes_a_fibre_channel_device_that_it_had_begun_to_map() {
    let source = json!({"fc": {"targetWWNs": [WWN], "lun": 3}, "volumeMode": "Block"});
    let mut world = with_claim(source).await;
    attach(&world, NAME);
    install_adapter(&world);
    find_disk(&world, WWN, "sdc");
    world.host.set_program("losetup", Ok("")).fault_below(
        HostMethod::RunProgram,
        "losetup",
        HostFault::Hangs,
    );
    world.create(&device_user("web"));
    world.until("it is bound", |w| w.host.mounts().len() == 1).await;
    world.crash().await;
    world.delete("web", Some(1));
    world.start().await;
    world.until("it is removed", |w| is_deleted(w, "sdc") && w.host.mounts().is_empty()).await;
    world.until("it is not in use", |w| in_use(w).is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn kubelet_without_the_attach_controller_mounts_disks_that_it_finds_by_itself() {
    let mut world = World::of_cluster();
    world.config.enable_controller_attach_detach = false;
    world.start().await;
    world.until("the node is ready", World::is_node_ready).await;
    install_adapter(&world);
    find_disk(&world, WWN, "sdc");
    world.create(&inline("web", json!({"targetWWNs": [WWN], "lun": 3})));
    world.until("it runs", |w| w.is_ready_in_api("web")).await;
}
