//! A node whose volumes the Go kubelet mounted: its files and mounts, made here with the driver itself, are taken over while their
//! pods exist, and taken away when they don't. And the other way round: what this kubelet mounted has the files, permissions and links
//! that the Go kubelet would have made, and its steps, done here, remove all of it.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
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

use super::{DRIVER, SIZE, Setup, claim_pod, read, wait_for_output};
use crate::cluster::bound;
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
    // Not into the file of the loop device: where udev has read the device, its page cache keeps what was in the file then.
    fs::write(setup.devices_dir().join("publish/pv-raw").join(uid(&pods[1])), "kkkk").expect("a device");
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

/// Everything below the directory, with permissions and what files contain and links point to: `750 a/b/`, `644 a/b/vol_data.json {…}`,
/// `a/b/mount mounted`. What is mounted is not entered.
fn listing(dir: &Path) -> Vec<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("a mount table");
    let mounted: Vec<&str> = table.lines().filter_map(|line| line.split(' ').nth(4)).collect();
    let (mut found, mut open) = (Vec::new(), vec![dir.to_owned()]);
    while let Some(path) = open.pop() {
        let name = path.strip_prefix(dir.parent().expect("a parent")).expect("below").display().to_string();
        let metadata = fs::symlink_metadata(&path).expect("metadata");
        let mode = metadata.mode() & 0o7777;
        if mounted.iter().any(|point| Path::new(point) == path) {
            found.push(format!("{name} mounted"));
        } else if metadata.is_dir() {
            found.push(format!("{name}/ {mode:o}"));
            open.extend(fs::read_dir(&path).expect("a directory").flatten().map(|entry| entry.path()));
        } else if metadata.is_symlink() {
            found.push(format!("{name} -> {}", fs::read_link(&path).expect("a link").display()));
        } else {
            let content = if name.ends_with("vol_data.json") { read(&path) } else { String::new() };
            found.push(format!("{name} {mode:o} {content}").trim_end().to_owned());
        }
    }
    found.sort();
    found
}

/// What the Go kubelet makes for every pod with one container, and (the last lines) what only this one makes. The Go kubelet removes all of
/// it with the pod's directory.
fn files_of_every_pod(uid: &str, volume: &str) -> Vec<String> {
    [
        "/ 750",
        "/containers/ 750",
        "/containers/main/ 750",
        "/containers/main/00000000 666",
        "/etc-hosts 644",
        "/plugins/ 750",
        "/plugins/kubernetes.io~csi/ 750",
        &format!("/plugins/kubernetes.io~csi/{volume}/ 750"),
        &format!("/plugins/kubernetes.io~csi/{volume}/ready 644"),
        "/pod.json 600",
        "/status.json 600",
    ]
    .map(|line| format!("{uid}{line}"))
    .to_vec()
}

fn sorted<const N: usize>(mut lines: Vec<String>, more: [String; N]) -> Vec<String> {
    lines.extend(more);
    lines.sort();
    lines
}

fn inline_pod() -> Value {
    let mut pod = bound(claim_pod("inline", "true", "none"));
    pod["spec"]["volumes"] = json!([{"name": "data", "csi": {"driver": DRIVER}}]);
    pod
}

fn inline_handle(uid: &str) -> String {
    format!("csi-{}", sha256_hex(format!("{uid}data").as_bytes()))
}

