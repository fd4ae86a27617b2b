//! The text of `kubelet describe`: a pod with its containers, volumes, conditions and events, for people.

use std::collections::BTreeMap;

use model::containers::{all_containers, spec_of};
use model::explain::{ContainerExplanation, PodExplanation};
use model::inventory::{EventItem, VolumeItem};
use model::k8s::{ContainerPort, ContainerStatus, IntOrString, Pod, PodStatus, Probe, Quantity};
use model::pod_status::statuses_by_name;
use model::{ContainerRef, QosClass};

use crate::render::{Style, Text, printable};
use crate::times::span;

/// What is known of a pod.
#[derive(Clone, Copy, Debug)]
pub struct Description<'a> {
    pub explanation: &'a PodExplanation,
    /// With its current status.
    pub pod: &'a Pod,
    pub volumes: &'a [VolumeItem],
    pub events: &'a [EventItem],
}

/// Of a line about the pod.
const LABEL: usize = 16;
/// Of a line about a container.
const INNER_LABEL: usize = 12;
const NONE: &str = "none";

/// The pod as text that ends with a line break.
#[must_use]
pub fn describe_text(of: &Description<'_>, style: Style) -> String {
    let mut out = Text { out: String::new(), style };
    head(&mut out, of);
    for cause in &of.explanation.causes {
        out.cause(cause);
    }
    containers(&mut out, of);
    volumes(&mut out, of.volumes);
    conditions(&mut out, of.pod);
    events(&mut out, of.events);
    out.out
}

fn field(out: &mut Text, label: &str, text: &str) {
    if !text.is_empty() {
        out.hanging(&format!("{:LABEL$} ", format!("{label}:")), &printable(text));
    }
}

fn inner(out: &mut Text, label: &str, text: &str) {
    if !text.is_empty() {
        out.hanging(&format!("    {:INNER_LABEL$} ", format!("{label}:")), &printable(text));
    }
}

fn heading(out: &mut Text, text: &str) {
    out.line("");
    out.line(text);
}

fn pairs(map: Option<&BTreeMap<String, String>>) -> String {
    let pairs = map.into_iter().flatten().map(|(key, value)| format!("{key}={value}"));
    pairs.collect::<Vec<_>>().join(", ")
}

fn head(out: &mut Text, of: &Description<'_>) {
    let Description { explanation, pod, .. } = of;
    let (spec, status) = (spec_of(pod), pod.status.as_ref());
    let text = |of: fn(&PodStatus) -> Option<&String>| status.and_then(of).cloned().unwrap_or_default();
    field(out, "Name", &explanation.name);
    field(out, "Namespace", &explanation.namespace);
    field(out, "UID", &explanation.uid);
    field(out, "From", &explanation.source);
    let since = explanation.since.map(|since| format!(" (for {})", span(since, out.style.now)));
    field(out, "Now", &format!("{}{}", explanation.summary, since.unwrap_or_default()));
    field(out, "Phase", &text(|status| status.phase.as_ref()));
    let started = status.and_then(|status| status.start_time.as_ref());
    field(
        out,
        "Started",
        &started.map(|at| format!("{} ago", span(at.0, out.style.now))).unwrap_or_default(),
    );
    field(out, "Labels", &pairs(pod.metadata.labels.as_ref()));
    let ips = status.and_then(|status| status.pod_ips.as_ref()).into_iter().flatten();
    field(out, "IP addresses", &ips.map(|ip| ip.ip.clone()).collect::<Vec<_>>().join(", "));
    field(out, "Host network", if spec.host_network == Some(true) { "yes" } else { "" });
    field(out, "QoS class", QosClass::of(pod).as_str());
    field(out, "Priority", &spec.priority.map(|priority| priority.to_string()).unwrap_or_default());
    field(out, "Restart policy", spec.restart_policy.as_deref().unwrap_or_default());
    let grace = spec.termination_grace_period_seconds.map(|seconds| format!("{seconds} s to end by itself"));
    field(out, "Grace period", &grace.unwrap_or_default());
    field(out, "Service account", spec.service_account_name.as_deref().unwrap_or_default());
}

fn containers(out: &mut Text, of: &Description<'_>) {
    let statuses = of.pod.status.as_ref().map(statuses_by_name).unwrap_or_default();
    heading(out, "Containers");
    for container in all_containers(of.pod) {
        let name = container.name();
        let known = of.explanation.containers.iter().find(|known| known.name == name);
        out.paragraph(2, &format!("{name}: {}", state(known, out.style)), None);
        about_container(out, of.pod, container, statuses.get(name).copied());
        for mount in container.volume_mounts() {
            let read_only = if mount.read_only == Some(true) { ", read-only" } else { "" };
            let part = mount.sub_path.as_ref().map(|path| format!(" at {path}")).unwrap_or_default();
            inner(out, "Mount", &format!("{} from volume {}{part}{read_only}", mount.mount_path, mount.name));
        }
    }
}

