//! The commands of the operator's book that need a cluster: a node joins with a token, without kubeadm.

use serde_json::json;

use super::bootstrap::node_with_bootstrap;
use super::kubectl::Kubectl;
use crate::book::run_pages;
use crate::book::shell::{Client, Shell};

#[test]
fn every_command_for_a_member_of_a_cluster_runs_there() {
    let mut cluster = node_with_bootstrap(&["--approve-by-hand"], json!({}));
    let etc = Shell::path(&cluster.node, "etc/kubernetes");
    for (flag, name) in
        [("--bootstrap-kubeconfig", "bootstrap-kubelet.conf"), ("--kubeconfig", "kubelet.conf")]
    {
        cluster.node.add_flags(&[flag, etc.join(name).to_str().expect("a path")]);
    }
    std::fs::create_dir_all(etc.join("pki")).expect("a directory for certificates");
    std::fs::copy(cluster.api.file("ca.crt"), etc.join("pki/ca.crt")).expect("the authority is copied");
    let kubeconfig = cluster.kubectl.kubeconfig.clone();
    let client = Client { kubectl: Kubectl::binary().into(), kubeconfig, port: cluster.api.port() };
    let mut shell = Shell::of(&mut cluster.node, Some(client));
    let count = run_pages("cluster", &mut shell);
    assert!(count >= 5, "{count} blocks ran");
}
