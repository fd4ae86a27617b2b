//! Scenarios of CSI volumes on a node with SELinux, on paused time: with which label a driver mounts a volume, and what becomes of
//! pods that want another one.

use fakes::{CsiMethod, FakeCsiDriver};
use model::csi::{AccessType, VolumeCapability};
use model::k8s::{CSIDriver, PersistentVolume};
use serde_json::{Value, json};

use crate::csi::{DRIVER, cluster_of, count_events, from, is_gone, no_attach, register, runs, user};
use crate::pods::Manifest;
use crate::world::{PODS, World, seconds};

const FILES: &str = "system_u:object_r:container_file_t:s0";
const FIRST: &str = "system_u:object_r:container_file_t:s0:c1,c2";
const SECOND: &str = "system_u:object_r:container_file_t:s0:c3,c4";

/// A node with SELinux and a driver that mounts with labels, and a volume with that access mode.
async fn with_selinux(access_mode: &str) -> (World, FakeCsiDriver) {
    let mut world = World::of_cluster();
    world.selinux_file_label = Some(FILES.to_owned());
    let mut spec = no_attach();
    spec["seLinuxMount"] = true.into();
    let (world, driver) = cluster_of(world, spec).await;
    let mut volume: PersistentVolume = world.api().object("", "pv-data").unwrap();
    volume.spec.get_or_insert_default().access_modes = Some(vec![access_mode.to_owned()]);
    world.api().put(&volume);
    register(&world, &driver).await;
    (world, driver)
}

fn user_at(name: &str, level: &str) -> Manifest {
    user(name).spec(json!({"securityContext": {"seLinuxOptions": {"level": level}}}))
}

fn flags(capability: &VolumeCapability) -> Vec<String> {
    match &capability.access_type {
        AccessType::Mount { mount_flags, .. } => mount_flags.clone(),
        AccessType::Block => Vec::new(),
    }
}

fn context(label: &str) -> Vec<String> {
    vec![format!("context=\"{label}\"")]
}

#[tokio::test(start_paused = true)]
async fn a_volume_of_one_pod_is_mounted_with_its_label_and_the_next_pod_gets_its_own() {
    let (mut world, driver) = with_selinux("ReadWriteOncePod").await;
    world.create(&user_at("first", "s0:c1,c2"));
    runs(&world, "first").await;
    assert_eq!(flags(&driver.stage_requests()[0].capability), context(FIRST));
    assert_eq!(flags(&driver.publish_requests()[0].capability), context(FIRST));
    let uid = world.in_api("first").unwrap().metadata.uid.unwrap();
    let data = world.host.text(format!("{PODS}/{uid}/volumes/kubernetes.io~csi/pv-data/vol_data.json"));
    assert!(data.unwrap().contains(&format!("\"seLinuxMountContext\":\"{FIRST}\"")));

    let conflict = format!("conflicting SELinux labels of volume pv-data: {FIRST:?} and {SECOND:?}");
    world.create(&user_at("second", "s0:c3,c4"));
    world.until("the other label is refused", |w| count_events(w, "FailedMount", &conflict) > 0).await;
    world.restart().await;
    world.until("it is refused after a restart", |w| count_events(w, "FailedMount", &conflict) > 0).await;
    assert_eq!(driver.count(CsiMethod::NodeStageVolume), 1);
    assert!(world.is_ready_in_api("first"));
    let metrics = world.metrics().await;
    let name = "volume_manager_selinux_volume_context_mismatch_errors_total";
    let line = format!("{name}{{access_mode=\"RWOP\",volume_plugin=\"kubernetes.io/csi/{DRIVER}\"}} ");
    assert!(metrics.contains(&line), "{metrics}");

    world.delete("first", Some(1));
    runs(&world, "second").await;
    assert_eq!(flags(&driver.stage_requests().last().unwrap().capability), context(SECOND));
    assert_eq!(driver.count(CsiMethod::NodeUnstageVolume), 1, "between the two");
    is_gone(&world, &driver, "second").await;
    assert_eq!(driver.violations(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_volume_of_several_pods_has_no_label_and_other_labels_are_counted() {
    let (world, driver) = with_selinux("ReadWriteMany").await;
    world.create(&user_at("first", "s0:c1,c2"));
    world.create(&user_at("second", "s0:c3,c4"));
    runs(&world, "first").await;
    runs(&world, "second").await;
    world.advance(seconds(300)).await;
    assert_eq!(flags(&driver.stage_requests()[0].capability), Vec::<String>::new());
    let metrics = world.metrics().await;
    for name in ["volume_context_mismatch_warnings", "volumes_admitted"] {
        let labels = format!("access_mode=\"RWX\",volume_plugin=\"kubernetes.io/csi/{DRIVER}\"");
        let line = format!("volume_manager_selinux_{name}_total{{{labels}}} 1");
        assert!(metrics.lines().any(|known| known == line), "{line}\n{metrics}");
    }
}

#[tokio::test(start_paused = true)]
async fn containers_that_want_different_labels_for_a_volume_of_one_pod_are_refused() {
    let (world, driver) = with_selinux("ReadWriteOncePod").await;
    let container = |name: &str, level: &str| -> Value {
        json!({
            "name": name, "image": "app:1", "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            "securityContext": {"seLinuxOptions": {"level": level}},
        })
    };
    let containers = [container("one", "s0:c1,c2"), container("two", "s0:c3,c4")];
    world.create(&user("web").spec(json!({"containers": containers})));
    let text = format!("multiple SELinux labels found: {FIRST},{SECOND}");
    world.until("the pod is refused", |w| count_events(w, "FailedMount", &text) > 0).await;
    assert_eq!(driver.count(CsiMethod::NodeStageVolume), 0);
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_cannot_mount_with_a_label_gets_none() {
    let (world, driver) = with_selinux("ReadWriteOncePod").await;
    world.api().put(&from::<CSIDriver>(json!({"metadata": {"name": DRIVER}, "spec": no_attach()})));
    world.advance(seconds(5)).await;
    world.create(&user_at("web", "s0:c1,c2"));
    runs(&world, "web").await;
    assert_eq!(flags(&driver.stage_requests()[0].capability), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn directories_of_plugins_have_a_label_for_containers() {
    let (world, _driver) = with_selinux("ReadWriteOnce").await;
    let labels = world.host.selinux_labels();
    let expected = ["plugins", "plugins_registry"]
        .map(|dir| (format!("/var/lib/kubelet/{dir}").into(), FILES.to_owned()));
    assert_eq!(labels, expected.into());
    let mut world = World::of_cluster();
    world.start().await;
    assert!(world.host.selinux_labels().is_empty(), "a machine without SELinux");
}
