//! The files containerd reads: its own configuration and one CNI network.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::{Layout, Outcome, PAUSE_IMAGE, failed, run};

/// Where distributions put the CNI plugins.
pub(super) fn cni_bin_dir() -> Option<PathBuf> {
    let complete =
        |dir: &PathBuf| ["bridge", "host-local", "loopback"].iter().all(|plugin| dir.join(plugin).is_file());
    ["/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni"].into_iter().map(PathBuf::from).find(complete)
}

pub(super) fn write(layout: &Layout) -> Outcome<()> {
    for dir in [layout.root(), layout.state(), layout.cni_conf_dir()] {
        fs::create_dir_all(&dir).map_err(|e| failed(format!("create {}", dir.display()), e))?;
    }
    write_file(&layout.config_file(), &daemon(layout))?;
    write_file(&layout.cni_conf_dir().join("10-test.conflist"), &network(layout))
}

fn write_file(path: &Path, content: &str) -> Outcome<()> {
    fs::write(path, content).map_err(|e| failed(format!("write {}", path.display()), e))
}

/// `restrict_oom_score_adj`: without CAP_SYS_RESOURCE (most sandboxes and CI machines) runc may not lower the score of a
/// pause container, and every sandbox would fail.
fn daemon(layout: &Layout) -> String {
    let dir = layout.dir.display();
    let root = layout.root().display().to_string();
    let state = layout.state().display().to_string();
    let socket = layout.socket().display().to_string();
    let ttrpc = layout.ttrpc_socket().display().to_string();
    let cni_bin = cni_bin_dir().unwrap_or_default();
    let cni_bin = cni_bin.display();
    let cni_conf = layout.cni_conf_dir().display().to_string();
    format!(
        r#"version = 2
root = "{root}"
state = "{state}"
oom_score = 0
disabled_plugins = [
  "io.containerd.internal.v1.restart",
  "io.containerd.internal.v1.tracing",
  "io.containerd.tracing.processor.v1.otlp",
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
]
[grpc]
  address = "{socket}"
[ttrpc]
  address = "{ttrpc}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{dir}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = true
  disable_tcp_service = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  tolerate_missing_hugetlb_controller = true
  disable_hugetlb_controller = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{cni_bin}"
    conf_dir = "{cni_conf}"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
        Root = "{dir}/runc"
"#
    )
}

/// A bridge with addresses from a subnet of this instance's own. No masquerading and no firewall rules: pods talk to the
/// node and to each other, and nothing is left in iptables. The plugin must not make the bridge a gateway, because it
/// would switch on IP forwarding on the machine for good; [`make_bridge`] gives it its address instead.
fn network(layout: &Layout) -> String {
    let (a, b) = layout.subnet;
    json!({
        "cniVersion": "0.4.0",
        "name": layout.network(),
        "plugins": [{
            "type": "bridge",
            "bridge": layout.bridge(),
            "isGateway": false,
            "ipMasq": false,
            "ipam": {
                "type": "host-local",
                "dataDir": layout.dir.join("ipam"),
                "ranges": [[{ "subnet": format!("10.{a}.{b}.0/24") }]],
                "routes": [{ "dst": "0.0.0.0/0" }],
            },
        }],
    })
    .to_string()
}

/// The bridge, with the first address of the subnet, so that pods can be reached from the node.
pub(super) fn make_bridge(layout: &Layout) -> Outcome<()> {
    let (a, b) = layout.subnet;
    let bridge = layout.bridge();
    run("ip", &["link", "add", &bridge, "type", "bridge"])?;
    run("ip", &["address", "add", &format!("10.{a}.{b}.1/24"), "dev", &bridge])?;
    run("ip", &["link", "set", &bridge, "up"])?;
    Ok(())
}
