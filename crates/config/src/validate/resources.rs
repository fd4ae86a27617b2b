//! Rules for cgroups, reservations, the CPU, memory and topology managers, and eviction.

use std::collections::{BTreeMap, BTreeSet};

use model::Amount;
use model::cpu_set::CpuSet;

use super::Check;
use crate::duration::GoDuration;

const SIGNALS: [&str; 9] = [
    "allocatableMemory.available",
    "containerfs.available",
    "containerfs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "pid.available",
];

impl Check<'_> {
    pub(super) fn cgroups(&mut self) {
        let config = self.config;
        self.one_of("cgroupDriver", &config.cgroup_driver, &["cgroupfs", "systemd"]);
        if !config.cgroups_per_qos {
            let needs = "needs cgroupsPerQOS (--cgroups-per-qos) true";
            let enforced = config.enforce_node_allocatable.join(",");
            if !["", "none"].contains(&enforced.as_str()) {
                self.conflict(format!(
                    "enforceNodeAllocatable (--enforce-node-allocatable) {enforced} {needs}"
                ));
            }
            if config.cgroup_driver == "systemd" {
                self.conflict(format!("cgroupDriver (--cgroup-driver) systemd {needs}"));
            }
            if !config.cgroup_root.is_empty() {
                self.conflict(format!("cgroupRoot (--cgroup-root) {} {needs}", config.cgroup_root));
            }
        }
        let system = &config.system_cgroups;
        if !system.is_empty() && config.cgroup_root.is_empty() {
            self.conflict(format!(
                "systemCgroups (--system-cgroups) {system} needs cgroupRoot (--cgroup-root)"
            ));
        }
        if !system.is_empty() && system.trim_matches('/').is_empty() {
            self.conflict(format!(
                "systemCgroups (--system-cgroups) {system} is the root cgroup, in which all processes start"
            ));
        }
        self.range("oomScoreAdj", config.oom_score_adj.into(), -1000..=1000);
        let (quota, tenth) = (config.cpu_cfs_quota_period, GoDuration::from_millis(100));
        if quota < GoDuration::from_millis(1) || quota > GoDuration::from_secs(1) {
            self.invalid("cpuCFSQuotaPeriod", quota, "from 1ms to 1s");
        }
        if quota != tenth {
            self.needs_gate("cpuCFSQuotaPeriod", "CustomCPUCFSQuotaPeriod");
        }
        let factor = config.memory_throttling_factor;
        if !(factor > 0.0 && factor <= 1.0) {
            self.invalid("memoryThrottlingFactor", factor, "above 0 and at most 1");
        }
        self.one_of(
            "memoryReservationPolicy",
            &config.memory_reservation_policy,
            &["None", "TieredReservation"],
        );
        if config.memory_reservation_policy == "TieredReservation" {
            self.needs_gate("memoryReservationPolicy", "MemoryQoS");
        }
        self.one_of(
            "memorySwap.swapBehavior",
            &config.memory_swap.swap_behavior,
            &["", "NoSwap", "LimitedSwap"],
        );
    }

    pub(super) fn enforcement(&mut self) {
        let config = self.config;
        let wanted: BTreeSet<&str> = config.enforce_node_allocatable.iter().map(String::as_str).collect();
        let allowed = [
            "pods",
            "system-reserved",
            "kube-reserved",
            "system-reserved-compressible",
            "kube-reserved-compressible",
            "none",
        ];
        for name in &wanted {
            self.one_of("enforceNodeAllocatable", name, &allowed);
            if config.enforce_node_allocatable.iter().filter(|other| other == name).count() > 1 {
                self.conflict(format!(
                    "duplicated enforcements {name:?} in enforceNodeAllocatable (--enforce-node-allocatable)"
                ));
            }
        }
        if wanted.contains("none") && wanted.len() > 1 {
            self.conflict("enforceNodeAllocatable (--enforce-node-allocatable): none excludes all others");
        }
        for (name, compressible, cgroup_field, cgroup) in [
            (
                "system-reserved",
                "system-reserved-compressible",
                "systemReservedCgroup (--system-reserved-cgroup)",
                &config.system_reserved_cgroup,
            ),
            (
                "kube-reserved",
                "kube-reserved-compressible",
                "kubeReservedCgroup (--kube-reserved-cgroup)",
                &config.kube_reserved_cgroup,
            ),
        ] {
            if wanted.contains(name) && wanted.contains(compressible) {
                self.conflict(format!(
                    "enforceNodeAllocatable (--enforce-node-allocatable): {name} and {compressible} exclude each other"
                ));
            }
            for given in [name, compressible] {
                if wanted.contains(given) && cgroup.is_empty() {
                    self.conflict(format!(
                        "enforceNodeAllocatable (--enforce-node-allocatable): {given} needs {cgroup_field}"
                    ));
                }
            }
            if !config.reserved_system_cpus.is_empty() && !cgroup.is_empty() {
                self.conflict(format!(
                    "reservedSystemCPUs (--reserved-cpus) cannot be set together with {cgroup_field}"
                ));
            }
        }
        if config.reserved_system_cpus.parse::<CpuSet>().is_err() {
            let value = format!("{:?}", config.reserved_system_cpus);
            self.invalid("reservedSystemCPUs", value, "a set of CPUs such as 0-1,4");
        }
    }

    pub(super) fn managers(&mut self) {
        let config = self.config;
        self.one_of("cpuManagerPolicy", &config.cpu_manager_policy, &["none", "static"]);
        self.one_of("memoryManagerPolicy", &config.memory_manager_policy, &["None", "Static"]);
        self.one_of(
            "topologyManagerPolicy",
            &config.topology_manager_policy,
            &["none", "best-effort", "restricted", "single-numa-node"],
        );
        self.one_of("topologyManagerScope", &config.topology_manager_scope, &["container", "pod"]);
        let mut seen = BTreeSet::new();
        for reservation in &config.reserved_memory {
            self.at_least("reservedMemory", reservation.numa_node.into(), 0);
            for (kind, amount) in &reservation.limits {
                let entry = format!("{}:{kind}={}", reservation.numa_node, amount.0);
                if kind != "memory" && !kind.starts_with("hugepages-") {
                    self.invalid("reservedMemory", &entry, "of the type memory or hugepages-<size>");
                } else if !seen.insert((reservation.numa_node, kind)) {
                    self.invalid("reservedMemory", &entry, "given once per node and type");
                } else if !Amount::parse(&amount.0).is_ok_and(|amount| amount > Amount::ZERO) {
                    self.invalid("reservedMemory", &entry, "a quantity above 0");
                }
            }
        }
        for (resource, share) in &config.qos_reserved {
            let percent = share.strip_suffix('%').and_then(|number| number.parse::<u8>().ok());
            if resource != "memory" || percent.is_none_or(|percent| percent > 100) {
                self.invalid(
                    "qosReserved",
                    format!("{resource}={share}"),
                    "memory with a share from 0% to 100%",
                );
            }
        }
        if !config.qos_reserved.is_empty() {
            self.needs_gate("qosReserved", "QOSReserved");
        }
    }

    pub(super) fn amounts(&mut self) {
        let config = self.config;
        for (field, reserved) in
            [("systemReserved", &config.system_reserved), ("kubeReserved", &config.kube_reserved)]
        {
            for (resource, amount) in reserved {
                // Huge pages are reserved with reservedMemory.
                let known = ["cpu", "memory", "ephemeral-storage", "pid"].contains(&resource.as_str());
                let pair = format!("{resource}={amount}");
                if !known {
                    let allowed = "of cpu, memory, ephemeral-storage or pid";
                    self.invalid(field, pair, allowed);
                } else if !Amount::parse(amount).is_ok_and(|amount| amount >= Amount::ZERO) {
                    self.invalid(field, pair, "a quantity of 0 or more");
                }
            }
        }
    }

    pub(super) fn eviction(&mut self) {
        let config = self.config;
        self.thresholds("evictionHard", &config.eviction_hard, "above 0");
        self.thresholds("evictionSoft", &config.eviction_soft, "above 0");
        self.thresholds("evictionMinimumReclaim", &config.eviction_minimum_reclaim, "of 0 or more");
        let is_off = |threshold: &str| {
            let percent = threshold.strip_suffix('%').and_then(|percent| percent.parse::<f64>().ok());
            percent.is_some_and(|percent| percent <= 0.0 || percent >= 100.0)
        };
        for (signal, _) in config.eviction_soft.iter().filter(|(_, threshold)| !is_off(threshold)) {
            if !config.eviction_soft_grace_period.contains_key(signal) {
                self.conflict(format!(
                    "evictionSoft (--eviction-soft) {signal} needs evictionSoftGracePeriod (--eviction-soft-grace-period)"
                ));
            }
        }
        for (signal, period) in &config.eviction_soft_grace_period {
            let pair = format!("{signal}={period}");
            if !SIGNALS.contains(&signal.as_str()) {
                self.invalid("evictionSoftGracePeriod", pair, format!("for one of {}", SIGNALS.join(", ")));
            } else if !period.parse::<GoDuration>().is_ok_and(|period| period >= GoDuration::ZERO) {
                self.invalid("evictionSoftGracePeriod", pair, "a duration of 0s or more, such as 1m30s");
            }
        }
        self.at_least("evictionMaxPodGracePeriod", config.eviction_max_pod_grace_period.into(), 0);
        let transition = config.eviction_pressure_transition_period;
        self.at_least_time("evictionPressureTransitionPeriod", transition, GoDuration::ZERO);
    }

    /// `quantities`: those that are allowed. Percentages are from 0% to 100%, which both disable a threshold.
    fn thresholds(&mut self, field: &str, thresholds: &BTreeMap<String, String>, quantities: &str) {
        let may_be_zero = quantities != "above 0";
        for (signal, threshold) in thresholds {
            let pair = format!("{signal}={threshold}");
            if !SIGNALS.contains(&signal.as_str()) {
                self.invalid(field, pair, format!("for one of {}", SIGNALS.join(", ")));
            } else if !is_threshold(threshold, may_be_zero) {
                self.invalid(field, pair, format!("a quantity {quantities}, or a share from 0% to 100%"));
            }
        }
    }
}

fn is_threshold(text: &str, may_be_zero: bool) -> bool {
    match text.strip_suffix('%') {
        Some(percent) => percent.parse::<f64>().is_ok_and(|percent| (0.0..=100.0).contains(&percent)),
        None => Amount::parse(text).is_ok_and(|a| a > Amount::ZERO || (may_be_zero && a == Amount::ZERO)),
    }
}
