//! The pod's status: computed after every turn of the worker, published when it changed, kept on disk.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use api_agent::meta::key_of_pod;
use api_core::mirror::is_mirror_of;
use base_agent::pods_view::{PodProgress, load_checkpoint};
use base_core::pod_kind::is_static_pod;
use jiff::Timestamp;
use kubelet_core::pods::deadline;
use kubelet_core::pods::status::{
    PodCgroupResources, StatusInputs, TerminalReason, compute_pod_status, forget_ended_init_containers,
    host_ip_family_mismatch,
};
use model::PodRef;
use model::k8s::{Pod, PodStatus};
use model::pod_status::has_ended;
use resources_core::devices::ContainerHealth;

use super::{PodWorker, messages};
use crate::pods::handles::PodHandles;

pub(super) fn deadline_exceeded() -> TerminalReason {
    TerminalReason {
        reason: deadline::REASON.to_owned(),
        message: deadline::MESSAGE.to_owned(),
        is_disruption: false,
    }
}

pub(super) async fn load(handles: &PodHandles, pod: &PodRef) -> Option<PodStatus> {
    load_checkpoint(&*handles.ctx.files, &handles.ctx.settings.paths, &pod.uid).await
}

/// The pod was rejected at admission.
pub(super) fn was_rejected(last: &PodStatus) -> bool {
    last.phase.as_deref() == Some("Failed") && last.container_statuses.is_none()
}

/// How long the worker of a static pod waits for the pods of the API. A node whose own pods are the API server may have none.
const MIRROR_TIMEOUT: Duration = Duration::from_secs(3);

/// The status of a static pod that another kubelet ran, which keeps it in the mirror pod only; `None` if there is none, or no API
/// server that answers soon.
pub(super) async fn of_mirror(handles: &PodHandles, pod: &Pod) -> Option<Arc<PodStatus>> {
    let identity = PodRef::of(pod);
    let mut in_api = handles.pods_in_api.clone()?;
    let dir = handles.ctx.settings.paths.pod(&identity.uid);
    let has_run = handles.ctx.files.list_dir(&dir).await.is_ok_and(|entries| !entries.is_empty());
    if !has_run {
        return None;
    }
    let until = handles.ctx.clock.mono() + MIRROR_TIMEOUT;
    let seen = tokio::select! {
        seen = in_api.wait_for(|seen| seen.is_complete) => seen.ok()?,
        () = handles.ctx.clock.sleep_until(until) => {
            tracing::warn!(pod = %identity, "No API server has answered, starting with an empty status");
            return None;
        }
    };
    let mirror = seen.objects.get(&key_of_pod(&identity))?;
    is_mirror_of(&mirror.pod, pod).then(|| mirror.status.clone())?
}

/// Why an earlier kubelet ended the pod, if it did.
pub(super) fn terminal_of(last: &PodStatus) -> Option<TerminalReason> {
    let is_failed = last.phase.as_deref() == Some("Failed");
    let reason = last.reason.clone().filter(|reason| is_failed && !reason.is_empty())?;
    // The condition of that status is carried over.
    Some(TerminalReason { reason, message: last.message.clone().unwrap_or_default(), is_disruption: false })
}

impl PodWorker {
    /// Once no act is in flight and the observation shows what the last one did, the status follows the observation.
    pub(super) fn follow_observation(&mut self) {
        let is_shown = self.observed.latest.as_ref().is_some_and(|observed| self.act.is_shown_by(observed));
        if is_shown && !self.act.is_running() {
            self.memory.pass_observed();
        }
    }

    /// When `activeDeadlineSeconds` runs out; `None` for a pod that has no such limit or has ended.
    pub(super) fn deadline(&self) -> Option<Timestamp> {
        let last = self.reported.status.as_ref().filter(|last| !has_ended(last))?;
        deadline::deadline(self.desired.pod.as_ref()?, last.start_time.as_ref()?.0)
    }

    pub(super) async fn publish(&mut self) {
        let Some(pod) = self.desired.pod.clone().filter(|_| !self.is_over) else { return };
        let (status, is_same) = self.current_status(&pod);
        self.record_readiness(self.reported.status.as_deref(), &status);
        self.handles.pods.publish(&self.pod, pod.clone(), status.clone(), self.progress());
        self.save(&pod, &status).await;
        self.reported.status = Some(status);
        if !is_same {
            self.probes.hurry_readiness(&self.memory.verdicts);
        }
    }

