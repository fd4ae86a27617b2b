//! The resources that the pod keeps when the API requests others.

use std::sync::Arc;

use kubelet_core::pod_kind::is_static_pod;
use kubelet_core::pods::allocation::{resize_pending_message, with_allocated_resources};
use kubelet_core::pods::worker::WorkerEvent;
use model::k8s::Pod;

use super::PodWorker;
use crate::pods_view::load_pod;

impl PodWorker {
    /// Keeps what an earlier kubelet allocated, because the containers run with it.
    pub(super) async fn restore_allocation(&mut self) {
        let Some(pod) = self.desired.pod.clone() else { return };
        let (files, paths) = (self.handles.ctx.files.clone(), &self.handles.ctx.settings.paths);
        let Some(saved) = load_pod(&*files, paths, &self.pod.uid).await else { return };
        self.desired.pod = Some(Arc::new(saved));
        let kept = self.with_allocation(&pod);
        self.desired.pod = Some(kept.clone());
        if !Arc::ptr_eq(&kept, &pod) {
            self.feed(WorkerEvent::Desired(kept));
        }
    }

    /// The pod as it is to run: a resize is reported and not carried out.
    pub(super) fn with_allocation(&mut self, pod: &Arc<Pod>) -> Arc<Pod> {
        let known = self.desired.pod.as_deref().filter(|known| !is_static_pod(known));
        let Some(kept) = known.and_then(|known| with_allocated_resources(pod, known)) else {
            self.desired.pending_resize = None;
            return pod.clone();
        };
        let generation = pod.metadata.generation.unwrap_or_default();
        if self.desired.pending_resize.replace(generation) != Some(generation) {
            let message = resize_pending_message(pod);
            self.handles.ctx.recorder.warning(&self.pod, None, "ResizeInfeasible", message);
        }
        Arc::new(kept)
    }
}
