//! What the API shows about a pod: phase, conditions, container states, addresses.
//!
//! Translates one observation (and other facts about the pod) to a `PodStatus`, and decides which parts of the earlier
//! status a restarted kubelet may keep. Writing the status and probing are elsewhere.
//!
//! Invariants: a terminal phase never reverts; a terminal phase is withheld while anything may run; restart counts never
//! shrink; the same inputs with the result as `previous` give the same result.

mod addresses;
mod conditions;
mod containers;
mod phase;
mod resources;
mod seeds;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::IpAddr;

use config::Features;
use jiff::Timestamp;
use model::k8s::{ContainerStatus, Pod, PodStatus, Time};
use model::{PodObservation, QosClass};

pub use addresses::host_ip_family_mismatch;
pub use containers::waiting_for_restart_of_all;
pub use phase::Phase;
pub use resources::{MemoryLimit, PodCgroupResources};
pub use seeds::{ProbeSeed, forget_ended_init_containers, latest_known, merge_for_restart};

use base_core::pod_kind::is_static_pod;
use resources_core::devices::ContainerHealth;

use crate::pods::memory::PodMemory;
use base_core::pod_stage::PodStage;

/// Why the kubelet terminated the pod: the `reason` and `message` of its status, with phase Failed. It is an input of every
/// computation until the status is terminal: while containers run it is not reported yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TerminalReason {
    pub reason: String,
    pub message: String,
    /// The pod did not fail by itself: condition `DisruptionTarget` reports that to its controller.
    pub is_disruption: bool,
}

/// The inputs of a pod status.
#[derive(Clone, Copy, Debug)]
pub struct StatusInputs<'a> {
    pub pod: &'a Pod,
    /// The status that the source has of the pod now; the one in `pod` may be older.
    pub in_source: Option<&'a PodStatus>,
    /// The one that [`PodMemory::shown_observation`] returns. `None`: the pod has not been observed yet; that differs from an
    /// observation without containers.
    pub observed: Option<&'a PodObservation>,
    /// The last status computed for this UID. Without one, that of the API object is used.
    pub previous: Option<&'a PodStatus>,
    /// What the pod's worker remembers: verdicts, why containers wait, which instances it killed and why.
    pub memory: &'a PodMemory,
    /// The stage of the pod's worker.
    pub stage: PodStage,
    /// Admission rejected the pod: it never ran on this node and never will, whatever its stage. `terminal` has the reason.
    pub is_rejected: bool,
    pub terminal: Option<&'a TerminalReason>,
    /// What the pod's cgroup enforces, once the API showed the pod as Running when it was last synced.
    pub cgroup: Option<PodCgroupResources>,
    /// The health of the devices that the pod has now.
    pub device_health: &'a ContainerHealth,
    /// Addresses of the node: at most two, the primary one first. Empty while they are not known.
    pub host_ips: &'a [IpAddr],
    /// `containerd`, `cri-o`: the prefix before `://` in container ids.
    pub runtime_name: &'a str,
    pub features: Features,
    pub now: Timestamp,
}

impl<'a> StatusInputs<'a> {
    /// The last status of this pod: computed by this kubelet, or (after its restart) from the API.
    fn last_status(&self) -> Option<&'a PodStatus> {
        self.previous.or(self.in_source)
    }

    /// Containers may still be started: the pod is neither being deleted nor stopped.
    fn may_start(&self) -> bool {
        let is_syncing = !self.is_rejected && self.stage == PodStage::Syncing;
        is_syncing && self.pod.metadata.deletion_timestamp.is_none()
    }

    /// The worker has stopped all containers.
    fn is_terminated(&self) -> bool {
        !self.is_rejected && self.stage >= PodStage::Terminated
    }

    /// A container may be executing right now, or start any moment. Without an observation, one may unless the pod was rejected.
    fn may_run(&self) -> bool {
        match self.observed {
            _ if self.is_terminated() => false,
            None => !self.is_rejected,
            Some(observed) => observed.containers.iter().any(|c| containers::may_run(c.state)),
        }
    }

    /// The pod and its containers were stopped: nothing restarts under any policy. Static pods do not end by being stopped:
    /// they come back with their manifest.
    fn is_stopped_for_good(&self) -> bool {
        let is_stopping = !self.is_rejected && self.stage >= PodStage::Terminating;
        is_stopping && !self.may_run() && !is_static_pod(self.pod)
    }
}

