//! The resources that are allocated to a pod. It keeps them when the API requests others, until those are allocated.

use std::collections::BTreeMap;

use model::k8s::{Container, Pod, PodStatus, ResourceRequirements};
use model::pod_status::{container_statuses, statuses_by_name};

/// The pod with the resources of `allocated`, an earlier version of it; `None` if they are equal.
#[must_use]
pub fn with_allocated_resources(requested: &Pod, allocated: &Pod) -> Option<Pod> {
    let (from, to) = (allocated.spec.as_ref()?, requested.spec.as_ref()?);
    let by_name: BTreeMap<&str, Option<&ResourceRequirements>> = containers(&from.init_containers)
        .chain(&from.containers)
        .map(|c| (c.name.as_str(), c.resources.as_ref()))
        .collect();
    let is_same = |c: &Container| by_name.get(c.name.as_str()).is_none_or(|r| *r == c.resources.as_ref());
    let mut all = containers(&to.init_containers).chain(&to.containers);
    if all.all(is_same) && from.resources == to.resources {
        return None;
    }
    let mut pod = requested.clone();
    let spec = pod.spec.as_mut()?;
    spec.resources.clone_from(&from.resources);
    for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
        if let Some(resources) = by_name.get(container.name.as_str()) {
            container.resources = resources.cloned();
        }
    }
    Some(pod)
}

/// The pod with the resources that its status shows as allocated, for a kubelet whose files are lost. `None` if the status shows none of a
/// container with requests: it has not started.
#[must_use]
pub fn allocated_by_status(pod: &Pod, status: &PodStatus) -> Option<Pod> {
    let mut pod = pod.clone();
    let shown = statuses_by_name(status);
    let spec = pod.spec.as_mut()?;
    for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
        let Some(resources) = container.resources.as_mut().filter(|r| r.requests.is_some()) else { continue };
        let shown = *shown.get(container.name.as_str())?;
        resources.requests = Some(shown.allocated_resources.clone()?);
        if let Some(limits) = shown.resources.as_ref().and_then(|resources| resources.limits.clone()) {
            resources.limits = Some(limits);
        }
    }
    Some(pod)
}

/// A container of the pod has started at some time, by its status.
#[must_use]
pub fn has_started(status: &PodStatus) -> bool {
    container_statuses(status).any(|container| container.container_id.is_some())
}

fn containers(list: &Option<Vec<Container>>) -> impl Iterator<Item = &Container> {
    list.iter().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(cpu: &str, generation: i64) -> Pod {
        let resources = json!({"requests": {"cpu": cpu}});
        let containers = json!([{"name": "main", "image": "i", "resources": resources}, {"name": "other"}]);
        let pod = json!({"metadata": {"generation": generation}, "spec": {"containers": containers}});
        serde_json::from_value(pod).expect("a pod")
    }

    #[test]
    fn a_resize_request_leaves_the_allocated_resources() {
        let kept = with_allocated_resources(&pod("30m", 2), &pod("20m", 1)).expect("another pod");
        assert_eq!(kept.spec, pod("20m", 1).spec);
        assert_eq!(kept.metadata.generation, Some(2));
        assert_eq!(with_allocated_resources(&pod("20m", 3), &kept), None);
    }

    #[test]
    fn other_changes_of_the_spec_pass_through() {
        let mut requested = pod("30m", 2);
        let spec = requested.spec.as_mut().expect("a spec");
        spec.containers[0].image = Some("new".to_owned());
        let kept =
            with_allocated_resources(&requested, &pod("20m", 1)).expect("another pod").spec.expect("a spec");
        assert_eq!(kept.containers[0].image.as_deref(), Some("new"));
        assert_eq!(kept.containers[0].resources, pod("20m", 1).spec.expect("a spec").containers[0].resources);
    }

    #[test]
    fn the_status_shows_what_is_allocated_once_all_containers_have_started() {
        let shown = |fields: serde_json::Value| -> PodStatus {
            serde_json::from_value(json!({"containerStatuses": [fields, {"name": "other"}]}))
                .expect("a status")
        };
        let running =
            shown(json!({"name": "main", "containerID": "x://1", "allocatedResources": {"cpu": "20m"},
            "resources": {"requests": {"cpu": "20m"}}}));
        let by_status = allocated_by_status(&pod("5", 2), &running).expect("a pod");
        assert_eq!(by_status.spec, pod("20m", 1).spec);
        assert!(has_started(&running));
        let waiting = shown(json!({"name": "main"}));
        assert_eq!(allocated_by_status(&pod("5", 2), &waiting), None);
        assert!(!has_started(&waiting));
    }
}
