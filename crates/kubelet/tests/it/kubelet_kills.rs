//! SIGKILL for the kubelet at any moment: the next kubelet reaches the right state. Containers record each of their runs, so a
//! second run is seen even if nothing else shows it.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::lifecycle::{order, ordered_pod};
use crate::node::{FOREVER, Node, condition, container, names_in, restarts, shell, shell_pod, uid};

/// From within the first calls to long after the last.
const MOMENTS: [u64; 6] = [10, 60, 120, 200, 350, 700];

fn id(pod: &Value, name: &str) -> Value {
    container(pod, name)["containerID"].clone()
}

/// Mounts `dir` at `/shared` in every container.
pub(crate) fn share(pod: &mut Value, dir: &Path) {
    std::fs::create_dir_all(dir).expect("a directory");
    pod["spec"]["volumes"] = json!([{"name": "shared", "hostPath": {"path": dir}}]);
    for container in pod["spec"]["containers"].as_array_mut().expect("containers") {
        container["volumeMounts"] = json!([{"name": "shared", "mountPath": "/shared"}]);
    }
}

/// How often the runtime itself ended the container because the client died during StartContainer; another start is correct then.
fn aborted_starts(pod: &Value, name: &str) -> usize {
    let status = container(pod, name);
    let last = &status["lastState"]["terminated"];
    usize::from(last["reason"] == "StartError" || last["exitCode"] == 128)
}

/// How many container starts the runtime has aborted so far on the whole node for the same reason; those are repeated.
pub(crate) fn all_aborted_starts(node: &Node) -> usize {
    node.kubelet_log().matches("why: Exited { code: 128,").count()
}

/// A script that appends the restart count of its container to `/shared/attempts` and fails. The count is in the name of the
/// termination message file, which the kubelet mounts.
pub(crate) const RECORD_ATTEMPT: &str = "while read -r _ _ _ source target _; do \
     [ \"$target\" = /dev/termination-log ] && echo \"${source##*/}\" >> /shared/attempts; \
     done < /proc/self/mountinfo; exit 1";

/// The restart counts that containers with this script recorded, in the order of their runs.
fn recorded_attempts(shared: &Path) -> Vec<i64> {
    let text = std::fs::read_to_string(shared.join("attempts")).unwrap_or_default();
    text.lines().map(|line| i64::from_str_radix(line, 16).expect("a restart count")).collect()
}

/// The restart counts of the starts that the runtime has aborted because the client died during StartContainer. The kubelet logs
/// the count of the next one.
fn aborted_attempts(node: &Node) -> BTreeSet<i64> {
    let log = node.kubelet_log();
    let parts: Vec<&str> = log.split(", why: Exited { code: 128,").collect();
    let (_, followed) = parts.split_last().expect("at least one part");
    let next = followed.iter().filter_map(|part| part.rsplit("restart_count: ").next());
    next.map(|count| count.parse::<i64>().expect("a restart count") - 1).collect()
}

/// Waits for a run after the restart count `last`, and checks that each count up to then was one run or an aborted start.
pub(crate) fn check_attempts(node: &Node, shared: &Path, last: i64) {
    let ran = node.eventually("a container with a higher restart count has run", |_| {
        let ran = recorded_attempts(shared);
        if ran.last().is_some_and(|newest| *newest > last) { Ok(ran) } else { Err(format!("{ran:?}")) }
    });
    assert!(ran.is_sorted_by(|a, b| a < b), "no count ran twice or after a higher one: {ran:?}");
    let newest = ran.last().copied().unwrap_or_default();
    let aborted = aborted_attempts(node);
    let missing: Vec<i64> = (0..=newest).filter(|count| !ran.contains(count)).collect();
    assert!(missing.iter().all(|count| aborted.contains(count)), "ran: {ran:?}, aborted: {aborted:?}");
}

fn before(order: &[String], first: &str, second: &str) -> bool {
    let at = |line: &str| order.iter().position(|l| l == line);
    matches!((at(first), at(second)), (Some(first), Some(second)) if first < second)
}

