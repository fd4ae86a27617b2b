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
    write_file(&layout.config_file(), &daemon(layout)?)?;
    write_file(&layout.cni_conf_dir().join("10-test.conflist"), &network(layout))
}

fn write_file(path: &Path, content: &str) -> Outcome<()> {
    fs::write(path, content).map_err(|e| failed(format!("write {}", path.display()), e))
}

/// Containerd 2 reads its own format (`version = 3`), in which CRI is three plugins instead of one.
fn daemon(layout: &Layout) -> Outcome<String> {
    let version = run("containerd", &["--version"])?;
    let cri = if major_version(&version) >= 2 { cri_of_version_3(layout) } else { cri_of_version_2(layout) };
    Ok(cri.header.to_owned() + &around_cri(layout) + &cri.tables)
}

/// Of `containerd github.com/containerd/containerd/v2 2.1.9+unknown`: 2. What cannot be read counts as old.
fn major_version(answer: &str) -> u32 {
    let version = answer.split_whitespace().nth(2).unwrap_or_default();
    let major = version.trim_start_matches('v').split('.').next().unwrap_or_default();
    major.parse().unwrap_or(1)
}

/// What differs between the formats.
struct Cri {
    /// Stands before every table.
    header: &'static str,
    tables: String,
}

/// What all versions call alike. NRI would open a socket at a place that all containerds of the machine share.
fn around_cri(layout: &Layout) -> String {
    let dir = layout.dir.display();
    let root = layout.root().display().to_string();
    let state = layout.state().display().to_string();
    let socket = layout.socket().display().to_string();
    let ttrpc = layout.ttrpc_socket().display().to_string();
    format!(
        r#"root = "{root}"
state = "{state}"
oom_score = 0
[grpc]
  address = "{socket}"
[ttrpc]
  address = "{ttrpc}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{dir}/opt"
[plugins."io.containerd.nri.v1.nri"]
  disable = true
"#
    )
}

/// `restrict_oom_score_adj`: without CAP_SYS_RESOURCE (most sandboxes and CI machines) runc may not lower the score of a
/// pause container, and every sandbox would fail.
fn cri_of_version_2(layout: &Layout) -> Cri {
    let dir = layout.dir.display();
    let cni_bin = cni_bin_dir().unwrap_or_default();
    let cni_bin = cni_bin.display();
    let cni_conf = layout.cni_conf_dir().display().to_string();
    let tables = format!(
        r#"[plugins."io.containerd.grpc.v1.cri"]
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
    );
    let header = r#"version = 2
disabled_plugins = [
  "io.containerd.internal.v1.restart",
  "io.containerd.internal.v1.tracing",
  "io.containerd.tracing.processor.v1.otlp",
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
]
"#;
    Cri { header, tables }
}

/// The same settings as [`cri_of_version_2`]; the image service, the runtime service and the streams are apart.
fn cri_of_version_3(layout: &Layout) -> Cri {
    let dir = layout.dir.display();
    let cni_bin = cni_bin_dir().unwrap_or_default();
    let cni_bin = cni_bin.display();
    let cni_conf = layout.cni_conf_dir().display().to_string();
    let tables = format!(
        r#"[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "{PAUSE_IMAGE}"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  tolerate_missing_hugetlb_controller = true
  disable_hugetlb_controller = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["{cni_bin}"]
    conf_dir = "{cni_conf}"
  [plugins."io.containerd.cri.v1.runtime".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
        SystemdCgroup = false
        Root = "{dir}/runc"
[plugins."io.containerd.grpc.v1.cri"]
  disable_tcp_service = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
"#
    );
    let header = r#"version = 3
disabled_plugins = [
  "io.containerd.monitor.container.v1.restart",
  "io.containerd.internal.v1.tracing",
  "io.containerd.tracing.processor.v1.otlp",
  "io.containerd.snapshotter.v1.blockfile",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.erofs",
  "io.containerd.snapshotter.v1.zfs",
]
"#;
    Cri { header, tables }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_major_version_is_read_from_what_containerd_says_of_itself() {
        let answers = [
            ("containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u3\n", 1),
            ("containerd github.com/containerd/containerd/v2 2.1.9+unknown \n", 2),
            ("containerd github.com/containerd/containerd/v2 v2.0.0 207ad711eabd\n", 2),
            ("nonsense", 1),
        ];
        for (answer, major) in answers {
            assert_eq!(major_version(answer), major, "{answer}");
        }
    }
}
