//! Fibre Channel disks without Fibre Channel: loop devices, to which links lead as udev makes them for such disks. Nothing here has a
//! host adapter to scan, a multipath device, or a disk that can be removed from the kernel.

use std::fs;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::Cluster;
use super::block_devices::{LoopDevice, mounted_at};
use super::volumes::{bind, mounted, set_bound, with_claim};
use crate::node::{FOREVER, shell_pod, uid};

/// A link below `/dev/disk/by-path`, with the directories that were missing, until it is dropped.
struct Link {
    link: PathBuf,
}

impl Link {
    fn make(wwn: &str, device: &Path) -> Self {
        let link = PathBuf::from(format!("/dev/disk/by-path/fc-0x{wwn}-lun-7"));
        fs::create_dir_all(link.parent().expect("a directory")).expect("a directory");
        symlink(device, &link).expect("a link");
        Self { link }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.link);
        // Fails if other links are there, which stay.
        for dir in self.link.ancestors().skip(1).take(2) {
            let _ = fs::remove_dir(dir);
        }
    }
}

fn attach(cluster: &Cluster, names: &[String]) {
    let attached: Vec<Value> = names.iter().map(|name| json!({"name": name, "devicePath": ""})).collect();
    cluster
        .kubectl
        .change_status("/api/v1/nodes/node", |node| node["status"]["volumesAttached"] = json!(attached));
}

/// The loop devices whose file is below the directory.
fn locks(dir: &Path) -> Vec<String> {
    let files = fs::read_dir("/sys/block").expect("block devices").flatten();
    let files = files.filter_map(|entry| fs::read_to_string(entry.path().join("loop/backing_file")).ok());
    files.filter(|file| Path::new(file.trim()).starts_with(dir)).collect()
}

#[test]
fn fibre_channel_disk_is_mounted_for_all_pods_and_another_is_mapped_and_kept_open() {
    let mut cluster = Cluster::start();
    cluster.wait_until_ready();
    // No other test, and no other run of this one, has these names.
    let wwns = ["f", "e"].map(|first| format!("{first}{:015x}", std::process::id()));
    let disks = ["files.img", "raw.img"].map(|file| LoopDevice::make(cluster.node.path(file)));
    let _links = [Link::make(&wwns[0], &disks[0].device), Link::make(&wwns[1], &disks[1].device)];
    for (name, wwn, mode) in [("files", &wwns[0], "Filesystem"), ("raw", &wwns[1], "Block")] {
        bind(&cluster, name, json!({"fc": {"targetWWNs": [wwn], "lun": 7}, "volumeMode": mode}));
        set_bound(&cluster, name);
    }
    let files = |name: &str, script: &str| {
        with_claim(shell_pod(name, &format!("{script}; {FOREVER}")), "files", mounted())
    };
    let device = json!({"volumeDevices": [{"name": "data", "devicePath": "/dev/mine"}]});
    let write = format!("echo written | dd of=/dev/mine conv=notrunc; sync; {FOREVER}");
    let raw = with_claim(shell_pod("raw", &write), "raw", device);
    cluster.kubectl.apply(&[files("one", "echo kept > /data/file"), files("two", "true"), raw]);
    let names = wwns.clone().map(|wwn| format!("kubernetes.io/fc/[{wwn}]:7"));
    let in_use = || cluster.kubectl.get("node", "node").map(|node| node["status"]["volumesInUse"].clone());
    cluster.node.eventually("both are in use", |_| match in_use()?.as_array() {
        Some(list) if list.len() == 2 => Ok(()),
        list => Err(format!("{list:?}")),
    });
    attach(&cluster, &names);
    let pods = ["one", "two", "raw"].map(|name| cluster.running(name));

    let plugin = cluster.node.path("root/plugins/kubernetes.io/fc");
    let mount_point = plugin.join(format!("{}-lun-7", wwns[0]));
    assert!(mounted_at(&mount_point).is_some_and(|shown| shown.starts_with("ext4 rw")), "mounted for all");
    cluster.node.eventually("one wrote", |_| match fs::read_to_string(mount_point.join("file")) {
        Ok(text) if text == "kept\n" => Ok(()),
        other => Err(format!("{other:?}")),
    });
    let map = plugin.join(format!("volumeDevices/{}-lun-7", wwns[1]));
    let bound = map.join(uid(&pods[2]));
    assert!(fs::metadata(&bound).is_ok_and(|file| file.file_type().is_block_device()), "bound for the pod");
    assert_eq!(locks(&map).len(), 1, "kept open");
    let link =
        cluster.node.path("root/pods").join(uid(&pods[2])).join("volumeDevices/kubernetes.io~fc/pv-raw");
    assert_eq!(fs::read_link(&link).ok().as_ref(), Some(&disks[1].device));
    cluster.node.eventually("the container wrote to the device", |_| match fs::read(&disks[1].device) {
        Ok(content) if content.starts_with(b"written\n") => Ok(()),
        Ok(content) => Err(format!("{:?}", &content[..8])),
        Err(error) => Err(error.to_string()),
    });

    cluster.node.kill_kubelet();
    cluster.node.start_kubelet();
    for (pod, name) in pods.iter().zip(["one", "two", "raw"]) {
        cluster.kubectl.ok(&["delete", "pod", name, "--wait=false"]);
        cluster.wait_until_gone(pod);
    }
    assert!(!mount_point.exists() && !map.exists(), "nothing is left of them");
    assert!(locks(&plugin).is_empty());
    cluster.node.eventually("nothing is in use any more", |_| match in_use()? {
        list if list.as_array().is_none_or(Vec::is_empty) => Ok(()),
        list => Err(list.to_string()),
    });
}
