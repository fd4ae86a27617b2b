//! Scenarios of pods with user namespaces of their own: which ids they get, and for how long.

use model::request::{IdRange, UserNamespace};
use ports::host::SubordinateIds;
use serde_json::json;

use crate::pods::{Manifest, container, pod};
use crate::world::{PODS, World, seconds};

const IDS: u32 = 65_536;

fn isolated(name: &str) -> Manifest {
    pod(name, [container("app")]).uid(&format!("uid-of-{name}")).spec(json!({"hostUsers": false}))
}

/// The first host id of the pod's sandbox.
fn first_id(world: &World, name: &str) -> u32 {
    let request = world.fake.sandbox_request(&format!("{name}-node")).unwrap();
    let ids = match request.security.namespaces.user {
        UserNamespace::Pod { uids, gids } => Some((uids, gids)),
        UserNamespace::Node => None,
    };
    let (uids, gids) = ids.unwrap();
    assert_eq!(uids, gids);
    assert_eq!((uids[0].container_id, uids[0].length), (0, IDS));
    uids[0].host_id
}

fn file_of(world: &World, name: &str) -> Option<String> {
    let dirs = world.host.files_below(PODS);
    let file =
        dirs.into_iter().find(|path| path.contains(&format!("uid-of-{name}")) && path.ends_with("/userns"));
    file.and_then(|file| world.host.text(file))
}

async fn ready(world: &World, name: &str) {
    world.apply(&isolated(name));
    world.until("the pod is ready", |w| w.is_ready(name)).await;
}

#[tokio::test(start_paused = true)]
async fn user_namespace_ids_are_unique_by_pod_and_kept_over_a_restart() {
    let mut world = World::started().await;
    ready(&world, "one").await;
    ready(&world, "two").await;
    assert_eq!((first_id(&world, "one"), first_id(&world, "two")), (IDS, 2 * IDS));
    let written = file_of(&world, "one").unwrap();
    assert!(written.contains(r#"{"hostId":65536,"containerId":0,"length":65536}"#), "{written}");

    world.restart().await;
    ready(&world, "three").await;
    assert_eq!(first_id(&world, "three"), 3 * IDS);
    world.fake.kill_sandboxes("one-node");
    world.until("it has another sandbox", |w| w.is_ready("one") && w.fake.ready_sandboxes().len() == 3).await;
    assert_eq!(first_id(&world, "one"), IDS, "a new sandbox, the same ids");
    assert_eq!(file_of(&world, "one"), Some(written));
}

#[tokio::test(start_paused = true)]
async fn user_namespace_ids_of_a_removed_pod_are_reused() {
    let world = World::started().await;
    ready(&world, "one").await;
    ready(&world, "two").await;
    world.remove("one");
    world.until("it is gone", |w| !w.traces().iter().any(|t| t.contains("uid-of-one"))).await;
    ready(&world, "three").await;
    assert_eq!(first_id(&world, "three"), IDS);
}

#[tokio::test(start_paused = true)]
async fn user_namespace_ids_come_from_the_subuid_range_of_the_kubelet() {
    let mut world = World::new();
    let ranges = vec![IdRange { first: 100 * IDS, length: 110 * IDS }];
    world.host.set_subordinate_ids(SubordinateIds { uids: ranges.clone(), gids: ranges });
    world.start().await;
    ready(&world, "one").await;
    assert_eq!(first_id(&world, "one"), 100 * IDS);
}

async fn is_refused(world: &World, name: &str, message: &str) {
    world.apply(&isolated(name));
    world.advance(seconds(30)).await;
    let events = world.agent.as_ref().unwrap().recorder().latest();
    let event = events.iter().find(|event| event.reason == "FailedCreatePodSandBox");
    let message_of_event = event.map(|event| event.message.clone());
    assert_eq!(
        message_of_event,
        Some(format!("Failed to create pod sandbox: {message}")),
        "{}",
        world.describe()
    );
    assert_eq!(world.fake.sandboxes(), [], "nothing runs with the node's own ids instead");
    world.remove(name);
    world.until("it is fully removed", |w| w.traces().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn runtime_without_user_namespaces_gets_no_request_for_one() {
    let world = World::started().await;
    world.fake.without_user_namespaces();
    world.advance(seconds(10)).await;
    is_refused(&world, "one", "can't set `spec.hostUsers: false`, runtime does not support user namespaces")
        .await;
}

#[tokio::test(start_paused = true)]
async fn too_small_subuid_range_fails_the_start() {
    let world = World::new();
    let ranges = vec![IdRange { first: IDS, length: IDS }];
    world.host.set_subordinate_ids(SubordinateIds { uids: ranges.clone(), gids: ranges });
    assert_eq!(
        world.try_start().await.map(|_| ()).map_err(|error| error.to_string()),
        Err("create user namespace manager: kubelet mappings: kubelet user assigned IDs are not enough to support 110 \
             pods"
            .to_owned())
    );
}

/// The kubelet never writes half a file; whatever wrote it, the pod may be running with unknown ids.
#[tokio::test(start_paused = true)]
async fn unreadable_user_namespace_record_blocks_new_ids() {
    let mut world = World::started().await;
    ready(&world, "one").await;
    world.crash().await;
    world.host.put(format!("{PODS}/uid-of-one/userns"), "{");
    world.start().await;
    world.apply(&isolated("two"));
    world.advance(seconds(30)).await;
    assert!(!world.is_ready("two"));
    world.remove("one");
    world.until("the other starts", |w| w.is_ready("two")).await;
    assert_eq!(first_id(&world, "two"), IDS);
}
