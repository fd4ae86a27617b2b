//! Container logs on disk: symlinks, rotation, and garbage collection.

use std::io::Write;
use std::path::Path;

use serde_json::json;

use crate::kubelet_kills::share;
use crate::node::{FOREVER, Node, container, names_in, once_pod, restarts, shell_pod, uid, without_runtime};
use crate::server::log;
use crate::streaming::memory;

fn log_dir(node: &Node, name: &str, uid: &str) -> std::path::PathBuf {
    node.path("logs/pods").join(format!("default_{name}-node_{uid}")).join("main")
}

#[test]
fn container_log_is_rotated_and_compressed_and_the_oldest_file_removed() {
    let node = Node::start_with(json!({
        "containerLogMaxSize": "2Ki", "containerLogMaxFiles": 3, "containerLogMonitorInterval": "3s",
    }));
    let script =
        "n=0; while :; do n=$((n+1)); echo line $n of a container that has much to say; sleep 0.02; done";
    node.apply("talker", &shell_pod("talker", script));
    let pod = node.running("talker");
    let dir = log_dir(&node, "talker", &uid(&pod));
    let mut seen = std::collections::BTreeSet::new();
    node.eventually("the first compressed log was removed again", |_| {
        let names = names_in(&dir);
        assert!(names.len() <= 5, "three files, and those of a rotation in progress: {names:?}");
        seen.extend(names.iter().filter(|name| name.ends_with(".gz")).cloned());
        let first_is_gone = seen.first().is_some_and(|first| !names.contains(first));
        if first_is_gone { Ok(()) } else { Err(format!("{names:?}")) }
    });
    let names = node.eventually("three files exist", |_| {
        let mut names = names_in(&dir);
        names.sort();
        // While a file is compressed, both exist for a moment.
        let is_in_work = |name: &String| name.ends_with(".tmp") || names.contains(&format!("{name}.gz"));
        let is_settled = names.len() == 3 && !names.iter().any(is_in_work);
        if is_settled { Ok(names) } else { Err(format!("{names:?}")) }
    });
    assert_eq!(names[0], "0.log");
    assert!(names[1].starts_with("0.log.20") && names[1].ends_with(".gz"), "{names:?}");
    assert!(names[2].starts_with("0.log.20") && !names[2].ends_with(".gz"), "{names:?}");
    // The runtime continues in the new file.
    let grown = std::fs::metadata(dir.join("0.log")).expect("the live log").len();
    node.eventually("the live log grows", |_| {
        let now = std::fs::metadata(dir.join("0.log")).map(|m| m.len()).map_err(|e| e.to_string())?;
        if now == grown { Err(now.to_string()) } else { Ok(()) }
    });
}

/// As after a kubelet that died between the rename and the reopen of a rotation.
#[test]
fn missing_live_log_is_reopened() {
    let node = Node::start_with(json!({"containerLogMonitorInterval": "3s"}));
    node.apply("talker", &shell_pod("talker", "while :; do date; sleep 0.1; done"));
    let pod = node.running("talker");
    let dir = log_dir(&node, "talker", &uid(&pod));
    std::fs::rename(dir.join("0.log"), dir.join("0.log.20200101-000000")).expect("renamed");
    node.eventually("the container writes to a live log again", |_| {
        let size = std::fs::metadata(dir.join("0.log")).map_err(|e| e.to_string())?.len();
        if size > 0 { Ok(()) } else { Err("it is empty".to_owned()) }
    });
}

#[test]
fn log_symlinks_in_var_log_containers_point_to_the_logs_of_each_instance() {
    let node = Node::start();
    node.apply("linked", &shell_pod("linked", "echo hello; test -e /tmp/x; exit 1"));
    let pod = node.pod_when("linked", "was restarted", |pod| restarts(pod, "main") == 1);
    let links = node.path("logs/containers");
    let ids = ["containerID"].map(|field| container(&pod, "main")["lastState"]["terminated"][field].clone());
    let first = without_runtime(ids[0].as_str().expect("an id")).to_owned();
    let link = links.join(format!("linked-node_default_main-{first}.log"));
    let target = std::fs::read_link(&link).expect("a symlink of the first instance");
    assert_eq!(target, log_dir(&node, "linked", &uid(&pod)).join("0.log"));
    let text = std::fs::read_to_string(&link).expect("the target of the log symlink");
    assert!(text.ends_with("stdout F hello\n"), "{text}");
}

