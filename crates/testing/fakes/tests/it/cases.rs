//! The contract: what the kubelet relies on in any container runtime, a case for each promise.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use fakes::{Fault, Method};
use harness::containerd::BUSYBOX_IMAGE;
use model::annotations as keys;
use model::observation::NamespaceMode;
use model::{ContainerId, ContainerState, PodUid, SandboxId, SandboxState};
use ports::runtime::{RuntimeError, Scope};
use tokio::time::Instant;

use crate::world::{Does, SPEAK, World, command, image};

const SHORT: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(60);

pub(crate) async fn runtime_reports_version_and_readiness(world: &World) {
    let version = world.runtime.version().await.unwrap();
    assert_eq!(version.api, "0.1.0");
    assert!(!version.name.is_empty() && !version.version.is_empty() && !version.runtime_api.is_empty());
    let status = world.runtime.status().await.unwrap();
    assert!(status.runtime_ready.status, "{status:?}");
    assert!(status.network_ready.status, "{status:?}");
}

pub(crate) async fn a_sandbox_is_run_stopped_and_removed(world: &World) {
    let (id, request) = world.run_sandbox("web").await;
    let status = world.runtime.sandbox_status(&id).await.unwrap();
    assert_eq!((&status.id, &status.pod, status.attempt), (&id, &request.pod, 0));
    assert_eq!(status.state, SandboxState::Ready);
    assert_eq!(status.network, NamespaceMode::Pod);

    let listed = world.runtime.list_sandboxes(&Scope::Node).await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!((&listed[0].id, &listed[0].pod, listed[0].state), (&id, &request.pod, SandboxState::Ready));

    world.runtime.stop_sandbox(&id).await.unwrap();
    let stopped = world.runtime.sandbox_status(&id).await.unwrap();
    assert_eq!(stopped.state, SandboxState::NotReady);

    world.runtime.remove_sandbox(&id).await.unwrap();
    assert!(world.runtime.sandbox_status(&id).await.unwrap_err().is_not_found());
    assert_eq!(world.runtime.list_sandboxes(&Scope::Node).await.unwrap(), []);
}

pub(crate) async fn stop_and_remove_sandbox_are_idempotent(world: &World) {
    let (id, _) = world.run_sandbox("web").await;
    world.runtime.stop_sandbox(&id).await.unwrap();
    world.runtime.stop_sandbox(&id).await.unwrap();
    world.runtime.remove_sandbox(&id).await.unwrap();
    world.runtime.remove_sandbox(&id).await.unwrap();
    world.runtime.stop_sandbox(&id).await.unwrap();
}

pub(crate) async fn every_sandbox_has_an_address_of_its_own(world: &World) {
    let mut addresses = Vec::new();
    for name in ["one", "two"] {
        let (id, _) = world.run_sandbox(name).await;
        let ips = world.runtime.sandbox_status(&id).await.unwrap().ips;
        assert_eq!(ips.len(), 1, "{ips:?}");
        assert!(!ips[0].is_loopback() && !ips[0].is_unspecified(), "{ips:?}");
        addresses.extend(ips);
    }
    assert_ne!(addresses[0], addresses[1]);
}

pub(crate) async fn a_sandbox_on_the_nodes_network_has_no_address(world: &World) {
    let mut request = world.sandbox_request("host");
    std::fs::create_dir_all(&request.log_directory).unwrap();
    request.security.namespaces.network = NamespaceMode::Node;
    // It shares the node's UTS namespace too, so it must not get a host name of its own. CRI-O ignores the name.
    if !world.is_crio().await {
        let named = world.runtime.run_sandbox(&request).await.unwrap_err();
        assert!(named.message().contains("unable to set hostname"), "{named:?}");
    }
    request.hostname = String::new();
    let id = world.runtime.run_sandbox(&request).await.unwrap();
    let status = world.runtime.sandbox_status(&id).await.unwrap();
    assert_eq!(status.network, NamespaceMode::Node);
    assert_eq!(status.ips, Vec::<std::net::IpAddr>::new());
}

