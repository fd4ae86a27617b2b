//! Graceful node shutdown: waits for logind to announce a shutdown, and inhibits it until the pods have ended
//! (docs/behaviour/node-shutdown.md).
//!
//! Owns whether the node is shutting down, and the inhibit lock. The signal is only a hint: the state is read from logind
//! each time, and stays as it was while logind does not answer. The order of pods is decided in `kubelet_core::node::shutdown` and
//! executed by [`drain`]. Not started if no grace period is configured.

mod drain;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base_agent::context::Context;
use base_agent::error_chain::chain;
use base_agent::pods_view::PodsView;
use base_agent::retry_delay::RetryDelay;
use kubelet_core::node::shutdown::{
    CANCELLED, DETECTED, EVENT, GroupPeriod, STATE_FILE, ShutdownChange, ShutdownTimes, compute_delay,
    compute_periods, compute_shutdown_change, logind_drop_in,
};
use ports::shutdown::{ShutdownLock, ShutdownResult, ShutdownWatch};
use ports::{HostError, Shutdown, ShutdownError};
use resources_agent::admissions::Admissions;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};

use self::drain::{Drain, record_times};
use crate::metrics::ShutdownMetrics;
use crate::node_view::ShutdownView;
use crate::pods::handles::PodHandles;
use crate::pods::termination_requests::TerminationRequests;

/// Delay before a lost connection is opened again; it doubles each time, up to the maximum.
const PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(60);
/// Delays between checks whether logind has applied the new configuration.
const RELOAD_PAUSES: [Duration; 4] = [
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(400),
    Duration::from_millis(800),
];

/// The configured period of each priority of pods; none where graceful shutdown is not configured.
pub(crate) fn configured_periods(ctx: &Context) -> Vec<GroupPeriod> {
    compute_periods(ctx.config(), ctx.node_facts.features)
}

/// The file with the times of the last shutdown.
fn state_path(ctx: &Context) -> PathBuf {
    ctx.settings.paths.root.join(STATE_FILE)
}

pub(crate) struct ShutdownTask {
    ctx: Arc<Context>,
    pods: PodsView,
    admissions: Admissions,
    termination_requests: TerminationRequests,
    port: Arc<dyn Shutdown>,
    shown: watch::Sender<bool>,
    /// What is explained about it.
    view: watch::Sender<ShutdownView>,
    /// The inhibit lock, which the drain takes over and drops at its end.
    lock: Option<Box<dyn ShutdownLock>>,
    drain: JoinSet<()>,
    /// The last logged connection error.
    last_error: Option<String>,
    retry: RetryDelay,
}

impl ShutdownTask {
    pub(crate) fn new(handles: &PodHandles, port: Arc<dyn Shutdown>, shown: watch::Sender<bool>) -> Self {
        Self {
            ctx: handles.ctx.clone(),
            pods: handles.pods.clone(),
            admissions: handles.resources.admissions.clone(),
            termination_requests: handles.termination_requests.clone(),
            port,
            shown,
            view: handles.node.shutdown.clone(),
            lock: None,
            drain: JoinSet::new(),
            last_error: None,
            retry: RetryDelay::new(PAUSE, MAX_PAUSE),
        }
    }

    /// Runs until dropped.
    pub(crate) async fn run(mut self) {
        self.load_times().await;
        loop {
            let Err(error) = self.follow().await;
            self.report_error(error.to_string());
            self.ctx.clock.sleep_until(self.ctx.clock.mono() + self.retry.take()).await;
        }
    }

    /// Loads the times of the last shutdown that an earlier run of the kubelet saved, for the metrics.
    async fn load_times(&self) {
        const LIMIT: usize = 4096;
        if !self.ctx.node_facts.features.graceful_shutdown_by_priority {
            return;
        }
        let path = state_path(&self.ctx);
        match self.ctx.files.read_file(&path, LIMIT, false).await {
            Ok(text) => match ShutdownTimes::parse(&text) {
                Some(times) => self.ctx.metrics.get::<ShutdownMetrics>().set(times),
                None => {
                    tracing::warn!(path = %path.display(), "Failed to read graceful shutdown state")
                }
            },
            Err(error) if error.is_not_found() => {}
            Err(error) => {
                tracing::warn!(err = chain(&error), "Failed to read graceful shutdown state")
            }
        }
    }

