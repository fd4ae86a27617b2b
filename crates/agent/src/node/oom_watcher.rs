//! Reads the kernel log for OOM kills of the whole machine, and records them as events. Owns no state. If the log cannot be
//! read, there are no such events.

use std::sync::Arc;

use base_agent::context::Context;
use base_agent::error_chain::chain;
use futures_util::StreamExt;
use kubelet_core::node::oom::{SYSTEM_OOM, parse_oom_kill, system_oom_message};

use crate::metrics::EvictionMetrics;

/// Runs until the log ends, which is not expected.
pub(crate) async fn run(ctx: Arc<Context>) {
    let path = &ctx.settings.paths.kernel_log;
    let mut records = match ctx.machine.kernel_log(path) {
        Ok(records) => records,
        Err(error) => {
            tracing::warn!(
                err = chain(&error),
                "Failed to read the kernel log, SystemOOM events are not reported"
            );
            return;
        }
    };
    while let Some(record) = records.next().await {
        let Some(kill) = parse_oom_kill(&record) else { continue };
        if kill.is_of_machine {
            ctx.metrics.get::<EvictionMetrics>().system_oom();
            ctx.recorder.node_warning(SYSTEM_OOM, system_oom_message(&kill));
        } else {
            tracing::info!(kill.pid, kill.process, "Got OOM kill event");
        }
    }
    tracing::warn!("Kernel log ended, SystemOOM events are no longer reported");
}
