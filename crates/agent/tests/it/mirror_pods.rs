//! Scenarios of static pods in a cluster, and of their mirror pods.

use fakes::{ClusterFault, HostFault, HostMethod, Program, Verb};
use model::k8s::Pod;
use ports::node_api::{PodRefusal, PodTarget};
use ports::runtime::Streams;

use crate::pods::{container, pod};
use crate::world::{PODS, World, seconds};

/// A node with the static pod `web`, whose mirror pod is ready.
async fn with_mirror() -> World {
    let world = World::joined().await;
    world.apply(&pod("web", [container("app")]));
    world.until("the mirror pod is ready", |w| w.is_ready_in_api("web-node")).await;
    world
}

fn mirror_uid(world: &World) -> Option<String> {
    world.in_api("web-node")?.metadata.uid
}

/// Changes of a mirror pod do not affect its static pod.
fn assert_untouched(world: &World) {
    assert_eq!(world.times_of("StartContainer web-node/app").len(), 1);
    assert!(world.times_of("StopContainer web-node/app").is_empty());
}

#[tokio::test(start_paused = true)]
async fn static_pod_has_a_mirror_pod_owned_by_the_node() {
    let world = with_mirror().await;
    let mirror = world.in_api("web-node").unwrap();
    let owner = &mirror.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!(Some(&owner.uid), world.node().unwrap().metadata.uid.as_ref());
    assert!(mirror.metadata.annotations.unwrap().contains_key("kubernetes.io/config.mirror"));
    world.fake.end_container("web-node", "app", 1);
    world
        .until("its status follows", |w| {
            w.api_status("web-node").container_statuses.is_some_and(|all| all[0].restart_count == 1)
        })
        .await;
    world.advance(seconds(60)).await;
    assert_eq!(world.api_calls("create pods default/web-node"), 1);
}

#[tokio::test(start_paused = true)]
async fn deleted_mirror_pod_is_recreated_while_the_static_pod_runs() {
    let world = with_mirror().await;
    for grace in [Some(0), Some(30), Some(0), Some(0)] {
        let old = mirror_uid(&world);
        world.delete("web-node", grace);
        let deleted = world.now();
        let back = world.until("it is back", |w| w.is_ready_in_api("web-node") && mirror_uid(w) != old).await;
        assert!(back - deleted < seconds(2), "it took {:?}", back - deleted);
    }
    assert_untouched(&world);
}

#[tokio::test(start_paused = true)]
async fn running_pods_are_those_of_the_runtime_with_their_images() {
    let world = with_mirror().await;
    let api = world.agent.as_ref().unwrap().api();
    let [own] = &api.pods()[..] else { panic!("one pod") };
    let [running] = &api.running_pods().await.unwrap()[..] else { panic!("one pod") };
    let identity =
        |pod: &Pod| (pod.metadata.namespace.clone(), pod.metadata.name.clone(), pod.metadata.uid.clone());
    assert_eq!(identity(running), identity(own));
    let containers = |pod: &Pod| -> Vec<_> {
        let all = pod.spec.as_ref().unwrap().containers.iter();
        all.map(|container| (container.name.clone(), container.image.clone())).collect()
    };
    assert_eq!(containers(running), containers(own));
}

