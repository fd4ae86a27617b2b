//! Server-side apply and the managers of fields, with kubectl and kube-rs.

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Error, ResourceExt};
use serde_json::{Value, json};

use crate::hostile::{get, send};
use crate::server::{Kubectl, Server};

const APPLY: &[&str] = &["apply", "--server-side", "-f", "-"];
const NAMED: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\n";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn map(data: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: m}}\ndata: {data}\n")
}

/// The manager, operation, subresource and fields of each entry.
fn entries(object: &Value) -> Vec<(String, String, String, Value)> {
    let text = |entry: &Value, field: &str| entry[field].as_str().unwrap_or_default().to_owned();
    let entry = |entry: &Value| {
        (
            text(entry, "manager"),
            text(entry, "operation"),
            text(entry, "subresource"),
            entry["fieldsV1"].clone(),
        )
    };
    object["metadata"]["managedFields"].as_array().into_iter().flatten().map(entry).collect()
}

fn managers(object: &Value) -> Vec<String> {
    entries(object).into_iter().map(|(manager, operation, ..)| format!("{manager} {operation}")).collect()
}

/// An object with its entries, which kubectl leaves out otherwise.
fn shown(kubectl: &Kubectl, path: &str) -> Value {
    let shown = kubectl.ok(&["get", "--raw", &format!("/api/v1/namespaces/default/{path}")]);
    serde_json::from_str(&shown).expect("JSON")
}

/// The status code, reason and message of a refused request.
fn refusal<T: std::fmt::Debug>(result: Result<T, Error>) -> (u16, String, String) {
    match result {
        Err(Error::Api(status)) => (status.code, status.reason.clone(), status.message.clone()),
        other => panic!("expected an API error, got {other:?}"),
    }
}

#[test]
fn kubectl_applies_on_the_server_and_sees_conflicts() {
    let server = Server::start(&[]);
    let kubectl = server.admin();
    assert_eq!(kubectl.feed(APPLY, &map("{a: '1', b: kept}")), "configmap/m serverside-applied\n");
    let first = shown(&kubectl, "configmaps/m");
    let fields = json!({"f:data": {"f:a": {}, "f:b": {}}});
    assert_eq!(entries(&first), [("kubectl".to_owned(), "Apply".to_owned(), String::new(), fields)]);
    kubectl.feed(APPLY, &map("{a: '1', b: kept}"));
    assert_eq!(shown(&kubectl, "configmaps/m"), first, "an unchanged apply writes nothing");
    let other = [APPLY, &["--field-manager", "other"]].concat();
    let refused = kubectl.refused(&other, &map("{a: '2'}"));
    assert!(
        refused.contains(r#"Apply failed with 1 conflict: conflict with "kubectl": .data.a"#),
        "{refused}"
    );
    kubectl.feed(&[&other[..], &["--force-conflicts"]].concat(), &map("{a: '2'}"));
    let forced = shown(&kubectl, "configmaps/m");
    assert_eq!(forced["data"], json!({"a": "2", "b": "kept"}));
    let owned = |field: &str| json!({"f:data": {field: {}}});
    let fields: Vec<Value> = entries(&forced).into_iter().map(|(.., fields)| fields).collect();
    assert_eq!(fields, [owned("f:b"), owned("f:a")]);
    // What kubectl applies no longer is removed; what the other manager owns stays.
    kubectl.feed(APPLY, NAMED);
    let pruned = shown(&kubectl, "configmaps/m");
    assert_eq!((&pruned["data"], managers(&pruned)), (&json!({"a": "2"}), vec!["other Apply".to_owned()]));
    let diff = kubectl.run(&["diff", "--server-side", "-f", "-"], &map("{c: '3'}"));
    let text = String::from_utf8_lossy(&diff.stdout);
    assert!(text.contains("+  c: \"3\""), "{text}{}", String::from_utf8_lossy(&diff.stderr));
    assert_eq!(shown(&kubectl, "configmaps/m"), pruned, "a diff writes nothing");
}

#[test]
fn kubectl_moves_an_object_from_client_side_to_server_side_apply() {
    let server = Server::start(&["--managed-fields"]);
    let kubectl = server.admin();
    kubectl.feed(&["apply", "-f", "-"], &map("{a: '1', b: old}"));
    let before = shown(&kubectl, "configmaps/m");
    assert_eq!(managers(&before), ["kubectl-client-side-apply Update"]);
    let annotations = "kubectl.kubernetes.io/last-applied-configuration";
    let fields = json!({
        "f:data": {".": {}, "f:a": {}, "f:b": {}},
        "f:metadata": {"f:annotations": {".": {}, format!("f:{annotations}"): {}}},
    });
    assert_eq!(entries(&before)[0].3, fields);
    kubectl.feed(APPLY, &map("{a: '2'}"));
    let after = shown(&kubectl, "configmaps/m");
    assert_eq!(after["data"]["a"], "2");
    let version: Value =
        serde_json::from_str(&kubectl.ok(&["version", "--client", "-o", "json"])).expect("JSON");
    let minor = version["clientVersion"]["minor"].as_str().and_then(|minor| minor.parse::<u32>().ok());
    // Since 1.26, kubectl moves its entry, so that a field that it applies no longer is removed.
    if minor.is_some_and(|minor| minor >= 26) {
        // Some versions own the annotation of the client-side apply by an entry of its own.
        let mut managers = managers(&after);
        managers.retain(|manager| manager != "kubectl-last-applied Apply");
        assert_eq!(managers, ["kubectl Apply"]);
        assert_eq!(after["data"], json!({"a": "2"}));
    }
}

#[test]
fn pod_is_applied_changed_and_keeps_what_others_wrote() {
    let server = Server::start(&[]);
    let kubectl = server.admin();
    let pod = |labels: &str, image: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: web, labels: {labels}}}\nspec:\n  containers:\n  - {{name: main, image: {image}, ports: [{{containerPort: 80}}]}}\n"
        )
    };
    kubectl.feed(APPLY, &pod("{app: web, tier: front}", "busybox"));
    kubectl.ok(&["label", "pod", "web", "note=other"]);
    kubectl.feed(APPLY, &pod("{app: web}", "busybox:2"));
    let applied = shown(&kubectl, "pods/web");
    assert_eq!(applied["metadata"]["labels"], json!({"app": "web", "note": "other"}));
    assert_eq!(applied["spec"]["containers"][0]["image"], "busybox:2");
    assert_eq!(applied["spec"]["restartPolicy"], "Always", "defaults stay");
    assert_eq!(managers(&applied), ["kubectl Apply", "kubectl-label Update"]);
    let container = json!({
        ".": {}, "f:image": {}, "f:name": {},
        "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}},
    });
    let fields = json!({
        "f:metadata": {"f:labels": {"f:app": {}}},
        "f:spec": {"f:containers": {"k:{\"name\":\"main\"}": container}},
    });
    assert_eq!(entries(&applied)[0].3, fields);
}

