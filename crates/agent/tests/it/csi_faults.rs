//! Scenarios of volumes of CSI drivers where the disk, the kubelet or the machine fails at the same time as a driver. Each was found
//! by the simulation or while it was written.

use fakes::{ClusterFault, CsiFault, CsiMethod, FakeCsiDriver, HostFault, HostMethod, Outage, Verb};
use serde_json::{Value, json};

use crate::csi::{count_events, from, is_gone, no_attach, register, runs, user, with_driver};
use crate::pods::{container_with, pod};
use crate::world::{PODS, World, seconds};

const STAGED: &str = "/var/lib/kubelet/plugins/kubernetes.io/csi";

async fn running() -> (World, FakeCsiDriver) {
    let (world, driver) = with_driver(no_attach()).await;
    world.create(&user("web"));
    runs(&world, "web").await;
    (world, driver)
}

fn uid(world: &World, name: &str) -> String {
    world.in_api(name).unwrap().metadata.uid.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_volume_whose_users_cannot_be_read_from_disk_is_not_unstaged() {
    let (mut world, driver) = running().await;
    let volume = format!("{PODS}/{}/volumes/kubernetes.io~csi/pv-data", uid(&world, "web"));
    world.crash().await;
    world.api().set_outage(Some(Outage::Refused));
    for (method, path) in [
        (HostMethod::ReadFile, format!("{volume}/vol_data.json")),
        (HostMethod::ListDir, format!("{PODS}/{}/volumes/kubernetes.io~csi", uid(&world, "web"))),
    ] {
        world.host.fault_below(method, path, HostFault::Fails);
    }
    world.start().await;
    world.advance(seconds(60)).await;
    world.api().set_outage(None);
    runs(&world, "web").await;
    assert_eq!(driver.count(CsiMethod::NodeUnstageVolume), 0);
    is_gone(&world, &driver, "web").await;
    assert_eq!(driver.violations(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_volume_whose_data_cannot_be_read_is_still_unstaged() {
    let (world, driver) = with_driver(no_attach()).await;
    driver.stage_without_mount();
    world.create(&user("web"));
    runs(&world, "web").await;
    world.host.fault_below(HostMethod::ReadFile, STAGED, HostFault::Fails);
    is_gone(&world, &driver, "web").await;
    assert_eq!(driver.count(CsiMethod::NodeUnstageVolume), 1);
}

#[tokio::test(start_paused = true)]
async fn what_a_driver_left_is_kept_also_when_it_cannot_be_listed() {
    let (world, driver) = running().await;
    let mounted = driver.staged()["vol-data"].display().to_string();
    let left = format!("{mounted}/left");
    world.host.put(&left, "of the driver").fault_below(HostMethod::ListDir, &mounted, HostFault::Fails);
    is_gone(&world, &driver, "web").await;
    world.advance(seconds(60)).await;
    assert_eq!(world.host.text(&left).as_deref(), Some("of the driver"));
    world.host.delete(&left);
    world.until("the directory is removed", |w| !w.host.exists(&mounted)).await;
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_another_pod_uses_is_kept_when_staging_it_again_fails() {
    let (mut world, driver) = with_driver(no_attach()).await;
    driver.stage_without_mount();
    world.create(&user("web-a"));
    runs(&world, "web-a").await;
    world.crash().await;
    world.create(&user("web-b"));
    world.api().fault(Verb::Get, "persistentvolumeclaims", ClusterFault::Unreachable);
    driver.forget_calls().fault(CsiMethod::NodeStageVolume, CsiFault::Fails("Internal", "no"));
    driver.fault_always(CsiMethod::NodePublishVolume, Some(CsiFault::Fails("Internal", "no")));
    world.start().await;
    world.until("it is staged again", |_| driver.count(CsiMethod::NodeStageVolume) == 1).await;
    world.delete("web-b", Some(0));
    world.advance(seconds(1)).await;
    is_gone(&world, &driver, "web-a").await;
    assert_eq!(driver.count(CsiMethod::NodeUnstageVolume), 1);
}

#[tokio::test(start_paused = true)]
async fn a_volume_for_one_pod_is_not_published_to_a_second_one() {
    let (mut world, driver) = with_driver(no_attach()).await;
    driver.set_capabilities(|capabilities| capabilities.single_node_multi_writer = true);
    let mut volume: Value = json!(world.api().object::<model::k8s::PersistentVolume>("", "pv-data").unwrap());
    volume["spec"]["accessModes"] = json!(["ReadWriteOncePod"]);
    world.api().put(&from::<model::k8s::PersistentVolume>(volume));
    world.create(&user("first"));
    runs(&world, "first").await;
    world.create(&user("second"));
    let refused = "MountVolume.SetUp failed for volume \"pv-data\" : volume uses the ReadWriteOncePod access mode and is \
                   already in use by another pod";
    world.until("the second pod is refused", |w| count_events(w, "FailedMount", refused) > 0).await;
    world.restart().await;
    world.until("it is refused again", |w| count_events(w, "FailedMount", refused) > 0).await;
    assert!(world.is_ready_in_api("first"));
    world.delete("first", Some(1));
    runs(&world, "second").await;
    is_gone(&world, &driver, "second").await;
    assert_eq!(driver.violations(), Vec::<String>::new());
}

/// A kill can come between any two steps; the Go kubelet would not remove a volume's directory with other files in it.
#[tokio::test(start_paused = true)]
async fn what_a_killed_kubelet_left_next_to_volumes_is_removed_when_the_next_one_starts() {
    let (mut world, driver) = running().await;
    world.crash().await;
    let uid = uid(&world, "web");
    let staged = "/var/lib/kubelet/plugins/kubernetes.io/csi";
    let (of_driver, devices) =
        (format!("{staged}/{}", crate::csi::DRIVER), format!("{staged}/volumeDevices"));
    let digest = model::digest::sha256_hex(b"vol-data");
    let unfinished = [
        "/var/lib/kubelet/.kubelet-1-0.tmp".to_owned(),
        "/var/lib/kubelet/image_manager/pulled/.kubelet-1-1.tmp".to_owned(),
        format!("{PODS}/{uid}/.kubelet-1-2.tmp"),
        format!("{PODS}/{uid}/volumes/kubernetes.io~csi/pv-data/.kubelet-1-3.tmp"),
        format!("{PODS}/{uid}/volumeDevices/kubernetes.io~csi/.kubelet-1-4.tmp"),
        format!("{of_driver}/{digest}/.kubelet-1-5.tmp"),
        format!("{devices}/pv-raw/data/.kubelet-1-6.tmp"),
    ];
    // Their data were not written yet, or are removed already.
    let rests = [
        format!("{of_driver}/0123/globalmount"),
        format!("{of_driver}/4567"),
        format!("{devices}/staging/pv-raw"),
        format!("{devices}/publish/pv-other"),
        format!("{devices}/pv-third/data"),
    ];
    let foreign = format!("{of_driver}/89ab/notes");
    for path in unfinished.iter().chain([&foreign]) {
        world.host.put(path, "half");
    }
    for dir in &rests {
        world.host.put(format!("{dir}/file"), "").delete(format!("{dir}/file"));
        assert!(world.host.exists(dir));
    }
    world.start().await;
    let left = |w: &World| {
        let paths = unfinished.iter().chain(&rests).filter(|path| w.host.exists(path));
        paths.cloned().collect::<Vec<_>>()
    };
    world.until("nothing unfinished is left", |w| left(w).is_empty()).await;
    runs(&world, "web").await;
    world.until("other directories are gone", |w| !w.host.exists(format!("{devices}/pv-third"))).await;
    assert!(
        !world.host.exists(format!("{of_driver}/0123")) && !world.host.exists(format!("{devices}/pv-raw"))
    );
    assert!(world.host.exists(&foreign), "it is not the kubelet's");
    assert!(world.host.exists(format!("{of_driver}/{digest}/vol_data.json")));
    is_gone(&world, &driver, "web").await;
    assert_eq!(driver.violations(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_volume_published_again_after_a_reboot_is_given_to_the_group_of_its_pod_again() {
    let spec =
        json!({"podInfoOnMount": true, "fsGroupPolicy": "File", "volumeLifecycleModes": ["Ephemeral"]});
    let (mut world, driver) = with_driver(spec).await;
    let mounts = json!({"volumeMounts": [{"name": "data", "mountPath": "/data"}]});
    world.create(&pod("web", [container_with("app", mounts)]).spec(json!({
        "volumes": [{"name": "data", "csi": {"driver": crate::csi::DRIVER}}], "securityContext": {"fsGroup": 5},
    })));
    runs(&world, "web").await;
    world.crash().await;
    driver.reboot();
    let target = format!("{PODS}/{}/volumes", uid(&world, "web"));
    for _ in 0..2 {
        world.host.fault_below(HostMethod::SetTreeGroup, &target, HostFault::Fails);
    }
    world.start().await;
    world.until("the first attempt fails", |w| count_events(w, "FailedMount", "scripted") == 1).await;
    world.until("the second attempt fails, too", |w| count_events(w, "FailedMount", "scripted") == 2).await;
    is_gone(&world, &driver, "web").await;
}

#[tokio::test(start_paused = true)]
async fn volumes_of_a_driver_that_deregistered_stay_mounted_and_are_removed_when_it_is_back() {
    let (mut world, driver) = running().await;
    let socket = format!("/var/lib/kubelet/plugins_registry/{}-reg.sock", crate::csi::DRIVER);
    world.host.delete(&socket);
    world.plugins.withdraw(&socket);
    world.advance(seconds(300)).await;
    assert!(world.is_ready_in_api("web"));
    assert_eq!(driver.published().len(), 1);
    world.restart().await;
    world.advance(seconds(60)).await;
    assert!(world.is_ready_in_api("web"));
    world.delete("web", Some(1));
    world.until("its container has ended", |w| w.fake.running().is_empty()).await;
    world.advance(seconds(300)).await;
    assert_eq!(driver.published().len(), 1, "only the driver can unpublish it");
    assert!(world.in_api("web").is_some());
    register(&world, &driver).await;
    world.until("the pod is gone", |w| w.in_api("web").is_none()).await;
    is_unused(&world, &driver).await;
    assert_eq!(driver.violations(), Vec::<String>::new());
}

async fn is_unused(world: &World, driver: &FakeCsiDriver) {
    world.until("nothing is left", |_| driver.staged().is_empty() && driver.published().is_empty()).await;
}