/// The node has these files and no others.
fn check_listing(setup: &Setup, uids: &[String; 3]) {
    let root = setup.cluster.node.path("root");
    let of_pod = |uid: &str| listing(&root.join("pods").join(uid));
    let [disk, raw, inline] = uids;
    let data = |lifecycle: &str| format!(",\"volumeLifecycleMode\":\"{lifecycle}\"");
    let (volumes, devices) = ("volumes/kubernetes.io~csi", "volumeDevices/kubernetes.io~csi");
    let volume = |uid: &str, name: &str, content: String| {
        [
            format!("{uid}/volumes/ 750"),
            format!("{uid}/{volumes}/ 750"),
            format!("{uid}/{volumes}/{name}/ 750"),
            format!("{uid}/{volumes}/{name}/mount mounted"),
            format!("{uid}/{volumes}/{name}/vol_data.json 644 {}", content.trim_end()),
        ]
    };
    let expected = volume(disk, "pv-disk", published_data("disk", &data("Persistent")));
    assert_eq!(of_pod(disk), sorted(files_of_every_pod(disk, "pv-disk"), expected));
    let content = published_data(&inline_handle(inline), &data("Ephemeral"));
    let content = content.replace(&format!("pv-{}", inline_handle(inline)), "data");
    assert_eq!(of_pod(inline), sorted(files_of_every_pod(inline, "data"), volume(inline, "data", content)));
    let published = setup.devices_dir().join("publish/pv-raw").join(raw);
    let expected = [
        format!("{raw}/volumes/ 750"),
        format!("{raw}/volumeDevices/ 750"),
        format!("{raw}/{devices}/ 750"),
        format!("{raw}/{devices}/pv-raw -> {}", published.display()),
    ];
    assert_eq!(of_pod(raw), sorted(files_of_every_pod(raw, "pv-raw"), expected));

    let digest = sha256_hex(b"disk");
    let expected = [
        "kubernetes.io/ 750".to_owned(),
        "kubernetes.io/csi/ 750".to_owned(),
        format!("kubernetes.io/csi/{DRIVER}/ 750"),
        format!("kubernetes.io/csi/{DRIVER}/{digest}/ 750"),
        format!("kubernetes.io/csi/{DRIVER}/{digest}/globalmount mounted"),
        format!(
            "kubernetes.io/csi/{DRIVER}/{digest}/vol_data.json 644 {{\"driverName\":\"{DRIVER}\",\"volumeHandle\":\"disk\"}}"
        ),
        "kubernetes.io/csi/volumeDevices/ 750".to_owned(),
        "kubernetes.io/csi/volumeDevices/publish/ 750".to_owned(),
        "kubernetes.io/csi/volumeDevices/publish/pv-raw/ 750".to_owned(),
        format!("kubernetes.io/csi/volumeDevices/publish/pv-raw/{raw} mounted"),
        // The Go kubelet also has a directory `dev` in here, and takes its absence for a device that is not mapped yet.
        "kubernetes.io/csi/volumeDevices/pv-raw/ 750".to_owned(),
        "kubernetes.io/csi/volumeDevices/pv-raw/data/ 750".to_owned(),
        format!(
            "kubernetes.io/csi/volumeDevices/pv-raw/data/vol_data.json 644 {}",
            published_data("raw", "").trim_end()
        ),
        "kubernetes.io/csi/volumeDevices/staging/ 750".to_owned(),
        "kubernetes.io/csi/volumeDevices/staging/pv-raw/ 750".to_owned(),
    ];
    assert_eq!(listing(&root.join("plugins/kubernetes.io")), sorted(Vec::new(), expected));
}

