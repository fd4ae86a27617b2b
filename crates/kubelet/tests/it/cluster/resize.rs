//! Pods that are resized through kubectl while they run, on a real runtime with real cgroups.

use fixtures::reduced;
use serde_json::{Value, json};

use crate::node::{FOREVER, shell_pod};
use crate::resources::is_v2;

use super::{Cluster, bound};

const LIMITS: &str = "cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null; \
                      cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us /sys/fs/cgroup/cpu.max 2>/dev/null; true";

fn resources(cpu: &str, memory: &str) -> Value {
    json!({"requests": {"cpu": "20m", "memory": "16Mi"}, "limits": {"cpu": cpu, "memory": memory}})
}

/// A container `main` that is resized while it runs, and `restarted`, which is restarted for other memory.
fn pod() -> Value {
    let mut pod = bound(shell_pod("web", FOREVER));
    pod["spec"]["containers"][0]["name"] = json!("main");
    pod["spec"]["containers"][0]["resources"] = resources("100m", "64Mi");
    let mut restarted = pod["spec"]["containers"][0].clone();
    restarted["name"] = json!("restarted");
    restarted["resizePolicy"] = json!([{"resourceName": "memory", "restartPolicy": "RestartContainer"}]);
    pod["spec"]["containers"].as_array_mut().expect("a list").push(restarted);
    pod
}

fn resize(cluster: &Cluster, name: &str, cpu: &str, memory: &str) {
    let containers = json!([{"name": name, "resources": resources(cpu, memory)}]);
    let patch = json!({"spec": {"containers": containers}}).to_string();
    cluster.kubectl.ok(&["patch", "pod", "web", "--subresource", "resize", "-p", &patch]);
}

fn status<'a>(pod: &'a Value, name: &str) -> &'a Value {
    let all = pod["status"]["containerStatuses"].as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter().find(|status| status["name"] == name).unwrap_or(&Value::Null)
}

