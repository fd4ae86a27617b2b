//! A kubelet that runs in a user namespace (gate `KubeletInUserNamespace`), next to a real containerd of the machine.

use std::process::Stdio;

use serde_json::json;

use crate::node::{FOREVER, Node, shell_pod};

/// Starts the kubelet, which ends at once; returns its errors.
fn failed_start(node: &Node) -> String {
    let output = node.kubelet_command().stdin(Stdio::null()).output().expect("it runs");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{errors}");
    errors
}

#[test]
fn kubelet_in_a_user_namespace_runs_pods_with_its_gate_and_does_not_start_without() {
    let mut node = Node::on_containerd(json!({}));
    node.enter_user_namespace();
    let gate = "enable the feature gate KubeletInUserNamespace";
    node.set_variable("KUBELET_KERNEL_LOG", node.path("no-kernel-log"));
    let errors = failed_start(&node);
    assert!(errors.contains("failed to open the kernel log") && errors.contains(gate), "{errors}");
    // The kernel refuses to change its settings from a user namespace; here the file is missing, which fails as well.
    std::fs::remove_dir_all(node.path("proc-sys")).expect("the settings are removed");
    let errors = failed_start(&node);
    assert!(errors.contains("failed to change kernel flag vm/overcommit_memory"), "{errors}");
    assert!(errors.contains(gate), "{errors}");

    node.configure(json!({"featureGates": {"KubeletInUserNamespace": true}}));
    node.start_kubelet();
    let map = std::fs::read_to_string(format!("/proc/{}/uid_map", node.kubelet_pid())).expect("the process");
    assert_eq!(map.split_whitespace().collect::<Vec<_>>(), ["0", "0", "1"], "a real user namespace");
    node.apply("web", &shell_pod("web", FOREVER));
    node.running("web");
    let log = node.kubelet_log();
    for problem in ["Failed to change kernel flag", "Failed to read the kernel log"] {
        assert!(log.contains(problem), "{problem}: {log}");
    }
}
