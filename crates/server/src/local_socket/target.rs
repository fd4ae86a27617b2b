//! The one pod and container that a request is about.

use axum::response::Response;
use http::StatusCode;
use model::containers::{all_containers, find_container, regular_containers};
use model::inventory::PodSelection;
use model::k8s::Pod;
use model::{ContainerRef, PodRef};
use ports::NodeInventory;

use crate::answer;

/// Why there is no such pod or container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TargetProblem {
    status: StatusCode,
    text: String,
}

impl TargetProblem {
    fn not_found(text: String) -> Self {
        Self { status: StatusCode::NOT_FOUND, text }
    }

    const fn unclear(text: String) -> Self {
        Self { status: StatusCode::BAD_REQUEST, text }
    }

    pub(super) fn response(&self) -> Response {
        answer::error(self.status, &self.text)
    }
}

/// The pod that the selection means, which must be one.
pub(super) fn one_pod(inventory: &dyn NodeInventory, of: &PodSelection) -> Result<Pod, TargetProblem> {
    only(inventory.selected_pods(of), &of.words)
}

/// An older pod of the same name that is ending does not make the name unclear.
fn only(mut pods: Vec<Pod>, words: &str) -> Result<Pod, TargetProblem> {
    let mut names: Vec<String> = pods.iter().map(name).collect();
    names.sort();
    names.dedup();
    if names.len() > 1 {
        let text = format!("{words:?} means several pods: {}; name one of them", names.join(", "));
        return Err(TargetProblem::unclear(text));
    }
    pods.sort_by_key(|pod| pod.metadata.deletion_timestamp.is_none());
    pods.pop().ok_or_else(|| TargetProblem::not_found(format!("no pod {words:?} is on this node")))
}

fn name(pod: &Pod) -> String {
    let PodRef { namespace, name, .. } = PodRef::of(pod);
    format!("{namespace}/{name}")
}

/// The container of that name, or the only one.
pub(super) fn one_container(pod: &Pod, given: Option<&str>) -> Result<String, TargetProblem> {
    let names = || all_containers(pod).map(|container| container.name()).collect::<Vec<_>>().join(", ");
    let of_pod = name(pod);
    if let Some(given) = given {
        let missing = || {
            let text = format!("pod {of_pod} has no container {given:?}; it has {}", names());
            TargetProblem::not_found(text)
        };
        return find_container(pod, given).map(|container| container.name().to_owned()).ok_or_else(missing);
    }
    let regular: Vec<ContainerRef<'_>> = regular_containers(pod).collect();
    match regular.as_slice() {
        [only] => Ok(only.name().to_owned()),
        _ => {
            let text = format!("pod {of_pod} has several containers: {}; name one with -c", names());
            Err(TargetProblem::unclear(text))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, containers: &[&str]) -> Pod {
        let containers: Vec<_> = containers.iter().map(|name| json!({"name": name})).collect();
        let pod = json!({
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"containers": containers, "initContainers": [{"name": "prepare"}]},
        });
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn several_pods_or_containers_are_an_error_that_names_them() {
        let error = only(vec![pod("b", &[]), pod("a", &[])], "x").unwrap_err();
        assert_eq!(error.text, "\"x\" means several pods: default/a, default/b; name one of them");
        assert_eq!(only(Vec::new(), "x").unwrap_err().status, StatusCode::NOT_FOUND);
        let error = one_container(&pod("a", &["app", "log"]), None).unwrap_err();
        assert_eq!(error.text, "pod default/a has several containers: prepare, app, log; name one with -c");
        let error = one_container(&pod("a", &["app"]), Some("db")).unwrap_err();
        assert_eq!(error.text, "pod default/a has no container \"db\"; it has prepare, app");
    }

    #[test]
    fn only_container_and_a_pod_that_is_not_ending_are_meant_without_more_words() {
        assert_eq!(one_container(&pod("a", &["app"]), None).unwrap(), "app");
        assert_eq!(one_container(&pod("a", &["app", "log"]), Some("prepare")).unwrap(), "prepare");
        let mut ending = pod("a", &["old"]);
        ending.metadata.deletion_timestamp = Some(model::k8s::Time(jiff::Timestamp::UNIX_EPOCH));
        let found = only(vec![pod("a", &["new"]), ending], "a").unwrap();
        assert_eq!(one_container(&found, None).unwrap(), "new");
    }
}
