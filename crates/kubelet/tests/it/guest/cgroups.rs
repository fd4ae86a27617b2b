//! Cgroups of version 2 that systemd makes: what it says of them, what the kernel has, and that nothing is left.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use kubelet_core::cgroup::{CgroupNames, CgroupNumbers, compute_settings};
use model::cgroup::CgroupVersion;
use model::{CgroupDriver, PodUid, QosClass};
use ports::Cgroups;
use ports::cgroups::CgroupRemoval;
use serde_json::{Value, json};

use crate::node::{FOREVER, Node, container, shell_pod, uid};
use crate::resources::memory_bytes;

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
        "featureGates": {"MemoryQoS": true}, "memoryReservationPolicy": "TieredReservation",
        "memoryThrottlingFactor": 0.5,
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

    // What a container asked for is kept for it as long as possible, and half way to all that pods may use it is slowed down.
    let own = Path::new("/sys/fs/cgroup").join(&scope[1..]);
    let (asked, most) = (32 << 20, memory_bytes() - (100 << 20));
    let high = (asked + (most - asked) / 2) / 4096 * 4096;
    assert_eq!(read(&own, "memory.low"), asked.to_string());
    assert_eq!(read(&own, "memory.high"), high.to_string());

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

/// Another test may use `kubepods.slice` meanwhile.
const OWN: &str = "manyslices";
/// Each takes about a quarter of a second under emulation, and more on a busy machine.
const SLICES: usize = 40;

struct Own;

impl Drop for Own {
    fn drop(&mut self) {
        systemctl(&["stop", &format!("{OWN}.slice")]);
    }
}

/// Slices that come and go one after another, a process in every tenth: systemd keeps up, and forgets them all.
#[test]
#[ignore = "needs systemd and cgroup v2: scripts/vm"]
fn slices_come_and_go_one_after_another_and_systemd_knows_none_of_them_afterwards() {
    let _own = Own;
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let cgroups = host::LinuxCgroups::new("/sys/fs/cgroup".into(), CgroupVersion::V2);
    let names = CgroupNames::new(CgroupDriver::Systemd, OWN);
    let numbers = CgroupNumbers { pids_limit: Some(50), ..CgroupNumbers::default() };
    let settings = compute_settings(&numbers, CgroupVersion::V2);
    let began = Instant::now();
    for n in 0..SLICES {
        let cgroup = names.pod(QosClass::Burstable, &PodUid::from(format!("0000-{n}")));
        tokio.block_on(cgroups.ensure(&cgroup, &settings)).expect("made");
        let mut stray = (n % 10 == 0).then(|| Command::new("sleep").arg("1000").spawn().expect("a process"));
        if let Some(stray) = &mut stray {
            tokio.block_on(cgroups.join(&cgroup, stray.id())).expect("moved");
            tokio.block_on(cgroups.kill(&cgroup)).expect("killed");
            assert!(!stray.wait().expect("it ends").success());
        }
        let removal = tokio.block_on(cgroups.remove(&cgroup)).expect("an answer");
        assert_eq!(removal, CgroupRemoval::Gone, "{cgroup}");
    }
    eprintln!("{SLICES} slices: {:?}", began.elapsed());
    assert_eq!(tokio.block_on(cgroups.children(&names.tier(QosClass::Burstable))), Vec::<String>::new());
    let known = systemctl(&[
        "list-units",
        "--all",
        "--plain",
        "--no-legend",
        &format!("{OWN}-kubepods-burstable-pod*"),
    ]);
    assert_eq!(known, "");
}
