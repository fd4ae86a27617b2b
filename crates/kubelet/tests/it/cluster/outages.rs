//! The API server stops and comes back, with its history or without, with or without a restart of the kubelet: pods keep running.

use serde_json::Value;

use crate::kubelet_kills::share;
use crate::node::{FOREVER, Node, condition, container, restarts, shell_pod, signal, uid};

use super::{Cluster, bound};

fn id(pod: &Value) -> Value {
    container(pod, "main")["containerID"].clone()
}

/// A pod whose container fails as soon as `/shared/end` exists; it removes the file.
fn fragile(node: &Node) -> Value {
    let mut pod = bound(shell_pod("fragile", "until rm /shared/end 2>/dev/null; do sleep 0.1; done; exit 1"));
    share(&mut pod, &node.path("shared"));
    pod
}

/// The node's own view of the pod, without the API.
fn local(node: &Node, pod: &Value) -> Result<Value, String> {
    let same = node.pods().into_iter().find(|other| uid(other) == uid(pod));
    same.ok_or_else(|| "no such pod in /pods".to_owned())
}

#[test]
fn pods_keep_running_during_an_api_server_outage_and_status_catches_up() {
    for compacted in [false, true] {
        let mut cluster = Cluster::start();
        cluster.kubectl.apply(&[bound(shell_pod("steady", FOREVER)), fragile(&cluster.node)]);
        let (steady, fragile) = (cluster.running("steady"), cluster.running("fragile"));
        cluster.api.stop();
        std::fs::write(cluster.node.path("shared/end"), "").expect("the trigger to exit");
        cluster.node.eventually("the container is restarted", |node| {
            let pod = local(node, &fragile)?;
            let is_back = restarts(&pod, "main") == 1 && condition(&pod, "Ready") == "True";
            if is_back { Ok(()) } else { Err(pod["status"].to_string()) }
        });
        assert_eq!(id(&local(&cluster.node, &steady).expect("it runs")), id(&steady));
        cluster.api.start_again(if compacted { &["--compacted"] } else { &[] });
        let after = cluster.pod_when("fragile", "was restarted once", |pod| {
            restarts(pod, "main") == 1 && condition(pod, "Ready") == "True"
        });
        assert_eq!(uid(&after), uid(&fragile));
        cluster.kubectl.apply(&[bound(shell_pod("late", FOREVER))]);
        cluster.running("late");
        assert_eq!(id(&cluster.running("steady")), id(&steady), "it is unchanged");
        cluster.kubectl.ok(&["delete", "pod", "steady"]);
        cluster.wait_until_gone(&steady);
    }
}

#[test]
fn kubelet_started_during_an_api_server_outage_keeps_running_pods() {
    let mut cluster = Cluster::start();
    cluster.kubectl.apply(&[bound(shell_pod("steady", FOREVER)), bound(shell_pod("unwanted", FOREVER))]);
    let (steady, unwanted) = (cluster.running("steady"), cluster.running("unwanted"));
    cluster.node.kill_kubelet();
    // The node cannot know of this one yet.
    cluster.kubectl.ok(&["delete", "pod", "unwanted", "--force", "--grace-period=0"]);
    cluster.api.stop();
    cluster.node.start_kubelet();
    cluster.node.apply("static", &shell_pod("static", FOREVER));
    cluster.node.running("static");
    for pod in [&steady, &unwanted] {
        assert_eq!(cluster.node.running_containers(&uid(pod)), 1, "its deletion was not requested");
    }
    cluster.api.start_again(&[]);
    cluster.wait_until_gone(&unwanted);
    assert_eq!(id(&cluster.running("steady")), id(&steady));
    cluster.pod_when("static-node", "is listed", |pod| pod["status"]["phase"] == "Running");
}

#[test]
fn expired_watch_history_leads_to_a_new_list() {
    let mut cluster = Cluster::start();
    let names = ["kept", "removed", "replaced", "ended"];
    cluster.kubectl.apply(&names.map(|name| bound(shell_pod(name, FOREVER))));
    let [kept, removed, replaced, ended] = names.map(|name| cluster.running(name));
    signal(cluster.node.kubelet_pid(), "STOP");
    cluster.kubectl.ok(&["delete", "pod", "removed", "replaced", "--force", "--grace-period=0"]);
    cluster.kubectl.ok(&["delete", "pod", "ended", "--wait=false"]);
    cluster.kubectl.apply(&["replaced", "new"].map(|name| bound(shell_pod(name, FOREVER))));
    cluster.api.compact();
    // The connection breaks too: watch events are lost, and the next watch has expired.
    cluster.api.stop();
    cluster.api.start_again(&[]);
    signal(cluster.node.kubelet_pid(), "CONT");
    for pod in [&removed, &replaced, &ended] {
        cluster.wait_until_gone(pod);
    }
    cluster.running("new");
    assert_ne!(uid(&cluster.running("replaced")), uid(&replaced));
    assert_eq!(id(&cluster.running("kept")), id(&kept));
}