fn state(known: Option<&ContainerExplanation>, style: Style) -> String {
    let Some(known) = known else { return "not created yet".to_owned() };
    let mut text = known.state.clone();
    if let Some(since) = known.since {
        text += &format!(" for {}", span(since, style.now));
    }
    text += match (&*known.state, known.is_ready) {
        ("running", true) => ", ready",
        ("running", false) => ", not ready",
        _ => "",
    };
    match known.restarts {
        0 => {}
        1 => text += ", restarted once",
        count => text += &format!(", restarted {count} times"),
    }
    if !known.last_end.is_empty() {
        text += &format!(", the last instance ended with {}", printable(&known.last_end));
    }
    text
}

fn about_container(out: &mut Text, pod: &Pod, container: ContainerRef<'_>, status: Option<&ContainerStatus>) {
    inner(out, "Image", container.image());
    inner(out, "Image ID", status.map_or("", |status| &status.image_id));
    inner(out, "ID", status.and_then(|status| status.container_id.as_deref()).unwrap_or_default());
    inner(out, "Command", &container.command().join(" "));
    inner(out, "Arguments", &container.args().join(" "));
    inner(out, "Ports", &container.ports().iter().map(port).collect::<Vec<_>>().join(", "));
    let resources = container.resources();
    inner(out, "Requests", &amounts(resources.and_then(|resources| resources.requests.as_ref())));
    inner(out, "Limits", &amounts(resources.and_then(|resources| resources.limits.as_ref())));
    let spec = spec_of(pod);
    let mut all = spec.init_containers.iter().flatten().chain(&spec.containers);
    let Some(found) = all.find(|known| known.name == container.name()) else { return };
    let probes = [
        ("Startup", &found.startup_probe),
        ("Readiness", &found.readiness_probe),
        ("Liveness", &found.liveness_probe),
    ];
    for (label, probe) in probes {
        inner(out, label, &probe.as_ref().map(describe_probe).unwrap_or_default());
    }
}

fn port(port: &ContainerPort) -> String {
    let protocol = port.protocol.as_deref().unwrap_or("TCP");
    let name = port.name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
    let host = port.host_port.map(|host| format!(", port {host} of the node")).unwrap_or_default();
    format!("{}/{protocol}{name}{host}", port.container_port)
}

fn amounts(quantities: Option<&BTreeMap<String, Quantity>>) -> String {
    let amounts = quantities.into_iter().flatten().map(|(name, quantity)| format!("{name} {}", quantity.0));
    let text = amounts.collect::<Vec<_>>().join(", ");
    if text.is_empty() { NONE.to_owned() } else { text }
}

fn describe_probe(probe: &Probe) -> String {
    let action = if let Some(http) = &probe.http_get {
        let scheme = http.scheme.as_deref().unwrap_or("HTTP").to_lowercase();
        let host = http.host.as_deref().unwrap_or_default();
        format!("GET {scheme}://{host}:{}{}", number(&http.port), http.path.as_deref().unwrap_or("/"))
    } else if let Some(tcp) = &probe.tcp_socket {
        format!("a connection to port {}", number(&tcp.port))
    } else if let Some(grpc) = &probe.grpc {
        format!("a gRPC health check at port {}", grpc.port)
    } else {
        let command = probe.exec.as_ref().and_then(|exec| exec.command.as_ref());
        format!("the command {}", command.map(|command| command.join(" ")).unwrap_or_default())
    };
    let (period, timeout) = (probe.period_seconds.unwrap_or(10), probe.timeout_seconds.unwrap_or(1));
    let failures = probe.failure_threshold.unwrap_or(3);
    let delay = probe.initial_delay_seconds.filter(|delay| *delay > 0);
    let delay = delay.map(|delay| format!(" after {delay} s")).unwrap_or_default();
    format!("{action}, every {period} s{delay}, within {timeout} s; fails after {failures} in a row")
}

fn number(port: &IntOrString) -> String {
    match port {
        IntOrString::Int(number) => number.to_string(),
        IntOrString::String(name) => name.clone(),
    }
}

fn volumes(out: &mut Text, volumes: &[VolumeItem]) {
    heading(out, "Volumes");
    if volumes.is_empty() {
        out.paragraph(2, NONE, None);
    }
    for volume in volumes {
        let source = if volume.source.is_empty() { String::new() } else { format!(" {}", volume.source) };
        let next = volume.next_try.filter(|at| *at > out.style.now);
        let next = next.map(|at| format!(", next try in {}", span(out.style.now, at))).unwrap_or_default();
        let text = format!("{}: {}{source}, {}{next}", volume.name, volume.kind, volume.state.as_str());
        out.paragraph(2, &printable(&text), None);
        inner(out, "Error", &volume.error);
    }
}

fn conditions(out: &mut Text, pod: &Pod) {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let Some(conditions) = conditions.filter(|conditions| !conditions.is_empty()) else { return };
    heading(out, "Conditions");
    let widest = conditions.iter().map(|condition| condition.type_.len()).max().unwrap_or_default();
    for condition in conditions {
        let since = condition.last_transition_time.as_ref();
        let since = since.map(|at| format!(" for {}", span(at.0, out.style.now))).unwrap_or_default();
        let why =
            [&condition.reason, &condition.message].into_iter().flatten().filter(|text| !text.is_empty());
        let why = why.cloned().collect::<Vec<_>>().join(": ");
        let why = if why.is_empty() { why } else { format!(" ({})", printable(&why)) };
        out.hanging(&format!("  {:widest$} ", condition.type_), &format!("{}{since}{why}", condition.status));
    }
}

