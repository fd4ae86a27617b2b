//! The kubelet dies by SIGKILL right before and right after every mount, unmount, rename and file write and every creation of a
//! file, link or directory, and the next one continues. The `host` crate marks these moments (`host::fault`).

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use fakes::FakeRuntime;
use fixtures::stretched;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::cluster::volumes::{bind, set_bound};
use crate::node::{FOREVER, Node, condition, shell_pod, uid};

const TIMEOUT: Duration = Duration::from_secs(240);
/// A standalone kubelet waits for seconds after its start before it removes a pod, each time. The removal is tested with CSI volumes.
const SKIPPED: &str = "skip remove";

/// One volume of each kind of set-up: a directory, tmpfs, generated files, a host path, and a sub-path of a volume.
fn everything(node: &Node) -> Value {
    let mut pod = shell_pod("all", FOREVER);
    pod["spec"]["volumes"] = json!([
        {"name": "scratch", "emptyDir": {}},
        {"name": "memory", "emptyDir": {"medium": "Memory"}},
        {"name": "meta", "downwardAPI": {"items": [
            {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}},
            {"path": "deep/uid", "fieldRef": {"fieldPath": "metadata.uid"}},
        ]}},
        {"name": "host", "hostPath": {"path": node.path("host"), "type": "Directory"}},
    ]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([
        {"name": "memory", "mountPath": "/memory"},
        {"name": "meta", "mountPath": "/meta"},
        {"name": "scratch", "mountPath": "/part", "subPath": "part"},
        {"name": "host", "mountPath": "/host", "subPath": "kept"},
    ]);
    pod
}

/// Mounts of pods, as paths below the pod's directory.
fn mounts_below(node: &Node, uid: &str) -> Vec<String> {
    let top = node.path("root/pods").canonicalize().expect("a directory").join(uid);
    let table = std::fs::read_to_string("/proc/self/mountinfo").expect("a mount table");
    let points = table.lines().filter_map(|line| line.split(' ').nth(4));
    let mut below: Vec<String> = points
        .filter_map(|point| Some(Path::new(point).strip_prefix(&top).ok()?.display().to_string()))
        .collect();
    below.sort();
    below
}

/// Starts one kubelet after another until the condition holds; returns how many died.
fn survive_deaths(node: &mut Node, what: &str, mut is_so: impl FnMut(&Node) -> bool) -> usize {
    let (began, mut deaths) = (Instant::now(), 0);
    while !is_so(node) {
        assert!(
            began.elapsed() < stretched(TIMEOUT),
            "timed out waiting for: {what}\n{}",
            node.kubelet_log()
        );
        deaths += usize::from(node.restart_dead_kubelet());
        std::thread::park_timeout(Duration::from_millis(25));
    }
    deaths
}

/// Steps that every pod of this kind goes through, each with one moment before and one after it.
const STEPS: [&str; 16] = [
    "mount memory",
    "mount meta",
    "mount 2",
    "mount 3",
    "rename to ..data",
    "create memory/ready",
    "write (pod)/pod.json",
    "create (pod)/pod.json",
    "fill (temporary)",
    "create (pod)/status.json",
    "create (temporary)",
    "rename to status.json",
    "unmount memory",
    "unmount meta",
    "unmount 2",
    "unmount 3",
];
/// Volumes are set up concurrently: a death at one moment can skip that of another volume, which then happens with the next pod.
const MAX_PODS: usize = 5;

/// Creates and removes the pod while one kubelet dies at each new moment; returns how many died.
fn create_and_remove(node: &mut Node) -> usize {
    let mut pod = everything(node);
    pod["spec"]["containers"][0]["imagePullPolicy"] = "IfNotPresent".into();
    node.apply("all", &pod);
    let is_ready = |node: &Node| node.pod("all").is_some_and(|pod| condition(&pod, "Ready") == "True");
    let mut deaths = survive_deaths(node, "the pod runs", is_ready);
    let uid = uid(&node.pod("all").expect("the pod"));
    assert_eq!(
        mounts_below(node, &uid),
        [
            "volume-subpaths/host/main/3",
            "volume-subpaths/scratch/main/2",
            "volumes/kubernetes.io~downward-api/meta",
            "volumes/kubernetes.io~empty-dir/memory",
        ]
    );
    let dir = node.path("root/pods").join(&uid);
    let meta = dir.join("volumes/kubernetes.io~downward-api/meta");
    assert_eq!(std::fs::read_to_string(meta.join("name")).expect("a file"), "all-node");
    assert_eq!(std::fs::read_to_string(meta.join("deep/uid")).expect("a file"), uid);

    node.delete("all");
    deaths += survive_deaths(node, "nothing is left", |_| !dir.exists());
    assert_eq!(mounts_below(node, &uid), Vec::<String>::new());
    deaths
}

pub(crate) fn moments(points: &Path) -> BTreeSet<String> {
    let passed = std::fs::read_to_string(points).expect("the moments");
    passed.lines().filter(|line| *line != SKIPPED).map(str::to_owned).collect()
}

