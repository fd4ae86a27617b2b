//! The amounts that a resize can change, and which of them are in force.

use std::collections::BTreeMap;

use config::Features;
use model::containers::{ContainerRef, spec_of};
use model::k8s::{Pod, Quantity, ResourceRequirements};
use model::observation::ObservedResources;
use model::{Amount, ContainerKind};

/// CPU in thousandths of a core and memory in bytes; 0 where nothing is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    pub cpu_request: i64,
    pub cpu_limit: i64,
    pub memory_request: i64,
    pub memory_limit: i64,
}

/// Limits that differ by less than this are the same: kernels round to pages.
const PAGE: i64 = 64 << 10;
/// The smallest CPU limit that a quota can have, in thousandths of a core.
const MIN_CPU_LIMIT: i64 = 10;

impl Amounts {
    /// Without a record of an earlier kubelet: these allocated amounts, unless the runtime reports another limit, because that kubelet
    /// died before it set the allocated one.
    #[must_use]
    pub fn as_reported(self, reported: ObservedResources) -> Self {
        let memory = reported.memory_limit.filter(|limit| (limit - self.memory_limit).abs() >= PAGE);
        let cpu = reported.cpu_limit_milli.filter(|limit| *limit > MIN_CPU_LIMIT);
        Self {
            cpu_limit: cpu.filter(|_| self.cpu_limit > MIN_CPU_LIMIT).unwrap_or(self.cpu_limit),
            memory_limit: memory.filter(|_| self.memory_limit > 0).unwrap_or(self.memory_limit),
            ..self
        }
    }

    #[must_use]
    pub fn of(resources: Option<&ResourceRequirements>) -> Self {
        let Some(resources) = resources else { return Self::default() };
        let amount = |list: &Option<BTreeMap<String, Quantity>>, name: &str| {
            let quantity = list.as_ref().and_then(|list| list.get(name));
            quantity.and_then(|quantity| Amount::of(quantity).ok()).unwrap_or(Amount::ZERO)
        };
        Self {
            cpu_request: amount(&resources.requests, "cpu").milli(),
            cpu_limit: amount(&resources.limits, "cpu").milli(),
            memory_request: amount(&resources.requests, "memory").units(),
            memory_limit: amount(&resources.limits, "memory").units(),
        }
    }

    /// The amounts for a container. One without a limit has that of its pod, if pods may be resized as a whole.
    #[must_use]
    pub fn of_container(pod: &Pod, container: &ContainerRef<'_>, features: Features) -> Self {
        let mut own = Self::of(container.resources());
        if features.pod_level_resize {
            let of_pod = Self::of_pod(pod);
            let or = |own: i64, of_pod: i64| if own == 0 { of_pod } else { own };
            own.cpu_limit = or(own.cpu_limit, of_pod.cpu_limit);
            own.memory_limit = or(own.memory_limit, of_pod.memory_limit);
        }
        own
    }

    /// What the pod has as a whole (`spec.resources`).
    #[must_use]
    pub fn of_pod(pod: &Pod) -> Self {
        Self::of(spec_of(pod).resources.as_ref())
    }

    #[must_use]
    pub const fn differs_in(&self, other: &Self, resource: Resource) -> bool {
        match resource {
            Resource::Memory => {
                self.memory_limit != other.memory_limit || self.memory_request != other.memory_request
            }
            Resource::Cpu => self.cpu_limit != other.cpu_limit || self.cpu_request != other.cpu_request,
        }
    }

    /// These amounts with those of `other` for one resource.
    #[must_use]
    pub const fn with(self, resource: Resource, other: &Self) -> Self {
        match resource {
            Resource::Memory => {
                Self { memory_limit: other.memory_limit, memory_request: other.memory_request, ..self }
            }
            Resource::Cpu => Self { cpu_limit: other.cpu_limit, cpu_request: other.cpu_request, ..self },
        }
    }

    /// As requests and limits; what is 0 is left out.
    #[must_use]
    pub fn to_requirements(self) -> ResourceRequirements {
        let list = |cpu: i64, memory: i64| {
            let cpu = (cpu > 0).then(|| ("cpu".to_owned(), Amount::from_milli(cpu.into()).to_string()));
            let memory =
                (memory > 0).then(|| ("memory".to_owned(), model::quantity::binary_text(memory.into())));
            let list: BTreeMap<_, _> =
                cpu.into_iter().chain(memory).map(|(name, text)| (name, Quantity(text))).collect();
            (!list.is_empty()).then_some(list)
        };
        ResourceRequirements {
            requests: list(self.cpu_request, self.memory_request),
            limits: list(self.cpu_limit, self.memory_limit),
            ..ResourceRequirements::default()
        }
    }
}

/// What can be resized.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    Memory,
    Cpu,
}

impl Resource {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Cpu => "cpu",
        }
    }
}

/// Whether containers of this kind can be resized.
#[must_use]
pub const fn is_resizable(kind: ContainerKind, features: Features) -> bool {
    match kind {
        ContainerKind::Regular | ContainerKind::Sidecar => true,
        ContainerKind::Init => features.resize_init_containers,
        ContainerKind::Ephemeral => false,
    }
}

