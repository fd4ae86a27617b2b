//! The order in which hooks, image updates and kills take effect, on a real runtime and as the API shows it.

use std::path::Path;
use std::time::{Duration, SystemTime};

use fixtures::stretched;
use serde_json::{Value, json};

use super::{Cluster, bound};
use crate::kubelet_kills::share;
use crate::node::{FOREVER, IMAGE, Node, container, once_pod, restarts, shell, shell_pod};

/// When the file was last written.
fn modified(path: &Path) -> SystemTime {
    let meta = std::fs::metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    meta.modified().expect("a time of change")
}

#[test]
fn post_start_hook_delays_the_start_of_the_next_container() {
    let cluster = Cluster::start();
    let shared = cluster.node.path("shared");
    let mut pod = bound(shell_pod("hooked", FOREVER));
    let second = format!("test -e /shared/hook; echo $? > /shared/second; {FOREVER}");
    pod["spec"]["containers"] = json!([shell("first", FOREVER), shell("second", &second)]);
    share(&mut pod, &shared);
    pod["spec"]["containers"][0]["lifecycle"] =
        json!({"postStart": {"exec": {"command": ["/bin/sh", "-c", "sleep 2; echo > /shared/hook"]}}});
    cluster.kubectl.apply(&[pod]);
    let pod = cluster.running("hooked");
    cluster.node.eventually("the second container has started", |node| {
        let second = std::fs::read_to_string(node.path("shared/second")).map_err(|e| e.to_string())?;
        if second == "0\n" { Ok(()) } else { Err(format!("test -e /shared/hook: {second:?}")) }
    });
    let started = |name: &str| -> jiff::Timestamp {
        let at = container(&pod, name)["state"]["running"]["startedAt"].clone();
        at.as_str().and_then(|text| text.parse().ok()).expect("a time of start")
    };
    let hook = jiff::Timestamp::try_from(modified(&shared.join("hook"))).expect("a time");
    // Statuses have whole seconds.
    assert!(started("second").as_second() >= hook.as_second(), "{} before {hook}", started("second"));
    assert!(started("second").as_second() >= started("first").as_second() + 2, "{pod}");
}

/// A node whose API requests are recorded.
fn audited() -> Cluster {
    let mut cluster = Cluster::audited(Node::on_containerd(json!({})), &[]);
    cluster.node.start_kubelet();
    cluster
}

/// The container states that the node sent for the pod, in order, including those that the API rejected.
fn sent_states(cluster: &Cluster, pod: &str, name: &str) -> Vec<Value> {
    let status = format!("/pods/{pod}/status");
    let patches = cluster
        .audit_log()
        .into_iter()
        .filter(|call| call["uri"].as_str().is_some_and(|uri| uri.contains(&status)));
    patches.map(|call| container(&call["request"], name)["state"].clone()).filter(Value::is_object).collect()
}

#[test]
fn image_update_restarts_the_container_under_policies_on_failure_and_never() {
    let cluster = audited();
    cluster.node.ctr(&["images", "tag", IMAGE, "localhost/busybox:other"]);
    let policies = [("on-failure", "OnFailure"), ("never", "Never")];
    let before = policies.map(|(name, policy)| {
        let mut pod = bound(shell_pod(name, FOREVER));
        pod["spec"]["restartPolicy"] = policy.into();
        pod["spec"]["containers"] = json!([shell("same", FOREVER), shell("changed", FOREVER)]);
        cluster.kubectl.apply(&[pod]);
        cluster.running(name)
    });
    for (name, _) in policies {
        let patch =
            json!({"spec": {"containers": [{"name": "changed", "image": "localhost/busybox:other"}]}});
        cluster.kubectl.ok(&["patch", "pod", name, "-p", &patch.to_string()]);
    }
    for ((name, _), before) in policies.iter().zip(&before) {
        // Every container of an image has the same image name in its status, so that the name shows nothing.
        let old = container(before, "changed")["containerID"].clone();
        let after = cluster.pod_when(name, "runs a new container", |pod| {
            let changed = container(pod, "changed");
            changed["containerID"] != old && changed["state"]["running"].is_object()
        });
        assert_eq!(restarts(&after, "changed"), 1, "{after}");
        let last = &container(&after, "changed")["lastState"]["terminated"];
        assert_eq!((&last["reason"], &last["exitCode"]), (&json!("Completed"), &json!(0)), "{after}");
        let same = ["containerID", "restartCount", "state"];
        for field in same {
            assert_eq!(container(&after, "same")[field], container(before, "same")[field], "{name}: {field}");
        }
        let sent = sent_states(&cluster, name, "changed");
        assert!(sent.last().is_some_and(|state| state["running"].is_object()), "{sent:?}");
        assert!(sent.iter().all(|state| state["terminated"].is_null()), "{sent:?}");
        let events = cluster.events("Pod", name);
        let message = "Killing: Container changed definition changed, will be restarted";
        assert!(events.contains(&message.to_owned()), "{events:?}");
    }
}

