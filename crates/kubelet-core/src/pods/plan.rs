//! The plan for one pod: what the next pass does, why, what waits, and when to look again.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use model::{ContainerId, ContainerKind, MonoTime, SandboxId};

use super::resize::changes::PodResize;

/// The outcome of one decision about a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodPlan {
    pub step: PodStep,
    /// Containers that should run but must not be started now, for their status.
    pub waiting: Vec<Waiting>,
    /// Decide again no later than this, even if nothing is observed to change.
    pub wake_at: Option<MonoTime>,
}

/// What to do now. After any step but `Settled` the pod is observed afresh and decided about again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodStep {
    /// Nothing to do until something changes.
    Settled,
    /// All is well but the numbers of the pod's cgroup, which another program changed: restore them.
    RepairCgroup,
    /// Stop what is left of earlier sandboxes, then create the next one. Containers are decided about afterwards.
    CreateSandbox { attempt: u32, stop: Vec<SandboxId>, kill: Vec<KillContainer>, why: SandboxReason },
    /// Carry out, in this order: kill, remove, resize, start (regular containers side by side, the others one by one).
    Converge {
        sandbox: SandboxId,
        kill: Vec<KillContainer>,
        remove: Vec<RemoveContainer>,
        resize: Option<PodResize>,
        start: Vec<StartContainer>,
    },
    /// All work is done and nothing restarts: stop what is left of the sandbox.
    Teardown { kill: Vec<KillContainer>, stop: Vec<SandboxId>, why: TeardownReason },
}

impl PodStep {
    /// This step tries no more than one that has failed: the next sandbox, whatever number it has by now, or containers that
    /// were among those to start.
    #[must_use]
    pub fn repeats(&self, failed: &Self) -> bool {
        match (self, failed) {
            (Self::CreateSandbox { .. }, Self::CreateSandbox { .. }) => true,
            (
                Self::Converge { kill, remove, resize: None, start, sandbox },
                Self::Converge { start: all, sandbox: before, .. },
            ) if kill.is_empty() && remove.is_empty() && !start.is_empty() => {
                let by_name: BTreeMap<_, _> = all.iter().map(|one| (&one.name, one)).collect();
                sandbox == before && start.iter().all(|one| by_name.get(&one.name) == Some(&one))
            }
            _ => self == failed,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartContainer {
    pub name: Arc<str>,
    pub kind: ContainerKind,
    /// The number of this instance: 0 for the first, then one more than the last one known.
    pub restart_count: u32,
    pub why: StartReason,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KillContainer {
    pub id: ContainerId,
    pub name: Arc<str>,
    pub why: KillReason,
    /// Replaces the pod's grace period: a probe's own one, or none for a restart of all containers.
    pub grace: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoveContainer {
    pub id: ContainerId,
    pub name: Arc<str>,
    pub why: RemoveReason,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub container: Arc<str>,
    pub reason: WaitingReason,
}

/// Why a container is not running, as `state.waiting` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitingReason {
    CrashLoopBackOff { delay: Duration, until: MonoTime },
    RestartingAllContainers,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SandboxReason {
    NoSandbox,
    MoreThanOneReady,
    NewestNotReady,
    NetworkNamespaceChanged,
    NoPodIp,
    /// Another program removed the pod's cgroup: what runs has none of the pod's limits.
    CgroupGone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartReason {
    /// No instance exists yet.
    NeverStarted,
    /// An instance was created but not started, before us or by a run that was interrupted.
    CreatedNotStarted,
    Exited {
        code: i32,
        policy: RestartPolicy,
    },
    /// A restart rule of the container requires it.
    RestartRule {
        code: i32,
    },
    /// Was killed because of this reason, and its policy restarts it.
    Killed(KillReason),
    /// The sandbox is new, so the chain begins again.
    NewSandbox,
    /// The runtime lost track of it.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KillReason {
    SpecChanged,
    /// Its policy requires a restart for the resources that are allocated to it now.
    ResizeRequiresRestart,
    LivenessFailed,
    StartupFailed,
    /// Not part of the pod (any more).
    NotInSpec,
    /// The runtime reports a state that cannot be worked with.
    UnknownState,
    /// A newer instance of the same container exists.
    Superseded,
    PodFinished,
    PodTerminating,
    SandboxReplaced,
    RestartAllContainers,
    PostStartHookFailed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoveReason {
    /// A newer instance of the same init container or sidecar exists.
    OldInitInstance,
    /// All containers begin again.
    RestartAllContainers,
    /// The one whose exit required it. Removed last, because until then it is what requires the restart.
    RestartAllSource,
}

impl RemoveReason {
    /// Whether the log file stays: the next instance counts on from it (docs/behaviour/pod-lifecycle.md).
    #[must_use]
    pub const fn keeps_logs(self) -> bool {
        match self {
            Self::RestartAllContainers | Self::RestartAllSource => true,
            Self::OldInitInstance => false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TeardownReason {
    /// Every regular container ended and none restarts.
    Completed,
    /// An init container failed for good.
    InitFailed,
    /// The sandbox died before all regular containers had run, and the pod's policy gives it no other one.
    SandboxLost,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RestartPolicy {
    #[default]
    Always,
    OnFailure,
    Never,
}

impl RestartPolicy {
    /// Unknown and absent values read as the default, as validation has refused the former.
    #[must_use]
    pub fn parse(policy: Option<&str>) -> Self {
        match policy {
            Some("OnFailure") => Self::OnFailure,
            Some("Never") => Self::Never,
            _ => Self::Always,
        }
    }
}

impl fmt::Display for RestartPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Always => "Always",
            Self::OnFailure => "OnFailure",
            Self::Never => "Never",
        })
    }
}
