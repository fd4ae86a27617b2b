//! Parsers of files below `/proc` about the machine and about one process.

/// Counters of one network interface since its creation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    pub name: Box<str>,
    pub rx_bytes: u64,
    pub rx_packets: u64,
    pub rx_errors: u64,
    pub rx_dropped: u64,
    pub tx_bytes: u64,
    pub tx_packets: u64,
    pub tx_errors: u64,
    pub tx_dropped: u64,
}

/// Interfaces that are not counted: the loopback, and the host ends of container interfaces, of which a node has one for
/// each pod.
const NOT_COUNTED: &[&str] = &["lo", "veth", "docker", "nerdctl", "podman"];

/// `/proc/<pid>/net/dev`, without the loopback and the host ends of pods' interfaces.
#[must_use]
pub fn interfaces(net_dev: &str) -> Vec<Interface> {
    let parse = |line: &str| {
        let (name, counters) = line.split_once(':')?;
        let name = name.trim();
        if NOT_COUNTED.iter().any(|prefix| name.starts_with(prefix)) {
            return None;
        }
        let mut counters = counters.split_ascii_whitespace().map(str::parse::<u64>);
        let mut next = |skip: usize| counters.nth(skip)?.ok();
        Some(Interface {
            name: name.into(),
            rx_bytes: next(0)?,
            rx_packets: next(0)?,
            rx_errors: next(0)?,
            rx_dropped: next(0)?,
            tx_bytes: next(4)?,
            tx_packets: next(0)?,
            tx_errors: next(0)?,
            tx_dropped: next(0)?,
        })
    };
    // The two header lines have no such counters.
    net_dev.lines().filter_map(parse).collect()
}

/// The interface of the default route, from `/proc/net/route`.
#[must_use]
pub fn default_interface(route: &str) -> Option<&str> {
    route.lines().skip(1).find_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let (name, destination) = (fields.next()?, fields.next()?);
        (destination == "00000000").then_some(name)
    })
}

/// A line of `/proc/meminfo`, in bytes.
#[must_use]
pub fn meminfo(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// CPU time of the whole machine in nanoseconds, from `/proc/stat`: in use, user, system.
#[must_use]
pub fn cpu_times(stat: &str) -> Option<(u64, u64, u64)> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line.split_ascii_whitespace().filter_map(|tick| tick.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal; guests are in user already.
    let [user, nice, system, _idle, _iowait, irq, softirq] = *ticks.first_chunk::<7>()?;
    let user = user.checked_add(nice)?.checked_mul(TICK_NANOSECONDS)?;
    let system = system.checked_add(irq)?.checked_add(softirq)?.checked_mul(TICK_NANOSECONDS)?;
    Some((user.checked_add(system)?, user, system))
}

/// The kernel reports times to user space in ticks of a hundredth of a second, on every architecture.
const TICK_NANOSECONDS: u64 = 10_000_000;

/// Boot time of the machine, in seconds since 1970, from `/proc/stat`.
#[must_use]
pub fn boot_seconds(stat: &str) -> Option<u64> {
    super::cgroup::field(stat, "btime")
}

/// Number of processes and threads, from `/proc/loadavg` (`… 2/310 4711`).
#[must_use]
pub fn running_tasks(loadavg: &str) -> Option<u64> {
    loadavg.split_ascii_whitespace().nth(3)?.split_once('/')?.1.parse().ok()
}

/// Resource use of a process, from its `/proc/<pid>/stat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessSample {
    pub cpu_nanoseconds: u64,
    pub minor_faults: u64,
    pub major_faults: u64,
    pub threads: u64,
    /// Since boot.
    pub started_nanoseconds: u64,
    pub virtual_bytes: u64,
}

#[must_use]
pub fn process(stat: &str) -> Option<ProcessSample> {
    // The name may contain anything, even a closing parenthesis; the last one ends it.
    let (_, rest) = stat.rsplit_once(") ")?;
    let fields: Vec<u64> = rest.split(' ').skip(1).map(|field| field.parse().unwrap_or(0)).collect();
    // From field 4 of proc(5) on.
    let at = |number: usize| fields.get(number - 4).copied();
    Some(ProcessSample {
        cpu_nanoseconds: at(14)?.checked_add(at(15)?)?.checked_mul(TICK_NANOSECONDS)?,
        minor_faults: at(10)?,
        major_faults: at(12)?,
        threads: at(20)?,
        started_nanoseconds: at(22)?.checked_mul(TICK_NANOSECONDS)?,
        virtual_bytes: at(23)?,
    })
}

