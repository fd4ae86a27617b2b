//! Pods and observations in one line of text, for golden tests.
//!
//! ```text
//! Never init:i1 sidecar:s1(startup) main:a(OnFailure,in42=Restart) main:b debug:e hostNetwork grace=30
//!     | sandbox i1=exited(0) s1=running a=exited(1,5s,#2) a+startup backoff:a=20s logs:b=4 killed:a=SpecChanged
//!     cgroup=missing
//! ```
//! Sandboxes and containers are listed newest first. A sandbox is `sandbox`, `sandbox=dead`, `sandbox=noip` or
//! `sandbox=host`; they are named `sb<attempt>`. A container's details are its exit code, its age since the end
//! (`5s`), its restart count (`#2`), its sandbox (`sb0`), `old` or `nohash` for its recorded hash, else its reason.
//! Containers are named `<name>-<restart count>`.

use std::collections::BTreeMap;
use std::time::Duration;

use config::Features;
use jiff::Timestamp;
use model::cgroup::CgroupState;
use model::containers::{self, ContainerRef};
use model::k8s::{
    Container, ContainerResizePolicy, ContainerRestartRule, ContainerRestartRuleOnExitCodes,
    EphemeralContainer, Lifecycle, LifecycleHandler, ObjectMeta, Pod, PodSpec, Probe, Quantity,
    ResourceRequirements, SleepAction,
};
use model::observation::{ContainerRecord, NamespaceMode};
use model::{
    ContainerId, ContainerObservation, ContainerState, MonoTime, Now, PodObservation, PodRef, SandboxId,
    SandboxObservation, SandboxState,
};
use resources_core::allocations::Ended;
use resources_core::amounts::Amounts;

use super::actions::{PodInputs, compute_pod_actions};
use super::backoff;
use super::hash::container_hash;
use super::memory::PodMemory;
use super::plan::{
    KillContainer, KillReason, PodPlan, PodStep, StartContainer, StartReason, Waiting, WaitingReason,
};
use super::resize::changes::PodResize;
use crate::pods::ended::{EndedFacts, compute_ended};
use crate::pods::probe::results::{ProbeKind, Verdict};
use base_core::backoff::{BackoffTable, MAX_DELAY};

#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) pod: Pod,
    pub(crate) observed: PodObservation,
    pub(crate) memory: PodMemory,
    pub(crate) cgroup: CgroupState,
    pub(crate) features: Features,
    pub(crate) now: Now,
}

impl Case {
    /// What of the pod has ended for good.
    pub(crate) fn ended(&self, is_stopping: bool) -> Ended {
        let facts = EndedFacts { memory: &self.memory, features: self.features, is_stopping };
        compute_ended(&self.pod, &self.observed, &facts)
    }

    pub(super) fn plan(&self) -> PodPlan {
        compute_pod_actions(&PodInputs {
            pod: &self.pod,
            observed: &self.observed,
            memory: &self.memory,
            cgroup: self.cgroup,
            features: self.features,
            now: self.now,
        })
    }

    fn newest_id(&self, name: &str) -> ContainerId {
        self.observed.newest(name).unwrap_or_else(|| panic!("no container {name}")).id.clone()
    }
}

pub(crate) fn start_of_test() -> Now {
    Now {
        wall: "2026-01-01T00:00:00Z".parse().unwrap(),
        mono: MonoTime::from_start(Duration::from_secs(10_000)),
    }
}

pub(super) fn ago(now: Now, seconds: u64) -> Timestamp {
    now.wall - Duration::from_secs(seconds)
}

pub(crate) fn case(line: &str) -> Case {
    let (spec, observed) = line.split_once('|').unwrap_or((line, ""));
    let pod = pod(spec);
    let now = start_of_test();
    let identity = PodRef::of(&pod);
    let mut case = Case {
        pod,
        observed: PodObservation::empty(identity, now.mono),
        memory: PodMemory::new(BackoffTable::crash_loop(MAX_DELAY, Features::default())),
        cgroup: CgroupState::default(),
        features: Features::default(),
        now,
    };
    for token in observed.split_whitespace() {
        observe(&mut case, token);
    }
    let count = u32::try_from(case.observed.sandboxes.len()).unwrap();
    for (sandbox, attempt) in case.observed.sandboxes.iter_mut().zip((0..count).rev()) {
        sandbox.attempt = attempt;
        sandbox.id = SandboxId::new(format!("sb{attempt}"));
    }
    let newest = count.saturating_sub(1);
    for container in case.observed.containers.iter_mut().filter(|c| c.sandbox_id.as_str().is_empty()) {
        container.sandbox_id = SandboxId::new(format!("sb{newest}"));
    }
    case
}

