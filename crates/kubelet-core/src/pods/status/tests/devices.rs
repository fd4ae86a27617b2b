//! The health of devices in the status of their containers.

use model::k8s::{ContainerStatus, PodStatus, ResourceHealth, ResourceStatus};

use super::scenario::{Scenario, pod, time};

fn health(of: &str) -> Vec<ResourceStatus> {
    let one = ResourceHealth { resource_id: "0".to_owned(), health: Some(of.to_owned()), message: None };
    vec![ResourceStatus { name: "example.com/gpu".to_owned(), resources: Some(vec![one]) }]
}

fn shown_health(status: &PodStatus) -> Vec<Option<String>> {
    let of = |status: &ContainerStatus| {
        let resources = status.allocated_resources_status.as_ref()?.first()?.resources.as_ref()?;
        resources.first()?.health.clone()
    };
    status.container_statuses.iter().flatten().map(of).collect()
}

/// `UpdateAllocatedResourcesStatus` and the end-to-end test of the Go kubelet: also for a container that waits.
#[test]
fn allocated_resources_status_is_shown_for_regular_containers_with_devices() {
    let statuses = |text: &str, is_on: bool| {
        let mut scenario = Scenario::parse(text);
        scenario.features.device_health = is_on;
        for name in ["a", "i", "s"] {
            scenario.device_health.insert(name.to_owned(), health("Unhealthy"));
        }
        scenario.compute(&pod("pod i:i s:s a b"), None, time(0))
    };
    let unhealthy = Some("Unhealthy".to_owned());
    for text in ["i=exited(0) s=running a=running b=running", "box=ready why(a/ImagePullBackOff)", "unseen"] {
        let status = statuses(text, true);
        assert_eq!(shown_health(&status), [unhealthy.clone(), None], "{text}");
        let init = status.init_container_statuses.expect("statuses");
        assert!(init.iter().all(|status| status.allocated_resources_status.is_none()), "{text}");
        assert_eq!(shown_health(&statuses(text, false)), [None, None], "{text}");
    }
    assert!(Scenario::parse("a=running").features.device_health, "it is beta");
}

#[test]
fn container_that_has_ended_keeps_the_last_health_of_its_devices() {
    let pod = pod("pod a b policy=Never");
    let mut scenario = Scenario::parse("a=running b=running");
    for name in ["a", "b"] {
        scenario.device_health.insert(name.to_owned(), health("Unhealthy"));
    }
    let running = scenario.compute(&pod, None, time(0));
    let unhealthy = || Some("Unhealthy".to_owned());
    // The devices of `a` are free once it has ended, those of `b` after the pod.
    let mut half = Scenario::parse("a=exited(1) b=running");
    half.device_health.insert("b".to_owned(), health("Healthy"));
    let half = half.compute(&pod, Some(&running), time(1));
    assert_eq!(shown_health(&half), [unhealthy(), Some("Healthy".to_owned())]);
    let ended = Scenario::parse("a=exited(1) b=exited(0) @terminated");
    let ended = ended.compute(&pod, Some(&half), time(2));
    assert_eq!(shown_health(&ended), [unhealthy(), Some("Healthy".to_owned())]);
    let lost = Scenario::parse("a=running b=running").compute(&pod, Some(&running), time(3));
    assert_eq!(shown_health(&lost), [None, None], "the allocations were lost while it runs");
}
