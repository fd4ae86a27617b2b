//! An upgrade of this kubelet on a node with many pods: it is stopped, or killed, and started again, and clients see nothing of it.

use std::collections::BTreeMap;
use std::time::Duration;

use fixtures::{reduced, stretched};
use serde_json::{Value, json};

use crate::node::{FOREVER, condition, shell, shell_pod, signal};

use super::watch::Watch;
use super::{Cluster, bound};

/// Together a hundred pods, of which those with probes have three containers.
const PROBED_PODS: usize = 28;
const STATIC_PODS: usize = 4;
const PLAIN_PODS: usize = 68;
/// Of the probes. On a slow machine, more of them would leave no time to start the pods.
const PERIOD: Duration = Duration::from_secs(3);
/// Long enough for housekeeping and for probes to run.
const SETTLED: Duration = Duration::from_secs(8);

/// A pod with an init container, a sidecar and probes.
fn probed(name: &str) -> Value {
    let mut pod = shell_pod(name, FOREVER);
    let probe = json!({"exec": {"command": ["/bin/true"]}, "periodSeconds": stretched(PERIOD).as_secs()});
    let main = &mut pod["spec"]["containers"][0];
    main["startupProbe"] = probe.clone();
    main["readinessProbe"] = probe.clone();
    main["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    pod["spec"]["volumes"] = json!([{"name": "data", "emptyDir": {"medium": "Memory"}}]);
    let mut side = shell("side", FOREVER);
    side["restartPolicy"] = "Always".into();
    side["readinessProbe"] = probe;
    pod["spec"]["initContainers"] = json!([shell("init", "true"), side]);
    pod
}

/// The ids and restart counts of the containers of each pod; `Err`: a pod is not ready.
fn containers(cluster: &Cluster) -> Result<BTreeMap<String, Vec<String>>, String> {
    let list = cluster.kubectl.ok(&["get", "pods", "--output", "json"]);
    let list: Value = serde_json::from_str(&list).expect("a list of pods");
    let pods = list["items"].as_array().expect("a list");
    let mut found = BTreeMap::new();
    for pod in pods {
        if condition(pod, "Ready") != "True" {
            return Err(pod["metadata"]["name"].to_string());
        }
        let statuses = ["initContainerStatuses", "containerStatuses"].map(|list| &pod["status"][list]);
        let statuses = statuses.into_iter().filter_map(Value::as_array).flatten();
        let of_pod = statuses.map(|status| format!("{} {}", status["containerID"], status["restartCount"]));
        found.insert(pod["metadata"]["name"].as_str().expect("a name").to_owned(), of_pod.collect());
    }
    Ok(found)
}

/// The status of a pod without the resources of its cgroup, which it has from the first pass on that begins after the API has shown it as
/// running. That may be one of the new kubelet.
fn without_resources(pod: &Value) -> Value {
    let mut status = pod["status"].clone();
    status.as_object_mut().expect("a status").remove("resources");
    status
}

#[test]
fn upgrade_under_many_pods_restarts_no_container_and_no_pod_loses_readiness() {
    let mut cluster = Cluster::start();
    let names =
        |kind: &str, count| (0..reduced(count)).map(|n| format!("{kind}-{n}")).collect::<Vec<String>>();
    let of_manifests = names("static", STATIC_PODS);
    let with_probes = names("pod", PROBED_PODS);
    let plain = names("plain", PLAIN_PODS);
    for name in &of_manifests {
        cluster.node.apply(name, &probed(name));
    }
    let mut from_api: Vec<Value> = with_probes.iter().map(|name| bound(probed(name))).collect();
    from_api.extend(plain.iter().map(|name| bound(shell_pod(name, FOREVER))));
    cluster.kubectl.apply(&from_api);
    // Each of them has the time that tests wait, because a slow machine needs longer than that for all of them.
    for name in with_probes.iter().chain(&plain) {
        cluster.running(name);
    }
    let all = of_manifests.len() + with_probes.len() + plain.len();
    let before = cluster.node.eventually("all pods are ready", |_| {
        let found = containers(&cluster)?;
        if found.len() == all { Ok(found) } else { Err(format!("{}", found.len())) }
    });
    let seen = cluster.kubectl.pods().expect("the pods");
    let watch = Watch::pods(&cluster.kubectl, cluster.node.path("watch"));
    for is_killed in [false, true] {
        if is_killed {
            cluster.node.kill_kubelet();
        } else {
            signal(cluster.node.kubelet_pid(), "TERM");
            assert!(cluster.node.wait_for_exit().success());
        }
        cluster.node.start_kubelet();
        cluster.node.eventually("the new kubelet has done its work for some time", |node| {
            let age = node.kubelet_age();
            if age > stretched(SETTLED) { Ok(()) } else { Err(format!("{age:?}")) }
        });
        assert_eq!(containers(&cluster), Ok(before.clone()), "is_killed: {is_killed}");
    }
    let is_change = |event: &Value| {
        let before = seen.iter().find(|pod| pod["metadata"]["name"] == event["object"]["metadata"]["name"]);
        before.is_none_or(|before| without_resources(before) != without_resources(&event["object"]))
    };
    let events = watch.events();
    let changes: Vec<String> = events
        .iter()
        .filter(|event| is_change(event))
        .map(|event| event["object"]["status"].to_string())
        .collect();
    assert_eq!(changes, Vec::<String>::new(), "clients have seen no change of any pod");
}
