//! Scenarios of a node under pressure: which pods are evicted, what is reclaimed first, what the API shows, and how it recovers.

use config::GoDuration;
use fakes::{Fault, Method, Program};
use model::stats::FilesystemSpace;
use serde_json::{Value, json};

use crate::pods::{Manifest, container, container_with, pod};
use crate::world::{World, seconds};

const MI: u64 = 1 << 20;
const GI: u64 = 1 << 30;

/// A node of a cluster with these eviction fields of the configuration and these images.
async fn world_with_thresholds(fields: Value, images: &[&str]) -> World {
    let mut world = unstarted_world_with_thresholds(fields);
    for image in images {
        world.fake.image(image);
    }
    world.start().await;
    world.until("the node is ready", World::is_node_ready).await;
    world
}

/// Does the same without images, and without an agent.
fn unstarted_world_with_thresholds(fields: Value) -> World {
    let mut world = World::of_cluster();
    let mut whole = serde_json::to_value(&world.config).unwrap();
    whole["enforceNodeAllocatable"] = json!([]);
    whole.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    world.config = serde_json::from_value(whole).unwrap();
    set_available_memory(&world, 4 * GI);
    world
}

/// Sets how much of the machine's 8 GiB is available.
fn set_available_memory(world: &World, bytes: u64) {
    let (total, free) = (8 * GI / 1024, bytes / 1024);
    let text = format!("MemTotal: {total} kB\nMemFree: {free} kB\nInactive(file): 0 kB\n");
    world.host.put("/proc/meminfo", text);
}

/// Sets the memory usage of each container of the pod.
fn use_memory(world: &World, name: &str, bytes: u64) {
    let uid = world.in_api(name).and_then(|pod| pod.metadata.uid).unwrap();
    for (_, container) in world.fake.containers().iter().filter(|(of, _)| of.as_str() == uid) {
        let dir = format!("/sys/fs/cgroup/k8s.io/{}", container.id);
        world.host.put(format!("{dir}/memory.current"), format!("{bytes}\n"));
        world.host.put(format!("{dir}/memory.stat"), "inactive_file 0\n");
        world.host.put(format!("{dir}/cpu.stat"), "usage_usec 1\n");
    }
}

fn requesting(name: &str, memory: &str) -> Manifest {
    pod(name, [container_with("app", json!({"resources": {"requests": {"memory": memory}}}))])
}

async fn running(world: &World, pods: &[Manifest]) {
    for pod in pods {
        world.create(pod);
    }
    for pod in pods {
        world.until("it is ready", |w| w.is_ready_in_api(&pod.name)).await;
    }
}

fn has_condition(world: &World, kind: &str) -> String {
    world
        .node_condition(kind)
        .map_or_else(String::new, |c| format!("{} {}", c.status, c.reason.unwrap_or_default()))
}

fn is_evicted(world: &World, name: &str) -> bool {
    let status = world.api_status(name);
    status.phase.as_deref() == Some("Failed") && status.reason.as_deref() == Some("Evicted")
}

