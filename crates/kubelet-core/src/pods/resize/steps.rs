//! The order in which the limits of a pod and of its containers are set.
//!
//! Memory first, then CPU. A limit of the pod that grows is set before those of its containers, and one that shrinks after
//! them, so that the pod can always use what its containers may. Among containers those that shrink come first. A limit below
//! what is in use is not set at all.

use std::collections::BTreeMap;

use model::cgroup::CgroupVersion;
use model::containers::{find_container, spec_of};
use model::k8s::{Pod, ResourceRequirements};
use model::request::LinuxResources;
use model::{Amount, ContainerId};
use resources_core::amounts::{Amounts, Resource};
use resources_core::cgroup::convert::{cpu_quota, cpu_shares, milli_of_shares, shares_of_weight};
use resources_core::cgroup::numbers::cpu_weight;
use resources_core::cgroup::{CgroupNumbers, CpuQuota};

use super::changes::{ContainerChange, PodResize};
use crate::pods::request::resources::container_resources;
use base_core::node_facts::NodeFacts;

/// The limits of a pod's cgroup; `None` where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodLimits {
    pub memory: Option<i64>,
    /// Microseconds in each period.
    pub cpu_quota: Option<i64>,
    pub cpu_period: Option<i64>,
    pub cpu_shares: i64,
    /// The cgroup has a weight, which several numbers of shares have in common.
    pub has_weight: bool,
}

impl PodLimits {
    fn has_shares(&self, shares: i64) -> bool {
        self.cpu_shares == shares || self.has_weight && cpu_weight(self.cpu_shares) == cpu_weight(shares)
    }
}

/// The files of a pod's cgroup that have its limits: controller and name.
#[must_use]
pub const fn limit_files(version: CgroupVersion) -> [(&'static str, &'static str); 4] {
    match version {
        CgroupVersion::V1 => [
            ("memory", "memory.limit_in_bytes"),
            ("cpu", "cpu.cfs_quota_us"),
            ("cpu", "cpu.cfs_period_us"),
            ("cpu", "cpu.shares"),
        ],
        CgroupVersion::V2 => [("", "memory.max"), ("", "cpu.max"), ("", "cpu.max"), ("", "cpu.weight")],
    }
}

/// The file of a cgroup with the bytes in use.
#[must_use]
pub const fn usage_file(version: CgroupVersion) -> (&'static str, &'static str) {
    match version {
        CgroupVersion::V1 => ("memory", "memory.usage_in_bytes"),
        CgroupVersion::V2 => ("", "memory.current"),
    }
}

/// What the version 1 of cgroups has for no limit is more than any machine has.
const UNLIMITED: i64 = i64::MAX / 2;

/// The limits from the content of [`limit_files`], in their order.
#[must_use]
pub fn parse_limits(version: CgroupVersion, texts: &[Option<String>]) -> PodLimits {
    let word = |at: usize, word: usize| texts.get(at)?.as_ref()?.split_whitespace().nth(word);
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<i64>().ok());
    let positive = |text: Option<&str>| number(text).filter(|number| (1..UNLIMITED).contains(number));
    let (period, shares) = match version {
        CgroupVersion::V1 => (word(2, 0), number(word(3, 0))),
        CgroupVersion::V2 => (word(2, 1), number(word(3, 0)).map(shares_of_weight)),
    };
    PodLimits {
        memory: positive(word(0, 0)),
        cpu_quota: positive(word(1, 0)),
        cpu_period: positive(period),
        cpu_shares: shares.unwrap_or_default(),
        has_weight: version == CgroupVersion::V2,
    }
}

/// The memory in use; `None` if it cannot be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    pub pod: Option<u64>,
    pub containers: BTreeMap<ContainerId, u64>,
}

#[derive(Clone, Copy, Debug)]
pub struct ResizeInputs<'a> {
    /// With the resources that are allocated.
    pub pod: &'a Pod,
    pub resize: &'a PodResize,
    pub node: &'a NodeFacts,
    /// The pod's cgroup as it is to be, and as it is; `None` if pods have none.
    pub cgroup: Option<(&'a CgroupNumbers, PodLimits)>,
    pub usage: &'a MemoryUse,
}

/// One call, or one write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResizeStep {
    Pod {
        resource: Resource,
        /// What is written to the pod's cgroup.
        numbers: CgroupNumbers,
        /// All limits of the pod once it is written, without its overhead, for the runtime.
        after: Box<LinuxResources>,
        /// The same before it, for a runtime that has accepted what could not be written.
        before: Box<LinuxResources>,
    },
    Container {
        id: ContainerId,
        name: String,
        resources: Box<LinuxResources>,
        /// The amounts of the container from then on.
        amounts: Amounts,
    },
}

