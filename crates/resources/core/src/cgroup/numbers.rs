//! The settings of a cgroup, and their form for both versions of cgroups and for systemd
//! (docs/behaviour/resources-and-qos.md).

use model::cgroup::{CgroupFile, CgroupSettings, CgroupVersion, UnitProperty, UnitValue};
use model::cpu_set::CpuSet;

use crate::cgroup::convert::{MAX_SHARES, MIN_SHARES};

/// CPU time in each period; microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuQuota {
    /// `None`: unlimited.
    pub micros: Option<i64>,
    /// `None`: unchanged.
    pub period: Option<i64>,
}

/// The limits and guarantees of a cgroup. An absent value keeps the kernel's default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CgroupNumbers {
    /// In the unit of version 1: 1024 for a core.
    pub cpu_shares: Option<i64>,
    pub cpu_quota: Option<CpuQuota>,
    pub memory_limit: Option<i64>,
    /// `memory.min`: never reclaimed. Only version 2 has it and the next one.
    pub memory_min: Option<i64>,
    /// `memory.low`: reclaimed last.
    pub memory_low: Option<i64>,
    pub pids_limit: Option<i64>,
    /// Bytes by page size in the kernel's notation: `2MB`.
    pub hugepage_limits: Vec<(String, u64)>,
    /// For systemd on version 2 only.
    pub allowed_cpus: Option<CpuSet>,
}

/// The number that the kernel accepts for no limit of huge pages.
pub(super) const UNBOUNDED_HUGEPAGES: u64 = 1 << 62;

/// The weight of version 2 for the shares of version 1: 1 + (shares - 2) * 9999 / 262142.
#[must_use]
pub fn cpu_weight(shares: i64) -> i64 {
    1 + (shares.clamp(MIN_SHARES, MAX_SHARES) - MIN_SHARES) * 9999 / (MAX_SHARES - MIN_SHARES)
}

/// The files to write, and the properties of the slice for systemd.
#[must_use]
pub fn compute_settings(numbers: &CgroupNumbers, version: CgroupVersion) -> CgroupSettings {
    let files = match version {
        CgroupVersion::V1 => files_v1(numbers),
        CgroupVersion::V2 => files_v2(numbers),
    };
    CgroupSettings { files, properties: properties(numbers, version) }
}

fn file(controller: &'static str, name: &str, text: impl ToString) -> CgroupFile {
    CgroupFile { controller, name: name.to_owned(), text: text.to_string(), is_optional: false }
}

fn optional(controller: &'static str, name: String, text: impl ToString) -> CgroupFile {
    CgroupFile { controller, name, text: text.to_string(), is_optional: true }
}

fn files_v1(numbers: &CgroupNumbers) -> Vec<CgroupFile> {
    let mut files = Vec::new();
    files.extend(numbers.cpu_shares.map(|shares| file("cpu", "cpu.shares", shares)));
    if let Some(CpuQuota { micros, period }) = numbers.cpu_quota {
        files.extend(period.map(|period| file("cpu", "cpu.cfs_period_us", period)));
        files.push(file("cpu", "cpu.cfs_quota_us", micros.unwrap_or(-1)));
    }
    files.extend(numbers.memory_limit.map(|bytes| file("memory", "memory.limit_in_bytes", bytes)));
    files.extend(numbers.pids_limit.map(|most| file("pids", "pids.max", most)));
    for (size, bytes) in &numbers.hugepage_limits {
        files.push(optional("hugetlb", format!("hugetlb.{size}.limit_in_bytes"), bytes));
    }
    files
}

fn files_v2(numbers: &CgroupNumbers) -> Vec<CgroupFile> {
    let mut files = Vec::new();
    files.extend(numbers.cpu_shares.map(|shares| file("", "cpu.weight", cpu_weight(shares))));
    if let Some(CpuQuota { micros, period }) = numbers.cpu_quota {
        let quota = micros.map_or_else(|| "max".to_owned(), |micros| micros.to_string());
        let text = period.map_or_else(|| quota.clone(), |period| format!("{quota} {period}"));
        files.push(file("", "cpu.max", text));
    }
    files.extend(numbers.memory_limit.map(|bytes| file("", "memory.max", bytes)));
    files.extend(numbers.memory_min.map(|bytes| file("", "memory.min", bytes)));
    files.extend(numbers.memory_low.map(|bytes| file("", "memory.low", bytes)));
    files.extend(numbers.pids_limit.map(|most| file("", "pids.max", most)));
    for (size, bytes) in &numbers.hugepage_limits {
        files.push(optional("", format!("hugetlb.{size}.max"), bytes));
        files.push(optional("", format!("hugetlb.{size}.rsvd.max"), bytes));
    }
    files
}

/// systemd writes these itself, also when it reads its units again.
fn properties(numbers: &CgroupNumbers, version: CgroupVersion) -> Vec<UnitProperty> {
    let mut properties = Vec::new();
    let mut add = |name, value: Option<i64>| {
        properties.extend(value.map(|value| unit_property(name, value.try_into().unwrap_or(0))));
    };
    match version {
        CgroupVersion::V1 => {
            add("CPUShares", numbers.cpu_shares);
            add("MemoryLimit", numbers.memory_limit);
        }
        CgroupVersion::V2 => {
            add("CPUWeight", numbers.cpu_shares.map(cpu_weight));
            add("MemoryMax", numbers.memory_limit);
            add("MemoryMin", numbers.memory_min);
            add("MemoryLow", numbers.memory_low);
        }
    }
    if let Some(quota) = numbers.cpu_quota {
        add("CPUQuotaPeriodUSec", quota.period);
        properties.push(unit_property("CPUQuotaPerSecUSec", quota_per_second(quota)));
    }
    properties.extend(
        numbers.pids_limit.map(|most| unit_property("TasksMax", most.try_into().unwrap_or(u64::MAX))),
    );
    if let Some(cpus) = numbers.allowed_cpus.as_ref().filter(|_| version == CgroupVersion::V2) {
        properties.push(UnitProperty { name: "AllowedCPUs", value: UnitValue::Bits(bits(cpus)) });
    }
    properties
}

const fn unit_property(name: &'static str, value: u64) -> UnitProperty {
    UnitProperty { name, value: UnitValue::Number(value) }
}

/// One bit for each CPU, those with low numbers first.
fn bits(cpus: &CpuSet) -> Vec<u8> {
    let mut bits = Vec::new();
    for cpu in cpus.iter() {
        let byte = usize::try_from(cpu / 8).unwrap_or_default();
        if bits.len() <= byte {
            bits.resize(byte + 1, 0_u8);
        }
        if let Some(byte) = bits.get_mut(byte) {
            *byte |= 1 << (cpu % 8);
        }
    }
    bits
}

/// systemd uses whole percents of a core: a fraction is rounded up, because rounding down would reduce the CPU time.
fn quota_per_second(quota: CpuQuota) -> u64 {
    const PERCENT: i64 = 10_000;
    let Some(micros) = quota.micros else { return u64::MAX };
    let period = quota.period.unwrap_or(DEFAULT_PERIOD).max(1);
    let per_second = micros.saturating_mul(1_000_000) / period;
    let percents = per_second.saturating_add(PERCENT - 1) / PERCENT;
    percents.saturating_mul(PERCENT).try_into().unwrap_or(0)
}

/// The kernel's.
const DEFAULT_PERIOD: i64 = 100_000;
