//! What a power cut leaves: empty or truncated files. The kubelet starts from the files that are valid and affects no container.

use std::path::{Path, PathBuf};

use fakes::FakeRuntime;
use serde_json::{Value, json};

use crate::node::{FOREVER, Node, container, shell_pod};

/// The kubelet's own files below its root directory and its certificate directory.
fn own_files(node: &Node) -> Vec<PathBuf> {
    fn below(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            let kind = entry.file_type().expect("a type");
            if kind.is_dir() {
                below(&entry.path(), found);
            } else if kind.is_file() {
                found.push(entry.path());
            }
        }
    }
    let mut found = Vec::new();
    below(&node.path("root"), &mut found);
    below(&node.path("pki"), &mut found);
    found
}

/// A pod whose image the fake runtime has to pull.
fn fake_pod(name: &str) -> Value {
    let mut pod = shell_pod(name, FOREVER);
    pod["spec"]["containers"][0]["imagePullPolicy"] = "IfNotPresent".into();
    pod
}

#[test]
fn power_cut_that_empties_or_damages_state_files_stops_no_container() {
    let runtime = FakeRuntime::with_clock(ports::Clock::system());
    let mut node = Node::on_fake(&runtime, json!({}));
    node.apply("web", &fake_pod("web"));
    let before = node.running("web");
    // Written when a plugin registers; here it comes from an earlier kubelet.
    let devices = node.path("root/device-plugins/kubelet_internal_checkpoint");
    for content in ["", "{\"half\": "] {
        node.kill_kubelet();
        std::fs::write(&devices, content).expect("written");
        let files = own_files(&node);
        let names: Vec<_> = files.iter().filter_map(|path| path.file_name()?.to_str()).collect();
        for expected in
            ["status.json", "pod.json", "kubelet.crt", "kubelet.key", "kubelet_internal_checkpoint"]
        {
            assert!(names.contains(&expected), "{expected} is not among {names:?}");
        }
        for file in &files {
            std::fs::write(file, content).expect("damaged");
        }
        node.start_kubelet();
        let after = node.running("web");
        let (was, is) = (container(&before, "main"), container(&after, "main"));
        assert_eq!((&was["containerID"], &was["restartCount"]), (&is["containerID"], &is["restartCount"]));
        assert_eq!(
            crate::server::get(&node, "/healthz").expect("an answer").body,
            "ok",
            "a new serving pair"
        );
        node.wait_for_log("Failed to parse status checkpoint");
        assert!(devices.with_extension("damaged").exists(), "it is kept for an operator");
    }
}
