//! Probes (skeleton while the machine is being written).
use std::sync::Arc;
use kubelet_core::probe::results::{ProbeKind, ProbeVerdicts, Verdict};
use model::k8s::Pod;
use model::{ContainerId, PodObservation, PodRef};
use tokio::sync::mpsc;
use crate::engine::Engine;
pub(crate) struct ProbeNews { pub(crate) container: ContainerId, pub(crate) kind: ProbeKind, pub(crate) verdict: Verdict }
pub(crate) struct Probes;
impl Probes {
    pub(crate) fn new(_: Arc<Engine>, _: PodRef, _: mpsc::Sender<ProbeNews>) -> Self { Self }
    pub(crate) fn reconcile(&mut self, _: &Arc<Pod>, _: &PodObservation, _: &ProbeVerdicts, _: bool) {}
}