/// The steps of a resize.
///
/// # Errors
/// Memory would be limited to less than what is in use.
pub fn compute_steps(inputs: &ResizeInputs<'_>) -> Result<Vec<ResizeStep>, String> {
    refuse_below_use(inputs)?;
    let mut draft = Draft {
        inputs,
        pod: inputs.pod.clone(),
        limits: inputs.cgroup.map(|(_, now)| now).unwrap_or_default(),
        amounts: inputs.resize.containers.iter().map(|change| (change.id.clone(), change.from)).collect(),
        steps: Vec::new(),
    };
    for resource in [Resource::Memory, Resource::Cpu] {
        let (before, after) = draft.pod_changes(resource);
        before.into_iter().for_each(|change| draft.limit_pod(resource, change));
        draft.update_containers(resource);
        after.into_iter().for_each(|change| draft.limit_pod(resource, change));
    }
    Ok(draft.steps)
}

fn refuse_below_use(inputs: &ResizeInputs<'_>) -> Result<(), String> {
    let mut problems = Vec::new();
    if let Some((desired, now)) = inputs.cgroup
        && let Some(limit) = desired.memory_limit
        && now.memory.is_none_or(|now| limit < now)
    {
        match inputs.usage.pod {
            None => problems.push("missing pod memory usage".to_owned()),
            Some(used) if used >= limit.unsigned_abs() => problems
                .push(format!("attempting to set pod memory limit ({limit}) below current usage ({used})")),
            Some(_) => {}
        }
    }
    for change in &inputs.resize.containers {
        let Some(limit) = change.smaller_memory_limit() else { continue };
        match inputs.usage.containers.get(&change.id) {
            None => problems.push(format!("missing container {:?} memory usage", change.name)),
            Some(used) if *used >= limit.unsigned_abs() => problems.push(format!(
                "attempting to set container {:?} memory limit ({limit}) below current usage ({used})",
                change.name
            )),
            Some(_) => {}
        }
    }
    match problems.as_slice() {
        [] => Ok(()),
        [one] => Err(format!("cannot decrease memory limits: {one}")),
        several => Err(format!("cannot decrease memory limits: [{}]", several.join(", "))),
    }
}

/// A value of the pod's cgroup that is to be changed.
#[derive(Clone, Copy, Debug)]
enum PodChange {
    Memory(i64),
    Quota(CpuQuota),
    Shares(i64),
}

struct Draft<'a> {
    inputs: &'a ResizeInputs<'a>,
    /// Copied once: a copy for each container would take minutes for a pod of thousands.
    pod: Pod,
    /// As they are after the steps so far; and the amounts of the containers.
    limits: PodLimits,
    amounts: BTreeMap<ContainerId, Amounts>,
    steps: Vec<ResizeStep>,
}

