//! How the containers of a pod are stopped: in which order, after which hook, within which grace period
//! (docs/behaviour/pod-lifecycle.md).
//!
//! The decision to terminate a pod is elsewhere; the executor runs hooks, waits for turns and calls the runtime.

use std::sync::Arc;
use std::time::Duration;

use model::containers::{ContainersByName, spec_of};
use model::k8s::{LifecycleHandler, Pod};
use model::time::wait_of;
use model::{
    ContainerId, ContainerKind, ContainerObservation, ContainerRecord, PodObservation, PodRef, SandboxId,
};

use super::actions::{StopTurns, may_run};
use super::plan::{KillContainer, KillReason};

/// No container is stopped faster than this, so that the runtime has time to deliver the signal.
pub const MIN_STOP_TIMEOUT: Duration = Duration::from_secs(2);
/// A pod's kill is never called late before this.
const MIN_KILL_DEADLINE: Duration = Duration::from_secs(10);

/// The event message for a terminated pod that exceeds its kill deadline.
pub const EXCEEDED_GRACE_PERIOD: (&str, &str) =
    ("ExceededGracePeriod", "Container runtime did not kill the pod within specified grace period.");

/// The reason of the event of a critical pod that starts before the pods that were preempted for it have ended.
pub const PREEMPTION_TIMED_OUT: &str = "PreemptionTimedOut";

/// How long a critical pod waits for the end of these preempted pods: for each one and a half times its grace period, as the Go kubelet
/// does; all of them end at the same time.
#[must_use]
pub fn compute_preemption_timeout<'a>(victims: impl Iterator<Item = &'a Pod>) -> Duration {
    let timeout = |pod: &Pod| compute_grace(GraceSources::of(pod, None), None).kill_deadline();
    victims.map(timeout).max().unwrap_or_default()
}

/// The message of that event.
#[must_use]
pub fn preemption_timed_out(victim: &PodRef, timeout: Duration) -> String {
    let seconds = timeout.as_secs();
    format!("preempted pod {victim} did not end within {seconds}s, starting without waiting for it")
}

/// How long a pod gets to end by itself: whole seconds, at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GracePeriod(u64);

impl GracePeriod {
    /// The minimum; also for a running pod that no source lists any more.
    pub const MIN: Self = Self(1);

    /// Values below one second are raised to it, and those beyond [`model::time::MAX_WAIT`] lowered.
    #[must_use]
    pub fn from_seconds(seconds: i64) -> Self {
        Self(wait_of(seconds).as_secs().max(1))
    }

    #[must_use]
    pub const fn as_secs(self) -> u64 {
        self.0
    }

    #[must_use]
    pub const fn as_duration(self) -> Duration {
        Duration::from_secs(self.0)
    }

    /// After this the kill has taken too long (event `ExceededGracePeriod`).
    #[must_use]
    pub fn kill_deadline(self) -> Duration {
        MIN_KILL_DEADLINE.max(self.as_duration().saturating_mul(3) / 2)
    }
}

/// Where a grace period can come from, all in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GraceSources {
    /// `spec.terminationGracePeriodSeconds`: used only if no other is set.
    pub spec: Option<i64>,
    /// `metadata.deletionGracePeriodSeconds`.
    pub deletion: Option<i64>,
    /// From an eviction, a preemption or a node shutdown.
    pub kill_override: Option<i64>,
}

impl GraceSources {
    #[must_use]
    pub fn of(pod: &Pod, kill_override: Option<i64>) -> Self {
        Self {
            spec: spec_of(pod).termination_grace_period_seconds,
            deletion: pod.metadata.deletion_grace_period_seconds,
            kill_override,
        }
    }
}

/// The grace period from now on. It never grows: `previous` is the current one.
#[must_use]
pub fn compute_grace(sources: GraceSources, previous: Option<GracePeriod>) -> GracePeriod {
    let requested =
        [sources.deletion, sources.kill_override].into_iter().flatten().map(GracePeriod::from_seconds);
    requested
        .chain(previous)
        .min()
        .unwrap_or_else(|| sources.spec.map_or(GracePeriod::MIN, GracePeriod::from_seconds))
}

/// How one container is stopped.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerKill {
    pub id: ContainerId,
    pub name: Arc<str>,
    pub why: KillReason,
    /// The signal is sent once every kill with a lower turn is done, or the grace period is over. All hooks run at
    /// once, whatever their turn.
    pub turn: usize,
    /// For hook, waiting and stopping together, counted from the beginning of the kill.
    pub grace: Duration,
    pub pre_stop: Option<LifecycleHandler>,
}

impl ContainerKill {
    /// What is left for the runtime to stop the container, when hook and waiting took `used`.
    #[must_use]
    pub fn stop_timeout(&self, used: Duration) -> Duration {
        self.grace.saturating_sub(used).max(MIN_STOP_TIMEOUT)
    }
}