/// Odd labels and annotations do no harm, and those of the kubelet come back unchanged.
pub(crate) async fn pod_and_record_of_a_container_come_back_unchanged(world: &World) {
    let odd: BTreeMap<String, String> = [
        ("example.com/empty", ""),
        ("example.com/lines", "first\nsecond\tend \"quoted\" \\ {json: [1]}"),
        ("example.com/words", "grüße, 世界 🚢"),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into();
    let mut sandbox = world.sandbox_request("web");
    std::fs::create_dir_all(&sandbox.log_directory).unwrap();
    sandbox.labels.extend(odd.clone());
    sandbox.annotations = odd.clone();
    let sandbox_id = world.runtime.run_sandbox(&sandbox).await.unwrap();
    let listed = world.runtime.list_sandboxes(&Scope::Node).await.unwrap();
    assert_eq!((&listed[0].id, &listed[0].pod), (&sandbox_id, &sandbox.pod));

    let mut container = world.container_request(&sandbox, "app", Does::Sleep);
    world.make_log_directory(&sandbox, "app");
    container.annotations = odd;
    container.annotations.extend(
        [
            (keys::CONTAINER_HASH, "8e45cbd0"),
            (keys::CONTAINER_RESTART_COUNT, "4"),
            (keys::CONTAINER_TERMINATION_MESSAGE_PATH, "/dev/termination-log"),
            (keys::CONTAINER_TERMINATION_MESSAGE_POLICY, "File"),
            (keys::POD_TERMINATION_GRACE_PERIOD, "30"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned())),
    );
    let id = world.runtime.create_container(&sandbox_id, &container, &sandbox).await.unwrap();
    let listed = world.runtime.list_containers(&Scope::Node).await.unwrap();
    assert_eq!((&listed[0].id, &listed[0].pod, &*listed[0].name), (&id, &sandbox.pod, "app"));

    let record = world.status(&id).await.record;
    assert_eq!((record.hash, record.restart_count), (Some(0x8e45_cbd0), 4));
    assert_eq!(record.termination_message_path, "/dev/termination-log");
    assert_eq!(record.termination_message_policy, "File");
    assert_eq!(record.pod_termination_grace_seconds, Some(30));
}

pub(crate) async fn container_is_created_then_runs(world: &World) {
    let (sandbox_id, sandbox) = world.run_sandbox("web").await;
    let info = world.runtime.sandbox_info(&sandbox_id).await.unwrap();
    // CRI-O has no process of the sandbox to describe, only an annotation.
    let key = if world.is_crio().await { "io.kubernetes.cri-o.ImageName" } else { "image" };
    let names_it = info.contains(&format!("\"{key}\":\"")) && !info.contains(&format!("\"{key}\":\"\""));
    assert!(names_it, "the pause image: {info}");
    world.make_log_directory(&sandbox, "app");
    let request = world.container_request(&sandbox, "app", Does::Sleep);
    let id = world.runtime.create_container(&sandbox_id, &request, &sandbox).await.unwrap();
    let created = world.status(&id).await;
    assert_eq!((created.state, created.started_at), (ContainerState::Created, None));
    assert_eq!((&created.id, &created.sandbox_id, &*created.name), (&id, &sandbox_id, "app"));
    assert_eq!(created.image, BUSYBOX_IMAGE);
    assert!(!created.image_id.is_empty());
    let log = PathBuf::from(&sandbox.log_directory).join("app/0.log");
    assert_eq!(created.log_path, log.display().to_string());

    world.runtime.start_container(&id).await.unwrap();
    let running = world.status(&id).await;
    assert_eq!((running.state, running.finished_at), (ContainerState::Running, None));
    assert_eq!(running.created_at, created.created_at);
    assert!(running.started_at.unwrap() >= running.created_at);

    let listed = world.runtime.list_containers(&Scope::Node).await.unwrap();
    assert_eq!((&listed[0].id, &listed[0].sandbox_id), (&id, &sandbox_id));
    assert_eq!((&*listed[0].name, listed[0].state), ("app", ContainerState::Running));

    let again = world.runtime.start_container(&id).await.unwrap_err();
    assert!(matches!(again, RuntimeError::Failed { .. }), "{again:?}");
}

pub(crate) async fn the_exit_code_of_a_container_is_reported(world: &World) {
    let sandbox = world.run_sandbox("web").await;
    for (name, code, reason) in [("good", 0, "Completed"), ("bad", 7, "Error")] {
        let id = world.start(&sandbox, name, Does::ExitWith(code)).await;
        let ended = world.exited(&id).await;
        assert_eq!((ended.exit_code, ended.reason.as_str()), (code, reason));
        // Not "after it started": containerd records the start when its call returns, which may be after a quick exit.
        assert!(ended.started_at.unwrap() >= ended.created_at, "{ended:?}");
        assert!(ended.finished_at.unwrap() >= ended.created_at, "{ended:?}");
    }
}

/// The calls that observe one pod.
pub(crate) async fn an_ended_pod_is_listed_with_its_containers(world: &World) {
    let sandbox = world.run_sandbox("web").await;
    for (name, code) in [("good", 0), ("bad", 7)] {
        let id = world.start(&sandbox, name, Does::ExitWith(code)).await;
        world.exited(&id).await;
    }
    let pod = Scope::Pod(sandbox.1.pod.uid.clone());
    let sandboxes = world.runtime.list_sandboxes(&pod).await.unwrap();
    assert_eq!(sandboxes.iter().map(|sandbox| sandbox.state).collect::<Vec<_>>(), [SandboxState::Ready]);
    let status = world.runtime.sandbox_status(&sandbox.0).await.unwrap();
    assert_eq!(status.ips.len(), 1, "{status:?}");
    let mut containers = world.runtime.list_containers(&pod).await.unwrap();
    containers.sort_by(|a, b| a.name.cmp(&b.name));
    let mut seen = Vec::new();
    for container in &containers {
        assert_eq!((container.state, &container.sandbox_id), (ContainerState::Exited, &sandbox.0));
        let status = world.status(&container.id).await;
        seen.push((&*container.name, status.exit_code));
    }
    assert_eq!(seen, [("bad", 7), ("good", 0)]);
}

pub(crate) async fn container_that_handles_sigterm_stops_within_its_grace_period(world: &World) {
    let sandbox = world.run_sandbox("web").await;
    let id = world.start(&sandbox, "app", Does::ObeyTerm).await;
    trap_is_set(world, &id).await;
    let began = Instant::now();
    world.runtime.stop_container(&id, LONG).await.unwrap();
    assert!(began.elapsed() < LONG / 2, "took {:?}", began.elapsed());
    let ended = world.status(&id).await;
    assert_eq!((ended.state, ended.exit_code), (ContainerState::Exited, 5));
}

/// A shell that was just started has not set its trap yet; it prints a line when it has.
async fn trap_is_set(world: &World, id: &ContainerId) {
    let script = command("until [ -e /tmp/ready ]; do sleep 0.02; done");
    world.runtime.exec_sync(id, &script, Duration::from_secs(20)).await.unwrap();
}

pub(crate) async fn container_that_ignores_sigterm_is_killed_at_the_end_of_its_grace_period(world: &World) {
    let sandbox = world.run_sandbox("web").await;
    let id = world.start(&sandbox, "app", Does::IgnoreTerm).await;
    world.shell_runs().await;
    let began = Instant::now();
    world.runtime.stop_container(&id, SHORT).await.unwrap();
    assert!(began.elapsed() >= SHORT, "took {:?}", began.elapsed());
    let ended = world.status(&id).await;
    assert_eq!((ended.state, ended.exit_code), (ContainerState::Exited, 137));
}

pub(crate) async fn zero_grace_period_kills_a_container_at_once(world: &World) {
    let sandbox = world.run_sandbox("web").await;
    let id = world.start(&sandbox, "app", Does::ObeyTerm).await;
    world.runtime.stop_container(&id, Duration::ZERO).await.unwrap();
    let code = world.status(&id).await.exit_code;
    // CRI-O sends the stop signal first, and a container that is quick ends by itself.
    assert!(code == 137 || (code == 5 && world.is_crio().await), "{code}");
}

pub(crate) async fn stop_and_remove_container_are_idempotent(world: &World) {
    let sandbox = world.run_sandbox("web").await;
    let id = world.start(&sandbox, "app", Does::Sleep).await;
    world.runtime.stop_container(&id, SHORT).await.unwrap();
    world.runtime.stop_container(&id, SHORT).await.unwrap();
    world.runtime.remove_container(&id).await.unwrap();
    world.runtime.remove_container(&id).await.unwrap();
    world.runtime.stop_container(&id, SHORT).await.unwrap();
    assert!(world.runtime.container_status(&id).await.unwrap_err().is_not_found());
}

pub(crate) async fn removing_a_running_container_kills_it(world: &World) {
    let sandbox = world.run_sandbox("web").await;
    let id = world.start(&sandbox, "app", Does::Sleep).await;
    world.runtime.remove_container(&id).await.unwrap();
    assert_eq!(world.runtime.list_containers(&Scope::Node).await.unwrap(), []);
}

pub(crate) async fn stopping_a_sandbox_kills_its_containers(world: &World) {
    let sandbox = world.run_sandbox("web").await;
    let id = world.start(&sandbox, "app", Does::Sleep).await;
    world.runtime.stop_sandbox(&sandbox.0).await.unwrap();
    assert_eq!(world.exited(&id).await.exit_code, 137);
}

pub(crate) async fn removing_a_sandbox_removes_its_containers(world: &World) {
    let sandbox = world.run_sandbox("web").await;
    let id = world.start(&sandbox, "app", Does::Sleep).await;
    world.runtime.stop_sandbox(&sandbox.0).await.unwrap();
    world.runtime.remove_sandbox(&sandbox.0).await.unwrap();
    assert!(world.runtime.container_status(&id).await.unwrap_err().is_not_found());
    assert_eq!(world.runtime.list_containers(&Scope::Node).await.unwrap(), []);
}

pub(crate) async fn exec_sync_returns_output_and_exit_code(world: &World) {
    let sandbox = world.run_sandbox("web").await;
    let id = world.start(&sandbox, "app", Does::Sleep).await;
    let answer = world.runtime.exec_sync(&id, &command(SPEAK), LONG).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&answer.stdout), "out\n");
    assert_eq!(String::from_utf8_lossy(&answer.stderr), "err\n");
    assert_eq!(answer.exit_code, 3);
    let unlimited = world.runtime.exec_sync(&id, &command("true"), Duration::ZERO).await.unwrap();
    assert_eq!(unlimited.exit_code, 0);
}

