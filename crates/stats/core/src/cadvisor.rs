//! `/metrics/cadvisor`: all relevant cgroups with all their measurements, under the metric names of cAdvisor.

use jiff::Timestamp;
use model::stats::{FilesystemSpace, Pressure, Stall};

use super::cgroup::{DeviceIo, FullSample, Pressures, Throttling};
use super::exposition::{Kind, Value, family, line};
use super::procfs::{Disk, Interface};
use super::sample::{NodeSample, Placed};

/// The labels of the machine, in addition to the sample.
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

/// The cgroup of a line, by the six labels that every line has; empty if they do not apply.
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
    /// Labels are written in alphabetical order, merged with those of `more`.
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
    // An aggregated entry has no cgroup of its own.
    let system = sample.system.iter().filter(|system| system.placed.path.starts_with('/'));
    all.extend(system.map(|system| plain(&system.placed, system.started, &[])));
    all.extend(sample.qos.iter().map(|placed| plain(placed, None, &[])));
    for pod in &sample.pods {
        let (namespace, pod_name) = (&*pod.pod.namespace, &*pod.pod.name);
        if let Some(own) = &pod.own {
            all.push(Subject { namespace, pod: pod_name, ..plain(own, pod.started, &[]) });
        }
        for part in pod.parts() {
            // The sandbox has the network interfaces.
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

/// Receives one line of a family: its labels in addition to the six, and the value.
type Emit<'a> = dyn FnMut(&Labels<'_>, Value) + 'a;

/// One family over all cgroups.
struct Family {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    /// A property of the cgroup rather than a measurement: exported without the time of the sample.
    is_fact: bool,
    lines: fn(&NodeSample, &Subject<'_>, &mut Emit<'_>),
}

const fn counter(
    name: &'static str,
    help: &'static str,
    lines: fn(&NodeSample, &Subject<'_>, &mut Emit<'_>),
) -> Family {
    Family { name, kind: Kind::Counter, help, is_fact: false, lines }
}

const fn gauge(
    name: &'static str,
    help: &'static str,
    lines: fn(&NodeSample, &Subject<'_>, &mut Emit<'_>),
) -> Family {
    Family { name, kind: Kind::Gauge, help, is_fact: false, lines }
}

const fn fact(
    name: &'static str,
    help: &'static str,
    lines: fn(&NodeSample, &Subject<'_>, &mut Emit<'_>),
) -> Family {
    Family { name, kind: Kind::Gauge, help, is_fact: true, lines }
}

fn integer(emit: &mut Emit<'_>, number: Option<u64>) {
    if let Some(number) = number {
        emit(&[], Value::Integer(number));
    }
}

fn time(emit: &mut Emit<'_>, nanoseconds: Option<u64>) {
    if let Some(nanoseconds) = nanoseconds {
        emit(&[], Value::Nanoseconds(nanoseconds));
    }
}

fn full<'a>(subject: &Subject<'a>) -> Option<&'a FullSample> {
    subject.placed.cgroup.full.as_deref()
}

/// Without a quota there is no throttling.
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
        |_, s, emit| {
            time(emit, full(s).and_then(|full| full.user_nanoseconds));
        },
    ),
    counter(
        "container_cpu_system_seconds_total",
        "CPU time used in the kernel, in seconds.",
        |_, s, emit| {
            time(emit, full(s).and_then(|full| full.system_nanoseconds));
        },
    ),
    counter("container_cpu_usage_seconds_total", "CPU time used, in seconds.", |_, s, emit| {
        if let Some(used) = s.placed.cgroup.cpu_nanoseconds {
            emit(&[("cpu", "total")], Value::Nanoseconds(used));
        }
    }),
    counter("container_cpu_cfs_periods_total", "Periods of the CPU quota that have passed.", |_, s, emit| {
        integer(emit, throttling(s).map(|t| t.periods));
    }),
    counter(
        "container_cpu_cfs_throttled_periods_total",
        "Periods of the CPU quota in which the container was throttled.",
        |_, s, emit| integer(emit, throttling(s).map(|t| t.throttled_periods)),
    ),
    counter(
        "container_cpu_cfs_throttled_seconds_total",
        "Time for which the container was throttled by its CPU quota, in seconds.",
        |_, s, emit| time(emit, throttling(s).map(|t| t.throttled_nanoseconds)),
    ),
    counter(
        "container_cpu_cfs_burst_periods_total",
        "Periods in which the container used CPU time above its quota (burst).",
        |_, s, emit| integer(emit, throttling(s).map(|t| t.burst_periods)),
    ),
    counter(
        "container_cpu_cfs_burst_seconds_total",
        "CPU time used above the quota (burst), in seconds.",
        |_, s, emit| time(emit, throttling(s).map(|t| t.burst_nanoseconds)),
    ),
];

