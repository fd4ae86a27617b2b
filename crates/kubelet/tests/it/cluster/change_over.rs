//! Pods of an API server on a node that the Go kubelet ran: its recorded root directory is taken over with devices, exclusive CPUs, memory of
//! a NUMA node, a resize, and volumes of each kind. And the other way round: what this kubelet leaves is what the Go kubelet would have left.

mod go_node;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use kubelet_core::takeover::DEVICES;
use model::PodUid;
use resources_core::amounts_file::{self, ACTUATED, ALLOCATED};
use resources_core::cpus::{CPU_STATE_FILE, parse_cpu_state, write_cpu_state};
use resources_core::memory::checkpoint::{
    FILE as MEMORY_STATE_FILE, parse_memory_checkpoint, write_memory_checkpoint,
};
use serde_json::{Value, json};

use super::watch::Watch;
use crate::exclusive_cpus::allowed;
use crate::go_node::{
    containers, entries, is_own, labels, mounts, normalized, recorded_entries, recorded_labels, text_of,
};
use crate::kubelet_kills::all_aborted_starts;
use crate::node::{Node, condition, container, restarts};
use go_node::{GoNode, RECORDED};

/// Long enough for several probes, reconciliations of CPUs, and housekeeping.
const SETTLED: Duration = Duration::from_secs(8);
/// The Go kubelet keeps the resources of a pod that has ended until the API server removes it.
const ENDED: &str = "done";
/// Deleted from the API while no kubelet ran.
const GONE: &str = "gone";

