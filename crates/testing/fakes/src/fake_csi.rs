//! A CSI driver in memory, for the kubelet's side of the protocol: the rules of the specification, faults by method, and a record
//! of all calls. The wire protocol is not part of it.
//!
//! Owns [`FakeCsiDriver`]. Never blocks and never spawns, so it works on tokio's paused time. A call meets the deadline of the
//! real client; when its caller timed out, the driver still does what it was asked for as soon as it is released.

mod calls;
mod port;
mod violations;
mod volumes;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use model::csi::{
    ExpandRequest, NodeCapabilities, NodeInfo, PublishRequest, StageRequest, VolumeCondition, VolumeStats,
};
use parking_lot::Mutex;
use ports::plugins::PluginError;

use crate::FakeHost;
use calls::Calls;
pub(crate) use port::FakeCsiClient;
use volumes::Volumes;

/// The calls of a driver, by their names in the specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CsiMethod {
    NodeGetInfo,
    NodeGetCapabilities,
    NodeStageVolume,
    NodeUnstageVolume,
    NodePublishVolume,
    NodeUnpublishVolume,
    NodeExpandVolume,
    NodeGetVolumeStats,
}

impl CsiMethod {
    /// Whether it only reads. Such calls are counted, but are not among the lines of calls.
    pub(crate) const fn is_read(self) -> bool {
        match self {
            Self::NodeGetInfo | Self::NodeGetCapabilities | Self::NodeGetVolumeStats => true,
            Self::NodeStageVolume
            | Self::NodeUnstageVolume
            | Self::NodePublishVolume
            | Self::NodeUnpublishVolume
            | Self::NodeExpandVolume => false,
        }
    }
}

/// How a call fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CsiFault {
    /// The driver answers with this gRPC code and message; nothing was done.
    Fails(&'static str, &'static str),
    /// The same, but the call was carried out.
    FailsAfterDoing(&'static str, &'static str),
    /// No answer, and nothing is done until [`FakeCsiDriver::release`]. Other calls for the volume are refused with `Aborted`.
    Hangs,
    /// Carried out at once, and answered after this long.
    AnswersAfter(Duration),
    /// The caller panics; nothing was done. For callers that must survive a bug of their own.
    Panics,
}

/// The fake; it runs. Clones share everything.
#[derive(Clone, Debug)]
pub struct FakeCsiDriver {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    is_running: bool,
    info: NodeInfo,
    volumes: Volumes,
    calls: Calls,
}

impl Default for FakeCsiDriver {
    fn default() -> Self {
        Self::new()
    }
}

