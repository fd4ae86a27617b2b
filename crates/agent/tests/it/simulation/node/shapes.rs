//! The pods of a whole node, and the node's configuration: devices, exclusive CPUs, eviction thresholds and shutdown periods.

use config::GoDuration;
use fakes::{FakeRuntime, Method, Program};
use serde_json::{Value, json};

use super::super::random::Dice;
use super::super::resizes;
use crate::node_shutdown::periods;
use crate::pods::{Manifest, container, container_with, pod};
use crate::world::{World, seconds};

pub(super) const GPU: &str = "example.com/gpu";
/// As many as the pods with devices request together.
pub(super) const DEVICES: [&str; 4] = ["a", "b", "c", "d"];
pub(super) const NAMES: [&str; 9] =
    ["gpu-one", "gpu-two", "gpu-job", "pin-one", "pin-two", "plain", "fails", "critical", "kept"];
/// Pods that run until they are deleted.
pub(super) const LASTING: [&str; 7] =
    ["gpu-one", "gpu-two", "pin-one", "pin-two", "plain", "critical", "kept"];

const GI: u64 = 1 << 30;

/// The acts that take time.
const ACTS: [Method; 8] = [
    Method::RunPodSandbox,
    Method::StopPodSandbox,
    Method::RemovePodSandbox,
    Method::CreateContainer,
    Method::StartContainer,
    Method::StopContainer,
    Method::RemoveContainer,
    Method::PullImage,
];

/// A node of four CPUs, one of which is reserved.
pub(super) fn world(seed: u64) -> World {
    let mut world = World::of_cluster();
    world.seed = seed;
    let mut whole = serde_json::to_value(&world.config).unwrap();
    let fields = json!({
        "enforceNodeAllocatable": [],
        "cpuManagerPolicy": "static",
        "reservedSystemCPUs": "0",
        "evictionHard": {"memory.available": "1Gi", "nodefs.available": "10%"},
        "evictionPressureTransitionPeriod": "30s",
    });
    whole.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    world.config = serde_json::from_value(whole).unwrap();
    world.config.crash_loop_back_off.max_container_restart_period = GoDuration::from_secs(40);
    world.config.shutdown_grace_period_by_pod_priority = periods();
    set_available_memory(&world, 4 * GI);
    program(&world.fake);
    let mut frame = Dice::new(seed, "node frame");
    for method in ACTS {
        world.fake.latency(method, std::time::Duration::from_millis(frame.between(1, 400)));
    }
    world.runtime.complete_cancelled_calls(frame.pick(&[0, 0, 1, 2, 3]));
    world.api().set_deadline(seconds(10));
    world
}

fn program(fake: &FakeRuntime) {
    fake.program("init", Program::exits(0, seconds(2)))
        .program("gpu-one", Program::runs().stopping(seconds(3), 0))
        .program("gpu-two", Program::runs().stopping(seconds(1), 0))
        .program("gpu-job", Program::exits(0, seconds(8)))
        .program("pin-one", Program::runs().ignoring_term())
        .program("fails", Program::exits(3, seconds(5)));
}

/// Sets how much of the machine's 8 GiB is available.
pub(super) fn set_available_memory(world: &World, bytes: u64) {
    let (total, free) = (8 * GI / 1024, bytes / 1024);
    world
        .host
        .put("/proc/meminfo", format!("MemTotal: {total} kB\nMemFree: {free} kB\nInactive(file): 0 kB\n"));
}

pub(super) fn set_memory_pressure(world: &World, is_low: bool) {
    set_available_memory(world, if is_low { GI / 2 } else { 4 * GI });
}

pub(super) fn set_disk_pressure(world: &World, is_full: bool) {
    world.host.set_space("/", |space| space.available_bytes = if is_full { GI } else { 50 * GI });
}

/// Every running container uses memory, each its own amount.
pub(super) fn use_memory(world: &World) {
    for (n, (_, container)) in (1..).zip(world.fake.containers()) {
        let dir = format!("/sys/fs/cgroup/k8s.io/{}", container.id);
        let bytes = n << 20;
        world.host.put(format!("{dir}/memory.current"), format!("{bytes}\n"));
        world.host.put(format!("{dir}/memory.stat"), "inactive_file 0\n");
        world.host.put(format!("{dir}/cpu.stat"), "usage_usec 1\n");
    }
}

fn with_devices(name: &str, count: usize) -> Value {
    let amounts = json!({GPU: count.to_string()});
    container_with(name, json!({"resources": {"limits": amounts, "requests": amounts}}))
}

/// Guaranteed, so that its CPU is its own.
fn pinned(name: &str) -> Manifest {
    let amounts = json!({"cpu": "1", "memory": "64Mi"});
    pod(name, [container_with(name, json!({"resources": {"limits": amounts, "requests": amounts}}))])
}

fn with_volumes(manifest: Manifest) -> Manifest {
    manifest.spec(json!({"volumes": [
        {"name": "scratch", "emptyDir": {}},
        {"name": "memory", "emptyDir": {"medium": "Memory"}},
    ]}))
}

fn mounting(name: &str) -> Value {
    container_with(
        name,
        json!({"volumeMounts": [
            {"name": "scratch", "mountPath": "/scratch"},
            {"name": "memory", "mountPath": "/memory", "subPath": "part"},
        ]}),
    )
}

pub(super) fn manifest(name: &str) -> Manifest {
    let manifest = match name {
        "gpu-one" => with_volumes(pod(name, [with_devices(name, 1)])),
        "gpu-two" => pod(name, [with_devices(name, 2)]).init([with_devices("init", 1)]),
        "gpu-job" => pod(name, [with_devices(name, 1)]).restart_policy("Never"),
        "pin-one" | "pin-two" => pinned(name),
        "plain" => with_volumes(pod(name, [mounting(name)])),
        "fails" => pod(name, [container(name)]).restart_policy("Never"),
        "critical" => pod(name, [container(name)]).spec(json!({"priority": 2_000_001_000})),
        _ => resizes::manifest(name),
    };
    manifest.spec(json!({"terminationGracePeriodSeconds": 5}))
}

/// The Node in the API has allocatable devices.
pub(super) fn node_has_devices(world: &World) -> bool {
    let allocatable = world.node().and_then(|node| node.status?.allocatable).unwrap_or_default();
    allocatable.get(GPU).is_some_and(|devices| devices.0 != "0")
}

/// How many devices a container requests.
pub(super) fn devices_of(container: &str) -> usize {
    match container {
        "gpu-two" => 2,
        "gpu-one" | "gpu-job" | "init" => 1,
        _ => 0,
    }
}
