//! What is near a threshold of eviction, and the taints of the node.

use model::explain::{Check, EvictionSignal, Verdict};

use super::check;
use crate::amounts::amount;

/// A threshold with what is available.
pub(super) fn signal(signal: &EvictionSignal) -> Check {
    let EvictionSignal { name, available, capacity, threshold, grace_seconds } = signal;
    let number = |value: i64| amount(name, u64::try_from(value).unwrap_or(0));
    let grace = grace_seconds.map(|seconds| format!(" for longer than {seconds} s")).unwrap_or_default();
    let (has, of, below) = (number(*available), number(*capacity), number(*threshold));
    if available < threshold {
        let what = format!(
            "Less than the threshold of {name} is available: {has} of {of}, and pods are evicted below {below}{grace}."
        );
        let advice =
            vec!["Pods are evicted until it suffices again; kubelet get pods shows which.".to_owned()];
        return Check { advice, ..check(name, Verdict::Waiting, what) };
    }
    let is_near = is_near(*available, *threshold);
    let near = if is_near { ", which is near" } else { "" };
    let what = format!("{has} of {of} are available{near}; pods are evicted below {below}{grace}.");
    let advice = is_near.then(|| "Free some, or give the node more: pods are evicted soon.".to_owned());
    Check { advice: advice.into_iter().collect(), ..check(name, Verdict::Fine, what) }
}

/// Less than half as much again as the threshold.
const fn is_near(available: i64, threshold: i64) -> bool {
    available.saturating_sub(threshold) < threshold / 2
}

pub(super) fn taints(taints: &[String]) -> Option<Check> {
    let advice = "Pods without a toleration of these are not scheduled here; those of node.kubernetes.io follow from the \
                  conditions of the node.";
    (!taints.is_empty()).then(|| Check {
        advice: vec![advice.to_owned()],
        ..check("taints", Verdict::Fine, format!("Taints: {}.", taints.join(", ")))
    })
}
