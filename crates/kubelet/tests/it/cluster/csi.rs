//! Volumes of a CSI driver through the API: a driver with a socket of its own, which makes real mounts, and pods on a real
//! containerd. Every test ends with nothing mounted, staged, or left on disk, and without a call that the specification forbids.

mod attachment;
mod change_over;
mod driver_deaths;
mod expansion;
mod fault_points;
mod kills;
mod load;
mod power_loss;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use fakes::TestCsiDriver;
use model::csi::AccessType;
use model::digest::sha256_hex;
use serde_json::{Value, json};

use super::Cluster;
use super::block_devices::mounted_at;
use super::volumes::{bind, mounted, set_bound, with_claim};
use crate::node::{FOREVER, Node, shell_pod, uid};

const DRIVER: &str = "test.csi.example";
/// Of a filesystem on a loop device.
const SIZE: &str = "16777216";

/// A cluster with a driver on its node. The driver is dropped first.
struct Setup {
    driver: TestCsiDriver,
    cluster: Cluster,
}

impl Setup {
    /// The kubelet is not started yet.
    fn prepare(spec: &Value) -> Self {
        Self::with(Cluster::with_node(Node::on_containerd(json!({}))), spec)
    }

    fn with(cluster: Cluster, spec: &Value) -> Self {
        create_driver_object(&cluster, DRIVER, spec);
        let driver = TestCsiDriver::serve(&cluster.node.path("root"), DRIVER, &cluster.node.path("storage"));
        Self { driver, cluster }
    }

    fn start(spec: &Value) -> Self {
        let mut setup = Self::prepare(spec);
        setup.cluster.node.start_kubelet();
        setup.register();
        setup
    }

    /// Returns when the CSINode has the driver.
    fn register(&mut self) {
        self.driver.register();
        wait_for_driver(&self.cluster, DRIVER);
    }

    /// A filesystem with a claim; volume and handle are named after it.
    fn claim_filesystem(&self, name: &str) {
        let source = json!({"driver": DRIVER, "volumeHandle": name, "fsType": "ext4", "volumeAttributes": {"size": SIZE}});
        self.claim(name, json!({"csi": source}));
    }

    /// A directory of a driver with a claim, which is mounted faster.
    fn claim_directory(&self, driver: &str, name: &str) {
        self.claim(name, json!({"csi": {"driver": driver, "volumeHandle": name}}));
    }

    fn claim_device(&self, name: &str) {
        let source = json!({"driver": DRIVER, "volumeHandle": name});
        self.claim(name, json!({"csi": source, "volumeMode": "Block"}));
    }

    fn claim(&self, name: &str, spec: Value) {
        bind(&self.cluster, name, spec);
        set_bound(&self.cluster, name);
    }

    fn create(&self, pod: Value) {
        self.cluster.kubectl.create(&[pod]);
    }

    #[track_caller]
    fn delete_and_wait(&self, pod: &Value) {
        self.cluster.kubectl.delete(pod["metadata"]["name"].as_str().expect("a name"));
        self.cluster.wait_until_gone(pod);
    }

    fn staged_dir(&self, handle: &str) -> PathBuf {
        let digest = sha256_hex(handle.as_bytes());
        self.cluster.node.path("root/plugins/kubernetes.io/csi").join(DRIVER).join(digest)
    }

    fn devices_dir(&self) -> PathBuf {
        self.cluster.node.path("root/plugins/kubernetes.io/csi/volumeDevices")
    }

    fn volume_dir(&self, pod: &str, volume: &str) -> PathBuf {
        self.cluster.node.path("root/pods").join(pod).join("volumes/kubernetes.io~csi").join(volume)
    }

    /// Waits until nothing is left of any volume. The driver has had no call that the specification forbids.
    #[track_caller]
    fn check_clean(&self) {
        self.cluster.node.eventually("nothing is left of the volumes", |_| {
            let left = self.left();
            if left.is_empty() {
                Ok(())
            } else {
                Err(format!("{left:?}, calls: {:?}", self.driver.call_lines()))
            }
        });
        self.check_violations();
    }

    #[track_caller]
    fn check_violations(&self) {
        assert_eq!(self.driver.violations(), Vec::<String>::new(), "{:?}", self.driver.call_lines());
    }

