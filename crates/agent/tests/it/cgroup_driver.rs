//! Scenarios of the cgroup driver: whether the runtime or the configuration sets it, and that no pod waits for it.

use fakes::{Fault, Method};
use model::CgroupDriver;
use model::cgroup::UnitValue;

use crate::pods::{container, pod};
use crate::world::{World, seconds};

const LOSING: &str = "kubelet_cri_losing_support{version=\"1.37.0\"} 1";

fn driver(world: &World) -> Option<CgroupDriver> {
    world.agent.as_ref()?.cgroup_driver()
}

#[tokio::test(start_paused = true)]
async fn cgroup_driver_of_the_runtime_overrides_the_configured_one() {
    let mut world = World::new();
    world.fake.set_cgroup_driver(CgroupDriver::Systemd);
    world.start().await;
    world.until("the cgroup driver is known", |w| driver(w) == Some(CgroupDriver::Systemd)).await;
    assert!(!world.metrics().await.contains("kubelet_cri_losing_support"));
    world.advance(seconds(60)).await;
    assert_eq!(world.fake.count(Method::RuntimeConfig), 1, "requested once");
}

#[tokio::test(start_paused = true)]
async fn slice_of_all_pods_is_allowed_all_cpus_without_exclusive_cpus() {
    for (policy, expected) in [("none", Some(UnitValue::Bits(vec![0b1111]))), ("static", None)] {
        let mut world = World::new();
        world.cgroup_v2 = true;
        world.config.cpu_manager_policy = policy.to_owned();
        world.config.kube_reserved = [("cpu".to_owned(), "1".to_owned())].into();
        world.fake.set_cgroup_driver(CgroupDriver::Systemd);
        world.start().await;
        world.until("the cgroup driver is known", |w| driver(w) == Some(CgroupDriver::Systemd)).await;
        world.advance(seconds(1)).await;
        assert_eq!(world.cgroups.property("/kubepods.slice", "AllowedCPUs"), expected, "{policy}");
    }
}

#[tokio::test(start_paused = true)]
async fn old_runtime_uses_the_configured_cgroup_driver_without_delay() {
    let mut world = World::new();
    world.config.cgroup_driver = "systemd".to_owned();
    world.fake.fault_always(Method::RuntimeConfig, Some(Fault::Unimplemented));
    world.apply(&pod("web", [container("app")]));
    world.start().await;
    let known = world.until("the cgroup driver is known", |w| driver(w) == Some(CgroupDriver::Systemd)).await;
    assert!(known < seconds(1), "{known:?}");
    let metrics = world.metrics().await;
    assert!(metrics.contains(LOSING), "{metrics}");
    let runs = world.until("the container runs", |w| w.runs("web-node/app")).await;
    assert!(runs < seconds(2), "{runs:?}");
    world.advance(seconds(60)).await;
    assert_eq!(world.fake.count(Method::RuntimeConfig), 1, "requested once");
}

#[tokio::test(start_paused = true)]
async fn cgroup_driver_is_requested_until_a_late_runtime_answers() {
    let mut world = World::new();
    world.fake.set_cgroup_driver(CgroupDriver::Systemd).set_down(true);
    world.start().await;
    world.advance(seconds(61)).await;
    assert_eq!(driver(&world), None, "no observation has been made yet");
    let requests = world.fake.count(Method::RuntimeConfig);
    assert!((30..=31).contains(&requests), "requested {requests} times in a minute");
    world.fake.set_down(false);
    world.until("the cgroup driver is known", |w| driver(w) == Some(CgroupDriver::Systemd)).await;
}

/// A runtime answers with errors while it starts. Another driver than its own would give every pod another cgroup.
#[tokio::test(start_paused = true)]
async fn cgroup_driver_is_requested_with_back_off_while_the_runtime_returns_errors() {
    let mut world = World::of_cluster();
    world.fake.set_cgroup_driver(CgroupDriver::Systemd);
    world
        .fake
        .fault_always(Method::RuntimeConfig, Some(Fault::Failed("server is not initialized yet".to_owned())));
    world.start().await;
    world.advance(seconds(120)).await;
    assert_eq!(driver(&world), None, "the configured driver is no answer");
    let requests = world.fake.count(Method::RuntimeConfig);
    assert!((9..=10).contains(&requests), "requested {requests} times in two minutes");
    let message = world.node_condition("Ready").unwrap().message.unwrap_or_default();
    let expected = "cgroup driver of the container runtime is not known: ";
    assert!(message.contains(expected) && message.contains("server is not initialized yet"), "{message}");
    world.fake.fault_always(Method::RuntimeConfig, None);
    let answers = world.now();
    let known = world.until("the cgroup driver is known", |w| driver(w) == Some(CgroupDriver::Systemd)).await;
    assert!(known - answers <= seconds(16), "{:?}", known - answers);
    world.until("the node is ready", World::is_node_ready).await;
    assert!(!world.metrics().await.contains("kubelet_cri_losing_support"), "it is not old, but damaged");
}
