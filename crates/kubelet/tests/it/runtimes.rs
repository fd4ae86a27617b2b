//! What newer runtimes offer and older ones do not: used where it is there, and not missed where it is not. Which one
//! is under test, `KUBELET_TEST_CONTAINERD_BIN_DIR` says.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::node::{FOREVER, Node, container, shell, shell_pod, uid};

/// Five containers; each ends when its file appears in the shared directory.
fn enders(shared: &std::path::Path) -> Value {
    let ender = |n: usize| {
        let name = format!("ender-{n}");
        let mut container = shell(&name, &format!("until [ -e /shared/{name} ]; do sleep 0.02; done"));
        container["volumeMounts"] = json!([{"name": "shared", "mountPath": "/shared"}]);
        container
    };
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "enders"},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 2,
            "containers": (0..5).map(ender).collect::<Vec<_>>(),
            "volumes": [{"name": "shared", "hostPath": {"path": shared, "type": "DirectoryOrCreate"}}],
        },
    })
}

/// Ends that container, and returns how long the kubelet took to say so.
fn time_to_notice(node: &Node, ender: usize) -> Duration {
    let name = format!("ender-{ender}");
    let began = Instant::now();
    std::fs::write(node.path("shared").join(&name), "").expect("a file is written");
    node.pod_when("enders", "has an ended container", |pod| {
        container(pod, &name)["state"]["terminated"].is_object()
    });
    began.elapsed()
}

/// Each container ends right after the last end was noticed. Were it not for hints, that would be right after a listing,
/// and the next one a whole second away.
#[test]
fn an_end_is_noticed_at_once_where_the_runtime_tells_of_it() {
    let mut node = Node::start();
    let offers_hints = node.offers_hints();
    node.apply("enders", &enders(&node.path("shared")));
    node.running("enders");
    let mut times: Vec<Duration> = (0..3).map(|n| time_to_notice(&node, n)).collect();
    times.sort_unstable();
    let limit = testing::stretched(Duration::from_millis(if offers_hints { 600 } else { 3000 }));
    assert!(times[1] < limit, "hints: {offers_hints}, noticed after {times:?}");

    // With the runtime gone the stream breaks. What ends meanwhile is noticed when the runtime is back.
    node.kill_runtime();
    std::fs::write(node.path("shared/ender-3"), "").expect("a file is written");
    node.resume_runtime();
    time_to_notice(&node, 3);
    if offers_hints {
        let reopened = |node: &Node| node.kubelet_log().matches("Waiting for event hints").count();
        node.eventually("the stream is opened anew", |node| match reopened(node) {
            0 | 1 => Err("not yet".to_owned()),
            _ => Ok(()),
        });
    }
    time_to_notice(&node, 4);
}

/// A pod that says in its log which ids it has, and whether it may write into its volume.
fn isolated(name: &str) -> Value {
    let script = format!(
        "cat /proc/self/uid_map /proc/self/gid_map; touch /data/mine && ls -ln /data/mine; {FOREVER}"
    );
    let mut pod = shell_pod(name, &script);
    pod["spec"]["hostUsers"] = false.into();
    pod["spec"]["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    pod
}

/// Lines as the container printed them, blanks folded.
fn printed(node: &Node, pod: &Value) -> Vec<String> {
    let log = node.container_log(pod, "main");
    let texts = log.lines().filter_map(|line| line.splitn(4, ' ').nth(3));
    texts.map(|text| text.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

fn is_mapped(node: &Node, pod: &Value, first: u32) {
    let mapping = format!("0 {first} 65536");
    node.eventually("the pod prints its ids", |node| {
        let lines = printed(node, pod);
        if lines.len() >= 3 { Ok(()) } else { Err(format!("{lines:?}")) }
    });
    let lines = printed(node, pod);
    assert_eq!(lines[..2], [mapping.clone(), mapping]);
    assert!(lines[2].contains(" 0 0 "), "the volume is the pod's own to write: {lines:?}");
    let file = node.path("root/pods").join(uid(pod)).join("userns");
    let file = std::fs::read_to_string(file).expect("the mapping is written down");
    let file: Value = serde_json::from_str(&file).expect("it is JSON");
    let side = json!([{"hostId": first, "containerId": 0, "length": 65536}]);
    assert_eq!(file, json!({"uidMappings": side, "gidMappings": side}));
}

#[test]
fn a_pod_with_a_user_namespace_has_ids_of_its_own_or_is_refused_plainly() {
    let mut node = Node::start();
    if !node.offers_user_namespaces() {
        node.apply("one", &isolated("one"));
        let refusal = "can't set `spec.hostUsers: false`, runtime does not support user namespaces";
        node.logged(refusal);
        let pod = node.pod("one").expect("the pod is shown");
        assert_eq!(pod["status"]["phase"], "Pending");
        assert_eq!(
            node.runtime_ids(&uid(&pod)),
            Ok(Vec::new()),
            "nothing runs with the node's own ids instead"
        );
        node.delete("one");
        node.gone("one", &uid(&pod));
        return;
    }
    let before = |pod: &Value| container(pod, "main")["containerID"].clone();
    node.apply("one", &isolated("one"));
    let one = node.running("one");
    is_mapped(&node, &one, 65_536);
    node.restart_kubelet();
    node.apply("two", &isolated("two"));
    let two = node.running("two");
    is_mapped(&node, &two, 2 * 65_536);
    let one_again = node.running("one");
    assert_eq!(before(&one_again), before(&one), "the restart touches nothing");
    node.delete("one");
    node.gone("one", &uid(&one));
    node.apply("three", &isolated("three"));
    is_mapped(&node, &node.running("three"), 65_536);
}

/// A runtime that does not say its cgroup driver works, with the configured one, but not with the next release.
#[test]
fn the_runtime_is_asked_for_its_cgroup_driver_and_an_old_one_is_told_of() {
    let node = Node::start();
    let losing = "kubelet_cri_losing_support{version=\"1.37.0\"} 1\n";
    if node.cgroup_driver().is_some() {
        node.logged("The container runtime says which cgroup driver to use");
        let metrics = node.get("/metrics").expect("metrics");
        assert!(!metrics.contains("kubelet_cri_losing_support"), "{metrics}");
    } else {
        node.logged("The container runtime does not say its cgroup driver");
        let metrics = node.get("/metrics").expect("metrics");
        assert!(metrics.contains(losing), "{metrics}");
    }
    assert_eq!(node.kubelet_log().matches("cgroup driver").count(), 1, "said once");
}
