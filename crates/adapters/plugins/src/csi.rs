//! The client of a CSI driver's Node service. Each call has a connection of its own, which ends with the call.

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use grpc_api::csi as wire;
use grpc_api::csi::node_client::NodeClient;
use model::csi::{
    ExpandRequest, NodeCapabilities, NodeInfo, PublishRequest, StageRequest, StatsRequest, VolumeStats,
};
use model::text::cut;
use ports::plugins::{CSI_TIMEOUT, CsiDriver, PluginError, PluginResult};
use tonic::transport::Channel;
use tonic::{IntoRequest, Request, Response, Status};

use crate::call;
use crate::csi_convert as convert;

/// The limit of Go's gRPC clients, which drivers are written for.
const MAX_RECEIVE_BYTES: usize = 4 << 20;
/// Error messages contain output of programs, and get into events and logs.
const MAX_MESSAGE_BYTES: usize = 4096;

#[derive(Clone, Debug)]
pub(crate) struct Client {
    socket: PathBuf,
}

impl Client {
    pub(crate) fn new(socket: &Path) -> Self {
        Self { socket: socket.to_path_buf() }
    }

    /// Connects, and waits for the response until the deadline, which the driver knows.
    async fn call<Q, A, F>(
        &self,
        request: Q,
        call: impl FnOnce(NodeClient<Channel>, Request<Q>) -> F + Send,
    ) -> PluginResult<A>
    where
        Q: Send,
        F: Future<Output = Result<Response<A>, Status>> + Send,
    {
        let mut request = request.into_request();
        request.set_timeout(CSI_TIMEOUT);
        let response = async {
            let channel = call::connect(&self.socket).await?;
            let node = NodeClient::new(channel).max_decoding_message_size(MAX_RECEIVE_BYTES);
            call(node, request).await.map_err(|status| failed(&status))
        };
        match tokio::time::timeout(CSI_TIMEOUT, response).await {
            Ok(response) => response.map(Response::into_inner),
            Err(_) => Err(deadline_exceeded()),
        }
    }
}

/// The deadline as Go's clients report it.
fn deadline_exceeded() -> PluginError {
    PluginError::Failed {
        code: "DeadlineExceeded".to_owned(),
        message: "context deadline exceeded".to_owned(),
    }
}

/// The answer of the driver; or `Unavailable` if there was none, because then the call may still happen.
fn failed(status: &Status) -> PluginError {
    if let Some(source) = std::error::Error::source(status) {
        return broken(source);
    }
    let mut error = call::failed(status);
    if let PluginError::Failed { message, .. } = &mut error {
        *message = cut(message, MAX_MESSAGE_BYTES).into_owned();
    }
    error
}

/// The connection broke, or the client's own timer for the deadline was first.
fn broken(source: &(dyn std::error::Error + 'static)) -> PluginError {
    let mut causes = std::iter::successors(Some(source), |cause| cause.source());
    if causes.any(<dyn std::error::Error>::is::<tonic::TimeoutExpired>) {
        return deadline_exceeded();
    }
    let message = format!("error reading from server: {}", call::root_cause(source));
    PluginError::Failed {
        code: "Unavailable".to_owned(),
        message: cut(&message, MAX_MESSAGE_BYTES).into_owned(),
    }
}

#[async_trait]
impl CsiDriver for Client {
    async fn node_info(&self) -> PluginResult<NodeInfo> {
        let call = |mut node: NodeClient<Channel>, request| async move { node.node_get_info(request).await };
        convert::node_info(self.call(wire::NodeGetInfoRequest {}, call).await?)
    }

    async fn capabilities(&self) -> PluginResult<NodeCapabilities> {
        let call =
            |mut node: NodeClient<Channel>, request| async move { node.node_get_capabilities(request).await };
        let response = self.call(wire::NodeGetCapabilitiesRequest {}, call).await?;
        Ok(convert::node_capabilities(&response))
    }

    async fn stage(&self, request: &StageRequest) -> PluginResult<()> {
        let call =
            |mut node: NodeClient<Channel>, request| async move { node.node_stage_volume(request).await };
        self.call(convert::stage(request)?, call).await.map(|_| ())
    }

    async fn unstage(&self, volume_id: &str, staging_target_path: &Path) -> PluginResult<()> {
        let call =
            |mut node: NodeClient<Channel>, request| async move { node.node_unstage_volume(request).await };
        self.call(convert::unstage(volume_id, staging_target_path)?, call).await.map(|_| ())
    }

    async fn publish(&self, request: &PublishRequest) -> PluginResult<()> {
        let call =
            |mut node: NodeClient<Channel>, request| async move { node.node_publish_volume(request).await };
        self.call(convert::publish(request)?, call).await.map(|_| ())
    }

    async fn unpublish(&self, volume_id: &str, target_path: &Path) -> PluginResult<()> {
        let call =
            |mut node: NodeClient<Channel>, request| async move { node.node_unpublish_volume(request).await };
        self.call(convert::unpublish(volume_id, target_path)?, call).await.map(|_| ())
    }

    async fn expand(&self, request: &ExpandRequest) -> PluginResult<i64> {
        let call =
            |mut node: NodeClient<Channel>, request| async move { node.node_expand_volume(request).await };
        convert::capacity(&self.call(convert::expand(request)?, call).await?)
    }

    async fn stats(&self, request: &StatsRequest) -> PluginResult<VolumeStats> {
        let call =
            |mut node: NodeClient<Channel>, request| async move { node.node_get_volume_stats(request).await };
        convert::stats(self.call(convert::stats_request(request)?, call).await?)
    }
}

#[cfg(test)]
mod tests;
