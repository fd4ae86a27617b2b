//! What calls about images carry besides the name: the annotations of the pod and, with the gate `RuntimeClassInImageCriApi`, the handler
//! of its RuntimeClass. And the status of image volumes, which such a call completes.

use std::collections::BTreeMap;

use fakes::{Fault, Method};
use model::k8s::{Pod, RuntimeClass};
use model::request::{ImageObservation, ImageRequest};
use serde_json::json;

use crate::pods::{Manifest, container, container_with, pod};
use crate::world::{World, seconds};

/// A pod with an annotation and a RuntimeClass, that runs an image and mounts another one.
fn sandboxed() -> Pod {
    let mount = json!({"volumeMounts": [{"name": "data", "mountPath": "/data"}]});
    let manifest = pod("web", [container_with("app", mount)]).spec(json!({
        "runtimeClassName": "strict", "volumes": [{"name": "data", "image": {"reference": "r.io/data:1"}}],
    }));
    let mut pod = manifest.object();
    pod.metadata.annotations = Some([("r.io/mirror".to_owned(), "near".to_owned())].into());
    pod
}

async fn world_with_class(in_image_calls: bool) -> World {
    let mut world = World::of_cluster();
    world.features.runtime_class_in_image_calls = in_image_calls;
    world.start().await;
    world.until("the node is ready", World::is_node_ready).await;
    let class = json!({"metadata": {"name": "strict"}, "handler": "kata"});
    world.api().put::<RuntimeClass>(&serde_json::from_value(class).unwrap());
    world
}

/// The pull and the lookup of the container's image, and the image that it mounts.
async fn check(in_image_calls: bool, runtime_handler: &str) {
    let world = world_with_class(in_image_calls).await;
    world.api().put(&sandboxed());
    world.until("the pod is ready", |w| w.is_ready_in_api("web")).await;
    let annotations = world.fake.sandbox_request("web").unwrap().annotations;
    assert_eq!(annotations.get("r.io/mirror").map(String::as_str), Some("near"));
    let expected = |image: &str| ImageRequest {
        image: image.to_owned(),
        annotations: annotations.clone(),
        runtime_handler: runtime_handler.to_owned(),
    };
    for method in [Method::PullImage, Method::ImageStatus] {
        assert_eq!(world.fake.image_request(method), Some(expected("app:1")), "{method:?}");
    }
    let request = world.fake.container_request("web", "app").unwrap();
    let mounted = request.mounts.iter().find_map(|mount| mount.image.as_ref()).unwrap();
    assert_eq!(mounted.user_specified_image, "r.io/data:1");
    assert_eq!((&mounted.annotations, &*mounted.runtime_handler), (&annotations, runtime_handler));
}

#[tokio::test(start_paused = true)]
async fn image_calls_have_the_annotations_of_the_pod_and_no_runtime_handler() {
    check(false, "").await;
}

#[tokio::test(start_paused = true)]
async fn image_calls_have_the_runtime_handler_with_runtime_class_in_image_cri_api() {
    check(true, "kata").await;
}

#[tokio::test(start_paused = true)]
async fn image_is_removed_by_its_id_and_an_image_without_an_id_is_an_event_of_the_node() {
    let mut world = World::of_cluster();
    world.features.runtime_class_in_image_calls = true;
    world.config.image_maximum_gc_age = config::GoDuration::from_secs(1000);
    let of = |id: &str| ImageObservation {
        id: id.to_owned(),
        size_bytes: 7,
        runtime_handler: "kata".to_owned(),
        ..ImageObservation::default()
    };
    world.fake.put_image("old", of("sha256:1")).put_image("broken", of(""));
    world.start().await;
    world.until("the node is ready", World::is_node_ready).await;
    world.until("the event shows", |w| !w.api_events("InvalidImageID").is_empty()).await;
    let message = world.api_events("InvalidImageID").remove(0).message.unwrap();
    assert_eq!(message, "ImageID is not valid, skipping, image: ,kata");
    world.advance(seconds(1300)).await;
    let expected = ImageRequest {
        image: "sha256:1".to_owned(),
        annotations: BTreeMap::new(),
        runtime_handler: String::new(),
    };
    assert_eq!(world.fake.image_request(Method::RemoveImage), Some(expected));
    assert_eq!(world.fake.count(Method::RemoveImage), 1, "the one without an id stays");
}

