//! Objects that the API stores and that a client with stricter types cannot decode. Any user with rights in one namespace can make
//! them (docs/SECURITY.md): they cost only what depends on them.

use serde_json::{Value, json};

use crate::node::{FOREVER, Node, condition, container, shell_pod, uid};

use super::{Cluster, bound};

const PODS: &str = "/api/v1/namespaces/default/pods";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
/// The API stores it as `10000-01-01T19:59:59Z`.
const FIVE_DIGIT_YEAR: &str = "9999-12-31T23:59:59-20:00";

/// `managedFields` with this time and content.
fn managed_fields(time: &str, fields: &str) -> String {
    format!(
        r#"[{{"manager": "x", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "time": "{time}", "fieldsV1": {fields}}}]"#
    )
}

fn deep() -> String {
    let fields = format!("{}{{}}{}", r#"{"f:a":"#.repeat(200), "}".repeat(200));
    managed_fields("2026-01-01T00:00:00Z", &fields)
}

fn far_future() -> String {
    managed_fields(FIVE_DIGIT_YEAR, r#"{"f:metadata": {}}"#)
}

/// The object as JSON, with these managed fields, which are text because they are nested more deeply than `Value` reads.
fn with_managed_fields(object: &Value, fields: &str) -> String {
    let mut object = object.clone();
    object["metadata"]["managedFields"] = "FIELDS".into();
    object.to_string().replace("\"FIELDS\"", fields)
}

fn forever(name: &str) -> Value {
    bound(shell_pod(name, FOREVER))
}

fn id(pod: &Value) -> Value {
    container(pod, "main")["containerID"].clone()
}

/// A user who may write the status of pods sets a time that only Go can decode.
pub(crate) fn poison_status(cluster: &Cluster, pod: &str) {
    cluster.kubectl.change_status(&format!("{PODS}/{pod}"), |pod| {
        pod["status"]["conditions"].as_array_mut().expect("conditions").push(
            json!({"type": "example.com/poison", "status": "True", "lastTransitionTime": FIVE_DIGIT_YEAR}),
        );
    });
}

/// How many objects of the kind could not be decoded, according to `/metrics`.
fn malformed(node: &Node, resource: &str) -> Result<u64, String> {
    let metrics = node.get("/metrics")?;
    let name = format!("kubelet_rs_api_objects_malformed_total{{resource=\"{resource}\"}} ");
    let line = metrics.lines().find_map(|line| line.strip_prefix(&name));
    line.unwrap_or("0").parse().map_err(|_| format!("{line:?} is no number"))
}

#[track_caller]
fn wait_until_counted(cluster: &Cluster, resource: &str) {
    cluster.node.eventually(&format!("/metrics counts a malformed object of {resource}"), |node| {
        if malformed(node, resource)? > 0 { Ok(()) } else { Err("none".to_owned()) }
    });
}

/// Other pods start, and deleted ones go.
#[track_caller]
fn node_works(cluster: &Cluster, names: (&str, &str)) {
    let (goes, starts) = names;
    let deleted = cluster.running(goes);
    cluster.kubectl.apply(&[forever(starts)]);
    cluster.running(starts);
    cluster.kubectl.delete(goes);
    cluster.wait_until_gone(&deleted);
}

#[test]
fn pod_with_undecodable_managed_fields_runs_like_any_other() {
    let mut cluster = Cluster::start();
    cluster.kubectl.apply(&[forever("first")]);
    cluster.kubectl.post(PODS, &with_managed_fields(&forever("far-future"), &far_future()));
    cluster.kubectl.post(PODS, &with_managed_fields(&forever("deep"), &deep()));
    cluster.running("far-future");
    node_works(&cluster, ("first", "second"));
    cluster.node.restart_kubelet();
    node_works(&cluster, ("second", "third"));
    cluster.running("far-future");
    for name in ["far-future", "deep"] {
        cluster.kubectl.delete(name);
    }
    node_works(&cluster, ("third", "fourth"));
    cluster.node.eventually("only the last pod is left", |node| match node.pods().len() {
        1 => Ok(()),
        pods => Err(format!("{pods} pods")),
    });
}

#[test]
fn undecodable_pod_costs_only_itself() {
    let mut cluster = Cluster::start();
    cluster.kubectl.apply(&["first", "poisoned", "steady"].map(forever));
    let [_, poisoned, steady] = ["first", "poisoned", "steady"].map(|name| cluster.running(name));
    poison_status(&cluster, "poisoned");
    wait_until_counted(&cluster, "pods");
    node_works(&cluster, ("first", "second"));
    // It was readable before: it is not taken for deleted.
    assert_eq!(cluster.node.running_containers(&uid(&poisoned)), 1);
    cluster.node.restart_kubelet();
    wait_until_counted(&cluster, "pods");
    node_works(&cluster, ("second", "third"));
    assert_eq!(id(&cluster.running("steady")), id(&steady));
    assert_eq!(cluster.node.running_containers(&uid(&poisoned)), 1, "it is no orphan either");
    let node = cluster.kubectl.get("node", "node").expect("the node");
    assert_eq!(condition(&node, "Ready"), "True");

    cluster.kubectl.ok(&["delete", "pod", "poisoned", "--force", "--grace-period=0"]);
    cluster.wait_until_gone(&poisoned);
    node_works(&cluster, ("third", "fourth"));
    assert_eq!(id(&cluster.running("steady")), id(&steady));
}

fn service(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}})
}

