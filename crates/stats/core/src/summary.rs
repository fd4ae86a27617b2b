//! `/stats/summary`: all measurements, as the JSON of `stats/v1alpha1`. Written pod by pod, so that the whole is never in
//! memory.

use std::fmt::Write as _;

use jiff::Timestamp;
use model::stats::{FilesystemSpace, Pressure, Stall, TreeUsage};

use super::cgroup::{CgroupSample, Pressures};
use super::procfs::Interface;
use super::sample::{
    ContainerSample, DiskSample, NodeSample, Placed, PodDisks, PodSample, RuntimeFilesystem,
};

/// What is exported: without disks only CPU and memory.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a> {
    pub node_name: &'a str,
    pub sample: &'a NodeSample,
    pub disks: Option<&'a DiskSample>,
}

/// The text before the first pod.
#[must_use]
pub fn head(scope: Scope<'_>) -> String {
    let Scope { node_name, sample, disks } = scope;
    let (at, machine) = (sample.taken.wall, &sample.machine);
    let mut text = "{\"node\":".to_owned();
    let mut node = Object::begin(&mut text);
    node.text("nodeName", node_name);
    node.array("systemContainers", &sample.system, |text, system| {
        let mut object = Object::begin(text);
        object.text("name", system.name);
        object.time("startTime", system.started.unwrap_or(machine.booted));
        usage(&mut object, &system.placed, at, None);
        if disks.is_some() {
            io(&mut object, &system.placed.cgroup, at);
        }
        swap(&mut object, &system.placed.cgroup, at);
        object.end();
    });
    node.time("startTime", machine.booted);
    usage(&mut node, &sample.root, at, Some(machine.memory_bytes));
    if let Some(disks) = disks {
        io(&mut node, &sample.root.cgroup, at);
        network(&mut node, &machine.interfaces, machine.default_interface.as_deref(), at);
        let node_fs = disks.node;
        node.object("fs", node_fs, |object, space| {
            let used =
                TreeUsage { bytes: space.used_bytes, inodes: space.inodes.saturating_sub(space.inodes_free) };
            filesystem(object, disks.taken.wall, Some(space), Some(used));
        });
        node.object("runtime", disks.images.as_ref(), |runtime, images| {
            let write = |object: &mut Object<'_>, of: &RuntimeFilesystem| {
                filesystem(object, disks.taken.wall, Some(of.space), Some(of.used));
            };
            runtime.object("imageFs", Some(images), write);
            runtime.object("containerFs", disks.containers.as_ref(), write);
        });
        node.object("rlimit", machine.max_tasks, |rlimit, max| {
            rlimit.time("time", at);
            rlimit.number("maxpid", Some(max));
            rlimit.number("curproc", machine.tasks);
        });
    }
    swap(&mut node, &sample.root.cgroup, at);
    node.end();
    text.push_str(",\"pods\":[");
    text
}

/// The pod at that index, with the comma before it.
#[must_use]
pub fn pod(scope: Scope<'_>, index: usize) -> String {
    let Some(pod) = scope.sample.pods.get(index) else { return String::new() };
    let mut text = if index == 0 { String::new() } else { ",".to_owned() };
    write_pod(&mut text, scope, pod);
    text
}

/// The text after the last pod.
#[must_use]
pub const fn tail() -> &'static str {
    "]}\n"
}

fn write_pod(text: &mut String, scope: Scope<'_>, pod: &PodSample) {
    let (at, disks) = (scope.sample.taken.wall, scope.disks);
    let none = PodDisks::default();
    let pod_disks = disks.map(|disks| disks.pods.get(&pod.pod.uid).unwrap_or(&none));
    let started = pod.started.or_else(|| pod.parts().map(|part| part.started).min()).unwrap_or(at);
    let mut object = Object::begin(text);
    object.object("podRef", Some(&pod.pod), |object, pod| {
        object.text("name", &pod.name);
        object.text("namespace", &pod.namespace);
        object.text("uid", pod.uid.as_str());
    });
    object.time("startTime", started);
    object.array("containers", &pod.containers, |text, container| {
        write_container(text, container, at, disks.zip(pod_disks));
    });
    let whole = pod.whole();
    usage(&mut object, &whole, at, None);
    if let (Some(disks), Some(of_pod)) = (disks, pod_disks) {
        io(&mut object, &whole.cgroup, at);
        network(&mut object, &pod.interfaces, pod_interface(&pod.interfaces), at);
        if !of_pod.volumes.is_empty() {
            object.array("volume", &of_pod.volumes, |text, volume| {
                let mut object = Object::begin(text);
                filesystem(&mut object, disks.taken.wall, Some(volume.space), Some(volume.used));
                object.text("name", &volume.name);
                object.object("pvcRef", volume.claim.as_ref(), |object, claim| {
                    object.text("name", claim);
                    object.text("namespace", &pod.pod.namespace);
                });
                object.object("volumeHealthStats", volume.is_abnormal, |object, is_abnormal| {
                    object.flag("abnormal", is_abnormal);
                });
                object.end();
            });
        }
        object.object("ephemeral-storage", disks.node, |object, space| {
            filesystem(object, disks.taken.wall, Some(space), Some(ephemeral(of_pod)));
        });
        object.object("process_stats", pod.processes(), |object, count| {
            object.number("process_count", Some(count));
        });
    }
    swap(&mut object, &whole.cgroup, at);
    object.end();
}

