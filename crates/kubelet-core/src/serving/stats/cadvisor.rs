//! `/metrics/cadvisor`: every cgroup of interest with everything that was measured of it, under the names that
//! dashboards know from cAdvisor.

use jiff::Timestamp;
use model::stats::{FilesystemSpace, Pressure, Stall};

use super::cgroup::{DeviceIo, FullSample, Pressures, Throttling};
use super::exposition::{Kind, Value, family, line};
use super::procfs::{Disk, Interface};
use super::sample::{NodeSample, Placed};

/// The machine next to what a sample says of it.
#[derive(Clone, Copy, Debug)]
pub struct MachineNames<'a> {
    pub boot_id: &'a str,
    pub machine_id: &'a str,
    pub system_uuid: &'a str,
    pub kernel_version: &'a str,
    pub os_image: &'a str,
    pub cores: u64,
    pub physical_cores: u64,
    pub sockets: u64,
    pub books: u64,
    pub drawers: u64,
}

/// Whose cgroup: the six labels that every line has, empty where they do not apply.
struct Subject<'a> {
    container: &'a str,
    image: &'a str,
    name: &'a str,
    namespace: &'a str,
    pod: &'a str,
    placed: &'a Placed,
    started: Option<Timestamp>,
    interfaces: &'a [Interface],
}

type Labels<'a> = [(&'a str, &'a str)];

impl Subject<'_> {
    /// In alphabetical order, with those of `more` between them.
    fn line(&self, text: &mut String, name: &str, more: &Labels<'_>, value: Value, at: Option<Timestamp>) {
        let mut labels = Vec::with_capacity(6 + more.len());
        labels.extend([
            ("container", self.container),
            ("id", &*self.placed.path),
            ("image", self.image),
            ("name", self.name),
            ("namespace", self.namespace),
            ("pod", self.pod),
        ]);
        labels.extend_from_slice(more);
        labels.sort_unstable_by_key(|(label, _)| *label);
        line(text, name, &labels, value, at);
    }
}

fn subjects(sample: &NodeSample) -> Vec<Subject<'_>> {
    let plain = |placed, started, interfaces| Subject {
        container: "",
        image: "",
        name: "",
        namespace: "",
        pod: "",
        placed,
        started,
        interfaces,
    };
    let machine = &sample.machine;
    let mut all = vec![plain(&sample.root, Some(machine.booted), &machine.interfaces)];
    // What was added up has no cgroup of its own.
    let system = sample.system.iter().filter(|system| system.placed.path.starts_with('/'));
    all.extend(system.map(|system| plain(&system.placed, system.started, &[])));
    all.extend(sample.qos.iter().map(|placed| plain(placed, None, &[])));
    for pod in &sample.pods {
        let (namespace, pod_name) = (&*pod.pod.namespace, &*pod.pod.name);
        if let Some(own) = &pod.own {
            all.push(Subject { namespace, pod: pod_name, ..plain(own, pod.started, &[]) });
        }
        for part in pod.parts() {
            // The sandbox holds the network.
            let interfaces = if part.name.is_empty() { &*pod.interfaces } else { &[] };
            all.push(Subject {
                container: &part.name,
                image: &part.image,
                name: part.id.as_str(),
                namespace,
                pod: pod_name,
                ..plain(&part.placed, Some(part.started), interfaces)
            });
        }
    }
    all
}

/// Takes one line of a family: the labels it has next to the six, and the number.
type Tell<'a> = dyn FnMut(&Labels<'_>, Value) + 'a;

/// One family over all cgroups.
struct Family {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    /// A fact about the cgroup rather than a measurement: told without the time of the sample.
    is_fact: bool,
    lines: fn(&NodeSample, &Subject<'_>, &mut Tell<'_>),
}

const fn counter(
    name: &'static str,
    help: &'static str,
    lines: fn(&NodeSample, &Subject<'_>, &mut Tell<'_>),
) -> Family {
    Family { name, kind: Kind::Counter, help, is_fact: false, lines }
}

