//! Scenarios of the node in its cluster: registration, conditions, heartbeats.

use std::time::Duration;

use fakes::{ClusterFault, Fault, Method, Outage, Verb};
use model::k8s::{Lease, Node, Pod};
use ports::cluster::ClusterError;
use serde_json::json;

use crate::pods::{container, pod};
use crate::world::{World, seconds};

const PATCH: &str = "patch nodes/status node";

fn forbidden() -> ClusterFault {
    ClusterFault::Refused(ClusterError::Forbidden { call: String::new(), message: "not yours".to_owned() })
}

fn existing_node() -> Node {
    serde_json::from_value(json!({
        "metadata": {"name": "node", "labels": {"zone": "a"}, "annotations": {"theirs": "kept"}},
        "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}], "podCIDRs": ["10.1.0.0/24"], "podCIDR": "10.1.0.0/24"},
        "status": {"conditions": [{"type": "NetworkUnavailable", "status": "False", "reason": "RouteCreated"}]},
    }))
    .unwrap()
}

#[tokio::test(start_paused = true)]
async fn node_registers_and_is_ready_at_once() {
    let world = World::joined().await;
    assert!(world.now() < Duration::from_millis(400), "it took {:?}", world.now());
    let node = world.node().unwrap();
    assert_eq!(node.metadata.labels.unwrap()["kubernetes.io/hostname"], "node");
    let ready = world.node_condition("Ready").unwrap();
    assert_eq!(ready.reason.as_deref(), Some("KubeletReady"));
    assert_eq!(world.api_calls("create nodes node"), 1);
    world.until("it was reported", |w| !w.api_events("NodeReady").is_empty()).await;
    assert_eq!(world.recorded("NodeReady"), 1, "a repeated error is reported once");
}