fn write_container(
    text: &mut String,
    container: &ContainerSample,
    at: Timestamp,
    disks: Option<(&DiskSample, &PodDisks)>,
) {
    let mut object = Object::begin(text);
    object.text("name", &container.name);
    object.time("startTime", container.started);
    usage(&mut object, &container.placed, at, None);
    if let Some((disks, of_pod)) = disks {
        io(&mut object, &container.placed.cgroup, at);
        object.object("rootfs", of_pod.layers.get(&container.id), |object, layer| {
            let used =
                layer.used_bytes.map(|bytes| TreeUsage { bytes, inodes: layer.inodes_used.unwrap_or(0) });
            let fs = disks.containers.as_ref().or(disks.images.as_ref());
            let time = layer.time.unwrap_or(disks.taken.wall);
            filesystem(object, time, fs.map(|fs| fs.space), used);
        });
        object.object("logs", of_pod.logs.get(&container.name), |object, used| {
            filesystem(object, disks.taken.wall, disks.node, Some(*used));
        });
    }
    swap(&mut object, &container.placed.cgroup, at);
    object.end();
}

/// The pod's use of the node's disk: writable layers, logs, volumes that are neither in memory nor persistent volume
/// claims, and the kubelet's files that containers can write.
fn ephemeral(disks: &PodDisks) -> TreeUsage {
    let layers = disks.layers.values().map(|layer| TreeUsage {
        bytes: layer.used_bytes.unwrap_or(0),
        inodes: layer.inodes_used.unwrap_or(0),
    });
    let volumes =
        disks.volumes.iter().filter(|v| !v.is_off_disk && v.claim.is_none()).map(|volume| volume.used);
    let files = std::iter::once(disks.files);
    layers.chain(disks.logs.values().copied()).chain(volumes).chain(files).fold(
        TreeUsage::default(),
        |all, one| TreeUsage {
            bytes: all.bytes.saturating_add(one.bytes),
            inodes: all.inodes.saturating_add(one.inodes),
        },
    )
}

/// A pod has one interface of the pod network, which runtimes name `eth0`.
fn pod_interface(interfaces: &[Interface]) -> Option<&str> {
    let named = interfaces.iter().find(|interface| &*interface.name == "eth0");
    named.or_else(|| interfaces.first()).map(|interface| &*interface.name)
}

fn usage(object: &mut Object<'_>, placed: &Placed, at: Timestamp, machine_memory: Option<u64>) {
    let cgroup = &placed.cgroup;
    let at = placed.measured_at.unwrap_or(at);
    let pressures = cgroup.pressure.as_deref();
    object.object("cpu", cgroup.cpu_nanoseconds.or(placed.rate), |cpu, _| {
        cpu.time("time", at);
        cpu.number("usageNanoCores", placed.rate);
        cpu.number("usageCoreNanoSeconds", cgroup.cpu_nanoseconds);
        psi(cpu, pressures, |all| all.cpu.as_ref());
    });
    let memory = &cgroup.memory;
    object.object("memory", memory.usage.or(memory.working_set), |object, _| {
        object.time("time", at);
        let limit = memory.limit.or(machine_memory);
        let left = limit.zip(memory.working_set).map(|(limit, used)| limit.saturating_sub(used));
        object.number("availableBytes", left);
        object.number("usageBytes", memory.usage);
        object.number("workingSetBytes", memory.working_set);
        object.number("rssBytes", memory.rss);
        object.number("pageFaults", memory.page_faults);
        object.number("majorPageFaults", memory.major_page_faults);
        psi(object, pressures, |all| all.memory.as_ref());
    });
}

fn io(object: &mut Object<'_>, cgroup: &CgroupSample, at: Timestamp) {
    object.object("io", Some(cgroup.pressure.as_deref()), |object, all| {
        object.time("time", at);
        psi(object, all, |all| all.io.as_ref());
    });
}

