//! A driver whose calls are measured: `csi_operations_seconds`.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use base_agent::context::Context;
use model::csi::{
    ExpandRequest, NodeCapabilities, NodeInfo, PublishRequest, StageRequest, StatsRequest, VolumeStats,
};
use ports::plugins::{CsiDriver, PluginError, PluginResult};

use crate::metrics::VolumeMetrics;

#[derive(Clone, Debug)]
pub(super) struct Metered {
    pub ctx: Arc<Context>,
    /// The name of the driver.
    pub driver: Arc<str>,
    /// The calls are for a volume of an in-tree type that has moved to the driver.
    pub(super) is_migrated: bool,
    pub calls: Arc<dyn CsiDriver>,
}

impl Metered {
    async fn observe<T>(
        &self,
        method: &'static str,
        call: impl Future<Output = PluginResult<T>>,
    ) -> PluginResult<T> {
        let began = self.ctx.clock.mono();
        let answer = call.await;
        let took = self.ctx.clock.mono().saturating_since(began);
        let code = answer.as_ref().err().map_or("OK", code);
        self.ctx.metrics.get::<VolumeMetrics>().called_driver(
            &self.driver,
            self.is_migrated,
            method,
            code,
            took,
        );
        answer
    }
}

/// The name of the gRPC code.
fn code(error: &PluginError) -> &str {
    match error {
        PluginError::Failed { code, .. } => code,
        PluginError::TimedOut { .. } => "DeadlineExceeded",
        PluginError::Unreachable { .. } => "Unavailable",
        // The kubelet refuses the answer. The Go kubelet has no code for that either.
        PluginError::Malformed(_) | PluginError::Listen { .. } => "unknown-non-grpc",
    }
}

#[async_trait]
impl CsiDriver for Metered {
    async fn node_info(&self) -> PluginResult<NodeInfo> {
        self.observe("/csi.v1.Node/NodeGetInfo", self.calls.node_info()).await
    }

    async fn capabilities(&self) -> PluginResult<NodeCapabilities> {
        self.observe("/csi.v1.Node/NodeGetCapabilities", self.calls.capabilities()).await
    }

    async fn stage(&self, request: &StageRequest) -> PluginResult<()> {
        self.observe("/csi.v1.Node/NodeStageVolume", self.calls.stage(request)).await
    }

    async fn unstage(&self, volume_id: &str, path: &Path) -> PluginResult<()> {
        self.observe("/csi.v1.Node/NodeUnstageVolume", self.calls.unstage(volume_id, path)).await
    }

    async fn publish(&self, request: &PublishRequest) -> PluginResult<()> {
        self.observe("/csi.v1.Node/NodePublishVolume", self.calls.publish(request)).await
    }

    async fn unpublish(&self, volume_id: &str, path: &Path) -> PluginResult<()> {
        self.observe("/csi.v1.Node/NodeUnpublishVolume", self.calls.unpublish(volume_id, path)).await
    }

    async fn expand(&self, request: &ExpandRequest) -> PluginResult<i64> {
        self.observe("/csi.v1.Node/NodeExpandVolume", self.calls.expand(request)).await
    }

    async fn stats(&self, request: &StatsRequest) -> PluginResult<VolumeStats> {
        self.observe("/csi.v1.Node/NodeGetVolumeStats", self.calls.stats(request)).await
    }
}
