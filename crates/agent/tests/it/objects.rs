//! Scenarios of API objects that pods need: ConfigMaps, Secrets, tokens and Services.

use std::path::PathBuf;
use std::time::Duration;

use fakes::{ClusterFault, Fault, Method, Verb};
use model::k8s::{ConfigMap, Pod, ResourceClaim, RuntimeClass, Secret, Service, ServiceAccount};
use ports::cluster::ClusterError;
use serde_json::{Value, json};

use crate::pods::{Manifest, container, container_with, pod};
use crate::world::{PODS, World, seconds};

pub(crate) fn from<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

fn config_map(name: &str, data: Value) -> ConfigMap {
    from(json!({"metadata": {"name": name, "namespace": "default"}, "data": data}))
}

/// `data` is plain text here.
fn secret(name: &str, key: &str, text: &str) -> Secret {
    let mut secret: Secret = from(json!({"metadata": {"name": name, "namespace": "default"}}));
    secret.data = Some([(key.to_owned(), model::k8s::ByteString(text.as_bytes().to_vec()))].into());
    secret
}

fn service(namespace: &str, name: &str, ip: &str) -> Service {
    from(json!({
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"clusterIP": ip, "ports": [{"port": 80}]},
    }))
}

/// A node of a cluster whose kubelet uses that change detection strategy.
async fn joined_with(strategy: &str) -> World {
    let mut world = World::of_cluster();
    world.config.config_map_and_secret_change_detection_strategy = strategy.to_owned();
    world.start().await;
    world.until("the node is ready", World::is_node_ready).await;
    world
}

/// A secret as `kubectl create secret docker-registry` makes it.
fn pull_secret(name: &str, user: &str) -> Secret {
    let auths = json!({"auths": {"r.io": {"username": user, "password": "p"}}});
    let mut secret = secret(name, ".dockerconfigjson", &auths.to_string());
    secret.type_ = Some("kubernetes.io/dockerconfigjson".to_owned());
    secret
}

/// A pod of the image `r.io/app:1`.
fn pod_with_pull_secrets(name: &str, secrets: &[&str]) -> Manifest {
    let secrets: Vec<Value> = secrets.iter().map(|name| json!({"name": name})).collect();
    pod(name, [container_with("app", json!({"image": "r.io/app:1"}))])
        .spec(json!({"imagePullSecrets": secrets}))
}

/// A pod that mounts this volume.
pub(crate) fn pod_with_volume(name: &str, source: Value) -> Manifest {
    let mut volume = json!({"name": "vol"});
    volume.as_object_mut().unwrap().extend(source.as_object().unwrap().clone());
    let mounts = json!({"volumeMounts": [{"name": "vol", "mountPath": "/vol"}]});
    pod(name, [container_with("app", mounts)]).spec(json!({"volumes": [volume]}))
}

fn pod_with_config_map(name: &str) -> Manifest {
    pod_with_volume(name, json!({"configMap": {"name": "cfg"}}))
}

/// The content of the volume, as the container sees it.
pub(crate) fn in_volume(world: &World, pod: &Pod, kind: &str, file: &str) -> Option<String> {
    let uid = pod.metadata.uid.as_deref().unwrap();
    let dir: PathBuf = [PODS, uid, "volumes", &format!("kubernetes.io~{kind}"), "vol"].iter().collect();
    world.host.text(dir.join(file))
}

fn variable(world: &World, pod: &str, name: &str) -> Option<String> {
    let env = world.fake.container_request(pod, "app")?.env;
    env.into_iter().find(|(known, _)| known == name).map(|(_, value)| value.to_string())
}

/// The message of the last event of that reason.
pub(crate) fn message(world: &World, reason: &str) -> Option<String> {
    let events = world.agent.as_ref().unwrap().recorder().latest();
    events.into_iter().rev().find(|event| event.reason == reason).map(|event| event.message)
}

fn waiting(world: &World, pod: &str) -> Option<(String, String)> {
    let statuses = world.api_status(pod).container_statuses?;
    let waiting = statuses.first()?.state.clone()?.waiting?;
    Some((waiting.reason?, waiting.message.unwrap_or_default()))
}

pub(crate) fn calls_about(world: &World, what: &str) -> Vec<String> {
    world.api().call_lines().into_iter().filter(|line| line.contains(what)).collect()
}

