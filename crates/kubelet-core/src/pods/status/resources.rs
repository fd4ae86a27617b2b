//! The resources that the status of a pod shows: what it was allocated, and what its own cgroup enforces.
//!
//! A pod that the API does not show as Running yet has its allocated resources in both fields. Afterwards
//! `status.resources` shows what the cgroup enforces, for resources that it limits.

use std::collections::BTreeMap;

use base_core::pod_sums::effective_sums;
use model::containers::{all_containers, spec_of};
use model::k8s::{Pod, Quantity, ResourceRequirements};
use model::pod_status::has_ended;
use model::quantity::{binary_text, decimal_text};
use model::{Amount, ContainerKind, ContainerObservation, ContainerRef, ContainerState};
use resources_core::amounts::Amounts;
use resources_core::cgroup::CgroupNumbers;
use resources_core::cgroup::convert::milli_of_shares;
use resources_core::requests::{Requests, pod_requests};

use super::StatusInputs;

/// Up to this many milli-CPUs the kernel does not distinguish requests: the allocated one is reported.
const MIN_CPU_REQUEST: i64 = 2;
/// The same for limits.
const MIN_CPU_LIMIT: i64 = 10;

type Quantities = BTreeMap<String, Quantity>;

/// What a pod's cgroup enforces, in the units of the API.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodCgroupResources {
    pub cpu_request_milli: Option<i64>,
    pub cpu_limit_milli: Option<i64>,
    pub memory_limit: MemoryLimit,
}

/// The memory limit of a pod's cgroup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemoryLimit {
    /// The pod has no cgroup of its own.
    #[default]
    Unknown,
    /// The Go kubelet shows the number that version 1 of cgroups has then, or what it showed before.
    Unlimited,
    Bytes(i64),
}

impl PodCgroupResources {
    /// As the kernel reports what was written.
    #[must_use]
    pub fn of(numbers: &CgroupNumbers) -> Self {
        let quota = |quota: resources_core::cgroup::CpuQuota| {
            Some(quota.micros?.saturating_mul(1000) / quota.period.filter(|period| *period > 0)?)
        };
        Self {
            cpu_request_milli: numbers.cpu_shares.map(milli_of_shares),
            cpu_limit_milli: numbers.cpu_quota.and_then(quota).filter(|milli| *milli > 0),
            memory_limit: numbers.memory_limit.map_or(MemoryLimit::Unlimited, MemoryLimit::Bytes),
        }
    }
}

/// `status.resources`; absent for a pod that was rejected.
pub(super) fn pod_resources(inputs: &StatusInputs<'_>) -> Option<ResourceRequirements> {
    if inputs.is_rejected {
        return None;
    }
    // The cgroup of a pod that has ended is gone: what it enforced at the end stays.
    let ended = inputs.last_status().filter(|reported| has_ended(reported));
    if let (None, Some(ended)) = (inputs.cgroup, ended.and_then(|reported| reported.resources.clone())) {
        return Some(ended);
    }
    let mut resources = spec_of(inputs.pod).resources.clone().unwrap_or_default();
    match inputs.cgroup {
        Some(cgroup) => enforced(inputs, cgroup, &mut resources),
        None => {
            resources.requests = Some(shown(inputs.pod, &pod_requests(inputs.pod)));
            resources.limits = Some(shown(inputs.pod, &pod_limits(inputs.pod)));
        }
    }
    resources.requests = resources.requests.filter(|requests| !requests.is_empty());
    resources.limits = resources.limits.filter(|limits| !limits.is_empty());
    Some(resources)
}

/// `status.allocatedResources`.
pub(super) fn allocated_resources(inputs: &StatusInputs<'_>) -> Option<Quantities> {
    if inputs.is_rejected {
        return None;
    }
    Some(shown(inputs.pod, &pod_requests(inputs.pod))).filter(|requests| !requests.is_empty())
}

/// `resources` of a container: what the runtime enforces while it runs, else what is allocated to it. The spec decides which
/// of them there are.
pub(super) fn container_resources(
    inputs: &StatusInputs<'_>,
    container: &ContainerRef<'_>,
    instance: &ContainerObservation,
) -> ResourceRequirements {
    let mut resources = container.resources().cloned().unwrap_or_default();
    if instance.state != ContainerState::Running || container.kind == ContainerKind::Ephemeral {
        return resources;
    }
    let allocated = Amounts::of_container(inputs.pod, container, inputs.features);
    let set = inputs.memory.actuated.of_container(inputs.pod, container, inputs.features);
    let reported = instance.resources.unwrap_or_default();
    let cpu = |milli: i64| Amount::from_milli(milli.into());
    let cpu_text = |milli: i64| cpu(milli).to_string();
    let memory_text = |bytes: i64| binary_text(bytes.into());
    if let Some(limits) = &mut resources.limits {
        let limit = reported.cpu_limit_milli.unwrap_or(set.cpu_limit);
        let is_shown = limit > MIN_CPU_LIMIT || allocated.cpu_limit > MIN_CPU_LIMIT;
        show(limits, "cpu", Some(cpu(limit)).filter(|_| is_shown), cpu_text(limit));
        let limit = reported.memory_limit.unwrap_or(set.memory_limit);
        show(limits, "memory", Some(Amount::from_units(limit)), memory_text(limit));
    }
    if let Some(requests) = &mut resources.requests {
        let request = reported.cpu_shares.map_or(set.cpu_request, milli_of_shares);
        let is_shown = request > MIN_CPU_REQUEST || allocated.cpu_request > MIN_CPU_REQUEST;
        show(requests, "cpu", Some(cpu(request)).filter(|_| is_shown), cpu_text(request));
        // No runtime reports it.
        let request = set.memory_request;
        show(requests, "memory", Some(Amount::from_units(request)), memory_text(request));
    }
    resources
}

