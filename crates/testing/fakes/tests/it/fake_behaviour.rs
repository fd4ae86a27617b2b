//! What only a fake does: follow a script. Tests of the kubelet depend on each of these.

use std::sync::Arc;
use std::time::Duration;

use fakes::{Exec, FakeRuntime, Fault, Method, Program};
use harness::containerd::BUSYBOX_IMAGE;
use model::{ContainerState, SandboxState};
use ports::runtime::{RuntimeError, Scope};
use tokio::time::Instant;

use crate::world::{Does, World, command, image};

/// A world around a fake, whose programs the test sets itself.
fn world() -> (FakeRuntime, World) {
    let fake = FakeRuntime::new();
    fake.image(BUSYBOX_IMAGE);
    let world = World {
        runtime: Arc::new(fake.clone()),
        logs: "/nonexistent".into(),
        cgroup_root: String::new(),
        has_processes: false,
        fake: None,
    };
    (fake, world)
}

/// Creates and starts `web/<name>` as the given attempt.
async fn start(world: &World, name: &str, attempt: u32) -> model::ContainerId {
    let request = world.sandbox_request("web");
    let sandboxes = world.runtime.list_sandboxes(&Scope::Node).await.unwrap();
    let sandbox = match sandboxes.first() {
        Some(sandbox) => sandbox.id.clone(),
        None => world.runtime.run_sandbox(&request).await.unwrap(),
    };
    let mut container = world.container_request(&request, name, Does::Sleep);
    container.attempt = attempt;
    let id = world.runtime.create_container(&sandbox, &container, &request).await.unwrap();
    world.runtime.start_container(&id).await.unwrap();
    id
}

#[tokio::test(start_paused = true)]
async fn fake_clock_advances_hours_at_once() {
    let (fake, world) = world();
    fake.program("job", Program::exits(3, Duration::from_secs(7200)).with_message("done"));
    let id = start(&world, "job", 0).await;
    tokio::time::sleep(Duration::from_secs(7199)).await;
    assert_eq!(world.status(&id).await.state, ContainerState::Running);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let ended = world.status(&id).await;
    assert_eq!((ended.state, ended.exit_code, ended.message.as_str()), (ContainerState::Exited, 3, "done"));
    let ran = ended.finished_at.unwrap().duration_since(ended.started_at.unwrap());
    assert_eq!(ran.as_secs(), 7200);
}