fn check(node: &Node) -> (Value, Option<i32>) {
    let started = node.kubelet_command();
    let mut command = std::process::Command::new(started.get_program());
    command.args(["takeover", "--check", "-o", "json"]).args(started.get_args());
    command.envs(started.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = command.output().expect("the command runs");
    let report = serde_json::from_slice(&output.stdout);
    let report =
        report.unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    (report, output.status.code())
}

fn pairs(report: &Value, list: &str, key: &str, value: &str) -> BTreeMap<String, String> {
    let text = |entry: &Value, field: &str| entry[field].as_str().unwrap_or_default().to_owned();
    let entries = report[list].as_array().into_iter().flatten();
    entries.map(|entry| (text(entry, key), text(entry, value))).collect()
}

#[test]
fn takeover_check_reports_pods_of_the_api_and_their_state_files_and_changes_nothing() {
    let mut go = GoNode::left_by_the_go_kubelet();
    let node = &go.cluster.node;
    let before = (containers(node), entries(&node.path("root")), mounts(node));
    let (report, code) = check(node);
    let pods = go.pods();
    let names = pods.iter().map(|pod| pod["metadata"]["name"].as_str().expect("a name").to_owned());
    let kept: BTreeMap<String, String> = names.map(|name| (name, "kept".to_owned())).collect();
    assert_eq!((pairs(&report, "pods", "name", "fate"), code), (kept, Some(0)));
    let files = pairs(&report, "files", "path", "use");
    for used in [ALLOCATED, ACTUATED, CPU_STATE_FILE, MEMORY_STATE_FILE, DEVICES] {
        assert_eq!(files[used], "used", "{used}");
    }
    assert_eq!(files["dra_manager_state"], "used");
    assert_eq!(shown_devices_and_cpus(&report), devices_and_cpus_in_files(&go, &report));

    // With other policies, CPUs and memory could be given twice: the kubelet would not start.
    go.cluster.node.configure(json!({"cpuManagerPolicy": "none", "memoryManagerPolicy": "None"}));
    let (report, code) = check(&go.cluster.node);
    let files = pairs(&report, "files", "path", "use");
    assert_eq!((&*files[CPU_STATE_FILE], &*files[MEMORY_STATE_FILE], code), ("refused", "refused", Some(3)));
    let node = &go.cluster.node;
    assert_eq!((containers(node), entries(&node.path("root")), mounts(node)), before);
}

/// `uid container what` of all containers in a report of the check.
fn shown_devices_and_cpus(report: &Value) -> BTreeSet<String> {
    let mut shown = BTreeSet::new();
    for pod in report["pods"].as_array().into_iter().flatten() {
        let uid = pod["uid"].as_str().expect("a UID");
        for container in pod["containers"].as_array().into_iter().flatten() {
            let name = container["name"].as_str().expect("a name");
            let cpus = container["cpus"].as_str().map(|cpus| format!("{uid} {name} cpus {cpus}"));
            shown.extend(cpus);
            for (resource, ids) in container["devices"].as_object().into_iter().flatten() {
                shown.insert(format!("{uid} {name} {resource} {ids}"));
            }
        }
    }
    shown
}

/// The same as the Go kubelet has it in its files, of the containers that the runtime still has.
fn devices_and_cpus_in_files(go: &GoNode, report: &Value) -> BTreeSet<String> {
    let pods = report["pods"].as_array().into_iter().flatten();
    let is_there = |uid: &str, name: &str| {
        let mut containers = pods
            .clone()
            .filter(|pod| pod["uid"] == uid)
            .flat_map(|pod| pod["containers"].as_array())
            .flatten();
        containers.any(|container| container["name"] == name)
    };
    let parsed = |path| serde_json::from_str::<Value>(&go.text_of(path)).expect("JSON");
    let mut expected = BTreeSet::new();
    for (uid, containers) in parsed(CPU_STATE_FILE)["entries"].as_object().expect("entries") {
        for (name, cpus) in containers.as_object().expect("containers") {
            let cpus = cpus.as_str().expect("CPUs");
            expected.extend(is_there(uid, name).then(|| format!("{uid} {name} cpus {cpus}")));
        }
    }
    let devices = parsed(DEVICES);
    for entry in devices["Data"]["PodDeviceEntries"].as_array().expect("entries") {
        let [uid, name, resource] =
            ["PodUID", "ContainerName", "ResourceName"].map(|field| entry[field].as_str().expect("a name"));
        let of_nodes = entry["DeviceIDs"].as_object().expect("NUMA nodes").values();
        let ids: BTreeSet<&str> =
            of_nodes.flat_map(|ids| ids.as_array()).flatten().filter_map(Value::as_str).collect();
        expected.extend(is_there(uid, name).then(|| format!("{uid} {name} {resource} {}", json!(ids))));
    }
    assert!(["cpus", "/"].iter().all(|kind| expected.iter().any(|line| line.contains(kind))), "{expected:?}");
    expected
}

/// Files that no kubelet knows, with their content.
fn strange_files(go: &GoNode) -> BTreeMap<PathBuf, String> {
    let in_pod = format!("pods/{}/of-an-agent", go.uid("volumes"));
    let names = ["other/state", "device-plugins/other", "plugins/other", &in_pod, "dra_manager_state"];
    let files = names.map(|name| (go.cluster.node.path("root").join(name), format!("{name}\0\u{1}")));
    let mut files: BTreeMap<PathBuf, String> = files.into();
    let dra = files.get_mut(&go.cluster.node.path("root/dra_manager_state")).expect("a file");
    *dra = go.text_of("dra_manager_state");
    for (path, content) in &files {
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        std::fs::write(path, content).expect("a file");
    }
    files
}

/// Opens directories of the node to other users, as an operator does for agents that read logs or serve devices.
fn open_directories(node: &Node) -> Vec<PathBuf> {
    let dirs =
        ["root", "root/device-plugins", "root/plugins", "root/pods", "logs/pods"].map(|dir| node.path(dir));
    for dir in &dirs {
        std::fs::set_permissions(dir, Permissions::from_mode(0o755)).expect("permissions");
    }
    dirs.into()
}

/// The Go kubelet leaves the empty directories of a pod that has ended until the API server removes the pod.
fn is_of_ended(go: &GoNode, path: &str) -> bool {
    let dir = format!("pods/{}", go.uid(ENDED));
    path == format!("{dir}/volumes") || path == format!("{dir}/plugins")
}

/// What clients see of a pod's containers that must not change.
fn seen(pod: &Value) -> BTreeSet<String> {
    let lists = ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"];
    let statuses = lists.iter().filter_map(|list| pod["status"][list].as_array()).flatten();
    let fields = ["name", "containerID", "restartCount", "ready", "started"];
    let seen = statuses.map(|status| fields.map(|field| status[field].to_string()).join(" "));
    let conditions = ["Ready", "ContainersReady", "Initialized", "PodReadyToStartContainers"];
    let conditions = conditions.map(|kind| format!("{kind} {}", condition(pod, kind)));
    seen.chain(conditions).chain([pod["status"]["phase"].to_string()]).collect()
}

/// The status of a pod, without what runtimes since containerd 2 report and the recorded one does not.
fn status(pod: &Value) -> serde_json::Map<String, Value> {
    let mut status = pod["status"].as_object().expect("a status").clone();
    for list in ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"] {
        for container in status.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            container.as_object_mut().expect("a status").remove("user");
        }
    }
    status
}

