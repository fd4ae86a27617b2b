//! Reports the volumes in use that an earlier kubelet left mounted or mapped for all pods, so that the attach/detach controller does not
//! detach them before their pods were synced. Those of CSI drivers are reported with the table of staged volumes.

use std::sync::Arc;

use base_agent::context::Context;
use base_agent::error_chain::chain;
use tokio::sync::watch;

use super::exists;
use super::mounters::{Attached, TEAR_DOWNS};
use super::shared::Shared;

/// Sets `is_complete` once all of them are reported.
pub(crate) async fn report(ctx: Arc<Context>, shared: Arc<Shared>, is_complete: watch::Sender<bool>) {
    for of_type in TEAR_DOWNS {
        for attached in of_type.find_attached(&ctx).await {
            report_one(&ctx, &shared, &attached).await;
        }
    }
    shared.csi.complete().await;
    is_complete.send_replace(true);
}

/// With the permit of the volume, which its tear-down has until the volume is not in use any more.
async fn report_one(ctx: &Context, shared: &Shared, attached: &Attached) {
    let Ok(objects) = shared.csi.objects() else { return };
    let Attached { dir, permit, unique_names } = attached;
    let reported = async {
        let _permit = shared.devices.acquire(permit).await.map_err(|error| chain(&error))?;
        match exists(ctx, dir).await.map_err(|error| chain(&error))? {
            true => unique_names.iter().try_for_each(|name| objects.api.in_use.add(name)),
            false => Ok(()),
        }
    };
    if let Err(err) = reported.await {
        tracing::error!(path = %dir.display(), err, "Failed to report a volume in use");
    }
}
