//! How often a pod whose sync failed is retried, and which events repeat meanwhile: `completeWork` of the Go kubelet's pod
//! workers, and its recordings `config-missing.json`, `image-missing.json`, `crash-loop.json`, `post-start-fails.json`.

use std::time::Duration;

use base_agent::events::Event;
use fakes::{Exec, Fault, Method, Program};
use model::k8s::ConfigMap;
use serde_json::{Value, json};

use crate::pods::{container, container_with, pod};
use crate::world::{World, seconds};

fn events(world: &World, reason: &str) -> Vec<Event> {
    let latest = world.agent.as_ref().unwrap().recorder().latest();
    latest.into_iter().filter(|event| event.reason == reason).collect()
}

/// The time between events of that reason and message.
fn intervals(world: &World, reason: &str, message: &str) -> Vec<Duration> {
    let all = events(world, reason);
    let at: Vec<_> = all.iter().filter(|e| e.message.starts_with(message)).map(|e| e.at.mono).collect();
    at.windows(2).map(|pair| pair[1].saturating_since(pair[0])).collect()
}

/// The delay of a retry after a failed sync: ten seconds and up to half as long again.
fn is_sync_retry(interval: &Duration) -> bool {
    (seconds(10)..Duration::from_millis(15_100)).contains(interval)
}

fn waiting_reason(world: &World, name: &str) -> Option<String> {
    let statuses = world.api_status(name).container_statuses?;
    statuses.first()?.state.clone()?.waiting?.reason
}

fn with_config_map() -> Value {
    container_with("app", json!({"envFrom": [{"configMapRef": {"name": "nowhere"}}]}))
}

#[tokio::test(start_paused = true)]
async fn failed_start_is_retried_once_after_a_second_and_then_every_ten_to_fifteen_seconds() {
    let world = World::joined().await;
    world.create(&pod("web", [with_config_map()]));
    world.until("it failed", |w| w.recorded("Failed") > 0).await;
    world.advance(seconds(120)).await;
    let retries = intervals(&world, "Failed", "Error: configmap \"nowhere\" not found");
    assert!(retries[0] >= seconds(1) && retries[0] < seconds(2), "{retries:?}");
    assert!(retries.len() > 7 && retries[1..].iter().all(is_sync_retry), "{retries:?}");
}

#[tokio::test(start_paused = true)]
async fn config_map_that_arrives_starts_the_container_without_waiting_for_the_retry() {
    let world = World::joined().await;
    world.create(&pod("web", [with_config_map()]));
    world.until("it failed thrice", |w| w.recorded("Failed") == 3).await;
    let map = json!({"metadata": {"name": "nowhere", "namespace": "default"}, "data": {"a": "b"}});
    world.api().put(&serde_json::from_value::<ConfigMap>(map).unwrap());
    let arrived = world.now();
    let runs_at = world.until("it runs", |w| w.runs("web/app")).await;
    assert!(runs_at - arrived < seconds(2), "{:?}", runs_at - arrived);
}

#[tokio::test(start_paused = true)]
async fn failed_sandbox_is_retried_once_after_a_second_and_then_every_ten_to_fifteen_seconds() {
    let world = World::joined().await;
    world.fake.fault_always(Method::RunPodSandbox, Some(Fault::Failed("no network".to_owned())));
    world.create(&pod("web", [container("app")]));
    world.until("it failed", |w| w.recorded("FailedCreatePodSandBox") > 0).await;
    world.advance(seconds(120)).await;
    let retries = intervals(&world, "FailedCreatePodSandBox", "Failed to create pod sandbox");
    assert!(retries.len() > 7 && retries[1..].iter().all(is_sync_retry), "{retries:?}");
}

