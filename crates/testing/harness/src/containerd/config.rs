//! The files containerd reads: its own configuration and one CNI network.

use std::fs;
use std::path::{Path, PathBuf};

use model::CgroupDriver;
use serde_json::json;

use super::{Layout, Outcome, PAUSE_IMAGE, failed, run};

/// Where distributions put the CNI plugins.
pub(super) fn cni_bin_dir() -> Option<PathBuf> {
    let complete =
        |dir: &PathBuf| ["bridge", "host-local", "loopback"].iter().all(|plugin| dir.join(plugin).is_file());
    ["/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni"].into_iter().map(PathBuf::from).find(complete)
}

pub(super) fn write(layout: &Layout, driver: CgroupDriver) -> Outcome<()> {
    for dir in [layout.root(), layout.state(), layout.cni_conf_dir()] {
        fs::create_dir_all(&dir).map_err(|e| failed(format!("create {}", dir.display()), e))?;
    }
    write_file(&layout.config_file(), &daemon(layout, driver)?)?;
    write_file(&layout.cni_conf_dir().join("10-test.conflist"), &network(layout))
}

fn write_file(path: &Path, content: &str) -> Outcome<()> {
    fs::write(path, content).map_err(|e| failed(format!("write {}", path.display()), e))
}

/// Containerd 2 reads a format of its own. `scripts/lib.sh` fills in the same templates.
fn daemon(layout: &Layout, driver: CgroupDriver) -> Outcome<String> {
    let version = run("containerd", &["--version"])?;
    let template = match major_version(&version) {
        0 | 1 => include_str!("version-2.toml"),
        _ => include_str!("version-3.toml"),
    };
    let values = [
        ("@DIR@", layout.dir.display().to_string()),
        ("@CNI_BIN@", cni_bin_dir().unwrap_or_default().display().to_string()),
        ("@PAUSE_IMAGE@", PAUSE_IMAGE.to_owned()),
        ("@SYSTEMD_CGROUP@", (driver == CgroupDriver::Systemd).to_string()),
        ("@RESTRICT_OOM_SCORE@", (!may_lower_oom_scores()).to_string()),
        ("@WITHOUT_HUGE_PAGES@", (!limits_huge_pages(driver)).to_string()),
        ("@SNAPSHOTTER@", "overlayfs".to_owned()),
    ];
    let fill_in = |text: String, (name, value): &(&str, String)| text.replace(name, value);
    Ok(values.iter().fold(template.to_owned(), fill_in))
}

/// Lowering a process's OOM score needs `CAP_SYS_RESOURCE` (bit 24), which many containers and small machines lack.
fn may_lower_oom_scores() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    mask >> 24 & 1 == 1
}

/// Whether the cgroups of containers can limit huge pages: on version 2, and where systemd, which does not know that controller,
/// does not delegate it. Containerd omits the limit unless configured otherwise.
fn limits_huge_pages(driver: CgroupDriver) -> bool {
    let controllers = fs::read_to_string("/sys/fs/cgroup/cgroup.controllers").unwrap_or_default();
    driver == CgroupDriver::Cgroupfs
        && controllers.split_whitespace().any(|controller| controller == "hugetlb")
}

/// `containerd github.com/containerd/containerd/v2 2.1.9+unknown` gives 2. An unreadable version counts as old.
fn major_version(answer: &str) -> u32 {
    let version = answer.split_whitespace().nth(2).unwrap_or_default();
    let major = version.trim_start_matches('v').split('.').next().unwrap_or_default();
    major.parse().unwrap_or(1)
}

/// A bridge with addresses from a subnet of this instance's own. No masquerading and no firewall rules: pods reach the node and
/// each other, and nothing is left in iptables. The plugin must not make the bridge a gateway, because it would enable IP
/// forwarding on the machine permanently; [`make_bridge`] gives it its address instead.
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
    fn containerd_major_version_is_parsed_from_its_version_output() {
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