/// Garbage collection runs once a minute, so this one test checks everything that it does.
#[test]
fn container_gc_keeps_one_dead_container_and_removes_logs_of_deleted_pods() {
    let node = Node::start_with(json!({
        "featureGates": {"KubeletCrashLoopBackOffMax": true},
        "crashLoopBackOff": {"maxContainerRestartPeriod": "2s"},
    }));
    node.apply("crasher", &shell_pod("crasher", "exit 1"));
    node.apply("done", &once_pod("done", "echo done"));
    node.apply("web", &shell_pod("web", FOREVER));
    let (crasher, web) = (node.pod_when("crasher", "is listed", |_| true), node.running("web"));
    let foreign = node.path("logs/pods/default_gone-node_00000000-0000-0000-0000-000000000000");
    std::fs::create_dir_all(foreign.join("main")).expect("a log directory");
    std::fs::write(foreign.join("main/0.log"), "").expect("a log");
    let dangling = node.path("logs/containers/gone-node_default_main-0123456789abcdef.log");
    std::os::unix::fs::symlink(foreign.join("main/0.log.gone"), &dangling).expect("a link");
    node.pod_when("crasher", "was restarted often", |pod| restarts(pod, "main") >= 4);
    node.eventually("unused objects are removed", |_| {
        if foreign.exists() || std::fs::symlink_metadata(&dangling).is_ok() {
            return Err("the log or symlink of a deleted pod".to_owned());
        }
        Ok(())
    });
    let ids = node.runtime_ids(&uid(&crasher)).expect("the runtime answers");
    assert!(ids.len() <= 4, "a sandbox, the last dead one, a new one, and at most one more since: {ids:?}");
    assert!(log_dir(&node, "web", &uid(&web)).join("0.log").exists());
    let done = node.pod("done").expect("the pod");
    assert!(has_a_log(&log_dir(&node, "done", &uid(&done))));
    assert_eq!(container(&done, "main")["state"]["terminated"]["reason"], "Completed");
}

/// Three nodes at the same time, because garbage collection runs once a minute.
#[test]
fn container_gc_flags_set_how_many_dead_containers_are_kept() {
    let patient = node_with_dead_containers(&["--minimum-container-ttl-duration=1h"]);
    let generous = node_with_dead_containers(&["--maximum-dead-containers-per-container=3"]);
    let capped = node_with_dead_containers(&[
        "--maximum-dead-containers-per-container=3",
        "--maximum-dead-containers=2",
    ]);
    for (node, kept, why) in [
        // As in the Go kubelet the age counts for garbage collection, not for those that newer instances have replaced.
        (&patient, 1, "those that were replaced go whatever their age"),
        (&generous, 3, "three dead containers are kept"),
        (&capped, 2, "two stay on the whole node"),
    ] {
        let pod = node.pod_when("crasher", "has crashed enough", |pod| {
            restarts(pod, "main") == 5 && container(pod, "main")["state"]["running"].is_object()
        });
        node.eventually("garbage collection has run", |node| {
            let is_there = std::fs::symlink_metadata(node.path("logs/containers").join(DANGLING)).is_ok();
            if is_there { Err("the symlink of a deleted pod".to_owned()) } else { Ok(()) }
        });
        node.eventually(why, |node| {
            let ids = node.runtime_ids(&uid(&pod))?;
            // A sandbox and the running instance are not dead containers.
            if ids.len() == kept + 2 { Ok(()) } else { Err(format!("{why}: {ids:?}")) }
        });
    }
}

const DANGLING: &str = "gone-node_default_main-0123456789abcdef.log";

/// A node with the flags, on which a container crashes five times and then keeps running.
fn node_with_dead_containers(flags: &[&str]) -> Node {
    let mut node = Node::on_containerd(json!({
        "featureGates": {"KubeletCrashLoopBackOffMax": true},
        "crashLoopBackOff": {"maxContainerRestartPeriod": "1s"},
    }));
    node.add_flags(flags);
    node.start_kubelet();
    let links = node.path("logs/containers");
    std::fs::create_dir_all(&links).expect("a directory for links");
    std::os::unix::fs::symlink(node.path("nowhere"), links.join(DANGLING)).expect("a link");
    let script =
        format!("echo run >> /shared/runs; if [ $(wc -l < /shared/runs) -le 5 ]; then exit 1; fi; {FOREVER}");
    let mut pod = shell_pod("crasher", &script);
    share(&mut pod, &node.path("shared"));
    node.apply("crasher", &pod);
    node
}

fn has_a_log(dir: &Path) -> bool {
    names_in(dir).iter().any(|name| name.ends_with(".log"))
}