const fn gauge(
    name: &'static str,
    help: &'static str,
    lines: fn(&NodeSample, &Subject<'_>, &mut Tell<'_>),
) -> Family {
    Family { name, kind: Kind::Gauge, help, is_fact: false, lines }
}

const fn fact(
    name: &'static str,
    help: &'static str,
    lines: fn(&NodeSample, &Subject<'_>, &mut Tell<'_>),
) -> Family {
    Family { name, kind: Kind::Gauge, help, is_fact: true, lines }
}

fn integer(tell: &mut Tell<'_>, number: Option<u64>) {
    if let Some(number) = number {
        tell(&[], Value::Integer(number));
    }
}

fn time(tell: &mut Tell<'_>, nanoseconds: Option<u64>) {
    if let Some(nanoseconds) = nanoseconds {
        tell(&[], Value::Nanoseconds(nanoseconds));
    }
}

fn full<'a>(subject: &Subject<'a>) -> Option<&'a FullSample> {
    subject.placed.cgroup.full.as_deref()
}

/// Without a quota there is nothing to be throttled by.
fn throttling(subject: &Subject<'_>) -> Option<Throttling> {
    full(subject).filter(|full| full.cpu_quota.is_some())?.throttling
}

/// Totals are microseconds.
fn stall(
    subject: &Subject<'_>,
    of: fn(&Pressures) -> Option<&Pressure>,
    which: fn(&Pressure) -> Option<Stall>,
) -> Option<u64> {
    let total = which(of(subject.placed.cgroup.pressure.as_deref()?)?)?.total;
    Some(total.saturating_mul(1_000))
}

const CPU: &[Family] = &[
    counter(
        "container_cpu_user_seconds_total",
        "CPU time used outside the kernel, in seconds.",
        |_, s, tell| {
            time(tell, full(s).and_then(|full| full.user_nanoseconds));
        },
    ),
    counter(
        "container_cpu_system_seconds_total",
        "CPU time used in the kernel, in seconds.",
        |_, s, tell| {
            time(tell, full(s).and_then(|full| full.system_nanoseconds));
        },
    ),
    counter("container_cpu_usage_seconds_total", "CPU time used, in seconds.", |_, s, tell| {
        if let Some(used) = s.placed.cgroup.cpu_nanoseconds {
            tell(&[("cpu", "total")], Value::Nanoseconds(used));
        }
    }),
    counter("container_cpu_cfs_periods_total", "Periods of the CPU quota that have passed.", |_, s, tell| {
        integer(tell, throttling(s).map(|t| t.periods));
    }),
    counter(
        "container_cpu_cfs_throttled_periods_total",
        "Periods of the CPU quota in which the container had to wait.",
        |_, s, tell| integer(tell, throttling(s).map(|t| t.throttled_periods)),
    ),
    counter(
        "container_cpu_cfs_throttled_seconds_total",
        "How long the CPU quota made the container wait, in seconds.",
        |_, s, tell| time(tell, throttling(s).map(|t| t.throttled_nanoseconds)),
    ),
    counter(
        "container_cpu_cfs_burst_periods_total",
        "Periods in which the container used what it had saved of its CPU quota.",
        |_, s, tell| integer(tell, throttling(s).map(|t| t.burst_periods)),
    ),
    counter(
        "container_cpu_cfs_burst_seconds_total",
        "CPU time used beyond the quota out of savings, in seconds.",
        |_, s, tell| time(tell, throttling(s).map(|t| t.burst_nanoseconds)),
    ),
];

/// What cAdvisor measures with its load reader, which no kubelet turns on: zeros, as the Go kubelet exports them.
const LOAD: &[Family] = &[
    gauge("container_cpu_load_average_10s", "Not measured: always 0.", |_, _, tell| {
        tell(&[], Value::Integer(0));
    }),
    gauge("container_cpu_load_d_average_10s", "Not measured: always 0.", |_, _, tell| {
        tell(&[], Value::Integer(0));
    }),
    gauge("container_tasks_state", "Tasks by state. Not measured: always 0.", |_, _, tell| {
        for state in ["iowaiting", "running", "sleeping", "stopped", "uninterruptible"] {
            tell(&[("state", state)], Value::Integer(0));
        }
    }),
];

