//! Whether a pod fits the node: enough resources, the right labels, name, ports and taints (docs/behaviour/admission.md). All
//! failed predicates are collected, so that preemption knows whether only resources are missing.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use base_core::decimal::decimal;
use base_core::pod_kind::is_critical_pod;
use base_core::pod_kind::is_static_pod;
use config::Features;
use model::containers::{init_containers, regular_containers, spec_of};
use model::k8s::{ContainerPort, Node, Pod, Taint, Toleration};
use model::{Amount, ContainerKind, PodRef};

use super::affinity::selects;
use super::preemption;
use super::shortage::{Shortage, measure};
use crate::allocations::Allocation;
use crate::quantities::{Quantities, is_extended_resource};
use crate::rejection::Rejection;
use crate::requests::{Requests, add, pod_requests};

/// The reason of a pod that needs a host port which another pod has.
pub const NODE_PORTS: &str = "NodePorts";

/// The node, and the pods on it.
#[derive(Clone, Copy, Debug)]
pub struct FitFacts<'a> {
    pub node: &'a Node,
    /// The allocatable resources of the node.
    pub allocatable: &'a Quantities,
    /// The allocations of all other pods that were admitted and have not ended.
    pub active: &'a [Allocation<'a>],
    /// A critical pod preempts others. On a standalone node all pods are static, and so critical: none is preempted.
    pub may_preempt: bool,
    pub features: Features,
}

/// The result of the predicates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fit {
    Fits,
    /// It fits once these are preempted: each ends with phase Failed and reason Preempting.
    FitsWithout {
        victims: Vec<model::PodUid>,
        /// The first resource that is short.
        short_of: String,
    },
    Refused(Rejection),
}

/// Why a pod does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DoesNotFit {
    Resource(Shortage),
    Predicate { name: &'static str, why: &'static str },
}

/// Decides whether the pod fits, and which pods are preempted for a critical one.
#[must_use]
pub fn compute_fit(pod: &Pod, facts: &FitFacts<'_>) -> Fit {
    let reasons_not_to_fit = reasons_not_to_fit(pod, facts);
    let Some(first) = reasons_not_to_fit.first() else { return Fit::Fits };
    if !is_critical_pod(pod) || !facts.may_preempt {
        return Fit::Refused(rejection(first));
    }
    let mut shortages = Vec::new();
    for reason in &reasons_not_to_fit {
        match reason {
            DoesNotFit::Resource(shortage) => shortages.push(shortage.clone()),
            // Preemption would not help.
            DoesNotFit::Predicate { .. } => return Fit::Refused(rejection(reason)),
        }
    }
    match preemption::compute_victims(pod, facts.active, &shortages) {
        Ok(victims) => {
            let short_of = shortages.first().map(|shortage| shortage.resource.clone()).unwrap_or_default();
            Fit::FitsWithout { victims, short_of }
        }
        Err(problem) => Fit::Refused(Rejection {
            reason: Cow::Borrowed("UnexpectedAdmissionError"),
            message: format!(
                "Unexpected error while attempting to recover from admission failure: preemption: error finding a \
                 set of pods to preempt: {problem}"
            ),
        }),
    }
}