#[test]
fn init_and_sidecar_containers_start_and_stop_in_order_whenever_the_kubelet_is_killed() {
    let mut node = Node::start();
    for millis in MOMENTS {
        let shared = node.path(&format!("shared-{millis}"));
        let aborted_before = all_aborted_starts(&node);
        node.apply("ordered", &ordered_pod(&shared));
        node.kill_after(Duration::from_millis(millis));
        let pod = node.running("ordered");
        node.eventually("all are running", |_| {
            let order = order(&shared);
            if order.iter().any(|line| line == "main up") { Ok(()) } else { Err(format!("{order:?}")) }
        });
        let up = order(&shared);
        let aborted_starts = all_aborted_starts(&node) - aborted_before;
        let started = ["init ran", "sidecar-1 up", "sidecar-2 up", "main up"];
        assert!(started.windows(2).all(|pair| before(&up, pair[0], pair[1])), "after {millis} ms: {up:?}");
        let is_expected = (4..=4 + aborted_starts).contains(&up.len());
        assert!(
            is_expected,
            "nothing ran twice, after {millis} ms: {up:?}, {aborted_starts} starts were aborted"
        );

        node.delete("ordered");
        node.kill_after(Duration::from_millis(millis));
        node.wait_until_gone("ordered", &uid(&pod));
        let mut down = order(&shared);
        down.retain(|line| line.ends_with(" down"));
        assert_eq!(down, ["main down", "sidecar-2 down", "sidecar-1 down"], "after {millis} ms");
    }
}

#[test]
fn crash_loop_keeps_its_restart_count_whenever_the_kubelet_is_killed() {
    let mut node = Node::start_with(json!({
        "featureGates": {"KubeletCrashLoopBackOffMax": true},
        "crashLoopBackOff": {"maxContainerRestartPeriod": "1s"},
    }));
    let shared = node.path("shared");
    let mut pod = shell_pod("crasher", RECORD_ATTEMPT);
    share(&mut pod, &shared);
    node.apply("crasher", &pod);
    let mut last = -1;
    let first = node.pod_when("crasher", "is listed", |_| true);
    for millis in MOMENTS {
        node.kill_after(Duration::from_millis(millis * 2));
        let pod = node.pod_when("crasher", "keeps crashing", |pod| restarts(pod, "main") > last);
        last = restarts(&pod, "main");
    }
    // The newest container may be created and not started yet; the kubelet does not start it once its pod is deleted.
    check_attempts(&node, &shared, last);
    node.delete("crasher");
    node.wait_until_gone("crasher", &uid(&first));
}

#[test]
fn probe_results_continue_whenever_the_kubelet_is_killed() {
    let mut node = Node::start();
    let shared = node.path("shared");
    let check = |file: &str| json!({"exec": {"command": ["/bin/test", "-e", format!("/shared/{file}")]}, "periodSeconds": 1, "failureThreshold": 30});
    let mut pod = shell_pod("probed", "echo run >> /shared/runs; touch /shared/alive; sleep 3600");
    share(&mut pod, &shared);
    let main = &mut pod["spec"]["containers"][0];
    main["startupProbe"] = check("started");
    main["readinessProbe"] = check("ready");
    main["readinessProbe"]["failureThreshold"] = 1.into();
    main["livenessProbe"] = check("alive");
    main["livenessProbe"]["failureThreshold"] = 1.into();
    node.apply("probed", &pod);
    let flag = |name: &str| std::fs::write(shared.join(name), "").expect("a flag");
    let runs = || std::fs::read_to_string(shared.join("runs")).unwrap_or_default().lines().count();
    node.kill_at("Startup probe failed");
    let waiting =
        node.pod_when("probed", "runs", |pod| container(pod, "main")["state"]["running"].is_object());
    assert_eq!(container(&waiting, "main")["started"], false);
    flag("started");
    node.pod_when("probed", "has started", |pod| container(pod, "main")["started"] == true);
    node.kill_at("Readiness probe failed");
    let unready =
        node.pod_when("probed", "is listed", |pod| container(pod, "main")["state"]["running"].is_object());
    assert_eq!(
        (condition(&unready, "Ready"), &container(&unready, "main")["started"]),
        ("False", &json!(true))
    );
    flag("ready");
    node.running("probed");
    assert_eq!(runs(), 1, "no change so far required a restart");
    std::fs::remove_file(shared.join("alive")).expect("no flag");
    node.kill_at("failed liveness probe, will be restarted");
    let again = node.pod_when("probed", "was restarted once", |pod| {
        restarts(pod, "main") == 1 && condition(pod, "Ready") == "True"
    });
    assert_eq!((runs(), restarts(&again, "main")), (2, 1));
}

