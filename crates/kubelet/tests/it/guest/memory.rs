//! Which process the kernel's OOM killer selects, on cgroup v2 and where scores may be lowered.

use serde_json::{Value, json};

use crate::node::{FOREVER, Node, container, restarts, shell, shell_pod};
use crate::processes::children_of;

fn score(pid: u32) -> i32 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).expect("the process");
    text.trim().parse().expect("a score")
}

/// The parent of a process.
fn parent(pid: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process");
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")).expect("a parent");
    parent.trim().parse().expect("a process id")
}

#[test]
#[ignore = "lowers OOM scores, needs cgroup v2: scripts/vm"]
fn oom_score_adj_protects_node_and_guaranteed_pods_and_single_process_oom_kill_is_applied() {
    let mut node = Node::start();
    check_oom_scores(&node);
    check_single_process_oom_kill(&mut node);
}

fn check_oom_scores(node: &Node) {
    assert_eq!(score(node.kubelet_pid()), -999);
    let mut pod = shell_pod("guaranteed", FOREVER);
    pod["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "100m", "memory": "64Mi"}});
    node.apply("guaranteed", &pod);
    let pod = node.running("guaranteed");
    let main = node.container_pid(&pod, "main");
    assert_eq!(score(main), -997);
    // The other child of the shim is the pause process.
    let mut all: Vec<i32> = children_of(parent(main)).into_iter().map(score).collect();
    all.sort_unstable();
    assert_eq!(all, [-998, -997]);
}

/// A pod that starts a child, which allocates without end, and prints its exit status; and a calm container.
fn greedy(name: &str) -> Value {
    let script = format!("sh -c 'x=a; while :; do x=$x$x; done'; echo child $?; {FOREVER}");
    let mut pod = shell_pod(name, &script);
    pod["spec"]["restartPolicy"] = "Never".into();
    pod["spec"]["containers"][0]["resources"] = json!({"limits": {"memory": "24Mi"}});
    pod["spec"]["containers"].as_array_mut().expect("containers").push(shell("calm", FOREVER));
    pod
}

/// Some shells print the signal to standard error, which the runtime reads separately from standard output: in any order.
fn child_was_killed(output: &str) -> bool {
    let mut lines: Vec<&str> = output.lines().collect();
    lines.sort_unstable();
    lines == ["child 137"] || lines == ["Killed", "child 137"]
}

fn check_single_process_oom_kill(node: &mut Node) {
    node.apply("together", &greedy("together"));
    let pod = node.pod_when("together", "has lost a container", |pod| {
        container(pod, "main")["state"]["terminated"]["exitCode"] == 137
    });
    // The runtime reports that memory was the reason, and not always at once.
    node.eventually("the kubelet reports the reason of the runtime", |node| {
        let pod = node.pod("together").ok_or("no pod")?;
        let reported = container(&pod, "main")["state"]["terminated"]["reason"].clone();
        let expected = node.reason_of(&pod, "main");
        if reported == expected { Ok(()) } else { Err(format!("reported {reported}, expected {expected}")) }
    });
    assert_eq!(node.logs(&pod, "main"), "");
    let calm = container(&pod, "calm");
    assert!(calm["state"]["running"].is_object() && restarts(&pod, "calm") == 0, "{calm}");

    node.configure(json!({"singleProcessOOMKill": true}));
    node.restart_kubelet();
    node.apply("alone", &greedy("alone"));
    let pod = node.running("alone");
    node.eventually("only the child is killed", |node| {
        let output = node.logs(&pod, "main");
        if child_was_killed(&output) { Ok(()) } else { Err(output) }
    });
    let pod = node.running("alone");
    assert!(container(&pod, "main")["state"]["running"].is_object() && restarts(&pod, "main") == 0, "{pod}");
}
