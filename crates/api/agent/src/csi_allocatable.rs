//! Asks CSI drivers again how many volumes this node may have, in the period that their CSIDriver sets, and writes the number
//! to the CSINode.
//!
//! Owns one task for each installed driver with such a period. Reads no CSIDriver until a driver is installed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api_core::csi_node::update_period;
use async_trait::async_trait;
use base_agent::context::Context;
use model::csi::NodeInfo;
use tokio_util::sync::CancellationToken;

use super::csi_drivers::CsiDrivers;
use super::csi_node::CsiNode;

/// Calls installed drivers.
#[async_trait]
pub trait NodeInfoSource: Send + Sync + std::fmt::Debug {
    /// What the driver says about this node now. The call has a deadline.
    ///
    /// # Errors
    /// The driver did not answer.
    async fn node_info(&self, driver: &str) -> Result<NodeInfo, String>;
}

/// A driver that is asked, and in which period.
struct Updates {
    period: Duration,
    stop: CancellationToken,
}

/// Runs until dropped.
pub async fn run(ctx: Arc<Context>, nodes: CsiNode, drivers: CsiDrivers, source: Arc<dyn NodeInfoSource>) {
    let mut installed = nodes.installed();
    if installed.wait_for(|installed| !installed.is_empty()).await.is_err() {
        return;
    }
    let mut drivers = drivers.changes();
    let mut running: BTreeMap<String, Updates> = BTreeMap::new();
    loop {
        let mut wanted = BTreeMap::new();
        for driver in drivers.borrow_and_update().objects.values() {
            let name = driver.metadata.name.as_deref().unwrap_or_default();
            if let Some(period) = update_period(driver).filter(|_| installed.borrow().contains(name)) {
                wanted.insert(name.to_owned(), period);
            }
        }
        installed.mark_unchanged();
        running.retain(|driver, updates| {
            let is_wanted = wanted.get(driver) == Some(&updates.period);
            if !is_wanted {
                updates.stop.cancel();
            }
            is_wanted
        });
        for (driver, period) in wanted {
            running.entry(driver.clone()).or_insert_with(|| {
                let stop = CancellationToken::new();
                let updates = update(ctx.clone(), nodes.clone(), source.clone(), driver, period);
                let stopped = stop.clone();
                ctx.tasks.spawn_isolated("CSINode allocatable", async move {
                    tokio::select! {
                        () = updates => {}
                        () = stopped.cancelled_owned() => {}
                    }
                });
                Updates { period, stop }
            });
        }
        tokio::select! {
            Ok(()) = drivers.changed() => {}
            Ok(()) = installed.changed() => {}
            else => return,
        }
    }
}

async fn update(
    ctx: Arc<Context>,
    nodes: CsiNode,
    source: Arc<dyn NodeInfoSource>,
    driver: String,
    period: Duration,
) {
    loop {
        ctx.clock.sleep_until(ctx.clock.mono() + period).await;
        let updated = match source.node_info(&driver).await {
            Ok(info) => nodes.update_allocatable(&driver, info.max_volumes_per_node).await,
            Err(error) => Err(error),
        };
        if let Err(error) = updated {
            tracing::error!(driver, err = error, "Failed to update CSIDriver");
        }
    }
}
