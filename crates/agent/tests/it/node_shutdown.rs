//! Scenarios of graceful node shutdown: the order in which pods end, what is reported, and what delays the shutdown.

use config::ShutdownGracePeriodByPodPriority;
use fakes::{Fault, HostFault, HostMethod, Method, Program};
use serde_json::json;

use crate::pods::{Manifest, container, pod};
use crate::world::{World, seconds};

const MESSAGE: &str = "Pod was terminated in response to imminent node shutdown.";
const DROP_IN: &str = "/etc/systemd/logind.conf.d/99-kubelet.conf";
const STATE: &str = "/var/lib/kubelet/graceful_node_shutdown_state";

/// Normal pods get twenty seconds, critical ones ten more.
pub(crate) fn periods() -> Vec<ShutdownGracePeriodByPodPriority> {
    let period = |(priority, shutdown_grace_period_seconds)| ShutdownGracePeriodByPodPriority {
        priority,
        shutdown_grace_period_seconds,
    };
    [(0, 20), (2_000_000_000, 10)].map(period).into()
}

/// A node of a cluster with graceful node shutdown.
async fn graceful_world() -> World {
    let mut world = World::of_cluster();
    world.config.shutdown_grace_period_by_pod_priority = periods();
    world.start().await;
    world
        .until("the node is ready and inhibits shutdown", |w| w.is_node_ready() && w.shutdown.locks() == 1)
        .await;
    world
}

pub(crate) fn critical(name: &str) -> Manifest {
    pod(name, [container(name)]).spec(json!({"priority": 2_000_001_000}))
}

async fn running(world: &World, pods: &[Manifest]) {
    for pod in pods {
        world.create(pod);
        world.until("it is ready", |w| w.is_ready_in_api(&pod.name)).await;
    }
}

/// `Failed Terminated`.
pub(crate) fn outcome_of(world: &World, name: &str) -> String {
    let status = world.api_status(name);
    format!("{} {}", status.phase.unwrap_or_default(), status.reason.unwrap_or_default())
}

/// `False: node is shutting down`.
fn readiness(world: &World) -> String {
    let ready = world.node_condition("Ready");
    ready.map_or_else(String::new, |c| format!("{}: {}", c.status, c.message.unwrap_or_default()))
}

fn file(world: &World, path: &str) -> String {
    world.host.text(path).unwrap_or_default()
}

