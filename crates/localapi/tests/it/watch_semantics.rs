//! What clients that follow a collection rely on: the cases of client-go's reflector and informers and of kube-rs' watcher.

use fixtures::rng::Rng;
use kube::Client;
use serde_json::{Value, json};

use crate::hostile::{get, post, send};
use crate::server::{Server, eventually};
use crate::watch_requests::{Known, Watch, name, version};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";
const WATCH_LIST: &str = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

async fn create(client: &Client, name: &str, labels: Value) -> Value {
    let map = json!({"metadata": {"name": name, "labels": labels}, "data": {"a": "1"}});
    let created = post(client, MAPS, &map.to_string()).await;
    assert_eq!(created.code, 201, "{}", created.text());
    created.json()
}

async fn patch(client: &Client, path: &str, patch: Value) -> Value {
    let request = http::Request::patch(path).header("content-type", "application/merge-patch+json");
    let patched = send(client, request, patch.to_string()).await;
    assert_eq!(patched.code, 200, "{}", patched.text());
    patched.json()
}

async fn set(client: &Client, name: &str, value: &str) -> Value {
    patch(client, &format!("{MAPS}/{name}"), json!({"data": {"a": value}})).await
}

async fn delete(client: &Client, path: &str) -> Value {
    let deleted = send(client, http::Request::delete(path), String::new()).await;
    assert_eq!(deleted.code, 200, "{}", deleted.text());
    deleted.json()
}

/// A server without the objects that other parts of it make.
fn server(more: &[&str]) -> Server {
    Server::start(&[&["--no-service-accounts"], more].concat())
}

/// The list now, as a map of its objects.
async fn listed(client: &Client, path: &str) -> Known {
    Known::of_list(&get(client, path).await.json())
}

/// Discards the history, and returns when the server has done so: revision `old` is expired then.
async fn compact(server: &Server, client: &Client, old: u64) {
    server.compact();
    let (client, runtime) = (client.clone(), tokio::runtime::Handle::current());
    let path = format!("{MAPS}?resourceVersion={old}&resourceVersionMatch=Exact");
    let poll = move || {
        eventually("the history to be discarded", || {
            (runtime.block_on(get(&client, &path)).code == 410).then_some(())
        });
    };
    tokio::task::spawn_blocking(poll).await.expect("the polling task");
}

