//! What must be true once every fault is over and enough time has passed: each desired pod runs in the state of its
//! specification, and nothing runs that is not desired.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::invariants::{Observation, RuntimeContainer, static_uid, text};
use super::pods::{VERSION_ANNOTATION, image_of, resources};
use super::schedule::{PodKind, PodPlan, Source};

/// Files of volumes and cgroups, as the node has them, by the pod's UID.
#[derive(Clone, Debug, Default)]
pub struct NodeState {
    /// The version in the mounted `ConfigMap`.
    pub config_versions: BTreeMap<String, String>,
    /// The memory limit of the container `main`.
    pub memory_limits: BTreeMap<String, u64>,
}

#[derive(Clone, Debug)]
pub struct Desired<'a> {
    pub pods: Vec<&'a PodPlan>,
    pub config_version: u32,
    pub node_name: &'a str,
}

/// Everything that is not yet as desired, one line each. What cannot be observed is not as desired.
#[must_use]
pub fn compute_unconverged(desired: &Desired<'_>, observed: &Observation, node: &NodeState) -> Vec<String> {
    let (Some(api), Some(runtime)) = (&observed.api, &observed.runtime) else {
        return vec!["the API server or the runtime does not answer".to_owned()];
    };
    let by_name: BTreeMap<&str, &Value> = api.iter().map(|pod| (text(pod, "/metadata/name"), pod)).collect();
    let mut found = Vec::new();
    let (mut names, mut uids) = (BTreeSet::new(), BTreeSet::new());
    for plan in &desired.pods {
        let name = match plan.source {
            Source::Api => plan.name.clone(),
            Source::Static => format!("{}-{}", plan.name, desired.node_name),
        };
        match by_name.get(name.as_str()) {
            None if may_lack_mirror(plan) => {}
            None => found.push(format!("pod {name} ({:?}) is not in the API", plan.kind)),
            Some(pod) => {
                let uid = static_uid(pod).unwrap_or_else(|| text(pod, "/metadata/uid"));
                uids.insert(uid.to_owned());
                let differences = differences(plan, pod, desired.config_version, node);
                let running = running(plan, uid, runtime);
                let all = differences.into_iter().chain(running);
                found.extend(all.map(|what| format!("pod {name} ({:?}): {what}", plan.kind)));
            }
        }
        names.insert(name);
    }
    found.extend(
        by_name
            .keys()
            .filter(|name| !names.contains(**name))
            .map(|name| format!("pod {name} is still in the API")),
    );
    let foreign =
        runtime.iter().filter(|container| container.is_running && !uids.contains(&container.pod_uid));
    found.extend(foreign.map(|one| format!("container {} of pod {} still runs", one.name, one.pod_name)));
    found
}

/// A static pod that ends while the API server is away gets no mirror pod afterwards, as with the Go kubelet.
fn may_lack_mirror(plan: &PodPlan) -> bool {
    plan.kind == PodKind::Job && plan.source == Source::Static
}

fn differences(plan: &PodPlan, pod: &Value, config_version: u32, node: &NodeState) -> Vec<String> {
    let mut found = Vec::new();
    let phase = text(pod, "/status/phase");
    let expected = if plan.kind == PodKind::Job { "Succeeded" } else { "Running" };
    if phase != expected {
        found.push(format!("its phase is {phase:?}"));
    }
    let main = status_of(pod, "main");
    match plan.kind {
        PodKind::Job => {}
        PodKind::CrashLoop | PodKind::OutOfMemory => {
            if main["restartCount"].as_i64().unwrap_or_default() < 1 {
                found.push("it was never restarted".to_owned());
            }
        }
        PodKind::Plain
        | PodKind::Ordered
        | PodKind::Probed
        | PodKind::Hooks
        | PodKind::Volumes
        | PodKind::Objects
        | PodKind::Csi
        | PodKind::MemoryLimit
        | PodKind::Resizable
        | PodKind::NamedProbe => {
            if condition(pod, "Ready") != "True" {
                found.push(format!("it is not ready: {}", pod["status"]["containerStatuses"]));
            }
        }
    }
    let version = plan.version.to_string();
    if pod["metadata"]["annotations"][VERSION_ANNOTATION] != version.as_str() {
        found.push(format!("it is not at version {version}"));
    }
    if plan.kind != PodKind::Job && text(main, "/image") != image_of(plan.version) {
        found.push(format!("its image is {}", main["image"]));
    }
    found.extend(special(plan, pod, config_version, node));
    found
}

