//! Converts resource limits to CRI messages, in which zero means "not specified".

use cri_api::v1 as wire;
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
