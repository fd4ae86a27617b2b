//! The settings of the QoS cgroups, from all admitted pods (docs/behaviour/resources-and-qos.md): the weight of a QoS cgroup
//! follows the requests of its pods, so that pods without requests get only what is left.

use base_core::node_facts::MemoryQos;
use config::{Features, KubeletConfiguration};
use model::{Amount, QosClass};

use super::numbers::{CgroupNumbers, UNBOUNDED_HUGEPAGES};
use crate::allocations::Allocation;
use crate::cgroup::convert::{MIN_SHARES, cpu_shares};

/// Node settings that apply to the QoS cgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QosCgroupRules<'a> {
    pub hugepage_sizes: &'a [String],
    pub memory_qos: MemoryQos,
    /// `qosReserved`: the percentage of higher classes' requests that is reserved, and the memory of all pods together.
    pub memory_reserve: Option<MemoryReserve>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryReserve {
    pub percent: i64,
    pub allocatable_bytes: i64,
}

impl MemoryReserve {
    /// `qosReserved` for memory, if its gate is enabled. Validation has checked the percentage.
    #[must_use]
    pub fn of(config: &KubeletConfiguration, features: Features, allocatable_bytes: u64) -> Option<Self> {
        let share = config.qos_reserved.get("memory").filter(|_| features.qos_reserved)?;
        let percent = share.strip_suffix('%')?.parse().ok()?;
        Some(Self { percent, allocatable_bytes: i64::try_from(allocatable_bytes).unwrap_or(i64::MAX) })
    }
}

/// The cgroups that change with the pods on the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QosCgroupNumbers {
    /// Only what depends on the pods; node allocatable is enforced separately.
    pub all_pods: CgroupNumbers,
    pub burstable: CgroupNumbers,
    pub best_effort: CgroupNumbers,
}

/// The sum of the requests of one class.
#[derive(Clone, Copy, Debug, Default)]
struct Requested {
    cpu_milli: i64,
    memory_bytes: i64,
}

impl Requested {
    fn add(&mut self, held: Allocation<'_>) {
        let requests = held.requests();
        let of = |name: &str| requests.get(name).copied().unwrap_or(Amount::ZERO);
        self.cpu_milli = self.cpu_milli.saturating_add(of("cpu").milli());
        self.memory_bytes = self.memory_bytes.saturating_add(of("memory").units());
    }
}

/// The settings of the QoS cgroups for these allocations.
#[must_use]
pub fn compute_qos_cgroups<'a>(
    held: impl IntoIterator<Item = Allocation<'a>>,
    rules: &QosCgroupRules<'_>,
) -> QosCgroupNumbers {
    let (mut guaranteed, mut burstable) = (Requested::default(), Requested::default());
    for held in held {
        match QosClass::of(held.pod()) {
            QosClass::Guaranteed => guaranteed.add(held),
            QosClass::Burstable => burstable.add(held),
            QosClass::BestEffort => {}
        }
    }
    let hugepage_limits: Vec<(String, u64)> =
        rules.hugepage_sizes.iter().map(|size| (size.clone(), UNBOUNDED_HUGEPAGES)).collect();
    let (burstable_limit, best_effort_limit) = memory_limits(rules.memory_reserve, guaranteed, burstable);
    // Without a reservation zeros end what an earlier configuration reserved.
    let reserved = |bytes: i64| match rules.memory_qos {
        MemoryQos::Off => None,
        MemoryQos::Throttling => Some(0),
        MemoryQos::Reservation => Some(bytes),
    };
    QosCgroupNumbers {
        all_pods: CgroupNumbers {
            memory_min: reserved(guaranteed.memory_bytes.saturating_add(burstable.memory_bytes)),
            // The Go kubelet leaves this to `memory.min`. The kernel bounds `memory.low` of the cgroups below by that of this one.
            memory_low: reserved(burstable.memory_bytes),
            ..CgroupNumbers::default()
        },
        burstable: CgroupNumbers {
            cpu_shares: Some(cpu_shares(burstable.cpu_milli)),
            memory_limit: burstable_limit,
            memory_low: reserved(burstable.memory_bytes),
            hugepage_limits: hugepage_limits.clone(),
            ..CgroupNumbers::default()
        },
        best_effort: CgroupNumbers {
            cpu_shares: Some(MIN_SHARES),
            memory_limit: best_effort_limit,
            hugepage_limits,
            ..CgroupNumbers::default()
        },
    }
}

/// Each class is limited so that a share of the requests of higher classes stays reserved.
fn memory_limits(
    reserve: Option<MemoryReserve>,
    guaranteed: Requested,
    burstable: Requested,
) -> (Option<i64>, Option<i64>) {
    let Some(MemoryReserve { percent, allocatable_bytes }) = reserve else { return (None, None) };
    let kept = |requested: Requested| requested.memory_bytes.saturating_mul(percent) / 100;
    let for_burstable = allocatable_bytes.saturating_sub(kept(guaranteed)).max(0);
    let for_best_effort = for_burstable.saturating_sub(kept(burstable)).max(0);
    (Some(for_burstable), Some(for_best_effort))
}