/// Metrics of cAdvisor's load reader, which the kubelet does not enable: zeros, as in the Go kubelet.
const LOAD: &[Family] = &[
    gauge("container_cpu_load_average_10s", "Not measured: always 0.", |_, _, emit| {
        emit(&[], Value::Integer(0));
    }),
    gauge("container_cpu_load_d_average_10s", "Not measured: always 0.", |_, _, emit| {
        emit(&[], Value::Integer(0));
    }),
    gauge("container_tasks_state", "Tasks by state. Not measured: always 0.", |_, _, emit| {
        for state in ["iowaiting", "running", "sleeping", "stopped", "uninterruptible"] {
            emit(&[("state", state)], Value::Integer(0));
        }
    }),
];

const MEMORY: &[Family] = &[
    gauge("container_memory_cache", "Bytes of page cache.", |_, s, emit| {
        integer(emit, s.placed.cgroup.memory.cache);
    }),
    gauge("container_memory_rss", "Bytes of anonymous memory (RSS).", |_, s, emit| {
        integer(emit, s.placed.cgroup.memory.rss);
    }),
    gauge("container_memory_kernel_usage", "Bytes of kernel memory of the container.", |_, s, emit| {
        integer(emit, full(s).and_then(|full| full.kernel));
    }),
    gauge("container_memory_mapped_file", "Bytes of memory-mapped files.", |_, s, emit| {
        integer(emit, s.placed.cgroup.memory.mapped_file);
    }),
    gauge("container_memory_swap", "Bytes of swap in use.", |_, s, emit| {
        integer(emit, s.placed.cgroup.memory.swap);
    }),
    counter("container_memory_failcnt", "Number of times that memory usage hit the limit.", |_, s, emit| {
        integer(emit, full(s).and_then(|full| full.limit_hits));
    }),
    gauge("container_memory_usage_bytes", "Bytes of memory in use, all kinds together.", |_, s, emit| {
        integer(emit, s.placed.cgroup.memory.usage);
    }),
    gauge(
        "container_memory_max_usage_bytes",
        "Maximum memory usage ever recorded, in bytes.",
        |_, s, emit| {
            integer(emit, full(s).and_then(|full| full.max_usage));
        },
    ),
    gauge(
        "container_memory_working_set_bytes",
        "Working set: memory in use less inactive file pages, in bytes.",
        |_, s, emit| {
            integer(emit, s.placed.cgroup.memory.working_set);
        },
    ),
    gauge("container_memory_total_active_file_bytes", "Bytes of active file pages.", |_, s, emit| {
        integer(emit, s.placed.cgroup.memory.active_file);
    }),
    gauge("container_memory_total_inactive_file_bytes", "Bytes of inactive file pages.", |_, s, emit| {
        integer(emit, s.placed.cgroup.memory.inactive_file);
    }),
    counter("container_memory_failures_total", "Page faults, by kind and scope.", |_, s, emit| {
        let memory = &s.placed.cgroup.memory;
        let all = [
            ("pgfault", "container", memory.page_faults),
            ("pgmajfault", "container", memory.major_page_faults),
            ("pgfault", "hierarchy", memory.tree_page_faults),
            ("pgmajfault", "hierarchy", memory.tree_major_page_faults),
        ];
        for (kind, scope, count) in all {
            if let Some(count) = count {
                emit(&[("failure_type", kind), ("scope", scope)], Value::Integer(count));
            }
        }
    }),
    counter("container_oom_events_total", "Processes killed because memory ran out.", |_, s, emit| {
        integer(emit, full(s).and_then(|full| full.oom_kills));
    }),
];

