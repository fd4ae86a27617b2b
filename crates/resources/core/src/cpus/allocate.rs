//! CPUs for a container, near the NUMA nodes that the topology manager has chosen.

use model::containers::{ContainerRef, init_containers, regular_containers};
use model::cpu_set::CpuSet;
use model::k8s::Pod;
use model::topology::NumaMask;
use model::{ContainerKind, PodRef, PodUid};

use super::assign::{NotEnoughCpus, assign};
use super::exclusive::{exclusive_cpus_of_container, has_pod_level_resources};
use super::policy::StaticCpuPolicy;
use super::state::CpuState;
use crate::rejection::Rejection;

/// CPUs for one container or pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllocatedCpus {
    pub cpus: CpuSet,
    /// They were allocated before; the state has them already.
    pub is_old: bool,
    /// All of them share one last-level cache.
    pub is_uncore_aligned: bool,
}

/// Why a container or pod gets no CPUs, so that its pod is not admitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CpuAllocationError {
    #[error(transparent)]
    NotEnough(#[from] NotEnoughCpus),
    #[error("SMT Alignment Error: requested {requested} cpus not multiple cpus per core = {per_core}")]
    NotWholeCores { requested: usize, per_core: usize },
    #[error(
        "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = {available}, requested CPUs = {requested}, CPUs per core = {per_core}"
    )]
    NotEnoughCores { requested: usize, per_core: usize, available: usize },
    #[error("pod rejected, pod has shared init containers but no cpus available for them")]
    NothingForInitContainers,
    #[error(
        "pod rejected, sum of exclusive container cpu requests equals pod budget, leaving no cpus for shared containers"
    )]
    NothingForContainers,
}

impl CpuAllocationError {
    /// How the pod fails.
    #[must_use]
    pub fn rejection(&self) -> Rejection {
        let (reason, message) = match self {
            Self::NotEnough(_) => {
                ("UnexpectedAdmissionError", format!("Allocate failed due to {self}, which is unexpected"))
            }
            Self::NotWholeCores { .. } | Self::NotEnoughCores { .. } => {
                ("SMTAlignmentError", self.to_string())
            }
            Self::NothingForInitContainers | Self::NothingForContainers => {
                ("EmptyPodSharedPoolError", self.to_string())
            }
        };
        Rejection { reason: reason.into(), message }
    }
}

impl StaticCpuPolicy {
    /// The CPUs of a container, near the nodes of `affinity` as far as these have any; `None` if it runs in the shared pool. The caller
    /// assigns them. Containers are allocated in the order of the pod: init containers first.
    ///
    /// # Errors
    /// There are not enough CPUs, or the request is not for whole cores.
    pub fn allocate_container(
        &self,
        state: &CpuState,
        pod: &Pod,
        container: &ContainerRef<'_>,
        affinity: Option<NumaMask>,
    ) -> Result<Option<AllocatedCpus>, CpuAllocationError> {
        let count = self.exclusive_cpus_of(pod, container);
        if count == 0 {
            return Ok(None);
        }
        let uid = &PodRef::of(pod).uid;
        if let Some(cpus) = state.exclusive(uid, container.name()) {
            return Ok(Some(AllocatedCpus { is_old: true, ..self.allocated(cpus.clone()) }));
        }
        let reusable = reusable_cpus(state, uid, pod, Some(container.name()));
        self.check_whole_cores(state, count, &reusable)?;
        self.take(state, count, affinity, &reusable).map(Some)
    }

    /// The number of exclusive CPUs of a container that is allocated by itself.
    pub(super) fn exclusive_cpus_of(&self, pod: &Pod, container: &ContainerRef<'_>) -> usize {
        if !self.pod_level && has_pod_level_resources(pod) {
            return 0;
        }
        exclusive_cpus_of_container(pod, container, self.pod_level)
    }

    pub(super) fn check_whole_cores(
        &self,
        state: &CpuState,
        requested: usize,
        reusable: &CpuSet,
    ) -> Result<(), CpuAllocationError> {
        let per_core = self.topology.cpus_per_core();
        if !self.options.full_pcpus_only || per_core == 0 {
            return Ok(());
        }
        if !requested.is_multiple_of(per_core) {
            return Err(CpuAllocationError::NotWholeCores { requested, per_core });
        }
        let available = state.default.difference(&self.reserved_cores).union(reusable).len();
        if requested > available {
            return Err(CpuAllocationError::NotEnoughCores { requested, per_core, available });
        }
        Ok(())
    }

    /// `count` CPUs of those that are available or reusable: aligned ones first.
    pub(super) fn take(
        &self,
        state: &CpuState,
        count: usize,
        affinity: Option<NumaMask>,
        reusable: &CpuSet,
    ) -> Result<AllocatedCpus, CpuAllocationError> {
        let available = self.available(state).union(reusable);
        let cpus = self.take_aligned(&available, count, affinity, 1)?;
        let per_core = self.topology.cpus_per_core();
        let needs_whole_cores =
            self.options.full_pcpus_only && per_core > 1 && self.topology.has_equal_cores();
        if !needs_whole_cores || self.topology.whole_cores(&cpus) == cpus {
            return Ok(self.allocated(cpus));
        }
        // Threads whose core is reserved, or an affinity to a part of the request, have left a part of a core.
        let whole = self.topology.whole_cores(&available);
        let cpus = self.take_aligned(&whole, count, affinity, per_core).map_err(|shortage| {
            CpuAllocationError::NotEnoughCores { requested: count, per_core, available: shortage.available }
        })?;
        Ok(self.allocated(cpus))
    }

    fn take_aligned(
        &self,
        available: &CpuSet,
        count: usize,
        affinity: Option<NumaMask>,
        group: usize,
    ) -> Result<CpuSet, NotEnoughCpus> {
        let mut cpus = CpuSet::new();
        if let Some(nodes) = affinity {
            let near = if self.options.align_by_socket {
                self.topology.cpus_in_sockets_of(nodes)
            } else {
                self.topology.cpus_in(nodes)
            };
            let near = available.intersection(&near);
            let near_count = count.min(near.len()) / group * group;
            cpus = assign(&self.topology, self.options, &near, near_count)?;
        }
        let rest = assign(&self.topology, self.options, &available.difference(&cpus), count - cpus.len())?;
        Ok(cpus.union(&rest))
    }

    fn allocated(&self, cpus: CpuSet) -> AllocatedCpus {
        let is_uncore_aligned = self.topology.is_uncore_aligned(&cpus);
        AllocatedCpus { cpus, is_old: false, is_uncore_aligned }
    }
}

/// CPUs of init containers of the pod, which have ended when later containers run: those allocated before `container`, or all.
pub(super) fn reusable_cpus(state: &CpuState, uid: &PodUid, pod: &Pod, container: Option<&str>) -> CpuSet {
    let mut reusable = CpuSet::new();
    for other in init_containers(pod).chain(regular_containers(pod)) {
        if container == Some(other.name()) {
            break;
        }
        let Some(cpus) = state.exclusive(uid, other.name()) else { continue };
        reusable = match other.kind {
            ContainerKind::Init => reusable.union(cpus),
            ContainerKind::Sidecar | ContainerKind::Regular | ContainerKind::Ephemeral => {
                reusable.difference(cpus)
            }
        };
    }
    reusable
}