#[tokio::test(start_paused = true)]
async fn env_variables_come_from_config_maps_secrets_and_services() {
    let world = World::joined().await;
    world.api().put(&config_map("settings", json!({"COLOR": "red", "size": "big"})));
    world.api().put(&secret("keys", "password", "sesame"));
    world.api().put(&service("default", "db", "10.0.0.5"));
    world.api().put(&service("default", "kubernetes", "10.0.0.1"));
    world.api().put(&service("elsewhere", "other", "10.0.0.9"));
    let app = container_with(
        "app",
        json!({
            "envFrom": [
                {"configMapRef": {"name": "settings"}, "prefix": "CFG_"},
                {"configMapRef": {"name": "nowhere", "optional": true}},
            ],
            "env": [
                {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "password"}}},
                {"name": "GREETING", "value": "I am $(CFG_COLOR)"},
            ],
        }),
    );
    let linked = json!({"enableServiceLinks": true});
    world.create(&pod("web", [app]).spec(linked));
    world.until("the pod is ready", |w| w.is_ready_in_api("web")).await;
    let value = |name| variable(&world, "web", name);
    assert_eq!(value("CFG_size").as_deref(), Some("big"));
    assert_eq!(value("PASSWORD").as_deref(), Some("sesame"));
    assert_eq!(value("GREETING").as_deref(), Some("I am red"));
    assert_eq!(value("DB_SERVICE_HOST").as_deref(), Some("10.0.0.5"));
    assert_eq!(value("KUBERNETES_SERVICE_HOST").as_deref(), Some("10.0.0.1"));
    assert_eq!(value("OTHER_SERVICE_HOST"), None);

    world.create(&pod("plain", [container("app")]).spec(json!({"enableServiceLinks": false})));
    world.until("the other pod is ready", |w| w.is_ready_in_api("plain")).await;
    assert_eq!(variable(&world, "plain", "DB_SERVICE_HOST"), None);
    assert_eq!(variable(&world, "plain", "KUBERNETES_SERVICE_HOST").as_deref(), Some("10.0.0.1"));
}

#[tokio::test(start_paused = true)]
async fn secret_value_that_is_not_utf8_reaches_the_container_or_fails_with_its_variable() {
    let world = World::joined().await;
    let mut keys = secret("keys", "text", "plain");
    let raw = model::k8s::ByteString(vec![0xff, 0xfe]);
    keys.data.as_mut().unwrap().insert("raw".to_owned(), raw);
    world.api().put(&keys);
    let all = || container_with("app", json!({"envFrom": [{"secretRef": {"name": "keys"}}]}));
    world.create(&pod("web", [all()]));
    world.until("the pod is ready", |w| w.is_ready_in_api("web")).await;
    let env = world.fake.container_request("web", "app").unwrap().env;
    let of = |name: &str| env.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_bytes());
    assert_eq!((of("raw"), of("text")), (Some([0xff, 0xfe].as_slice()), Some(b"plain".as_slice())));

    let refused = "grpc: error unmarshalling request: string field contains invalid UTF-8";
    world.fake.fault(Method::CreateContainer, Fault::Failed(refused.to_owned()));
    world.create(&pod("strict", [all()]));
    let message = format!("{refused}; environment variables that are not valid UTF-8: raw");
    let expected = ("CreateContainerError".to_owned(), message);
    world.until("the reason shows", |w| waiting(w, "strict").as_ref() == Some(&expected)).await;
}

#[tokio::test(start_paused = true)]
async fn resource_field_ref_without_limits_gives_node_allocatable() {
    let mut world = World::of_cluster();
    world.config.kube_reserved =
        [("cpu".to_owned(), "1".to_owned()), ("memory".to_owned(), "1Gi".to_owned())].into();
    world.start().await;
    world.until("the node is ready", World::is_node_ready).await;
    let field = |name: &str, resource: &str| json!({"name": name, "valueFrom": {"resourceFieldRef": {"containerName": "app", "resource": resource}}});
    let env = json!({"env": [field("CPUS", "limits.cpu"), field("BYTES", "limits.memory")]});
    world.create(&pod("web", [container_with("app", env)]));
    world.until("the pod is ready", |w| w.is_ready_in_api("web")).await;
    // The machine has 4 cores and 8 GiB.
    assert_eq!(variable(&world, "web", "CPUS").as_deref(), Some("3"));
    assert_eq!(variable(&world, "web", "BYTES"), Some((7_u64 << 30).to_string()));
}