const PRESSURE: &[Family] = &[
    counter(
        "container_pressure_cpu_stalled_seconds_total",
        "How long all tasks waited for the CPU, in seconds.",
        |_, s, emit| time(emit, stall(s, |all| all.cpu.as_ref(), |one| one.full)),
    ),
    counter(
        "container_pressure_cpu_waiting_seconds_total",
        "How long some task waited for the CPU, in seconds.",
        |_, s, emit| time(emit, stall(s, |all| all.cpu.as_ref(), |one| one.some)),
    ),
    counter(
        "container_pressure_io_stalled_seconds_total",
        "How long all tasks waited for input or output, in seconds.",
        |_, s, emit| time(emit, stall(s, |all| all.io.as_ref(), |one| one.full)),
    ),
    counter(
        "container_pressure_io_waiting_seconds_total",
        "How long some task waited for input or output, in seconds.",
        |_, s, emit| time(emit, stall(s, |all| all.io.as_ref(), |one| one.some)),
    ),
    counter(
        "container_pressure_memory_stalled_seconds_total",
        "How long all tasks waited for memory, in seconds.",
        |_, s, emit| time(emit, stall(s, |all| all.memory.as_ref(), |one| one.full)),
    ),
    counter(
        "container_pressure_memory_waiting_seconds_total",
        "How long some task waited for memory, in seconds.",
        |_, s, emit| time(emit, stall(s, |all| all.memory.as_ref(), |one| one.some)),
    ),
];

const NETWORK: &[Family] = &[
    counter("container_network_receive_bytes_total", "Bytes received.", |_, s, emit| {
        network(s, emit, |i| i.rx_bytes);
    }),
    counter("container_network_receive_packets_total", "Packets received.", |_, s, emit| {
        network(s, emit, |i| i.rx_packets);
    }),
    counter(
        "container_network_receive_packets_dropped_total",
        "Packets received and dropped.",
        |_, s, emit| {
            network(s, emit, |i| i.rx_dropped);
        },
    ),
    counter("container_network_receive_errors_total", "Errors while receiving.", |_, s, emit| {
        network(s, emit, |i| i.rx_errors);
    }),
    counter("container_network_transmit_bytes_total", "Bytes sent.", |_, s, emit| {
        network(s, emit, |i| i.tx_bytes);
    }),
    counter("container_network_transmit_packets_total", "Packets sent.", |_, s, emit| {
        network(s, emit, |i| i.tx_packets);
    }),
    counter(
        "container_network_transmit_packets_dropped_total",
        "Packets dropped instead of sent.",
        |_, s, emit| {
            network(s, emit, |i| i.tx_dropped);
        },
    ),
    counter("container_network_transmit_errors_total", "Errors while sending.", |_, s, emit| {
        network(s, emit, |i| i.tx_errors);
    }),
];

fn network(subject: &Subject<'_>, emit: &mut Emit<'_>, of: fn(&Interface) -> u64) {
    for interface in subject.interfaces {
        emit(&[("interface", &interface.name)], Value::Integer(of(interface)));
    }
}

const DISK: &[Family] = &[
    counter("container_fs_reads_bytes_total", "Bytes read from the device.", |n, s, emit| {
        devices(n, s, emit, |d| d.read_bytes);
    }),
    counter("container_fs_reads_total", "Reads from the device.", |n, s, emit| {
        devices(n, s, emit, |d| d.reads)
    }),
    counter("container_fs_writes_bytes_total", "Bytes written to the device.", |n, s, emit| {
        devices(n, s, emit, |d| d.written_bytes);
    }),
    counter("container_fs_writes_total", "Writes to the device.", |n, s, emit| {
        devices(n, s, emit, |d| d.writes)
    }),
    counter("container_fs_reads_merged_total", "Reads merged with another read.", |n, s, emit| {
        disks(n, s, emit, |d| Value::Integer(d.reads_merged));
    }),
    counter("container_fs_sector_reads_total", "Sectors read.", |n, s, emit| {
        disks(n, s, emit, |d| Value::Integer(d.sectors_read));
    }),
    counter("container_fs_read_seconds_total", "Time spent on reads, in seconds.", |n, s, emit| {
        disks(n, s, emit, |d| milliseconds(d.read_milliseconds));
    }),
    counter("container_fs_writes_merged_total", "Writes merged with another write.", |n, s, emit| {
        disks(n, s, emit, |d| Value::Integer(d.writes_merged));
    }),
    counter("container_fs_sector_writes_total", "Sectors written.", |n, s, emit| {
        disks(n, s, emit, |d| Value::Integer(d.sectors_written));
    }),
    counter("container_fs_write_seconds_total", "Time spent on writes, in seconds.", |n, s, emit| {
        disks(n, s, emit, |d| milliseconds(d.write_milliseconds));
    }),
    gauge("container_fs_io_current", "Reads and writes in progress.", |n, s, emit| {
        disks(n, s, emit, |d| Value::Integer(d.in_progress));
    }),
    counter(
        "container_fs_io_time_seconds_total",
        "Time in which the device was busy, in seconds.",
        |n, s, emit| {
            disks(n, s, emit, |d| milliseconds(d.io_milliseconds));
        },
    ),
    counter(
        "container_fs_io_time_weighted_seconds_total",
        "Weighted time spent on reads and writes: time multiplied by the number in progress, in seconds.",
        |n, s, emit| disks(n, s, emit, |d| milliseconds(d.weighted_milliseconds)),
    ),
    gauge("container_fs_inodes_free", "Inodes of the filesystem that are free.", |n, s, emit| {
        filesystems(n, s, emit, |space| space.inodes_free);
    }),
    gauge("container_fs_inodes_total", "Inodes of the filesystem.", |n, s, emit| {
        filesystems(n, s, emit, |space| space.inodes);
    }),
    gauge("container_fs_limit_bytes", "Size of the filesystem, in bytes.", |n, s, emit| {
        filesystems(n, s, emit, |space| space.capacity_bytes);
    }),
    gauge("container_fs_usage_bytes", "Bytes of the filesystem in use.", |n, s, emit| {
        filesystems(n, s, emit, |space| space.used_bytes);
    }),
    counter("container_blkio_device_usage_total", "Bytes moved to or from the device.", |n, s, emit| {
        for device in full(s).map(|full| &*full.devices).unwrap_or_default() {
            let (major, minor) = (device.major.to_string(), device.minor.to_string());
            let name = device_name(n, device.major, device.minor);
            for (what, bytes) in [("Read", device.read_bytes), ("Write", device.written_bytes)] {
                let labels =
                    [("device", &*name), ("major", &*major), ("minor", &*minor), ("operation", what)];
                emit(&labels, Value::Integer(bytes));
            }
        }
    }),
];

