//! A node under pressure, with real disks, real memory and a real runtime: which pods are evicted, what kubectl shows, and that
//! the node recovers.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fixtures::stretched;
use rustix::fs::{Mode, OFlags};
use serde_json::{Value, json};

use crate::node::{FOREVER, condition, shell_pod, uid};
use crate::resources::{is_v2, memory_bytes};
use harness::SmallDisk;

use super::{Cluster, bound};

/// A pod that writes and keeps running, with a volume at `/data`.
fn writer(name: &str, script: &str, volume: Value) -> Value {
    let mut pod = bound(shell_pod(name, &format!("{script}; {FOREVER}")));
    pod["spec"]["volumes"] = json!([{"name": "data", "emptyDir": volume}]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    pod
}

fn fill(mebibytes: u64) -> String {
    format!("dd if=/dev/zero of=/data/file bs=1M count={mebibytes}")
}

/// Waits until kubectl shows the pod as evicted with a message that begins like this; returns it.
#[track_caller]
pub(super) fn evicted(cluster: &Cluster, name: &str, prefix: &str) -> Value {
    let pod = cluster.pod_when(name, "is evicted", |pod| pod["status"]["reason"] == "Evicted");
    let message = pod["status"]["message"].as_str().unwrap_or_default();
    assert!(message.starts_with(prefix), "{name}: {message}");
    assert_eq!(pod["status"]["phase"], "Failed");
    cluster.node.eventually("an event has the same message", |_| {
        let events = cluster.events("Pod", name);
        let is_reported = events.iter().any(|event| *event == format!("Evicted: {message}"));
        if is_reported { Ok(()) } else { Err(format!("{events:?}")) }
    });
    pod
}

#[track_caller]
pub(super) fn node_shows(cluster: &Cluster, kind: &str, status: &str, reason: &str) {
    cluster.node.eventually(&format!("kubectl shows that {kind} is {status}"), |_| {
        let node = cluster.kubectl.get("node", "node")?;
        let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let shown = conditions.iter().find(|c| c["type"] == kind).cloned().unwrap_or_default();
        if shown["status"] == status && shown["reason"] == reason { Ok(()) } else { Err(shown.to_string()) }
    });
}

#[test]
fn disk_pressure_evicts_the_largest_pod_and_ephemeral_storage_limits_evict_without_pressure() {
    let disk = SmallDisk::new(96, 2000);
    let processes = (processes_left() - 500).to_string();
    let mut cluster = Cluster::with_node(crate::node::Node::on_containerd(json!({
        "evictionHard": {"nodefs.available": "30Mi", "nodefs.inodesFree": "1k", "pid.available": processes},
        "evictionPressureTransitionPeriod": "1s",
        "volumeStatsAggPeriod": "1s",
    })));
    cluster.node.add_flags(&["--root-dir", disk.path().to_str().expect("a path")]);
    cluster.node.start_kubelet();
    cluster.wait_until_ready();

    // Together they leave the node enough; two of them exceed their limits.
    let mut limited = writer("limited", &fill(4), json!({}));
    limited["spec"]["containers"][0]["resources"] = json!({"limits": {"ephemeral-storage": "3Mi"}});
    cluster.kubectl.create(&[
        writer("small", &fill(1), json!({})),
        writer("sized", &fill(3), json!({"sizeLimit": "2Mi"})),
        limited,
    ]);
    let sized = evicted(&cluster, "sized", "Usage of EmptyDir volume \"data\" exceeds the limit \"2Mi\". ");
    assert_eq!(condition(&sized, "DisruptionTarget"), "", "the error is its own");
    evicted(
        &cluster,
        "limited",
        "Pod ephemeral local storage usage exceeds the total limit of containers 3Mi. ",
    );
    cluster.running("small");

    cluster.kubectl.create(&[writer("big", &fill(60), json!({}))]);
    let big = evicted(
        &cluster,
        "big",
        "The node was low on resource: ephemeral-storage. Threshold quantity: 30Mi, available: ",
    );
    assert_eq!(condition(&big, "DisruptionTarget"), "True");
    node_shows(&cluster, "DiskPressure", "False", "KubeletHasNoDiskPressure");

    // Its files are gone, so bytes and inodes are free again.
    let many = "i=0; while [ $i -lt 1200 ]; do : > /data/$i; i=$((i + 1)); done";
    create_after_pressure(&cluster, "many", many);
    evicted(&cluster, "many", "The node was low on resource: inodes. Threshold quantity: 1k, available: ");
    create_after_pressure(&cluster, "next", &fill(1));
    cluster.running("next");
    too_many_processes(&cluster, &processes);
    cluster.running("small");
    let events = cluster.events("Node", "node");
    for event in [
        "EvictionThresholdMet: Attempting to reclaim ephemeral-storage",
        "EvictionThresholdMet: Attempting to reclaim inodes",
        "EvictionThresholdMet: Attempting to reclaim pids",
        "NodeHasInsufficientPID: Node node status is now: NodeHasInsufficientPID",
        "NodeHasSufficientPID: Node node status is now: NodeHasSufficientPID",
        "NodeHasDiskPressure: Node node status is now: NodeHasDiskPressure",
        "NodeHasNoDiskPressure: Node node status is now: NodeHasNoDiskPressure",
    ] {
        assert!(events.iter().any(|other| other == event), "{event}\n{events:#?}");
    }
    let metrics = cluster.node.get("/metrics").expect("metrics");
    for signal in
        ["emptydirfs.limit", "ephemeralpodfs.limit", "nodefs.available", "nodefs.inodesFree", "pid.available"]
    {
        let line = format!("kubelet_evictions{{eviction_signal=\"{signal}\"}} 1");
        assert!(metrics.contains(&line), "{line}\n{metrics}");
    }
}

/// Creates a writer once more each time it is refused, because the API may show the end of a disk pressure before the node has
/// noticed it, or still the time before.
fn create_after_pressure(cluster: &Cluster, name: &str, script: &str) {
    let create = || cluster.kubectl.create(&[writer(name, script, json!({}))]);
    create();
    cluster.node.eventually(&format!("{name} is admitted"), |_| {
        let pod = cluster.kubectl.get("pod", name)?;
        let message = pod["status"]["message"].as_str().unwrap_or_default();
        if message == "Pod was rejected: The node had condition: [DiskPressure]. " {
            cluster.kubectl.delete(name);
            cluster.wait_until_gone(&pod);
            create();
            return Err("refused".to_owned());
        }
        match pod["status"]["phase"].as_str() {
            Some("Running" | "Failed") => Ok(()),
            phase => Err(format!("{phase:?}")),
        }
    });
}

/// How many more processes this machine can have.
fn processes_left() -> i64 {
    let number = |path: &str| -> i64 {
        let text = std::fs::read_to_string(path).expect("a file of the kernel");
        text.trim().parse().expect("a number")
    };
    let load = std::fs::read_to_string("/proc/loadavg").expect("loadavg");
    let running = load.split([' ', '/']).nth(4).and_then(|all| all.parse::<i64>().ok()).expect("processes");
    number("/proc/sys/kernel/pid_max").min(number("/proc/sys/kernel/threads-max")) - running
}

/// A pod that starts more processes than the machine can spare is evicted; one next to it with a few stays.
fn too_many_processes(cluster: &Cluster, threshold: &str) {
    let start_processes =
        |number: u32| format!("i=0; while [ $i -lt {number} ]; do sleep 3600 & i=$((i + 1)); done");
    cluster.kubectl.create(&[bound(shell_pod("few", &format!("{}; {FOREVER}", start_processes(5))))]);
    cluster.running("few");
    cluster.kubectl.create(&[bound(shell_pod("crowd", &format!("{}; {FOREVER}", start_processes(800))))]);
    let prefix = format!("The node was low on resource: pids. Threshold quantity: {threshold}, available: ");
    let crowd = evicted(cluster, "crowd", &prefix);
    assert_eq!(condition(&crowd, "DisruptionTarget"), "True");
    node_shows(cluster, "PIDPressure", "False", "KubeletHasSufficientPID");
    cluster.running("few");
}

/// The memory of this machine, reduced by so much.
fn all_memory_but(mebibytes: i64) -> String {
    (memory_bytes() - (mebibytes << 20)).to_string()
}

/// All pods together may use 500 MiB, of which 250 are the eviction threshold, and 330 before. The memory pressure lasts long
/// enough to test which pods the node admits then.
fn short_of_memory() -> Cluster {
    let period = format!("{}s", stretched(Duration::from_secs(15)).as_secs());
    Cluster::with_node(crate::node::Node::on_containerd(json!({
        "systemReserved": {"memory": all_memory_but(500)},
        "evictionHard": {"memory.available": "250Mi"},
        "evictionMinimumReclaim": {"memory.available": "80Mi"},
        "evictionPressureTransitionPeriod": period,
        "kernelMemcgNotification": true,
    })))
}

/// A pod with this memory request.
fn requesting(mut pod: Value, memory: &str) -> Value {
    pod["spec"]["containers"][0]["resources"] = json!({"requests": {"memory": memory}});
    pod
}

/// A class with this priority.
fn priority_class(name: &str, value: i32) -> Value {
    json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value})
}

