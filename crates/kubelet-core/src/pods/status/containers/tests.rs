//! The values of the Go kubelet's table of `status/status_manager_test.go` (TestTerminatePod_DefaultUnknownStatus, 1.36), but for
//! those of docs/decisions/0067.

use model::k8s::{ContainerStatus, Pod};
use serde_json::{Value, json};

use super::end_what_never_reported;
use crate::pods::status::ContainerStatuses;

/// `waiting`, `running`, `exit2`, or `waiting<exit2` with the end of the run before.
fn status(name: &str, text: &str) -> ContainerStatus {
    let one = |text: &str| -> Value {
        match text.strip_prefix("exit") {
            Some(code) => json!({"terminated": {"exitCode": code.parse::<i32>().unwrap()}}),
            None => json!({text: {}}),
        }
    };
    let (state, last) = text.split_once('<').unwrap_or((text, ""));
    let last = if last.is_empty() { Value::Null } else { one(last) };
    serde_json::from_value(json!({"name": name, "image": "", "imageID": "", "ready": state == "exit0",
        "restartCount": 0, "state": one(state), "lastState": last}))
    .unwrap()
}

fn shown(statuses: &[ContainerStatus]) -> String {
    let one = |status: &ContainerStatus| match status.state.as_ref().and_then(|s| s.terminated.as_ref()) {
        Some(end) if end.reason.as_deref() == Some("ContainerStatusUnknown") => "unknown".to_owned(),
        Some(end) => format!("exit{}", end.exit_code),
        None => "waiting".to_owned(),
    };
    statuses.iter().map(one).collect::<Vec<_>>().join(" ")
}

#[test]
fn terminate_pod_default_unknown_status_table() {
    for (name, init, regular, expected) in [
        ("last termination state set", "", "waiting<exit2", "| unknown"),
        ("no previous state", "", "waiting", "| unknown"),
        ("terminated", "", "exit2", "| exit2"),
        ("uninitialized pod defaults the first init container", "waiting", "waiting", "unknown | waiting"),
        ("only the first init container", "waiting waiting", "waiting", "unknown waiting | waiting"),
        (
            "uninitialized pod defaults gaps",
            "waiting waiting exit1 waiting",
            "waiting",
            "unknown unknown exit1 waiting | waiting",
        ),
        (
            "failed last container is uninitialized",
            "waiting waiting exit1",
            "waiting",
            "unknown unknown exit1 | waiting",
        ),
        ("running container proves initialization", "waiting", "running", "unknown | unknown"),
        ("terminated container proves initialization", "waiting", "exit0", "unknown | exit0"),
        ("previously terminated container proves it", "waiting", "waiting<exit0", "unknown | unknown"),
    ] {
        let list = |words: &str, prefix: &str| -> Vec<ContainerStatus> {
            words
                .split_whitespace()
                .enumerate()
                .map(|(i, word)| status(&format!("{prefix}{i}"), word))
                .collect()
        };
        let mut statuses = ContainerStatuses {
            init: list(init, "init-"),
            regular: list(regular, ""),
            ..ContainerStatuses::default()
        };
        let names =
            |list: &[ContainerStatus]| list.iter().map(|s| json!({"name": s.name})).collect::<Vec<_>>();
        let spec = json!({"initContainers": names(&statuses.init), "containers": names(&statuses.regular)});
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap();
        end_what_never_reported(&pod, &mut statuses);
        let found = format!("{} | {}", shown(&statuses.init), shown(&statuses.regular));
        assert_eq!(found.trim_start(), expected, "{name}");
    }
}
