//! Scenarios of devices of plugins: allocation, the checkpoint, and plugins that stop.

use fakes::{HostFault, HostMethod};
use model::k8s::Pod;
use serde_json::json;

use crate::pods::{Manifest, container_with, pod};
use crate::world::{World, seconds};

const GPU: &str = "example.com/gpu";
const CHECKPOINT: &str = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint";

/// A pod whose one container requests one device.
fn device_pod(name: &str) -> Manifest {
    pod(name, [container_with(name, json!({"resources": {"limits": {GPU: "1"}, "requests": {GPU: "1"}}}))])
}

/// `1/2`: allocatable and capacity in the Node's status.
fn on_node(world: &World) -> String {
    let status = world.node().and_then(|node| node.status).unwrap_or_default();
    let of = |amounts: Option<std::collections::BTreeMap<String, model::k8s::Quantity>>| {
        amounts.unwrap_or_default().get(GPU).map_or_else(|| "none".to_owned(), |amount| amount.0.clone())
    };
    format!("{}/{}", of(status.allocatable), of(status.capacity))
}

/// A node of a cluster, with a plugin that has these devices.
async fn world_with(devices: &[&str]) -> World {
    let world = World::joined().await;
    register_plugin(&world, devices).await;
    world
}

async fn register_plugin(world: &World, devices: &[&str]) {
    world.plugins.register(GPU, devices).await.unwrap();
    let all = format!("{0}/{0}", devices.len());
    world.until("the node reports the devices", |w| on_node(w) == all).await;
}

async fn runs(world: &World, name: &str) {
    world.create(&device_pod(name));
    world.until("it is ready", |w| w.is_ready_in_api(name)).await;
}

/// Waits until the pod is rejected; returns the reason.
async fn wait_until_rejected(world: &World, name: &str) -> String {
    world.create(&device_pod(name));
    world.until("it is rejected", |w| w.api_phase(name) == "Failed").await;
    let status = world.api_status(name);
    assert_eq!(status.reason.as_deref(), Some("UnexpectedAdmissionError"), "{status:?}");
    status.message.unwrap_or_default()
}

/// The restart count of the pod's container in the API.
fn restarts(world: &World, name: &str) -> i32 {
    world.api_status(name).container_statuses.unwrap()[0].restart_count
}

fn devices_seen_by(world: &World, name: &str) -> Option<String> {
    let env = world.fake.container_request(name, name)?.env;
    env.into_iter().find(|variable| variable.0 == "DEVICES").map(|variable| variable.1.to_string())
}