#[tokio::test(start_paused = true)]
async fn mirror_pod_uid_resolves_to_the_static_pod() {
    let world = with_mirror().await;
    let api = world.agent.as_ref().unwrap().api();
    let own = api.pods()[0].metadata.uid.clone();
    let mirror = mirror_uid(&world);
    assert!(mirror.is_some() && mirror != own);
    let streams = Streams { stdout: true, ..Streams::default() };
    for (uid, is_meant) in [(None, true), (own, true), (mirror, true), (Some("other".to_owned()), false)] {
        let target = PodTarget { namespace: "default".to_owned(), pod: "web-node".to_owned(), uid };
        let command = ["true".to_owned()];
        let reached = [
            api.exec(&target, "app", &command, streams).await.map(drop),
            api.attach(&target, "app", streams).await.map(drop),
            api.port_forward(&target, &[]).await.map(drop),
            api.run(&target, "app", &command).await.map(drop),
        ];
        for reached in reached {
            match reached {
                Ok(()) => assert!(is_meant, "{target:?}"),
                Err(PodRefusal::NotFound(text)) if !is_meant => assert!(text.contains("other"), "{text}"),
                Err(other) => panic!("{target:?}: {other}"),
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn edited_mirror_pod_is_recreated() {
    let world = with_mirror().await;
    let old = mirror_uid(&world);
    let mut edited = world.in_api("web-node").unwrap();
    let annotations = edited.metadata.annotations.get_or_insert_default();
    annotations.insert("kubernetes.io/config.mirror".to_owned(), "another".to_owned());
    world.api().put(&edited);
    world.until("it is created again", |w| w.is_ready_in_api("web-node") && mirror_uid(w) != old).await;
    assert_untouched(&world);
}

#[tokio::test(start_paused = true)]
async fn changed_manifest_recreates_the_mirror_pod() {
    let world = with_mirror().await;
    let old = mirror_uid(&world);
    world.apply(&pod("web", [container("app"), container("more")]));
    let shows_both =
        |w: &World| w.api_status("web-node").container_statuses.is_some_and(|all| all.len() == 2);
    world.until("the new one is listed", |w| shows_both(w) && w.is_ready_in_api("web-node")).await;
    assert_ne!(mirror_uid(&world), old);
}

#[tokio::test(start_paused = true)]
async fn mirror_pod_shows_the_new_pod_while_the_volumes_of_the_old_one_are_not_released() {
    let world = with_mirror().await;
    let old = mirror_uid(&world);
    for _ in 0..1000 {
        world.host.fault_below(HostMethod::UnmountTree, PODS, HostFault::Fails);
    }
    world.apply(&pod("web", [container("app"), container("more")]));
    let shows_both =
        |w: &World| w.api_status("web-node").container_statuses.is_some_and(|all| all.len() == 2);
    world.until("the new one is listed", |w| shows_both(w) && w.is_ready_in_api("web-node")).await;
    let new = mirror_uid(&world);
    assert_ne!(new, old);
    world.api().forget_calls();
    world.advance(seconds(60)).await;
    assert!(shows_both(&world) && world.is_ready_in_api("web-node") && mirror_uid(&world) == new);
    assert_eq!(world.api_calls("patch pods/status default/web-node"), 0);
}

#[tokio::test(start_paused = true)]
async fn mirror_pod_is_removed_with_the_manifest() {
    let world = with_mirror().await;
    world.fake.program("app", Program::runs().ignoring_term());
    world.remove("web");
    world.until("nothing is left", |w| w.in_api("web-node").is_none() && w.traces().is_empty()).await;
    world.advance(seconds(60)).await;
    assert!(world.api().all::<Pod>().is_empty());
}

#[tokio::test(start_paused = true)]
async fn orphaned_mirror_pod_is_removed_after_restart_and_others_stay() {
    let mut world = with_mirror().await;
    world.apply(&pod("other", [container("app")]));
    world.until("the other one is listed", |w| w.is_ready_in_api("other-node")).await;
    let other = world.in_api("other-node").unwrap().metadata.uid;
    world.crash().await;
    world.remove("web");
    world.start().await;
    world.until("nothing is left of it", |w| w.in_api("web-node").is_none() && !w.runs("web-node/app")).await;
    world.advance(seconds(60)).await;
    assert_eq!(world.in_api("other-node").unwrap().metadata.uid, other);
    assert_eq!(world.times_of("StartContainer other-node/app").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn static_pod_runs_without_the_api_and_gets_its_mirror_pod_later() {
    let mut world = World::of_cluster();
    world.api().fault_always(Verb::Create, "pods", Some(ClusterFault::Unreachable));
    world.api().set_outage(Some(fakes::Outage::Refused));
    world.start().await;
    world.apply(&pod("web", [container("app")]));
    world.until("it runs", |w| w.is_ready("web")).await;
    world.api().set_outage(None);
    world.until("the node is ready", World::is_node_ready).await;
    world.advance(seconds(60)).await;
    assert!(world.in_api("web-node").is_none());
    world.api().clear_faults();
    world.until("it is listed", |w| w.is_ready_in_api("web-node")).await;
    assert_untouched(&world);
}