/// A pod of this priority class, or of none, that allocates so much memory when it is triggered.
fn memory_pod(name: &str, class: &str, bytes: u64) -> Value {
    let wait = "mkfifo /data/begin; read word < /data/begin";
    let script = format!("{wait}; {}; : > /data/done", fill(bytes));
    let mut pod = writer(name, &script, json!({"medium": "Memory"}));
    pod["spec"]["priorityClassName"] = class.into();
    pod
}

/// Triggers the allocation of a running pod; returns the directory it writes to. A pod that starts by itself may be evicted
/// before the kubelet has seen its container run.
fn trigger(cluster: &Cluster, name: &str) -> PathBuf {
    let pod = cluster.running(name);
    let dir = format!("root/pods/{}/volumes/kubernetes.io~empty-dir/data", uid(&pod));
    let dir = cluster.node.path(&dir);
    let pipe = cluster.node.eventually("the pod waits for its trigger", |_| {
        // Without a reader that is an error.
        let how = OFlags::WRONLY | OFlags::NONBLOCK;
        rustix::fs::open(dir.join("begin"), how, Mode::empty()).map_err(|e| e.to_string())
    });
    let mut pipe = File::from(pipe);
    pipe.write_all(b"begin\n").expect("it reads");
    dir
}

/// Does the same; returns once everything is allocated.
fn trigger_and_wait(cluster: &Cluster, name: &str) {
    let dir = trigger(cluster, name);
    cluster.node.eventually("the pod has allocated its memory", |_| {
        if dir.join("done").exists() { Ok(()) } else { Err(format!("{name} allocates")) }
    });
}

