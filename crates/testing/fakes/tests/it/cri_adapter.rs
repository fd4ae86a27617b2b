//! The contract over the adapter and a fake server, and what only a wire can do: break, stall and overflow.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cri::CriRuntime;
use fakes::{FakeCri, FakeRuntime, Fault, Method};
use futures_util::StreamExt;
use ports::Runtime;
use ports::runtime::{RuntimeError, Scope, Streams};
use tempfile::TempDir;

use crate::world::{Case, World};

const TIMEOUT: Duration = Duration::from_secs(10);

/// The fake behind a socket, and the adapter in front of it.
struct Wire {
    dir: TempDir,
    fake: FakeRuntime,
    server: FakeCri,
    cri: Arc<CriRuntime>,
}

fn wire(timeout: Duration) -> Wire {
    let dir = tempfile::tempdir().unwrap();
    let fake = crate::fake::fake();
    let server = FakeCri::serve(Arc::new(fake.clone()), &dir.path().join("cri.sock")).unwrap();
    let cri = Arc::new(CriRuntime::new(&server.endpoint(), "", timeout).unwrap());
    Wire { dir, fake, server, cri }
}

fn world(wire: &Wire) -> World {
    World {
        runtime: Arc::clone(&wire.cri) as Arc<dyn Runtime>,
        logs: wire.dir.path().join("logs"),
        cgroup_root: "/kubelet-test".to_owned(),
        has_processes: false,
        fake: Some(wire.fake.clone()),
    }
}

async fn run(case: Case) {
    let wire = wire(TIMEOUT);
    case(world(&wire)).await;
}

contract!(
    #[tokio::test]
    run
);

#[tokio::test]
async fn offered_events_arrive_although_the_runtime_is_silent_at_first() {
    let wire = wire(TIMEOUT);
    wire.fake.offer_hints();
    crate::cases::events_are_offered_or_unimplemented(&world(&wire)).await;
}

#[tokio::test]
async fn unanswered_runtime_call_ends_at_the_deadline() {
    let wire = wire(Duration::from_millis(200));
    wire.fake.fault(Method::Status, Fault::Hang).fault(Method::RunPodSandbox, Fault::Hang);

    let began = Instant::now();
    let error = wire.cri.status().await.unwrap_err();
    assert!(matches!(error, RuntimeError::TimedOut { call: "Status", .. }), "{error:?}");
    assert!(began.elapsed() >= Duration::from_millis(200));

    let request = world(&wire).sandbox_request("web");
    let began = Instant::now();
    let error = wire.cri.run_sandbox(&request).await.unwrap_err();
    let twice = Duration::from_millis(400);
    assert!(matches!(error, RuntimeError::TimedOut { deadline, .. } if deadline == twice), "{error:?}");
    assert!(began.elapsed() >= twice);
    assert!(error.is_uncertain());
}

#[tokio::test]
async fn stop_container_deadline_is_extended_by_its_grace_period() {
    let wire = wire(Duration::from_millis(200));
    wire.fake.fault(Method::StopContainer, Fault::Hang);
    let began = Instant::now();
    let id = model::ContainerId::new("c1");
    let error = wire.cri.stop_container(&id, Duration::from_secs(1)).await.unwrap_err();
    let both = Duration::from_millis(1200);
    assert!(matches!(error, RuntimeError::TimedOut { deadline, .. } if deadline == both), "{error:?}");
    assert!(began.elapsed() >= both);
}

#[tokio::test]
async fn checkpoint_uses_the_longer_of_two_deadlines() {
    let wire = wire(Duration::from_millis(200));
    let (id, second) = (model::ContainerId::new("c1"), Duration::from_secs(1));
    for (timeout, expected) in [(Duration::ZERO, Duration::from_millis(200)), (second, second)] {
        wire.fake.fault(Method::CheckpointContainer, Fault::Hang);
        let error = wire.cri.checkpoint_container(&id, "/checkpoint.tar", timeout).await.unwrap_err();
        let RuntimeError::TimedOut { deadline, .. } = error else { panic!("{error:?}") };
        assert_eq!(deadline, expected);
    }
}

