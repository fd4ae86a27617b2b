//! CPUs for a pod as a whole, which its containers divide (`PodLevelResourceManagers` with the scope `pod`).

use model::containers::{ContainerRef, init_containers, regular_containers};
use model::cpu_set::CpuSet;
use model::k8s::Pod;
use model::topology::NumaMask;
use model::{ContainerKind, PodRef, PodUid};

use super::allocate::{AllocatedCpus, CpuAllocationError};
use super::assign::assign;
use super::exclusive::{exclusive_cpus_of_container, exclusive_cpus_of_pod};
use super::policy::StaticCpuPolicy;
use super::state::CpuState;

/// The CPUs of a pod, and the part of them that each container may use, in the order of the pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodCpus {
    pub pod: AllocatedCpus,
    pub containers: Vec<(String, CpuSet)>,
    /// How many of the containers have a part of their own; the others share what is left.
    pub exclusive: usize,
}

impl StaticCpuPolicy {
    /// The CPUs of a pod with resources of its own; `None` if it runs in the shared pool. The caller assigns them with
    /// [`CpuState::assign_pod`].
    ///
    /// # Errors
    /// There are not enough CPUs, the request is not for whole cores, or nothing is left for containers that share.
    pub fn allocate_pod(
        &self,
        state: &CpuState,
        pod: &Pod,
        affinity: Option<NumaMask>,
    ) -> Result<Option<PodCpus>, CpuAllocationError> {
        let count = exclusive_cpus_of_pod(pod, self.pod_level);
        if count == 0 {
            return Ok(None);
        }
        self.check_shared_pool(pod)?;
        let uid = &PodRef::of(pod).uid;
        if let Some(old) = old_cpus(state, uid) {
            return Ok(Some(old));
        }
        let nothing = CpuSet::new();
        self.check_whole_cores(state, count, &nothing)?;
        let of_pod = self.take(state, count, affinity, &nothing)?;
        self.divided(pod, of_pod).map(Some)
    }

    /// Containers that have no CPUs of their own need a part of the pod's that no other one has.
    ///
    /// # Errors
    /// Nothing is left for them.
    pub fn check_shared_pool(&self, pod: &Pod) -> Result<(), CpuAllocationError> {
        let total = exclusive_cpus_of_pod(pod, self.pod_level);
        let (mut exclusive, mut shares) = (0, false);
        for container in init_containers(pod).chain(regular_containers(pod)) {
            let cpus = self.cpus_in_pod(pod, &container);
            match container.kind {
                ContainerKind::Init if cpus == 0 && exclusive >= total => {
                    return Err(CpuAllocationError::NothingForInitContainers);
                }
                ContainerKind::Init => {}
                ContainerKind::Sidecar | ContainerKind::Regular | ContainerKind::Ephemeral => {
                    exclusive += cpus;
                    shares |= cpus == 0;
                }
            }
        }
        if shares && exclusive >= total {
            return Err(CpuAllocationError::NothingForContainers);
        }
        Ok(())
    }

    fn cpus_in_pod(&self, pod: &Pod, container: &ContainerRef<'_>) -> usize {
        exclusive_cpus_of_container(pod, container, self.pod_level)
    }

    /// Each init container has what the sidecars before it leave; what they and the regular containers leave is shared.
    fn divided(&self, pod: &Pod, of_pod: AllocatedCpus) -> Result<PodCpus, CpuAllocationError> {
        let mut left = of_pod.cpus.clone();
        let mut parts: Vec<(String, Option<CpuSet>)> = Vec::new();
        let mut exclusive = 0;
        for container in init_containers(pod).chain(regular_containers(pod)) {
            let count = self.cpus_in_pod(pod, &container);
            let is_init = container.kind == ContainerKind::Init;
            let part = if count > 0 {
                exclusive += 1;
                let cpus = assign(&self.topology, self.options, &left, count)?;
                if !is_init {
                    left = left.difference(&cpus);
                }
                Some(cpus)
            } else {
                is_init.then(|| left.clone())
            };
            parts.push((container.name().to_owned(), part));
        }
        let containers = parts.into_iter().map(|(name, part)| (name, part.unwrap_or_else(|| left.clone())));
        Ok(PodCpus { pod: of_pod, containers: containers.collect(), exclusive })
    }
}

impl CpuState {
    /// Gives a pod its CPUs, which leave the shared pool, and its containers their parts.
    pub fn assign_pod(&mut self, pod: &PodUid, cpus: &PodCpus) {
        self.default = self.default.difference(&cpus.pod.cpus);
        self.pods.insert(pod.clone(), cpus.pod.cpus.clone());
        self.assigned.entry(pod.clone()).or_default().extend(cpus.containers.iter().cloned());
    }
}

/// What a pod has already. The Go kubelet allocates again.
fn old_cpus(state: &CpuState, uid: &PodUid) -> Option<PodCpus> {
    let cpus = state.pods.get(uid)?.clone();
    let containers = state.assigned.get(uid)?.iter();
    Some(PodCpus {
        pod: AllocatedCpus { cpus, is_old: true, is_uncore_aligned: false },
        containers: containers.map(|(name, cpus)| (name.clone(), cpus.clone())).collect(),
        exclusive: 0,
    })
}
