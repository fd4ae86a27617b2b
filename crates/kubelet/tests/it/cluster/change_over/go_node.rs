//! The recording of a node of a cluster that the Go kubelet 1.36.3 left, and a node that is made of it.
//!
//! `go_kubelet.json` has the pods as the API server returned them, the objects that they refer to, the requests that the runtime got, the
//! mounts and the entries of the root directory. The policies `static` and `Static` were on, one of two CPUs was reserved, and a device
//! plugin served `example.com/thing`. Paths, the cgroup and the address of the node are placeholders, tokens are replaced; UIDs are real, so
//! that checksums are as recorded. The pod in crash loop is made last, because its delay begins with the end of its container. Files that
//! containers write are empty.

use std::collections::BTreeMap;

use fakes::DevicePlugin;
use host::LinuxHost;
use jiff::{SignedDuration, Timestamp};
use model::{ContainerId, ContainerObservation};
use ports::runtime::Scope;
use ports::{Machine, Runtime};
use resources_core::cpus::{CPU_STATE_FILE, CpuState, parse_cpu_state, write_cpu_state};
use resources_core::memory::MemoryState;
use resources_core::memory::checkpoint::{
    FILE as MEMORY_STATE_FILE, parse_memory_checkpoint, write_memory_checkpoint,
};
use serde_json::{Value, json};

use super::super::Cluster;
use super::super::node::own_address;
use crate::exclusive_cpus::Cpus;
use crate::go_node::{list, make_pods, make_root, text, text_of};
use crate::node::Node;

pub(super) const RECORDED: &str = include_str!("go_kubelet.json");
const THING: &str = "example.com/thing";
/// The recorded address of the pod stays: its sandbox has ended.
const ENDED: &str = "done";

/// A recorded node, for a cluster of this machine.
pub(super) struct GoNode {
    /// Dropped first: its socket is in a mount of the node.
    plugin: Option<DevicePlugin>,
    pub(super) cluster: Cluster,
    pub(super) recording: Value,
    pub(super) cpus: Cpus,
}

impl GoNode {
    /// The API server knows the recorded objects but no pod; the root directory and the runtime are empty.
    pub(super) fn empty() -> Self {
        let cpus = Cpus::of_machine();
        let mut node = Node::on_containerd(settings(&cpus.reserved));
        node.add_flags(&[&format!("--node-ip={}", own_address())]);
        let recording = load(&node, &cpus);
        let cluster = Cluster::with_api(node, &[]);
        cluster.kubectl.apply(list(&recording, "objects"));
        Self { plugin: None, cluster, recording, cpus }
    }

    /// A node as the Go kubelet left it. No kubelet runs.
    pub(super) fn left_by_the_go_kubelet() -> Self {
        let mut go = Self::empty();
        make_root(&go.cluster.node.path("root"), &go.recording);
        let ids = make_pods(&go.cluster.node, &go.recording);
        let mut pods = go.pods();
        for pod in &mut pods {
            set_containers(&go.cluster.node, pod, &ids);
            if pod["metadata"]["name"] != ENDED {
                set_address(&go.cluster.node, pod);
            }
        }
        go.insert(pods);
        go
    }

    /// The recorded pods.
    pub(super) fn pods(&self) -> Vec<Value> {
        list(&self.recording, "pods").to_vec()
    }

    pub(super) fn uid(&self, name: &str) -> String {
        let pods = self.pods();
        let pod = pods.iter().find(|pod| pod["metadata"]["name"] == name).expect("a pod");
        crate::node::uid(pod)
    }

    pub(super) fn text_of(&self, path: &str) -> String {
        text_of(&self.recording, path)
    }

    /// Puts pods into the store of the API server as they are, with their UIDs and statuses.
    pub(super) fn insert(&mut self, pods: Vec<Value>) {
        self.cluster.api.stop();
        let path = self.cluster.api.file("state.json");
        let state = std::fs::read_to_string(&path).expect("the state of the API server");
        let mut state: Value = serde_json::from_str(&state).expect("JSON");
        let store = &mut state["store"];
        for mut pod in pods {
            let revision = store["revision"].as_u64().expect("a revision") + 1;
            store["revision"] = revision.into();
            pod["apiVersion"] = "v1".into();
            pod["kind"] = "Pod".into();
            pod["metadata"]["resourceVersion"] = revision.to_string().into();
            let event = json!({"revision": revision, "resource": "pods", "deleted": false, "object": pod});
            store["history"].as_array_mut().expect("a history").push(event);
            let object = json!({"resource": "pods", "object": pod});
            store["objects"].as_array_mut().expect("objects").push(object);
        }
        std::fs::write(&path, state.to_string()).expect("the state is written");
        self.cluster.api.start_again(&[]);
    }

    /// Registers the device plugin as soon as the kubelet listens.
    #[track_caller]
    pub(super) fn register(&mut self) {
        let Self { cluster, plugin, .. } = self;
        let dir = cluster.node.path("root/device-plugins");
        let plugin = plugin.get_or_insert_with(|| DevicePlugin::serve(&dir, THING, "null zero"));
        cluster.node.eventually("the plugin is registered", |_| plugin.register());
    }

    /// The requests that the device plugin got.
    pub(super) fn calls_of_plugin(&self) -> Vec<String> {
        self.plugin.as_ref().map(DevicePlugin::calls).unwrap_or_default()
    }

    /// What kubectl shows of the node's devices.
    #[track_caller]
    pub(super) fn wait_for_devices(&self) {
        self.cluster.node.eventually("the node has two devices", |_| {
            let node = self.cluster.kubectl.get("node", "node")?;
            let found = &node["status"]["allocatable"][THING];
            if found == "2" { Ok(()) } else { Err(found.to_string()) }
        });
    }
}