#[test]
fn manifest_edit_restarts_only_changed_containers_whenever_the_kubelet_is_killed() {
    let mut node = Node::start();
    let shared = node.path("shared");
    let recording_container = |name: &str| shell(name, &format!("echo {name} >> /shared/order; {FOREVER}"));
    let mut pod = shell_pod("edited", FOREVER);
    pod["metadata"]["uid"] = "11111111-2222-3333-4444-555555555555".into();
    pod["spec"]["containers"] = json!([recording_container("same"), recording_container("changed")]);
    share(&mut pod, &shared);
    node.apply("edited", &pod);
    let mut first = node.running("edited");
    let runs = |name: &str| order(&shared).iter().filter(|line| *line == name).count();
    node.eventually("the first instance has logged its start", |_| {
        if runs("changed") == 1 { Ok(()) } else { Err(format!("{:?}", order(&shared))) }
    });
    for (n, millis) in MOMENTS.into_iter().enumerate() {
        let image = format!("localhost/busybox:v{n}");
        node.ctr(&["images", "tag", crate::node::IMAGE, &image]);
        pod["spec"]["containers"][1]["image"] = image.as_str().into();
        node.apply("edited", &pod);
        node.kill_after(Duration::from_millis(millis));
        let after = node.pod_when("edited", "runs the new image", |pod| {
            id(pod, "changed") != id(&first, "changed") && condition(pod, "Ready") == "True"
        });
        assert_eq!(id(&after, "same"), id(&first, "same"), "after {millis} ms");
        first = after;
        // Running and ready come from the runtime; the shell may print its first line only after the next edit.
        node.eventually("the new instance has logged its start", |_| {
            if runs("changed") >= n + 2 { Ok(()) } else { Err(format!("{:?}", order(&shared))) }
        });
        // An aborted start may have logged its line; then the line of the instance after it may come with the next edit.
        let aborted_starts = all_aborted_starts(&node);
        let is_expected = (n + 2..=n + 2 + aborted_starts).contains(&runs("changed"));
        assert!(is_expected, "after {millis} ms: {:?}, {aborted_starts} starts were aborted", order(&shared));
    }
    assert_eq!(runs("same"), 1);
}

#[test]
fn deleted_pod_gets_pre_stop_hook_and_grace_period_whenever_the_kubelet_is_killed() {
    let mut node = Node::start();
    for moment in ["Stopping container main", "hook began", "term came", "all ended"] {
        let shared = node.path("shared").join(moment);
        let mut pod = shell_pod(
            "polite",
            "trap 'echo term came >> /shared/order; sleep 1; echo all ended >> /shared/order; exit 0' TERM; \
             while :; do sleep 3600 & wait $!; done",
        );
        pod["spec"]["terminationGracePeriodSeconds"] = 30.into();
        share(&mut pod, &shared);
        pod["spec"]["containers"][0]["lifecycle"] = json!({"preStop": {"exec": {"command":
            ["/bin/sh", "-c", "echo hook began >> /shared/order; sleep 1; echo hook ended >> /shared/order"]}}});
        node.apply("polite", &pod);
        let pod = node.running("polite");
        node.delete("polite");
        node.eventually("the log has the text", |node| {
            let is_written = order(&shared).iter().any(|line| line == moment);
            if is_written || node.kubelet_log().contains(moment) { Ok(()) } else { Err(moment.to_owned()) }
        });
        node.restart_kubelet();
        node.wait_until_gone("polite", &uid(&pod));
        let order = order(&shared);
        assert!(before(&order, "hook ended", "term came"), "{moment}: {order:?}");
        assert!(before(&order, "term came", "all ended"), "{moment}: {order:?}");
        let terms = order.iter().filter(|line| *line == "all ended").count();
        assert_eq!(terms, 1, "{moment}: {order:?}");
    }
}

