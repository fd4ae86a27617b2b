//! Stats onto the wire.

use cri_api::v1 as wire;
use jiff::Timestamp;
use model::stats::{
    ContainerStats, CpuUsage, FilesystemUsage, InterfaceUsage, IoUsage, MemoryUsage, Metric,
    MetricDescriptor, MetricKind, NetworkUsage, Pressure, ProcessUsage, SandboxMetrics, SandboxStats, Stall,
    SwapUsage,
};

use super::answer::{nanoseconds, sandbox_metadata};

fn time(at: Option<Timestamp>) -> i64 {
    at.map_or(0, nanoseconds)
}

fn number(value: Option<u64>) -> Option<wire::UInt64Value> {
    value.map(|value| wire::UInt64Value { value })
}

pub(super) fn container(from: ContainerStats) -> wire::ContainerStats {
    wire::ContainerStats {
        attributes: Some(wire::ContainerAttributes {
            id: from.id.as_str().to_owned(),
            metadata: Some(wire::ContainerMetadata { name: from.name, attempt: from.attempt }),
            labels: from.labels,
            annotations: from.annotations,
        }),
        cpu: from.cpu.map(cpu),
        memory: from.memory.map(memory),
        writable_layer: from.writable_layer.map(filesystem),
        swap: from.swap.map(swap),
        io: from.io.map(io),
    }
}

pub(super) fn sandbox(from: SandboxStats) -> wire::PodSandboxStats {
    wire::PodSandboxStats {
        attributes: Some(wire::PodSandboxAttributes {
            id: from.id.as_str().to_owned(),
            metadata: Some(sandbox_metadata(&from.pod, from.attempt)),
            labels: from.labels,
            annotations: from.annotations,
        }),
        linux: Some(wire::LinuxPodSandboxStats {
            cpu: from.cpu.map(cpu),
            memory: from.memory.map(memory),
            network: from.network.map(network),
            process: from.process.map(process),
            containers: from.containers.into_iter().map(container).collect(),
            io: from.io.map(io),
        }),
    }
}

fn cpu(from: CpuUsage) -> wire::CpuUsage {
    wire::CpuUsage {
        timestamp: time(from.time),
        usage_core_nano_seconds: number(from.usage_core_nanoseconds),
        usage_nano_cores: number(from.usage_nanocores),
        psi: from.pressure.map(pressure),
    }
}

fn memory(from: MemoryUsage) -> wire::MemoryUsage {
    wire::MemoryUsage {
        timestamp: time(from.time),
        working_set_bytes: number(from.working_set_bytes),
        available_bytes: number(from.available_bytes),
        usage_bytes: number(from.usage_bytes),
        rss_bytes: number(from.rss_bytes),
        page_faults: number(from.page_faults),
        major_page_faults: number(from.major_page_faults),
        psi: from.pressure.map(pressure),
    }
}

fn swap(from: SwapUsage) -> wire::SwapUsage {
    wire::SwapUsage {
        timestamp: time(from.time),
        swap_available_bytes: number(from.available_bytes),
        swap_usage_bytes: number(from.usage_bytes),
    }
}

fn io(from: IoUsage) -> wire::IoUsage {
    wire::IoUsage { timestamp: time(from.time), psi: from.pressure.map(pressure) }
}

fn pressure(from: Pressure) -> wire::PsiStats {
    wire::PsiStats { full: from.full.map(stall), some: from.some.map(stall) }
}

const fn stall(from: Stall) -> wire::PsiData {
    wire::PsiData { total: from.total, avg10: from.avg10, avg60: from.avg60, avg300: from.avg300 }
}

fn network(from: NetworkUsage) -> wire::NetworkUsage {
    wire::NetworkUsage {
        timestamp: time(from.time),
        default_interface: from.default_interface.map(interface),
        interfaces: from.interfaces.into_iter().map(interface).collect(),
    }
}

fn interface(from: InterfaceUsage) -> wire::NetworkInterfaceUsage {
    wire::NetworkInterfaceUsage {
        name: from.name,
        rx_bytes: number(from.rx_bytes),
        rx_errors: number(from.rx_errors),
        tx_bytes: number(from.tx_bytes),
        tx_errors: number(from.tx_errors),
    }
}

fn process(from: ProcessUsage) -> wire::ProcessUsage {
    wire::ProcessUsage { timestamp: time(from.time), process_count: number(from.count) }
}

pub(super) fn filesystem(from: FilesystemUsage) -> wire::FilesystemUsage {
    wire::FilesystemUsage {
        timestamp: time(from.time),
        fs_id: Some(wire::FilesystemIdentifier { mountpoint: from.mountpoint }),
        used_bytes: number(from.used_bytes),
        inodes_used: number(from.inodes_used),
    }
}

pub(super) fn descriptor(from: MetricDescriptor) -> wire::MetricDescriptor {
    wire::MetricDescriptor { name: from.name, help: from.help, label_keys: from.label_keys }
}

pub(super) fn metrics(from: SandboxMetrics) -> wire::PodSandboxMetrics {
    let samples = |metrics: Vec<Metric>| metrics.into_iter().map(metric).collect();
    wire::PodSandboxMetrics {
        pod_sandbox_id: from.sandbox.as_str().to_owned(),
        metrics: samples(from.metrics),
        container_metrics: from
            .containers
            .into_iter()
            .map(|(id, metrics)| wire::ContainerMetrics {
                container_id: id.as_str().to_owned(),
                metrics: samples(metrics),
            })
            .collect(),
    }
}

fn metric(from: Metric) -> wire::Metric {
    let kind = match from.kind {
        MetricKind::Counter => wire::MetricType::Counter,
        MetricKind::Gauge => wire::MetricType::Gauge,
    };
    wire::Metric {
        name: from.name,
        timestamp: time(from.time),
        metric_type: kind.into(),
        label_values: from.label_values,
        value: number(from.value),
    }
}