pub(super) fn pod(spec: &str) -> Pod {
    let mut out = PodSpec::default();
    for token in spec.split_whitespace() {
        match token.split_once(':') {
            Some(("init", c)) => out.init_containers.get_or_insert_default().push(container(c)),
            Some(("sidecar", c)) => {
                let mut sidecar = container(c);
                sidecar.restart_policy = Some("Always".into());
                out.init_containers.get_or_insert_default().push(sidecar);
            }
            Some(("main", c)) => out.containers.push(container(c)),
            Some(("debug", name)) => {
                out.ephemeral_containers.get_or_insert_default().push(EphemeralContainer {
                    name: name.into(),
                    image: Some("img".into()),
                    ..EphemeralContainer::default()
                })
            }
            _ => match token {
                "Always" | "OnFailure" | "Never" => out.restart_policy = Some(token.into()),
                "hostNetwork" => out.host_network = Some(true),
                _ => {
                    let grace = token.strip_prefix("grace=").unwrap_or_else(|| panic!("{token}?"));
                    out.termination_grace_period_seconds = Some(grace.parse().unwrap());
                }
            },
        }
    }
    let metadata = ObjectMeta {
        name: Some("p".into()),
        namespace: Some("ns".into()),
        uid: Some("uid".into()),
        ..ObjectMeta::default()
    };
    Pod { metadata, spec: Some(out), ..Pod::default() }
}

/// `name(detail,detail)`.
fn named(token: &str) -> (&str, Vec<&str>) {
    match token.split_once('(') {
        Some((name, details)) => (name, details.trim_end_matches(')').split(',').collect()),
        None => (token, Vec::new()),
    }
}

fn container(token: &str) -> Container {
    let (name, details) = named(token);
    let mut out = Container { name: name.into(), image: Some("img".into()), ..Container::default() };
    for detail in details {
        let (key, value) = detail.split_once('=').unwrap_or((detail, ""));
        match key {
            "Always" | "OnFailure" | "Never" => out.restart_policy = Some(key.into()),
            "startup" => out.startup_probe = Some(probe(value)),
            "liveness" => out.liveness_probe = Some(probe(value)),
            "image" => out.image = Some(value.into()),
            "stop" => {
                let sleep = SleepAction { seconds: value.parse().unwrap() };
                let pre_stop = LifecycleHandler { sleep: Some(sleep), ..LifecycleHandler::default() };
                out.lifecycle = Some(Lifecycle { pre_stop: Some(pre_stop), ..Lifecycle::default() });
            }
            "cpu" => {
                // `cpu=500m!`: with a restart for another amount.
                let (value, policy) =
                    value.strip_suffix('!').map_or((value, None), |v| (v, Some("RestartContainer")));
                out.resize_policy = policy.map(|policy| {
                    vec![ContainerResizePolicy {
                        resource_name: "cpu".to_owned(),
                        restart_policy: policy.to_owned(),
                    }]
                });
                let requests = BTreeMap::from([("cpu".to_owned(), Quantity(value.to_owned()))]);
                out.resources = Some(ResourceRequirements {
                    requests: Some(requests),
                    ..ResourceRequirements::default()
                });
            }
            _ => out.restart_policy_rules.get_or_insert_default().push(rule(key, value)),
        }
    }
    out
}

fn probe(grace: &str) -> Probe {
    let seconds = grace.strip_suffix('s').map(|n| n.parse().unwrap());
    Probe { termination_grace_period_seconds: seconds, ..Probe::default() }
}

/// `in42=Restart`, `notin0/1=RestartAll`.
fn rule(condition: &str, action: &str) -> ContainerRestartRule {
    let (operator, codes) = match condition.strip_prefix("notin") {
        Some(codes) => ("NotIn", codes),
        None => ("In", condition.strip_prefix("in").unwrap_or_else(|| panic!("{condition}?"))),
    };
    let action = if action == "RestartAll" { "RestartAllContainers" } else { action };
    ContainerRestartRule {
        action: action.into(),
        exit_codes: Some(ContainerRestartRuleOnExitCodes {
            operator: operator.into(),
            values: Some(codes.split('/').map(|code| code.parse().unwrap()).collect()),
        }),
    }
}

