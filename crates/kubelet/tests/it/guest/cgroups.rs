//! Cgroups of version 2 that systemd makes: what it says of them, what the kernel has, and that nothing is left.

use std::path::{Path, PathBuf};
use std::process::Command;

use model::CgroupDriver;
use serde_json::{Value, json};

use crate::node::{FOREVER, Node, container, shell_pod, uid};

/// Where systemd and the kernel agree: the whole machine is this test's, and only one kubelet here uses the driver.
const KUBEPODS: &str = "/sys/fs/cgroup/kubepods.slice";

fn slice(tier: &str, uid: &str) -> PathBuf {
    let uid = uid.replace('-', "_");
    match tier {
        "" => format!("{KUBEPODS}/kubepods-pod{uid}.slice").into(),
        tier => format!("{KUBEPODS}/kubepods-{tier}.slice/kubepods-{tier}-pod{uid}.slice").into(),
    }
}

fn read(cgroup: &Path, file: &str) -> String {
    let path = cgroup.join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    text.trim().to_owned()
}

fn systemctl(args: &[&str]) -> String {
    let output = Command::new("systemctl").args(args).output().expect("systemctl runs");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Ends what the kubelet leaves to the next one.
struct Kubepods;

impl Drop for Kubepods {
    fn drop(&mut self) {
        systemctl(&["stop", "kubepods.slice"]);
    }
}

fn pod(name: &str, resources: Value) -> Value {
    let mut pod = shell_pod(name, FOREVER);
    pod["spec"]["containers"][0]["resources"] = resources;
    pod
}

fn check_limits(guaranteed: &Path, burstable: &Path, best_effort: &Path) {
    assert_eq!(read(guaranteed, "cpu.weight"), "20");
    assert_eq!(read(guaranteed, "cpu.max"), "50000 100000");
    assert_eq!(read(guaranteed, "memory.max"), (64 << 20).to_string());
    assert_eq!(read(guaranteed, "pids.max"), "200");
    assert_eq!((read(burstable, "cpu.weight"), read(burstable, "memory.max")), ("10".into(), "max".into()));
    assert_eq!(
        (read(best_effort, "cpu.weight"), read(best_effort, "cpu.max")),
        ("1".into(), "max 100000".into())
    );
}

#[test]
#[ignore = "needs systemd and cgroup v2: scripts/vm"]
fn pods_live_in_slices_of_systemd_with_the_numbers_of_their_classes_and_leave_none() {
    let _kubepods = Kubepods;
    let settings = json!({
        "cgroupDriver": "systemd", "cgroupRoot": "/", "failCgroupV1": true, "podPidsLimit": 200,
        "systemReserved": {"cpu": "100m", "memory": "100Mi"},
    });
    let mut node = Node::on_containerd_with(CgroupDriver::Systemd, settings);
    node.start_kubelet();
    let both = json!({"cpu": "500m", "memory": "64Mi"});
    node.apply("guaranteed", &pod("guaranteed", json!({"limits": both})));
    node.apply("burstable", &pod("burstable", json!({"requests": {"cpu": "250m", "memory": "32Mi"}})));
    node.apply("besteffort", &pod("besteffort", json!({})));
    let pods = ["guaranteed", "burstable", "besteffort"].map(|name| node.running(name));
    let [guaranteed, burstable, best_effort] =
        [("", 0), ("burstable", 1), ("besteffort", 2)].map(|(tier, at)| slice(tier, &uid(&pods[at])));
    check_limits(&guaranteed, &burstable, &best_effort);
    let unit = guaranteed.file_name().and_then(|name| name.to_str()).expect("a name");
    let of = |property: &str| systemctl(&["show", "--value", "--property", property, unit]);
    assert_eq!((of("ActiveState"), of("MemoryMax")), ("active".to_owned(), (64 << 20).to_string()));
    assert_eq!(
        (of("CPUWeight"), of("CPUQuotaPerSecUSec"), of("TasksMax")),
        ("20".into(), "500ms".into(), "200".into())
    );
    node.eventually("the tiers follow their pods, and all pods what the node has", |_| {
        let tiers = ["kubepods-burstable.slice", "kubepods-besteffort.slice"];
        let weights = tiers.map(|tier| read(&Path::new(KUBEPODS).join(tier), "cpu.weight"));
        let has_limit = read(Path::new(KUBEPODS), "memory.max") != "max";
        if weights == ["10", "1"] && has_limit { Ok(()) } else { Err(format!("{weights:?} {has_limit}")) }
    });
    // The runtime's scope is in the slice.
    let first = node.container_pid(&pods[1], "main");
    let own = std::fs::read_to_string(format!("/proc/{first}/cgroup")).expect("a cgroup");
    let scope = own.trim().strip_prefix("0::").expect("version 2");
    assert!(
        Path::new("/sys/fs/cgroup").join(&scope[1..]).starts_with(&burstable) && scope.ends_with(".scope"),
        "{own}"
    );

    // systemd reads its units anew, the kubelet starts anew: nothing changes for the pods.
    systemctl(&["daemon-reload"]);
    node.restart_kubelet();
    let again = node.running("burstable");
    assert_eq!(container(&again, "main")["containerID"], container(&pods[1], "main")["containerID"]);
    check_limits(&guaranteed, &burstable, &best_effort);

    for (name, pod) in ["guaranteed", "burstable", "besteffort"].iter().zip(&pods) {
        node.delete(name);
        node.gone(name, &uid(pod));
    }
    for slice in [&guaranteed, &burstable, &best_effort] {
        assert!(!slice.exists(), "{}", slice.display());
    }
    assert_eq!(of("ActiveState"), "inactive");
}