#[test]
fn undecodable_service_does_not_keep_pods_from_starting_after_a_restart() {
    let mut cluster = Cluster::start();
    cluster.kubectl.post(SERVICES, &service("good").to_string());
    cluster.kubectl.post(SERVICES, &with_managed_fields(&service("far-future"), &far_future()));
    cluster.kubectl.post(SERVICES, &with_managed_fields(&service("deep"), &deep()));
    cluster.kubectl.post(SERVICES, &service("odd-status").to_string());
    cluster.kubectl.change_status(&format!("{SERVICES}/odd-status"), |service| {
        service["status"]["conditions"] =
            json!([{"type": "x", "status": "True", "reason": "X", "message": "", "lastTransitionTime": FIVE_DIGIT_YEAR}]);
    });
    cluster.node.restart_kubelet();
    cluster.kubectl.apply(&[bound(shell_pod("links", "env | sort; exec sleep 3600"))]);
    let pod = cluster.running("links");
    cluster.node.eventually("the pod has the variables of the Services", |node| {
        let variables = node.logs(&pod, "main");
        // What is unreadable in these is nothing that a pod needs.
        let services = ["GOOD", "FAR_FUTURE", "DEEP", "ODD_STATUS"];
        let missing = services.iter().find(|name| !variables.contains(&format!("{name}_SERVICE_PORT=80")));
        missing.map_or(Ok(()), |missing| Err(format!("no {missing} in {variables}")))
    });
}

/// A pod that mounts the volume `source` at `/v`.
fn mounting(name: &str, source: Value) -> Value {
    let mut pod = forever(name);
    let mut volume = source;
    volume["name"] = "v".into();
    pod["spec"]["volumes"] = json!([volume]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    pod
}

#[test]
fn undecodable_config_map_or_secret_costs_only_the_pods_that_refer_to_it() {
    let cluster = Cluster::start();
    let object = |name: &str| json!({"metadata": {"name": name}, "data": {}});
    for path in [CONFIG_MAPS, SECRETS] {
        cluster.kubectl.post(path, &object("good").to_string());
        cluster.kubectl.post(path, &with_managed_fields(&object("far-future"), &far_future()));
        cluster.kubectl.post(path, &with_managed_fields(&object("deep"), &deep()));
        // The real server has no way to store this today; another version of the API may have.
        cluster.kubectl.post(path, &object("bad").to_string());
        let mut bad = object("bad");
        bad["data"]["key"] = json!(["a list"]);
        cluster.kubectl.put(&format!("{path}/bad"), &bad.to_string());
    }
    let pods: Vec<Value> = ["good", "far-future", "deep", "bad"]
        .iter()
        .flat_map(|name| {
            [
                mounting(&format!("{name}-map"), json!({"configMap": {"name": name}})),
                mounting(&format!("{name}-secret"), json!({"secret": {"secretName": name}})),
            ]
        })
        .collect();
    cluster.kubectl.apply(&pods);
    for name in ["good", "far-future", "deep"] {
        cluster.running(&format!("{name}-map"));
        cluster.running(&format!("{name}-secret"));
    }
    for resource in ["configmaps", "secrets"] {
        wait_until_counted(&cluster, resource);
    }
    for (pod, object) in [("bad-map", "bad"), ("bad-secret", "bad")] {
        cluster.node.eventually("an event of the pod names the object", |_| {
            let events = cluster.events("Pod", pod);
            let named = events.iter().any(|event| event.starts_with("FailedMount") && event.contains(object));
            if named { Ok(()) } else { Err(format!("{events:?}")) }
        });
    }
    // Repaired, they start.
    for path in [CONFIG_MAPS, SECRETS] {
        cluster.kubectl.put(&format!("{path}/bad"), &object("bad").to_string());
    }
    cluster.running("bad-map");
    cluster.running("bad-secret");
}
