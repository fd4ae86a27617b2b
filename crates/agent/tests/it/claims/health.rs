//! Scenarios of the health of devices of drivers: reported, changed, too old, and lost with its stream; kept over a restart of the kubelet.

use std::time::Duration;

use fakes::FakeDraDriver;
use model::devices::DeviceHealth;
use model::k8s::ContainerStatus;

use super::{DRIVER, ENDPOINT, SOCKET, offer, running, with_driver};
use crate::world::{World, seconds};

const STATE: &str = "/var/lib/kubelet/dra_health_state";

/// `Healthy`, or `Unhealthy hot`: the device of the claim of the pod's container, by its status in the API.
fn health(world: &World, name: &str) -> String {
    let statuses = world.api_status(name).container_statuses.unwrap_or_default();
    let of_claim = |status: &ContainerStatus| {
        let all = status.allocated_resources_status.clone()?;
        let device = all.into_iter().find(|one| one.name == "claim:gpu")?.resources?.into_iter().next()?;
        assert!(device.resource_id.starts_with("example.com/gpu="), "{}", device.resource_id);
        let text = format!("{} {}", device.health?, device.message.unwrap_or_default());
        Some(text.trim_end().to_owned())
    };
    statuses.first().and_then(of_claim).unwrap_or_else(|| "none".to_owned())
}

/// Waits until the API shows this health; returns how long it took.
async fn until_health(world: &World, name: &str, expected: &str) -> Duration {
    let began = world.now();
    world.until(&format!("{name} has {expected}"), |w| health(w, name) == expected).await - began
}

fn is_healthy(driver: &FakeDraDriver) {
    driver.report_health(DeviceHealth::Healthy, "", Some(seconds(3600)));
}

fn is_unhealthy(driver: &FakeDraDriver, message: &str) {
    driver.report_health(DeviceHealth::Unhealthy, message, Some(seconds(3600)));
}

fn restarts(world: &World, name: &str) -> i32 {
    let statuses = world.api_status(name).container_statuses.unwrap_or_default();
    statuses.iter().map(|status| status.restart_count).sum()
}

fn version(world: &World, name: &str) -> Option<String> {
    world.in_api(name)?.metadata.resource_version
}

#[tokio::test(start_paused = true)]
async fn claim_device_health_change_is_reported_within_a_second_with_its_message() {
    let (world, driver) = with_driver().await;
    running(&world, "gpu").await;
    until_health(&world, "gpu", "Unknown").await;
    is_healthy(&driver);
    // The next try of the stream.
    until_health(&world, "gpu", "Healthy").await;
    // Its first resync reports what its cgroup enforces.
    world.advance(seconds(200)).await;
    is_unhealthy(&driver, "hot");
    assert!(until_health(&world, "gpu", "Unhealthy hot").await < seconds(1));
    is_unhealthy(&driver, "on fire");
    assert!(until_health(&world, "gpu", "Unhealthy on fire").await < seconds(1));
    // What changes nothing causes no patch.
    let before = version(&world, "gpu");
    for _ in 0..3 {
        is_unhealthy(&driver, "on fire");
        world.advance(seconds(70)).await;
    }
    assert_eq!(version(&world, "gpu"), before);
    assert_eq!(restarts(&world, "gpu"), 0);
}