#[test]
fn kubelet_killed_around_each_volume_step_restores_the_exact_mounts_after_restart() {
    let runtime = FakeRuntime::with_clock(ports::Clock::system());
    let mut node = Node::with_fake(&runtime, json!({}));
    let points = node.path("points");
    set_moments(&points, std::iter::empty());
    node.set_variable("KUBELET_FAULT_POINTS", points.clone());
    std::fs::create_dir_all(node.path("host/kept/data")).expect("a directory");
    let due = STEPS.iter().flat_map(|step| ["before", "after"].map(|moment| format!("{moment} {step}")));
    let due: BTreeSet<String> = due.collect();

    let mut deaths = 0;
    for _ in 0..MAX_PODS {
        deaths += create_and_remove(&mut node);
        if due.is_subset(&moments(&points)) {
            break;
        }
    }
    let passed = moments(&points);
    let missed: Vec<&String> = due.difference(&passed).collect();
    assert!(missed.is_empty(), "not visited: {missed:?} among {passed:#?}");
    assert!(node.path("host/kept/data").is_dir(), "the target of a subPath is never removed");
    // The first start is counted with the deaths, and the last kubelet lives.
    assert!(deaths > passed.len() - 2, "{deaths} kubelets for {} moments", passed.len());
    eprintln!("{} moments, {deaths} kubelets", passed.len());
}

/// Steps of volumes of API objects.
const CLAIMED: [&str; 5] =
    ["mount pv-data", "remount pv-data", "fill (temporary)", "rename to ..data", "unmount pv-data"];
/// Steps that repeat with every update.
const UPDATE: [&str; 2] = ["fill (temporary)", "rename to ..data"];
/// Steps that every pod has; the other test covers them.
const COMMON: [&str; 4] =
    ["create (temporary)", "rename to status.json", "create (pod)/status.json", "create (pod)/pod.json"];

pub(crate) fn both<'a>(steps: &'a [&str]) -> impl Iterator<Item = String> + 'a {
    steps.iter().flat_map(|step| ["before", "after"].map(|moment| format!("{moment} {step}")))
}

fn set_moments(points: &Path, moments: impl Iterator<Item = String>) {
    let lines = [SKIPPED.to_owned()].into_iter().chain(moments);
    let text: String = lines.map(|line| format!("{line}\n")).collect();
    std::fs::write(points, text).expect("a file");
}

/// A local persistent volume through a claim, read-only and with mount options, and files that follow a ConfigMap.
fn claimed(cluster: &Cluster) -> Value {
    let disk = cluster.node.path("disk");
    std::fs::create_dir(&disk).expect("a directory");
    std::fs::write(disk.join("file"), "kept").expect("a file");
    bind(cluster, "data", json!({"local": {"path": disk}, "mountOptions": ["noexec"]}));
    set_bound(cluster, "data");
    let mut pod = shell_pod("all-node", FOREVER);
    pod["spec"]["nodeName"] = "node".into();
    pod["spec"]["containers"][0]["imagePullPolicy"] = "IfNotPresent".into();
    pod["spec"]["volumes"] = json!([
        {"name": "data", "persistentVolumeClaim": {"claimName": "data", "readOnly": true}},
        {"name": "cfg", "configMap": {"name": "cfg"}},
    ]);
    pod["spec"]["containers"][0]["volumeMounts"] =
        json!([{"name": "data", "mountPath": "/data"}, {"name": "cfg", "mountPath": "/cfg"}]);
    pod
}

fn config_map(color: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cfg"}, "data": {"color": color}})
}

#[test]
fn kubelet_killed_around_each_step_of_a_persistent_volume_or_update_continues_after_restart() {
    let runtime = FakeRuntime::with_clock(ports::Clock::system());
    let mut cluster = Cluster::with_node(Node::with_fake(&runtime, json!({})));
    let points = cluster.node.path("points");
    set_moments(&points, both(&COMMON));
    cluster.node.set_variable("KUBELET_FAULT_POINTS", points.clone());
    let pod = claimed(&cluster);
    cluster.kubectl.apply(&[config_map("red"), pod]);
    let is_ready = |node: &Node| node.pod("all").is_some_and(|pod| condition(&pod, "Ready") == "True");
    let mut deaths = survive_deaths(&mut cluster.node, "the pod runs", is_ready);
    let uid = uid(&cluster.node.pod("all").expect("the pod"));
    let dir = cluster.node.path("root/pods").join(&uid);
    let bound = "volumes/kubernetes.io~local-volume/pv-data";
    assert_eq!(mounts_below(&cluster.node, &uid), [bound]);
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("a mount table");
    let line = mounts.lines().find(|line| line.contains(&*uid)).expect("it is mounted");
    assert!(line.contains(" ro,") && line.contains("noexec"), "{line}");

    let file = dir.join("volumes/kubernetes.io~configmap/cfg/color");
    assert_eq!(std::fs::read_to_string(&file).expect("a file"), "red");
    let update: Vec<String> = both(&UPDATE).collect();
    let others = moments(&points).into_iter().filter(|moment| !update.contains(moment));
    set_moments(&points, others);
    cluster.kubectl.apply(&[config_map("blue")]);
    deaths += survive_deaths(&mut cluster.node, "the update is visible", |_| {
        let color = std::fs::read_to_string(&file).expect("a file, old or new");
        assert!(color == "red" || color == "blue", "{color}");
        color == "blue" && update.iter().all(|moment| moments(&points).contains(moment))
    });

    cluster.kubectl.ok(&["delete", "pod", "all-node", "--wait=false"]);
    deaths += survive_deaths(&mut cluster.node, "nothing is left", |_| !dir.exists());
    assert_eq!(mounts_below(&cluster.node, &uid), Vec::<String>::new());
    assert_eq!(std::fs::read_to_string(cluster.node.path("disk/file")).expect("a file"), "kept");
    let (passed, due) = (moments(&points), both(&CLAIMED).collect::<BTreeSet<String>>());
    let missed: Vec<&String> = due.difference(&passed).collect();
    assert!(missed.is_empty(), "not visited: {missed:?} among {passed:#?}");
    assert!(deaths >= due.len() + update.len(), "{deaths} kubelets");
    eprintln!("{deaths} kubelets");
}
