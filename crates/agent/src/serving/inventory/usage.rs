//! What the node and its pods use of CPU and memory, and their cgroups: from the sample that `/stats/summary` shares.

use std::sync::Arc;

use model::containers::find_container;
use model::inventory::{CgroupItem, ContainerUsage, Inventory, NodeUsage, PodSelection, PodUsage, Usage};
use stats_core::age::SHARED_FOR_CURRENT_USAGE;
use stats_core::cgroup::Detail;
use stats_core::sample::{ContainerSample, NodeSample, Placed, PodSample};

use super::{TIMEOUT, in_time};
use crate::serving::explain::is_selected;
use crate::serving::node_api::AgentApi;

pub(super) async fn cgroups(api: &AgentApi, of: &PodSelection) -> Inventory<CgroupItem> {
    let sample = match sample(api).await {
        Ok(sample) => sample,
        Err(problem) => return Inventory { items: Vec::new(), problems: vec![problem] },
    };
    let mut items = Vec::new();
    if *of == PodSelection::default() {
        items.push(cgroup("node", &api.lookup.ctx.settings.node_name, &sample.root));
        items.extend(sample.system.iter().map(|system| cgroup("system", system.name, &system.placed)));
    }
    for pod in selected(api, &sample, of) {
        let owner = pod.pod.to_string();
        items.extend(pod.own.iter().map(|own| cgroup("pod", &owner, own)));
        items.extend(pod.sandbox.iter().map(|sandbox| cgroup("sandbox", &owner, &sandbox.placed)));
        items.extend(
            pod.containers.iter().map(|container| {
                cgroup("container", &format!("{owner}/{}", container.name), &container.placed)
            }),
        );
    }
    Inventory { items, problems: incomplete(&sample) }
}

pub(super) async fn of_pods(api: &AgentApi, of: &PodSelection) -> NodeUsage {
    let info = api.lookup.ctx.machine.info();
    let sample = match sample(api).await {
        Ok(sample) => sample,
        Err(problem) => return NodeUsage { problems: vec![problem], ..NodeUsage::default() },
    };
    NodeUsage {
        taken: sample.taken.wall,
        node: usage(&sample.root),
        cpus: info.cpus,
        memory_capacity_bytes: sample.machine.memory_bytes,
        pods: selected(api, &sample, of).map(|pod| of_pod(api, pod)).collect(),
        problems: incomplete(&sample),
    }
}

async fn sample(api: &AgentApi) -> Result<Arc<NodeSample>, String> {
    let ctx = &api.lookup.ctx;
    match in_time(ctx, api.samplers.node(Detail::Usage, SHARED_FOR_CURRENT_USAGE)).await {
        Some(Some(sample)) => Ok(sample),
        Some(None) => Err("the kubelet is shutting down".to_owned()),
        None => Err(format!("the usage of cgroups is not known after {} s", TIMEOUT.as_secs())),
    }
}

fn incomplete(sample: &NodeSample) -> Vec<String> {
    let problem = || "some cgroups could not be read".to_owned();
    sample.is_incomplete.then(problem).into_iter().collect()
}

/// A pod that has ended may be measured for a moment; it has no labels then.
fn selected<'a>(
    api: &'a AgentApi,
    sample: &'a NodeSample,
    of: &'a PodSelection,
) -> impl Iterator<Item = &'a PodSample> {
    sample.pods.iter().filter(|pod| {
        let entry = api.lookup.pods.get(&pod.pod.uid);
        let labels = entry.as_ref().and_then(|entry| entry.pod.metadata.labels.as_ref());
        is_selected(of, &pod.pod, labels, &api.lookup.ctx.settings.node_name)
    })
}

fn of_pod(api: &AgentApi, pod: &PodSample) -> PodUsage {
    let (entry, whole) = (api.lookup.pods.get(&pod.pod.uid), pod.whole());
    let is_in_spec = |container: &&ContainerSample| {
        entry.as_ref().is_none_or(|entry| find_container(&entry.pod, &container.name).is_some())
    };
    PodUsage {
        namespace: pod.pod.namespace.to_string(),
        name: pod.pod.name.to_string(),
        uid: pod.pod.uid.to_string(),
        usage: usage(&whole),
        memory_limit_bytes: whole.cgroup.memory.limit,
        containers: pod.containers.iter().filter(is_in_spec).map(of_container).collect(),
    }
}

fn of_container(container: &ContainerSample) -> ContainerUsage {
    ContainerUsage {
        name: container.name.to_string(),
        usage: usage(&container.placed),
        memory_limit_bytes: container.placed.cgroup.memory.limit,
    }
}

fn cgroup(kind: &str, owner: &str, placed: &Placed) -> CgroupItem {
    CgroupItem {
        path: placed.path.to_string(),
        kind: kind.to_owned(),
        owner: owner.to_owned(),
        usage: usage(placed),
        memory_limit_bytes: placed.cgroup.memory.limit,
        processes: placed.cgroup.processes,
    }
}

const fn usage(placed: &Placed) -> Usage {
    Usage { cpu_nanocores: placed.rate, memory_bytes: placed.cgroup.memory.working_set }
}
