//! The memory and processor time of the server process under many watchers, many objects and clients that poll.

use std::time::{Duration, Instant};

use kube::Client;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::hostile::{get, post, send};
use crate::server::{Server, TIMEOUT};
use crate::watch_requests::{Watch, version};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";
const OBJECTS: usize = 1_000;
const WATCHERS: usize = 100;
const CHANGES: usize = 300;
/// Requests at once.
const PARALLEL: usize = 8;

/// Calls `each` for all numbers below `count`, several at once.
async fn in_parallel<F: Future<Output = ()> + Send + 'static>(count: usize, each: impl Fn(usize) -> F) {
    let mut running = JoinSet::new();
    for number in 0..count {
        if running.len() == PARALLEL {
            running.join_next().await.expect("one runs").expect("a request");
        }
        running.spawn(each(number));
    }
    while let Some(ended) = running.join_next().await {
        ended.expect("a request");
    }
}

async fn create(client: Client, path: &'static str, object: Value) {
    let created = post(&client, path, &object.to_string()).await;
    assert_eq!(created.code, 201, "{}", created.text());
}

async fn patch(client: &Client, path: &str, patch: Value) -> Value {
    let request = http::Request::patch(path).header("content-type", "application/merge-patch+json");
    let patched = send(client, request, patch.to_string()).await;
    assert_eq!(patched.code, 200, "{}", patched.text());
    patched.json()
}

/// What a watcher needs of an event: less work than the whole object for a test that has a hundred of them.
#[derive(Deserialize)]
struct Event {
    r#type: String,
    object: Object,
}

#[derive(Deserialize)]
struct Object {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    resource_version: String,
}

