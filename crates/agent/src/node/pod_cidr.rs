//! Sends the configured pod CIDR of a standalone node to the runtime. In a cluster the CIDR comes from the Node object, and
//! `node::status` sends it.

use std::sync::Arc;
use std::time::Duration;

use base_agent::context::Context;
use ports::RuntimeError;
use tokio::sync::watch;

use crate::node_view::NodeView;

const PAUSE: Duration = Duration::from_secs(60);

/// Ends when the runtime has accepted the CIDR or does not support the call.
pub(crate) async fn run(ctx: Arc<Context>, mut node: watch::Receiver<NodeView>, cidr: String) {
    loop {
        // Waits for the runtime's first answer.
        if node.wait_for(|view| view.last_ready.is_some()).await.is_err() {
            return;
        }
        match ctx.runtime.set_pod_cidr(&cidr).await {
            Ok(()) => return tracing::info!(cidr, "Updated pod CIDR of the container runtime"),
            Err(error) => {
                tracing::error!(err = %error, cidr, "Failed to update pod CIDR of the container runtime");
                if matches!(error, RuntimeError::Unimplemented { .. }) {
                    return;
                }
            }
        }
        ctx.clock.sleep_until(ctx.clock.mono() + PAUSE).await;
    }
}
