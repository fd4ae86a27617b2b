//! Node and Lease, requests to the runtime, and responses of the kubelet's endpoints.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::exposition::exposition_families;
use super::pods::differences;
use super::recording::Recording;
use super::{Difference, normal};

/// Fields of Node and Lease whose values depend on the machine.
const OF_THE_MACHINE: [&str; 8] = [
    "status.capacity",
    "status.allocatable",
    "status.images",
    "status.nodeInfo",
    "status.addresses",
    "status.daemonEndpoints",
    "metadata.resourceVersion",
    "metadata.managedFields",
];

pub(super) fn compare(theirs: &Recording, ours: &Recording, found: &mut Vec<Difference>) {
    objects("node", &theirs.node, &ours.node, found);
    objects("lease", &theirs.lease, &ours.lease, found);
    runtime(theirs, ours, found);
    objects("configz", &without_paths(&theirs.configz), &without_paths(&ours.configz), found);
    summary(theirs, ours, found);
    families(
        "metrics-resource",
        &resource_families(&theirs.metrics_resource),
        &resource_families(&ours.metrics_resource),
        found,
    );
    families("metrics", &theirs.families, &without_generic(&ours.families), found);
}

/// Replaces paths of files and sockets, which differ in every run.
fn without_paths(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            fields.iter().map(|(name, field)| (name.clone(), without_paths(field))).collect()
        }
        Value::String(text) if text.starts_with('/') || text.starts_with("unix://") => "<path>".into(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => value.clone(),
    }
}

fn objects(subject: &str, theirs: &Value, ours: &Value, found: &mut Vec<Difference>) {
    if are_recorded(subject, !theirs.is_null(), !ours.is_null(), found) {
        differences(subject, &object_leaves(theirs), &object_leaves(ours), found);
    }
}

/// Whether both have the part. If only one lacks it, that is a difference; a part that neither has is not compared.
fn are_recorded(subject: &str, theirs: bool, ours: bool, found: &mut Vec<Difference>) -> bool {
    let shown = |is_there| if is_there { "recorded" } else { "missing" };
    if theirs != ours {
        found.push(Difference::new(subject, "(recording)", shown(theirs), shown(ours)));
    }
    theirs && ours
}

fn object_leaves(object: &Value) -> BTreeMap<String, String> {
    let mut object = normal::value(object);
    if let Some(features) = object["status"]["declaredFeatures"].as_array() {
        // By name: one more must not move the others.
        let by_name = features.iter().filter_map(|feature| Some((feature.as_str()?.to_owned(), true.into())));
        object["status"]["declaredFeatures"] = Value::Object(by_name.collect());
    }
    let mut leaves = Vec::new();
    normal::leaves("", &object, &mut leaves);
    let shown = leaves.into_iter().filter_map(|(path, value)| {
        let field = OF_THE_MACHINE.iter().find(|field| path.starts_with(*field));
        match field {
            // The number of images is not compared either.
            Some(&("status.images" | "metadata.managedFields" | "metadata.resourceVersion")) => None,
            Some(_) => Some((path, "<any>".to_owned())),
            None => Some((path, value)),
        }
    });
    shown.collect()
}

/// The configuration of each sandbox and of one instance of each container.
fn runtime(theirs: &Recording, ours: &Recording, found: &mut Vec<Difference>) {
    let empty = serde_json::Map::new();
    let pods = |recording: &Recording| recording.cri.as_object().cloned().unwrap_or_default();
    let (go_pods, own_pods) = (pods(theirs), pods(ours));
    if !are_recorded("cri", !go_pods.is_empty(), !own_pods.is_empty(), found) {
        return;
    }
    for (pod, go) in &go_pods {
        let go = go.as_object().unwrap_or(&empty);
        let own = own_pods.get(pod).and_then(Value::as_object).unwrap_or(&empty);
        let containers: BTreeSet<&String> = go.keys().chain(own.keys()).collect();
        for container in containers {
            let has_restarted = [theirs, ours].iter().all(|of| restarts(of, pod, container));
            let leaves = |of: &serde_json::Map<String, Value>| {
                of.get(container)
                    .map(|request| request_leaves(request, has_restarted))
                    .unwrap_or_else(|| BTreeMap::from([("(request)".to_owned(), "(none)".to_owned())]))
            };
            differences(&format!("cri {pod}/{container}"), &leaves(go), &leaves(own), found);
        }
    }
}

/// Whether the container ran more than once.
fn restarts(recording: &Recording, pod: &str, container: &str) -> bool {
    let status = recording.pods.get(pod).map(|pod| &pod["final"]["status"]);
    let lists = ["initContainerStatuses", "containerStatuses"].into_iter();
    let statuses = lists.filter_map(|list| status?[list].as_array()).flatten();
    statuses
        .filter(|status| status["name"] == container)
        .any(|status| status["restartCount"].as_u64() > Some(0))
}