impl FakeCsiDriver {
    /// A driver that stages, expands and reports statistics, on the node `node-1`.
    #[must_use]
    pub fn new() -> Self {
        let state = State {
            is_running: true,
            info: NodeInfo { node_id: "node-1".to_owned(), ..NodeInfo::default() },
            volumes: Volumes::default(),
            calls: Calls::default(),
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// From now on its volumes are mounts of this machine, with the type `csi`; block volumes are devices.
    #[must_use]
    pub fn mounting_in(self, host: &FakeHost) -> Self {
        self.state.lock().volumes.set_host(host.clone());
        self
    }

    /// From now on it mounts nothing where it stages a filesystem, as drivers that only log in there.
    pub fn stage_without_mount(&self) -> &Self {
        self.state.lock().volumes.stages_without_mount = true;
        self
    }

    // ---- what happens from outside ----

    pub fn set_capabilities(&self, change: impl FnOnce(&mut NodeCapabilities)) -> &Self {
        change(&mut self.state.lock().volumes.capabilities);
        self
    }

    pub fn set_info(&self, change: impl FnOnce(&mut NodeInfo)) -> &Self {
        change(&mut self.state.lock().info);
        self
    }

    /// From now on calls find no process; those in flight lose their connection. Volumes stay mounted.
    pub fn stop(&self) -> &Self {
        let mut state = self.state.lock();
        state.is_running = false;
        state.calls.drop_held();
        self
    }

    pub fn start(&self) -> &Self {
        self.state.lock().is_running = true;
        self
    }

    /// The node starts again: nothing is staged or published, and calls in flight are lost.
    pub fn reboot(&self) -> &Self {
        let mut state = self.state.lock();
        state.volumes.forget_mounts();
        state.calls.drop_held();
        self
    }

    /// The volume is deleted on the storage: calls for it fail with `NotFound`.
    pub fn delete_volume(&self, volume_id: &str) -> &Self {
        self.state.lock().volumes.delete(volume_id);
        self
    }

    /// What [`CsiMethod::NodeGetVolumeStats`] answers for the volume (at first half of 1 GiB and normal).
    pub fn set_stats(&self, volume_id: &str, stats: VolumeStats) -> &Self {
        self.state.lock().volumes.set_stats(volume_id, stats);
        self
    }

    /// Reports the volume as abnormal, or as normal again.
    pub fn set_condition(&self, volume_id: &str, condition: VolumeCondition) -> &Self {
        self.state.lock().volumes.set_condition(volume_id, condition);
        self
    }

    /// The fault applies to the next call of that method. Faults queue up.
    pub fn fault(&self, method: CsiMethod, fault: CsiFault) -> &Self {
        self.state.lock().calls.push_fault(method, None, fault);
        self
    }

    /// The fault applies to the next call of that method for that volume.
    pub fn fault_for(&self, method: CsiMethod, volume_id: &str, fault: CsiFault) -> &Self {
        self.state.lock().calls.push_fault(method, Some(volume_id.to_owned()), fault);
        self
    }

    /// The fault applies to every call of that method for which no other is queued, until it is `None` again.
    pub fn fault_always(&self, method: CsiMethod, fault: Option<CsiFault>) -> &Self {
        self.state.lock().calls.set_fault_always(method, fault);
        self
    }

    /// Removes the faults that have not been applied yet. Calls that hang go on hanging.
    pub fn clear_faults(&self) -> &Self {
        self.state.lock().calls.clear_faults();
        self
    }

    /// Carries out every call that hangs, whether its caller still waits or not, and answers it.
    pub fn release(&self) -> &Self {
        let mut state = self.state.lock();
        for held in state.calls.take_held() {
            (held.carry_out)(&mut state.volumes);
        }
        self
    }

    // ---- inspection ----

    /// Every call that changes something, in order: `NodePublishVolume vol-1`.
    #[must_use]
    pub fn call_lines(&self) -> Vec<String> {
        self.state.lock().calls.lines.clone()
    }

    pub fn forget_calls(&self) -> &Self {
        self.state.lock().calls.forget();
        self
    }

    /// How often a method was called.
    #[must_use]
    pub fn count(&self, method: CsiMethod) -> usize {
        self.state.lock().calls.count(method)
    }

    /// The number of calls that hang, with or without a caller that waits.
    #[must_use]
    pub fn hanging(&self) -> usize {
        self.state.lock().calls.held()
    }

    #[must_use]
    pub fn stage_requests(&self) -> Vec<StageRequest> {
        self.state.lock().calls.stages.clone()
    }

    #[must_use]
    pub fn publish_requests(&self) -> Vec<PublishRequest> {
        self.state.lock().calls.publishes.clone()
    }

    #[must_use]
    pub fn expand_requests(&self) -> Vec<ExpandRequest> {
        self.state.lock().calls.expansions.clone()
    }

    /// The volumes that are staged, and where.
    #[must_use]
    pub fn staged(&self) -> BTreeMap<String, PathBuf> {
        self.state.lock().volumes.staged()
    }

    /// The volumes that are published, and where, sorted.
    #[must_use]
    pub fn published(&self) -> Vec<(String, PathBuf)> {
        self.state.lock().volumes.published()
    }

    /// What the kubelet must never do and did: `NodePublishVolume vol-1: the volume is not staged at /staging`. Empty if it
    /// follows the specification.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        self.state.lock().calls.violations.clone()
    }
}

/// An answer of the driver.
fn refusal(code: &str, message: impl Into<String>) -> PluginError {
    PluginError::Failed { code: code.to_owned(), message: message.into() }
}

/// The error of the client when no process listens.
fn unreachable(socket: &Path) -> PluginError {
    PluginError::Unreachable { socket: socket.to_path_buf(), message: "connection refused".to_owned() }
}
