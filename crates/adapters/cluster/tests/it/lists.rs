//! Lists: large ones, over slow links, compressed, with items that cost only themselves.

use std::time::Duration;

use cluster::HandleSettings;
use model::ServiceObject;
use ports::Cluster;
use ports::cluster::{ClusterError, Selection};
use serde_json::{Value, json};

use crate::server::{LONG, Reply, TestServer};

const MIB: usize = 1 << 20;

fn service(name: &str, annotation_size: usize) -> Value {
    json!({"metadata": {"name": name, "namespace": "a", "annotations": {"note": "n".repeat(annotation_size)}},
        "spec": {"clusterIP": "10.0.0.1", "ports": [{"port": 80}]}})
}

fn list(items: &[Value]) -> String {
    json!({"kind": "ServiceList", "metadata": {"resourceVersion": "7"}, "items": items}).to_string()
}

/// The list in pieces, one for each item.
fn reply_of(items: usize, each: impl Fn(usize) -> Value, pause: Duration) -> Reply {
    let mut reply = Reply::text(200, r#"{"metadata":{"resourceVersion":"7"},"items":["#);
    for number in 0..items {
        let comma = if number == 0 { "" } else { "," };
        reply = reply.chunk(&format!("{comma}{}", each(number))).pause(pause);
    }
    reply.chunk("]}")
}

async fn names(server: &TestServer, deadline: Duration) -> Result<Vec<String>, ClusterError> {
    let handle = server.api_for(&json!({})).handle(HandleSettings { budget: None, deadline });
    let listed = handle.services().list(&Selection::default()).await?;
    assert_eq!(listed.resource_version, "7");
    Ok(listed.items.into_iter().map(|service| service.name).collect())
}

#[tokio::test]
async fn list_larger_than_any_limit_is_read_item_by_item() {
    let each = |number: usize| service(&format!("s{number}"), MIB);
    let server = TestServer::start(move |_| reply_of(70, each, Duration::ZERO)).await;
    assert_eq!(names(&server, LONG).await.unwrap().len(), 70);
}

#[tokio::test]
async fn list_over_a_slow_link_arrives_as_long_as_it_makes_progress() {
    let (deadline, pause) = (Duration::from_secs(1), Duration::from_millis(300));
    let each = |number: usize| service(&format!("s{number}"), 10);
    let server = TestServer::start(move |_| reply_of(6, each, pause)).await;
    assert_eq!(names(&server, deadline).await.unwrap().len(), 6);
    let silent = Reply::text(200, r#"{"metadata":{"resourceVersion":"7"},"items":["#).then_silence();
    let server = TestServer::start(move |_| silent.clone()).await;
    let error = names(&server, deadline).await.unwrap_err();
    assert_eq!(error, ClusterError::TimedOut { call: "list services".to_owned(), deadline });
}

#[tokio::test]
async fn compressed_list_is_requested_and_read() {
    let items: Vec<Value> = (0..100).map(|number| service(&format!("s{number}"), 10_000)).collect();
    let whole = list(&items);
    let server = TestServer::start(move |request| match request.header("accept-encoding") {
        Some("gzip") => Reply::gzip(&whole),
        _ => Reply::status(400, "BadRequest", "not compressed"),
    })
    .await;
    assert_eq!(names(&server, LONG).await.unwrap().len(), 100);
}

#[tokio::test]
async fn compressed_list_that_is_damaged_or_of_another_encoding_is_an_error() {
    let damaged = Reply::text(200, "no gzip").header("Content-Encoding", "gzip");
    let server = TestServer::start(move |_| damaged.clone()).await;
    let error = names(&server, LONG).await.unwrap_err();
    assert!(matches!(error, ClusterError::Failed { .. }), "{error:?}");
    let other = Reply::text(200, "{}").header("Content-Encoding", "br");
    let server = TestServer::start(move |_| other.clone()).await;
    let error = names(&server, LONG).await.unwrap_err().to_string();
    assert_eq!(error, "list services: unknown content encoding \"br\"");
}

#[tokio::test]
async fn item_that_is_too_large_costs_only_itself_also_compressed() {
    // As an API server orders the fields.
    let large = format!(
        r#"{{"metadata":{{"name":"large","namespace":"a","annotations":{{"note":"{}"}}}}}}"#,
        "n".repeat(20 * MIB)
    );
    let whole = format!(
        r#"{{"metadata":{{"resourceVersion":"7"}},"items":[{},{large},{}]}}"#,
        service("first", 10),
        service("last", 10)
    );
    let reply = Reply::gzip(&whole);
    let server = TestServer::start(move |_| reply.clone()).await;
    let listed = server.handle().services().list(&Selection::default()).await.unwrap();
    let names: Vec<_> = listed.items.iter().map(|service: &ServiceObject| &*service.name).collect();
    assert_eq!(names, ["first", "last"]);
    let [large] = &listed.malformed[..] else { panic!("{:?}", listed.malformed) };
    assert_eq!(large.to_string(), "a/large: it is larger than 8 MiB");
}

#[tokio::test]
async fn reflectors_list_has_a_resource_version_and_another_list_has_none() {
    let whole = list(&[]);
    let server = TestServer::start(move |_| Reply::text(200, &whole)).await;
    let handle = server.handle();
    let selection = Selection { namespace: Some("a".to_owned()), ..Selection::default() };
    handle.services().list(&selection).await.unwrap();
    for version in ["0", "12"] {
        handle.services().read_list(&selection, Some(version), &mut |_| {}).await.unwrap();
    }
    let path = "GET /api/v1/namespaces/a/services";
    let expected = ["", "?resourceVersion=0", "?resourceVersion=12"].map(|query| format!("{path}{query}"));
    assert_eq!(server.lines(), expected);
}