/// Creates, changes and deletes ten objects at random.
async fn change_at_random(client: &Client, seed: u64, steps: usize) {
    let mut rng = Rng::new(seed);
    for step in 0..steps {
        let name = format!("m{}", rng.below(10));
        let exists = get(client, &format!("{MAPS}/{name}")).await.code == 200;
        match (exists, rng.below(4)) {
            (false, _) => drop(create(client, &name, json!({})).await),
            (true, 0) => drop(delete(client, &format!("{MAPS}/{name}")).await),
            (true, _) => drop(set(client, &name, &step.to_string()).await),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn list_and_watch_from_its_version_miss_nothing_and_repeat_nothing() {
    let server = server(&[]);
    let client = server.client("admin.kubeconfig").await;
    let writer = tokio::spawn({
        let client = client.clone();
        async move {
            change_at_random(&client, 1, 150).await;
            create(&client, "end", json!({})).await;
        }
    });
    let mut followers = Vec::new();
    for start in 0..6 {
        let client = client.clone();
        followers.push(tokio::spawn(async move {
            // Each begins at another moment of the changes.
            let mut known = listed(&client, MAPS).await;
            while known.version < 20 * start {
                known = listed(&client, MAPS).await;
            }
            let mut watch = Watch::open(&client, &format!("{MAPS}?resourceVersion={}", known.version)).await;
            while !known.objects.contains_key("end") {
                known.apply(&watch.next().await.expect("an event"));
            }
            known.objects
        }));
    }
    writer.await.expect("the writer");
    let expected = listed(&client, MAPS).await.objects;
    for follower in followers {
        assert_eq!(follower.await.expect("a follower"), expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch_that_breaks_off_resumes_without_loss_or_repetition() {
    let server = server(&[]);
    let client = server.client("admin.kubeconfig").await;
    let mut known = listed(&client, MAPS).await;
    let writer = tokio::spawn({
        let client = client.clone();
        async move {
            change_at_random(&client, 2, 120).await;
            create(&client, "end", json!({})).await;
        }
    });
    // A new watch after every fourth event.
    while !known.objects.contains_key("end") {
        let mut watch = Watch::open(&client, &format!("{MAPS}?resourceVersion={}", known.version)).await;
        for _ in 0..4 {
            if !known.objects.contains_key("end") {
                known.apply(&watch.next().await.expect("an event"));
            }
        }
    }
    writer.await.expect("the writer");
    assert_eq!(known.objects, listed(&client, MAPS).await.objects);
}

#[tokio::test]
async fn watch_list_sends_the_objects_then_a_bookmark_then_changes() {
    let server = server(&[]);
    let client = server.client("admin.kubeconfig").await;
    let mut empty = Watch::open(&client, &format!("{MAPS}?{WATCH_LIST}")).await;
    let bookmark = empty.next().await.expect("a bookmark");
    let end = json!({"k8s.io/initial-events-end": "true"});
    assert_eq!(
        (&bookmark["type"], &bookmark["object"]["metadata"]["annotations"]),
        (&json!("BOOKMARK"), &end)
    );
    create(&client, "a", json!({"own": "yes"})).await;
    create(&client, "b", json!({})).await;
    for (query, expected) in [("", &["ADDED a", "ADDED b"][..]), ("&labelSelector=own%3Dyes", &["ADDED a"])] {
        let mut watch = Watch::open(&client, &format!("{MAPS}?{WATCH_LIST}{query}")).await;
        for line in expected {
            assert_eq!(watch.line().await, *line);
        }
        let list = get(&client, MAPS).await.json();
        let bookmark = watch.next().await.expect("a bookmark");
        let object = &bookmark["object"];
        assert_eq!(object["metadata"]["annotations"], end);
        assert_eq!((&object["kind"], &object["apiVersion"]), (&json!("ConfigMap"), &json!("v1")));
        assert_eq!(version(object), version(&list), "the version from which a broken watch goes on");
        set(&client, "a", query).await;
        assert_eq!(watch.line().await, "MODIFIED a");
    }
    // Each of these is valid, and has no such bookmark.
    let without = format!("{MAPS}?{}&timeoutSeconds=1", WATCH_LIST.replace("&allowWatchBookmarks=true", ""));
    let events = Watch::open(&client, &without).await.rest().await;
    assert_eq!(events.iter().map(|event| name(&event["object"])).collect::<Vec<_>>(), ["a", "b"]);
    let only_new = format!("{MAPS}?{}&timeoutSeconds=1", WATCH_LIST.replace("=true", "=false"));
    assert!(Watch::open(&client, &only_new).await.rest().await.is_empty());
}

#[tokio::test]
async fn watch_list_of_a_version_is_not_older_than_it() {
    let server = server(&[]);
    let client = server.client("admin.kubeconfig").await;
    let old = version(&create(&client, "a", json!({})).await);
    let new = version(&set(&client, "a", "2").await);
    let mut watch = Watch::open(&client, &format!("{MAPS}?{WATCH_LIST}&resourceVersion={old}")).await;
    let first = watch.next().await.expect("an event");
    assert_eq!((version(&first["object"]), &first["object"]["data"]["a"]), (new, &json!("2")));
    // What the version is of no longer matters, so that an expired one is as good.
    compact(&server, &client, old).await;
    let mut watch = Watch::open(&client, &format!("{MAPS}?{WATCH_LIST}&resourceVersion={old}")).await;
    assert_eq!(watch.line().await, "ADDED a");
    let client = server.client_without_retries("admin.kubeconfig").await;
    let future = get(&client, &format!("{MAPS}?{WATCH_LIST}&watch=true&resourceVersion=999999999")).await;
    assert_eq!((future.code, &future.json()["reason"]), (504, &json!("Timeout")));
}

#[tokio::test]
async fn bookmarks_move_the_version_of_a_watch_that_has_no_events() {
    let server = server(&["--bookmark-seconds=1"]);
    let client = server.client("admin.kubeconfig").await;
    let begin = version(&create(&client, "other", json!({})).await);
    let quiet = format!("{MAPS}?labelSelector=own%3Dyes");
    let silent = tokio::spawn({
        let (client, path) = (client.clone(), format!("{quiet}&resourceVersion={begin}&timeoutSeconds=3"));
        async move { Watch::open(&client, &path).await.rest().await }
    });
    let path = format!("{quiet}&allowWatchBookmarks=true&resourceVersion=");
    let mut watch = Watch::open(&client, &format!("{path}{begin}")).await;
    let last = version(&set(&client, "other", "2").await);
    let mut seen = begin;
    while seen < last {
        let event = watch.next().await.expect("an event");
        assert_eq!(event["type"], "BOOKMARK", "{event}");
        assert!(version(&event["object"]) >= seen, "{event}");
        assert!(
            event["object"]["metadata"].get("annotations").is_none(),
            "the initial events are over: {event}"
        );
        seen = version(&event["object"]);
    }
    // The client goes on from a bookmark after the history before it is gone.
    compact(&server, &client, begin).await;
    let mut again = Watch::open(&client, &format!("{path}{seen}")).await;
    create(&client, "own", json!({"own": "yes"})).await;
    assert_eq!(again.line().await, "ADDED own");
    let without: Vec<Value> = silent.await.expect("a watch");
    assert!(without.iter().all(|event| event["type"] != "BOOKMARK"), "{without:?}");
}

#[tokio::test]
async fn expired_version_ends_a_watch_with_an_error_and_a_new_list_goes_on() {
    let server = server(&[]);
    let client = server.client("admin.kubeconfig").await;
    let old = version(&create(&client, "a", json!({})).await);
    set(&client, "a", "2").await;
    let mut open = Watch::open(&client, &format!("{MAPS}?resourceVersion={old}")).await;
    assert_eq!(open.line().await, "MODIFIED a");
    compact(&server, &client, old).await;
    let events = Watch::open(&client, &format!("{MAPS}?resourceVersion={old}")).await.rest().await;
    let error = &events[0]["object"];
    assert_eq!((events.len(), &events[0]["type"]), (1, &json!("ERROR")));
    assert_eq!(
        (&error["kind"], &error["code"], &error["reason"]),
        (&json!("Status"), &json!(410), &json!("Expired"))
    );
    let known = listed(&client, &format!("{MAPS}?limit=500&resourceVersion=0")).await;
    let mut new = Watch::open(&client, &format!("{MAPS}?resourceVersion={}", known.version)).await;
    set(&client, "a", "3").await;
    assert_eq!(new.line().await, "MODIFIED a");
    assert_eq!(open.line().await, "MODIFIED a", "a watch that had begun goes on");
}

#[tokio::test]
async fn object_enters_and_leaves_a_field_selector() {
    let server = server(&[]);
    let client = server.client("admin.kubeconfig").await;
    let container = json!({"name": "c", "image": "busybox"});
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [container]}});
    let created = post(&client, PODS, &pod.to_string()).await;
    assert_eq!(created.code, 201, "{}", created.text());
    let begin = version(&created.json());
    let watch = async |selector: &str| {
        Watch::open(&client, &format!("{PODS}?resourceVersion={begin}&fieldSelector={selector}")).await
    };
    let mut of_node = watch("spec.nodeName%3Dn").await;
    let mut unbound = watch("spec.nodeName%3D").await;
    let mut not_running = watch("status.phase!%3DRunning").await;
    let mut named = watch("metadata.name%3Dother").await;
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    let bound = post(&client, &format!("{PODS}/p/binding"), &binding.to_string()).await;
    assert_eq!(bound.code, 201, "{}", bound.text());
    assert_eq!(of_node.line().await, "ADDED p");
    let left = unbound.next().await.expect("an event");
    // It leaves as it last was in the selection, with the version of the change.
    assert_eq!((&left["type"], left["object"]["spec"].get("nodeName")), (&json!("DELETED"), None));
    assert_eq!(version(&left["object"]), version(&get(&client, &format!("{PODS}/p")).await.json()));
    let running = json!({"status": {"phase": "Running"}});
    let running = patch(&client, &format!("{PODS}/p/status"), running).await;
    assert_eq!(of_node.line().await, "MODIFIED p");
    assert_eq!(not_running.line().await, "MODIFIED p");
    let left = not_running.next().await.expect("an event");
    assert_eq!((&left["type"], &left["object"]["status"]["phase"]), (&json!("DELETED"), &json!("Pending")));
    assert_eq!(version(&left["object"]), version(&running));
    patch(&client, &format!("{PODS}/p/status"), json!({"status": {"phase": "Failed"}})).await;
    assert_eq!(not_running.line().await, "ADDED p");
    let other = json!({"metadata": {"name": "other"}, "spec": {"containers": [container]}});
    post(&client, PODS, &other.to_string()).await;
    assert_eq!(named.line().await, "ADDED other");
    assert_eq!(not_running.line().await, "ADDED other");
    assert_eq!(unbound.line().await, "ADDED other");
}

#[tokio::test]
async fn deletion_has_the_last_state_with_a_new_version() {
    let server = server(&[]);
    let client = server.client("admin.kubeconfig").await;
    let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"]}, "data": {"a": "1"}});
    assert_eq!(post(&client, MAPS, &held.to_string()).await.code, 201);
    let created = version(&create(&client, "a", json!({"own": "yes"})).await);
    let mut all = Watch::open(&client, &format!("{MAPS}?resourceVersion={created}")).await;
    let mut own =
        Watch::open(&client, &format!("{MAPS}?resourceVersion={created}&labelSelector=own%3Dyes")).await;
    let changed = version(&set(&client, "a", "last").await);
    delete(&client, &format!("{MAPS}/a")).await;
    for watch in [&mut all, &mut own] {
        assert_eq!(watch.line().await, "MODIFIED a");
        let deleted = watch.next().await.expect("an event");
        assert_eq!((&deleted["type"], &deleted["object"]["data"]["a"]), (&json!("DELETED"), &json!("last")));
        assert!(version(&deleted["object"]) > changed, "{deleted}");
        assert_eq!(version(&deleted["object"]), version(&get(&client, MAPS).await.json()));
    }
    // With a finalizer, a deletion is a change first.
    let marked = delete(&client, &format!("{MAPS}/held")).await;
    assert!(marked["metadata"]["deletionTimestamp"].is_string(), "{marked}");
    let event = all.next().await.expect("an event");
    assert_eq!((&event["type"], &event["object"]["metadata"]), (&json!("MODIFIED"), &marked["metadata"]));
    patch(&client, &format!("{MAPS}/held"), json!({"metadata": {"finalizers": null}})).await;
    let event = all.next().await.expect("an event");
    assert_eq!((&event["type"], name(&event["object"])), (&json!("DELETED"), "held"));
    assert!(version(&event["object"]) > version(&marked), "{event}");
    // A new object of the same name is another one.
    let uid = create(&client, "a", json!({})).await["metadata"]["uid"].clone();
    let event = all.next().await.expect("an event");
    assert_eq!((&event["type"], &event["object"]["metadata"]["uid"]), (&json!("ADDED"), &uid));
}

#[tokio::test]
async fn deletecollection_sends_one_deletion_for_each_object() {
    let server = server(&[]);
    let client = server.client("admin.kubeconfig").await;
    for name in ["a", "b", "c"] {
        create(&client, name, json!({"own": if name == "b" { "no" } else { "yes" }})).await;
    }
    let mut known = listed(&client, MAPS).await;
    let mut watch = Watch::open(&client, &format!("{MAPS}?resourceVersion={}", known.version)).await;
    delete(&client, &format!("{MAPS}?labelSelector=own%3Dyes")).await;
    for _ in 0..2 {
        known.apply(&watch.next().await.expect("an event"));
    }
    assert_eq!(known.objects.keys().collect::<Vec<_>>(), ["b"]);
}

#[tokio::test]
async fn watch_ends_by_itself_after_its_timeout() {
    let server = server(&[]);
    let client = server.client("admin.kubeconfig").await;
    create(&client, "a", json!({})).await;
    let begin = std::time::Instant::now();
    // Without a version it begins with what exists.
    let events = Watch::open(&client, &format!("{MAPS}?timeoutSeconds=2")).await.rest().await;
    assert!(begin.elapsed() >= std::time::Duration::from_secs(2), "{:?}", begin.elapsed());
    assert_eq!(events.iter().map(|event| &event["type"]).collect::<Vec<_>>(), [&json!("ADDED")]);
    // A watch of one object is a watch of its name.
    let one = Watch::open(&client, &format!("{MAPS}/a?timeoutSeconds=1")).await.rest().await;
    assert_eq!((one.len(), name(&one[0]["object"])), (1, "a"));
}

#[tokio::test]
async fn watch_of_all_namespaces_sees_each_and_of_one_only_its_own() {
    let server = server(&[]);
    let client = server.client("admin.kubeconfig").await;
    let namespace = json!({"metadata": {"name": "other"}});
    assert_eq!(post(&client, "/api/v1/namespaces", &namespace.to_string()).await.code, 201);
    let begin = version(&get(&client, MAPS).await.json());
    let mut all = Watch::open(&client, &format!("/api/v1/configmaps?resourceVersion={begin}")).await;
    let mut own = Watch::open(&client, &format!("{MAPS}?resourceVersion={begin}")).await;
    let map = json!({"metadata": {"name": "there"}});
    assert_eq!(post(&client, "/api/v1/namespaces/other/configmaps", &map.to_string()).await.code, 201);
    create(&client, "here", json!({})).await;
    assert_eq!((all.line().await, all.line().await), ("ADDED there".to_owned(), "ADDED here".to_owned()));
    assert_eq!(own.line().await, "ADDED here");
}

#[tokio::test]
async fn tables_and_metadata_are_watched_as_they_are_listed() {
    let server = server(&["--bookmark-seconds=1"]);
    let client = server.client("admin.kubeconfig").await;
    create(&client, "a", json!({})).await;
    let events = async |kind: &str| {
        let accept = format!("application/json;as={kind};v=v1;g=meta.k8s.io");
        let path = format!("{MAPS}?watch=1&allowWatchBookmarks=true&timeoutSeconds=2");
        let answer = send(&client, http::Request::get(path).header("accept", accept), String::new()).await;
        let lines: Vec<Value> =
            answer.text().lines().map(|line| serde_json::from_str(line).expect("an event")).collect();
        lines
    };
    let tables = events("Table").await;
    assert_eq!((&tables[0]["type"], &tables[0]["object"]["kind"]), (&json!("ADDED"), &json!("Table")));
    assert_eq!(tables[0]["object"]["rows"][0]["cells"][0], "a");
    assert_eq!((&tables[1]["type"], &tables[1]["object"]["kind"]), (&json!("BOOKMARK"), &json!("Table")));
    let metadata = events("PartialObjectMetadata").await;
    assert_eq!(metadata[0]["object"]["kind"], "PartialObjectMetadata");
    assert_eq!((name(&metadata[0]["object"]), metadata[0]["object"].get("data")), ("a", None));
    assert_eq!(metadata[1]["object"]["kind"], "PartialObjectMetadata");
}
