//! The contract over the adapter and a real containerd. Needs root and the packages that `scripts/test` names; a machine
//! without them fails these tests, because a contract that was not checked does not hold.

use std::sync::Arc;
use std::time::Duration;

use cri::CriRuntime;
use harness::Containerd;
use harness::containerd::leftovers;
use model::{ContainerState, SandboxState};
use ports::runtime::{RuntimeError, Scope};

use crate::recorded;
use crate::world::{Case, Does, World, command};

async fn start(dir: &std::path::Path) -> (Containerd, World) {
    let containerd = Containerd::start(dir).await.unwrap_or_else(|error| panic!("{error}"));
    let cri = CriRuntime::new(&containerd.endpoint(), "", Duration::from_secs(30)).unwrap();
    let world = World {
        runtime: Arc::new(cri),
        logs: dir.join("logs"),
        cgroup_root: containerd.cgroup_root(),
        has_processes: true,
        fake: None,
    };
    (containerd, world)
}

async fn run(case: Case) {
    let dir = tempfile::tempdir().unwrap();
    let (containerd, mut world) = start(dir.path()).await;
    let recorder = recorded::record(dir.path(), &containerd.socket());
    if let Some(recorder) = &recorder {
        let cri = CriRuntime::new(&recorder.endpoint(), "", Duration::from_secs(30)).unwrap();
        world.runtime = Arc::new(cri);
    }
    case(world).await;
    if let Some(recorder) = recorder {
        recorded::write(recorder);
    }
    containerd.stop().unwrap();
    assert_eq!(leftovers(dir.path()), Vec::<String>::new());
}

contract!(
    #[tokio::test(flavor = "multi_thread")]
    run
);

#[tokio::test(flavor = "multi_thread")]
async fn containers_survive_a_containerd_crash_and_the_adapter_reconnects() {
    let dir = tempfile::tempdir().unwrap();
    let (mut containerd, world) = start(dir.path()).await;
    let sandbox = world.run_sandbox("web").await;
    let id = world.start(&sandbox, "app", Does::Sleep).await;
    let before = world.status(&id).await;

    containerd.crash().unwrap();
    let error = world.runtime.container_status(&id).await.unwrap_err();
    assert!(matches!(error, RuntimeError::Unavailable { .. }), "{error:?}");

    containerd.resume().await.unwrap();
    let after = world.status(&id).await;
    assert_eq!((after.state, after.started_at), (ContainerState::Running, before.started_at));
    let sandboxes = world.runtime.list_sandboxes(&Scope::Node).await.unwrap();
    assert_eq!(sandboxes[0].state, SandboxState::Ready);
    let answer = world.runtime.exec_sync(&id, &command("id -u"), Duration::from_secs(20)).await.unwrap();
    assert_eq!(answer.stdout, b"0\n");

    containerd.stop().unwrap();
    assert_eq!(leftovers(dir.path()), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn image_status_reports_the_image_user() {
    let dir = tempfile::tempdir().unwrap();
    let (containerd, world) = start(dir.path()).await;
    let (sandbox_id, sandbox) = world.run_sandbox("web").await;
    let mut request = world.container_request(&sandbox, "app", Does::Sleep);
    request.security.run_as.username = "app".to_owned();
    std::fs::create_dir_all(format!("{}/app", sandbox.log_directory)).unwrap();
    let id = world.runtime.create_container(&sandbox_id, &request, &sandbox).await.unwrap();
    world.runtime.start_container(&id).await.unwrap();
    let script = command("id -u; id -un; touch /tmp/mine && echo written");
    let answer = world.runtime.exec_sync(&id, &script, Duration::from_secs(20)).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&answer.stdout), "1000\napp\nwritten\n");
    containerd.stop().unwrap();
    assert_eq!(leftovers(dir.path()), Vec::<String>::new());
}

/// What a test that panics leaves to the destructor: running pods, and a daemon that is already dead.
#[tokio::test(flavor = "multi_thread")]
async fn dropping_a_killed_containerd_removes_everything() {
    let dir = tempfile::tempdir().unwrap();
    let (mut containerd, world) = start(dir.path()).await;
    let sandbox = world.run_sandbox("web").await;
    world.start(&sandbox, "app", Does::Sleep).await;
    containerd.crash().unwrap();
    assert!(!leftovers(dir.path()).is_empty());
    drop(containerd);
    assert_eq!(leftovers(dir.path()), Vec::<String>::new());
}