const MEMORY: &[Family] = &[
    gauge("container_memory_cache", "Bytes of the page cache.", |_, s, tell| {
        integer(tell, s.placed.cgroup.memory.cache);
    }),
    gauge("container_memory_rss", "Bytes of memory that belong to no file.", |_, s, tell| {
        integer(tell, s.placed.cgroup.memory.rss);
    }),
    gauge("container_memory_kernel_usage", "Bytes that the kernel took for the container.", |_, s, tell| {
        integer(tell, full(s).and_then(|full| full.kernel));
    }),
    gauge("container_memory_mapped_file", "Bytes of files that are mapped.", |_, s, tell| {
        integer(tell, s.placed.cgroup.memory.mapped_file);
    }),
    gauge("container_memory_swap", "Bytes of swap in use.", |_, s, tell| {
        integer(tell, s.placed.cgroup.memory.swap);
    }),
    counter("container_memory_failcnt", "How often memory ran into its limit.", |_, s, tell| {
        integer(tell, full(s).and_then(|full| full.limit_hits));
    }),
    gauge("container_memory_usage_bytes", "Bytes of memory in use, of whatever kind.", |_, s, tell| {
        integer(tell, s.placed.cgroup.memory.usage);
    }),
    gauge(
        "container_memory_max_usage_bytes",
        "The most bytes of memory that were ever in use.",
        |_, s, tell| {
            integer(tell, full(s).and_then(|full| full.max_usage));
        },
    ),
    gauge(
        "container_memory_working_set_bytes",
        "Bytes of memory that cannot be taken back.",
        |_, s, tell| {
            integer(tell, s.placed.cgroup.memory.working_set);
        },
    ),
    gauge("container_memory_total_active_file_bytes", "Bytes of file pages used lately.", |_, s, tell| {
        integer(tell, s.placed.cgroup.memory.active_file);
    }),
    gauge(
        "container_memory_total_inactive_file_bytes",
        "Bytes of file pages not used lately.",
        |_, s, tell| {
            integer(tell, s.placed.cgroup.memory.inactive_file);
        },
    ),
    counter("container_memory_failures_total", "Page faults, by kind and scope.", |_, s, tell| {
        let memory = &s.placed.cgroup.memory;
        let all = [
            ("pgfault", "container", memory.page_faults),
            ("pgmajfault", "container", memory.major_page_faults),
            ("pgfault", "hierarchy", memory.tree_page_faults),
            ("pgmajfault", "hierarchy", memory.tree_major_page_faults),
        ];
        for (kind, scope, count) in all {
            if let Some(count) = count {
                tell(&[("failure_type", kind), ("scope", scope)], Value::Integer(count));
            }
        }
    }),
    counter("container_oom_events_total", "Processes killed because memory ran out.", |_, s, tell| {
        integer(tell, full(s).and_then(|full| full.oom_kills));
    }),
];

const PRESSURE: &[Family] = &[
    counter(
        "container_pressure_cpu_stalled_seconds_total",
        "How long all tasks waited for the CPU, in seconds.",
        |_, s, tell| time(tell, stall(s, |all| all.cpu.as_ref(), |one| one.full)),
    ),
    counter(
        "container_pressure_cpu_waiting_seconds_total",
        "How long some task waited for the CPU, in seconds.",
        |_, s, tell| time(tell, stall(s, |all| all.cpu.as_ref(), |one| one.some)),
    ),
    counter(
        "container_pressure_io_stalled_seconds_total",
        "How long all tasks waited for input or output, in seconds.",
        |_, s, tell| time(tell, stall(s, |all| all.io.as_ref(), |one| one.full)),
    ),
    counter(
        "container_pressure_io_waiting_seconds_total",
        "How long some task waited for input or output, in seconds.",
        |_, s, tell| time(tell, stall(s, |all| all.io.as_ref(), |one| one.some)),
    ),
    counter(
        "container_pressure_memory_stalled_seconds_total",
        "How long all tasks waited for memory, in seconds.",
        |_, s, tell| time(tell, stall(s, |all| all.memory.as_ref(), |one| one.full)),
    ),
    counter(
        "container_pressure_memory_waiting_seconds_total",
        "How long some task waited for memory, in seconds.",
        |_, s, tell| time(tell, stall(s, |all| all.memory.as_ref(), |one| one.some)),
    ),
];

