//! Pods that users resize in place while everything else happens. Invariants:
//! - a container is stopped only if a resize of its memory requires its restart, once for each such resize;
//! - the CPU that is allocated to running pods never exceeds the node's;
//!
//! And once the faults end, a resize is carried out or waits for a reason, and the runtime has what the status says.

use std::collections::{BTreeMap, BTreeSet};

use model::k8s::{Pod, Quantity, ResourceRequirements};
use model::{Amount, ContainerId};
use resources_core::amounts_file::{self, Entries};
use serde_json::{Value, json};

use super::random::Dice;
use crate::pods::{Manifest, container_with, pod};
use crate::world::World;

/// `kept` is never restarted by a resize, `restarted` is if its memory limit changes.
pub(super) const RESIZED: [&str; 2] = ["kept", "restarted"];
/// CPU requests of resizes, in millicores. The last one exceeds the node's CPUs; two of the one before it do not fit together.
const CPUS: [i64; 5] = [200, 800, 1600, 2500, 5000];
const MEMORY_MIB: [i64; 3] = [32, 64, 128];
const NODE_CPU_MILLI: i64 = 4000;
const ALLOCATED: &str = "/var/lib/kubelet/allocated_pods_state";

/// The resources with that CPU request, and limits above the requests.
fn resources(cpu: i64, memory_mib: i64) -> Value {
    json!({
        "requests": {"cpu": format!("{cpu}m"), "memory": "16Mi"},
        "limits": {"cpu": format!("{}m", cpu + 500), "memory": format!("{memory_mib}Mi")},
    })
}

pub(super) fn manifest(name: &str) -> Manifest {
    let restart_policy = if name == "restarted" { "RestartContainer" } else { "NotRequired" };
    let policy = json!([{"resourceName": "memory", "restartPolicy": restart_policy}]);
    pod(name, [container_with(name, json!({"resources": resources(200, 64), "resizePolicy": policy}))])
}

/// In thousandths.
fn amount(list: Option<&BTreeMap<String, Quantity>>, key: &str) -> i64 {
    let quantity = list.and_then(|list| list.get(key));
    quantity.and_then(|quantity| Amount::parse(&quantity.0).ok()).map_or(0, Amount::milli)
}

/// Sees every request for a resize, and every stop.
#[derive(Default)]
pub(super) struct ResizeChecker {
    /// How often a user changed the memory of a pod, by UID.
    memory_changes: BTreeMap<String, usize>,
    /// The containers that the agent stopped, by UID of their pod.
    stopped: BTreeMap<String, BTreeSet<ContainerId>>,
    /// The last content of the file of allocations that was checked.
    checked: String,
    entries: Entries,
}

impl ResizeChecker {
    /// What `kubectl patch --subresource resize` does.
    pub(super) fn resize(&mut self, world: &World, name: &str, kinds: &mut Dice) -> Option<String> {
        let (cpu, memory) = (kinds.pick(&CPUS), kinds.pick(&MEMORY_MIB));
        let mut pod = world.in_api(name)?;
        let container = &mut pod.spec.as_mut()?.containers[0];
        let before = container.resources.clone();
        container.resources = serde_json::from_value(resources(cpu, memory)).ok()?;
        let limit = |of: &Option<ResourceRequirements>| {
            amount(of.as_ref().and_then(|resources| resources.limits.as_ref()), "memory")
        };
        if limit(&before) != limit(&container.resources) {
            *self.memory_changes.entry(pod.metadata.uid.clone()?).or_default() += 1;
        }
        world.api().put(&pod);
        Some(format!("{cpu}m {memory}Mi"))
    }

    /// The agent stops a running container of a pod that users still want.
    pub(super) fn stops(&mut self, uid: &str, name: &str, id: &ContainerId) -> Option<String> {
        let allowed =
            if name == "restarted" { self.memory_changes.get(uid).copied().unwrap_or(0) } else { 0 };
        let stopped = self.stopped.entry(uid.to_owned()).or_default();
        stopped.insert(id.clone());
        let count = stopped.len();
        (count > allowed)
            .then(|| format!("{name} is stopped {count} times by {allowed} resizes that restart it"))
    }

