//! Pods with as many mounts, volumes and variables as the API stores, in a manifest and from the API: the lease is renewed, `/healthz`
//! answers, and another pod starts meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fixtures::stretched;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::node::{FOREVER, Node, http_get, shell_pod};

use super::{Cluster, bound};

/// The lease may be older than that by the time it is renewed; its duration is 40 seconds, unless it is set.
const MAX_LEASE_GAP: Duration = Duration::from_secs(20);
/// The aim is one second, and a release build of November 2026 needs 0.2 to 0.4 s for these pods. This is a debug build, whose decoding
/// of a pod of one megabyte takes ten times as long, on a machine where other tests run as well.
const MAX_ANSWER: Duration = Duration::from_secs(20);
/// The other pod, next to the large ones.
const MAX_START: Duration = Duration::from_secs(60);
/// How long the large pods are watched at least.
const WATCHED: Duration = Duration::from_secs(8);

/// Asks for `/healthz` until it is stopped, and returns the longest time that an answer took.
pub(super) struct HealthWatch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Duration>,
}

impl HealthWatch {
    pub(super) fn start(node: &Node) -> Self {
        let (stop, port) = (Arc::new(AtomicBool::new(false)), node.health_port());
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut longest = Duration::ZERO;
            while !stopped.load(Ordering::Relaxed) {
                let asked_at = Instant::now();
                // What matters is when it answers; not answering at all takes longest.
                let _ = http_get("127.0.0.1", port, "/healthz");
                longest = longest.max(asked_at.elapsed());
                std::thread::sleep(Duration::from_millis(20));
            }
            longest
        });
        Self { stop, thread }
    }

    pub(super) fn longest(self) -> Duration {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the watch ends")
    }
}

/// The longest time between two renewals of the node's lease, or since the last one.
pub(super) fn longest_lease_gap(cluster: &Cluster) -> Duration {
    let times = cluster.audit_log().into_iter().filter_map(|call| {
        let is_lease = call["verb"] == "update" && call["uri"].as_str()?.contains("/leases/node");
        let renewed = call["request"]["spec"]["renewTime"].as_str().filter(|_| is_lease)?;
        renewed.parse::<Timestamp>().ok()
    });
    let times: Vec<Timestamp> = times.collect();
    assert!(!times.is_empty(), "the lease is renewed");
    let gaps =
        times.windows(2).map(|pair| Duration::try_from(pair[1].duration_since(pair[0])).unwrap_or_default());
    let since_the_last =
        Duration::try_from(Timestamp::now().duration_since(times[times.len() - 1])).unwrap_or_default();
    gaps.chain([since_the_last]).max().unwrap_or_default()
}

/// A node with one of these pods from a manifest and one from the API.
fn check(in_manifest: &Value, from_api: &Value) {
    let mut cluster = Cluster::audited(
        Node::on_containerd(json!({"nodeLeaseDurationSeconds": 8})),
        &["--no-service-accounts"],
    );
    cluster.node.start_kubelet();
    cluster.wait_until_ready();
    let few =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "few"}, "data": {"k": "v"}});
    cluster.kubectl.apply(&[few]);
    let (health, began) = (HealthWatch::start(&cluster.node), Instant::now());
    cluster.node.apply("large", in_manifest);
    cluster.kubectl.create(&[bound(from_api.clone())]);
    cluster.node.eventually("the kubelet has both large pods", |node| {
        let text = node.get("/metrics")?;
        let has_both = text.lines().any(|line| line == "kubelet_desired_pods{static=\"true\"} 1")
            && text.lines().any(|line| line == "kubelet_desired_pods{static=\"\"} 1");
        if has_both { Ok(()) } else { Err("it has not".to_owned()) }
    });
    let asked_at = Instant::now();
    let mut other = shell_pod("other", FOREVER);
    other["spec"]["enableServiceLinks"] = false.into();
    cluster.kubectl.apply(&[bound(other)]);
    cluster.running("other");
    let started_after = asked_at.elapsed();
    while began.elapsed() < WATCHED {
        std::thread::sleep(Duration::from_millis(100));
    }
    let (answer, gap) = (health.longest(), longest_lease_gap(&cluster));
    eprintln!("answer {answer:?}, lease gap {gap:?}, other pod after {started_after:?}");
    assert!(answer < stretched(MAX_ANSWER), "/healthz answered after {answer:?}");
    assert!(gap < stretched(MAX_LEASE_GAP), "the lease was not renewed for {gap:?}");
    assert!(started_after < stretched(MAX_START), "the other pod ran after {started_after:?}");
}

/// A pod with these fields of its container and of its spec.
fn large(name: &str, container: &Value, spec: &Value) -> Value {
    let mut pod = shell_pod(name, FOREVER);
    for (target, fields) in [("/spec/containers/0", container), ("/spec", spec)] {
        let target = pod.pointer_mut(target).and_then(Value::as_object_mut).expect("an object");
        target.extend(fields.as_object().expect("fields").clone());
    }
    pod
}

fn list(count: usize, element: impl Fn(usize) -> Value) -> Value {
    (0..count).map(element).collect()
}

#[test]
fn large_pod_of_20000_mounts_delays_neither_lease_nor_healthz_nor_other_pods() {
    let mounts =
        json!({"volumeMounts": list(20_000, |i| json!({"name": "v", "mountPath": format!("/m/{i}")}))});
    let item = json!({"path": "name", "fieldRef": {"fieldPath": "metadata.name"}});
    let shown = json!({"volumes": [{"name": "v", "downwardAPI": {"items": [item]}}]});
    let few = json!({"volumes": [{"name": "v", "configMap": {"name": "few"}}]});
    check(&large("large", &mounts, &shown), &large("large-api", &mounts, &few));
}

#[test]
fn large_pod_of_8000_volumes_delays_neither_lease_nor_healthz_nor_other_pods() {
    let volumes = json!({"volumes": list(8000, |i| json!({"name": format!("v{i}"), "emptyDir": {}}))});
    check(&large("large", &json!({}), &volumes), &large("large-api", &json!({}), &volumes));
}

#[test]
fn large_pod_of_12000_variables_and_10000_sub_paths_delays_neither_lease_nor_healthz_nor_other_pods() {
    let container = json!({
        "env": list(12_000, |i| json!({"name": format!("V{i}"), "value": i.to_string()})),
        "volumeMounts": list(10_000, |i| json!({"name": "v", "mountPath": format!("/m/{i}"), "subPathExpr": "$(V1)"})),
    });
    let volume = json!({"volumes": [{"name": "v", "emptyDir": {}}]});
    check(&large("large", &container, &volume), &large("large-api", &container, &volume));
}
