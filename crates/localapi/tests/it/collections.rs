//! Large collections: pages, compression, revision 0.

use std::io::Read;

use kube::Client;
use serde_json::{Value, json};

use crate::hostile::{get, post, send};
use crate::server::{Server, eventually};

/// Creates ten ConfigMaps of this many bytes.
async fn create_maps(client: &Client, bytes: usize) {
    for i in 0..10 {
        let map = json!({"metadata": {"name": format!("m{i}")}, "data": {"a": "x".repeat(bytes)}});
        let created = post(client, "/api/v1/namespaces/default/configmaps", &map.to_string()).await;
        assert_eq!(created.code, 201, "{:.300}", created.text());
    }
}

#[tokio::test]
async fn large_response_is_compressed_for_clients_that_accept_gzip() {
    let server = Server::start(&[]);
    let client = server.client("admin.kubeconfig").await;
    create_maps(&client, 20_000).await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let accepting = |path: &str| http::Request::get(path).header("accept-encoding", "br, gzip");
    let plain = get(&client, maps).await;
    assert!(!plain.headers.contains_key("content-encoding"));
    let compressed = send(&client, accepting(maps), String::new()).await;
    assert_eq!(compressed.headers["content-encoding"], "gzip");
    assert_eq!(compressed.headers["vary"], "Accept-Encoding");
    assert!(compressed.body.len() < plain.body.len() / 10);
    let mut text = String::new();
    flate2::read::GzDecoder::new(compressed.body.as_slice()).read_to_string(&mut text).expect("gzip");
    assert_eq!(text, plain.text());
    for path in [format!("{maps}/m1"), format!("{maps}?watch=1&timeoutSeconds=1")] {
        let small = send(&client, accepting(&path), String::new()).await;
        assert!(!small.headers.contains_key("content-encoding"), "{path}");
    }
}

#[tokio::test]
async fn pages_are_of_one_revision_until_it_expires() {
    let server = Server::start(&[]);
    let client = server.client("admin.kubeconfig").await;
    create_maps(&client, 1).await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let names = |list: &Value| {
        let items = list["items"].as_array().expect("items");
        items
            .iter()
            .map(|item| item["metadata"]["name"].as_str().unwrap_or_default().to_owned())
            .collect::<Vec<_>>()
    };
    let first = get(&client, &format!("{maps}?limit=4")).await.json();
    assert_eq!(names(&first), ["kube-root-ca.crt", "m0", "m1", "m2"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 7);
    assert!(first["items"][0].get("kind").is_none(), "only the list has a kind: {first}");
    let next = first["metadata"]["continue"].as_str().expect("a continue token");
    let deleted = send(&client, http::Request::delete(format!("{maps}/m5")), String::new()).await;
    assert_eq!(deleted.code, 200, "{}", deleted.text());
    let rest = format!("{maps}?limit=20&continue={next}");
    let second = get(&client, &rest).await.json();
    assert_eq!(names(&second), ["m3", "m4", "m5", "m6", "m7", "m8", "m9"]);
    assert_eq!(second["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    let both = get(&client, &format!("{rest}&resourceVersion=3")).await;
    assert_eq!(both.code, 400, "{}", both.text());
    // Revision 0 means: whatever is in the cache, all of it.
    let cached = get(&client, &format!("{maps}?limit=4&resourceVersion=0")).await.json();
    assert_eq!(names(&cached).len(), 10);
    assert!(cached["metadata"].get("continue").is_none());
    server.compact();
    let runtime = tokio::runtime::Handle::current();
    let poll = move || {
        eventually("the continue token to expire", || {
            let answer = runtime.block_on(get(&client, &rest));
            (answer.code != 200).then_some(answer)
        })
    };
    let expired = tokio::task::spawn_blocking(poll).await.expect("the polling task");
    assert_eq!((expired.code, &expired.json()["reason"]), (410, &json!("Expired")));
}