#[tokio::test(start_paused = true)]
async fn pod_without_enough_devices_is_rejected_and_holds_none() {
    let world = world_with(&["a"]).await;
    world.plugins.set_allocation_error(GPU, Some("out of order"));
    let why = wait_until_rejected(&world, "first").await;
    assert!(why.contains("rpc error: code = Unknown desc = out of order"), "{why}");
    world.plugins.set_allocation_error(GPU, None);
    runs(&world, "second").await;
    assert_eq!(world.plugins.allocations(GPU), [["a"]]);
    assert_eq!(devices_seen_by(&world, "second").as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn container_starts_only_after_its_devices_are_checkpointed() {
    let world = world_with(&["a"]).await;
    world.host.fault_below(HostMethod::WriteFile, CHECKPOINT, HostFault::Fails);
    let why = wait_until_rejected(&world, "first").await;
    assert!(why.contains("write checkpoint"), "{why}");
    assert!(!world.runs("first/first"));
    world.host.clear_faults();
    runs(&world, "second").await;
    assert!(world.host.text(CHECKPOINT).unwrap().contains("\"DeviceIDs\":{\"-1\":[\"a\"]}"));
}

#[tokio::test(start_paused = true)]
async fn stopped_device_plugin_has_zero_allocatable_and_loses_its_capacity_after_five_minutes() {
    let world = world_with(&["a", "b"]).await;
    runs(&world, "first").await;
    world.plugins.stop_plugin(GPU);
    let gone = world.now();
    world.until("none of the devices is healthy", |w| on_node(w) == "0/2").await;
    world.advance(seconds(290)).await;
    assert_eq!(on_node(&world), "0/2");
    let dropped = world.until("there are no devices", |w| on_node(w) == "0/0").await;
    assert!(dropped - gone >= seconds(300), "{:?}", dropped - gone);
    assert!(world.is_ready_in_api("first"), "a pod with a device keeps it");
}

#[tokio::test(start_paused = true)]
async fn device_allocations_survive_an_agent_restart() {
    let mut world = world_with(&["a"]).await;
    runs(&world, "first").await;
    world.restart().await;
    register_plugin(&world, &["a"]).await;
    wait_until_rejected(&world, "second").await;
    assert!(world.is_ready_in_api("first") && restarts(&world, "first") == 0);
    assert!(world.plugins.allocations(GPU).is_empty(), "the plugin got no second request");
    world.delete("first", None);
    world.until("it is gone", |w| w.in_api("first").is_none()).await;
    runs(&world, "third").await;
}

/// The devices in it are in use.
#[tokio::test(start_paused = true)]
async fn device_checkpoint_that_the_disk_does_not_return_ends_the_start() {
    let mut world = world_with(&["a"]).await;
    runs(&world, "first").await;
    world.crash().await;
    world.host.fault_below(HostMethod::ReadFile, CHECKPOINT, HostFault::Fails);
    let error = world.try_start().await.unwrap_err().to_string();
    assert!(error.contains(CHECKPOINT), "{error}");
    world.start().await;
    register_plugin(&world, &["a"]).await;
    wait_until_rejected(&world, "second").await;
    assert!(world.is_ready_in_api("first") && restarts(&world, "first") == 0);
}

#[tokio::test(start_paused = true)]
async fn lost_device_checkpoint_is_restored_by_a_new_allocation() {
    let mut world = world_with(&["a"]).await;
    runs(&world, "first").await;
    world.crash().await;
    world.host.put(CHECKPOINT, "{");
    world.start().await;
    register_plugin(&world, &["a"]).await;
    assert!(
        world.runs("first/first") && world.plugins.allocations(GPU).is_empty(),
        "running pods keep running"
    );
    assert!(world.fake.end_container("first", "first", 1));
    world.until("it is recreated", |w| restarts(w, "first") == 1 && w.is_ready_in_api("first")).await;
    assert_eq!(world.plugins.allocations(GPU), [["a"]]);
    assert_eq!(devices_seen_by(&world, "first").as_deref(), Some("a"));
}

/// `a Healthy`: the device of the pod's container, by its status in the API.
fn health(world: &World, name: &str) -> String {
    let statuses = world.api_status(name).container_statuses.unwrap_or_default();
    let of_gpu = |status: &model::k8s::ContainerStatus| {
        let resource = status.allocated_resources_status.clone()?.into_iter().find(|one| one.name == GPU)?;
        let device = resource.resources?.into_iter().next()?;
        Some(format!("{} {}", device.resource_id, device.health?))
    };
    statuses.first().and_then(of_gpu).unwrap_or_else(|| "none".to_owned())
}

/// Waits until the API shows this health; returns how long it took.
async fn until_health(world: &World, name: &str, expected: &str) -> std::time::Duration {
    let began = world.now();
    world.until(&format!("{name} has {expected}"), |w| health(w, name) == expected).await - began
}

fn version(world: &World, name: &str) -> Option<String> {
    world.in_api(name)?.metadata.resource_version
}

#[tokio::test(start_paused = true)]
async fn device_health_change_is_reported_at_once_for_the_affected_pod_only() {
    let world = world_with(&["a", "b", "spare"]).await;
    runs(&world, "first").await;
    runs(&world, "second").await;
    assert_eq!((health(&world, "first"), health(&world, "second")), ("a Healthy".into(), "b Healthy".into()));
    // Their first resync reports what their cgroups enforce.
    world.advance(seconds(200)).await;
    let other = version(&world, "second");
    world.plugins.set_devices(GPU, &["a!", "b", "spare!"]);
    // The status is computed again every minute at the earliest without the notification.
    assert!(until_health(&world, "first", "a Unhealthy").await < seconds(1));
    world.advance(seconds(5)).await;
    assert_eq!(version(&world, "second"), other);
    world.plugins.set_devices(GPU, &["a", "b"]);
    assert!(until_health(&world, "first", "a Healthy").await < seconds(1));
    assert!(world.is_ready_in_api("first") && restarts(&world, "first") == 0);

    // A plugin that repeats what it reported, or whose devices change that no pod has, causes no patch.
    let before = (version(&world, "first"), version(&world, "second"));
    for list in [&["a", "b"][..], &["b", "a", "new"], &["a", "b", "new!"]] {
        world.plugins.set_devices(GPU, list);
        world.advance(seconds(70)).await;
    }
    assert_eq!((version(&world, "first"), version(&world, "second")), before);
}

#[tokio::test(start_paused = true)]
async fn device_health_is_unknown_while_its_plugin_is_gone() {
    let mut world = world_with(&["a"]).await;
    runs(&world, "first").await;
    world.plugins.stop_plugin(GPU);
    assert!(until_health(&world, "first", "a Unknown").await < seconds(1));
    world.advance(seconds(400)).await;
    assert_eq!(health(&world, "first"), "a Unknown", "the resource is dropped by now");
    register_plugin(&world, &["a"]).await;
    assert!(until_health(&world, "first", "a Healthy").await < seconds(1));
    world.restart().await;
    until_health(&world, "first", "a Unknown").await;
    register_plugin(&world, &["a"]).await;
    until_health(&world, "first", "a Healthy").await;
    assert_eq!(restarts(&world, "first"), 0);
}

#[tokio::test(start_paused = true)]
async fn pod_that_has_ended_keeps_the_last_health_of_its_device() {
    let world = world_with(&["a"]).await;
    let mut once = device_pod("first").object();
    once.spec.as_mut().unwrap().restart_policy = Some("Never".to_owned());
    world.api().put::<Pod>(&once);
    world.until("it is ready", |w| w.is_ready_in_api("first")).await;
    world.plugins.set_devices(GPU, &["a!"]);
    until_health(&world, "first", "a Unhealthy").await;
    assert!(world.fake.end_container("first", "first", 1));
    world.until("it has failed", |w| w.api_phase("first") == "Failed").await;
    world.plugins.set_devices(GPU, &["a"]);
    runs(&world, "second").await;
    assert_eq!(
        (health(&world, "first"), health(&world, "second")),
        ("a Unhealthy".into(), "a Healthy".into())
    );
}

#[tokio::test(start_paused = true)]
async fn device_health_is_not_reported_without_its_feature_gate() {
    let mut world = World::of_cluster();
    world.features.device_health = false;
    world.start().await;
    world.until("the node is ready", World::is_node_ready).await;
    register_plugin(&world, &["a"]).await;
    runs(&world, "first").await;
    world.plugins.set_devices(GPU, &["a!"]);
    world.until("the node reports it", |w| on_node(w) == "0/1").await;
    world.advance(seconds(120)).await;
    assert_eq!(health(&world, "first"), "none");
}
