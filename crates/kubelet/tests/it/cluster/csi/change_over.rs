//! A node whose volumes the Go kubelet mounted: its files and mounts, made here with the driver itself, are taken over while their
//! pods exist, and taken away when they don't.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use model::csi::{
    AccessMode, AccessType, DriverSecrets, PublishRequest, StageRequest, VolumeCapability, VolumeContext,
};
use model::digest::sha256_hex;
use plugins::UnixPlugins;
use ports::plugins::{CsiDriver, Plugins};
use serde_json::{Value, json};

use super::{DRIVER, SIZE, Setup, claim_pod, wait_for_output};
use crate::cluster::volumes::with_claim;
use crate::node::{FOREVER, shell_pod, uid};

/// Pods that the API doesn't know.
const GONE: [&str; 2] = ["11111111-2222-4333-8444-555555555551", "11111111-2222-4333-8444-555555555552"];

/// Published data, as the Go kubelet's JSON encoder writes it.
fn published_data(handle: &str, lifecycle: &str) -> String {
    let attachment = sha256_hex(format!("{handle}{DRIVER}node").as_bytes());
    format!(
        "{{\"attachmentID\":\"csi-{attachment}\",\"driverName\":\"{DRIVER}\",\"nodeName\":\"node\",\"specVolID\":\"pv-{handle}\",\
         \"volumeHandle\":\"{handle}\"{lifecycle}}}\n"
    )
}

fn write(dir: &Path, content: &str) {
    fs::create_dir_all(dir).expect("a directory");
    fs::write(dir.join("vol_data.json"), content).expect("a file");
}

/// What the Go kubelet does on this node.
struct GoKubelet<'a> {
    setup: &'a Setup,
    driver: Arc<dyn CsiDriver>,
}

/// Files that loop devices keep open. A test that fails leaves none attached.
struct KeptOpen(Vec<PathBuf>);

impl KeptOpen {
    fn attach(&mut self, file: PathBuf) {
        run("losetup", &["--find".as_ref(), &file]);
        self.0.push(file);
    }
}

impl Drop for KeptOpen {
    fn drop(&mut self) {
        let output =
            Command::new("losetup").args(["--list", "--noheadings", "--output", "NAME,BACK-FILE"]).output();
        let list = String::from_utf8_lossy(&output.expect("losetup runs").stdout).into_owned();
        for line in list
            .lines()
            .filter(|line| self.0.iter().any(|file| line.ends_with(file.to_str().expect("a path"))))
        {
            let device = line.split_whitespace().next().expect("a device");
            let _ = Command::new("losetup").args(["--detach", device]).status();
        }
    }
}

impl<'a> GoKubelet<'a> {
    fn new(setup: &'a Setup) -> Self {
        Self { setup, driver: UnixPlugins.csi_driver(&setup.driver.socket()) }
    }

    fn stage(&self, handle: &str, target: &Path, access_type: &AccessType) {
        fs::create_dir_all(target).expect("a directory");
        let request = StageRequest {
            volume_id: handle.to_owned(),
            publish_context: [].into(),
            staging_target_path: target.to_owned(),
            capability: capability(access_type),
            secrets: DriverSecrets::default(),
            volume_context: context(access_type),
        };
        self.setup.cluster.node.finish(self.driver.stage(&request)).expect("the volume is staged");
    }

    fn publish(&self, handle: &str, staging: &Path, target: &Path, access_type: &AccessType) {
        fs::create_dir_all(target.parent().expect("a parent")).expect("a directory");
        let request = PublishRequest {
            volume_id: handle.to_owned(),
            publish_context: [].into(),
            staging_target_path: Some(staging.to_owned()),
            target_path: target.to_owned(),
            capability: capability(access_type),
            read_only: false,
            secrets: DriverSecrets::default(),
            volume_context: VolumeContext(context(access_type)),
        };
        self.setup.cluster.node.finish(self.driver.publish(&request)).expect("the volume is published");
    }

    fn stage_filesystem(&self, handle: &str) {
        let dir = self.setup.staged_dir(handle);
        write(&dir, &format!("{{\"driverName\":\"{DRIVER}\",\"volumeHandle\":\"{handle}\"}}\n"));
        self.stage(handle, &dir.join("globalmount"), &filesystem());
    }

    fn mount(&self, handle: &str, pod: &str) {
        self.stage_filesystem(handle);
        let dir = self.setup.volume_dir(pod, &format!("pv-{handle}"));
        write(&dir, &published_data(handle, ",\"volumeLifecycleMode\":\"Persistent\""));
        let staging = self.setup.staged_dir(handle).join("globalmount");
        self.publish(handle, &staging, &dir.join("mount"), &filesystem());
        fs::write(dir.join("mount/file"), "kept\n").expect("a file");
    }

