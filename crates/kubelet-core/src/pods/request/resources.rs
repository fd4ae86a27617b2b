//! Requests and limits as cgroup settings (docs/behaviour/resources-and-qos.md). Never writes a cgroup.

use base_core::node_facts::{NodeFacts, Swap};
use std::collections::BTreeMap;

use base_core::node_facts::MemoryQos;
use base_core::pod_kind::is_critical_pod;
use base_core::pod_sums::effective_sum;
use model::containers::{ContainerRef, regular_containers, spec_of};
use model::k8s::{Pod, ResourceRequirements};
use model::qos::{limit, request};
use model::request::LinuxResources;
use model::{Amount, ContainerKind, QosClass};
use resources_core::cgroup::convert::{cpu_quota, cpu_shares, kernel_page_size};

/// The requested amounts, where an absent one differs from zero.
struct RequestedResources {
    cpu_request: Option<Amount>,
    cpu_limit: Option<Amount>,
    memory_limit: Option<Amount>,
}

/// Shares, quota, period and memory limit: the settings that containers and sandboxes have in common.
fn compute_limits(requested: &RequestedResources, node: &NodeFacts) -> LinuxResources {
    let shares = cpu_shares(requested.cpu_request.map_or(0, Amount::milli));
    let quota = |limit: Amount| node.cpu_quota_period().map(|period| cpu_quota(limit.milli(), period));
    LinuxResources {
        cpu_shares: Some(shares),
        cpu_quota: requested.cpu_limit.and_then(quota),
        cpu_period: node.cpu_quota_period(),
        memory_limit_bytes: requested.memory_limit.map(Amount::units),
        ..LinuxResources::default()
    }
}

/// The settings of one container.
#[must_use]
pub fn container_resources(pod: &Pod, container: &ContainerRef<'_>, node: &NodeFacts) -> LinuxResources {
    let own = container.resources();
    let of_pod = spec_of(pod).resources.as_ref();
    // A container without its own limit gets the pod's limit, the closest one that applies to it.
    let limit_of = |name| own.and_then(|r| limit(r, name)).or_else(|| of_pod.and_then(|r| limit(r, name)));
    // A request of zero is set: the minimum of shares.
    let requests_cpu = own.and_then(|r| r.requests.as_ref()).is_some_and(|all| all.contains_key("cpu"));
    let requested = RequestedResources {
        cpu_request: if requests_cpu { own.and_then(|r| request(r, "cpu")) } else { limit_of("cpu") },
        cpu_limit: limit_of("cpu"),
        memory_limit: limit_of("memory"),
    };
    let mut resources = compute_limits(&requested, node);
    resources.oom_score_adj = Some(oom_score_adj(pod, container, node.memory_capacity_bytes));
    let of_pod = of_pod.filter(|_| node.features.pod_level_resources);
    resources.hugepage_limits = hugepage_limits([of_pod, own], &node.hugepage_sizes);
    if node.cgroup_v2 && !node.single_process_oom_kill() {
        resources.unified.insert("memory.oom.group".to_owned(), "1".to_owned());
    }
    limit_swap(&mut resources, pod, container, node);
    resources.unified.extend(memory_qos(pod, container, node));
    resources
}

/// The sum of the containers' requests and limits, without overhead: for runtimes that size a virtual machine.
#[must_use]
pub fn sandbox_resources(pod: &Pod, node: &NodeFacts) -> LinuxResources {
    let spec = spec_of(pod);
    let pod_level = spec.resources.as_ref();
    let sum = |name, of: fn(&ResourceRequirements, &str) -> Option<Amount>| {
        pod_level
            .and_then(|r| of(r, name))
            .or_else(|| effective_sum(spec, |container| of(container.resources.as_ref()?, name)))
    };
    let requested = RequestedResources {
        cpu_request: sum("cpu", request),
        cpu_limit: sum("cpu", limit),
        memory_limit: sum("memory", limit),
    };
    compute_limits(&requested, node)
}

