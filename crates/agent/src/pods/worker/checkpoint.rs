//! Pod and status on disk, for a kubelet that starts later: which versions are there, and when a failed write is repeated.

use std::sync::Arc;
use std::time::Duration;

use base_agent::pods_view::{save_checkpoint, save_pod};
use model::MonoTime;
use model::k8s::{Pod, PodStatus};

use super::PodWorker;

/// After a write that failed, for example on a full disk.
const RETRY: Duration = Duration::from_secs(10);

/// What was last written, or could not be.
#[derive(Default)]
pub(super) struct Checkpoint {
    pod: Written<Arc<Pod>>,
    status: Written<Arc<PodStatus>>,
    retry_at: Option<MonoTime>,
}

struct Written<T> {
    value: Option<T>,
    is_on_disk: bool,
}

impl<T> Default for Written<T> {
    fn default() -> Self {
        Self { value: None, is_on_disk: false }
    }
}

impl<T: PartialEq> Written<T> {
    fn is_of(&self, value: &T) -> bool {
        self.value.as_ref() == Some(value)
    }

    fn has(&self, value: &T) -> bool {
        self.is_on_disk && self.is_of(value)
    }
}

impl Checkpoint {
    /// This status was read from the disk.
    pub(super) fn read(status: Arc<PodStatus>) -> Self {
        Self { status: Written { value: Some(status), is_on_disk: true }, ..Self::default() }
    }

    /// The pod has changed in nothing that counts.
    pub(super) fn pod_is_same(&mut self, pod: &Arc<Pod>) {
        if let Some(written) = &mut self.pod.value {
            *written = pod.clone();
        }
    }

    fn must_write(&self, pod: &Arc<Pod>, status: &Arc<PodStatus>, now: MonoTime) -> bool {
        !self.pod.is_of(pod) || !self.status.is_of(status) || self.retry_at.is_some_and(|at| at <= now)
    }
}

impl PodWorker {
    /// Writes what has changed, and what could not be written some time ago.
    pub(super) async fn save(&mut self, pod: &Arc<Pod>, status: &Arc<PodStatus>) {
        let now = self.handles.ctx.clock.mono();
        if self.desired.is_removed() {
            return;
        }
        if self.reported.checkpoint.must_write(pod, status, now) {
            self.write(pod, status, now).await;
        } else {
            // Equal ones, which need not be kept twice.
            self.reported.checkpoint.pod.value = Some(pod.clone());
            self.reported.checkpoint.status.value = Some(status.clone());
        }
        // An earlier alarm may have replaced that of the last turn.
        if let Some(at) = self.reported.checkpoint.retry_at {
            self.alarm.no_later_than(at);
        }
    }

    async fn write(&mut self, pod: &Arc<Pod>, status: &Arc<PodStatus>, now: MonoTime) {
        let known = &self.reported.checkpoint;
        let (files, paths, uid) = (&*self.handles.ctx.files, &self.handles.ctx.settings.paths, &self.pod.uid);
        let has_pod = known.pod.has(pod) || save_pod(files, paths, uid, pod).await;
        let has_status = known.status.has(status) || save_checkpoint(files, paths, uid, status).await;
        self.reported.checkpoint = Checkpoint {
            pod: Written { value: Some(pod.clone()), is_on_disk: has_pod },
            status: Written { value: Some(status.clone()), is_on_disk: has_status },
            retry_at: (!has_pod || !has_status).then(|| now + RETRY),
        };
    }
}