#[test]
fn invalid_manifest_keeps_the_running_pod_even_if_the_kubelet_is_killed() {
    let mut node = Node::start();
    node.apply("web", &shell_pod("web", FOREVER));
    node.apply("other", &shell_pod("other", FOREVER));
    let (web, other) = (node.running("web"), node.running("other"));
    std::fs::write(node.manifest("web"), "apiVersion: v1\nkind: Pod\nmetadata: {name: web\nspec: [")
        .expect("written");
    node.kill_at("Failed to parse manifest");
    assert_eq!(id(&node.running("other"), "main"), id(&other, "main"));
    // Housekeeping runs every two seconds; a new pod takes one or two runs as well.
    node.apply("new", &shell_pod("new", FOREVER));
    node.running("new");
    node.eventually("housekeeping has run", |node| {
        let metrics = node.kubelet_age();
        if metrics > Duration::from_secs(6) { Ok(()) } else { Err(format!("{metrics:?}")) }
    });
    assert_eq!(node.running_containers(&uid(&web)), 1, "the deletion of this pod was not requested");
    assert_eq!(id(&node.running("web"), "main"), id(&web, "main"), "it is still listed");
    node.apply("web", &shell_pod("web", FOREVER));
    assert_eq!(id(&node.running("web"), "main"), id(&web, "main"), "the manifest is as it was");
    node.delete("web");
    node.wait_until_gone("web", &uid(&web));
}

#[test]
fn image_pull_back_off_continues_whenever_the_kubelet_is_killed() {
    let mut node = Node::start();
    let mut pod = shell_pod("unpullable", FOREVER);
    pod["spec"]["containers"][0]["image"] = "127.0.0.1:1/no/such:1".into();
    pod["spec"]["containers"][0]["imagePullPolicy"] = "Always".into();
    node.apply("unpullable", &pod);
    for moment in ["Created pod sandbox", "Pulling image", "ErrImagePull", "Back-off pulling image"] {
        node.kill_at(moment);
    }
    let pod = node.pod_when("unpullable", "backs off", |pod| {
        container(pod, "main")["state"]["waiting"]["reason"] == "ImagePullBackOff"
    });
    assert_eq!((pod["status"]["phase"].as_str(), restarts(&pod, "main")), (Some("Pending"), 0));
    let ids = node.runtime_ids(&uid(&pod)).expect("the runtime answers");
    assert_eq!(ids.len(), 1, "one sandbox and nothing else: {ids:?}");
    node.delete("unpullable");
    node.wait_until_gone("unpullable", &uid(&pod));
}

