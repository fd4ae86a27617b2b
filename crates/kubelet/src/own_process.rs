//! Facts about this process from the kernel and the task runtime, for its debugging endpoints.

use std::sync::Arc;
use std::time::Duration;

use agent::pods_view::PodsView;
use config::{KubeletConfiguration, NodeFlags};
use jiff::Timestamp;
use ports::node_api::ThreadFacts;
use ports::{Clock, OwnProcess};

use crate::logging;

/// How long after pods were added or removed the memory is released that this needed, together with that of later ones.
const RELEASE_AFTER: Duration = Duration::from_secs(10);

/// Releases free memory after the number of pods has changed. Runs until dropped.
pub(crate) async fn release_memory_after_changes(pods: PodsView, clock: Clock) {
    let mut changes = pods.changes();
    let mut count = 0;
    while changes.changed().await.is_ok() {
        if pods.count() == count {
            continue;
        }
        clock.sleep_until(clock.mono() + RELEASE_AFTER).await;
        host::process::release_free_memory();
        count = pods.count();
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
