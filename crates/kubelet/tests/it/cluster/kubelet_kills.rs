//! SIGKILL for the kubelet of a cluster at any moment: the next one reaches the right state, and no container runs twice.
//! Containers record each of their runs.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::kubelet_kills::{RECORD_ATTEMPT, all_aborted_starts, check_attempts, share};
use crate::lifecycle::order;
use crate::node::{FOREVER, container, once_pod, restarts, shell_pod, uid};

use super::deletion::graceful_pod;
use super::{Cluster, bound};

/// From within the first calls to long after the last, in milliseconds.
const MOMENTS: [u64; 5] = [20, 80, 200, 400, 900];

fn runs(shared: &Path) -> usize {
    order(shared).iter().filter(|line| *line == "run").count()
}

#[test]
fn api_pod_starts_once_whenever_the_kubelet_is_killed() {
    let mut cluster = Cluster::start();
    for millis in MOMENTS {
        let aborted_before = all_aborted_starts(&cluster.node);
        let shared = cluster.node.path(&format!("shared-{millis}"));
        let mut pod = bound(shell_pod("once", &format!("echo run >> /shared/order; {FOREVER}")));
        share(&mut pod, &shared);
        cluster.kubectl.apply(&[pod]);
        cluster.node.kill_after(Duration::from_millis(millis));
        let pod = cluster.running("once");
        cluster.node.eventually("it has logged its start", |_| {
            if runs(&shared) > 0 { Ok(()) } else { Err("not yet".to_owned()) }
        });
        let aborted_starts = all_aborted_starts(&cluster.node) - aborted_before;
        let is_expected = (1..=1 + aborted_starts).contains(&runs(&shared));
        assert!(is_expected, "after {millis} ms: {:?}, {aborted_starts} starts were aborted", order(&shared));
        cluster.kubectl.ok(&["delete", "pod", "once", "--force", "--grace-period=0"]);
        cluster.node.kill_after(Duration::from_millis(millis));
        cluster.wait_until_gone(&pod);
    }
}

#[test]
fn deleted_api_pod_terminates_once_whenever_the_kubelet_is_killed() {
    let mut cluster = Cluster::start();
    for moment in ["Stopping container main", "hook began", "term came", "all ended"] {
        let shared = cluster.node.path("shared").join(moment);
        let mut pod = graceful_pod(&cluster.node);
        share(&mut pod, &shared);
        cluster.kubectl.apply(&[pod]);
        let pod = cluster.running("polite");
        let seen_before = cluster.node.kubelet_log().matches(moment).count();
        cluster.kubectl.ok(&["delete", "pod", "polite", "--wait=false"]);
        cluster.node.eventually("the log has the text", |node| {
            let is_written = order(&shared).iter().any(|line| line == moment);
            let is_logged = node.kubelet_log().matches(moment).count() > seen_before;
            if is_written || is_logged { Ok(()) } else { Err(moment.to_owned()) }
        });
        cluster.node.restart_kubelet();
        cluster.wait_until_gone(&pod);
        let order = order(&shared);
        let terms = order.iter().filter(|line| *line == "all ended").count();
        assert_eq!((order.last().map(String::as_str), terms), (Some("all ended"), 1), "{moment}: {order:?}");
    }
}

#[test]
fn api_pod_completes_once_whenever_the_kubelet_is_killed() {
    let mut cluster = Cluster::start();
    for millis in MOMENTS {
        let name = format!("job-{millis}");
        let shared = cluster.node.path(&name);
        let aborted_before = all_aborted_starts(&cluster.node);
        let mut pod =
            bound(once_pod(&name, "echo run >> /shared/order; sleep 0.3; echo completed >> /shared/order"));
        // A runtime aborts a start whose client is gone, and such a container has failed without having run.
        pod["spec"]["restartPolicy"] = "OnFailure".into();
        share(&mut pod, &shared);
        cluster.kubectl.apply(&[pod]);
        cluster.node.kill_after(Duration::from_millis(millis * 2));
        let pod = cluster.pod_when(&name, "has succeeded", |pod| pod["status"]["phase"] == "Succeeded");
        let aborted_starts = all_aborted_starts(&cluster.node) - aborted_before;
        let wrote = order(&shared);
        let expected = ["run", "completed"];
        let is_expected =
            (2..=2 + aborted_starts).contains(&wrote.len()) && wrote.ends_with(&expected.map(str::to_owned));
        assert!(is_expected, "after {millis} ms: {wrote:?}, {aborted_starts} starts were aborted");
        assert_eq!(
            container(&pod, "main")["state"]["terminated"]["reason"],
            "Completed",
            "after {millis} ms"
        );
    }
}

#[test]
fn crash_loop_restart_count_in_the_api_grows_whenever_the_kubelet_is_killed() {
    let mut cluster = Cluster::start_with(json!({
        "featureGates": {"KubeletCrashLoopBackOffMax": true},
        "crashLoopBackOff": {"maxContainerRestartPeriod": "1s"},
    }));
    let shared = cluster.node.path("shared");
    let mut pod = bound(shell_pod("crasher", RECORD_ATTEMPT));
    share(&mut pod, &shared);
    cluster.kubectl.apply(&[pod]);
    let mut last = -1;
    for millis in MOMENTS {
        cluster.node.kill_after(Duration::from_millis(millis));
        let pod = cluster.pod_when("crasher", "keeps crashing", |pod| restarts(pod, "main") > last);
        last = restarts(&pod, "main");
    }
    check_attempts(&cluster.node, &shared, last);
    let pod = cluster.kubectl.get("pod", "crasher").expect("it exists");
    cluster.kubectl.ok(&["delete", "pod", "crasher"]);
    cluster.wait_until_gone(&pod);
}

#[test]
fn mirror_pod_is_created_recreated_and_removed_whenever_the_kubelet_is_killed() {
    let mut cluster = Cluster::start();
    for millis in MOMENTS {
        cluster.node.apply("web", &shell_pod("web", FOREVER));
        cluster.node.kill_after(Duration::from_millis(millis));
        let pod = cluster.node.running("web");
        let mirror = cluster.running("web-node");
        cluster.kubectl.ok(&["delete", "pod", "web-node", "--force", "--grace-period=0"]);
        cluster.node.kill_after(Duration::from_millis(millis));
        let again = cluster.pod_when("web-node", "has come back", |again| {
            uid(again) != uid(&mirror) && again["status"]["phase"] == "Running"
        });
        assert_eq!(id(&again), id(&pod), "after {millis} ms the same container runs");
        cluster.node.delete("web");
        cluster.node.kill_after(Duration::from_millis(millis));
        cluster.wait_until_gone(&again);
        cluster.node.wait_until_gone("web", &uid(&pod));
    }
}

#[test]
fn api_server_outage_keeps_pods_even_if_the_kubelet_is_killed() {
    let mut cluster = Cluster::start();
    cluster.kubectl.apply(&[bound(shell_pod("steady", FOREVER))]);
    let steady = cluster.running("steady");
    for millis in MOMENTS {
        cluster.api.stop();
        cluster.node.kill_after(Duration::from_millis(millis));
        cluster.api.start_again(&["--compacted"]);
        cluster.node.kill_after(Duration::from_millis(millis));
        let name = format!("probe-{millis}");
        cluster.kubectl.apply(&[bound(shell_pod(&name, FOREVER))]);
        cluster.running(&name);
        let now = cluster.running("steady");
        assert_eq!((uid(&now), id(&now)), (uid(&steady), id(&steady)), "after {millis} ms");
    }
}

fn id(pod: &Value) -> Value {
    container(pod, "main")["containerID"].clone()
}