#[tokio::test]
async fn kube_client_applies_with_force_dry_run_and_preconditions() {
    let server = Server::start(&[]);
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client("admin.kubeconfig").await);
    let map = |data: Value| {
        Patch::Apply(
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": data}),
        )
    };
    let one = PatchParams::apply("one");
    let dry_run = PatchParams { dry_run: true, ..one.clone() };
    let tried = maps.patch("m", &dry_run, &map(json!({"a": "1"}))).await.expect("tried");
    assert_eq!(tried.data.expect("data")["a"], "1");
    assert!(maps.get_opt("m").await.expect("an answer").is_none());
    let made = maps.patch("m", &one, &map(json!({"a": "1", "b": "1"}))).await.expect("created");
    let again = maps.patch("m", &one, &map(json!({"a": "1", "b": "1"}))).await.expect("unchanged");
    assert_eq!(made.resource_version(), again.resource_version());
    let two = PatchParams::apply("two");
    let refused = refusal(maps.patch("m", &two, &map(json!({"a": "2", "b": "2"}))).await);
    let message = "Apply failed with 2 conflicts: conflicts with \"one\":\n- .data.a\n- .data.b";
    assert_eq!(refused, (409, "Conflict".to_owned(), message.to_owned()));
    let forced = maps.patch("m", &two.clone().force(), &map(json!({"a": "2"}))).await.expect("forced");
    assert_eq!(forced.data.clone().expect("data")["a"], "2");
    // A stale resourceVersion is refused, the current one is not.
    let version = |version: Option<String>| {
        let mut patch = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}});
        patch["metadata"]["resourceVersion"] = json!(version);
        Patch::Apply(patch)
    };
    let refused = refusal(maps.patch("m", &two, &version(made.resource_version())).await);
    assert_eq!((refused.0, refused.1.as_str()), (409, "Conflict"));
    let pruned = maps.patch("m", &two, &version(forced.resource_version())).await.expect("applied");
    assert_eq!(pruned.data.expect("data").into_keys().collect::<Vec<_>>(), ["b"]);
}

