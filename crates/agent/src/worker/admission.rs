//! Whether this node takes the pod at all. A refused pod never runs: its status says why.

use kubelet_core::admission::{AdmissionFacts, compute_rejection};
use kubelet_core::status::TerminalReason;
use model::k8s::Pod;

use super::PodWorker;

impl PodWorker {
    /// Judges the pod once. One that already ran before a restart of the kubelet was admitted then.
    pub(super) fn admit(&mut self, pod: &Pod) {
        let ran_before = self.last_status.as_ref().is_some_and(|status| status.container_statuses.is_some());
        if ran_before {
            return;
        }
        let engine = &self.engine;
        // Before the runtime has said what it can do, nothing is refused for it.
        let node = engine.node.borrow().clone();
        let has_groups_policy = node.last_ready.is_none() || node.status.supplemental_groups_policy;
        let facts = AdmissionFacts {
            supplemental_groups_policy: has_groups_policy,
            has_apparmor: engine.host.has_apparmor(),
            kernel_version: engine.host.machine().kernel_version,
            allowed_unsafe_sysctls: engine.settings.containers.allowed_unsafe_sysctls.clone(),
        };
        if let Some(rejection) = compute_rejection(pod, &facts) {
            engine.recorder.warning(&self.pod, None, rejection.reason, rejection.message.clone());
            let message = format!("Pod was rejected: {}", rejection.message);
            self.terminal = Some(TerminalReason { reason: rejection.reason.to_owned(), message });
            self.is_rejected = true;
        }
    }
}