    /// Watches one connection until it fails.
    async fn follow(&mut self) -> ShutdownResult<std::convert::Infallible> {
        let mut watch = self.port.watch().await?;
        self.ensure_delay(&mut *watch).await?;
        let mut is_new = true;
        loop {
            let is_ending = watch.is_ending().await?;
            let was_ending = *self.shown.borrow();
            match compute_shutdown_change(was_ending, is_ending) {
                ShutdownChange::Unchanged => {}
                ShutdownChange::Begin => self.begin(),
                ShutdownChange::Cancel => self.cancel().await,
            }
            // A lock from an earlier logind process has no effect.
            if !is_ending && (is_new || self.lock.is_none()) {
                self.lock = Some(watch.inhibit().await?);
            }
            if std::mem::take(&mut is_new) {
                self.report_watching();
            }
            tokio::select! {
                hint = watch.hint() => hint?,
                Some(ended) = self.drain.join_next(), if !self.drain.is_empty() => report_panic(ended),
            }
        }
    }

    /// Ensures that logind allows a delay as long as the grace periods of all pods.
    async fn ensure_delay(&self, watch: &mut dyn ShutdownWatch) -> ShutdownResult<()> {
        let needed = compute_delay(&configured_periods(&self.ctx));
        if watch.max_delay().await? >= needed {
            return Ok(());
        }
        self.write_drop_in(needed).await.map_err(|error| failed(chain(&error)))?;
        watch.reload().await?;
        for pause in RELOAD_PAUSES {
            if watch.max_delay().await? >= needed {
                return Ok(());
            }
            self.ctx.clock.sleep_until(self.ctx.clock.mono() + pause).await;
        }
        let longest = watch.max_delay().await?;
        if longest >= needed {
            return Ok(());
        }
        let path = self.ctx.settings.paths.logind_drop_in.display();
        Err(failed(format!(
            "InhibitDelayMaxSec is {} s although {path} sets {} s; another drop-in may override it",
            longest.as_secs(),
            needed.as_secs()
        )))
    }

    async fn write_drop_in(&self, delay: Duration) -> Result<(), HostError> {
        let (files, path) = (&self.ctx.files, &self.ctx.settings.paths.logind_drop_in);
        if let Some(dir) = path.parent() {
            files.ensure_dir(dir, 0o755).await?;
        }
        files.write_file(path, logind_drop_in(delay).as_bytes(), 0o644).await
    }

    /// No pod is admitted once the shutdown is published, so that the drain sees all admitted pods.
    fn begin(&mut self) {
        let needed = compute_delay(&configured_periods(&self.ctx));
        let ends_by = self.ctx.clock.now().wall.checked_add(needed).ok();
        self.view.send_modify(|view| view.ends_by = ends_by);
        self.shown.send_replace(true);
        self.ctx.recorder.node_normal(EVENT, DETECTED);
        let drain = Drain {
            ctx: self.ctx.clone(),
            pods: self.pods.clone(),
            admissions: self.admissions.clone(),
            termination_requests: self.termination_requests.clone(),
            lock: self.lock.take(),
        };
        self.drain.spawn(drain.run());
    }

    /// The shutdown was cancelled. Pods that were requested to terminate do so; the others keep running.
    async fn cancel(&mut self) {
        self.view.send_modify(|view| view.ends_by = None);
        self.shown.send_replace(false);
        self.ctx.recorder.node_normal(EVENT, CANCELLED);
        while let Some(ended) = self.drain.try_join_next() {
            report_panic(ended);
        }
        if !self.drain.is_empty() {
            self.drain.shutdown().await;
            record_times(&self.ctx, |times| times.ended = Some(self.ctx.clock.now().wall)).await;
        }
    }

    fn report_watching(&mut self) {
        self.retry.reset();
        self.last_error = None;
        self.view.send_modify(|view| view.error = None);
        tracing::info!(
            is_held_up = self.lock.is_some(),
            delay = ?compute_delay(&configured_periods(&self.ctx)),
            "Acquired the shutdown inhibit lock, graceful node shutdown is active"
        );
    }

    fn report_error(&mut self, why: String) {
        self.view.send_modify(|view| view.error = Some(why.clone()));
        if self.last_error.as_ref() != Some(&why) {
            tracing::error!(err = why, "Lost connection to logind, graceful node shutdown is inactive");
            self.last_error = Some(why);
        }
    }
}

const fn failed(why: String) -> ShutdownError {
    ShutdownError { what: "raise InhibitDelayMaxSec of logind", why }
}

fn report_panic(ended: Result<(), JoinError>) {
    if ended.is_err_and(|error| error.is_panic()) {
        tracing::error!("Graceful node shutdown panicked, releasing the inhibit lock");
    }
}