/// The events repeat with each sync while the back-off lasts; the pull itself does not wait longer than that.
#[tokio::test(start_paused = true)]
async fn image_pull_back_off_events_repeat_and_the_pull_is_due_when_the_back_off_ends() {
    let world = World::joined().await;
    world.fake.unpullable("r.io/app:1", "no such host");
    world.create(&pod("web", [container_with("app", json!({"image": "r.io/app:1"}))]));
    world.until("the fifth pull failed", |w| w.recorded("Pulling") == 5).await;
    let pulls = intervals(&world, "Pulling", "");
    for (pull, back_off) in pulls.iter().zip([10, 20, 40, 80]) {
        assert!(*pull >= seconds(back_off) && *pull < seconds(back_off + 1), "{pulls:?}");
    }
    let repeated = intervals(&world, "BackOff", "Back-off pulling image \"r.io/app:1\"");
    // One a second after the first failure; then one for each retry within 20, 40 and 80 seconds.
    assert!((1 + 1 + 2 + 5..=1 + 1 + 3 + 7).contains(&(repeated.len() + 1)), "{repeated:?}");
    let failed = intervals(&world, "Failed", "Error: ImagePullBackOff");
    assert_eq!(failed, repeated, "each comes with Failed");
}

/// The event comes with the exit of the container, and again with each resync of a pod that is still in back-off.
#[tokio::test(start_paused = true)]
async fn crash_loop_back_off_event_repeats_with_each_resync() {
    let world = World::joined().await;
    world.fake.program("app", Program::exits(1, seconds(2)));
    world.create(&pod("web", [container("app")]));
    let restarts = |w: &World| w.fake.count(Method::StartContainer);
    world.until("the fourth delay ended", |w| restarts(w) == 6).await;
    let message = "Back-off restarting failed container app in pod web_default(";
    let before = intervals(&world, "BackOff", message).len() + 1;
    assert!((4..=5).contains(&before), "one for each back-off of 10, 20, 40 and 80 seconds: {before}");
    world.until("the delay of 160 seconds ended", |w| restarts(w) == 7).await;
    let during = intervals(&world, "BackOff", message).len() + 1 - before;
    assert!((2..=3).contains(&during), "at its end and every 60 to 90 seconds: {during}");
}

#[tokio::test(start_paused = true)]
async fn failed_start_is_shown_for_a_second_before_the_back_off_replaces_it() {
    let world = World::joined().await;
    world.fake.program("app", Program::runs().on_exec(|_| Exec::exits(9)));
    let hook = json!({"lifecycle": {"postStart": {"exec": {"command": ["false"]}}}});
    world.create(&pod("web", [container_with("app", hook)]));
    let reason = |w: &World| waiting_reason(w, "web");
    for _ in 0..2 {
        world.until("it backs off", |w| reason(w).as_deref() == Some("CrashLoopBackOff")).await;
        world.until("the hook failed again", |w| reason(w).as_deref() == Some("PostStartHookError")).await;
    }
}

fn refuses(world: &World, method: Method) {
    world.fake.fault_always(method, Some(Fault::Failed("the shim does not answer".to_owned())));
}

/// The time between calls of that method for that object.
fn call_intervals(world: &World, call: &str) -> Vec<Duration> {
    world.times_of(call).windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect()
}

fn backs_off(intervals: &[Duration]) -> bool {
    let [first, later @ ..] = intervals else { return false };
    (seconds(1)..seconds(2)).contains(first) && later.len() > 6 && later.iter().all(is_sync_retry)
}

#[tokio::test(start_paused = true)]
async fn refused_stop_of_a_changed_container_is_retried_like_a_failed_start() {
    let world = World::started().await;
    let mut app = container("app");
    world.apply(&pod("web", [app.clone()]).uid("u-1"));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    refuses(&world, Method::StopContainer);
    app["image"] = "app:2".into();
    world.apply(&pod("web", [app]).uid("u-1"));
    world.until("it failed", |w| w.recorded("FailedKillPod") > 0).await;
    world.advance(seconds(120)).await;
    let stops = call_intervals(&world, "StopContainer web-node/app");
    assert!(backs_off(&stops), "{stops:?}");
    world.fake.clear_faults();
    world.until("the new one runs", |w| w.restarts("web", "app") == 1 && w.is_ready("web")).await;
}

