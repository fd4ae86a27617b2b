//! Version 2 cgroups of the systemd driver: systemd's properties, the kernel's values, and that nothing is left.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use crate::cluster::{Cluster, bound};
use crate::node::{FOREVER, Node, container, shell_pod, uid};
use crate::resources::{kernel_bytes, memory_bytes};
use crate::unkillable::Unkillable;
use model::CgroupDriver;
use serde_json::{Value, json};

/// Where systemd and the kernel agree: this test has the whole machine, and only one kubelet here uses the driver.
const KUBEPODS: &str = "/sys/fs/cgroup/kubepods.slice";

fn slice(qos_class: &str, uid: &str) -> PathBuf {
    let uid = uid.replace('-', "_");
    match qos_class {
        "" => format!("{KUBEPODS}/kubepods-pod{uid}.slice").into(),
        qos_class => {
            format!("{KUBEPODS}/kubepods-{qos_class}.slice/kubepods-{qos_class}-pod{uid}.slice").into()
        }
    }
}

pub(super) fn read(cgroup: &Path, file: &str) -> String {
    let path = cgroup.join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    text.trim().to_owned()
}

fn systemctl(args: &[&str]) -> String {
    let output = Command::new("systemctl").args(args).output().expect("systemctl runs");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[track_caller]
fn run(program: &str, args: &[&str]) {
    let output = Command::new(program).args(args).output().unwrap_or_else(|e| panic!("{program}: {e}"));
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Ends what the kubelet leaves to the next kubelet.
struct Kubepods;

impl Drop for Kubepods {
    fn drop(&mut self) {
        systemctl(&["stop", "kubepods.slice"]);
    }
}

/// A swap file, until this is dropped.
struct SwapFile(tempfile::TempDir);

impl SwapFile {
    fn on() -> Self {
        let swap = Self(tempfile::tempdir().expect("a directory"));
        let path = swap.path();
        run("fallocate", &["--length", "64M", &path]);
        run("chmod", &["600", &path]);
        run("mkswap", &[&path]);
        run("swapon", &[&path]);
        swap
    }

    fn path(&self) -> String {
        self.0.path().join("swap").display().to_string()
    }
}

impl Drop for SwapFile {
    fn drop(&mut self) {
        let _ = Command::new("swapoff").arg(self.path()).status();
    }
}

/// A process that systemd did not start, in the root cgroup.
struct InRoot(Child);

impl InRoot {
    fn new() -> Self {
        let process = Self(Command::new("sleep").arg("3600").spawn().expect("a process"));
        let moved = std::fs::write("/sys/fs/cgroup/cgroup.procs", process.0.id().to_string());
        moved.expect("it is moved to the root");
        process
    }
}

impl Drop for InRoot {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn pod(name: &str, resources: Value) -> Value {
    let mut pod = shell_pod(name, FOREVER);
    pod["spec"]["containers"][0]["resources"] = resources;
    pod
}

fn check_limits(guaranteed: &Path, burstable: &Path, best_effort: &Path) {
    assert_eq!(read(guaranteed, "cpu.weight"), "20");
    assert_eq!(read(guaranteed, "cpu.max"), "50000 100000");
    assert_eq!(read(guaranteed, "memory.max"), (64 << 20).to_string());
    assert_eq!(read(guaranteed, "pids.max"), "200");
    assert_eq!((read(burstable, "cpu.weight"), read(burstable, "memory.max")), ("10".into(), "max".into()));
    assert_eq!(
        (read(best_effort, "cpu.weight"), read(best_effort, "cpu.max")),
        ("1".into(), "max 100000".into())
    );
}

#[test]
#[ignore = "needs systemd and cgroup v2: scripts/vm"]
fn systemd_cgroup_driver_creates_slices_with_qos_values_and_removes_them() {
    let (_kubepods, _swap, in_root) = (Kubepods, SwapFile::on(), InRoot::new());
    let settings = json!({
        "cgroupDriver": "systemd", "cgroupRoot": "/", "failCgroupV1": true, "podPidsLimit": 200,
        "systemReserved": {"cpu": "100m", "memory": "100Mi"},
        "featureGates": {"MemoryQoS": true}, "memoryReservationPolicy": "TieredReservation",
        "memoryThrottlingFactor": 0.5, "memorySwap": {"swapBehavior": "LimitedSwap"},
        "kubeletCgroups": "/guest-daemons/kubelet", "systemCgroups": "/guest-system",
    });
    let mut cluster = Cluster::with_node(Node::on_containerd_with(CgroupDriver::Systemd, settings));
    cluster.node.add_flags(&["--runtime-cgroups", "/guest-daemons/runtime"]);
    let node = &mut cluster.node;
    swap_is_rejected_unless_allowed(node);
    node.start_kubelet();
    let both = json!({"cpu": "500m", "memory": "64Mi"});
    node.apply("guaranteed", &pod("guaranteed", json!({"limits": both})));
    // Static pods are critical and get no swap. The name in the API is as a static pod's would be.
    let resources = json!({"requests": {"cpu": "250m", "memory": "32Mi"}});
    cluster.kubectl.create(&[bound(pod("burstable-node", resources))]);
    node.apply("besteffort", &pod("besteffort", json!({})));
    let pods = ["guaranteed", "burstable", "besteffort"].map(|name| node.running(name));
    let [guaranteed, burstable, best_effort] = [("", 0), ("burstable", 1), ("besteffort", 2)]
        .map(|(qos_class, at)| slice(qos_class, &uid(&pods[at])));
    check_limits(&guaranteed, &burstable, &best_effort);
    let unit = guaranteed.file_name().and_then(|name| name.to_str()).expect("a name");
    let of = |property: &str| systemctl(&["show", "--value", "--property", property, unit]);
    assert_eq!((of("ActiveState"), of("MemoryMax")), ("active".to_owned(), (64 << 20).to_string()));
    assert_eq!(
        (of("CPUWeight"), of("CPUQuotaPerSecUSec"), of("TasksMax")),
        ("20".into(), "500ms".into(), "200".into())
    );
    node.eventually("the QoS cgroups follow their pods, and kubepods follows node allocatable", |_| {
        let slices = ["kubepods-burstable.slice", "kubepods-besteffort.slice"];
        let weights = slices.map(|name| read(&Path::new(KUBEPODS).join(name), "cpu.weight"));
        let has_limit = read(Path::new(KUBEPODS), "memory.max") != "max";
        if weights == ["10", "1"] && has_limit { Ok(()) } else { Err(format!("{weights:?} {has_limit}")) }
    });
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").expect("the CPUs");
    let allowed = systemctl(&["show", "--value", "--property", "AllowedCPUs", "kubepods.slice"]);
    assert_eq!(allowed, online.trim());

    // The runtime's scopes are in the slices.
    let slices = [&guaranteed, &burstable, &best_effort];
    let mut scopes = slices.iter().zip(&pods).map(|(slice, pod)| scope(slice, pod));
    let scopes: [PathBuf; 3] = std::array::from_fn(|_| scopes.next().expect("one for each"));
    assert_eq!(cgroup_of(node.container_pid(&pods[1], "main")), scopes[1]);

    // A container's memory request is protected by memory.min, and memory.high throttles half way to the limit.
    let (request, limit) = (32 << 20, memory_bytes() - (100 << 20));
    let high = (request + (limit - request) / 2) / 4096 * 4096;
    assert_eq!(read(&scopes[1], "memory.low"), request.to_string());
    assert_eq!(read(&scopes[1], "memory.high"), high.to_string());
    check_swap_limits(request, &scopes);
    check_process_cgroups(node, &in_root);

    // systemd reloads its units, and the kubelet restarts: nothing changes for the pods.
    systemctl(&["daemon-reload"]);
    node.restart_kubelet();
    let again = node.running("burstable");
    assert_eq!(container(&again, "main")["containerID"], container(&pods[1], "main")["containerID"]);
    check_limits(&guaranteed, &burstable, &best_effort);

    let mut unkillable = Unkillable::on_a_disk();
    unkillable.enter(&best_effort);
    cluster.kubectl.delete("burstable-node");
    node.delete("guaranteed");
    node.delete("besteffort");
    node.wait_for_log("Processes of the pod do not exit, keeping its cgroup until they do");
    assert!(unkillable.is_alive() && best_effort.exists());
    unkillable.let_exit();
    for (name, pod) in ["guaranteed", "burstable", "besteffort"].iter().zip(&pods) {
        node.wait_until_gone(name, &uid(pod));
    }
    node.eventually("no slice is left", |_| {
        let mut left = [&guaranteed, &burstable, &best_effort].into_iter().filter(|slice| slice.exists());
        left.next().map_or(Ok(()), |slice| Err(slice.display().to_string()))
    });
    assert_eq!(of("ActiveState"), "inactive");
    let swap = cluster.kubectl.get("node", "node").expect("a node")["status"]["nodeInfo"]["swap"].clone();
    assert_eq!(swap, json!({"capacity": kernel_bytes("SwapTotal:")}));
}

/// The cgroup in which the runtime has put a container of the pod.
fn scope(slice: &Path, pod: &Value) -> PathBuf {
    let id = container(pod, "main")["containerID"].as_str().unwrap_or_default().to_owned();
    slice.join(format!("cri-containerd-{}.scope", id.trim_start_matches("containerd://")))
}

pub(super) fn cgroup_of(pid: u32) -> PathBuf {
    let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("a process");
    let cgroup = text.trim().strip_prefix("0::/").expect("version 2");
    Path::new("/sys/fs/cgroup").join(cgroup)
}

fn swap_is_rejected_unless_allowed(node: &mut Node) {
    node.configure(json!({"failSwapOn": true}));
    node.spawn_kubelet();
    assert_eq!(node.wait_for_exit().code(), Some(1));
    assert!(node.kubelet_log().contains("running with swap on is not supported"), "{}", node.kubelet_log());
    node.configure(json!({"failSwapOn": false}));
}

/// A Burstable container gets the share of the node's swap that its memory request has of the memory, the others none.
fn check_swap_limits(request: i64, scopes: &[PathBuf; 3]) {
    let share = request * kernel_bytes("SwapTotal:") / memory_bytes() / 4096 * 4096;
    assert!(share > 0, "the machine swaps");
    let limits = scopes.each_ref().map(|scope| read(scope, "memory.swap.max"));
    assert_eq!(limits, ["0".to_owned(), share.to_string(), "0".to_owned()]);
}

/// The kubelet, the runtime, and the processes of the root cgroup are moved; a process in another cgroup stays there.
fn check_process_cgroups(node: &Node, in_root: &InRoot) {
    let runtime = node.containerd().pid().expect("it runs");
    let named = [
        (node.kubelet_pid(), "guest-daemons/kubelet"),
        (runtime, "guest-daemons/runtime"),
        (in_root.0.id(), "guest-system"),
    ];
    for (pid, cgroup) in named {
        node.eventually("it is moved", |_| {
            let now = cgroup_of(pid);
            let is_there = now == Path::new("/sys/fs/cgroup").join(cgroup);
            if is_there { Ok(()) } else { Err(format!("{cgroup}: {}", now.display())) }
        });
    }
    assert!(cgroup_of(std::process::id()).starts_with("/sys/fs/cgroup/system.slice"));
    assert_eq!(cgroup_of(1), Path::new("/sys/fs/cgroup/init.scope"));
    let score = std::fs::read_to_string(format!("/proc/{runtime}/oom_score_adj")).expect("a score");
    assert_eq!(score.trim(), "-999");
}
