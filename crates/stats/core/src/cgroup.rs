//! Which files of a cgroup are read, in version 1 and 2, and what they contain.
//!
//! What the kernel does not report is `None`: zero is a measurement.

use model::stats::{Pressure, Stall};

/// Which hierarchy is mounted.
pub use model::cgroup::CgroupVersion as Hierarchy;

/// Level of detail of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// The node as a whole, without pods: the values for eviction.
    Node,
    /// The values of `/stats/summary` and `/metrics/resource`.
    Usage,
    /// Also the values that only `/metrics/cadvisor` has.
    Full,
}

const V1_USAGE: &[&str] = &[
    "cpuacct/cpuacct.usage",
    "memory/memory.usage_in_bytes",
    "memory/memory.stat",
    "memory/memory.limit_in_bytes",
    "memory/memory.memsw.limit_in_bytes",
    "pids/cgroup.procs",
];
const V1_FULL: &[&str] = &[
    "cpuacct/cpuacct.usage",
    "memory/memory.usage_in_bytes",
    "memory/memory.stat",
    "memory/memory.limit_in_bytes",
    "memory/memory.memsw.limit_in_bytes",
    "pids/cgroup.procs",
    "cpuacct/cpuacct.usage_user",
    "cpuacct/cpuacct.usage_sys",
    "cpu/cpu.stat",
    "cpu/cpu.shares",
    "cpu/cpu.cfs_quota_us",
    "cpu/cpu.cfs_period_us",
    "memory/memory.max_usage_in_bytes",
    "memory/memory.soft_limit_in_bytes",
    "memory/memory.failcnt",
    "memory/memory.kmem.usage_in_bytes",
    "memory/memory.oom_control",
    "pids/pids.current",
    "pids/pids.max",
    "blkio/blkio.throttle.io_service_bytes_recursive",
    "blkio/blkio.throttle.io_serviced_recursive",
];
const V2_USAGE: &[&str] = &[
    "cpu.stat",
    "memory.current",
    "memory.stat",
    "memory.max",
    "memory.swap.current",
    "memory.swap.max",
    "cgroup.procs",
    "cpu.pressure",
    "memory.pressure",
    "io.pressure",
];
const V2_FULL: &[&str] = &[
    "cpu.stat",
    "memory.current",
    "memory.stat",
    "memory.max",
    "memory.swap.current",
    "memory.swap.max",
    "cgroup.procs",
    "cpu.pressure",
    "memory.pressure",
    "io.pressure",
    "cpu.weight",
    "cpu.max",
    "memory.peak",
    "memory.low",
    "memory.events",
    "pids.current",
    "pids.max",
    "io.stat",
];

/// The files to read, relative to the cgroup's directory; for version 1 with the directory of the controller first.
#[must_use]
pub const fn files(hierarchy: Hierarchy, detail: Detail) -> &'static [&'static str] {
    match (hierarchy, detail) {
        (Hierarchy::V1, Detail::Node | Detail::Usage) => V1_USAGE,
        (Hierarchy::V1, Detail::Full) => V1_FULL,
        (Hierarchy::V2, Detail::Node | Detail::Usage) => V2_USAGE,
        (Hierarchy::V2, Detail::Full) => V2_FULL,
    }
}

/// The path of one of [`files`] for the cgroup `path` (`/`, `/a/b`), relative to the mount point of cgroups.
#[must_use]
pub fn file_path(hierarchy: Hierarchy, path: &str, file: &str) -> String {
    let path = path.trim_matches('/');
    let slash = if path.is_empty() { "" } else { "/" };
    match (hierarchy, file.split_once('/')) {
        (Hierarchy::V1, Some((controller, name))) => format!("{controller}/{path}{slash}{name}"),
        (Hierarchy::V1 | Hierarchy::V2, _) => format!("{path}{slash}{file}"),
    }
}