#[tokio::test(start_paused = true)]
async fn refused_removal_of_an_old_instance_is_retried_like_a_failed_start() {
    let world = World::started().await;
    let starts = |w: &World, number: u32| w.times_of(&format!("StartContainer web-node/init#{number}")).len();
    world.fake.program("init", Program::exits(1, seconds(5)));
    world.apply(&pod("web", [container("app")]).init([container("init")]));
    world.until("the first restart", |w| starts(w, 1) == 1).await;
    world.fake.program("init", Program::runs());
    refuses(&world, Method::RemoveContainer);
    world.until("the second restart", |w| starts(w, 2) == 1).await;
    let before = world.fake.count(Method::RemoveContainer);
    world.advance(seconds(120)).await;
    let removals = world.fake.count(Method::RemoveContainer) - before;
    // At once, after a second, and then every ten to fifteen seconds; garbage collection tries it twice.
    assert!((2 + 7 + 2..=2 + 12 + 2).contains(&removals), "{removals}");
    world.fake.clear_faults();
    world.until("the first instance is gone", |w| w.fake.containers().len() == 2).await;
}

#[tokio::test(start_paused = true)]
async fn refused_stop_of_a_terminating_pod_is_retried_with_back_off_and_its_hook_runs_once() {
    let world = World::joined().await;
    let hook = json!({"lifecycle": {"preStop": {"exec": {"command": ["bye"]}}}});
    world.create(&pod("web", [container_with("app", hook)]));
    world.until("it runs", |w| w.runs("web/app")).await;
    refuses(&world, Method::StopContainer);
    refuses(&world, Method::StopPodSandbox);
    world.delete("web", None);
    world.until("it failed", |w| w.recorded("FailedKillPod") > 0).await;
    world.advance(seconds(90)).await;
    for call in ["StopContainer web/app", "StopPodSandbox web"] {
        let retries: Vec<u64> = call_intervals(&world, call).iter().map(Duration::as_secs).collect();
        assert_eq!(retries.get(..5), Some(&[1, 2, 4, 8, 16][..]), "{call}: {retries:?}");
        assert!(retries.len() < 10, "{call}: {retries:?}");
    }
    assert_eq!((world.recorded("Killing"), world.fake.count(Method::ExecSync)), (1, 1));
    world.fake.clear_faults();
    world.until("nothing is left", |w| w.traces().is_empty()).await;
    assert_eq!((world.recorded("Killing"), world.fake.count(Method::ExecSync)), (1, 1));
}

fn with_deadline(seconds: u64) -> Value {
    json!({"activeDeadlineSeconds": seconds, "terminationGracePeriodSeconds": 1})
}

/// Recording: deadline.json. The deadline is noticed by the sync after the one that starts the container.
#[tokio::test(start_paused = true)]
async fn deadline_does_not_cancel_the_start_of_a_container() {
    let world = World::joined().await;
    world.fake.latency(Method::CreateContainer, seconds(2));
    world.fake.latency(Method::StartContainer, seconds(2));
    world.fake.program("app", Program::runs().ignoring_term());
    world.create(&pod("job", [container("app")]).spec(with_deadline(1)));
    world.until("it failed", |w| w.api_phase("job") == "Failed").await;
    let status = world.api_status("job");
    assert_eq!(status.reason.as_deref(), Some("DeadlineExceeded"));
    let end = status.container_statuses.unwrap()[0].state.clone().unwrap().terminated.unwrap();
    assert_eq!((end.exit_code, end.reason.as_deref()), (137, Some("Error")));
    assert_eq!((world.recorded("Started"), world.recorded("Killing")), (1, 1));
    world.advance(seconds(60)).await;
    // Each status that the Go kubelet generates past the deadline has its event: the sync that notices it, before and
    // after stopping, and the last one.
    assert_eq!(world.recorded("DeadlineExceeded"), 4);
}

fn image_volume_pod(volume_image: &str) -> crate::pods::Manifest {
    let mounts = json!({"volumeMounts": [{"name": "v", "mountPath": "/v"}], "image": "r.io/app:1"});
    let volumes = json!({"volumes": [{"name": "v", "image": {"reference": volume_image}}]});
    pod("web", [container_with("app", mounts)]).spec(volumes)
}

