//! Facts about this process from the kernel and the task runtime, for its debugging endpoints.

use std::sync::Arc;
use std::time::Duration;

use base_agent::pods_view::PodsView;
use config::{KubeletConfiguration, NodeFlags};
use jiff::Timestamp;
use model::MonoTime;
use ports::node_api::ThreadFacts;
use ports::{Clock, OwnProcess};
use tokio::sync::watch;

use crate::logging;

/// How long after a change the memory is released that it needed, together with that of later ones.
const RELEASE_AFTER: Duration = Duration::from_secs(10);
/// How long after a change memory is released once more, because some was still in use the first time: by events that waited for the API
/// server, and by samples of disks, which are kept for a minute.
const RELEASE_AGAIN_AFTER: Duration = Duration::from_secs(120);
/// A stream has about 100 kB: fewer are not worth the work.
const MIN_STREAMS: usize = 16;

/// What has memory that it leaves behind in the heap.
#[derive(Clone, Copy, Debug, Default)]
struct Holders {
    pods: usize,
    /// Requests and streams at the main port; before a release, the most since the last one.
    requests: usize,
}

impl Holders {
    /// The start of pods leaves as much free memory as their end.
    const fn leave_memory(self, now: Self) -> bool {
        now.pods != self.pods || now.requests + MIN_STREAMS <= self.requests
    }
}

/// Releases free memory after the start and after the number of pods has changed, or when there are far fewer `requests` than before.
/// Runs until dropped.
pub(crate) async fn release_free_memory(pods: PodsView, mut requests: watch::Receiver<usize>, clock: Clock) {
    let mut changes = pods.changes();
    let (mut before, mut release_at) = (Holders::default(), Some(clock.mono() + RELEASE_AFTER));
    loop {
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return },
            () = changed(&mut requests) => {}
            () = reached(clock, release_at) => {
                host::process::release_free_memory();
                release_at = None;
                continue;
            }
        }
        let now = Holders { pods: pods.count(), requests: *requests.borrow_and_update() };
        if !before.leave_memory(now) {
            before.requests = before.requests.max(now.requests);
            continue;
        }
        let changed_at = clock.mono();
        clock.sleep_until(changed_at + RELEASE_AFTER).await;
        host::process::release_free_memory();
        release_at = Some(changed_at + RELEASE_AGAIN_AFTER);
        before = Holders { pods: pods.count(), requests: *requests.borrow() };
    }
}

/// Resolves at that time; never without one.
async fn reached(clock: Clock, at: Option<MonoTime>) {
    match at {
        Some(at) => clock.sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Resolves with the next change; never, if nothing is served.
async fn changed(requests: &mut watch::Receiver<usize>) {
    if requests.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

#[derive(Debug)]
pub(crate) struct RunningProcess {
    config: Arc<KubeletConfiguration>,
    flags: NodeFlags,
    started: Timestamp,
}

impl RunningProcess {
    pub(crate) const fn new(config: Arc<KubeletConfiguration>, flags: NodeFlags, started: Timestamp) -> Self {
        Self { config, flags, started }
    }
}

impl OwnProcess for RunningProcess {
    fn flags(&self) -> Vec<(String, String)> {
        config::flags::effective(&self.config, &self.flags)
    }

    fn started(&self) -> Timestamp {
        self.started
    }

    fn command_line(&self) -> Vec<String> {
        std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect()
    }

    fn set_verbosity(&self, level: u32) {
        logging::set_verbosity(level);
        tracing::info!(level, "Changed log verbosity");
    }

    fn threads(&self) -> Vec<ThreadFacts> {
        host::process::threads()
    }

    fn tasks(&self) -> usize {
        tokio::runtime::Handle::try_current().map_or(0, |runtime| runtime.metrics().num_alive_tasks())
    }

    fn memory(&self) -> Vec<(String, u64)> {
        host::process::memory()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_released_after_pods_have_changed_or_many_streams_have_ended() {
        let before = Holders { pods: 3, requests: 20 };
        let leave = |pods, requests| before.leave_memory(Holders { pods, requests });
        assert!(leave(4, 20) && leave(2, 20), "a pod more, a pod less");
        assert!(leave(3, 4) && !leave(3, 5), "16 streams have ended, or fewer");
        assert!(!leave(3, 1000), "more streams");
    }
}
