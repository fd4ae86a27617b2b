//! Tells the runtime of a node that stands alone where its pods get their addresses. In a cluster the API says it, and
//! `cluster::node` hands it on.

use std::sync::Arc;
use std::time::Duration;

use ports::RuntimeError;

use crate::engine::Engine;

const PAUSE: Duration = Duration::from_secs(60);

/// Ends when the runtime knows it, or says that it never will.
pub(crate) async fn run(engine: Arc<Engine>, cidr: String) {
    let mut node = engine.node.clone();
    loop {
        // Before that there is nobody to tell.
        if node.wait_for(|view| view.last_ready.is_some()).await.is_err() {
            return;
        }
        match engine.runtime.set_pod_cidr(&cidr).await {
            Ok(()) => return tracing::info!(cidr, "Updated pod CIDR of the container runtime"),
            Err(error) => {
                tracing::error!(err = %error, cidr, "Failed to update pod CIDR of the container runtime");
                if matches!(error, RuntimeError::Unimplemented { .. }) {
                    return;
                }
            }
        }
        engine.clock.sleep_until(engine.clock.mono() + PAUSE).await;
    }
}