/// One measurement of one cgroup.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CgroupSample {
    pub cpu_nanoseconds: Option<u64>,
    pub memory: MemorySample,
    /// Processes in this cgroup, without child cgroups.
    pub processes: Option<u64>,
    /// One of them.
    pub first_pid: Option<u32>,
    pub pressure: Option<Box<Pressures>>,
    /// With [`Detail::Full`] only.
    pub full: Option<Box<FullSample>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemorySample {
    pub usage: Option<u64>,
    /// Usage without inactive file pages.
    pub working_set: Option<u64>,
    /// `None`: no limit.
    pub limit: Option<u64>,
    pub rss: Option<u64>,
    pub cache: Option<u64>,
    pub mapped_file: Option<u64>,
    pub active_file: Option<u64>,
    pub inactive_file: Option<u64>,
    pub swap: Option<u64>,
    /// Swap only. `None`: no limit.
    pub swap_limit: Option<u64>,
    pub page_faults: Option<u64>,
    pub major_page_faults: Option<u64>,
    /// Including child cgroups; in version 2 the same numbers.
    pub tree_page_faults: Option<u64>,
    pub tree_major_page_faults: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pressures {
    pub cpu: Option<Pressure>,
    pub memory: Option<Pressure>,
    pub io: Option<Pressure>,
}

/// Additional values for `/metrics/cadvisor`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FullSample {
    pub user_nanoseconds: Option<u64>,
    pub system_nanoseconds: Option<u64>,
    pub throttling: Option<Throttling>,
    pub cpu_shares: Option<u64>,
    /// Microseconds. `None`: no quota.
    pub cpu_quota: Option<u64>,
    pub cpu_period: Option<u64>,
    pub max_usage: Option<u64>,
    pub reservation: Option<u64>,
    pub limit_hits: Option<u64>,
    pub kernel: Option<u64>,
    pub oom_kills: Option<u64>,
    pub threads: Option<u64>,
    /// `None`: no limit.
    pub threads_limit: Option<u64>,
    pub devices: Vec<DeviceIo>,
    pub open_files: Option<u64>,
    pub sockets: Option<u64>,
    /// Of the first process; `None`: no limit.
    pub open_files_limit: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Throttling {
    pub periods: u64,
    pub throttled_periods: u64,
    pub throttled_nanoseconds: u64,
    pub burst_periods: u64,
    pub burst_nanoseconds: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceIo {
    pub major: u32,
    pub minor: u32,
    pub reads: u64,
    pub writes: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
}

/// The contents of [`files`], by name.
struct Texts<'a> {
    names: &'a [&'a str],
    texts: &'a [Option<String>],
}

impl<'a> Texts<'a> {
    fn get(&self, name: &str) -> Option<&'a str> {
        let index = self.names.iter().position(|known| *known == name)?;
        self.texts.get(index)?.as_deref()
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.trim().parse().ok()
    }

    /// A limit: `max`, -1 and the largest number of pages all mean no limit.
    fn limit(&self, name: &str) -> Option<u64> {
        self.number(name).filter(|limit| *limit < NO_LIMIT)
    }
}

/// Values from here on mean no limit: version 1 reports the largest number that is a multiple of the page size.
const NO_LIMIT: u64 = 1 << 62;

/// Parses the contents of [`files`] of the same hierarchy and detail, in their order.
#[must_use]
pub fn parse(hierarchy: Hierarchy, detail: Detail, texts: &[Option<String>]) -> CgroupSample {
    let texts = Texts { names: files(hierarchy, detail), texts };
    match hierarchy {
        Hierarchy::V1 => parse_v1(&texts, detail),
        Hierarchy::V2 => parse_v2(&texts, detail),
    }
}

fn parse_v1(texts: &Texts<'_>, detail: Detail) -> CgroupSample {
    let stat = |key: &str| field(texts.get("memory/memory.stat")?, key);
    let usage = texts.number("memory/memory.usage_in_bytes");
    let limit = texts.limit("memory/memory.limit_in_bytes");
    let inactive_file = stat("total_inactive_file");
    // The limit applies to the sum of memory and swap.
    let both = texts.limit("memory/memory.memsw.limit_in_bytes");
    let memory = MemorySample {
        usage,
        working_set: usage.map(|usage| usage.saturating_sub(inactive_file.unwrap_or(0))),
        limit,
        rss: stat("total_rss"),
        cache: stat("total_cache"),
        mapped_file: stat("total_mapped_file"),
        active_file: stat("total_active_file"),
        inactive_file,
        swap: stat("total_swap"),
        swap_limit: both.zip(limit).map(|(both, memory)| both.saturating_sub(memory)),
        page_faults: stat("pgfault"),
        major_page_faults: stat("pgmajfault"),
        tree_page_faults: stat("total_pgfault"),
        tree_major_page_faults: stat("total_pgmajfault"),
    };
    let (processes, first_pid) = processes(texts.get("pids/cgroup.procs"));
    CgroupSample {
        cpu_nanoseconds: texts.number("cpuacct/cpuacct.usage"),
        memory,
        processes,
        first_pid,
        pressure: None,
        full: (detail == Detail::Full).then(|| Box::new(full_v1(texts))),
    }
}