/// Checks every update of the pods, and returns which parts of the status of which pod have changed.
fn changed_parts(before: &[Value], events: &[Value]) -> BTreeSet<String> {
    let mut changed = BTreeSet::new();
    for event in events {
        let pod = &event["object"];
        let name = pod["metadata"]["name"].as_str().expect("a name");
        assert_eq!(event["type"], "MODIFIED", "{name}");
        let before = before.iter().find(|other| other["metadata"]["name"] == name).expect("a pod");
        assert_eq!(seen(pod), seen(before), "{name}");
        let parts = status(pod).into_iter().filter(|(part, value)| before["status"][part] != *value);
        changed.extend(parts.map(|(part, _)| format!("{name} {part}")));
    }
    changed
}

/// The recorded file without the pods of these names.
fn amounts_without(go: &GoNode, file: &str, names: &[&str]) -> String {
    let mut all = amounts_file::parse(&go.text_of(file)).expect("the file");
    for name in names {
        all.remove(&PodUid::new(go.uid(name)));
    }
    amounts_file::write(&all)
}

#[track_caller]
fn wait_for_file(go: &GoNode, file: &str, expected: &str) {
    go.cluster.node.eventually(&format!("{file} is that of the Go kubelet"), |node| {
        let text = std::fs::read_to_string(node.path("root").join(file)).unwrap_or_default();
        if text == expected { Ok(()) } else { Err(format!("it is\n{text}\nand not\n{expected}")) }
    });
}

#[track_caller]
fn check_state_files(go: &GoNode, gone: &[&str]) {
    for file in [CPU_STATE_FILE, MEMORY_STATE_FILE, DEVICES] {
        wait_for_file(go, file, &go.text_of(file));
    }
    for file in [ALLOCATED, ACTUATED] {
        wait_for_file(go, file, &amounts_without(go, file, gone));
    }
}

