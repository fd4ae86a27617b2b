//! What calls about images carry besides the name: the annotations of the pod and, with the gate `RuntimeClassInImageCriApi`, the handler
//! of its RuntimeClass.

use std::collections::BTreeMap;

use fakes::Method;
use model::k8s::{Pod, RuntimeClass};
use model::request::{ImageObservation, ImageRequest};
use serde_json::json;

use crate::pods::{container_with, pod};
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
