//! Watches: every change in order, and how they end.

use std::time::Duration;

use futures_util::StreamExt;
use model::k8s::Pod;
use ports::Cluster;
use ports::cluster::{Change, Changes, ClusterError, Selection};
use serde_json::{Value, json};

use crate::server::{LONG, Reply, TestServer};

fn pod(name: &str) -> Value {
    json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name, "namespace": "a", "managedFields": [{}]}})
}

fn event(kind: &str, object: Value) -> Value {
    json!({"type": kind, "object": object})
}

async fn watch(server: &TestServer) -> Changes<Pod> {
    let selection = Selection { fields: Some("spec.nodeName=edge-1".to_owned()), ..Selection::default() };
    server.handle().pods().watch(&selection, "41").await.unwrap()
}

/// `+web`, `~web`, `-web`, `@42`, or the error.
fn brief(change: Result<Change<Pod>, ClusterError>) -> String {
    let name = |pod: Pod| {
        assert_eq!(pod.metadata.managed_fields, None);
        pod.metadata.name.unwrap()
    };
    match change {
        Ok(Change::Added(pod)) => format!("+{}", name(pod)),
        Ok(Change::Modified(pod)) => format!("~{}", name(pod)),
        Ok(Change::Deleted(pod)) => format!("-{}", name(pod)),
        Ok(Change::Bookmark { resource_version }) => format!("@{resource_version}"),
        Ok(Change::Malformed { object, is_deleted }) => {
            format!("?{}{}", if is_deleted { "-" } else { "" }, object.name)
        }
        Err(error) => error.to_string(),
    }
}

async fn all(server: &TestServer) -> Vec<String> {
    tokio::time::timeout(LONG, watch(server).await.map(brief).collect()).await.unwrap()
}

#[tokio::test]
async fn watch_changes_are_in_order_and_the_server_may_end_the_watch() {
    let server = TestServer::start(|_| {
        Reply::lines(&[
            event("ADDED", pod("web")),
            event("MODIFIED", pod("web")),
            event("BOOKMARK", json!({"kind": "Pod", "metadata": {"resourceVersion": "42"}})),
            event("DELETED", pod("web")),
        ])
    })
    .await;
    assert_eq!(all(&server).await, ["+web", "~web", "@42", "-web"]);
    let request = &server.requests()[0];
    let (path, query) = request.target.split_once('?').unwrap();
    assert_eq!(path, "/api/v1/pods");
    let query: Vec<_> = query.split('&').collect();
    for part in ["watch=true", "allowWatchBookmarks=true", "resourceVersion=41"] {
        assert!(query.contains(&part), "{query:?}");
    }
    assert!(query.contains(&"fieldSelector=spec.nodeName%3Dedge-1"), "{query:?}");
    let seconds = query.iter().find_map(|part| part.strip_prefix("timeoutSeconds=")).unwrap();
    assert!((300..600).contains(&seconds.parse::<u64>().unwrap()), "{seconds}");
}

#[tokio::test]
async fn watch_lines_may_be_split_or_joined() {
    let lines = format!(
        "{}\n\n{}\n{}\n",
        event("ADDED", pod("a")),
        event("ADDED", pod("b")),
        event("ADDED", pod("c"))
    );
    let (first, rest) = lines.split_at(25);
    let (middle, last) = rest.split_at(200);
    let reply = Reply::text(200, first).chunk(middle).chunk(last);
    let server = TestServer::start(move |_| reply.clone()).await;
    assert_eq!(all(&server).await, ["+a", "+b", "+c"]);
}

#[tokio::test]
async fn too_old_resource_version_is_an_expired_error() {
    let gone =
        json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"});
    let lines = [event("ADDED", pod("web")), event("ERROR", gone), event("ADDED", pod("never"))];
    let server = TestServer::start(move |_| Reply::lines(&lines)).await;
    assert_eq!(
        all(&server).await,
        ["+web", "watch pods with spec.nodeName=edge-1: too old: too old resource version"]
    );

    let server = TestServer::start(|_| Reply::status(410, "Expired", "too old")).await;
    let refused = server.handle().pods().watch(&Selection::default(), "1").await;
    assert!(matches!(refused.err(), Some(ClusterError::Expired { .. })));
}

#[tokio::test]
async fn broken_watch_and_malformed_events_are_reported() {
    let added = format!("{}\n", event("ADDED", pod("web")));
    let broken = Reply::text(200, &added).then_break();
    let server = TestServer::start(move |_| broken.clone()).await;
    let seen = all(&server).await;
    assert_eq!((seen.len(), seen[0].as_str()), (2, "+web"));
    assert!(seen[1].contains("cannot be reached"), "{seen:?}");

    let cases = [
        (r#"{"type":"ADDED""#, "ended in the middle of an event"),
        ("garbage\n", "malformed watch event: "),
        ("{\"type\":\"LATER\",\"object\":{}}\n", "its type is \"LATER\""),
        ("{\"type\":\"BOOKMARK\",\"object\":{}}\n", "a bookmark without"),
        ("{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"bad\"},\"spec\":1}}\n", "Pod bad: "),
    ];
    for (text, problem) in cases {
        let server = TestServer::start(move |_| Reply::text(200, text)).await;
        let seen = all(&server).await;
        assert!(seen.len() == 1 && seen[0].contains(problem), "{seen:?} should contain {problem}");
    }
}

#[tokio::test]
async fn watch_goes_on_after_an_object_that_cannot_be_decoded() {
    let bad = |name: &str, spec: Value| json!({"metadata": {"name": name, "namespace": "a", "resourceVersion": "7"}, "spec": spec});
    let lines = [
        event("ADDED", pod("a")).to_string(),
        event("MODIFIED", bad("bad", json!(7))).to_string(),
        event("DELETED", bad("gone", json!(7))).to_string(),
        // As an API server orders the fields.
        format!(
            r#"{{"type":"MODIFIED","object":{}}}"#,
            bad("large", json!({"nodeName": "n".repeat(9 << 20)}))
        ),
        event("ADDED", pod("b")).to_string(),
    ];
    let reply = Reply::text(200, &format!("{}\n", lines.join("\n")));
    let server = TestServer::start(move |_| reply.clone()).await;
    assert_eq!(all(&server).await, ["+a", "?bad", "?-gone", "?large", "+b"]);
}

#[tokio::test]
async fn endless_watch_event_is_an_error() {
    let server = TestServer::start(|_| {
        let piece = " ".repeat(3 << 20);
        Reply::text(200, "{").chunk(&piece).chunk(&piece).chunk(&piece).then_silence()
    })
    .await;
    let seen = all(&server).await;
    assert!(seen.len() == 1 && seen[0].contains("larger than 8 MiB"), "{seen:?}");
}

#[tokio::test]
async fn watch_that_is_not_read_blocks_no_call() {
    let server = TestServer::start(|request| match request.target.as_str() {
        "/healthz" => Reply::text(200, "ok"),
        _ => Reply::text(200, &" ".repeat(4 << 20)).then_silence(),
    })
    .await;
    let handle = server.handle();
    let mut unread = Vec::new();
    for _ in 0..20 {
        unread.push(handle.pods().watch(&Selection::default(), "1").await.unwrap());
    }
    for _ in 0..5 {
        tokio::time::timeout(Duration::from_secs(10), handle.healthy()).await.unwrap().unwrap();
    }
    assert_eq!(server.connections(), 1);
}
