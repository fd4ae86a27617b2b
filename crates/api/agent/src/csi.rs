//! Everything that CSI needs of the API server, as one handle for the volume engine and the registration of drivers.
//!
//! Owns nothing: it holds the handles and starts their tasks.

use std::sync::Arc;

use base_agent::context::Context;
use model::k8s::Node;

use super::ApiClients;
use super::attachments::Attachments;
use super::csi_allocatable::{self, NodeInfoSource};
use super::csi_drivers::CsiDrivers;
use super::csi_node::{CsiNode, CsiNodeTasks};
use super::reflector::StoreReader;
use crate::volumes_in_use::VolumesInUse;

/// The handles; clones are the same.
#[derive(Clone, Debug)]
pub struct CsiApi {
    pub nodes: CsiNode,
    pub drivers: CsiDrivers,
    pub attachments: Attachments,
    pub in_use: VolumesInUse,
}

impl CsiApi {
    /// The handles, and the tasks behind them.
    pub fn new(
        ctx: &Arc<Context>,
        clients: &ApiClients,
        own_node: StoreReader<Node>,
    ) -> (Self, CsiNodeTasks) {
        let cluster = &clients.general;
        let (nodes, tasks) = CsiNode::new(ctx, cluster, own_node.clone());
        let api = Self {
            nodes,
            drivers: CsiDrivers::new(ctx, cluster),
            attachments: Attachments::new(ctx, cluster, own_node),
            in_use: VolumesInUse::default(),
        };
        (api, tasks)
    }

    /// Asks the installed drivers in the periods of their CSIDrivers how many volumes this node may have.
    pub fn start_updates(&self, ctx: &Arc<Context>, source: Arc<dyn NodeInfoSource>) {
        let (nodes, drivers) = (self.nodes.clone(), self.drivers.clone());
        ctx.tasks.spawn("CSINode updates", csi_allocatable::run(ctx.clone(), nodes, drivers, source));
    }
}