#[tokio::test(start_paused = true)]
async fn eviction_under_memory_pressure_evicts_highest_usage_over_request_and_recovers() {
    let world = world_with_thresholds(
        json!({"evictionHard": {"memory.available": "1Gi"},
        "evictionPressureTransitionPeriod": "60s"}),
        &[],
    )
    .await;
    running(
        &world,
        &[requesting("modest", "2Gi"), requesting("greedy", "100Mi"), pod("small", [container("app")])],
    )
    .await;
    use_memory(&world, "modest", GI);
    use_memory(&world, "greedy", 700 * MI);
    use_memory(&world, "small", 10 * MI);
    set_available_memory(&world, 900 * MI);
    world.until("a pod is evicted", |w| is_evicted(w, "greedy")).await;
    set_available_memory(&world, 3 * GI);
    let status = world.api_status("greedy");
    let message = "The node was low on resource: memory. Threshold quantity: 1Gi, available: 900Mi. Container app was using 700Mi, request is 100Mi, has larger consumption of memory. ";
    assert_eq!(status.message.as_deref(), Some(message));
    let why = status.conditions.iter().flatten().find(|c| c.type_ == "DisruptionTarget").cloned().unwrap();
    assert_eq!(
        (why.status.as_str(), why.reason.as_deref(), why.message.as_deref()),
        ("True", Some("TerminationByKubelet"), Some(message))
    );
    world.until("the event is reported", |w| !w.api_events("Evicted").is_empty()).await;
    let event = world.api_events("Evicted").remove(0);
    assert_eq!(event.message.as_deref(), Some(message));
    let annotations = event.metadata.annotations.unwrap();
    assert_eq!(annotations["offending_containers"], "app");
    assert_eq!(annotations["offending_containers_usage"], "700Mi");
    assert_eq!(annotations["starved_resource"], "memory");
    world
        .until("the node reports it", |w| {
            has_condition(w, "MemoryPressure") == "True KubeletHasInsufficientMemory"
        })
        .await;
    assert_eq!(
        world.api_events("EvictionThresholdMet")[0].message.as_deref(),
        Some("Attempting to reclaim memory")
    );

    world.create(&pod("late", [container("app")]));
    world.until("even a pod without requests is rejected", |w| is_evicted(w, "late")).await;
    let refusal = "Pod was rejected: The node had condition: [MemoryPressure]. ";
    assert_eq!(world.api_status("late").message.as_deref(), Some(refusal));
    assert!(world.api_status("late").conditions.iter().flatten().all(|c| c.type_ != "DisruptionTarget"));
    running(&world, &[requesting("asking", "1Mi")]).await;
    let relieved = world.now();
    world
        .until("the node has recovered", |w| {
            has_condition(w, "MemoryPressure") == "False KubeletHasSufficientMemory"
        })
        .await;
    assert!(world.now() - relieved < seconds(75), "{:?}", world.now() - relieved);
    running(&world, &[pod("later", [container("app")])]).await;
    assert!(world.is_ready_in_api("modest") && world.is_ready_in_api("small"), "only one was evicted");
    let metrics = world.metrics().await;
    assert!(metrics.contains("kubelet_evictions{eviction_signal=\"memory.available\"} 1"), "{metrics}");
    assert!(
        metrics.contains("kubelet_eviction_stats_age_seconds_count{eviction_signal=\"memory.available\"} 1")
    );
}

#[tokio::test(start_paused = true)]
async fn memory_threshold_notifier_triggers_eviction_and_is_updated_after_each_observation() {
    let mut world = unstarted_world_with_thresholds(json!({"evictionHard": {"memory.available": "1Gi"}}));
    world.config.kernel_memcg_notification = true;
    world.start().await;
    world.until("the node is ready", World::is_node_ready).await;
    running(&world, &[pod("one", [container("app")])]).await;
    use_memory(&world, "one", GI);
    let threshold = || world.cgroups.memory_thresholds().first().map(|threshold| threshold.bytes);
    world.until("the kernel gets the threshold", |_| threshold() == Some(7 * GI + 1)).await;
    // Inactive page cache does not count.
    set_available_memory(&world, 900 * MI);
    let text = format!(
        "MemTotal: {} kB\nMemFree: {} kB\nInactive(file): {} kB\n",
        8 * GI / 1024,
        900 * 1024,
        500 * 1024
    );
    world.host.put("/proc/meminfo", text);
    world.advance(seconds(2)).await;
    let rung = world.now();
    world.cgroups.notify_memory_threshold();
    world.until("it is requested again", |_| threshold() == Some(7 * GI + 500 * MI + 1)).await;
    assert!(world.now() - rung < seconds(2), "the next observation was not waited for");
    assert_eq!(world.recorded("Evicted"), 0);
    world.advance(seconds(2)).await;
    set_available_memory(&world, 900 * MI);
    let rung = world.now();
    world.cgroups.notify_memory_threshold();
    world.until("a pod is evicted", |w| w.recorded("Evicted") == 1).await;
    assert!(world.now() - rung < seconds(2), "{:?}", world.now() - rung);
    world.until("it is gone", |w| is_evicted(w, "one")).await;
    world.advance(seconds(2)).await;
    assert_eq!(
        threshold(),
        Some(7 * GI + 500 * MI + 1),
        "a threshold that is already crossed is not watched"
    );
}

