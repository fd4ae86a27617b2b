//! A node that runs short, with real disks, real memory and a real runtime: who goes, what kubectl shows of it, and that
//! the node is well again.

use std::io::Write;

use model::Amount;
use serde_json::{Value, json};

use crate::node::{FOREVER, condition, shell_pod};
use crate::small_disk::SmallDisk;

use super::{Cluster, bound};

/// A pod that writes and stays, with a volume at `/data`.
fn writer(name: &str, script: &str, volume: Value) -> Value {
    let mut pod = bound(shell_pod(name, &format!("{script}; {FOREVER}")));
    pod["spec"]["volumes"] = json!([{"name": "data", "emptyDir": volume}]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    pod
}

fn fill(mebibytes: u64) -> String {
    format!("dd if=/dev/zero of=/data/file bs=1M count={mebibytes}")
}

/// Waits until kubectl shows the pod as evicted with words that begin like this; returns it.
#[track_caller]
fn evicted(cluster: &Cluster, name: &str, words: &str) -> Value {
    let pod = cluster.shown_when(name, "is evicted", |pod| pod["status"]["reason"] == "Evicted");
    let message = pod["status"]["message"].as_str().unwrap_or_default();
    assert!(message.starts_with(words), "{name}: {message}");
    assert_eq!(pod["status"]["phase"], "Failed");
    cluster.node.eventually("an event says the same", |_| {
        let events = cluster.events("Pod", name);
        let is_told = events.iter().any(|event| *event == format!("Evicted: {message}"));
        if is_told { Ok(()) } else { Err(format!("{events:?}")) }
    });
    pod
}

#[track_caller]
fn node_shows(cluster: &Cluster, kind: &str, status: &str, reason: &str) {
    cluster.node.eventually(&format!("kubectl shows that {kind} is {status}"), |_| {
        let node = cluster.kubectl.get("node", "node")?;
        let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let shown = conditions.iter().find(|c| c["type"] == kind).cloned().unwrap_or_default();
        if shown["status"] == status && shown["reason"] == reason { Ok(()) } else { Err(shown.to_string()) }
    });
}

#[test]
fn a_disk_that_fills_up_takes_who_has_most_on_it_and_limits_hold_without_a_shortage() {
    let disk = SmallDisk::new(96, 2000);
    let mut cluster = Cluster::around(crate::node::Node::on_containerd(json!({
        "evictionHard": {"nodefs.available": "30Mi", "nodefs.inodesFree": "1k"},
        "evictionPressureTransitionPeriod": "1s",
        "volumeStatsAggPeriod": "1s",
    })));
    cluster.node.add_flags(&["--root-dir", disk.path().to_str().expect("a path")]);
    cluster.node.start_kubelet();
    cluster.ready();

    // Together they leave the node enough; two of them take more than they may.
    let mut limited = writer("limited", &fill(4), json!({}));
    limited["spec"]["containers"][0]["resources"] = json!({"limits": {"ephemeral-storage": "3Mi"}});
    cluster.kubectl.apply(&[
        writer("small", &fill(1), json!({})),
        writer("sized", &fill(3), json!({"sizeLimit": "2Mi"})),
        limited,
    ]);
    let sized = evicted(&cluster, "sized", "Usage of EmptyDir volume \"data\" exceeds the limit \"2Mi\". ");
    assert_eq!(condition(&sized, "DisruptionTarget"), "", "it is its own fault");
    evicted(
        &cluster,
        "limited",
        "Pod ephemeral local storage usage exceeds the total limit of containers 3Mi. ",
    );
    cluster.running("small");

    cluster.kubectl.apply(&[writer("big", &fill(60), json!({}))]);
    let big = evicted(
        &cluster,
        "big",
        "The node was low on resource: ephemeral-storage. Threshold quantity: 30Mi, available: ",
    );
    assert_eq!(condition(&big, "DisruptionTarget"), "True");
    node_shows(&cluster, "DiskPressure", "False", "KubeletHasNoDiskPressure");

    // Its files are gone, so there is room again, for bytes and for others.
    let many = "i=0; while [ $i -lt 1200 ]; do : > /data/$i; i=$((i + 1)); done";
    cluster.kubectl.apply(&[writer("many", many, json!({}))]);
    evicted(&cluster, "many", "The node was low on resource: inodes. Threshold quantity: 1k, available: ");
    cluster.kubectl.apply(&[writer("next", &fill(1), json!({}))]);
    cluster.node.eventually("the next pod finds the node well", |_| {
        match cluster.kubectl.get("pod", "next")?["status"]["phase"].as_str() {
            Some("Running") => Ok(()),
            Some("Failed") => {
                // It came while the node still showed the shortage.
                cluster.kubectl.ok(&["delete", "pod", "next"]);
                cluster.kubectl.apply(&[writer("next", &fill(1), json!({}))]);
                Err("refused".to_owned())
            }
            phase => Err(format!("{phase:?}")),
        }
    });
    cluster.running("small");
    let told = cluster.events("Node", "node");
    for event in [
        "EvictionThresholdMet: Attempting to reclaim ephemeral-storage",
        "EvictionThresholdMet: Attempting to reclaim inodes",
        "NodeHasDiskPressure: Node node status is now: NodeHasDiskPressure",
        "NodeHasNoDiskPressure: Node node status is now: NodeHasNoDiskPressure",
    ] {
        assert!(told.iter().any(|told| told == event), "{event}\n{told:#?}");
    }
    let metrics = cluster.node.get("/metrics").expect("metrics");
    for signal in ["emptydirfs.limit", "ephemeralpodfs.limit", "nodefs.available", "nodefs.inodesFree"] {
        let line = format!("kubelet_evictions{{eviction_signal=\"{signal}\"}} 1");
        assert!(metrics.contains(&line), "{line}\n{metrics}");
    }
}

/// The memory of this machine, less so much.
fn all_memory_but(mebibytes: i64) -> String {
    let text = std::fs::read_to_string("/proc/meminfo").expect("meminfo");
    let total = text.lines().next().and_then(|line| line.split_whitespace().nth(1)).expect("MemTotal");
    let total = Amount::parse(&format!("{total}Ki")).expect("an amount").units();
    (total - (mebibytes << 20)).to_string()
}

#[test]
fn pods_that_run_short_of_memory_lose_who_took_more_than_it_asked_for() {
    // What pods have together is 500 MiB, of which 250 are to be kept free.
    let mut cluster = Cluster::around(crate::node::Node::on_containerd(json!({
        "systemReserved": {"memory": all_memory_but(500)},
        "evictionHard": {"memory.available": "250Mi"},
        "evictionPressureTransitionPeriod": "5s",
    })));
    let log = cluster.node.path("kernel-log");
    rustix::fs::mknodat(rustix::fs::CWD, &log, rustix::fs::FileType::Fifo, 0o600.into(), 0).expect("a pipe");
    cluster.node.set_variable("KUBELET_KERNEL_LOG", log.clone());
    cluster.node.start_kubelet();
    cluster.ready();
    let in_memory = json!({"medium": "Memory"});
    let asking = |name: &str, request: &str, takes: u64| {
        let mut pod = writer(name, &fill(takes), in_memory.clone());
        pod["spec"]["containers"][0]["resources"] = json!({"requests": {"memory": request}});
        pod
    };
    let mut important = asking("important", "10Mi", 60);
    important["spec"]["priority"] = json!(1000);
    cluster.kubectl.apply(&[asking("modest", "100Mi", 60), important]);
    cluster.running("modest");
    cluster.running("important");
    cluster.kubectl.apply(&[asking("greedy", "10Mi", 200)]);
    let greedy = evicted(
        &cluster,
        "greedy",
        "The node was low on resource: memory. Threshold quantity: 250Mi, available: ",
    );
    let message = greedy["status"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("Container main was using "), "{message}");
    assert!(message.contains(", request is 10Mi, has larger consumption of memory. "), "{message}");
    node_shows(&cluster, "MemoryPressure", "False", "KubeletHasSufficientMemory");
    cluster.running("modest");
    cluster.running("important");
    let told = cluster.events("Node", "node");
    let turned = "NodeHasInsufficientMemory: Node node status is now: NodeHasInsufficientMemory";
    assert!(told.iter().any(|told| told == turned), "{told:#?}");

    let mut kernel = std::fs::OpenOptions::new().write(true).open(&log).expect("the kubelet reads it");
    kernel
        .write_all(b"3,1,2,-;Out of memory: Killed process 4711 (java) total-vm:1kB, anon-rss:1kB\n")
        .expect("it is written");
    cluster.node.eventually("kubectl shows that the machine was out of memory", |_| {
        let told = cluster.events("Node", "node");
        let event = "SystemOOM: System OOM encountered, victim process: java, pid: 4711";
        if told.iter().any(|told| told == event) { Ok(()) } else { Err(format!("{told:#?}")) }
    });
}
