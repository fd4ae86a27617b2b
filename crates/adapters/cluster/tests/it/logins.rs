//! Credentials: tokens, passwords, exec plugins, certificates, and impersonation.

use std::path::Path;
use std::time::Duration;

use cluster::{ApiServer, Settings};
use ports::cluster::ClusterError;
use ports::{Clock, Cluster};
use serde_json::{Value, json};

use crate::server::{Reply, TestServer, UNLIMITED};

/// Accepts only the token `good`.
async fn guarded() -> TestServer {
    TestServer::start(|request| match request.header("authorization") {
        Some("Bearer good") => Reply::text(200, "ok"),
        _ => Reply::status(401, "Unauthorized", "who are you?"),
    })
    .await
}

fn authorizations(server: &TestServer) -> Vec<String> {
    let requests = server.requests();
    requests.iter().map(|request| request.header("authorization").unwrap_or("-").to_owned()).collect()
}

/// A plugin that is this shell script.
fn script(dir: &Path, text: &str) -> Value {
    let path = dir.join("login");
    std::fs::write(&path, text).unwrap();
    plugin("/bin/sh", &json!([path, "one", "two"]))
}

fn plugin(command: &str, args: &Value) -> Value {
    json!({"exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "command": command, "args": args,
        "env": [{"name": "EXTRA", "value": "from-kubeconfig"}], "installHint": "ask jane",
        "provideClusterInfo": true, "interactiveMode": "Never",
    }})
}

/// Prints an `ExecCredential` with this status.
fn answer(status: &Value) -> String {
    let credential =
        json!({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status});
    format!("cat <<'END'\n{credential}\nEND\n")
}

#[tokio::test]
async fn tokens_passwords_and_impersonation_are_sent_as_headers() {
    let server = TestServer::start(|_| Reply::text(200, "ok")).await;
    for user in [
        json!({"token": "secret"}),
        json!({"username": "jane", "password": "p:w"}),
        json!({"as": "joe", "as-uid": "7", "as-groups": ["a", "b"], "as-user-extra": {"ex.io/k": ["v"]}}),
    ] {
        server.api_for(&user).handle(UNLIMITED).healthy().await.unwrap();
    }
    assert_eq!(authorizations(&server), ["Bearer secret", "Basic amFuZTpwOnc=", "-"]);
    let acting = &server.requests()[2];
    assert_eq!(
        (acting.header("impersonate-user"), acting.header("impersonate-uid")),
        (Some("joe"), Some("7"))
    );
    let groups: Vec<_> = acting.headers.get_all("impersonate-group").iter().collect();
    assert_eq!(groups, ["a", "b"]);
    assert_eq!(acting.header("impersonate-extra-ex.io%2fk"), Some("v"));
}

#[tokio::test]
async fn token_file_is_read_again_when_its_token_is_rejected() {
    let server = guarded().await;
    let file = server.dir.path().join("token");
    std::fs::write(&file, "old\n").unwrap();
    let handle = server.api_for(&json!({"tokenFile": "token"})).handle(UNLIMITED);
    let error = handle.healthy().await.unwrap_err();
    assert!(matches!(error, ClusterError::Unauthorized { .. }), "{error:?}");
    std::fs::write(&file, "good\n").unwrap();
    handle.healthy().await.unwrap();
    // An accepted token is cached.
    std::fs::write(&file, "").unwrap();
    handle.healthy().await.unwrap();
    assert_eq!(authorizations(&server), ["Bearer old", "Bearer good", "Bearer good"]);
}

#[tokio::test]
async fn empty_or_missing_token_file_is_reported() {
    let server = guarded().await;
    std::fs::write(server.dir.path().join("token"), " \n").unwrap();
    for (file, problem) in [("token", "it is empty"), ("missing", "No such file")] {
        let handle = server.api_for(&json!({"tokenFile": file})).handle(UNLIMITED);
        let error = handle.healthy().await.unwrap_err().to_string();
        assert!(error.contains(&format!("/{file}: ")) && error.contains(problem), "{error}");
    }
    assert_eq!(server.lines(), Vec::<String>::new());
}