    fn left(&self) -> Vec<String> {
        let (node, mut left) = (&self.cluster.node, Vec::new());
        let of_driver = self.driver.staged().into_iter().chain(self.driver.published());
        left.extend(of_driver.map(|(volume, path)| format!("{volume} at {}", path.display())));
        let below = ["root/plugins", "root/pods"].map(|dir| node.path(dir));
        let table = fs::read_to_string("/proc/self/mounts").expect("a mount table");
        let points = table.lines().filter_map(|line| line.split(' ').nth(1));
        let is_ours = |point: &&str| below.iter().any(|dir| Path::new(point).starts_with(dir));
        left.extend(points.filter(is_ours).map(|point| format!("mounted: {point}")));
        left.extend(loop_devices(&node.path("")));
        files_of_volumes(&node.path("root/plugins/kubernetes.io/csi"), &mut left);
        left
    }
}

fn create_driver_object(cluster: &Cluster, name: &str, spec: &Value) {
    let object = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": name}, "spec": spec});
    cluster.kubectl.run_with_input(&["create", "-f", "-"], &object.to_string());
}

#[track_caller]
fn wait_for_driver(cluster: &Cluster, name: &str) {
    cluster.node.eventually("the CSINode has the driver", |_| {
        let node = cluster.kubectl.get("csinode", "node")?;
        let drivers = node["spec"]["drivers"].as_array().cloned().unwrap_or_default();
        if drivers.iter().any(|driver| driver["name"] == name) { Ok(()) } else { Err(node.to_string()) }
    });
}

/// A driver in addition to that of the [`Setup`], not registered yet.
fn other_driver(cluster: &Cluster, name: &str, spec: &Value) -> TestCsiDriver {
    create_driver_object(cluster, name, spec);
    TestCsiDriver::serve(&cluster.node.path("root"), name, &cluster.node.path(name))
}

/// Waits until nothing is left of the driver's volumes, and ends it. It has had no call that the specification forbids.
#[track_caller]
fn end_other_driver(cluster: &Cluster, name: &str, driver: TestCsiDriver) {
    cluster.node.eventually("the other driver has unstaged its volumes", |_| {
        if driver.staged().is_empty() { Ok(()) } else { Err(format!("{:?}", driver.call_lines())) }
    });
    assert_eq!(driver.violations(), Vec::<String>::new());
    drop(driver);
    let staged = cluster.node.path("root/plugins/kubernetes.io/csi").join(name);
    cluster.node.eventually("the directory of the other driver can be removed", |_| {
        match fs::remove_dir(&staged) {
            Err(error) if staged.exists() => Err(error.to_string()),
            Ok(()) | Err(_) => Ok(()),
        }
    });
}

/// The files below the directory that are attached to loop devices.
fn loop_devices(dir: &Path) -> Vec<String> {
    let output = Command::new("losetup").args(["--list", "--noheadings", "--output", "BACK-FILE"]).output();
    let output = output.expect("losetup runs").stdout;
    let dir = dir.to_str().expect("a path");
    String::from_utf8_lossy(&output).lines().filter(|file| file.contains(dir)).map(str::to_owned).collect()
}

/// Everything below the directory, except the directories that all volumes share.
fn files_of_volumes(dir: &Path, found: &mut Vec<String>) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        let is_shared =
            matches!(entry.file_name().to_str(), Some(DRIVER | "volumeDevices" | "staging" | "publish"));
        if !is_shared {
            found.push(entry.path().display().to_string());
        }
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            files_of_volumes(&entry.path(), found);
        }
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A pod with the claim's filesystem at `/data`.
fn claim_pod(name: &str, script: &str, claim: &str) -> Value {
    with_claim(shell_pod(name, &format!("{script}; {FOREVER}")), claim, mounted())
}

#[track_caller]
fn wait_for_output(cluster: &Cluster, pod: &Value, expected: &str) {
    cluster.node.eventually(&format!("the pod prints {expected:?}"), |node| {
        let output = node.logs(pod, "main");
        if output == expected { Ok(()) } else { Err(output) }
    });
}

/// What the kubelet says about the driver in the CSINode and the Node.
fn check_node(cluster: &Cluster) {
    let csi_node = cluster.kubectl.get("csinode", "node").expect("a CSINode");
    let expected = json!([{
        "name": DRIVER, "nodeID": "node-1", "topologyKeys": ["topology.example/zone"], "allocatable": {"count": 7},
    }]);
    assert_eq!(csi_node["spec"]["drivers"], expected);
    let metadata = &cluster.kubectl.get("node", "node").expect("a node")["metadata"];
    assert_eq!(metadata["labels"]["topology.example/zone"], "a");
    let id = format!("{{\"{DRIVER}\":\"node-1\"}}");
    assert_eq!(metadata["annotations"]["csi.volume.kubernetes.io/nodeid"], id.as_str());
}

