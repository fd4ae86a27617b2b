//! Rules for probes and lifecycle hooks.

use base_core::names;
use model::ContainerKind;
use model::containers::ContainerRef;
use model::k8s::{ExecAction, HTTPGetAction, IntOrString, LifecycleHandler, PodSpec, Probe};

use super::Findings;

/// What a probe or hook does, whichever of the two it is.
struct Actions<'a> {
    exec: Option<&'a ExecAction>,
    http_get: Option<&'a HTTPGetAction>,
    tcp_port: Option<&'a IntOrString>,
    grpc_port: Option<i32>,
    sleep_seconds: Option<i64>,
}

pub(super) fn check_handlers(
    path: &str,
    container: &ContainerRef<'_>,
    spec: &PodSpec,
    found: &mut Findings<'_>,
) {
    let probes = [
        ("livenessProbe", container.liveness_probe()),
        ("readinessProbe", container.readiness_probe()),
        ("startupProbe", container.startup_probe()),
    ];
    let hooks = container.lifecycle();
    match container.kind {
        ContainerKind::Init => {
            let detail = "may not be set for init containers without restartPolicy=Always";
            for (name, _) in probes.iter().filter(|(_, probe)| probe.is_some()) {
                found.forbidden(format!("{path}.{name}"), detail);
            }
            if hooks.is_some() {
                found.forbidden(format!("{path}.lifecycle"), detail);
            }
        }
        ContainerKind::Sidecar | ContainerKind::Regular | ContainerKind::Ephemeral => {
            for (name, probe) in probes {
                if let Some(probe) = probe {
                    check_probe(&format!("{path}.{name}"), name, probe, found);
                }
            }
            let post_start = hooks.and_then(|h| h.post_start.as_ref());
            let pre_stop = hooks.and_then(|h| h.pre_stop.as_ref());
            for (name, hook) in [("postStart", post_start), ("preStop", pre_stop)] {
                if let Some(hook) = hook {
                    check_hook(&format!("{path}.lifecycle.{name}"), hook, spec, found);
                }
            }
        }
    }
}

fn check_probe(path: &str, name: &str, probe: &Probe, found: &mut Findings<'_>) {
    let actions = Actions {
        exec: probe.exec.as_ref(),
        http_get: probe.http_get.as_ref(),
        tcp_port: probe.tcp_socket.as_ref().map(|tcp| &tcp.port),
        grpc_port: probe.grpc.as_ref().map(|grpc| grpc.port),
        sleep_seconds: None,
    };
    check_actions(path, &actions, None, found);
    let numbers = [
        ("initialDelaySeconds", probe.initial_delay_seconds),
        ("timeoutSeconds", probe.timeout_seconds),
        ("periodSeconds", probe.period_seconds),
        ("successThreshold", probe.success_threshold),
        ("failureThreshold", probe.failure_threshold),
    ];
    for (field, number) in numbers {
        found.not_negative(format!("{path}.{field}"), number.map(i64::from));
    }
    let is_readiness = name == "readinessProbe";
    if let Some(times) = probe.success_threshold.filter(|times| *times != 1 && !is_readiness) {
        found.invalid(format!("{path}.successThreshold"), times, "must be 1");
    }
    if let Some(grace) = probe.termination_grace_period_seconds {
        let path = format!("{path}.terminationGracePeriodSeconds");
        if is_readiness {
            found.invalid(path, grace, "must not be set for readinessProbes");
        } else if grace <= 0 {
            found.invalid(path, grace, "must be greater than 0");
        }
    }
}

fn check_hook(path: &str, hook: &LifecycleHandler, spec: &PodSpec, found: &mut Findings<'_>) {
    let actions = Actions {
        exec: hook.exec.as_ref(),
        http_get: hook.http_get.as_ref(),
        tcp_port: hook.tcp_socket.as_ref().map(|tcp| &tcp.port),
        grpc_port: None,
        sleep_seconds: hook.sleep.as_ref().map(|sleep| sleep.seconds),
    };
    check_actions(path, &actions, spec.termination_grace_period_seconds, found);
}

/// Exactly one action, and that one complete.
fn check_actions(path: &str, actions: &Actions<'_>, grace: Option<i64>, found: &mut Findings<'_>) {
    let given = [
        ("exec", actions.exec.is_some()),
        ("httpGet", actions.http_get.is_some()),
        ("tcpSocket", actions.tcp_port.is_some()),
        ("grpc", actions.grpc_port.is_some()),
        ("sleep", actions.sleep_seconds.is_some()),
    ];
    let mut given = given.into_iter().filter(|(_, is_given)| *is_given).map(|(name, _)| name);
    if given.next().is_none() {
        found.required(path, "must specify a handler type");
    }
    for another in given {
        found.forbidden(format!("{path}.{another}"), "may not specify more than 1 handler type");
    }
    if actions.exec.is_some_and(|exec| exec.command.as_deref().unwrap_or_default().is_empty()) {
        found.required(format!("{path}.exec.command"), "");
    }
    if let Some(http) = actions.http_get {
        check_http(&format!("{path}.httpGet"), http, found);
    }
    if let Some(port) = actions.tcp_port {
        check_port(&format!("{path}.tcpSocket.port"), port, found);
    }
    if let Some(port) = actions.grpc_port {
        found.in_range(format!("{path}.grpc.port"), port, 1..=65_535);
    }
    if let (Some(seconds), Some(grace)) = (actions.sleep_seconds, grace)
        && !(0..=grace).contains(&seconds)
    {
        let detail = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
        found.invalid(format!("{path}.sleep"), seconds, detail);
    }
}

fn check_http(path: &str, http: &HTTPGetAction, found: &mut Findings<'_>) {
    if http.path.as_deref().unwrap_or_default().is_empty() {
        found.required(format!("{path}.path"), "");
    }
    check_port(&format!("{path}.port"), &http.port, found);
    found.one_of(format!("{path}.scheme"), http.scheme.as_deref(), &["HTTP", "HTTPS"]);
    for (index, header) in http.http_headers.iter().flatten().enumerate() {
        let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        if header.name.is_empty() || !header.name.bytes().all(is_token) {
            let detail = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex \
                          used for validation is '[-A-Za-z0-9]+')";
            found.invalid(format!("{path}.httpHeaders[{index}].name"), header.name.as_str(), detail);
        }
    }
}

fn check_port(path: &str, port: &IntOrString, found: &mut Findings<'_>) {
    match port {
        IntOrString::Int(number) => found.in_range(path, *number, 1..=65_535),
        IntOrString::String(name) => {
            for problem in names::port_name_problems(name) {
                found.invalid(path, name.as_str(), problem);
            }
        }
    }
}
