//! What the node says about CSI in the API: its CSINode, the ids and topology of drivers, volumes in use, and attachments.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api_agent::attachments::{AttachError, AttachWait};
use api_agent::csi::CsiApi;
use api_agent::csi_allocatable::NodeInfoSource;
use async_trait::async_trait;
use fakes::{ClusterFault, Outage, Verb};
use model::csi::NodeInfo;
use model::k8s::{CSIDriver, CSINode, VolumeAttachment};
use parking_lot::Mutex;
use ports::cluster::ClusterError;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use volumes_core::attachment::attachment_name;

use crate::world::{World, seconds};

const DRIVER: &str = "d.example";
const VOLUME: &str = "kubernetes.io/csi/d.example^vol-1";
const NOT_INITIALIZED: &str = "CSINode is not yet initialized";

fn forbidden() -> ClusterFault {
    ClusterFault::Refused(ClusterError::Forbidden { call: String::new(), message: "not yours".to_owned() })
}

fn csi(world: &World) -> CsiApi {
    world.agent.as_ref().unwrap().csi().unwrap().clone()
}

fn csi_node(world: &World) -> Option<CSINode> {
    world.api().object("", "node")
}

fn drivers(world: &World) -> Value {
    json!(csi_node(world).unwrap().spec.drivers)
}

fn info(node_id: &str, max_volumes: i64, zone: &str) -> NodeInfo {
    let topology = [("topology.d.example/zone".to_owned(), zone.to_owned())].into();
    NodeInfo { node_id: node_id.to_owned(), max_volumes_per_node: max_volumes, topology }
}

/// Calls that write, and how many there are of each.
fn writes(world: &World, about: &str) -> Vec<String> {
    let is_write = |line: &&String| {
        !line.starts_with("get ") && !line.starts_with("list ") && !line.starts_with("watch ")
    };
    let lines = world.api().call_lines();
    lines.iter().filter(is_write).filter(|line| line.contains(about)).cloned().collect()
}