    /// Also binds the device in a directory of the volume and keeps it open there by a loop device.
    fn map(&self, handle: &str, pod: &str, kept_open: &mut KeptOpen) {
        let (devices, name) = (self.setup.devices_dir(), format!("pv-{handle}"));
        write(&devices.join(&name).join("data"), &published_data(handle, ""));
        let (staging, target) =
            (devices.join("staging").join(&name), devices.join("publish").join(&name).join(pod));
        self.stage(handle, &staging, &AccessType::Block);
        self.publish(handle, &staging, &target, &AccessType::Block);
        let bound = devices.join(&name).join("dev").join(pod);
        fs::create_dir_all(bound.parent().expect("a parent")).expect("a directory");
        fs::write(&bound, "").expect("a file");
        run("mount", &["--bind".as_ref(), &target, &bound]);
        kept_open.attach(bound);
        let links =
            self.setup.cluster.node.path("root/pods").join(pod).join("volumeDevices/kubernetes.io~csi");
        fs::create_dir_all(&links).expect("a directory");
        symlink(&target, links.join(&name)).expect("a link");
    }
}

fn run(program: &str, arguments: &[&Path]) {
    let output = Command::new(program).args(arguments).output().expect("it runs");
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn filesystem() -> AccessType {
    AccessType::Mount {
        fs_type: "ext4".to_owned(),
        mount_flags: Vec::new(),
        volume_mount_group: String::new(),
    }
}

fn capability(access_type: &AccessType) -> VolumeCapability {
    VolumeCapability { access_type: access_type.clone(), access_mode: AccessMode::SingleNodeWriter }
}

fn context(access_type: &AccessType) -> std::collections::BTreeMap<String, String> {
    match access_type {
        AccessType::Mount { .. } => [("size".to_owned(), SIZE.to_owned())].into(),
        AccessType::Block => [].into(),
    }
}

/// The mounts of volumes: id and mount point. A mount that was made again has another id.
fn mounts(setup: &Setup, of: &str) -> Vec<String> {
    let below = setup.cluster.node.path("root").display().to_string();
    let table = fs::read_to_string("/proc/self/mountinfo").expect("a mount table");
    let fields = table.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let is_of = |fields: &Vec<&str>| {
        let path = fields[4];
        path.starts_with(&below) && path.contains(of) && path.contains("csi")
    };
    let mut found: Vec<String> =
        fields.filter(is_of).map(|fields| format!("{} {}", fields[0], fields[4])).collect();
    found.sort();
    found
}

fn device_pod(name: &str, claim: &str) -> Value {
    let mapped = json!({"volumeDevices": [{"name": "data", "devicePath": "/dev/mine"}]});
    with_claim(shell_pod(name, &format!("head -c 4 /dev/mine; echo; {FOREVER}")), claim, mapped)
}

#[test]
fn csi_volumes_of_the_go_kubelet_are_kept_for_their_pods_and_removed_without_them() {
    let mut setup = Setup::start(&json!({"attachRequired": false}));
    setup.cluster.node.kill_kubelet();
    setup.claim_filesystem("disk");
    setup.claim_device("raw");
    setup.create(claim_pod("disk", "cat /data/file", "disk"));
    setup.create(device_pod("raw", "raw"));
    let pods = ["disk", "raw"].map(|name| setup.cluster.kubectl.get("pod", name).expect("a pod"));
    let mut kept_open = KeptOpen(Vec::new());
    let go = GoKubelet::new(&setup);
    go.mount("disk", &uid(&pods[0]));
    go.map("raw", &uid(&pods[1]), &mut kept_open);
    fs::write(setup.cluster.node.path("storage/volumes/raw.img"), vec![b'k'; 16 << 20]).expect("a device");
    go.mount("old-disk", GONE[0]);
    go.map("old-raw", GONE[1], &mut kept_open);
    go.stage_filesystem("left");
    let of_pods = pods.each_ref().map(uid);
    let before = of_pods.each_ref().map(|pod| mounts(&setup, pod));
    assert_eq!(before.each_ref().map(Vec::len), [1, 2], "{before:?}");
    let calls = setup.driver.call_lines().len();

    setup.cluster.node.start_kubelet();
    let [disk, raw] = ["disk", "raw"].map(|name| setup.cluster.running(name));
    wait_for_output(&setup.cluster, &disk, "kept\n");
    wait_for_output(&setup.cluster, &raw, "kkkk\n");
    for pod in GONE {
        setup.cluster.node.eventually("the pod that does not exist has no mounts", |_| {
            let left = mounts(&setup, pod);
            if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
        });
    }
    setup.cluster.node.eventually("only volumes of pods are staged", |_| {
        let mut staged: Vec<String> = setup.driver.staged().into_iter().map(|(volume, _)| volume).collect();
        staged.sort();
        if staged == ["disk", "raw"] { Ok(()) } else { Err(format!("{staged:?}")) }
    });
    let after = of_pods.each_ref().map(|pod| mounts(&setup, pod));
    assert_eq!(after, before, "the mounts of the pods are the same");
    let of_kubelet = setup.driver.call_lines().split_off(calls);
    let undone =
        |line: &String| line.starts_with("NodeUn") && (line.ends_with(" disk") || line.ends_with(" raw"));
    assert!(!of_kubelet.iter().any(undone), "{of_kubelet:?}");

    setup.delete_and_wait(&disk);
    setup.delete_and_wait(&raw);
    setup.check_clean();
}