#[tokio::test(start_paused = true)]
async fn eviction_evicts_one_pod_at_a_time_and_never_critical_pods() {
    let world = world_with_thresholds(json!({"evictionHard": {"memory.available": "1Gi"}}), &[]).await;
    let critical = pod("critical", [container("app")]).spec(json!({"priority": 2_000_000_000}));
    let stubborn = pod("stubborn", [container("slow")]).spec(json!({"priority": 1}));
    world.fake.program("slow", Program::runs().ignoring_term());
    running(&world, &[critical, stubborn, pod("first", [container("app")])]).await;
    for name in ["critical", "stubborn", "first"] {
        use_memory(&world, name, GI);
    }
    set_available_memory(&world, 10 * MI);
    world.until("the least important pod is gone", |w| is_evicted(w, "first")).await;
    assert!(!is_evicted(&world, "stubborn"));
    world.until("the next one is gone, too", |w| is_evicted(w, "stubborn")).await;
    world.advance(seconds(120)).await;
    assert!(world.is_ready_in_api("critical"));
    assert_eq!(world.recorded("Evicted"), 2);
}

#[tokio::test(start_paused = true)]
async fn eviction_of_a_pod_that_is_not_killed_in_time_is_reported_once() {
    let world = world_with_thresholds(json!({"evictionHard": {"memory.available": "1Gi"}}), &[]).await;
    running(&world, &[pod("one", [container("app")]), pod("two", [container("app")])]).await;
    use_memory(&world, "one", GI);
    use_memory(&world, "two", MI);
    let stops = [Method::StopContainer, Method::StopPodSandbox];
    for method in stops {
        world.runtime.fault("two", method, Some(Fault::Failed("stuck".to_owned())));
    }
    set_available_memory(&world, 10 * MI);
    world.until("the first one is gone in time", |w| is_evicted(w, "one")).await;
    world.until("the second one is evicted, too", |w| w.recorded("Evicted") == 2).await;
    let since = world.now();
    let reported_at =
        world.until("it exceeds its grace period", |w| w.recorded("ExceededGracePeriod") == 1).await;
    assert!(
        reported_at - since >= seconds(10) && reported_at - since < seconds(11),
        "{:?}",
        reported_at - since
    );
    world.advance(seconds(60)).await;
    let latest = world.agent.as_ref().unwrap().recorder().latest().into_iter();
    let messages: Vec<_> = latest.filter(|e| e.reason == "ExceededGracePeriod").map(|e| e.message).collect();
    assert_eq!(messages, ["Container runtime did not kill the pod within specified grace period."]);
    for method in stops {
        world.runtime.fault("two", method, None);
    }
    world.until("it is gone", |w| is_evicted(w, "two")).await;
}

#[tokio::test(start_paused = true)]
async fn soft_eviction_threshold_waits_and_uses_the_max_pod_grace_period() {
    let world = world_with_thresholds(
        json!({"evictionSoft": {"memory.available": "1Gi"},
        "evictionSoftGracePeriod": {"memory.available": "1m"}, "evictionMaxPodGracePeriod": 7}),
        &[],
    )
    .await;
    world.fake.program("slow", Program::runs().ignoring_term());
    running(&world, &[pod("one", [container("slow")])]).await;
    use_memory(&world, "one", GI);
    set_available_memory(&world, 500 * MI);
    world.until("the node reports it", |w| has_condition(w, "MemoryPressure").starts_with("True")).await;
    let shown = world.now();
    let reported_at = world.until("it is evicted", |w| w.recorded("Evicted") == 1).await;
    let waited = reported_at - shown;
    assert!(waited >= seconds(59) && waited <= seconds(71), "{waited:?}");
    let took = world.until("it is gone", |w| is_evicted(w, "one")).await - reported_at;
    assert!(took >= seconds(7) && took <= seconds(9), "{took:?}");
}

fn full(space: &mut FilesystemSpace) {
    space.available_bytes = GI;
}

fn half_full(space: &mut FilesystemSpace) {
    space.available_bytes = 50 * GI;
}