pub(crate) async fn exec_sync_times_out(world: &World) {
    let sandbox = world.run_sandbox("web").await;
    let id = world.start(&sandbox, "app", Does::Sleep).await;
    let answer = world.runtime.exec_sync(&id, &command("sleep 1000"), SHORT).await;
    if world.is_crio().await {
        // Not an error there, so that a probe shows this text, as that of the Go kubelet does.
        let answer = answer.unwrap();
        assert_eq!((answer.exit_code, &*answer.stderr), (-1, b"command timed out".as_slice()));
    } else {
        let error = answer.unwrap_err();
        assert!(matches!(error, RuntimeError::TimedOut { deadline, .. } if deadline == SHORT), "{error:?}");
    }
    assert_eq!(world.status(&id).await.state, ContainerState::Running);
}

pub(crate) async fn exec_sync_in_an_exited_container_is_an_error(world: &World) {
    let sandbox = world.run_sandbox("web").await;
    let id = world.start(&sandbox, "app", Does::ExitWith(0)).await;
    world.exited(&id).await;
    let error = world.runtime.exec_sync(&id, &command("true"), LONG).await.unwrap_err();
    assert_eq!(error.is_not_found(), world.is_crio().await, "{error:?}");
}

pub(crate) async fn missing_sandboxes_and_containers_are_not_found(world: &World) {
    let runtime = &world.runtime;
    let (sandbox, container) = (SandboxId::new("no-such-sandbox"), ContainerId::new("no-such-container"));
    let request = world.sandbox_request("web");
    let in_no_sandbox = world.container_request(&request, "app", Does::Sleep);
    let errors = [
        runtime.sandbox_status(&sandbox).await.unwrap_err(),
        runtime.container_status(&container).await.unwrap_err(),
        runtime.create_container(&sandbox, &in_no_sandbox, &request).await.unwrap_err(),
        runtime.start_container(&container).await.unwrap_err(),
        runtime.exec_sync(&container, &command("true"), SHORT).await.unwrap_err(),
        runtime.update_container_resources(&container, &Default::default()).await.unwrap_err(),
        runtime.reopen_log(&container).await.unwrap_err(),
    ];
    for error in errors {
        assert!(error.is_not_found(), "{error:?}");
    }
}