fn has_condition(pod: &Value, kind: &str) -> bool {
    let all = pod["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter().any(|condition| condition["type"] == kind)
}

/// Waits until the status of the container has these limits. Returns the pod.
#[track_caller]
fn wait_until_shown(cluster: &Cluster, name: &str, cpu: &str, memory: &str) -> Value {
    cluster.pod_when("web", "is resized", |pod| {
        let status = status(pod, name);
        status["resources"] == resources(cpu, memory)
            && status["ready"] == true
            && !has_condition(pod, "PodResizeInProgress")
    })
}

/// The same, and its own cgroup has them. Returns the number of its restarts.
#[track_caller]
fn wait_until_resized(cluster: &Cluster, name: &str, cpu: &str, memory: &str) -> i64 {
    let pod = wait_until_shown(cluster, name, cpu, memory);
    let limits = cluster.kubectl.ok(&["exec", "web", "-c", name, "--", "sh", "-c", LIMITS]);
    let mebibytes: i64 = memory.trim_end_matches("Mi").parse().expect("mebibytes");
    let quota: i64 = cpu.trim_end_matches('m').parse::<i64>().expect("milli-CPUs") * 100;
    let quota = if is_v2() { format!("{quota} 100000") } else { quota.to_string() };
    assert_eq!(limits.lines().collect::<Vec<_>>(), [(mebibytes << 20).to_string(), quota]);
    status(&pod, name)["restartCount"].as_i64().expect("a count")
}

#[test]
fn running_pod_is_resized_by_kubectl_in_place_and_over_a_kill_of_the_kubelet() {
    let mut cluster = Cluster::with_authorization(json!({}));
    cluster.wait_until_ready();
    cluster.kubectl.apply(&[pod()]);
    cluster.running("web");
    resize(&cluster, "main", "150m", "96Mi");
    assert_eq!(wait_until_resized(&cluster, "main", "150m", "96Mi"), 0);
    resize(&cluster, "main", "50m", "32Mi");
    assert_eq!(wait_until_resized(&cluster, "main", "50m", "32Mi"), 0, "smaller");
    resize(&cluster, "restarted", "200m", "64Mi");
    assert_eq!(
        wait_until_resized(&cluster, "restarted", "200m", "64Mi"),
        0,
        "only memory requires a restart"
    );
    resize(&cluster, "restarted", "200m", "128Mi");
    assert_eq!(wait_until_resized(&cluster, "restarted", "200m", "128Mi"), 1);
    cluster.node.kill_kubelet();
    resize(&cluster, "main", "120m", "80Mi");
    cluster.node.start_kubelet();
    assert_eq!(wait_until_resized(&cluster, "main", "120m", "80Mi"), 0);
    assert_eq!(wait_until_resized(&cluster, "restarted", "200m", "128Mi"), 1);
    let root = cluster.node.path("root");
    for file in ["allocated_pods_state", "actuated_pods_state"] {
        let text = cluster.node.eventually("the state is written", |_| {
            let text = std::fs::read_to_string(root.join(file)).map_err(|error| error.to_string())?;
            let is_written =
                text.contains(r#"\"memory\":\"80Mi\""#) && text.contains(r#"\"memory\":\"128Mi\""#);
            if is_written { Ok(text) } else { Err(text) }
        });
        let document: Value = serde_json::from_str(&text).expect("JSON");
        assert!(document["checksum"].is_u64(), "{text}");
    }
}

/// A hundred resizes with the kubelet killed in between: only a container whose policy requires it is restarted, and each has in its
/// own cgroup what was requested last.
#[test]
fn hundred_random_resizes_restart_only_what_must_restart() {
    let mut cluster = Cluster::with_authorization(json!({}));
    cluster.wait_until_ready();
    cluster.kubectl.apply(&[pod()]);
    cluster.running("web");
    let mut numbers = Numbers(20_261_124);
    let mut sizes = [("main", (100, 64), 0), ("restarted", (100, 64), 0)];
    for step in 1..=reduced(100) {
        let index = usize::try_from(numbers.below(2)).expect("0 or 1");
        let (name, before, restarts) = sizes[index];
        let size @ (cpu, memory) = (30 + 10 * numbers.below(20), 24 + 8 * numbers.below(20));
        let is_restarted = name == "restarted" && memory != before.1;
        sizes[index] = (name, size, restarts + i64::from(is_restarted));
        resize(&cluster, name, &format!("{cpu}m"), &format!("{memory}Mi"));
        match step % 10 {
            3 => {
                // While the resize is under way. Two resizes at once would need only one restart.
                cluster.node.restart_kubelet();
                wait_until_shown(&cluster, name, &format!("{cpu}m"), &format!("{memory}Mi"));
            }
            0 => {
                for (name, (cpu, memory), restarts) in sizes {
                    let seen = wait_until_resized(&cluster, name, &format!("{cpu}m"), &format!("{memory}Mi"));
                    assert_eq!(seen, restarts, "{name} after {step} resizes");
                }
            }
            _ => {
                wait_until_shown(&cluster, name, &format!("{cpu}m"), &format!("{memory}Mi"));
            }
        }
    }
}

/// Numbers that look random, the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

#[test]
fn resize_that_does_not_fit_waits_and_memory_in_use_is_not_taken_away() {
    let cluster = Cluster::with_authorization(json!({}));
    cluster.wait_until_ready();
    cluster.kubectl.apply(&[pod()]);
    cluster.running("web");
    let patch = json!({"spec": {"containers": [{"name": "main", "resources":
        {"requests": {"cpu": "1000"}, "limits": {"cpu": "1000"}}}]}});
    cluster.kubectl.ok(&["patch", "pod", "web", "--subresource", "resize", "-p", &patch.to_string()]);
    let waits = cluster.pod_when("web", "waits", |pod| has_condition(pod, "PodResizePending"));
    let text = waits["status"].to_string();
    assert!(
        text.contains(r#""reason":"Deferred""#) && text.contains("didn't have enough resource: cpu"),
        "{text}"
    );
    cluster.node.eventually("the event is recorded", |_| {
        let events = cluster.events("Pod", "web");
        let is_it = |event: &String| event.starts_with("ResizeDeferred: Pod resize Deferred: {");
        if events.iter().any(is_it) { Ok(()) } else { Err(format!("{events:?}")) }
    });
    resize(&cluster, "main", "100m", "64Mi");
    cluster.pod_when("web", "does not wait", |pod| !has_condition(pod, "PodResizePending"));
    // The container fills a tmpfs, which counts as its memory.
    let fill = "dd if=/dev/zero of=/dev/shm/file bs=1M count=24 2>/dev/null";
    cluster.kubectl.ok(&["exec", "web", "-c", "main", "--", "sh", "-c", fill]);
    resize(&cluster, "main", "100m", "20Mi");
    let failed = cluster.pod_when("web", "has an error", |pod| {
        pod["status"]["conditions"].to_string().contains("cannot decrease memory limits")
    });
    assert_eq!(status(&failed, "main")["restartCount"], 0);
    cluster.kubectl.ok(&["exec", "web", "-c", "main", "--", "rm", "/dev/shm/file"]);
    assert_eq!(wait_until_resized(&cluster, "main", "100m", "20Mi"), 0);
}