/// A pod with an image volume in an init container, a regular one, and one that mounts nothing.
fn with_image_volume() -> Manifest {
    let mounting = |name: &str, path: &str| {
        container_with(name, json!({"volumeMounts": [{"name": "data", "mountPath": path}]}))
    };
    let sidecar = |mut container: serde_json::Value| {
        container["restartPolicy"] = json!("Always");
        container
    };
    pod("web", [mounting("app", "/data"), container("plain")])
        .init([sidecar(mounting("side", "models"))])
        .spec(json!({"volumes": [{"name": "data", "image": {"reference": "r.io/data:1"}}]}))
}

/// The images of the mounts of the pod in the API, by container; `-` for a mount without one.
fn mounted_images(world: &World) -> Vec<(String, String)> {
    let status = world.api_status("web");
    let containers = status.init_container_statuses.into_iter().chain(status.container_statuses).flatten();
    let mounts = containers.flat_map(|container| {
        let name = container.name;
        container.volume_mounts.into_iter().flatten().map(move |mount| {
            let image = mount.volume_status.and_then(|status| status.image);
            (name.clone(), image.map_or_else(|| "-".to_owned(), |image| image.image_ref))
        })
    });
    mounts.collect()
}

async fn world_with_digests(is_on: bool) -> World {
    let mut world = World::of_cluster();
    world.features.image_volume_digests = is_on;
    world.start().await;
    world.until("the node is ready", World::is_node_ready).await;
    world
}

fn named(image: &str) -> [(String, String); 2] {
    ["side", "app"].map(|name| (name.to_owned(), image.to_owned()))
}

#[tokio::test(start_paused = true)]
async fn pod_status_has_the_ids_of_image_volumes_with_image_volume_with_digest() {
    let mut world = world_with_digests(true).await;
    world.create(&with_image_volume());
    world.until("the pod is ready", |w| w.is_ready_in_api("web")).await;
    let request = world.fake.container_request("web", "app").unwrap();
    let mounted = request.mounts.iter().find_map(|mount| mount.image.clone()).unwrap();
    world.until("the images show", |w| mounted_images(w) == named(&mounted.reference)).await;
    let before = world.fake.count(Method::ImageStatus);
    world.fake.end_container("web", "plain", 1);
    world
        .until("it was restarted", |w| w.api_status("web").container_statuses.unwrap()[1].restart_count == 1)
        .await;
    let looked_up = world.fake.count(Method::ImageStatus) - before;
    assert!(
        looked_up <= 2,
        "for the image of the restarted container and its volume, not for running ones: {looked_up}"
    );
    world.restart().await;
    world.advance(seconds(30)).await;
    assert_eq!(mounted_images(&world), named(&mounted.reference));
}

#[tokio::test(start_paused = true)]
async fn image_volume_whose_image_cannot_be_looked_up_has_no_id_until_that_succeeds() {
    let world = world_with_digests(true).await;
    world.create(&with_image_volume());
    world.until("the app runs", |w| w.runs("web/app")).await;
    world.until("the pod is ready", |w| w.is_ready_in_api("web")).await;
    let image = mounted_images(&world).remove(0).1;
    world.fake.fault_always(Method::ImageStatus, Some(Fault::Failed("no store".to_owned())));
    world.fake.end_container("web", "app", 1);
    let restarts = |w: &World, n| w.api_status("web").container_statuses.unwrap()[0].restart_count == n;
    world.until("the pull fails, too", |w| !w.api_events("InspectFailed").is_empty()).await;
    assert!(world.is_ready_in_api("web") || !restarts(&world, 1));
    world.fake.clear_faults();
    world.until("it runs again", |w| restarts(w, 1) && w.is_ready_in_api("web")).await;
    world.until("the images show", |w| mounted_images(w) == named(&image)).await;
}

#[tokio::test(start_paused = true)]
async fn image_volumes_have_no_ids_in_the_pod_status_without_the_gate() {
    let world = world_with_digests(false).await;
    world.create(&with_image_volume());
    world.until("the pod is ready", |w| w.is_ready_in_api("web")).await;
    world.advance(seconds(30)).await;
    assert_eq!(mounted_images(&world), named("-"));
}