const NETWORK: &[Family] = &[
    counter("container_network_receive_bytes_total", "Bytes received.", |_, s, tell| {
        network(s, tell, |i| i.rx_bytes);
    }),
    counter("container_network_receive_packets_total", "Packets received.", |_, s, tell| {
        network(s, tell, |i| i.rx_packets);
    }),
    counter(
        "container_network_receive_packets_dropped_total",
        "Packets received and dropped.",
        |_, s, tell| {
            network(s, tell, |i| i.rx_dropped);
        },
    ),
    counter("container_network_receive_errors_total", "Errors while receiving.", |_, s, tell| {
        network(s, tell, |i| i.rx_errors);
    }),
    counter("container_network_transmit_bytes_total", "Bytes sent.", |_, s, tell| {
        network(s, tell, |i| i.tx_bytes);
    }),
    counter("container_network_transmit_packets_total", "Packets sent.", |_, s, tell| {
        network(s, tell, |i| i.tx_packets);
    }),
    counter(
        "container_network_transmit_packets_dropped_total",
        "Packets dropped instead of sent.",
        |_, s, tell| {
            network(s, tell, |i| i.tx_dropped);
        },
    ),
    counter("container_network_transmit_errors_total", "Errors while sending.", |_, s, tell| {
        network(s, tell, |i| i.tx_errors);
    }),
];

fn network(subject: &Subject<'_>, tell: &mut Tell<'_>, of: fn(&Interface) -> u64) {
    for interface in subject.interfaces {
        tell(&[("interface", &interface.name)], Value::Integer(of(interface)));
    }
}

