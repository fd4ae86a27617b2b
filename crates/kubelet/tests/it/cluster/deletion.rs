//! Pods that kubectl deletes: gracefully, by force, and with a successor of the same name.

use std::process::Command;
use std::time::Instant;

use serde_json::{Value, json};

use crate::kubelet_kills::share;
use crate::lifecycle::order;
use crate::node::{FOREVER, Node, shell_pod, uid};
use crate::unkillable::{FrozenDisk, writing_to};
use harness::SmallDisk;

use super::{Cluster, bound};

/// A pod that records how it is stopped; its preStop hook takes a second and its reaction to SIGTERM another one.
pub(crate) fn graceful_pod(node: &Node) -> Value {
    let mut pod = bound(shell_pod(
        "polite",
        "echo up >> /shared/order; \
         trap 'echo term came >> /shared/order; sleep 1; echo all ended >> /shared/order; exit 0' TERM; \
         while :; do sleep 3600 & wait $!; done",
    ));
    pod["spec"]["terminationGracePeriodSeconds"] = 30.into();
    share(&mut pod, &node.path("shared"));
    pod["spec"]["containers"][0]["lifecycle"] = json!({"preStop": {"exec": {"command":
        ["/bin/sh", "-c", "echo hook began >> /shared/order; sleep 1; echo hook ended >> /shared/order"]}}});
    pod
}

#[test]
fn kubectl_delete_runs_pre_stop_hook_and_grace_period_and_returns_when_the_pod_is_gone() {
    let cluster = Cluster::start();
    cluster.kubectl.apply(&[graceful_pod(&cluster.node)]);
    let pod = cluster.running("polite");
    let shared = cluster.node.path("shared");
    cluster.node.eventually("it runs", |_| order(&shared).first().map(|_| ()).ok_or("not yet".to_owned()));
    cluster.kubectl.ok(&["delete", "pod", "polite", "--wait=false"]);
    let shown =
        cluster.pod_when("polite", "is being deleted", |pod| !pod["metadata"]["deletionTimestamp"].is_null());
    assert_eq!(shown["metadata"]["deletionGracePeriodSeconds"], 30);
    let table = cluster.kubectl.ok(&["get", "pod", "polite", "--no-headers"]);
    assert!(table.contains("Terminating"), "{table}");
    cluster.wait_until_gone(&pod);
    assert_eq!(order(&shared), ["up", "hook began", "hook ended", "term came", "all ended"]);
    let events = cluster.events("Pod", "polite");
    assert!(events.contains(&"Killing: Stopping container main".to_owned()), "{events:?}");
}

/// The API server shows a pod once more when it deletes it, with a grace period of zero.
#[test]
fn deleted_pod_is_deleted_from_the_api_with_one_request() {
    let mut cluster = Cluster::audited(Node::on_containerd(json!({})), &[]);
    cluster.node.start_kubelet();
    let pods: Vec<Value> = (0..4).map(|n| bound(shell_pod(&format!("web-{n}"), FOREVER))).collect();
    cluster.kubectl.apply(&pods);
    let pods: Vec<Value> = (0..4).map(|n| cluster.running(&format!("web-{n}"))).collect();
    cluster.kubectl.ok(&["delete", "pods", "--all", "--wait=false"]);
    pods.iter().for_each(|pod| cluster.wait_until_gone(pod));
    let log = cluster.audit_log();
    let deletions: Vec<&Value> = log.iter().filter(|call| call["verb"] == "delete").collect();
    assert_eq!(deletions.len(), 4, "{deletions:?}");
}

#[test]
fn pod_that_ignores_sigterm_is_killed_after_its_grace_period() {
    let cluster = Cluster::start();
    cluster.kubectl.apply(&[bound(shell_pod("deaf", "trap '' TERM; while :; do sleep 1; done"))]);
    let pod = cluster.running("deaf");
    let began = Instant::now();
    cluster.kubectl.ok(&["delete", "pod", "deaf", "--grace-period=1"]);
    // Its own grace period is two seconds; kubectl requested one. A busy machine may take longer.
    assert!(began.elapsed().as_millis() >= 1000, "{:?}", began.elapsed());
    cluster.wait_until_gone(&pod);
}