/// What only some kinds have.
fn special(plan: &PodPlan, pod: &Value, config_version: u32, node: &NodeState) -> Option<String> {
    let uid = text(pod, "/metadata/uid");
    match plan.kind {
        PodKind::Objects => {
            let shown = node.config_versions.get(uid);
            (shown != Some(&config_version.to_string()))
                .then(|| format!("its ConfigMap has the version {shown:?} instead of {config_version}"))
        }
        PodKind::Resizable => {
            let shown = &status_of(pod, "main")["resources"];
            let limit = node.memory_limits.get(uid);
            let is_waiting = !condition(pod, "PodResizePending").is_empty()
                || !condition(pod, "PodResizeInProgress").is_empty();
            let is_applied = *shown == resources(plan.size) && limit == Some(&(plan.size.mebibytes << 20));
            (is_waiting || !is_applied)
                .then(|| format!("it is not resized to {:?}: {shown}, limit {limit:?}", plan.size))
        }
        PodKind::Plain
        | PodKind::Ordered
        | PodKind::Probed
        | PodKind::Hooks
        | PodKind::Volumes
        | PodKind::Csi
        | PodKind::MemoryLimit
        | PodKind::OutOfMemory
        | PodKind::CrashLoop
        | PodKind::Job
        | PodKind::NamedProbe => None,
    }
}

/// Whether the runtime runs what must always run.
fn running(plan: &PodPlan, uid: &str, containers: &[RuntimeContainer]) -> Vec<String> {
    let expected: &[&str] = match plan.kind {
        // They run only at times.
        PodKind::CrashLoop | PodKind::OutOfMemory | PodKind::Job => &[],
        PodKind::Ordered => &["main", "sidecar"],
        PodKind::Plain
        | PodKind::Probed
        | PodKind::Hooks
        | PodKind::Volumes
        | PodKind::Objects
        | PodKind::Csi
        | PodKind::MemoryLimit
        | PodKind::Resizable
        | PodKind::NamedProbe => &["main"],
    };
    let runs =
        |name: &str| containers.iter().any(|one| one.is_running && one.pod_uid == uid && one.name == name);
    expected.iter().filter(|name| !runs(name)).map(|name| format!("container {name} does not run")).collect()
}

fn status_of<'a>(pod: &'a Value, name: &str) -> &'a Value {
    let all = pod["status"]["containerStatuses"].as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter().find(|status| status["name"] == name).unwrap_or(&Value::Null)
}

