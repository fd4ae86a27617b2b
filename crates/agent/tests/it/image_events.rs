//! Events of containers whose image is not ready, as a real Go kubelet recorded them (`image-*.json` of the recordings)
//! and as its `image_manager_test.go` lists them.

use base_agent::events::EventType;
use fakes::{Fault, Method};
use serde_json::json;

use crate::pods::{container_with, pod};
use crate::world::{World, seconds};

/// The first events about the container's image, `Warning Failed: Error: ErrImagePull`.
fn events(world: &World) -> Vec<String> {
    let latest = world.agent.as_ref().unwrap().recorder().latest();
    let about = latest.into_iter().filter(|event| event.container.as_deref() == Some("main"));
    about
        .map(|event| {
            let kind = if event.kind == EventType::Warning { "Warning" } else { "Normal" };
            format!("{kind} {}: {}", event.reason, event.message)
        })
        .collect()
}

async fn check(world: &World, image: &str, policy: &str, expected: &[&str]) {
    world.create(&pod("web", [container_with("main", json!({"image": image, "imagePullPolicy": policy}))]));
    let has_all = |w: &World| events(w).len() >= expected.len();
    world.until(&format!("{} events about {image}", expected.len()), has_all).await;
    assert_eq!(events(world)[..expected.len()], *expected, "{image} {policy}");
}

async fn has_metric(world: &World, labels: &str) -> bool {
    let line = format!("kubelet_image_manager_ensure_image_requests_total{{{labels}}}");
    world.metrics().await.lines().any(|found| found.starts_with(&line))
}

#[tokio::test(start_paused = true)]
async fn image_invalid_name_emits_inspect_failed_and_failed() {
    let world = World::joined().await;
    let text = "Failed to apply default image tag \"INVALID//name\": couldn't parse image name \"INVALID//name\": invalid \
                reference format";
    let inspect = format!("Warning InspectFailed: {text}");
    check(&world, "INVALID//name", "Always", &[&inspect, "Warning Failed: Error: InvalidImageName"]).await;
    let labels = r#"present_locally="unknown",pull_policy="always",pull_required="unknown""#;
    assert!(has_metric(&world, labels).await);
}

#[tokio::test(start_paused = true)]
async fn image_never_present_emits_err_image_never_pull_and_failed() {
    let world = World::joined().await;
    let text = "Warning ErrImageNeverPull: Container image \"r.io/not-here:1\" is not present with pull policy of Never";
    check(&world, "r.io/not-here:1", "Never", &[text, "Warning Failed: Error: ErrImageNeverPull"]).await;
    let labels = r#"present_locally="false",pull_policy="never",pull_required="unknown""#;
    assert!(has_metric(&world, labels).await);
}

#[tokio::test(start_paused = true)]
async fn image_inspect_error_emits_inspect_failed_and_failed() {
    let world = World::joined().await;
    world.fake.fault_always(Method::ImageStatus, Some(Fault::Failed("unknown inspectError".to_owned())));
    let text = "Warning InspectFailed: Failed to inspect image \"\": rpc error: code = Unknown desc = unknown inspectError";
    check(&world, "r.io/app:1", "IfNotPresent", &[text, "Warning Failed: Error: ImageInspectError"]).await;
    let labels = r#"present_locally="unknown",pull_policy="ifnotpresent",pull_required="unknown""#;
    assert!(has_metric(&world, labels).await);
}

#[tokio::test(start_paused = true)]
async fn image_pull_back_off_emits_back_off_and_failed() {
    let world = World::joined().await;
    world.fake.unpullable("r.io/app:1", "SignatureValidationFailed: bad key");
    let expected = [
        "Normal Pulling: Pulling image \"r.io/app:1\"",
        "Warning Failed: Failed to pull image \"r.io/app:1\": SignatureValidationFailed: bad key",
        "Warning Failed: Error: SignatureValidationFailed",
        "Normal BackOff: Back-off pulling image \"r.io/app:1\"",
        "Warning Failed: Error: ImagePullBackOff",
    ];
    check(&world, "r.io/app:1", "IfNotPresent", &expected).await;
    let message = "Back-off pulling image \"r.io/app:1\": SignatureValidationFailed: image pull failed for r.io/app:1 \
                   because the signature validation failed: bad key";
    let shows = |w: &World| {
        let waiting = w
            .api_status("web")
            .container_statuses
            .and_then(|all| all.first()?.state.clone()?.waiting?.message);
        waiting.as_deref() == Some(message)
    };
    world.until("the waiting message repeats the error", shows).await;
}