fn ready_message(world: &World) -> String {
    world.node_condition("Ready").and_then(|ready| ready.message).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn joining_node_creates_its_csi_node_with_the_calls_of_the_go_kubelet() {
    let world = World::joined().await;
    let node = world.node().unwrap();
    let created = csi_node(&world).unwrap();
    let owner = &created.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!((owner.kind.as_str(), &owner.uid), ("Node", node.metadata.uid.as_ref().unwrap()));
    let annotations = created.metadata.annotations.unwrap();
    assert!(
        annotations["storage.alpha.kubernetes.io/migrated-plugins"].starts_with("kubernetes.io/aws-ebs,")
    );
    let lines = world.api().call_lines();
    let calls: Vec<&str> = lines.iter().map(String::as_str).filter(|line| line.contains("csi")).collect();
    assert_eq!(calls, ["get csinodes node", "create csinodes node"], "no CSIDriver is read");
}

#[tokio::test(start_paused = true)]
async fn node_is_not_ready_until_its_csi_node_exists() {
    let mut world = World::of_cluster();
    world.api().fault_always(Verb::Get, "csinodes", Some(forbidden()));
    world.start().await;
    world.until("the node is registered", |w| w.node().is_some()).await;
    world.advance(seconds(60)).await;
    assert_eq!(ready_message(&world), NOT_INITIALIZED);
    world.api().fault_always(Verb::Get, "csinodes", None);
    let allowed = world.now();
    let ready = world.until("the node is ready", World::is_node_ready).await;
    // The CSINode is asked for again after one to two seconds.
    assert!(ready - allowed < Duration::from_millis(2100), "it took {:?}", ready - allowed);
}

#[tokio::test(start_paused = true)]
async fn csi_node_that_cannot_be_created_is_the_reason_and_ends_the_process_after_140_seconds() {
    let mut world = World::of_cluster();
    world.api().fault_always(Verb::Create, "csinodes", Some(forbidden()));
    world.start().await;
    world
        .until("the reason is reported", |w| ready_message(w).starts_with("failed to initialize CSINode: "))
        .await;
    let text = ready_message(&world);
    let expected = "error updating CSINode annotation: timed out waiting for the condition; caused by: ";
    assert!(text.contains(expected) && text.contains("not yours"), "{text}");
    let must_exit = world.agent.as_ref().unwrap().must_exit().clone();
    world.until("the process ends", |_| must_exit.is_cancelled()).await;
    assert!((seconds(140)..seconds(165)).contains(&world.now()), "at {:?}", world.now());
    assert_eq!(world.api_calls("create csinodes node"), 24, "six times four attempts");
}

#[tokio::test(start_paused = true)]
async fn csi_node_of_an_earlier_node_is_replaced() {
    let mut world = World::of_cluster();
    let old: CSINode = serde_json::from_value(json!({
        "metadata": {"name": "node", "ownerReferences": [
            {"apiVersion": "v1", "kind": "Node", "name": "node", "uid": "gone"}]},
        "spec": {"drivers": [{"name": DRIVER, "nodeID": "old"}]},
    }))
    .unwrap();
    world.api().put(&old);
    world.start().await;
    world.until("the node is ready", World::is_node_ready).await;
    let node = csi_node(&world).unwrap();
    assert_eq!(node.metadata.owner_references.unwrap()[0].uid, world.node().unwrap().metadata.uid.unwrap());
    assert_eq!(node.spec.drivers, []);
}

#[tokio::test(start_paused = true)]
async fn driver_is_recorded_in_node_and_csi_node_and_not_written_again() {
    let mut world = World::joined().await;
    csi(&world).nodes.install(DRIVER, &info("id-1", 5, "z1")).await.unwrap();
    let expected = json!([{"name": DRIVER, "nodeID": "id-1", "topologyKeys": ["topology.d.example/zone"],
        "allocatable": {"count": 5}}]);
    assert_eq!(drivers(&world), expected);
    let recorded = |world: &World| {
        let metadata = world.node().unwrap().metadata;
        (
            metadata.annotations.unwrap().get("csi.volume.kubernetes.io/nodeid").cloned(),
            metadata.labels.unwrap().get("topology.d.example/zone").cloned(),
        )
    };
    let ids = Some(json!({DRIVER: "id-1"}).to_string());
    assert_eq!(recorded(&world), (ids.clone(), Some("z1".to_owned())));
    // The node's own reports and the next registration leave them.
    world.advance(seconds(600)).await;
    world.restart().await;
    world.until("the node is ready", World::is_node_ready).await;
    world.advance(seconds(600)).await;
    assert_eq!(recorded(&world), (ids, Some("z1".to_owned())));
    world.api().forget_calls();
    csi(&world).nodes.install(DRIVER, &info("id-1", 5, "z1")).await.unwrap();
    assert_eq!(writes(&world, "csinodes"), [""; 0]);
    assert_eq!(writes(&world, "nodes"), [""; 0]);
    csi(&world).nodes.uninstall(DRIVER).await.unwrap();
    csi(&world).nodes.uninstall(DRIVER).await.unwrap();
    assert_eq!(drivers(&world), json!([]));
    assert_eq!(recorded(&world), (None, Some("z1".to_owned())));
}

#[tokio::test(start_paused = true)]
async fn driver_with_another_topology_than_the_node_is_refused() {
    let world = World::joined().await;
    let nodes = csi(&world).nodes;
    nodes.install(DRIVER, &info("id-1", 0, "z1")).await.unwrap();
    let error = nodes.install("e.example", &info("id-2", 0, "z2")).await.unwrap_err();
    let expected = "error updating Node object with CSI driver node info: error updating node: timed out waiting for the \
                    condition; caused by: detected topology value collision: driver reported \
                    \"topology.d.example/zone\":\"z2\" but existing label is \"topology.d.example/zone\":\"z1\"";
    assert_eq!(error, expected);
    assert_eq!(drivers(&world).as_array().unwrap().len(), 1);
    let error = nodes.install("e.example", &info("", 0, "z1")).await.unwrap_err();
    assert_eq!(error, "error adding CSI driver node info: driverNodeID must not be empty");
}

#[tokio::test(start_paused = true)]
async fn drivers_that_register_at_once_are_all_recorded() {
    let world = World::joined().await;
    let nodes = csi(&world).nodes;
    world.api().fault(
        Verb::Update,
        "csinodes",
        ClusterFault::Refused(ClusterError::Conflict {
            call: String::new(),
            message: "the object has been modified".to_owned(),
        }),
    );
    let names: Vec<String> = (0..20).map(|n| format!("d{n}.example")).collect();
    let infos = info("id", 0, "z1");
    let installs = names.iter().map(|name| nodes.install(name, &infos));
    for installed in futures_util::future::join_all(installs).await {
        installed.unwrap();
    }
    assert_eq!(drivers(&world).as_array().unwrap().len(), 20);
    let annotation = &world.node().unwrap().metadata.annotations.unwrap()["csi.volume.kubernetes.io/nodeid"];
    let ids: BTreeMap<String, String> = serde_json::from_str(annotation).unwrap();
    assert_eq!(ids.len(), 20);
}

/// Answers with one volume less each time.
#[derive(Debug, Default)]
struct Shrinking {
    asked: Mutex<Vec<String>>,
}

#[async_trait]
impl NodeInfoSource for Shrinking {
    async fn node_info(&self, driver: &str) -> Result<NodeInfo, String> {
        let mut asked = self.asked.lock();
        asked.push(driver.to_owned());
        Ok(info("id-1", 10 - i64::try_from(asked.len()).unwrap(), "z1"))
    }
}

#[tokio::test(start_paused = true)]
async fn allocatable_count_is_updated_in_the_period_of_the_csi_driver() {
    let world = World::joined().await;
    let (api, source) = (csi(&world), Arc::new(Shrinking::default()));
    let ctx = world.agent.as_ref().unwrap().context().clone();
    api.start_updates(&ctx, source.clone());
    world.advance(seconds(120)).await;
    assert_eq!(world.api_calls("list csidrivers"), 0, "no driver is installed");
    let driver = |period: Option<i64>| -> CSIDriver {
        let spec = json!({"nodeAllocatableUpdatePeriodSeconds": period});
        serde_json::from_value(json!({"metadata": {"name": DRIVER}, "spec": spec})).unwrap()
    };
    world.api().put(&driver(Some(60)));
    api.nodes.install(DRIVER, &info("id-1", 10, "z1")).await.unwrap();
    api.nodes.install("other.example", &info("id-1", 10, "z1")).await.unwrap();
    world.advance(seconds(125)).await;
    assert_eq!(*source.asked.lock(), [DRIVER, DRIVER]);
    assert_eq!(drivers(&world)[0]["allocatable"], json!({"count": 8}));
    assert_eq!(drivers(&world)[1]["allocatable"], json!({"count": 10}));
    world.api().put(&driver(None));
    world.advance(seconds(300)).await;
    assert_eq!(source.asked.lock().len(), 2, "the driver has no period any more");
    world.api().put(&driver(Some(30)));
    world.advance(seconds(31)).await;
    assert_eq!(source.asked.lock().len(), 3);
    api.nodes.uninstall(DRIVER).await.unwrap();
    world.advance(seconds(300)).await;
    assert_eq!(source.asked.lock().len(), 3, "the driver is gone");
}

#[tokio::test(start_paused = true)]
async fn csi_drivers_are_read_with_the_first_request_and_followed() {
    let world = World::joined().await;
    let api = csi(&world);
    world.api().set_outage(Some(Outage::Refused));
    let error = api.drivers.get(DRIVER).await.unwrap_err();
    assert_eq!(error, "failed to sync csidriver cache: timed out waiting for the condition");
    world.api().set_outage(None);
    world.until("the list is read", |w| w.api_calls("list csidrivers") > 1).await;
    assert_eq!(api.drivers.get(DRIVER).await, Ok(None));
    let driver: CSIDriver =
        serde_json::from_value(json!({"metadata": {"name": DRIVER}, "spec": {"attachRequired": false}}))
            .unwrap();
    let mut changes = api.drivers.changes();
    world.api().put(&driver);
    changes.changed().await.unwrap();
    assert_eq!(api.drivers.get(DRIVER).await.unwrap().unwrap().spec.attach_required, Some(false));
    assert_eq!(world.api_calls("watch csidrivers"), 1);
}

fn in_use(world: &World) -> Vec<String> {
    world.node().unwrap().status.unwrap().volumes_in_use.unwrap_or_default()
}

/// The attach/detach controller reports the volume as attached.
fn attach(world: &World, volumes: &[&str]) {
    let mut node = world.node().unwrap();
    let attached: Vec<Value> = volumes.iter().map(|name| json!({"name": name, "devicePath": ""})).collect();
    node.status.get_or_insert_default().volumes_attached = serde_json::from_value(json!(attached)).unwrap();
    world.api().put(&node);
}

#[tokio::test(start_paused = true)]
async fn volume_is_in_use_in_the_api_before_it_counts_as_reported() {
    let mut world = World::joined().await;
    world.advance(seconds(1)).await;
    attach(&world, &["theirs"]);
    let volumes = csi(&world).in_use;
    let began = world.now();
    volumes.add("b").unwrap();
    volumes.add("a").unwrap();
    volumes.reported("a").await;
    volumes.reported("b").await;
    assert!(world.now() - began < Duration::from_millis(100), "it took {:?}", world.now() - began);
    assert_eq!(in_use(&world), ["a", "b"]);
    world.api().forget_calls();
    volumes.add("a").unwrap();
    volumes.remove("unknown");
    world.advance(seconds(9)).await;
    assert_eq!(writes(&world, "nodes/status"), [""; 0], "nothing changed");
    volumes.remove("b");
    world.until("b is not in use", |w| in_use(w) == ["a"]).await;
    let attached = world.node().unwrap().status.unwrap().volumes_attached.unwrap();
    assert_eq!(attached[0].name, "theirs", "the controller owns volumesAttached");
    // The next kubelet does not know yet whether it uses the volume.
    world.crash().await;
    world.api().fault_always(Verb::List, "pods", Some(forbidden()));
    world.api().forget_calls();
    world.start().await;
    world.until("the node is reported", |w| w.api_calls("patch nodes/status node") > 0).await;
    world.advance(seconds(60)).await;
    assert_eq!(in_use(&world), ["a"]);
    world.api().fault_always(Verb::List, "pods", None);
    world.until("no pod uses it", |w| in_use(w).is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn volume_waits_for_the_api_while_it_cannot_be_reported() {
    let world = World::joined().await;
    let volumes = csi(&world).in_use;
    world.api().set_outage(Some(Outage::Refused));
    volumes.add("a").unwrap();
    let reported = tokio::time::timeout(seconds(60), volumes.reported("a")).await;
    assert!(reported.is_err(), "the API does not have it");
    world.api().set_outage(None);
    tokio::time::timeout(seconds(30), volumes.reported("a")).await.unwrap();
}

fn attachment(world: &World, status: Value) {
    let name = attachment_name("vol-1", DRIVER, "node");
    let attachment: VolumeAttachment = serde_json::from_value(json!({
        "metadata": {"name": name}, "status": status,
        "spec": {"attacher": DRIVER, "nodeName": "node", "source": {"persistentVolumeName": "pv"}},
    }))
    .unwrap();
    world.api().put(&attachment);
}

fn wait() -> AttachWait {
    AttachWait {
        volume_unique_name: VOLUME.to_owned(),
        attachment_name: attachment_name("vol-1", DRIVER, "node"),
        terminating: CancellationToken::new(),
    }
}

#[tokio::test(start_paused = true)]
async fn volume_attachment_is_read_once_the_node_status_has_the_volume() {
    let world = World::joined().await;
    let attachments = csi(&world).attachments;
    attachment(&world, json!({"attached": true, "attachmentMetadata": {"device": "sdb"}}));
    let wait = wait();
    let attached = async {
        world.advance(seconds(40)).await;
        let reads = format!("get volumeattachments {}", wait.attachment_name);
        assert_eq!(world.api_calls(&reads), 0, "no reason to read it yet");
        attach(&world, &[VOLUME]);
        world.now()
    };
    let (metadata, listed) = tokio::join!(attachments.attached(&wait), attached);
    assert_eq!(metadata.unwrap(), BTreeMap::from([("device".to_owned(), "sdb".to_owned())]));
    assert!(world.now() - listed < Duration::from_millis(100));
}

#[tokio::test(start_paused = true)]
async fn volume_that_is_not_attached_has_the_errors_of_the_go_kubelet() {
    let world = World::joined().await;
    let attachments = csi(&world).attachments;
    let wait = wait();
    let error = attachments.attached(&wait).await.unwrap_err();
    assert_eq!(error.to_string(), format!("volume {VOLUME} is not yet in node's status"));
    attach(&world, &[VOLUME]);
    let id = &wait.attachment_name;
    let error = attachments.attached(&wait).await.unwrap_err().to_string();
    assert!(
        error.starts_with(&format!("volume vol-1 has GET error for volume attachment {id}: ")),
        "{error}"
    );
    attachment(&world, json!({"attached": false}));
    let error = attachments.attached(&wait).await.unwrap_err();
    assert_eq!(error.to_string(), format!("volume vol-1 is not attached for volume attachment {id}"));
    attachment(&world, json!({"attached": false, "attachError": {"message": "quota", "errorCode": 8}}));
    assert_eq!(attachments.attached(&wait).await, Err(AttachError::Refused("quota".to_owned())));
    assert!(attachments.is_node_full(id).await);
    wait.terminating.cancel();
    assert_eq!(
        attachments.attached(&wait).await,
        Err(AttachError::Terminating { volume: VOLUME.to_owned() })
    );
}

#[tokio::test(start_paused = true)]
async fn pod_that_leaves_ends_the_wait_for_its_volume() {
    let world = World::joined().await;
    let attachments = csi(&world).attachments;
    let wait = wait();
    let began = world.now();
    let leave = async {
        world.advance(seconds(3)).await;
        wait.terminating.cancel();
    };
    let (attached, ()) = tokio::join!(attachments.attached(&wait), leave);
    assert_eq!(attached, Err(AttachError::Terminating { volume: VOLUME.to_owned() }));
    assert!(world.now() - began < seconds(4));
}

#[tokio::test(start_paused = true)]
async fn kubelet_that_attaches_volumes_itself_cannot_attach_csi_volumes() {
    let mut world = World::of_cluster();
    world.config.enable_controller_attach_detach = false;
    world.start().await;
    world.until("the node is ready", World::is_node_ready).await;
    let error = csi(&world).attachments.attached(&wait()).await.unwrap_err();
    assert_eq!(error.to_string(), "attaching volumes from the kubelet is not supported");
    let annotations = world.node().unwrap().metadata.annotations.unwrap_or_default();
    assert!(!annotations.contains_key("volumes.kubernetes.io/controller-managed-attach-detach"));
}
