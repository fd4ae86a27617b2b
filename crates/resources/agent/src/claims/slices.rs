//! Deletes the ResourceSlices of this node: all of them at the start, because drivers publish theirs again, and those of a driver that
//! has had no connection for a while.

use std::sync::Arc;
use std::time::Duration;

use base_agent::retry_delay::RetryDelay;
use ports::Cluster;
use ports::cluster::ClusterError;

use super::Claims;

const FIRST_RETRY: Duration = Duration::from_secs(1);
const MAX_RETRY: Duration = Duration::from_secs(300);

impl Claims {
    /// Never returns.
    pub(super) async fn delete_slices(self, cluster: Arc<dyn Cluster>) {
        let node = &self.shared.ctx.settings.node_name;
        self.delete(&*cluster, &format!("spec.nodeName={node}"), || true).await;
        let (drivers, clock) = (self.drivers(), self.shared.ctx.clock);
        loop {
            let (due, next) = drivers.due(clock.mono());
            for driver in due {
                tracing::info!(driver, "DRA driver has gone, deleting its ResourceSlices");
                let fields = format!("spec.driver={driver},spec.nodeName={node}");
                let is_away = || drivers.due(clock.mono()).0.contains(&driver);
                if self.delete(&*cluster, &fields, is_away).await {
                    drivers.wiped(&driver);
                }
            }
            tokio::select! {
                () = drivers.lost.notified() => {}
                () = clock.sleep_until_some(next) => {}
            }
        }
    }

    /// Tries until it has succeeded, as long as it is wanted. Returns whether the slices are gone.
    async fn delete(&self, cluster: &dyn Cluster, fields: &str, is_wanted: impl Fn() -> bool) -> bool {
        let ctx = &self.shared.ctx;
        let mut retry = RetryDelay::new(FIRST_RETRY, MAX_RETRY);
        while is_wanted() {
            match cluster.delete_resource_slices(fields).await {
                // Not found: this API server has no ResourceSlices.
                Ok(()) | Err(ClusterError::NotFound { .. }) => return true,
                Err(error) => {
                    tracing::warn!(fields, err = %error, "Failed to delete ResourceSlices, retrying");
                }
            }
            let delay = retry.take();
            ctx.clock.sleep_until(ctx.clock.mono() + delay + ctx.rng.up_to(delay / 5)).await;
        }
        false
    }
}
