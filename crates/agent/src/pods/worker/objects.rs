//! API objects that the pod refers to: registered while the pod may run, and read again when they change.

use std::sync::Arc;

use api_agent::objects::{ObjectChanges, PodObjects};
use kubelet_core::pods::worker::WorkerEvent;
use model::PodObservation;
use model::containers::spec_of;
use model::k8s::Pod;
use volumes_core::{has_payload, may_have_driver};

use super::{ActReport, PodWorker};
use crate::pods::pass::prepare;

/// The objects of the pod in the version that was registered last.
#[derive(Debug, Default)]
pub(super) struct Registration {
    pod: Option<Arc<Pod>>,
    pub(super) objects: PodObjects,
    pub(super) changes: ObjectChanges,
    /// Volumes that show objects may show old ones.
    pub(super) is_stale: bool,
    /// Some object changed since the step under way began.
    pub(super) has_changed: bool,
}

impl PodWorker {
    /// Registers the pod before its first pass, and again when it may refer to other objects. What both versions refer
    /// to stays known throughout.
    pub(super) fn register_objects(&mut self) {
        let Some(pod) = &self.desired.pod else { return };
        let is_known = self.registration.pod.as_ref().is_some_and(|known| shows_the_same(known, pod));
        if is_known {
            return;
        }
        let objects =
            self.registration.objects.register(&self.handles.ctx, self.handles.objects.as_deref(), pod);
        let changes = objects.changes();
        self.registration =
            Registration { pod: Some(pod.clone()), objects, changes, is_stale: true, has_changed: false };
    }

    /// Returns once whether volumes of the pod may have changed content.
    pub(super) fn takes_stale_volumes(&mut self, pod: &Pod) -> bool {
        let mut volumes = spec_of(pod).volumes.iter().flatten();
        let may_change = volumes.any(|volume| has_payload(volume) || may_have_driver(volume));
        std::mem::take(&mut self.registration.is_stale) && may_change
    }

    /// Starts the act that updates their content.
    pub(super) fn refresh_volumes(&mut self, pod: Arc<Pod>, observed: Arc<PodObservation>) {
        let context = self.context(pod, observed);
        self.act.start(async move {
            prepare::refresh(&context).await;
            ActReport::Refreshed
        });
    }

    /// The change may be what a failed step was waiting for.
    pub(super) fn handle_object_change(&mut self) {
        self.registration.is_stale = true;
        self.registration.has_changed = true;
        self.memory.forget_failure();
        self.handles.volumes.changed(&self.pod.uid);
        self.feed(WorkerEvent::Wake);
    }
}

/// Most versions of a pod differ only in their status, which refers to no objects.
fn shows_the_same(known: &Arc<Pod>, pod: &Arc<Pod>) -> bool {
    let (a, b) = (&known.metadata, &pod.metadata);
    Arc::ptr_eq(known, pod)
        || (known.spec == pod.spec && a.labels == b.labels && a.annotations == b.annotations)
}
