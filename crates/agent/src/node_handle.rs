//! What the tasks of the node publish for all others, and the other ends for those tasks. Decides and does nothing.

use std::sync::Arc;

use model::k8s::NodeAddress;
use model::{CgroupDriver, ContainerId};
use resources_core::admission::pressure::NodePressure;
use resources_core::cgroup::CgroupNames;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::cgroup_problems::CgroupProblems;
use crate::node_view::{EvictionView, LeaseView, NodeView, ShutdownView};

/// What the tasks of the node publish for all others. Clones are the same.
#[derive(Clone, Debug)]
pub struct NodeHandle {
    /// The last observed status of the runtime, written by `node::readiness`.
    pub view: watch::Receiver<NodeView>,
    /// The pressure conditions, written by `node::eviction`.
    pub pressure: watch::Receiver<NodePressure>,
    /// The node is shutting down, written by `node::shutdown`.
    pub shutting_down: watch::Receiver<bool>,
    /// `None` until the runtime has reported it.
    pub cgroup_driver: watch::Receiver<Option<CgroupDriver>>,
    /// `None` until pods can have cgroups.
    pub cgroup_names: watch::Receiver<Option<Arc<CgroupNames>>>,
    pub cgroup_problems: CgroupProblems,
    /// The node's addresses as last reported, written by `node::status`.
    pub addresses: watch::Sender<Vec<NodeAddress>>,
    /// Written by `node::lease`.
    pub lease: watch::Sender<LeaseView>,
    /// Written by `node::shutdown`.
    pub shutdown: watch::Sender<ShutdownView>,
    /// Written by `node::eviction`.
    pub eviction: watch::Sender<EvictionView>,
    /// Dead containers that newer ones have replaced, to be removed soon; what does not fit is found by garbage collection.
    pub superseded: mpsc::Sender<ContainerId>,
    /// Cancelled, after the reason was logged, when the kubelet cannot work and must exit.
    pub must_exit: CancellationToken,
}

/// Replaced containers that may wait for their removal.
const MAX_SUPERSEDED: usize = 64;

/// The other ends of [`NodeHandle`]; each is used by one task.
#[derive(Debug)]
pub(crate) struct NodePublishers {
    pub(crate) view: watch::Sender<NodeView>,
    pub(crate) pressure: watch::Sender<NodePressure>,
    pub(crate) shutting_down: watch::Sender<bool>,
    pub(crate) cgroup_driver: watch::Sender<Option<CgroupDriver>>,
    pub(crate) cgroup_names: watch::Sender<Option<Arc<CgroupNames>>>,
    pub(crate) superseded: mpsc::Receiver<ContainerId>,
}

impl NodeHandle {
    pub(crate) fn new() -> (Self, NodePublishers) {
        let (superseded, to_remove) = mpsc::channel(MAX_SUPERSEDED);
        let publishers = NodePublishers {
            view: watch::Sender::default(),
            pressure: watch::Sender::default(),
            shutting_down: watch::Sender::default(),
            cgroup_driver: watch::Sender::default(),
            cgroup_names: watch::Sender::default(),
            superseded: to_remove,
        };
        let handle = Self {
            view: publishers.view.subscribe(),
            pressure: publishers.pressure.subscribe(),
            shutting_down: publishers.shutting_down.subscribe(),
            cgroup_driver: publishers.cgroup_driver.subscribe(),
            cgroup_names: publishers.cgroup_names.subscribe(),
            cgroup_problems: CgroupProblems::default(),
            addresses: watch::Sender::default(),
            lease: watch::Sender::default(),
            shutdown: watch::Sender::default(),
            eviction: watch::Sender::default(),
            superseded,
            must_exit: CancellationToken::new(),
        };
        (handle, publishers)
    }
}
