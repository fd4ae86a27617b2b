//! Which instance of a container a log request refers to, by the pod's status.

use model::ContainerId;
use model::k8s::{ContainerStateTerminated, ContainerStatus, PodStatus};

/// An instance of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogInstance {
    pub id: ContainerId,
    /// It may still write to its log.
    pub is_running: bool,
}

/// The current instance, or the previous one.
///
/// # Errors
/// Why there is no log to show, as a message for the client.
pub fn find_instance(
    status: &PodStatus,
    pod: &str,
    container: &str,
    previous: bool,
) -> Result<LogInstance, String> {
    let lists =
        [&status.init_container_statuses, &status.container_statuses, &status.ephemeral_container_statuses];
    let mut all = lists.into_iter().flatten().flatten();
    let of = format!("container {container:?} in pod {pod:?}");
    let Some(status) = all.find(|status| status.name == container) else {
        return Err(format!("{of} is not available"));
    };
    let state = status.state.clone().unwrap_or_default();
    let last = status.last_state.as_ref().and_then(|last| last.terminated.as_ref()).map(ended);
    if previous {
        return last.flatten().ok_or(format!("previous terminated {of} not found"));
    }
    if state.running.is_some() {
        let id = status.container_id.as_deref().and_then(id_of);
        return id.map(|id| LogInstance { id, is_running: true }).ok_or(format!("{of} is not available"));
    }
    if let Some(terminated) = &state.terminated {
        // An instance that was never created has no ID; then the previous instance is used.
        return ended(terminated).or(last.flatten()).ok_or(format!("{of} is terminated"));
    }
    if let Some(last) = last {
        return last.ok_or(format!("{of} is terminated"));
    }
    Err(format!("{of} is waiting to start{}", why_waiting(status)))
}

fn why_waiting(status: &ContainerStatus) -> String {
    let waiting = status.state.as_ref().and_then(|state| state.waiting.as_ref());
    match waiting.map(|waiting| waiting.reason.as_deref().unwrap_or_default()) {
        Some("ErrImagePull") => ": image can't be pulled".to_owned(),
        Some("ImagePullBackOff") => ": trying and failing to pull image".to_owned(),
        Some(reason) => format!(": {reason}"),
        None => " - no logs yet".to_owned(),
    }
}

fn ended(terminated: &ContainerStateTerminated) -> Option<LogInstance> {
    let id = terminated.container_id.as_deref().and_then(id_of)?;
    Some(LogInstance { id, is_running: false })
}

/// `containerd://<id>`.
fn id_of(text: &str) -> Option<ContainerId> {
    let (_, id) = text.split_once("://")?;
    (!id.is_empty()).then(|| ContainerId::from(id))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn find(status: &Value, previous: bool) -> Result<String, String> {
        let mut status = status.clone();
        status["name"] = "main".into();
        for (field, value) in [
            ("image", json!("")),
            ("imageID", json!("")),
            ("ready", json!(false)),
            ("restartCount", json!(0)),
        ] {
            status[field] = value;
        }
        let pod: PodStatus = serde_json::from_value(json!({"containerStatuses": [status]})).unwrap();
        find_instance(&pod, "web", "main", previous).map(|i| format!("{} running={}", i.id, i.is_running))
    }

    #[test]
    fn log_request_gets_the_current_or_the_previous_container_instance() {
        let ended = |id: &str| json!({"terminated": {"exitCode": 1, "containerID": id}});
        let running = json!({"state": {"running": {}}, "containerID": "containerd://c2", "lastState": ended("containerd://c1")});
        let waiting = json!({"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": ended("containerd://c1")});
        for (status, previous, expected) in [
            (&running, false, Ok("c2 running=true")),
            (&running, true, Ok("c1 running=false")),
            (&waiting, false, Ok("c1 running=false")),
            (&json!({"state": ended("containerd://c3")}), false, Ok("c3 running=false")),
            (
                &json!({"state": ended(""), "lastState": ended("containerd://c1")}),
                false,
                Ok("c1 running=false"),
            ),
            (&json!({"state": ended("")}), false, Err("container \"main\" in pod \"web\" is terminated")),
            (
                &json!({"state": {"running": {}}, "containerID": "containerd://c1"}),
                true,
                Err("previous terminated container \"main\" in pod \"web\" not found"),
            ),
            (
                &json!({"state": {"waiting": {"reason": "ErrImagePull"}}}),
                false,
                Err("container \"main\" in pod \"web\" is waiting to start: image can't be pulled"),
            ),
            (
                &json!({"state": {"waiting": {"reason": "ImagePullBackOff"}}}),
                false,
                Err(
                    "container \"main\" in pod \"web\" is waiting to start: trying and failing to pull image",
                ),
            ),
            (
                &json!({"state": {"waiting": {"reason": "ContainerCreating"}}}),
                false,
                Err("container \"main\" in pod \"web\" is waiting to start: ContainerCreating"),
            ),
            (&json!({}), false, Err("container \"main\" in pod \"web\" is waiting to start - no logs yet")),
        ] {
            let expected = expected.map(str::to_owned).map_err(str::to_owned);
            assert_eq!(find(status, previous), expected, "{status} {previous}");
        }
        let none = find_instance(&PodStatus::default(), "web", "main", false).unwrap_err();
        assert_eq!(none, "container \"main\" in pod \"web\" is not available");
    }
}
