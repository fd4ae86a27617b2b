//! The process itself: lock file, limits, OOM score, signals, systemd.

use std::time::Duration;

use config::Resolved;
use ports::{Clock, NodeApi};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Raises the file limit and lowers the OOM score. Neither is worth a node: what fails is logged.
pub(crate) fn set_limits(resolved: &Resolved) {
    if !host::process::is_root() {
        tracing::error!("The kubelet needs to run as root (uid 0); most of what it does will fail");
    }
    let files = u64::try_from(resolved.kubelet.max_open_files).unwrap_or(1_000_000);
    if let Err(error) = host::process::set_nofile_limit(files) {
        tracing::warn!(files, %error, "The limit of open files was not set");
    }
    let score = i16::try_from(resolved.kubelet.oom_score_adj).unwrap_or(-999);
    if let Err(error) = host::process::set_own_oom_score_adj(score) {
        tracing::warn!(score, %error, "The kubelet's own OOM score was not set");
    }
}

/// SIGTERM and SIGINT.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(crate) fn listen() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// The next one. Cancel safe: signals wait in the stream.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Tells systemd that the kubelet is up, where systemd listens.
pub(crate) fn notify_ready() {
    if let Err(error) = host::process::sd_notify("READY=1") {
        tracing::warn!(%error, "systemd was not told that the kubelet is ready");
    }
}

/// Feeds systemd's watchdog twice per interval as long as the sync loop goes round.
pub(crate) async fn feed_watchdog(api: std::sync::Arc<dyn NodeApi>, clock: Clock, stop: CancellationToken) {
    let Some(interval) = host::process::watchdog_interval().filter(|i| *i > Duration::from_secs(1)) else {
        return;
    };
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = clock.sleep_until(clock.mono() + interval / 2) => {}
        }
        let (age, limit) = api.sync_loop_age();
        if age > limit {
            tracing::error!(age = ?age, "The sync loop hangs; the watchdog is not fed");
            continue;
        }
        if let Err(error) = host::process::sd_notify("WATCHDOG=1") {
            tracing::warn!(%error, "systemd's watchdog was not fed");
        }
    }
}