#[test]
fn waiting_reason_is_reported_again_whenever_the_kubelet_is_killed() {
    let mut node = Node::start();
    let missing = node.path("missing");
    let mut pathless = shell_pod("pathless", FOREVER);
    pathless["spec"]["volumes"] =
        json!([{"name": "data", "hostPath": {"path": missing, "type": "Directory"}}]);
    pathless["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    let mut rooted = shell_pod("rooted", FOREVER);
    rooted["spec"]["containers"][0]["securityContext"] = json!({"runAsNonRoot": true});
    node.apply("pathless", &pathless);
    node.apply("rooted", &rooted);
    node.kill_after(Duration::from_millis(60));
    for moment in ["FailedMount", "container has runAsNonRoot"] {
        node.kill_at(moment);
    }
    let refused = node.pod_when("rooted", "is rejected", |pod| {
        container(pod, "main")["state"]["waiting"]["reason"] == "CreateContainerConfigError"
    });
    let ids = node.runtime_ids(&uid(&refused)).expect("the runtime answers");
    assert_eq!(ids.len(), 1, "one sandbox and nothing else: {ids:?}");
    let waiting = node.pod_when("pathless", "waits", |pod| pod["status"]["phase"] == "Pending");
    assert_eq!(container(&waiting, "main")["state"]["waiting"]["reason"], "ContainerCreating");
    let ids = node.runtime_ids(&uid(&waiting)).expect("the runtime answers");
    assert!(ids.is_empty(), "volumes are set up before everything else: {ids:?}");
    std::fs::create_dir_all(&missing).expect("the directory appears");
    assert_eq!(restarts(&node.running("pathless"), "main"), 0);
    for name in ["pathless", "rooted"] {
        let pod = node.pod(name).expect("the pod");
        node.delete(name);
        node.wait_until_gone(name, &uid(&pod));
    }
}

#[test]
fn thirty_pods_start_and_terminate_whenever_the_kubelet_is_killed() {
    let mut node = Node::start();
    let shared = node.path("shared");
    let names: Vec<String> = (0..30).map(|n| format!("pod-{n:02}")).collect();
    for name in &names {
        let mut pod = shell_pod(name, &format!("echo {name} >> /shared/order; {FOREVER}"));
        share(&mut pod, &shared);
        node.apply(name, &pod);
    }
    for millis in [300, 600, 1200] {
        node.kill_after(Duration::from_millis(millis));
    }
    let uids: Vec<String> = names.iter().map(|name| uid(&node.running(name))).collect();
    node.eventually("all have logged their start", |_| {
        let ran = order(&shared);
        let missing: Vec<&String> = names.iter().filter(|name| !ran.contains(name)).collect();
        if missing.is_empty() { Ok(()) } else { Err(format!("{missing:?}")) }
    });
    let ran = order(&shared);
    for name in &names {
        let runs: i64 = ran.iter().map(|run| i64::from(run == name)).sum();
        // containerd ends a container whose StartContainer call is cut off, perhaps after its first line; that is a restart.
        let restarts = restarts(&node.running(name), "main");
        assert!((1..=1 + restarts).contains(&runs), "{name} ran {runs} times with {restarts} restarts");
    }
    for name in &names {
        node.delete(name);
    }
    for millis in [300, 600, 1200] {
        node.kill_after(Duration::from_millis(millis));
    }
    for (name, uid) in names.iter().zip(&uids) {
        node.wait_until_gone(name, uid);
    }
    assert_eq!(names_in(&node.path("root/pods")), Vec::<String>::new());
}

#[test]
fn volumes_are_mounted_once_and_unmounted_whenever_the_kubelet_is_killed() {
    let mut node = Node::start();
    let host = node.path("host");
    std::fs::create_dir_all(host.join("a")).expect("a directory");
    for millis in MOMENTS {
        let mut pod = shell_pod("mounted", &format!("echo run >> /memory/runs; {FOREVER}"));
        pod["spec"]["volumes"] = json!([
            {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
            {"name": "scratch", "emptyDir": {}},
            {"name": "host", "hostPath": {"path": host, "type": "Directory"}},
        ]);
        pod["spec"]["containers"][0]["volumeMounts"] = json!([
            {"name": "memory", "mountPath": "/memory"},
            {"name": "scratch", "mountPath": "/part", "subPath": "part"},
            {"name": "host", "mountPath": "/host", "subPath": "a"},
        ]);
        node.apply("mounted", &pod);
        node.kill_after(Duration::from_millis(millis));
        let pod = node.running("mounted");
        let dir = node.path("root/pods").join(uid(&pod));
        let runs = dir.join("volumes/kubernetes.io~empty-dir/memory/runs");
        node.eventually("the container has written", |_| {
            if runs.exists() { Ok(()) } else { Err("not yet".to_owned()) }
        });
        let ran = std::fs::read_to_string(&runs).expect("runs").lines().count();
        assert!(ran <= 1 + aborted_starts(&node.running("mounted"), "main"), "{ran} runs, after {millis} ms");
        let mounts = || std::fs::read_to_string("/proc/self/mounts").expect("the mount table");
        assert_eq!(mounts().matches(&uid(&pod)).count(), 3, "after {millis} ms: {}", mounts());
        node.delete("mounted");
        node.kill_after(Duration::from_millis(millis));
        node.wait_until_gone("mounted", &uid(&pod));
        assert!(!mounts().contains(&uid(&pod)), "after {millis} ms: {}", mounts());
    }
    assert!(host.join("a").is_dir());
}