const DISK: &[Family] = &[
    counter("container_fs_reads_bytes_total", "Bytes read from the device.", |n, s, tell| {
        devices(n, s, tell, |d| d.read_bytes);
    }),
    counter("container_fs_reads_total", "Reads from the device.", |n, s, tell| {
        devices(n, s, tell, |d| d.reads)
    }),
    counter("container_fs_writes_bytes_total", "Bytes written to the device.", |n, s, tell| {
        devices(n, s, tell, |d| d.written_bytes);
    }),
    counter("container_fs_writes_total", "Writes to the device.", |n, s, tell| {
        devices(n, s, tell, |d| d.writes)
    }),
    counter("container_fs_reads_merged_total", "Reads that became part of another.", |n, s, tell| {
        disks(n, s, tell, |d| Value::Integer(d.reads_merged));
    }),
    counter("container_fs_sector_reads_total", "Sectors read.", |n, s, tell| {
        disks(n, s, tell, |d| Value::Integer(d.sectors_read));
    }),
    counter("container_fs_read_seconds_total", "Time spent on reads, in seconds.", |n, s, tell| {
        disks(n, s, tell, |d| milliseconds(d.read_milliseconds));
    }),
    counter("container_fs_writes_merged_total", "Writes that became part of another.", |n, s, tell| {
        disks(n, s, tell, |d| Value::Integer(d.writes_merged));
    }),
    counter("container_fs_sector_writes_total", "Sectors written.", |n, s, tell| {
        disks(n, s, tell, |d| Value::Integer(d.sectors_written));
    }),
    counter("container_fs_write_seconds_total", "Time spent on writes, in seconds.", |n, s, tell| {
        disks(n, s, tell, |d| milliseconds(d.write_milliseconds));
    }),
    gauge("container_fs_io_current", "Reads and writes under way.", |n, s, tell| {
        disks(n, s, tell, |d| Value::Integer(d.in_progress));
    }),
    counter(
        "container_fs_io_time_seconds_total",
        "Time in which the device was busy, in seconds.",
        |n, s, tell| {
            disks(n, s, tell, |d| milliseconds(d.io_milliseconds));
        },
    ),
    counter(
        "container_fs_io_time_weighted_seconds_total",
        "The same, times what was under way, in seconds.",
        |n, s, tell| disks(n, s, tell, |d| milliseconds(d.weighted_milliseconds)),
    ),
    gauge("container_fs_inodes_free", "Inodes of the filesystem that are free.", |n, s, tell| {
        filesystems(n, s, tell, |space| space.inodes_free);
    }),
    gauge("container_fs_inodes_total", "Inodes of the filesystem.", |n, s, tell| {
        filesystems(n, s, tell, |space| space.inodes);
    }),
    gauge("container_fs_limit_bytes", "Size of the filesystem, in bytes.", |n, s, tell| {
        filesystems(n, s, tell, |space| space.capacity_bytes);
    }),
    gauge("container_fs_usage_bytes", "Bytes of the filesystem in use.", |n, s, tell| {
        filesystems(n, s, tell, |space| space.used_bytes);
    }),
    counter("container_blkio_device_usage_total", "Bytes moved to or from the device.", |n, s, tell| {
        for device in full(s).map(|full| &*full.devices).unwrap_or_default() {
            let (major, minor) = (device.major.to_string(), device.minor.to_string());
            let name = device_name(n, device.major, device.minor);
            for (what, bytes) in [("Read", device.read_bytes), ("Write", device.written_bytes)] {
                let labels =
                    [("device", &*name), ("major", &*major), ("minor", &*minor), ("operation", what)];
                tell(&labels, Value::Integer(bytes));
            }
        }
    }),
];

const fn milliseconds(count: u64) -> Value {
    Value::Nanoseconds(count.saturating_mul(1_000_000))
}

/// By cgroup; the machine as a whole is known from its disks.
fn devices(sample: &NodeSample, subject: &Subject<'_>, tell: &mut Tell<'_>, of: fn(&DeviceIo) -> u64) {
    let mut one = |device: &DeviceIo| {
        let name = device_name(sample, device.major, device.minor);
        tell(&[("device", &name)], Value::Integer(of(device)));
    };
    if is_root(subject) {
        sample.machine.disks.iter().map(as_device).for_each(|device| one(&device));
    } else {
        full(subject).map(|full| &*full.devices).unwrap_or_default().iter().for_each(one);
    }
}

fn disks(sample: &NodeSample, subject: &Subject<'_>, tell: &mut Tell<'_>, of: fn(&Disk) -> Value) {
    for disk in sample.machine.disks.iter().filter(|_| is_root(subject)) {
        tell(&[("device", &format!("/dev/{}", disk.name))], of(disk));
    }
}

/// Of the machine as a whole: which part of them is a container's, the kernel does not count.
fn filesystems(
    sample: &NodeSample,
    subject: &Subject<'_>,
    tell: &mut Tell<'_>,
    of: fn(&FilesystemSpace) -> u64,
) {
    for filesystem in sample.machine.filesystems.iter().filter(|_| is_root(subject)) {
        tell(&[("device", &filesystem.device)], Value::Integer(of(&filesystem.space)));
    }
}

const fn as_device(disk: &Disk) -> DeviceIo {
    DeviceIo {
        major: disk.major,
        minor: disk.minor,
        reads: disk.reads,
        writes: disk.writes,
        read_bytes: disk.sectors_read.saturating_mul(SECTOR_BYTES),
        written_bytes: disk.sectors_written.saturating_mul(SECTOR_BYTES),
    }
}