pub(crate) async fn lists_can_be_filtered_by_pod(world: &World) {
    for pod in ["one", "two"] {
        let sandbox = world.run_sandbox(pod).await;
        world.start(&sandbox, &format!("app-of-{pod}"), Does::Sleep).await;
    }
    let one = Scope::Pod(PodUid::new("uid-of-one"));
    let sandboxes = world.runtime.list_sandboxes(&one).await.unwrap();
    let pods: Vec<&str> = sandboxes.iter().map(|sandbox| &*sandbox.pod.name).collect();
    assert_eq!(pods, ["one"]);
    let containers = world.runtime.list_containers(&one).await.unwrap();
    let names: Vec<&str> = containers.iter().map(|container| &*container.name).collect();
    assert_eq!(names, ["app-of-one"]);

    let absent = Scope::Pod(PodUid::new("uid-of-missing"));
    assert_eq!(world.runtime.list_sandboxes(&absent).await.unwrap(), []);
    assert_eq!(world.runtime.list_containers(&absent).await.unwrap(), []);
    assert_eq!(world.runtime.list_sandboxes(&Scope::Node).await.unwrap().len(), 2);
    assert_eq!(world.runtime.list_containers(&Scope::Node).await.unwrap().len(), 2);
}

pub(crate) async fn later_attempts_exist_next_to_the_first(world: &World) {
    let (first, mut request) = world.run_sandbox("web").await;
    world.runtime.stop_sandbox(&first).await.unwrap();
    request.attempt = 1;
    let second = world.runtime.run_sandbox(&request).await.unwrap();
    assert_ne!(first, second);
    assert_eq!(world.runtime.sandbox_status(&second).await.unwrap().attempt, 1);
    let mut attempts: Vec<u32> =
        world.runtime.list_sandboxes(&Scope::Node).await.unwrap().iter().map(|s| s.attempt).collect();
    attempts.sort_unstable();
    assert_eq!(attempts, [0, 1]);

    let mut container = world.container_request(&request, "app", Does::Sleep);
    world.make_log_directory(&request, "app");
    for attempt in [0, 1, 2] {
        container.attempt = attempt;
        world.runtime.create_container(&second, &container, &request).await.unwrap();
    }
    let listed = world.runtime.list_containers(&Scope::Node).await.unwrap();
    let mut attempts: Vec<u32> = listed.iter().map(|container| container.attempt).collect();
    attempts.sort_unstable();
    assert_eq!(attempts, [0, 1, 2]);
}

