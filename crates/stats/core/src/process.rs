//! The `process_` metric families: resource use of the kubelet process.

use super::exposition::{Kind, Value, family, line};
use super::procfs::{self, ProcessSample};

/// Facts about a process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessFacts {
    pub sample: ProcessSample,
    pub resident_bytes: u64,
    pub open_files: u64,
    /// `None`: no limit.
    pub open_files_limit: Option<u64>,
    pub virtual_bytes_limit: Option<u64>,
    /// Received and sent over IP in this network namespace.
    pub ip_bytes: Option<(u64, u64)>,
    /// Boot time of the machine, in seconds since 1970.
    pub boot_seconds: u64,
}

impl ProcessFacts {
    /// From `/proc/self/stat`, `/proc/self/status`, `/proc/self/limits`, `/proc/self/net/netstat` and `/proc/stat`; `None`
    /// if the first cannot be read.
    #[must_use]
    pub fn parse([stat, status, limits, netstat, machine]: [&str; 5], open_files: u64) -> Option<Self> {
        Some(Self {
            sample: procfs::process(stat)?,
            resident_bytes: procfs::meminfo(status, "VmRSS").unwrap_or(0),
            open_files,
            open_files_limit: procfs::open_files_limit(limits),
            virtual_bytes_limit: procfs::address_space_limit(limits),
            ip_bytes: procfs::ip_bytes(netstat),
            boot_seconds: procfs::boot_seconds(machine).unwrap_or(0),
        })
    }
}

pub fn write_process(text: &mut String, process: &ProcessFacts) {
    let sample = &process.sample;
    let cpu = Value::Nanoseconds(sample.cpu_nanoseconds);
    let gauges = [
        ("process_max_fds", "Maximum number of open file descriptors.", process.open_files_limit),
        ("process_open_fds", "Number of open file descriptors.", Some(process.open_files)),
        ("process_resident_memory_bytes", "Resident memory size, in bytes.", Some(process.resident_bytes)),
        ("process_virtual_memory_bytes", "Virtual memory size, in bytes.", Some(sample.virtual_bytes)),
    ];
    let name = "process_cpu_seconds_total";
    family(text, name, Kind::Counter, "CPU time used, in seconds.");
    line(text, name, &[], cpu, None);
    for (name, help, number) in gauges {
        let Some(number) = number else { continue };
        family(text, name, Kind::Gauge, help);
        line(text, name, &[], Value::Integer(number), None);
    }
    if let Some(limit) = process.virtual_bytes_limit {
        let name = "process_virtual_memory_max_bytes";
        family(text, name, Kind::Gauge, "Maximum amount of virtual memory available in bytes.");
        #[expect(
            clippy::cast_precision_loss,
            reason = "no limit is the largest number, whose exact value does not matter"
        )]
        line(text, name, &[], Value::Float(limit as f64), None);
    }
    let (received, sent) = process.ip_bytes.unzip();
    for (name, help, bytes) in [
        ("process_network_receive_bytes_total", "Bytes received over IP in the network namespace.", received),
        ("process_network_transmit_bytes_total", "Bytes sent over IP in the network namespace.", sent),
    ] {
        let Some(bytes) = bytes else { continue };
        family(text, name, Kind::Counter, help);
        line(text, name, &[], Value::Integer(bytes), None);
    }
    write_start(text, process);
}

/// Separate, because `/metrics/probes` has it too.
pub fn write_start(text: &mut String, process: &ProcessFacts) {
    let name = "process_start_time_seconds";
    family(text, name, Kind::Gauge, "Start time of the process, in seconds since 1970.");
    let boot = process.boot_seconds.saturating_mul(1_000_000_000);
    let started = boot.saturating_add(process.sample.started_nanoseconds);
    line(text, name, &[], Value::Nanoseconds(started), None);
}