/// The overhead of the pod's RuntimeClass; empty without one.
#[must_use]
pub fn overhead_resources(pod: &Pod, node: &NodeFacts) -> LinuxResources {
    let Some(overhead) = spec_of(pod).overhead.as_ref() else { return LinuxResources::default() };
    let amount = |name| overhead.get(name).and_then(|q| Amount::of(q).ok()).filter(|a| *a > Amount::ZERO);
    let requested = RequestedResources {
        cpu_request: amount("cpu"),
        cpu_limit: amount("cpu"),
        memory_limit: amount("memory"),
    };
    compute_limits(&requested, node)
}

const GUARANTEED_SCORE: i64 = -997;
const BEST_EFFORT_SCORE: i64 = 1000;

/// The OOM score adjustment of this container: the larger its share of the node's memory requests, the later it is killed.
#[must_use]
pub fn oom_score_adj(pod: &Pod, container: &ContainerRef<'_>, memory_capacity_bytes: u64) -> i64 {
    if spec_of(pod).priority_class_name.as_deref() == Some("system-node-critical") {
        return GUARANTEED_SCORE;
    }
    match QosClass::of(pod) {
        QosClass::Guaranteed => return GUARANTEED_SCORE,
        QosClass::BestEffort => return BEST_EFFORT_SCORE,
        QosClass::Burstable => {}
    }
    let extra = unassigned_memory_per_container(pod);
    let score = |container: &ContainerRef<'_>| {
        let requested = container.resources().and_then(|r| request(r, "memory")).map_or(0, Amount::units);
        let capacity = i128::from(memory_capacity_bytes.max(1));
        let share = 1000 * i128::from(requested.saturating_add(extra)) / capacity;
        1000 - i64::try_from(share).unwrap_or(i64::MAX)
    };
    let own = score(container);
    // The lowest score of the regular containers, which the sidecar serves.
    let of_main = || regular_containers(pod).map(|c| score(&c)).max();
    // A sidecar must not be killed before any of them.
    let own = match container.kind {
        ContainerKind::Sidecar => of_main().map_or(own, |main| own.min(main)),
        ContainerKind::Init | ContainerKind::Regular | ContainerKind::Ephemeral => own,
    };
    own.clamp(BEST_EFFORT_SCORE + GUARANTEED_SCORE, BEST_EFFORT_SCORE - 1)
}

/// The part of a pod-level memory request that exceeds the sum of the containers' requests, in equal shares.
fn unassigned_memory_per_container(pod: &Pod) -> i64 {
    let spec = spec_of(pod);
    let Some(of_pod) = spec.resources.as_ref().and_then(|r| request(r, "memory")) else {
        return 0;
    };
    let of_containers = effective_sum(spec, |c| request(c.resources.as_ref()?, "memory"));
    let rest = of_pod - of_containers.unwrap_or(Amount::ZERO);
    let sidecars =
        model::containers::init_containers(pod).filter(|c| c.kind == ContainerKind::Sidecar).count();
    let containers = i64::try_from(spec.containers.len() + sidecars).unwrap_or(i64::MAX).max(1);
    rest.units().max(0) / containers
}

/// A limit for every size that the kernel supports: that of the container, or else that of the pod, or else zero.
fn hugepage_limits(
    of_pod_and_own: [Option<&ResourceRequirements>; 2],
    sizes: &[String],
) -> Vec<(String, u64)> {
    let mut limits: BTreeMap<String, u64> = sizes.iter().map(|size| (size.clone(), 0)).collect();
    let given = of_pod_and_own.into_iter().flatten().filter_map(|resources| resources.limits.as_ref());
    for (name, quantity) in given.flatten() {
        let size = name.strip_prefix("hugepages-").and_then(|size| Amount::parse(size).ok());
        let bytes = Amount::of(quantity).ok().and_then(|amount| u64::try_from(amount.units()).ok());
        if let (Some(size), Some(bytes)) = (size, bytes) {
            limits.insert(kernel_page_size(size.units()), bytes);
        }
    }
    limits.into_iter().collect()
}

