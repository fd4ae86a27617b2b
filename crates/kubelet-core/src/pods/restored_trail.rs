//! What the trail of a pod had before the kubelet started, as far as the runtime and the last status report it.
//!
//! The runtime knows when sandboxes and containers were created and when containers started and ended; the status, when the pod was
//! accepted and became ready. What was between is one step: it is not known what of it took how long.

use base_core::trail::RestoredStep;
use jiff::Timestamp;
use model::k8s::PodStatus;
use model::{ContainerObservation, ContainerState, PodObservation};

/// From the acceptance of the pod to its sandbox.
const BEFORE_SANDBOX: (&str, &str) = ("BeforeSandbox", "volumes, resource claims, sandbox and network");
/// From what came before to the creation of a container.
const BEFORE_CONTAINER: (&str, &str) =
    ("BeforeContainer", "containers before it, image, configuration, creation");
/// From the creation of a container to its start.
const STARTING: &str = "StartingContainer";
/// Containers of one pod that are taken into account.
const MAX_CONTAINERS: usize = 16;

/// The steps, oldest first; none for a pod that the runtime has not.
#[must_use]
pub fn compute_restored_trail(observed: &PodObservation, last: Option<&PodStatus>) -> Vec<RestoredStep> {
    let mut steps = Vec::new();
    let Some(sandbox) = observed.sandboxes.iter().min_by_key(|sandbox| sandbox.created_at) else {
        return steps;
    };
    let accepted = last.and_then(|status| status.start_time.as_ref()).map(|at| at.0);
    // A later sandbox is not the one of the start.
    if sandbox.attempt == 0 {
        let began = accepted.filter(|at| *at <= sandbox.created_at).unwrap_or(sandbox.created_at);
        steps.push(step(BEFORE_SANDBOX.0, None, BEFORE_SANDBOX.1, began, sandbox.created_at));
    }
    let mut containers: Vec<&ContainerObservation> = observed.containers.iter().collect();
    containers.sort_by_key(|container| container.created_at);
    let mut before = sandbox.created_at;
    for container in containers.into_iter().take(MAX_CONTAINERS) {
        steps.extend(of_container(container, before));
        before = container.started_at.unwrap_or(container.created_at).max(before);
    }
    steps.extend(last.and_then(ready_since).map(|at| step("Ready", None, "", at, at)));
    steps.sort_by_key(|step| step.began);
    steps
}

fn of_container(container: &ContainerObservation, before: Timestamp) -> Vec<RestoredStep> {
    let (name, created) = (Some(&*container.name), container.created_at);
    let mut steps = Vec::new();
    // An instance that replaces an earlier one waited for that, and for a back-off.
    if container.record.restart_count == 0 {
        let message = format!("{}; {}", container.image, BEFORE_CONTAINER.1);
        steps.push(step(BEFORE_CONTAINER.0, name, &message, before.min(created), created));
    }
    let started = container.started_at.filter(|at| *at >= created);
    if let Some(started) = started {
        let message = match container.record.restart_count {
            0 => String::new(),
            count => format!("restart {count}"),
        };
        steps.push(step(STARTING, name, &message, created, started));
    }
    let ended = container.finished_at.filter(|_| container.state == ContainerState::Exited);
    if let Some(ended) = ended.filter(|at| *at >= created) {
        let message = match container.reason.as_str() {
            "" => format!("exit code {}", container.exit_code),
            reason => format!("{reason}, exit code {}", container.exit_code),
        };
        let ended = step("Ended", name, &message, ended, ended);
        steps.push(RestoredStep { is_warning: container.exit_code != 0, ..ended });
    }
    steps
}

fn ready_since(status: &PodStatus) -> Option<Timestamp> {
    let mut conditions = status.conditions.iter().flatten();
    let ready = conditions.find(|condition| condition.type_ == "Ready" && condition.status == "True")?;
    ready.last_transition_time.as_ref().map(|at| at.0)
}

fn step(
    reason: &'static str,
    container: Option<&str>,
    message: &str,
    began: Timestamp,
    ended: Timestamp,
) -> RestoredStep {
    let (container, message) = (container.map(Box::from), message.to_owned());
    RestoredStep { reason, container, message, began, ended, is_warning: false }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use model::k8s::{PodCondition, Time};
    use model::{Instances, MonoTime, PodRef};

    use super::*;
    use crate::pods::fixture::{case, new_instance, start_of_test};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn status() -> PodStatus {
        let ready = PodCondition {
            type_: "Ready".to_owned(),
            status: "True".to_owned(),
            last_transition_time: Some(Time(at(45))),
            ..PodCondition::default()
        };
        PodStatus { start_time: Some(Time(at(10))), conditions: Some(vec![ready]), ..PodStatus::default() }
    }

    fn lines(observed: &PodObservation, last: Option<&PodStatus>) -> String {
        let shown = |step: RestoredStep| {
            let container = step.container.map(|name| format!(" [{name}]")).unwrap_or_default();
            let (began, ended) = (step.began.as_second(), step.ended.as_second());
            format!("{began}-{ended} {}{container}: {}\n", step.reason, step.message)
        };
        compute_restored_trail(observed, last).into_iter().map(shown).collect()
    }

    #[test]
    fn start_is_known_from_the_times_of_sandbox_containers_and_status() {
        let mut observed = PodObservation::empty(PodRef::new("ns", "web", "1"), MonoTime::ZERO);
        let mut case = case("main:a | sandbox");
        observed.sandboxes = std::mem::take(&mut case.observed.sandboxes);
        observed.sandboxes[0].created_at = at(14);
        let instance = |name: &str, restarts, created, finished: Option<i64>| {
            let sandbox = observed.sandboxes[0].id.clone();
            let mut container = new_instance(name, sandbox, None, start_of_test());
            container.record.restart_count = restarts;
            (container.created_at, container.started_at) = (at(created), Some(at(created + 1)));
            container.finished_at = finished.map(at);
            container.state =
                if finished.is_some() { ContainerState::Exited } else { ContainerState::Running };
            container.exit_code = 137;
            container
        };
        let containers = vec![instance("b", 2, 90, Some(200)), instance("a", 0, 30, None)];
        observed.containers = Instances::new(containers);
        expect![[r#"
            10-14 BeforeSandbox: volumes, resource claims, sandbox and network
            14-30 BeforeContainer [a]: img; containers before it, image, configuration, creation
            30-31 StartingContainer [a]: 
            45-45 Ready: 
            90-91 StartingContainer [b]: restart 2
            200-200 Ended [b]: exit code 137
        "#]]
        .assert_eq(&lines(&observed, Some(&status())));
    }

    #[test]
    fn pod_that_the_runtime_has_not_begins_with_this_kubelet() {
        let observed = PodObservation::empty(PodRef::new("ns", "web", "1"), MonoTime::ZERO);
        assert_eq!(lines(&observed, Some(&status())), "");
    }
}
