//! Explanations as a person reads them: each case is what the node knows and the text that `kubelet why` prints.

use expect_test::expect;
use model::explain::TrailStep;
use model::k8s::{Pod, PodStatus};
use serde_json::{Value, json};

use super::*;
use crate::render::{Style, pod_text};

const NOW: i64 = 1_000_000;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(NOW + second).unwrap()
}

/// Seconds before now.
fn ago(seconds: i64) -> String {
    at(-seconds).to_string()
}

struct Case {
    pod: Pod,
    status: PodStatus,
    stage: PodStage,
    is_rejected: bool,
    trail: Vec<TrailStep>,
    next_try: Option<Timestamp>,
    near_limits: Vec<NearLimit>,
}

fn case(status: Value) -> Case {
    let pod = json!({
        "metadata": {"name": "web", "namespace": "default", "uid": "4c1d"},
        "spec": {"containers": [{"name": "app", "image": "registry.local/app:1"}]},
    });
    Case {
        pod: serde_json::from_value(pod).unwrap(),
        status: serde_json::from_value(status).unwrap(),
        stage: PodStage::Syncing,
        is_rejected: false,
        trail: Vec::new(),
        next_try: None,
        near_limits: Vec::new(),
    }
}

impl Case {
    fn explain(&self) -> PodExplanation {
        compute_pod_explanation(PodFacts {
            identity: &PodRef::of(&self.pod),
            pod: &self.pod,
            status: &self.status,
            source: PodSource::File,
            stage: self.stage,
            is_rejected: self.is_rejected,
            is_orphan: false,
            is_observed: true,
            trail: self.trail.clone(),
            next_try: self.next_try,
            near_limits: self.near_limits.clone(),
            now: at(0),
        })
    }

    fn text(&self) -> String {
        pod_text(&self.explain(), Style { width: 100, has_color: false, now: at(0) })
    }
}

fn step(reason: &str, container: Option<&str>, seconds_ago: i64, message: &str, count: u32) -> TrailStep {
    TrailStep {
        reason: reason.to_owned(),
        container: container.map(str::to_owned),
        message: message.to_owned(),
        began: at(-seconds_ago),
        ended: Some(at(-seconds_ago)),
        count,
        is_warning: reason.starts_with("Failed") || reason == "Unhealthy",
        is_restored: false,
        is_event: false,
    }
}

fn open(reason: &str, container: Option<&str>, seconds_ago: i64, message: &str) -> TrailStep {
    TrailStep { ended: None, ..step(reason, container, seconds_ago, message, 1) }
}

fn waiting(reason: &str, message: &str) -> Value {
    json!({
        "phase": "Pending",
        "startTime": ago(130),
        "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": ago(130)}],
        "containerStatuses": [{
            "name": "app", "image": "registry.local/app:1", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"waiting": {"reason": reason, "message": message}},
        }],
    })
}

fn running(is_ready: bool, started: bool) -> Value {
    let condition = if is_ready { "True" } else { "False" };
    json!({
        "phase": "Running",
        "startTime": ago(4000),
        "conditions": [{"type": "Ready", "status": condition, "lastTransitionTime": ago(75)}],
        "containerStatuses": [{
            "name": "app", "image": "i", "imageID": "", "ready": is_ready, "started": started, "restartCount": 0,
            "state": {"running": {"startedAt": ago(3900)}},
        }],
    })
}