#[test]
fn force_deleted_pod_leaves_the_api_at_once_and_the_node_soon() {
    let cluster = Cluster::start();
    cluster.kubectl.apply(&[graceful_pod(&cluster.node)]);
    let pod = cluster.running("polite");
    cluster.kubectl.ok(&["delete", "pod", "polite", "--grace-period=0", "--force"]);
    let complaint = cluster.kubectl.get("pod", "polite").expect_err("it is gone from the API");
    assert!(complaint.contains("NotFound"), "{complaint}");
    // The same name again, while the node still terminates the old pod.
    let mut successor = graceful_pod(&cluster.node);
    successor["spec"]["containers"][0]["command"] = json!(["/bin/sh", "-c", FOREVER]);
    cluster.kubectl.apply(&[successor]);
    let next = cluster.running("polite");
    assert_ne!(uid(&next), uid(&pod));
    cluster.wait_until_gone(&pod);
    assert_eq!(
        cluster.node.running_containers(&uid(&next)),
        1,
        "the end of the old pod does not apply to the new one"
    );
}

/// A process of the host, not of the pod, uses the volume.
#[test]
fn force_deleted_pod_frees_its_name_while_its_volume_is_busy() {
    let cluster = Cluster::start();
    let mut pod = bound(shell_pod("again", FOREVER));
    pod["spec"]["volumes"] = json!([{"name": "memory", "emptyDir": {"medium": "Memory"}}]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "memory", "mountPath": "/memory"}]);
    cluster.kubectl.apply(&[pod]);
    let old = cluster.running("again");
    let dir = cluster.node.path("root/pods").join(uid(&old));
    let volume = dir.join("volumes/kubernetes.io~empty-dir/memory");
    let mut user = Command::new("sleep").arg("600").current_dir(&volume).spawn().expect("a process");
    cluster.kubectl.ok(&["delete", "pod", "again", "--grace-period=0", "--force"]);
    cluster.node.wait_for_log("device or resource busy");
    cluster.kubectl.apply(&[bound(shell_pod("again", FOREVER))]);
    let next = cluster.running("again");
    assert_ne!(uid(&next), uid(&old));
    assert!(volume.exists(), "the old pod is not released yet");
    user.kill().expect("it is ours");
    user.wait().expect("it ends");
    cluster.wait_until_gone(&old);
    assert_eq!(cluster.node.running_containers(&uid(&next)), 1);
    let events = cluster.events("Pod", "again");
    assert!(!events.iter().any(|event| event.starts_with("WaitingForPreviousPod")), "{events:?}");
}

#[test]
fn pod_waits_for_one_of_its_name_that_cannot_be_killed_and_an_event_names_that_one() {
    let cluster = Cluster::start();
    let disk = SmallDisk::new(16, 100);
    cluster.kubectl.apply(&[writing_to(&disk, bound(shell_pod("stuck", FOREVER)))]);
    let old = cluster.running("stuck");
    let frozen = FrozenDisk::new(&disk);
    cluster.kubectl.ok(&["delete", "pod", "stuck", "--grace-period=0", "--force"]);
    cluster.kubectl.apply(&[bound(shell_pod("stuck", FOREVER))]);
    let message = format!(
        "WaitingForPreviousPod: pod does not start before every container of the previous pod of this name has ended (UID \"{}\")",
        uid(&old)
    );
    cluster.node.eventually("an event names the old pod", |_| {
        let events = cluster.events("Pod", "stuck");
        if events.contains(&message) { Ok(()) } else { Err(format!("{events:?}")) }
    });
    let next = cluster.kubectl.get("pod", "stuck").expect("the new pod");
    assert_ne!(uid(&next), uid(&old));
    assert_eq!(cluster.node.runtime_ids(&uid(&next)), Ok(Vec::new()));
    assert_eq!(cluster.node.running_containers(&uid(&old)), 1);
    drop(frozen);
    cluster.running("stuck");
    cluster.wait_until_gone(&old);
}

#[test]
fn pod_name_can_be_reused_as_soon_as_the_old_pod_is_deleted() {
    let cluster = Cluster::start();
    let mut last: Option<Value> = None;
    for _ in 0..3 {
        let pod = bound(shell_pod("again", FOREVER)).to_string();
        if last.is_some() {
            cluster.kubectl.run_with_input(&["replace", "--force", "-f", "-"], &pod);
        } else {
            cluster.kubectl.run_with_input(&["create", "-f", "-"], &pod);
        }
        let now = cluster.running("again");
        if let Some(last) = last.replace(now.clone()) {
            assert_ne!(uid(&now), uid(&last));
            cluster.wait_until_gone(&last);
        }
    }
}
