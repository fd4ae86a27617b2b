//! Statistics of the whole machine from procfs.

use jiff::Timestamp;
use ports::{Files, Machine};
use stats_core::cgroup::{CgroupSample, Detail, MemorySample, Pressures, field, pressure};
use stats_core::procfs;
use stats_core::procfs::ProcessSample;
use stats_core::sample::{LocalFilesystem, MachineSample};

/// What every sample needs.
const NODE_FILES: &[&str] = &[
    "/proc/stat",
    "/proc/meminfo",
    "/proc/loadavg",
    "/proc/sys/kernel/pid_max",
    "/proc/sys/kernel/threads-max",
];
/// What only samples with pods need, too.
const USAGE_FILES: &[&str] = &[
    "/proc/vmstat",
    "/proc/self/net/dev",
    "/proc/self/net/route",
    "/proc/pressure/cpu",
    "/proc/pressure/memory",
    "/proc/pressure/io",
];
/// What only a full sample needs.
const FULL_FILES: &[&str] = &["/proc/diskstats", "/proc/self/mountinfo"];

/// A longer list begins with the shorter ones.
fn files_for(detail: Detail) -> impl Iterator<Item = &'static str> {
    let (usage, full): (&[&str], &[&str]) = match detail {
        Detail::Node => (&[], &[]),
        Detail::Usage => (USAGE_FILES, &[]),
        Detail::Full => (USAGE_FILES, FULL_FILES),
    };
    NODE_FILES.iter().chain(usage).chain(full).copied()
}

/// The contents of the files of a sample; missing ones are empty.
#[derive(Debug)]
pub(super) struct Texts(Vec<Option<String>>);

impl Texts {
    fn get(&self, path: &str) -> &str {
        let index = files_for(Detail::Full).position(|known| known == path);
        index.and_then(|index| self.0.get(index)?.as_deref()).unwrap_or_default()
    }
}

pub(super) async fn read(files: &dyn Files, machine: &dyn Machine, detail: Detail) -> (MachineSample, Texts) {
    let texts = Texts(files.read_each(files_for(detail).map(Into::into).collect()).await);
    let number = |path: &str| texts.get(path).trim().parse::<u64>().ok();
    let known = machine.info();
    let booted = procfs::boot_seconds(texts.get("/proc/stat")).and_then(|s| i64::try_from(s).ok());
    let limits = [number("/proc/sys/kernel/pid_max"), number("/proc/sys/kernel/threads-max")];
    let sample = MachineSample {
        memory_bytes: known.memory_bytes,
        swap_bytes: known.swap_bytes,
        booted: booted.and_then(|s| Timestamp::from_second(s).ok()).unwrap_or_default(),
        interfaces: procfs::interfaces(texts.get("/proc/self/net/dev")),
        default_interface: procfs::default_interface(texts.get("/proc/self/net/route")).map(Into::into),
        tasks: procfs::running_tasks(texts.get("/proc/loadavg")),
        max_tasks: limits.into_iter().flatten().min(),
        disks: procfs::disks(texts.get("/proc/diskstats")),
        filesystems: filesystems(files, texts.get("/proc/self/mountinfo")).await,
    };
    (sample, texts)
}

/// Local filesystems; one that does not respond is left out.
async fn filesystems(files: &dyn Files, mountinfo: &str) -> Vec<LocalFilesystem> {
    let mut filesystems = Vec::new();
    for (device, mount_point) in procfs::local_filesystems(mountinfo) {
        let space = files.filesystem_space(mount_point.as_ref()).await;
        filesystems.extend(space.ok().map(|space| LocalFilesystem { device: device.into(), space }));
    }
    filesystems
}

/// The root cgroup lacks some counters, which are taken from the machine.
pub(super) fn complete_root(root: &mut CgroupSample, texts: &Texts) {
    let times = procfs::cpu_times(texts.get("/proc/stat"));
    root.cpu_nanoseconds = root.cpu_nanoseconds.or(times.map(|(used, _, _)| used));
    let (meminfo, vmstat) = (texts.get("/proc/meminfo"), texts.get("/proc/vmstat"));
    let of = |key: &str| procfs::meminfo(meminfo, key);
    let memory = &mut root.memory;
    if memory.usage.is_none() {
        let inactive_file = memory.inactive_file.or_else(|| of("Inactive(file)"));
        let usage = of("MemTotal").zip(of("MemFree")).map(|(total, free)| total.saturating_sub(free));
        *memory = MemorySample {
            usage,
            working_set: usage.map(|usage| usage.saturating_sub(inactive_file.unwrap_or(0))),
            rss: memory.rss.or_else(|| of("AnonPages")),
            cache: memory.cache.or_else(|| of("Cached")),
            inactive_file,
            ..std::mem::take(memory)
        };
    }
    memory.limit = None;
    let swap = of("SwapTotal").zip(of("SwapFree")).map(|(total, free)| (total, total.saturating_sub(free)));
    memory.swap = memory.swap.or(swap.map(|(_, used)| used));
    memory.swap_limit = memory.swap_limit.or(swap.map(|(total, _)| total));
    memory.page_faults = memory.page_faults.or_else(|| field(vmstat, "pgfault"));
    memory.major_page_faults = memory.major_page_faults.or_else(|| field(vmstat, "pgmajfault"));
    let pressures = Pressures {
        cpu: pressure(texts.get("/proc/pressure/cpu")),
        memory: pressure(texts.get("/proc/pressure/memory")),
        io: pressure(texts.get("/proc/pressure/io")),
    };
    if root.pressure.is_none() && pressures != Pressures::default() {
        root.pressure = Some(Box::new(pressures));
    }
}

/// The values of a cgroup with only this process. `status` is its `/proc/<pid>/status`.
pub(super) fn process_as_cgroup(process: &ProcessSample, status: &str) -> CgroupSample {
    let resident = procfs::meminfo(status, "VmRSS");
    CgroupSample {
        cpu_nanoseconds: Some(process.cpu_nanoseconds),
        memory: MemorySample {
            usage: resident,
            working_set: resident,
            rss: procfs::meminfo(status, "RssAnon"),
            swap: procfs::meminfo(status, "VmSwap"),
            page_faults: Some(process.minor_faults.saturating_add(process.major_faults)),
            major_page_faults: Some(process.major_faults),
            ..MemorySample::default()
        },
        processes: Some(1),
        ..CgroupSample::default()
    }
}