/// What reconstruction reads: the names of the volumes in the pod's directory, and the file of each.
impl GoKubelet<'_> {
    fn reconstructed(&self, dir: &Path) -> Value {
        serde_json::from_str(&read(&dir.join("vol_data.json"))).expect("an object of strings")
    }

    fn names(&self, pod: &str, dir: &str) -> Vec<String> {
        let dir = self.setup.cluster.node.path("root/pods").join(pod).join(dir).join("kubernetes.io~csi");
        let names = fs::read_dir(dir).into_iter().flatten().flatten();
        names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    fn unpublish(&self, data: &Value, target: &Path) {
        let handle = data["volumeHandle"].as_str().expect("a handle");
        let unpublished = self.driver.unpublish(handle, target);
        self.setup.cluster.node.finish(unpublished).expect("the volume is unpublished");
    }

    fn unstage(&self, data: &Value, target: &Path) {
        let handle = data["volumeHandle"].as_str().expect("a handle");
        self.setup.cluster.node.finish(self.driver.unstage(handle, target)).expect("the volume is unstaged");
    }

    /// Fails where anything but the directory that was mounted on and the data is left.
    fn remove_mount_dir(&self, mounted: &Path) {
        let dir = mounted.parent().expect("a parent");
        for removed in [fs::remove_dir(mounted), fs::remove_file(dir.join("vol_data.json"))] {
            if let Err(error) = removed {
                assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
            }
        }
        fs::remove_dir(dir).unwrap_or_else(|error| panic!("{}: {error}: {:?}", dir.display(), listing(dir)));
    }

    fn unmount_volumes(&self, pod: &str) {
        for name in self.names(pod, "volumes") {
            let dir = self.setup.volume_dir(pod, &name);
            let data = self.reconstructed(&dir);
            assert_eq!((&data["driverName"], &data["specVolID"]), (&json!(DRIVER), &json!(name)));
            self.unpublish(&data, &dir.join("mount"));
            self.remove_mount_dir(&dir.join("mount"));
            if data["volumeLifecycleMode"] == "Persistent" {
                let staged = self.setup.staged_dir(data["volumeHandle"].as_str().expect("a handle"));
                self.unstage(&self.reconstructed(&staged), &staged.join("globalmount"));
                self.remove_mount_dir(&staged.join("globalmount"));
            }
        }
    }

    fn unmap_devices(&self, pod: &str) {
        for name in self.names(pod, "volumeDevices") {
            let devices = self.setup.devices_dir();
            let data = self.reconstructed(&devices.join(&name).join("data"));
            assert_eq!((&data["driverName"], &data["specVolID"]), (&json!(DRIVER), &json!(name)));
            let (publish, staging) =
                (devices.join("publish").join(&name), devices.join("staging").join(&name));
            self.unpublish(&data, &publish.join(pod));
            let links =
                self.setup.cluster.node.path("root/pods").join(pod).join("volumeDevices/kubernetes.io~csi");
            fs::remove_file(links.join(&name)).expect("the link of the pod");
            self.unstage(&data, &staging);
            fs::remove_dir_all(staging).expect("a directory");
            fs::remove_dir(publish).expect("an empty directory");
            fs::remove_dir_all(devices.join(&name)).expect("a directory");
        }
    }

    /// Only directories are removed below `volumes`, and everything elsewhere.
    fn remove_pod(&self, pod: &str) {
        fn remove_dirs(dir: &Path) {
            for entry in fs::read_dir(dir).expect("a directory of directories").flatten() {
                remove_dirs(&entry.path());
            }
            fs::remove_dir(dir).expect("an empty directory");
        }
        let dir = self.setup.cluster.node.path("root/pods").join(pod);
        remove_dirs(&dir.join("volumes"));
        fs::remove_dir_all(dir).expect("a directory");
    }
}

#[test]
fn csi_volumes_of_this_kubelet_have_the_files_of_the_go_kubelet_which_removes_all_of_them() {
    let mut setup = Setup::start(&json!({
        "attachRequired": false, "podInfoOnMount": true, "volumeLifecycleModes": ["Persistent", "Ephemeral"],
    }));
    setup.claim_filesystem("disk");
    setup.claim_device("raw");
    setup.create(claim_pod("disk", "true", "disk"));
    setup.create(device_pod("raw", "raw"));
    setup.create(inline_pod());
    let uids = ["disk", "raw", "inline"].map(|name| uid(&setup.cluster.running(name)));
    setup.cluster.node.kill_kubelet();
    check_listing(&setup, &uids);

    let go = GoKubelet::new(&setup);
    for pod in &uids {
        setup.cluster.node.stop_sandboxes(pod);
        go.unmount_volumes(pod);
        go.unmap_devices(pod);
        go.remove_pod(pod);
    }
    setup.check_clean();
    let pods = setup.cluster.node.path("root/pods");
    assert_eq!(fs::read_dir(pods).expect("a directory").count(), 0);
}
