//! Why a pod is as it is.

mod ends;
mod work;

use base_core::pod_stage::PodStage;
use base_core::waits::{
    AWAITING_RUNTIME, OVER_GRACE_PERIOD, RELEASING_RESOURCES, REMOVING_FILES, UNPREPARING_CLAIMS,
    WAITING_TO_START, is_wait, wait_of,
};
use jiff::Timestamp;
use model::containers::{all_containers, find_container};
use model::explain::{Cause, ContainerExplanation, NearLimit, PodExplanation, TrailStep, Verdict};
use model::k8s::{ContainerStateTerminated, ContainerStatus, Pod, PodStatus};
use model::pod_status::{is_ready, statuses_by_name};
use model::{ContainerKind, PodRef, PodSource, PodUid};

use self::ends::{describe_end, ended_for};
use self::work::{order, under_way};
use crate::advice::advice;

/// Waiting reasons that say only that something of the pod comes first.
const NOT_ITS_TURN: [&str; 2] = ["ContainerCreating", "PodInitializing"];
/// The event of a pod that waits for an older one of its name.
const PREVIOUS: &str = "WaitingForPreviousPod";
/// Warnings about pods that keep nothing from starting.
const HARMLESS: [&str; 6] = [
    PREVIOUS,
    "FailedToRetrieveImagePullSecret",
    "DNSConfigForming",
    "MissingClusterDNS",
    "HostIPsIPFamilyMismatch",
    "CheckLimitsForResolvConf",
];

/// Why a node stops a pod that may run on as far as its source is concerned, by the step of its trail.
const STOPPED: [(&str, &str); 4] = [
    ("Evicted", "The node evicts it."),
    ("Preempting", "It makes way for a critical pod."),
    ("Terminated", "The machine is shutting down."),
    ("DeadlineExceeded", "It has run for as long as it may."),
];
/// Steps of the end of a pod that say what it waits for.
const ENDS: [&str; 5] =
    [AWAITING_RUNTIME, OVER_GRACE_PERIOD, UNPREPARING_CLAIMS, RELEASING_RESOURCES, REMOVING_FILES];

/// What the node knows of a pod.
#[derive(Clone, Debug)]
pub struct PodFacts<'a> {
    pub identity: &'a PodRef,
    pub pod: &'a Pod,
    pub status: &'a PodStatus,
    pub source: PodSource,
    pub stage: PodStage,
    /// Admission refused it.
    pub is_rejected: bool,
    /// No source has it any more.
    pub is_orphan: bool,
    /// The runtime has answered about it since the kubelet started.
    pub is_observed: bool,
    pub trail: Vec<TrailStep>,
    /// What was near its limit when it was last measured.
    pub near_limits: Vec<NearLimit>,
    /// When the node tries again what failed.
    pub next_try: Option<Timestamp>,
    pub now: Timestamp,
}

/// A verdict with its reasons.
struct Finding {
    verdict: Verdict,
    summary: String,
    since: Option<Timestamp>,
    causes: Vec<Cause>,
}

impl Finding {
    fn new(verdict: Verdict, summary: impl Into<String>, since: Option<Timestamp>) -> Self {
        Self { verdict, summary: summary.into(), since, causes: Vec::new() }
    }
}

/// Says why the pod is as it is.
#[must_use]
pub fn compute_pod_explanation(facts: PodFacts<'_>) -> PodExplanation {
    let Finding { verdict, summary, since, causes } = finding(&facts);
    let containers = containers(&facts);
    let known = identified(facts.identity, facts.source);
    let PodFacts { near_limits, trail, .. } = facts;
    PodExplanation { verdict, summary, since, causes, containers, near_limits, trail, ..known }
}