const fn milliseconds(count: u64) -> Value {
    Value::Nanoseconds(count.saturating_mul(1_000_000))
}

/// Of one cgroup; for the machine as a whole, of its disks.
fn devices(sample: &NodeSample, subject: &Subject<'_>, emit: &mut Emit<'_>, of: fn(&DeviceIo) -> u64) {
    let mut one = |device: &DeviceIo| {
        let name = device_name(sample, device.major, device.minor);
        emit(&[("device", &name)], Value::Integer(of(device)));
    };
    if is_root(subject) {
        sample.machine.disks.iter().map(as_device).for_each(|device| one(&device));
    } else {
        full(subject).map(|full| &*full.devices).unwrap_or_default().iter().for_each(one);
    }
}

fn disks(sample: &NodeSample, subject: &Subject<'_>, emit: &mut Emit<'_>, of: fn(&Disk) -> Value) {
    for disk in sample.machine.disks.iter().filter(|_| is_root(subject)) {
        emit(&[("device", &format!("/dev/{}", disk.name))], of(disk));
    }
}

/// Of the machine as a whole, because the kernel does not count filesystem usage by container.
fn filesystems(
    sample: &NodeSample,
    subject: &Subject<'_>,
    emit: &mut Emit<'_>,
    of: fn(&FilesystemSpace) -> u64,
) {
    for filesystem in sample.machine.filesystems.iter().filter(|_| is_root(subject)) {
        emit(&[("device", &filesystem.device)], Value::Integer(of(&filesystem.space)));
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

/// The kernel counts in sectors of this size, whatever the device uses.
const SECTOR_BYTES: u64 = 512;

fn is_root(subject: &Subject<'_>) -> bool {
    &*subject.placed.path == "/"
}

fn device_name(sample: &NodeSample, major: u32, minor: u32) -> String {
    let known = sample.machine.disks.iter().find(|disk| (disk.major, disk.minor) == (major, minor));
    known.map(|disk| format!("/dev/{}", disk.name)).unwrap_or_default()
}

const PROCESSES: &[Family] = &[
    gauge("container_processes", "Processes in the cgroup.", |_, s, emit| {
        integer(emit, s.placed.cgroup.processes);
    }),
    gauge("container_threads", "Threads in the cgroup and below.", |_, s, emit| {
        integer(emit, full(s).and_then(|full| full.threads));
    }),
    gauge("container_threads_max", "Maximum number of threads; 0 means no limit.", |_, s, emit| {
        integer(emit, full(s).filter(|f| f.threads.is_some()).map(|f| f.threads_limit.unwrap_or(NO_LIMIT)));
    }),
    gauge("container_file_descriptors", "Files that the processes have open.", |_, s, emit| {
        integer(emit, full(s).and_then(|full| full.open_files));
    }),
    gauge("container_sockets", "Sockets that the processes have open.", |_, s, emit| {
        integer(emit, full(s).and_then(|full| full.sockets));
    }),
    gauge("container_ulimits_soft", "Soft limits of the container's first process.", |_, s, emit| {
        if let Some(limit) = full(s).and_then(|full| full.open_files_limit) {
            emit(&[("ulimit", "max_open_files")], Value::Integer(limit));
        }
    }),
];

/// The value exported if there is no limit.
const NO_LIMIT: u64 = 0;

const SPEC: &[Family] = &[
    fact(
        "container_spec_cpu_period",
        "Length of a period of the CPU quota, in microseconds.",
        |_, s, emit| {
            integer(emit, full(s).and_then(|full| full.cpu_period));
        },
    ),
    fact("container_spec_cpu_quota", "CPU time for each period, in microseconds.", |_, s, emit| {
        integer(emit, full(s).and_then(|full| full.cpu_quota));
    }),
    fact("container_spec_cpu_shares", "CPU shares of the container.", |_, s, emit| {
        integer(emit, full(s).and_then(|full| full.cpu_shares));
    }),
    fact("container_spec_memory_limit_bytes", "Memory limit, in bytes; 0 means none.", |_, s, emit| {
        integer(emit, s.placed.cgroup.memory.usage.map(|_| s.placed.cgroup.memory.limit.unwrap_or(NO_LIMIT)));
    }),
    fact("container_spec_memory_swap_limit_bytes", "Swap limit, in bytes; 0 means none.", |_, s, emit| {
        integer(
            emit,
            s.placed.cgroup.memory.usage.map(|_| s.placed.cgroup.memory.swap_limit.unwrap_or(NO_LIMIT)),
        );
    }),
    fact(
        "container_spec_memory_reservation_limit_bytes",
        "Memory reservation, in bytes; 0 means none.",
        |_, s, emit| {
            integer(emit, full(s).map(|full| full.reservation.unwrap_or(NO_LIMIT)));
        },
    ),
    fact(
        "container_start_time_seconds",
        "Start time of the container, in seconds since 1970.",
        |_, s, emit| {
            let started = s.started.and_then(|started| u64::try_from(started.as_second()).ok());
            integer(emit, started);
        },
    ),
    gauge("container_last_seen", "Time of the last measurement, in seconds since 1970.", |n, _, emit| {
        integer(emit, u64::try_from(n.taken.wall.as_second()).ok());
    }),
    gauge(
        "container_health_state",
        "Outcome of the runtime's own health check; -1 means it has none.",
        |_, _, emit| {
            emit(&[], Value::Float(-1.0));
        },
    ),
];

const TABLES: &[&[Family]] = &[CPU, LOAD, MEMORY, PRESSURE, NETWORK, DISK, PROCESSES, SPEC];

/// One export of the metrics, family by family.
#[derive(Debug)]
pub struct CadvisorExport<'a> {
    sample: &'a NodeSample,
    machine: MachineNames<'a>,
}

impl<'a> CadvisorExport<'a> {
    #[must_use]
    pub const fn new(sample: &'a NodeSample, machine: MachineNames<'a>) -> Self {
        Self { sample, machine }
    }

    /// One family, by its index; after the last family the machine metrics, and then `None`. Only one family is in memory
    /// at a time. Empty if this machine cannot measure it.
    #[must_use]
    pub fn piece(&self, index: usize) -> Option<String> {
        let mut text = String::new();
        let mut families = TABLES.iter().flat_map(|table| table.iter());
        let Some(Family { name, kind, help, is_fact, lines }) = families.nth(index) else {
            let is_machine = index == TABLES.iter().map(|table| table.len()).sum::<usize>();
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

    /// The families of the machine, which no runtime reports.
    #[must_use]
    pub fn machine(&self) -> String {
        let mut text = String::new();
        self.machine_table(&mut text);
        text
    }

    fn machine_table(&self, text: &mut String) {
        let (machine, sample) = (&self.machine, self.sample);
        let name = "cadvisor_version_info";
        family(text, name, Kind::Gauge, "Versions of kernel, operating system and cAdvisor; always 1.");
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

/// The Go kubelet builds cAdvisor without support for persistent memory: zeros, as it exports.
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