#[tokio::test(start_paused = true)]
async fn disk_pressure_reclaims_unused_images_and_dead_containers_before_evicting_pods() {
    let world =
        world_with_thresholds(json!({"evictionHard": {"nodefs.available": "10%"}}), &["old:1", "older:1"])
            .await;
    let done = pod("done", [container("job")]).restart_policy("Never");
    world.fake.program("job", Program::exits(0, seconds(1)));
    world.create(&done);
    running(&world, &[pod("web", [container("app")])]).await;
    world.until("the job is done", |w| w.api_phase("done") == "Succeeded").await;
    world.fake.latency(Method::RemoveImage, seconds(2));
    world.fake.forget_calls();
    world.host.set_space("/", full);
    world.until("an image is removed", |w| w.fake.count(Method::RemoveImage) > 0).await;
    world.host.set_space("/", half_full);
    world
        .until("the node reports it", |w| has_condition(w, "DiskPressure") == "True KubeletHasDiskPressure")
        .await;
    world.advance(seconds(70)).await;
    assert_eq!(world.fake.count(Method::RemoveContainer), 1, "that of the job");
    assert_eq!(world.fake.count(Method::RemoveImage), 2, "a recently pulled image stays");
    assert_eq!((world.api_phase("done").as_str(), world.recorded("Evicted")), ("Succeeded", 0));
    let ended = world.api_status("done").container_statuses.unwrap();
    assert!(
        ended[0].state.as_ref().unwrap().terminated.is_some(),
        "its termination message is in the API: {ended:?}"
    );
    assert!(world.is_ready_in_api("web"));
    let metrics = world.metrics().await;
    assert!(metrics.contains("kubelet_image_garbage_collected_total{reason=\"space\"} 2"), "{metrics}");
}

#[tokio::test(start_paused = true)]
async fn delayed_space_reclaim_of_the_runtime_evicts_no_pod() {
    let world = world_with_thresholds(json!({"evictionHard": {"nodefs.available": "10%"}}), &["old:1"]).await;
    running(&world, &[pod("web", [container("app")])]).await;
    world.fake.forget_calls();
    world.host.set_space("/", full);
    world.until("an image is removed", |w| w.fake.count(Method::RemoveImage) > 0).await;
    world.advance(seconds(3)).await;
    world.host.set_space("/", half_full);
    world.advance(seconds(30)).await;
    assert_eq!(world.recorded("Evicted"), 0);
    // Where nothing more can be reclaimed, nothing is waited for.
    let before = world.now();
    world.host.set_space("/", full);
    world.until("a pod is evicted", |w| w.recorded("Evicted") == 1).await;
    assert!(world.now() - before < seconds(12), "{:?}", world.now() - before);
}

#[tokio::test(start_paused = true)]
async fn disk_pressure_evicts_the_pod_with_the_highest_disk_usage() {
    let world = world_with_thresholds(
        json!({"evictionHard": {"nodefs.inodesFree": "5%"},
        "evictionMinimumReclaim": {"nodefs.inodesFree": "1k"}}),
        &[],
    )
    .await;
    running(&world, &[pod("web", [container("app")]), pod("chatty", [container("app")])]).await;
    let chatty = world.in_api("chatty").and_then(|pod| pod.metadata.uid).unwrap();
    for file in 0..5 {
        world.host.put(format!("/var/log/pods/default_chatty_{chatty}/app/{file}.log"), "x");
    }
    world.host.set_space("/", |space| space.inodes_free = 40_000);
    world.until("it is evicted", |w| is_evicted(w, "chatty")).await;
    world.host.set_space("/", |space| space.inodes_free = 50_500);
    world.until("more is to be reclaimed", |w| is_evicted(w, "web")).await;
    let message = "The node was low on resource: inodes. Threshold quantity: 50000, available: 40k. ";
    assert_eq!(world.api_status("chatty").message.as_deref(), Some(message));
    world.create(&requesting("late", "1Mi"));
    world.until("no client is authorized", |w| is_evicted(w, "late")).await;
}