#[tokio::test]
async fn streaming_requests_survive_the_wire() {
    let wire = wire(TIMEOUT);
    let world = world(&wire);
    wire.fake.stream_from("http://127.0.0.1:4000");
    let sandbox = world.run_sandbox("web").await;
    let id = world.start(&sandbox, "app", crate::world::Does::Sleep).await;
    wire.fake.forget_calls();
    let streams = Streams { tty: true, stdin: true, stdout: true, stderr: false };
    let urls = [
        wire.cri.exec(&id, &crate::world::command("ls -l"), streams).await.unwrap(),
        wire.cri.attach(&id, streams).await.unwrap(),
        wire.cri.port_forward(&sandbox.0, &[80, 65535]).await.unwrap(),
    ];
    let expected = ["Exec web/app: /bin/sh -c ls -l", "Attach web/app", "PortForward web: [80, 65535]"];
    assert_eq!(wire.fake.call_lines(), expected);
    for (url, verb) in urls.iter().zip(["exec", "attach", "portforward"]) {
        assert!(url.starts_with(&format!("http://127.0.0.1:4000/{verb}/")), "{url}");
    }
    // A terminal has one output: the rejection shows that the fourth flag arrives as well.
    let with_errors = Streams { stderr: true, ..streams };
    let refused = wire.cri.attach(&id, with_errors).await.unwrap_err();
    assert!(refused.message().contains("stderr"), "{refused:?}");
}

#[tokio::test]
async fn checkpoint_is_written_to_the_requested_path() {
    let wire = wire(TIMEOUT);
    let world = world(&wire);
    let sandbox = world.run_sandbox("web").await;
    let id = world.start(&sandbox, "app", crate::world::Does::Sleep).await;
    wire.cri.checkpoint_container(&id, "/checkpoint.tar", Duration::ZERO).await.unwrap();
    let last = wire.fake.call_lines().pop();
    assert_eq!(last.as_deref(), Some("CheckpointContainer web/app to /checkpoint.tar"));
}

/// Some containerd versions answer with this unspecific code.
#[tokio::test]
async fn unimplemented_pod_resource_update_is_an_unimplemented_error() {
    let wire = wire(TIMEOUT);
    let update = async || {
        let id = model::SandboxId::new("s1");
        wire.cri.update_sandbox_resources(&id, None, &Default::default()).await.unwrap_err()
    };
    let method = Method::UpdatePodSandboxResources;
    wire.fake.fault(method, Fault::Unimplemented);
    wire.fake.fault(method, Fault::Failed("update: not implemented".to_owned()));
    for _ in 0..2 {
        let error = update().await;
        assert!(matches!(error, RuntimeError::Unimplemented { .. }), "{error:?}");
    }
    wire.fake.fault(method, Fault::Failed("no such cgroup".to_owned()));
    let error = update().await;
    assert!(matches!(error, RuntimeError::Failed { .. }), "{error:?}");
}

/// The wire carries exactly the stats of the runtime.
#[tokio::test]
async fn stats_survive_the_wire() {
    let wire = wire(TIMEOUT);
    let world = world(&wire);
    let sandbox = world.run_sandbox("web").await;
    world.start(&sandbox, "app", crate::world::Does::Sleep).await;
    let mut arrived = wire.cri.list_sandbox_stats(&Scope::Node).await.unwrap().remove(0);
    let mut original = wire.fake.list_sandbox_stats(&Scope::Node).await.unwrap().remove(0);
    // Values that change with time alone.
    for stats in [&mut arrived, &mut original] {
        let times = [
            stats.cpu.as_mut().and_then(|cpu| cpu.time.take()),
            stats.memory.as_mut().and_then(|memory| memory.time.take()),
            stats.network.as_mut().and_then(|network| network.time.take()),
            stats.process.as_mut().and_then(|process| process.time.take()),
        ];
        assert!(times.iter().all(Option::is_some), "{times:?}");
        assert!(stats.cpu.as_mut().unwrap().usage_core_nanoseconds.take().is_some());
        let container = &mut stats.containers[0];
        assert!(container.memory.as_mut().unwrap().time.take().is_some());
        assert!(container.writable_layer.as_mut().unwrap().time.take().is_some());
        assert!(container.cpu.take().unwrap().usage_core_nanoseconds.is_some());
    }
    assert_eq!(arrived, original);
    let metrics = wire.cri.list_sandbox_metrics().await.unwrap();
    let sample = &metrics[0].containers[0].1[0];
    assert_eq!((sample.name.as_str(), sample.kind), ("container_last_seen", model::stats::MetricKind::Gauge));
    let filesystems = wire.cri.image_filesystems().await.unwrap();
    assert_eq!(filesystems.images[0].mountpoint, "/var/lib/fake/images");
    assert_eq!(filesystems.containers[0].mountpoint, "/var/lib/fake/containers");
}

