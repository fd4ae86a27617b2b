//! Many pods at once.

use std::time::Instant;

use serde_json::{Value, json};

use crate::node::{FOREVER, Node, condition, shell_pod};
use fakes::FakeRuntime;
use fixtures::reduced;

use super::watch::{Watch, violations};
use super::{Cluster, bound};

/// Updates of a pod: sandbox, container, deletion requested, container exited, sandbox stopped; some take two.
const MAX_CHANGES: usize = 12;

/// Creates that many pods at once, waits until all run, deletes them all, and checks every watch event.
fn create_and_delete(cluster: &Cluster, count: usize, pod: impl Fn(&str) -> Value) {
    cluster.wait_until_ready();
    let watch = Watch::pods(&cluster.kubectl, cluster.node.path("watch.json"));
    let names: Vec<String> = (0..count).map(|n| format!("pod-{n:03}")).collect();
    let pods: Vec<Value> = names.iter().map(|name| bound(pod(name))).collect();
    let began = Instant::now();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": pods});
    cluster.kubectl.run_with_input(&["create", "-f", "-"], &list.to_string());
    let created = began.elapsed();
    cluster.node.eventually("all run", |_| {
        let all = cluster.kubectl.pods()?;
        let ready = all.iter().filter(|pod| condition(pod, "Ready") == "True").count();
        if ready == count { Ok(()) } else { Err(format!("{ready} of {} are ready", all.len())) }
    });
    let ran = began.elapsed();
    cluster.kubectl.ok(&["delete", "pods", "--all"]);
    let deleted = began.elapsed();
    cluster.node.eventually("the watch has reported every termination", |_| {
        let deleted = watch.count("DELETED");
        if deleted == count { Ok(()) } else { Err(format!("{deleted} were deleted")) }
    });
    let events = watch.events();
    eprintln!("{count} pods: created {created:?}, ran {ran:?}, deleted {deleted:?}, {} events", events.len());
    assert_eq!(watch.count("ADDED"), count);
    assert_eq!(violations(&events, MAX_CHANGES), Vec::<String>::new());
    cluster.node.eventually("the node has no trace of them", |node| {
        let pods = node.pods();
        if pods.is_empty() { Ok(()) } else { Err(format!("{} pods", pods.len())) }
    });
}

/// Mounts below the node's own directory.
pub(super) fn mounts_of(node: &Node) -> Vec<String> {
    let top = node.path("root").canonicalize().expect("a directory").display().to_string();
    let table = std::fs::read_to_string("/proc/self/mountinfo").expect("a mount table");
    table.lines().filter(|line| line.contains(&top)).map(str::to_owned).collect()
}

#[test]
fn hundred_pods_start_and_terminate_with_only_expected_watch_events() {
    let runtime = FakeRuntime::with_clock(ports::Clock::system());
    let cluster = Cluster::on_fake(&runtime);
    cluster.kubectl.apply(&[
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cfg"}, "data": {"a": "b"}}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}, "stringData": {"a": "b"}}),
    ]);
    let before = mounts_of(&cluster.node);
    create_and_delete(&cluster, reduced(100), |name| {
        let mut pod = shell_pod(name, FOREVER);
        pod["spec"]["volumes"] = json!([
            {"name": "disk", "emptyDir": {}},
            {"name": "memory", "emptyDir": {"medium": "Memory"}},
            {"name": "cfg", "configMap": {"name": "cfg"}},
            {"name": "keys", "secret": {"secretName": "keys"}},
            {"name": "meta", "downwardAPI": {"items": [{"path": "x", "fieldRef": {"fieldPath": "metadata.name"}}]}},
        ]);
        pod["spec"]["containers"][0]["imagePullPolicy"] = "IfNotPresent".into();
        pod
    });
    assert_eq!(mounts_of(&cluster.node), before);
    assert_eq!(crate::node::names_in(&cluster.node.path("root/pods")), Vec::<String>::new());
}

#[test]
fn hundred_pods_start_and_terminate_on_containerd() {
    let cluster = Cluster::start();
    create_and_delete(&cluster, reduced(100), |name| shell_pod(name, FOREVER));
    assert_eq!(crate::node::names_in(&cluster.node.path("root/pods")), Vec::<String>::new());
}
