//! Scenarios of cgroups that another process removed or changed while their pods run.

use fakes::{Fault, Method};
use serde_json::json;

use crate::pods::{Manifest, container, container_with, pod};
use crate::world::{World, seconds};

const BURSTABLE: &str = "/kubepods/burstable";
const CGROUP: &str = "/kubepods/burstable/pod7";

/// The CPU request of this pod gives a weight of 20 of 10000.
fn burstable() -> Manifest {
    let resources = json!({"resources": {"requests": {"cpu": "500m"}}});
    pod("web", [container_with("app", resources)]).uid("7").spec(json!({"terminationGracePeriodSeconds": 5}))
}

fn weight(world: &World, cgroup: &str) -> Option<String> {
    world.cgroups.text(cgroup, "cpu.weight")
}

async fn with_a_pod() -> World {
    let world = World::started().await;
    world.apply(&burstable());
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    assert_eq!(weight(&world, CGROUP).as_deref(), Some("20"));
    world
}

fn instance(world: &World) -> Option<String> {
    world.container("web", "app")?.container_id
}

fn runs_again(world: &World, before: Option<&String>) -> bool {
    world.is_ready("web") && instance(world).as_ref() != before
}

#[tokio::test(start_paused = true)]
async fn removed_pod_cgroup_restarts_the_pod_with_a_new_cgroup() {
    let mut world = with_a_pod().await;
    for is_restart in [false, true] {
        let before = instance(&world);
        if is_restart {
            world.crash().await;
        }
        world.cgroups.remove_cgroup(CGROUP);
        let since = world.now();
        if is_restart {
            world.start().await;
        }
        let made = world.until("it runs in another sandbox", |w| runs_again(w, before.as_ref())).await;
        assert!(made - since < seconds(100), "{:?}", made - since);
        assert_eq!(weight(&world, CGROUP).as_deref(), Some("20"));
        assert_eq!(world.fake.ready_sandboxes().len(), 1);
    }
    let app = world.container("web", "app").unwrap();
    assert_eq!(app.restart_count, 2);
}

#[tokio::test(start_paused = true)]
async fn missing_pod_cgroup_is_created_only_after_its_containers_have_stopped() {
    let world = with_a_pod().await;
    let before = instance(&world);
    let stops = world.times_of("StopPodSandbox web-node").len();
    world.fake.fault_always(Method::StopPodSandbox, Some(Fault::Failed("stuck".to_owned())));
    world.cgroups.remove_cgroup(CGROUP);
    world.until("it is tried", |w| w.times_of("StopPodSandbox web-node").len() > stops + 1).await;
    assert_eq!(weight(&world, CGROUP), None);
    world.fake.fault_always(Method::StopPodSandbox, None);
    world.until("it runs in another sandbox", |w| runs_again(w, before.as_ref())).await;
    assert_eq!(weight(&world, CGROUP).as_deref(), Some("20"));
}

fn named(name: &str, uid: &str) -> Manifest {
    let resources = json!({"resources": {"requests": {"cpu": "500m"}}});
    pod(name, [container_with("app", resources)]).uid(uid)
}

/// Every pod looks like that if this kubelet looks in the wrong place.
#[tokio::test(start_paused = true)]
async fn pods_that_all_lose_their_cgroups_at_once_keep_running() {
    let mut world = World::joined().await;
    for (name, uid) in [("web", "7"), ("db", "8")] {
        world.apply(&named(name, uid));
    }
    world.until("the pods are ready", |w| w.is_ready("web") && w.is_ready("db")).await;
    let before = world.fake.running();
    for is_restart in [false, true] {
        if is_restart {
            world.crash().await;
        }
        for uid in ["7", "8"] {
            world.cgroups.remove_cgroup(&format!("{BURSTABLE}/pod{uid}"));
        }
        if is_restart {
            world.start().await;
        }
        world.until("the node is not ready", |w| !w.is_node_ready()).await;
        world.advance(seconds(200)).await;
        assert_eq!(world.fake.running(), before, "nothing was restarted");
        let message = world.node_condition("Ready").unwrap().message.unwrap_or_default();
        assert!(message.contains("2 running pods are not restarted"), "{message}");
        world.cgroups.write(CGROUP, "cpu.weight", "20");
        if !is_restart {
            world.cgroups.write(&format!("{BURSTABLE}/pod8"), "cpu.weight", "20");
        }
        world.until("the node is ready", World::is_node_ready).await;
    }
    // The first one had its cgroup again, which proves the names: the other one lost its own.
    world.until("the other one is restarted", |w| w.is_ready("db") && w.fake.running() != before).await;
    assert!(world.fake.running().contains(&"web-node/app".to_owned()), "{:?}", world.fake.running());
}