#[tokio::test(start_paused = true)]
async fn container_waits_for_the_config_map_of_a_variable_and_starts_when_it_is_created() {
    let world = World::joined().await;
    let from = json!({"env": [{"name": "COLOR", "valueFrom": {"configMapKeyRef": {"name": "cfg", "key": "color"}}}]});
    world.create(&pod("web", [container_with("app", from)]));
    let expected = ("CreateContainerConfigError".to_owned(), "configmap \"cfg\" not found".to_owned());
    world.until("the reason shows", |w| waiting(w, "web").as_ref() == Some(&expected)).await;
    world.advance(seconds(120)).await;
    let came = world.now();
    world.api().put(&config_map("cfg", json!({"color": "red"})));
    let ran = world.until("the pod is ready", |w| w.is_ready_in_api("web")).await;
    assert!(ran - came < seconds(3), "it took {:?}", ran - came);
    assert_eq!(variable(&world, "web", "COLOR").as_deref(), Some("red"));
}

#[tokio::test(start_paused = true)]
async fn api_pods_wait_for_the_service_list_and_static_pods_do_not() {
    let mut world = World::of_cluster();
    world.api().fault_always(Verb::List, "services", Some(ClusterFault::Unreachable));
    world.start().await;
    world.until("the node is ready", World::is_node_ready).await;
    world.create(&pod("web", [container("app")]).spec(json!({"enableServiceLinks": true})));
    world.apply(&pod("local", [container("app")]));
    let text = "services have not yet been read at least once, cannot construct envvars";
    let expected = ("CreateContainerConfigError".to_owned(), text.to_owned());
    world.until("the reason shows", |w| waiting(w, "web").as_ref() == Some(&expected)).await;
    world.until("the static pod runs", |w| w.runs("local-node/app")).await;
    world.api().clear_faults();
    world.until("the pod is ready", |w| w.is_ready_in_api("web")).await;
}

#[tokio::test(start_paused = true)]
async fn pod_without_service_links_starts_although_services_are_not_known() {
    let mut world = World::of_cluster();
    world.api().fault_always(Verb::List, "services", Some(ClusterFault::Unreachable));
    world.start().await;
    world.until("the node is ready", World::is_node_ready).await;
    let created = world.now();
    world.create(&pod("plain", [container("app")]).spec(json!({"enableServiceLinks": false})));
    let ready = world.until("the pod is ready", |w| w.is_ready_in_api("plain")).await;
    assert!(ready - created < seconds(10), "it took {:?}", ready - created);
}

#[tokio::test(start_paused = true)]
async fn only_services_of_namespaces_with_pods_are_listed() {
    let world = World::joined().await;
    world.create(&pod("web", [container("app")]).spec(json!({"enableServiceLinks": true})));
    world.create(&pod("plain", [container("app")]).spec(json!({"enableServiceLinks": false})));
    world.until("both are ready", |w| w.is_ready_in_api("web") && w.is_ready_in_api("plain")).await;
    let lists = calls_about(&world, "list services");
    assert_eq!(lists, ["list services default metadata.name=kubernetes", "list services default"]);
}

#[tokio::test(start_paused = true)]
async fn pod_stays_pending_until_the_config_map_of_its_volume_exists() {
    let world = World::joined().await;
    let web = world.create(&pod_with_config_map("web"));
    let text = "MountVolume.SetUp failed for volume \"vol\" : configmap \"cfg\" not found";
    world.until("the event has the reason", |w| message(w, "FailedMount").as_deref() == Some(text)).await;
    world.until("the API has the change", |w| !w.api_events("FailedMount").is_empty()).await;
    world.advance(seconds(120)).await;
    assert_eq!(waiting(&world, "web"), Some(("ContainerCreating".to_owned(), String::new())));
    let came = world.now();
    world.api().put(&config_map("cfg", json!({"color": "red"})));
    let ran = world.until("the pod is ready", |w| w.is_ready_in_api("web")).await;
    assert!(ran - came < seconds(3), "it took {:?}", ran - came);
    assert_eq!(in_volume(&world, &web, "configmap", "color").as_deref(), Some("red"));
    let mount = &world.fake.container_request("web", "app").unwrap().mounts[0];
    assert!(mount.read_only, "{mount:?}");
}

