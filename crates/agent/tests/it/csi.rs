//! Scenarios of volumes of CSI drivers on paused time: what a driver is asked for, once and in order, whatever happens to it, to its
//! pods and to the kubelet.

use fakes::{CsiFault, CsiMethod, FakeCsiDriver};
use model::k8s::{CSIDriver, PersistentVolume, PersistentVolumeClaim, VolumeAttachment};
use ports::plugins::PluginInfo;
use serde_json::{Value, json};

use crate::pods::{Manifest, container_with, pod};
use crate::world::{PODS, World, seconds};

/// `printf vol-datadisk.example.comnode | sha256sum`
pub(crate) const ATTACHMENT: &str = "csi-38e752d1ffd3cb03b084f1da13b7528c58ff2530fdb60c61e08e280d720c1c04";
const UNIQUE_NAME: &str = "kubernetes.io/csi/disk.example.com^vol-data";
const ROOT: &str = "/var/lib/kubelet";
pub(crate) const DRIVER: &str = "disk.example.com";
/// The calls for a volume from its first use to its last.
pub(crate) const UNSTAGED: [&str; 4] = [
    "NodeStageVolume vol-data",
    "NodePublishVolume vol-data",
    "NodeUnpublishVolume vol-data",
    "NodeUnstageVolume vol-data",
];

pub(crate) fn from<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

/// A node of a cluster where the driver has a CSIDriver object with that spec, but does not run.
pub(crate) async fn cluster(spec: Value) -> (World, FakeCsiDriver) {
    cluster_of(World::of_cluster(), spec).await
}

/// As [`cluster`], with the configuration of that world.
pub(crate) async fn cluster_of(mut world: World, spec: Value) -> (World, FakeCsiDriver) {
    world.api().put(&from::<CSIDriver>(json!({"metadata": {"name": DRIVER}, "spec": spec})));
    put_claim(&world, "data");
    world.start().await;
    world.until("the node is ready", World::is_node_ready).await;
    let driver = FakeCsiDriver::new().mounting_in(&world.host);
    (world, driver)
}

pub(crate) fn no_attach() -> Value {
    json!({"attachRequired": false, "fsGroupPolicy": "ReadWriteOnceWithFSType", "volumeLifecycleModes": ["Persistent"]})
}

/// As [`cluster`], where the driver is registered.
pub(crate) async fn with_driver(spec: Value) -> (World, FakeCsiDriver) {
    let (world, driver) = cluster(spec).await;
    register(&world, &driver).await;
    (world, driver)
}

/// A claim bound to the volume `vol-<name>` of the driver.
pub(crate) fn put_claim(world: &World, name: &str) {
    let claim: PersistentVolumeClaim = world.api().put(&from(json!({
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"volumeName": format!("pv-{name}")}, "status": {"phase": "Bound"},
    })));
    world.api().put(&from::<PersistentVolume>(json!({
        "metadata": {"name": format!("pv-{name}")},
        "spec": {
            "csi": {"driver": DRIVER, "volumeHandle": format!("vol-{name}"), "fsType": "ext4"},
            "accessModes": ["ReadWriteOnce"],
            "claimRef": {"namespace": "default", "name": name, "uid": claim.metadata.uid},
        },
    })));
}

pub(crate) async fn register(world: &World, driver: &FakeCsiDriver) {
    register_as(world, driver, DRIVER).await;
}

/// The driver registers under that name.
pub(crate) async fn register_as(world: &World, driver: &FakeCsiDriver, name: &str) {
    let endpoint = format!("{ROOT}/plugins/{name}/csi.sock");
    let socket = format!("{ROOT}/plugins_registry/{name}-reg.sock");
    world.plugins.add_csi_driver(&endpoint, driver);
    let before = world.plugins.notified(&socket).len();
    world.plugins.offer(
        &socket,
        PluginInfo {
            kind: "CSIPlugin".to_owned(),
            name: name.to_owned(),
            endpoint,
            supported_versions: vec!["1.0.0".to_owned()],
        },
    );
    world.host.put_socket(&socket);
    world.until("the driver is notified", |w| w.plugins.notified(&socket).len() > before).await;
    assert_eq!(world.plugins.notified(&socket).last(), Some(&Ok(())));
}

pub(crate) fn user_of(name: &str, claim: &str) -> Manifest {
    let mounts = json!({"volumeMounts": [{"name": "data", "mountPath": "/data"}]});
    pod(name, [container_with("app", mounts)]).spec(json!({
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}],
    }))
}

