//! How far the life of a pod on this node is.

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
