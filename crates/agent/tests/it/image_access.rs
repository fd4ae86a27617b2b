//! Scenarios of the right to use an image that is on the node, and of credential provider plugins.

use config::CredentialProviders;
use fakes::{Fault, Method};
use images_core::access::{ImagePullIntent, ImagePulledRecord, record_file};
use model::k8s::{Secret, ServiceAccount};
use model::request::ImageRequest;
use ports::Runtime;
use serde_json::{Value, json};

use crate::pods::{Manifest, container_with, pod};
use crate::world::{PROGRAMS, World, seconds};

const PULLED: &str = "/var/lib/kubelet/image_manager/pulled";
const PULLING: &str = "/var/lib/kubelet/image_manager/pulling";

fn pull_secret(name: &str, user: &str) -> Secret {
    let auths = json!({"auths": {"r.io": {"username": user, "password": "p"}}}).to_string();
    let mut secret: Secret =
        serde_json::from_value(json!({"metadata": {"name": name, "namespace": "default"}})).unwrap();
    secret.data = Some([(".dockerconfigjson".to_owned(), model::k8s::ByteString(auths.into_bytes()))].into());
    secret.type_ = Some("kubernetes.io/dockerconfigjson".to_owned());
    secret
}

/// A pod of the image `r.io/app:1`.
fn app(name: &str, policy: &str, secrets: &[&str]) -> Manifest {
    let secrets: Vec<Value> = secrets.iter().map(|name| json!({"name": name})).collect();
    pod(name, [container_with("app", json!({"image": "r.io/app:1", "imagePullPolicy": policy}))])
        .spec(json!({"imagePullSecrets": secrets}))
}

/// A cluster with the secrets of Ann, the only user who may pull the image, and of Bob.
async fn world() -> World {
    let world = World::joined().await;
    world.fake.private("r.io/app:1", "ann");
    world.api().put(&pull_secret("ann", "ann"));
    world.api().put(&pull_secret("bob", "bob"));
    world
}

async fn is_ready(world: &World, name: &str) {
    world.until("the pod is ready", |w| w.is_ready_in_api(name)).await;
}

async fn waits(world: &World, name: &str, reason: &str, message: &str) {
    let shows = |w: &World| {
        let waiting =
            w.api_status(name).container_statuses.and_then(|all| all.first()?.state.clone()?.waiting);
        waiting.is_some_and(|w| {
            w.reason.as_deref() == Some(reason) && w.message.unwrap_or_default().contains(message)
        })
    };
    world.until(&format!("{name} waits with {reason}: {message}"), shows).await;
}

fn pulls(world: &World) -> u64 {
    world.fake.count(Method::PullImage)
}

/// The only image pull record.
fn record(world: &World) -> ImagePulledRecord {
    let files = world.host.files_below(PULLED);
    assert_eq!(files.len(), 1, "{files:?}");
    let file = &files[0];
    let record: ImagePulledRecord = serde_json::from_str(&world.host.text(file).unwrap()).unwrap();
    assert_eq!(file, &format!("{PULLED}/{}", record_file(&record.image_ref)));
    record
}

async fn metric(world: &World, line: &str) -> bool {
    world.metrics().await.lines().any(|l| l == line)
}

#[tokio::test(start_paused = true)]
async fn image_pulled_with_a_secret_is_usable_only_by_pods_with_it() {
    let world = world().await;
    world.create(&app("first", "IfNotPresent", &["ann"]));
    is_ready(&world, "first").await;
    let known = record(&world).credential_mapping["r.io/app"].kubernetes_secrets.clone();
    assert_eq!(known.iter().map(|secret| &*secret.name).collect::<Vec<_>>(), ["ann"]);
    world.until("the intent is gone", |w| w.host.files_below(PULLING).is_empty()).await;

    let before = pulls(&world);
    world.create(&app("same", "IfNotPresent", &["ann"]));
    is_ready(&world, "same").await;
    assert_eq!(pulls(&world), before, "the secret was shown before");

    world.create(&app("none", "IfNotPresent", &[]));
    waits(&world, "none", "ErrImagePull", "pull access denied").await;
    world.create(&app("wrong", "IfNotPresent", &["bob"]));
    waits(&world, "wrong", "ErrImagePull", "pull access denied").await;
    world.create(&app("never", "Never", &[]));
    let text = "Container image \"r.io/app:1\" is not present with pull policy of Never";
    waits(&world, "never", "ErrImageNeverPull", text).await;
    assert!(metric(&world, "kubelet_imagemanager_ondisk_pulledrecords 1").await);
    assert!(
        metric(
            &world,
            r#"kubelet_imagemanager_image_mustpull_checks_total{result="credentialRecordFound"} 1"#
        )
        .await
    );
}

