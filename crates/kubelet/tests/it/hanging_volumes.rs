//! Filesystems that do not answer (real FUSE filesystems), and trees that take long: only the pods that use them wait.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use fakes::FakeRuntime;
use harness::HungFuse;
use serde_json::{Value, json};

use crate::node::{FOREVER, Node, names_in, once_pod, shell_pod, uid};

/// More than the kubelet has threads for file operations.
const STUCK: usize = 10;

fn with_host_path(mut pod: Value, path: &Path, mount: &Value) -> Value {
    pod["spec"]["volumes"] = json!([{"name": "data", "hostPath": {"path": path, "type": "Directory"}}]);
    let mut mount = mount.clone();
    mount["name"] = "data".into();
    mount["mountPath"] = "/data".into();
    pod["spec"]["containers"][0]["volumeMounts"] = json!([mount]);
    pod
}

/// Volume helper processes of the kubelet, with the name of their job.
fn helpers() -> usize {
    let processes = names_in(Path::new("/proc"));
    let is_helper = |pid: &String| {
        fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| line.starts_with(b"kubelet-volume-helper\0"))
    };
    processes.iter().filter(|pid| is_helper(pid)).count()
}

#[test]
fn hanging_filesystem_blocks_only_the_pods_that_use_it() {
    let mut node = Node::start();
    let mount_point = node.path("dead");
    let fuse = HungFuse::mount(&mount_point).expect("FUSE");
    std::os::unix::fs::symlink(&mount_point, node.path("link")).expect("a link");
    node.apply("early", &with_host_path(shell_pod("early", FOREVER), &mount_point, &json!({})));
    let early = uid(&node.running("early"));
    fuse.hang();
    for n in 0..STUCK {
        // Some mounts are reached through a symlink, which must not be followed to its end either.
        let path = if n % 2 == 0 { mount_point.clone() } else { node.path("link") };
        let name = format!("stuck-{n}");
        node.apply(&name, &with_host_path(shell_pod(&name, FOREVER), &path, &json!({})));
    }
    node.eventually("the filesystem got a request", |_| match fuse.unanswered() {
        0 => Err("no request was made".to_owned()),
        _ => Ok(()),
    });
    for n in 0..3 {
        let name = format!("neighbour-{n}");
        node.apply(&name, &with_host_path(once_pod(&name, "echo well"), &node.path("root"), &json!({})));
        assert_eq!(node.output(&name).trim(), "well");
        let pod = uid(&node.pod(&name).expect("the pod"));
        node.delete(&name);
        node.wait_until_gone(&name, &pod);
    }
    let summary = node.get("/stats/summary").expect("the summary is served");
    assert!(summary.contains("early-node"), "{summary}");
    node.eventually("the event names the unresponsive path", |node| {
        let log = node.kubelet_log();
        let is_reported = |line: &&str| {
            line.contains("FailedMount") && line.contains("does not answer") && line.contains("stuck-")
        };
        log.lines()
            .find(is_reported)
            .map(|_| ())
            .ok_or_else(|| log.lines().last().unwrap_or_default().to_owned())
    });
    // After the kill its ports are free at once, so no thread of it is stuck in the filesystem.
    node.restart_kubelet();
    let stuck: Vec<String> =
        (0..STUCK).map(|n| uid(&node.pod_when(&format!("stuck-{n}"), "is listed", |_| true))).collect();
    for n in 0..STUCK {
        node.delete(&format!("stuck-{n}"));
    }
    for (n, uid) in stuck.iter().enumerate() {
        node.wait_until_gone(&format!("stuck-{n}"), uid);
    }
    node.delete("early");
    drop(fuse);
    node.wait_until_gone("early", &early);
    node.eventually("no volume helper is left", |_| {
        if helpers() == 0 { Ok(()) } else { Err(helpers().to_string()) }
    });
}

#[test]
fn failed_unmount_reports_the_processes_that_use_the_volume() {
    let node = Node::start();
    let mut pod = shell_pod("held", FOREVER);
    pod["spec"]["volumes"] = json!([{"name": "memory", "emptyDir": {"medium": "Memory"}}]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "memory", "mountPath": "/memory"}]);
    node.apply("held", &pod);
    let uid = uid(&node.running("held"));
    let volume = node.path("root/pods").join(&uid).join("volumes/kubernetes.io~empty-dir/memory");
    let sleep = |program: &str, args: &[&str]| {
        std::process::Command::new(program).args(args).args(["sleep", "600"]).current_dir(&volume).spawn()
    };
    let mut holder = sleep("env", &[]).expect("a process");
    // Sees the same mounts in a namespace of its own; unmounts of the host should propagate to it.
    let mut apart = sleep("unshare", &["--mount", "--propagation", "slave"]).expect("a process");
    // It reports this once it has executed the program that stays.
    node.eventually("both hold the volume", |_| {
        let names = [&holder, &apart].map(|child| fs::read_to_string(format!("/proc/{}/comm", child.id())));
        let is_there = names.iter().all(|name| name.as_ref().is_ok_and(|name| name.trim() == "sleep"));
        if is_there { Ok(()) } else { Err(format!("{names:?}")) }
    });
    node.delete("held");
    let wait_for_error = |message: String| {
        node.eventually("the processes that use it are named", |node| {
            let log = node.kubelet_log();
            if log.contains(&message) { Ok(()) } else { Err(log) }
        });
    };
    let (first, second) = (holder.id().min(apart.id()), holder.id().max(apart.id()));
    wait_for_error(format!("device or resource busy (held by {first} (sleep), {second} (sleep))"));
    holder.kill().expect("it is ours");
    holder.wait().expect("it ends");
    wait_for_error(format!("device or resource busy (held by {} (sleep))", apart.id()));
    apart.kill().expect("it is ours");
    apart.wait().expect("it ends");
    node.wait_until_gone("held", &uid);
}