fn full_v1(texts: &Texts<'_>) -> FullSample {
    let cpu = |key: &str| field(texts.get("cpu/cpu.stat")?, key);
    let mut devices = Vec::new();
    let tables = [
        ("blkio/blkio.throttle.io_service_bytes_recursive", true),
        ("blkio/blkio.throttle.io_serviced_recursive", false),
    ];
    for (name, is_bytes) in tables {
        for line in texts.get(name).unwrap_or_default().lines() {
            let mut fields = line.split_ascii_whitespace();
            let (Some(device), Some(what), Some(value)) = (fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            let (Some((major, minor)), Ok(value)) = (device_numbers(device), value.parse()) else { continue };
            let device = device_of(&mut devices, major, minor);
            match (what, is_bytes) {
                ("Read", true) => device.read_bytes = value,
                ("Write", true) => device.written_bytes = value,
                ("Read", false) => device.reads = value,
                ("Write", false) => device.writes = value,
                // Sync, Async, Discard and the total are other views of the same numbers.
                _ => {}
            }
        }
    }
    FullSample {
        user_nanoseconds: texts.number("cpuacct/cpuacct.usage_user"),
        system_nanoseconds: texts.number("cpuacct/cpuacct.usage_sys"),
        throttling: cpu("nr_periods").map(|periods| Throttling {
            periods,
            throttled_periods: cpu("nr_throttled").unwrap_or(0),
            throttled_nanoseconds: cpu("throttled_time").unwrap_or(0),
            burst_periods: cpu("nr_bursts").unwrap_or(0),
            burst_nanoseconds: cpu("burst_time").unwrap_or(0),
        }),
        cpu_shares: texts.number("cpu/cpu.shares"),
        cpu_quota: texts.number("cpu/cpu.cfs_quota_us"),
        cpu_period: texts.number("cpu/cpu.cfs_period_us"),
        max_usage: texts.number("memory/memory.max_usage_in_bytes"),
        reservation: texts.limit("memory/memory.soft_limit_in_bytes"),
        limit_hits: texts.number("memory/memory.failcnt"),
        kernel: texts.number("memory/memory.kmem.usage_in_bytes"),
        oom_kills: texts.get("memory/memory.oom_control").and_then(|text| field(text, "oom_kill")),
        threads: texts.number("pids/pids.current"),
        threads_limit: texts.limit("pids/pids.max"),
        devices,
        ..FullSample::default()
    }
}

fn parse_v2(texts: &Texts<'_>, detail: Detail) -> CgroupSample {
    let stat = |key: &str| field(texts.get("memory.stat")?, key);
    let usage = texts.number("memory.current");
    let inactive_file = stat("inactive_file");
    let memory = MemorySample {
        usage,
        working_set: usage.map(|usage| usage.saturating_sub(inactive_file.unwrap_or(0))),
        limit: texts.limit("memory.max"),
        rss: stat("anon"),
        cache: stat("file"),
        mapped_file: stat("file_mapped"),
        active_file: stat("active_file"),
        inactive_file,
        swap: texts.number("memory.swap.current"),
        swap_limit: texts.limit("memory.swap.max"),
        page_faults: stat("pgfault"),
        major_page_faults: stat("pgmajfault"),
        tree_page_faults: stat("pgfault"),
        tree_major_page_faults: stat("pgmajfault"),
    };
    let pressures = Pressures {
        cpu: texts.get("cpu.pressure").and_then(pressure),
        memory: texts.get("memory.pressure").and_then(pressure),
        io: texts.get("io.pressure").and_then(pressure),
    };
    let (processes, first_pid) = processes(texts.get("cgroup.procs"));
    CgroupSample {
        cpu_nanoseconds: texts.get("cpu.stat").and_then(|text| micros(text, "usage_usec")),
        memory,
        processes,
        first_pid,
        pressure: (pressures != Pressures::default()).then(|| Box::new(pressures)),
        full: (detail == Detail::Full).then(|| Box::new(full_v2(texts))),
    }
}

fn full_v2(texts: &Texts<'_>) -> FullSample {
    let cpu = |key: &str| field(texts.get("cpu.stat")?, key);
    let cpu_time = |key: &str| micros(texts.get("cpu.stat")?, key);
    let event = |key: &str| field(texts.get("memory.events")?, key);
    let (quota, period) = texts.get("cpu.max").and_then(|text| text.trim().split_once(' ')).unzip();
    FullSample {
        user_nanoseconds: cpu_time("user_usec"),
        system_nanoseconds: cpu_time("system_usec"),
        throttling: cpu("nr_periods").map(|periods| Throttling {
            periods,
            throttled_periods: cpu("nr_throttled").unwrap_or(0),
            throttled_nanoseconds: cpu_time("throttled_usec").unwrap_or(0),
            burst_periods: cpu("nr_bursts").unwrap_or(0),
            burst_nanoseconds: cpu_time("burst_usec").unwrap_or(0),
        }),
        cpu_shares: texts.number("cpu.weight").map(shares),
        cpu_quota: quota.and_then(|quota| quota.parse().ok()),
        cpu_period: period.and_then(|period| period.parse().ok()),
        max_usage: texts.number("memory.peak"),
        reservation: texts.limit("memory.low"),
        limit_hits: event("max"),
        kernel: texts.get("memory.stat").and_then(|text| field(text, "kernel")),
        oom_kills: event("oom_kill"),
        threads: texts.number("pids.current"),
        threads_limit: texts.limit("pids.max"),
        devices: texts.get("io.stat").map(io_stat).unwrap_or_default(),
        ..FullSample::default()
    }
}

/// The weight of version 2 converted to shares of version 1.
const fn shares(weight: u64) -> u64 {
    2 + (weight.saturating_sub(1).saturating_mul(262_142)) / 9_999
}

/// `254:0 rbytes=1 wbytes=2 rios=3 wios=4 …` for each device.
fn io_stat(text: &str) -> Vec<DeviceIo> {
    let mut devices = Vec::new();
    for line in text.lines() {
        let mut fields = line.split_ascii_whitespace();
        let Some((major, minor)) = fields.next().and_then(device_numbers) else { continue };
        let device = device_of(&mut devices, major, minor);
        for (key, value) in fields.filter_map(|word| word.split_once('=')) {
            let Ok(value) = value.parse() else { continue };
            match key {
                "rbytes" => device.read_bytes = value,
                "wbytes" => device.written_bytes = value,
                "rios" => device.reads = value,
                "wios" => device.writes = value,
                _ => {}
            }
        }
    }
    devices
}

fn device_numbers(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn device_of(devices: &mut Vec<DeviceIo>, major: u32, minor: u32) -> &mut DeviceIo {
    let known = devices.iter().position(|device| (device.major, device.minor) == (major, minor));
    let index = known.unwrap_or_else(|| {
        devices.push(DeviceIo { major, minor, ..DeviceIo::default() });
        devices.len() - 1
    });
    &mut devices[index]
}

/// The value after `key` in a file of lines `key value`.
#[must_use]
pub fn field(text: &str, key: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))?;
    value.trim().parse().ok()
}