#[tokio::test(start_paused = true)]
async fn pid_pressure_evicts_the_pod_with_the_most_processes() {
    let world = world_with_thresholds(json!({"evictionHard": {"pid.available": "100"}}), &[]).await;
    world.host.put("/proc/sys/kernel/pid_max", "1000\n").put("/proc/sys/kernel/threads-max", "2000\n");
    running(&world, &[pod("one", [container("app")]), pod("two", [container("app")])]).await;
    for name in ["one", "two"] {
        use_memory(&world, name, MI);
    }
    let two = world.in_api("two").and_then(|pod| pod.metadata.uid).unwrap();
    for (uid, container) in world.fake.containers() {
        let processes = if uid.as_str() == two { "1\n2\n3\n" } else { "4\n" };
        world.host.put(format!("/sys/fs/cgroup/k8s.io/{}/cgroup.procs", container.id), processes);
    }
    world.host.put("/proc/loadavg", "0.0 0.0 0.0 1/950 77\n");
    world.until("it is evicted", |w| is_evicted(w, "two")).await;
    world.host.put("/proc/loadavg", "0.0 0.0 0.0 1/500 77\n");
    world
        .until("the node reports it", |w| has_condition(w, "PIDPressure") == "True KubeletHasInsufficientPID")
        .await;
    let message = "The node was low on resource: pids. Threshold quantity: 100, available: 50. ";
    assert_eq!(world.api_status("two").message.as_deref(), Some(message));
    assert!(world.is_ready_in_api("one"));
}

#[tokio::test(start_paused = true)]
async fn pod_over_its_ephemeral_storage_limit_is_evicted_without_disk_pressure() {
    let world = world_with_thresholds(json!({}), &[]).await;
    let volumes = json!({"volumes": [{"name": "data", "emptyDir": {"sizeLimit": "1Ki"}}]});
    let mounts = json!({"volumeMounts": [{"name": "data", "mountPath": "/data"}]});
    let writer = pod("writer", [container_with("app", mounts)]).spec(volumes);
    let limited = json!({"resources": {"limits": {"ephemeral-storage": "5Ki"}}});
    running(
        &world,
        &[writer, pod("logger", [container_with("app", limited)]), pod("free", [container("app")])],
    )
    .await;
    let uid = |name: &str| world.in_api(name).and_then(|pod| pod.metadata.uid).unwrap();
    let volume = format!("/var/lib/kubelet/pods/{}/volumes/kubernetes.io~empty-dir/data", uid("writer"));
    world.host.put(format!("{volume}/file"), vec![0; 1025]);
    // The fake's containers have written 4 KiB each.
    world.host.put(format!("/var/log/pods/default_logger_{}/app/0.log", uid("logger")), vec![0; 1025]);
    world.host.put(format!("/var/log/pods/default_free_{}/app/0.log", uid("free")), vec![0; 1025]);
    world.until("the writer is evicted", |w| is_evicted(w, "writer")).await;
    world.until("the logger is evicted", |w| is_evicted(w, "logger")).await;
    let message = |name: &str| world.api_status(name).message.unwrap_or_default();
    assert_eq!(message("writer"), "Usage of EmptyDir volume \"data\" exceeds the limit \"1Ki\". ");
    assert_eq!(
        message("logger"),
        "Pod ephemeral local storage usage exceeds the total limit of containers 5Ki. "
    );
    assert!(world.api_status("writer").conditions.iter().flatten().all(|c| c.type_ != "DisruptionTarget"));
    assert!(world.is_ready_in_api("free"));
    let metrics = world.metrics().await;
    assert!(metrics.contains("kubelet_evictions{eviction_signal=\"emptydirfs.limit\"} 1"), "{metrics}");
    assert!(metrics.contains("kubelet_evictions{eviction_signal=\"ephemeralpodfs.limit\"} 1"));
}

#[tokio::test(start_paused = true)]
async fn image_gc_runs_from_high_threshold_down_to_low_threshold() {
    let mut world = World::of_cluster();
    world.config.image_minimum_gc_age = GoDuration::from_secs(600);
    world.fake.image("a:1").image("b:1").image("c:1");
    world.start().await;
    world.until("the node is ready", World::is_node_ready).await;
    running(&world, &[pod("web", [container("a")])]).await;
    world.advance(seconds(310)).await;
    assert_eq!(world.fake.count(Method::RemoveImage), 0, "the pod fits");
    // Images of the fake have a million bytes: one of them is enough.
    world.host.set_space("/", |space| {
        *space = FilesystemSpace { capacity_bytes: 10_000_000, available_bytes: 1_500_000, ..*space }
    });
    world.until("one is evicted", |w| w.fake.count(Method::RemoveImage) == 1).await;
    world.host.set_space("/", |space| space.available_bytes = 2_500_000);
    world.advance(seconds(610)).await;
    assert_eq!(world.fake.count(Method::RemoveImage), 1, "that was enough");
    world.host.set_space("/", |space| space.available_bytes = 500_000);
    world.until("it is not enough", |w| !w.api_events("FreeDiskSpaceFailed").is_empty()).await;
    let message = world.api_events("FreeDiskSpaceFailed").remove(0).message.unwrap();
    assert!(
        message.contains("(95% of 9.5 MiB used)")
            && message.contains("deleting unused images (freed 1000000 bytes)."),
        "{message}"
    );
    assert!(world.api_events("ImageGCFailed").is_empty(), "the first time may be a coincidence");
    world.until("it fails again", |w| !w.api_events("ImageGCFailed").is_empty()).await;
    assert!(world.is_ready_in_api("web"));
    assert_eq!(world.fake.count(Method::RemoveImage), 2, "running containers stay");
}