/// The API has the pod, and this node has not begun with it. `previous` is the pod of its name that is on this node.
#[must_use]
pub fn unknown_pod(identity: &PodRef, previous: Option<&PodUid>) -> PodExplanation {
    let (reason, what) = match previous {
        Some(uid) => (PREVIOUS, format!("The previous pod of this name (UID {uid}) has not ended yet.")),
        None => ("NotStarted", "A pod starts once every source of pods has reported.".to_owned()),
    };
    let cause = Cause { reason: reason.to_owned(), what, advice: advice(reason, ""), ..Cause::default() };
    PodExplanation {
        causes: vec![cause],
        verdict: Verdict::Waiting,
        summary: "The API has the pod, and this node has not begun with it.".to_owned(),
        ..identified(identity, PodSource::Api)
    }
}

/// The newest version of the pod in the API cannot be used. `runs` says whether the node runs an earlier version of it.
#[must_use]
pub fn unusable_pod(identity: &PodRef, problem: &str, runs: bool) -> PodExplanation {
    let summary = if runs {
        "This node cannot read the newest version of the pod. The pod runs on as it last was."
    } else {
        "The API has the pod, and this node cannot run it."
    };
    let cause = Cause {
        reason: "Malformed".to_owned(),
        what: "The object of the pod cannot be used.".to_owned(),
        error: problem.to_owned(),
        advice: vec![
            "Correct what the error names, or delete the pod and create it without that.".to_owned(),
        ],
        ..Cause::default()
    };
    PodExplanation {
        causes: vec![cause],
        verdict: Verdict::Failed,
        summary: summary.to_owned(),
        ..identified(identity, PodSource::Api)
    }
}

/// The pod was on this node.
#[must_use]
pub fn gone_pod(identity: &PodRef, gone_at: Timestamp, last_phase: &str) -> PodExplanation {
    let phase = if last_phase.is_empty() { "unknown" } else { last_phase };
    PodExplanation {
        verdict: Verdict::Fine,
        summary: format!("The pod is no longer on this node; its last phase was {phase}."),
        since: Some(gone_at),
        source: String::new(),
        ..identified(identity, PodSource::Api)
    }
}

fn identified(identity: &PodRef, source: PodSource) -> PodExplanation {
    PodExplanation {
        namespace: identity.namespace.to_string(),
        name: identity.name.to_string(),
        uid: identity.uid.to_string(),
        source: source_name(source).to_owned(),
        ..PodExplanation::default()
    }
}

const fn source_name(source: PodSource) -> &'static str {
    match source {
        PodSource::File => "a manifest on this node",
        PodSource::Http => "a manifest at staticPodURL",
        PodSource::Api => "the API",
    }
}

fn finding(facts: &PodFacts<'_>) -> Finding {
    match facts.status.phase.as_deref() {
        Some("Failed") => failed(facts),
        Some("Succeeded") => {
            Finding::new(Verdict::Fine, "The pod has finished its work.", last_end(facts.status))
        }
        _ if facts.stage >= PodStage::Terminating => stopping(facts),
        _ if !facts.is_observed => {
            let summary = "The container runtime has not reported yet what runs of this pod.";
            let mut found = Finding::new(Verdict::Waiting, summary, first_seen(facts));
            found.causes.extend(open_step(facts, AWAITING_RUNTIME).map(|step| under_way(step, facts)));
            found
        }
        _ => running_or_starting(facts),
    }
}

fn failed(facts: &PodFacts<'_>) -> Finding {
    let (reason, message) = (text(&facts.status.reason), text(&facts.status.message));
    let mut found = match (facts.is_rejected, reason) {
        (true, _) => {
            Finding::new(Verdict::Failed, format!("This node refused the pod ({reason})."), first_seen(facts))
        }
        (false, "") => Finding::new(
            Verdict::Failed,
            "The pod failed: a container ended with an error.",
            last_end(facts.status),
        ),
        (false, _) => {
            Finding::new(Verdict::Failed, format!("The pod failed ({reason})."), last_end(facts.status))
        }
    };
    if !reason.is_empty() {
        found.causes.push(Cause {
            reason: reason.to_owned(),
            what: found.summary.clone(),
            error: message.to_owned(),
            advice: advice(reason, message),
            ..Cause::default()
        });
    }
    for (name, status) in statuses_by_name(facts.status) {
        let ended = status.state.as_ref().and_then(|state| state.terminated.as_ref());
        if let Some(ended) = ended.filter(|ended| ended.exit_code != 0) {
            found.causes.push(ended_with_error(name, ended));
        }
    }
    found
}

