//! The cgroups that the kubelet creates on this machine: values of pods, QoS classes and the node compared with those of the Go
//! kubelet; a memory limit affects only its own pod; and no cgroup is left behind, whatever happens in between.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::node::{FOREVER, Node, container, names_in, once_pod, shell_pod, uid};
use crate::resources::{UNLIMITED, is_v2, memory_bytes};

/// The kubelet waits ten seconds for the reason of a kill.
const REASON_ARRIVES: Duration = Duration::from_secs(15);

/// A file of a cgroup below the node's own root: `memory/memory.limit_in_bytes` on version 1, `memory.max` on version 2.
fn read(node: &Node, cgroup: &str, v1: &str, v2: &str) -> String {
    let root = node.cgroup().path();
    let path = if is_v2() {
        format!("/sys/fs/cgroup{root}/{cgroup}/{v2}")
    } else {
        let (tree, file) = v1.split_once('/').expect("a tree and a file");
        format!("/sys/fs/cgroup/{tree}{root}/{cgroup}/{file}")
    };
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}")).trim().to_owned()
}

/// Weight, quota, memory and processes of a cgroup.
fn values(node: &Node, cgroup: &str) -> [String; 4] {
    [
        ("cpu/cpu.shares", "cpu.weight"),
        ("cpu/cpu.cfs_quota_us", "cpu.max"),
        ("memory/memory.limit_in_bytes", "memory.max"),
        ("pids/pids.max", "pids.max"),
    ]
    .map(|(v1, v2)| read(node, cgroup, v1, v2))
}

fn expected(v1: [&str; 4], v2: [&str; 4]) -> [String; 4] {
    if is_v2() { v2.map(str::to_owned) } else { v1.map(str::to_owned) }
}

fn pod(name: &str, resources: Value) -> Value {
    let mut pod = shell_pod(name, FOREVER);
    pod["spec"]["containers"][0]["resources"] = resources;
    pod
}

const MEMORY: &str = "67108864";

