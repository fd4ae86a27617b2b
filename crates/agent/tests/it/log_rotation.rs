//! Stories about logs that grow too big: how many are worked on at the same time.

use std::time::Duration;

use testing::Method;

use crate::pods::{container, pod};
use crate::world::{World, seconds};

/// When the runtime was asked to open each of four logs anew, which takes it five seconds.
async fn reopened(workers: usize) -> Vec<Duration> {
    let mut world = World::new();
    world.settings.logs.max_size_bytes = 10;
    world.settings.logs.max_workers = workers;
    world.start().await;
    world.apply(&pod("web", ["a", "b", "c", "d"].map(container)));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    world.fake.latency(Method::ReopenContainerLog, seconds(5));
    for (_, container) in world.fake.containers() {
        world.host.put(&container.log_path, "more than ten bytes");
    }
    world.until("all logs are opened anew", |w| w.fake.count(Method::ReopenContainerLog) == 4).await;
    let mut times: Vec<Duration> = ["a", "b", "c", "d"]
        .iter()
        .flat_map(|name| world.times_of(&format!("ReopenContainerLog web-node/{name}")))
        .collect();
    times.sort();
    assert_eq!(times.len(), 4);
    times
}

#[tokio::test(start_paused = true)]
async fn as_many_logs_are_rotated_at_the_same_time_as_the_configuration_says() {
    let one = reopened(1).await;
    assert!(one.windows(2).all(|pair| pair[1] - pair[0] >= seconds(5)), "{one:?}");
    let three = reopened(3).await;
    assert!(three[2] - three[0] < seconds(1) && three[3] - three[0] >= seconds(5), "{three:?}");
}
