//! Reads container logs: backwards from the end if only the last lines are requested, and across rotations if the client
//! follows, until the container ends. Which lines are sent is decided in `kubelet_core`.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base_agent::context::Context;
use base_agent::error_chain::chain;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use logs_core::container_log::{LogFilter, LogInstance, LogReader, TailSearch, find_instance};
use model::containers::find_container;
use model::{ContainerId, ContainerState, PodUid};
use ports::HostError;
use ports::host::{FileIdentity, OpenFile};
use ports::node_api::{LogPieces, LogSource, LogStream, LogView, PodRefusal};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::serving::pod_lookup::PodLookup;

/// Size of one read.
const PIECE_BYTES: usize = 64 << 10;
/// How often a followed log is polled without a notification.
const POLL_PERIOD: Duration = Duration::from_secs(1);
/// Followers that use an inotify watch, of which a machine has few. Further ones only poll.
pub(crate) const MAX_WATCHES: usize = 32;

/// Opens the log and returns the requested part as a stream. Links are followed, because cri-dockerd has symlinks at the
/// paths of logs; only root can create one there, or a pod that mounts the log directory of the host for writing.
pub(crate) async fn open(
    lookup: &PodLookup,
    watches: &Arc<Semaphore>,
    source: &LogSource,
    view: &LogView,
) -> Result<LogPieces, PodRefusal> {
    let entry = lookup.pod(&source.namespace, &source.pod)?;
    if find_container(&entry.pod, &source.container).is_none() {
        let text = format!("container {:?} not found in pod {:?}", source.container, source.pod);
        return Err(PodRefusal::NotFound(text));
    }
    let instance = find_instance(&entry.status, &source.pod, &source.container, source.previous);
    let instance = instance.map_err(PodRefusal::Invalid)?;
    let uid = entry.identity.uid.clone();
    let path = log_path(lookup, &uid, &instance).await?;
    let failed = |error: HostError| PodRefusal::Failed(chain(&error));
    let ctx = &lookup.ctx;
    let file = ctx.files.open_file(&path).await.map_err(failed)?;
    let size = file.size_bytes().await.map_err(failed)?;
    let start = match view.tail_lines {
        Some(lines) => find_tail(&*file, size, lines).await.map_err(failed)?,
        None => 0,
    };
    let hints = if view.follow { watch(ctx, watches, &path).await } else { stream::pending().boxed() };
    let pump = Pump {
        lookup: lookup.clone(),
        uid,
        container: instance.id,
        path,
        file,
        offset: start,
        end: (!view.follow).then_some(size),
        successor: None,
        has_ended: !instance.is_running,
        is_over: false,
        reader: LogReader::new(filter(view)),
        hints,
    };
    Ok(stream::unfold(pump, |mut pump| async move { Some((pump.next().await?, pump)) }).boxed())
}

fn filter(view: &LogView) -> LogFilter {
    LogFilter {
        since: view.since,
        timestamps: view.timestamps,
        stream: view.stream.map(|stream| match stream {
            LogStream::Stdout => "stdout",
            LogStream::Stderr => "stderr",
        }),
        limit_bytes: view.limit_bytes,
    }
}

/// Path of the log, which must be below the directory of pod logs.
async fn log_path(lookup: &PodLookup, uid: &PodUid, instance: &LogInstance) -> Result<PathBuf, PodRefusal> {
    let observed = lookup.cache.get(uid).and_then(|pod| {
        let container = pod.containers.iter().find(|container| container.id == instance.id)?;
        Some(container.log_path.clone())
    });
    let path = match observed {
        Some(path) => path,
        None => {
            let status = lookup.ctx.runtime.container_status(&instance.id).await;
            status.map_err(|error| PodRefusal::Failed(error.to_string()))?.log_path
        }
    };
    let (path, root) = (PathBuf::from(path), lookup.ctx.pod_logs());
    let is_plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if is_plain && path.starts_with(root) {
        return Ok(path);
    }
    let text = format!("log path {:?} is not below {}", path.display(), root.display());
    Err(PodRefusal::Failed(text))
}