/// The kernel counts in these, whatever the device has.
const SECTOR_BYTES: u64 = 512;

fn is_root(subject: &Subject<'_>) -> bool {
    &*subject.placed.path == "/"
}

fn device_name(sample: &NodeSample, major: u32, minor: u32) -> String {
    let known = sample.machine.disks.iter().find(|disk| (disk.major, disk.minor) == (major, minor));
    known.map(|disk| format!("/dev/{}", disk.name)).unwrap_or_default()
}

const PROCESSES: &[Family] = &[
    gauge("container_processes", "Processes in the cgroup.", |_, s, tell| {
        integer(tell, s.placed.cgroup.processes);
    }),
    gauge("container_threads", "Threads in the cgroup and below.", |_, s, tell| {
        integer(tell, full(s).and_then(|full| full.threads));
    }),
    gauge("container_threads_max", "Threads that may be there; 0 means any number.", |_, s, tell| {
        integer(tell, full(s).filter(|f| f.threads.is_some()).map(|f| f.threads_limit.unwrap_or(NO_LIMIT)));
    }),
    gauge("container_file_descriptors", "Files that the processes have open.", |_, s, tell| {
        integer(tell, full(s).and_then(|full| full.open_files));
    }),
    gauge("container_sockets", "Sockets that the processes have open.", |_, s, tell| {
        integer(tell, full(s).and_then(|full| full.sockets));
    }),
    gauge("container_ulimits_soft", "Soft limits of the container's first process.", |_, s, tell| {
        if let Some(limit) = full(s).and_then(|full| full.open_files_limit) {
            tell(&[("ulimit", "max_open_files")], Value::Integer(limit));
        }
    }),
];

/// How a limit is told that is not there.
const NO_LIMIT: u64 = 0;

const SPEC: &[Family] = &[
    fact(
        "container_spec_cpu_period",
        "Length of a period of the CPU quota, in microseconds.",
        |_, s, tell| {
            integer(tell, full(s).and_then(|full| full.cpu_period));
        },
    ),
    fact("container_spec_cpu_quota", "CPU time for each period, in microseconds.", |_, s, tell| {
        integer(tell, full(s).and_then(|full| full.cpu_quota));
    }),
    fact("container_spec_cpu_shares", "Share of the CPU where it is scarce.", |_, s, tell| {
        integer(tell, full(s).and_then(|full| full.cpu_shares));
    }),
    fact("container_spec_memory_limit_bytes", "Limit of memory; 0 means none.", |_, s, tell| {
        integer(tell, s.placed.cgroup.memory.usage.map(|_| s.placed.cgroup.memory.limit.unwrap_or(NO_LIMIT)));
    }),
    fact("container_spec_memory_swap_limit_bytes", "Limit of swap; 0 means none.", |_, s, tell| {
        integer(
            tell,
            s.placed.cgroup.memory.usage.map(|_| s.placed.cgroup.memory.swap_limit.unwrap_or(NO_LIMIT)),
        );
    }),
    fact("container_spec_memory_reservation_limit_bytes", "Memory set aside; 0 means none.", |_, s, tell| {
        integer(tell, full(s).map(|full| full.reservation.unwrap_or(NO_LIMIT)));
    }),
    fact("container_start_time_seconds", "When it was started, in seconds since 1970.", |_, s, tell| {
        let started = s.started.and_then(|started| u64::try_from(started.as_second()).ok());
        integer(tell, started);
    }),
    gauge("container_last_seen", "When it was last measured, in seconds since 1970.", |n, _, tell| {
        integer(tell, u64::try_from(n.taken.wall.as_second()).ok());
    }),
    gauge(
        "container_health_state",
        "Outcome of the runtime's own health check; -1 means it has none.",
        |_, _, tell| {
            tell(&[], Value::Float(-1.0));
        },
    ),
];

const TABLES: &[&[Family]] = &[CPU, LOAD, MEMORY, PRESSURE, NETWORK, DISK, PROCESSES, SPEC];