#[test]
fn pods_of_the_api_are_continued_with_their_devices_cpus_and_volumes() {
    let mut go = GoNode::left_by_the_go_kubelet();
    go.cluster.kubectl.ok(&["delete", "pod", GONE, "--grace-period=0", "--force"]);
    let strange = strange_files(&go);
    let opened = open_directories(&go.cluster.node);
    let root = go.cluster.node.path("root");
    let gone = format!("/{}", go.uid(GONE));
    let is_kept = |path: &String| !path.contains(&gone);
    let mut all = containers(&go.cluster.node);
    all.retain(|name, _| !name.starts_with("gone/"));
    let before: BTreeMap<_, _> =
        normalized(entries(&root)).into_iter().filter(|(path, _)| is_kept(path)).collect();
    let mounted: Vec<String> = mounts(&go.cluster.node).into_iter().filter(is_kept).collect();
    let pods = go.cluster.kubectl.pods().expect("the pods");
    let watch = Watch::pods(&go.cluster.kubectl, go.cluster.node.path("watch"));

    go.cluster.node.start_kubelet();
    go.register();
    go.wait_for_devices();
    let uid = go.uid(GONE);
    go.cluster.node.eventually("the deleted pod is removed", |node| node.has_no_trace_of(&uid));
    let crasher = go.cluster.pod_when("crasher", "waits", |pod| {
        container(pod, "main")["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    });
    go.cluster.node.eventually("the kubelet has done its work for some time", |node| {
        let age = node.kubelet_age();
        if age > SETTLED { Ok(()) } else { Err(format!("{age:?}")) }
    });

    let node = &go.cluster.node;
    assert_eq!(containers(node), all, "no container was restarted, made or removed");
    assert_eq!(mounts(node), mounted, "nothing is mounted twice, and nothing was unmounted");
    // The Go kubelet shows a memory limit of 9007199254740988Ki for pods without one on cgroup v1; this kubelet shows none.
    let allowed_changes: BTreeSet<String> = [
        "crasher containerStatuses",
        "crasher resources",
        "device containerStatuses",
        "device resources",
        "volumes resources",
    ]
    .map(str::to_owned)
    .into();
    let changed = changed_parts(&pods, &watch.events());
    assert_eq!(changed.difference(&allowed_changes).collect::<Vec<_>>(), Vec::<&String>::new());
    let message = container(&crasher, "main")["state"]["waiting"]["message"].to_string();
    assert!(message.contains("back-off 1m20s restarting failed container=main"), "{message}");
    assert_eq!(restarts(&crasher, "main"), 4);
    let runs = format!("pods/{}/volumes/kubernetes.io~empty-dir/d/runs", go.uid("volumes"));
    let runs = std::fs::read_to_string(root.join(runs)).expect("a file");
    assert_eq!(runs, "init\nside\nmain\n", "each has run once, and no hook");
    let log = node.kubelet_log();
    assert!(!log.contains("Pod runs on without CPUs and memory of its own"), "{log}");
    assert_eq!(go.calls_of_plugin(), Vec::<String>::new(), "the allocate response is that of the checkpoint");
    assert_eq!(allowed(node, &go.cluster.running("pinned"))[0], go.cpus.last);
    check_state_files(&go, &[GONE, ENDED]);
    let after = normalized(entries(&root));
    let is_lost =
        |(path, what): &(&String, &String)| after.get(*path) != Some(*what) && !is_of_ended(&go, path);
    let lost: Vec<_> = before.iter().filter(is_lost).collect();
    assert_eq!(lost, []);
    let more: Vec<_> = after.keys().filter(|path| !before.contains_key(*path) && !is_own(path)).collect();
    assert_eq!(more, Vec::<&String>::new());
    for dir in opened {
        let mode = std::fs::metadata(&dir).expect("a directory").permissions().mode();
        assert_eq!(mode & 0o777, 0o755, "{}", dir.display());
    }
    for (path, content) in strange {
        assert_eq!(std::fs::read_to_string(&path).expect("a file"), content, "{}", path.display());
    }
    assert_eq!(all_aborted_starts(node), 0);
}

/// The pod as it was created.
fn without_status(mut pod: Value) -> Value {
    pod["status"] = json!({"phase": "Pending", "qosClass": pod["status"]["qosClass"]});
    pod
}

#[test]
fn this_kubelet_leaves_of_pods_of_the_api_what_the_go_kubelet_leaves() {
    let mut go = GoNode::empty();
    go.cluster.node.start_kubelet();
    go.register();
    go.wait_for_devices();
    let pods = go.pods().into_iter().map(without_status).collect();
    go.insert(pods);
    for name in ["volumes", "resized", "level", "device", "pinned", GONE] {
        go.cluster.running(name);
    }
    go.cluster.pod_when("crasher", "was restarted", |pod| restarts(pod, "main") > 0);
    go.cluster.pod_when(ENDED, "has ended", |pod| pod["status"]["phase"] == "Succeeded");
    check_state_files(&go, &[ENDED]);

    let own = normalized(entries(&go.cluster.node.path("root")));
    let of_go = normalized(recorded_entries(&go.recording));
    // This kubelet makes the directory with the first checkpoint of a container, and has no dynamic resources.
    let is_expected_to_miss = |path: &str| matches!(path, "checkpoints" | "dra_manager_state");
    let missing: Vec<_> = of_go
        .iter()
        .filter(|(path, what)| !is_expected_to_miss(path) && own.get(*path) != Some(what))
        .filter(|(path, _)| !is_of_ended(&go, path))
        .map(|(path, what)| (path, what, own.get(path)))
        .collect();
    assert_eq!(missing, []);
    let more: Vec<&String> = own.keys().filter(|path| !of_go.contains_key(*path) && !is_own(path)).collect();
    assert_eq!(more, Vec::<&String>::new());
    assert_eq!(labels(&go.cluster.node), recorded_labels(&go.recording));
}

/// The checksums are those of the Go kubelet, on the machine where it was recorded.
#[test]
fn recorded_state_files_are_written_again_byte_for_byte() {
    let recording: Value = serde_json::from_str(RECORDED).expect("a recording");
    let text = |file: &str| text_of(&recording, file);
    let (cpus, _) = parse_cpu_state(&text(CPU_STATE_FILE), "static", false, |_| None).expect("a state");
    assert_eq!(write_cpu_state("static", &cpus, false), text(CPU_STATE_FILE));
    let memory = parse_memory_checkpoint(&text(MEMORY_STATE_FILE), "Static", false).expect("a state");
    assert_eq!(write_memory_checkpoint("Static", &memory, false), text(MEMORY_STATE_FILE));
    for file in [ALLOCATED, ACTUATED] {
        assert_eq!(amounts_file::write(&amounts_file::parse(&text(file)).expect("the file")), text(file));
    }
}