/// The amounts of one pod that were set last in the runtime: what the containers run with, as far as the kubelet knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Actuated {
    /// By the name of the container, sorted. A map would take several times the memory for a pod of few containers.
    containers: Vec<(Box<str>, Amounts)>,
    /// Of the pod as a whole, once they are known.
    pub pod: Option<Amounts>,
}

impl Actuated {
    #[must_use]
    pub fn of(containers: impl IntoIterator<Item = (String, Amounts)>, pod: Option<Amounts>) -> Self {
        let mut actuated = Self { containers: Vec::new(), pod };
        for (name, amounts) in containers {
            actuated.set(&name, amounts);
        }
        actuated
    }

    pub fn set(&mut self, container: &str, amounts: Amounts) {
        match self.position(container) {
            Ok(at) => self.containers[at].1 = amounts,
            Err(at) => self.containers.insert(at, (container.into(), amounts)),
        }
    }

    #[must_use]
    pub fn get(&self, container: &str) -> Option<Amounts> {
        self.position(container).ok().map(|at| self.containers[at].1)
    }

    pub fn containers(&self) -> impl Iterator<Item = (&str, Amounts)> {
        self.containers.iter().map(|(name, amounts)| (&**name, *amounts))
    }

    fn position(&self, container: &str) -> Result<usize, usize> {
        self.containers.binary_search_by(|(name, _)| (**name).cmp(container))
    }

    /// A container without a record was started with what is allocated to it.
    #[must_use]
    pub fn of_container(&self, pod: &Pod, container: &ContainerRef<'_>, features: Features) -> Amounts {
        self.get(container.name()).unwrap_or_else(|| Amounts::of_container(pod, container, features))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unrecorded_container_has_the_limits_that_the_runtime_reports() {
        let allocated =
            Amounts { cpu_request: 20, cpu_limit: 50, memory_request: 16 << 20, memory_limit: 120 << 20 };
        let reported = |cpu_limit_milli, memory_limit| {
            allocated.as_reported(ObservedResources { cpu_shares: Some(20), cpu_limit_milli, memory_limit })
        };
        assert_eq!(reported(None, None), allocated);
        assert_eq!(reported(Some(50), Some((120 << 20) - 4096)), allocated, "rounded to pages");
        assert_eq!(
            reported(Some(100), Some(64 << 20)),
            Amounts { cpu_limit: 100, memory_limit: 64 << 20, ..allocated }
        );
        let unlimited = Amounts { cpu_limit: 0, memory_limit: 0, ..allocated };
        let limits = ObservedResources { memory_limit: Some(1 << 40), ..ObservedResources::default() };
        assert_eq!(unlimited.as_reported(limits), unlimited);
    }

    fn pod(of_pod: serde_json::Value, of_container: serde_json::Value) -> Pod {
        let container = json!({"name": "main", "resources": of_container});
        serde_json::from_value(json!({"spec": {"resources": of_pod, "containers": [container]}})).unwrap()
    }

    fn amounts(
        of_pod: serde_json::Value,
        of_container: serde_json::Value,
        pod_level_resize: bool,
    ) -> Amounts {
        let pod = pod(of_pod, of_container);
        let features = Features { pod_level_resize, ..Features::default() };
        let container = model::containers::find_container(&pod, "main").unwrap();
        Amounts::of_container(&pod, &container, features)
    }

    #[test]
    fn container_without_a_limit_has_that_of_its_pod() {
        let of_pod = json!({"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}});
        let own = json!({"requests": {"cpu": "250m", "memory": "10Mi"}, "limits": {"memory": "20Mi"}});
        let with = |cpu_limit| Amounts {
            cpu_request: 250,
            cpu_limit,
            memory_request: 10 << 20,
            memory_limit: 20 << 20,
        };
        assert_eq!(amounts(of_pod.clone(), own.clone(), true), with(2000));
        assert_eq!(amounts(of_pod, own.clone(), false), with(0));
        assert_eq!(amounts(json!(null), own, true), with(0));
    }

    #[test]
    fn amounts_become_the_requests_and_limits_that_they_were_read_from() {
        let own = json!({"requests": {"cpu": "250m", "memory": "10Mi"}, "limits": {"cpu": "2"}});
        assert_eq!(json!(amounts(json!(null), own.clone(), true).to_requirements()), own);
        assert_eq!(json!(Amounts::default().to_requirements()), json!({}));
    }

    #[test]
    fn one_resource_is_replaced_without_the_other() {
        let from = Amounts { cpu_request: 1, cpu_limit: 2, memory_request: 3, memory_limit: 4 };
        let to = Amounts { cpu_request: 5, cpu_limit: 6, memory_request: 7, memory_limit: 8 };
        assert_eq!(from.with(Resource::Memory, &to), Amounts { memory_request: 7, memory_limit: 8, ..from });
        assert_eq!(from.with(Resource::Cpu, &to), Amounts { cpu_request: 5, cpu_limit: 6, ..from });
        assert!(from.differs_in(&to, Resource::Cpu) && !from.differs_in(&from, Resource::Memory));
    }
}