fn observe(case: &mut Case, token: &str) {
    if token == "sandbox" || token.starts_with("sandbox=") {
        let sandbox = sandbox(&case.observed.pod, token.strip_prefix("sandbox=").unwrap_or("ready"));
        case.observed.sandboxes.push(sandbox);
    } else if let Some((name, kind)) = token.split_once('!') {
        set_verdict(case, name, kind, Verdict::Failure);
    } else if let Some((name, kind)) = token.split_once('+') {
        set_verdict(case, name, kind, Verdict::Success);
    } else if let Some((topic, rest)) = token.split_once(':') {
        remember(case, topic, rest);
    } else if let Some(state) = token.strip_prefix("cgroup=") {
        case.cgroup = match state {
            "missing" => CgroupState::Missing,
            "changed" => CgroupState::Changed,
            _ => panic!("{state}?"),
        };
    } else if token == "resizing" {
        case.memory.resize.begin(2, case.now.wall);
    } else if token == "norules" {
        case.features.container_restart_rules = false;
    } else if token == "norestartall" {
        case.features.restart_all_containers = false;
    } else {
        let container = instance(case, token);
        case.observed.containers.push(container);
    }
}

fn sandbox(pod: &PodRef, state: &str) -> SandboxObservation {
    let now = start_of_test();
    SandboxObservation {
        id: SandboxId::new(""),
        pod: pod.clone(),
        attempt: 0,
        state: if state == "dead" { SandboxState::NotReady } else { SandboxState::Ready },
        created_at: ago(now, 3600),
        ips: if matches!(state, "noip" | "host") { Vec::new() } else { vec!["10.0.0.1".parse().unwrap()] },
        network: if state == "host" { NamespaceMode::Node } else { NamespaceMode::Pod },
        runtime_handler: String::new(),
    }
}

fn set_verdict(case: &mut Case, name: &str, kind: &str, verdict: Verdict) {
    let kind = if kind == "liveness" { ProbeKind::Liveness } else { ProbeKind::Startup };
    case.memory.verdicts.set(&case.newest_id(name), kind, verdict);
}

fn remember(case: &mut Case, topic: &str, rest: &str) {
    let (name, value) = rest.split_once('=').unwrap();
    match topic {
        "logs" => {
            case.memory.log_restarts.insert(name.into(), value.parse().unwrap());
        }
        "killed" => {
            let why = kill_reason(value);
            case.memory.killed.insert(case.newest_id(name), why);
        }
        // Milli-CPUs that the container was started with.
        "cpu" => {
            let cpu_request = value.parse().unwrap();
            let amounts = Amounts { cpu_request, ..Amounts::default() };
            case.memory.actuated.set(name, amounts);
        }
        "backoff" => {
            let wanted = Duration::from_secs(value.trim_end_matches('s').parse().unwrap());
            let container = containers::find_container(&case.pod, name).unwrap();
            let key = backoff::restart_key(&case.pod, &container);
            while case.memory.backoff.record(&key, case.now.mono, case.now.mono) < wanted {}
        }
        _ => panic!("{topic}?"),
    }
}

pub(super) fn kill_reason(text: &str) -> KillReason {
    [
        KillReason::SpecChanged,
        KillReason::ResizeRequiresRestart,
        KillReason::LivenessFailed,
        KillReason::StartupFailed,
        KillReason::UnknownState,
        KillReason::SandboxReplaced,
        KillReason::PostStartHookFailed,
    ]
    .into_iter()
    .find(|why| format!("{why:?}") == text)
    .unwrap_or_else(|| panic!("{text}?"))
}

fn instance(case: &Case, token: &str) -> ContainerObservation {
    let (name, rest) = token.split_once('=').unwrap_or_else(|| panic!("{token}?"));
    let (state, details) = named(rest);
    let state = match state {
        "created" => ContainerState::Created,
        "running" => ContainerState::Running,
        "exited" => ContainerState::Exited,
        "unknown" => ContainerState::Unknown,
        _ => panic!("{state}?"),
    };
    let hash = containers::find_container(&case.pod, name).as_ref().map(container_hash);
    let mut out = new_instance(name, SandboxId::new(""), hash, case.now);
    out.state = state;
    if state == ContainerState::Exited {
        out.finished_at = Some(ago(case.now, 60));
    }
    for detail in details {
        if let Ok(code) = detail.parse() {
            out.exit_code = code;
        } else if let Some(count) = detail.strip_prefix('#') {
            out.record.restart_count = count.parse().unwrap();
        } else if let Some(seconds) = detail.strip_suffix('s').and_then(|n| n.parse().ok()) {
            out.finished_at = Some(ago(case.now, seconds));
        } else if detail.starts_with("sb") {
            out.sandbox_id = detail.into();
        } else if detail == "old" {
            out.record.hash = Some(0xdead);
        } else if detail == "nohash" {
            out.record.hash = None;
        } else {
            out.reason = detail.into();
        }
    }
    out.id = ContainerId::new(format!("{name}-{}", out.record.restart_count));
    out
}

