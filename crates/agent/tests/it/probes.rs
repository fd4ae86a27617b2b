//! Scenarios of probes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fakes::{Exec, Fault, Method, Program, Service};
use serde_json::json;

use crate::pods::{container, container_with, pod};
use crate::world::{World, seconds};

#[tokio::test(start_paused = true)]
async fn container_with_a_failed_liveness_probe_is_restarted() {
    let world = World::started().await;
    world.net.serve(80, Service::http(200));
    let probe = json!({"livenessProbe": {"httpGet": {"path": "/live", "port": 80}, "periodSeconds": 5}});
    world.apply(&pod("web", [container_with("app", probe)]));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    world.advance(seconds(60)).await;
    assert_eq!(world.restarts("web", "app"), 0);
    world.net.serve(80, Service::http(500));
    world.until("it was restarted", |w| w.runs("web-node/app") && w.restarts("web", "app") == 1).await;
    assert_eq!(world.times_of("StopContainer web-node/app").len(), 1);
    world.net.serve(80, Service::http(200));
    world.until("the pod is ready again", |w| w.is_ready("web")).await;
}

#[tokio::test(start_paused = true)]
async fn pod_is_not_ready_until_its_readiness_probe_succeeds() {
    let world = World::started().await;
    world.net.serve(80, Service::http(503));
    let probe = json!({"readinessProbe": {"httpGet": {"path": "/ready", "port": 80}, "periodSeconds": 5}});
    world.apply(&pod("web", [container_with("app", probe)]));
    world.until("the container runs", |w| w.runs("web-node/app")).await;
    world.advance(seconds(60)).await;
    assert!(!world.is_ready("web"));
    world.net.serve(80, Service::http(200));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    assert_eq!(world.restarts("web", "app"), 0);
}

#[tokio::test(start_paused = true)]
async fn ready_pod_stays_ready_over_an_agent_restart() {
    let mut world = World::started().await;
    world.net.serve(80, Service::http(200));
    let probe = json!({"readinessProbe": {"tcpSocket": {"port": 80}, "periodSeconds": 30}});
    world.apply(&pod("web", [container_with("app", probe)]));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    world.restart().await;
    let was_unready = Arc::new(AtomicBool::new(false));
    for _ in 0..500 {
        let is_unready = world.status("web").is_some() && !world.is_ready("web");
        was_unready.fetch_or(is_unready, Ordering::Relaxed);
        world.advance(std::time::Duration::from_millis(20)).await;
    }
    assert!(world.is_ready("web"));
    assert!(!was_unready.load(Ordering::Relaxed), "the pod flapped");
}

#[tokio::test(start_paused = true)]
async fn change_container_status_on_kubelet_restart_resets_readiness_until_probes_pass() {
    let mut world = World::new();
    world.features.status_starts_again = true;
    world.start().await;
    world.net.serve(80, Service::http(200));
    let probe = json!({"readinessProbe": {"httpGet": {"path": "/", "port": 80}, "periodSeconds": 5}});
    world.apply(&pod("web", [container_with("app", probe)]));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    world.net.serve(80, Service::http(503));
    world.restart().await;
    // One failed probe would not have made a ready container unready: three are needed.
    world.until("the pod is unready", |w| w.status("web").is_some() && !w.is_ready("web")).await;
    world.net.serve(80, Service::http(200));
    world.until("the pod is ready again", |w| w.is_ready("web")).await;
    assert_eq!(world.restarts("web", "app"), 0);
}

#[tokio::test(start_paused = true)]
async fn liveness_probe_starts_after_the_startup_probe_succeeded() {
    let world = World::started().await;
    let probes = json!({
        "startupProbe": {"tcpSocket": {"port": 81}, "periodSeconds": 5, "failureThreshold": 30},
        "livenessProbe": {"tcpSocket": {"port": 80}, "periodSeconds": 5, "failureThreshold": 1},
    });
    world.apply(&pod("web", [container_with("app", probes)]));
    world.until("the container runs", |w| w.runs("web-node/app")).await;
    world.advance(seconds(60)).await;
    assert!(world.net.calls().iter().all(|call| call.ends_with(":81")), "{:?}", world.net.calls());
    world.net.serve(81, Service::Silent).serve(80, Service::Silent);
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    world.until("the liveness probe runs", |w| w.net.calls().iter().any(|call| call.ends_with(":80"))).await;
    assert_eq!(world.restarts("web", "app"), 0);
}

