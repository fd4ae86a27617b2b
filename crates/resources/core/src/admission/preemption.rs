//! Chooses the victims of preemption for a critical pod that does not fit (docs/behaviour/admission.md): BestEffort pods
//! first, and as few of each QoS class as needed. No pod is terminated here.

use base_core::pod_kind::is_critical_pod;
use model::containers::spec_of;
use model::k8s::Pod;
use model::{PodUid, QosClass};

use super::shortage::{Shortage, measure};
use crate::allocations::Allocation;

/// The reason and the message of a preempted pod.
pub const PREEMPTING: (&str, &str) = ("Preempting", "Preempted in order to admit critical pod");

/// The message of the condition `DisruptionTarget` of such a pod.
pub const PREEMPTED_CONDITION: &str = "Pod was preempted by Kubelet to accommodate a critical pod.";

/// No set of pods frees enough resources.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no set of running pods found to reclaim resources: {missing}")]
pub(super) struct NoVictims {
    missing: String,
}

/// The amounts that still must be freed, by resource.
type Needs = Vec<(String, i64)>;

/// The pods to preempt so that the pod fits: BestEffort first, and pods of a higher QoS class only for what lower classes
/// cannot free.
pub(super) fn compute_victims(
    pod: &Pod,
    active: &[Allocation<'_>],
    shortages: &[Shortage],
) -> Result<Vec<PodUid>, NoVictims> {
    let needs: Needs = shortages.iter().map(|s| (s.resource.clone(), s.missing())).collect();
    let of = |class: QosClass| -> Vec<Allocation<'_>> {
        let may_go =
            |held: &Allocation<'_>| QosClass::of(held.pod()) == class && may_preempt(pod, held.pod());
        active.iter().copied().filter(may_go).collect()
    };
    let (best_effort, burstable, guaranteed) =
        (of(QosClass::BestEffort), of(QosClass::Burstable), of(QosClass::Guaranteed));
    let without = |sets: [&[Allocation<'_>]; 2]| less(&needs, sets.into_iter().flatten().copied());
    let unmet = less(&without([&best_effort, &burstable]), guaranteed.iter().copied());
    if !unmet.is_empty() {
        let list: String = unmet.iter().map(|(name, q)| format!("(res: {name}, q: {q}), ")).collect();
        return Err(NoVictims { missing: format!("[{list}]") });
    }
    let of_guaranteed = closest(guaranteed, without([&best_effort, &burstable]));
    let of_burstable = closest(burstable, without([&best_effort, &of_guaranteed]));
    let of_best_effort = closest(best_effort, without([&of_burstable, &of_guaranteed]));
    let uid = |held: Allocation<'_>| PodUid::of(held.pod());
    Ok(of_best_effort.into_iter().chain(of_burstable).chain(of_guaranteed).map(uid).collect())
}

/// Critical pods preempt the others; among critical pods the higher priority wins.
fn may_preempt(pod: &Pod, other: &Pod) -> bool {
    if is_critical_pod(pod) && !is_critical_pod(other) {
        return true;
    }
    let priority = |pod: &Pod| spec_of(pod).priority;
    matches!((priority(pod), priority(other)), (Some(own), Some(theirs)) if own > theirs)
}

fn frees(held: Allocation<'_>, resource: &str) -> i64 {
    if resource == "pods" {
        return 1;
    }
    held.requests().get(resource).map_or(0, |amount| measure(resource, *amount))
}

/// What is still needed without these pods.
fn less<'a>(needs: &Needs, preempted: impl IntoIterator<Item = Allocation<'a>>) -> Needs {
    let mut left = needs.clone();
    for held in preempted {
        for (resource, quantity) in &mut left {
            *quantity = quantity.saturating_sub(frees(held, resource));
        }
    }
    left.retain(|(_, quantity)| *quantity > 0);
    left
}

/// Chooses the pod that comes closest to the needs, repeatedly, until they are met or no pod is left.
fn closest<'a>(mut pods: Vec<Allocation<'a>>, mut needs: Needs) -> Vec<Allocation<'a>> {
    let mut chosen = Vec::new();
    while !needs.is_empty() {
        let by_distance = |a: &(usize, &Allocation<'_>), b: &(usize, &Allocation<'_>)| {
            let size = |held: Allocation<'_>| (frees(held, "memory"), frees(held, "cpu"));
            let (left, right) = (distance(&needs, *a.1), distance(&needs, *b.1));
            left.total_cmp(&right).then_with(|| size(*a.1).cmp(&size(*b.1)))
        };
        let Some((at, _)) = pods.iter().enumerate().min_by(by_distance) else { break };
        let pod = pods.remove(at);
        needs = less(&needs, [pod]);
        chosen.push(pod);
    }
    chosen
}

/// The distance from the needs after preempting the pod: the sum of the squares of the shares that remain.
fn distance(needs: &Needs, held: Allocation<'_>) -> f64 {
    needs
        .iter()
        .map(|(resource, quantity)| {
            let remains = quantity.saturating_sub(frees(held, resource)).max(0);
            (as_f64(remains) / as_f64(*quantity)).powi(2)
        })
        .sum()
}

#[expect(clippy::cast_precision_loss, reason = "shares are compared, not counted")]
const fn as_f64(quantity: i64) -> f64 {
    quantity as f64
}