#[tokio::test]
async fn field_is_removed_by_its_last_owner_and_force_takes_it_from_others() {
    let server = Server::start(&["--managed-fields"]);
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client("admin.kubeconfig").await);
    let apply = async |manager: &str, force: bool, data: Value| {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": data});
        let params = PatchParams { force, ..PatchParams::apply(manager) };
        let applied = maps.patch("m", &params, &Patch::Apply(map)).await?;
        Ok::<_, Error>(json!(applied.data.unwrap_or_default()))
    };
    assert_eq!(apply("one", false, json!({"a": "1", "b": "1"})).await.expect("created")["a"], "1");
    // The same value is no conflict: both own it.
    apply("two", false, json!({"a": "1"})).await.expect("shared");
    assert_eq!(apply("one", false, json!({"b": "1"})).await.expect("applied"), json!({"a": "1", "b": "1"}));
    assert_eq!(apply("two", false, json!({})).await.expect("applied"), json!({"b": "1"}));
    // After it was taken by force, the former owner no longer removes it.
    assert_eq!(refusal(apply("two", false, json!({"b": "2"})).await).0, 409);
    assert_eq!(apply("two", true, json!({"b": "2"})).await.expect("forced"), json!({"b": "2"}));
    assert_eq!(apply("one", false, json!({})).await.expect("applied"), json!({"b": "2"}));
    let refused = refusal(apply("one", false, json!({"b": "3"})).await);
    assert!(refused.2.contains("conflict with \"two\""), "{refused:?}");
    // A change that is no apply takes the field, too.
    let editor = PatchParams { field_manager: Some("editor".to_owned()), ..PatchParams::default() };
    maps.patch("m", &editor, &Patch::Merge(json!({"data": {"b": "4"}}))).await.expect("patched");
    let refused = refusal(apply("two", false, json!({"b": "2"})).await);
    assert!(refused.2.contains("conflict with \"editor\""), "{refused:?}");
    assert_eq!(apply("two", false, json!({})).await.expect("applied"), json!({"b": "4"}));
}

#[tokio::test]
async fn malformed_configurations_are_refused_as_by_the_real_server() {
    let server = Server::start(&[]);
    let client = server.client("admin.kubeconfig").await;
    let patch = async |query: &str, media: &str, body: &str| {
        let request = http::Request::patch(format!("{MAPS}/m?{query}")).header("content-type", media);
        let answer = send(&client, request, body.to_owned()).await;
        (answer.code, answer.json()["message"].as_str().unwrap_or_default().to_owned())
    };
    let media = "application/apply-patch+yaml";
    for (query, body, code, message) in [
        (
            "",
            NAMED.to_owned(),
            422,
            "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch",
        ),
        ("fieldManager=a", "a: [".to_owned(), 400, "error decoding YAML: "),
        (
            "fieldManager=a",
            "apiVersion: v1\nkind: Pod\n".to_owned(),
            400,
            "invalid object type: /v1, Kind=Pod",
        ),
        (
            "fieldManager=a",
            format!("{NAMED}colour: red\n"),
            500,
            "failed to create typed patch object (default/m; /v1, Kind=ConfigMap): .colour: field not declared in schema",
        ),
        (
            "fieldManager=a",
            NAMED.replace("{name: m}", "{name: m, managedFields: []}"),
            400,
            "metadata.managedFields must be nil",
        ),
        (
            "fieldManager=a",
            NAMED.replace("name: m", "name: other"),
            400,
            "the name of the object (other) does not match",
        ),
        ("fieldManager=a", NAMED.replace("name: m", "name: m, uid: u"), 409, "Operation cannot be fulfilled"),
        (
            "fieldManager=a",
            format!("{NAMED}data: {{a: {{}}}}\n"),
            400,
            "ConfigMap in version \"v1\" cannot be handled",
        ),
    ] {
        let refused = patch(query, media, &body).await;
        assert!(refused.0 == code && refused.1.starts_with(message), "{body}: {refused:?}");
    }
    assert_eq!(patch("fieldManager=a", "application/apply-patch+cbor", NAMED).await.0, 415);
    let merge = "application/merge-patch+json";
    assert_eq!(patch("force=true", merge, "{}").await.0, 422);
    assert_eq!(patch(&format!("fieldManager={}", "a".repeat(129)), merge, "{}").await.0, 422);
    assert_eq!(get(&client, &format!("{MAPS}/m")).await.code, 404);
    assert_eq!(patch("fieldManager=a", &format!("{media}; charset=utf-8"), NAMED).await.0, 201);
    assert_eq!(patch("fieldManager=a", media, NAMED).await.0, 200);
}