/// A name that exists is an error, except that CRI-O returns the id of what has the name.
pub(crate) async fn taken_name_is_an_already_exists_error(world: &World) {
    let (sandbox_id, sandbox) = world.run_sandbox("web").await;
    let again = world.runtime.run_sandbox(&sandbox).await;
    let is_crio = world.is_crio().await;
    match again {
        Ok(id) => assert_eq!((id, is_crio), (sandbox_id.clone(), true)),
        Err(error) => assert!(matches!(error, RuntimeError::AlreadyExists { .. }) && !is_crio, "{error:?}"),
    }

    let container = world.container_request(&sandbox, "app", Does::Sleep);
    world.make_log_directory(&sandbox, "app");
    let id = world.runtime.create_container(&sandbox_id, &container, &sandbox).await.unwrap();
    match world.runtime.create_container(&sandbox_id, &container, &sandbox).await {
        Ok(again) => assert_eq!((again, is_crio), (id, true)),
        Err(error) => assert!(matches!(error, RuntimeError::AlreadyExists { .. }) && !is_crio, "{error:?}"),
    }
}

pub(crate) async fn an_image_is_found_by_name_and_by_id(world: &World) {
    let found = world.runtime.image_status(&image(BUSYBOX_IMAGE)).await.unwrap().unwrap();
    let digest = if world.is_crio().await { Some(&*found.id) } else { found.id.strip_prefix("sha256:") };
    assert!(digest.is_some_and(|digest| !digest.is_empty() && !digest.contains(':')), "{found:?}");
    assert!(found.size_bytes > 0, "{found:?}");
    assert_eq!(found.repo_tags, [BUSYBOX_IMAGE]);
    assert_eq!(world.runtime.image_status(&image(&found.id)).await.unwrap().as_ref(), Some(&found));
    assert!(world.runtime.list_images().await.unwrap().contains(&found));

    let missing = image("localhost/no-such-image:1");
    assert_eq!(world.runtime.image_status(&missing).await.unwrap(), None);
    world.runtime.remove_image(&missing).await.unwrap();
}

pub(crate) async fn a_container_of_a_missing_image_is_refused(world: &World) {
    let (sandbox_id, sandbox) = world.run_sandbox("web").await;
    let mut request = world.container_request(&sandbox, "app", Does::Sleep);
    request.image = "localhost/no-such-image:1".to_owned();
    let error = world.runtime.create_container(&sandbox_id, &request, &sandbox).await.unwrap_err();
    assert!(error.message().contains("localhost/no-such-image:1"), "{error:?}");
    assert_eq!(world.runtime.list_containers(&Scope::Node).await.unwrap(), []);
}

