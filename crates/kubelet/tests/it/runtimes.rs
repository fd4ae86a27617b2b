//! Features of newer runtimes: used where they exist and not required where they do not. `KUBELET_TEST_CONTAINERD_BIN_DIR`
//! selects the runtime under test.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::node::{FOREVER, Node, container, shell, shell_pod, uid};

/// Five containers; each exits when its file appears in the shared directory.
fn exiting_pod(shared: &std::path::Path) -> Value {
    let exiter = |n: usize| {
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
            "containers": (0..5).map(exiter).collect::<Vec<_>>(),
            "volumes": [{"name": "shared", "hostPath": {"path": shared, "type": "DirectoryOrCreate"}}],
        },
    })
}

/// Ends that container, and returns how long the kubelet took to report it.
fn detection_time(node: &Node, exiter: usize) -> Duration {
    let name = format!("ender-{exiter}");
    let began = Instant::now();
    std::fs::write(node.path("shared").join(&name), "").expect("a file is written");
    node.pod_when("enders", "has an ended container", |pod| {
        container(pod, &name)["state"]["terminated"].is_object()
    });
    began.elapsed()
}

/// Each container exits right after the last exit was seen. Without runtime events that would be right after a relist, and the
/// next relist a whole second away.
#[test]
fn container_exit_is_seen_at_once_with_runtime_events() {
    let mut node = Node::start();
    let supports_events = node.supports_container_events();
    node.apply("enders", &exiting_pod(&node.path("shared")));
    node.running("enders");
    let mut times: Vec<Duration> = (0..3).map(|n| detection_time(&node, n)).collect();
    times.sort_unstable();
    let limit = fixtures::stretched(Duration::from_millis(if supports_events { 600 } else { 3000 }));
    assert!(times[1] < limit, "runtime events: {supports_events}, noticed after {times:?}");

    // Without the runtime the event stream breaks. Exits during that time are seen when the runtime is back.
    node.kill_runtime();
    std::fs::write(node.path("shared/ender-3"), "").expect("a file is written");
    node.resume_runtime();
    detection_time(&node, 3);
    if supports_events {
        let reopened =
            |node: &Node| node.kubelet_log().matches("Connecting to the container event stream").count();
        node.eventually("the stream is reopened", |node| match reopened(node) {
            0 | 1 => Err("not yet".to_owned()),
            _ => Ok(()),
        });
    }
    detection_time(&node, 4);
}

/// A pod that logs its user and group ids, and whether it may write into its volume.
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

/// Lines as the container printed them, with runs of blanks folded.
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
    assert!(lines[2].contains(" 0 0 "), "the pod can write to its volume: {lines:?}");
    let file = node.path("root/pods").join(uid(pod)).join("userns");
    let file = std::fs::read_to_string(file).expect("the mapping is written down");
    let file: Value = serde_json::from_str(&file).expect("it is JSON");
    let side = json!([{"hostId": first, "containerId": 0, "length": 65536}]);
    assert_eq!(file, json!({"uidMappings": side, "gidMappings": side}));
}

