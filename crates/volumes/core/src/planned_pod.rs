//! A pod whose volumes are planned, with what its containers have together: added up once for all volumes.

use std::borrow::Cow;
use std::collections::BTreeSet;

use model::Amount;
use model::containers::{all_containers, spec_of};
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
    huge_pages: BTreeSet<u64>,
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

    /// The sizes of the huge pages that the pod and its containers request, in bytes.
    pub(super) fn huge_pages(self) -> Cow<'a, BTreeSet<u64>> {
        self.limits
            .map_or_else(|| Cow::Owned(requested_pages(self.pod)), |limits| Cow::Borrowed(&limits.huge_pages))
    }
}

/// The sizes of the huge pages that the pod and its containers request, in bytes.
fn requested_pages(pod: &Pod) -> BTreeSet<u64> {
    let of_containers = all_containers(pod).filter_map(|container| container.resources());
    let all = of_containers.chain(spec_of(pod).resources.as_ref());
    // The limit is also the default of the request.
    let names = all.filter_map(|resources| resources.requests.as_ref().or(resources.limits.as_ref()));
    let pages = names.flat_map(|amounts| amounts.keys()).filter_map(|name| {
        let size = Amount::parse(name.strip_prefix("hugepages-")?).ok()?;
        u64::try_from(size.units()).ok()
    });
    pages.collect()
}