/// Reads all objects, then all changes up to this version; returns the versions of the changes.
async fn follow(
    client: Client,
    mut ready: tokio::sync::watch::Receiver<u64>,
    begun: tokio::sync::mpsc::Sender<()>,
) -> Vec<u64> {
    let path =
        format!("{MAPS}?sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true");
    let mut watch = Watch::open(&client, &path).await;
    let (mut objects, mut versions) = (0, Vec::new());
    let mut is_listed = false;
    loop {
        let last = *ready.borrow_and_update();
        if last > 0 && versions.last() == Some(&last) {
            return versions;
        }
        let line = tokio::select! {
            line = watch.next_line() => line.expect("a watch that is fast enough stays open"),
            changed = ready.changed() => {
                changed.expect("the writer lives");
                continue;
            }
        };
        let event: Event = serde_json::from_slice(&line).expect("an event");
        match (event.r#type.as_str(), is_listed) {
            ("ADDED", false) => objects += 1,
            ("BOOKMARK", false) => {
                assert_eq!(objects, OBJECTS);
                is_listed = true;
                begun.send(()).await.expect("the test waits");
            }
            ("BOOKMARK", true) => {}
            ("MODIFIED", true) => {
                versions.push(event.object.metadata.resource_version.parse().expect("a number"))
            }
            (other, _) => panic!("unexpected {other}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundred_watchers_of_thousand_objects_see_all_changes_in_order_in_bounded_memory() {
    let server = Server::start(&["--no-service-accounts"]);
    let client = server.client("admin.kubeconfig").await;
    let empty = server.private_memory();
    in_parallel(OBJECTS, |number| {
        let map = json!({"metadata": {"name": format!("m{number}")}, "data": {"a": "x".repeat(500)}});
        create(client.clone(), MAPS, map)
    })
    .await;
    let filled = server.private_memory();
    let (last, ready) = tokio::sync::watch::channel(0);
    let (begun, mut listed) = tokio::sync::mpsc::channel(WATCHERS);
    let mut watchers = JoinSet::new();
    let begin = Instant::now();
    for _ in 0..WATCHERS {
        watchers.spawn(follow(client.clone(), ready.clone(), begun.clone()));
    }
    for _ in 0..WATCHERS {
        tokio::time::timeout(TIMEOUT, listed.recv()).await.expect("lists in time").expect("watchers live");
    }
    let watched = server.private_memory();
    let mut expected = Vec::new();
    for number in 0..CHANGES {
        let map = format!("{MAPS}/m{}", number * 7 % OBJECTS);
        expected.push(version(&patch(&client, &map, json!({"data": {"b": number.to_string()}})).await));
    }
    last.send(expected[CHANGES - 1]).expect("watchers live");
    while let Some(seen) = tokio::time::timeout(TIMEOUT, watchers.join_next()).await.expect("in time") {
        assert_eq!(seen.expect("a watcher"), expected);
    }
    let (elapsed, changed) = (begin.elapsed(), server.private_memory());
    println!("empty {empty}, {OBJECTS} objects {filled}, watched {watched}, changed {changed}, {elapsed:?}");
    assert!(filled < empty + (6 << 20), "{OBJECTS} objects took {} bytes", filled - empty);
    assert!(changed < filled + (24 << 20), "{WATCHERS} watchers took {} bytes", changed - filled);
    assert!(elapsed < TIMEOUT, "{elapsed:?}");
}

/// A pod as it is on a node, with its status and the entries of its managers: about five kilobytes.
async fn create_running_pod(client: Client, number: usize) {
    let name = format!("pod-{number}");
    let probe = json!({"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 5});
    let container = json!({
        "name": "main",
        "image": "registry.example.com/team/application:1.2.3",
        "env": [{"name": "MODE", "value": "production"}, {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "ports": [{"containerPort": 8080, "name": "http"}],
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
        "livenessProbe": probe,
        "readinessProbe": probe,
        "volumeMounts": [{"name": "settings", "mountPath": "/etc/settings"}],
    });
    let spec = json!({
        "nodeName": "n", "containers": [container],
        "volumes": [{"name": "settings", "configMap": {"name": "settings"}}],
    });
    let pod = json!({"metadata": {"name": name, "labels": {"app": "till", "number": number.to_string()}}, "spec": spec});
    create(client.clone(), PODS, pod).await;
    let at = "2026-01-01T00:00:00Z";
    let conditions = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];
    let conditions = conditions.map(|kind| json!({"type": kind, "status": "True", "lastTransitionTime": at}));
    for phase in ["Pending", "Pending", "Running"] {
        let status = json!({
            "phase": phase, "conditions": conditions, "podIP": "10.0.0.7", "podIPs": [{"ip": "10.0.0.7"}],
            "hostIP": "10.0.0.1", "hostIPs": [{"ip": "10.0.0.1"}], "qosClass": "Burstable", "startTime": at,
            "containerStatuses": [{
                "name": "main", "ready": phase == "Running", "started": true, "restartCount": 0,
                "image": "registry.example.com/team/application:1.2.3",
                "imageID": "registry.example.com/team/application@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
                "containerID": "containerd://0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
                "state": {"running": {"startedAt": at}}, "lastState": {},
            }],
        });
        patch(&client, &format!("{PODS}/{name}/status"), json!({"status": status})).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn running_pods_take_at_most_twenty_kilobytes_each() {
    const FEW: usize = 20;
    const PODS_OF_A_NODE: usize = 220;
    let directory = tempfile::tempdir().expect("a directory");
    let database = format!("--database={}", directory.path().join("objects.redb").display());
    let server = Server::start(&[&database, "--history=1000", "--no-service-accounts"]);
    let at_rest = server.private_memory();
    let client = server.client("admin.kubeconfig").await;
    // The first ones bring the threads and buffers of requests.
    in_parallel(FEW, |number| create_running_pod(client.clone(), number)).await;
    let few = server.private_memory();
    in_parallel(PODS_OF_A_NODE - FEW, |number| create_running_pod(client.clone(), FEW + number)).await;
    let many = server.private_memory();
    let size = get(&client, &format!("{PODS}/pod-7")).await.body.len();
    let each = many.saturating_sub(few) / (PODS_OF_A_NODE - FEW);
    println!(
        "at rest {at_rest}, {FEW} pods {few}, {PODS_OF_A_NODE} pods {many}: {each} for each, whose text has {size}"
    );
    assert!(each <= 20_000, "{each} bytes for each pod");
    assert!(at_rest <= 8 << 20, "{at_rest} bytes at rest");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_that_polls_tables_every_two_seconds_takes_little_processor_time() {
    const POLLS: u32 = 10;
    let server = Server::start(&["--no-service-accounts"]);
    let client = server.client("admin.kubeconfig").await;
    in_parallel(110, |number| create_running_pod(client.clone(), number)).await;
    let table = |path: &str| {
        let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
        let request = http::Request::get(format!("{path}?includeObject=Object")).header("accept", accept);
        send(&client, request, String::new())
    };
    let before = server.processor_time();
    for _ in 0..POLLS {
        let pods = table("/api/v1/pods").await;
        assert_eq!(pods.json()["rows"].as_array().expect("rows").len(), 110);
        for path in ["/api/v1/nodes", "/api/v1/namespaces", "/api/v1/events"] {
            assert_eq!(table(path).await.code, 200, "{path}");
        }
    }
    let each = (server.processor_time() - before) / POLLS;
    println!("{each:?} for each poll");
    assert!(each < Duration::from_secs(2) / 4, "{each:?} every two seconds");
    // Between the polls it sleeps, also with an open watch, which ends after three seconds.
    let before = server.processor_time();
    let quiet = "/api/v1/pods?labelSelector=none&timeoutSeconds=3";
    assert!(Watch::open(&client, quiet).await.rest().await.is_empty());
    let idle = server.processor_time() - before;
    assert!(idle < Duration::from_millis(300), "{idle:?} in three seconds without a change");
}