#[test]
fn image_that_cannot_be_pulled_names_the_error_the_tries_and_the_next_one() {
    let message = "Back-off pulling image \"registry.local/app:1\": ErrImagePull: rpc error: code = NotFound desc = \
                   failed to resolve reference \"registry.local/app:1\": registry.local/app:1: not found";
    let mut case = case(waiting("ImagePullBackOff", message));
    case.trail = vec![
        step("Accepted", None, 130, "", 1),
        step("Pulling", Some("app"), 129, "Pulling image \"registry.local/app:1\"", 1),
        step("Pulling", Some("app"), 31, "Pulling image \"registry.local/app:1\"", 4),
    ];
    case.next_try = Some(at(49));
    expect![[r#"
        default/web: The pod is not up yet. The image registry.local/app:1 of container app cannot be
        pulled. (for 2 min 10 s)
          uid      4c1d
          from     a manifest on this node

        The image registry.local/app:1 of container app cannot be pulled. (ImagePullBackOff)
          error    Back-off pulling image "registry.local/app:1": ErrImagePull: rpc error: code = NotFound
                   desc = failed to resolve reference "registry.local/app:1": registry.local/app:1: not
                   found
          tried    5 times, the last 31 s ago
          next     in 49 s, at 13:47:29 UTC
          do       Check the name and the tag of the image: the registry answers, and does not have it.

        Containers
          app: waiting

        What happened, from 13:44:30 UTC
                +0 ms  Accepted
              +1.00 s  Pulling [app]: Pulling image "registry.local/app:1"
          +1 min 39 s  Pulling x4 [app]: Pulling image "registry.local/app:1"
    "#]]
    .assert_eq(&case.text());
    assert_eq!(case.explain().verdict, Verdict::Waiting);
}

#[test]
fn container_that_is_killed_for_its_memory_again_and_again_says_so() {
    let mut status =
        waiting("CrashLoopBackOff", "back-off 40s restarting failed container=app pod=web_default(4c1d)");
    status["phase"] = json!("Running");
    status["containerStatuses"][0]["restartCount"] = json!(3);
    status["containerStatuses"][0]["lastState"] =
        json!({"terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": ago(12)}});
    let mut case = case(status);
    case.next_try = Some(at(28));
    let text = case.text();
    assert!(
        text.contains("Container app ends each time soon after its start (OOMKilled, exit code 137)."),
        "{text}"
    );
    assert!(text.contains("tried    4 times, the last 12 s ago"), "{text}");
    assert!(text.contains("do       Raise the container's memory limit"), "{text}");
    assert!(
        text.contains("restarted 3 times, the last instance ended with OOMKilled, exit code 137"),
        "{}",
        text
    );
}

#[test]
fn volume_that_cannot_be_mounted_is_the_reason_until_a_later_step_is_under_way() {
    let mut case = case(waiting("ContainerCreating", ""));
    let error = "MountVolume.SetUp failed for volume \"settings\" : configmap \"settings\" not found";
    case.trail = vec![
        step("Accepted", None, 130, "", 1),
        step("FailedMount", None, 130, error, 1),
        step("FailedMount", None, 14, error, 6),
        open("PreparingVolumes", None, 2, ""),
    ];
    let text = case.text();
    assert!(text.starts_with("default/web: The pod is not up yet. A volume cannot be mounted."), "{text}");
    assert!(text.contains("tried    7 times, the last 14 s ago"), "{text}");
    assert!(text.contains("do       Create the object that is missing"), "{text}");
    case.trail.push(open("EnsuringImage", Some("app"), 1, ""));
    let text = case.text();
    assert!(
        text.starts_with(
            "default/web: The pod is not up yet. Container app waits for its image: other pulls come first"
        ),
        "{text}"
    );
}

#[test]
fn pod_that_waits_for_others_says_for_what() {
    let mut case = case(waiting("ContainerCreating", ""));
    case.trail =
        vec![open("WaitingToStart", None, 20, "pods that were preempted for it still hold their resources")];
    let text = case.text();
    assert!(
        text.contains("It waits, because pods that were preempted for it still hold their resources."),
        "{text}"
    );
    assert!(text.contains("(for 20 s)"), "{text}");
}

#[test]
fn running_pod_is_fine_when_it_is_ready_and_names_the_probe_that_fails_when_not() {
    let mut case = case(running(true, true));
    assert_eq!((case.explain().verdict, case.explain().causes.len()), (Verdict::Fine, 0));
    case.status = serde_json::from_value(running(false, true)).unwrap();
    let failure = "Readiness probe failed: dial tcp 10.88.0.4:8080: connect: connection refused";
    case.trail = vec![
        step("Unhealthy", Some("app"), 60, failure, 1),
        step("Unhealthy", Some("app"), 5, failure, 11),
        step("Unhealthy", Some("app"), 1, "Liveness probe failed: HTTP probe failed with statuscode: 500", 1),
    ];
    let text = case.text();
    assert!(
        text.starts_with(
            "default/web: The pod runs and is not ready. The readiness probe of container app fails. (for"
        ),
        "{text}"
    );
    assert!(text.contains("tried    12 times, the last 5 s ago"), "{text}");
    assert!(text.contains("do       Nothing listens at the port of the probe"), "{text}");
    case.status = serde_json::from_value(running(false, false)).unwrap();
    case.trail.clear();
    let text = case.text();
    assert!(text.contains("The startup probe of container app has not succeeded yet."), "{text}");
}

#[test]
fn pull_names_its_image_once_it_is_its_turn() {
    let mut case = case(waiting("ContainerCreating", ""));
    case.trail = vec![
        step("Pulling", Some("app"), 60, "Pulling image \"shop/old:1\"", 1),
        open("EnsuringImage", Some("app"), 20, ""),
    ];
    assert!(
        case.text().contains("Container app waits for its image: other pulls come first"),
        "{}",
        case.text()
    );
    case.trail.push(step("Pulling", Some("app"), 5, "Pulling image \"shop/web:1\"", 1));
    assert!(
        case.text().contains("The image shop/web:1 of container app is being pulled, for 20 s now."),
        "{}",
        case.text()
    );
    case.trail.push(open("AwaitingPull", Some("app"), 5, ""));
    assert!(
        case.text().contains("The image shop/web:1 of container app waits for its turn"),
        "{}",
        case.text()
    );
}

#[test]
fn refused_evicted_and_finished_pods_have_ended() {
    let message = "Node didn't have enough resource: cpu, requested: 9000, used: 100, capacity: 2000";
    let mut case =
        case(json!({"phase": "Failed", "reason": "OutOfcpu", "message": message, "startTime": ago(5)}));
    case.is_rejected = true;
    let text = case.text();
    assert!(text.starts_with("default/web: This node refused the pod (OutOfcpu). (for 5 s)"), "{text}");
    assert!(text.contains(&format!("error    {message}")) && text.contains("Lower the requests"), "{text}");
    assert_eq!(case.explain().verdict, Verdict::Failed);
    case.is_rejected = false;
    case.status =
        serde_json::from_value(json!({"phase": "Failed", "reason": "Evicted", "message": "low on memory"}))
            .unwrap();
    assert!(case.text().starts_with("default/web: The pod failed (Evicted)."));
    case.status = serde_json::from_value(json!({"phase": "Succeeded"})).unwrap();
    assert_eq!(case.explain().verdict, Verdict::Fine);
}

#[test]
fn pod_that_stops_says_what_holds_it_up() {
    let mut case = case(running(true, true));
    case.stage = PodStage::Terminating;
    case.trail = vec![step("Killing", Some("app"), 3, "Stopping container app", 1)];
    let text = case.text();
    assert!(text.starts_with("default/web: The pod is being stopped. (for 3 s)"), "{text}");
    case.trail.push(step("FailedKillPod", None, 1, "error killing pod: deadline exceeded", 1));
    let text = case.text();
    assert!(text.contains("Something of the pod cannot be stopped or released. (FailedKillPod)"), "{text}");
    case.trail.push(step(
        "FailedKillPod",
        None,
        1,
        "unmount /x: device or resource busy (held by 7 (sleep))",
        1,
    ));
    assert!(case.text().contains("do       End the process that the error names"), "{}", case.text());
}

#[test]
fn pod_that_the_node_stops_says_why() {
    let mut case = case(running(true, true));
    case.stage = PodStage::Terminating;
    case.trail = vec![
        step("Terminated", None, 5, "Pod was terminated in response to imminent node shutdown.", 1),
        step("Killing", Some("app"), 5, "Stopping container app", 1),
    ];
    expect![[r#"
        default/web: The pod is being stopped. The machine is shutting down. (for 5 s)
          uid      4c1d
          from     a manifest on this node

        The machine is shutting down. (Terminated)
          error    Pod was terminated in response to imminent node shutdown.
          do       Its controller creates it again, on another node; a static pod starts again with the
                   machine.

        Containers
          app: running for 1 h 5 min, ready

        What happened, from 13:46:35 UTC
                +0 ms  Terminated: Pod was terminated in response to imminent node shutdown.
                +0 ms  Killing [app]: Stopping container app
    "#]]
    .assert_eq(&case.text());
    case.trail[0] = step("Evicted", None, 5, "The node was low on resource: memory.", 1);
    let text = case.text();
    assert!(
        text.starts_with("default/web: The pod is being stopped. The node evicts it. (for 5 s)"),
        "{text}"
    );
    assert!(text.contains("error    The node was low on resource: memory."), "{text}");
}

#[test]
fn step_that_does_not_end_has_an_advice_after_ten_seconds() {
    let mut case = case(waiting("ContainerCreating", ""));
    case.trail = vec![open("CreatingSandbox", None, 9, "")];
    assert_eq!(case.explain().causes[0].advice, Vec::<String>::new());
    case.trail = vec![
        open("CreatingSandbox", None, 40, ""),
        TrailStep { is_warning: true, ..step("WaitingForSandbox", None, 30, "container runtime has not", 1) },
    ];
    let text = case.text();
    assert!(
        text.contains(
            "The container runtime creates its sandbox and network, for 40 s now. (WaitingForSandbox)"
        ),
        "{text}"
    );
    assert!(text.contains("do       Look at the container runtime and the network plugin"), "{text}");
}

#[test]
fn pod_that_does_not_end_says_what_is_left() {
    let mut case = case(running(true, true));
    case.stage = PodStage::Terminating;
    case.trail = vec![step("Killing", Some("app"), 60, "", 1), open("OverGracePeriod", None, 30, "")];
    let text = case.text();
    assert!(text.contains("Its containers have not ended after their grace period, for 30 s now."), "{text}");
    assert!(text.contains("See which process does not end"), "{text}");
    case.stage = PodStage::Terminated;
    case.trail = vec![open("ReleasingResources", None, 20, "")];
    let text = case.text();
    assert!(text.contains("Its volumes, cgroup and user IDs are being released, for 20 s now."), "{text}");
}

#[test]
fn running_pod_says_why_its_last_instance_ended_and_what_is_near_its_limit() {
    let mut status = running(true, true);
    status["containerStatuses"][0]["restartCount"] = json!(1);
    status["containerStatuses"][0]["lastState"] = json!({"terminated": {
        "exitCode": 137, "reason": "Error", "startedAt": ago(3950), "finishedAt": ago(3905),
    }});
    let mut case = case(status);
    let why = "Container app failed liveness probe, will be restarted";
    case.trail = vec![step("Killing", Some("app"), 3935, why, 1)];
    let near = |resource: &str, part: Option<&str>, used, limit| {
        NearLimit::check(resource, part, used, limit, at(-12)).expect("it is near")
    };
    case.near_limits = vec![near("memory", Some("app"), 95 << 20, 100 << 20), near("pids", None, 1000, 1024)];
    expect![[r#"
        default/web: The pod runs and is ready. (for 1 min 15 s)
          uid      4c1d
          from     a manifest on this node

        Containers
          app: running for 1 h 5 min, ready, restarted once, the last instance ended with Error, exit code
          137 (SIGKILL), 1 h 5 min ago: Container app failed liveness probe, will be restarted

        Near a limit, as measured 12 s ago
          memory of app: 95.0 MiB of 100.0 MiB
          pids: 1000 of 1024

        What happened, from 12:41:05 UTC
                +0 ms  Killing [app]: Container app failed liveness probe, will be restarted
    "#]]
    .assert_eq(&case.text());
    assert_eq!(case.explain().verdict, Verdict::Fine);
    assert_eq!(NearLimit::check("memory", None, 79, 100, at(0)), None);
    assert_eq!(NearLimit::check("memory", None, 79, 0, at(0)), None, "no limit");
}

#[test]
fn container_that_ended_for_good_keeps_the_pod_from_ready() {
    let mut status = running(false, true);
    let ended = json!({
        "name": "job", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": ago(60)}},
    });
    status["containerStatuses"].as_array_mut().unwrap().push(ended);
    status["containerStatuses"][0]["ready"] = json!(true);
    let mut case = case(status);
    let containers = json!([{"name": "app", "image": "i"}, {"name": "job", "image": "i"}]);
    case.pod.spec.as_mut().unwrap().containers = serde_json::from_value(containers).unwrap();
    let text = case.text();
    assert!(
        text.contains(
            "Container job has ended (Completed, exit code 0) and is not restarted. (ContainersNotReady)"
        ),
        "{text}"
    );
    assert!(text.contains("tried    the last time 1 min ago"), "{text}");
}

#[test]
fn pod_that_the_node_does_not_run_says_whether_its_object_or_an_older_pod_is_the_reason() {
    let pod = PodRef::new("default", "web", "5d2e");
    let style = Style { width: 100, has_color: false, now: at(0) };
    let text = |explanation: &PodExplanation| pod_text(explanation, style);
    let behind = unknown_pod(&pod, Some(&PodUid::from("4c1d")));
    assert!(
        text(&behind).contains("The previous pod of this name (UID 4c1d) has not ended yet."),
        "{behind:?}"
    );
    assert_eq!(behind.verdict, Verdict::Waiting);
    let early = unknown_pod(&pod, None);
    assert!(text(&early).contains("once every source of pods has reported"), "{early:?}");
    let unreadable = unusable_pod(&pod, "invalid month", true);
    assert!(text(&unreadable).contains("The pod runs on as it last was."), "{unreadable:?}");
    assert!(text(&unreadable).contains("error    invalid month"), "{unreadable:?}");
    assert_eq!(unreadable.verdict, Verdict::Failed);
    assert!(text(&unusable_pod(&pod, "invalid month", false)).contains("this node cannot run it"));
}