    /// The kernel reports less memory usage than any limit, so that limits can be decreased.
    fn report_memory_usage(world: &World) {
        for cgroup in world.cgroups.paths().iter().filter(|path| path.contains("/pod")) {
            if world.cgroups.text(cgroup, "memory.current").is_none() {
                world.cgroups.write(cgroup, "memory.current", "8388608");
            }
        }
    }

    /// What is allocated to running pods fits the node.
    pub(super) fn check_allocations(&mut self, world: &World, running: &BTreeSet<String>) -> Option<String> {
        Self::report_memory_usage(world);
        let text = world.host.text(ALLOCATED)?;
        if text != self.checked {
            self.entries = amounts_file::parse(&text).ok()?;
            self.checked = text;
        }
        let of_running = self.entries.iter().filter(|(uid, _)| running.contains(uid.as_str()));
        let containers = of_running.flat_map(|(_, pod)| pod.containers.iter().flatten());
        let total: i64 = containers.map(|(_, resources)| amount(resources.requests.as_ref(), "cpu")).sum();
        (total > NODE_CPU_MILLI)
            .then(|| format!("{total}m of CPU are allocated on a node of {NODE_CPU_MILLI}m"))
    }
}

/// The pod requests as much as at first.
pub(super) fn shrink(world: &World, name: &str) {
    if let Some(mut pod) = world.in_api(name).filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
        pod.spec.as_mut().unwrap().containers[0].resources =
            serde_json::from_value(resources(CPUS[0], MEMORY_MIB[1])).unwrap();
        world.api().put(&pod);
    }
}

/// Why the status of the pod is not that of its container in the runtime.
pub(super) fn mismatch(world: &World, name: &str, pod: &Pod) -> Option<String> {
    let status = pod.status.clone().unwrap_or_default();
    let reported = status.container_statuses.as_ref().and_then(|all| all.first()?.resources.clone());
    let has = world.fake.resources(name, name).unwrap_or_default();
    let limits = reported.as_ref().and_then(|resources| resources.limits.as_ref());
    let (cpu, memory) = (amount(limits, "cpu"), amount(limits, "memory") / 1000);
    if (has.cpu_quota, has.memory_limit_bytes) != (Some(cpu * 100), Some(memory)) {
        return Some(format!("{name} has {has:?} and its status says {reported:?}"));
    }
    let in_progress = status.conditions.iter().flatten().find(|c| c.type_ == "PodResizeInProgress")?;
    Some(format!("a resize of {name} is in progress: {:?}", in_progress.message))
}

/// Why the pod is not in its final state.
pub(super) fn difference(world: &World, name: &str, pod: &Pod) -> Option<String> {
    let wanted = pod.spec.as_ref()?.containers[0].resources.clone();
    let status = pod.status.clone().unwrap_or_default();
    // Pods are bound without a scheduler, so that a new one may not fit.
    if status.reason.as_deref() == Some("OutOfcpu") {
        return None;
    }
    let reported = status.container_statuses.as_ref().and_then(|all| all.first()?.resources.clone());
    if let Some(mismatch) = mismatch(world, name, pod) {
        return Some(mismatch);
    }
    let condition = |kind: &str| status.conditions.iter().flatten().find(|c| c.type_ == kind);
    let requested = amount(wanted.as_ref().and_then(|resources| resources.requests.as_ref()), "cpu");
    let pending = condition("PodResizePending").and_then(|condition| condition.reason.as_deref());
    let others = RESIZED.iter().filter(|other| **other != name).map(|other| allocated_cpu(world, other));
    let is_right = match pending {
        None => wanted == reported,
        Some(_) => requested + others.sum::<i64>() > NODE_CPU_MILLI,
    };
    (!is_right).then(|| format!("{name} requests {wanted:?}, has {reported:?} and is pending: {pending:?}"))
}

/// By the status in the API.
fn allocated_cpu(world: &World, name: &str) -> i64 {
    let statuses = world.api_status(name).container_statuses.unwrap_or_default();
    amount(statuses.first().and_then(|status| status.allocated_resources.as_ref()), "cpu")
}