#[tokio::test]
async fn exec_sync_without_answer_is_reported_as_a_command_timeout() {
    let wire = wire(Duration::from_millis(200));
    wire.fake.fault(Method::ExecSync, Fault::Hang);
    let began = Instant::now();
    let (id, second) = (model::ContainerId::new("c1"), Duration::from_secs(1));
    let error = wire.cri.exec_sync(&id, &crate::world::command("true"), second).await.unwrap_err();
    assert!(matches!(error, RuntimeError::TimedOut { deadline, .. } if deadline == second), "{error:?}");
    assert!(began.elapsed() >= Duration::from_millis(1200));
}

#[tokio::test]
async fn image_pull_has_no_deadline() {
    let wire = wire(Duration::from_millis(100));
    wire.fake.latency(Method::PullImage, Duration::from_millis(500));
    let sandbox = world(&wire).sandbox_request("web");
    let image = crate::world::image("localhost/large:1");
    wire.cri.pull_image(&image, None, &sandbox).await.unwrap();
}

/// A container's status on the wire does not name its sandbox; an earlier kubelet may have created it.
#[tokio::test]
async fn container_of_an_earlier_kubelet_is_assigned_to_its_sandbox() {
    let wire = wire(TIMEOUT);
    let world = world(&wire);
    let sandbox = world.sandbox_request("web");
    let sandbox_id = wire.fake.run_sandbox(&sandbox).await.unwrap();
    let request = world.container_request(&sandbox, "app", crate::world::Does::Sleep);
    let id = wire.fake.create_container(&sandbox_id, &request, &sandbox).await.unwrap();

    assert_eq!(wire.cri.container_status(&id).await.unwrap().sandbox_id, sandbox_id);
    assert_eq!(wire.fake.count(Method::ListContainers), 1, "requested once");
    wire.cri.container_status(&id).await.unwrap();
    assert_eq!(wire.fake.count(Method::ListContainers), 1, "and remembered");
}

#[tokio::test]
async fn error_codes_survive_the_wire() {
    let wire = wire(TIMEOUT);
    wire.fake.fault(Method::Status, Fault::Failed("disk on fire".to_owned()));
    wire.fake.fault(Method::Status, Fault::NotFound);
    wire.fake.fault(Method::Status, Fault::Unavailable);
    let first = wire.cri.status().await.unwrap_err();
    assert!(matches!(&first, RuntimeError::Failed { message, .. } if message == "disk on fire"), "{first:?}");
    assert!(wire.cri.status().await.unwrap_err().is_not_found());
    let third = wire.cri.status().await.unwrap_err();
    assert!(matches!(third, RuntimeError::Unavailable { .. }), "{third:?}");
}

#[tokio::test]
async fn late_runtime_is_connected() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("cri.sock");
    let cri = CriRuntime::new(&format!("unix://{}", socket.display()), "", TIMEOUT).unwrap();
    let error = cri.version().await.unwrap_err();
    assert!(matches!(&error, RuntimeError::Unavailable { .. }), "{error:?}");
    assert!(error.message().contains("cri.sock"), "{error:?}");

    let _server = FakeCri::serve(Arc::new(FakeRuntime::new()), &socket).unwrap();
    assert_eq!(cri.version().await.unwrap().name, "fake");
}

