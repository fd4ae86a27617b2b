//! Volumes that hang, are busy or were left behind.

use std::path::PathBuf;

use harness::HungFuse;
use serde_json::json;

use super::Page;
use crate::hanging_volumes::remove_large_trees;
use crate::node::{FOREVER, Node, shell_pod, uid};

#[test]
fn filesystem_that_does_not_answer_is_named_and_costs_only_its_pod() {
    let node = Node::start();
    let mount_point = node.path("export");
    let fuse = HungFuse::mount(&mount_point).expect("FUSE");
    fuse.hang();
    let mut pod = shell_pod("reports", FOREVER);
    pod["spec"]["volumes"] =
        json!([{"name": "data", "hostPath": {"path": mount_point, "type": "Directory"}}]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    node.apply("reports", &pod);
    node.apply("good", &shell_pod("good", FOREVER));
    Page::new(
        &node,
        "filesystem-hangs",
        "A network filesystem does not answer",
        "The server of a filesystem that is mounted on the node (here FUSE, with NFS it is the same) is gone.",
    )
    .says(&["why", "reports"], 3, &["does not answer", "Bring back the server"])
    .says(&["why", "good"], 0, &["The pod runs and is ready."])
    .end();
}

#[test]
fn large_trees_that_are_removed_are_listed_and_delay_no_other_pod() {
    let node = Node::start();
    node.apply("good", &shell_pod("good", FOREVER));
    node.running("good");
    let (names, uids) = remove_large_trees(&node);
    Page::new(
        &node,
        "files-are-removed",
        "Pods stay Terminating: their files are being removed",
        "Eight pods with 40,000 files each in an `emptyDir` were deleted at once. Others start and run meanwhile.",
    )
    .says(&["why"], 3, &["The pod has stopped, and what it used is being released."])
    .says(&["why", "good"], 0, &["The pod runs and is ready."])
    .end();
    for (name, uid) in names.iter().zip(&uids) {
        node.wait_until_gone(name, uid);
    }
}

/// Runs the pod `scratch` with a volume in memory; returns its UID and the volume's directory.
fn run_with_volume(node: &Node) -> (String, PathBuf) {
    let mut pod = shell_pod("scratch", FOREVER);
    pod["spec"]["volumes"] = json!([{"name": "fast", "emptyDir": {"medium": "Memory"}}]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "fast", "mountPath": "/fast"}]);
    node.apply("scratch", &pod);
    let uid = uid(&node.running("scratch"));
    let volume = node.path("root").join(format!("pods/{uid}/volumes/kubernetes.io~empty-dir/fast"));
    (uid, volume)
}

#[test]
fn volume_that_is_in_use_is_named_while_its_pod_terminates() {
    let node = Node::start();
    let (uid, volume) = run_with_volume(&node);
    let mut user =
        std::process::Command::new("sleep").arg("600").current_dir(&volume).spawn().expect("a process");
    node.delete("scratch");
    Page::new(
        &node,
        "terminating-volume-busy",
        "A pod stays Terminating: its volume is in use",
        "A process of the node, not of the pod, works in the volume's directory, so that it cannot be unmounted.",
    )
    .says(&["why", "scratch"], 3, &["device or resource busy (held by", "End the process"])
    .end();
    user.kill().expect("ended");
    user.wait().expect("ended");
    node.wait_until_gone("scratch", &uid);
}

#[test]
fn volume_that_was_left_behind_is_named_until_it_can_be_removed() {
    let mut node = Node::start();
    let (uid, volume) = run_with_volume(&node);
    node.kill_kubelet();
    node.delete("scratch");
    let mut user =
        std::process::Command::new("sleep").arg("600").current_dir(&volume).spawn().expect("a process");
    node.start_kubelet();
    Page::new(
        &node,
        "orphaned-volume",
        "A volume is left of a pod that is gone",
        "The manifest was removed while the kubelet did not run, and a process of the node still uses the volume. The Go kubelet \
         writes \"orphaned pod found, but volume paths are still present\" every two seconds.",
    )
    .says(&["why", "scratch"], 3, &["device or resource busy (held by", "End the process"])
    .end();
    user.kill().expect("ended");
    user.wait().expect("ended");
    node.wait_until_gone("scratch", &uid);
}
