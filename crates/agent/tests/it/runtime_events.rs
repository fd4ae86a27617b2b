//! Scenarios of runtimes that send container events: an event causes an inspection at once, and is never required.

use std::time::Duration;

use config::Features;
use fakes::{Fault, Method};

use crate::pods::{container, pod};
use crate::world::{World, seconds};

/// How long after the exit of its container the pod's restart begins.
async fn exit_detection_time(world: &World) -> Duration {
    let restarts = world.restarts("web", "app");
    let began = world.now();
    world.fake.end_container("web-node", "app", 1);
    let noticed = world.until("the exit is noticed", |w| w.restarts("web", "app") > restarts).await;
    noticed - began
}

async fn start_running_pod(world: &World) {
    world.apply(&pod("web", [container("app")]));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    // Right after a relist, so that the next one is nearly a second away.
    let relists = world.fake.count(Method::ListPodSandbox);
    world.until("there is a relist", |w| w.fake.count(Method::ListPodSandbox) > relists).await;
}

#[tokio::test(start_paused = true)]
async fn container_exit_event_is_seen_before_the_next_relist() {
    let mut world = World::new();
    world.fake.offer_hints();
    world.start().await;
    start_running_pod(&world).await;
    let took = exit_detection_time(&world).await;
    assert!(took < Duration::from_millis(200), "took {took:?}");
}

#[tokio::test(start_paused = true)]
async fn runtime_without_events_is_relisted_every_second() {
    let world = World::started().await;
    start_running_pod(&world).await;
    let took = exit_detection_time(&world).await;
    assert!(took > Duration::from_millis(500) && took < seconds(2), "took {took:?}");
}

#[tokio::test(start_paused = true)]
async fn lost_event_stream_loses_no_event_and_is_reopened() {
    let mut world = World::new();
    world.fake.offer_hints();
    world.start().await;
    start_running_pod(&world).await;
    let before = world.fake.count(Method::GetContainerEvents);
    world.fake.set_down(true);
    // No event reports this exit.
    world.fake.end_container("web-node", "app", 1);
    world.advance(seconds(10)).await;
    world.fake.set_down(false);
    let back = world.now();
    let noticed = world.until("the exit is noticed", |w| w.restarts("web", "app") == 1).await;
    assert!(noticed - back < seconds(3), "the list reports it: {:?}", noticed - back);
    world
        .until("the event stream is requested again", |w| w.fake.count(Method::GetContainerEvents) > before)
        .await;
    world.advance(seconds(30)).await;
    let relists = world.fake.count(Method::ListPodSandbox);
    world.until("there is a relist", |w| w.fake.count(Method::ListPodSandbox) > relists).await;
    let before = world.now();
    world.fake.end_container("web-node", "app", 1);
    let seen = world
        .until("the second end is seen", |w| {
            w.container("web", "app").and_then(|c| c.state).is_some_and(|s| s.running.is_none())
        })
        .await;
    assert!(seen - before < Duration::from_millis(200), "took {:?}", seen - before);
}

/// How often the runtime is relisted in four minutes of a pod that just runs.
async fn relists(features: Features) -> u64 {
    let mut world = World::new();
    world.features = features;
    world.fake.offer_hints();
    world.start().await;
    start_running_pod(&world).await;
    let before = world.fake.count(Method::ListPodSandbox);
    world.advance(seconds(240)).await;
    let count = world.fake.count(Method::ListPodSandbox) - before;
    let took = exit_detection_time(&world).await;
    assert!(took < Duration::from_millis(200), "took {took:?}");
    count
}

#[tokio::test(start_paused = true)]
async fn node_without_pods_is_relisted_every_ten_seconds_and_its_first_pod_starts_at_once() {
    let world = World::started().await;
    world.advance(seconds(20)).await;
    let relists = || world.fake.count(Method::ListPodSandbox);
    let before = relists();
    world.advance(seconds(60)).await;
    let count = relists() - before;
    assert!((5..=7).contains(&count), "{count} in a minute");
    // Right after a relist, so that the next one would be nearly ten seconds away.
    world.until("there is a relist", |_| relists() > before + count).await;
    let began = world.now();
    world.apply(&pod("web", [container("app")]));
    let ready = world.until("the pod is ready", |w| w.is_ready("web")).await;
    assert!(ready - began < seconds(1), "{:?}", ready - began);
    let took = exit_detection_time(&world).await;
    assert!(took < seconds(2), "took {took:?}");
    // When the last pod is gone, there is nothing to list often again.
    world.remove("web");
    world.until("the runtime has nothing of it", |w| w.fake.sandboxes().is_empty()).await;
    world.advance(seconds(10)).await;
    let before = relists();
    world.advance(seconds(60)).await;
    assert!(relists() - before <= 7, "{} in a minute", relists() - before);
}

#[tokio::test(start_paused = true)]
async fn evented_pleg_relists_a_runtime_with_events_rarely() {
    assert!(relists(Features::default()).await > 200);
    // The pod is inspected again now and then.
    assert!(relists(Features { evented_pleg: true, ..Features::default() }).await < 20);
}

async fn with_evented_pleg() -> World {
    let mut world = World::new();
    world.features.evented_pleg = true;
    world.fake.offer_hints();
    world.start().await;
    world
}

#[tokio::test(start_paused = true)]
async fn evented_pleg_relists_again_after_a_lost_stream() {
    let world = with_evented_pleg().await;
    start_running_pod(&world).await;
    world.fake.set_down(true);
    world.fake.end_container("web-node", "app", 1);
    world.advance(seconds(10)).await;
    world.fake.set_down(false);
    let back = world.now();
    let noticed = world.until("the exit is noticed", |w| w.restarts("web", "app") == 1).await;
    assert!(noticed - back < seconds(3), "{:?}", noticed - back);
}

#[tokio::test(start_paused = true)]
async fn evented_pleg_repeats_a_failed_relist_after_a_second() {
    let world = with_evented_pleg().await;
    // Without a pod whose failed inspection would be repeated, too.
    world.advance(seconds(30)).await;
    let relists = relist_count(&world).await;
    // The next relist is at most five minutes away.
    world.fake.fault_always(Method::ListPodSandbox, Some(Fault::Unavailable));
    world.advance(seconds(330)).await;
    let count = relist_count(&world).await - relists;
    assert!(count >= 25.0, "{count}");
}

/// How often the pod lifecycle event generator has listed the runtime, or tried to.
async fn relist_count(world: &World) -> f64 {
    const NAME: &str = "kubelet_pleg_relist_duration_seconds_count ";
    let metrics = world.metrics().await;
    let value = metrics.lines().find_map(|line| line.strip_prefix(NAME)).unwrap();
    value.parse().unwrap()
}

/// The time from the manifest to a ready pod.
async fn start_duration(features: Features) -> Duration {
    let mut world = World::new();
    world.features = features;
    world.start().await;
    world.advance(seconds(5)).await;
    world.apply(&pod("web", [container("app")]));
    let began = world.now();
    world.until("the pod is ready", |w| w.is_ready("web")).await - began
}

#[tokio::test(start_paused = true)]
async fn pleg_without_on_demand_relist_waits_for_the_next_relist() {
    let on_demand = start_duration(Features::default()).await;
    let listed = start_duration(Features { on_demand_relist: false, ..Features::default() }).await;
    assert!(on_demand < seconds(1), "{on_demand:?}");
    assert!(listed > seconds(1) && listed < seconds(6), "{listed:?}");
}