fn condition<'a>(pod: &'a Value, kind: &str) -> &'a str {
    let all = pod["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter().find(|one| one["type"] == kind).and_then(|one| one["status"].as_str()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::schedule::Size;
    use super::*;

    fn plan(kind: PodKind) -> PodPlan {
        PodPlan { name: "soak-1".to_owned(), kind, source: Source::Api, version: 2, size: Size::FIRST }
    }

    fn pod() -> Value {
        json!({
            "metadata": {"name": "soak-1", "uid": "u1", "annotations": {VERSION_ANNOTATION: "2"}},
            "status": {
                "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
                "containerStatuses": [{
                    "name": "main", "image": image_of(2), "restartCount": 1, "resources": resources(Size::FIRST),
                }],
            },
        })
    }

    fn container(uid: &str) -> RuntimeContainer {
        RuntimeContainer {
            id: "c".to_owned(),
            pod_uid: uid.to_owned(),
            pod_name: "soak-1".to_owned(),
            name: "main".to_owned(),
            attempt: 1,
            is_running: true,
        }
    }

    fn node() -> NodeState {
        NodeState {
            config_versions: [("u1".to_owned(), "5".to_owned())].into(),
            memory_limits: [("u1".to_owned(), Size::FIRST.mebibytes << 20)].into(),
        }
    }

    fn found(
        kind: PodKind,
        pods: Vec<Value>,
        containers: Vec<RuntimeContainer>,
        node: &NodeState,
    ) -> Vec<String> {
        let plan = plan(kind);
        let desired = Desired { pods: vec![&plan], config_version: 5, node_name: "node" };
        compute_unconverged(&desired, &Observation { api: Some(pods), runtime: Some(containers) }, node)
    }

    #[test]
    fn soak_accepts_pods_in_the_state_of_their_specification() {
        for kind in [PodKind::Plain, PodKind::Objects, PodKind::Resizable, PodKind::CrashLoop] {
            assert_eq!(
                found(kind, vec![pod()], vec![container("u1")], &node()),
                Vec::<String>::new(),
                "{kind:?}"
            );
        }
    }

    #[test]
    fn soak_finds_a_pod_that_is_missing_or_does_not_run() {
        let missing = found(PodKind::Plain, vec![], vec![], &node());
        assert_eq!(missing, ["pod soak-1 (Plain) is not in the API"]);
        let stopped = found(PodKind::Plain, vec![pod()], vec![], &node());
        assert_eq!(stopped, ["pod soak-1 (Plain): container main does not run"]);
        let mut pending = pod();
        pending["status"]["phase"] = "Pending".into();
        assert_eq!(
            found(PodKind::Plain, vec![pending], vec![container("u1")], &node()),
            ["pod soak-1 (Plain): its phase is \"Pending\""]
        );
    }

    #[test]
    fn soak_accepts_a_static_job_without_mirror_that_has_ended() {
        let mut job = plan(PodKind::Job);
        let missing = |job: &PodPlan, containers: Vec<RuntimeContainer>| {
            let desired = Desired { pods: vec![job], config_version: 5, node_name: "node" };
            let observed = Observation { api: Some(vec![]), runtime: Some(containers) };
            compute_unconverged(&desired, &observed, &node())
        };
        assert_eq!(missing(&job, vec![]), ["pod soak-1 (Job) is not in the API"]);
        job.source = Source::Static;
        assert_eq!(missing(&job, vec![]), Vec::<String>::new());
        let runs = ["container main of pod soak-1 still runs"];
        assert_eq!(missing(&job, vec![container("u1")]), runs, "it has not ended");
    }

    #[test]
    fn soak_finds_what_runs_without_being_desired() {
        let mut other = pod();
        other["metadata"]["name"] = "soak-2".into();
        let left = found(PodKind::Plain, vec![pod(), other], vec![container("u1"), container("u2")], &node());
        assert_eq!(left, ["pod soak-2 is still in the API", "container main of pod soak-1 still runs"]);
    }

    #[test]
    fn soak_finds_an_old_version_an_old_configmap_and_a_resize_that_was_not_applied() {
        let mut old = pod();
        old["metadata"]["annotations"][VERSION_ANNOTATION] = "1".into();
        old["status"]["containerStatuses"][0]["image"] = image_of(1).into();
        let old = found(PodKind::Plain, vec![old], vec![container("u1")], &node());
        assert_eq!(old.len(), 2, "{old:?}");
        let without = NodeState::default();
        for kind in [PodKind::Objects, PodKind::Resizable] {
            let found = found(kind, vec![pod()], vec![container("u1")], &without);
            assert_eq!(found.len(), 1, "{found:?}");
        }
    }
}
