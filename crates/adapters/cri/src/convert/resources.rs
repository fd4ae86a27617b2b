//! Converts resource limits to CRI messages, in which zero means "not specified".

use cri_api::v1 as wire;
use model::observation::ObservedResources;
use model::request::LinuxResources;

pub(crate) fn resources(from: &LinuxResources) -> wire::LinuxContainerResources {
    let LinuxResources {
        cpu_shares,
        cpu_quota,
        cpu_period,
        memory_limit_bytes,
        memory_swap_limit_bytes,
        oom_score_adj,
        cpuset_cpus,
        cpuset_mems,
        hugepage_limits,
        unified,
    } = from;
    wire::LinuxContainerResources {
        cpu_period: cpu_period.unwrap_or(0),
        cpu_quota: cpu_quota.unwrap_or(0),
        cpu_shares: cpu_shares.unwrap_or(0),
        memory_limit_in_bytes: memory_limit_bytes.unwrap_or(0),
        oom_score_adj: oom_score_adj.unwrap_or(0),
        cpuset_cpus: cpuset_cpus.clone(),
        cpuset_mems: cpuset_mems.clone(),
        hugepage_limits: hugepage_limits
            .iter()
            .map(|(page_size, limit)| wire::HugepageLimit { page_size: page_size.clone(), limit: *limit })
            .collect(),
        unified: unified.clone(),
        memory_swap_limit_in_bytes: memory_swap_limit_bytes.unwrap_or(0),
    }
}

/// The limits that a runtime reports; `None` if it reports none.
pub(crate) fn observed(from: &wire::LinuxContainerResources) -> Option<ObservedResources> {
    let positive = |number: i64| (number > 0).then_some(number);
    let quota = positive(from.cpu_quota).zip(positive(from.cpu_period));
    let observed = ObservedResources {
        cpu_shares: positive(from.cpu_shares),
        cpu_limit_milli: quota.map(|(quota, period)| quota.saturating_mul(1000) / period),
        memory_limit: positive(from.memory_limit_in_bytes),
    };
    (observed != ObservedResources::default()).then_some(observed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_a_runtime_are_read_in_thousandths_of_a_core_and_bytes() {
        let limits = |cpu_quota, cpu_period, cpu_shares, memory_limit_in_bytes| {
            observed(&wire::LinuxContainerResources {
                cpu_quota,
                cpu_period,
                cpu_shares,
                memory_limit_in_bytes,
                ..Default::default()
            })
        };
        let all = ObservedResources {
            cpu_shares: Some(30),
            cpu_limit_milli: Some(150),
            memory_limit: Some(96 << 20),
        };
        assert_eq!(limits(15_000, 100_000, 30, 96 << 20), Some(all));
        let shares = ObservedResources { cpu_shares: Some(2), ..ObservedResources::default() };
        assert_eq!(limits(-1, 100_000, 2, 0), Some(shares));
        assert_eq!(limits(0, 0, 0, 0), None);
    }
}