pub(crate) fn new_instance(
    name: &str,
    sandbox_id: SandboxId,
    hash: Option<u32>,
    now: Now,
) -> ContainerObservation {
    ContainerObservation {
        id: ContainerId::new(format!("{name}-0")),
        sandbox_id,
        name: name.into(),
        state: ContainerState::Created,
        created_at: now.wall,
        started_at: None,
        finished_at: None,
        exit_code: 0,
        reason: String::new(),
        message: String::new(),
        image: "img".into(),
        image_id: "sha256:1".into(),
        log_path: String::new(),
        message_file: String::new(),
        record: ContainerRecord { hash, ..ContainerRecord::default() },
        user: None,
        resources: None,
        stop_signal: None,
        recursive_read_only_mounts: Vec::new(),
        image_mounts: Vec::new(),
    }
}

pub(super) fn hash_in(pod: &Pod, name: &str) -> Option<u32> {
    containers::find_container(pod, name).as_ref().map(|c: &ContainerRef<'_>| container_hash(c))
}

/// The plan in one line.
pub(super) fn show(plan: &PodPlan, now: Now) -> String {
    let mut parts = Vec::new();
    match &plan.step {
        PodStep::Settled => parts.push("settled".to_owned()),
        PodStep::RepairCgroup => parts.push("repair cgroup".to_owned()),
        PodStep::CreateSandbox { attempt, stop, kill, why } => {
            parts.extend(kill.iter().map(show_kill));
            parts.extend(stop.iter().map(|id| format!("stop {id}")));
            parts.push(format!("create sandbox {attempt} {why:?}"));
        }
        PodStep::Converge { sandbox: _, kill, remove, resize, start } => {
            parts.extend(kill.iter().map(show_kill));
            parts.extend(remove.iter().map(|r| format!("remove {} {:?}", r.id, r.why)));
            parts.extend(resize.as_ref().map(show_resize));
            parts.extend(start.iter().map(show_start));
        }
        PodStep::Teardown { kill, stop, why } => {
            parts.push(format!("teardown {why:?}"));
            parts.extend(kill.iter().map(show_kill));
            parts.extend(stop.iter().map(|id| format!("stop {id}")));
        }
    }
    parts.extend(plan.waiting.iter().map(|waiting| show_waiting(waiting, now)));
    if let Some(at) = plan.wake_at {
        parts.push(format!("wake in {}s", at.saturating_since(now.mono).as_secs()));
    }
    parts.join("; ")
}

fn show_resize(resize: &PodResize) -> String {
    let ids: Vec<_> = resize.containers.iter().map(|change| format!(" {}", change.id)).collect();
    format!("resize pod{}", ids.concat())
}

fn show_kill(kill: &KillContainer) -> String {
    let grace = kill.grace.map_or(String::new(), |grace| format!(" grace {}s", grace.as_secs()));
    format!("kill {} {:?}{grace}", kill.id, kill.why)
}

fn show_start(start: &StartContainer) -> String {
    let why = match start.why {
        StartReason::Exited { code, policy } => format!("Exited {code} {policy}"),
        StartReason::RestartRule { code } => format!("RestartRule {code}"),
        StartReason::Killed(why) => format!("Killed {why:?}"),
        StartReason::NeverStarted
        | StartReason::CreatedNotStarted
        | StartReason::NewSandbox
        | StartReason::Unknown => {
            format!("{:?}", start.why)
        }
    };
    format!("start {:?} {}#{} {why}", start.kind, start.name, start.restart_count)
}

fn show_waiting(waiting: &Waiting, now: Now) -> String {
    match waiting.reason {
        WaitingReason::CrashLoopBackOff { delay, until } => {
            let left = until.saturating_since(now.mono).as_secs();
            format!("{} waits {}s more of {}s", waiting.container, left, delay.as_secs())
        }
        WaitingReason::RestartingAllContainers => format!("{} restarts with all", waiting.container),
    }
}
