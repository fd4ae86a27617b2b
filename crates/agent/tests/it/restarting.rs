//! Stories about agents that are restarted and runtimes that go away.

use ports::net::GrpcHealth;
use testing::{Fault, Method, Program, Service};

use crate::pods::{container, pod};
use crate::world::{World, seconds};

const URL_PORT: u16 = 8080;

#[tokio::test(start_paused = true)]
async fn a_restarted_agent_leaves_running_pods_alone() {
    let mut world = World::started().await;
    world.fake.program("init", Program::exits(0, seconds(1)));
    world.apply(&pod("web", [container("app"), container("side")]).init([container("init")]));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    world.fake.forget_calls();
    for _ in 0..3 {
        world.restart().await;
        world.until("the pod is ready", |w| w.is_ready("web")).await;
        world.pass(seconds(100)).await;
    }
    assert_eq!(world.fake.call_lines(), Vec::<String>::new());
    assert_eq!(world.restarts("web", "app"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_pod_removed_while_the_agent_was_down_goes_when_it_is_back() {
    let mut world = World::started().await;
    world.apply(&pod("web", [container("app")]));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    world.crash().await;
    world.remove("web");
    world.pass(seconds(60)).await;
    assert!(world.runs("web-node/app"), "containers outlive the agent");
    world.start().await;
    world.until("nothing is left", |w| w.traces().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn an_orphan_is_only_taken_down_once_every_source_has_reported() {
    let mut world = World::started().await;
    world.apply(&pod("web", [container("app")]));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    world.crash().await;
    world.remove("web");
    world.settings.sources.manifest_url = Some(format!("http://manifests:{URL_PORT}/all"));
    world.net.serve(URL_PORT, Service::Grpc(GrpcHealth::Serving));
    world.start().await;
    world.pass(seconds(120)).await;
    assert!(world.runs("web-node/app"), "the other source might still want it");
    world.net.serve(URL_PORT, Service::Http { status: 200, body: pod("other", [container("app")]).text() });
    world.until("the orphan is gone", |w| !w.traces().iter().any(|t| t.contains("web-node"))).await;
    world.until("the other source's pod runs", |w| w.runs("other-node/app")).await;
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_is_down_for_five_minutes_costs_no_container() {
    let world = World::started().await;
    world.apply(&pod("web", [container("app")]));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    world.fake.forget_calls();
    world.fake.set_down(true);
    world.apply(&pod("late", [container("app")]));
    world.pass(seconds(300)).await;
    assert_eq!(world.fake.running(), ["web-node/app"]);
    assert!(world.is_ready("web"));
    world.fake.set_down(false);
    let back = world.now();
    let ready = world.until("the late one is ready", |w| w.is_ready("late")).await;
    assert!(ready < back + seconds(5), "it took {:?}", ready - back);
    assert_eq!(world.restarts("web", "app"), 0);
    assert!(world.times_of("StopContainer web-node/app").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_pod_removed_while_the_runtime_is_down_goes_when_it_is_back() {
    let world = World::started().await;
    world.apply(&pod("web", [container("app")]));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    world.fake.set_down(true);
    world.remove("web");
    world.pass(seconds(300)).await;
    assert!(world.runs("web-node/app"));
    world.fake.set_down(false);
    let back = world.now();
    let gone = world.until("nothing is left", |w| w.traces().is_empty()).await;
    assert!(gone < back + seconds(20), "it took {:?}", gone - back);
}

#[tokio::test(start_paused = true)]
async fn a_dead_sandbox_is_replaced() {
    let world = World::started().await;
    world.fake.program("init", Program::exits(0, seconds(1)));
    world.apply(&pod("web", [container("app")]).init([container("init")]));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    world.fake.kill_sandboxes("web-node");
    world.until("a new one is there", |w| w.times_of("RunPodSandbox web-node#1").len() == 1).await;
    world.until("the pod is ready again", |w| w.runs("web-node/app") && w.is_ready("web")).await;
    assert_eq!(world.restarts("web", "app"), 1);
}

#[tokio::test(start_paused = true)]
async fn an_agent_killed_between_create_and_start_starts_what_it_had_created() {
    let mut world = World::started().await;
    world.fake.fault(Method::StartContainer, Fault::Hang);
    world.apply(&pod("web", [container("app")]));
    world.until("the start hangs", |w| w.fake.count(Method::StartContainer) == 1).await;
    world.restart().await;
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    assert_eq!(world.times_of("CreateContainer web-node/app").len(), 1);
    assert_eq!(world.fake.containers().len(), 1);
}