impl Draft<'_> {
    /// The changes before those of the containers, and those after them. What the pod does not limit stays as it is.
    fn pod_changes(&self, resource: Resource) -> (Vec<PodChange>, Vec<PodChange>) {
        let Some((desired, now)) = self.inputs.cgroup else { return (Vec::new(), Vec::new()) };
        // No limit is more than any.
        let grows = |to: i64, from: Option<i64>| from.is_some_and(|from| to > from);
        match resource {
            Resource::Memory => {
                let limit = desired.memory_limit.filter(|limit| now.memory != Some(*limit));
                limit.map(PodChange::Memory).into_iter().partition(|change| match change {
                    PodChange::Memory(limit) => grows(*limit, now.memory),
                    PodChange::Quota(_) | PodChange::Shares(_) => false,
                })
            }
            Resource::Cpu => {
                let is_new = |quota: &CpuQuota| {
                    quota.micros != now.cpu_quota
                        || quota.period.is_some_and(|period| now.cpu_period != Some(period))
                };
                let quota = desired.cpu_quota.filter(is_new);
                let quota_grows = |quota: &CpuQuota| quota.micros.is_none_or(|to| grows(to, now.cpu_quota));
                let shares = desired.cpu_shares.filter(|shares| !now.has_shares(*shares));
                let shares_grow = |shares: &i64| *shares > now.cpu_shares;
                // Requests stay within limits all the time.
                let before = quota.filter(quota_grows).map(PodChange::Quota).into_iter();
                let before = before.chain(shares.filter(shares_grow).map(PodChange::Shares));
                let after = shares.filter(|shares| !shares_grow(shares)).map(PodChange::Shares).into_iter();
                let after = after.chain(quota.filter(|quota| !quota_grows(quota)).map(PodChange::Quota));
                (before.collect(), after.collect())
            }
        }
    }

    fn limit_pod(&mut self, resource: Resource, change: PodChange) {
        let before = self.sandbox();
        let mut numbers = CgroupNumbers::default();
        match change {
            PodChange::Memory(limit) => {
                numbers.memory_limit = Some(limit);
                self.limits.memory = Some(limit);
            }
            PodChange::Quota(quota) => {
                numbers.cpu_quota = Some(quota);
                self.limits.cpu_quota = quota.micros;
                self.limits.cpu_period = quota.period.or(self.limits.cpu_period);
            }
            PodChange::Shares(shares) => {
                numbers.cpu_shares = Some(shares);
                self.limits.cpu_shares = shares;
            }
        }
        let after = self.sandbox();
        self.steps.push(ResizeStep::Pod {
            resource,
            numbers,
            after: Box::new(after),
            before: Box::new(before),
        });
    }

    /// The limits of the pod without its overhead.
    fn sandbox(&self) -> LinuxResources {
        let overhead = spec_of(self.inputs.pod).overhead.as_ref();
        let overhead = |name| {
            let quantity = overhead.and_then(|overhead| overhead.get(name));
            quantity.and_then(|quantity| Amount::of(quantity).ok()).unwrap_or(Amount::ZERO)
        };
        let (cpu, PodLimits { memory, cpu_quota: quota, cpu_period, cpu_shares: shares, .. }) =
            (overhead("cpu").milli(), self.limits);
        let without_cpu = |quota: i64| match cpu_period.filter(|_| cpu > 0) {
            Some(period) => quota - cpu_quota(cpu, period),
            None => quota,
        };
        LinuxResources {
            cpu_shares: Some(if cpu > 0 { cpu_shares(milli_of_shares(shares) - cpu) } else { shares }),
            cpu_quota: quota.map(without_cpu),
            cpu_period,
            memory_limit_bytes: memory.map(|bytes| bytes - overhead("memory").units()),
            ..LinuxResources::default()
        }
    }

    fn update_containers(&mut self, resource: Resource) {
        let mut changes: Vec<&ContainerChange> = self.inputs.resize.containers.iter().collect();
        changes.retain(|change| change.from.differs_in(&change.to, resource));
        // Those that shrink, the last of them first; then those that grow.
        let growth = |change: &ContainerChange| {
            let ContainerChange { from, to, .. } = change;
            match resource {
                Resource::Memory if to.memory_limit != from.memory_limit => {
                    to.memory_limit - from.memory_limit
                }
                Resource::Memory => to.memory_request - from.memory_request,
                Resource::Cpu if to.cpu_limit != from.cpu_limit => to.cpu_limit - from.cpu_limit,
                Resource::Cpu => to.cpu_request - from.cpu_request,
            }
        };
        let (grow, mut shrink): (Vec<_>, Vec<_>) = changes.into_iter().partition(|change| growth(change) > 0);
        shrink.reverse();
        for change in shrink.into_iter().chain(grow) {
            self.update_container(change, resource);
        }
    }

    fn update_container(&mut self, change: &ContainerChange, resource: Resource) {
        let amounts = self.amounts.get(&change.id).copied().unwrap_or(change.from).with(resource, &change.to);
        let Some(resources) = resources_with(&mut self.pod, &change.name, amounts, self.inputs.node) else {
            return;
        };
        self.amounts.insert(change.id.clone(), amounts);
        self.steps.push(ResizeStep::Container {
            id: change.id.clone(),
            name: change.name.to_string(),
            resources: Box::new(resources),
            amounts,
        });
    }
}

/// What the runtime is asked for: all limits of the container, with these amounts; `None` if the pod has no such container. The pod is left
/// as it was.
fn resources_with(pod: &mut Pod, name: &str, amounts: Amounts, node: &NodeFacts) -> Option<LinuxResources> {
    find_container(pod, name)?;
    let before = set_amounts(pod, name, amounts);
    let container = find_container(pod, name)?;
    let resources = container_resources(pod, &container, node);
    if let Some(own) = resources_of(pod, name) {
        *own = before;
    }
    Some(resources)
}

/// Returns what the container had before.
fn set_amounts(pod: &mut Pod, name: &str, amounts: Amounts) -> Option<ResourceRequirements> {
    let own = resources_of(pod, name)?;
    let before = own.clone();
    let resources = own.get_or_insert_default();
    let amounts = amounts.to_requirements();
    for (list, amounts) in
        [(&mut resources.requests, amounts.requests), (&mut resources.limits, amounts.limits)]
    {
        let list = list.get_or_insert_default();
        list.retain(|name, _| name != "cpu" && name != "memory");
        list.extend(amounts.into_iter().flatten());
    }
    before
}

fn resources_of<'p>(pod: &'p mut Pod, name: &str) -> Option<&'p mut Option<ResourceRequirements>> {
    let spec = pod.spec.as_mut()?;
    let mut all = spec.init_containers.iter_mut().flatten().chain(&mut spec.containers);
    all.find(|container| container.name == name).map(|container| &mut container.resources)
}

#[cfg(test)]
mod tests;