fn swap(object: &mut Object<'_>, cgroup: &CgroupSample, at: Timestamp) {
    object.object("swap", cgroup.memory.swap, |object, used| {
        object.time("time", at);
        let left = cgroup.memory.swap_limit.map(|limit| limit.saturating_sub(used));
        object.number("swapAvailableBytes", left);
        object.number("swapUsageBytes", Some(used));
    });
}

/// Zeros if the kernel collects no pressure stall information: clients expect the fields on every node.
fn psi<'a>(
    object: &mut Object<'_>,
    all: Option<&'a Pressures>,
    of: impl Fn(&'a Pressures) -> Option<&'a Pressure>,
) {
    let pressure = all.and_then(of).cloned().unwrap_or_default();
    object.object("psi", Some(pressure), |object, pressure| {
        let write = |object: &mut Object<'_>, stall: Stall| {
            object.number("total", Some(stall.total));
            object.float("avg10", stall.avg10);
            object.float("avg60", stall.avg60);
            object.float("avg300", stall.avg300);
        };
        object.object("full", Some(pressure.full.unwrap_or_default()), write);
        object.object("some", Some(pressure.some.unwrap_or_default()), write);
    });
}

fn network(object: &mut Object<'_>, interfaces: &[Interface], default: Option<&str>, at: Timestamp) {
    object.object("network", interfaces.first(), |object, _| {
        object.time("time", at);
        if let Some(main) = interfaces.iter().find(|interface| Some(&*interface.name) == default) {
            write_interface(object, main);
        }
        object.array("interfaces", interfaces, |text, interface| {
            let mut object = Object::begin(text);
            write_interface(&mut object, interface);
            object.end();
        });
    });
}

fn write_interface(object: &mut Object<'_>, interface: &Interface) {
    object.text("name", &interface.name);
    object.number("rxBytes", Some(interface.rx_bytes));
    object.number("rxErrors", Some(interface.rx_errors));
    object.number("txBytes", Some(interface.tx_bytes));
    object.number("txErrors", Some(interface.tx_errors));
}

fn filesystem(
    object: &mut Object<'_>,
    at: Timestamp,
    space: Option<FilesystemSpace>,
    used: Option<TreeUsage>,
) {
    object.time("time", at);
    object.number("availableBytes", space.map(|space| space.available_bytes));
    object.number("capacityBytes", space.map(|space| space.capacity_bytes));
    object.number("usedBytes", used.map(|used| used.bytes));
    object.number("inodesFree", space.map(|space| space.inodes_free));
    object.number("inodes", space.map(|space| space.inodes));
    object.number("inodesUsed", used.map(|used| used.inodes));
}

/// A JSON object that is being written. Absent values leave no key.
struct Object<'a> {
    text: &'a mut String,
    is_empty: bool,
}

impl<'a> Object<'a> {
    fn begin(text: &'a mut String) -> Self {
        text.push('{');
        Self { text, is_empty: true }
    }

    fn end(self) {
        self.text.push('}');
    }

    fn key(&mut self, key: &str) {
        if !std::mem::replace(&mut self.is_empty, false) {
            self.text.push(',');
        }
        // Writing to a string cannot fail.
        let _ = write!(self.text, "\"{key}\":");
    }

    fn text(&mut self, key: &str, value: &str) {
        self.key(key);
        self.text.push_str(&serde_json::Value::from(value).to_string());
    }

    fn flag(&mut self, key: &str, value: bool) {
        self.key(key);
        self.text.push_str(if value { "true" } else { "false" });
    }

    fn number(&mut self, key: &str, value: Option<u64>) {
        if let Some(value) = value {
            self.key(key);
            let _ = write!(self.text, "{value}");
        }
    }

    fn float(&mut self, key: &str, value: f64) {
        self.key(key);
        let _ = write!(self.text, "{value}");
    }

    /// Whole seconds, as in the API.
    fn time(&mut self, key: &str, value: Timestamp) {
        let value = Timestamp::from_second(value.as_second()).unwrap_or(value);
        self.key(key);
        let _ = write!(self.text, "\"{value}\"");
    }

    fn object<T>(&mut self, key: &str, value: Option<T>, write: impl FnOnce(&mut Object<'_>, T)) {
        let Some(value) = value else { return };
        self.key(key);
        let mut object = Object::begin(self.text);
        write(&mut object, value);
        object.end();
    }

    fn array<T>(&mut self, key: &str, values: &[T], write: impl Fn(&mut String, &T)) {
        self.key(key);
        self.text.push('[');
        for (index, value) in values.iter().enumerate() {
            if index > 0 {
                self.text.push(',');
            }
            write(self.text, value);
        }
        self.text.push(']');
    }
}