/// The reserved memory of the container, and the level from which it is throttled: cgroup v2 only.
fn memory_qos(pod: &Pod, container: &ContainerRef<'_>, node: &NodeFacts) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    let bytes =
        |amount: Option<Amount>| amount.and_then(|amount| u64::try_from(amount.units()).ok()).unwrap_or(0);
    let own = container.resources();
    let requested = bytes(own.and_then(|r| request(r, "memory")));
    let allowed = bytes(own.and_then(|r| limit(r, "memory")));
    let kept = match (node.memory.qos, QosClass::of(pod)) {
        (MemoryQos::Off, _) => return files,
        // A container may still have what an earlier configuration reserved.
        (MemoryQos::Throttling, _) => {
            files.extend(["memory.low", "memory.min"].map(|file| (file.to_owned(), "0".to_owned())));
            None
        }
        (MemoryQos::Reservation, QosClass::BestEffort) => None,
        (MemoryQos::Reservation, QosClass::Guaranteed) => Some("memory.min"),
        (MemoryQos::Reservation, QosClass::Burstable) => Some("memory.low"),
    };
    if let Some(file) = kept.filter(|_| requested > 0) {
        files.insert(file.to_owned(), requested.to_string());
    }
    // A container whose limit equals its request is never throttled.
    if requested != allowed {
        let most = if allowed > 0 { allowed } else { node.memory.allocatable_bytes };
        let high = high(requested, most, node);
        files.extend((high > requested).then(|| ("memory.high".to_owned(), high.to_string())));
    }
    files
}

/// The throttling level between request and limit, in whole pages.
fn high(requested: u64, most: u64, node: &NodeFacts) -> u64 {
    let way = u128::from(most.saturating_sub(requested)) * u128::from(node.config.throttling_millionths())
        / 1_000_000;
    let page = node.memory.page_bytes.max(1);
    requested.saturating_add(u64::try_from(way).unwrap_or(u64::MAX)) / page * page
}

fn limit_swap(resources: &mut LinuxResources, pod: &Pod, container: &ContainerRef<'_>, node: &NodeFacts) {
    let allowance = match node.swap {
        Swap::Uncontrolled => return,
        Swap::NoSwap => 0,
        Swap::Limited { node_swap_bytes } => swap_allowance(pod, container, node, node_swap_bytes),
    };
    if node.cgroup_v2 {
        resources.unified.insert("memory.swap.max".to_owned(), allowance.to_string());
    } else {
        // cgroup v1 limits the sum of memory and swap.
        resources.memory_swap_limit_bytes = resources.memory_limit_bytes;
    }
}

/// A share of the node's swap in proportion to the memory request; zero for containers that must never be swapped out.
fn swap_allowance(pod: &Pod, container: &ContainerRef<'_>, node: &NodeFacts, node_swap_bytes: u64) -> u64 {
    if !has_swap_share(pod, container) {
        return 0;
    }
    let requested = container.resources().and_then(|r| request(r, "memory")).map_or(0, Amount::units);
    let requested = u128::try_from(requested).unwrap_or(0);
    let share = requested * u128::from(node_swap_bytes) / u128::from(node.memory_capacity_bytes.max(1));
    u64::try_from(share).unwrap_or(u64::MAX)
}

fn has_swap_share(pod: &Pod, container: &ContainerRef<'_>) -> bool {
    let requested = container.resources().and_then(|r| request(r, "memory"));
    let allowed = container.resources().and_then(|r| limit(r, "memory"));
    QosClass::of(pod) == QosClass::Burstable
        && !is_critical_pod(pod)
        && requested.is_some()
        && requested != allowed
}

/// Memory of the container may be swapped out.
pub(crate) fn may_swap(pod: &Pod, container: &ContainerRef<'_>, node: &NodeFacts) -> bool {
    node.cgroup_v2 && matches!(node.swap, Swap::Limited { .. }) && has_swap_share(pod, container)
}