/// The log of the container of a pod that prints nothing itself, for tests that write the log.
fn silent_pod(name: &str) -> (Node, std::path::PathBuf) {
    // The kubelet must not rotate what the test writes.
    let node = Node::start_with(json!({"containerLogMaxSize": "100Gi"}));
    node.apply(name, &shell_pod(name, FOREVER));
    let pod = node.running(name);
    let log = log_dir(&node, name, &uid(&pod)).join("0.log");
    (node, log)
}

/// How many bytes the kubelet has read so far, from any file.
fn bytes_read(node: &Node) -> u64 {
    let io =
        std::fs::read_to_string(format!("/proc/{}/io", node.kubelet_pid())).expect("its input and output");
    let line = io.lines().find_map(|line| line.strip_prefix("rchar: ")).expect("what it read");
    line.parse().expect("a number")
}

#[test]
fn log_tail_lines_of_a_2_gib_log_costs_no_more_than_of_a_short_one() {
    const SIZE: u64 = 2 << 30;
    const LINES: u64 = SIZE / 128;
    let (node, log_file) = silent_pod("huge");
    let mut out =
        std::io::BufWriter::with_capacity(1 << 20, std::fs::File::create(&log_file).expect("a log"));
    let filling = "x".repeat(128 - "2026-01-01T00:00:00.000000000Z stdout F 0123456789 \n".len());
    let line = |number: u64| format!("2026-01-01T00:00:00.000000000Z stdout F {number:010} {filling}\n");
    let many = line(0).repeat(1 << 13);
    for _ in 0..(LINES >> 13) - 1 {
        out.write_all(many.as_bytes()).expect("lines");
    }
    for number in LINES - (1 << 13)..LINES {
        out.write_all(line(number).as_bytes()).expect("a line");
    }
    out.flush().expect("written");
    assert_eq!(std::fs::metadata(&log_file).expect("the log").len(), SIZE);
    let expected: String = (LINES - 10..LINES).map(|number| format!("{number:010} {filling}\n")).collect();
    let last = |node: &Node| log(node, "huge", "tailLines=10").expect("a log");
    // Memory that the first request allocates stays allocated.
    assert_eq!(last(&node), expected);
    std::fs::write(format!("/proc/{}/clear_refs", node.kubelet_pid()), "5").expect("the peak is reset");
    let (memory_before, read_before) = (memory(&node, "VmRSS"), bytes_read(&node));
    let mut fastest = std::time::Duration::MAX;
    for _ in 0..20 {
        let began = std::time::Instant::now();
        assert_eq!(last(&node), expected);
        fastest = fastest.min(began.elapsed());
    }
    let read = bytes_read(&node) - read_before;
    assert!(
        read < 20 * (1 << 20),
        "{read} bytes were read for twenty answers, and whatever else the kubelet did"
    );
    // Includes its connection; a loaded machine is slow at times, but not twenty times in a row.
    assert!(fastest < fixtures::stretched(std::time::Duration::from_millis(500)), "{fastest:?}");
    // Reads everything from an offset on, in pieces.
    let long = log(&node, "huge", "limitBytes=67108864").expect("a log");
    assert_eq!(long.len(), 64 << 20);
    let growth = memory(&node, "VmHWM").saturating_sub(memory_before);
    eprintln!("ten lines of 2 GiB in {fastest:?} and {} bytes; {growth} KiB more at the peak", read / 20);
    assert!(growth < 8 << 10, "{growth} KiB more than the {memory_before} before");
}

#[test]
fn log_in_docker_json_format_is_served_and_limited_like_cri_logs() {
    let (node, file) = silent_pod("old");
    let line = |second: u32, text: &str| {
        json!({"log": text, "stream": "stdout", "time": format!("2026-01-01T00:00:0{second}.5Z")}).to_string()
    };
    let lines = [
        line(1, "one\n"),
        "no line at all".to_owned(),
        line(2, "two \"2\"\n"),
        line(3, "three\n"),
        String::new(),
    ];
    std::fs::write(file, lines.join("\n")).expect("a log");
    let logs = |query: &str| log(&node, "old", query).expect("a log");
    assert_eq!(logs(""), "one\ntwo \"2\"\nthree\n");
    assert_eq!(logs("tailLines=1&timestamps=true"), "2026-01-01T00:00:03.500000000Z three\n");
    assert_eq!(logs("sinceTime=2026-01-01T00:00:02Z"), "two \"2\"\nthree\n");
}