#[tokio::test(start_paused = true)]
async fn claim_device_health_is_unknown_when_it_is_too_old_or_its_stream_has_ended() {
    let (world, driver) = with_driver().await;
    driver.report_health(DeviceHealth::Healthy, "fine", None);
    running(&world, "gpu").await;
    let took = until_health(&world, "gpu", "Unknown").await;
    assert!(took <= seconds(32), "{took:?}: thirty seconds without a report");
    driver.report_health(DeviceHealth::Healthy, "fine", None);
    assert!(until_health(&world, "gpu", "Healthy fine").await < seconds(1));
    driver.end_health();
    assert!(until_health(&world, "gpu", "Unknown").await < seconds(1));
    world.advance(seconds(300)).await;
    is_unhealthy(&driver, "hot");
    assert!(until_health(&world, "gpu", "Unhealthy hot").await <= seconds(32), "tried again");
    // The driver dies, and is deregistered.
    driver.set_running(false);
    until_health(&world, "gpu", "Unknown").await;
    world.host.delete(SOCKET);
    world.advance(seconds(60)).await;
    assert_eq!(driver.health_streams(), 0);
    driver.set_running(true);
    offer(&world, &driver, ENDPOINT, SOCKET);
    until_health(&world, "gpu", "Unhealthy hot").await;
    assert_eq!(driver.health_streams(), 1);
}

#[tokio::test(start_paused = true)]
async fn claim_device_health_survives_a_kubelet_kill_in_its_file() {
    let (mut world, driver) = with_driver().await;
    is_unhealthy(&driver, "hot");
    running(&world, "gpu").await;
    until_health(&world, "gpu", "Unhealthy hot").await;
    world.crash().await;
    let state = world.host.text(STATE).unwrap_or_default();
    let beginning = format!(r#"{{"{DRIVER}":{{"Devices":{{"node/device-0":{{"PoolName":"node","#);
    assert!(state.starts_with(&beginning) && state.contains(r#""Message":"hot""#), "{state}");
    driver.set_running(false);
    world.start().await;
    world.advance(seconds(100)).await;
    assert_eq!(health(&world, "gpu"), "Unhealthy hot", "as in the file, while the driver is away");
    driver.set_running(true);
    is_healthy(&driver);
    until_health(&world, "gpu", "Healthy").await;

    // A damaged file costs only itself.
    world.crash().await;
    world.host.put(STATE, "{");
    driver.set_running(false);
    world.start().await;
    until_health(&world, "gpu", "Unknown").await;
    assert_eq!(world.host.text(format!("{STATE}.damaged")).as_deref(), Some("{"));
    assert!(world.is_ready_in_api("gpu") && restarts(&world, "gpu") == 0);
    driver.set_running(true);
    until_health(&world, "gpu", "Healthy").await;
    assert_eq!(driver.calls(), ["prepare gpu"]);
}

#[tokio::test(start_paused = true)]
async fn driver_that_is_replaced_keeps_the_health_of_its_devices() {
    let (world, old) = with_driver().await;
    is_unhealthy(&old, "old");
    running(&world, "gpu").await;
    until_health(&world, "gpu", "Unhealthy old").await;
    let new = FakeDraDriver::new(super::CLASS);
    is_unhealthy(&new, "new");
    offer(&world, &new, "/opt/new.sock", "/var/lib/kubelet/plugins_registry/new-reg.sock");
    until_health(&world, "gpu", "Unhealthy new").await;
    let before = version(&world, "gpu");
    world.host.delete(SOCKET);
    world.advance(seconds(10)).await;
    assert_eq!((old.health_streams(), new.health_streams()), (0, 1));
    assert_eq!((health(&world, "gpu"), version(&world, "gpu")), ("Unhealthy new".into(), before));
}

#[tokio::test(start_paused = true)]
async fn claim_device_health_follows_its_feature_gates() {
    let mut world = World::of_cluster();
    world.features.device_health_messages = false;
    world.start().await;
    let driver = FakeDraDriver::new(super::CLASS);
    is_unhealthy(&driver, "hot");
    offer(&world, &driver, ENDPOINT, SOCKET);
    world.until("the driver is registered", |w| w.plugins.notified(SOCKET) == [Ok(())]).await;
    running(&world, "gpu").await;
    until_health(&world, "gpu", "Unhealthy").await;
    world.features.device_health = false;
    world.restart().await;
    world.advance(seconds(100)).await;
    assert_eq!((health(&world, "gpu").as_str(), driver.health_streams()), ("none", 0));
}
