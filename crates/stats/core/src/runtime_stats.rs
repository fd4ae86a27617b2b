//! What the container runtime has measured (gate `PodAndContainerStatsFromCRI`): its statistics as parts of a sample, and its own metrics as
//! text. A value that it does not have stays missing.

use std::collections::BTreeMap;

use jiff::Timestamp;
use model::stats::{
    ContainerStats, CpuUsage, InterfaceUsage, IoUsage, MemoryUsage, Metric, MetricDescriptor, MetricKind,
    SandboxMetrics, SandboxStats, SwapUsage,
};
use model::{ContainerId, ContainerObservation, PodRef};

use super::cgroup::{CgroupSample, MemorySample, Pressures};
use super::exposition::{Kind, Value, family, line};
use super::procfs::Interface;
use super::sample::{ContainerSample, Placed, PodSample};

/// The pod as the runtime has measured it, with those of its containers that are known to run.
#[must_use]
pub fn pod_sample<'a>(
    pod: &PodRef,
    started: Option<Timestamp>,
    stats: &SandboxStats,
    running: impl Iterator<Item = &'a ContainerObservation>,
) -> PodSample {
    let by_id: BTreeMap<&ContainerId, &ContainerStats> =
        stats.containers.iter().map(|container| (&container.id, container)).collect();
    let mut containers: Vec<ContainerSample> =
        running.filter_map(|known| Some(container_sample(known, by_id.get(&known.id)?))).collect();
    containers.sort_by(|a, b| a.name.cmp(&b.name));
    // Metrics lack the UID, so only one of two containers with one name is reported.
    containers.dedup_by(|a, b| a.name == b.name);
    let mut own = placed(stats.cpu.as_ref(), stats.memory.as_ref(), stats.io.as_ref(), None);
    own.cgroup.processes = stats.process.as_ref().and_then(|process| process.count);
    let network = stats.network.iter();
    let interfaces = network.flat_map(|network| network.default_interface.iter().chain(&network.interfaces));
    PodSample {
        pod: pod.clone(),
        started,
        own: Some(own),
        sandbox: None,
        containers,
        interfaces: interfaces.map(interface).collect(),
    }
}

fn container_sample(known: &ContainerObservation, stats: &ContainerStats) -> ContainerSample {
    ContainerSample {
        id: known.id.clone(),
        name: (&*known.name).into(),
        image: (&*known.image).into(),
        started: known.started_at.unwrap_or(known.created_at),
        placed: placed(stats.cpu.as_ref(), stats.memory.as_ref(), stats.io.as_ref(), stats.swap.as_ref()),
    }
}

fn placed(
    cpu: Option<&CpuUsage>,
    memory: Option<&MemoryUsage>,
    io: Option<&IoUsage>,
    swap: Option<&SwapUsage>,
) -> Placed {
    let pressures = Pressures {
        cpu: cpu.and_then(|cpu| cpu.pressure.clone()),
        memory: memory.and_then(|memory| memory.pressure.clone()),
        io: io.and_then(|io| io.pressure.clone()),
    };
    let has_pressure = pressures != Pressures::default();
    let cgroup = CgroupSample {
        cpu_nanoseconds: cpu.and_then(|cpu| cpu.usage_core_nanoseconds),
        memory: memory_sample(memory, swap),
        pressure: has_pressure.then(|| Box::new(pressures)),
        ..CgroupSample::default()
    };
    Placed {
        path: Box::default(),
        cgroup,
        rate: cpu.and_then(|cpu| cpu.usage_nanocores),
        measured_at: cpu.and_then(|cpu| cpu.time).or_else(|| memory.and_then(|memory| memory.time)),
    }
}

fn memory_sample(memory: Option<&MemoryUsage>, swap: Option<&SwapUsage>) -> MemorySample {
    let swap_limit = swap.and_then(|swap| swap.available_bytes?.checked_add(swap.usage_bytes?));
    let swap = swap.and_then(|swap| swap.usage_bytes);
    let Some(memory) = memory else { return MemorySample { swap, swap_limit, ..MemorySample::default() } };
    MemorySample {
        usage: memory.usage_bytes,
        working_set: memory.working_set_bytes,
        // The export subtracts the working set again.
        limit: memory.available_bytes.and_then(|left| left.checked_add(memory.working_set_bytes?)),
        rss: memory.rss_bytes,
        page_faults: memory.page_faults,
        major_page_faults: memory.major_page_faults,
        swap,
        swap_limit,
        ..MemorySample::default()
    }
}

