//! What a pod's worker is told while it waits, by its probes and by the pass under way.

use kubelet_core::probe::results::{ProbeKind, Verdict};
use model::{ContainerId, MonoTime};

/// One queue for all messages, because each queue costs an idle pod kilobytes.
#[derive(Debug)]
pub(crate) enum WorkerMessage {
    Pass(PassNote),
    Probe(ProbeEvent),
}

/// Why a container (or the whole pod) is not running: its waiting state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub reason: String,
    pub message: String,
}

/// News from within a pass, for the worker that watches it.
#[derive(Clone, Debug)]
pub enum PassNote {
    /// Its image was pulled, between these two moments.
    Pulled { began: MonoTime, ended: MonoTime },
    /// The container could not be started, for this reason.
    Failed { container: String, waiting: Waiting },
    /// The container runs, but its postStart hook does too: it does not count as running yet.
    HookBegan { container: String },
    /// The container was started; what kept it back is over.
    Started { container: String },
}

/// A probe has come to a verdict.
#[derive(Clone, Debug)]
pub(crate) struct ProbeEvent {
    pub(crate) container: ContainerId,
    pub(crate) kind: ProbeKind,
    pub(crate) verdict: Verdict,
}
