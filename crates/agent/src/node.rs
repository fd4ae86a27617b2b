//! The node: its registration and status, its lease and cgroups, eviction, shutdown and garbage collection.

pub mod cgroup_driver;
pub(crate) mod cgroups;
pub(crate) mod container_garbage_collection;
pub(crate) mod eviction;
pub(crate) mod facts;
pub(crate) mod firewall;
pub(crate) mod lease;
pub(crate) mod machine;
pub(crate) mod oom_watcher;
pub(crate) mod pod_cidr;
pub mod readiness;
mod ready_line;
pub(crate) mod shutdown;
pub(crate) mod status;
pub(crate) mod system_processes;

use std::sync::Arc;

use images_agent::garbage_collection::ImageGarbageCollector;
use kubelet_core::node::firewall::Family;
use model::{CgroupDriver, ContainerId};
use ports::Shutdown;
use resources_core::admission::pressure::NodePressure;
use resources_core::cgroup::CgroupNames;
use stats_agent::Samplers;
use tokio::sync::{mpsc, watch};

use crate::cgroup_problems::CgroupProblems;
use crate::node_handle::NodePublishers;
use crate::pods::handles::PodHandles;
use cgroup_driver::DriverDetection;
use cgroups::NodeCgroups;
use container_garbage_collection::ContainerGarbageCollector;
use eviction::{Evictor, Removers};
use firewall::Firewall;
use readiness::NodeWatch;
use shutdown::{ShutdownTask, configured_periods};
use system_processes::SystemProcesses;

/// Starts the tasks that every node has, with or without an API server.
pub(crate) fn start(
    handles: &PodHandles,
    publishers: NodePublishers,
    shutdown: Arc<dyn Shutdown>,
    samplers: &Samplers,
) {
    let (ctx, node) = (&handles.ctx, &handles.node);
    let node_watch = NodeWatch {
        runtime: ctx.runtime.clone(),
        clock: ctx.clock,
        pleg: handles.pleg.clone(),
        recorder: ctx.recorder.clone(),
        cgroups: node.cgroup_problems.clone(),
        view: publishers.view,
        shutting_down: node.shutting_down.clone(),
        is_standalone: handles.objects.is_none(),
    };
    start_cgroups(handles, publishers.cgroup_driver, publishers.cgroup_names);
    ctx.tasks.spawn("node watch", node_watch.run());
    let ready_line = ready_line::run(ctx.clone(), node.view.clone(), node.cgroup_driver.clone());
    ctx.tasks.spawn_isolated("ready line", ready_line);
    ctx.tasks.spawn("system processes", SystemProcesses::new(ctx.clone(), node.view.clone()).run());
    start_network(handles);
    if !configured_periods(ctx).is_empty() {
        let task = ShutdownTask::new(handles, shutdown, publishers.shutting_down);
        ctx.tasks.spawn("shutdown", task.run());
    }
    start_collecting(handles, samplers, publishers.superseded, publishers.pressure);
}

/// Detects the cgroup driver and creates the node's cgroups.
fn start_cgroups(
    handles: &PodHandles,
    driver: watch::Sender<Option<CgroupDriver>>,
    names: watch::Sender<Option<Arc<CgroupNames>>>,
) {
    let (ctx, node) = (&handles.ctx, &handles.node);
    let has_cgroups = ctx.config().cgroups_per_qos;
    let detection = DriverDetection {
        runtime: ctx.runtime.clone(),
        clock: ctx.clock,
        // Validation has refused any other value.
        configured: CgroupDriver::parse(&ctx.config().cgroup_driver).unwrap_or(CgroupDriver::Cgroupfs),
        metrics: ctx.metrics.clone(),
        // Without cgroups of pods nothing waits for the driver.
        problems: if has_cgroups { node.cgroup_problems.clone() } else { CgroupProblems::default() },
        answer: driver,
    };
    ctx.tasks.spawn("cgroup driver", detection.run());
    if has_cgroups {
        let cgroups = NodeCgroups {
            ctx: ctx.clone(),
            admissions: handles.resources.admissions.clone(),
            driver: node.cgroup_driver.clone(),
            names,
            must_exit: node.must_exit.clone(),
        };
        ctx.tasks.spawn("node cgroups", cgroups.run());
    }
}

/// Starts the network tasks of the node.
fn start_network(handles: &PodHandles) {
    let ctx = &handles.ctx;
    let config = ctx.config();
    // With an API server, the Node has the pod CIDR.
    if ctx.settings.flags.standalone() && !config.pod_cidr.is_empty() {
        let cidr = config.pod_cidr.clone();
        ctx.tasks.spawn("pod CIDR", pod_cidr::run(ctx.clone(), handles.node.view.clone(), cidr));
    }
    if config.make_iptables_util_chains {
        for family in Family::ALL {
            ctx.tasks.spawn(family.program(), Firewall::new(ctx.clone(), family).run());
        }
    }
}

/// Starts garbage collection and eviction.
fn start_collecting(
    handles: &PodHandles,
    samplers: &Samplers,
    superseded: mpsc::Receiver<ContainerId>,
    pressure: watch::Sender<NodePressure>,
) {
    let PodHandles { ctx, cache, pods, images, sources_ready, .. } = handles;
    let (collector, dead_containers) = ContainerGarbageCollector::new(
        ctx.clone(),
        cache.clone(),
        pods.clone(),
        sources_ready.clone(),
        superseded,
    );
    ctx.tasks.spawn("container garbage collector", collector.run());
    let (collector, images) = ImageGarbageCollector::new(
        ctx.clone(),
        cache.clone(),
        pods.clone(),
        images.clone(),
        samplers.clone(),
    );
    ctx.tasks.spawn("image garbage collector", collector.run());
    let evictor = Evictor::new(handles, samplers, Removers { dead_containers, images }, pressure);
    ctx.tasks.spawn("eviction", evictor.run());
    ctx.tasks.spawn("OOM watcher", oom_watcher::run(ctx.clone()));
}
