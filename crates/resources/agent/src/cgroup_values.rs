//! The values of cgroups: from the configuration and the machine to what is written to them.

use base_agent::context::Context;
use base_core::node_facts::NodeFacts;
use model::cgroup::{CgroupPath, CgroupSettings, CgroupVersion};
use ports::host::HostResult;
use resources_core::cgroup::qos::MemoryReserve;
use resources_core::cgroup::{CgroupNumbers, PodRules, QosCgroupRules, compute_settings};

use crate::metrics::{CgroupMetrics, CgroupWork};

/// What applies to the cgroup of every pod.
#[must_use]
pub fn pod_rules(ctx: &Context) -> PodRules<'_> {
    let limit = ctx.config().pod_pids_limit;
    PodRules {
        cpu_quota_period: ctx.node_facts.cpu_quota_period(),
        pids_limit: Some(limit).filter(|limit| *limit > 0),
        hugepage_sizes: &ctx.node_facts.hugepage_sizes,
        memory_qos: ctx.node_facts.memory.qos,
    }
}

/// What applies to the QoS cgroups.
#[must_use]
pub fn qos_cgroup_rules(ctx: &Context) -> QosCgroupRules<'_> {
    let NodeFacts { features, memory, hugepage_sizes, .. } = &ctx.node_facts;
    QosCgroupRules {
        hugepage_sizes,
        memory_qos: memory.qos,
        memory_reserve: MemoryReserve::of(ctx.config(), *features, memory.allocatable_bytes),
    }
}

#[must_use]
pub fn cgroup_version(ctx: &Context) -> CgroupVersion {
    if ctx.node_facts.cgroup_v2 { CgroupVersion::V2 } else { CgroupVersion::V1 }
}

#[must_use]
pub fn cgroup_settings(ctx: &Context, numbers: &CgroupNumbers) -> CgroupSettings {
    compute_settings(numbers, cgroup_version(ctx))
}

/// Creates the cgroup if it does not exist and writes its values; the duration is a metric.
pub async fn apply_cgroup(
    ctx: &Context,
    cgroup: &CgroupPath,
    numbers: &CgroupNumbers,
    work: CgroupWork,
) -> HostResult<()> {
    let settings = cgroup_settings(ctx, numbers);
    let began = ctx.clock.mono();
    let applied = ctx.cgroups.ensure(cgroup, &settings).await;
    ctx.metrics.get::<CgroupMetrics>().worked(work, ctx.clock.mono().saturating_since(began));
    applied
}
