//! `pod a b:R policy=Never | a=running b=exited(1)@ | a=…`: a pod, then one step after the other. Each step is computed
//! with the status of the one before as `previous`, a minute later.
//!
//! Pod words: `name[:flags]` with `i` init, `s` sidecar, `e` ephemeral, `R` readiness probe, `S` startup probe, `N`/`F`
//! own restart policy Never/OnFailure, `3` restarts by rule on exit code 3, `A` restarts all containers then; `policy=…`, `static`, `hostnet`,
//! `gate=kind`, `gen=n`, `api=phase`, `cond=kind:status`, `was=ip`.
//!
//! Scenario words: `name=state,state…` instances oldest first, states `running`, `created`, `unknown`, `exited(code)`,
//! `exited(code/reason)`, `#n` before the list for the first restart count; `box=ready|notready|none|twice|noip` (ready
//! by default once there is a container); `unseen`; `ok(name.R)`, `bad(name.S)`, `bad(name.L)` verdicts about the newest instance;
//! `why(name/reason)` a failed start; `starting(name)`; `killed(name/Reason)` the newest instance was killed for that;
//! `end(reason)`; `deleting`; `resize-pending`; `@stage`; `ip=…`;
//! `host=…`; `off(rules)`, `off(ready-to-start)` for gates.

use std::net::IpAddr;
use std::sync::Arc;

use config::Features;
use jiff::Timestamp;
use model::k8s::{ContainerStatus, Pod, PodCondition, PodStatus, Time};
use model::observation::{ContainerRecord, NamespaceMode};
use model::{
    ContainerId, ContainerObservation, ContainerState, MonoTime, PodObservation, PodRef, SandboxObservation,
    SandboxState,
};
use resources_core::devices::ContainerHealth;
use serde_json::{Value, json};

use crate::pods::fixture::kill_reason;
use crate::pods::memory::PodMemory;
use crate::pods::probe::results::{ProbeKind, Verdict};
use crate::pods::resize::accept::INFEASIBLE;
use crate::pods::status::{PodCgroupResources, StatusInputs, TerminalReason, compute_pod_status};
use crate::pods::waiting::WaitingState;
use base_core::backoff::BackoffTable;
use base_core::pod_stage::PodStage;

pub(super) fn time(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + seconds).expect("a time")
}