/// The files are those of the Go kubelet, byte for byte.
fn check_files(setup: &Setup, pod: &Value) {
    let staged = setup.staged_dir("disk");
    let data = format!("{{\"driverName\":\"{DRIVER}\",\"volumeHandle\":\"disk\"}}\n");
    assert_eq!(read(&staged.join("vol_data.json")), data);
    assert!(mounted_at(&staged.join("globalmount")).is_some_and(|shown| shown.starts_with("ext4 rw")));
    let published = setup.volume_dir(&uid(pod), "pv-disk");
    let attachment = sha256_hex(format!("disk{DRIVER}node").as_bytes());
    let data = format!(
        "{{\"attachmentID\":\"csi-{attachment}\",\"driverName\":\"{DRIVER}\",\"nodeName\":\"node\",\"specVolID\":\"pv-disk\",\
         \"volumeHandle\":\"disk\",\"volumeLifecycleMode\":\"Persistent\"}}\n"
    );
    assert_eq!(read(&published.join("vol_data.json")), data);
    assert!(mounted_at(&published.join("mount")).is_some_and(|shown| shown.starts_with("ext4 rw")));
}

#[test]
fn csi_filesystem_is_staged_once_for_two_pods_and_leaves_nothing_behind() {
    let mut setup = Setup::prepare(&json!({"attachRequired": false}));
    setup.driver.set_info(|info| {
        info.max_volumes_per_node = 7;
        info.topology = [("topology.example/zone".to_owned(), "a".to_owned())].into();
    });
    setup.cluster.node.start_kubelet();
    setup.register();
    check_node(&setup.cluster);

    setup.claim_filesystem("disk");
    setup.create(claim_pod("writer", "echo kept > /data/file", "disk"));
    setup.create(claim_pod("reader", "until test -s /data/file; do sleep 0.1; done; cat /data/file", "disk"));
    let (writer, reader) = (setup.cluster.running("writer"), setup.cluster.running("reader"));
    wait_for_output(&setup.cluster, &reader, "kept\n");
    check_files(&setup, &writer);
    setup.delete_and_wait(&writer);
    assert_eq!(setup.driver.staged().len(), 1, "the other pod uses it");
    assert!(!setup.driver.call_lines().iter().any(|line| line.starts_with("NodeUnstageVolume")));
    setup.delete_and_wait(&reader);
    setup.check_clean();
    let (publish, unpublish) = ("NodePublishVolume disk", "NodeUnpublishVolume disk");
    let expected = ["NodeStageVolume disk", publish, publish, unpublish, unpublish, "NodeUnstageVolume disk"];
    assert_eq!(setup.driver.call_lines(), expected);

    setup.create(claim_pod("again", "cat /data/file", "disk"));
    let again = setup.cluster.running("again");
    wait_for_output(&setup.cluster, &again, "kept\n");
    setup.delete_and_wait(&again);
    setup.check_clean();
}

/// A claim that the pod uses as a device, and what the container sees of it.
fn check_device(setup: &Setup, pod: &Value) {
    wait_for_output(&setup.cluster, pod, "raw\n");
    let published = setup.devices_dir().join("publish/pv-raw").join(uid(pod));
    let link =
        setup.cluster.node.path("root/pods").join(uid(pod)).join("volumeDevices/kubernetes.io~csi/pv-raw");
    assert_eq!(fs::read_link(link).expect("a link"), published);
    let data = read(&setup.devices_dir().join("pv-raw/data/vol_data.json"));
    let attachment = sha256_hex(format!("raw{DRIVER}node").as_bytes());
    let expected = format!(
        "{{\"attachmentID\":\"csi-{attachment}\",\"driverName\":\"{DRIVER}\",\"nodeName\":\"node\",\"specVolID\":\"pv-raw\",\
         \"volumeHandle\":\"raw\"}}\n"
    );
    assert_eq!(data, expected);
}