#[test]
fn cgroups_of_pods_qos_classes_and_the_node_have_the_expected_values() {
    let mut node = Node::on_containerd(json!({
        "syncFrequency": "1s", "podPidsLimit": 100, "systemReserved": {"memory": "256Mi"}, "kubeReserved": {"cpu": "500m"},
        "featureGates": {"QOSReserved": true}, "qosReserved": {"memory": "50%"},
    }));
    let daemons = format!("{}/daemons", node.cgroup().path());
    node.configure(json!({"kubeletCgroups": format!("{daemons}/kubelet")}));
    node.add_flags(&["--runtime-cgroups", &format!("{daemons}/runtime")]);
    node.start_kubelet();
    let both = json!({"cpu": "500m", "memory": "64Mi"});
    node.apply("guaranteed", &pod("guaranteed", json!({"limits": both})));
    node.apply("burstable", &pod("burstable", json!({"requests": {"cpu": "250m", "memory": "100Mi"}})));
    node.apply(
        "other",
        &pod("other", json!({"requests": {"cpu": "250m"}, "limits": {"cpu": "1", "memory": "64Mi"}})),
    );
    node.apply("besteffort", &pod("besteffort", json!({})));
    let [guaranteed, burstable, other, besteffort] =
        ["guaranteed", "burstable", "other", "besteffort"].map(|name| uid(&node.running(name)));
    assert_eq!(
        values(&node, &format!("kubepods/pod{guaranteed}")),
        expected(["512", "50000", MEMORY, "100"], ["20", "50000 100000", MEMORY, "100"])
    );
    assert_eq!(
        values(&node, &format!("kubepods/burstable/pod{burstable}")),
        expected(["256", "-1", UNLIMITED, "100"], ["10", "max 100000", "max", "100"])
    );
    assert_eq!(
        values(&node, &format!("kubepods/burstable/pod{other}")),
        expected(["256", "100000", MEMORY, "100"], ["10", "100000 100000", MEMORY, "100"])
    );
    assert_eq!(
        values(&node, &format!("kubepods/besteffort/pod{besteffort}")),
        expected(["2", "-1", UNLIMITED, "100"], ["1", "max 100000", "max", "100"])
    );
    node.eventually("the QoS cgroup has the weight of its pods' requests", |node| {
        let shares = read(node, "kubepods/burstable", "cpu/cpu.shares", "cpu.weight");
        if shares == expected(["512"; 4], ["20"; 4])[0] { Ok(()) } else { Err(shares) }
    });
    assert_eq!(
        read(&node, "kubepods/besteffort", "cpu/cpu.shares", "cpu.weight"),
        expected(["2"; 4], ["1"; 4])[0]
    );
    let cpus = i64::try_from(std::thread::available_parallelism().expect("CPUs").get()).expect("a count");
    let shares = (cpus * 1000 - 500) * 1024 / 1000;
    let weight = 1 + (shares - 2) * 9999 / 262_142;
    let all = values(&node, "kubepods");
    assert_eq!(all[0], if is_v2() { weight } else { shares }.to_string());
    let limit = memory_bytes() - (256 << 20);
    assert_eq!(all[2], limit.to_string(), "there are no eviction thresholds here");
    node.eventually("each QoS class leaves the others half of their requests", |node| {
        let [burstable, besteffort] = ["burstable", "besteffort"].map(|qos_class| {
            read(node, &format!("kubepods/{qos_class}"), "memory/memory.limit_in_bytes", "memory.max")
        });
        let expected = [limit - (32 << 20), limit - (32 << 20) - (82 << 20)].map(|bytes| bytes.to_string());
        if [&burstable, &besteffort] == expected.each_ref() {
            Ok(())
        } else {
            Err(format!("{burstable} {besteffort}"))
        }
    });
    assert!(all[3].parse::<i64>().is_ok_and(|limit| limit > 1000), "{all:?}");
    node.wait_for_log("Updated Node Allocatable limit across pods");

    kubelet_and_runtime_are_in_their_cgroups(&node, &daemons);
    pods_are_measured_in_their_cgroups(&node, &guaranteed);
    pod_cgroups_and_values_are_restored(&mut node, [&guaranteed, &burstable, &besteffort]);
    restart_restores_changed_values(node);
}

/// In every hierarchy that limits a resource.
fn kubelet_and_runtime_are_in_their_cgroups(node: &Node, daemons: &str) {
    let runtime = node.containerd().pid().expect("it runs");
    for (name, pid) in [("kubelet", node.kubelet_pid()), ("runtime", runtime)] {
        let cgroup = format!("{daemons}/{name}");
        node.eventually("it is moved", |_| {
            let is_there = |line: &str| line.ends_with(&format!(":{cgroup}"));
            let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).map_err(|e| e.to_string())?;
            let mut lines = text.lines().filter(|line| is_v2() || !line.starts_with("0:"));
            if lines.all(is_there) { Ok(()) } else { Err(text) }
        });
    }
    // Not every machine lets root do that.
    let is_last = |_: &Node| {
        let score = std::fs::read_to_string(format!("/proc/{runtime}/oom_score_adj")).unwrap_or_default();
        let refused = format!("/proc/{runtime}/oom_score_adj: ");
        if score.trim() == "-999" || node.kubelet_log().contains(&refused) { Ok(()) } else { Err(score) }
    };
    node.eventually("the runtime has a low oom_score_adj, or the log has the reason", is_last);
}

fn pods_are_measured_in_their_cgroups(node: &Node, guaranteed: &str) {
    let summary: Value = serde_json::from_str(&node.get("/stats/summary").expect("a summary")).expect("JSON");
    let pods = summary["pods"].as_array().expect("pods");
    let pod = pods.iter().find(|pod| pod["podRef"]["uid"] == guaranteed).expect("measured");
    let own: i64 =
        read(node, &format!("kubepods/pod{guaranteed}"), "memory/memory.usage_in_bytes", "memory.current")
            .parse()
            .expect("a number");
    let containers = pod["containers"].as_array().expect("containers");
    let of = |part: &Value| part["memory"]["usageBytes"].as_i64().unwrap_or_default();
    // The pause container is in the pod's cgroup, and in no container of the pod.
    assert!(of(pod) > containers.iter().map(of).sum::<i64>() && own > 0, "{pod}");
    let system = summary["node"]["systemContainers"].as_array().expect("system containers");
    let together = system.iter().find(|part| part["name"] == "pods").expect("pods");
    assert!(of(together) >= of(pod), "{together}");
    for name in ["kubelet", "runtime"] {
        assert!(system.iter().any(|part| part["name"] == name && of(part) > 0), "{name} in {system:?}");
    }
    let metrics = node.get("/metrics").expect("metrics");
    assert!(metrics.contains("kubelet_cgroup_manager_duration_seconds_count{operation_type=\"create\"}"));
}