#[tokio::test]
async fn status_is_applied_as_a_subresource_and_updates_have_entries() {
    let server = Server::start(&["--managed-fields", "--no-service-accounts"]);
    let pods: Api<Pod> = Api::default_namespaced(server.client("admin.kubeconfig").await);
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "p"},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "busybox"}]},
    }))
    .expect("a pod");
    let creator = PostParams { field_manager: Some("creator".to_owned()), ..PostParams::default() };
    pods.create(&creator, &pod).await.expect("created");
    let kubelet = PatchParams { field_manager: Some("kubelet".to_owned()), ..PatchParams::default() };
    let ready = json!({"type": "Ready", "status": "True"});
    let status = Patch::Strategic(json!({"status": {"phase": "Running", "conditions": [ready]}}));
    pods.patch_status("p", &kubelet, &status).await.expect("patched");
    let phase =
        |phase: &str| Patch::Apply(json!({"apiVersion": "v1", "kind": "Pod", "status": {"phase": phase}}));
    let applier = PatchParams::apply("applier");
    let refused = refusal(pods.patch_status("p", &applier, &phase("Failed")).await);
    let message = "Apply failed with 1 conflict: conflict with \"kubelet\" with subresource \"status\" using v1: .status.phase";
    assert_eq!(refused, (409, "Conflict".to_owned(), message.to_owned()));
    let applied = pods.patch_status("p", &applier, &phase("Running")).await.expect("applied");
    let applied = serde_json::to_value(&applied).expect("JSON");
    let entry = |manager: &str, operation: &str, subresource: &str| {
        (manager.to_owned(), operation.to_owned(), subresource.to_owned())
    };
    let found: Vec<_> = entries(&applied).into_iter().map(|(m, o, s, _)| (m, o, s)).collect();
    let expected = [
        entry("applier", "Apply", "status"),
        entry("creator", "Update", ""),
        entry("kubelet", "Update", "status"),
    ];
    assert_eq!(found, expected);
    let condition = &entries(&applied)[2].3["f:status"]["f:conditions"]["k:{\"type\":\"Ready\"}"];
    assert_eq!(condition["f:status"], json!({}), "{condition}");
    // A status in an apply of the main resource has no effect.
    let main = pods.patch("p", &applier, &phase("Failed")).await.expect("applied");
    assert_eq!(main.status.and_then(|status| status.phase).as_deref(), Some("Running"));
    assert_eq!(refusal(pods.patch_status("q", &applier, &phase("Failed")).await).0, 404);
}

#[test]
fn updates_are_recorded_only_if_they_are_asked_for() {
    let server = Server::start(&[]);
    let kubectl = server.admin();
    kubectl.feed(&["create", "-f", "-"], &map("{a: '1', b: '1'}"));
    assert!(managers(&shown(&kubectl, "configmaps/m")).is_empty());
    // The first apply makes an entry for everything before it.
    kubectl.feed(&[APPLY, &["--force-conflicts"]].concat(), &map("{a: '2'}"));
    let applied = shown(&kubectl, "configmaps/m");
    assert_eq!(managers(&applied), ["kubectl Apply", "before-first-apply Update"]);
    kubectl.ok(&["annotate", "configmap", "m", "note=x"]);
    let annotated = shown(&kubectl, "configmaps/m");
    assert_eq!(managers(&annotated).len(), 3, "{annotated}");
    // The entries can be removed, and are not made again by an update.
    let reset = r#"[{"op": "replace", "path": "/metadata/managedFields", "value": [{}]}]"#;
    kubectl.ok(&["patch", "configmap", "m", "--type", "json", "-p", reset]);
    kubectl.ok(&["annotate", "configmap", "m", "note=y", "--overwrite"]);
    assert!(managers(&shown(&kubectl, "configmaps/m")).is_empty());
}