/// The message of the event `Killing`. `restarts`: the container is started again afterwards.
#[must_use]
pub fn killing_message(
    container: &str,
    kind: Option<ContainerKind>,
    why: KillReason,
    restarts: bool,
) -> String {
    let subject = match kind {
        Some(ContainerKind::Init | ContainerKind::Sidecar) => "Init container",
        Some(ContainerKind::Regular | ContainerKind::Ephemeral) | None => "Container",
    };
    // Parity: the Go kubelet promises a restart of regular containers only.
    let promise = if restarts && subject == "Container" { ", will be restarted" } else { "" };
    match why {
        KillReason::SpecChanged => format!("{subject} {container} definition changed{promise}"),
        KillReason::ResizeRequiresRestart => format!("Container {container} resize requires restart"),
        KillReason::LivenessFailed => format!("{subject} {container} failed liveness probe{promise}"),
        KillReason::StartupFailed => format!("{subject} {container} failed startup probe{promise}"),
        KillReason::UnknownState => {
            format!("{subject} is in \"unknown\" state, try killing it before restart")
        }
        KillReason::PostStartHookFailed => "FailedPostStartHook".to_owned(),
        KillReason::NotInSpec
        | KillReason::Superseded
        | KillReason::PodFinished
        | KillReason::PodTerminating
        | KillReason::SandboxReplaced => format!("Stopping container {container}"),
        KillReason::RestartAllContainers => "killing".to_owned(),
    }
}

/// How a whole pod is stopped: first the containers, then the sandboxes.
#[derive(Clone, Debug, PartialEq)]
pub struct KillPlan {
    pub grace: GracePeriod,
    /// By turn.
    pub kills: Vec<ContainerKill>,
    /// Also those that are not ready: stopping is what releases their network.
    pub stop: Vec<SandboxId>,
}

/// Plans the end of a pod. `pod` is `None` for an orphan whose spec is gone: then hooks and grace come from what was
/// recorded on its containers, and all stop in parallel.
#[must_use]
pub fn compute_kill_plan(pod: Option<&Pod>, observed: &PodObservation, grace: GracePeriod) -> KillPlan {
    let spec = pod.map(KilledPod::of);
    let mut kills: Vec<ContainerKill> = observed
        .containers
        .iter()
        .filter(|c| may_run(c))
        .map(|c| container_kill(spec.as_ref(), c, KillReason::PodTerminating, grace.as_duration()))
        .collect();
    kills.sort_by_key(|kill| kill.turn);
    KillPlan { grace, kills, stop: observed.sandboxes.iter().map(|s| s.id.clone()).collect() }
}

/// Details for the kills of a [`super::plan::PodStep`], by turn. Instances that are no longer observed are left out.
#[must_use]
pub fn plan_kills(pod: &Pod, observed: &PodObservation, kills: &[KillContainer]) -> Vec<ContainerKill> {
    let spec = KilledPod::of(pod);
    let details = |kill: &KillContainer| {
        let container = observed.container(&kill.id)?;
        let grace = container_grace(Some(pod), &container.record, kill);
        Some(container_kill(Some(&spec), container, kill.why, grace))
    };
    let mut kills: Vec<ContainerKill> = kills.iter().filter_map(details).collect();
    kills.sort_by_key(|kill| kill.turn);
    kills
}

/// The grace period of one container: that of the deletion, else that of its failed probe, else the pod's
/// period (from the spec, or as recorded). A restart of all containers overrides all of them.
#[must_use]
pub fn container_grace(pod: Option<&Pod>, record: &ContainerRecord, kill: &KillContainer) -> Duration {
    if kill.why == KillReason::RestartAllContainers {
        return kill.grace.unwrap_or(Duration::ZERO);
    }
    let deletion = pod.and_then(|pod| pod.metadata.deletion_grace_period_seconds).map(wait_of);
    let spec = match pod {
        Some(pod) => spec_of(pod).termination_grace_period_seconds,
        None => record.pod_termination_grace_seconds,
    };
    deletion.or(kill.grace).or_else(|| spec.map(wait_of)).unwrap_or(MIN_STOP_TIMEOUT)
}

/// What the spec says of the containers that are stopped.
struct KilledPod<'a> {
    containers: ContainersByName<'a>,
    turns: StopTurns<'a>,
}

impl<'a> KilledPod<'a> {
    fn of(pod: &'a Pod) -> Self {
        Self { containers: ContainersByName::of(pod), turns: StopTurns::of(pod) }
    }
}

fn container_kill(
    pod: Option<&KilledPod<'_>>,
    container: &ContainerObservation,
    why: KillReason,
    grace: Duration,
) -> ContainerKill {
    let stops_the_pod = match why {
        KillReason::PodFinished | KillReason::PodTerminating | KillReason::SandboxReplaced => true,
        KillReason::SpecChanged
        | KillReason::ResizeRequiresRestart
        | KillReason::LivenessFailed
        | KillReason::StartupFailed
        | KillReason::NotInSpec
        | KillReason::UnknownState
        | KillReason::Superseded
        | KillReason::RestartAllContainers
        | KillReason::PostStartHookFailed => false,
    };
    ContainerKill {
        id: container.id.clone(),
        name: container.name.clone(),
        why,
        turn: pod.filter(|_| stops_the_pod).map_or(0, |pod| pod.turns.of_container(&container.name)),
        grace,
        pre_stop: pre_stop(pod, container).filter(|_| !grace.is_zero()),
    }
}

/// The hook from the spec; from the record only if the spec does not know the container (any more).
fn pre_stop(pod: Option<&KilledPod<'_>>, container: &ContainerObservation) -> Option<LifecycleHandler> {
    if let Some(spec) = pod.and_then(|pod| pod.containers.get(&container.name)) {
        return spec.lifecycle().and_then(|hooks| hooks.pre_stop.clone());
    }
    // A damaged record must not keep the container from being stopped.
    serde_json::from_str(container.record.pre_stop_handler.as_deref()?).ok()
}

#[cfg(test)]
mod tests;
