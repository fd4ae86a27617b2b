//! A node whose pods the Go kubelet ran: its recorded root directory is taken over with sandboxes and containers under the names, labels and
//! annotations that it gives them. And the other way round: what this kubelet leaves is what the Go kubelet would have left.

mod node_of_go;

use std::collections::BTreeMap;
use std::process::Output;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::go_node::{containers, entries, is_own, labels, mounts, normalized};
use crate::kubelet_kills::all_aborted_starts;
use crate::node::{Node, condition, container, restarts};
use node_of_go::{NodeOfGo, Recording};

pub(crate) fn check(node: &Node, format: &str) -> Output {
    let started = node.kubelet_command();
    let mut command = std::process::Command::new(started.get_program());
    command.args(["takeover", "--check", "-o", format]).args(started.get_args());
    command.envs(started.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.output().expect("the command runs")
}

/// What the command says about each pod, and about each state file.
fn fates(node: &Node) -> (BTreeMap<String, String>, BTreeMap<String, String>, Option<i32>) {
    let output = check(node, "json");
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    let of = |list: &str, key: &str, value: &str| {
        let entries = report[list].as_array().cloned().unwrap_or_default();
        let text = |entry: &Value, field: &str| entry[field].as_str().unwrap_or_default().to_owned();
        entries.iter().map(|entry| (text(entry, key), text(entry, value))).collect()
    };
    (of("pods", "name", "fate"), of("files", "path", "use"), output.status.code())
}

fn pairs(expected: &[(&str, &str)]) -> BTreeMap<String, String> {
    expected.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// How long a container with restarts waits of which nothing else is known.
const CRASH_LOOP_DELAY: Duration = Duration::from_secs(10);

const FILES: [(&str, &str); 5] = [
    ("actuated_pods_state", "used"),
    ("allocated_pods_state", "used"),
    ("cpu_manager_state", "used"),
    ("dra_manager_state", "used"),
    ("memory_manager_state", "used"),
];

#[test]
fn takeover_check_reports_what_a_start_would_do_and_changes_nothing() {
    let mut go = NodeOfGo::start();
    let before = (containers(&go.node), entries(&go.node.path("root")), mounts(&go.node));
    let kept = [("crasher-node", "kept"), ("ordered-node", "kept"), ("web-node", "kept")];
    let gone = [kept.as_slice(), &[("gone-node", "stopped")]].concat();
    assert_eq!(fates(&go.node), (pairs(&gone), pairs(&FILES), Some(3)));
    go.apply("gone");
    let all = [kept.as_slice(), &[("gone-node", "kept")]].concat();
    assert_eq!(fates(&go.node), (pairs(&all), pairs(&FILES), Some(0)));
    let text = String::from_utf8(check(&go.node, "text").stdout).expect("text");
    let mounted = "volume m (kubernetes.io/empty-dir), mounted";
    for line in ["The pods were run by another kubelet: 4.", "container main: running, 0 restarts", mounted] {
        assert!(text.contains(line), "{text}");
    }

    go.node.configure(json!({
        "cpuManagerPolicy": "static", "reservedSystemCPUs": "0", "cgroupRoot": go.node.cgroup().path(),
    }));
    let (_, files, code) = fates(&go.node);
    assert_eq!((files["cpu_manager_state"].as_str(), code), ("refused", Some(3)));
    go.node
        .configure(json!({"cpuManagerPolicy": "none", "containerRuntimeEndpoint": "unix:///nowhere.sock"}));
    assert_eq!(check(&go.node, "text").status.code(), Some(1));
    assert_eq!((containers(&go.node), entries(&go.node.path("root")), mounts(&go.node)), before);
}

#[test]
fn pods_of_the_go_kubelet_are_continued_and_those_without_a_manifest_removed() {
    let began = Instant::now();
    let mut go = NodeOfGo::start();
    let other = go.node.path("root/other/state");
    std::fs::create_dir_all(other.parent().expect("a parent")).expect("a directory");
    std::fs::write(&other, "of another program").expect("a file");
    let (all, before) = (containers(&go.node), mounts(&go.node));
    go.node.start_kubelet();
    let web = go.node.running("web");
    let ordered = go.node.running("ordered");
    let crasher = go.node.pod_when("crasher", "waits", |pod| {
        container(pod, "main")["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    });
    // It crashed while the node was made.
    if began.elapsed() < CRASH_LOOP_DELAY {
        assert_eq!(restarts(&crasher, "main"), 3, "it was not restarted at once");
    }
    assert_eq!(container(&crasher, "main")["lastState"]["terminated"]["message"], "bye\n");
    go.node.wait_until_gone("gone", &go.uids["gone"]);

    let mut kept = all;
    kept.retain(|name, _| !name.starts_with("gone/"));
    let now = containers(&go.node);
    if began.elapsed() >= CRASH_LOOP_DELAY {
        // It may have been restarted since, as it should.
        kept.retain(|name, _| !name.starts_with("crasher/"));
    }
    assert_eq!(kept.iter().filter(|(name, id)| now.get(*name) != Some(id)).collect::<Vec<_>>(), []);
    assert_eq!(go.runs(), ["init", "side", "main"], "each has run once");
    let of_gone = format!("/{}/", go.uids["gone"]);
    let before: Vec<String> = before.into_iter().filter(|mount| !mount.contains(&of_gone)).collect();
    assert_eq!(mounts(&go.node), before, "nothing is mounted twice, and nothing was unmounted");
    for (pod, name) in [(&web, "main"), (&ordered, "main"), (&ordered, "side")] {
        assert_eq!((restarts(pod, name), condition(pod, "Ready")), (0, "True"));
    }
    assert_eq!(std::fs::read_to_string(other).expect("a file"), "of another program");
    let dra = go.node.path("root/dra_manager_state");
    assert_eq!(std::fs::read_to_string(dra).expect("a file"), go.text_of("dra_manager_state"));
    assert_eq!(all_aborted_starts(&go.node), 0);
}

#[test]
fn this_kubelet_leaves_what_the_go_kubelet_leaves() {
    let mut node = Node::on_containerd(json!({}));
    let recording = Recording::of(&node);
    recording.tag_image(&node);
    for (name, manifest) in &recording.manifests {
        node.apply(name, manifest);
    }
    node.start_kubelet();
    for name in ["web", "ordered", "gone"] {
        node.running(name);
    }
    node.pod_when("crasher", "was restarted", |pod| restarts(pod, "main") > 0);
    node.eventually("the state files are written", |node| {
        let is_written = |file: &str| node.path("root").join(file).exists();
        if is_written("allocated_pods_state") && is_written("actuated_pods_state") {
            Ok(())
        } else {
            Err(String::new())
        }
    });

    let (own, of_go) = (normalized(entries(&node.path("root"))), normalized(recording.entries()));
    // This kubelet makes the directory with the first checkpoint of a container, and has no dynamic resources.
    let is_expected_to_miss = |path: &str| matches!(path, "checkpoints" | "dra_manager_state");
    let missing: Vec<_> = of_go
        .iter()
        .filter(|(path, what)| !is_expected_to_miss(path) && own.get(*path) != Some(what))
        .map(|(path, what)| (path, what, own.get(path)))
        .collect();
    assert_eq!(missing, []);
    let more: Vec<&String> = own.keys().filter(|path| !of_go.contains_key(*path) && !is_own(path)).collect();
    assert_eq!(more, ["device-plugins"]);
    assert_eq!(labels(&node), recording.labels());
}