pub(crate) fn user(name: &str) -> Manifest {
    user_of(name, "data")
}

/// How often that event was recorded.
pub(crate) fn count_events(world: &World, reason: &str, text: &str) -> usize {
    let events = world.agent.as_ref().unwrap().recorder().latest();
    events.iter().filter(|event| event.reason == reason && event.message.contains(text)).count()
}

pub(crate) async fn runs(world: &World, name: &str) {
    world.until("the pod runs", |w| w.is_ready_in_api(name)).await;
}

pub(crate) async fn is_gone(world: &World, driver: &FakeCsiDriver, name: &str) {
    world.delete(name, Some(1));
    world
        .until("nothing is staged or published", |_| {
            driver.staged().is_empty() && driver.published().is_empty()
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_staged_and_published_for_its_pod_and_taken_away_after_it() {
    let (world, driver) = with_driver(no_attach()).await;
    world.create(&user("web"));
    runs(&world, "web").await;
    let uid = world.in_api("web").unwrap().metadata.uid.unwrap();
    let target = format!("{PODS}/{uid}/volumes/kubernetes.io~csi/pv-data/mount");
    assert_eq!(driver.published(), [("vol-data".to_owned(), target.clone().into())]);
    let data = world.host.text(format!("{PODS}/{uid}/volumes/kubernetes.io~csi/pv-data/vol_data.json"));
    assert!(data.unwrap().contains(r#""driverName":"disk.example.com""#));
    is_gone(&world, &driver, "web").await;
    assert_eq!(driver.call_lines(), UNSTAGED);
    assert_eq!(driver.violations(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn pods_of_one_volume_share_its_staging() {
    let (world, driver) = with_driver(no_attach()).await;
    world.create(&user("web-a"));
    world.create(&user("web-b"));
    runs(&world, "web-a").await;
    runs(&world, "web-b").await;
    assert_eq!(driver.count(CsiMethod::NodeStageVolume), 1);
    assert_eq!(driver.published().len(), 2);
    world.delete("web-a", Some(1));
    world.until("one is unpublished", |_| driver.published().len() == 1).await;
    world.advance(seconds(300)).await;
    assert_eq!(driver.count(CsiMethod::NodeUnstageVolume), 0, "the other pod uses it");
    is_gone(&world, &driver, "web-b").await;
    assert_eq!(driver.violations(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_pod_waits_for_its_driver_and_starts_as_soon_as_that_registers() {
    let (world, driver) = cluster(no_attach()).await;
    world.create(&user("web"));
    let missing = "MountVolume.MountDevice failed for volume \"pv-data\" : kubernetes.io/csi: attacher.MountDevice failed to \
                   create newCsiDriverClient: driver name disk.example.com not found in the list of registered CSI drivers";
    world.until("the event is recorded", |w| count_events(w, "FailedMount", missing) > 0).await;
    world.advance(seconds(100)).await;
    let before = world.now();
    register(&world, &driver).await;
    runs(&world, "web").await;
    assert!(world.now() - before < seconds(5), "it does not wait for its next attempt");
}

/// The volume is in `volumesInUse`.
pub(crate) fn is_in_use(world: &World) -> bool {
    let in_use = world.node().unwrap().status.unwrap().volumes_in_use.unwrap_or_default();
    in_use.iter().any(|name| name == UNIQUE_NAME)
}

/// As the attach/detach controller and the external attacher do.
pub(crate) fn attach(world: &World) {
    world.api().put(&from::<VolumeAttachment>(json!({
        "metadata": {"name": ATTACHMENT},
        "spec": {"attacher": DRIVER, "nodeName": "node", "source": {"persistentVolumeName": "pv-data"}},
        "status": {"attached": true, "attachmentMetadata": {"device": "/dev/sdx"}},
    })));
    let mut node = world.node().unwrap();
    let attached = from(json!([{"name": UNIQUE_NAME, "devicePath": ""}]));
    node.status.get_or_insert_default().volumes_attached = attached;
    world.api().put(&node);
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_mounted_once_it_is_attached() {
    let (world, driver) =
        with_driver(json!({"fsGroupPolicy": "File", "volumeLifecycleModes": ["Persistent"]})).await;
    world.create(&user("web"));
    world.until("the volume is in use", is_in_use).await;
    world.advance(seconds(20)).await;
    assert_eq!(driver.call_lines(), Vec::<String>::new());
    attach(&world);
    runs(&world, "web").await;
    assert_eq!(driver.stage_requests()[0].publish_context["device"], "/dev/sdx");
    assert_eq!(driver.publish_requests()[0].publish_context["device"], "/dev/sdx");
    is_gone(&world, &driver, "web").await;
    world.until("it may be detached", |w| !is_in_use(w)).await;
}

fn refuse_to_attach(world: &World, code: i32) {
    world.api().put(&from::<VolumeAttachment>(json!({
        "metadata": {"name": ATTACHMENT},
        "spec": {"attacher": DRIVER, "nodeName": "node", "source": {"persistentVolumeName": "pv-data"}},
        "status": {"attached": false, "attachError": {"message": "no slot", "errorCode": code}},
    })));
}

fn with_period() -> Value {
    json!({"fsGroupPolicy": "File", "volumeLifecycleModes": ["Persistent"], "nodeAllocatableUpdatePeriodSeconds": 60})
}

// Kubernetes 1.36: the wait for the volumes takes two minutes and three seconds.
#[tokio::test(start_paused = true)]
async fn a_pod_whose_volume_exceeds_the_limit_of_the_node_fails_so_that_it_is_replaced() {
    let (world, _driver) = with_driver(with_period()).await;
    refuse_to_attach(&world, 8);
    world.create(&user("web"));
    world.until("the volume is in use", is_in_use).await;
    world.advance(seconds(100)).await;
    assert_eq!(world.api_phase("web"), "Pending");
    world.until("the pod has failed", |w| w.api_phase("web") == "Failed").await;
    let status = world.api_status("web");
    assert_eq!(status.reason.as_deref(), Some("VolumeAttachmentLimitExceeded"));
    let why = "Node has reached its volume attachment limit, rejecting pod. unmounted volumes=[data], \
               unattached volumes=[data], failed to process volumes=[]: timed out waiting for the condition";
    assert_eq!(status.message, Some(format!("Pod was rejected: {why}")));
    assert_eq!(count_events(&world, "VolumeAttachmentLimitExceeded", why), 1);
    let rejections = "kubelet_admission_rejections_total{reason=\"VolumeAttachmentLimitExceeded\"} 1";
    assert!(world.metrics().await.contains(rejections));
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_volume_is_not_attached_for_another_reason_goes_on_waiting() {
    for (spec, code) in [(with_period(), 13), (json!({"volumeLifecycleModes": ["Persistent"]}), 8)] {
        let (world, _driver) = with_driver(spec).await;
        refuse_to_attach(&world, code);
        world.create(&user("web"));
        world.until("the volume is in use", is_in_use).await;
        world.advance(seconds(280)).await;
        assert_eq!(world.api_phase("web"), "Pending");
    }
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_without_the_attach_controller_cannot_attach_a_volume_and_mounts_those_that_need_none() {
    for (attach_required, runs_at_once) in [(true, false), (false, true)] {
        let mut world = World::of_cluster();
        world.config.enable_controller_attach_detach = false;
        let mut spec = no_attach();
        spec["attachRequired"] = attach_required.into();
        let (world, driver) = cluster_of(world, spec).await;
        register(&world, &driver).await;
        world.create(&user("web"));
        let text = "AttachVolume.Attach failed for volume \"pv-data\" : attaching volumes from the kubelet is not supported";
        let is_over = |w: &World| w.is_ready_in_api("web") || count_events(w, "FailedAttachVolume", text) > 0;
        world.until("the pod runs or an event is recorded", is_over).await;
        assert_eq!(world.is_ready_in_api("web"), runs_at_once);
    }
}

#[tokio::test(start_paused = true)]
async fn a_volume_of_one_pod_is_mounted_for_the_next_one_after_it() {
    let (world, driver) = with_driver(no_attach()).await;
    let mut volume: PersistentVolume = world.api().object("", "pv-data").unwrap();
    volume.spec.get_or_insert_default().access_modes = Some(vec!["ReadWriteOncePod".to_owned()]);
    world.api().put(&volume);
    world.create(&user("first"));
    runs(&world, "first").await;
    world.create(&user("second"));
    let text = "MountVolume.SetUp failed for volume \"pv-data\" : volume uses the ReadWriteOncePod access mode and is already in \
                use by another pod";
    world.until("the event is recorded", |w| count_events(w, "FailedMount", text) > 0).await;
    world.delete("first", Some(1));
    runs(&world, "second").await;
    assert_eq!(driver.published().len(), 1);
    assert_eq!(driver.violations(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_call_with_an_unknown_result_is_repeated_and_nothing_is_undone() {
    for (method, step) in
        [(CsiMethod::NodeStageVolume, "MountDevice"), (CsiMethod::NodePublishVolume, "SetUp")]
    {
        let (world, driver) = with_driver(no_attach()).await;
        driver.fault(method, CsiFault::FailsAfterDoing("DeadlineExceeded", "too slow"));
        world.create(&user("web"));
        runs(&world, "web").await;
        let text = format!(
            "MountVolume.{step} failed for volume \"pv-data\" : rpc error: code = DeadlineExceeded desc = too slow"
        );
        assert_eq!(count_events(&world, "FailedMount", &text), 1);
        assert_eq!(driver.count(method), 2);
        assert_eq!(
            driver.count(CsiMethod::NodeUnpublishVolume) + driver.count(CsiMethod::NodeUnstageVolume),
            0
        );
        is_gone(&world, &driver, "web").await;
        assert_eq!(driver.violations(), Vec::<String>::new());
    }
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_was_not_published_is_not_unpublished() {
    let (world, driver) = with_driver(no_attach()).await;
    driver.fault_always(CsiMethod::NodePublishVolume, Some(CsiFault::Fails("InvalidArgument", "no")));
    world.create(&user("web"));
    let text =
        "MountVolume.SetUp failed for volume \"pv-data\" : rpc error: code = InvalidArgument desc = no";
    world.until("the event is recorded", |w| count_events(w, "FailedMount", text) > 2).await;
    is_gone(&world, &driver, "web").await;
    assert_eq!(driver.count(CsiMethod::NodeUnpublishVolume), 0);
    assert_eq!(driver.count(CsiMethod::NodeUnstageVolume), 1);
}

#[tokio::test(start_paused = true)]
async fn a_pod_deleted_during_a_call_leaves_nothing_behind() {
    for method in [CsiMethod::NodeStageVolume, CsiMethod::NodePublishVolume] {
        let (world, driver) = with_driver(no_attach()).await;
        driver.fault(method, CsiFault::Hangs);
        world.create(&user("web"));
        world.until("the call hangs", |_| driver.hanging() == 1).await;
        world.delete("web", Some(1));
        world.advance(seconds(10)).await;
        driver.release();
        world.until("the pod is gone", |w| w.in_api("web").is_none()).await;
        world.until("nothing is left", |_| driver.staged().is_empty() && driver.published().is_empty()).await;
        assert_eq!(driver.violations(), Vec::<String>::new(), "{method:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_hangs_holds_up_no_pod_of_another_volume() {
    let (world, driver) = with_driver(no_attach()).await;
    put_claim(&world, "fast");
    driver.fault_for(CsiMethod::NodeStageVolume, "vol-data", CsiFault::Hangs);
    world.create(&user("slow"));
    world.until("the call hangs", |_| driver.hanging() == 1).await;
    world.create(&user_of("fast", "fast"));
    runs(&world, "fast").await;
    assert!(!world.is_ready_in_api("slow"));
    driver.release();
    runs(&world, "slow").await;
}

#[tokio::test(start_paused = true)]
async fn a_restarted_kubelet_calls_no_driver_for_volumes_that_are_mounted() {
    let (mut world, driver) = with_driver(no_attach()).await;
    world.create(&user("web"));
    runs(&world, "web").await;
    driver.forget_calls();
    world.restart().await;
    runs(&world, "web").await;
    world.advance(seconds(300)).await;
    assert_eq!(driver.call_lines(), Vec::<String>::new());
    is_gone(&world, &driver, "web").await;
    assert_eq!(driver.call_lines(), UNSTAGED[2..]);
}

#[tokio::test(start_paused = true)]
async fn volumes_are_staged_again_after_the_node_has_started_again() {
    let (mut world, driver) = with_driver(no_attach()).await;
    world.create(&user("web"));
    runs(&world, "web").await;
    world.crash().await;
    driver.reboot().forget_calls();
    world.start().await;
    world.until("it is published", |_| driver.published().len() == 1).await;
    assert_eq!(driver.call_lines(), UNSTAGED[..2]);
    assert_eq!(driver.violations(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_pod_deleted_while_its_driver_is_away_is_released_when_that_is_back() {
    let (mut world, driver) = with_driver(no_attach()).await;
    world.create(&user("web"));
    runs(&world, "web").await;
    world.crash().await;
    driver.stop();
    world.delete("web", Some(1));
    world.start().await;
    world.advance(seconds(60)).await;
    assert_eq!(driver.published().len(), 1);
    driver.start();
    world.until("nothing is left", |_| driver.staged().is_empty() && driver.published().is_empty()).await;
    assert_eq!(driver.violations(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_failed_unstaging_is_repeated_without_holding_up_the_pod() {
    let (world, driver) = with_driver(no_attach()).await;
    world.create(&user("web"));
    runs(&world, "web").await;
    driver.fault(CsiMethod::NodeUnstageVolume, CsiFault::Fails("Internal", "busy"));
    world.delete("web", Some(1));
    world.until("the pod is gone", |w| w.in_api("web").is_none()).await;
    world.until("the volume is unstaged", |_| driver.staged().is_empty()).await;
    assert_eq!(driver.count(CsiMethod::NodeUnstageVolume), 2);
    assert_eq!(driver.violations(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_panic_while_a_volume_is_unstaged_is_a_failure_and_repeated() {
    let (world, driver) = with_driver(no_attach()).await;
    world.create(&user("web"));
    runs(&world, "web").await;
    driver.fault(CsiMethod::NodeUnstageVolume, CsiFault::Panics);
    is_gone(&world, &driver, "web").await;
    assert_eq!(driver.count(CsiMethod::NodeUnstageVolume), 2);
}

#[tokio::test(start_paused = true)]
async fn an_inline_volume_lives_as_long_as_its_pod_and_is_not_staged() {
    let spec =
        json!({"podInfoOnMount": true, "fsGroupPolicy": "File", "volumeLifecycleModes": ["Ephemeral"]});
    let (world, driver) = with_driver(spec).await;
    driver.set_capabilities(|capabilities| capabilities.stage_unstage_volume = false);
    let mounts = json!({"volumeMounts": [{"name": "data", "mountPath": "/data"}]});
    world.create(&pod("web", [container_with("app", mounts)]).spec(json!({
        "volumes": [{"name": "data", "csi": {"driver": DRIVER, "volumeAttributes": {"size": "1"}}}],
    })));
    runs(&world, "web").await;
    let request = &driver.publish_requests()[0];
    assert_eq!(request.volume_context.0["csi.storage.k8s.io/ephemeral"], "true");
    assert_eq!(request.volume_context.0["size"], "1");
    assert_eq!(request.staging_target_path, None);
    is_gone(&world, &driver, "web").await;
    assert_eq!(driver.count(CsiMethod::NodeStageVolume) + driver.count(CsiMethod::NodeUnstageVolume), 0);
}

/// How often volumes of the driver were mounted, as metrics count it.
async fn mounts(world: &World) -> usize {
    let name = "storage_operation_duration_seconds_count{migrated=\"false\",operation_name=\"volume_mount\",\
                status=\"success\",volume_plugin=\"kubernetes.io/csi:disk.example.com\"} ";
    let metrics = world.metrics().await;
    metrics.lines().find_map(|line| line.strip_prefix(name)?.parse().ok()).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn metrics_count_a_mount_and_not_the_syncs_after_it_and_name_the_driver() {
    let (world, driver) = with_driver(no_attach()).await;
    let mut grouped = user("web");
    grouped = grouped.spec(json!({"securityContext": {"fsGroup": 7}}));
    world.create(&grouped);
    runs(&world, "web").await;
    world.advance(seconds(400)).await;
    assert_eq!(mounts(&world).await, 1);
    is_gone(&world, &driver, "web").await;
    let metrics = world.metrics().await;
    for act in ["volume_apply_access_control", "volume_unmount"] {
        let line = format!(
            "storage_operation_duration_seconds_count{{migrated=\"false\",operation_name=\"{act}\",status=\"success\",\
             volume_plugin=\"kubernetes.io/csi:disk.example.com\"}} 1"
        );
        assert!(metrics.contains(&line), "{line}\n{metrics}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_asks_for_it_is_called_again_with_each_sync_of_the_pod() {
    let mut spec = no_attach();
    spec["requiresRepublish"] = true.into();
    let (world, driver) = with_driver(spec).await;
    world.create(&user("web"));
    runs(&world, "web").await;
    world.advance(seconds(400)).await;
    let times = driver.count(CsiMethod::NodePublishVolume);
    assert!((4..=8).contains(&times), "every 60 to 90 s: {times}");
    assert_eq!(mounts(&world).await, times, "each counts as a mount");
    driver.fault(CsiMethod::NodePublishVolume, CsiFault::Fails("Internal", "no"));
    world.advance(seconds(100)).await;
    assert_eq!(driver.published().len(), 1, "a failed call takes nothing away");
    is_gone(&world, &driver, "web").await;
    assert_eq!(driver.violations(), Vec::<String>::new());
}