#[test]
fn user_namespace_pod_has_its_own_ids_or_is_rejected_with_a_reason() {
    let mut node = Node::start();
    if !node.supports_user_namespaces() {
        node.apply("one", &isolated("one"));
        let refusal = "can't set `spec.hostUsers: false`, runtime does not support user namespaces";
        node.wait_for_log(refusal);
        let pod = node.pod("one").expect("the pod is listed");
        assert_eq!(pod["status"]["phase"], "Pending");
        assert_eq!(
            node.runtime_ids(&uid(&pod)),
            Ok(Vec::new()),
            "nothing runs with the node's own ids instead"
        );
        node.delete("one");
        node.wait_until_gone("one", &uid(&pod));
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
    assert_eq!(before(&one_again), before(&one), "the restart affects nothing");
    node.delete("one");
    node.wait_until_gone("one", &uid(&one));
    node.apply("three", &isolated("three"));
    is_mapped(&node, &node.running("three"), 65_536);
}

/// A runtime that does not report its cgroup driver works with the configured one, but not with the next release.
#[test]
fn cgroup_driver_is_read_from_the_runtime_and_an_old_runtime_is_reported() {
    let node = Node::start();
    let losing = "kubelet_cri_losing_support{version=\"1.37.0\"} 1\n";
    if node.cgroup_driver().is_some() {
        node.wait_for_log("Using cgroup driver setting received from the CRI runtime");
        let metrics = node.get("/metrics").expect("metrics");
        assert!(!metrics.contains("kubelet_cri_losing_support"), "{metrics}");
    } else {
        node.wait_for_log("CRI implementation does not report its cgroup driver");
        let metrics = node.get("/metrics").expect("metrics");
        assert!(metrics.contains(losing), "{metrics}");
    }
    assert_eq!(node.kubelet_log().matches("cgroup driver").count(), 1, "logged once");
}

/// Mounts the image that it runs, and the requested part of it.
fn with_image_volume(name: &str, part: Option<&str>) -> Value {
    let script = format!("ls /whole /whole/etc; touch /whole/mine 2>/dev/null || echo refused; {FOREVER}");
    let mut pod = shell_pod(name, &script);
    let image = json!({"reference": pod["spec"]["containers"][0]["image"], "pullPolicy": "Never"});
    pod["spec"]["volumes"] = json!([{"name": "tools", "image": image}]);
    let mount = json!({"name": "tools", "mountPath": "/whole"});
    pod["spec"]["containers"][0]["volumeMounts"] = json!([mount]);
    if let Some(part) = part {
        pod["spec"]["containers"][0]["volumeMounts"][0]["subPath"] = part.into();
    }
    pod
}

/// Waits until the container waits with a message that begins like this.
fn waits_with(node: &Node, name: &str, words: &str) {
    node.pod_when(name, "reports what would be required", |pod| {
        let waiting = container(pod, "main")["state"]["waiting"].clone();
        let message = waiting["message"].as_str().unwrap_or_default();
        waiting["reason"] == "CreateContainerConfigError" && message.starts_with(words)
    });
}

#[test]
fn image_volume_is_mounted_or_the_runtime_reported_as_too_old() {
    let node = Node::start();
    node.apply("part", &with_image_volume("part", Some("etc")));
    if node.supports_image_volumes(true) {
        let pod = node.running("part");
        node.eventually("it has finished its checks", |node| {
            let lines = printed(node, &pod);
            if lines.iter().any(|line| line == "passwd") { Ok(()) } else { Err(format!("{lines:?}")) }
        });
    } else {
        waits_with(
            &node,
            "part",
            "image volumes with a subPath need containerd 2.2 or newer, this is containerd ",
        );
    }
    node.apply("shown", &with_image_volume("shown", None));
    if !node.supports_image_volumes(false) {
        return waits_with(
            &node,
            "shown",
            "image volumes need containerd 2.1 or newer, this is containerd 1.",
        );
    }
    let pod = node.running("shown");
    let lines = node.eventually("it has finished its checks", |node| {
        let lines = printed(node, &pod);
        if lines.iter().any(|line| line == "refused") { Ok(lines) } else { Err(format!("{lines:?}")) }
    });
    assert!(lines.iter().any(|line| line == "passwd"), "{lines:?}");
    let metrics = node.get("/metrics").expect("metrics");
    assert!(!metrics.contains("kubelet_image_volume_mounted_succeed_total 0\n"), "{metrics}");
    // An unavailable image of a volume keeps the container waiting, like its own image.
    let mut absent = with_image_volume("absent", None);
    absent["spec"]["volumes"][0]["image"]["reference"] = "localhost/none:1".into();
    node.apply("absent", &absent);
    node.pod_when("absent", "waits for its image", |pod| {
        container(pod, "main")["state"]["waiting"]["reason"] == "ErrImageNeverPull"
    });
    node.delete("shown");
    node.wait_until_gone("shown", &uid(&pod));
}

/// Writes into a mount below a read-only volume, and prints its groups.
fn confined(name: &str, volume: &std::path::Path, strict: bool) -> Value {
    let script =
        format!("id -G; touch /data/inner/file 2>/dev/null && echo written || echo refused; {FOREVER}");
    let mut pod = shell_pod(name, &script);
    pod["spec"]["volumes"] = json!([{"name": "data", "hostPath": {"path": volume, "type": "Directory"}}]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{
        "name": "data", "mountPath": "/data", "readOnly": true, "recursiveReadOnly": if strict { "Enabled" } else { "IfPossible" },
    }]);
    // In the image this user is in group 2000 too.
    pod["spec"]["securityContext"] = json!({"runAsUser": 1000, "supplementalGroups": [4242]});
    if strict {
        pod["spec"]["securityContext"]["supplementalGroupsPolicy"] = "Strict".into();
    }
    pod
}

/// A filesystem on the node until this is dropped.
struct Mounted(std::path::PathBuf);

impl Mounted {
    fn tmpfs(at: std::path::PathBuf) -> Self {
        let mounted = std::process::Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&at).status();
        assert!(mounted.expect("mount runs").success());
        Self(at)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // While containers hold it, it is unmounted with them.
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn recursive_read_only_mount_covers_submounts_where_supported() {
    let node = Node::start();
    let volume = node.path("volume");
    let inner = volume.join("inner");
    std::fs::create_dir_all(&inner).expect("a directory");
    let _mounted = Mounted::tmpfs(inner);
    node.apply("loose", &confined("loose", &volume, false));
    let loose = node.running("loose");
    let logs = |pod: &Value| {
        node.eventually("it has tried to write", |node| {
            let lines = printed(node, pod);
            if lines.len() >= 2 { Ok(lines) } else { Err(format!("{lines:?}")) }
        })
    };
    let can = node.supports_recursive_read_only();
    let lines = logs(&loose);
    assert_eq!(lines[1], if can { "refused" } else { "written" });
    assert_eq!(lines[0], "1000 2000 4242");
    node.apply("strict", &confined("strict", &volume, true));
    if can {
        let strict = node.running("strict");
        let lines = logs(&strict);
        assert_eq!(lines, ["1000 4242", "refused"], "no group that the image gives the user");
        let shown = &container(&strict, "main")["volumeMounts"][0];
        assert_eq!(shown["recursiveReadOnly"], "Enabled", "{shown}");
    } else {
        let pod = node.pod_when("strict", "is rejected", |pod| pod["status"]["phase"] == "Failed");
        assert_eq!(pod["status"]["reason"], "SupplementalGroupsPolicyNotSupported", "{}", pod["status"]);
    }
    for pod in ["loose", "strict"] {
        node.delete(pod);
    }
    node.wait_until_gone("loose", &uid(&loose));
}
