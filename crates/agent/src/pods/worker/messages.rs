//! What containers leave behind when they end: their termination message, and the numbers of their log files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use base_agent::context::Context;
use logs_core::log_paths;
use model::{ContainerId, ContainerObservation, ContainerState, PodObservation, PodRef};

use crate::log_tail::read_log_tail;
use base_agent::pod_files::termination_log_path;

/// Longest message taken from a container's file.
const MESSAGE_LIMIT: usize = 4096;

/// Reads the messages of containers that have ended since the last observation.
pub(super) async fn read_new(
    ctx: &Context,
    pod: &PodRef,
    observed: &PodObservation,
    known: &mut BTreeMap<ContainerId, String>,
) {
    for container in &observed.containers {
        let is_new = container.state == ContainerState::Exited && !known.contains_key(&container.id);
        if is_new {
            known.insert(container.id.clone(), read(ctx, pod, container).await);
        }
    }
}

async fn read(ctx: &Context, pod: &PodRef, container: &ContainerObservation) -> String {
    let record = &container.record;
    let dir = ctx.settings.paths.pod(&pod.uid);
    // This file alone is mounted into the container, which can therefore not put a link in its place.
    let own = termination_log_path(&dir, &container.name, record.restart_count);
    let reported = PathBuf::from(&container.message_file);
    let is_of_container = reported.parent() == own.parent() && reported.file_name().is_some();
    let file = if is_of_container { reported } else { own };
    let bytes = ctx.files.read_file(&file, MESSAGE_LIMIT, false).await.unwrap_or_default();
    let failed_at_work = container.exit_code != 0 && container.reason != "ContainerCannotRun";
    if bytes.is_empty() && record.termination_message_policy == "FallbackToLogsOnError" && failed_at_work {
        return read_log_tail(&*ctx.files, Path::new(&container.log_path)).await;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The observation with the messages added; borrowed if there are none.
pub(super) fn with_messages<'a>(
    observed: &'a PodObservation,
    messages: &BTreeMap<ContainerId, String>,
) -> std::borrow::Cow<'a, PodObservation> {
    if messages.values().all(String::is_empty) {
        return std::borrow::Cow::Borrowed(observed);
    }
    let mut observed = observed.clone();
    for container in &mut observed.containers {
        if let Some(message) = messages.get(&container.id).filter(|m| !m.is_empty()) {
            container.message.clone_from(message);
        }
    }
    std::borrow::Cow::Owned(observed)
}

/// For each container, the number its next log file would get.
pub(super) async fn log_restarts(ctx: &Context, pod: &PodRef) -> BTreeMap<String, u32> {
    let root = log_paths::pod_log_dir(&ctx.config().pod_logs_dir, pod);
    let mut restarts = BTreeMap::new();
    for dir in ctx.files.list_dir(root.as_ref()).await.unwrap_or_default() {
        let files = ctx.files.list_dir(&Path::new(&root).join(&dir.name)).await.unwrap_or_default();
        let next = log_paths::next_restart_count(files.iter().map(|f| f.name.as_str()));
        if let Some(highest) = next.checked_sub(1) {
            restarts.insert(dir.name, highest);
        }
    }
    restarts
}
