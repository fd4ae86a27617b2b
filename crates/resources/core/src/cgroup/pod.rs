//! The settings of a pod's cgroup (docs/behaviour/resources-and-qos.md).

use base_core::node_facts::MemoryQos;
use base_core::pod_sums::pod_limit;
use model::k8s::Pod;
use model::{Amount, QosClass};

use super::numbers::{CgroupNumbers, CpuQuota};
use crate::cgroup::convert::{MIN_SHARES, cpu_quota, cpu_shares, kernel_page_size};
use crate::requests::{Requests, pod_requests};

/// Node settings that apply to every pod's cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodRules<'a> {
    /// Microseconds; `None` if CPU limits are not enforced.
    pub cpu_quota_period: Option<i64>,
    /// `podPidsLimit`, if it limits anything.
    pub pids_limit: Option<i64>,
    /// Huge page sizes of the kernel, in its notation: `2MB`.
    pub hugepage_sizes: &'a [String],
    pub memory_qos: MemoryQos,
}

/// The settings of the cgroup that contains all containers of the pod.
#[must_use]
pub fn compute_pod_numbers(pod: &Pod, rules: &PodRules<'_>) -> CgroupNumbers {
    let requests = pod_requests(pod);
    let requested = |name: &str| requests.get(name).copied().unwrap_or(Amount::ZERO);
    let limits = |name: &str| pod_limit(pod, name);
    let class = QosClass::of(pod);
    let cpu_shares = match class {
        QosClass::BestEffort => MIN_SHARES,
        QosClass::Guaranteed | QosClass::Burstable => cpu_shares(requested("cpu").milli()),
    };
    let (cpu_limit, memory_limit) = match class {
        QosClass::BestEffort => (None, None),
        QosClass::Guaranteed | QosClass::Burstable => (limits("cpu"), limits("memory")),
    };
    let memory = positive(requested("memory").units());
    let is_reserved = rules.memory_qos == MemoryQos::Reservation;
    CgroupNumbers {
        cpu_shares: Some(cpu_shares),
        cpu_quota: cpu_limit.map(|limit| quota(limit, rules.cpu_quota_period)),
        memory_limit: memory_limit.map(Amount::units),
        memory_min: memory.filter(|_| is_reserved && class == QosClass::Guaranteed),
        memory_low: memory.filter(|_| is_reserved && class == QosClass::Burstable),
        pids_limit: rules.pids_limit,
        hugepage_limits: hugepage_limits(&requests, rules.hugepage_sizes),
        allowed_cpus: None,
    }
}

fn quota(limit: Amount, period: Option<i64>) -> CpuQuota {
    CpuQuota { micros: period.map(|period| cpu_quota(limit.milli(), period)), period }
}

fn positive(number: i64) -> Option<i64> {
    (number > 0).then_some(number)
}

/// For every page size of the kernel the requested bytes, or 0.
#[must_use]
pub fn hugepage_limits(amounts: &Requests, sizes: &[String]) -> Vec<(String, u64)> {
    let requested = amounts.iter().filter_map(|(name, amount)| {
        let size = Amount::parse(name.strip_prefix("hugepages-")?).ok()?;
        Some((kernel_page_size(size.units()), u64::try_from(amount.units()).unwrap_or(0)))
    });
    let requested: Vec<(String, u64)> = requested.collect();
    // One size has several spellings, such as 2Mi and 2097152.
    let of = |size: &String| {
        let all = requested.iter().filter(|(name, _)| name == size).map(|(_, bytes)| *bytes);
        all.fold(0, u64::saturating_add)
    };
    sizes.iter().map(|size| (size.clone(), of(size))).collect()
}
