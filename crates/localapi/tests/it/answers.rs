//! Replays requests that were recorded of a real kube-apiserver 1.36.2 with its controllers (`tests/recorded/answers`), in order. The code of
//! each answer must be the recorded one, but for those in `different.tsv`, which has the reason of each.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::Value;

use crate::server::Server;

/// How long a controller may take; one that does nothing is a difference.
const CONTROLLER_TIMEOUT: Duration = Duration::from_secs(8);
/// A request without an answer is a difference, too.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(50);

fn read(name: &str) -> String {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded/answers").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The names of the entries of a topic whose answers differ.
fn different(topic: &str) -> BTreeSet<String> {
    let lines = read("different.tsv");
    let fields = lines.lines().filter_map(|line| line.strip_prefix(topic)?.strip_prefix('\t'));
    fields.map(|rest| rest.split('\t').next().unwrap_or_default().to_owned()).collect()
}

/// `${name}` in a request is a value of an earlier answer, and `@@REPEAT:n@@` are `n` letters.
fn with_variables(text: &str, variables: &BTreeMap<String, String>) -> String {
    let filled = variables
        .iter()
        .fold(text.to_owned(), |text, (name, value)| text.replace(&format!("${{{name}}}"), value));
    let Some((before, rest)) = filled.split_once("@@REPEAT:") else { return filled };
    let (number, after) = rest.split_once("@@").expect("the end of a repetition");
    format!("{before}{}{after}", "A".repeat(number.parse().expect("a number")))
}

/// The users of the recordings.
struct Users {
    server: Server,
    clients: BTreeMap<String, Client>,
}

/// Users with a static token `token-<name>`, and their group; the two nodes have certificates.
const USERS: &[(&str, &str)] = &[("alice", ":developers"), ("bob", ""), ("carol", ":auditors")];
const NODES: &[(&str, &str)] = &[("node", "worker"), ("node2", "other")];

impl Users {
    fn start(volumes: &Path) -> Self {
        let mut flags = vec![
            "--managed-fields".to_owned(),
            "--anonymous".to_owned(),
            format!("--local-volumes={}", volumes.display()),
        ];
        flags.extend(USERS.iter().map(|(user, group)| format!("--token=token-{user}:{user}{group}")));
        flags.extend(NODES.iter().map(|(_, node)| format!("--node={node}")));
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        Self { server: Server::start(&flags), clients: BTreeMap::new() }
    }

    /// `bearer:<token>` is a user with this token.
    async fn client(&mut self, user: &str) -> Client {
        if let Some(client) = self.clients.get(user) {
            return client.clone();
        }
        let node = NODES.iter().find(|(name, _)| *name == user).map(|(_, node)| *node);
        let credentials = match user {
            "admin" => None,
            "anonymous" => Some(serde_json::json!({})),
            _ if node.is_some() => None,
            _ => {
                let token =
                    user.strip_prefix("bearer:").map_or_else(|| format!("token-{user}"), str::to_owned);
                Some(serde_json::json!({"token": token}))
            }
        };
        let file = match credentials {
            None => format!("{}.kubeconfig", node.unwrap_or("admin")),
            Some(credentials) => self.server.with_credentials(&credentials),
        };
        let client = self.server.client_without_retries(&file).await;
        self.clients.insert(user.to_owned(), client.clone());
        client
    }
}

async fn send(client: &Client, entry: &Value, variables: &BTreeMap<String, String>) -> (u64, Value) {
    let text = |field: &str| entry[field].as_str().unwrap_or_default();
    let body = &entry["body"];
    let body = match body.as_str() {
        Some(text) => text.to_owned(),
        None if body.is_null() => String::new(),
        None => body.to_string(),
    };
    let mut request =
        http::Request::builder().method(text("method")).uri(with_variables(text("path"), variables));
    if !text("media").is_empty() {
        request = request.header(http::header::CONTENT_TYPE, text("media"));
    }
    for (name, value) in entry["headers"].as_object().into_iter().flatten() {
        let values = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        for value in values.iter().filter_map(Value::as_str) {
            request = request.header(name, value);
        }
    }
    let body = Body::from(with_variables(&body, variables).into_bytes());
    let request = client.send(request.body(body).expect("a request"));
    let Ok(response) = tokio::time::timeout(REQUEST_TIMEOUT, request).await else {
        return (0, serde_json::json!({"message": "no answer"}));
    };
    let response = response.expect("a response");
    let code = u64::from(response.status().as_u16());
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap_or_default())
}