/// Tested with a running kubelet, and with one that has stopped.
fn pod_cgroups_and_values_are_restored(node: &mut Node, uids: [&str; 3]) {
    let [guaranteed, burstable, besteffort] = uids;
    let (shares, few) = if is_v2() { ("cpu.weight", "7") } else { ("cpu.shares", "77") };
    let burstable = format!("kubepods/burstable/pod{burstable}");
    let tree = node.cgroup().find(&burstable).into_iter().find(|dir| dir.join(shares).exists());
    let shares = tree.expect("a tree with a size").join(shares);
    let before = container(&node.running("burstable"), "main")["containerID"].clone();
    for (name, cgroup, is_down) in [
        ("besteffort", format!("kubepods/besteffort/pod{besteffort}"), false),
        ("guaranteed", format!("kubepods/pod{guaranteed}"), true),
    ] {
        let (id, written) =
            (container(&node.running(name), "main")["containerID"].clone(), values(node, &cgroup));
        if is_down {
            node.kill_kubelet();
        }
        std::fs::write(&shares, few).expect("written");
        remove_cgroup(node, &cgroup, is_down);
        if is_down {
            node.start_kubelet();
        }
        let again = |pod: &Value| {
            let main = container(pod, "main");
            main["ready"] == true && main["containerID"] != id
        };
        node.pod_when(name, "runs in a new sandbox", again);
        assert_eq!(values(node, &cgroup), written, "{name}");
        let inside: Vec<_> = node.cgroup().find(&cgroup).iter().flat_map(|dir| directories_in(dir)).collect();
        assert!(!inside.is_empty(), "the containers are in {cgroup}");
        node.eventually("the values are restored", |_| {
            let now = std::fs::read_to_string(&shares).map_err(|e| e.to_string())?;
            if now.trim() == expected(["256"; 4], ["10"; 4])[0] { Ok(()) } else { Err(now) }
        });
    }
    assert_eq!(container(&node.running("burstable"), "main")["containerID"], before, "the pod kept running");
}

fn directories_in(dir: &Path) -> Vec<PathBuf> {
    names_in(dir).into_iter().map(|name| dir.join(name)).filter(|path| path.is_dir()).collect()
}

/// Moves processes out of every hierarchy while the kubelet is stopped; they continue elsewhere.
fn remove_cgroup(node: &Node, cgroup: &str, is_down: bool) {
    let signal = |name: &str| {
        let pid = node.kubelet_pid().to_string();
        assert!(std::process::Command::new("kill").args([name, &pid]).status().expect("kill runs").success());
    };
    if !is_down {
        signal("-STOP");
    }
    for dir in node.cgroup().find(cgroup) {
        let root = node.cgroup().find("").into_iter().find(|root| dir.starts_with(root)).expect("its root");
        let outside = if is_v2() { root.join("outside") } else { root };
        std::fs::create_dir_all(&outside).expect("made");
        for part in directories_in(&dir).into_iter().chain([dir.clone()]) {
            node.eventually("it is empty and can be removed", |_| {
                let procs = std::fs::read_to_string(part.join("cgroup.procs")).map_err(|e| e.to_string())?;
                for pid in procs.lines() {
                    // Processes that have exited meanwhile need not be moved.
                    let _ = std::fs::write(outside.join("cgroup.procs"), pid);
                }
                std::fs::remove_dir(&part).map_err(|e| format!("{}: {e}", part.display()))
            });
        }
    }
    if !is_down {
        signal("-CONT");
    }
}