/// A row of the table of `image_manager_test.go`: the image, whether it is present, the policy; the reasons of the events, and
/// the labels of `kubelet_image_manager_ensure_image_requests_total`.
type ImageManagerRow = (&'static str, Present, &'static str, &'static [&'static str], [&'static str; 2]);

#[derive(Clone, Copy)]
enum Present {
    Yes,
    No,
    NeitherThereNorInTheRegistry,
}

const IMAGE_MANAGER_TABLE: [ImageManagerRow; 8] = [
    ("r.io/missing:1", Present::No, "IfNotPresent", &["Pulling", "Pulled"], ["false", "true"]),
    ("r.io/present:1", Present::Yes, "IfNotPresent", &["Pulled"], ["true", "false"]),
    ("r.io/present:1", Present::Yes, "Always", &["Pulling", "Pulled"], ["unknown", "true"]),
    ("r.io/missing:1", Present::No, "Never", &["ErrImageNeverPull"], ["false", "unknown"]),
    (
        "r.io/typo:1",
        Present::NeitherThereNorInTheRegistry,
        "IfNotPresent",
        &["Pulling", "Failed", "BackOff", "Pulling", "Failed"],
        ["false", "true"],
    ),
    ("FAILED_IMAGE", Present::No, "Always", &["InspectFailed"], ["unknown", "unknown"]),
    ("http://url", Present::No, "Always", &["InspectFailed"], ["unknown", "unknown"]),
    (
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        Present::No,
        "Always",
        &["InspectFailed"],
        ["unknown", "unknown"],
    ),
];

#[tokio::test(start_paused = true)]
async fn image_manager_table() {
    for (image, present, policy, reasons, [is_present, is_pulled]) in IMAGE_MANAGER_TABLE {
        let world = World::joined().await;
        match present {
            Present::Yes => _ = world.fake.image(image),
            Present::No => {}
            Present::NeitherThereNorInTheRegistry => _ = world.fake.unpullable(image, "404"),
        }
        world.create(&pod(
            "web",
            [container_with("main", json!({"image": image, "imagePullPolicy": policy}))],
        ));
        let seen = |w: &World| -> Vec<String> {
            // Events that follow from an image that is not ready belong to the container; the table is of the image alone.
            let of_images = events(w).into_iter().filter(|event| !event.contains("Failed: Error: "));
            let reasons = of_images.filter_map(|event| Some(event.split([' ', ':']).nth(1)?.to_owned()));
            reasons.filter(|reason| !["Created", "Started"].contains(&reason.as_str())).collect()
        };
        world.until(&format!("events about {image}"), |w| seen(w).len() >= reasons.len()).await;
        assert_eq!(seen(&world)[..reasons.len()], *reasons, "{image} {policy}");
        let policy = policy.to_lowercase();
        let labels =
            format!(r#"present_locally="{is_present}",pull_policy="{policy}",pull_required="{is_pulled}""#);
        assert!(has_metric(&world, &labels).await, "{image} {policy}: {labels}");
    }
}

/// `imagePullPolicy: Always` pulls without checking whether the image is present, as `image present, pull` of the table.
#[tokio::test(start_paused = true)]
async fn image_pull_policy_always_does_not_inspect_first() {
    let world = World::joined().await;
    world.fake.image("r.io/app:1");
    world.fake.fault(Method::ImageStatus, Fault::Failed("must not be called first".to_owned()));
    let before = world.fake.count(Method::ImageStatus);
    world.fake.latency(Method::PullImage, seconds(5));
    world.create(&pod(
        "web",
        [container_with("main", json!({"image": "r.io/app:1", "imagePullPolicy": "Always"}))],
    ));
    world.until("the pull is in progress", |w| w.recorded("Pulling") == 1).await;
    assert_eq!(world.fake.count(Method::ImageStatus), before);
    world.until("the pod is ready", |w| w.is_ready_in_api("web")).await;
    let labels = r#"present_locally="unknown",pull_policy="always",pull_required="true""#;
    assert!(has_metric(&world, labels).await);
}

/// Credentials of the node are cached for five minutes, as `CachingDockerConfigProvider` does.
#[tokio::test(start_paused = true)]
async fn node_registry_credentials_are_read_again_every_five_minutes() {
    let mut world = World::of_cluster();
    let dir = "/var/lib/kubelet";
    world.settings.credential_dirs = vec![dir.into()];
    world.fake.private("r.io/app:1", "ann");
    let config = |user: &str| json!({"auths": {"r.io": {"username": user, "password": "p"}}}).to_string();
    world.host.put(format!("{dir}/config.json"), config("old"));
    world.start().await;
    world.until("the node is ready", World::is_node_ready).await;
    world.create(&pod(
        "web",
        [container_with("main", json!({"image": "r.io/app:1", "imagePullPolicy": "Always"}))],
    ));
    world.until("the old password is rejected", |w| w.recorded("BackOff") > 0).await;
    world.host.put(format!("{dir}/config.json"), config("ann"));
    world.advance(seconds(300)).await;
    world.until("the new password is used", |w| w.is_ready_in_api("web")).await;
}
