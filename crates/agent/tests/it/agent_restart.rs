//! Scenarios of agents that are restarted and runtimes that stop.

use std::path::{Path, PathBuf};
use std::time::Duration;

use fakes::{Exec, Fault, HostFault, HostMethod, Method, Program, Service};
use ports::Runtime;
use ports::node_api::PodTarget;
use serde_json::json;

use crate::pods::{container, container_with, pod};
use crate::world::{LINKS, PODS, World, manifest_path, seconds};

const URL_PORT: u16 = 8080;

#[tokio::test(start_paused = true)]
async fn restarted_agent_keeps_running_pods() {
    let mut world = World::started().await;
    world.fake.program("init", Program::exits(0, seconds(1)));
    world.apply(&pod("web", [container("app"), container("side")]).init([container("init")]));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    world.fake.forget_calls();
    for _ in 0..3 {
        world.restart().await;
        world.until("the pod is ready", |w| w.is_ready("web")).await;
        world.advance(seconds(100)).await;
    }
    assert_eq!(world.fake.call_lines(), Vec::<String>::new());
    assert_eq!(world.restarts("web", "app"), 0);
}

#[tokio::test(start_paused = true)]
async fn streams_of_a_pod_right_after_a_restart_wait_for_its_first_inspection() {
    let mut world = World::started().await;
    world.apply(&pod("web", [container("app")]));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    world.crash().await;
    world.fake.fault(Method::PodSandboxStatus, Fault::Slow(seconds(2)));
    world.start().await;
    let api = world.agent.as_ref().unwrap().api();
    world.until("the pod is known", |_| !api.pods().is_empty()).await;
    let (namespace, pod) = ("default".to_owned(), "web-node".to_owned());
    let (target, command) = (PodTarget { namespace, pod, uid: None }, ["true".to_owned()]);
    let began = world.now();
    api.run(&target, "app", &command).await.unwrap();
    assert!(world.now() - began > seconds(1), "it was inspected before: {:?}", world.now() - began);
    api.port_forward(&target, &[]).await.unwrap();
    assert!(api.run(&target, "other", &command).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn static_pod_removed_while_the_agent_was_down_is_terminated_after_restart() {
    let mut world = World::started().await;
    world.apply(&pod("web", [container("app")]));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    world.crash().await;
    world.remove("web");
    world.advance(seconds(60)).await;
    assert!(world.runs("web-node/app"), "containers outlive the agent");
    world.start().await;
    world.until("nothing is left", |w| w.traces().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn static_pod_changed_while_the_agent_was_down_waits_for_its_predecessor() {
    let mut world = World::started().await;
    world.fake.program("app", Program::runs().ignoring_term());
    let grace = json!({"terminationGracePeriodSeconds": 20});
    world.apply(&pod("web", [container("app")]).spec(grace.clone()));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    world.crash().await;
    world.apply(&pod("web", [container("app"), container("more")]).spec(grace));
    world.apply(&pod("other", [container("app")]));
    let back = world.now();
    world.start().await;
    world.until("the new pod runs", |w| w.runs("web-node/more")).await;
    let stopped = world.times_of("StopContainer web-node/app")[0] - back;
    assert!(stopped < Duration::from_millis(200), "the orphan was found after {stopped:?}");
    let sandboxes = world.times_of("RunPodSandbox web-node");
    assert!(sandboxes[1] >= back + seconds(20), "the new one started at {:?}", sandboxes[1]);
    let other = world.times_of("RunPodSandbox other-node")[0] - back;
    assert!(other < Duration::from_millis(200), "a pod that need not wait started after {other:?}");
}

#[tokio::test(start_paused = true)]
async fn manifest_invalid_at_start_keeps_its_pod_and_blocks_no_other() {
    let mut world = World::started().await;
    let web = pod("web", [container("app")]);
    world.apply(&web);
    world.apply(&pod("gone", [container("app")]));
    world.until("both are ready", |w| w.is_ready("web") && w.is_ready("gone")).await;
    world.crash().await;
    world.remove("gone");
    world.host.put(manifest_path("web"), "kind: Pod\nmetadata: {name: web");
    world.host.put(manifest_path("never"), "neither was this one ever good: {");
    world.start().await;
    world.until("it is listed", |w| w.is_ready("web")).await;
    world.until("the orphan is gone", |w| !w.traces().iter().any(|t| t.contains("gone-node"))).await;
    world.advance(seconds(120)).await;
    assert!(world.times_of("StopContainer web-node/app").is_empty());
    assert!(world.fake.end_container("web-node", "app", 1));
    world.until("it was restarted", |w| w.restarts("web", "app") == 1 && w.is_ready("web")).await;
    world.apply(&web);
    world.advance(seconds(60)).await;
    assert!(world.times_of("StopContainer web-node/app").is_empty(), "the manifest is as it was");
    world.remove("web");
    world.until("nothing is left", |w| w.traces().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn orphaned_pods_are_kept_while_an_unreadable_manifest_may_describe_them() {
    let mut world = World::started().await;
    world.apply(&pod("web", [container("app")]));
    world.apply(&pod("gone", [container("app")]));
    world.until("both are ready", |w| w.is_ready("web") && w.is_ready("gone")).await;
    world.crash().await;
    world.remove("gone");
    world.host.put(manifest_path("web"), "kind: Pod\nmetadata: {name: web");
    world.start().await;
    world.host.fault_below(HostMethod::ListDir, PODS, HostFault::Fails);
    world.advance(seconds(10)).await;
    assert!(world.runs("web-node/app") && world.runs("gone-node/app"), "either may be the one");
    world.until("it is listed", |w| w.is_ready("web")).await;
    world.until("the orphan is gone", |w| !w.traces().iter().any(|t| t.contains("gone-node"))).await;
    assert!(world.times_of("StopContainer web-node/app").is_empty());
}

/// The directory is renamed for a moment, or its name is misspelled at a start.
#[tokio::test(start_paused = true)]
async fn static_pods_stay_while_the_path_of_manifests_cannot_be_read() {
    let mut world = World::new();
    world.config.static_pod_url = format!("http://manifests:{URL_PORT}/all");
    let served = |name: &str| Service::Http { status: 200, body: pod(name, [container("app")]).text() };
    world.net.serve(URL_PORT, served("gone"));
    world.start().await;
    world.apply(&pod("web", [container("app")]));
    world.until("both are ready", |w| w.is_ready("web") && w.is_ready("gone")).await;
    world.crash().await;
    world.config.static_pod_path = "/etc/kubernetes/manifest".to_owned();
    world.net.serve(URL_PORT, served("other"));
    world.start().await;
    world
        .until("the pod of the URL that has gone is removed", |w| {
            !w.traces().iter().any(|trace| trace.contains("gone-node"))
        })
        .await;
    assert!(world.fake.end_container("web-node", "app", 1));
    world.until("the static pod is continued", |w| w.restarts("web", "app") == 1 && w.is_ready("web")).await;
    let problems = world.agent.as_ref().unwrap().manifest_problems().all();
    assert_eq!(problems[0].origin, "file:/etc/kubernetes/manifest");
    world.advance(seconds(120)).await;
    assert!(world.times_of("StopContainer web-node/app").is_empty());
    world.config.static_pod_path = crate::world::MANIFESTS.to_owned();
    world.restart().await;
    world.until("it is listed", |w| w.is_ready("web")).await;
    assert!(world.agent.as_ref().unwrap().manifest_problems().all().is_empty());
    assert!(world.times_of("StopContainer web-node/app").is_empty());
    world.remove("web");
    world.until("it is gone", |w| !w.traces().iter().any(|t| t.contains("web-node"))).await;
}

/// Pods of another kubelet have no checkpoint that shows their source.
#[tokio::test(start_paused = true)]
async fn pods_without_a_checkpoint_are_kept_until_the_path_of_manifests_can_be_read() {
    let mut world = World::started().await;
    world.apply(&pod("web", [container("app")]));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    world.crash().await;
    for checkpoint in world.host.files_below(PODS).iter().filter(|file| file.ends_with("/pod.json")) {
        world.host.delete(checkpoint);
    }
    world.config.static_pod_path = "/etc/kubernetes/manifest".to_owned();
    world.start().await;
    world.advance(seconds(120)).await;
    assert!(world.runs("web-node/app") && world.status("web").is_none(), "it may be a static pod");
    world.config.static_pod_path = crate::world::MANIFESTS.to_owned();
    world.restart().await;
    world.until("the pod is continued", |w| w.is_ready("web")).await;
    assert!(world.times_of("StopContainer web-node/app").is_empty());
}

#[tokio::test(start_paused = true)]
async fn pods_are_listed_as_pending_without_a_runtime() {
    let mut world = World::started().await;
    world.apply(&pod("web", [container("app")]));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    world.crash().await;
    world.apply(&pod("late", [container("app")]));
    world.fake.set_down(true);
    world.start().await;
    world.until("both are listed", |w| w.status("web").is_some() && w.status("late").is_some()).await;
    assert!(world.is_ready("web"));
    assert_eq!(world.phase("late").as_deref(), Some("Pending"));
    world.fake.set_down(false);
    world.until("the later one is ready", |w| w.is_ready("late")).await;
}

#[tokio::test(start_paused = true)]
async fn orphaned_pod_is_terminated_only_after_all_config_sources_are_ready() {
    let mut world = World::started().await;
    world.apply(&pod("web", [container("app")]));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    world.crash().await;
    world.remove("web");
    world.config.static_pod_url = format!("http://manifests:{URL_PORT}/all");
    // Silent for as long as a request may take.
    world.net.serve(URL_PORT, Service::Silent);
    world.start().await;
    world.advance(seconds(9)).await;
    assert!(world.runs("web-node/app"), "the other source might still specify it");
    world.net.serve(URL_PORT, Service::Http { status: 200, body: pod("other", [container("app")]).text() });
    world.until("the orphan is gone", |w| !w.traces().iter().any(|t| t.contains("web-node"))).await;
    world.until("the other source's pod runs", |w| w.runs("other-node/app")).await;
}

#[tokio::test(start_paused = true)]
async fn manifest_url_silent_at_start_keeps_its_pod_and_blocks_no_other() {
    let mut world = World::new();
    world.config.static_pod_url = format!("http://manifests:{URL_PORT}/all");
    let served = |name: &str| Service::Http { status: 200, body: pod(name, [container("app")]).text() };
    world.net.serve(URL_PORT, served("web"));
    world.start().await;
    world.apply(&pod("gone", [container("app")]));
    world.until("both are ready", |w| w.is_ready("web") && w.is_ready("gone")).await;
    world.crash().await;
    world.remove("gone");
    world.net.close(URL_PORT);
    world.start().await;
    // The first time, the checkpoint cannot be read.
    world.host.fault_below(HostMethod::ListDir, PODS, HostFault::Fails);
    world.until("it is listed", |w| w.is_ready("web")).await;
    world.until("the orphan is gone", |w| !w.traces().iter().any(|t| t.contains("gone-node"))).await;
    world.advance(seconds(120)).await;
    world.net.serve(URL_PORT, served("web"));
    world.advance(seconds(120)).await;
    assert!(world.times_of("StopContainer web-node/app").is_empty(), "the manifest is as it was");
    world.net.serve(URL_PORT, served("new"));
    world.until("the new one is ready", |w| w.is_ready("new")).await;
    world.until("the old one is gone", |w| !w.traces().iter().any(|t| t.contains("web-node"))).await;
}

#[tokio::test(start_paused = true)]
async fn runtime_outage_of_five_minutes_restarts_no_container() {
    let world = World::started().await;
    world.apply(&pod("web", [container("app")]));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    world.fake.forget_calls();
    world.fake.set_down(true);
    world.apply(&pod("late", [container("app")]));
    world.advance(seconds(300)).await;
    assert_eq!(world.fake.running(), ["web-node/app"]);
    assert!(world.is_ready("web"));
    world.fake.set_down(false);
    let back = world.now();
    let ready = world.until("the later one is ready", |w| w.is_ready("late")).await;
    assert!(ready < back + seconds(5), "it took {:?}", ready - back);
    assert_eq!(world.restarts("web", "app"), 0);
    assert!(world.times_of("StopContainer web-node/app").is_empty());
}

#[tokio::test(start_paused = true)]
async fn static_pod_removed_while_the_runtime_is_down_is_terminated_later() {
    let world = World::started().await;
    world.apply(&pod("web", [container("app")]));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    world.fake.set_down(true);
    world.remove("web");
    world.advance(seconds(300)).await;
    assert!(world.runs("web-node/app"));
    world.fake.set_down(false);
    let back = world.now();
    let gone = world.until("nothing is left", |w| w.traces().is_empty()).await;
    assert!(gone < back + seconds(20), "it took {:?}", gone - back);
}

#[tokio::test(start_paused = true)]
async fn dead_sandbox_is_replaced() {
    let world = World::started().await;
    world.fake.program("init", Program::exits(0, seconds(1)));
    world.apply(&pod("web", [container("app")]).init([container("init")]));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    world.fake.kill_sandboxes("web-node");
    world.until("a new one exists", |w| w.times_of("RunPodSandbox web-node#1").len() == 1).await;
    world.until("the pod is ready again", |w| w.runs("web-node/app") && w.is_ready("web")).await;
    assert_eq!(world.restarts("web", "app"), 1);
}

#[tokio::test(start_paused = true)]
async fn container_lost_from_the_runtime_counts_as_killed_and_is_restarted() {
    let world = World::started().await;
    world.apply(&pod("web", [container("app"), container("side")]));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    let lost = world.fake.containers().into_iter().map(|(_, c)| c).find(|c| &*c.name == "app").unwrap().id;
    assert!(world.fake.end_container("web-node", "app", 0));
    world.fake.remove_container(&lost).await.unwrap();
    world.until("it was started again", |w| w.restarts("web", "app") == 1 && w.is_ready("web")).await;
    let app = world.container("web", "app").unwrap();
    let last = app.last_state.and_then(|state| state.terminated).unwrap();
    assert_eq!((last.reason.as_deref(), last.exit_code), (Some("ContainerStatusUnknown"), 137));
    assert_ne!(app.container_id.unwrap(), format!("fake://{lost}"));
    assert_eq!(world.restarts("web", "side"), 0);
}

/// A member of a cluster whose container restarts while the status of its pod cannot be written; also the pod's name there, and the
/// file of its status.
async fn restarted_while_its_disk_is_full(is_static: bool) -> (World, &'static str, PathBuf) {
    let world = World::joined().await;
    world.fake.program("app", Program::runs().on_exec(|_| Exec::exits(0).taking(seconds(3))));
    let probe = json!({"exec": {"command": ["slow"]}, "timeoutSeconds": 10});
    let manifest = pod("web", [container_with("app", json!({"readinessProbe": probe}))]).uid("u-1");
    let name = if is_static { "web-node" } else { "web" };
    let uid = if is_static {
        world.apply(&manifest);
        "u-1".to_owned()
    } else {
        world.create(&manifest).metadata.uid.unwrap()
    };
    world.until("the pod is ready", |w| w.is_ready_in_api(name)).await;
    world.advance(seconds(2)).await;
    let file = Path::new(PODS).join(uid).join("status.json");
    assert!(world.host.text(&file).is_some());
    for _ in 0..20 {
        world.host.fault_below(HostMethod::WriteFile, &file, HostFault::Fails);
    }
    world.fake.end_container(name, "app", 1);
    let restarts = |w: &World| w.api_status(name).container_statuses.unwrap()[0].restart_count;
    world.until("it was restarted", |w| restarts(w) == 1 && w.is_ready_in_api(name)).await;
    (world, name, file)
}

#[tokio::test(start_paused = true)]
async fn status_that_could_not_be_written_on_a_full_disk_is_written_once_there_is_space() {
    let (world, _, file) = restarted_while_its_disk_is_full(false).await;
    let has_restart = |w: &World| w.host.text(&file).is_some_and(|text| text.contains("\"restartCount\":1"));
    world.advance(seconds(2)).await;
    assert!(!has_restart(&world));
    world.host.clear_faults();
    let before = world.now();
    let written = world.until("it is written", has_restart).await;
    assert!(written - before < seconds(11), "{:?}", written - before);
}

#[tokio::test(start_paused = true)]
async fn restarted_agent_continues_from_the_api_where_its_disk_has_an_older_status() {
    let (mut world, name, _) = restarted_while_its_disk_is_full(false).await;
    world.crash().await;
    world.host.clear_faults();
    let patches = world.api_calls("patch pods/status default/web");
    world.start().await;
    world.advance(seconds(30)).await;
    assert!(world.is_ready_in_api(name));
    assert_eq!(world.api_calls("patch pods/status default/web"), patches, "{}", world.describe());
}

/// The runtime does not answer, so that the kubelet knows nothing but what is on disk.
#[tokio::test(start_paused = true)]
async fn restarted_agent_sends_no_older_status_from_its_disk() {
    for is_static in [false, true] {
        let (mut world, name, _) = restarted_while_its_disk_is_full(is_static).await;
        world.crash().await;
        world.host.clear_faults();
        world.fake.set_down(true);
        world.start().await;
        for _ in 0..30 {
            world.advance(seconds(1)).await;
            assert_eq!(world.api_status(name).container_statuses.unwrap()[0].restart_count, 1);
        }
        world.fake.set_down(false);
        world.until("it is ready", |w| w.is_ready_in_api(name)).await;
        assert_eq!(world.api_status(name).container_statuses.unwrap()[0].restart_count, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn agent_killed_between_create_and_start_starts_the_created_container() {
    let mut world = World::started().await;
    world.fake.fault(Method::StartContainer, Fault::Hang);
    world.apply(&pod("web", [container("app")]));
    world.until("the start hangs", |w| w.fake.count(Method::StartContainer) == 1).await;
    world.restart().await;
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    assert_eq!(world.times_of("CreateContainer web-node/app").len(), 1);
    assert_eq!(world.fake.containers().len(), 1);
    assert_eq!(world.restarts("web", "app"), 0, "the only instance is the first one");
    let logs: Vec<_> = world.fake.containers().into_iter().map(|(_, container)| container.log_path).collect();
    assert!(logs[0].ends_with("/app/0.log"), "{logs:?}");
    world.host.put(&logs[0], "its log");
    let links: Vec<_> = world.host.files_below(LINKS).iter().map(|link| world.host.text(link)).collect();
    assert_eq!(links, [Some("its log".to_owned())], "the link for log collectors leads to the log");
}

#[tokio::test(start_paused = true)]
async fn runtime_with_an_unsupported_version_is_not_ready_with_a_reason() {
    let mut world = World::new();
    let refusal = "version \"0.2.0\" is not supported";
    world.fake.fault_always(Method::Version, Some(Fault::Failed(refusal.to_owned())));
    world.start().await;
    let view = |w: &World| w.agent.as_ref().unwrap().node().borrow().clone();
    world
        .until("the node reports the reason", |w| view(w).error.is_some_and(|why| why.contains(refusal)))
        .await;
    assert_eq!(view(&world).last_ready, None);
    world.fake.clear_faults();
    world.until("the runtime is ready", |w| view(w).last_ready.is_some()).await;
    assert_eq!((view(&world).version.name.as_str(), view(&world).error), ("fake", None));
}

#[tokio::test(start_paused = true)]
async fn container_ids_after_a_restart_begin_with_the_name_of_a_runtime_that_reports_it_late() {
    let mut world = World::started().await;
    world.apply(&pod("web", [container("app")]));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    let id = |w: &World| w.container("web", "app").and_then(|status| status.container_id);
    let before = id(&world).expect("it runs");
    assert!(before.starts_with("fake://"), "{before}");
    for late in [Method::Version, Method::Status] {
        world.crash().await;
        world.fake.fault(late, Fault::Slow(seconds(2)));
        world.start().await;
        world.until("the container is shown", |w| id(w).is_some()).await;
        assert_eq!(id(&world), Some(before.clone()), "the first time, with a late {late:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn changed_ip_family_of_the_node_is_reported_once() {
    let mut world = World::started().await;
    world.apply(&pod("web", [container("app")]));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    world.settings.host_ips = vec!["2001:db8::1".parse().unwrap()];
    world.restart().await;
    world.advance(seconds(100)).await;
    let events = world.agent.as_ref().unwrap().recorder().latest();
    assert_eq!(events.iter().filter(|event| event.reason == "HostIPsIPFamilyMismatch").count(), 1);
}

#[tokio::test(start_paused = true)]
async fn cgroup_v1_is_reported_at_start() {
    let is_warned = async |cgroup_v2| {
        let mut world = World::new();
        world.cgroup_v2 = cgroup_v2;
        world.start().await;
        let events = world.agent.as_ref().unwrap().recorder().latest();
        events
            .iter()
            .any(|event| event.reason == "CgroupV1" && event.message.contains("migrate to cgroup v2"))
    };
    assert!(is_warned(false).await);
    assert!(!is_warned(true).await);
}

#[tokio::test(start_paused = true)]
async fn tmpfs_without_noswap_is_reported_at_start() {
    let warnings = async |swap_bytes, takes_tmpfs| {
        let mut world = World::new();
        world.host.set_swap(swap_bytes, takes_tmpfs);
        world.start().await;
        world.recorded("PossibleMemoryBackedVolumesOnDisk")
    };
    assert_eq!(
        (warnings(1 << 30, true).await, warnings(1 << 30, false).await, warnings(0, true).await),
        (1, 0, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn orphaned_pod_volumes_and_cleanup_failures_are_counted() {
    let mut world = World::started().await;
    world.crash().await;
    // Left by a pod that the Go kubelet ran, with a volume of a type that does not exist here.
    let volume = format!("{PODS}/found/volumes/kubernetes.io~rbd/data");
    world.host.put(format!("{volume}/mount/file"), "");
    world.start().await;
    world.host.fault_below(HostMethod::UnmountTree, format!("{PODS}/found"), HostFault::Fails);
    let numbers = ["orphan_pod_cleaned_volumes_errors 1", "cleaned_failed_volume_operation_errors_total 1"];
    wait_for_metrics(&world, &numbers).await;
    world.until("it is gone", |w| !w.host.exists(format!("{PODS}/found"))).await;
    let numbers = [
        "kubelet_orphan_pod_cleaned_volumes 1",
        "kubelet_orphan_pod_cleaned_volumes_errors 0",
        "force_cleaned_failed_volume_operations_total 2",
        "force_cleaned_failed_volume_operation_errors_total 1",
        "reconstruct_volume_operations_errors_total 1",
    ];
    wait_for_metrics(&world, &numbers).await;
    wait_for_metrics(&world, &["kubelet_orphan_pod_cleaned_volumes 0"]).await;
}

/// Waits until the metrics have a line that ends like each of these.
async fn wait_for_metrics(world: &World, lines: &[&str]) {
    let deadline = world.now() + seconds(100);
    loop {
        let metrics = world.metrics().await;
        if lines.iter().all(|line| metrics.lines().any(|warnings| warnings.ends_with(line))) {
            return;
        }
        assert!(world.now() < deadline, "timed out waiting for {lines:?} in {metrics}");
        world.advance(Duration::from_millis(100)).await;
    }
}
