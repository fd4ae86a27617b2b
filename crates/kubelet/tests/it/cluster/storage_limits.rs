//! Limits of ephemeral storage hold wherever a container can write.

use std::path::Path;

use rustix::fs::{FallocateFlags, Mode, OFlags};
use serde_json::{Value, json};

use crate::node::{FOREVER, Node, shell_pod, uid};

use super::pressure::evicted;
use super::{Cluster, bound};

const LIMIT: &str = "100M";
const PASSED: u64 = 200 << 20;

/// A pod that runs the script and keeps running, with a limit of 100 MB and a volume.
fn limited(name: &str, work: &str) -> Value {
    let mut pod = bound(shell_pod(name, &format!("{work}; {FOREVER}")));
    pod["spec"]["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
    let main = &mut pod["spec"]["containers"][0];
    main["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    main["resources"] = json!({"limits": {"ephemeral-storage": LIMIT}});
    pod
}

/// A file at the end of a path that is longer than PATH_MAX.
fn write_deeper_than_path_max(volume: &Path, bytes: u64) {
    let directory = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let name = "d".repeat(100);
    let mut here = rustix::fs::open(volume, directory, Mode::empty()).expect("the volume");
    for _ in 0..60 {
        rustix::fs::mkdirat(&here, &name, Mode::RWXU).expect("a directory");
        here = rustix::fs::openat(&here, &name, directory, Mode::empty()).expect("a directory");
    }
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&here, "file", flags, Mode::RUSR).expect("a file");
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes).expect("space");
}

/// CVE-2020-8557 for the hosts file. All pods have the same limit.
#[test]
fn etc_hosts_termination_log_and_files_deeper_than_path_max_count_toward_ephemeral_storage_limits() {
    let mut cluster = Cluster::with_node(Node::on_containerd(json!({"volumeStatsAggPeriod": "1s"})));
    cluster.node.start_kubelet();
    cluster.wait_until_ready();
    let dd = |file: &str, mebibytes: u64| format!("dd if=/dev/zero of={file} bs=1M count={mebibytes}");
    cluster.kubectl.create(&[
        limited("neighbour", &dd("/etc/hosts", 20)),
        limited("hosts", &dd("/etc/hosts", 200)),
        limited("message", &dd("/dev/termination-log", 200)),
        limited("deep", "true"),
    ]);
    let deep = uid(&cluster.running("deep"));
    let volume = cluster.node.path("root/pods").join(&deep).join("volumes/kubernetes.io~empty-dir/data");
    write_deeper_than_path_max(&volume, PASSED);
    for name in ["hosts", "message", "deep"] {
        let prefix = "Pod ephemeral local storage usage exceeds the total limit of containers 100M. ";
        evicted(&cluster, name, prefix);
    }
    cluster.node.eventually("the summary counts the hosts file of the neighbour", |node| {
        let summary: Value =
            serde_json::from_str(&node.get("/stats/summary")?).map_err(|error| error.to_string())?;
        let pods = summary["pods"].as_array().cloned().unwrap_or_default();
        let neighbour = pods.iter().find(|pod| pod["podRef"]["name"] == "neighbour");
        let used = neighbour.and_then(|pod| pod.pointer("/ephemeral-storage/usedBytes")?.as_u64());
        match used {
            Some(used) if (20 << 20..40 << 20).contains(&used) => Ok(()),
            used => Err(format!("{used:?}")),
        }
    });
    let neighbour = cluster.running("neighbour");
    assert_eq!(neighbour["status"]["reason"], Value::Null, "{neighbour}");
}