/// The recorded settings of the Go kubelet.
fn settings(reserved: &str) -> Value {
    json!({
        "cpuManagerPolicy": "static",
        "cpuManagerReconcilePeriod": "1s",
        "memoryManagerPolicy": "Static",
        "reservedSystemCPUs": reserved,
        "kubeReserved": {"memory": "200Mi"},
        "evictionHard": {"memory.available": "100Mi"},
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "300Mi"}}],
    })
}

/// The recording for this machine: its paths, its CPUs, and the size of its memory.
fn load(node: &Node, cpus: &Cpus) -> Value {
    let path = |name: &str| node.path(name).display().to_string();
    std::fs::create_dir_all(node.path("host/two")).expect("a directory");
    let recorded = RECORDED
        .replace("@ROOT@", &path("root"))
        .replace("@LOGS@", &path("logs/pods"))
        .replace("@HOST@", &path("host"))
        .replace("@HOST_IP@", &own_address())
        .replace("@CGROUP@", &node.cgroup().path());
    let mut recording: Value = serde_json::from_str(&recorded).expect("a recording");
    for entry in recording["entries"].as_array_mut().expect("entries") {
        match entry["path"].as_str() {
            Some(CPU_STATE_FILE) => entry["text"] = cpus_of_machine(&text(&entry["text"]), cpus).into(),
            Some(MEMORY_STATE_FILE) => {
                entry["text"] = memory_of_machine(&text(&entry["text"]), node).into();
            }
            _ => {}
        }
    }
    for container in recording["containers"].as_array_mut().expect("containers") {
        let own = &mut container["resources"]["cpuset_cpus"];
        *own = if own == "1" { cpus.last.clone().into() } else { cpus.reserved.clone().into() };
    }
    recording
}

/// The recorded state, in which CPU 1 belongs to a container, with the last CPU of this machine.
fn cpus_of_machine(recorded: &str, cpus: &Cpus) -> String {
    let (mut state, _) = parse_cpu_state(recorded, "static", false, |_| None).expect("a state");
    let last: model::cpu_set::CpuSet = cpus.last.parse().expect("a CPU");
    for own in state.assigned.values_mut().flat_map(BTreeMap::values_mut) {
        *own = last.clone();
    }
    let state = CpuState { default: cpus.reserved.parse().expect("CPUs"), ..state };
    write_cpu_state("static", &state, false)
}

/// The recorded state with the memory of this machine, which has one NUMA node.
fn memory_of_machine(recorded: &str, node: &Node) -> String {
    let mut state = parse_memory_checkpoint(recorded, "Static", false).expect("a state");
    let topology = node.finish(LinuxHost::new().topology()).expect("the topology");
    assert_eq!(topology.numa_nodes.len(), 1, "these tests need a machine with one NUMA node");
    set_memory(&mut state, topology.numa_nodes[0].memory_bytes);
    write_memory_checkpoint("Static", &state, false)
}

fn set_memory(state: &mut MemoryState, bytes: u64) {
    let table = state.nodes.get_mut(&0).and_then(|node| node.memory.get_mut("memory")).expect("a node");
    table.total = bytes;
    table.allocatable = bytes - table.system_reserved;
    table.free = table.allocatable - table.reserved;
}

/// Sets what the runtime gave to the containers: ids, images and times.
fn set_containers(node: &Node, pod: &mut Value, ids: &BTreeMap<(String, String), ContainerId>) {
    let pod_name = text(&pod["metadata"]["name"]);
    for kind in ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"] {
        for status in pod["status"][kind].as_array_mut().into_iter().flatten() {
            let id = ids[&(pod_name.clone(), text(&status["name"]))].clone();
            let observed = node.call_runtime(|runtime| async move { runtime.container_status(&id).await });
            set_container(status, &observed.expect("the runtime answers"));
        }
    }
}

fn set_container(status: &mut Value, observed: &ContainerObservation) {
    let id = format!("containerd://{}", observed.id);
    status["containerID"] = id.clone().into();
    status["imageID"] = observed.image_id.clone().into();
    let started = observed.started_at.expect("it has started");
    let kind = if status["state"]["terminated"].is_object() { "terminated" } else { "running" };
    let state = &mut status["state"][kind];
    let recorded: Timestamp = text(&state["startedAt"]).parse().expect("a time");
    state["startedAt"] = in_seconds(started).into();
    if kind == "terminated" {
        state["containerID"] = id.into();
        state["finishedAt"] = in_seconds(observed.finished_at.expect("it has ended")).into();
    }
    // The instance before this one ended as long before it as recorded.
    let shift = started.duration_since(recorded);
    if let Some(last) = status["lastState"].get_mut("terminated") {
        for field in ["startedAt", "finishedAt"] {
            last[field] = shifted(&last[field], shift).into();
        }
    }
}

fn shifted(time: &Value, by: SignedDuration) -> String {
    let time: Timestamp = text(time).parse().expect("a time");
    in_seconds(time + by)
}

fn in_seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Sets the address that the network gave to the pod's sandbox.
fn set_address(node: &Node, pod: &mut Value) {
    let scope = Scope::Pod(crate::node::uid(pod).as_str().into());
    let address = node.call_runtime(|runtime| async move {
        let sandboxes = runtime.list_sandboxes(&scope).await?;
        Ok(runtime.sandbox_status(&sandboxes[0].id).await?.ips)
    });
    let address = address.expect("the runtime answers")[0].to_string();
    pod["status"]["podIP"] = address.clone().into();
    pod["status"]["podIPs"] = json!([{"ip": address}]);
}
