//! Replays recorded requests of a Go kubelet to a real kube-apiserver 1.36.2 (`tests/recorded`) in order. Each response must
//! equal the recorded one, apart from times, ids, versions and tokens.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use crate::server::Server;

const NAMESPACE: &str = "diff";
const NODE: &str = "refnode";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Responses that differ, with the reason.
const DIFFERENT: &[(&str, &str)] = &[
    ("deletecollection", "resource.k8s.io is not served: our kubelet never requests it"),
    ("/spec/taints", "the taint of a new node, which the node lifecycle controller removes, is not added"),
    ("/metadata/annotations/node.alpha.kubernetes.io~1ttl", "the TTL controller writes it"),
    ("/spec/audiences/0", "the issuer of tokens is a setting of the server"),
    ("/status/allowed", "the reference cluster bound a role to the API server's own client"),
    ("/status/reason", "the authorizer that allows a request has another name"),
];

fn recorded(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded").join(name)
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The recording of one pod.
#[derive(Clone, Debug, Default)]
struct PodRecord {
    manifest: Value,
    uid: String,
    patches: Vec<Value>,
}

/// All recorded pods that a user applied.
fn pod_records(calls: &[Value]) -> BTreeMap<String, PodRecord> {
    let mut records = BTreeMap::new();
    for entry in std::fs::read_dir(recorded("pods")).expect("recorded pods") {
        let path = entry.expect("a file").path();
        let name = path.file_stem().and_then(|stem| stem.to_str()).expect("a name").to_owned();
        let record: Value = serde_json::from_str(&read(&path)).expect("JSON");
        let path_of_pod = format!("/pods/{name}");
        let responses =
            calls.iter().filter(|call| uri(call).ends_with(&path_of_pod)).map(|call| &call["response"]);
        let last_applied =
            |pod: &Value| pod["metadata"]["annotations"][LAST_APPLIED].as_str().map(str::to_owned);
        let shown = std::iter::once(&record["final"]).chain(responses);
        // A static pod has none: its kubelet creates the mirror.
        let manifest = shown.into_iter().find_map(last_applied).unwrap_or_default();
        let patches = record["patches"].as_array().cloned().unwrap_or_default();
        let uid = patches[0]["patch"]["metadata"]["uid"].as_str().expect("a uid").to_owned();
        let mut manifest_value: Value = serde_json::from_str(&manifest).unwrap_or_default();
        if !manifest_value.is_null() {
            manifest_value["metadata"]["annotations"] = json!({LAST_APPLIED: manifest});
        }
        records.insert(name, PodRecord { manifest: manifest_value, uid, patches });
    }
    records
}

fn uri(call: &Value) -> &str {
    call["uri"].as_str().and_then(|uri| uri.split('?').next()).unwrap_or_default()
}

struct Replay {
    admin: Client,
    node: Client,
    records: BTreeMap<String, PodRecord>,
    /// By recorded UID: the UID in this replay.
    uids: BTreeMap<String, String>,
    /// How many of a pod's patches were sent.
    sent: BTreeMap<String, usize>,
    /// Whether a changed generation means a deletion.
    deletes: bool,
    /// The user actions that were replayed: the pod's name, or its name and a condition.
    deleted: BTreeSet<String>,
}

impl Replay {
    async fn start(server: &Server) -> (Self, Vec<Value>) {
        let calls: Vec<Value> = read(&recorded("calls.jsonl"))
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect();
        let (admin, node) =
            (server.client("admin.kubeconfig").await, server.client(&format!("{NODE}.kubeconfig")).await);
        let replay = Self {
            records: pod_records(&calls),
            admin,
            node,
            uids: BTreeMap::new(),
            sent: BTreeMap::new(),
            deletes: false,
            deleted: BTreeSet::new(),
        };
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
        let (code, response) = replay.send(&replay.admin, "POST", "/api/v1/namespaces", "", &namespace).await;
        assert_eq!(code, 201, "{response}");
        (replay, calls)
    }

    async fn send(
        &self,
        client: &Client,
        method: &str,
        uri: &str,
        media: &str,
        body: &Value,
    ) -> (u64, Value) {
        let mut text = if body.is_null() { String::new() } else { body.to_string() };
        for (recorded, own) in &self.uids {
            text = text.replace(recorded.as_str(), own);
        }
        let media = if media.is_empty() { "application/json" } else { media };
        let request = http::Request::builder()
            .method(method)
            .uri(uri)
            .header(http::header::CONTENT_TYPE, media)
            .body(Body::from(text.into_bytes()))
            .expect("a request");
        let response = client.send(request).await.expect("a response");
        let code = u64::from(response.status().as_u16());
        let bytes = response.into_body().collect().await.expect("a body").to_bytes();
        (code, serde_json::from_slice(&bytes).unwrap_or_default())
    }

    /// Creates the pod as its user did, and binds it to the node if `bound`.
    async fn create_pod(&mut self, name: &str, bound: bool) {
        let Some(record) = self.records.get(name).cloned() else { return };
        if record.manifest.is_null() || self.uids.contains_key(&record.uid) {
            return;
        }
        let pods = format!("/api/v1/namespaces/{NAMESPACE}/pods");
        let (code, created) = self.send(&self.admin, "POST", &pods, "", &record.manifest).await;
        assert_eq!(code, 201, "{name}: {created}");
        let own = created["metadata"]["uid"].as_str().expect("a uid").to_owned();
        self.uids.insert(record.uid, own);
        if bound && record.manifest["spec"]["nodeName"].is_null() {
            let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
                "target": {"kind": "Node", "name": NODE}});
            let path = format!("{pods}/{name}/binding");
            let (code, response) = self.send(&self.admin, "POST", &path, "", &binding).await;
            assert_eq!(code, 201, "{name}: {response}");
        }
    }

    /// Sends the first `count` recorded patches of the pod; returns the differences after each.
    async fn patch_pod(&mut self, name: &str, count: usize) -> Vec<String> {
        let mut differences = Vec::new();
        let patches = self.records.get(name).map(|record| record.patches.clone()).unwrap_or_default();
        let from = self.sent.get(name).copied().unwrap_or(0);
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}/status");
        for (index, patch) in patches.iter().enumerate().take(count).skip(from) {
            self.replay_user_actions(name, &path, patch).await;
            let (code, response) = self.send(&self.node, "PATCH", &path, STRATEGIC, &patch["patch"]).await;
            let what = format!("pod {name}, patch {index}");
            if code == 200 {
                differences.extend(self.compare(&what, &patch["status"], &response["status"]));
            } else {
                differences.push(format!("{what}: {code} {response}"));
            }
            self.sent.insert(name.to_owned(), index + 1);
        }
        differences
    }

    /// Replays what users did before the kubelet sent this patch: they deleted the pod, which changed its generation, or wrote
    /// a condition that the kubelet does not own.
    async fn replay_user_actions(&mut self, name: &str, path: &str, patch: &Value) {
        let observed = patch["status"]["observedGeneration"].as_u64().unwrap_or_default();
        if observed > 1 {
            self.delete_pod(name).await;
        }
        let order = &patch["patch"]["status"]["$setElementOrder/conditions"];
        for condition in patch["status"]["conditions"].as_array().into_iter().flatten() {
            let kind = json!({"type": condition["type"]});
            let is_of_user = condition["lastTransitionTime"].is_null()
                || order.as_array().is_some_and(|order| !order.contains(&kind));
            let key = format!("{name} {}", condition["type"]);
            if is_of_user && self.deleted.insert(key) {
                let user_patch = json!({"status": {"conditions": [condition]}});
                let (code, response) = self.send(&self.admin, "PATCH", path, STRATEGIC, &user_patch).await;
                assert_eq!(code, 200, "{response}");
            }
        }
    }

    fn compare(&self, what: &str, expected: &Value, response: &Value) -> Vec<String> {
        let mut text = response.to_string();
        for (recorded, own) in &self.uids {
            text = text.replace(own.as_str(), recorded);
        }
        let response: Value = serde_json::from_str(&text).expect("JSON");
        let mut found = Vec::new();
        differences("", &normalised(expected.clone()), &normalised(response), &mut found);
        found.retain(|line| !DIFFERENT.iter().any(|(at, _)| line.starts_with(&format!("{at}:"))));
        found.into_iter().map(|line| format!("{what}{line}")).collect()
    }

    /// Replays a recorded call after its prerequisites; returns the differences of the response.
    async fn replay(&mut self, call: &Value) -> Vec<String> {
        let (verb, path) = (call["verb"].as_str().expect("a verb"), uri(call).to_owned());
        let code = call["code"].as_u64().expect("a code");
        let mut found = Vec::new();
        if let Some((_, rest)) = path.split_once("/pods/") {
            found.extend(self.prepare_pod(rest, call).await);
        }
        if path.contains("/serviceaccounts/") {
            let bound = call["request"]["spec"]["boundObjectRef"]["name"].as_str().expect("a pod");
            self.create_pod(bound, true).await;
        }
        if verb == "patch" && path.contains("/events/") {
            self.create_event(&path, &call["response"]).await;
        }
        let (method, media) = match verb {
            "create" => ("POST", ""),
            "update" => ("PUT", ""),
            "patch" => ("PATCH", STRATEGIC),
            "delete" | "deletecollection" => ("DELETE", ""),
            _ => ("GET", ""),
        };
        let mut request = sent_as(call);
        if verb == "update" {
            let (code, current) = self.send(&self.node, "GET", &path, "", &Value::Null).await;
            assert_eq!(code, 200, "{current}");
            request["metadata"]["resourceVersion"] = current["metadata"]["resourceVersion"].clone();
        }
        let (status, response) =
            self.send(&self.node, method, call["uri"].as_str().expect("a URI"), media, &request).await;
        let what = format!("{verb} {path}");
        if status != code {
            found.push(format!("{what}: {status} instead of {code}: {response}"));
            return found;
        }
        if let (Some(recorded), Some(own)) =
            (call["response"]["metadata"]["uid"].as_str(), response["metadata"]["uid"].as_str())
        {
            self.uids.insert(recorded.to_owned(), own.to_owned());
        }
        found.extend(self.compare(&what, &call["response"], &response));
        found
    }

    /// Replays the pod up to its state before a recorded call; returns the differences on the way.
    async fn prepare_pod(&mut self, rest: &str, call: &Value) -> Vec<String> {
        let (name, is_status) = rest.strip_suffix("/status").map_or((rest, false), |name| (name, true));
        self.create_pod(name, call["code"] != 403).await;
        let Some(patches) = self.records.get(name).map(|record| record.patches.clone()) else {
            return Vec::new();
        };
        let sent = match call["verb"].as_str() {
            Some("patch") => patches.iter().position(|patch| patch["patch"] == call["request"]).unwrap_or(0),
            Some("delete") => patches.len(),
            _ => {
                let shown = &call["response"]["status"];
                patches.iter().position(|patch| patch["status"] == *shown).map_or(0, |index| index + 1)
            }
        };
        let found = self.patch_pod(name, sent).await;
        if is_status {
            let next = patches[sent].clone();
            self.replay_user_actions(
                name,
                &format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}/status"),
                &next,
            )
            .await;
            self.sent.insert(name.to_owned(), sent + 1);
        }
        let is_deleted = !call["response"]["metadata"]["deletionTimestamp"].is_null();
        if is_deleted && call["verb"] != "delete" {
            self.delete_pod(name).await;
        }
        found
    }

    /// Deletes the pod as its user, once.
    async fn delete_pod(&mut self, name: &str) {
        if self.deletes && self.deleted.insert(name.to_owned()) {
            let pod = format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}");
            let (code, response) = self.send(&self.admin, "DELETE", &pod, "", &Value::Null).await;
            assert_eq!(code, 200, "{response}");
        }
    }

    /// Creates the event whose count a recorded patch incremented.
    async fn create_event(&self, path: &str, event: &Value) {
        let mut event = event.clone();
        event["count"] = json!(1);
        event["metadata"] = json!({"name": event["metadata"]["name"], "namespace": NAMESPACE});
        let events = path.rsplit_once('/').map_or("", |(events, _)| events);
        let (code, response) = self.send(&self.node, "POST", events, "", &event).await;
        assert_eq!(code, 201, "{response}");
    }
}