/// containerd finds out at the start, CRI-O at the creation.
pub(crate) async fn missing_program_is_an_error_that_names_it(world: &World) {
    let (sandbox_id, sandbox) = world.run_sandbox("web").await;
    let mut request = world.container_request(&sandbox, "app", Does::Sleep);
    request.command = vec!["/no/such/program".to_owned()];
    world.make_log_directory(&sandbox, "app");
    let is_crio = world.is_crio().await;
    if let Some(fake) = &world.fake {
        let method = if is_crio { Method::CreateContainer } else { Method::StartContainer };
        fake.fault(method, Fault::Failed("exec: \"/no/such/program\": no such file".to_owned()));
    }
    let error = match world.runtime.create_container(&sandbox_id, &request, &sandbox).await {
        Ok(id) => {
            assert!(!is_crio);
            world.runtime.start_container(&id).await.unwrap_err()
        }
        Err(error) => {
            assert!(is_crio, "{error:?}");
            assert_eq!(world.runtime.list_containers(&Scope::Node).await.unwrap(), []);
            error
        }
    };
    assert!(matches!(error, RuntimeError::Failed { .. }), "{error:?}");
    assert!(error.message().contains("/no/such/program"), "{error:?}");
}

pub(crate) async fn image_of_an_unreachable_registry_is_not_pulled(world: &World) {
    // No program listens on this port.
    let wanted = image("127.0.0.1:1/no/such-image:1");
    if let Some(fake) = &world.fake {
        fake.unpullable(&wanted.image, "dial tcp 127.0.0.1:1: connect: connection refused");
    }
    let sandbox = world.sandbox_request("web");
    let error = world.runtime.pull_image(&wanted, None, &sandbox).await.unwrap_err();
    assert!(matches!(error, RuntimeError::Failed { .. }), "{error:?}");
    assert!(error.message().contains("connection refused"), "{error:?}");
    assert_eq!(world.runtime.image_status(&wanted).await.unwrap(), None);
}

pub(crate) async fn container_log_has_every_line_and_is_reopened_on_request(world: &World) {
    let sandbox = world.run_sandbox("web").await;
    let id = world.start(&sandbox, "app", Does::Print("hello", "world")).await;
    let log = PathBuf::from(world.status(&id).await.log_path);
    let written = || std::fs::read_to_string(&log).unwrap_or_default();
    let complete = async {
        while written().lines().count() < 2 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LONG, complete).await.unwrap();
    let texts: Vec<String> = written()
        .lines()
        .map(|line| {
            let mut fields = line.splitn(4, ' ');
            fields.next().unwrap().parse::<jiff::Timestamp>().unwrap();
            assert_eq!((fields.next(), fields.next()), (Some("stdout"), Some("F")), "{line}");
            fields.next().unwrap().to_owned()
        })
        .collect();
    assert_eq!(texts, ["hello", "world"]);

    let rotated = log.with_extension("log.1");
    std::fs::rename(&log, &rotated).unwrap();
    world.runtime.reopen_log(&id).await.unwrap();
    assert_eq!(written(), "");
    assert!(log.is_file());
    assert_eq!(std::fs::read_to_string(&rotated).unwrap().lines().count(), 2);
}

pub(crate) async fn the_resources_of_a_running_container_can_be_changed(world: &World) {
    let sandbox = world.run_sandbox("web").await;
    let id = world.start(&sandbox, "app", Does::Sleep).await;
    let resources = model::request::LinuxResources { cpu_shares: Some(512), ..Default::default() };
    world.runtime.update_container_resources(&id, &resources).await.unwrap();
    assert_eq!(world.status(&id).await.state, ContainerState::Running);
}

pub(crate) async fn events_are_offered_or_unimplemented(world: &World) {
    use futures_util::StreamExt;
    match world.runtime.hints().await {
        Ok(mut hints) => {
            let (_, request) = world.run_sandbox("web").await;
            let hint = tokio::time::timeout(LONG, hints.next()).await.unwrap().unwrap();
            assert_eq!(hint.pod, request.pod.uid);
        }
        Err(error) => assert!(matches!(error, RuntimeError::Unimplemented { .. }), "{error:?}"),
    }
}