/// The statuses of all containers of a pod, in the order the API shows them.
#[derive(Clone, Debug, Default, PartialEq)]
struct ContainerStatuses {
    /// In the order of the spec.
    init: Vec<ContainerStatus>,
    /// By name.
    regular: Vec<ContainerStatus>,
    /// By name.
    ephemeral: Vec<ContainerStatus>,
}

impl ContainerStatuses {
    /// The statuses of init, sidecar and regular containers.
    fn by_name(&self) -> BTreeMap<&str, &ContainerStatus> {
        let all = self.init.iter().chain(&self.regular).rev();
        all.map(|status| (status.name.as_str(), status)).collect()
    }

    /// A regular container runs or ran: the pod is past its initialization, whatever its sidecars do now.
    fn is_initialized(&self) -> bool {
        self.regular.iter().any(containers::has_run)
    }
}

/// The status of a pod for the API. Conditions and fields of other controllers are carried over from the API object; times
/// are truncated to seconds.
#[must_use]
pub fn compute_pod_status(inputs: &StatusInputs<'_>) -> PodStatus {
    let mut statuses = match inputs.is_rejected {
        true => ContainerStatuses::default(),
        false => containers::compute_container_statuses(inputs),
    };
    let condition_phase = phase::compute_condition_phase(inputs, &statuses);
    let mut conditions = conditions::compute_conditions(inputs, &statuses, condition_phase);
    if inputs.is_terminated() {
        containers::end_what_never_reported(inputs.pod, &mut statuses);
    }
    let verdict = phase::compute_phase(inputs, &statuses);
    if verdict.phase.is_terminal() && conditions::is_any_ready(&conditions) {
        conditions = conditions::compute_conditions(inputs, &statuses, verdict.phase);
    }
    let addresses = addresses::compute_addresses(inputs);
    let carried = inputs.in_source;
    PodStatus {
        conditions: not_empty(conditions),
        phase: Some(verdict.phase.as_str().to_owned()),
        reason: verdict.reason,
        message: verdict.message,
        container_statuses: not_empty(statuses.regular),
        init_container_statuses: not_empty(statuses.init),
        ephemeral_container_statuses: not_empty(statuses.ephemeral),
        host_ip: addresses.host_ip,
        host_ips: addresses.host_ips,
        pod_ip: addresses.pod_ip,
        pod_ips: addresses.pod_ips,
        start_time: Some(start_time(inputs)),
        qos_class: Some(qos_class(inputs)),
        observed_generation: generation(inputs.pod),
        nominated_node_name: carried.and_then(|s| s.nominated_node_name.clone()),
        resource_claim_statuses: carried.and_then(|s| s.resource_claim_statuses.clone()),
        extended_resource_claim_status: carried.and_then(|s| s.extended_resource_claim_status.clone()),
        node_allocatable_resource_claim_statuses: carried
            .and_then(|s| s.node_allocatable_resource_claim_statuses.clone()),
        resources: resources::pod_resources(inputs),
        allocated_resources: resources::allocated_resources(inputs),
        resize: None,
    }
}

/// Times in the API have whole seconds.
fn whole_seconds(time: Timestamp) -> Time {
    Time(Timestamp::from_second(time.as_second()).unwrap_or(time))
}

fn not_empty<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}

/// Set once, then kept for the life of the UID.
fn start_time(inputs: &StatusInputs<'_>) -> Time {
    let known = |status: Option<&PodStatus>| status.and_then(|s| s.start_time.clone());
    known(inputs.previous).or_else(|| known(inputs.in_source)).unwrap_or_else(|| whole_seconds(inputs.now))
}

/// Set when the pod is created; a later change of resources does not change the QoS class.
fn qos_class(inputs: &StatusInputs<'_>) -> String {
    let known =
        |status: Option<&PodStatus>| status.and_then(|s| s.qos_class.clone()).filter(|q| !q.is_empty());
    known(inputs.in_source)
        .or_else(|| known(inputs.previous))
        .unwrap_or_else(|| QosClass::of(inputs.pod).as_str().to_owned())
}

/// The generation of the spec that this status is about. Objects without one (static pods) report none.
fn generation(pod: &Pod) -> Option<i64> {
    pod.metadata.generation.filter(|generation| *generation > 0)
}
