//! Scenarios of nodes with volumes of CSI drivers that shut down or are lost, on paused time. Drivers unmount before their own pods
//! end, and a volume that was detached by force is unmounted as soon as the node is back. Detaching it is the controllers' work, and
//! so is ending pods because of the out-of-service taint.

use fakes::{CsiFault, CsiMethod, FakeCsiDriver};
use model::k8s::{Node, VolumeAttachment};
use serde_json::{Value, json};

use crate::csi::{
    ATTACHMENT, UNSTAGED, attach, cluster_of, from, is_in_use, no_attach, register, runs, user, with_driver,
};
use crate::node_shutdown::{critical, outcome_of, periods};
use crate::world::{World, seconds};

/// A node with graceful shutdown, the pod `web` with a volume, and the critical pod `driver`.
async fn node_with_pods() -> (World, FakeCsiDriver) {
    let mut world = World::of_cluster();
    world.config.shutdown_grace_period_by_pod_priority = periods();
    let (world, driver) = cluster_of(world, no_attach()).await;
    register(&world, &driver).await;
    world.until("the node inhibits shutdown", |w| w.shutdown.locks() == 1).await;
    for pod in [user("web"), critical("driver")] {
        world.create(&pod);
        runs(&world, &pod.name).await;
    }
    (world, driver)
}

#[tokio::test(start_paused = true)]
async fn csi_volume_is_unpublished_at_node_shutdown_before_the_pods_of_the_next_group_end() {
    let (world, driver) = Box::pin(node_with_pods()).await;
    driver.fault(CsiMethod::NodeUnpublishVolume, CsiFault::Hangs);
    world.shutdown.announce(true);
    world.until("the volume is being unpublished", |_| driver.hanging() == 1).await;
    world.advance(seconds(10)).await;
    assert!(!world.runs("web/app") && world.runs("driver/driver"), "{:?}", world.fake.running());
    assert_eq!((world.shutdown.locks(), driver.published().len()), (1, 1));
    driver.release();
    world.until("the pod of the driver ends", |w| outcome_of(w, "driver") == "Failed Terminated").await;
    assert_eq!(driver.published(), []);
    world.until("the inhibitor is released", |w| w.shutdown.locks() == 0).await;
    assert_eq!(driver.call_lines(), UNSTAGED);
    assert_eq!(driver.violations(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn csi_driver_that_hangs_delays_node_shutdown_by_one_period_and_its_volume_is_cleaned_up_after_boot() {
    let (mut world, driver) = Box::pin(node_with_pods()).await;
    driver.fault_always(CsiMethod::NodeUnpublishVolume, Some(CsiFault::Hangs));
    let announced = world.now();
    world.shutdown.announce(true);
    let freed = world.until("the inhibitor is released", |w| w.shutdown.locks() == 0).await - announced;
    assert!(freed >= seconds(20) && freed < seconds(24), "{freed:?}");
    assert_eq!(outcome_of(&world, "driver"), "Failed Terminated");
    assert_eq!(driver.published().len(), 1);

    world.crash().await;
    driver.clear_faults().reboot().forget_calls();
    world.shutdown.announce(false);
    world.start().await;
    world.until("the volume is unstaged", |_| driver.count(CsiMethod::NodeUnstageVolume) > 0).await;
    assert_eq!(driver.call_lines(), UNSTAGED[2..], "nothing is mounted for the pod that has ended");
    assert_eq!(driver.violations(), Vec::<String>::new());
}

/// What an administrator sets on a node that is shut down and does not come back soon.
fn set_out_of_service(world: &World, is_set: bool) {
    let taint =
        json!({"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"});
    let mut node = serde_json::to_value(world.node().unwrap()).unwrap();
    node["spec"]["taints"] = if is_set { json!([taint]) } else { Value::Null };
    world.api().put(&from::<Node>(node));
}

/// As the attach/detach controller does without waiting for the node.
fn detach_by_force(world: &World) {
    assert!(world.api().remove::<VolumeAttachment>("", ATTACHMENT, None));
    let mut node = world.node().unwrap();
    node.status.get_or_insert_default().volumes_attached = None;
    world.api().put(&node);
}

/// A pod with a volume that had to be attached.
async fn with_attached_volume() -> (World, FakeCsiDriver) {
    let spec = json!({"fsGroupPolicy": "File", "volumeLifecycleModes": ["Persistent"]});
    let (world, driver) = with_driver(spec).await;
    world.create(&user("web"));
    attach(&world);
    runs(&world, "web").await;
    (world, driver)
}

#[tokio::test(start_paused = true)]
async fn csi_volume_detached_by_force_is_in_use_until_the_returning_node_has_unmounted_it() {
    let (mut world, driver) = with_attached_volume().await;
    world.crash().await;
    set_out_of_service(&world, true);
    world.delete("web", Some(0));
    detach_by_force(&world);

    driver.fault(CsiMethod::NodeUnpublishVolume, CsiFault::Hangs);
    world.start().await;
    world.until("the volume is being unpublished", |_| driver.hanging() == 1).await;
    world.advance(seconds(30)).await;
    assert!(!world.runs("web/app") && is_in_use(&world));
    driver.release();
    world.until("the volume is not in use any more", |w| !is_in_use(w)).await;
    assert_eq!(driver.call_lines(), UNSTAGED);

    set_out_of_service(&world, false);
    world.create(&user("web"));
    world.until("the volume is to be attached", is_in_use).await;
    world.advance(seconds(20)).await;
    assert_eq!(driver.call_lines(), UNSTAGED, "it is not attached yet");
    attach(&world);
    runs(&world, "web").await;
    assert_eq!(driver.call_lines()[4..], UNSTAGED[..2]);
    assert_eq!(driver.violations(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn out_of_service_taint_alone_ends_no_pod_and_unmounts_no_csi_volume() {
    let (world, driver) = with_attached_volume().await;
    set_out_of_service(&world, true);
    world.advance(seconds(300)).await;
    assert!(world.is_ready_in_api("web") && world.runs("web/app") && is_in_use(&world));
    assert_eq!(driver.call_lines(), UNSTAGED[..2]);
}