#[tokio::test(start_paused = true)]
async fn config_map_volume_is_updated_at_once_and_kept_after_deletion() {
    let world = World::joined().await;
    world.api().put(&config_map("cfg", json!({"color": "red", "size": "big"})));
    let web = world.create(&pod_with_config_map("web"));
    world.until("the pod is ready", |w| w.is_ready_in_api("web")).await;
    let changed = world.now();
    world.api().put(&config_map("cfg", json!({"color": "blue"})));
    let is_blue = |w: &World| in_volume(w, &web, "configmap", "color").as_deref() == Some("blue");
    let seen = world.until("the volume shows the change", is_blue).await;
    assert!(seen - changed < seconds(1), "it took {:?}", seen - changed);
    assert_eq!(in_volume(&world, &web, "configmap", "size"), None);

    world.api().remove::<ConfigMap>("default", "cfg", None);
    world.until("the deletion is noticed", |w| w.recorded("FailedMount") > 0).await;
    assert_eq!(in_volume(&world, &web, "configmap", "color").as_deref(), Some("blue"));
    assert_eq!(world.api_phase("web"), "Running");
}

#[tokio::test(start_paused = true)]
async fn pods_share_one_watch_per_config_map_and_the_last_pod_ends_it() {
    let world = World::joined().await;
    world.api().put(&config_map("cfg", json!({"color": "red"})));
    let watches = world.api().open_watches();
    for name in ["a", "b"] {
        world.create(&pod_with_config_map(name));
        world.until("the pod is ready", |w| w.is_ready_in_api(name)).await;
    }
    assert_eq!(world.api().open_watches(), watches + 1);
    assert_eq!(
        calls_about(&world, "configmaps"),
        ["list configmaps default metadata.name=cfg", "watch configmaps default metadata.name=cfg"]
    );
    for name in ["a", "b"] {
        assert_eq!(world.api().open_watches(), watches + 1);
        world.delete(name, Some(1));
        world.until("the pod is gone", |w| w.in_api(name).is_none()).await;
    }
    world.until("there is no watch left", |w| w.api().open_watches() == watches).await;
}

#[tokio::test(start_paused = true)]
async fn immutable_secret_is_not_watched() {
    let world = World::joined().await;
    let mut fixed = config_map("cfg", json!({"color": "red"}));
    fixed.immutable = Some(true);
    world.api().put(&fixed);
    let web = world.create(&pod_with_config_map("web"));
    world.until("the pod is ready", |w| w.is_ready_in_api("web")).await;
    world.advance(seconds(600)).await;
    assert_eq!(calls_about(&world, "configmaps"), ["list configmaps default metadata.name=cfg"]);
    assert_eq!(in_volume(&world, &web, "configmap", "color").as_deref(), Some("red"));
    assert_eq!(world.recorded("FailedMount"), 0);
}

#[tokio::test(start_paused = true)]
async fn cached_config_map_is_read_again_after_a_minute_and_survives_an_outage() {
    let world = joined_with("Cache").await;
    world.api().put(&config_map("cfg", json!({"color": "red"})));
    let web = world.create(&pod_with_config_map("web"));
    world.until("the pod is ready", |w| w.is_ready_in_api("web")).await;
    assert_eq!(calls_about(&world, "configmaps"), ["get configmaps default/cfg"]);
    let changed = world.now();
    world.api().put(&config_map("cfg", json!({"color": "blue"})));
    let is_blue = |w: &World| in_volume(w, &web, "configmap", "color").as_deref() == Some("blue");
    let seen = world.until("the volume shows the change", is_blue).await;
    assert!((seconds(10)..seconds(181)).contains(&(seen - changed)), "it took {:?}", seen - changed);

    world.api().fault_always(Verb::Get, "configmaps", Some(ClusterFault::Unreachable));
    world.advance(seconds(300)).await;
    assert_eq!(world.recorded("FailedMount"), 0);
}

#[tokio::test(start_paused = true)]
async fn node_ttl_annotation_sets_the_lifetime_of_cached_config_maps() {
    let world = joined_with("Cache").await;
    let mut node = world.node().unwrap();
    let ttl = ("node.alpha.kubernetes.io/ttl".to_owned(), "600".to_owned());
    node.metadata.annotations.get_or_insert_default().extend([ttl]);
    world.api().put(&node);
    world.advance(seconds(1)).await;
    world.api().put(&config_map("cfg", json!({"color": "red"})));
    let web = world.create(&pod_with_config_map("web"));
    world.until("the pod is ready", |w| w.is_ready_in_api("web")).await;
    let changed = world.now();
    world.api().put(&config_map("cfg", json!({"color": "blue"})));
    let is_blue = |w: &World| in_volume(w, &web, "configmap", "color").as_deref() == Some("blue");
    let seen = loop_until(&world, seconds(800), is_blue).await;
    assert!((seconds(590)..seconds(695)).contains(&(seen - changed)), "it took {:?}", seen - changed);
}