#[test]
fn memory_pressure_evicts_the_pod_over_its_request() {
    let mut cluster = short_of_memory();
    let log = cluster.node.path("kernel-log");
    rustix::fs::mknodat(rustix::fs::CWD, &log, rustix::fs::FileType::Fifo, 0o600.into(), 0).expect("a pipe");
    cluster.node.set_variable("KUBELET_KERNEL_LOG", log.clone());
    cluster.node.start_kubelet();
    cluster.wait_until_ready();
    cluster.kubectl.create(&[
        priority_class("high", 1000),
        priority_class("low", -1),
        requesting(memory_pod("modest", "", 50), "100Mi"),
        requesting(memory_pod("important", "high", 50), "10Mi"),
        memory_pod("free", "", 80),
        requesting(memory_pod("greedy", "low", 110), "10Mi"),
    ]);
    for name in ["modest", "important", "free"] {
        trigger_and_wait(&cluster, name);
    }
    cluster.running("greedy");
    wait_for_observation(&cluster);
    trigger(&cluster, "greedy");
    let short = "The node was low on resource: memory. Threshold quantity: 250Mi, available: ";
    let greedy = evicted(&cluster, "greedy", short);
    let message = greedy["status"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("Container main was using "), "{message}");
    assert!(message.contains(", request is 10Mi, has larger consumption of memory. "), "{message}");
    if !is_v2() {
        // The kernel notified the kubelet, without waiting for the next observation.
        let log = cluster.node.kubelet_log();
        let (before, _) =
            log.split_once("Eviction threshold met, attempting to reclaim").expect("it was logged");
        assert!(before.contains("Memory threshold crossed, notified by the kernel"), "{before}");
    }
    let free = evicted(&cluster, "free", short);
    let message = free["status"]["message"].as_str().unwrap_or_default();
    assert!(message.contains(", request is 0, has larger consumption of memory. "), "{message}");

    check_admission_under_memory_pressure(&cluster);
    node_shows(&cluster, "MemoryPressure", "False", "KubeletHasSufficientMemory");
    cluster.kubectl.create(&[bound(shell_pod("next", FOREVER))]);
    for name in ["modest", "important", "next"] {
        cluster.running(name);
    }
    let events = cluster.events("Node", "node");
    let expected = "NodeHasInsufficientMemory: Node node status is now: NodeHasInsufficientMemory";
    assert!(events.iter().any(|event| event == expected), "{events:#?}");
    check_system_oom_event(&cluster, &log);
}

