//! The row of a pod, with the status summary of kubectl.

use serde_json::{Value, json};

use super::{View, age, text_of};
use crate::object;

const NONE: &str = "<none>";

/// The condition `Completed` of the row of a terminated pod.
pub(super) fn completed(pod: View<'_>) -> Option<Value> {
    let (reason, message) = match pod.text("/status/phase") {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!({"type": "Completed", "status": "True", "reason": reason, "message": message}))
}

pub(super) fn cells(pod: View<'_>) -> Vec<Value> {
    let summary = Summary::of(pod);
    let sidecars = pod.list("/spec/initContainers").iter().filter(|container| is_sidecar(container)).count();
    let total = pod.list("/spec/containers").len() + sidecars;
    let restarts = match summary.restarts.last {
        Some(time) if summary.restarts.count != 0 => {
            format!("{} ({} ago)", summary.restarts.count, age::since(time, pod.now))
        }
        Some(_) | None => summary.restarts.count.to_string(),
    };
    vec![
        pod.name(),
        format!("{}/{total}", summary.ready).into(),
        status(pod, summary.reason).into(),
        restarts.into(),
        pod.age(),
        pod.text_or("/status/podIPs/0/ip", NONE).into(),
        pod.text_or("/spec/nodeName", NONE).into(),
        pod.text_or("/status/nominatedNodeName", NONE).into(),
        readiness_gates(pod).into(),
    ]
}

fn status(pod: View<'_>, reason: String) -> String {
    match pod.is_terminating() {
        true if pod.text("/status/reason") == "NodeLost" => "Unknown".to_owned(),
        true if !object::has_ended(pod.object) => "Terminating".to_owned(),
        true | false => reason,
    }
}

#[derive(Clone, Copy, Default)]
struct Restarts<'a> {
    count: i64,
    /// The time of the last restart, RFC 3339 in UTC: the order of the strings is that of the times.
    last: Option<&'a str>,
}

impl<'a> Restarts<'a> {
    fn add(&mut self, container: &'a Value) {
        self.count += container.get("restartCount").and_then(Value::as_i64).unwrap_or_default();
        let finished = container.pointer("/lastState/terminated/finishedAt").and_then(Value::as_str);
        self.last = self.last.max(finished);
    }
}

struct Summary<'a> {
    reason: String,
    ready: usize,
    restarts: Restarts<'a>,
}

impl<'a> Summary<'a> {
    fn of(pod: View<'a>) -> Self {
        let gated = pod
            .list("/status/conditions")
            .iter()
            .any(|c| text_of(c, "type") == "PodScheduled" && text_of(c, "reason") == "SchedulingGated");
        let reason = match pod.text("/status/reason") {
            _ if gated => "SchedulingGated",
            "" => pod.text("/status/phase"),
            reason => reason,
        };
        let mut summary = Self { reason: reason.to_owned(), ready: 0, restarts: Restarts::default() };
        let init = summary.add_init_containers(pod);
        if !init.is_running || condition(pod, "Initialized") == "True" {
            summary.restarts = init.sidecar_restarts;
            summary.add_containers(pod);
        }
        summary
    }

    fn add_init_containers(&mut self, pod: View<'a>) -> Initialization<'a> {
        let specs = pod.list("/spec/initContainers");
        let mut found = Initialization { is_running: false, sidecar_restarts: Restarts::default() };
        for (index, container) in pod.list("/status/initContainerStatuses").iter().enumerate() {
            let spec = specs.iter().find(|spec| text_of(spec, "name") == text_of(container, "name"));
            let is_sidecar = spec.is_some_and(is_sidecar);
            self.restarts.add(container);
            if is_sidecar {
                found.sidecar_restarts.add(container);
            }
            let is_started = container.get("started").and_then(Value::as_bool).unwrap_or_default();
            let terminated = container.pointer("/state/terminated");
            if terminated.is_some_and(|state| number_of(state, "exitCode") == 0) {
                continue;
            }
            if is_sidecar && is_started {
                self.ready += usize::from(is_ready(container));
                continue;
            }
            let waiting = container.pointer("/state/waiting/reason").and_then(Value::as_str);
            self.reason = match (terminated, waiting) {
                (Some(state), _) => format!("Init:{}", end_reason(state)),
                (None, Some(reason)) if !["", "PodInitializing"].contains(&reason) => {
                    format!("Init:{reason}")
                }
                (None, _) => format!("Init:{index}/{}", specs.len()),
            };
            found.is_running = true;
            break;
        }
        found
    }

    /// In reverse order, so that the first container determines the reason.
    fn add_containers(&mut self, pod: View<'a>) {
        let mut has_running = false;
        for container in pod.list("/status/containerStatuses").iter().rev() {
            self.restarts.add(container);
            let waiting = container.pointer("/state/waiting/reason").and_then(Value::as_str);
            let terminated = container.pointer("/state/terminated");
            match (waiting, terminated) {
                (Some(reason), _) if !reason.is_empty() => reason.clone_into(&mut self.reason),
                (_, Some(state)) => self.reason = end_reason(state),
                (_, None) if is_ready(container) && container.pointer("/state/running").is_some() => {
                    has_running = true;
                    self.ready += 1;
                }
                (_, None) => {}
            }
        }
        if self.reason == "Completed" && has_running {
            let is_ready = condition(pod, "Ready") == "True";
            self.reason = if is_ready { "Running" } else { "NotReady" }.to_owned();
        }
    }
}

struct Initialization<'a> {
    /// Whether an init container has not completed.
    is_running: bool,
    sidecar_restarts: Restarts<'a>,
}

/// The reason of a terminated container, or else its exit code or signal.
fn end_reason(terminated: &Value) -> String {
    match (text_of(terminated, "reason"), number_of(terminated, "signal")) {
        ("", 0) => format!("ExitCode:{}", number_of(terminated, "exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn is_sidecar(container: &Value) -> bool {
    text_of(container, "restartPolicy") == "Always"
}

fn is_ready(status: &Value) -> bool {
    status.get("ready").and_then(Value::as_bool).unwrap_or_default()
}

fn number_of(part: &Value, field: &str) -> i64 {
    part.get(field).and_then(Value::as_i64).unwrap_or_default()
}

fn condition<'a>(pod: View<'a>, kind: &str) -> &'a str {
    let found = pod.list("/status/conditions").iter().find(|c| text_of(c, "type") == kind);
    found.map_or("", |condition| text_of(condition, "status"))
}

fn readiness_gates(pod: View<'_>) -> String {
    let gates = pod.list("/spec/readinessGates");
    if gates.is_empty() {
        return NONE.to_owned();
    }
    let open = gates.iter().filter(|gate| condition(pod, text_of(gate, "conditionType")) == "True").count();
    format!("{open}/{}", gates.len())
}
