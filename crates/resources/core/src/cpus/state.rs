//! Who has which CPUs, as a value.

use std::collections::BTreeMap;

use model::PodUid;
use model::cpu_set::CpuSet;

use super::options::CpuOptions;

/// The CPUs of containers that have their own, and those that all others share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuState {
    /// The shared pool. It has the reserved CPUs too, unless they are strictly reserved.
    pub default: CpuSet,
    /// By pod and container. Containers of a pod in [`CpuState::pods`] may share CPUs with each other.
    pub assigned: BTreeMap<PodUid, BTreeMap<String, CpuSet>>,
    /// CPUs that a pod has as a whole, by its own request.
    pub pods: BTreeMap<PodUid, CpuSet>,
}

/// Why the state of an earlier kubelet does not match the machine or the policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCpuState {
    #[error("default cpuset cannot be empty")]
    EmptyDefault,
    #[error("not all reserved cpus: \"{reserved}\" are present in defaultCpuSet: \"{default}\"")]
    ReservedMissing { reserved: CpuSet, default: CpuSet },
    #[error("some of strictly reserved cpus: \"{reserved}\" are present in defaultCpuSet: \"{default}\"")]
    ReservedShared { reserved: CpuSet, default: CpuSet },
    #[error(
        "pod: {pod}, container: {container} cpuset: \"{cpus}\" overlaps with default cpuset \"{default}\""
    )]
    Overlap { pod: PodUid, container: String, cpus: CpuSet, default: CpuSet },
    #[error("current set of available CPUs \"{available}\" doesn't match with CPUs in state \"{known}\"")]
    OtherCpus { available: CpuSet, known: CpuSet },
}

impl CpuState {
    #[must_use]
    pub fn exclusive(&self, pod: &PodUid, container: &str) -> Option<&CpuSet> {
        self.assigned.get(pod)?.get(container)
    }

    /// The CPUs on which the container may run.
    #[must_use]
    pub fn cpus_of(&self, pod: &PodUid, container: &str) -> &CpuSet {
        self.exclusive(pod, container).unwrap_or(&self.default)
    }

    /// All CPUs that are not shared by everything.
    #[must_use]
    pub fn all_exclusive(&self) -> CpuSet {
        let containers = self.assigned.values().flat_map(BTreeMap::values);
        containers.chain(self.pods.values()).fold(CpuSet::new(), |all, cpus| all.union(cpus))
    }

    /// Gives a container CPUs, which leave the shared pool.
    pub fn assign(&mut self, pod: &PodUid, container: &str, cpus: CpuSet) {
        self.default = self.default.difference(&cpus);
        self.assigned.entry(pod.clone()).or_default().insert(container.to_owned(), cpus);
    }

    /// Takes the CPUs of a container back, if it has any. Those that other containers of its pod have too stay with them, and those of a
    /// pod as a whole return to the shared pool with its last container.
    pub fn release(&mut self, pod: &PodUid, container: &str) {
        let Some(containers) = self.assigned.get_mut(pod) else { return };
        let Some(cpus) = containers.remove(container) else { return };
        let in_use = containers.values().fold(CpuSet::new(), |all, cpus| all.union(cpus));
        let is_last = containers.is_empty();
        if is_last {
            self.assigned.remove(pod);
        }
        let freed = match self.pods.get(pod) {
            Some(_) if !is_last => return,
            Some(of_pod) => of_pod.clone(),
            None => cpus.difference(&in_use),
        };
        self.pods.remove(pod);
        self.default = self.default.union(&freed);
    }

    /// Takes back the CPUs of every container that is not active.
    pub fn release_inactive(&mut self, is_active: impl Fn(&PodUid, &str) -> bool) {
        let all =
            self.assigned.iter().flat_map(|(pod, containers)| containers.keys().map(move |name| (pod, name)));
        let inactive = all.filter(|(pod, name)| !is_active(pod, name));
        let inactive: Vec<_> = inactive.map(|(pod, name)| (pod.clone(), name.clone())).collect();
        for (pod, container) in inactive {
            self.release(&pod, &container);
        }
    }

    /// The state with which a kubelet starts: this one of an earlier kubelet, or a new one if it is empty.
    ///
    /// # Errors
    /// CPUs or reserved CPUs are not those of the state.
    pub(super) fn validated(
        self,
        all: &CpuSet,
        reserved: &CpuSet,
        options: CpuOptions,
    ) -> Result<Self, InvalidCpuState> {
        let is_strict = options.strict_cpu_reservation;
        let available = if is_strict { all.difference(reserved) } else { all.clone() };
        let known = self.default.union(&self.all_exclusive());
        if self.default.is_empty() {
            // The Go kubelet refuses to start when all CPUs but the strictly reserved ones are in use.
            if is_strict && !self.assigned.is_empty() && known == available {
                return Ok(self);
            }
            if !self.assigned.is_empty() {
                return Err(InvalidCpuState::EmptyDefault);
            }
            return Ok(Self { default: available, ..self });
        }
        self.check_reserved(reserved, is_strict)?;
        self.check_overlaps()?;
        if known != available {
            return Err(InvalidCpuState::OtherCpus { available, known });
        }
        Ok(self)
    }

    fn check_reserved(&self, reserved: &CpuSet, is_strict: bool) -> Result<(), InvalidCpuState> {
        let default = self.default.clone();
        let shared = reserved.intersection(&default);
        if is_strict && !shared.is_empty() {
            return Err(InvalidCpuState::ReservedShared { reserved: shared, default });
        }
        if !is_strict && shared != *reserved {
            return Err(InvalidCpuState::ReservedMissing { reserved: reserved.clone(), default });
        }
        Ok(())
    }

    fn check_overlaps(&self) -> Result<(), InvalidCpuState> {
        for (pod, containers) in &self.assigned {
            for (container, cpus) in containers {
                if !cpus.is_disjoint(&self.default) {
                    return Err(InvalidCpuState::Overlap {
                        pod: pod.clone(),
                        container: container.clone(),
                        cpus: cpus.clone(),
                        default: self.default.clone(),
                    });
                }
            }
        }
        Ok(())
    }
}