/// The body as the kubelet sent it: the audit log contains DeleteOptions in their internal version.
fn sent_as(call: &Value) -> Value {
    let mut request = call["request"].clone();
    if request["kind"] == "DeleteOptions" {
        request["apiVersion"] = json!("v1");
    }
    request
}

/// Removes values that differ between clusters.
fn normalised(mut value: Value) -> Value {
    match &mut value {
        Value::Object(fields) => {
            for (field, inner) in fields.iter_mut() {
                let replaced = match field.as_str() {
                    "resourceVersion" | "uid" if inner.is_string() => true,
                    "creationTimestamp" | "deletionTimestamp" | "expirationTimestamp" | "token" => {
                        inner.is_string()
                    }
                    // The condition of the scheduler contains the time of the binding.
                    "lastTransitionTime" => inner.is_string(),
                    _ => false,
                };
                *inner = if replaced { json!("<any>") } else { normalised(inner.take()) };
            }
        }
        Value::Array(list) => {
            list.retain(|one| one["configMap"]["name"] != "openshift-service-ca.crt");
            for one in list {
                *one = normalised(one.take());
            }
        }
        Value::String(text) => {
            if text.starts_with("kube-api-access-") {
                "kube-api-access-<any>".clone_into(text);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
    value
}

/// The paths at which the two differ, with both values.
fn differences(at: &str, expected: &Value, response: &Value, found: &mut Vec<String>) {
    match (expected, response) {
        (Value::Object(left), Value::Object(right)) => {
            let mut fields: Vec<&String> = left.keys().chain(right.keys()).collect();
            fields.sort();
            fields.dedup();
            for field in fields {
                let at = format!("{at}/{}", field.replace('/', "~1"));
                match (left.get(field), right.get(field)) {
                    (Some(left), Some(right)) => differences(&at, left, right, found),
                    (left, right) => found.push(format!("{at}: {} | {}", formatted(left), formatted(right))),
                }
            }
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            for (index, (left, right)) in left.iter().zip(right).enumerate() {
                differences(&format!("{at}/{index}"), left, right, found);
            }
        }
        _ if expected == response => {}
        _ => found.push(format!("{at}: {expected} | {response}")),
    }
}

fn formatted(value: Option<&Value>) -> String {
    value.map_or("(none)".to_owned(), Value::to_string)
}

#[tokio::test]
async fn recorded_requests_of_a_go_kubelet_get_the_responses_of_a_real_api_server() {
    let server = Server::start(&["--node", NODE]);
    let (mut replay, calls) = Replay::start(&server).await;
    replay.deletes = true;
    let mut found = Vec::new();
    for call in &calls {
        if !DIFFERENT.iter().any(|(verb, _)| call["verb"] == *verb) {
            found.extend(replay.replay(call).await);
        }
    }
    assert!(calls.len() > 30, "{} calls are recorded", calls.len());
    assert!(found.is_empty(), "recorded | localapi:\n{}", found.join("\n"));
}

#[tokio::test]
async fn recorded_status_patches_of_all_pods_result_in_the_recorded_statuses() {
    let server = Server::start(&["--node", NODE]);
    let (mut replay, _) = Replay::start(&server).await;
    let applied = |(name, record): (&String, &PodRecord)| (!record.manifest.is_null()).then(|| name.clone());
    let names: Vec<String> = replay.records.iter().filter_map(applied).collect();
    let (mut found, mut patches) = (Vec::new(), 0);
    for name in &names {
        replay.create_pod(name, true).await;
        patches += replay.records[name].patches.len();
        found.extend(replay.patch_pod(name, usize::MAX).await);
    }
    assert!(patches > 200, "{patches} patches are recorded");
    assert!(found.is_empty(), "recorded | localapi:\n{}", found.join("\n"));
}

#[tokio::test]
async fn status_that_reverts_a_terminated_container_is_refused_with_422() {
    let server = Server::start(&["--node", NODE]);
    let (mut replay, _) = Replay::start(&server).await;
    replay.create_pod("fails", true).await;
    assert!(replay.patch_pod("fails", usize::MAX).await.is_empty());
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/fails/status");
    let patch =
        json!({"status": {"containerStatuses": [{"name": "main", "state": {"waiting": {"reason": "x"}}}]}});
    let (code, response) = replay.send(&replay.node, "PATCH", &path, STRATEGIC, &patch).await;
    let message = "Pod \"fails\" is invalid: status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state";
    assert_eq!(
        (code, response["message"].as_str(), response["reason"].as_str()),
        (422, Some(message), Some("Invalid"))
    );
}

#[tokio::test]
async fn audit_log_contains_requests_of_nodes_and_unknown_fields_are_added_to_responses() {
    let audit = tempfile::NamedTempFile::new().expect("a file");
    let path = audit.path().to_str().expect("a path");
    let server = Server::start(&["--node", NODE, "--unknown-fields", "--audit-log-path", path]);
    let (mut replay, _) = Replay::start(&server).await;
    replay.create_pod("runs", true).await;
    let uri = format!("/api/v1/namespaces/{NAMESPACE}/pods/runs/status?timeout=10s");
    let patch = json!({"status": {"phase": "Running"}});
    let (code, response) = replay.send(&replay.node, "PATCH", &uri, STRATEGIC, &patch).await;
    assert_eq!((code, &response["status"]["unknownStruct"]["text"]), (200, &json!("new")));
    let labels = response["metadata"]["labels"].as_object().expect("labels");
    assert_eq!(labels.keys().collect::<Vec<_>>(), ["app"], "another label would not be an unknown field");
    let log = read(audit.path());
    let entries: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(entries.len(), 1, "an administrator's requests are not in it: {log}");
    let expected = json!({"user": format!("system:node:{NODE}"), "verb": "patch", "uri": uri, "code": 200});
    for (field, value) in expected.as_object().expect("a map") {
        assert_eq!(&entries[0][field], value);
    }
    assert_eq!((&entries[0]["request"], &entries[0]["response"]["kind"]), (&patch, &json!("Pod")));
}
