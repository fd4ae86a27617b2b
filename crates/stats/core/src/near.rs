//! What is near its limit in a sample: the memory of containers, and the processes of pods.

use std::collections::BTreeMap;

use model::PodUid;
use model::explain::NearLimit;

use super::sample::{NodeSample, PodSample};

/// The pods that have something near its limit.
pub type NearLimits = BTreeMap<PodUid, Vec<NearLimit>>;

/// Reads them from a sample of all pods; `pids_limit` is that of each pod, 0 or less: none.
#[must_use]
pub fn compute_near_limits(sample: &NodeSample, pids_limit: i64) -> NearLimits {
    let pids_limit = u64::try_from(pids_limit).unwrap_or(0);
    let of_pod = |pod: &PodSample| {
        let near: Vec<NearLimit> =
            of_containers(sample, pod).chain(of_processes(sample, pod, pids_limit)).collect();
        (!near.is_empty()).then(|| (pod.pod.uid.clone(), near))
    };
    sample.pods.iter().filter_map(of_pod).collect()
}

fn of_containers(sample: &NodeSample, pod: &PodSample) -> impl Iterator<Item = NearLimit> {
    pod.containers.iter().filter_map(|container| {
        let memory = &container.placed.cgroup.memory;
        let (used, limit) = memory.working_set.zip(memory.limit)?;
        NearLimit::check("memory", Some(&container.name), used, limit, sample.taken.wall)
    })
}

fn of_processes(sample: &NodeSample, pod: &PodSample, limit: u64) -> Option<NearLimit> {
    NearLimit::check("pids", None, pod.processes()?, limit, sample.taken.wall)
}
