//! Scenarios of CSI volumes that grow, on paused time: what the driver is asked for, and what is reported to the claim and the pod.

use fakes::{CsiFault, CsiMethod, FakeCsiDriver};
use model::k8s::{Event, PersistentVolume, PersistentVolumeClaim, Secret};
use serde_json::{Value, json};

use crate::csi::{DRIVER, count_events, from, is_gone, no_attach, runs, user, with_driver};
use crate::world::{World, seconds};

const GIB: i64 = 1 << 30;

/// A pod that runs with a volume of 1Gi.
async fn running() -> (World, FakeCsiDriver) {
    let (world, driver) = with_driver(no_attach()).await;
    grow(&world, "1Gi", json!({"capacity": {"storage": "1Gi"}}));
    world.create(&user("web"));
    runs(&world, "web").await;
    (world, driver)
}

/// The volume has that size, and the claim that status.
fn grow(world: &World, volume: &str, status: Value) {
    let mut status = status;
    status["phase"] = "Bound".into();
    let mut claim: Value = serde_json::to_value(claim(world)).unwrap();
    claim["status"] = status;
    claim["spec"]["resources"] = json!({"requests": {"storage": volume}});
    let claim: PersistentVolumeClaim = world.api().put(&from(claim));
    world.api().put(&from::<PersistentVolume>(json!({
        "metadata": {"name": "pv-data"},
        "spec": {
            "capacity": {"storage": volume},
            "csi": {"driver": DRIVER, "volumeHandle": "vol-data", "fsType": "ext4"},
            "accessModes": ["ReadWriteOnce"],
            "claimRef": {"namespace": "default", "name": "data", "uid": claim.metadata.uid},
        },
    })));
}

fn pending() -> Value {
    json!({
        "capacity": {"storage": "1Gi"},
        "allocatedResources": {"storage": "2Gi"},
        "allocatedResourceStatuses": {"storage": "NodeResizePending"},
        "conditions": [{"type": "FileSystemResizePending", "status": "True"}],
    })
}

fn claim(world: &World) -> PersistentVolumeClaim {
    world.api().object("default", "data").unwrap()
}

fn status(world: &World) -> Value {
    serde_json::to_value(claim(world).status).unwrap()
}

/// The objects of the events in the API with that reason and message, each recorded once.
fn about(world: &World, reason: &str, text: &str) -> Vec<String> {
    let events: Vec<Event> = world.api().all();
    let found = events
        .into_iter()
        .filter(|event| event.reason.as_deref() == Some(reason) && event.message.as_deref() == Some(text));
    let mut shown: Vec<String> = found
        .map(|event| {
            let object = event.involved_object;
            assert_eq!((event.count, object.uid.is_some()), (Some(1), true));
            format!("{} {}", object.kind.unwrap(), object.name.unwrap())
        })
        .collect();
    shown.sort();
    shown
}