/// The rejection of one more pod on a node with this capacity for pods and these active ones.
#[must_use]
pub fn refuse_beyond(max_pods: u32, active: &[Allocation<'_>]) -> Option<Rejection> {
    let shortage = out_of_pods(i64::from(max_pods), active)?;
    Some(rejection(&DoesNotFit::Resource(shortage)))
}

fn out_of_pods(capacity: i64, active: &[Allocation<'_>]) -> Option<Shortage> {
    let used = i64::try_from(active.len()).unwrap_or(i64::MAX);
    let is_full = used >= capacity;
    is_full.then(|| Shortage { resource: "pods".to_owned(), requested: 1, used, capacity })
}

fn rejection(reason: &DoesNotFit) -> Rejection {
    match reason {
        DoesNotFit::Resource(shortage) => Rejection {
            reason: Cow::Owned(format!("OutOf{}", shortage.resource)),
            message: shortage.to_string(),
        },
        DoesNotFit::Predicate { name, why } => {
            Rejection { reason: Cow::Borrowed(name), message: format!("Predicate {name} failed: {why}") }
        }
    }
}

fn reasons_not_to_fit(pod: &Pod, facts: &FitFacts<'_>) -> Vec<DoesNotFit> {
    let mut reasons_not_to_fit: Vec<DoesNotFit> =
        shortages(pod, facts).into_iter().map(DoesNotFit::Resource).collect();
    let mut refuse = |is_met: bool, name, why| {
        if !is_met {
            reasons_not_to_fit.push(DoesNotFit::Predicate { name, why });
        }
    };
    let meta = &facts.node.metadata;
    let node = meta.name.as_deref().unwrap_or_default();
    let labels = meta.labels.clone().unwrap_or_default();
    refuse(selects(pod, node, &labels), "NodeAffinity", "node(s) didn't match Pod's node affinity/selector");
    let wanted = spec_of(pod).node_name.as_deref().unwrap_or_default();
    refuse(wanted.is_empty() || wanted == node, "NodeName", "node(s) didn't match the requested node name");
    refuse(
        has_free_ports(pod, facts.active),
        NODE_PORTS,
        "node(s) didn't have free ports for the requested pod ports",
    );
    let taints = facts.node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    refuse(
        is_static_pod(pod) || tolerates_all(pod, taints, facts.features),
        "TaintToleration",
        "node(s) had taints that the pod didn't tolerate",
    );
    reasons_not_to_fit
}

fn shortages(pod: &Pod, facts: &FitFacts<'_>) -> Vec<Shortage> {
    let capacity = |name: &str| {
        facts.allocatable.get(name).and_then(|quantity| Amount::of(quantity).ok()).unwrap_or(Amount::ZERO)
    };
    let mut shortages: Vec<Shortage> =
        out_of_pods(capacity("pods").units(), facts.active).into_iter().collect();
    let mut used = Requests::new();
    for other in facts.active {
        add(&mut used, &other.requests());
    }
    let mut wanted: Vec<_> = pod_requests(pod).into_iter().collect();
    wanted.sort_by_key(|(name, _)| {
        ["cpu", "memory", "ephemeral-storage"].iter().position(|n| n == name).unwrap_or(3)
    });
    for (resource, amount) in wanted {
        // An extended resource that the node does not have is managed by a scheduler extender.
        let is_foreign = is_extended_resource(&resource) && !facts.allocatable.contains_key(&resource);
        let of = |amount| measure(&resource, amount);
        let shortage = Shortage {
            requested: of(amount),
            used: of(used.get(&resource).copied().unwrap_or(Amount::ZERO)),
            capacity: of(capacity(&resource)),
            resource: resource.clone(),
        };
        if shortage.requested > 0 && !is_foreign && shortage.missing() > 0 {
            shortages.push(shortage);
        }
    }
    shortages
}

/// Host ports of the containers of a pod, with the names of the containers.
fn host_ports(pod: &Pod) -> impl Iterator<Item = (&str, &ContainerPort)> {
    init_containers(pod)
        .filter(|c| c.kind == ContainerKind::Sidecar)
        .chain(regular_containers(pod))
        .flat_map(|container| container.ports().iter().map(move |port| (container.name(), port)))
        .filter(|(_, port)| port.host_port.is_some_and(|port| port > 0))
}

fn has_free_ports(pod: &Pod, active: &[Allocation<'_>]) -> bool {
    let is_needed = needed_ports(pod);
    !active.iter().any(|other| host_ports(other.pod()).any(|(_, port)| is_needed(port)))
}

/// Whether a port of another pod has the same number and protocol as one of this pod, on overlapping addresses.
fn needed_ports(pod: &Pod) -> impl Fn(&ContainerPort) -> bool {
    let mut wanted: BTreeMap<(Option<i32>, &str), BTreeSet<&str>> = BTreeMap::new();
    for (_, port) in host_ports(pod) {
        wanted.entry((port.host_port, protocol(port))).or_default().insert(address(port));
    }
    move |taken: &ContainerPort| {
        wanted.get(&(taken.host_port, protocol(taken))).is_some_and(|addresses| {
            let address = address(taken);
            address == EVERY_ADDRESS || addresses.contains(EVERY_ADDRESS) || addresses.contains(address)
        })
    }
}

/// More are not named.
const MAX_CLASHES: usize = 5;

/// Which containers of other pods have the host ports that the pod needs, in words; empty if all are free.
#[must_use]
pub fn port_clashes(pod: &Pod, active: &[Allocation<'_>]) -> Vec<String> {
    let is_needed = needed_ports(pod);
    let clash = |other: &Pod, container: &str, port: &ContainerPort| {
        let (number, protocol) = (port.host_port.unwrap_or_default(), protocol(port));
        let other = PodRef::of(other);
        format!("host port {number}/{protocol} is taken by container {container} of pod {other}")
    };
    let all = active.iter().flat_map(|other| host_ports(other.pod()).map(move |port| (other.pod(), port)));
    all.filter(|(_, (_, port))| is_needed(port))
        .map(|(other, (container, port))| clash(other, container, port))
        .take(MAX_CLASHES)
        .collect()
}

const EVERY_ADDRESS: &str = "0.0.0.0";

fn protocol(port: &ContainerPort) -> &str {
    port.protocol.as_deref().unwrap_or("TCP")
}

fn address(port: &ContainerPort) -> &str {
    port.host_ip.as_deref().filter(|ip| !ip.is_empty()).unwrap_or(EVERY_ADDRESS)
}

/// The kubelet checks only NoExecute taints; the scheduler checks the others.
fn tolerates_all(pod: &Pod, taints: &[Taint], features: Features) -> bool {
    let tolerations = spec_of(pod).tolerations.as_deref().unwrap_or_default();
    let mut driving = taints.iter().filter(|taint| taint.effect == "NoExecute");
    driving.all(|taint| tolerations.iter().any(|by| tolerates(by, taint, features)))
}

pub(super) fn tolerates(toleration: &Toleration, taint: &Taint, features: Features) -> bool {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let (key, effect) = (text(&toleration.key), text(&toleration.effect));
    let fits = (effect.is_empty() || effect == taint.effect) && (key.is_empty() || key == taint.key);
    let compared = || {
        let (taint, bound) = (decimal(&text(&taint.value))?, decimal(&text(&toleration.value))?);
        features.comparing_tolerations.then(|| taint.cmp(&bound))
    };
    fits && match text(&toleration.operator).as_str() {
        "Exists" => true,
        "" | "Equal" => text(&toleration.value) == text(&taint.value),
        "Lt" => compared() == Some(Ordering::Less),
        "Gt" => compared() == Some(Ordering::Greater),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