/// The soft limit of open files, from `/proc/<pid>/limits`. `None`: no limit, or not reported.
#[must_use]
pub fn open_files_limit(limits: &str) -> Option<u64> {
    soft_limit(limits, "Max open files")?.parse().ok()
}

/// The soft limit of virtual memory; the largest number if there is none. `None`: not reported.
#[must_use]
pub fn address_space_limit(limits: &str) -> Option<u64> {
    match soft_limit(limits, "Max address space")? {
        "unlimited" => Some(u64::MAX),
        bytes => bytes.parse().ok(),
    }
}

fn soft_limit<'a>(limits: &'a str, name: &str) -> Option<&'a str> {
    limits.lines().find_map(|line| line.strip_prefix(name))?.split_ascii_whitespace().next()
}

/// Bytes received and sent over IP, from `/proc/<pid>/net/netstat`.
#[must_use]
pub fn ip_bytes(netstat: &str) -> Option<(u64, u64)> {
    let mut lines = netstat.lines().filter_map(|line| line.strip_prefix("IpExt: "));
    let (names, values) = (lines.next()?, lines.next()?);
    let of = |wanted: &str| {
        let index = names.split(' ').position(|name| name == wanted)?;
        values.split(' ').nth(index)?.trim().parse().ok()
    };
    Some((of("InOctets")?, of("OutOctets")?))
}

/// Upper bound for the number of filesystems of a machine.
const MAX_FILESYSTEMS: usize = 64;

/// Device and mount point of each filesystem of the machine itself, from `/proc/self/mountinfo`: on block devices, the
/// first mount of each, and in memory, directly below `/` or one of its directories (`/run`, `/dev/shm`); deeper ones
/// belong to pods.
#[must_use]
pub fn local_filesystems(mountinfo: &str) -> Vec<(&str, &str)> {
    let mut found: Vec<(&str, &str)> = Vec::new();
    for line in mountinfo.lines() {
        let Some((head, tail)) = line.split_once(" - ") else { continue };
        let mut tail = tail.split(' ');
        let (Some(mount_point), Some(kind), Some(source)) =
            (head.split(' ').nth(4), tail.next(), tail.next())
        else {
            continue;
        };
        let device = match kind {
            "ext2" | "ext3" | "ext4" | "xfs" | "btrfs" if source.starts_with("/dev/") => source,
            "tmpfs" if mount_point.matches('/').count() <= 2 => mount_point,
            _ => continue,
        };
        // A backslash begins an escaped character.
        let is_known = found.iter().any(|(known, _)| *known == device);
        if !is_known && !mount_point.contains('\\') && found.len() < MAX_FILESYSTEMS {
            found.push((device, mount_point));
        }
    }
    found
}

/// Counters of one block device since boot, from `/proc/diskstats`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Disk {
    pub major: u32,
    pub minor: u32,
    pub name: Box<str>,
    pub reads: u64,
    pub reads_merged: u64,
    pub sectors_read: u64,
    pub read_milliseconds: u64,
    pub writes: u64,
    pub writes_merged: u64,
    pub sectors_written: u64,
    pub write_milliseconds: u64,
    pub in_progress: u64,
    pub io_milliseconds: u64,
    pub weighted_milliseconds: u64,
}

/// The devices with any activity.
#[must_use]
pub fn disks(diskstats: &str) -> Vec<Disk> {
    let parse = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let (major, minor) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        let name = fields.next()?.into();
        let mut next = || fields.next()?.parse().ok();
        Some(Disk {
            major,
            minor,
            name,
            reads: next()?,
            reads_merged: next()?,
            sectors_read: next()?,
            read_milliseconds: next()?,
            writes: next()?,
            writes_merged: next()?,
            sectors_written: next()?,
            write_milliseconds: next()?,
            in_progress: next()?,
            io_milliseconds: next()?,
            weighted_milliseconds: next()?,
        })
    };
    diskstats.lines().filter_map(parse).filter(|disk| disk.reads > 0 || disk.writes > 0).collect()
}