#[tokio::test(start_paused = true)]
async fn node_registration_creates_the_node_first_and_reads_one_that_exists() {
    for (exists, expected) in [(false, ["create"].as_slice()), (true, &["create", "get"])] {
        let mut world = World::of_cluster();
        if exists {
            world.api().put(&existing_node());
        }
        world.start().await;
        world.until("the node is ready", World::is_node_ready).await;
        let lines = world.api().call_lines();
        let calls = lines.iter().filter_map(|line| line.trim().strip_suffix(" nodes node"));
        let calls: Vec<&str> = calls.take(expected.len()).collect();
        assert_eq!(calls, expected, "{lines:?}");
        assert_eq!(world.api_calls("create nodes node"), 1);
        let (read, patched) = (
            lines.iter().position(|line| line.contains("get nodes node")),
            lines.iter().position(|line| line.contains("patch nodes")),
        );
        assert!(read < patched, "{lines:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn node_that_may_not_be_created_is_read_unless_only_existing_ones_are() {
    for exists_only in [false, true] {
        let mut world = World::of_cluster();
        world.features.get_node_on_exists_only = exists_only;
        world.api().put(&existing_node());
        world.api().fault_always(Verb::Create, "nodes", Some(forbidden()));
        world.start().await;
        world.advance(seconds(60)).await;
        assert_eq!(world.is_node_ready(), !exists_only);
        assert_eq!(world.api_calls("create nodes node") > 1, exists_only, "that try failed");
    }
}

#[tokio::test(start_paused = true)]
async fn late_runtime_makes_the_node_ready_promptly() {
    let mut world = World::of_cluster();
    world.fake.set_down(true);
    world.start().await;
    world.until("the node is registered", |w| w.node().is_some()).await;
    world.advance(seconds(33)).await;
    assert!(!world.is_node_ready());
    world.fake.set_down(false);
    let up = world.now();
    let ready = world.until("the node is ready", World::is_node_ready).await;
    // The relist, of which readiness is a part too, runs every second.
    assert!(ready < up + Duration::from_millis(1400), "it took {:?}", ready - up);
}

#[tokio::test(start_paused = true)]
async fn existing_node_keeps_foreign_labels_and_taints() {
    for may_create in [true, false] {
        let mut world = World::of_cluster();
        world.api().put(&existing_node());
        if !may_create {
            world.api().fault_always(Verb::Create, "nodes", Some(forbidden()));
        }
        world.start().await;
        world.until("the node is ready", World::is_node_ready).await;
        let node = world.node().unwrap();
        let labels = node.metadata.labels.unwrap();
        assert_eq!((labels["zone"].as_str(), labels["kubernetes.io/os"].as_str()), ("a", "linux"));
        assert_eq!(node.metadata.annotations.unwrap()["theirs"], "kept");
        assert_eq!(node.spec.unwrap().taints.unwrap()[0].key, "k");
        assert_eq!(world.node_condition("NetworkUnavailable").unwrap().status, "False");
    }
}

#[tokio::test(start_paused = true)]
async fn node_registration_backs_off_until_the_api_is_reachable() {
    let mut world = World::of_cluster();
    world.api().set_outage(Some(Outage::Refused));
    world.start().await;
    world.advance(seconds(300)).await;
    let is_create = |call: &&fakes::ClusterCall| call.verb == Verb::Create && call.resource == "nodes";
    let calls = world.api().calls();
    let times: Vec<_> = calls.iter().filter(is_create).map(|call| call.at).collect();
    let waits: Vec<Duration> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let shown: Vec<u128> = waits.iter().take(9).map(Duration::as_millis).collect();
    assert_eq!(shown, [100, 200, 400, 800, 1600, 3200, 6400, 7000, 7000]);
    assert!(waits[0] < Duration::from_millis(200), "{waits:?}");
    assert!(waits.iter().all(|wait| *wait < seconds(8)), "{waits:?}");
    assert!((40..60).contains(&times.len()), "{}", times.len());
    world.api().set_outage(None);
    let back = world.now();
    let ready = world.until("the node is ready", World::is_node_ready).await;
    assert!(ready < back + seconds(10), "it took {:?}", ready - back);
}

/// `kubelet.go` (updateRuntimeUp): a status from the runtime counts at once, its silence after 30 seconds.
#[tokio::test(start_paused = true)]
async fn runtime_that_is_not_ready_makes_the_node_not_ready_at_once() {
    let world = World::joined().await;
    world.fake.set_ready(false, true);
    let began = world.now();
    let noticed = world.until("the node is not ready", |w| !w.is_node_ready()).await;
    assert!(noticed - began < seconds(7), "after {:?}", noticed - began);
    let ready = world.node_condition("Ready").unwrap();
    assert_eq!(ready.reason.as_deref(), Some("KubeletNotReady"));
    let text = "container runtime not ready: RuntimeReady=false reason:RuntimeNotReady message:scripted: RuntimeNotReady";
    assert_eq!(ready.message.as_deref(), Some(text));
    world.fake.set_ready(true, false);
    let text = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:scripted: \
                NetworkPluginNotReady";
    let says_so = |w: &World| w.node_condition("Ready").unwrap().message.as_deref() == Some(text);
    world.until("the message names the network", says_so).await;
    world.fake.set_ready(true, true);
    world.until("the node is ready", World::is_node_ready).await;
}

#[tokio::test(start_paused = true)]
async fn node_is_not_ready_while_the_runtime_is_down() {
    let world = World::joined().await;
    world.fake.set_down(true);
    let down = world.now();
    let noticed = world.until("the node is not ready", |w| !w.is_node_ready()).await;
    assert!(noticed - down > seconds(25) && noticed - down < seconds(50), "after {:?}", noticed - down);
    let ready = world.node_condition("Ready").unwrap();
    assert_eq!(ready.reason.as_deref(), Some("KubeletNotReady"));
    assert!(ready.message.unwrap_or_default().contains("container runtime is down"));
    world.fake.set_down(false);
    let up = world.now();
    let again = world.until("the node is ready", World::is_node_ready).await;
    assert!(again - up < seconds(8), "after {:?}", again - up);
    assert_eq!((world.recorded("NodeNotReady"), world.recorded("NodeReady")), (1, 2));
}

/// Its calls end only at their deadline, which is longer than a runtime may be silent.
#[tokio::test(start_paused = true)]
async fn frozen_runtime_makes_the_node_not_ready_as_soon_as_one_that_is_down() {
    let world = World::joined().await;
    for method in [Method::Status, Method::Version, Method::ListImages, Method::UpdateRuntimeConfig] {
        world.fake.fault_always(method, Some(Fault::Hang));
    }
    let frozen = world.now();
    let noticed = world.until("the node is not ready", |w| !w.is_node_ready()).await;
    assert!(noticed - frozen > seconds(25) && noticed - frozen < seconds(40), "after {:?}", noticed - frozen);
    let message = world.node_condition("Ready").unwrap().message.unwrap_or_default();
    assert!(message.contains("container runtime is down"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn node_registers_with_a_frozen_runtime() {
    let mut world = World::of_cluster();
    for method in [Method::Status, Method::ListImages] {
        world.fake.fault_always(method, Some(Fault::Hang));
    }
    world.start().await;
    let since = world.now();
    let registered = world.until("the node exists", |w| w.node().is_some()).await;
    assert!(registered - since < seconds(5), "{:?}", registered - since);
    world.until("it has a condition", |w| w.node_condition("Ready").is_some()).await;
    assert!(!world.is_node_ready());
}

#[tokio::test(start_paused = true)]
async fn node_is_not_ready_when_pleg_has_not_listed_for_three_minutes() {
    let world = World::joined().await;
    world.fake.fault_always(Method::ListPodSandbox, Some(Fault::Unavailable));
    let began = world.now();
    let lost = world.until("the node is not ready", |w| !w.is_node_ready()).await;
    assert!((seconds(180)..seconds(200)).contains(&(lost - began)), "{:?}", lost - began);
    let message = world.node_condition("Ready").unwrap().message.unwrap_or_default();
    assert!(message.starts_with("PLEG is not healthy: pleg was last seen active"), "{message}");
    world.fake.clear_faults();
    world.until("the node is ready again", World::is_node_ready).await;
}

#[tokio::test(start_paused = true)]
async fn unchanged_node_status_is_reported_at_the_report_frequency() {
    let world = World::joined().await;
    world.advance(seconds(30)).await;
    world.api().forget_calls();
    world.advance(seconds(3600)).await;
    let reports = world.api_calls(PATCH);
    assert!((11..=13).contains(&reports), "{reports} reports in an hour");
}

#[tokio::test(start_paused = true)]
async fn node_status_patch_keeps_foreign_changes() {
    let world = World::joined().await;
    world.advance(seconds(30)).await;
    let mut node = world.node().unwrap();
    node.metadata.labels.get_or_insert_default().insert("zone".to_owned(), "b".to_owned());
    node.spec.get_or_insert_default().unschedulable = Some(true);
    world.api().put(&node);
    world.until("it was reported", |w| !w.api_events("NodeNotSchedulable").is_empty()).await;
    world.advance(seconds(600)).await;
    let node = world.node().unwrap();
    assert_eq!(node.metadata.labels.unwrap()["zone"], "b");
    assert_eq!(node.spec.unwrap().unschedulable, Some(true));
    assert_eq!(world.recorded("NodeNotSchedulable"), 1);
}

#[tokio::test(start_paused = true)]
async fn lagging_node_watch_causes_no_repeated_status_patch() {
    let mut world = World::of_cluster();
    // The Node is seen once, and then the watch stalls.
    world.api().fault_always(Verb::Watch, "nodes", Some(ClusterFault::TimedOut));
    world.start().await;
    world.until("the node is ready", World::is_node_ready).await;
    world.advance(seconds(20)).await;
    let since = world.node_condition("Ready").unwrap().last_transition_time;
    world.api().fault_always(Verb::List, "nodes", Some(ClusterFault::TimedOut));
    world.advance(seconds(120)).await;
    assert_eq!(world.recorded("NodeReady"), 1);
    assert_eq!(world.node_condition("Ready").unwrap().last_transition_time, since);
}

#[tokio::test(start_paused = true)]
async fn pod_cidr_is_sent_to_the_runtime_once() {
    let mut world = World::of_cluster();
    world.api().put(&existing_node());
    world.fake.fault(Method::UpdateRuntimeConfig, Fault::Failed("not now".to_owned()));
    world.start().await;
    world.advance(seconds(120)).await;
    let calls = world.fake.call_lines().into_iter().filter(|l| l.starts_with("UpdateRuntimeConfig")).count();
    assert_eq!(calls, 2, "the first time failed");
}

#[tokio::test(start_paused = true)]
async fn node_lease_is_renewed_at_a_quarter_of_its_duration_and_owned_by_the_node() {
    let world = World::joined().await;
    let lease = |w: &World| w.api().object::<Lease>("kube-node-lease", "node");
    let owned = |w: &World| lease(w).is_some_and(|lease| lease.metadata.owner_references.is_some());
    world.until("the lease exists", |w| lease(w).is_some()).await;
    world.until("it has its owner", owned).await;
    let lease = lease(&world).unwrap();
    let owner = &lease.metadata.owner_references.unwrap()[0];
    assert_eq!(
        (owner.kind.as_str(), Some(&owner.uid)),
        ("Node", world.node().unwrap().metadata.uid.as_ref())
    );
    let spec = lease.spec.unwrap();
    assert_eq!((spec.holder_identity.as_deref(), spec.lease_duration_seconds), (Some("node"), Some(40)));
    world.api().forget_calls();
    world.advance(seconds(1000)).await;
    let renewals = world.api_calls("update leases kube-node-lease/node");
    assert!((95..=101).contains(&renewals), "{renewals} renewals");
}

#[tokio::test(start_paused = true)]
async fn heartbeats_continue_while_everything_else_hangs() {
    let world = World::joined().await;
    world.create(&pod("web", [container("app")]));
    world.until("it runs", |w| w.is_ready_in_api("web")).await;
    for verb in [Verb::Patch, Verb::List, Verb::Watch, Verb::Delete, Verb::Create] {
        for plural in ["pods", "events"] {
            world.api().fault_always(verb, plural, Some(ClusterFault::TimedOut));
        }
    }
    world.api().end_watches();
    world.delete("web", None);
    world.api().forget_calls();
    world.advance(seconds(400)).await;
    let renewals = world.api_calls("update leases kube-node-lease/node");
    assert!((37..=41).contains(&renewals), "{renewals} renewals");
    assert!(world.api_calls(PATCH) >= 1);
    world.api().clear_faults();
    world.until("the pod is gone", |w| w.api().all::<Pod>().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn silent_api_connections_are_reopened() {
    let world = World::joined().await;
    world.advance(seconds(30)).await;
    assert_eq!(world.api().closed_connections(), 0);
    world.api().set_deadline(seconds(10)).set_outage(Some(Outage::Silent));
    world.until("connections are closed", |w| w.api().closed_connections() > 0).await;
    world.api().set_outage(None);
    world.advance(seconds(60)).await;
    let closed = world.api().closed_connections();
    world.advance(seconds(600)).await;
    assert_eq!(world.api().closed_connections(), closed);
    assert!(world.is_node_ready());
}