/// Shows another amount than the one in the list; an equal one keeps its notation.
fn show(list: &mut Quantities, name: &str, amount: Option<Amount>, text: String) {
    let Some(amount) = amount.filter(|amount| !amount.is_zero()) else { return };
    let is_known = list.get(name).and_then(|known| Amount::of(known).ok()) == Some(amount);
    if !is_known {
        list.insert(name.to_owned(), Quantity(text));
    }
}

fn enforced(inputs: &StatusInputs<'_>, cgroup: PodCgroupResources, resources: &mut ResourceRequirements) {
    let milli = |list: &Quantities| list.get("cpu").and_then(|q| Amount::of(q).ok()).map_or(0, Amount::milli);
    let cpu = |milli: i64| Quantity(Amount::from_milli(milli.into()).to_string());
    // Where the cgroup enforces nothing, what a status of the running pod showed before stays.
    let shown_before = inputs.last_status().filter(|reported| reported.phase.as_deref() == Some("Running"));
    let shown_before = shown_before.and_then(|reported| reported.resources.as_ref());
    let request_before = |name: &str| shown_before?.requests.as_ref()?.get(name).cloned();
    let limit_before = |name: &str| shown_before?.limits.as_ref()?.get(name).cloned();
    let requests = resources.requests.get_or_insert_default();
    let request = match cgroup.cpu_request_milli {
        Some(request) if request > MIN_CPU_REQUEST || milli(requests) > MIN_CPU_REQUEST => Some(cpu(request)),
        Some(_) => None,
        None => request_before("cpu"),
    };
    requests.extend(request.map(|request| ("cpu".to_owned(), request)));
    // No cgroup holds a memory request.
    let allocated = || shown(inputs.pod, &pod_requests(inputs.pod)).remove("memory");
    let request = request_before("memory").or_else(|| requests.get("memory").cloned()).or_else(allocated);
    requests.extend(request.map(|request| ("memory".to_owned(), request)));
    let limits = resources.limits.get_or_insert_default();
    let limit = match cgroup.cpu_limit_milli {
        Some(limit) if limit > MIN_CPU_LIMIT || milli(limits) > MIN_CPU_LIMIT => Some(cpu(limit)),
        Some(_) => None,
        None => limit_before("cpu"),
    };
    limits.extend(limit.map(|limit| ("cpu".to_owned(), limit)));
    let limit = match cgroup.memory_limit {
        MemoryLimit::Unknown => limit_before("memory"),
        MemoryLimit::Unlimited => None,
        MemoryLimit::Bytes(limit) => Some(Quantity(binary_text(limit.into()))),
    };
    limits.extend(limit.map(|limit| ("memory".to_owned(), limit)));
}

/// The limits of all containers together, as far as they have any; pod-level limits replace them, and
/// overhead is added.
fn pod_limits(pod: &Pod) -> Requests {
    let spec = spec_of(pod);
    let mut sums = effective_sums(spec, |container| limits_of(container.resources.as_ref()));
    sums.extend(limits_of(spec.resources.as_ref()));
    let with_overhead = |(name, sum): (&str, Amount)| {
        let overhead = spec.overhead.as_ref().and_then(|overhead| Amount::of(overhead.get(name)?).ok());
        (name.to_owned(), sum + overhead.filter(|_| !sum.is_zero()).unwrap_or_default())
    };
    sums.into_iter().map(with_overhead).collect()
}

fn limits_of(resources: Option<&ResourceRequirements>) -> BTreeMap<&str, Amount> {
    let limits = resources.and_then(|resources| resources.limits.as_ref()).into_iter().flatten();
    limits.filter_map(|(name, quantity)| Some((name.as_str(), Amount::of(quantity).ok()?))).collect()
}

/// Sums keep the notation of what they are made of: powers of 1024 or of 1000.
fn shown(pod: &Pod, amounts: &Requests) -> Quantities {
    let mut texts = BTreeMap::new();
    for (name, text) in quantities(pod) {
        texts.entry(name).or_insert(text);
    }
    let text = |(name, amount): (&String, &Amount)| {
        let is_binary = texts.get(name.as_str()).is_some_and(|text| text.ends_with('i'));
        let is_whole = amount.milli() % 1000 == 0;
        let text = match (is_whole, is_binary) {
            (false, _) => amount.to_string(),
            (true, true) => binary_text(amount.units().into()),
            (true, false) => decimal_text(amount.units().into()),
        };
        (name.clone(), Quantity(text))
    };
    amounts.iter().map(text).collect()
}

/// Every quantity that the pod requests, by resource.
fn quantities(pod: &Pod) -> impl Iterator<Item = (&str, &str)> {
    let of_pod = spec_of(pod).resources.as_ref();
    let all = of_pod.into_iter().chain(all_containers(pod).filter_map(|container| container.resources()));
    let lists = all.flat_map(|r| [&r.requests, &r.limits]).flatten().chain(&spec_of(pod).overhead);
    lists.flatten().map(|(name, quantity)| (name.as_str(), quantity.0.as_str()))
}