/// The pod's name is among the attributes of its inline volume, which is not staged.
fn check_inline(setup: &Setup, pod: &Value) {
    wait_for_output(&setup.cluster, pod, "inline\n");
    let handle = format!("csi-{}", sha256_hex(format!("{}data", uid(pod)).as_bytes()));
    let requests = setup.driver.publish_requests();
    let request = requests.iter().find(|request| request.volume_id == handle).expect("it is published");
    let uid = uid(pod);
    for (key, value) in [
        ("csi.storage.k8s.io/pod.name", "inline"),
        ("csi.storage.k8s.io/pod.namespace", "default"),
        ("csi.storage.k8s.io/pod.uid", &*uid),
        ("csi.storage.k8s.io/serviceAccount.name", "default"),
        ("csi.storage.k8s.io/ephemeral", "true"),
        ("color", "blue"),
    ] {
        assert_eq!(request.volume_context.0.get(key).map(String::as_str), Some(value), "{key}");
    }
    assert!(request.staging_target_path.is_none(), "it is not staged");
}

fn group_of(setup: &Setup, pod: &Value, volume: &str) -> (u32, u32) {
    let metadata = fs::metadata(setup.volume_dir(&uid(pod), volume).join("mount")).expect("a mount");
    (metadata.gid(), metadata.mode() & 0o2777)
}

#[test]
fn csi_devices_inline_volumes_groups_and_read_only_mounts_reach_the_container() {
    const GROUPS: &str = "groups.csi.example";
    let setup = Setup::start(&json!({
        "attachRequired": false, "podInfoOnMount": true, "fsGroupPolicy": "File",
        "volumeLifecycleModes": ["Persistent", "Ephemeral"],
    }));
    let cluster = &setup.cluster;
    let mut groups =
        other_driver(cluster, GROUPS, &json!({"attachRequired": false, "fsGroupPolicy": "File"}));
    groups
        .set_capabilities(|capabilities| capabilities.volume_mount_group = true)
        .set_info(|info| info.node_id = "g".to_owned());
    groups.register();
    wait_for_driver(cluster, GROUPS);

    setup.claim_device("raw");
    let write = "printf 'raw\\n' | dd of=/dev/mine 2>/dev/null; head -c 4 /dev/mine";
    let mapped = json!({"volumeDevices": [{"name": "data", "devicePath": "/dev/mine"}]});
    setup.create(with_claim(shell_pod("raw", &format!("{write}; {FOREVER}")), "raw", mapped));
    let mut inline = claim_pod("inline", "echo inline > /data/file; cat /data/file", "none");
    let source = json!({"driver": DRIVER, "volumeAttributes": {"color": "blue"}});
    inline["spec"]["volumes"] = json!([{"name": "data", "csi": source}]);
    setup.create(inline);
    setup.claim_filesystem("grouped");
    setup.claim_directory(GROUPS, "driven");
    for name in ["grouped", "driven"] {
        let mut pod = claim_pod(name, "true", name);
        pod["spec"]["securityContext"] = json!({"fsGroup": 4711});
        setup.create(pod);
    }
    setup.claim_filesystem("fixed");
    let mut fixed = claim_pod("fixed", "touch /data/file 2>/dev/null || echo refused", "fixed");
    fixed["spec"]["volumes"][0]["persistentVolumeClaim"]["readOnly"] = true.into();
    setup.create(fixed);

    let pods = ["raw", "inline", "grouped", "driven", "fixed"].map(|name| cluster.running(name));
    let [raw, inline, grouped, driven, fixed] = &pods;
    check_device(&setup, raw);
    check_inline(&setup, inline);
    assert_eq!(group_of(&setup, grouped, "pv-grouped"), (4711, 0o2775), "changed by the kubelet");
    assert_eq!(group_of(&setup, driven, "pv-driven"), (4711, 0o2775), "changed by the driver");
    let groups_given = |driver: &TestCsiDriver, volume: &str| match &driver
        .publish_requests()
        .iter()
        .find(|request| request.volume_id == volume)
        .expect("it is published")
        .capability
        .access_type
    {
        AccessType::Mount { volume_mount_group, .. } => volume_mount_group.clone(),
        AccessType::Block => panic!("it is a filesystem"),
    };
    assert_eq!(
        (groups_given(&setup.driver, "grouped"), groups_given(&groups, "driven")),
        (String::new(), "4711".to_owned())
    );
    wait_for_output(cluster, fixed, "refused\n");
    let shown = mounted_at(&setup.volume_dir(&uid(fixed), "pv-fixed").join("mount"));
    assert!(shown.as_ref().is_some_and(|shown| shown.starts_with("ext4 ro")), "{shown:?}");

    for pod in &pods {
        cluster.kubectl.delete(pod["metadata"]["name"].as_str().expect("a name"));
    }
    for pod in &pods {
        cluster.wait_until_gone(pod);
    }
    end_other_driver(cluster, GROUPS, groups);
    setup.check_clean();
}