#[tokio::test(start_paused = true)]
async fn image_gc_removes_images_unused_for_image_maximum_gc_age() {
    let mut world = World::of_cluster();
    world.config.image_maximum_gc_age = GoDuration::from_secs(1000);
    world.fake.image("old:1").image("app:1");
    world.start().await;
    world.until("the node is ready", World::is_node_ready).await;
    running(&world, &[pod("web", [container("app")])]).await;
    world.advance(seconds(990)).await;
    assert_eq!(world.fake.count(Method::RemoveImage), 0);
    // Checked every five minutes.
    world.advance(seconds(310)).await;
    assert_eq!(world.fake.count(Method::RemoveImage), 1);
    world.advance(seconds(2000)).await;
    assert_eq!(world.fake.count(Method::RemoveImage), 1, "running containers stay");
    let metrics = world.metrics().await;
    assert!(metrics.contains("kubelet_image_garbage_collected_total{reason=\"age\"} 1"), "{metrics}");
}

/// An agent that is restarted after a kill while the disk has become full, and whose containers report their usage late.
async fn restarted_on_a_full_disk(images: &[&str]) -> World {
    let mut world = World::of_cluster();
    for image in images {
        world.fake.image(image);
    }
    world.start().await;
    world.until("the node is ready", World::is_node_ready).await;
    running(&world, &[pod("web", [container("a")])]).await;
    world.crash().await;
    world.host.set_space("/", full);
    world.fake.latency(Method::ContainerStatus, seconds(5));
    world.fake.forget_calls();
    world.start().await;
    world
}

#[tokio::test(start_paused = true)]
async fn image_gc_after_restart_waits_until_running_pods_are_known() {
    let world = restarted_on_a_full_disk(&[]).await;
    world.advance(seconds(400)).await;
    assert_eq!(world.fake.count(Method::RemoveImage), 0);
    assert!(world.is_ready_in_api("web"));
}

#[tokio::test(start_paused = true)]
async fn image_gc_after_restart_runs_once_every_pod_is_observed() {
    let world = restarted_on_a_full_disk(&["old:1"]).await;
    let began = world.now();
    world.until("unused images are removed", |w| w.fake.count(Method::RemoveImage) == 1).await;
    assert!(world.now() - began < seconds(20), "{:?}", world.now() - began);
    assert!(world.is_ready_in_api("web"));
}

#[tokio::test(start_paused = true)]
async fn system_oom_event_is_recorded_once_and_not_for_memory_cgroup_ooms() {
    let world = World::joined().await;
    let rest = "total-vm:34632kB, anon-rss:32512kB, oom_score_adj:0";
    world.host.put("/dev/kmsg", format!("3,1,1,-;Memory cgroup out of memory: Killed process 7 (sh) {rest}"));
    // The fake's log is what its file holds when it is read.
    world.advance(seconds(1)).await;
    world.host.put("/dev/kmsg", format!("3,2,2,-;Out of memory: Killed process 8 (java) {rest}"));
    world.until("it is reported", |w| !w.api_events("SystemOOM").is_empty()).await;
    let messages: Vec<_> =
        world.api_events("SystemOOM").into_iter().filter_map(|event| event.message).collect();
    assert_eq!(messages, ["System OOM encountered, victim process: java, pid: 8"]);
    assert!(world.metrics().await.contains("kubelet_rs_system_oom_events_total 1"));
}
