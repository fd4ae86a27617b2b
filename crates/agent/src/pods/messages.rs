//! Messages to a pod's worker from its probes and from the pass under way.

use kubelet_core::pods::probe::results::{ProbeKind, Verdict};
use model::{ContainerId, MonoTime};
use resources_core::amounts::Amounts;
use tokio::sync::{mpsc, oneshot};

/// Where all messages to a worker are sent. Boxed, because the queue has space for 32 of them.
pub(crate) type WorkerSender = mpsc::Sender<Box<WorkerMessage>>;

#[derive(Debug)]
pub(crate) enum WorkerMessage {
    Pass(PassEvent),
    Probe(ProbeEvent),
}

/// The waiting state of a container (or of all containers of the pod).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub reason: String,
    pub message: String,
}

/// Progress of a pass, for the pod's worker.
#[derive(Debug)]
pub enum PassEvent {
    /// Its image was pulled, between these two moments.
    Pulled {
        began: MonoTime,
        ended: MonoTime,
    },
    /// The container could not be started.
    Failed {
        container: String,
        waiting: Waiting,
    },
    /// The container runs, but so does its postStart hook, so that it does not count as running yet.
    HookBegan {
        container: String,
    },
    /// The container has these amounts, or is about to be created with them.
    Amounts {
        container: String,
        amounts: Amounts,
        /// Gets whether it, or its last instance, had others.
        is_resized: oneshot::Sender<bool>,
    },
    /// The container was started, and any earlier failure is resolved.
    Started {
        container: String,
    },
    /// All of the pod has what is allocated to it.
    PodResized {
        amounts: Amounts,
    },
    ResizeFailed {
        message: String,
    },
}

/// The verdict of a probe has changed.
#[derive(Clone, Debug)]
pub(crate) struct ProbeEvent {
    pub(crate) container: ContainerId,
    pub(crate) kind: ProbeKind,
    pub(crate) verdict: Verdict,
}
