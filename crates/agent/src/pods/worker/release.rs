//! Releases the resources of a pod that runs nothing any more, and removes what is left of a removed pod.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base_agent::error_chain::chain;
use base_agent::pods_view::remove_checkpoint;
use logs_core::log_paths;
use model::{PodObservation, PodUid};
use ports::RuntimeError;
use volumes_agent::metrics::VolumeMetrics;
use volumes_agent::remove_pod_dir;

use super::{ActReport, PodWorker};
use crate::pods::handles::PodHandles;

/// Delay before a failed removal of records and logs is retried, which doubles each time, and its maximum.
const PURGE_RETRY: Duration = Duration::from_secs(2);
const MAX_PURGE_RETRY: Duration = Duration::from_secs(16);

impl PodWorker {
    /// Returns whether the step of the end of the pod succeeded; records each message of a failure once.
    pub(super) fn record_stuck(&mut self, result: Result<(), String>) -> bool {
        let Err(message) = result else { return true };
        if self.reported.stuck_on.as_ref() != Some(&message) {
            self.handles.ctx.recorder.warning(&self.pod, None, "FailedKillPod", message.clone());
            self.reported.stuck_on = Some(message);
        }
        false
    }

    /// Releases what a pod that runs nothing does not need: its volumes, its cgroup, its user ids. Records, logs and status
    /// stay.
    pub(super) fn release(&mut self) {
        let (handles, uid) = (self.handles.clone(), self.pod.uid.clone());
        let is_found = self.desired.pod.is_none();
        self.act.start(async move {
            let (released, is_clean) = release(&handles, &uid).await;
            if is_found {
                handles.ctx.metrics.get::<VolumeMetrics>().orphan_released(&uid, released.is_ok());
            }
            // An orphan that is not clean now is found again by housekeeping.
            if !is_clean && !is_found {
                handles.leftovers.notify_one();
            }
            ActReport::Released(released)
        });
    }

    /// Removes directory, logs and records of a pod that its source has removed.
    pub(super) fn purge(&mut self) {
        self.purge_after(Duration::ZERO);
    }

    pub(super) fn purge_later(&mut self) {
        let delay = self.purge_delay.map_or(PURGE_RETRY, |last| (last * 2).min(MAX_PURGE_RETRY));
        self.purge_delay = Some(delay);
        self.purge_after(delay);
    }

    /// The pod starts over in another worker: its status checkpoint is removed, its records and logs stay.
    pub(super) fn forget_status(&mut self) {
        let (handles, uid) = (self.handles.clone(), self.pod.uid.clone());
        self.act.start(async move {
            let forgotten = remove_checkpoint(&*handles.ctx.files, &handles.ctx.settings.paths, &uid).await;
            ActReport::Purged(forgotten.map_err(|error| chain(&error)))
        });
    }

    fn purge_after(&mut self, delay: Duration) {
        let (handles, pod) = (self.handles.clone(), self.pod.clone());
        self.act.start(async move {
            handles.ctx.clock.sleep_until(handles.ctx.clock.mono() + delay).await;
            let observed = handles.cache.get(&pod.uid);
            let observed =
                observed.unwrap_or_else(|| Arc::new(PodObservation::empty(pod, handles.ctx.clock.mono())));
            ActReport::Purged(purge(&handles, &observed).await)
        });
    }
}

/// Also returns whether no process and no cgroup was left behind: that alone does not delay the removal.
async fn release(handles: &PodHandles, uid: &PodUid) -> (Result<(), String>, bool) {
    // A process in the cgroup would keep the volumes busy.
    handles.cgroups.kill_leftovers(uid).await;
    if let Err(error) = handles.volumes.release(uid).await {
        return (Err(chain(&error)), true);
    }
    let is_clean = handles.cgroups.remove(uid).await;
    let ids = handles.pod_ids.release(&*handles.ctx.files, &handles.ctx.settings, uid).await;
    (ids.map_err(|error| chain(&error)), is_clean)
}

/// The directory is removed last: while it exists, a restarted kubelet finds the pod and continues.
async fn purge(handles: &PodHandles, observed: &PodObservation) -> Result<(), String> {
    let pod = &observed.pod;
    remove_links(handles, observed).await?;
    remove_records(handles, observed).await;
    if !pod.name.is_empty() {
        let logs = log_paths::pod_log_dir(&handles.ctx.config().pod_logs_dir, pod);
        handles.ctx.files.remove_tree(Path::new(&logs)).await.map_err(|e| chain(&e))?;
    }
    remove_pod_dir(&*handles.ctx.files, &handles.ctx.settings.paths, &pod.uid)
        .await
        .map_err(|e| chain(&e))?;
    tracing::info!(pod = %pod, podUID = %pod.uid, "Pod is completely removed");
    Ok(())
}

async fn remove_links(handles: &PodHandles, observed: &PodObservation) -> Result<(), String> {
    for container in &observed.containers {
        let name = log_paths::container_link_name(&observed.pod, &container.name, container.id.as_str());
        let link = handles.ctx.settings.paths.container_links.join(name);
        handles.ctx.files.remove_file(&link).await.map_err(|e| chain(&e))?;
    }
    Ok(())
}

/// A record that the runtime does not remove now does not delay the pod: garbage collection retries.
async fn remove_records(handles: &PodHandles, observed: &PodObservation) {
    let is_refused = |error: &RuntimeError| !error.is_not_found();
    for container in &observed.containers {
        if let Err(err) = handles.ctx.runtime.remove_container(&container.id).await
            && is_refused(&err)
        {
            tracing::warn!(pod = %observed.pod, containerName = %container.name, containerID = %container.id, %err, "Failed to remove container, leaving it to garbage collection");
        }
    }
    for sandbox in &observed.sandboxes {
        let removed = async {
            handles.ctx.runtime.stop_sandbox(&sandbox.id).await?;
            handles.ctx.runtime.remove_sandbox(&sandbox.id).await
        };
        if let Err(err) = removed.await
            && is_refused(&err)
        {
            tracing::warn!(pod = %observed.pod, podSandboxID = %sandbox.id, %err, "Failed to remove pod sandbox, leaving it to garbage collection");
        }
    }
}
