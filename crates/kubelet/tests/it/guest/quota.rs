//! Project quotas: volumes whose size the filesystem counts. The kernels of many build machines do not support them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;

use fakes::FakeRuntime;
use serde_json::{Value, json};

use crate::node::{FOREVER, Node, shell_pod, uid};
use harness::SmallDisk;

const MEBIBYTE: u64 = 1 << 20;

fn write(path: PathBuf, mebibytes: u64) -> File {
    let mut file = File::create(path).expect("a file");
    (0..mebibytes).for_each(|_| file.write_all(&[7; 1 << 20]).expect("enough space"));
    // What is not yet on the disk may not be counted yet.
    file.sync_all().expect("it is written");
    file
}

/// The whole MiB that the summary reports for the volume of each pod.
fn used(node: &Node) -> Result<BTreeMap<String, u64>, String> {
    let summary: Value =
        serde_json::from_str(&node.get("/stats/summary")?).map_err(|error| error.to_string())?;
    let pods = summary["pods"].as_array().ok_or("no pods")?.iter();
    let of_pod = |pod: &Value| {
        let name = pod["podRef"]["name"].as_str()?.trim_end_matches("-node").to_owned();
        Some((name, pod["volume"][0]["usedBytes"].as_u64()? / MEBIBYTE))
    };
    Ok(pods.filter_map(of_pod).collect())
}

fn until_used(node: &Node, what: &str, expected: [(&str, u64); 3]) {
    let expected: BTreeMap<String, u64> = expected.map(|(name, used)| (name.to_owned(), used)).into();
    node.eventually(what, |node| {
        let used = used(node)?;
        if used == expected { Ok(()) } else { Err(format!("{used:?}")) }
    });
}

/// The runtime is a fake one, because that of the guest is too old for user namespaces; the kubelet's work on the filesystem is
/// real.
#[test]
#[ignore = "needs a filesystem with project quotas: scripts/vm"]
fn project_quota_counts_volumes_of_user_namespace_pods_over_restarts() {
    let gates = json!({"LocalStorageCapacityIsolationFSQuotaMonitoring": true});
    let runtime = FakeRuntime::with_clock(ports::Clock::system());
    let mut node = Node::with_fake(&runtime, json!({"featureGates": gates, "volumeStatsAggPeriod": "1ms"}));
    let disk = SmallDisk::with_quotas(node.path("root"), 128);
    node.start_kubelet();
    let mut volumes = BTreeMap::new();
    for (name, host_users) in [("one", false), ("two", false), ("node", true)] {
        let mut pod = shell_pod(name, FOREVER);
        pod["spec"]["hostUsers"] = host_users.into();
        pod["spec"]["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
        pod["spec"]["containers"][0]["imagePullPolicy"] = "IfNotPresent".into();
        node.apply(name, &pod);
        let volume = format!("root/pods/{}/volumes/kubernetes.io~empty-dir/data", uid(&node.running(name)));
        volumes.insert(name, node.path(&volume));
    }
    // Walking a volume does not find a file that is deleted and still open.
    let open: Vec<File> = ["one", "node"].map(|name| write(volumes[name].join("deleted"), 4)).into();
    for name in ["one", "node"] {
        fs::remove_file(volumes[name].join("deleted")).expect("it is deleted");
    }
    fs::create_dir(volumes["two"].join("below")).expect("a directory");
    write(volumes["one"].join("kept"), 1);
    write(volumes["two"].join("below/kept"), 2);
    until_used(&node, "the filesystem has counted", [("one", 5), ("two", 2), ("node", 0)]);

    write(volumes["one"].join("more"), 2);
    node.restart_kubelet();
    until_used(&node, "the projects are found again", [("one", 7), ("two", 2), ("node", 0)]);
    drop(open);
    let pods = volumes.keys().map(|name| (*name, uid(&node.running(name))));
    let pods: BTreeMap<&str, String> = pods.collect();
    pods.keys().for_each(|name| node.delete(name));
    pods.iter().for_each(|(name, uid)| node.wait_until_gone(name, uid));
    node.kill_kubelet();
    drop(disk);
}