#[tokio::test]
async fn exec_plugin_runs_once_for_many_calls_and_again_when_its_token_is_rejected() {
    let server = guarded().await;
    let dir = server.dir.path();
    let counting =
        "echo run >>runs\nprintf %s \"$KUBERNETES_EXEC_INFO\" >question\necho \"$EXTRA $*\" >given\n";
    let text = format!("cd {}\n{counting}{}", dir.display(), answer(&json!({"token": "good"})));
    let user = script(dir, &text);
    let handle = server.api_for(&user).handle(UNLIMITED);
    for result in futures_util::future::join_all((0..20).map(|_| handle.healthy())).await {
        result.unwrap();
    }
    handle.healthy().await.unwrap();
    let read = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
    assert_eq!(read("runs"), "run\n");
    assert_eq!(read("given"), "from-kubeconfig one two\n");
    let question: Value = serde_json::from_str(&read("question")).unwrap();
    assert_eq!(question["kind"], "ExecCredential");
    assert_eq!(question["spec"]["interactive"], false);
    assert_eq!(question["spec"]["cluster"]["server"], format!("https://127.0.0.1:{}", server.port));
    assert!(question["spec"]["cluster"]["certificate-authority-data"].is_string());

    let text = format!("cd {}\n{counting}{}", dir.display(), answer(&json!({"token": "bad"})));
    let handle = server.api_for(&script(dir, &text)).handle(UNLIMITED);
    for _ in 0..2 {
        assert!(matches!(handle.healthy().await, Err(ClusterError::Unauthorized { .. })));
    }
    assert_eq!(read("runs"), "run\nrun\nrun\n");
}

#[tokio::test]
async fn exec_plugin_credentials_are_used_until_they_expire() {
    let server = guarded().await;
    let dir = server.dir.path();
    let status = json!({"token": "good", "expirationTimestamp": "2026-01-01T01:00:00Z"});
    let text = format!("echo run >>{}/runs\n{}", dir.display(), answer(&status));
    let user = script(dir, &text);
    let access = server.access_with(&json!({}), &user, &cluster::ProxyEnv::default());
    for (time, runs) in [("2026-01-01T00:59:59Z", 1), ("2026-01-01T01:00:00Z", 3)] {
        let clock = Clock::starting_at(time.parse().unwrap());
        let settings =
            Settings { user_agent: "kubelet".to_owned(), http2: true, clock, seed: 1, trace: None };
        let handle = ApiServer::new(access.clone(), settings).unwrap().handle(UNLIMITED);
        handle.healthy().await.unwrap();
        if runs > 1 {
            handle.healthy().await.unwrap();
        }
        let text = std::fs::read_to_string(dir.join("runs")).unwrap();
        assert_eq!(text.lines().count(), runs);
    }
}

#[tokio::test]
async fn exec_plugin_may_return_a_certificate() {
    let server = TestServer::start(|_| Reply::text(200, "ok")).await;
    let pair = server.authority.client("from-plugin");
    let status = json!({"clientCertificateData": pair.certificate, "clientKeyData": pair.key});
    let user = script(server.dir.path(), &answer(&status));
    let handle = server.api_for(&user).handle(UNLIMITED);
    handle.healthy().await.unwrap();
    handle.healthy().await.unwrap();
    assert!(server.requests().iter().all(|request| request.client.as_ref() == Some(&pair.chain()[0])));
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn failed_exec_plugin_is_reported_with_its_error_output() {
    let server = guarded().await;
    let dir = server.dir.path();
    let other = answer(&json!({"token": "x"})).replace("io/v1\"", "io/v1beta1\"");
    for (text, problem) in [
        ("echo no luck today >&2; exit 3", "exit status: 3: no luck today"),
        ("echo hello", "its output is not an ExecCredential: "),
        (other.as_str(), "is a ExecCredential of client.authentication.k8s.io/v1beta1, but must be"),
        (answer(&json!({})).as_str(), "neither a token nor a certificate"),
        (answer(&Value::Null).as_str(), "its output has no status"),
    ] {
        let handle = server.api_for(&script(dir, text)).handle(UNLIMITED);
        let error = handle.healthy().await.unwrap_err();
        assert!(matches!(error, ClusterError::Unauthorized { .. }), "{error:?}");
        let error = error.to_string();
        assert!(
            error.contains("exec plugin /bin/sh: ") && error.contains(problem),
            "{error} should contain {problem}"
        );
    }
    let handle = server.api_for(&plugin("./missing", &json!([]))).handle(UNLIMITED);
    let error = handle.healthy().await.unwrap_err().to_string();
    assert!(error.contains("missing: failed to run: ") && error.contains("ask jane"), "{error}");
    assert_eq!(server.lines(), Vec::<String>::new());
}

#[tokio::test]
async fn calls_with_a_hanging_exec_plugin_end_at_their_deadline() {
    let server = guarded().await;
    let user = script(server.dir.path(), "exec tail -f /dev/null");
    let deadline = Duration::from_millis(200);
    let settings = cluster::HandleSettings { budget: None, deadline };
    let error = server.api_for(&user).handle(settings).healthy().await.unwrap_err();
    assert!(matches!(error, ClusterError::TimedOut { .. }), "{error:?}");
}
