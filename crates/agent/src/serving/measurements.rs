//! Turns samples into the text of the metrics and summary endpoints, as a lazy stream of pieces.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api_agent::metrics::{CertificateMetrics, PodCertificateMetrics};
use base_agent::context::Context;
use base_agent::pods_view::PodEntry;
use base_core::node_facts::MemoryQos;
use base_core::pod_kind::is_static_pod;
use base_core::pod_stage::PodStage;
use futures_util::{StreamExt, stream};
use model::containers::spec_of;
use ports::host::MachineInfo;
use ports::node_api::{Measurements, TextPieces};
use resources_agent::cgroup_values::qos_cgroup_rules;
use resources_core::cgroup::compute_qos_cgroups;
use stats_agent::{SHARED_AT_MOST_FOR, Samplers};
use stats_core::age::{SHARED_FOR, SHARED_FOR_CURRENT_USAGE};
use stats_core::cadvisor::{CadvisorExport, MachineNames};
use stats_core::cgroup::Detail;
use stats_core::exposition::without_empty_families;
use stats_core::process::{ProcessFacts, write_start};
use stats_core::runtime_stats::metrics_text;
use stats_core::sample::{DiskSample, NodeSample};
use stats_core::summary::Scope;
use stats_core::{resource, summary};
use volumes_core::plan::{VolumeCount, count_volumes};

use crate::metrics::{self, ExternalMetrics, RequestMetrics, WorkingPods};
use crate::pods::handles::PodHandles;

/// Requests for disks within this time share one sample.
const DISKS_SHARED_FOR: Duration = Duration::from_secs(10);
/// How long the kubelet's own metrics wait for disk metrics.
const DISKS_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a scrape waits for the metrics of the runtime.
const RUNTIME_TIMEOUT: Duration = Duration::from_secs(2);
/// Error of requests during shutdown.
const STOPPING: &str = "the kubelet is shutting down";

/// # Errors
/// The kubelet is shutting down.
pub(crate) async fn measurements(
    handles: &PodHandles,
    samplers: &Samplers,
    what: Measurements,
) -> Result<TextPieces, String> {
    let (ctx, stopping) = (&handles.ctx, || STOPPING.to_owned());
    match what {
        Measurements::Summary { only_cpu_and_memory: true } => {
            let sample = samplers.node(Detail::Usage, SHARED_FOR_CURRENT_USAGE).await.ok_or_else(stopping)?;
            Ok(summary_pieces(ctx, sample, None))
        }
        Measurements::Summary { only_cpu_and_memory: false } => {
            let disks = samplers.disks(DISKS_SHARED_FOR).await.ok_or_else(stopping)?;
            let sample = samplers.node(Detail::Usage, SHARED_FOR).await.ok_or_else(stopping)?;
            Ok(summary_pieces(ctx, sample, Some(disks)))
        }
        Measurements::Resource => {
            let sample = samplers.node(Detail::Usage, SHARED_FOR).await.ok_or_else(stopping)?;
            let families = move |index| resource::family_text(&sample, index);
            Ok(stream::iter((0..resource::FAMILIES).map(families)).boxed())
        }
        Measurements::Cadvisor => {
            let sample = samplers.node(Detail::Full, SHARED_FOR).await.ok_or_else(stopping)?;
            let machine = ctx.machine.info();
            match runtime_metrics(ctx).await {
                Some(mut text) => {
                    text.push_str(&CadvisorExport::new(&sample, machine_names(&machine)).machine());
                    Ok(one(text))
                }
                None => Ok(cadvisor_pieces(machine, sample)),
            }
        }
        Measurements::Probes => {
            let mut text = String::new();
            handles.probe_metrics.write(&mut text);
            if let Some(process) = process(ctx).await {
                write_start(&mut text, &process);
            }
            Ok(one(without_empty_families(&text)))
        }
        Measurements::Checks => {
            let mut text = String::new();
            ctx.metrics.get::<RequestMetrics>().write_checks(&mut text);
            if let Some(process) = process(ctx).await {
                write_start(&mut text, &process);
            }
            Ok(one(without_empty_families(&text)))
        }
        Measurements::Kubelet => {
            let now = ctx.clock.mono();
            // The kubelet's own metrics must be available even if a disk hangs.
            let disks = tokio::select! {
                disks = samplers.disks(SHARED_AT_MOST_FOR) => disks,
                () = ctx.clock.sleep_until(now + DISKS_TIMEOUT) => None,
            };
            let text = kubelet_text(handles, disks.as_deref(), process(ctx).await);
            Ok(one(without_empty_families(&text)))
        }
    }
}

/// Resource usage of this process.
async fn process(ctx: &Context) -> Option<ProcessFacts> {
    let files =
        ["/proc/self/stat", "/proc/self/status", "/proc/self/limits", "/proc/self/net/netstat", "/proc/stat"];
    let texts = ctx.files.read_each(files.iter().map(Into::into).collect()).await;
    let texts = <[Option<String>; 5]>::try_from(texts).ok()?.map(Option::unwrap_or_default);
    let own = texts[0].split(' ').next().and_then(|pid| pid.parse().ok())?;
    let open = ctx.processes.open_files(vec![own]).await;
    ProcessFacts::parse(texts.each_ref().map(String::as_str), open.descriptors)
}

/// A pod that exists in the runtime has its volumes mounted: they are mounted first and unmounted last.
fn volumes(
    handles: &PodHandles,
    entries: &[PodEntry],
    disks: Option<&DiskSample>,
) -> BTreeMap<String, VolumeCount> {
    let present = handles.cache.presence().unwrap_or_default();
    let active = entries.iter().filter(|entry| entry.progress.may_run());
    let of_pods = active.map(|entry| (entry.pod.clone(), present.contains_key(&entry.identity.uid)));
    let on_disk = disks.into_iter().flat_map(|disks| disks.pods.values());
    count_volumes(of_pods, on_disk.flat_map(|pod| &pod.volumes))
}