fn container(name: &str, flags: &str) -> (&'static str, Value) {
    let mut spec = json!({"name": name, "image": format!("{name}:1")});
    let mut list = "containers";
    for flag in flags.chars() {
        match flag {
            'i' => list = "initContainers",
            's' => {
                list = "initContainers";
                spec["restartPolicy"] = "Always".into();
            }
            'e' => list = "ephemeralContainers",
            'R' => spec["readinessProbe"] = json!({"exec": {"command": ["ready"]}}),
            'S' => spec["startupProbe"] = json!({"exec": {"command": ["started"]}}),
            'N' => spec["restartPolicy"] = "Never".into(),
            'F' => spec["restartPolicy"] = "OnFailure".into(),
            '3' => {
                let codes = json!({"operator": "In", "values": [3]});
                spec["restartPolicyRules"] = json!([{"action": "Restart", "exitCodes": codes}]);
            }
            'A' => {
                let codes = json!({"operator": "In", "values": [3]});
                spec["restartPolicyRules"] = json!([{"action": "RestartAllContainers", "exitCodes": codes}]);
            }
            'v' => {
                spec["volumeMounts"] = json!([
                    {"name": "data", "mountPath": "/data"},
                    {"name": "conf", "mountPath": "/conf", "readOnly": true},
                    {"name": "rro", "mountPath": "/rro", "readOnly": true, "recursiveReadOnly": "IfPossible"},
                ]);
            }
            'r' => spec["resources"] = json!({"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}),
            'm' => {
                let (requests, limits) =
                    (json!({"cpu": "20m", "memory": "32Mi"}), json!({"cpu": "100m", "memory": "64Mi"}));
                spec["resources"] = json!({"requests": requests, "limits": limits});
            }
            other => panic!("no flag {other}"),
        }
    }
    (list, spec)
}

pub(super) fn pod(text: &str) -> Pod {
    let mut words = text.split_whitespace();
    assert_eq!(words.next(), Some("pod"), "{text}");
    let mut spec = json!({});
    let mut meta = json!({"name": "pod", "namespace": "ns", "uid": "uid"});
    let mut status = json!({});
    let push = |list: &mut Value, item: Value| match list.as_array_mut() {
        Some(items) => items.push(item),
        None => *list = json!([item]),
    };
    for word in words {
        match word.split_once('=') {
            Some(("policy", policy)) => spec["restartPolicy"] = policy.into(),
            Some(("gate", kind)) => push(&mut spec["readinessGates"], json!({"conditionType": kind})),
            Some(("gen", n)) => meta["generation"] = n.parse::<i64>().expect("a number").into(),
            Some(("api", phase)) => status["phase"] = phase.into(),
            Some(("was", ip)) => status["podIP"] = ip.into(),
            Some(("cond", condition)) => {
                let (kind, value) = condition.split_once(':').expect("kind:status");
                push(&mut status["conditions"], json!({"type": kind, "status": value}));
            }
            Some((key, _)) => panic!("no pod word {key}"),
            None if word == "static" => {
                meta["annotations"] = json!({"kubernetes.io/config.source": "file"});
            }
            None if word == "hostnet" => spec["hostNetwork"] = true.into(),
            None => {
                let (name, flags) = word.split_once(':').unwrap_or((word, ""));
                let (list, item) = container(name, flags);
                push(&mut spec[list], item);
            }
        }
    }
    serde_json::from_value(json!({"metadata": meta, "spec": spec, "status": status})).expect("a pod")
}

/// The inputs of one step.
#[derive(Clone, Debug)]
pub(super) struct Scenario {
    pub(super) observed: Option<PodObservation>,
    pub(super) memory: PodMemory,
    pub(super) stage: PodStage,
    pub(super) is_rejected: bool,
    pub(super) terminal: Option<TerminalReason>,
    pub(super) host_ips: Vec<IpAddr>,
    pub(super) deleting: bool,
    pub(super) features: Features,
    pub(super) cgroup: Option<PodCgroupResources>,
    pub(super) device_health: ContainerHealth,
}

fn instance(name: &str, attempt: u32, state: &str, at: i64) -> ContainerObservation {
    let (kind, detail) = state.split_once('(').unwrap_or((state, ""));
    let (code, reason) =
        detail.trim_end_matches(')').split_once('/').unwrap_or((detail.trim_end_matches(')'), ""));
    let state = match kind {
        "created" => ContainerState::Created,
        "running" => ContainerState::Running,
        "exited" => ContainerState::Exited,
        "unknown" => ContainerState::Unknown,
        other => panic!("no state {other}"),
    };
    let has_started = state != ContainerState::Created;
    ContainerObservation {
        id: ContainerId::new(format!("{name}-{attempt}")),
        sandbox_id: "box".into(),
        name: Arc::from(name),
        state,
        created_at: time(at),
        started_at: has_started.then(|| time(at + 1)),
        finished_at: (state == ContainerState::Exited).then(|| time(at + 2)),
        exit_code: code.parse().unwrap_or(0),
        reason: reason.to_owned(),
        message: String::new(),
        image: format!("{name}:1"),
        image_id: "sha256:1".to_owned(),
        log_path: String::new(),
        message_file: String::new(),
        record: ContainerRecord { restart_count: attempt, ..ContainerRecord::default() },
        user: None,
        resources: None,
        stop_signal: None,
        recursive_read_only_mounts: Vec::new(),
        image_mounts: Vec::new(),
    }
}

fn sandbox(id: &str, state: SandboxState, ips: &str) -> SandboxObservation {
    SandboxObservation {
        id: id.into(),
        pod: PodRef::new("ns", "pod", "uid"),
        attempt: 0,
        state,
        created_at: time(0),
        ips: ips.split(',').filter_map(|ip| ip.parse().ok()).collect(),
        network: NamespaceMode::Pod,
        runtime_handler: String::new(),
    }
}

/// `kind(inside)` or nothing.
fn call(word: &str) -> Option<(&str, &str)> {
    let (kind, inside) = word.strip_suffix(')')?.split_once('(')?;
    (!kind.contains('=')).then_some((kind, inside))
}

impl Scenario {
    pub(super) fn parse(text: &str) -> Self {
        let mut observed = PodObservation::empty(PodRef::new("ns", "pod", "uid"), MonoTime::ZERO);
        let mut scenario = Self {
            observed: None,
            memory: PodMemory::new(BackoffTable::image_pull()),
            stage: PodStage::Syncing,
            is_rejected: false,
            terminal: None,
            host_ips: vec!["192.168.0.1".parse().expect("an address")],
            deleting: false,
            features: Features::default(),
            cgroup: None,
            device_health: ContainerHealth::new(),
        };
        let (mut box_state, mut ips, mut unseen) = ("", "10.0.0.1", false);
        for word in text.split_whitespace() {
            if let Some((kind, inside)) = call(word) {
                scenario.parse_call(kind, inside, &observed);
                continue;
            }
            match word.split_once('=') {
                Some(("box", state)) => box_state = state,
                Some(("ip", list)) => ips = list,
                Some(("host", list)) => {
                    scenario.host_ips = list.split(',').filter_map(|ip| ip.parse().ok()).collect();
                }
                Some((name, states)) => add_instances(&mut observed, name, states),
                None if word == "unseen" => unseen = true,
                None if word == "deleting" => scenario.deleting = true,
                None if word == "resize-pending" => {
                    let why = "no such resource".to_owned();
                    scenario.memory.resize.wait(INFEASIBLE, why, 2, time(0));
                }
                None if word == "@rejected" => scenario.is_rejected = true,
                None => scenario.stage = stage(word),
            }
        }
        let default_box = if observed.containers.is_empty() { "none" } else { "ready" };
        let ready = |id| sandbox(id, SandboxState::Ready, ips);
        observed.sandboxes = match if box_state.is_empty() { default_box } else { box_state } {
            "none" => Vec::new(),
            "ready" => vec![ready("box")],
            "noip" => vec![sandbox("box", SandboxState::Ready, "")],
            "notready" => vec![sandbox("box", SandboxState::NotReady, "")],
            "twice" => vec![ready("box2"), ready("box")],
            other => panic!("no box {other}"),
        };
        scenario.observed = (!unseen).then_some(observed);
        scenario
    }

    fn parse_call(&mut self, kind: &str, inside: &str, observed: &PodObservation) {
        match kind {
            "ok" | "bad" => {
                let (name, probe) = inside.split_once('.').expect("name.probe");
                let id = &observed.newest(name).expect("an instance before its verdict").id;
                let probe = match probe {
                    "S" => ProbeKind::Startup,
                    "R" => ProbeKind::Readiness,
                    "L" => ProbeKind::Liveness,
                    other => panic!("no probe {other}"),
                };
                let verdict = if kind == "ok" { Verdict::Success } else { Verdict::Failure };
                self.memory.verdicts.set(id, probe, verdict);
            }
            "why" => {
                let (name, reason) = inside.split_once('/').expect("name/reason");
                let why = WaitingState { reason: reason.to_owned(), message: "details".to_owned() };
                self.memory.waiting.set(name, why, MonoTime::ZERO);
            }
            "starting" => {
                self.memory.starting.insert(inside.to_owned());
            }
            "killed" => {
                let (name, reason) = inside.split_once('/').expect("name/reason");
                let id = &observed.newest(name).expect("an instance before it was killed").id;
                self.memory.killed.insert(id.clone(), kill_reason(reason));
            }
            "end" => {
                let message = "details".to_owned();
                let is_disruption = ["Preempting", "Evicted"].contains(&inside);
                self.terminal = Some(TerminalReason { reason: inside.to_owned(), message, is_disruption });
            }
            "off" => match inside {
                "rules" => self.features.container_restart_rules = false,
                "ready-to-start" => self.features.ready_to_start_condition = false,
                other => panic!("no gate {other}"),
            },
            other => panic!("no scenario word {other}"),
        }
    }

    pub(super) fn compute(&self, pod: &Pod, previous: Option<&PodStatus>, now: Timestamp) -> PodStatus {
        let mut pod = pod.clone();
        pod.metadata.deletion_timestamp = self.deleting.then(|| Time(time(0)));
        compute_pod_status(&StatusInputs {
            pod: &pod,
            in_source: pod.status.as_ref(),
            observed: self.observed.as_ref(),
            previous,
            memory: &self.memory,
            stage: self.stage,
            is_rejected: self.is_rejected,
            terminal: self.terminal.as_ref(),
            cgroup: self.cgroup,
            device_health: &self.device_health,
            host_ips: &self.host_ips,
            runtime_name: "test",
            features: self.features,
            now,
        })
    }
}

fn stage(word: &str) -> PodStage {
    match word {
        "@terminating" => PodStage::Terminating,
        "@terminated" => PodStage::Terminated,
        other => panic!("no scenario word {other}"),
    }
}

fn add_instances(observed: &mut PodObservation, name: &str, states: &str) {
    let (first, states) = match states.strip_prefix('#') {
        Some(rest) => {
            let (count, states) = rest.split_once(':').expect("#n:states");
            (count.parse().expect("a count"), states)
        }
        None => (0, states),
    };
    for (attempt, state) in (first..).zip(states.split(',')) {
        observed.containers.insert(0, instance(name, attempt, state, i64::from(attempt) * 10));
    }
}

/// Plays all steps and gives the status of each.
pub(super) fn play(script: &str) -> (Pod, Vec<PodStatus>) {
    let mut parts = script.split('|');
    let pod = pod(parts.next().expect("a pod"));
    let mut played: Vec<PodStatus> = Vec::new();
    for (minute, scenario) in (1..).zip(parts) {
        let status = Scenario::parse(scenario).compute(&pod, played.last(), time(minute * 60));
        played.push(status);
    }
    (pod, played)
}

fn state(state: Option<&model::k8s::ContainerState>) -> String {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let Some(state) = state else { return "-".to_owned() };
    if let Some(waiting) = &state.waiting {
        let message = waiting.message.as_ref().map(|m| format!(": {m}")).unwrap_or_default();
        return format!("waiting {}{message}", text(&waiting.reason));
    }
    if state.running.is_some() {
        return "running".to_owned();
    }
    let Some(end) = &state.terminated else { return "-".to_owned() };
    let id = end.container_id.as_ref().map(|id| format!(" {id}")).unwrap_or_default();
    format!("exited {} {}{id}", end.exit_code, text(&end.reason))
}

fn container_line(status: &ContainerStatus) -> String {
    let mut line = format!("{} {}", status.name, state(status.state.as_ref()));
    if status.last_state.is_some() {
        line += &format!(", before: {}", state(status.last_state.as_ref()));
    }
    if status.restart_count > 0 {
        line += &format!(", restarts {}", status.restart_count);
    }
    if status.ready {
        line += ", ready";
    }
    if status.started == Some(true) {
        line += ", started";
    }
    line + "\n"
}

fn condition(condition: &PodCondition) -> String {
    let sign = match condition.status.as_str() {
        "True" => "+",
        "False" => "-",
        _ => "?",
    };
    let why =
        [&condition.reason, &condition.message].into_iter().flatten().cloned().collect::<Vec<_>>().join(": ");
    let why = if why.is_empty() { why } else { format!("({why})") };
    format!("{sign}{}{why}", condition.type_)
}

/// The phase, the conditions, one line a container.
pub(super) fn shown(status: &PodStatus) -> String {
    let why = [&status.reason, &status.message].into_iter().flatten().cloned().collect::<Vec<_>>().join(": ");
    let why = if why.is_empty() { why } else { format!(" ({why})") };
    let mut text = format!("{}{why}\n", status.phase.as_deref().unwrap_or("-"));
    let all = status.conditions.as_deref().unwrap_or_default();
    let of = |kind: &str| all.iter().find(|c| c.type_ == kind).map(|c| (&c.reason, &c.message));
    let repeats = of("Ready") == of("ContainersReady");
    // The dull ones are left out: PodScheduled, and ContainersReady where it says what Ready says.
    let telling =
        all.iter().filter(|c| c.type_ != "PodScheduled" && !(repeats && c.type_ == "ContainersReady"));
    let line: Vec<String> = telling.map(condition).collect();
    text += &(line.join(" ") + "\n");
    let lists = [
        ("init ", &status.init_container_statuses),
        ("", &status.container_statuses),
        ("ephemeral ", &status.ephemeral_container_statuses),
    ];
    for (prefix, list) in lists {
        text.extend(list.iter().flatten().map(|s| format!("{prefix}{}", container_line(s))));
    }
    text
}