#[tokio::test(start_paused = true)]
async fn change_detection_get_reads_the_config_map_at_each_volume_sync() {
    let world = joined_with("Get").await;
    world.api().put(&config_map("cfg", json!({"color": "red"})));
    let web = world.create(&pod_with_config_map("web"));
    world.until("the pod is ready", |w| w.is_ready_in_api("web")).await;
    let changed = world.now();
    world.api().put(&config_map("cfg", json!({"color": "blue"})));
    let is_blue = |w: &World| in_volume(w, &web, "configmap", "color").as_deref() == Some("blue");
    let seen = world.until("the volume shows the change", is_blue).await;
    // The next resync, which comes after one to one and a half of `syncFrequency`.
    assert!(seen - changed < seconds(91), "it took {:?}", seen - changed);
    world.api().fault_always(Verb::Get, "configmaps", Some(ClusterFault::Unreachable));
    world.until("the failure is reported", |w| w.recorded("FailedMount") > 0).await;
    assert_eq!(calls_about(&world, "watch configmaps"), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn secret_volumes_are_on_tmpfs_and_leave_no_file() {
    let world = World::joined().await;
    world.api().put(&secret("keys", "password", "sesame"));
    let web = world.create(&pod_with_volume("web", json!({"secret": {"secretName": "keys"}})));
    world.until("the pod is ready", |w| w.is_ready_in_api("web")).await;
    assert_eq!(in_volume(&world, &web, "secret", "password").as_deref(), Some("sesame"));
    let uid = web.metadata.uid.unwrap();
    assert_eq!(world.host.mounts(), [format!("tmpfs {PODS}/{uid}/volumes/kubernetes.io~secret/vol")]);
    world.delete("web", Some(1));
    world.until("the pod is gone", |w| w.in_api("web").is_none()).await;
    world.until("nothing is left", |w| w.traces().is_empty()).await;
}

/// The volume that every pod of a cluster gets.
fn pod_with_token(name: &str, seconds: i64) -> Manifest {
    pod_with_volume(
        name,
        json!({"projected": {"sources": [
            {"serviceAccountToken": {"path": "token", "expirationSeconds": seconds}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
        ]}}),
    )
}

pub(crate) fn with_account(world: &World) {
    let account: ServiceAccount = from(json!({"metadata": {"name": "default", "namespace": "default"}}));
    world.api().put(&account);
    world.api().put(&config_map("kube-root-ca.crt", json!({"ca.crt": "CA"})));
}

#[tokio::test(start_paused = true)]
async fn service_account_token_is_requested_once_and_renewed_at_80_percent_of_its_lifetime() {
    const TOKENS: &str = "create serviceaccounts/token default/default";
    let world = World::joined().await;
    with_account(&world);
    let web = world.create(&pod_with_token("web", 3600));
    world.until("the pod is ready", |w| w.is_ready_in_api("web")).await;
    let began = world.now();
    let shown = |w: &World, file: &str| in_volume(w, &web, "projected", file);
    assert_eq!(shown(&world, "token").as_deref(), Some("token-1"));
    assert_eq!(shown(&world, "ca.crt").as_deref(), Some("CA"));
    assert_eq!(shown(&world, "namespace").as_deref(), Some("default"));
    let renewed =
        loop_until(&world, seconds(4000), |w| shown(w, "token").as_deref() == Some("token-2")).await;
    let life = renewed - began;
    // Four fifths of an hour are 2880 s; jitter makes it 10 s earlier, the next resync up to 90 s later.
    assert!((seconds(2860)..seconds(2975)).contains(&life), "renewed after {life:?}");
    assert_eq!(world.api_calls(TOKENS), 2);
}

#[tokio::test(start_paused = true)]
async fn failed_token_renewal_keeps_the_old_service_account_token() {
    let world = World::joined().await;
    with_account(&world);
    let web = world.create(&pod_with_token("web", 600));
    world.until("the pod is ready", |w| w.is_ready_in_api("web")).await;
    let refused = ClusterFault::Unreachable;
    world.api().fault_always(Verb::Create, "serviceaccounts/token", Some(refused));
    world.advance(seconds(590)).await;
    assert_eq!(world.recorded("FailedMount"), 0);
    world.advance(seconds(120)).await;
    let text = message(&world, "FailedMount").unwrap();
    let expected = "MountVolume.SetUp failed for volume \"vol\" : failed to fetch token: ";
    assert!(text.starts_with(expected), "{text}");
    assert_eq!(in_volume(&world, &web, "projected", "token").as_deref(), Some("token-1"));
    world.api().clear_faults();
    let is_new = |w: &World| in_volume(w, &web, "projected", "token").as_deref() == Some("token-2");
    world.until("the new token is shown", is_new).await;
}

/// Like `World::until`, for conditions that take longer.
pub(crate) async fn loop_until(
    world: &World,
    timeout: Duration,
    condition: impl Fn(&World) -> bool,
) -> Duration {
    let deadline = world.now() + timeout;
    while !condition(world) {
        assert!(world.now() < deadline, "timed out waiting\n{}", world.describe());
        world.advance(seconds(1)).await;
    }
    world.now()
}

#[tokio::test(start_paused = true)]
async fn downward_api_volume_of_a_static_pod_works_standalone() {
    let world = World::started().await;
    let items = json!([{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]);
    world.apply(&pod_with_volume("web", json!({"downwardAPI": {"items": items}})));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    let pods = world.agent.as_ref().unwrap().pods().all();
    let pod = pods.first().unwrap().pod.clone();
    assert_eq!(in_volume(&world, &pod, "downward-api", "name").as_deref(), Some("web-node"));
    assert_eq!(world.host.mounts().len(), 1);
    world.remove("web");
    world.until("nothing is left", |w| w.traces().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn nested_volume_mount_points_are_created() {
    let world = World::joined().await;
    world.api().put(&config_map("cfg", json!({"color": "red"})));
    let mounts = json!({"volumeMounts": [
        {"name": "vol", "mountPath": "/vol"}, {"name": "scratch", "mountPath": "/vol/scratch/pad"},
    ]});
    let volumes = json!({"volumes": [
        {"name": "vol", "configMap": {"name": "cfg"}}, {"name": "scratch", "emptyDir": {}},
    ]});
    let web = world.create(&pod("web", [container_with("app", mounts)]).spec(volumes));
    world.until("the pod is ready", |w| w.is_ready_in_api("web")).await;
    let uid = web.metadata.uid.unwrap();
    let volume = format!("{PODS}/{uid}/volumes/kubernetes.io~configmap/vol");
    assert!(world.host.exists(format!("{volume}/scratch/pad")));
}

#[tokio::test(start_paused = true)]
async fn image_pull_secrets_of_the_pod_are_used() {
    let world = World::joined().await;
    world.fake.private("r.io/app:1", "ann");
    world.api().put(&pull_secret("bob", "bob"));
    world.api().put(&pull_secret("ann", "ann"));
    world.create(&pod_with_pull_secrets("web", &["bob", "nowhere", "ann"]));
    world.until("the pod is ready", |w| w.is_ready_in_api("web")).await;
    let text =
        "Unable to retrieve some image pull secrets (nowhere); attempting to pull the image may not succeed.";
    assert_eq!(message(&world, "FailedToRetrieveImagePullSecret").as_deref(), Some(text));
}

#[tokio::test(start_paused = true)]
async fn pod_without_the_right_secret_does_not_get_an_image_by_sharing_a_pull() {
    let world = World::joined().await;
    world.fake.private("r.io/app:1", "ann").latency(Method::PullImage, seconds(20));
    world.api().put(&pull_secret("ann", "ann"));
    world.create(&pod_with_pull_secrets("ann", &["ann"]));
    world.until("the pull is in progress", |w| w.recorded("Pulling") == 1).await;
    world.create(&pod_with_pull_secrets("eve", &[]));
    let is_refused = |w: &World| message(w, "Failed").as_deref() == Some("Error: ErrImagePull");
    world.until("the other pull fails", is_refused).await;
    assert_eq!(world.fake.count(Method::PullImage), 2);
}

#[tokio::test(start_paused = true)]
async fn unreadable_image_pull_secret_is_reported_at_the_pull() {
    let world = World::joined().await;
    let mut broken = pull_secret("broken", "ann");
    broken.data = Some([(".dockerconfigjson".to_owned(), model::k8s::ByteString(b"hidden".to_vec()))].into());
    world.api().put(&broken);
    world.create(&pod_with_pull_secrets("web", &["broken"]));
    let text = "secret \"broken\" of type kubernetes.io/dockerconfigjson: not a docker config file: line 1, column 1: not JSON";
    let expected = ("ErrImagePull".to_owned(), text.to_owned());
    world.until("the reason shows", |w| waiting(w, "web").as_ref() == Some(&expected)).await;
}

#[tokio::test(start_paused = true)]
async fn runtime_class_sets_the_handler_and_an_unknown_class_keeps_the_pod_waiting() {
    let world = World::joined().await;
    world.create(&pod("web", [container("app")]).spec(json!({"runtimeClassName": "strict"})));
    let text = "Failed to create pod sandbox: runtimeclass.node.k8s.io \"strict\" not found";
    world
        .until("the event has the reason", |w| message(w, "FailedCreatePodSandBox").as_deref() == Some(text))
        .await;
    world.api().put::<RuntimeClass>(&from(json!({"metadata": {"name": "strict"}, "handler": "kata"})));
    world.until("the pod is ready", |w| w.is_ready_in_api("web")).await;
    assert_eq!(world.fake.sandbox_request("web").unwrap().runtime_handler, "kata");
}

#[tokio::test(start_paused = true)]
async fn without_the_feature_gate_cluster_trust_bundle_volumes_fail_even_if_optional() {
    let world = World::joined().await;
    let message = "MountVolume.SetUp failed for volume \"vol\" : ClusterTrustBundle projection is not available on this node: \
                 the feature gate ClusterTrustBundleProjection is off, or the node is standalone";
    for (name, is_optional) in [("strict", false), ("easy", true)] {
        let bundle = json!({"name": "roots", "path": "roots.pem", "optional": is_optional});
        let source = json!({"projected": {"sources": [{"clusterTrustBundle": bundle}]}});
        world.create(&pod_with_volume(name, source));
        let is_reported = |w: &World| {
            let events = w.agent.as_ref().unwrap().recorder().latest();
            events.iter().any(|e| e.message == message && e.about.pod().is_some_and(|pod| &*pod.name == name))
        };
        world.until("it is reported", is_reported).await;
        assert!(world.fake.container_request(name, "app").is_none(), "{name} waits");
    }
    assert_eq!(calls_about(&world, "rustbundle"), Vec::<String>::new(), "the API gets no request");
}

#[tokio::test(start_paused = true)]
async fn token_request_rejected_right_after_binding_is_repeated_without_an_event() {
    let world = World::joined().await;
    with_account(&world);
    let text = "serviceaccounts \"default\" is forbidden: node requested token bound to a pod scheduled on a different node";
    let refused = ClusterError::Forbidden { call: String::new(), message: text.to_owned() };
    world.api().fault_times(
        Verb::Create,
        "serviceaccounts/token",
        &ClusterFault::Refused(refused.clone()),
        4,
    );
    let began = world.now();
    world.create(&pod_with_token("web", 3600));
    let ready = world.until("the pod is ready", |w| w.is_ready_in_api("web")).await;
    assert!(ready - began < seconds(5), "it took {:?}", ready - began);
    assert_eq!(world.recorded("FailedMount"), 0);
    // A repeated failure is reported.
    let refused = ClusterFault::Refused(refused);
    world.api().fault_always(Verb::Create, "serviceaccounts/token", Some(refused));
    world.create(&pod_with_token("other", 3600));
    world.until("the event is recorded", |w| w.recorded("FailedMount") > 0).await;
}

#[tokio::test(start_paused = true)]
async fn pod_with_more_config_maps_and_secrets_than_the_limit_waits_and_none_is_read() {
    let world = World::joined().await;
    let of = |count: usize| {
        let sources = (0..count).map(|n| match n % 2 {
            0 => json!({"configMapRef": {"name": format!("bulk-{n}"), "optional": true}}),
            _ => json!({"secretRef": {"name": format!("bulk-{n}"), "optional": true}}),
        });
        json!({"envFrom": sources.collect::<Vec<Value>>()})
    };
    world.create(&pod("large", [container_with("app", of(256))]));
    world.until("a pod with as many as the limit is ready", |w| w.is_ready_in_api("large")).await;
    world.api().forget_calls();
    world.create(&pod("larger", [container_with("app", of(257))]));
    let too_many = |count: usize| {
        format!(
            "pod refers to {count} ConfigMaps, Secrets, service account tokens and ClusterTrustBundles, \
             but a pod may refer to at most 256"
        )
    };
    let text = too_many(257);
    let expected = ("CreateContainerConfigError".to_owned(), text.clone());
    world.until("the reason is in the status", |w| waiting(w, "larger").as_ref() == Some(&expected)).await;
    assert_eq!(calls_about(&world, "bulk-256"), Vec::<String>::new());
    // The objects of its volumes count, too.
    let sources: Vec<Value> = (0..257).map(|n| json!({"secret": {"name": format!("bulk-{n}")}})).collect();
    let volume = json!({"projected": {"sources": sources}});
    world.create(&pod_with_volume("volume", volume));
    let failed = |w: &World| message(w, "FailedMount").is_some_and(|message| message.contains(&text));
    world.until("the event has the reason", failed).await;
}

/// A claim of that driver's device, reserved for the pod and, if it was made from a template, owned by it.
fn resource_claim(name: &str, driver: &str, reserved_for: &Pod, is_generated: bool) -> ResourceClaim {
    let uid = reserved_for.metadata.uid.clone().unwrap();
    let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": true}]);
    from(json!({
        "metadata": {"name": name, "namespace": "default", "ownerReferences": is_generated.then_some(owner)},
        "status": {
            "reservedFor": [{"resource": "pods", "name": "p", "uid": uid}],
            "allocation": {"devices": {"results": [{"driver": driver, "device": "d-0"}]}},
        },
    }))
}

#[tokio::test(start_paused = true)]
async fn pod_with_a_resource_claim_waits_and_says_why_as_long_as_the_claim_cannot_be_prepared() {
    let world = World::joined().await;
    let says = |why: &str| {
        let text = format!("Failed to prepare dynamic resources: prepare dynamic resources: {why}");
        move |w: &World| message(w, "FailedPrepareDynamicResources").as_deref() == Some(&*text)
    };
    let claims = json!([{"name": "gpu", "resourceClaimTemplateName": "t"}]);
    let container = container_with("app", json!({"resources": {"claims": [{"name": "gpu"}]}}));
    let mut pod = world.create(&pod("gpu", [container]).spec(json!({"resourceClaims": claims})));
    world.until("no claim was made", says("pod \"default/gpu\": ResourceClaim not created yet")).await;
    let made = json!([{"name": "gpu", "resourceClaimName": "gpu-x"}]);
    pod.status = Some(from(json!({"phase": "Pending", "resourceClaimStatuses": made})));
    world.api().put(&pod);
    world
        .until("it is read", |w| {
            message(w, "FailedPrepareDynamicResources").unwrap().contains("fetch ResourceClaim gpu-x: ")
        })
        .await;
    world.api().put(&resource_claim("gpu-x", "gpu.example.com", &pod, true));
    world.until("the driver is missing", says("DRA driver gpu.example.com is not registered")).await;
    world.advance(seconds(60)).await;
    assert_eq!(world.fake.count(Method::RunPodSandbox), 0, "no sandbox without its devices");
    assert_eq!(waiting(&world, "gpu").unwrap().0, "ContainerCreating");
    world.delete("gpu", None);
    world.until("the pod is gone", |w| w.in_api("gpu").is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn pod_whose_extended_resource_is_backed_by_a_claim_waits_for_it() {
    let world = World::joined().await;
    let pod = world.create(&pod("nic", [container("app")]));
    world.until("it runs", |w| w.is_ready_in_api("nic")).await;
    let mapping = json!([{"containerName": "app", "resourceName": "example.com/nic", "requestName": "r"}]);
    let extended = json!({"resourceClaimName": "nic-extended", "requestMappings": mapping});
    let mut late = Manifest::object(&crate::pods::pod("late", [container("app")]));
    late.status = Some(from(json!({"phase": "Pending", "extendedResourceClaimStatus": extended})));
    world.api().put(&late);
    world.until("it waits", |w| w.recorded("FailedPrepareDynamicResources") > 0).await;
    assert!(world.fake.sandbox_request("late").is_none(), "no sandbox without its devices");
    assert!(world.is_ready_in_api(pod.metadata.name.as_deref().unwrap()), "other pods are not affected");
}

#[tokio::test(start_paused = true)]
async fn tokens_count_towards_the_limit_of_objects_and_none_is_requested() {
    let world = World::joined().await;
    let token =
        |n: usize| json!({"serviceAccountToken": {"audience": format!("a{n}"), "path": format!("t{n}")}});
    let volume = json!({"projected": {"sources": (0..257).map(token).collect::<Vec<Value>>()}});
    world.create(&pod_with_volume("volume", volume));
    let text = "pod refers to 257 ConfigMaps, Secrets, service account tokens and ClusterTrustBundles";
    let failed = |w: &World| message(w, "FailedMount").is_some_and(|message| message.contains(text));
    world.until("the event has the reason", failed).await;
    assert_eq!(calls_about(&world, "serviceaccounts/token"), Vec::<String>::new());
}
