//! Scenarios of an agent that continues pods of another kubelet, or of its own earlier version.

use fakes::Program;
use serde_json::json;

use crate::pods::{Manifest, container, container_with, pod};
use crate::world::{PODS, World, seconds};

fn probed() -> Manifest {
    let probe = json!({"exec": {"command": ["ready"]}, "periodSeconds": 1});
    let app = container_with("app", json!({"readinessProbe": probe, "startupProbe": probe}));
    pod("web", [app]).init([container("init")])
}

fn uid(world: &World) -> String {
    let annotations = world.in_api("web-node").and_then(|pod| pod.metadata.annotations).unwrap_or_default();
    annotations["kubernetes.io/config.mirror"].clone()
}

/// Removes what only this kubelet writes.
fn forget_own_files(world: &World, uid: &str) {
    for file in ["status.json", "pod.json"] {
        world.host.delete(format!("{PODS}/{uid}/{file}"));
    }
}

#[tokio::test(start_paused = true)]
async fn static_pod_of_another_kubelet_keeps_its_status_in_the_api() {
    for is_own in [true, false] {
        let mut world = World::joined().await;
        world.fake.program("init", Program::exits(0, seconds(1)));
        world.apply(&probed());
        world.until("the mirror pod is ready", |w| w.is_ready_in_api("web-node")).await;
        world.advance(seconds(5)).await;
        let before = world.api_status("web-node");
        let uid = uid(&world);
        world.crash().await;
        if !is_own {
            forget_own_files(&world, &uid);
        }
        world.api().forget_calls();
        world.start().await;
        world.advance(seconds(60)).await;
        assert_eq!(world.api_calls("patch pods/status default/web-node"), 0, "is_own: {is_own}");
        assert_eq!(world.api_status("web-node"), before);
        assert_eq!(world.times_of("StartContainer web-node/app").len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn static_pod_of_another_kubelet_is_continued_without_the_api() {
    let mut world = World::joined().await;
    world.apply(&pod("web", [container("app")]));
    world.until("the mirror pod is ready", |w| w.is_ready_in_api("web-node")).await;
    let uid = uid(&world);
    world.crash().await;
    forget_own_files(&world, &uid);
    world.api().set_outage(Some(fakes::Outage::Refused));
    world.fake.end_container("web-node", "app", 1);
    world.start().await;
    world.advance(seconds(5)).await;
    assert_eq!(world.restarts("web", "app"), 1, "it does not wait for the API for long");
}

#[tokio::test(start_paused = true)]
async fn crash_loop_delay_goes_on_after_a_restart() {
    for is_own in [true, false] {
        let mut world = World::joined().await;
        world.fake.program("app", Program::exits(1, seconds(1)));
        world.apply(&pod("web", [container("app")]));
        world.until("it was restarted three times", |w| w.restarts("web", "app") == 3).await;
        world.advance(seconds(3)).await;
        let uid = uid(&world);
        world.crash().await;
        if !is_own {
            forget_own_files(&world, &uid);
        }
        world.start().await;
        world.advance(seconds(30)).await;
        assert_eq!(world.restarts("web", "app"), 3, "is_own: {is_own}");
        let message = world.container("web", "app").and_then(|app| app.state?.waiting?.message);
        assert!(message.is_some_and(|message| message.starts_with("back-off 40s restarting")));
        world.advance(seconds(8)).await;
        assert_eq!(world.restarts("web", "app"), 4, "is_own: {is_own}");
    }
}
