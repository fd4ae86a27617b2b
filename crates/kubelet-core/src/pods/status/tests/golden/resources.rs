//! `status.resources` and `status.allocatedResources` of pods, as kube-apiserver 1.36.2 got them from the Go kubelet.

use model::k8s::PodStatus;
use model::observation::ObservedResources;
use resources_core::amounts::Amounts;
use serde_json::{Value, json};

use super::super::scenario::{Scenario, play, time};
use crate::pods::status::{MemoryLimit, PodCgroupResources};

const RUNNING: &str = "a=running";

fn shown(status: &PodStatus) -> Value {
    json!([status.resources, status.allocated_resources])
}

/// The status with what the cgroup enforces, after one that showed the pod as Running.
fn enforced(pod_text: &str, cgroup: PodCgroupResources) -> Value {
    enforced_while(RUNNING, pod_text, cgroup)
}

fn enforced_while(running: &str, pod_text: &str, cgroup: PodCgroupResources) -> Value {
    let (pod, played) = play(&format!("{pod_text} | {running}"));
    let mut scenario = Scenario::parse(running);
    scenario.cgroup = Some(cgroup);
    shown(&scenario.compute(&pod, played.last(), time(300)))
}

const fn cgroup(
    cpu_request_milli: Option<i64>,
    cpu_limit_milli: Option<i64>,
    memory_limit: MemoryLimit,
) -> PodCgroupResources {
    PodCgroupResources { cpu_request_milli, cpu_limit_milli, memory_limit }
}

#[test]
fn a_pod_has_its_allocated_resources_until_the_api_shows_it_as_running() {
    let of = |text: &str| shown(play(&format!("pod {text} | unseen")).1.last().expect("a scenario"));
    assert_eq!(of("a"), json!([{}, null]));
    let requests = json!({"cpu": "20m", "memory": "32Mi"});
    let limits = json!({"cpu": "100m", "memory": "64Mi"});
    assert_eq!(of("a:m"), json!([{"requests": requests, "limits": limits}, requests]));
    assert_eq!(of("a:m b"), json!([{"requests": requests, "limits": limits}, requests]));
    let both = json!({"cpu": "1020m", "memory": "32Mi"});
    let limits = json!({"cpu": "2100m", "memory": "64Mi"});
    assert_eq!(of("a:m b:r"), json!([{"requests": both, "limits": limits}, both]));
}

#[test]
fn a_rejected_pod_has_no_resources() {
    let (_, played) = play("pod a:m | unseen @rejected end(OutOfcpu)");
    assert_eq!(shown(&played[0]), json!([null, null]));
}

#[test]
fn a_running_pod_has_the_resources_that_its_cgroup_enforces() {
    assert_eq!(enforced("pod a", cgroup(Some(2), None, MemoryLimit::Unlimited)), json!([{}, null]));
    assert_eq!(enforced("pod a", cgroup(Some(2), None, MemoryLimit::Unknown)), json!([{}, null]));
    let resized = cgroup(Some(30), Some(150), MemoryLimit::Bytes(96 << 20));
    // No cgroup holds a memory request, so that the first one stays.
    assert_eq!(
        enforced("pod a:m", resized),
        json!([
            {"requests": {"cpu": "30m", "memory": "32Mi"}, "limits": {"cpu": "150m", "memory": "96Mi"}},
            {"cpu": "20m", "memory": "32Mi"},
        ])
    );
}

#[test]
fn a_running_pod_keeps_the_limits_that_its_cgroup_does_not_enforce() {
    // Two containers, one without limits: the recorded pod `runs`.
    let of = |cgroup| enforced_while("a=running b=running", "pod a:m b", cgroup);
    let requests = json!({"cpu": "20m", "memory": "32Mi"});
    let limits = json!({"cpu": "100m"});
    assert_eq!(
        of(cgroup(Some(20), None, MemoryLimit::Unlimited)),
        json!([{"requests": requests, "limits": limits}, requests]),
        "the second container unsets the memory limit"
    );
    let limits = json!({"cpu": "100m", "memory": "64Mi"});
    assert_eq!(
        of(cgroup(None, None, MemoryLimit::Unknown)),
        json!([{"requests": requests, "limits": limits}, requests])
    );
}

#[test]
fn a_pod_that_has_ended_keeps_the_resources_that_its_cgroup_enforced() {
    let (pod, mut played) = play("pod a | a=exited(0) @terminated end(Evicted)");
    let mut last = played.pop().expect("a scenario");
    assert_eq!(last.phase.as_deref(), Some("Failed"));
    let enforced = json!({"limits": {"memory": "9007199254740988Ki"}});
    last.resources = serde_json::from_value(enforced.clone()).expect("resources");
    let scenario = Scenario::parse("unseen @terminated end(Evicted)");
    assert_eq!(json!(scenario.compute(&pod, Some(&last), time(300)).resources), enforced);
}

#[test]
fn an_ephemeral_container_has_empty_resources() {
    let status = play("pod a x:e | a=running x=running").1.remove(0);
    let ephemeral = status.ephemeral_container_statuses.expect("a status");
    assert_eq!(json!(ephemeral[0].resources), json!({}));
}

#[test]
fn a_resize_that_is_not_done_is_pending_until_the_pod_ends() {
    let pending = |text: &str| {
        let status = play(text).1.pop().expect("a scenario");
        let found = status.conditions.into_iter().flatten().find(|c| c.type_ == "PodResizePending");
        found.map(|c| (c.status, c.reason.unwrap_or_default(), c.observed_generation))
    };
    let infeasible = Some(("True".to_owned(), "Infeasible".to_owned(), Some(2)));
    assert_eq!(pending("pod a:m gen=2 | a=running resize-pending"), infeasible);
    assert_eq!(pending("pod a:m gen=2 | a=running resize-pending | a=running"), None);
    assert_eq!(pending("pod a:m gen=2 policy=Never | a=exited(0) resize-pending"), None);
}

#[test]
fn a_running_container_has_the_resources_that_the_runtime_enforces() {
    let pod = play("pod a:m | a=running").0;
    let mut scenario = Scenario::parse("a=running");
    let resources = |scenario: &Scenario| {
        let status = scenario.compute(&pod, None, time(1)).container_statuses.expect("a status").remove(0);
        assert_eq!(json!(status.allocated_resources), json!({"cpu": "20m", "memory": "32Mi"}));
        json!(status.resources)
    };
    let as_allocated =
        json!({"requests": {"cpu": "20m", "memory": "32Mi"}, "limits": {"cpu": "100m", "memory": "64Mi"}});
    assert_eq!(resources(&scenario), as_allocated);
    // A resize is allocated, and not set yet.
    let before = Amounts { cpu_request: 10, cpu_limit: 50, memory_request: 16 << 20, memory_limit: 32 << 20 };
    scenario.memory.actuated.set("a", before);
    let as_before =
        json!({"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"cpu": "50m", "memory": "32Mi"}});
    assert_eq!(resources(&scenario), as_before);
    let reported =
        ObservedResources { cpu_shares: Some(20), cpu_limit_milli: Some(100), memory_limit: Some(64 << 20) };
    scenario.observed.as_mut().expect("an observation").containers[0].resources = Some(reported);
    let as_reported =
        json!({"requests": {"cpu": "20m", "memory": "16Mi"}, "limits": {"cpu": "100m", "memory": "64Mi"}});
    assert_eq!(resources(&scenario), as_reported);
    let ended = Scenario { observed: Scenario::parse("a=exited(0)").observed, ..scenario };
    assert_eq!(resources(&ended), as_allocated, "nothing runs");
}
