//! Log rotation: a log that is too large is renamed, the runtime opens a new one, older ones are compressed and the oldest
//! removed. The steps are decided in `logs_core::log_rotation`.

use std::path::Path;
use std::sync::Arc;

use futures_util::StreamExt;
use logs_core::log_rotation::{LogFile, LogPolicy, LogStep, compute_log_rotation};
use model::{ContainerObservation, ContainerState};
use ports::HostError;

use base_agent::cache::PodCache;
use base_agent::context::Context;
use base_agent::error_chain::chain;

#[derive(Debug)]
pub struct LogRotation {
    ctx: Arc<Context>,
    cache: PodCache,
}

impl LogRotation {
    #[must_use]
    pub const fn new(ctx: Arc<Context>, cache: PodCache) -> Self {
        Self { ctx, cache }
    }

    /// Runs until dropped.
    pub async fn run(self) {
        let config = self.ctx.config();
        let period = config.container_log_monitor_interval.as_std();
        let workers = usize::try_from(config.container_log_max_workers).unwrap_or(1).max(1);
        loop {
            self.ctx.clock.sleep_until(self.ctx.clock.mono() + period).await;
            let pods = self.cache.in_runtime().into_iter();
            let all = pods.flat_map(|pod| (0..pod.containers.len()).map(move |index| (pod.clone(), index)));
            let checks =
                futures_util::stream::iter(all).for_each_concurrent(workers, async |(pod, index)| {
                    let running = pod.containers.get(index).filter(|c| c.state == ContainerState::Running);
                    if let Some(container) = running {
                        self.check(container).await;
                    }
                });
            checks.await;
        }
    }

    async fn check(&self, container: &ContainerObservation) {
        let log = Path::new(&container.log_path);
        let (Some(dir), Some(live)) = (log.parent(), log.file_name().and_then(|n| n.to_str())) else {
            return;
        };
        let entries = match self.ctx.files.list_dir(dir).await {
            Ok(entries) => entries,
            // The directory of a container that is being removed may be gone; the next check does not have that container.
            Err(error) if error.is_not_found() => return,
            Err(error) => {
                tracing::warn!(log = %log.display(), err = chain(&error), "Failed to list container logs");
                return;
            }
        };
        let files: Vec<LogFile> =
            entries.into_iter().map(|e| LogFile { name: e.name, size_bytes: e.size_bytes }).collect();
        let config = self.ctx.config();
        let policy = LogPolicy {
            bytes_max: u64::try_from(config.container_log_max_bytes()).unwrap_or(0),
            files_max: usize::try_from(config.container_log_max_files).unwrap_or(2),
        };
        let now = self.ctx.clock.now().wall.to_zoned(self.ctx.settings.time_zone.clone()).datetime();
        for step in compute_log_rotation(live, &files, policy, now) {
            if let Err(why) = self.execute(dir, container, &step).await {
                tracing::warn!(log = %log.display(), ?step, err = why, "Failed to rotate log for container");
                return;
            }
        }
    }

    async fn execute(
        &self,
        dir: &Path,
        container: &ContainerObservation,
        step: &LogStep,
    ) -> Result<(), String> {
        let files = &self.ctx.files;
        let text = |error: HostError| chain(&error);
        match step {
            LogStep::Remove { file, .. } => files.remove_file(&dir.join(file)).await.map_err(text),
            LogStep::Compress { file } => files.compress(&dir.join(file)).await.map_err(text),
            LogStep::Reopen => {
                self.ctx.runtime.reopen_log(&container.id).await.map_err(|error| error.to_string())
            }
            LogStep::Rotate { from, to } => {
                let (from, to) = (dir.join(from), dir.join(to));
                files.rename(&from, &to).await.map_err(text)?;
                let Err(error) = self.ctx.runtime.reopen_log(&container.id).await else {
                    return Ok(());
                };
                // The runtime still writes to the old file, so its name is restored.
                files.rename(&to, &from).await.map_err(text)?;
                Err(error.to_string())
            }
        }
    }
}
