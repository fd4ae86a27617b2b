//! Stories about runtimes that tell of events: what they tell is worth a look at once, and never needed.

use std::time::Duration;

use testing::Method;

use crate::pods::{container, pod};
use crate::world::{World, seconds};

/// How long after the end of its container the pod's restart begins.
async fn notices_an_end_after(world: &World) -> Duration {
    let restarts = world.restarts("web", "app");
    let began = world.now();
    world.fake.end_container("web-node", "app", 1);
    let noticed = world.until("the end is noticed", |w| w.restarts("web", "app") > restarts).await;
    noticed - began
}

async fn a_running_pod(world: &World) {
    world.apply(&pod("web", [container("app")]));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    // Right after a listing, so that the next one is nearly a second away.
    let listings = world.fake.count(Method::ListPodSandbox);
    world.until("there is a listing", |w| w.fake.count(Method::ListPodSandbox) > listings).await;
}

#[tokio::test(start_paused = true)]
async fn an_end_that_the_runtime_tells_of_is_noticed_before_the_next_listing() {
    let mut world = World::new();
    world.fake.offer_hints();
    world.start().await;
    a_running_pod(&world).await;
    let took = notices_an_end_after(&world).await;
    assert!(took < Duration::from_millis(200), "took {took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_tells_nothing_is_listed_every_second() {
    let world = World::started().await;
    a_running_pod(&world).await;
    let took = notices_an_end_after(&world).await;
    assert!(took > Duration::from_millis(500) && took < seconds(2), "took {took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lost_stream_costs_no_event_and_is_opened_anew() {
    let mut world = World::new();
    world.fake.offer_hints();
    world.start().await;
    a_running_pod(&world).await;
    let asked = world.fake.count(Method::GetContainerEvents);
    world.fake.set_down(true);
    // Nobody hears of this end.
    world.fake.end_container("web-node", "app", 1);
    world.pass(seconds(10)).await;
    world.fake.set_down(false);
    let back = world.now();
    let noticed = world.until("the end is noticed", |w| w.restarts("web", "app") == 1).await;
    assert!(noticed - back < seconds(3), "the listing tells it: {:?}", noticed - back);
    world.until("hints are asked for again", |w| w.fake.count(Method::GetContainerEvents) > asked).await;
    world.pass(seconds(30)).await;
    let listings = world.fake.count(Method::ListPodSandbox);
    world.until("there is a listing", |w| w.fake.count(Method::ListPodSandbox) > listings).await;
    let before = world.now();
    world.fake.end_container("web-node", "app", 1);
    let seen = world
        .until("the second end is seen", |w| {
            w.container("web", "app").and_then(|c| c.state).is_some_and(|s| s.running.is_none())
        })
        .await;
    assert!(seen - before < Duration::from_millis(200), "took {:?}", seen - before);
}
