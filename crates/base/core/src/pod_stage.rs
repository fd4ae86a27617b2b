//! How far the life of a pod on this node is, as its worker knows it and as the runtime reports it.

/// The stage of a pod's worker; later stages compare greater, and no worker goes back to an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PodStage {
    /// Its containers are kept as the spec requires.
    Syncing,
    /// Its containers are being stopped, and none is started any more.
    Terminating,
    /// Its containers have stopped; volumes, cgroups and status are being released.
    Terminated,
    /// Everything of it on this node was released.
    Finished,
}

/// What the runtime reports about a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuntimePresence {
    /// Only dead containers and sandboxes.
    Dead,
    /// A container or sandbox runs, or may run.
    MayRun,
}
