//! What any user with rights in one namespace can store, as the real server stores and serves it.

use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use crate::server::Server;

/// The status code, headers and body of one request.
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {:.300}", self.text()))
    }
}

pub(crate) async fn send(client: &Client, request: http::request::Builder, body: String) -> Answer {
    let request = request.body(Body::from(body.into_bytes())).expect("a request");
    let (head, body) = client.send(request).await.expect("an answer").into_parts();
    let body = body.collect().await.expect("a body").to_bytes().to_vec();
    Answer { code: head.status.as_u16(), headers: head.headers, body }
}

pub(crate) async fn get(client: &Client, path: &str) -> Answer {
    send(client, http::Request::get(path), String::new()).await
}

pub(crate) async fn post(client: &Client, path: &str, object: &str) -> Answer {
    let request = http::Request::post(path).header("content-type", "application/json");
    send(client, request, object.to_owned()).await
}

fn pod(name: &str, managed_fields: &str) -> String {
    format!(
        r#"{{"metadata": {{"name": "{name}", "managedFields": [{managed_fields}]}},
            "spec": {{"nodeName": "n", "containers": [{{"name": "c", "image": "busybox"}}]}}}}"#
    )
}

fn entry(time: &str, fields: &str) -> String {
    format!(
        r#"{{"manager": "x", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "time": "{time}", "fieldsV1": {fields}}}"#
    )
}

const FIVE_DIGITS: &str = r#""time":"10000-01-01T19:59:59Z""#;

#[tokio::test]
async fn managed_fields_that_few_clients_can_decode_are_stored_and_served() {
    let mut server = Server::start(&[]);
    let deep = format!("{}{{}}{}", "{\"f:a\":".repeat(200), "}".repeat(200));
    let year = pod("year", &entry("9999-12-31T23:59:59-20:00", "{}"));
    let nested = pod("nested", &entry("2026-01-01T00:00:00Z", &deep));
    let pods = "/api/v1/namespaces/default/pods";
    let client = server.client("admin.kubeconfig").await;
    for object in [&year, &nested] {
        let created = post(&client, pods, object).await;
        assert_eq!(created.code, 201, "{}", created.text());
    }
    let check = |text: &str, what: &str| {
        assert!(text.contains(FIVE_DIGITS), "{what}: {text}");
        assert!(text.contains(&deep), "{what}: {text}");
    };
    check(get(&client, pods).await.text(), "list");
    check(get(&client, &format!("{pods}?watch=1&timeoutSeconds=1")).await.text(), "watch");
    let label = r#"{"metadata": {"labels": {"a": "b"}}}"#;
    for name in ["year", "nested"] {
        let request = http::Request::patch(format!("{pods}/{name}"))
            .header("content-type", "application/strategic-merge-patch+json");
        let patched = send(&client, request, label.to_owned()).await;
        assert_eq!(patched.code, 200, "{}", patched.text());
    }
    server.stop();
    server.restart(&[]);
    let client = server.client("admin.kubeconfig").await;
    check(get(&client, pods).await.text(), "list after a restart");
}

#[tokio::test]
async fn nesting_beyond_the_limit_is_refused() {
    let server = Server::start(&[]);
    let client = server.client("admin.kubeconfig").await;
    let deep = format!("{}{{}}{}", "{\"f:a\":".repeat(9_000), "}".repeat(9_000));
    let refused = post(&client, "/api/v1/namespaces/default/pods", &pod("p", &entry("", &deep))).await;
    assert_eq!(refused.code, 400);
    assert!(refused.text().contains("exceeded max depth"), "{}", refused.text());
    assert_eq!(get(&client, "/healthz").await.text(), "ok");
}

#[tokio::test]
async fn pods_with_as_many_parts_as_a_request_holds_are_stored() {
    let server = Server::start(&[]);
    let client = server.client("admin.kubeconfig").await;
    let pod = |name: &str, mounts: Vec<Value>, volumes: Vec<Value>, env: Vec<Value>| {
        let container = json!({"name": "c", "image": "busybox", "volumeMounts": mounts, "env": env});
        json!({"metadata": {"name": name}, "spec": {"containers": [container], "volumes": volumes}})
    };
    let mount = |name: String, i: usize| json!({"name": name, "mountPath": format!("/m/{i}")});
    let empty_dir = |i: usize| json!({"name": format!("v{i}"), "emptyDir": {}});
    let map = json!({"name": "c", "configMap": {"name": "few"}});
    let variable = |i: usize| json!({"name": format!("V{i}"), "value": i.to_string()});
    let pods = [
        pod("mounts", (0..20_000).map(|i| mount("c".to_owned(), i)).collect(), vec![map], vec![]),
        pod("volumes", vec![], (0..8_000).map(empty_dir).collect(), vec![]),
        pod(
            "both",
            (0..8_000).map(|i| mount(format!("v{i}"), i)).collect(),
            (0..8_000).map(empty_dir).collect(),
            vec![],
        ),
        pod("variables", vec![], vec![], (0..12_000).map(variable).collect()),
    ];
    for pod in pods {
        let created = post(&client, "/api/v1/namespaces/default/pods", &pod.to_string()).await;
        assert_eq!(created.code, 201, "{:.300}", created.text());
    }
}
