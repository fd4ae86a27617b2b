//! Scenarios of pods that must not disturb each other: whatever hangs for one, another starts and ends in time.

use fakes::{Fault, Method};
use serde_json::json;

use crate::pods::{container, container_with, pod};
use crate::world::{World, seconds};

/// Another pod starts and ends while a call of `stuck` hangs.
async fn another_pod_starts_and_ends(world: &World) {
    let began = world.now();
    world.apply(&pod("other", [container("app")]));
    let ready = world.until("the other is ready", |w| w.is_ready("other")).await;
    assert!(ready < began + seconds(5), "it took {:?} to start", ready - began);
    world.remove("other");
    let gone = world
        .until("the other is gone", |w| {
            !w.traces().iter().any(|t| t.contains("other")) && w.status("other").is_none()
        })
        .await;
    assert!(gone < ready + seconds(10), "it took {:?} to end", gone - ready);
}

#[tokio::test(start_paused = true)]
async fn hanging_image_pull_delays_no_other_pod() {
    let world = World::started().await;
    world.runtime.fault("stuck-node", Method::PullImage, Some(Fault::Hang));
    world.apply(&pod("stuck", [container("big")]));
    world.until("the sandbox exists", |w| !w.fake.ready_sandboxes().is_empty()).await;
    another_pod_starts_and_ends(&world).await;
}

#[tokio::test(start_paused = true)]
async fn hanging_post_start_hook_delays_no_other_pod() {
    let world = World::started().await;
    world.runtime.fault("stuck-node", Method::ExecSync, Some(Fault::Hang));
    let hook = json!({"lifecycle": {"postStart": {"exec": {"command": ["begin"]}}}});
    world.apply(&pod("stuck", [container_with("app", hook)]));
    world.until("it runs", |w| w.runs("stuck-node/app")).await;
    another_pod_starts_and_ends(&world).await;
    world.remove("stuck");
    world.until("it is gone all the same", |w| w.traces().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn hanging_stop_container_delays_no_other_pod() {
    let world = World::started().await;
    world.runtime.fault("stuck-node", Method::StopContainer, Some(Fault::Hang));
    world.apply(&pod("stuck", [container("app")]));
    world.until("it runs", |w| w.is_ready("stuck")).await;
    world.remove("stuck");
    another_pod_starts_and_ends(&world).await;
}

#[tokio::test(start_paused = true)]
async fn hanging_run_pod_sandbox_delays_no_other_pod() {
    let world = World::started().await;
    world.runtime.fault("stuck-node", Method::RunPodSandbox, Some(Fault::Hang));
    world.apply(&pod("stuck", [container("app")]));
    world.advance(seconds(2)).await;
    another_pod_starts_and_ends(&world).await;
}

#[tokio::test(start_paused = true)]
async fn pod_with_a_status_timeout_is_reported_and_delays_no_other_pod() {
    let world = World::started().await;
    world.runtime.fault("stuck-node", Method::ContainerStatus, Some(Fault::TimedOut));
    world.apply(&pod("stuck", [container("app")]));
    let named = |w: &World| w.agent.as_ref().map_or(0, |agent| agent.pleg().stuck_pods().len());
    world.until("the pod is named", |w| named(w) == 1).await;
    another_pod_starts_and_ends(&world).await;
    world.runtime.fault("stuck-node", Method::ContainerStatus, None);
    world.until("the pod is ready", |w| w.is_ready("stuck")).await;
    assert_eq!(named(&world), 0);
    assert_eq!(world.times_of("StartContainer stuck-node/app").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn many_pods_start_concurrently() {
    let mut world = World::new();
    world.config.max_pods = 300;
    world.start().await;
    let began = world.now();
    for n in 0..300 {
        world.apply(&pod(&format!("web-{n}"), [container("app")]));
    }
    let all_ready = |w: &World| (0..300).all(|n| w.is_ready(&format!("web-{n}")));
    let ready = world.until("all are ready", all_ready).await;
    assert!(ready < began + seconds(10), "it took {:?}", ready - began);
}