/// What one reader is told of. Made once for each of them.
#[derive(Debug)]
pub struct Telling<'a> {
    sample: &'a NodeSample,
    machine: MachineNames<'a>,
}

impl<'a> Telling<'a> {
    #[must_use]
    pub const fn new(sample: &'a NodeSample, machine: MachineNames<'a>) -> Self {
        Self { sample, machine }
    }

    /// One family, by its place; after the last one the machine, and then `None`. Nobody needs more than one of them in
    /// memory. Empty where this machine cannot measure it.
    #[must_use]
    pub fn piece(&self, place: usize) -> Option<String> {
        let mut text = String::new();
        let mut families = TABLES.iter().flat_map(|table| table.iter());
        let Some(Family { name, kind, help, is_fact, lines }) = families.nth(place) else {
            let is_machine = place == TABLES.iter().map(|table| table.len()).sum::<usize>();
            self.machine_table(&mut text);
            return is_machine.then_some(text);
        };
        family(&mut text, name, *kind, help);
        let head = text.len();
        let at = Some(self.sample.taken.wall).filter(|_| !is_fact);
        for subject in &subjects(self.sample) {
            lines(self.sample, subject, &mut |labels, value| {
                subject.line(&mut text, name, labels, value, at)
            });
        }
        if text.len() == head {
            text.clear();
        }
        Some(text)
    }

    fn machine_table(&self, text: &mut String) {
        let (machine, sample) = (&self.machine, self.sample);
        let name = "cadvisor_version_info";
        family(text, name, Kind::Gauge, "Versions of what was measured and of what measures; always 1.");
        let labels = [
            ("cadvisorRevision", ""),
            ("cadvisorVersion", ""),
            ("dockerVersion", ""),
            ("kernelVersion", machine.kernel_version),
            ("osVersion", machine.os_image),
        ];
        line(text, name, &labels, Value::Integer(1), None);
        let labels = [
            ("boot_id", machine.boot_id),
            ("machine_id", machine.machine_id),
            ("system_uuid", machine.system_uuid),
        ];
        let numbers = [
            ("machine_cpu_books", "Books that processors are in, on machines that have them.", machine.books),
            ("machine_cpu_cores", "Logical processors.", machine.cores),
            (
                "machine_cpu_drawers",
                "Drawers that books are in, on machines that have them.",
                machine.drawers,
            ),
            ("machine_cpu_physical_cores", "Processor cores.", machine.physical_cores),
            ("machine_cpu_sockets", "Processor packages.", machine.sockets),
            ("machine_memory_bytes", "Memory of the machine, in bytes.", sample.machine.memory_bytes),
            ("machine_swap_bytes", "Swap of the machine, in bytes.", sample.machine.swap_bytes),
        ];
        for (name, help, number) in numbers {
            family(text, name, Kind::Gauge, help);
            line(text, name, &labels, Value::Integer(number), None);
        }
        persistent_memory(text, &labels);
        for name in ["container_scrape_error", "machine_scrape_error"] {
            family(text, name, Kind::Gauge, "1 if something could not be measured, 0 otherwise.");
            line(text, name, &[], Value::Integer(u64::from(sample.is_incomplete)), None);
        }
    }
}

/// cAdvisor is built without support for persistent memory modules where the Go kubelet uses it: zeros, as that one exports.
fn persistent_memory(text: &mut String, machine: &[(&str, &str); 3]) {
    let name = "machine_nvm_avg_power_budget_watts";
    family(text, name, Kind::Gauge, "Power budget of persistent memory. Not measured: always 0.");
    line(text, name, machine, Value::Integer(0), None);
    let name = "machine_nvm_capacity";
    family(text, name, Kind::Gauge, "Capacity of persistent memory by mode. Not measured: always 0.");
    let [boot, id, uuid] = *machine;
    for mode in ["app_direct_mode", "memory_mode"] {
        line(text, name, &[boot, id, ("mode", mode), uuid], Value::Integer(0), None);
    }
}
