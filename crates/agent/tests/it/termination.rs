//! Scenarios of pods that end.

use std::time::Duration;

use fakes::{Fault, Method, Program, Service};
use serde_json::json;

use crate::pods::{container, container_with, pod};
use crate::world::{POD_LOGS, PODS, World, seconds};

#[tokio::test(start_paused = true)]
async fn removed_pod_leaves_no_resources() {
    let world = World::started().await;
    world.apply(&pod("web", [container("app"), container("side")]).init([container("init")]));
    world.fake.program("init", Program::exits(0, seconds(1)));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    assert!(!world.host.files_below(PODS).is_empty() && !world.host.files_below(POD_LOGS).is_empty());
    world.remove("web");
    world.until("nothing is left", |w| w.traces().is_empty() && w.status("web").is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn pod_gets_exactly_its_grace_period() {
    let world = World::started().await;
    world.fake.program("app", Program::runs().ignoring_term());
    world.apply(&pod("web", [container("app")]).spec(json!({"terminationGracePeriodSeconds": 7})));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    world.remove("web");
    let removed = world.now();
    let ended = world.until("nothing runs", |w| w.fake.running().is_empty()).await;
    let took = ended - removed;
    assert!(took >= seconds(7) && took < seconds(10), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn pre_stop_hook_counts_towards_the_grace_period() {
    let world = World::started().await;
    world.fake.program("app", Program::runs().ignoring_term());
    let hook = json!({"lifecycle": {"preStop": {"sleep": {"seconds": 5}}}});
    let manifest =
        pod("web", [container_with("app", hook)]).spec(json!({"terminationGracePeriodSeconds": 9}));
    world.apply(&manifest);
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    world.remove("web");
    let removed = world.now();
    let ended = world.until("nothing runs", |w| w.fake.running().is_empty()).await;
    let took = ended - removed;
    assert!(took >= seconds(9) && took < seconds(12), "{took:?}");
    let stop = world.times_of("StopContainer web-node/app")[0];
    assert!(stop >= removed + seconds(5) && stop < removed + seconds(7), "SIGTERM was sent at {stop:?}");
}

#[tokio::test(start_paused = true)]
async fn pre_stop_sleep_cut_short_by_the_grace_period_is_counted() {
    let world = World::started().await;
    let cut = async |w: &World| {
        let metrics = w.metrics().await;
        let line = metrics.lines().find(|l| l.starts_with("kubelet_sleep_action_terminated_early_total "));
        line.unwrap().rsplit(' ').next().unwrap().to_owned()
    };
    let sleeper = json!({
        "lifecycle": {"preStop": {"sleep": {"seconds": 5}}},
        "livenessProbe": {"tcpSocket": {"port": 80}, "periodSeconds": 5, "failureThreshold": 1,
            "terminationGracePeriodSeconds": 2},
    });
    world.net.serve(80, Service::Silent);
    world.apply(&pod("web", [container_with("app", sleeper)]));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    assert_eq!(cut(&world).await, "0");
    world.net.close(80);
    world.until("it was restarted", |w| w.restarts("web", "app") == 1).await;
    assert_eq!(cut(&world).await, "1");
    world.net.serve(80, Service::Silent);
    world.remove("web");
    world.until("nothing is left", |w| w.traces().is_empty()).await;
    assert_eq!(cut(&world).await, "1", "the pod's own grace period is long enough");
}

#[tokio::test(start_paused = true)]
async fn deletion_during_an_image_pull_ends_the_pod_at_once() {
    let world = World::started().await;
    world.fake.fault(Method::PullImage, Fault::Hang);
    world.apply(&pod("web", [container("app")]));
    world.until("the pull has begun", |w| w.fake.count(Method::PullImage) == 1).await;
    world.advance(seconds(30)).await;
    world.remove("web");
    let removed = world.now();
    let gone = world.until("nothing is left", |w| w.traces().is_empty()).await;
    assert!(gone < removed + seconds(5), "it took {:?}", gone - removed);
}

#[tokio::test(start_paused = true)]
async fn static_pod_with_a_reused_name_waits_for_its_predecessor() {
    let world = World::started().await;
    world.fake.program("app", Program::runs().ignoring_term());
    let grace = json!({"terminationGracePeriodSeconds": 20});
    world.apply(&pod("web", [container("app")]).spec(grace.clone()));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    let changed = world.now();
    world.apply(&pod("web", [container("app"), container("more")]).spec(grace));
    world.until("the new pod runs", |w| w.runs("web-node/more")).await;
    let sandboxes = world.times_of("RunPodSandbox web-node");
    assert_eq!(sandboxes.len(), 2);
    assert!(sandboxes[1] >= changed + seconds(20), "the new one started at {:?}", sandboxes[1]);
    assert_eq!(world.fake.double_starts(), Vec::<String>::new());
    world.until("one sandbox is left", |w| w.fake.sandboxes().len() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn succeeded_pod_is_not_restarted() {
    let world = World::started().await;
    world.fake.program("app", Program::exits(0, seconds(5)));
    world.apply(&pod("job", [container("app")]).restart_policy("Never"));
    world.until("it succeeded", |w| w.phase("job").as_deref() == Some("Succeeded")).await;
    world.until("its sandbox is stopped", |w| w.fake.ready_sandboxes().is_empty()).await;
    world.advance(seconds(600)).await;
    assert_eq!(world.phase("job").as_deref(), Some("Succeeded"));
    assert_eq!(world.times_of("StartContainer job-node/app").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn pod_past_its_active_deadline_fails_and_stays_failed_over_a_restart() {
    let mut world = World::started().await;
    world.apply(&pod("job", [container("app")]).spec(json!({"activeDeadlineSeconds": 60})));
    world.until("it runs", |w| w.runs("job-node/app")).await;
    let began = world.now();
    world.until("it failed", |w| w.phase("job").as_deref() == Some("Failed")).await;
    let took = world.now() - began;
    assert!(took > seconds(55) && took < seconds(100), "{took:?}");
    world.until("nothing runs", |w| w.fake.running().is_empty()).await;
    let reason = |w: &World| w.status("job").and_then(|s| s.reason);
    assert_eq!(reason(&world).as_deref(), Some("DeadlineExceeded"));
    world.restart().await;
    world.advance(seconds(120)).await;
    assert_eq!(world.phase("job").as_deref(), Some("Failed"));
    assert_eq!(reason(&world).as_deref(), Some("DeadlineExceeded"));
    assert_eq!(world.times_of("StartContainer job-node/app").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_changed_container_of_the_same_pod_is_replaced() {
    let world = World::started().await;
    let mut app = container("app");
    world.apply(&pod("web", [app.clone(), container("side")]).uid("aaaa-1"));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    app["image"] = "app:2".into();
    world.apply(&pod("web", [app, container("side")]).uid("aaaa-1"));
    world.until("the new one runs", |w| w.restarts("web", "app") == 1 && w.is_ready("web")).await;
    assert_eq!(world.times_of("RunPodSandbox web-node").len(), 1);
    assert_eq!(world.times_of("StopContainer web-node/side").len(), 0);
}

#[tokio::test(start_paused = true)]
async fn changed_container_of_a_running_job_pod_is_restarted() {
    let world = World::started().await;
    // Long enough to observe the container that is created and not started yet.
    world.fake.latency(Method::StartContainer, seconds(2));
    world.fake.program("app", Program::exits(0, seconds(30)));
    let mut app = container("app");
    world.apply(&pod("job", [app.clone()]).restart_policy("Never").uid("aaaa-1"));
    world.until("it works", |w| w.runs("job-node/app")).await;
    app["image"] = "app:2".into();
    world.apply(&pod("job", [app]).restart_policy("Never").uid("aaaa-1"));
    world.until("it is restarted", |w| w.runs("job-node/app") && w.restarts("job", "app") == 1).await;
    world.advance(seconds(10)).await;
    assert_eq!(world.phase("job").as_deref(), Some("Running"));
    world.until("it succeeded", |w| w.phase("job").as_deref() == Some("Succeeded")).await;
    assert_eq!(world.times_of("StopContainer job-node/app#1").len(), 0);
}

#[tokio::test(start_paused = true)]
async fn oom_killed_is_reported_although_the_runtime_records_it_late() {
    let world = World::started().await;
    let program = Program::runs_out_of_memory(seconds(1)).explained_after(Duration::from_millis(900));
    world.fake.program("app", program);
    world.apply(&pod("greedy", [container("app")]).restart_policy("Never"));
    let ended = |w: &World| {
        let state = w.container("greedy", "app")?.state?.terminated?;
        Some((state.exit_code, state.reason.unwrap_or_default()))
    };
    let first = world.until("it has ended", |w| ended(w).is_some()).await;
    assert_eq!(ended(&world), Some((137, "Error".to_owned())));
    let known =
        world.until("the reason is reported", |w| ended(w) == Some((137, "OOMKilled".to_owned()))).await;
    assert!(known - first < seconds(3), "{:?}", known - first);
    let calls = world.fake.count(Method::ContainerStatus);
    world.advance(seconds(30)).await;
    assert_eq!(world.fake.count(Method::ContainerStatus), calls, "nothing more is reported");
}