#[tokio::test]
async fn separate_image_service_must_answer_too() {
    let wire = wire(TIMEOUT);
    let images = wire.dir.path().join("images.sock");
    let at = |name: &str| format!("unix://{}", wire.dir.path().join(name).display());
    let cri = CriRuntime::new(&at("cri.sock"), &at("images.sock"), TIMEOUT).unwrap();
    let error = cri.version().await.unwrap_err();
    assert!(matches!(&error, RuntimeError::Unavailable { .. }), "{error:?}");
    assert!(error.message().contains("images.sock"), "{error:?}");

    let service = FakeRuntime::new();
    let _server = FakeCri::serve(Arc::new(service.clone()), &images).unwrap();
    assert_eq!(cri.version().await.unwrap().name, "fake");
    assert_eq!((service.count(Method::ImageFsInfo), wire.fake.count(Method::ImageFsInfo)), (1, 0));
}

/// Serves on a tokio runtime of its own, so that dropping it breaks even the connections that are in use.
fn serve_apart(fake: &FakeRuntime, socket: &std::path::Path) -> (tokio::runtime::Runtime, FakeCri) {
    let apart = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let guard = apart.enter();
    let server = FakeCri::serve(Arc::new(fake.clone()), socket).unwrap();
    drop(guard);
    (apart, server)
}

#[tokio::test]
async fn restarted_runtime_is_reconnected() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("cri.sock");
    let fake = FakeRuntime::new();
    let (apart, server) = serve_apart(&fake, &socket);
    let cri = Arc::new(CriRuntime::new(&server.endpoint(), "", TIMEOUT).unwrap());
    cri.version().await.unwrap();

    fake.fault(Method::Status, Fault::Hang);
    let in_flight = tokio::spawn({
        let cri = Arc::clone(&cri);
        async move { cri.status().await }
    });
    while fake.count(Method::Status) == 0 {
        tokio::task::yield_now().await;
    }
    drop(server);
    apart.shutdown_background();
    let broken = in_flight.await.unwrap().unwrap_err();
    assert!(matches!(broken, RuntimeError::Unavailable { .. }), "{broken:?}");
    assert!(matches!(cri.version().await.unwrap_err(), RuntimeError::Unavailable { .. }));

    let (apart, _server) = serve_apart(&fake, &socket);
    assert_eq!(cri.version().await.unwrap().name, "fake");
    apart.shutdown_background();
}

#[tokio::test]
async fn connection_that_had_many_concurrent_calls_is_replaced_and_its_event_stream_goes_on() {
    let wire = wire(TIMEOUT);
    wire.fake.offer_hints();
    let mut hints = wire.cri.hints().await.unwrap();
    futures_util::future::try_join_all((0..100).map(|_| wire.cri.version())).await.unwrap();
    wire.cri.version().await.unwrap();
    assert_eq!(wire.server.connections(), 1, "more calls may follow soon");

    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(5)).await;
    tokio::time::resume();
    wire.cri.version().await.unwrap();
    assert_eq!(wire.server.connections(), 2);
    let (_, request) = world(&wire).run_sandbox("web").await;
    let hint = tokio::time::timeout(TIMEOUT, hints.next()).await.unwrap().unwrap();
    assert_eq!((hint.pod, wire.server.connections()), (request.pod.uid, 2));
}

#[tokio::test]
async fn large_list_response_is_read_and_a_huge_one_is_an_error() {
    let wire = wire(TIMEOUT);
    let world = world(&wire);
    let mut request = world.sandbox_request("large");
    request.pod = model::PodRef::new("default", &"x".repeat(6 * 1024 * 1024), "large");
    wire.fake.run_sandbox(&request).await.unwrap();
    assert_eq!(wire.cri.list_sandboxes(&Scope::Node).await.unwrap().len(), 1);

    request.attempt = 1;
    wire.fake.run_sandbox(&request).await.unwrap();
    let error = wire.cri.list_sandboxes(&Scope::Node).await.unwrap_err();
    assert!(matches!(error, RuntimeError::Failed { .. }), "{error:?}");
    assert!(wire.cri.version().await.is_ok(), "the connection must survive");
}