fn ended_with_error(name: &str, ended: &ContainerStateTerminated) -> Cause {
    let end = describe_end(ended);
    Cause {
        reason: ended.reason.clone().unwrap_or_else(|| "Error".to_owned()),
        container: Some(name.to_owned()),
        what: format!("Container {name} ended: {end}."),
        error: text(&ended.message).to_owned(),
        last_try: ended.finished_at.as_ref().map(|at| at.0),
        // What helps a container that is restarted again and again helps one that is not.
        advice: advice("CrashLoopBackOff", &end),
        ..Cause::default()
    }
}

fn stopping(facts: &PodFacts<'_>) -> Finding {
    let since = facts.trail.iter().find(|step| step.reason == "Killing").map(|step| step.began);
    let asked = facts.pod.metadata.deletion_timestamp.as_ref().map(|at| at.0);
    let summary = match facts.stage {
        PodStage::Terminating if facts.is_orphan => {
            "The pod is no longer wanted on this node and is being stopped."
        }
        PodStage::Terminating => "The pod is being stopped.",
        PodStage::Syncing | PodStage::Terminated | PodStage::Finished => {
            "The pod has stopped, and what it used is being released."
        }
    };
    let mut found = Finding::new(Verdict::Waiting, summary, since.or(asked));
    if let Some(stopped) = stopped_by_node(facts) {
        found.summary = format!("{summary} {}", stopped.what);
        found.causes.push(stopped);
    }
    found.causes.extend(latest_warning(facts).filter(|cause| cause.reason == "FailedKillPod"));
    let late = facts.trail.iter().filter(|step| step.ended.is_none() && ENDS.contains(&step.reason.as_str()));
    found.causes.extend(late.map(|step| under_way(step, facts)));
    if found.causes.is_empty() && facts.stage == PodStage::Terminating {
        let grace = facts.pod.metadata.deletion_grace_period_seconds;
        let what = match grace.or_else(|| facts.pod.spec.as_ref()?.termination_grace_period_seconds) {
            Some(grace) => {
                format!("Its containers have {grace} s to end by themselves; then they are killed.")
            }
            None => "Its containers get time to end by themselves; then they are killed.".to_owned(),
        };
        found.causes.push(Cause { reason: "Terminating".to_owned(), what, ..Cause::default() });
    }
    found
}

/// The node stops the pod, although its source still has it.
fn stopped_by_node(facts: &PodFacts<'_>) -> Option<Cause> {
    let stopped = |step: &TrailStep| STOPPED.into_iter().find(|(reason, _)| *reason == step.reason);
    let (step, (reason, what)) = facts.trail.iter().find_map(|step| Some((step, stopped(step)?)))?;
    Some(Cause {
        reason: reason.to_owned(),
        what: what.to_owned(),
        error: step.message.clone(),
        advice: advice(reason, &step.message),
        ..Cause::default()
    })
}

fn running_or_starting(facts: &PodFacts<'_>) -> Finding {
    if let Some(blocked) = open_step(facts, WAITING_TO_START) {
        let mut found = Finding::new(Verdict::Waiting, "The pod may not start yet.", Some(blocked.began));
        let what = format!("It waits, because {}.", blocked.message);
        let reason = wait_of(WAITING_TO_START, &blocked.message).map_or(PREVIOUS, |wait| wait.reason);
        found.causes.push(Cause {
            reason: reason.to_owned(),
            what,
            advice: advice(reason, ""),
            ..Cause::default()
        });
        return found;
    }
    let statuses = statuses_by_name(facts.status);
    let in_order: Vec<&ContainerStatus> =
        all_containers(facts.pod).filter_map(|container| statuses.get(container.name()).copied()).collect();
    let mut causes: Vec<Cause> = in_order.iter().filter_map(|status| waiting_cause(facts, status)).collect();
    let is_starting =
        in_order.iter().any(|status| is_waiting_for(status, &NOT_ITS_TURN)) || in_order.is_empty();
    if causes.is_empty() && is_starting {
        causes.push(starting_cause(facts));
    }
    if !causes.is_empty() {
        let what = causes.first().map(|cause| cause.what.clone()).unwrap_or_default();
        let since = not_ready_since(facts).or_else(|| first_seen(facts));
        return Finding {
            verdict: Verdict::Waiting,
            summary: format!("The pod is not up yet. {what}"),
            since,
            causes,
        };
    }
    if is_ready(facts.status) {
        return Finding::new(
            Verdict::Fine,
            "The pod runs and is ready.",
            condition_time(facts.status, "Ready"),
        );
    }
    not_ready(facts, &in_order)
}