#[tokio::test(start_paused = true)]
async fn image_pull_records_survive_a_restart_and_a_changed_secret_is_recorded() {
    let mut world = world().await;
    world.create(&app("first", "IfNotPresent", &["ann"]));
    is_ready(&world, "first").await;
    let known = &record(&world).credential_mapping["r.io/app"].kubernetes_secrets;
    let shown_first = known[0].credential_hash.clone();
    world.restart().await;
    let before = pulls(&world);
    // Different content under the same name and UID counts as the same secret.
    let mut changed = pull_secret("ann", "anne");
    changed.metadata.uid = world.api().object::<Secret>("default", "ann").unwrap().metadata.uid;
    world.api().put(&changed);
    world.create(&app("changed", "Never", &["ann"]));
    is_ready(&world, "changed").await;
    assert_eq!(pulls(&world), before);
    world
        .until("it is noted", |w| {
            let known = &record(w).credential_mapping["r.io/app"].kubernetes_secrets;
            known.len() == 1 && known[0].credential_hash != shown_first
        })
        .await;
    world.create(&app("none", "Never", &[]));
    waits(&world, "none", "ErrImageNeverPull", "not present").await;
}

#[tokio::test(start_paused = true)]
async fn preloaded_images_are_usable_by_all_pods_unless_the_verification_policy_forbids_it() {
    for (policy, allowlist, runs) in [
        ("NeverVerifyPreloadedImages", "", true),
        ("NeverVerify", "", true),
        ("AlwaysVerify", "", false),
        ("NeverVerifyAllowlistedImages", "r.io/*", true),
        ("NeverVerifyAllowlistedImages", "r.io/other", false),
    ] {
        let mut world = World::of_cluster();
        world.fake.image("r.io/app:1");
        world.config.image_pull_credentials_verification_policy = policy.to_owned();
        world.config.preloaded_images_verification_allowlist = vec![allowlist.to_owned()];
        world.start().await;
        world.until("the node is ready", World::is_node_ready).await;
        world.create(&app("web", "Never", &[]));
        if runs {
            is_ready(&world, "web").await;
        } else {
            waits(&world, "web", "ErrImageNeverPull", "not present").await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn without_ensure_secret_pulled_images_nothing_is_recorded_and_all_pods_may_use_present_images() {
    let mut world = World::of_cluster();
    world.features.pull_records = false;
    world.start().await;
    world.until("the node is ready", World::is_node_ready).await;
    world.fake.private("r.io/app:1", "ann");
    world.api().put(&pull_secret("ann", "ann"));
    world.create(&app("first", "IfNotPresent", &["ann"]));
    is_ready(&world, "first").await;
    world.create(&app("none", "Never", &[]));
    is_ready(&world, "none").await;
    assert!(!world.host.exists(PULLED));
}

#[tokio::test(start_paused = true)]
async fn interrupted_pull_leaves_an_image_that_must_be_pulled_again() {
    let mut world = world().await;
    // The runtime gets the image, but the kubelet does not get the response.
    world.fake.fault(Method::PullImage, Fault::Hang);
    world.create(&app("first", "IfNotPresent", &["ann"]));
    world.until("the pull is in progress", |w| pulls(w) == 1).await;
    let intent = ImagePullIntent::of("r.io/app:1");
    let path = format!("{PULLING}/{}", record_file("r.io/app:1"));
    assert_eq!(world.host.text(&path), Some(serde_json::to_string(&intent).unwrap()));
    world.crash().await;
    world.fake.image("r.io/app:1");
    world.fake.clear_faults();
    // Even a pull that surely fails does not make the image look preloaded.
    world.fake.fault_always(Method::PullImage, Some(Fault::Failed("denied".to_owned())));
    world.start().await;
    world.until("the intent has become a record", |w| !w.host.exists(&path)).await;
    assert_eq!(record(&world).credential_mapping.len(), 0);
    world.create(&app("eve", "Never", &[]));
    waits(&world, "eve", "ErrImageNeverPull", "not present").await;
    world.fake.clear_faults();
    is_ready(&world, "first").await;
}

#[tokio::test(start_paused = true)]
async fn image_pull_record_is_removed_with_its_image() {
    let world = world().await;
    world.create(&app("first", "IfNotPresent", &["ann"]));
    is_ready(&world, "first").await;
    let image = record(&world).image_ref;
    world.advance(seconds(700)).await;
    assert_eq!(record(&world).image_ref, image);
    world.fake.remove_image(&ImageRequest { image, ..ImageRequest::default() }).await.unwrap();
    world.advance(seconds(700)).await;
    assert_eq!(world.host.files_below(PULLED), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn damaged_image_pull_record_is_ignored_and_replaced_by_a_pull() {
    let world = world().await;
    world.create(&app("first", "IfNotPresent", &["ann"]));
    is_ready(&world, "first").await;
    let file = world.host.files_below(PULLED).remove(0);
    world.host.put(&file, "{\"kind\":");
    world.create(&app("none", "Never", &[]));
    waits(&world, "none", "ErrImageNeverPull", "not present").await;
    let before = pulls(&world);
    world.create(&app("again", "IfNotPresent", &["ann"]));
    is_ready(&world, "again").await;
    assert_eq!(pulls(&world), before + 1);
    assert_eq!(record(&world).credential_mapping.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn image_pull_needs_a_written_pulling_record() {
    let world = world().await;
    // No file can be created where the directory is missing.
    world.host.delete(PULLING).put(PULLING, "in the way");
    world.create(&app("first", "IfNotPresent", &["ann"]));
    let text = "Failed to record image pull intent for container image \"r.io/app:1\"";
    waits(&world, "first", "ErrImagePull", text).await;
    assert_eq!(pulls(&world), 0);
    world.host.delete(PULLING).put(format!("{PULLING}/.keep"), "");
    is_ready(&world, "first").await;
}

#[tokio::test(start_paused = true)]
async fn pull_intent_has_the_image_as_it_was_written() {
    let world = World::joined().await;
    world.fake.fault(Method::PullImage, Fault::Hang);
    let plain = container_with("app", json!({"image": "r.io/plain", "imagePullPolicy": "IfNotPresent"}));
    world.create(&pod("web", [plain]));
    let file = format!("{PULLING}/{}", record_file("r.io/plain"));
    world.until("the intent is written", |w| w.host.exists(&file)).await;
    let intent: ImagePullIntent = serde_json::from_str(&world.host.text(&file).unwrap()).unwrap();
    assert_eq!(intent.image, "r.io/plain");
    assert!(world.fake.call_lines().contains(&"PullImage r.io/plain:latest".to_owned()));
}

// ---- programs ----

fn providers(more: Value) -> CredentialProviders {
    let mut provider = json!({
        "name": "prog", "matchImages": ["r.io"], "defaultCacheDuration": "10m",
        "apiVersion": "credentialprovider.kubelet.k8s.io/v1", "args": ["get"],
        "env": [{"name": "MODE", "value": "test"}],
    });
    provider.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    CredentialProviders {
        providers: vec![serde_json::from_value(provider).unwrap()],
        hash: "sha256:1".into(),
    }
}

fn answer(user: &str, scope: &str) -> String {
    json!({
        "kind": "CredentialProviderResponse", "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
        "cacheKeyType": scope, "auth": {"r.io": {"username": user, "password": "p"}},
    })
    .to_string()
}

async fn world_with(more: Value, output: Result<&str, &str>) -> World {
    let mut world = World::of_cluster();
    world.settings.credential_providers = providers(more);
    world.host.set_program(format!("{PROGRAMS}/prog"), output);
    world.fake.private("r.io/app:1", "ann").private("r.io/other:1", "ann");
    world.start().await;
    world.until("the node is ready", World::is_node_ready).await;
    world
}

fn provider_requests(world: &World) -> Vec<Value> {
    world.host.program_calls().iter().map(|call| serde_json::from_slice(&call.input).unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn credential_provider_response_is_used_and_cached() {
    let world = world_with(json!({}), Ok(&answer("ann", "Registry"))).await;
    world.create(&app("web", "Always", &[]));
    is_ready(&world, "web").await;
    let request = json!({
        "kind": "CredentialProviderRequest", "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
        "image": "r.io/app",
    });
    assert_eq!(provider_requests(&world), [request]);
    let call = world.host.program_calls().remove(0);
    assert_eq!((call.args, call.env), (vec!["get".into()], vec![("MODE".into(), "test".into())]));
    // Every pod may use what the node's credentials can pull.
    assert!(record(&world).credential_mapping["r.io/app"].node_pods_accessible);
    let other = container_with("app", json!({"image": "r.io/other:1", "imagePullPolicy": "Always"}));
    world.create(&pod("other", [other]));
    is_ready(&world, "other").await;
    assert_eq!(provider_requests(&world).len(), 1, "the response was for the registry");
    world.advance(seconds(600)).await;
    world.create(&app("later", "Always", &[]));
    is_ready(&world, "later").await;
    assert_eq!(provider_requests(&world).len(), 2, "the response was for ten minutes");
    assert!(
        metric(&world, r#"kubelet_credential_provider_plugin_duration_count{plugin_name="prog"} 2"#).await
    );
    assert!(metric(&world, r#"kubelet_credential_provider_config_info{hash="sha256:1"} 1"#).await);
}

#[tokio::test(start_paused = true)]
async fn credential_provider_failures_give_no_credentials_and_are_counted() {
    for output in [Err("exit status: 1: no such role"), Ok("nonsense")] {
        let world = world_with(json!({}), output).await;
        world.create(&app("web", "IfNotPresent", &[]));
        waits(&world, "web", "ErrImagePull", "pull access denied").await;
        assert!(
            metric(&world, r#"kubelet_credential_provider_plugin_errors_total{plugin_name="prog"} 1"#).await
        );
        world.host.set_program(format!("{PROGRAMS}/prog"), Ok(&answer("ann", "Image")));
        is_ready(&world, "web").await;
    }
}

#[tokio::test(start_paused = true)]
async fn credential_provider_gets_the_service_account_token_and_its_image_is_not_shared() {
    let attributes = json!({"tokenAttributes": {
        "serviceAccountTokenAudience": "registry", "cacheType": "ServiceAccount", "requireServiceAccount": true,
        "requiredServiceAccountAnnotationKeys": ["r.io/role"],
    }});
    let world = world_with(attributes, Ok(&answer("ann", "Global"))).await;
    for (name, annotations) in [("robot", json!({"r.io/role": "reader"})), ("plain", json!({}))] {
        let account: ServiceAccount = serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "default", "annotations": annotations},
        }))
        .unwrap();
        world.api().put(&account);
    }
    let run_as = |name: &str, policy: &str, account: &str| {
        world.create(&app(name, policy, &[]).spec(json!({"serviceAccountName": account})));
    };
    run_as("one", "IfNotPresent", "robot");
    is_ready(&world, "one").await;
    let [request] = &provider_requests(&world)[..] else { panic!("{:?}", provider_requests(&world)) };
    assert_eq!(request["serviceAccountToken"], "token-1");
    assert_eq!(request["serviceAccountAnnotations"], json!({"r.io/role": "reader"}));
    let known = record(&world).credential_mapping["r.io/app"].clone();
    assert_eq!(known.kubernetes_service_accounts[0].name, "robot");
    assert!(!known.node_pods_accessible);

    run_as("same", "Never", "robot");
    is_ready(&world, "same").await;
    assert_eq!(provider_requests(&world).len(), 1, "the response is valid for all tokens of the account");
    run_as("other", "Never", "plain");
    waits(&world, "other", "ErrImageNeverPull", "not present").await;
    assert_eq!(provider_requests(&world).len(), 1, "the service account lacks the required annotation");
}