/// Of a container that ran more than once, which run was recorded depends on what the runtime still had at that moment: the
/// number of the run is left out, if all three places have the same one.
fn without_attempt(request: &Value) -> Value {
    const COUNT: &str = "io.kubernetes.container.restartCount";
    let mut request = request.clone();
    let name = request["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let attempt = request["metadata"]["attempt"].as_u64().unwrap_or_default();
    if request["annotations"][COUNT].as_str() == Some(&attempt.to_string())
        && request["log_path"] == format!("{name}/{attempt}.log")
    {
        request["annotations"][COUNT] = "<attempt>".into();
        request["metadata"]["attempt"] = "<attempt>".into();
        request["log_path"] = format!("{name}/<attempt>.log").into();
    }
    request
}

fn request_leaves(request: &Value, has_restarted: bool) -> BTreeMap<String, String> {
    let request = if has_restarted { without_attempt(request) } else { request.clone() };
    let mut leaves = Vec::new();
    normal::leaves("", &normal::value(&request), &mut leaves);
    let is_of_the_run = |path: &str| {
        let last = path.rsplit(['.', '[']).next().unwrap_or_default();
        path.starts_with("log_directory")
            || path.ends_with("host_path")
            || path.ends_with("cgroup_parent")
            || path.contains("image.image")
            || path.contains("io.kubernetes.container.hash")
            || last.starts_with("KUBERNETES_")
            || path.starts_with("envs[KUBERNETES_")
    };
    leaves
        .into_iter()
        .map(|(path, value)| {
            let value = if is_of_the_run(&path) { "<any>".to_owned() } else { value };
            (path, value)
        })
        .collect()
}

/// Which fields the statistics have, for the node, system containers, pods and containers: not their values.
fn summary(theirs: &Recording, ours: &Recording, found: &mut Vec<Difference>) {
    if !are_recorded("stats-summary", !theirs.summary.is_null(), !ours.summary.is_null(), found) {
        return;
    }
    let fields = |recording: &Recording| {
        let mut found = BTreeMap::new();
        summary_fields("", &recording.summary, &mut found);
        found
    };
    let (theirs, mut ours) = (fields(theirs), fields(ours));
    // The Go kubelet measures a pod's volumes within a minute after it has seen the pod, and shows none before.
    if !theirs.keys().any(|field| field.starts_with(VOLUMES)) {
        ours.retain(|field, _| !field.starts_with(VOLUMES));
    }
    differences("stats-summary", &theirs, &ours, found);
}

const VOLUMES: &str = ".pods[].volume[]";

/// Paths and types; all pods, containers, volumes and interfaces count as one.
fn summary_fields(at: &str, value: &Value, found: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                summary_fields(&format!("{at}.{name}"), field, found);
            }
        }
        Value::Array(items) => {
            for item in items {
                let name = if at.ends_with(".systemContainers") { item["name"].as_str() } else { None };
                summary_fields(&format!("{at}[{}]", name.unwrap_or_default()), item, found);
            }
        }
        Value::Null => drop(found.insert(at.to_owned(), "null".to_owned())),
        Value::Bool(_) => drop(found.insert(at.to_owned(), "boolean".to_owned())),
        Value::Number(_) => drop(found.insert(at.to_owned(), "number".to_owned())),
        Value::String(_) => drop(found.insert(at.to_owned(), "text".to_owned())),
    }
}

fn families(
    subject: &str,
    theirs: &BTreeMap<String, String>,
    ours: &BTreeMap<String, String>,
    found: &mut Vec<Difference>,
) {
    if are_recorded(subject, !theirs.is_empty(), !ours.is_empty(), found) {
        differences(subject, theirs, ours, found);
    }
}

/// Families of the Go runtime and of generic libraries of the API server, which the table leaves out.
const GENERIC: [&str; 10] = [
    "aggregator_",
    "apiserver_",
    "authentication_",
    "authorization_",
    "cardinality_",
    "disabled_metric",
    "field_validation_",
    "go_",
    "hidden_metric",
    "registered_metric",
];

fn without_generic(families: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let is_generic = |key: &str| {
        let family = key.rsplit(' ').next().unwrap_or_default();
        GENERIC.iter().any(|prefix| family.starts_with(prefix))
    };
    let kept = families.iter().filter(|(key, _)| !is_generic(key));
    kept.map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn resource_families(text: &str) -> BTreeMap<String, String> {
    exposition_families("", text)
}
