//! What one decision has tried, for metrics.

use std::collections::BTreeMap;

use model::containers::ContainerRef;
use model::k8s::Pod;

use crate::cpus::{AllocatedCpus, PodCpus};
use crate::memory::PodMemory;
use crate::rejection::Rejection;
use crate::topology::{HintProvider, ProviderHints, TopologyHint};

/// What is aligned (a container or a pod), and with what: the labels `scope` and `boundary`.
pub type Alignment = (&'static str, &'static str);

const MEMORY: &str = "memory";

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
    pub(super) const fn record(&mut self, is_done: bool) {
        self.all += 1;
        if !is_done {
            self.failed += 1;
        }
    }
}

/// Where something exclusive comes from: the label `source`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Node,
    Pod,
}

impl Source {
    const fn name(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Pod => "pod",
        }
    }
}

/// A count for each pair of labels; the first is the resource.
pub type CountByResource = BTreeMap<(&'static str, &'static str), u64>;

/// What containers got for themselves, by resource; the second label is the source or the type of the assignment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignments {
    pub allocated: CountByResource,
    pub failed: CountByResource,
    pub containers: CountByResource,
}

impl Assignments {
    /// Exclusive CPUs of a container; one that had them before does not count again.
    pub(super) fn record_cpus(&mut self, cpus: Option<&AllocatedCpus>) {
        match cpus {
            None => self.record_failed("cpu", Source::Node),
            Some(cpus) if cpus.is_old => {}
            Some(_) => self.record_container("cpu", 1),
        }
    }

    /// CPUs of a pod as a whole, which its containers divide.
    pub(super) fn record_pod_cpus(&mut self, cpus: Option<&PodCpus>) {
        match cpus {
            None => self.record_failed("cpu", Source::Pod),
            Some(cpus) if cpus.pod.is_old => {}
            Some(cpus) => self.record_pod("cpu", cpus.containers.len(), cpus.exclusive),
        }
    }

    /// A container has got so many kinds of the resource, from the node.
    fn record_container(&mut self, resource: &'static str, kinds: usize) {
        add(&mut self.allocated, (resource, Source::Node.name()), kinds);
        add(&mut self.containers, (resource, "node_exclusive"), 1);
    }

    fn record_pod(&mut self, resource: &'static str, containers: usize, exclusive: usize) {
        add(&mut self.allocated, (resource, Source::Pod.name()), containers);
        add(&mut self.containers, (resource, "pod_exclusive"), exclusive);
        add(&mut self.containers, (resource, "pod_shared"), containers.saturating_sub(exclusive));
    }

    fn record_failed(&mut self, resource: &'static str, source: Source) {
        add(&mut self.failed, (resource, source.name()), 1);
    }

    pub(super) fn merge(&mut self, other: &Self) {
        let Self { allocated, failed, containers } = self;
        for (into, from) in
            [(allocated, &other.allocated), (failed, &other.failed), (containers, &other.containers)]
        {
            for (labels, count) in from {
                *into.entry(*labels).or_default() += count;
            }
        }
    }
}

fn add(counts: &mut CountByResource, labels: (&'static str, &'static str), count: usize) {
    if count > 0 {
        *counts.entry(labels).or_default() += u64::try_from(count).unwrap_or(u64::MAX);
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
    /// Shown with `PodLevelResourceManagers` only.
    pub assignments: Assignments,
}

impl Tally {
    pub(super) fn record_aligned(&mut self, alignment: Alignment, count: u64) {
        *self.aligned.entry(alignment).or_default() += count;
    }

    pub(super) fn record_not_aligned(&mut self, alignment: Alignment) {
        *self.not_aligned.entry(alignment).or_default() += 1;
    }
}

/// Memory, with its attempts counted.
#[derive(Debug)]
pub(super) struct CountedMemory<'a> {
    pub(super) memory: PodMemory<'a>,
    pub(super) attempts: Attempts,
    pub(super) assignments: Assignments,
}

impl<'a> CountedMemory<'a> {
    pub(super) fn new(memory: PodMemory<'a>) -> Self {
        Self { memory, attempts: Attempts::default(), assignments: Assignments::default() }
    }

    fn count(&mut self, pod: &Pod, source: Source, done: &Result<(), Rejection>) {
        if self.memory.is_aligned(pod) {
            self.attempts.record(done.is_ok());
            if done.is_err() {
                self.assignments.record_failed(MEMORY, source);
            }
        }
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
        let had_blocks = self.memory.blocks_of(pod, container).is_some();
        let done = self.memory.allocate(pod, container, hint);
        self.count(pod, Source::Node, &done);
        if let Some(blocks) = self.memory.blocks_of(pod, container)
            && !had_blocks
        {
            self.assignments.record_container(MEMORY, blocks.len());
        }
        done
    }

    fn allocate_pod(&mut self, pod: &Pod, hint: TopologyHint) -> Result<(), Rejection> {
        let had_blocks = self.memory.has_blocks_as_a_whole(pod);
        let done = self.memory.allocate_pod(pod, hint);
        self.count(pod, Source::Pod, &done);
        if !had_blocks && self.memory.has_blocks_as_a_whole(pod) {
            let (containers, exclusive) = self.memory.count_containers(pod);
            self.assignments.record_pod(MEMORY, containers, exclusive);
        }
        done
    }
}
