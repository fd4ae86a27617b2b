//! Logs of the node's services: files below the log directory, and the journal. Which of them a query refers to is decided in
//! `kubelet_core`.

use std::io::ErrorKind;
use std::path::{Component, Path};
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt, TryStreamExt};
use logs_core::node_logs::{UNITS, file_names, journal_arguments, part};
use model::NodeLogOptions;
use ports::HostError;
use ports::host::{HostResult, OpenFile};
use ports::node_api::{LogPieces, SystemLog, SystemLogError};
use tokio::sync::Semaphore;

use base_agent::context::Context;
use base_agent::error_chain::chain;

/// Timeout of a journal query.
const DEADLINE: Duration = Duration::from_secs(30);
/// Limit for the list of units.
const MAX_UNITS_BYTES: usize = 1 << 20;
const PIECE_BYTES: usize = 64 << 10;

/// Opens that path below the log directory. Links are followed wherever they lead, as in the Go kubelet: logs of containers
/// are symlinks.
pub(crate) async fn open(ctx: &Context, inside: &Path) -> Result<SystemLog, SystemLogError> {
    if inside.components().any(|part| !matches!(part, Component::Normal(_))) {
        return Err(SystemLogError::NotFound);
    }
    let (files, path) = (&ctx.files, ctx.settings.paths.system_logs.join(inside));
    let facts = files.metadata(&path).await.map_err(refusal)?;
    if facts.is_dir {
        let entries = files.list_dir(&path).await.map_err(refusal)?;
        return Ok(SystemLog::Directory { modified: facts.modified, entries });
    }
    let file = files.open_file(&path).await.map_err(refusal)?;
    let size_bytes = file.size_bytes().await.map_err(refusal)?;
    Ok(SystemLog::File { modified: facts.modified, size_bytes, file })
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn refusal(error: HostError) -> SystemLogError {
    let kind = match &error {
        HostError::Io { source, .. } => source.kind(),
        HostError::Invalid(_) | HostError::NotFinished(_) => ErrorKind::Other,
    };
    if matches!(kind, ErrorKind::NotFound | ErrorKind::NotADirectory) {
        SystemLogError::NotFound
    } else if kind == ErrorKind::PermissionDenied {
        SystemLogError::Denied
    } else {
        SystemLogError::Failed(chain(&error))
    }
}

/// Concurrent journal queries, each with one process of `journalctl`. Each ends after [`DEADLINE`].
pub(crate) const MAX_JOURNAL_QUERIES: usize = 4;

/// The logs of these services. Errors are part of the text, in place of the log.
pub(crate) async fn of_services(
    ctx: &Context,
    queries: &Arc<Semaphore>,
    services: &[String],
    options: &NodeLogOptions,
) -> LogPieces {
    let Ok(permit) = queries.clone().try_acquire_owned() else {
        let error = format!("the limit of {MAX_JOURNAL_QUERIES} concurrent journal queries is reached");
        return once_text(format!("\nerror: {error}\n")).map_err(|error| chain(&error)).boxed();
    };
    let deadline = tokio::time::sleep(DEADLINE);
    let units = tokio::time::timeout(DEADLINE, units(ctx)).await.unwrap_or_default();
    let (in_journal, in_files) = part(services, &units);
    let mut parts = Vec::new();
    if !in_journal.is_empty() {
        let journal = ctx.processes.journal(&journal_arguments(&in_journal, options)).await;
        parts.push(
            journal.unwrap_or_else(|_| once_text("\nerror: journal output not available\n".to_owned())),
        );
    }
    if *options == NodeLogOptions::default() {
        for service in in_files {
            parts.push(of_files(ctx, service).await);
        }
    } else if !in_files.is_empty() {
        parts.push(once_text(format!(
            "\noptions present and query resolved to log files for [{}]\ntry without specifying options\n",
            in_files.join(" ")
        )));
    }
    let pieces = stream::iter(parts).flatten().take_until(deadline);
    let with_permit = pieces.map_err(move |error| {
        let _until_the_stream_is_dropped = &permit;
        chain(&error)
    });
    with_permit.boxed()
}

/// The names of all units in the journal; empty without a journal.
async fn units(ctx: &Context) -> String {
    let mut names = Vec::new();
    if let Ok(mut pieces) = ctx.processes.journal(&UNITS.map(str::to_owned)).await {
        while let Some(Ok(piece)) = pieces.next().await {
            names.extend(piece);
            if names.len() > MAX_UNITS_BYTES {
                break;
            }
        }
    }
    String::from_utf8_lossy(&names).into_owned()
}

async fn of_files(ctx: &Context, service: &str) -> BoxStream<'static, HostResult<Vec<u8>>> {
    for name in file_names(service) {
        match ctx.files.open_below(&ctx.settings.paths.system_logs, &name).await {
            Ok(file) => return whole(file),
            // The log may be in a directory with the name of the service.
            Err(HostError::Invalid(_) | HostError::NotFinished(_)) => {}
            Err(error) if error.is_not_found() => {}
            Err(error) => {
                return once_text(format!("\nerror getting log for {service}: {}\n", chain(&error)));
            }
        }
    }
    once_text(format!("\nlog not found for {service}\n"))
}

fn whole(file: Box<dyn OpenFile>) -> BoxStream<'static, HostResult<Vec<u8>>> {
    stream::try_unfold((file, 0), |(file, offset)| async move {
        let piece = file.read_at(offset, PIECE_BYTES).await?;
        let next = offset.saturating_add(u64::try_from(piece.len()).unwrap_or(u64::MAX));
        Ok((!piece.is_empty()).then_some((piece, (file, next))))
    })
    .boxed()
}

fn once_text(text: String) -> BoxStream<'static, HostResult<Vec<u8>>> {
    stream::iter([Ok(text.into_bytes())]).boxed()
}
