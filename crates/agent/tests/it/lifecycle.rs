//! Scenarios of the container lifecycle: order of starts, hooks, kills for a restart, and manifests that come back.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use base_agent::events::Event;
use fakes::{Exec, Fault, HostFault, HostMethod, Method, Program, Service};
use parking_lot::Mutex;
use ports::Runtime;
use serde_json::{Value, json};

use crate::pods::{container, container_with, pod};
use crate::world::{PODS, World, seconds};

fn events(world: &World, reason: &str) -> Vec<Event> {
    let latest = world.agent.iter().flat_map(|agent| agent.recorder().latest());
    latest.filter(|event| event.reason == reason).collect()
}

fn messages(world: &World, reason: &str) -> Vec<String> {
    events(world, reason).into_iter().map(|event| event.message).collect()
}

fn hook(kind: &str, command: &str) -> Value {
    json!({"lifecycle": {kind: {"exec": {"command": ["sh", "-c", command]}}}})
}

/// `waiting:Reason`, `running` or `terminated` of a container.
fn state(world: &World, pod: &str, name: &str) -> String {
    let state = world.container(pod, name).and_then(|c| c.state).unwrap_or_default();
    match (state.waiting, state.running, state.terminated) {
        (Some(waiting), ..) => format!("waiting:{}", waiting.reason.unwrap_or_default()),
        (_, Some(_), _) => "running".to_owned(),
        (.., Some(_)) => "terminated".to_owned(),
        (None, None, None) => String::new(),
    }
}

// Recording: post-start-order.json.
#[tokio::test(start_paused = true)]
async fn post_start_hook_of_a_regular_container_holds_back_the_next_container() {
    let world = World::started().await;
    world.fake.program("proxy", Program::runs().on_exec(|_| Exec::exits(0).taking(seconds(3))));
    let proxy = container_with("proxy", hook("postStart", "wait"));
    world.apply(&pod("mesh", [proxy, container("app")]));
    world.until("the pod is ready", |w| w.is_ready("mesh")).await;
    let at = |line: &str| world.times_of(line)[0];
    assert!(at("CreateContainer mesh-node/app") >= at("StartContainer mesh-node/proxy") + seconds(3));
    let order: Vec<(String, String)> = world
        .agent
        .iter()
        .flat_map(|agent| agent.recorder().latest())
        .filter(|event| ["Created", "Started"].contains(&&*event.reason))
        .map(|event| (event.container.unwrap_or_default(), event.reason.to_string()))
        .collect();
    let expected = [("proxy", "Created"), ("proxy", "Started"), ("app", "Created"), ("app", "Started")];
    assert_eq!(order, expected.map(|(name, reason)| (name.to_owned(), reason.to_owned())));
}

#[tokio::test(start_paused = true)]
async fn regular_container_that_cannot_be_created_does_not_hold_back_the_next_container() {
    let world = World::started().await;
    world.fake.fault(Method::CreateContainer, Fault::Failed("no".to_owned()));
    world.apply(&pod("web", [container("first"), container("second")]));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    let is_of_container = |line: &String| line.contains("Container web-node/");
    let lines: Vec<String> = world.fake.call_lines().into_iter().filter(is_of_container).collect();
    let expected = [
        "CreateContainer web-node/first",
        "CreateContainer web-node/second",
        "StartContainer web-node/second",
        "CreateContainer web-node/first",
        "StartContainer web-node/first",
    ];
    assert_eq!(lines, expected);
}

/// Replaces the image of a running container whose process exits with 0, and returns the states that were shown until the new
/// instance ran.
async fn states_during_image_change(policy: &str) -> Vec<String> {
    let world = World::started().await;
    world.fake.program("app", Program::runs().stopping(Duration::from_millis(300), 0));
    world.fake.latency(Method::StartContainer, seconds(2));
    let mut app = container("app");
    let manifest =
        |app: &Value| pod("web", [app.clone(), container("side")]).restart_policy(policy).uid("u-1");
    world.apply(&manifest(&app));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    app["image"] = "app:2".into();
    world.apply(&manifest(&app));
    let changed = world.now();
    let seen = Mutex::new(Vec::new());
    world
        .until("the new image runs", |w| {
            let now = state(w, "web", "app");
            let mut seen = seen.lock();
            if seen.last() != Some(&now) {
                seen.push(now);
            }
            drop(seen);
            let app = w.container("web", "app").unwrap_or_default();
            app.restart_count == 1 && app.image == "app:2" && app.state.is_some_and(|s| s.running.is_some())
        })
        .await;
    assert!(world.now() < changed + seconds(20), "{policy}: {:?}", world.now() - changed);
    let last = world.container("web", "app").unwrap().last_state.unwrap().terminated.unwrap();
    assert_eq!(last.exit_code, 0);
    assert_eq!((world.restarts("web", "side"), world.times_of("StopContainer web-node/side").len()), (0, 0));
    world.advance(seconds(60)).await;
    assert_eq!(state(&world, "web", "app"), "running", "{policy}");
    seen.into_inner()
}