/// Its containers run, and the pod is not ready.
fn not_ready(facts: &PodFacts<'_>, in_order: &[&ContainerStatus]) -> Finding {
    let mut found = Finding::new(Verdict::Waiting, "The pod runs and is not ready.", not_ready_since(facts));
    for status in in_order.iter().filter(|status| !status.ready && is_running(status)) {
        found.causes.push(probe_cause(facts, status));
    }
    for status in in_order.iter().filter(|status| !is_running(status)) {
        found.causes.extend(ended_cause(facts, status));
    }
    let gates = facts.pod.spec.iter().flat_map(|spec| spec.readiness_gates.iter().flatten());
    for gate in gates.filter(|gate| !condition_is_true(facts.status, &gate.condition_type)) {
        let gate = &gate.condition_type;
        found.causes.push(Cause {
            reason: "ReadinessGatesNotReady".to_owned(),
            what: format!("The condition {gate} of its readiness gate is not True."),
            advice: vec![format!("The component that sets the condition {gate} has not set it.")],
            ..Cause::default()
        });
    }
    if let Some(cause) = found.causes.first() {
        found.summary = format!("{} {}", found.summary, cause.what);
    }
    found
}

/// A regular container that has ended and is not restarted, while others of the pod run.
fn ended_cause(facts: &PodFacts<'_>, status: &ContainerStatus) -> Option<Cause> {
    let ended = status.state.as_ref()?.terminated.as_ref()?;
    let name = status.name.as_str();
    let is_regular = find_container(facts.pod, name).is_some_and(|c| c.kind == ContainerKind::Regular);
    is_regular.then(|| Cause {
        reason: "ContainersNotReady".to_owned(),
        container: Some(name.to_owned()),
        what: format!("Container {name} has ended ({}) and is not restarted.", describe_end(ended)),
        error: text(&ended.message).to_owned(),
        last_try: ended.finished_at.as_ref().map(|at| at.0),
        advice: vec![
            "The pod is ready only while each of its containers runs: see restartPolicy of pod and container."
                .to_owned(),
        ],
        ..Cause::default()
    })
}

fn probe_cause(facts: &PodFacts<'_>, status: &ContainerStatus) -> Cause {
    let name = status.name.as_str();
    let (reason, probe, failure) = match status.started {
        Some(true) => ("ReadinessProbeFailed", "readiness probe", "Readiness probe"),
        Some(false) | None => ("StartupProbeFailed", "startup probe", "Startup probe"),
    };
    let of_probe = facts.trail.iter().filter(|step| step.message.starts_with(failure));
    let (tries, latest) = repeats(of_probe, "Unhealthy", Some(name));
    let error = latest.map(|step| step.message.clone()).unwrap_or_default();
    let what = match latest {
        Some(_) => format!("The {probe} of container {name} fails."),
        None => format!("The {probe} of container {name} has not succeeded yet."),
    };
    Cause {
        reason: reason.to_owned(),
        container: Some(name.to_owned()),
        what,
        advice: advice(reason, &error),
        error,
        tries: (tries > 0).then_some(tries),
        last_try: latest.map(|step| step.began),
        next_try: None,
    }
}

