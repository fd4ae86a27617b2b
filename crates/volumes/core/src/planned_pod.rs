//! A pod whose volumes are planned, with what its containers have together: added up once for all volumes.

use std::borrow::Cow;
use std::collections::BTreeMap;

use model::Amount;
use model::containers::all_containers;
use model::k8s::Pod;

use base_core::pod_sums::pod_limit;

/// A pod whose volumes are planned. With its limits the containers are added up once for all of them.
#[derive(Clone, Copy, Debug)]
pub struct PlannedPod<'a> {
    pub pod: &'a Pod,
    limits: Option<&'a PodLimits>,
}

/// What all containers of a pod have together.
#[derive(Debug)]
pub struct PodLimits {
    memory: Option<Amount>,
    huge_pages: BTreeMap<u64, u64>,
}

impl PodLimits {
    #[must_use]
    pub fn of(pod: &Pod) -> Self {
        Self { memory: pod_limit(pod, "memory"), huge_pages: requested_pages(pod) }
    }
}

impl<'a> From<&'a Pod> for PlannedPod<'a> {
    fn from(pod: &'a Pod) -> Self {
        Self { pod, limits: None }
    }
}

impl<'a> PlannedPod<'a> {
    /// The limits must be those of this pod.
    #[must_use]
    pub const fn with_limits(pod: &'a Pod, limits: &'a PodLimits) -> Self {
        Self { pod, limits: Some(limits) }
    }

    /// The memory limit of the pod's cgroup.
    pub(super) fn memory_limit(self) -> Option<Amount> {
        self.limits.map_or_else(|| pod_limit(self.pod, "memory"), |limits| limits.memory)
    }

    /// Bytes of huge pages that the containers request, by the size of a page.
    pub(super) fn huge_pages(self) -> Cow<'a, BTreeMap<u64, u64>> {
        self.limits
            .map_or_else(|| Cow::Owned(requested_pages(self.pod)), |limits| Cow::Borrowed(&limits.huge_pages))
    }
}

/// Bytes of huge pages that the pod's containers request, by the size of a page.
fn requested_pages(pod: &Pod) -> BTreeMap<u64, u64> {
    let mut requested: BTreeMap<u64, u64> = BTreeMap::new();
    for container in all_containers(pod) {
        let requests = container.resources().and_then(|resources| resources.requests.as_ref());
        let limits = container.resources().and_then(|resources| resources.limits.as_ref());
        // The limit is also the default of the request.
        let both = requests.or(limits).into_iter().flatten();
        for (name, quantity) in both {
            let size = name.strip_prefix("hugepages-").and_then(|size| Amount::parse(size).ok());
            let Some(page) = size.and_then(|size| u64::try_from(size.units()).ok()) else { continue };
            let amount = Amount::of(quantity).ok().and_then(|amount| u64::try_from(amount.units()).ok());
            let sum = requested.entry(page).or_default();
            *sum = sum.saturating_add(amount.unwrap_or(0));
        }
    }
    requested
}
