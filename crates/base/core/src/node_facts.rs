//! What every subsystem knows about its node: the configuration, and facts about the machine. Fixed for the life of the process.

use std::sync::Arc;

use config::{Features, KubeletConfiguration};

/// Facts about the node, independent of the pod.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeFacts {
    pub config: Arc<KubeletConfiguration>,
    pub memory_capacity_bytes: u64,
    /// Directories with the thermal throttling state of processors, if the machine has them: hidden from containers.
    pub thermal_throttle_paths: Vec<String>,
    /// SELinux is enabled.
    pub selinux_enabled: bool,
    /// The SELinux label of files of containers, without the categories of a container; `None` without SELinux.
    pub selinux_file_label: Option<String>,
    /// The directory of `Localhost` seccomp profiles: `<root>/seccomp`.
    pub seccomp_dir: String,
    pub cgroup_v2: bool,
    pub swap: Swap,
    pub memory: MemoryRules,
    /// Page sizes that the kernel supports, in its notation: `2MB`, `1GB`.
    pub hugepage_sizes: Vec<String>,
    pub features: Features,
}

impl NodeFacts {
    /// `cpuCFSQuotaPeriod` in microseconds; `None` where CPU limits are not enforced (`cpuCFSQuota: false`).
    #[must_use]
    pub fn cpu_quota_period(&self) -> Option<i64> {
        let period = self.config.cpu_cfs_quota.then(|| self.config.cpu_cfs_quota_period.as_std())?;
        Some(i64::try_from(period.as_micros()).unwrap_or(i64::MAX))
    }

    /// `singleProcessOOMKill`: a container that runs out of memory loses one process, and not all of them.
    #[must_use]
    pub fn single_process_oom_kill(&self) -> bool {
        self.config.single_process_oom_kill.unwrap_or(!self.cgroup_v2)
    }
}

/// How much swap containers may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Swap {
    /// The kernel cannot limit swap, so no limit is requested.
    #[default]
    Uncontrolled,
    NoSwap,
    /// `LimitedSwap`: Burstable containers share the node's swap in proportion to their memory requests.
    Limited {
        node_swap_bytes: u64,
    },
}

/// The use of containers' memory requests beyond scheduling (feature gate `MemoryQoS`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryRules {
    pub qos: MemoryQos,
    /// Node allocatable memory: the limit of a container without one.
    pub allocatable_bytes: u64,
    /// The page size, to which the kernel rounds.
    pub page_bytes: u64,
}

/// How memory requests are enforced if the gate `MemoryQoS` is enabled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemoryQos {
    /// Requests are used only for scheduling and admission.
    #[default]
    Off,
    /// Containers are throttled before they reach their limits; nothing is reserved.
    Throttling,
    /// `TieredReservation`: also, the requests of Guaranteed pods are never reclaimed, those of Burstable pods last.
    Reservation,
}