async fn metric(world: &World, name: &str) -> u64 {
    let metrics = world.metrics().await;
    let line = metrics.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap_or_default();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn graceful_node_shutdown_ends_pods_by_priority_and_sets_node_not_ready() {
    let world = graceful_world().await;
    world.fake.program("web", Program::runs().ignoring_term());
    world.fake.program("quick", Program::runs().ignoring_term());
    let web = pod("web", [container("web")]);
    let quick = pod("quick", [container("quick")]).spec(json!({"terminationGracePeriodSeconds": 4}));
    running(&world, &[web, quick, critical("driver")]).await;

    let announced = world.now();
    world.shutdown.announce(true);
    let event =
        world.until("the node is not ready", |w| readiness(w) == "False: node is shutting down").await;
    assert!(event - announced < seconds(1), "{:?}", event - announced);
    world.create(&critical("late"));
    world.until("no pod is admitted", |w| outcome_of(w, "late") == "Failed NodeShutdown").await;
    let refusal = "Pod was rejected: Pod was rejected as the node is shutting down.";
    assert_eq!(world.api_status("late").message.as_deref(), Some(refusal));

    let quick_ended =
        world.until("its own grace period is over", |w| outcome_of(w, "quick") == "Failed Terminated").await;
    assert!(world.runs("web/web") && world.runs("driver/driver"), "the other groups have more time");
    let took = quick_ended - announced;
    assert!(took >= seconds(4) && took < seconds(6), "{took:?}");
    let web_ended = world.until("the period of its group is over", |w| !w.runs("web/web")).await;
    let took = web_ended - announced;
    assert!(took >= seconds(20) && took < seconds(22), "no more than the period of its group: {took:?}");
    assert_eq!(world.shutdown.locks(), 1);
    world.until("the critical pod is terminated", |w| outcome_of(w, "driver") == "Failed Terminated").await;
    world.until("the inhibitor is released", |w| w.shutdown.locks() == 0).await;
    assert!(world.now() - web_ended < seconds(5), "nothing is waited for");
    let stop = |title: &str| world.times_of(&format!("StopContainer {title}"))[0];
    assert!(stop("web/web") < announced + seconds(1) && stop("driver/driver") >= announced + seconds(20));

    world.until("its exit is reported", |w| outcome_of(w, "web") == "Failed Terminated").await;
    for name in ["web", "quick", "driver"] {
        let status = world.api_status(name);
        assert_eq!(status.message.as_deref(), Some(MESSAGE), "{name}");
        let why = status.conditions.iter().flatten().find(|c| c.type_ == "DisruptionTarget").unwrap();
        assert_eq!((&*why.status, why.reason.as_deref()), ("True", Some("TerminationByKubelet")));
        assert_eq!(why.message.as_deref(), Some(MESSAGE));
    }
    world.until("the event is reported", |w| !w.api_events("Shutdown").is_empty()).await;
    let event = world.api_events("Shutdown").remove(0);
    assert_eq!(event.message.as_deref(), Some("Shutdown manager detected shutdown event"));
    assert_eq!((event.type_.as_deref(), &*event.involved_object.kind.unwrap()), (Some("Normal"), "Node"));
    assert!(world.api_events("Terminated").is_empty(), "pods have no event of their own");
}

#[tokio::test(start_paused = true)]
async fn graceful_shutdown_times_are_kept_and_exported_after_restart() {
    let mut world = graceful_world().await;
    let zero = "kubelet_graceful_shutdown_end_time_seconds";
    assert_eq!((metric(&world, zero).await, file(&world, STATE)), (0, String::new()));
    world.fake.program("web", Program::runs().stopping(seconds(3), 0));
    running(&world, &[pod("web", [container("web")])]).await;
    let now = |w: &World| u64::try_from(w.clock.now().wall.as_second()).unwrap();
    let announced = now(&world);
    world.shutdown.announce(true);
    let began = r#""endTime":"0001-01-01T00:00:00Z","startTime":"2026-"#;
    world.until("it is written", |w| file(w, STATE).contains(began)).await;
    world.until("it is done", |w| w.shutdown.locks() == 0).await;
    assert_eq!(file(&world, STATE).matches("2026-01-01T00:").count(), 2, "{}", file(&world, STATE));
    world.shutdown.set_ending(false);
    world.restart().await;
    world.until("it was read", |w| w.shutdown.connections() == 2).await;
    let start = metric(&world, "kubelet_graceful_shutdown_start_time_seconds").await;
    let end = metric(&world, zero).await;
    assert!(
        start >= announced && start <= announced + 1 && end >= start + 3 && end <= now(&world),
        "{start} {end}"
    );
}

#[tokio::test(start_paused = true)]
async fn shutdown_priority_group_delays_the_next_at_most_by_its_period() {
    let world = graceful_world().await;
    running(&world, &[pod("web", [container("web")]), critical("driver")]).await;
    world.fake.fault(Method::StopContainer, Fault::Hang);
    let announced = world.now();
    world.shutdown.announce(true);
    let ended = world
        .until("the critical pod is terminated", |w| outcome_of(w, "driver") == "Failed Terminated")
        .await;
    assert!(ended >= announced + seconds(20) && ended < announced + seconds(23), "{:?}", ended - announced);
    let freed = world.until("the inhibitor is released", |w| w.shutdown.locks() == 0).await;
    assert!(freed < announced + seconds(24) && world.runs("web/web"), "{:?}", freed - announced);
}

#[tokio::test(start_paused = true)]
async fn shutdown_inhibitor_is_held_until_volumes_are_unmounted() {
    let world = graceful_world().await;
    let volumes = json!({"volumes": [{"name": "v", "emptyDir": {"medium": "Memory"}}]});
    running(&world, &[pod("web", [container("web")]).spec(volumes)]).await;
    assert_eq!(world.host.mounts().len(), 1);
    for _ in 0..3 {
        world.host.fault(HostMethod::UnmountTree, HostFault::Fails);
    }
    world.shutdown.announce(true);
    let stopped = world.until("nothing runs", |w| w.fake.running().is_empty()).await;
    let freed = world.until("the inhibitor is released", |w| w.shutdown.locks() == 0).await;
    assert!(freed >= stopped + seconds(2) && world.host.mounts().is_empty(), "{:?}", freed - stopped);
}

#[tokio::test(start_paused = true)]
async fn cancelled_node_shutdown_is_reverted() {
    let world = graceful_world().await;
    world.fake.program("web", Program::runs().stopping(seconds(10), 0));
    running(&world, &[pod("web", [container("web")]), critical("driver")]).await;
    world.shutdown.announce(true);
    world.until("the node is not ready", |w| !w.is_node_ready()).await;
    world.advance(seconds(3)).await;
    world.shutdown.announce(false);
    let taken_back = world.now();
    world.until("the node is ready again", World::is_node_ready).await;
    world.until("the next shutdown is inhibited", |w| w.shutdown.locks() == 1).await;
    assert!(world.now() - taken_back < seconds(1), "{:?}", world.now() - taken_back);
    running(&world, &[pod("later", [container("later")])]).await;
    world
        .until("terminating pods continue to terminate", |w| outcome_of(w, "web") == "Failed Terminated")
        .await;
    world.advance(seconds(40)).await;
    assert!(world.is_ready_in_api("driver") && world.is_ready_in_api("later") && world.shutdown.locks() == 1);
    assert!(!file(&world, STATE).contains("0001-"), "it is over: {}", file(&world, STATE));
    let messages: Vec<_> =
        world.api_events("Shutdown").into_iter().filter_map(|event| event.message).collect();
    assert!(messages.contains(&"Shutdown manager detected shutdown cancellation".to_owned()), "{messages:?}");

    world.shutdown.announce(true);
    world.until("the next one counts", |w| outcome_of(w, "driver") == "Failed Terminated").await;
    world.until("the inhibitor is released", |w| w.shutdown.locks() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn shutdown_signal_without_a_state_change_is_ignored() {
    let world = graceful_world().await;
    running(&world, &[pod("web", [container("web")])]).await;
    world.shutdown.hint();
    world.advance(seconds(60)).await;
    assert!(world.is_ready_in_api("web") && world.is_node_ready() && world.recorded("Shutdown") == 0);
    assert_eq!((world.shutdown.locks(), world.shutdown.connections()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn shutdown_announced_while_logind_is_disconnected_is_seen_after_reconnect() {
    let world = graceful_world().await;
    running(&world, &[pod("web", [container("web")])]).await;
    world.shutdown.disconnect(false);
    world.advance(seconds(100)).await;
    let tries = world.shutdown.connections();
    assert!((6..=9).contains(&tries), "the pauses grow: {tries}");
    assert_eq!(world.shutdown.locks(), 1, "the old one still inhibits the shutdown");
    assert!(world.is_node_ready(), "no shutdown is announced");
    world.shutdown.disconnect(true);
    world.until("it is connected again", |w| w.shutdown.connections() > tries).await;
    world.advance(seconds(1)).await;
    assert_eq!(world.shutdown.locks(), 1, "the old one is replaced by the new one");

    world.shutdown.disconnect(true);
    world.shutdown.set_ending(true);
    world.until("the end is seen", |w| outcome_of(w, "web") == "Failed Terminated").await;
    world.until("the inhibitor is released", |w| w.shutdown.locks() == 0).await;
    world.shutdown.disconnect(true);
    world.shutdown.set_ending(false);
    world.until("the absence is seen, too", |w| w.is_node_ready() && w.shutdown.locks() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn logind_connection_lost_during_shutdown_does_not_stop_it() {
    let world = graceful_world().await;
    world.fake.program("web", Program::runs().stopping(seconds(15), 0));
    running(&world, &[pod("web", [container("web")]), critical("driver")]).await;
    world.shutdown.announce(true);
    world.until("the node is not ready", |w| !w.is_node_ready()).await;
    world.shutdown.disconnect(false);
    world.until("all end", |w| outcome_of(w, "driver") == "Failed Terminated").await;
    world.until("the inhibitor is released", |w| w.shutdown.locks() == 0).await;
    world.advance(seconds(20)).await;
    assert_eq!(readiness(&world), "False: node is shutting down");
    assert_eq!(world.recorded("Shutdown"), 1);
}

#[tokio::test(start_paused = true)]
async fn logind_inhibit_delay_is_raised_to_the_grace_period() {
    let world = graceful_world().await;
    assert!(file(&world, DROP_IN).ends_with("[Login]\nInhibitDelayMaxSec=30\n"), "{}", file(&world, DROP_IN));
    assert_eq!(world.shutdown.reloads(), 1);

    let mut slow = World::of_cluster();
    slow.config.shutdown_grace_period_by_pod_priority = periods();
    // The agent needs a moment to read it.
    slow.shutdown.set_delay_after_reload(3, seconds(30));
    slow.start().await;
    slow.until("the shutdown is inhibited", |w| w.shutdown.locks() == 1).await;
    assert_eq!((slow.shutdown.reloads(), slow.shutdown.connections()), (1, 1));

    let mut outranked = World::of_cluster();
    outranked.config.shutdown_grace_period_by_pod_priority = periods();
    outranked.shutdown.set_delay_after_reload(0, seconds(29));
    outranked.start().await;
    outranked.advance(seconds(30)).await;
    assert!(outranked.shutdown.locks() == 0 && outranked.is_node_ready(), "the node works without it");
    outranked.shutdown.set_delay_after_reload(0, seconds(30));
    outranked.until("an operator has corrected it", |w| w.shutdown.locks() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn static_pod_ended_by_node_shutdown_runs_again_after_boot() {
    let mut world = World::new();
    world.config.shutdown_grace_period_by_pod_priority = periods();
    world.start().await;
    world.until("the shutdown is inhibited", |w| w.shutdown.locks() == 1).await;
    world.apply(&pod("web", [container("app")]));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    world.shutdown.announce(true);
    world.until("the inhibitor is released", |w| w.shutdown.locks() == 0).await;
    assert_eq!(world.phase("web").as_deref(), Some("Failed"));
    world.apply(&pod("late", [container("app")]));
    world.until("no pod is admitted", |w| w.phase("late").as_deref() == Some("Failed")).await;
    world.advance(seconds(10)).await;
    assert!(world.fake.running().is_empty(), "{:?}", world.fake.running());
    let event = world.agent.as_ref().unwrap().recorder().latest();
    let event = event.iter().rfind(|event| event.reason == "NodeNotReady").unwrap();
    assert_eq!(event.message, "node is shutting down", "a standalone node reports it nowhere else");
    world.crash().await;
    world.shutdown.set_ending(false);
    world.start().await;
    world.until("both run", |w| w.is_ready("web") && w.is_ready("late")).await;
}

#[tokio::test(start_paused = true)]
async fn zero_shutdown_grace_period_takes_no_inhibitor() {
    let world = World::joined().await;
    world.shutdown.announce(true);
    world.advance(seconds(120)).await;
    assert!(world.is_node_ready() && world.shutdown.connections() == 0);
    assert_eq!(file(&world, DROP_IN), "");
}
