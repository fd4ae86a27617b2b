//! SIGKILL for the kubelet right before and right after each step on its own files of CSI volumes (`host::fault`), while a pod is created
//! and while it is deleted: everything is mounted once, and nothing is left.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fakes::FakeRuntime;
use fixtures::stretched;
use serde_json::{Value, json};

use super::{DRIVER, Setup};
use crate::cluster::{Cluster, bound};
use crate::fault_points::{both, moments};
use crate::node::{FOREVER, IMAGE, Node, condition, shell_pod, uid};

const TIMEOUT: Duration = Duration::from_secs(240);
/// A death at one moment can skip another one, which then happens with the next pod.
const MAX_PODS: usize = 5;

/// The steps for a filesystem, a device and an inline volume of one pod, each with one moment before and one after it.
const STEPS: [&str; 29] = [
    // The filesystem is staged and published,
    "create (hash)/globalmount",
    "write (hash)/vol_data.json",
    "create (hash)/vol_data.json",
    "create kubernetes.io~csi/pv-disk",
    "write pv-disk/vol_data.json",
    "create pv-disk/vol_data.json",
    "create pv-disk/ready",
    // the device, with a link of its pod,
    "create staging/pv-raw",
    "create pv-raw/data",
    "write data/vol_data.json",
    "create data/vol_data.json",
    "create volumeDevices/kubernetes.io~csi",
    "create kubernetes.io~csi/pv-raw",
    "create publish/pv-raw",
    "create pv-raw/ready",
    // and the volume in the pod's spec.
    "create kubernetes.io~csi/inline",
    "create inline/vol_data.json",
    // All of that is removed.
    "remove pv-disk/vol_data.json",
    "remove kubernetes.io~csi/pv-disk",
    "remove inline/vol_data.json",
    "remove kubernetes.io~csi/pv-raw",
    "remove (pod)/volumeDevices",
    "remove (pod)/volumes",
    "remove (hash)/globalmount",
    "remove (hash)/vol_data.json",
    "remove publish/pv-raw",
    "remove staging/pv-raw",
    "remove data/vol_data.json",
    "remove volumeDevices/pv-raw",
];

fn pod_with_every_kind() -> Value {
    let mut pod = bound(shell_pod("user", FOREVER));
    pod["spec"]["volumes"] = json!([
        {"name": "disk", "persistentVolumeClaim": {"claimName": "disk"}},
        {"name": "raw", "persistentVolumeClaim": {"claimName": "raw"}},
        {"name": "inline", "csi": {"driver": DRIVER}},
    ]);
    let main = &mut pod["spec"]["containers"][0];
    main["volumeMounts"] =
        json!([{"name": "disk", "mountPath": "/disk"}, {"name": "inline", "mountPath": "/inline"}]);
    main["volumeDevices"] = json!([{"name": "raw", "devicePath": "/dev/mine"}]);
    pod
}

/// The mount points below the directory, sorted; one that is mounted twice is in there twice.
fn mounts_below(dir: &Path) -> Vec<PathBuf> {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("a mount table");
    let points = table.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
    let mut below: Vec<PathBuf> = points.filter(|point| point.starts_with(dir)).collect();
    below.sort();
    below
}

/// What a kubelet finds staged without a pod it unstages while the pod is created, and then stages it again over what a death left. So each
/// removal counts again while the pod is deleted.
fn forget_removals(points: &Path) {
    let kept = moments(points).into_iter().filter(|moment| !moment.contains(" remove "));
    let text: String = kept.map(|moment| format!("{moment}\n")).collect();
    fs::write(points, text).expect("a file");
}

impl Setup {
    /// Starts one kubelet after another until the condition holds; returns how many died.
    #[track_caller]
    fn survive_deaths(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) -> usize {
        let (began, mut deaths) = (Instant::now(), 0);
        while !is_so(self) {
            assert!(
                began.elapsed() < stretched(TIMEOUT),
                "timed out waiting for: {what}; left: {:?}, calls: {:?}\n{}",
                self.left(),
                self.driver.call_lines(),
                self.cluster.node.kubelet_log()
            );
            deaths += usize::from(self.cluster.node.restart_dead_kubelet());
            std::thread::park_timeout(Duration::from_millis(25));
        }
        deaths
    }

