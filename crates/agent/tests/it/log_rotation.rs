//! Scenarios of container logs that exceed their maximum size: how many are rotated at the same time.

use std::time::Duration;

use config::GoDuration;
use fakes::{Fault, Method};
use jiff::tz::{TimeZone, offset};

use crate::pods::{container, pod};
use crate::world::{World, seconds};

/// When the runtime was requested to reopen each of four logs, which takes it five seconds.
async fn reopened(workers: i32) -> Vec<Duration> {
    let mut world = World::new();
    world.config.container_log_max_size = "10".to_owned();
    world.config.container_log_max_workers = workers;
    world.config.container_log_monitor_interval = GoDuration::from_secs(10);
    world.start().await;
    world.apply(&pod("web", ["a", "b", "c", "d"].map(container)));
    world.until("the containers run", |w| w.fake.running().len() == 4).await;
    world.fake.latency(Method::ReopenContainerLog, seconds(5));
    for (_, container) in world.fake.containers() {
        world.host.put(&container.log_path, "more than ten bytes");
    }
    world.until("all logs are opened again", |w| w.fake.count(Method::ReopenContainerLog) == 4).await;
    let mut times: Vec<Duration> = ["a", "b", "c", "d"]
        .iter()
        .flat_map(|name| world.times_of(&format!("ReopenContainerLog web-node/{name}")))
        .collect();
    times.sort();
    assert_eq!(times.len(), 4);
    times
}

#[tokio::test(start_paused = true)]
async fn container_log_max_workers_limits_concurrent_rotations() {
    let one = reopened(1).await;
    assert!(one.windows(2).all(|pair| pair[1] - pair[0] >= seconds(5)), "{one:?}");
    let three = reopened(3).await;
    assert!(three[2] - three[0] < seconds(1) && three[3] - three[0] >= seconds(5), "{three:?}");
}

/// A pod with one container, whose log is on disk.
async fn with_log(mut world: World, content: &str) -> (World, String) {
    world.config.container_log_max_size = "10".to_owned();
    world.start().await;
    world.apply(&pod("web", [container("a")]));
    world.until("the container runs", |w| w.fake.running().len() == 1).await;
    let path = world.fake.containers()[0].1.log_path.clone();
    world.host.put(&path, content);
    (world, path)
}

/// `container_log_manager.go` reopens a missing log file.
#[tokio::test(start_paused = true)]
async fn missing_live_log_file_is_reopened() {
    let mut world = World::new();
    world.config.container_log_monitor_interval = GoDuration::from_secs(10);
    let (world, path) = with_log(world, "short").await;
    world.advance(seconds(30)).await;
    assert_eq!(world.fake.count(Method::ReopenContainerLog), 0);
    world.host.delete(&path);
    world.host.put(format!("{path}.20260101-000000"), "rotated before");
    world.until("the log is reopened", |w| w.fake.count(Method::ReopenContainerLog) > 0).await;
}

/// A kubelet that dies between the rename and the reopen must not cost the container its log.
#[tokio::test(start_paused = true)]
async fn log_is_reopened_after_kubelet_died_between_rename_and_reopen() {
    let mut world = World::new();
    world.config.container_log_monitor_interval = GoDuration::from_secs(10);
    world.settings.time_zone = TimeZone::fixed(offset(5));
    let (mut world, path) = with_log(world, "more than ten bytes").await;
    world.fake.fault(Method::ReopenContainerLog, Fault::Hang);
    world.until("the reopen is in progress", |w| w.fake.count(Method::ReopenContainerLog) == 1).await;
    world.crash().await;
    assert!(!world.host.exists(&path), "the live log was renamed");
    let dir = path.strip_suffix("/0.log").unwrap();
    let rotated = world.host.files_below(dir);
    let [rotated] = rotated.as_slice() else { panic!("{rotated:?}") };
    assert!(rotated.starts_with(&format!("{path}.20260101-05")), "rotated names use local time: {rotated}");
    world.fake.clear_faults();
    world.start().await;
    world.until("the log is reopened", |w| w.fake.count(Method::ReopenContainerLog) == 2).await;
}