/// Why a container waits that could run; `None` if it runs, has ended, or something else of the pod comes first.
fn waiting_cause(facts: &PodFacts<'_>, status: &ContainerStatus) -> Option<Cause> {
    let waiting = status.state.as_ref()?.waiting.as_ref()?;
    let reason = text(&waiting.reason);
    if NOT_ITS_TURN.contains(&reason) {
        return None;
    }
    let (name, message) = (status.name.as_str(), text(&waiting.message));
    let ended = status.last_state.as_ref().and_then(|state| state.terminated.as_ref());
    let mut cause = Cause {
        reason: reason.to_owned(),
        container: Some(name.to_owned()),
        error: message.to_owned(),
        next_try: facts.next_try,
        ..Cause::default()
    };
    match reason {
        "ErrImagePull" | "ImagePullBackOff" => {
            let (tries, latest) = repeats(facts.trail.iter(), "Pulling", Some(name));
            cause.what = format!("The image {} of container {name} cannot be pulled.", status.image);
            cause.tries = (tries > 0).then_some(tries);
            cause.last_try = latest.map(|step| step.began);
        }
        "CrashLoopBackOff" => {
            let end = ended.map(describe_end).unwrap_or_default();
            cause.what = format!("Container {name} ends each time soon after its start ({end}).");
            cause.error = ended.map(|ended| text(&ended.message).to_owned()).unwrap_or_default();
            cause.tries = u32::try_from(status.restart_count).ok().map(|count| count.saturating_add(1));
            cause.last_try = ended.and_then(|ended| ended.finished_at.as_ref()).map(|at| at.0);
            cause.advice = advice(reason, &end);
            return Some(cause);
        }
        "CreateContainerConfigError" => cause.what = format!("Container {name} cannot be configured."),
        "CreateContainerError" => {
            cause.what = format!("The container runtime does not create container {name}.")
        }
        "RunContainerError" => cause.what = format!("The container runtime does not start container {name}."),
        "InvalidImageName" => cause.what = format!("The name of the image of container {name} is not valid."),
        "ErrImageNeverPull" => {
            cause.what = format!("The image of container {name} is not on this node, and must not be pulled.")
        }
        _ => cause.what = format!("Container {name} waits ({reason})."),
    }
    cause.advice = advice(reason, message);
    Some(cause)
}

/// Why no container has been created yet.
fn starting_cause(facts: &PodFacts<'_>) -> Cause {
    let doing = facts.trail.iter().rev().find(|step| step.ended.is_none());
    // A warning about a step that has succeeded since is no longer the reason.
    let is_current =
        |warning: &Cause| doing.is_none_or(|doing| order(&doing.reason) <= order(&warning.reason));
    let warning = latest_warning(facts).filter(is_current);
    match (warning, doing) {
        (Some(warning), _) => warning,
        (None, Some(doing)) => under_way(doing, facts),
        (None, None) => Cause {
            reason: "ContainerCreating".to_owned(),
            what: "The node is about to start it.".to_owned(),
            next_try: facts.next_try,
            ..Cause::default()
        },
    }
}

/// The latest warning about the whole pod that can keep it from starting or ending.
fn latest_warning(facts: &PodFacts<'_>) -> Option<Cause> {
    let is_meant = |step: &&TrailStep| {
        let reason = step.reason.as_str();
        step.is_warning && step.container.is_none() && !HARMLESS.contains(&reason) && !is_wait(reason)
    };
    let step = facts.trail.iter().rev().find(is_meant)?;
    let (tries, latest) = repeats(facts.trail.iter(), &step.reason, None);
    Some(Cause {
        reason: step.reason.clone(),
        container: None,
        what: describe_warning(&step.reason),
        error: step.message.clone(),
        tries: Some(tries),
        last_try: latest.map(|step| step.began),
        next_try: facts.next_try,
        advice: advice(&step.reason, &step.message),
    })
}