async fn find_tail(file: &dyn OpenFile, size: u64, lines: u64) -> Result<u64, HostError> {
    let mut search = TailSearch::new(size, lines);
    while let Some((offset, length)) = search.next_block() {
        search.feed(&file.read_at(offset, length).await?);
    }
    Ok(search.start())
}

/// Notifies of changes in the directory of the log, as long as watches are available.
async fn watch(ctx: &Context, watches: &Arc<Semaphore>, path: &Path) -> BoxStream<'static, ()> {
    let permit: Option<OwnedSemaphorePermit> = Arc::clone(watches).try_acquire_owned().ok();
    let Some((permit, dir)) = permit.zip(path.parent()) else { return stream::pending().boxed() };
    match ctx.files.watch(dir).await {
        Ok(hints) => hints
            .map(move |_| {
                let _as_long_as_it_watches = &permit;
            })
            .boxed(),
        Err(_) => stream::pending().boxed(),
    }
}

/// The state of one reader of a log.
struct Pump {
    lookup: PodLookup,
    uid: PodUid,
    container: ContainerId,
    path: PathBuf,
    file: Box<dyn OpenFile>,
    offset: u64,
    /// Without `follow`, the size of the log at the time of the request.
    end: Option<u64>,
    /// The new file after a rotation; read when the current one is at its end.
    successor: Option<Box<dyn OpenFile>>,
    /// The container has ended: the log will not grow.
    has_ended: bool,
    is_over: bool,
    reader: LogReader,
    hints: BoxStream<'static, ()>,
}

impl Pump {
    async fn next(&mut self) -> Option<Result<Vec<u8>, String>> {
        while !self.is_over {
            match self.advance().await {
                Ok(shown) if shown.is_empty() => {}
                Ok(shown) => return Some(Ok(shown)),
                Err(error) => {
                    self.is_over = true;
                    return Some(Err(chain(&error)));
                }
            }
        }
        None
    }

    /// Reads a piece, or handles the end of the file.
    async fn advance(&mut self) -> Result<Vec<u8>, HostError> {
        let piece = self.file.read_at(self.offset, self.most()).await?;
        if !piece.is_empty() {
            self.offset = self.offset.saturating_add(u64::try_from(piece.len()).unwrap_or(u64::MAX));
            let shown = self.reader.feed(&piece);
            self.is_over = self.reader.is_full();
            return Ok(shown);
        }
        if let Some(successor) = self.successor.take() {
            (self.file, self.offset) = (successor, 0);
        } else if self.end.is_some() {
            self.is_over = true;
            return Ok(self.reader.finish());
        } else if let Some(successor) =
            find_successor(&self.lookup.ctx, &self.path, self.file.identity()).await?
        {
            // The last lines may have been written to the old file since it was read.
            self.successor = Some(successor);
        } else if self.has_ended {
            self.is_over = true;
            return Ok(self.reader.finish());
        } else if !self.may_still_write() {
            self.has_ended = true;
        } else {
            self.wait().await;
        }
        Ok(Vec::new())
    }

    fn most(&self) -> usize {
        let left = self.end.map(|end| end.saturating_sub(self.offset));
        left.map_or(PIECE_BYTES, |left| usize::try_from(left).unwrap_or(PIECE_BYTES).min(PIECE_BYTES))
    }

    fn may_still_write(&self) -> bool {
        let Some(pod) = self.lookup.cache.get(&self.uid) else { return false };
        let state = pod.containers.iter().find(|c| c.id == self.container).map(|c| c.state);
        match state {
            Some(ContainerState::Created | ContainerState::Running | ContainerState::Unknown) => true,
            Some(ContainerState::Exited) | None => false,
        }
    }

    async fn wait(&mut self) {
        let clock = self.lookup.ctx.clock;
        tokio::select! {
            Some(()) = self.hints.next() => {}
            () = clock.sleep_until(clock.mono() + POLL_PERIOD) => {}
        }
    }
}

/// Another file with the same name. Between a rotation and the runtime's next line there may be none.
async fn find_successor(
    ctx: &Context,
    path: &Path,
    present: FileIdentity,
) -> Result<Option<Box<dyn OpenFile>>, HostError> {
    match ctx.files.open_file(path).await {
        Ok(file) if file.identity() == present => Ok(None),
        Ok(file) => Ok(Some(file)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}