fn restart_restores_changed_values(mut node: Node) {
    let before = container(&node.running("burstable"), "main")["containerID"].clone();
    let root = node.cgroup().path();
    let file = if is_v2() {
        format!("/sys/fs/cgroup{root}/kubepods/burstable/cpu.weight")
    } else {
        format!("/sys/fs/cgroup/cpu{root}/kubepods/burstable/cpu.shares")
    };
    let tier_weighs = |node: &Node, expected: &str| {
        node.eventually("the QoS cgroup has the weight of its pods' requests", |_| {
            let weight = std::fs::read_to_string(&file).map_err(|e| e.to_string())?;
            if weight.trim() == expected { Ok(()) } else { Err(weight) }
        });
    };
    std::fs::write(&file, "77").expect("written");
    node.restart_kubelet();
    tier_weighs(&node, if is_v2() { "20" } else { "512" });
    node.delete("other");
    tier_weighs(&node, if is_v2() { "10" } else { "256" });
    assert_eq!(container(&node.running("burstable"), "main")["containerID"], before, "the pod kept running");
}

/// Runs a pod that exceeds its memory limit, and returns the reason for the end of its container. The kernel reports the end to the
/// runtime before the reason; on cgroup v2 containerd 1.6 never learns it if it removes the cgroup first.
fn memory_kill(node: &Node, name: &str) -> String {
    // The container has no limit of its own, but the pod has.
    let mut greedy = once_pod(name, "x=a; while :; do x=$x$x; done");
    greedy["spec"]["resources"] = json!({"limits": {"memory": "24Mi"}});
    node.apply(name, &greedy);
    let failed = node.pod_when(name, "has failed", |pod| pod["status"]["phase"] == "Failed");
    assert_eq!(container(&failed, "main")["state"]["terminated"]["exitCode"], 137);
    let (began, reason) = (Instant::now(), |pod: &Value| {
        container(pod, "main")["state"]["terminated"]["reason"].as_str().unwrap_or_default().to_owned()
    });
    let ended = node.pod_when(name, "has a final reason", |pod| {
        reason(pod) == "OOMKilled" || began.elapsed() > REASON_ARRIVES
    });
    reason(&ended)
}

#[test]
fn pod_over_its_memory_limit_is_oom_killed_without_affecting_other_pods() {
    let node = Node::start();
    node.apply("calm", &pod("calm", json!({"limits": {"cpu": "100m", "memory": "32Mi"}})));
    let calm = node.running("calm");
    let mut names = ["greedy-1", "greedy-2", "greedy-3"].iter();
    assert!(names.any(|name| memory_kill(&node, name) == "OOMKilled"), "no kill has the reason OOMKilled");
    let calm_now = node.running("calm");
    assert_eq!(container(&calm_now, "main")["containerID"], container(&calm, "main")["containerID"]);
    assert_eq!(crate::node::restarts(&calm_now, "main"), 0);
}

#[test]
fn leftover_processes_are_killed_and_the_pod_cgroup_removed_whenever_the_kubelet_is_killed() {
    let mut node = Node::start();
    for moment in ["Created pod sandbox", "Stopping container main", "Terminating pod"] {
        node.apply("web", &shell_pod("web", FOREVER));
        let pod = node.running("web");
        // A process in the pod's cgroup but in none of its containers: the runtime does not know it.
        let mut stray = std::process::Command::new("sleep").arg("1000").spawn().expect("a process");
        let cgroups = node.pod_cgroups(&uid(&pod));
        assert!(!cgroups.is_empty());
        for cgroup in cgroups {
            crate::unkillable::enter(&cgroup, stray.id()).expect("moved");
        }
        node.delete("web");
        node.kill_at(moment);
        let ended = node.eventually("the stray process is killed", |_| match stray.try_wait() {
            Ok(Some(status)) => Ok(status),
            other => Err(format!("{other:?}")),
        });
        assert!(!ended.success());
        node.wait_until_gone("web", &uid(&pod));
    }
}