fn describe_warning(reason: &str) -> String {
    match reason {
        "FailedMount" | "FailedMapVolume" => "A volume cannot be mounted.".to_owned(),
        "FailedAttachVolume" => "A volume cannot be attached.".to_owned(),
        "FailedCreatePodSandBox" => "The sandbox cannot be created.".to_owned(),
        "FailedCreatePodContainer" => "The cgroup of the pod cannot be created.".to_owned(),
        "NetworkNotReady" => "The network of this node is not ready.".to_owned(),
        "FailedPrepareDynamicResources" => {
            "The devices of its resource claims cannot be prepared.".to_owned()
        }
        "FailedKillPod" => "Something of the pod cannot be stopped or released.".to_owned(),
        other => format!("The node reports {other}."),
    }
}

fn containers(facts: &PodFacts<'_>) -> Vec<ContainerExplanation> {
    let statuses = statuses_by_name(facts.status);
    let explain = |name: &str| {
        let Some(status) = statuses.get(name) else {
            return ContainerExplanation {
                name: name.to_owned(),
                state: "waiting".to_owned(),
                ..Default::default()
            };
        };
        let (state, since) = state_of(status);
        let last_end = status.last_state.as_ref().and_then(|state| state.terminated.as_ref());
        ContainerExplanation {
            name: name.to_owned(),
            state: state.to_owned(),
            since,
            is_ready: status.ready,
            restarts: status.restart_count,
            last_end: last_end.map(describe_end).unwrap_or_default(),
            last_end_at: last_end.and_then(|end| end.finished_at.as_ref()).map(|at| at.0),
            ended_for: last_end.and_then(|end| ended_for(&facts.trail, name, end)).unwrap_or_default(),
        }
    };
    all_containers(facts.pod).map(|container| explain(container.name())).collect()
}

fn state_of(status: &ContainerStatus) -> (&'static str, Option<Timestamp>) {
    let Some(state) = &status.state else { return ("waiting", None) };
    match (&state.running, &state.terminated) {
        (Some(running), _) => ("running", running.started_at.as_ref().map(|at| at.0)),
        (None, Some(ended)) => ("ended", ended.finished_at.as_ref().map(|at| at.0)),
        (None, None) => ("waiting", None),
    }
}

fn is_waiting_for(status: &ContainerStatus, reasons: &[&str]) -> bool {
    let waiting = status.state.as_ref().and_then(|state| state.waiting.as_ref());
    waiting.is_some_and(|waiting| reasons.contains(&text(&waiting.reason)))
}

fn is_running(status: &ContainerStatus) -> bool {
    status.state.as_ref().is_some_and(|state| state.running.is_some())
}

/// How often a step happened, and the latest.
fn repeats<'a>(
    trail: impl Iterator<Item = &'a TrailStep>,
    reason: &str,
    container: Option<&str>,
) -> (u32, Option<&'a TrailStep>) {
    let all = trail.filter(|step| step.reason == reason && step.container.as_deref() == container);
    all.fold((0, None), |(count, _), step| (count.saturating_add(step.count), Some(step)))
}

fn open_step<'a>(facts: &'a PodFacts<'_>, reason: &str) -> Option<&'a TrailStep> {
    facts.trail.iter().rev().find(|step| step.ended.is_none() && step.reason == reason)
}

fn first_seen(facts: &PodFacts<'_>) -> Option<Timestamp> {
    facts.status.start_time.as_ref().map(|at| at.0).or_else(|| facts.trail.first().map(|step| step.began))
}

fn not_ready_since(facts: &PodFacts<'_>) -> Option<Timestamp> {
    condition_time(facts.status, "Ready")
}

fn condition_time(status: &PodStatus, kind: &str) -> Option<Timestamp> {
    let condition = status.conditions.iter().flatten().find(|condition| condition.type_ == kind)?;
    condition.last_transition_time.as_ref().map(|at| at.0)
}

fn condition_is_true(status: &PodStatus, kind: &str) -> bool {
    status.conditions.iter().flatten().any(|condition| condition.type_ == kind && condition.status == "True")
}

fn last_end(status: &PodStatus) -> Option<Timestamp> {
    let ended = |status: &ContainerStatus| {
        status.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref().map(|at| at.0)
    };
    statuses_by_name(status).values().filter_map(|status| ended(status)).max()
}

fn text(value: &Option<String>) -> &str {
    value.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests;