// Recording: image-changed.json; the API refuses the way back from terminated under OnFailure and Never.
#[tokio::test(start_paused = true)]
async fn image_change_never_shows_terminated_under_any_restart_policy() {
    for policy in ["Always", "OnFailure", "Never"] {
        let states = states_during_image_change(policy).await;
        assert_eq!(states, ["running"], "{policy}");
    }
}

#[tokio::test(start_paused = true)]
async fn failed_image_pull_after_an_image_change_shows_waiting_with_last_state() {
    let world = World::started().await;
    world.fake.program("app", Program::runs().stopping(Duration::from_millis(300), 0));
    let mut app = container("app");
    let manifest = |app: &Value| pod("web", [app.clone()]).restart_policy("Never").uid("u-1");
    world.apply(&manifest(&app));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    world.fake.unpullable("app:2", "no such image");
    app["image"] = "app:2".into();
    world.apply(&manifest(&app));
    world.until("the pull failed", |w| !messages(w, "Failed").is_empty()).await;
    for _ in 0..1000 {
        let now = state(&world, "web", "app");
        assert!(now.starts_with("waiting:"), "{now}");
        world.advance(Duration::from_millis(60)).await;
    }
    assert_eq!(world.phase("web").as_deref(), Some("Running"));
    assert!(world.container("web", "app").unwrap().last_state.unwrap().terminated.is_some());
}

// Recording: liveness.json.
#[tokio::test(start_paused = true)]
async fn failed_liveness_probe_under_on_failure_never_shows_terminated() {
    let world = World::started().await;
    world.fake.program("app", Program::runs().stopping(Duration::from_millis(300), 0));
    world.fake.latency(Method::StartContainer, seconds(2));
    world.net.serve(80, Service::Silent);
    let probe =
        json!({"livenessProbe": {"tcpSocket": {"port": 80}, "periodSeconds": 1, "failureThreshold": 1}});
    world.apply(&pod("web", [container_with("app", probe)]).restart_policy("OnFailure"));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    world.net.close(80);
    let seen = Mutex::new(BTreeSet::new());
    world
        .until("it was restarted", |w| {
            seen.lock().insert(state(w, "web", "app"));
            w.restarts("web", "app") == 1 && state(w, "web", "app") == "running"
        })
        .await;
    assert!(!seen.lock().contains("terminated"), "{seen:?}");
    assert_eq!(messages(&world, "Killing")[0], "Container app failed liveness probe, will be restarted");
}

// Recording: startup-fails.json.
#[tokio::test(start_paused = true)]
async fn failed_startup_probe_under_never_stops_the_container_for_good() {
    let world = World::started().await;
    let probe =
        json!({"startupProbe": {"tcpSocket": {"port": 80}, "periodSeconds": 1, "failureThreshold": 3}});
    world.apply(&pod("web", [container_with("app", probe)]).restart_policy("Never"));
    world.until("it failed", |w| w.phase("web").as_deref() == Some("Failed")).await;
    assert_eq!(messages(&world, "Killing"), ["Stopping container app"]);
}

#[tokio::test(start_paused = true)]
async fn failed_liveness_probe_under_never_does_not_promise_a_restart() {
    let world = World::started().await;
    world.net.serve(80, Service::Silent);
    let probe =
        json!({"livenessProbe": {"tcpSocket": {"port": 80}, "periodSeconds": 1, "failureThreshold": 1}});
    world.apply(&pod("web", [container_with("app", probe), container("side")]).restart_policy("Never"));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    world.net.close(80);
    world.until("it has ended", |w| state(w, "web", "app") == "terminated").await;
    assert_eq!(messages(&world, "Killing"), ["Container app failed liveness probe"]);
    assert!(world.runs("web-node/side"));
}

