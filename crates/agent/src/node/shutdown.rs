//! Waits for the end of the machine to be announced, and holds it up until the pods have ended
//! (docs/behaviour/node-shutdown.md).
//!
//! Owns whether the machine is about to end, as far as anybody knows, and the lock that holds it up. An announcement is only
//! a hint: each time the announcer is asked how it is. While it does not answer everything stays as it was. How pods end is
//! decided in `kubelet_core::shutdown` and carried out by [`drain`]. Not started where no period is configured.

mod drain;

use std::sync::Arc;
use std::time::Duration;

use kubelet_core::shutdown::{
    CANCELLED, DETECTED, EVENT, ShutdownTimes, Turn, compute_delay, compute_turn, logind_drop_in,
};
use ports::shutdown::{ShutdownLock, ShutdownResult, ShutdownWatch};
use ports::{HostError, Shutdown, ShutdownError};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};

use self::drain::{Drain, note_times};
use crate::context::Context;
use crate::error_chain::chain;
use crate::pods_view::PodsView;
use crate::resources::admissions::Admissions;

/// A connection that is lost is made again after this long, then twice as long each time, up to the second figure.
const PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(60);
/// What was configured is looked for before the first and after each of these.
const RELOAD_PAUSES: [Duration; 4] = [
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(400),
    Duration::from_millis(800),
];

pub(crate) struct ShutdownTask {
    ctx: Arc<Context>,
    pods: PodsView,
    admissions: Admissions,
    port: Arc<dyn Shutdown>,
    shown: watch::Sender<bool>,
    /// Given to the drain when that begins, which drops it when it is done.
    lock: Option<Box<dyn ShutdownLock>>,
    drain: JoinSet<()>,
    /// Why nobody would tell us of the end, as logged last.
    trouble: Option<String>,
    pause: Duration,
}

impl ShutdownTask {
    pub(crate) fn new(
        ctx: Arc<Context>,
        (pods, admissions): (PodsView, Admissions),
        port: Arc<dyn Shutdown>,
        shown: watch::Sender<bool>,
    ) -> Self {
        Self {
            ctx,
            pods,
            admissions,
            port,
            shown,
            lock: None,
            drain: JoinSet::new(),
            trouble: None,
            pause: PAUSE,
        }
    }

    /// Runs until dropped.
    pub(crate) async fn run(mut self) {
        self.remember().await;
        loop {
            let Err(error) = self.follow().await;
            self.report_trouble(error.to_string());
            self.ctx.clock.sleep_until(self.ctx.clock.mono() + self.pause).await;
            self.pause = (self.pause * 2).min(MAX_PAUSE);
        }
    }

    /// What an earlier kubelet kept, for the metrics.
    async fn remember(&self) {
        const LIMIT: usize = 4096;
        let settings = &self.ctx.settings;
        if !settings.shutdown.keeps_times {
            return;
        }
        let path = settings.paths.shutdown_state();
        match self.ctx.files.read_file(&path, LIMIT, false).await {
            Ok(text) => match ShutdownTimes::parse(&text) {
                Some(times) => self.ctx.metrics.shutdown.set(times),
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

    /// One connection, for as long as it holds.
    async fn follow(&mut self) -> ShutdownResult<std::convert::Infallible> {
        let mut watch = self.port.watch().await?;
        self.ensure_delay(&mut *watch).await?;
        let mut is_new = true;
        loop {
            let is_ending = watch.is_ending().await?;
            let was_ending = *self.shown.borrow();
            match compute_turn(was_ending, is_ending) {
                Turn::Stay => {}
                Turn::Begin => self.begin(),
                Turn::TakeBack => self.take_back().await,
            }
            // One that was taken from somebody who is gone holds up nothing.
            if !is_ending && (is_new || self.lock.is_none()) {
                self.lock = Some(watch.hold_up().await?);
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

    /// Sees to it that the end can be held up for as long as all pods may take.
    async fn ensure_delay(&self, watch: &mut dyn ShutdownWatch) -> ShutdownResult<()> {
        let settings = &self.ctx.settings.shutdown;
        let needed = compute_delay(&settings.periods);
        if watch.longest_delay().await? >= needed {
            return Ok(());
        }
        self.write_drop_in(needed).await.map_err(|error| failed(chain(&error)))?;
        watch.reload().await?;
        for pause in RELOAD_PAUSES {
            if watch.longest_delay().await? >= needed {
                return Ok(());
            }
            self.ctx.clock.sleep_until(self.ctx.clock.mono() + pause).await;
        }
        let longest = watch.longest_delay().await?;
        if longest >= needed {
            return Ok(());
        }
        let path = settings.logind_drop_in.display();
        Err(failed(format!(
            "InhibitDelayMaxSec is {} s, although {path} says {} s; another drop-in may come after it",
            longest.as_secs(),
            needed.as_secs()
        )))
    }

    async fn write_drop_in(&self, delay: Duration) -> Result<(), HostError> {
        let (files, path) = (&self.ctx.files, &self.ctx.settings.shutdown.logind_drop_in);
        if let Some(dir) = path.parent() {
            files.ensure_dir(dir, 0o755).await?;
        }
        files.write_file(path, logind_drop_in(delay).as_bytes(), 0o644).await
    }

    /// From the moment that this is shown no pod is admitted any more, so the drain sees all that were.
    fn begin(&mut self) {
        self.shown.send_replace(true);
        self.ctx.recorder.node_normal(EVENT, DETECTED);
        let drain = Drain {
            ctx: self.ctx.clone(),
            pods: self.pods.clone(),
            admissions: self.admissions.clone(),
            lock: self.lock.take(),
        };
        self.drain.spawn(drain.run());
    }

    /// Pods that were told to end do so; the others stay.
    async fn take_back(&mut self) {
        self.shown.send_replace(false);
        self.ctx.recorder.node_normal(EVENT, CANCELLED);
        while let Some(ended) = self.drain.try_join_next() {
            report_panic(ended);
        }
        if !self.drain.is_empty() {
            self.drain.shutdown().await;
            note_times(&self.ctx, |times| times.ended = Some(self.ctx.clock.now().wall)).await;
        }
    }

    fn report_watching(&mut self) {
        self.pause = PAUSE;
        self.trouble = None;
        tracing::info!(
            is_held_up = self.lock.is_some(),
            delay = ?compute_delay(&self.ctx.settings.shutdown.periods),
            "Acquired the shutdown inhibit lock, graceful node shutdown is active"
        );
    }

    fn report_trouble(&mut self, why: String) {
        if self.trouble.as_ref() != Some(&why) {
            tracing::error!(err = why, "Lost connection to logind, graceful node shutdown is inactive");
            self.trouble = Some(why);
        }
    }
}

const fn failed(why: String) -> ShutdownError {
    ShutdownError { what: "raise the time that logind waits", why }
}

fn report_panic(ended: Result<(), JoinError>) {
    if ended.is_err_and(|error| error.is_panic()) {
        tracing::error!("Graceful node shutdown panicked, releasing the inhibit lock");
    }
}
