//! The allocation of memory to a container, or to all containers of a pod with resources of its own.

use model::containers::{ContainerRef, init_containers};
use model::k8s::Pod;
use model::topology::NumaMask;
use model::{ContainerKind, PodUid, QosClass};

use super::nodes::take;
use super::pod_memory::{PodMemory, containers, uid_of};
use super::{Block, Blocks, Bytes, MemoryError, requests, shared_pool};
use crate::topology::TopologyHint;

fn blocks(numa: NumaMask, bytes: &Bytes) -> Blocks {
    let block =
        |(resource, bytes): (&String, &u64)| Block { numa, resource: resource.clone(), bytes: *bytes };
    bytes.iter().map(block).collect()
}

fn positive(numa: NumaMask, bytes: &Bytes) -> Blocks {
    blocks(numa, bytes).into_iter().filter(|block| block.bytes > 0).collect()
}

fn subtract(from: &mut Bytes, bytes: &Bytes) {
    for (resource, bytes) in bytes {
        if let Some(left) = from.get_mut(resource) {
            *left = left.saturating_sub(*bytes);
        }
    }
}

impl PodMemory<'_> {
    /// A container that has memory keeps it.
    pub(super) fn allocate_container(
        &mut self,
        pod: &Pod,
        container: &ContainerRef<'_>,
        hint: TopologyHint,
    ) -> Result<(), MemoryError> {
        if !self.is_aligned(pod) {
            return Ok(());
        }
        let uid = uid_of(pod);
        if let Some(blocks) = self.state.of_container(&uid, container.name()).cloned() {
            self.pass_on(container, &blocks);
            return Ok(());
        }
        let requests = requests::of_container(container, self.is_pod_level(pod))?;
        let numa = self.supply().choose(&requests, hint)?;
        let blocks = blocks(numa, &requests);
        for block in &blocks {
            let reused = self.reusable.of(numa, &block.resource);
            take(&mut self.state.nodes, block, block.bytes.saturating_sub(reused));
        }
        self.pass_on(container, &blocks);
        self.take_from_init_containers(pod, &uid, container, &blocks);
        self.state.set_container(&uid, container.name(), blocks);
        Ok(())
    }

    /// Containers after an init container reuse its memory; a container that stays uses it up.
    fn pass_on(&mut self, container: &ContainerRef<'_>, blocks: &Blocks) {
        match container.kind {
            ContainerKind::Init => self.reusable.leave(blocks),
            ContainerKind::Sidecar | ContainerKind::Regular | ContainerKind::Ephemeral => {
                self.reusable.take(blocks);
            }
        }
    }

    /// What a container reuses is no longer counted with earlier init containers, so that the sum of the pod's blocks is what it takes
    /// from the nodes.
    fn take_from_init_containers(
        &mut self,
        pod: &Pod,
        uid: &PodUid,
        container: &ContainerRef<'_>,
        blocks: &Blocks,
    ) {
        let Some(allocated) = self.state.containers.get_mut(uid) else { return };
        for block in blocks {
            let mut left = block.bytes;
            for earlier in init_containers(pod).take_while(|earlier| earlier.name() != container.name()) {
                if earlier.kind == ContainerKind::Sidecar {
                    continue;
                }
                let is_same = |own: &&mut Block| own.resource == block.resource && own.numa == block.numa;
                let own = allocated.get_mut(earlier.name()).into_iter().flatten();
                for own in own.filter(is_same) {
                    let reused = own.bytes.min(left);
                    own.bytes -= reused;
                    left -= reused;
                }
            }
        }
    }

    /// The pod gets what it requests from the same nodes for all containers: some have a part for themselves, others share the rest.
    /// A pod that has memory keeps it.
    pub(super) fn allocate_to_all(&mut self, pod: &Pod, hint: TopologyHint) -> Result<(), MemoryError> {
        let uid = uid_of(pod);
        if QosClass::of(pod) != QosClass::Guaranteed || self.state.pods.contains_key(&uid) {
            return Ok(());
        }
        let Ok(of_pod) = requests::of_pod(pod, self.is_pod_level(pod)) else { return Ok(()) };
        shared_pool::check(pod, &of_pod)?;
        let numa = self.supply().choose(&of_pod, hint)?;
        let parts = partition(pod, numa, &of_pod)?;
        let own = blocks(numa, &of_pod);
        for block in &own {
            take(&mut self.state.nodes, block, block.bytes);
        }
        self.state.pods.insert(uid.clone(), own);
        for (container, blocks) in parts {
            self.state.set_container(&uid, container, blocks);
        }
        Ok(())
    }
}

/// The blocks of each container. Those without memory for themselves share what is left: init containers what the sidecars before them
/// leave, the others what is left in the end.
fn partition<'a>(
    pod: &'a Pod,
    numa: NumaMask,
    of_pod: &Bytes,
) -> Result<Vec<(&'a str, Blocks)>, MemoryError> {
    let mut left = of_pod.clone();
    let mut parts = Vec::new();
    for container in containers(pod) {
        let own = requests::of_container(&container, true)?;
        let blocks = match container.kind {
            ContainerKind::Init if own.is_empty() => Some(positive(numa, &left)),
            ContainerKind::Init => Some(positive(numa, &own)),
            ContainerKind::Sidecar | ContainerKind::Regular | ContainerKind::Ephemeral => {
                subtract(&mut left, &own);
                (!own.is_empty()).then(|| positive(numa, &own))
            }
        };
        parts.push((container.name(), blocks));
    }
    let shared = positive(numa, &left);
    let blocks = |blocks: Option<Blocks>| blocks.unwrap_or_else(|| shared.clone());
    Ok(parts.into_iter().map(|(container, own)| (container, blocks(own))).collect())
}