fn interface(of: &InterfaceUsage) -> Interface {
    Interface {
        name: (&*of.name).into(),
        rx_bytes: of.rx_bytes.unwrap_or(0),
        rx_errors: of.rx_errors.unwrap_or(0),
        tx_bytes: of.tx_bytes.unwrap_or(0),
        tx_errors: of.tx_errors.unwrap_or(0),
        ..Interface::default()
    }
}

/// Most samples of one scrape; a node of 250 pods has less than a tenth.
pub const MAX_SAMPLES: usize = 1_000_000;

/// The metrics of the runtime, family by family in the order of its descriptors. Samples without a descriptor, of another number of
/// labels than it has, or without a value are left out.
#[must_use]
pub fn metrics_text(descriptors: &[MetricDescriptor], of_sandboxes: &[SandboxMetrics]) -> String {
    let mut by_name: BTreeMap<&str, Vec<&Metric>> = BTreeMap::new();
    let all = of_sandboxes.iter().flat_map(|sandbox| {
        sandbox.metrics.iter().chain(sandbox.containers.iter().flat_map(|(_, metrics)| metrics))
    });
    for metric in all.take(MAX_SAMPLES) {
        by_name.entry(&metric.name).or_default().push(metric);
    }
    let mut text = String::new();
    for MetricDescriptor { name, help, label_keys } in descriptors {
        // Taken out, so that a second descriptor of the name repeats nothing.
        let Some(metrics) = by_name.remove(name.as_str()) else { continue };
        let kind = match metrics[0].kind {
            MetricKind::Counter => Kind::Counter,
            MetricKind::Gauge => Kind::Gauge,
        };
        family(&mut text, name, kind, &help.replace('\n', " "));
        for metric in metrics.iter().filter(|metric| metric.label_values.len() == label_keys.len()) {
            let Some(value) = metric.value else { continue };
            let values = metric.label_values.iter().map(String::as_str);
            let labels: Vec<(&str, &str)> = label_keys.iter().map(String::as_str).zip(values).collect();
            line(&mut text, name, &labels, Value::Integer(value), metric.time);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metric(name: &str, labels: &[&str], value: Option<u64>) -> Metric {
        Metric {
            name: name.to_owned(),
            time: Timestamp::from_millisecond(1500).ok(),
            kind: MetricKind::Gauge,
            label_values: labels.iter().map(|label| (*label).to_owned()).collect(),
            value,
        }
    }

    #[test]
    fn metrics_of_the_runtime_are_written_as_described_and_others_left_out() {
        let descriptor = |name: &str, keys: &[&str]| MetricDescriptor {
            name: name.to_owned(),
            help: "Two\nlines.".to_owned(),
            label_keys: keys.iter().map(|key| (*key).to_owned()).collect(),
        };
        let descriptors =
            [descriptor("used", &["id"]), descriptor("absent", &[]), descriptor("used", &["id"])];
        let metrics = SandboxMetrics {
            sandbox: "s".into(),
            metrics: vec![metric("used", &["s"], Some(1)), metric("unknown", &["s"], Some(1))],
            containers: vec![(
                "c".into(),
                vec![
                    metric("used", &["c"], Some(2)),
                    metric("used", &["c", "d"], Some(3)),
                    metric("used", &["c"], None),
                ],
            )],
        };
        assert_eq!(
            metrics_text(&descriptors, &[metrics]),
            "# HELP used Two lines.\n# TYPE used gauge\nused{id=\"s\"} 1 1500\nused{id=\"c\"} 2 1500\n"
        );
    }

    #[test]
    fn memory_without_a_limit_has_none_and_missing_values_stay_missing() {
        let memory = MemoryUsage { working_set_bytes: Some(60), ..MemoryUsage::default() };
        let sample = memory_sample(Some(&memory), None);
        assert_eq!((sample.working_set, sample.usage, sample.limit), (Some(60), None, None));
        let limited = MemoryUsage { available_bytes: Some(40), ..memory };
        assert_eq!(memory_sample(Some(&limited), None).limit, Some(100));
        assert_eq!(placed(None, None, None, None), Placed::default());
    }
}
