//! CPUs as a provider of hints for the topology manager.

use model::PodRef;
use model::containers::ContainerRef;
use model::k8s::Pod;

use super::tally::{Attempts, CONTAINER_IN_CACHE, CONTAINER_IN_CORES, Tally};
use crate::cpus::{AllocatedCpus, CpuAllocationError, CpuState, StaticCpuPolicy};
use crate::rejection::Rejection;
use crate::topology::{HintProvider, ProviderHints, TopologyHint};

const CPU: &str = "cpu";

/// The CPUs of the node under the policy `static`, while one pod is admitted.
#[derive(Debug)]
pub(super) struct CpuProvider<'a> {
    pub(super) policy: &'a StaticCpuPolicy,
    pub(super) state: CpuState,
    pub(super) tally: Tally,
}

impl CpuProvider<'_> {
    fn count(&mut self, allocated: &Result<Option<AllocatedCpus>, CpuAllocationError>) {
        let cpus = match allocated {
            // It runs in the shared pool.
            Ok(None) => return,
            Ok(Some(cpus)) => Some(cpus),
            Err(_) => None,
        };
        self.tally.cpus.record(cpus.is_some());
        self.tally.assignments.record_cpus(cpus);
        if self.policy.gives_whole_cores() {
            match cpus {
                Some(_) => self.tally.record_aligned(CONTAINER_IN_CORES, 1),
                None => self.tally.record_not_aligned(CONTAINER_IN_CORES),
            }
        }
        if cpus.is_some_and(|cpus| cpus.is_uncore_aligned && !cpus.is_old) {
            self.tally.record_aligned(CONTAINER_IN_CACHE, 1);
        }
    }
}

fn named(hints: Option<Vec<TopologyHint>>) -> ProviderHints {
    hints.map(|hints| (CPU.to_owned(), Some(hints))).into_iter().collect()
}

impl HintProvider for CpuProvider<'_> {
    fn container_hints(&self, pod: &Pod, container: &ContainerRef<'_>) -> ProviderHints {
        named(self.policy.hints_of_container(&self.state, pod, container))
    }

    fn pod_hints(&self, pod: &Pod) -> ProviderHints {
        named(self.policy.hints_of_pod(&self.state, pod))
    }

    fn allocate(
        &mut self,
        pod: &Pod,
        container: &ContainerRef<'_>,
        hint: TopologyHint,
    ) -> Result<(), Rejection> {
        let allocated = self.policy.allocate_container(&self.state, pod, container, hint.nodes);
        self.count(&allocated);
        if let Some(allocated) = allocated.map_err(|why| why.rejection())?
            && !allocated.is_old
        {
            self.state.assign(&PodRef::of(pod).uid, container.name(), allocated.cpus);
        }
        Ok(())
    }

    fn allocate_pod(&mut self, pod: &Pod, hint: TopologyHint) -> Result<(), Rejection> {
        let allocated = self.policy.allocate_pod(&self.state, pod, hint.nodes);
        match &allocated {
            Ok(None) => {}
            Ok(Some(cpus)) => {
                let exclusive = u64::try_from(cpus.exclusive).unwrap_or(u64::MAX);
                self.tally.cpus = Attempts { all: self.tally.cpus.all + exclusive, ..self.tally.cpus };
                self.tally.assignments.record_pod_cpus(Some(cpus));
            }
            Err(_) => {
                self.tally.cpus.failed += 1;
                self.tally.assignments.record_pod_cpus(None);
            }
        }
        if let Some(cpus) = allocated.map_err(|why| why.rejection())?
            && !cpus.pod.is_old
        {
            self.state.assign_pod(&PodRef::of(pod).uid, &cpus);
        }
        Ok(())
    }
}