/// The same in nanoseconds, where the file has microseconds.
fn micros(text: &str, key: &str) -> Option<u64> {
    field(text, key)?.checked_mul(1_000)
}

fn processes(text: Option<&str>) -> (Option<u64>, Option<u32>) {
    let Some(text) = text else { return (None, None) };
    // A process of another PID namespace is shown as 0.
    let first = text.lines().filter_map(|line| line.parse().ok()).find(|pid| *pid != 0);
    (Some(text.lines().count() as u64), first)
}

/// Every process of a cgroup.
#[must_use]
pub fn pids(procs: &str) -> Vec<u32> {
    procs.lines().filter_map(|line| line.parse().ok()).filter(|pid| *pid != 0).collect()
}

/// Pressure stall information: `some avg10=0.00 avg60=0.00 avg300=0.00 total=0`, and `full` likewise. Totals are
/// microseconds. `None`: the kernel does not collect it.
#[must_use]
pub fn pressure(text: &str) -> Option<Pressure> {
    let mut pressure = Pressure::default();
    for line in text.lines() {
        let (kind, values) = line.split_once(' ')?;
        let mut stall = Stall::default();
        for (key, value) in values.split(' ').filter_map(|pair| pair.split_once('=')) {
            match key {
                "avg10" => stall.avg10 = value.parse().ok()?,
                "avg60" => stall.avg60 = value.parse().ok()?,
                "avg300" => stall.avg300 = value.parse().ok()?,
                "total" => stall.total = value.parse().ok()?,
                _ => {}
            }
        }
        match kind {
            "some" => pressure.some = Some(stall),
            "full" => pressure.full = Some(stall),
            _ => {}
        }
    }
    (pressure != Pressure::default()).then_some(pressure)
}
