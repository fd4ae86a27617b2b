//! Converts statistics of the runtime. Missing values stay absent.

use cri_api::v1 as wire;
use model::stats::{
    ContainerStats, CpuUsage, FilesystemUsage, InterfaceUsage, IoUsage, MemoryUsage, Metric,
    MetricDescriptor, MetricKind, NetworkUsage, Pressure, ProcessUsage, SandboxMetrics, SandboxStats, Stall,
    SwapUsage,
};
use model::{ContainerId, SandboxId};

use super::{sandbox, time};

/// `None` without attributes, because the container is not known.
pub(crate) fn container(from: wire::ContainerStats) -> Option<ContainerStats> {
    let attributes = from.attributes?;
    let metadata = attributes.metadata?;
    Some(ContainerStats {
        id: ContainerId::from(attributes.id),
        name: metadata.name,
        attempt: metadata.attempt,
        labels: attributes.labels,
        annotations: attributes.annotations,
        cpu: from.cpu.map(cpu),
        memory: from.memory.map(memory),
        writable_layer: from.writable_layer.map(filesystem),
        swap: from.swap.map(swap),
        io: from.io.map(io),
    })
}

/// `None` without attributes, as above.
pub(crate) fn sandbox(from: wire::PodSandboxStats) -> Option<SandboxStats> {
    let attributes = from.attributes?;
    let (pod, attempt) = sandbox::identity(attributes.metadata?);
    let linux = from.linux.unwrap_or_default();
    Some(SandboxStats {
        id: SandboxId::from(attributes.id),
        pod,
        attempt,
        labels: attributes.labels,
        annotations: attributes.annotations,
        cpu: linux.cpu.map(cpu),
        memory: linux.memory.map(memory),
        network: linux.network.map(network),
        process: linux.process.map(process),
        io: linux.io.map(io),
        containers: linux.containers.into_iter().filter_map(container).collect(),
    })
}

fn number(from: Option<wire::UInt64Value>) -> Option<u64> {
    from.map(|number| number.value)
}

fn cpu(from: wire::CpuUsage) -> CpuUsage {
    CpuUsage {
        time: time(from.timestamp),
        usage_core_nanoseconds: number(from.usage_core_nano_seconds),
        usage_nanocores: number(from.usage_nano_cores),
        pressure: from.psi.map(pressure),
    }
}

fn memory(from: wire::MemoryUsage) -> MemoryUsage {
    MemoryUsage {
        time: time(from.timestamp),
        working_set_bytes: number(from.working_set_bytes),
        available_bytes: number(from.available_bytes),
        usage_bytes: number(from.usage_bytes),
        rss_bytes: number(from.rss_bytes),
        page_faults: number(from.page_faults),
        major_page_faults: number(from.major_page_faults),
        pressure: from.psi.map(pressure),
    }
}

fn swap(from: wire::SwapUsage) -> SwapUsage {
    SwapUsage {
        time: time(from.timestamp),
        available_bytes: number(from.swap_available_bytes),
        usage_bytes: number(from.swap_usage_bytes),
    }
}

fn io(from: wire::IoUsage) -> IoUsage {
    IoUsage { time: time(from.timestamp), pressure: from.psi.map(pressure) }
}

fn pressure(from: wire::PsiStats) -> Pressure {
    Pressure { some: from.some.map(stall), full: from.full.map(stall) }
}

const fn stall(from: wire::PsiData) -> Stall {
    Stall { total: from.total, avg10: from.avg10, avg60: from.avg60, avg300: from.avg300 }
}

fn network(from: wire::NetworkUsage) -> NetworkUsage {
    NetworkUsage {
        time: time(from.timestamp),
        default_interface: from.default_interface.map(interface),
        interfaces: from.interfaces.into_iter().map(interface).collect(),
    }
}

fn interface(from: wire::NetworkInterfaceUsage) -> InterfaceUsage {
    InterfaceUsage {
        name: from.name,
        rx_bytes: number(from.rx_bytes),
        rx_errors: number(from.rx_errors),
        tx_bytes: number(from.tx_bytes),
        tx_errors: number(from.tx_errors),
    }
}

fn process(from: wire::ProcessUsage) -> ProcessUsage {
    ProcessUsage { time: time(from.timestamp), count: number(from.process_count) }
}

pub(crate) fn filesystem(from: wire::FilesystemUsage) -> FilesystemUsage {
    FilesystemUsage {
        time: time(from.timestamp),
        mountpoint: from.fs_id.map(|id| id.mountpoint).unwrap_or_default(),
        used_bytes: number(from.used_bytes),
        inodes_used: number(from.inodes_used),
    }
}

pub(crate) fn descriptor(from: wire::MetricDescriptor) -> MetricDescriptor {
    MetricDescriptor { name: from.name, help: from.help, label_keys: from.label_keys }
}

pub(crate) fn metrics(from: wire::PodSandboxMetrics) -> SandboxMetrics {
    let samples = |metrics: Vec<wire::Metric>| metrics.into_iter().map(metric).collect();
    SandboxMetrics {
        sandbox: SandboxId::from(from.pod_sandbox_id),
        metrics: samples(from.metrics),
        containers: from
            .container_metrics
            .into_iter()
            .map(|of| (ContainerId::from(of.container_id), samples(of.metrics)))
            .collect(),
    }
}

fn metric(from: wire::Metric) -> Metric {
    let kind = match from.metric_type() {
        wire::MetricType::Counter => MetricKind::Counter,
        wire::MetricType::Gauge => MetricKind::Gauge,
    };
    Metric {
        kind,
        name: from.name,
        time: time(from.timestamp),
        label_values: from.label_values,
        value: number(from.value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stats_without_attributes_are_dropped() {
        assert_eq!(container(wire::ContainerStats::default()), None);
        assert_eq!(sandbox(wire::PodSandboxStats::default()), None);
        let nameless = wire::ContainerAttributes { id: "c1".to_owned(), ..Default::default() };
        assert_eq!(
            container(wire::ContainerStats { attributes: Some(nameless), ..Default::default() }),
            None
        );
    }

    #[test]
    fn missing_values_are_absent_and_zero_is_a_value() {
        let zero = Some(wire::UInt64Value { value: 0 });
        let usage = memory(wire::MemoryUsage { usage_bytes: zero, ..Default::default() });
        assert_eq!(usage, MemoryUsage { usage_bytes: Some(0), ..Default::default() });
        assert_eq!(cpu(wire::CpuUsage::default()), CpuUsage::default());
        assert_eq!(filesystem(wire::FilesystemUsage::default()), FilesystemUsage::default());
    }

    #[test]
    fn some_and_full_pressure_are_not_mixed_up() {
        let data = |total| wire::PsiData { total, avg10: 1.5, avg60: 2.5, avg300: 3.5 };
        let stall = |total| Stall { total, avg10: 1.5, avg60: 2.5, avg300: 3.5 };
        let psi = wire::PsiStats { full: Some(data(7)), some: Some(data(9)) };
        assert_eq!(pressure(psi), Pressure { some: Some(stall(9)), full: Some(stall(7)) });
    }
}
