//! Who has which memory.

use std::collections::BTreeMap;

use model::ContainerKind;
use model::PodUid;
use model::containers::{ContainerRef, init_containers};
use model::k8s::Pod;
use model::topology::NumaMask;

use super::nodes::{NodeMap, give_back};

/// Bytes of a resource, from some NUMA nodes together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    pub numa: NumaMask,
    /// `memory` or `hugepages-<size>`.
    pub resource: String,
    pub bytes: u64,
}

/// The memory of a container or a pod.
pub type Blocks = Vec<Block>;

/// The allocations of the node, and what is free.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryState {
    pub nodes: NodeMap,
    /// By pod and container. The sum of a pod's blocks is what it takes from the nodes, unless the pod has blocks of its own: what later
    /// containers reuse of an init container is not counted with the init container.
    pub containers: BTreeMap<PodUid, BTreeMap<String, Blocks>>,
    /// Of pods that were allocated to as a whole; their containers share this.
    pub pods: BTreeMap<PodUid, Blocks>,
}

impl MemoryState {
    /// `None`: nothing has been decided for the container. Its blocks may be empty.
    #[must_use]
    pub fn of_container(&self, pod: &PodUid, container: &str) -> Option<&Blocks> {
        self.containers.get(pod)?.get(container)
    }

    /// The NUMA nodes of the container's memory, for `cpuset.mems`; `None`: it may use all.
    #[must_use]
    pub fn nodes_of(&self, pod: &PodUid, container: &str) -> Option<NumaMask> {
        let blocks = self.of_container(pod, container)?;
        let nodes = blocks.iter().fold(NumaMask::EMPTY, |nodes, block| nodes.or(block.numa));
        (!nodes.is_empty()).then_some(nodes)
    }

    pub(super) fn set_container(&mut self, pod: &PodUid, container: &str, blocks: Blocks) {
        self.containers.entry(pod.clone()).or_default().insert(container.to_owned(), blocks);
    }

    /// Releases the memory of a container. What a pod has as a whole is released with its last container. Returns whether something was
    /// decided for the container.
    pub fn remove_container(&mut self, pod: &PodUid, container: &str) -> bool {
        let Some(containers) = self.containers.get_mut(pod) else { return false };
        let Some(blocks) = containers.remove(container) else { return false };
        let was_last = containers.is_empty();
        if was_last {
            self.containers.remove(pod);
        }
        let released = match self.pods.contains_key(pod) {
            true if was_last => self.pods.remove(pod).unwrap_or_default(),
            true => Blocks::new(),
            false => blocks,
        };
        for block in &released {
            give_back(&mut self.nodes, block);
        }
        true
    }

    /// Releases everything that the pod has.
    pub fn remove_pod(&mut self, pod: &PodUid) {
        let containers = self.containers.get(pod).into_iter().flat_map(BTreeMap::keys);
        for container in containers.cloned().collect::<Vec<_>>() {
            self.remove_container(pod, &container);
        }
    }

    /// Releases what containers have that are in none of the pods. Returns whether there were any.
    pub fn retain<'a>(&mut self, is_active: impl Fn(&PodUid, &str) -> bool + 'a) -> bool {
        let all = self.containers.iter().flat_map(|(pod, all)| all.keys().map(move |name| (pod, name)));
        let stale = all.filter(|(pod, name)| !is_active(pod, name));
        let stale: Vec<(PodUid, String)> = stale.map(|(pod, name)| (pod.clone(), name.clone())).collect();
        for (pod, name) in &stale {
            self.remove_container(pod, name);
        }
        !stale.is_empty()
    }

    /// Releases the memory of the init containers before a container that is started now: they have ended. Sidecars keep theirs. Returns
    /// whether there was any.
    pub fn container_started(&mut self, pod: &Pod, uid: &PodUid, container: &ContainerRef<'_>) -> bool {
        let mut has_changed = false;
        for earlier in init_containers(pod).take_while(|earlier| earlier.name() != container.name()) {
            if earlier.kind != ContainerKind::Sidecar {
                has_changed |= self.remove_container(uid, earlier.name());
            }
        }
        has_changed
    }

    /// The bytes for containers on each node, by resource; for the PodResources service.
    #[must_use]
    pub fn allocatable(&self) -> Blocks {
        let of_node = |id: u32| {
            move |(resource, bytes): (&String, u64)| Block {
                numa: NumaMask::of([id]),
                resource: resource.clone(),
                bytes,
            }
        };
        let tables = |(id, node): (&u32, &super::NodeState)| {
            let tables = node.memory.iter().map(|(resource, table)| (resource, table.allocatable));
            tables.filter(|(_, bytes)| *bytes > 0).map(of_node(*id)).collect::<Blocks>()
        };
        self.nodes.iter().flat_map(tables).collect()
    }
}