#[tokio::test(start_paused = true)]
async fn fake_program_can_differ_by_restart() {
    let (fake, world) = world();
    let short = Duration::from_secs(1);
    fake.programs("app", vec![Program::exits(1, short), Program::runs_out_of_memory(short), Program::runs()]);
    let mut ends = Vec::new();
    for attempt in 0..4 {
        let id = start(&world, "app", attempt).await;
        tokio::time::sleep(short).await;
        let status = world.status(&id).await;
        ends.push((status.state, status.exit_code, status.reason));
        fake.end_container("web", "app", 0);
    }
    let line = |state, code, reason: &str| (state, code, reason.to_owned());
    assert_eq!(
        ends,
        [
            line(ContainerState::Exited, 1, "Error"),
            line(ContainerState::Exited, 137, "OOMKilled"),
            line(ContainerState::Running, 0, ""),
            line(ContainerState::Running, 0, ""),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn fake_programs_are_selected_by_image() {
    let (fake, world) = world();
    fake.program(BUSYBOX_IMAGE, Program::exits(4, Duration::ZERO));
    let id = start(&world, "app", 0).await;
    assert_eq!(world.status(&id).await.exit_code, 4);
}

#[tokio::test(start_paused = true)]
async fn runtime_call_may_succeed_and_time_out() {
    let (fake, world) = world();
    fake.set_request_timeout(Duration::from_secs(15));
    fake.fault(Method::RunPodSandbox, Fault::TimedOutAfterDoing);
    fake.fault(Method::RunPodSandbox, Fault::TimedOut);
    let mut request = world.sandbox_request("web");
    let began = Instant::now();
    let error = world.runtime.run_sandbox(&request).await.unwrap_err();
    assert!(matches!(error, RuntimeError::TimedOut { call: "RunPodSandbox", .. }), "{error:?}");
    assert_eq!(began.elapsed(), Duration::from_secs(15));
    assert_eq!(fake.ready_sandboxes(), ["web"]);

    request.attempt = 1;
    world.runtime.run_sandbox(&request).await.unwrap_err();
    assert_eq!(fake.ready_sandboxes(), ["web"], "the second one did nothing");

    request.attempt = 0;
    let again = world.runtime.run_sandbox(&request).await.unwrap_err();
    assert!(matches!(again, RuntimeError::AlreadyExists { .. }), "{again:?}");
}

#[tokio::test(start_paused = true)]
async fn queued_faults_apply_before_the_permanent_fault() {
    let (fake, world) = world();
    fake.fault_always(Method::Status, Some(Fault::Failed("always".to_owned())));
    fake.fault(Method::Status, Fault::Slow(Duration::from_secs(5)));
    fake.fault(Method::Status, Fault::UnavailableAfterDoing);
    let began = Instant::now();
    world.runtime.status().await.unwrap();
    assert_eq!(began.elapsed(), Duration::from_secs(5));
    let second = world.runtime.status().await.unwrap_err();
    assert!(matches!(second, RuntimeError::Unavailable { .. }), "{second:?}");
    for _ in 0..3 {
        assert_eq!(world.runtime.status().await.unwrap_err().message(), "always");
    }
    fake.fault_always(Method::Status, None);
    world.runtime.status().await.unwrap();
    assert_eq!(fake.count(Method::Status), 6);
}

#[tokio::test(start_paused = true)]
async fn runtime_call_can_hang_forever() {
    let (fake, world) = world();
    fake.fault(Method::PullImage, Fault::Hang);
    let sandbox = world.sandbox_request("web");
    let request = image("localhost/slow:1");
    let pull = world.runtime.pull_image(&request, None, &sandbox);
    assert!(tokio::time::timeout(Duration::from_secs(86_400), pull).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn containers_keep_running_while_the_runtime_is_down() {
    let (fake, world) = world();
    let id = start(&world, "app", 0).await;
    fake.set_down(true);
    let error = world.runtime.container_status(&id).await.unwrap_err();
    assert!(matches!(error, RuntimeError::Unavailable { .. }), "{error:?}");
    assert_eq!(fake.running(), ["web/app"]);
    fake.set_down(false);
    assert_eq!(world.status(&id).await.state, ContainerState::Running);
}

#[tokio::test(start_paused = true)]
async fn fake_images_are_pulled_or_rejected() {
    let (fake, world) = world();
    fake.unpullable("localhost/secret:1", "unauthorized").latency(Method::PullImage, Duration::from_secs(3));
    let sandbox = world.sandbox_request("web");
    let began = Instant::now();
    let name = "registry.example:5000/app:1";
    let pulled = world.runtime.pull_image(&image(name), None, &sandbox).await.unwrap();
    assert_eq!(began.elapsed(), Duration::from_secs(3));
    let found = world.runtime.image_status(&image(name)).await.unwrap().unwrap();
    assert_eq!(found.id, pulled);
    assert_eq!(found.repo_digests, [format!("registry.example:5000/app@{pulled}")]);
    let refused = world.runtime.pull_image(&image("localhost/secret:1"), None, &sandbox).await.unwrap_err();
    assert_eq!(refused.message(), "unauthorized");
    world.runtime.remove_image(&image(&pulled)).await.unwrap();
    assert_eq!(world.runtime.image_status(&image(name)).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn exec_commands_are_answered_by_the_fake_program() {
    let (fake, world) = world();
    fake.program(
        "app",
        Program::runs().on_exec(|command| match command.last().map(String::as_str) {
            Some("ready") => Exec::exits(0).printing("yes"),
            Some("slow") => Exec::exits(0).taking(Duration::from_secs(9)),
            Some(_) | None => Exec::exits(127).complaining("not found"),
        }),
    );
    let id = start(&world, "app", 0).await;
    let run = |script: &'static str, timeout: u64| {
        let (runtime, id) = (Arc::clone(&world.runtime), id.clone());
        async move { runtime.exec_sync(&id, &command(script), Duration::from_secs(timeout)).await }
    };
    assert_eq!(run("ready", 1).await.unwrap().stdout, b"yes");
    assert_eq!(run("nonsense", 1).await.unwrap().exit_code, 127);
    assert!(matches!(run("slow", 5).await.unwrap_err(), RuntimeError::TimedOut { .. }));
    assert_eq!(run("slow", 10).await.unwrap().exit_code, 0);
}

#[tokio::test(start_paused = true)]
async fn stop_container_completes_after_the_caller_stopped_waiting() {
    let (fake, world) = world();
    fake.program("app", Program::runs().ignoring_term());
    let id = start(&world, "app", 0).await;
    let stop = world.runtime.stop_container(&id, Duration::from_secs(30));
    assert!(tokio::time::timeout(Duration::from_secs(1), stop).await.is_err());
    tokio::time::sleep(Duration::from_secs(29)).await;
    assert_eq!(world.status(&id).await.exit_code, 137);
}

#[tokio::test(start_paused = true)]
async fn shorter_grace_period_overrides_a_longer_one() {
    let (fake, world) = world();
    fake.program("app", Program::runs().ignoring_term());
    let id = start(&world, "app", 0).await;
    let long = {
        let (runtime, id) = (Arc::clone(&world.runtime), id.clone());
        tokio::spawn(async move { runtime.stop_container(&id, Duration::from_secs(600)).await })
    };
    tokio::time::sleep(Duration::from_secs(1)).await;
    let began = Instant::now();
    world.runtime.stop_container(&id, Duration::from_secs(2)).await.unwrap();
    assert_eq!(began.elapsed(), Duration::from_secs(2));
    assert_eq!(world.status(&id).await.state, ContainerState::Exited);
    long.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn container_exit_is_observed_and_sent_as_an_event() {
    use futures_util::StreamExt;
    let (fake, world) = world();
    fake.offer_hints();
    let id = start(&world, "app", 0).await;
    let mut hints = world.runtime.hints().await.unwrap();
    assert!(fake.end_container("web", "app", 9));
    assert!(!fake.end_container("web", "app", 9), "it has exited already");
    assert_eq!(world.status(&id).await.exit_code, 9);
    assert_eq!(hints.next().await.unwrap().pod.as_str(), "uid-of-web");

    fake.kill_sandboxes("web");
    assert_eq!(hints.next().await.unwrap().pod.as_str(), "uid-of-web");
    let sandboxes = world.runtime.list_sandboxes(&Scope::Node).await.unwrap();
    assert_eq!(sandboxes[0].state, SandboxState::NotReady);
    assert_eq!(fake.ready_sandboxes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn double_start_of_a_container_is_recorded() {
    let (fake, world) = world();
    start(&world, "app", 0).await;
    assert_eq!(fake.double_starts(), Vec::<String>::new());
    start(&world, "app", 1).await;
    assert_eq!(fake.double_starts(), ["web/app#1 started while web/app ran"]);
}

#[tokio::test(start_paused = true)]
async fn call_log_lists_calls_in_order() {
    let (fake, world) = world();
    let id = start(&world, "app", 2).await;
    world.status(&id).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    world.runtime.stop_container(&id, Duration::from_secs(1)).await.unwrap();
    world.runtime.remove_container(&id).await.unwrap();
    let lines: Vec<String> = fake.calls().iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "0ns RunPodSandbox web",
            "0ns CreateContainer web/app#2",
            "0ns StartContainer web/app#2",
            "5s StopContainer web/app#2",
            "5s RemoveContainer web/app#2",
        ]
    );
    fake.forget_calls();
    assert_eq!(fake.call_lines(), Vec::<String>::new());
}