/// The minimum time that a container gets to exit after its hook used up the grace period.
const MIN_STOP: Duration = Duration::from_secs(2);

/// A pod of three sidecars whose preStop hooks never end; it ends when its regular container exits. Each hook records when it
/// began and when it last ran.
fn pod_with_endless_hooks(grace: Duration, shared: &Path) -> Value {
    let mut pod = bound(once_pod("endless", "sleep 2"));
    pod["spec"]["terminationGracePeriodSeconds"] = grace.as_secs().into();
    share(&mut pod, shared);
    let sidecars = (1..=3).map(|n| {
        let name = format!("sidecar-{n}");
        // Longer than the rest after the hook.
        let mut sidecar = shell(&name, "trap 'sleep 5; exit 0' TERM; while :; do sleep 60 & wait $!; done");
        sidecar["restartPolicy"] = "Always".into();
        sidecar["volumeMounts"] = json!([{"name": "shared", "mountPath": "/shared"}]);
        // Without a request other work on the machine keeps the hook from running for seconds.
        sidecar["resources"] = json!({"requests": {"cpu": "100m"}});
        let hook = format!("echo > /shared/began-{n}; while :; do echo > /shared/last-{n}; sleep 0.2; done");
        sidecar["lifecycle"] = json!({"preStop": {"exec": {"command": ["/bin/sh", "-c", hook]}}});
        sidecar
    });
    pod["spec"]["initContainers"] = sidecars.collect();
    pod
}

/// The conformance test "should terminate sidecars simultaneously if prestop doesn't exit", with a shorter grace period.
#[test]
fn pre_stop_hooks_that_never_end_run_until_their_sidecars_are_killed_together() {
    let grace = Duration::from_secs(5);
    let cluster = Cluster::start();
    let shared = cluster.node.path("shared");
    cluster.kubectl.apply(&[pod_with_endless_hooks(grace, &shared)]);
    let pod = cluster.pod_when("endless", "has ended", |pod| pod["status"]["phase"] == "Succeeded");
    let mut ends = Vec::new();
    for n in 1..=3 {
        let end = &container(&pod, &format!("sidecar-{n}"))["state"]["terminated"];
        assert_eq!((&end["exitCode"], &end["reason"]), (&json!(137), &json!("Error")), "{pod}");
        let last = modified(&shared.join(format!("last-{n}")));
        let began = modified(&shared.join(format!("began-{n}")));
        let lived = last.duration_since(began).expect("it began before it ended");
        let tolerance = Duration::from_millis(1500);
        assert!(lived + tolerance >= grace + MIN_STOP, "hook {n} ended after {lived:?}");
        assert!(lived <= grace + MIN_STOP + stretched(tolerance), "hook {n} ended after {lived:?}");
        ends.push(last);
    }
    ends.sort();
    let apart = ends[2].duration_since(ends[0]).expect("sorted");
    assert!(apart <= stretched(Duration::from_secs(1)), "the last two hooks ended {apart:?} apart");
    cluster.node.eventually("each hook that timed out has an event", |_| {
        let events = cluster.events("Pod", "endless");
        let failed = events.iter().filter(|event| *event == "FailedPreStopHook: PreStopHook failed");
        if failed.count() == 3 { Ok(()) } else { Err(format!("{events:?}")) }
    });
}