// Recording: pre-stop-fails.json.
#[tokio::test(start_paused = true)]
async fn failed_pre_stop_hook_does_not_put_its_output_into_the_event() {
    let world = World::started().await;
    world.fake.program("app", Program::runs().on_exec(|_| Exec::exits(9).printing("secret\n")));
    world.apply(&pod("web", [container_with("app", hook("preStop", "echo secret; exit 9"))]));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    world.remove("web");
    world.until("nothing is left", |w| w.traces().is_empty()).await;
    assert_eq!(messages(&world, "FailedPreStopHook"), ["PreStopHook failed"]);
}

// Recording: post-start-fails.json.
#[tokio::test(start_paused = true)]
async fn failed_post_start_hook_shows_its_error_in_the_waiting_message_only() {
    let world = World::started().await;
    world.fake.latency(Method::StartContainer, seconds(1));
    world.fake.program("app", Program::runs().on_exec(|_| Exec::exits(9).printing("because\n")));
    world.apply(&pod("web", [container_with("app", hook("postStart", "echo because; exit 9"))]).uid("u-1"));
    world.until("the hook failed", |w| state(w, "web", "app") == "waiting:PostStartHookError").await;
    let waiting = world.container("web", "app").unwrap().state.unwrap().waiting.unwrap();
    assert_eq!(
        waiting.message.as_deref(),
        Some(
            "Exec lifecycle hook ([sh -c echo because; exit 9]) for Container \"app\" in Pod \
             \"web-node_default(u-1)\" failed - error: command 'sh -c echo because; exit 9' exited with 9: , \
             message: \"because\\n\""
        )
    );
    assert_eq!(messages(&world, "FailedPostStartHook")[0], "PostStartHook failed");
}

#[tokio::test(start_paused = true)]
async fn output_of_a_failed_post_start_hook_is_bounded_in_the_waiting_message() {
    let world = World::started().await;
    let loud = Exec::exits(1).printing(&"x".repeat(1 << 20)).complaining(&"y".repeat(1 << 20));
    world.fake.latency(Method::StartContainer, seconds(1));
    world.fake.program("app", Program::runs().on_exec(move |_| loud.clone()));
    world.apply(&pod("web", [container_with("app", hook("postStart", "loud"))]));
    world.until("the hook failed", |w| state(w, "web", "app") == "waiting:PostStartHookError").await;
    let waiting = world.container("web", "app").unwrap().state.unwrap().waiting.unwrap();
    assert!(waiting.message.unwrap().len() < 10_000);
}

#[tokio::test(start_paused = true)]
async fn https_hook_that_falls_back_to_http_drops_the_authorization_header() {
    let world = World::started().await;
    world.net.serve(8443, Service::PlainHttp);
    let headers = json!([{"name": "Authorization", "value": "secret"}, {"name": "X-Kept", "value": "1"}]);
    let get = json!({"path": "/start", "port": 8443, "scheme": "HTTPS", "httpHeaders": headers});
    let app = container_with("app", json!({"lifecycle": {"postStart": {"httpGet": get}}}));
    world.apply(&pod("web", [app]));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    let names: Vec<Vec<String>> = world
        .net
        .http_requests()
        .iter()
        .map(|request| request.headers.iter().map(|(name, _)| name.to_ascii_lowercase()).collect())
        .collect();
    assert_eq!(names.len(), 2);
    assert!(names[0].contains(&"authorization".to_owned()));
    assert!(!names[1].contains(&"authorization".to_owned()) && names[1].contains(&"x-kept".to_owned()));
    let message = &messages(&world, "LifecycleHTTPFallback")[0];
    assert!(message.contains(":8443 got HTTP response, retry with HTTP succeeded"), "{message}");
}

fn silent_http_hook(kind: &str) -> Value {
    container_with("app", json!({"lifecycle": {kind: {"httpGet": {"path": "/", "port": 8080}}}}))
}