    /// Every volume of the pod is mounted once, and staged and published where it belongs.
    fn check_mounted_once(&self, pod: &str) {
        let csi = self.cluster.node.path("root/plugins/kubernetes.io/csi");
        let (disk, inline) = (self.volume_dir(pod, "pv-disk"), self.volume_dir(pod, "inline"));
        let device = self.devices_dir().join("publish/pv-raw").join(pod);
        let staged = self.staged_dir("disk").join("globalmount");
        let mut expected = vec![staged.clone(), device.clone()];
        expected.sort();
        assert_eq!(mounts_below(&csi), expected);
        let pods = self.cluster.node.path("root/pods").join(pod);
        assert_eq!(mounts_below(&pods), [inline.join("mount"), disk.join("mount")]);
        let staging = self.devices_dir().join("staging/pv-raw");
        assert_eq!(self.driver.staged(), [("disk".to_owned(), staged), ("raw".to_owned(), staging)]);
        let mut published: Vec<PathBuf> = self.driver.published().into_iter().map(|(_, path)| path).collect();
        published.sort();
        let mut targets = vec![disk.join("mount"), inline.join("mount"), device.clone()];
        targets.sort();
        assert_eq!(published, targets);
        let links = pods.join("volumeDevices/kubernetes.io~csi");
        assert_eq!(fs::read_link(links.join("pv-raw")).expect("a link"), device);
        assert_eq!(fs::read_dir(links).expect("a directory").count(), 1);
    }

    /// Creates and deletes the pod while one kubelet dies at each new moment; returns how many died.
    fn create_and_delete(&mut self, points: &Path, is_first: bool) -> usize {
        self.create(pod_with_every_kind());
        let is_ready = |setup: &Self| {
            let pods = setup.cluster.node.pods().into_iter();
            pods.filter(|pod| pod["metadata"]["name"] == "user").any(|pod| condition(&pod, "Ready") == "True")
        };
        let mut deaths = self.survive_deaths("the pod runs", is_ready);
        let pod = uid(&self.cluster.kubectl.get("pod", "user").expect("a pod"));
        self.check_mounted_once(&pod);
        if is_first {
            forget_removals(points);
        }
        self.cluster.kubectl.delete("user");
        let dir = self.cluster.node.path("root/pods").join(&pod);
        deaths += self.survive_deaths("nothing is left", |setup| {
            let is_gone = |error: String| error.contains("NotFound");
            !dir.exists()
                && setup.left().is_empty()
                && setup.cluster.kubectl.get("pod", "user").is_err_and(is_gone)
        });
        self.check_violations();
        deaths
    }
}

#[test]
fn kubelet_killed_around_each_step_of_csi_volumes_mounts_them_once_and_leaves_nothing() {
    let runtime = FakeRuntime::with_clock(ports::Clock::system());
    runtime.image(IMAGE);
    let spec = json!({
        "attachRequired": false, "podInfoOnMount": true, "volumeLifecycleModes": ["Persistent", "Ephemeral"],
    });
    let mut setup = Setup::with(Cluster::with_node(Node::with_fake(&runtime, json!({}))), &spec);
    setup.cluster.node.start_kubelet();
    setup.register();
    setup.claim_filesystem("disk");
    setup.claim_device("raw");
    setup.cluster.node.kill_kubelet();
    let points = setup.cluster.node.path("points");
    fs::write(&points, "").expect("a file");
    setup.cluster.node.set_variable("KUBELET_FAULT_POINTS", points.clone());
    let due: BTreeSet<String> = both(&STEPS).collect();

    let mut deaths = 0;
    for turn in 0..MAX_PODS {
        deaths += setup.create_and_delete(&points, turn == 0);
        if due.is_subset(&moments(&points)) {
            break;
        }
    }
    let passed = moments(&points);
    let missed: Vec<&String> = due.difference(&passed).collect();
    assert!(missed.is_empty(), "not visited: {missed:?} among {passed:#?}");
    assert!(deaths >= due.len(), "{deaths} kubelets for {} moments", passed.len());
    eprintln!("{} moments, {deaths} kubelets", passed.len());
}