#[test]
fn orphaned_pod_cgroups_are_removed_with_their_processes() {
    let mut node = Node::start();
    node.apply("web", &shell_pod("web", FOREVER));
    let web = node.running("web");
    node.kill_kubelet();
    let orphans: Vec<_> = ["kubepods", "kubepods/burstable", "kubepods/besteffort"]
        .iter()
        .flat_map(|qos_class| node.cgroup().find(qos_class))
        .map(|qos_class| qos_class.join("podaaaa-bbbb").join("inner"))
        .collect();
    for orphan in &orphans {
        std::fs::create_dir_all(orphan).expect("made");
    }
    let mut stray = std::process::Command::new("sleep").arg("1000").spawn().expect("a process");
    let pids =
        orphans.iter().find(|dir| dir.to_string_lossy().contains("/memory/") || is_v2()).expect("a tree");
    std::fs::write(pids.join("cgroup.procs"), stray.id().to_string()).expect("moved");
    node.start_kubelet();
    node.eventually("no container's cgroup is missing", |node| {
        let left = node.pod_cgroups("aaaa-bbbb");
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    });
    assert!(!stray.wait().expect("it has exited").success());
    let after = node.running("web");
    assert_eq!(container(&after, "main")["containerID"], container(&web, "main")["containerID"]);
}

#[test]
fn unenforceable_node_allocatable_configuration_stops_the_kubelet_with_an_error() {
    let mut node = Node::on_containerd(json!({}));
    for (settings, reason) in [
        (json!({"cgroupRoot": "/kubelet-test-nowhere"}), "cgroup-root /kubelet-test-nowhere doesn't exist"),
        (
            json!({
                "cgroupRoot": node.cgroup().path(), "kubeReservedCgroup": "/kubelet-test-nowhere",
                "enforceNodeAllocatable": ["pods", "kube-reserved"], "kubeReserved": {"cpu": "100m"},
            }),
            "Failed to enforce Kube Reserved Cgroup Limits on",
        ),
    ] {
        node.configure(settings);
        node.spawn_kubelet();
        assert_eq!(node.wait_for_exit().code(), Some(1), "{reason}");
        assert!(node.kubelet_log().contains(reason), "{}", node.kubelet_log());
    }
    // Once the cgroup exists, the same one gets the reserved amounts, and only those.
    let reserved = format!("{}/kube", node.cgroup().path());
    for tree in node.cgroup().find("") {
        for name in ["kube", "system"] {
            std::fs::create_dir_all(tree.join(name)).expect("made");
        }
    }
    node.configure(json!({
        "kubeReservedCgroup": reserved,
        "systemReservedCgroup": format!("{}/system", node.cgroup().path()), "systemReserved": {"cpu": "200m"},
        "enforceNodeAllocatable": ["pods", "kube-reserved", "system-reserved"],
    }));
    node.start_kubelet();
    node.wait_for_log("Updated limits on kube reserved cgroup");
    node.wait_for_log("Updated limits on system reserved cgroup");
    assert_eq!(read(&node, "kube", "cpu/cpu.shares", "cpu.weight"), expected(["102"; 4], ["4"; 4])[0]);
    assert_eq!(read(&node, "system", "cpu/cpu.shares", "cpu.weight"), expected(["204"; 4], ["8"; 4])[0]);
    node.kill_kubelet();
    // Kernel settings that an administrator must correct are not changed.
    std::fs::write(node.path("proc-sys/vm/overcommit_memory"), "0").expect("written");
    node.configure(json!({"protectKernelDefaults": true}));
    node.spawn_kubelet();
    assert_eq!(node.wait_for_exit().code(), Some(1));
    let refusal = "invalid kernel flag: vm/overcommit_memory, expected value: 1, actual value: 0";
    assert!(node.kubelet_log().contains(refusal), "{}", node.kubelet_log());
    node.configure(json!({"protectKernelDefaults": false}));
    node.start_kubelet();
    let now = std::fs::read_to_string(node.path("proc-sys/vm/overcommit_memory")).expect("a setting");
    assert_eq!(now.trim(), "1");
}
