//! PersistentVolumes on block devices of the node: formatted when empty, shared by the pods of the node, and left alone when they
//! contain something else.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::volumes::{bind, mounted, set_bound, with_claim};
use super::{Cluster, bound};
use crate::node::{FOREVER, shell_pod};

/// A file as a block device, until it is dropped.
pub(super) struct LoopDevice {
    file: PathBuf,
    pub(super) device: PathBuf,
}

impl LoopDevice {
    pub(super) fn make(file: PathBuf) -> Self {
        let created = fs::File::create(&file).expect("a file");
        created.set_len(32 << 20).expect("a large file");
        let output = Command::new("losetup").args(["--find", "--show"]).arg(&file).output();
        let output = output.expect("losetup runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Self { file, device: String::from_utf8_lossy(&output.stdout).trim().into() }
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let detached = Command::new("losetup").arg("--detach").arg(&self.device).status();
        if !std::thread::panicking() {
            assert!(detached.is_ok_and(|status| status.success()), "{} is detached", self.device.display());
        }
    }
}

/// Filesystem type and mount options at the path.
pub(super) fn mounted_at(mount_point: &Path) -> Option<String> {
    let table = fs::read_to_string("/proc/self/mounts").expect("a mount table");
    let mount_point = mount_point.to_str().expect("a path");
    let line = table.lines().find(|line| line.split(' ').nth(1) == Some(mount_point))?;
    Some(line.split(' ').skip(2).take(2).collect::<Vec<_>>().join(" "))
}

fn claimed(cluster: &Cluster, name: &str, spec: Value) {
    bind(cluster, name, spec);
    set_bound(cluster, name);
}

#[test]
fn local_block_device_is_formatted_once_and_one_with_data_is_never_formatted() {
    let cluster = Cluster::start();
    cluster.wait_until_ready();
    let empty = LoopDevice::make(cluster.node.path("empty.img"));
    let options = json!(["noatime"]);
    claimed(&cluster, "disk", json!({"local": {"path": empty.device}, "mountOptions": options}));
    cluster.kubectl.ok(&["annotate", "pv", "pv-disk", "pv.beta.kubernetes.io/gid=4711"]);
    let pod = |name: &str, script: &str| {
        with_claim(shell_pod(name, &format!("{script}; {FOREVER}")), "disk", mounted())
    };
    // Both pods at once: one of them formats.
    cluster.kubectl.apply(&[pod("one", "id -G > /data/groups"), pod("two", "echo kept > /data/file")]);
    let (one, two) = (cluster.running("one"), cluster.running("two"));
    let mount_point = cluster.node.path("root/plugins/kubernetes.io/local-volume/mounts/pv-disk");
    let shown = mounted_at(&mount_point).expect("mounted once for all");
    assert!(shown.starts_with("ext4 rw,noatime"), "{shown}");
    let read = |name: &str| fs::read_to_string(mount_point.join(name)).unwrap_or_default();
    cluster.node.eventually("both wrote", |_| match (read("groups").trim(), read("file").trim()) {
        ("0 10 4711" | "0 4711", "kept") => Ok(()),
        other => Err(format!("{other:?}")),
    });

    cluster.kubectl.ok(&["delete", "pod", "one", "--wait=false"]);
    cluster.wait_until_gone(&one);
    assert!(mounted_at(&mount_point).is_some(), "the other pod still uses it");
    cluster.kubectl.ok(&["delete", "pod", "two", "--wait=false"]);
    cluster.wait_until_gone(&two);
    assert!(mounted_at(&mount_point).is_none() && !mount_point.exists(), "nothing is left of it");

    let three = pod("three", "cat /data/file");
    let foreign = LoopDevice::make(cluster.node.path("foreign.img"));
    let swap = Command::new("mkswap").arg(&foreign.device).output().expect("mkswap runs");
    assert!(swap.status.success(), "{swap:?}");
    let before = fs::read(&foreign.file).expect("a file");
    claimed(&cluster, "foreign", json!({"local": {"path": foreign.device}}));
    let four = with_claim(shell_pod("four", FOREVER), "foreign", mounted());
    fs::create_dir(cluster.node.path("srv")).expect("a directory");
    fs::write(cluster.node.path("srv/hello"), "well\n").expect("a file");
    let path = json!({"path": cluster.node.path("srv"), "type": "Directory"});
    claimed(&cluster, "path", json!({"hostPath": path}));
    let five = with_claim(shell_pod("five", &format!("cat /data/hello; {FOREVER}")), "path", mounted());
    cluster.kubectl.apply(&[three, four, bound(five)]);
    let (three, five) = (cluster.running("three"), cluster.running("five"));
    cluster.node.eventually("both read what was there before", |node| {
        let output = [&three, &five].map(|pod| node.logs(pod, "main"));
        if output == ["kept\n", "well\n"] { Ok(()) } else { Err(format!("{output:?}")) }
    });
    cluster.node.eventually("an event reports the content of the device", |_| {
        let events = cluster.events("Pod", "four");
        let message = "MountVolume.MountDevice failed for volume \"pv-foreign\" : failed to mount the volume as \
                     \"ext4\", it already contains swap. Mount error: ";
        if events.iter().any(|event| event.contains(message)) { Ok(()) } else { Err(format!("{events:?}")) }
    });
    let four = cluster.kubectl.get("pod", "four").expect("a pod");
    for pod in [&three, &four, &five] {
        let name = pod["metadata"]["name"].as_str().expect("a name");
        cluster.kubectl.ok(&["delete", "pod", name, "--wait=false"]);
        cluster.wait_until_gone(pod);
    }
    assert!(
        fs::read(&foreign.file).expect("a file") == before,
        "the existing content of the device is unchanged"
    );
}