    /// The status now, and whether it is the one that was reported last.
    fn current_status(&mut self, pod: &Pod) -> (Arc<PodStatus>, bool) {
        let last = self.reported.status.clone();
        if let Some(why) = host_ip_family_mismatch(last.as_deref(), self.handles.ctx.host_ips()) {
            self.handles.ctx.recorder.warning(&self.pod, None, "HostIPsIPFamilyMismatch", why);
        }
        let computed = self.compute(pod);
        self.times.published(&self.handles.ctx.metrics, self.handles.ctx.clock.mono(), &computed);
        // The last status itself if nothing changed, so that it is stored once.
        match last.filter(|last| **last == computed) {
            Some(same) => (self.shared_status(same), true),
            None => (Arc::new(computed), false),
        }
    }

    /// The status of the API if it is the reported one: each pod's is kept once, then.
    fn shared_status(&self, reported: Arc<PodStatus>) -> Arc<PodStatus> {
        self.desired.status_in_api().filter(|in_api| *in_api == reported).unwrap_or(reported)
    }

    pub(super) fn compute(&self, pod: &Pod) -> PodStatus {
        let runtime_name = self.handles.node.view.borrow().runtime_name().to_owned();
        let observed = self.memory.shown_observation(self.observed.latest.as_deref());
        let observed = observed.map(|o| messages::with_messages(o, &self.observed.messages));
        let device_health = self.device_health.as_ref().map(|_| self.current_device_health(pod));
        compute_pod_status(&StatusInputs {
            pod,
            in_source: self.desired.status_in_source().as_deref(),
            observed: observed.as_ref().map(Cow::as_ref),
            previous: self.reported.status.as_deref(),
            memory: &self.memory,
            stage: self.state.stage(),
            is_rejected: self.reported.is_rejected,
            terminal: self.reported.terminal.as_ref(),
            cgroup: self.cgroup_resources(pod),
            device_health: &device_health.unwrap_or_default(),
            host_ips: self.handles.ctx.host_ips(),
            runtime_name: &runtime_name,
            features: self.handles.ctx.node_facts.features,
            now: self.handles.ctx.clock.now().wall,
        })
    }

    /// The health of the pod's devices, of device plugins and of claims, by container.
    fn current_device_health(&self, pod: &Pod) -> ContainerHealth {
        let mut health = self.handles.resources.devices.health_of(&self.pod.uid);
        for (container, claims) in
            self.handles.resources.claims.health_of(pod, self.desired.status_in_api().as_deref())
        {
            let all = health.entry(container).or_default();
            all.extend(claims);
            all.sort_by(|one, other| one.name.cmp(&other.name));
        }
        health
    }

    /// Drops what only the runtime reports of a static pod, now that it was observed. Before, its status stays as it was: a status without
    /// the exits of init containers shows a pod that is not initialized.
    pub(super) fn forget_lost_exits(&mut self) {
        let is_static = self.desired.pod.as_ref().is_some_and(|pod| is_static_pod(pod));
        if let Some(api_status) =
            self.reported.status.as_mut().filter(|api_status| is_static && !has_ended(api_status))
        {
            forget_ended_init_containers(Arc::make_mut(api_status));
        }
    }

    /// What the pod's cgroup enforces, if the API showed the pod as Running when its last pass began.
    fn cgroup_resources(&self, pod: &Pod) -> Option<PodCgroupResources> {
        if !self.reported.was_running_in_api {
            return None;
        }
        if !self.handles.ctx.config().cgroups_per_qos {
            return Some(PodCgroupResources::default());
        }
        let numbers = self.handles.cgroups.numbers(pod);
        Some(PodCgroupResources::of(&numbers))
    }

    /// Remembers what the API shows at the beginning of a pass.
    pub(super) fn record_phase_in_api(&mut self) {
        let api_status = self.desired.status_in_api();
        self.reported.was_running_in_api =
            api_status.is_some_and(|api_status| api_status.phase.as_deref() == Some("Running"));
    }

    fn progress(&self) -> PodProgress {
        PodProgress {
            stage: self.state.stage(),
            is_rejected: self.reported.is_rejected,
            is_orphan: self.desired.is_removed(),
            is_observed: self.observed.latest.is_some(),
        }
    }
}