/// The tests of two kubelets run at the same time.
#[tokio::test(flavor = "multi_thread")]
async fn containerd_instances_are_isolated() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (first, first_world) = start(one.path()).await;
    let (second, second_world) = start(two.path()).await;
    first_world.run_sandbox("web").await;
    assert_eq!(second_world.runtime.list_sandboxes(&Scope::Node).await.unwrap(), []);
    second.stop().unwrap();
    assert_eq!(first_world.runtime.list_sandboxes(&Scope::Node).await.unwrap().len(), 1);
    first.stop().unwrap();
    assert_eq!((leftovers(one.path()), leftovers(two.path())), (Vec::new(), Vec::new()));
}

/// Probes and hooks come from the node. A test must not change the machine's own settings.
#[tokio::test(flavor = "multi_thread")]
async fn pod_address_is_reachable_from_the_node_without_changing_the_node() {
    let forwarding = || std::fs::read_to_string("/proc/sys/net/ipv4/ip_forward").unwrap();
    let before = forwarding();
    let dir = tempfile::tempdir().unwrap();
    let (containerd, world) = start(dir.path()).await;
    let (sandbox_id, sandbox) = world.run_sandbox("web").await;
    let mut request = world.container_request(&sandbox, "app", Does::Sleep);
    request.command = command("exec httpd -f -p 8080 -h /etc");
    std::fs::create_dir_all(format!("{}/app", sandbox.log_directory)).unwrap();
    let id = world.runtime.create_container(&sandbox_id, &request, &sandbox).await.unwrap();
    world.runtime.start_container(&id).await.unwrap();

    let ip = world.runtime.sandbox_status(&sandbox_id).await.unwrap().ips[0];
    let connected = async {
        while tokio::net::TcpStream::connect((ip, 8080)).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), connected).await.unwrap();
    assert_eq!(forwarding(), before);
    containerd.stop().unwrap();
    assert_eq!(leftovers(dir.path()), Vec::<String>::new());
}

/// The kernel's OOM kill, which the kubelet shows as the reason of the container's exit.
#[tokio::test(flavor = "multi_thread")]
async fn container_over_its_memory_limit_is_observed_as_oom_killed() {
    let dir = tempfile::tempdir().unwrap();
    let (containerd, world) = start(dir.path()).await;
    let (sandbox_id, sandbox) = world.run_sandbox("web").await;
    let mut request = world.container_request(&sandbox, "app", Does::Sleep);
    // `tail` keeps the last line, which never ends.
    request.command = command("tail -n 1 /dev/zero");
    request.resources.memory_limit_bytes = Some(32 << 20);
    request.resources.memory_swap_limit_bytes = Some(32 << 20);
    std::fs::create_dir_all(format!("{}/app", sandbox.log_directory)).unwrap();
    let id = world.runtime.create_container(&sandbox_id, &request, &sandbox).await.unwrap();
    world.runtime.start_container(&id).await.unwrap();
    let ended = world.exited(&id).await;
    assert_eq!((ended.exit_code, ended.reason.as_str()), (137, "OOMKilled"));
    containerd.stop().unwrap();
    assert_eq!(leftovers(dir.path()), Vec::<String>::new());
}

/// Calls newer than containerd 1.6 return an unimplemented error there, so that callers can work without them. Newer runtimes
/// offer some of them.
#[tokio::test(flavor = "multi_thread")]
async fn calls_unknown_to_an_old_runtime_are_unimplemented_errors() {
    let dir = tempfile::tempdir().unwrap();
    let (containerd, world) = start(dir.path()).await;
    let is_old = world.runtime.version().await.unwrap().version.trim_start_matches('v').starts_with("1.6");
    let sandbox = world.run_sandbox("web").await;
    let id = world.start(&sandbox, "app", Does::Sleep).await;
    let resources = model::request::LinuxResources::default();
    let location = dir.path().join("checkpoint.tar").display().to_string();
    let answers = [
        world.runtime.cgroup_driver().await.err(),
        world.runtime.update_sandbox_resources(&sandbox.0, None, &resources).await.err(),
        world.runtime.checkpoint_container(&id, &location, Duration::from_secs(5)).await.err(),
        world.runtime.list_metric_descriptors().await.err(),
        world.runtime.list_sandbox_metrics().await.err(),
    ];
    for answer in answers {
        let is_declined = matches!(answer, Some(RuntimeError::Unimplemented { .. }));
        assert!(is_declined || !is_old, "{answer:?}");
    }
    containerd.stop().unwrap();
    assert_eq!(leftovers(dir.path()), Vec::<String>::new());
}
