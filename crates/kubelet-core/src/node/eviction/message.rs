//! Messages about an eviction: each contains the numbers on which the decision is based.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use model::PodRef;
use model::containers::{ContainerRef, init_containers, regular_containers, spec_of};
use model::k8s::{Pod, ResourceRequirements};
use model::quantity::{binary_text, decimal_text};

use super::observe::Observations;
use super::threshold::Threshold;
use super::usage::{Candidate, ContainerUsage, PodUsage};
use super::{Signal, Starved};

/// The reason in the status and of the event.
pub const EVICTED: &str = "Evicted";
/// The reason of the event that reports a crossed threshold.
pub const THRESHOLD_MET: &str = "EvictionThresholdMet";

/// Annotations of the event.
const OFFENDERS: &str = "offending_containers";
const OFFENDERS_USAGE: &str = "offending_containers_usage";
const POD: &str = "offending_pod";
const POD_USAGE: &str = "offending_pod_usage";
const STARVED: &str = "starved_resource";

/// Why a pod is evicted, as its status and its event report it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EvictionNotice {
    pub message: String,
    /// Of the event.
    pub annotations: Vec<(&'static str, String)>,
    /// The node is short of a resource and the pod did not exceed a limit of its own: the pod gets the condition
    /// `DisruptionTarget`.
    pub is_disruption: bool,
}

impl EvictionNotice {
    /// The pod exceeded a limit of its own.
    #[must_use]
    pub const fn own_fault(message: String) -> Self {
        Self { message, annotations: Vec::new(), is_disruption: false }
    }
}

/// The message of the event about the node.
#[must_use]
pub fn threshold_met(starved: Starved) -> String {
    format!("Attempting to reclaim {}", starved.as_str())
}

/// Why the candidate is evicted for `threshold`.
#[must_use]
pub fn notice(
    candidate: &Candidate<'_>,
    threshold: &Threshold,
    observations: &Observations,
) -> EvictionNotice {
    let starved = threshold.signal.starved();
    let mut message = format!("The node was low on resource: {}. ", starved.as_str());
    if let Some(observed) = observations.get(threshold.signal) {
        let (level, left) =
            (threshold.level.shown(observed.capacity), shown(threshold.signal, observed.available));
        // Writing to a string cannot fail.
        let _ = write!(message, "Threshold quantity: {level}, available: {left}. ");
    }
    let Some(usage) = &candidate.usage else {
        return EvictionNotice { message, annotations: Vec::new(), is_disruption: true };
    };
    let mut annotations = Vec::new();
    if let Some(ExceededRequest { used, requested }) = pod_exceeded_request(candidate.pod, usage, starved) {
        let name = PodRef::of(candidate.pod).name;
        let _ = write!(
            message,
            "Pod {name} was using {used}, request is {requested}, has larger consumption of {}. ",
            starved.as_str()
        );
        annotations.extend([(POD, name.to_string()), (POD_USAGE, used)]);
    }
    // Ephemeral containers cannot request resources and are not named.
    let specs = regular_containers(candidate.pod).chain(init_containers(candidate.pod)).rev();
    let specs: BTreeMap<&str, _> = specs.map(|spec| (spec.name(), spec)).collect();
    let (mut names, mut usages) = (Vec::new(), Vec::new());
    for container in &usage.containers {
        let spec = specs.get(&*container.name);
        let Some(exceeded_request) = spec.and_then(|spec| exceeded_request(spec, container, starved)) else {
            continue;
        };
        let ExceededRequest { used, requested } = &exceeded_request;
        let _ = write!(
            message,
            "Container {} was using {used}, request is {requested}, has larger consumption of {}. ",
            container.name,
            starved.as_str()
        );
        names.push(&*container.name);
        usages.push(exceeded_request.used);
    }
    annotations.extend([
        (OFFENDERS, names.join(",")),
        (OFFENDERS_USAGE, usages.join(",")),
        (STARVED, starved.as_str().to_owned()),
    ]);
    EvictionNotice { message, annotations, is_disruption: true }
}

/// A pod with a memory request at pod level is named with its usage, as in the Go kubelet, whether that exceeds the request
/// or not.
fn pod_exceeded_request(pod: &Pod, usage: &PodUsage, starved: Starved) -> Option<ExceededRequest> {
    let used = usage.memory.filter(|_| starved == Starved::Memory)?;
    let requests = spec_of(pod).resources.as_ref()?.requests.as_ref()?;
    let requested = requests.get(starved.as_str())?;
    Some(ExceededRequest { used: binary_text(i128::from(used)), requested: requested.0.clone() })
}

/// Bytes with a binary suffix, everything else with a decimal one.
fn shown(signal: Signal, amount: i64) -> String {
    match signal.starved() {
        Starved::Memory | Starved::EphemeralStorage => binary_text(i128::from(amount)),
        Starved::Inodes | Starved::Pids => decimal_text(i128::from(amount)),
    }
}

struct ExceededRequest {
    used: String,
    requested: String,
}

/// A container that uses more than it requested.
fn exceeded_request(
    spec: &ContainerRef<'_>,
    container: &ContainerUsage,
    starved: Starved,
) -> Option<ExceededRequest> {
    let used = match starved {
        Starved::Memory => container.memory?,
        Starved::EphemeralStorage => container.storage_bytes()?,
        Starved::Inodes | Starved::Pids => return None,
    };
    let requests =
        |resources: &ResourceRequirements| resources.requests.as_ref()?.get(starved.as_str()).cloned();
    let request = spec.resources().and_then(requests);
    let requested = request.as_ref().map_or(0, |q| model::Amount::of(q).map_or(0, model::Amount::units));
    (u64::try_from(requested).is_ok_and(|requested| used > requested)).then(|| ExceededRequest {
        used: binary_text(i128::from(used)),
        requested: request.map_or_else(|| "0".to_owned(), |quantity| quantity.0),
    })
}