/// Waits until the kubelet has just observed the available memory, so that its next observation is far away.
fn wait_for_observation(cluster: &Cluster) {
    let observations = || {
        let log = cluster.node.kubelet_log();
        log.lines()
            .filter(|line| line.contains("Started kernel memory notification") && line.contains("/kubepods"))
            .count()
    };
    let before = observations();
    cluster.node.eventually("the kubelet observes the available memory", |_| {
        let now = observations();
        if is_v2() || now > before { Ok(()) } else { Err(format!("{now} observations")) }
    });
}

/// Pods with a memory request, pods that are admitted nevertheless, and critical pods.
fn check_admission_under_memory_pressure(cluster: &Cluster) {
    node_shows(cluster, "MemoryPressure", "True", "KubeletHasInsufficientMemory");
    let mut tolerant = bound(shell_pod("tolerant", FOREVER));
    tolerant["spec"]["tolerations"] =
        json!([{"key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": "NoSchedule"}]);
    cluster.node.apply("static", &shell_pod("static", FOREVER));
    let late = bound(shell_pod("late", FOREVER));
    cluster.kubectl.create(&[late, tolerant, requesting(bound(shell_pod("asking", FOREVER)), "1Mi")]);
    let late = cluster.pod_when("late", "is rejected", |pod| pod["status"]["reason"] == "Evicted");
    let message = "Pod was rejected: The node had condition: [MemoryPressure]. ";
    assert_eq!(late["status"]["message"], message);
    cluster.running("tolerant");
    cluster.running("asking");
    cluster.node.running("static");
}

fn check_system_oom_event(cluster: &Cluster, log: &Path) {
    let mut kernel = File::options().write(true).open(log).expect("the kubelet reads it");
    kernel
        .write_all(b"3,1,2,-;Out of memory: Killed process 4711 (java) total-vm:1kB, anon-rss:1kB\n")
        .expect("it is written");
    cluster.node.eventually("kubectl shows that the machine was out of memory", |_| {
        let events = cluster.events("Node", "node");
        let event = "SystemOOM: System OOM encountered, victim process: java, pid: 4711";
        if events.iter().any(|other| other == event) { Ok(()) } else { Err(format!("{events:#?}")) }
    });
}