#[tokio::test(start_paused = true)]
async fn a_volume_in_use_is_expanded_and_reported_to_its_claim() {
    let (world, driver) = running().await;
    world.advance(seconds(200)).await;
    assert_eq!(driver.count(CsiMethod::NodeExpandVolume), 0);
    grow(&world, "2Gi", pending());
    world.until("the claim has its size", |w| status(w)["capacity"]["storage"] == "2Gi").await;
    let status = status(&world);
    assert_eq!(status["allocatedResourceStatuses"]["storage"], Value::Null, "{status}");
    assert_eq!(status["conditions"].as_array().map_or(0, Vec::len), 0, "{status}");
    let requests = driver.expand_requests();
    assert_eq!((requests.len(), requests[0].required_bytes), (1, 2 * GIB));
    assert_eq!(driver.published()[0].1, requests[0].volume_path);
    assert_eq!(driver.staged().get("vol-data"), requests[0].staging_target_path.as_ref());
    let text = "MountVolume.NodeExpandVolume succeeded for volume \"pv-data\" node";
    let version = claim(&world).metadata.resource_version;
    world.advance(seconds(400)).await;
    assert_eq!(driver.count(CsiMethod::NodeExpandVolume), 1);
    assert_eq!(claim(&world).metadata.resource_version, version, "nothing is written when nothing changes");
    assert_eq!(about(&world, "FileSystemResizeSuccessful", text), ["PersistentVolumeClaim data", "Pod web"]);
    is_gone(&world, &driver, "web").await;
    assert_eq!(driver.violations(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_grew_before_is_expanded_while_it_is_mounted() {
    let (world, driver) = with_driver(no_attach()).await;
    grow(&world, "2Gi", pending());
    driver.fault(CsiMethod::NodeExpandVolume, CsiFault::Fails("Internal", "no"));
    world.create(&user("web"));
    let text = "MountVolume.Setup failed while expanding volume for volume \"pv-data\" : Expander.NodeExpand failed to expand \
                the volume : rpc error: code = Internal desc = no";
    world.until("the event is recorded", |w| count_events(w, "FailedMount", text) > 0).await;
    assert_eq!(status(&world)["allocatedResourceStatuses"]["storage"], "NodeResizeInProgress");
    runs(&world, "web").await;
    assert_eq!(status(&world)["capacity"]["storage"], "2Gi");
    assert_eq!(driver.count(CsiMethod::NodeExpandVolume), 2);
    assert_eq!(driver.violations(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn an_infeasible_expansion_is_reported_once_and_not_tried_again() {
    let (world, driver) = running().await;
    driver.fault_always(CsiMethod::NodeExpandVolume, Some(CsiFault::Fails("OutOfRange", "too big")));
    grow(&world, "2Gi", pending());
    let statuses = |w: &World| status(w)["allocatedResourceStatuses"]["storage"].clone();
    world.until("the claim says so", |w| statuses(w) == "NodeResizeInfeasible").await;
    world.advance(seconds(400)).await;
    assert_eq!(driver.count(CsiMethod::NodeExpandVolume), 1);
    let text = "NodeExpandVolume.NodeExpandVolume failed for volume \"pv-data\" : Expander.NodeExpand failed to expand the \
                volume rpc error: code = OutOfRange desc = too big";
    assert_eq!(about(&world, "VolumeResizeFailed", text), ["Pod web"], "as in the Go kubelet");
    let status = status(&world);
    let conditions = status["conditions"].as_array().unwrap();
    assert!(conditions.iter().any(|condition| condition["type"] == "NodeResizeError"), "{status}");
    assert_eq!(driver.published().len(), 1, "the pod keeps its volume");
}

#[tokio::test(start_paused = true)]
async fn a_driver_without_expansion_is_not_called_and_the_pod_goes_on() {
    let (world, driver) = with_driver(no_attach()).await;
    driver.set_capabilities(|capabilities| capabilities.expand_volume = false);
    grow(&world, "1Gi", json!({"capacity": {"storage": "1Gi"}}));
    world.create(&user("web"));
    runs(&world, "web").await;
    grow(&world, "2Gi", json!({"capacity": {"storage": "1Gi"}}));
    world.advance(seconds(200)).await;
    assert_eq!(driver.count(CsiMethod::NodeExpandVolume), 0);
    assert_eq!(status(&world)["capacity"]["storage"], "1Gi");
    assert!(world.is_ready_in_api("web"));
}

#[tokio::test(start_paused = true)]
async fn an_expansion_with_an_unknown_result_is_repeated() {
    let (world, driver) = running().await;
    driver.fault(CsiMethod::NodeExpandVolume, CsiFault::FailsAfterDoing("DeadlineExceeded", "slow"));
    grow(&world, "2Gi", pending());
    world.until("the claim has its size", |w| status(w)["capacity"]["storage"] == "2Gi").await;
    assert_eq!(driver.count(CsiMethod::NodeExpandVolume), 2);
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_refuses_volumes_in_use_is_not_asked_again_until_the_next_mount() {
    let (world, driver) = running().await;
    driver.fault(CsiMethod::NodeExpandVolume, CsiFault::Fails("FailedPrecondition", "in use"));
    grow(&world, "2Gi", pending());
    world.advance(seconds(400)).await;
    assert_eq!(driver.count(CsiMethod::NodeExpandVolume), 1);
    assert_eq!(count_events(&world, "VolumeResizeFailed", ""), 0);
    is_gone(&world, &driver, "web").await;
    world.create(&user("other"));
    runs(&world, "other").await;
    assert_eq!(status(&world)["capacity"]["storage"], "2Gi");
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_is_only_read_is_not_expanded_and_that_is_reported_once() {
    let (world, driver) = with_driver(no_attach()).await;
    grow(&world, "1Gi", json!({"capacity": {"storage": "1Gi"}}));
    let mut reader = user("web");
    reader = reader.spec(json!({
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data", "readOnly": true}}],
    }));
    world.create(&reader);
    runs(&world, "web").await;
    grow(&world, "2Gi", pending());
    world.advance(seconds(400)).await;
    let text = "MountVolume.NodeExpandVolume failed for volume \"pv-data\" requested read-only file system";
    assert_eq!(about(&world, "FileSystemResizeFailed", text), ["PersistentVolumeClaim data", "Pod web"]);
    assert_eq!(driver.count(CsiMethod::NodeExpandVolume), 0);
}

#[tokio::test(start_paused = true)]
async fn an_expansion_that_hangs_does_not_keep_its_pod_from_leaving() {
    let (world, driver) = running().await;
    driver.fault(CsiMethod::NodeExpandVolume, CsiFault::Hangs);
    grow(&world, "2Gi", pending());
    world.until("the call hangs", |_| driver.hanging() == 1).await;
    world.delete("web", Some(1));
    world.advance(seconds(10)).await;
    driver.release();
    world.until("the pod is gone", |w| w.in_api("web").is_none()).await;
    world.until("nothing is left", |_| driver.staged().is_empty() && driver.published().is_empty()).await;
    assert_eq!(driver.violations(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn the_driver_gets_the_secret_for_expansions() {
    let (world, driver) = running().await;
    world.api().put(&from::<Secret>(json!({
        "metadata": {"name": "key", "namespace": "storage"}, "data": {"token": "c2VjcmV0"},
    })));
    grow(&world, "2Gi", pending());
    let volume: PersistentVolume = world.api().object("", "pv-data").unwrap();
    let mut volume = serde_json::to_value(volume).unwrap();
    volume["spec"]["csi"]["nodeExpandSecretRef"] = json!({"name": "key", "namespace": "storage"});
    world.api().put(&from::<PersistentVolume>(volume));
    world.until("the claim has its size", |w| status(w)["capacity"]["storage"] == "2Gi").await;
    assert_eq!(driver.expand_requests()[0].secrets.0["token"], "secret");
}