/// What an unrelated pod may take to start.
const START: Duration = Duration::from_secs(10);

#[test]
fn hanging_log_directory_of_a_pod_delays_no_other_pod() {
    let node = Node::start();
    node.apply("early", &shell_pod("early", FOREVER));
    let early = uid(&node.running("early"));
    let logs = node.path("logs/pods").join(format!("default_early-node_{early}"));
    assert!(logs.join("main").is_dir(), "{}", logs.display());
    let fuse = HungFuse::mount(&logs).expect("FUSE");
    fuse.hang();
    std::thread::scope(|threads| {
        for _ in 0..STUCK {
            // They end when the filesystem does.
            threads.spawn(|| crate::server::get(&node, "/containerLogs/default/early-node/main"));
        }
        node.eventually("the filesystem got a request", |_| match fuse.unanswered() {
            0 => Err("no request was made".to_owned()),
            _ => Ok(()),
        });
        let began = Instant::now();
        node.apply("neighbour", &once_pod("neighbour", "echo well"));
        assert_eq!(node.output("neighbour").trim(), "well");
        assert!(began.elapsed() < fixtures::stretched(START), "{:?}", began.elapsed());
        let neighbour = uid(&node.pod("neighbour").expect("the pod"));
        node.delete("neighbour");
        node.wait_until_gone("neighbour", &neighbour);
        drop(fuse);
    });
    node.delete("early");
    node.wait_until_gone("early", &early);
}

/// Runs eight pods with many files in a volume, more than the kubelet has threads for the removal of trees, and deletes them. Returns when
/// the first files are being removed, with names and UIDs of the pods.
pub(crate) fn remove_large_trees(node: &Node) -> (Vec<String>, Vec<String>) {
    const PODS: usize = 8;
    const FILES: usize = 40_000;
    let names: Vec<String> = (0..PODS).map(|n| format!("large-{n}")).collect();
    let uids: Vec<String> = std::thread::scope(|threads| {
        let started = names.iter().map(|name| {
            let mut pod = shell_pod(name, FOREVER);
            pod["spec"]["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
            pod["spec"]["terminationGracePeriodSeconds"] = 1.into();
            node.apply(name, &pod);
            threads.spawn(move || {
                let uid = uid(&node.running(name));
                let tree = node.path("root/pods").join(&uid).join("volumes/kubernetes.io~empty-dir/data");
                for n in 0..FILES {
                    fs::write(tree.join(n.to_string()), "").expect("a file");
                }
                uid
            })
        });
        let started: Vec<_> = started.collect();
        started.into_iter().map(|pod| pod.join().expect("it ran")).collect()
    });
    names.iter().for_each(|name| node.delete(name));
    let trees = node.path("root/pods");
    node.eventually("the first tree is being removed", |_| {
        let left = |uid: &String| {
            fs::read_dir(trees.join(uid).join("volumes/kubernetes.io~empty-dir/data"))
                .map_or(0, Iterator::count)
        };
        let left: Vec<usize> = uids.iter().map(left).collect();
        if left.iter().any(|left| *left < FILES) { Ok(()) } else { Err(format!("{left:?}")) }
    });
    (names, uids)
}

#[test]
fn removal_of_eight_large_trees_delays_no_other_pod() {
    let node = Node::start();
    let (names, uids) = remove_large_trees(&node);
    let began = Instant::now();
    node.apply("neighbour", &once_pod("neighbour", "echo well"));
    assert_eq!(node.output("neighbour").trim(), "well");
    assert!(began.elapsed() < fixtures::stretched(START), "{:?}", began.elapsed());
    for (name, uid) in names.iter().zip(&uids) {
        node.wait_until_gone(name, uid);
    }
}

#[test]
fn hanging_directory_of_manifests_delays_nothing_else() {
    let mut node = Node::with_fake(&FakeRuntime::with_clock(ports::Clock::system()), json!({}));
    let manifests = node.path("elsewhere/manifests");
    let fuse = HungFuse::mount(&manifests).expect("FUSE");
    fuse.hang();
    node.configure(json!({"staticPodPath": manifests}));
    node.start_kubelet();
    node.eventually("the manifests are read", |_| match fuse.unanswered() {
        0 => Err("no request was made".to_owned()),
        _ => Ok(()),
    });
    let began = Instant::now();
    assert_eq!(node.healthz().expect("an answer"), "ok");
    node.get("/pods").expect("an answer");
    assert!(began.elapsed() < fixtures::stretched(Duration::from_secs(5)), "{:?}", began.elapsed());
    drop(fuse);
}
