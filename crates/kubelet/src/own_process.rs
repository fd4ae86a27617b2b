//! This process, for its debugging endpoints: what the kernel and the runtime of our tasks tell of it.

use std::sync::Arc;

use config::{KubeletConfiguration, NodeFlags};
use jiff::Timestamp;
use ports::OwnProcess;
use ports::node_api::ThreadFacts;

use crate::logging;

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
        config::flags::shown(&self.config, &self.flags)
    }

    fn started(&self) -> Timestamp {
        self.started
    }

    fn command_line(&self) -> Vec<String> {
        std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect()
    }

    fn set_verbosity(&self, level: u32) {
        logging::set_verbosity(level);
        tracing::info!(level, "The log has another verbosity now");
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