/// The pods are where they were created, and this kubelet looks elsewhere.
#[tokio::test(start_paused = true)]
async fn pods_with_cgroups_of_another_root_keep_running_and_the_node_is_not_ready() {
    let mut world = World::joined().await;
    world.apply(&named("web", "7"));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    let before = world.fake.running();
    world.crash().await;
    world.cgroups.write("/other", "cpu.weight", "20");
    world.config.cgroup_root = "/other".to_owned();
    world.start().await;
    world.apply(&named("late", "9"));
    world.until("a new pod runs", |w| w.is_ready("late")).await;
    world.advance(seconds(200)).await;
    assert!(before.iter().all(|old| world.fake.running().contains(old)), "{:?}", world.fake.running());
    let message = world.node_condition("Ready").unwrap().message.unwrap_or_default();
    let expected = "its cgroup is /kubepods/burstable/pod7, which the configuration expects at /other/kubepods/burstable/pod7";
    assert!(!world.is_node_ready() && message.contains(expected), "{message}");
    assert_eq!(world.recorded("PodCgroupMissing"), 1);
    world.remove("web");
    world.until("the node is ready", World::is_node_ready).await;
}

#[tokio::test(start_paused = true)]
async fn changed_cgroup_values_are_reset_without_a_restart() {
    let mut world = with_a_pod().await;
    let before = instance(&world);
    for is_restart in [false, true] {
        if is_restart {
            world.crash().await;
        }
        world.cgroups.write(CGROUP, "cpu.weight", "77");
        let since = world.now();
        if is_restart {
            world.start().await;
        }
        let right = |w: &World| weight(w, CGROUP).as_deref() == Some("20");
        let corrected = world.until("the cgroup has the expected weight", right).await;
        assert!(corrected - since < seconds(100), "{:?}", corrected - since);
    }
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    assert_eq!(instance(&world), before);
}

#[tokio::test(start_paused = true)]
async fn unreadable_pod_cgroup_is_not_treated_as_removed() {
    let world = with_a_pod().await;
    let before = instance(&world);
    world.cgroups.fail_below(CGROUP).remove_cgroup(CGROUP);
    world.advance(seconds(300)).await;
    assert_eq!(instance(&world), before);
    world.cgroups.repair();
    world.until("it runs in another sandbox", |w| runs_again(w, before.as_ref())).await;
}

#[tokio::test(start_paused = true)]
async fn qos_cgroups_are_corrected_each_minute() {
    let world = with_a_pod().await;
    let is_right = |w: &World| weight(w, BURSTABLE).as_deref() == Some("20");
    world.until("the QoS cgroup has the weight of its pods' requests", is_right).await;
    world.cgroups.write(BURSTABLE, "cpu.weight", "77");
    let since = world.now();
    let right = world.until("the QoS cgroup is corrected", is_right).await;
    assert!(right - since <= seconds(61), "{:?}", right - since);
    world.cgroups.remove_cgroup("/kubepods/besteffort");
    world.until("the other QoS cgroup exists again", |w| weight(w, "/kubepods/besteffort").is_some()).await;
    world.apply(&pod("other", [container("app")]));
    world.until("a pod finds its slot in it", |w| w.is_ready("other")).await;
}
