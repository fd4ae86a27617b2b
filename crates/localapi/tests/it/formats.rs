//! JSON and YAML, in requests and in responses, and keys that come twice in them.

use serde_json::json;

use crate::hostile::{get, send};
use crate::server::Server;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const TEXT: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: text\ndata:\n  a: \"1\"\n";

#[tokio::test]
async fn objects_are_sent_and_returned_as_yaml() {
    let server = Server::start(&[]);
    let client = server.client("admin.kubeconfig").await;
    let yaml = |request: http::request::Builder| {
        request.header("content-type", "application/yaml").header("accept", "application/yaml")
    };
    let created = send(&client, yaml(http::Request::post(MAPS)), TEXT.to_owned()).await;
    assert_eq!(created.code, 201, "{}", created.text());
    assert_eq!(created.headers["content-type"], "application/yaml");
    assert!(
        created.text().starts_with("apiVersion: v1\ndata:\n  a: \"1\"\nkind: ConfigMap\n"),
        "{}",
        created.text()
    );
    let item = format!("{MAPS}/text");
    let changed = created.text().replace("a: \"1\"", "a: \"2\"");
    assert_eq!(send(&client, yaml(http::Request::put(&item)), changed).await.code, 200);
    assert_eq!(get(&client, &item).await.json()["data"], json!({"a": "2"}));
    let listed = send(&client, yaml(http::Request::get(MAPS)), String::new()).await;
    assert!(listed.text().contains("\nkind: ConfigMapList\n"), "{}", listed.text());
    let groups = send(&client, yaml(http::Request::get("/api")), String::new()).await;
    assert!(groups.text().starts_with("kind: APIVersions\n"), "{}", groups.text());
    let watched = send(&client, yaml(http::Request::get(format!("{MAPS}?watch=1"))), String::new()).await;
    assert_eq!(watched.code, 406);
    let options = "kind: DeleteOptions\napiVersion: v1\ndryRun: [All]\n";
    assert_eq!(send(&client, yaml(http::Request::delete(&item)), options.to_owned()).await.code, 200);
    assert_eq!(get(&client, &item).await.code, 200);
}

#[tokio::test]
async fn duplicate_keys_are_refused_or_named_in_a_warning() {
    let server = Server::start(&[]);
    let client = server.client("admin.kubeconfig").await;
    let json = r#"{"metadata": {"name": "NAME"}, "data": {"a": "1", "a": "2"}}"#;
    let yaml = format!("{}  a: \"2\"\n", TEXT.replace("name: text", "name: NAME"));
    let manager = "fieldManager=test";
    let named = "duplicate field \"data.a\"";
    let in_line = "line 7: key \"a\" already set in map";
    for (method, media, query, body, strict, code, warning) in [
        (
            "POST",
            "application/json",
            "",
            json,
            "strict decoding error: duplicate field \"data.a\"",
            400,
            named,
        ),
        (
            "POST",
            "application/yaml",
            "",
            yaml.as_str(),
            "yaml: unmarshal errors:\n  line 7: key \"a\"",
            400,
            in_line,
        ),
        ("PATCH", "application/merge-patch+json", "", json, "strict decoding error: duplicate", 422, named),
        (
            "PATCH",
            "application/apply-patch+yaml",
            manager,
            yaml.as_str(),
            "error strict decoding YAML",
            400,
            in_line,
        ),
    ] {
        let name = if method == "PATCH" { "kube-root-ca.crt".to_owned() } else { media.replace('/', "-") };
        let path = if method == "PATCH" { format!("{MAPS}/{name}") } else { MAPS.to_owned() };
        let body = body.replace("NAME", &name);
        let request = |mode: &str| {
            let uri = format!("{path}?fieldValidation={mode}&{query}");
            http::Request::builder().method(method).uri(uri).header("content-type", media)
        };
        let refused = send(&client, request("Strict"), body.clone()).await;
        let message = refused.json()["message"].as_str().unwrap_or_default().to_owned();
        assert!(refused.code == code && message.contains(strict), "{media}: {} {message}", refused.code);
        let warned = send(&client, request("Warn"), body.clone()).await;
        assert!(warned.code < 300, "{media}: {}", warned.text());
        let warning = format!("299 - \"{}\"", warning.replace('"', "\\\""));
        assert_eq!(warned.headers["warning"], warning, "{media}");
        assert_eq!(warned.json()["data"]["a"], "2");
    }
}