fn events(out: &mut Text, events: &[EventItem]) {
    heading(out, "Events");
    if events.is_empty() {
        out.paragraph(2, NONE, None);
    }
    for event in events {
        let mark = if event.event_type == "Warning" { '!' } else { ' ' };
        let container = event.container.as_ref().map(|name| format!(" [{name}]")).unwrap_or_default();
        let times = match event.count {
            0 | 1 => String::new(),
            count => format!(" x{count} since {} ago", span(event.first_seen, out.style.now)),
        };
        let ago = format!("{} ago", span(event.last_seen, out.style.now));
        let text = format!("{}{container}{times}: {}", event.reason, printable(&event.message));
        out.hanging(&format!("{mark} {ago:>14}  "), &text);
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use model::explain::{Cause, Verdict};
    use model::inventory::VolumeState;
    use serde_json::json;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn pod() -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "default", "labels": {"app": "web", "tier": "front"}},
            "spec": {
                "restartPolicy": "Always",
                "terminationGracePeriodSeconds": 30,
                "containers": [{
                    "name": "app", "image": "example.com/web:1", "command": ["/web", "--port", "80"],
                    "ports": [{"containerPort": 80, "name": "http"}],
                    "resources": {"requests": {"cpu": "10m", "memory": "20Mi"}},
                    "readinessProbe": {"httpGet": {"port": 80, "path": "/healthz"}, "initialDelaySeconds": 5},
                    "livenessProbe": {"exec": {"command": ["check"]}, "periodSeconds": 60},
                    "volumeMounts": [{"name": "data", "mountPath": "/data", "readOnly": true}],
                }],
            },
            "status": {
                "phase": "Pending", "startTime": "1970-01-01T00:00:00Z", "podIPs": [{"ip": "10.0.0.7"}],
                "conditions": [
                    {"type": "PodScheduled", "status": "True"},
                    {"type": "Ready", "status": "False", "reason": "ContainersNotReady", "message": "app is not ready",
                     "lastTransitionTime": "1970-01-01T00:00:10Z"},
                ],
            },
        }))
        .unwrap()
    }

    #[test]
    fn pod_is_described_with_containers_volumes_conditions_and_events() {
        let explanation = PodExplanation {
            namespace: "default".to_owned(),
            name: "web".to_owned(),
            uid: "4c1d".to_owned(),
            source: "the API".to_owned(),
            verdict: Verdict::Waiting,
            summary: "The pod is not up yet. A volume cannot be mounted.".to_owned(),
            since: Some(at(10)),
            causes: vec![Cause {
                reason: "FailedMount".to_owned(),
                what: "A volume cannot be mounted.".to_owned(),
                error: "no such directory".to_owned(),
                ..Cause::default()
            }],
            ..PodExplanation::default()
        };
        let volume = VolumeItem {
            name: "data".to_owned(),
            kind: "hostPath".to_owned(),
            source: "/srv".to_owned(),
            state: VolumeState::Failed,
            error: "no such\ndirectory".to_owned(),
            next_try: Some(at(74)),
            ..VolumeItem::default()
        };
        let event = EventItem {
            event_type: "Warning".to_owned(),
            reason: "FailedMount".to_owned(),
            message: "no such directory".to_owned(),
            first_seen: at(10),
            last_seen: at(60),
            count: 3,
            ..EventItem::default()
        };
        let of = Description { explanation: &explanation, pod: &pod(), volumes: &[volume], events: &[event] };
        let text = describe_text(&of, Style { width: 90, has_color: false, now: at(70) });
        expect_test::expect![[r#"
            Name:            web
            Namespace:       default
            UID:             4c1d
            From:            the API
            Now:             The pod is not up yet. A volume cannot be mounted. (for 1 min)
            Phase:           Pending
            Started:         1 min 10 s ago
            Labels:          app=web, tier=front
            IP addresses:    10.0.0.7
            QoS class:       Burstable
            Restart policy:  Always
            Grace period:    30 s to end by itself

            A volume cannot be mounted. (FailedMount)
              error    no such directory

            Containers
              app: not created yet
                Image:       example.com/web:1
                Command:     /web --port 80
                Ports:       80/TCP (http)
                Requests:    cpu 10m, memory 20Mi
                Limits:      none
                Readiness:   GET http://:80/healthz, every 10 s after 5 s, within 1 s; fails after 3
                             in a row
                Liveness:    the command check, every 60 s, within 1 s; fails after 3 in a row
                Mount:       /data from volume data, read-only

            Volumes
              data: hostPath /srv, Failed, next try in 4 s
                Error:       no such directory

            Conditions
              PodScheduled True
              Ready        False for 1 min (ContainersNotReady: app is not ready)

            Events
            !       10 s ago  FailedMount x3 since 1 min ago: no such directory
        "#]]
        .assert_eq(&text);
    }
}