/// Recording: image-volume-missing.json.
#[tokio::test(start_paused = true)]
async fn image_volumes_are_pulled_before_the_image_of_the_container() {
    let world = World::joined().await;
    world.fake.unpullable("r.io/data:9", "no such host");
    world.create(&image_volume_pod("r.io/data:9"));
    world.until("it backs off", |w| waiting_reason(w, "web").as_deref() == Some("ImagePullBackOff")).await;
    let all = world.agent.as_ref().unwrap().recorder().latest();
    let about_pod = all.into_iter().filter(|event| event.about.pod().is_some_and(|pod| *pod.name == *"web"));
    let shown: Vec<String> = about_pod
        .map(|e| format!("{} {}: {}", e.container.unwrap_or_default(), e.reason, e.message))
        .collect();
    let expected = [
        " Pulling: Pulling image \"r.io/data:9\"",
        " Failed: Failed to pull image \"r.io/data:9\": no such host",
        "app Failed: Error: ErrImagePull",
        " BackOff: Back-off pulling image \"r.io/data:9\"",
        "app Failed: Error: ImagePullBackOff",
    ];
    assert_eq!(shown, expected);
}

#[tokio::test(start_paused = true)]
async fn image_volume_that_no_container_mounts_is_pulled_and_holds_nothing_back() {
    let world = World::joined().await;
    world.fake.unpullable("r.io/data:9", "no such host");
    let volumes = json!({"volumes": [{"name": "v", "image": {"reference": "r.io/data:9"}}]});
    world.create(&pod("web", [container("app")]).spec(volumes));
    world.until("it runs", |w| w.runs("web/app")).await;
    assert_eq!(intervals(&world, "Pulling", "Pulling image \"r.io/data:9\"").len(), 0);
    assert_eq!(events(&world, "Failed").len(), 1, "the pull, and no container");
}

/// As in the CRI client of the Go kubelet: only the code `Unknown` is left out.
#[tokio::test(start_paused = true)]
async fn pull_error_keeps_its_grpc_code_unless_it_is_unknown() {
    let world = World::joined().await;
    world.fake.fault_always(Method::PullImage, Some(Fault::NotFound));
    world.create(&pod("web", [container_with("app", json!({"image": "r.io/app:1"}))]));
    world.until("it failed", |w| waiting_reason(w, "web").is_some_and(|r| r == "ImagePullBackOff")).await;
    let failed = events(&world, "Failed");
    let start = "Failed to pull image \"r.io/app:1\": rpc error: code = NotFound desc = ";
    assert!(failed[0].message.starts_with(start), "{}", failed[0].message);
}

/// Recording: pre-stop-too-long.json. The hook fails with its container, which is killed when the grace period ends.
#[tokio::test(start_paused = true)]
async fn pre_stop_hook_that_outlasts_the_grace_period_emits_failed_pre_stop_hook() {
    let world = World::joined().await;
    world.fake.program("app", Program::runs().on_exec(|_| Exec::exits(0).taking(seconds(30))));
    let hook = json!({"lifecycle": {"preStop": {"exec": {"command": ["sleep", "30"]}}}});
    world.create(&pod("web", [container_with("app", hook)]));
    world.until("it runs", |w| w.runs("web/app")).await;
    world.delete("web", Some(3));
    world.until("it is gone", |w| w.in_api("web").is_none()).await;
    let failed: Vec<String> = events(&world, "FailedPreStopHook").into_iter().map(|e| e.message).collect();
    assert_eq!(failed, ["PreStopHook failed"]);
}

#[tokio::test(start_paused = true)]
async fn sleep_hook_that_outlasts_the_grace_period_emits_nothing() {
    let world = World::joined().await;
    let hook = json!({"lifecycle": {"preStop": {"sleep": {"seconds": 30}}}});
    world.create(&pod("web", [container_with("app", hook)]));
    world.until("it runs", |w| w.runs("web/app")).await;
    world.delete("web", Some(3));
    world.until("it is gone", |w| w.in_api("web").is_none()).await;
    assert_eq!(world.recorded("FailedPreStopHook"), 0);
}