#[tokio::test]
async fn image_service_can_use_another_socket() {
    let dir = tempfile::tempdir().unwrap();
    let (runtime, images) = (FakeRuntime::new(), FakeRuntime::new());
    images.image("localhost/only-there:1");
    let runtime_server = FakeCri::serve(Arc::new(runtime.clone()), &dir.path().join("r.sock")).unwrap();
    let image_server = FakeCri::serve(Arc::new(images.clone()), &dir.path().join("i.sock")).unwrap();
    let cri = CriRuntime::new(&runtime_server.endpoint(), &image_server.endpoint(), TIMEOUT).unwrap();
    cri.version().await.unwrap();
    assert_eq!(cri.list_images().await.unwrap().len(), 1);
    assert_eq!((runtime.count(Method::ListImages), images.count(Method::Version)), (0, 0));
    runtime_server.stop().await;
    assert_eq!(cri.list_images().await.unwrap().len(), 1);
}

fn mounted_image() -> model::request::MountedImage {
    let text = |text: &str| text.to_owned();
    model::request::MountedImage {
        reference: text("sha256:1"),
        user_specified_image: text("busybox:1"),
        annotations: [(text("a"), text("b"))].into(),
        runtime_handler: text("kata"),
    }
}

#[tokio::test]
async fn requests_survive_the_wire() {
    use model::observation::NamespaceMode;
    use model::request::{
        Device, IdMapping, Mount, PortMapping, Propagation, Protocol, RunAs, SecurityProfile, SelinuxLabel,
        SupplementalGroupsPolicy, UserNamespace,
    };
    let wire = wire(TIMEOUT);
    let world = world(&wire);
    let mappings = vec![IdMapping { host_id: 65536, container_id: 0, length: 65536 }];
    let user = UserNamespace::Pod { uids: mappings.clone(), gids: mappings };
    let text = |text: &str| text.to_owned();

    let mut sandbox = world.sandbox_request("web");
    sandbox.dns.servers = vec![text("10.96.0.10")];
    sandbox.dns.searches = vec![text("svc.cluster.local")];
    sandbox.dns.options = vec![text("ndots:5")];
    sandbox.port_mappings = vec![PortMapping {
        protocol: Protocol::Udp,
        container_port: 53,
        host_port: 5353,
        host_ip: text("127.0.0.1"),
    }];
    sandbox.annotations = [(text("a"), text("b"))].into();
    sandbox.sysctls = [(text("net.ipv4.tcp_syncookies"), text("1"))].into();
    sandbox.security.namespaces.user = user.clone();
    sandbox.security.namespaces.ipc = NamespaceMode::Node;
    sandbox.security.run_as_user = Some(1000);
    sandbox.security.run_as_group = Some(0);
    sandbox.security.supplemental_groups = vec![5, 6];
    sandbox.security.supplemental_groups_policy = SupplementalGroupsPolicy::Strict;
    sandbox.security.privileged = true;
    sandbox.security.seccomp = Some(SecurityProfile::Localhost(text("/profiles/a.json")));
    sandbox.overhead = Some(model::request::LinuxResources { cpu_shares: Some(2), ..Default::default() });
    sandbox.runtime_handler = text("kata");
    let id = wire.cri.run_sandbox(&sandbox).await.unwrap();
    assert_eq!(wire.fake.sandbox_request("web"), Some(sandbox.clone()));

    let mut container = world.container_request(&sandbox, "app", crate::world::Does::Sleep);
    container.attempt = 3;
    container.user_specified_image = text("busybox");
    container.args = vec![text("--verbose")];
    container.working_dir = text("/srv");
    container.env =
        vec![(text("Z"), "1".into()), (text("A"), "".into()), (text("B"), vec![0xff, b'x', 0x80].into())];
    container.mounts = vec![Mount {
        container_path: text("/data"),
        host_path: text("/var/data"),
        read_only: true,
        recursive_read_only: true,
        selinux_relabel: true,
        propagation: Propagation::HostToContainer,
        image: Some(mounted_image()),
        image_sub_path: "usr/bin".to_owned(),
    }];
    container.mounts.push(Mount {
        container_path: text("/dev/termination-log"),
        host_path: text("/var/lib/kubelet/pods/u/containers/app/1a2b3c4d"),
        read_only: false,
        recursive_read_only: false,
        image: None,
        image_sub_path: String::new(),
        ..container.mounts[0].clone()
    });
    let message_path = model::annotations::CONTAINER_TERMINATION_MESSAGE_PATH;
    container.annotations.insert(text(message_path), text("/dev/termination-log"));
    container.devices =
        vec![Device { container_path: text("/dev/x"), host_path: text("/dev/y"), permissions: text("rw") }];
    (container.stdin, container.stdin_once, container.tty) = (true, true, true);
    container.resources = model::request::LinuxResources {
        cpu_shares: Some(102),
        cpu_quota: Some(50_000),
        cpu_period: Some(100_000),
        memory_limit_bytes: Some(1 << 30),
        memory_swap_limit_bytes: Some(1 << 31),
        oom_score_adj: Some(-997),
        cpuset_cpus: text("0-1"),
        cpuset_mems: text("0"),
        hugepage_limits: vec![(text("2MB"), 4)],
        unified: [(text("memory.high"), text("1000"))].into(),
    };
    let security = &mut container.security;
    security.namespaces.pid = NamespaceMode::Target(model::ContainerId::new("c1"));
    security.namespaces.user = UserNamespace::Node;
    security.add_capabilities = vec![text("NET_ADMIN")];
    security.drop_capabilities = vec![text("ALL")];
    security.run_as = RunAs { uid: Some(0), username: String::new(), gid: Some(7) };
    security.supplemental_groups = vec![9];
    (security.read_only_rootfs, security.no_new_privs) = (true, true);
    security.masked_paths = vec![text("/proc/kcore")];
    security.readonly_paths = vec![text("/proc/sys")];
    security.selinux =
        Some(SelinuxLabel { user: text("u"), role: text("r"), kind: text("t"), level: text("s0") });
    security.seccomp = Some(SecurityProfile::RuntimeDefault);
    security.apparmor = Some(SecurityProfile::Unconfined);
    container.stop_signal = Some(text("SIGRTMIN+3"));
    let created = wire.cri.create_container(&id, &container, &sandbox).await.unwrap();
    assert_eq!(wire.fake.container_request("web", "app"), Some(container));

    let seen = wire.cri.container_status(&created).await.unwrap();
    assert_eq!(seen.recursive_read_only_mounts, ["/data"]);
    assert_eq!(seen.message_file, "/var/lib/kubelet/pods/u/containers/app/1a2b3c4d");
    assert_eq!(seen.stop_signal.as_deref(), Some("SIGRTMIN+3"));
    let user = seen.user.unwrap();
    assert_eq!((user.uid, user.gid, user.supplemental_groups), (0, 7, vec![9]));
}

