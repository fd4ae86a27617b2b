//! The quality-of-service class of a pod, from its requests and limits.

use std::fmt;

use crate::containers::{init_containers, regular_containers};
use crate::k8s::{Pod, ResourceRequirements};
use crate::quantity::Amount;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QosClass {
    Guaranteed,
    Burstable,
    BestEffort,
}

impl QosClass {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Guaranteed => "Guaranteed",
            Self::Burstable => "Burstable",
            Self::BestEffort => "BestEffort",
        }
    }

    /// Guaranteed: every container has limits of CPU and memory and equal requests. BestEffort: no container has requests or
    /// limits. Burstable: everything else. Pod-level resources, if set, are used instead of the containers'.
    #[must_use]
    pub fn of(pod: &Pod) -> Self {
        let pod_level = pod.spec.as_ref().and_then(|s| s.resources.as_ref());
        if let Some(resources) = pod_level.filter(|r| has_requests_or_limits(r)) {
            return Self::of_all([Some(resources)].into_iter());
        }
        Self::of_all(init_containers(pod).chain(regular_containers(pod)).map(|c| c.resources()))
    }

    fn of_all<'a>(all: impl Iterator<Item = Option<&'a ResourceRequirements>> + Clone) -> Self {
        if !all.clone().flatten().any(has_requests_or_limits) {
            return Self::BestEffort;
        }
        let is_guaranteed = |r: Option<&ResourceRequirements>| r.is_some_and(is_guaranteed);
        if all.clone().all(is_guaranteed) { Self::Guaranteed } else { Self::Burstable }
    }
}

impl fmt::Display for QosClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

const COMPUTE: [&str; 2] = ["cpu", "memory"];

/// A positive limit for the resource, if there is one.
#[must_use]
pub fn limit(resources: &ResourceRequirements, name: &str) -> Option<Amount> {
    positive(resources.limits.as_ref()?.get(name)?)
}

/// The positive request for the resource; a limit without a request requests the limit.
#[must_use]
pub fn request(resources: &ResourceRequirements, name: &str) -> Option<Amount> {
    match resources.requests.as_ref().and_then(|r| r.get(name)) {
        Some(quantity) => positive(quantity),
        None => limit(resources, name),
    }
}

fn positive(quantity: &crate::k8s::Quantity) -> Option<Amount> {
    Amount::of(quantity).ok().filter(|amount| *amount > Amount::ZERO)
}

fn has_requests_or_limits(resources: &ResourceRequirements) -> bool {
    COMPUTE.iter().any(|name| request(resources, name).is_some() || limit(resources, name).is_some())
}

fn is_guaranteed(resources: &ResourceRequirements) -> bool {
    COMPUTE
        .iter()
        .all(|name| limit(resources, name).is_some() && request(resources, name) == limit(resources, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One container a word: `cpu=100m/200m,memory=1Mi` is a request and a limit of CPU, and a limit of memory.
    fn pod(containers: &str) -> Pod {
        let containers: Vec<_> = containers
            .split_whitespace()
            .map(|word| {
                let (mut requests, mut limits) = (serde_json::Map::new(), serde_json::Map::new());
                for item in word.split(',').filter(|item| *item != "-") {
                    let (name, value) = item.split_once('=').expect("name=value");
                    let (request, limit) = value.split_once('/').map_or((None, value), |(r, l)| (Some(r), l));
                    if let Some(request) = request {
                        requests.insert(name.into(), request.into());
                    }
                    if !limit.is_empty() {
                        limits.insert(name.into(), limit.into());
                    }
                }
                serde_json::json!({"name": "c", "resources": {"requests": requests, "limits": limits}})
            })
            .collect();
        serde_json::from_value(serde_json::json!({"spec": {"containers": containers}})).expect("a pod")
    }

    #[track_caller]
    fn check(containers: &str, expected: QosClass) {
        assert_eq!(QosClass::of(&pod(containers)), expected, "{containers}");
    }

    #[test]
    fn pod_without_requests_and_limits_is_best_effort() {
        check("-", QosClass::BestEffort);
        check("- -", QosClass::BestEffort);
        check("cpu=0/0", QosClass::BestEffort);
        check("ephemeral-storage=1Gi/1Gi", QosClass::BestEffort);
    }

    #[test]
    fn pod_with_equal_limits_and_requests_is_guaranteed() {
        check("cpu=1/1,memory=1Gi/1Gi", QosClass::Guaranteed);
        check("cpu=1,memory=1Gi", QosClass::Guaranteed);
        check("cpu=1,memory=1Gi cpu=1000m/1,memory=1024Mi/1Gi", QosClass::Guaranteed);
    }

    #[test]
    fn pod_with_some_requests_or_limits_is_burstable() {
        check("cpu=1/2,memory=1Gi/1Gi", QosClass::Burstable);
        check("cpu=1,memory=1Gi -", QosClass::Burstable);
        check("cpu=1", QosClass::Burstable);
        check("memory=1Gi/", QosClass::Burstable);
    }
}