fn kubelet_text(handles: &PodHandles, disks: Option<&DiskSample>, process: Option<ProcessFacts>) -> String {
    let (ctx, entries) = (&handles.ctx, handles.pods.all());
    let is_active = |entry: &&PodEntry| entry.progress.may_run();
    let (from_manifests, from_api): (Vec<_>, Vec<_>) =
        entries.iter().filter(is_active).partition(|entry| is_static_pod(&entry.pod));
    let mut working_pods = WorkingPods::default();
    for entry in &entries {
        let lifecycle = match entry.progress.stage {
            _ if entry.progress.is_rejected => 2,
            PodStage::Syncing => 0,
            PodStage::Terminating => 1,
            PodStage::Terminated | PodStage::Finished => 2,
        };
        let is_static = usize::from(is_static_pod(&entry.pod));
        working_pods[lifecycle][usize::from(entry.progress.is_orphan)][is_static] += 1;
    }
    let ephemeral = |entry: &PodEntry| spec_of(&entry.pod).ephemeral_containers.as_ref().map_or(0, Vec::len);
    let pods = entries.iter().map(|entry| (entry.identity.uid.clone(), entry.identity.clone())).collect();
    let from = ExternalMetrics {
        node_name: &ctx.settings.node_name,
        build: ctx.settings.build,
        is_cgroup_v2: ctx.node_facts.cgroup_v2,
        provider: if ctx.node_facts.features.stats_from_runtime { "cri" } else { "cadvisor" },
        active_pods: (from_manifests.len() as u64, from_api.len() as u64),
        mirror_pods: if !ctx.settings.flags.standalone() { from_manifests.len() as u64 } else { 0 },
        ephemeral_containers: entries.iter().map(ephemeral).sum::<usize>() as u64,
        volumes: volumes(handles, &entries, disks),
        process,
        disks,
        pods: &pods,
        working_pods,
        gates: &ctx.settings.gates,
        reserved_memory: reserved_memory(handles),
        cpus: handles.resources.admissions.read(|table| {
            let (policies, pinned) = table.pinned();
            policies.cpu_counts(pinned)
        }),
        has_pod_level_managers: ctx.node_facts.features.pod_level_resource_managers,
    };
    let mut text = metrics::write(&ctx.metrics, &from);
    let now = ctx.clock.now().wall;
    ctx.metrics.get::<CertificateMetrics>().write(&mut text, now);
    ctx.metrics.get::<PodCertificateMetrics>().write(&mut text, now);
    text
}

/// `memory.min` of Guaranteed pods and `memory.low` of Burstable pods; `None` with the gate `MemoryQoS` off.
fn reserved_memory(handles: &PodHandles) -> Option<(u64, u64)> {
    let rules = qos_cgroup_rules(&handles.ctx);
    if rules.memory_qos == MemoryQos::Off {
        return None;
    }
    let qos =
        handles.resources.admissions.read(|allocations| compute_qos_cgroups(allocations.held(), &rules));
    let bytes = |kept: Option<i64>| kept.and_then(|kept| u64::try_from(kept).ok()).unwrap_or(0);
    Some((bytes(qos.all_pods.memory_min), bytes(qos.all_pods.memory_low)))
}

fn one(text: String) -> TextPieces {
    stream::iter([text]).boxed()
}

fn summary_pieces(ctx: &Arc<Context>, sample: Arc<NodeSample>, disks: Option<Arc<DiskSample>>) -> TextPieces {
    let (ctx, last) = (ctx.clone(), sample.pods.len() + 1);
    let piece = move |index: usize| {
        let scope = Scope { node_name: &ctx.settings.node_name, sample: &sample, disks: disks.as_deref() };
        match index.checked_sub(1) {
            None => summary::head(scope),
            Some(pod) if index < last => summary::pod(scope, pod),
            Some(_) => summary::tail().to_owned(),
        }
    };
    stream::iter((0..=last).map(piece)).boxed()
}

/// The metrics that the runtime has of pods and containers; `None` with the gate off, and if it has none: then those of cgroups count.
async fn runtime_metrics(ctx: &Context) -> Option<String> {
    if !ctx.node_facts.features.stats_from_runtime {
        return None;
    }
    let answers = async {
        let descriptors = ctx.runtime.list_metric_descriptors().await.ok()?;
        Some((descriptors, ctx.runtime.list_sandbox_metrics().await.ok()?))
    };
    let (descriptors, metrics) = tokio::select! {
        answers = answers => answers?,
        () = ctx.clock.sleep_until(ctx.clock.mono() + RUNTIME_TIMEOUT) => return None,
    };
    Some(metrics_text(&descriptors, &metrics))
}

fn cadvisor_pieces(machine: MachineInfo, sample: Arc<NodeSample>) -> TextPieces {
    let piece = move |index| CadvisorExport::new(&sample, machine_names(&machine)).piece(index);
    stream::iter((0..).map_while(piece)).boxed()
}

fn machine_names(machine: &MachineInfo) -> MachineNames<'_> {
    let cores = u64::from(machine.cpus);
    let or_cores = |number: u32| if number == 0 { cores } else { u64::from(number) };
    MachineNames {
        boot_id: &machine.boot_id,
        machine_id: &machine.machine_id,
        system_uuid: &machine.system_uuid,
        kernel_version: &machine.kernel_version,
        os_image: &machine.os_image,
        cores,
        physical_cores: or_cores(machine.physical_cores),
        sockets: u64::from(machine.sockets.max(1)),
        books: u64::from(machine.books),
        drawers: u64::from(machine.drawers),
    }
}