#[tokio::test]
async fn requests_for_images_survive_the_wire() {
    let wire = wire(TIMEOUT);
    let text = |text: &str| text.to_owned();
    let request = model::request::ImageRequest {
        image: text("busybox:1"),
        annotations: [(text("a"), text("b"))].into(),
        runtime_handler: text("kata"),
    };
    let sandbox = world(&wire).sandbox_request("web");
    wire.cri.pull_image(&request, None, &sandbox).await.unwrap();
    assert_eq!(wire.fake.image_request(Method::PullImage), Some(request.clone()));
    wire.cri.image_status(&request).await.unwrap();
    assert_eq!(wire.fake.image_request(Method::ImageStatus), Some(request));
}

#[tokio::test]
async fn image_of_several_runtime_handlers_is_listed_for_each() {
    let wire = wire(TIMEOUT);
    let of = |id: &str, handler: &str| model::request::ImageObservation {
        id: id.to_owned(),
        size_bytes: 7,
        runtime_handler: handler.to_owned(),
        ..Default::default()
    };
    let images = [of("i1", ""), of("i1", "kata"), of("i1", "kata"), of("", "kata"), of("", "")];
    for (name, image) in ["a", "b", "c", "d", "e"].iter().zip(&images) {
        wire.fake.put_image(name, image.clone());
    }
    let mut listed = wire.cri.list_images().await.unwrap();
    // The one that every fake has.
    listed.retain(|image| image.repo_tags.is_empty());
    assert_eq!(listed, [images[0].clone(), images[1].clone(), images[3].clone()]);
}
