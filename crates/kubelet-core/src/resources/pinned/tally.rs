//! What one decision has tried, for metrics.

use std::collections::BTreeMap;

use model::containers::ContainerRef;
use model::k8s::Pod;

use crate::resources::memory::PodMemory;
use crate::resources::rejection::Rejection;
use crate::resources::topology::{HintProvider, ProviderHints, TopologyHint};

/// What is aligned (a container or a pod), and with what: the labels `scope` and `boundary`.
pub type Alignment = (&'static str, &'static str);

pub(super) const CONTAINER_IN_CORES: Alignment = ("container", "physical_cpu");
pub(super) const CONTAINER_IN_CACHE: Alignment = ("container", "uncore_cache");
pub(super) const CONTAINER_IN_NODE: Alignment = ("container", "numa_node");
pub(super) const POD_IN_NODE: Alignment = ("pod", "numa_node");

/// Attempts to allocate, and those that failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attempts {
    pub all: u64,
    pub failed: u64,
}

impl Attempts {
    pub(super) const fn note(&mut self, is_done: bool) {
        self.all += 1;
        if !is_done {
            self.failed += 1;
        }
    }
}

/// The attempts of one decision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub cpus: Attempts,
    pub memory: Attempts,
    /// The topology manager has refused the pod, or a provider of hints had not enough.
    pub is_refused: bool,
    pub aligned: BTreeMap<Alignment, u64>,
    pub not_aligned: BTreeMap<Alignment, u64>,
}

impl Tally {
    pub(super) fn note_aligned(&mut self, alignment: Alignment, count: u64) {
        *self.aligned.entry(alignment).or_default() += count;
    }

    pub(super) fn note_not_aligned(&mut self, alignment: Alignment) {
        *self.not_aligned.entry(alignment).or_default() += 1;
    }
}

/// Memory, with its attempts counted.
#[derive(Debug)]
pub(super) struct CountedMemory<'a> {
    pub(super) memory: PodMemory<'a>,
    pub(super) attempts: Attempts,
}

impl CountedMemory<'_> {
    fn count(&mut self, pod: &Pod, done: Result<(), Rejection>) -> Result<(), Rejection> {
        if self.memory.is_aligned(pod) {
            self.attempts.note(done.is_ok());
        }
        done
    }
}

impl HintProvider for CountedMemory<'_> {
    fn container_hints(&self, pod: &Pod, container: &ContainerRef<'_>) -> ProviderHints {
        self.memory.container_hints(pod, container)
    }

    fn pod_hints(&self, pod: &Pod) -> ProviderHints {
        self.memory.pod_hints(pod)
    }

    fn allocate(
        &mut self,
        pod: &Pod,
        container: &ContainerRef<'_>,
        hint: TopologyHint,
    ) -> Result<(), Rejection> {
        let done = self.memory.allocate(pod, container, hint);
        self.count(pod, done)
    }

    fn allocate_pod(&mut self, pod: &Pod, hint: TopologyHint) -> Result<(), Rejection> {
        let done = self.memory.allocate_pod(pod, hint);
        self.count(pod, done)
    }
}