/// Whether the answer is the one for which the recording waited.
fn is_awaited(until: &Value, code: u64, answer: &Value) -> bool {
    if let Some(wanted) = until["code"].as_u64() {
        return code == wanted;
    }
    let found = answer.pointer(until["pointer"].as_str().unwrap_or_default());
    match (until.get("is"), until["length"].as_u64()) {
        (Some(wanted), _) => found == Some(wanted),
        (None, Some(length)) => {
            found.and_then(Value::as_array).is_some_and(|list| list.len() as u64 == length)
        }
        (None, None) => found.is_some(),
    }
}

async fn replay(topic: &str) {
    let volumes = tempfile::tempdir().expect("a directory");
    let mut users = Users::start(volumes.path());
    let (known, mut found, mut variables) = (different(topic), Vec::new(), BTreeMap::new());
    for line in read(&format!("{topic}.jsonl")).lines() {
        let entry: Value = serde_json::from_str(line).expect("JSON");
        let name = entry["name"].as_str().expect("a name");
        let wanted = entry["code"].as_u64().expect("a code");
        let user = with_variables(entry["user"].as_str().unwrap_or("admin"), &variables);
        let client = users.client(&user).await;
        let deadline = Instant::now() + CONTROLLER_TIMEOUT;
        let (code, answer) = loop {
            let (code, answer) = send(&client, &entry, &variables).await;
            let is_read = entry["method"] == "GET" && !known.contains(name);
            let waits = match entry.get("until") {
                Some(until) => !known.contains(name) && !is_awaited(until, code, &answer),
                // The real server had a second for its controllers.
                None => is_read && code != wanted,
            };
            if !waits || Instant::now() > deadline {
                break (code, answer);
            }
            tokio::time::sleep(PAUSE).await;
        };
        let until = entry.get("until").filter(|until| !is_awaited(until, code, &answer));
        if code != wanted {
            found.push((name.to_owned(), format!("{wanted}, here {code} {}", answer["message"])));
        } else if let Some(until) = until {
            found.push((name.to_owned(), format!("{until} has not come: {answer}")));
        }
        for (variable, pointer) in entry["save"].as_object().into_iter().flatten() {
            let value = pointer.as_str().and_then(|pointer| answer.pointer(pointer));
            let text = value.map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned));
            variables.insert(variable.clone(), text.unwrap_or_default());
        }
    }
    let names: BTreeSet<String> = found.iter().map(|(name, _)| name.clone()).collect();
    let new: Vec<_> = found.iter().filter(|(name, _)| !known.contains(name)).collect();
    assert!(new.is_empty(), "{topic}: {new:#?}");
    let equal: Vec<_> = known.difference(&names).collect();
    assert!(equal.is_empty(), "{topic}: different.tsv has entries that are equal now: {equal:?}");
}

#[tokio::test]
async fn quotas_limits_and_priorities_are_answered_as_by_a_real_api_server() {
    replay("quota").await;
}

#[tokio::test]
async fn storage_is_answered_as_by_a_real_api_server() {
    replay("storage").await;
}

#[tokio::test]
async fn owners_and_deletions_are_answered_as_by_a_real_api_server() {
    replay("gc").await;
}

#[tokio::test]
async fn roles_reviews_and_impersonation_are_answered_as_by_a_real_api_server() {
    replay("rbac").await;
}

#[tokio::test]
async fn server_side_apply_is_answered_as_by_a_real_api_server() {
    replay("apply").await;
}

#[tokio::test]
async fn verbs_and_their_errors_are_answered_as_by_a_real_api_server() {
    replay("verbs").await;
}