#[tokio::test(start_paused = true)]
async fn http_post_start_hook_without_an_answer_is_waited_for_and_ends_with_the_pod() {
    let world = World::started().await;
    world.net.serve(8080, Service::Silent);
    world.apply(&pod("web", [silent_http_hook("postStart")]));
    world.until("it runs", |w| w.runs("web-node/app")).await;
    world.advance(seconds(600)).await;
    assert!(world.runs("web-node/app") && !world.is_ready("web"), "{}", world.describe());
    assert_eq!((world.restarts("web", "app"), world.net.http_requests().len()), (0, 1));
    world.remove("web");
    world.until("nothing is left", |w| w.traces().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn http_pre_stop_hook_without_an_answer_gets_the_whole_grace_period() {
    let world = World::started().await;
    world.net.serve(8080, Service::Silent);
    let manifest = pod("web", [silent_http_hook("preStop")]);
    world.apply(&manifest.spec(json!({"terminationGracePeriodSeconds": 120})));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    world.remove("web");
    let removed = world.now();
    let ended = world.until("nothing runs", |w| w.fake.running().is_empty()).await;
    assert!(ended - removed >= seconds(120) && ended - removed < seconds(123), "{:?}", ended - removed);
}

/// Sidecars whose preStop hooks never end get the grace period, then the minimum of two seconds, all at once.
#[tokio::test(start_paused = true)]
async fn sidecars_with_endless_pre_stop_hooks_end_together_after_grace_plus_two_seconds() {
    let world = World::started().await;
    let endless = Program::runs().ignoring_term().on_exec(|_| Exec::exits(0).taking(seconds(100_000)));
    let names = ["first", "second", "third"];
    for name in names {
        world.fake.program(name, endless.clone());
    }
    world.fake.program("app", Program::runs());
    let sidecar = |name: &str| {
        let mut sidecar = container_with(name, hook("preStop", "sleep infinity"));
        sidecar["restartPolicy"] = "Always".into();
        sidecar
    };
    let manifest = pod("mesh", [container("app")]).init(names.map(sidecar));
    world.apply(&manifest.spec(json!({"terminationGracePeriodSeconds": 3})));
    world.until("the pod is ready", |w| w.is_ready("mesh")).await;
    world.remove("mesh");
    let removed = world.now();
    let first = world.until("one has ended", |w| w.fake.running().len() < 4).await;
    let last = world.until("all have ended", |w| w.fake.running().is_empty()).await;
    assert!(first - removed < seconds(1), "the regular container has no hook and ends at once: {first:?}");
    let took = last - removed;
    assert!(took >= seconds(5) && took < seconds(6), "{took:?}");
    let stops: Vec<Duration> =
        names.iter().map(|name| world.times_of(&format!("StopContainer mesh-node/{name}"))[0]).collect();
    let spread = stops.iter().max().unwrap().saturating_sub(*stops.iter().min().unwrap());
    assert!(spread < seconds(1), "{stops:?}");
}

/// Deletes the manifest and writes it again before the kubelet can read the directory.
#[tokio::test(start_paused = true)]
async fn static_manifest_deleted_and_written_again_at_once_restarts_its_containers() {
    let world = World::started().await;
    let manifest = pod("web", [container("app")]);
    world.apply(&manifest);
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    world.remove("web");
    world.apply(&manifest);
    world.until("it runs again", |w| w.restarts("web", "app") == 1 && w.is_ready("web")).await;
    world.advance(seconds(60)).await;
    assert!(world.is_ready("web"));
    assert_eq!(world.restarts("web", "app"), 1);
    assert_eq!(world.fake.double_starts(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn static_manifest_written_again_during_termination_restarts_its_containers() {
    let world = World::started().await;
    world.fake.program("app", Program::runs().stopping(seconds(2), 0));
    let manifest = pod("web", [container("app")]);
    world.apply(&manifest);
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    world.remove("web");
    world.until("it gets SIGTERM", |w| !w.times_of("StopContainer web-node/app").is_empty()).await;
    world.apply(&manifest);
    world.until("it runs again", |w| w.restarts("web", "app") == 1 && w.is_ready("web")).await;
}

/// Its records are being removed when the manifest is back: the next pod of that UID does not show them as its own.
#[tokio::test(start_paused = true)]
async fn static_manifest_written_again_during_removal_starts_a_pod_that_was_never_restarted() {
    let world = World::started().await;
    let manifest = pod("web", [container("app")]);
    world.apply(&manifest);
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    world.fake.end_container("web-node", "app", 1);
    world.until("it was restarted", |w| w.restarts("web", "app") == 1 && w.is_ready("web")).await;
    world.fake.fault_always(Method::RemoveContainer, Some(Fault::Slow(seconds(5))));
    world.remove("web");
    world.until("it is being removed", |w| !w.times_of("RemoveContainer web-node/app#1").is_empty()).await;
    world.apply(&manifest);
    world.advance(seconds(1)).await;
    assert_eq!(world.status("web"), None, "{}", world.describe());
    world.until("it runs again", |w| w.is_ready("web")).await;
    assert_eq!(world.restarts("web", "app"), 0);
}

/// The Go kubelet leaves such a record to container garbage collection.
#[tokio::test(start_paused = true)]
async fn container_record_that_the_runtime_refuses_to_remove_does_not_keep_its_pod() {
    let world = World::started().await;
    let manifest = pod("web", [container("app")]).uid("u-1");
    world.apply(&manifest);
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    world.fake.fault_always(Method::RemoveContainer, Some(Fault::Failed("busy".to_owned())));
    world.fake.fault_always(Method::RemovePodSandbox, Some(Fault::Failed("busy".to_owned())));
    world.remove("web");
    let removed = world.now();
    let gone = world.until("it is no longer listed", |w| w.status("web").is_none()).await;
    assert!(gone < removed + seconds(10), "{:?}", gone - removed);
    assert!(world.host.files_below(PODS).is_empty(), "{:?}", world.host.files_below(PODS));
    world.apply(&manifest);
    world.until("a new pod of the same UID runs", |w| w.is_ready("web")).await;
    world.remove("web");
    world.until("it is no longer listed", |w| w.status("web").is_none()).await;
    world.fake.clear_faults();
    world.until("garbage collection removed the records", |w| w.traces().is_empty()).await;
}

/// The API does not keep the status of a static pod: after a restart of the kubelet only the runtime knows how its init
/// containers ended.
#[tokio::test(start_paused = true)]
async fn completed_init_container_without_a_record_is_taken_as_exited_normally_after_a_restart() {
    let mut world = World::started().await;
    world.fake.program("init", Program::exits(0, seconds(1)));
    world.apply(&pod("web", [container("app")]).init([container("init")]));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    world.crash().await;
    let init = world.fake.containers().into_iter().map(|(_, c)| c).find(|c| &*c.name == "init").unwrap().id;
    world.fake.remove_container(&init).await.unwrap();
    world.start().await;
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    let end = world.container("web", "init").unwrap().state.unwrap().terminated.unwrap();
    assert_eq!((end.exit_code, end.reason.as_deref()), (0, Some("Completed")));
    assert_eq!(
        end.message.as_deref(),
        Some(
            "Unable to get init container status from container runtime and pod has been initialized, treat it as \
             exited normally"
        )
    );
    assert_eq!(world.times_of("StartContainer web-node/init").len(), 1);
    assert_eq!(world.restarts("web", "app"), 0);
}

#[tokio::test(start_paused = true)]
async fn pod_data_directories_that_cannot_be_made_are_reported_as_failed() {
    let world = World::started().await;
    world.host.fault_below(HostMethod::EnsureDir, format!("{PODS}/u-1/plugins"), HostFault::Fails);
    world.apply(&pod("web", [container("app")]).uid("u-1"));
    world.until("it was reported", |w| !messages(w, "Failed").is_empty()).await;
    let message = &messages(&world, "Failed")[0];
    assert!(message.starts_with("error making pod data directories: "), "{message}");
    assert_eq!(messages(&world, "FailedMount"), Vec::<String>::new());
}

/// `$(VAR)` in the command of an exec probe stands for the value in the spec, as in the command of the container.
#[tokio::test(start_paused = true)]
async fn exec_probe_command_is_expanded_from_the_static_environment() {
    let world = World::started().await;
    let probed_commands = Arc::new(Mutex::new(Vec::new()));
    let commands = probed_commands.clone();
    world.fake.program(
        "app",
        Program::runs().on_exec(move |command| {
            commands.lock().push(command.join(" "));
            Exec::exits(0)
        }),
    );
    let probe = json!({
        "env": [{"name": "PORT", "value": "80"}],
        "readinessProbe": {"exec": {"command": ["check", "$(PORT)", "$$(PORT)", "$(NONE)"]}, "periodSeconds": 1},
    });
    world.apply(&pod("web", [container_with("app", probe)]));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    assert_eq!(probed_commands.lock()[0], "check 80 $(PORT) $(NONE)");
}

/// Garbage collection runs every minute.
#[tokio::test(start_paused = true)]
async fn dead_containers_beyond_the_newest_are_removed_as_soon_as_the_next_one_has_ended() {
    let world = World::started().await;
    world.fake.program("app", Program::exits(1, Duration::from_millis(100)));
    world.apply(&pod("crash", [container("app")]));
    let starts = |w: &World| {
        w.fake.call_lines().iter().filter(|line| line.starts_with("StartContainer crash-node/app")).count()
    };
    world.until("it was started three times", |w| starts(w) == 3).await;
    world.advance(seconds(3)).await;
    assert!(world.now() < seconds(55), "{:?}", world.now());
    let left: Vec<String> =
        world.fake.containers().iter().map(|(_, container)| container.id.to_string()).collect();
    assert_eq!(left.len(), 1, "{left:?}");
}