#[tokio::test(start_paused = true)]
async fn exec_probe_command_is_never_started_while_the_last_one_runs() {
    let world = World::started().await;
    world.fake.program("app", Program::runs().on_exec(|_| Exec::exits(0).taking(seconds(8))));
    let probe =
        json!({"readinessProbe": {"exec": {"command": ["check"]}, "periodSeconds": 1, "timeoutSeconds": 10}});
    world.apply(&pod("web", [container_with("app", probe)]));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    world.advance(seconds(60)).await;
    assert!(world.times_of("ExecSync web-node/app: check").len() >= 5);
    assert_eq!(world.runtime.overlapping_execs(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn hanging_probe_delays_no_other() {
    let world = World::started().await;
    world.runtime.fault("slow-node", Method::ExecSync, Some(Fault::Hang));
    let probe = json!({"readinessProbe": {"exec": {"command": ["check"]}, "periodSeconds": 1}});
    world.apply(&pod("slow", [container_with("app", probe.clone())]));
    world.until("the slow one runs", |w| w.runs("slow-node/app")).await;
    world.advance(seconds(5)).await;
    world.apply(&pod("web", [container_with("app", probe), container("side")]));
    let began = world.now();
    let ready = world.until("the other is ready", |w| w.is_ready("web")).await;
    assert!(ready < began + seconds(5));
}

#[tokio::test(start_paused = true)]
async fn a_container_stopped_for_its_liveness_probe_has_not_done_its_work() {
    let world = World::started().await;
    world.fake.program("app", Program::runs().stopping(seconds(1), 0));
    let probe =
        json!({"livenessProbe": {"tcpSocket": {"port": 80}, "periodSeconds": 5, "failureThreshold": 1}});
    world.apply(&pod("job", [container_with("app", probe)]).restart_policy("OnFailure"));
    world.until("it was restarted twice", |w| w.restarts("job", "app") == 2).await;
    assert_eq!(world.phase("job").as_deref(), Some("Running"));
}

#[tokio::test(start_paused = true)]
async fn a_container_that_is_not_ready_is_asked_at_once_when_the_status_changes() {
    let world = World::started().await;
    let probe = json!({"readinessProbe": {"tcpSocket": {"port": 80}, "periodSeconds": 100}});
    world.apply(&pod("web", [container_with("app", probe), container("side")]));
    world.until("both run", |w| w.runs("web-node/app") && w.runs("web-node/side")).await;
    world.advance(seconds(5)).await;
    let calls = world.net.calls().len();
    assert!((1..=3).contains(&calls), "{:?}", world.net.calls());
    world.net.serve(80, Service::Silent);
    world.advance(seconds(20)).await;
    assert_eq!(world.net.calls().len(), calls, "nothing has changed");
    let changed = world.now();
    assert!(world.fake.end_container("web-node", "side", 1));
    world.until("the app is ready", |w| w.container("web", "app").is_some_and(|c| c.ready)).await;
    let took = world.now() - changed;
    assert!(took < seconds(5), "it took {took:?}");
}

/// CRI-O answers with the exit code -1 instead of an error.
#[tokio::test(start_paused = true)]
async fn exec_probe_that_times_out_on_crio_fails_with_the_text_of_the_runtime() {
    let mut world = World::new();
    world.fake.like_crio();
    world.start().await;
    world.fake.program("app", Program::runs().on_exec(|_| Exec::exits(0).taking(seconds(60))));
    let probe = json!({"livenessProbe": {
        "exec": {"command": ["check"]}, "periodSeconds": 5, "timeoutSeconds": 2, "failureThreshold": 1
    }});
    world.apply(&pod("web", [container_with("app", probe)]));
    world.until("it was restarted", |w| w.restarts("web", "app") == 1).await;
    let events = world.agent.as_ref().unwrap().recorder().latest();
    let unhealthy = events.into_iter().find(|event| event.reason == "Unhealthy").unwrap().message;
    assert_eq!(unhealthy, "Liveness probe failed: command timed out");
    assert_eq!(world.fake.double_starts(), Vec::<String>::new());
}

// Recording: readiness.json. Readiness is probed until the whole pod has stopped, its sandbox included.
#[tokio::test(start_paused = true)]
async fn exec_probe_of_a_container_that_has_exited_emits_the_error_of_the_runtime() {
    let world = World::started().await;
    world.fake.program("app", Program::runs().on_exec(|_| Exec::exits(0)));
    let probe = json!({"readinessProbe": {"exec": {"command": ["cat", "/tmp/ok"]}, "periodSeconds": 1}});
    world.apply(&pod("web", [container_with("app", probe)]));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    world.fake.latency(Method::StopPodSandbox, seconds(3));
    world.remove("web");
    world.until("nothing is left", |w| w.traces().is_empty()).await;
    let events = world.agent.as_ref().unwrap().recorder().latest();
    let unhealthy = events.into_iter().find(|event| event.reason == "Unhealthy").unwrap().message;
    let expected =
        "Readiness probe errored and resulted in unknown state: rpc error: code = Unknown desc = container ";
    assert!(unhealthy.starts_with(expected), "{unhealthy}");
}
