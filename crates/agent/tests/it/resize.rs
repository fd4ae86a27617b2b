//! Scenarios of pods that are resized while they run.

use std::time::Duration;

use fakes::{Fault, HostFault, HostMethod, Method};
use model::k8s::{Pod, PodCondition};
use serde_json::{Value, json};

use crate::pods::{Manifest, container_with, pod};
use crate::world::{World, seconds};

const ALLOCATED: &str = "/var/lib/kubelet/allocated_pods_state";

/// A pod of one container with these resources, as `cpu/memory` of requests and limits.
fn sized(name: &str, requests: &str, limits: &str) -> Manifest {
    pod(name, [container_with("app", json!({"resources": resources(requests, limits)}))])
}

fn resources(requests: &str, limits: &str) -> Value {
    let list = |text: &str| {
        let (cpu, memory) = text.split_once('/').unwrap();
        json!({"cpu": cpu, "memory": memory})
    };
    json!({"requests": list(requests), "limits": list(limits)})
}

/// What `kubectl patch --subresource resize` does.
fn resize(world: &World, name: &str, requests: &str, limits: &str) {
    let mut pod: Pod = world.in_api(name).unwrap();
    let container = &mut pod.spec.as_mut().unwrap().containers[0];
    container.resources = serde_json::from_value(resources(requests, limits)).unwrap();
    world.api().put(&pod);
}

fn condition(world: &World, name: &str, kind: &str) -> Option<PodCondition> {
    world.api_status(name).conditions.into_iter().flatten().find(|c| c.type_ == kind)
}

fn pending(world: &World, name: &str) -> Option<String> {
    condition(world, name, "PodResizePending")?.reason
}

/// The resources that the container has by its status.
fn shown(world: &World, name: &str) -> Value {
    json!(world.api_status(name).container_statuses.unwrap_or_default()[0].resources)
}

fn is_resized(world: &World, name: &str, requests: &str, limits: &str) -> bool {
    shown(world, name) == resources(requests, limits)
        && condition(world, name, "PodResizeInProgress").is_none()
}

fn updates(world: &World) -> usize {
    let calls = world.fake.call_lines();
    calls.iter().filter(|call| call.starts_with("UpdateContainerResources")).count()
}

fn cgroup_of(world: &World, name: &str) -> String {
    format!("/kubepods/burstable/pod{}", world.in_api(name).unwrap().metadata.uid.unwrap())
}

fn restarts(world: &World, name: &str) -> i32 {
    world.api_status(name).container_statuses.unwrap_or_default()[0].restart_count
}

async fn with(pods: &[(&str, &str, &str)]) -> World {
    let world = World::joined().await;
    for (name, requests, limits) in pods {
        world.create(&sized(name, requests, limits));
    }
    for (name, ..) in pods {
        world.until("the pod is ready", |w| w.is_ready_in_api(name)).await;
    }
    world
}

/// The pod has its resources in the status of the recorded pod `resized`.
#[tokio::test(start_paused = true)]
async fn running_pod_gets_more_cpu_and_memory_without_a_restart() {
    let world = with(&[("web", "20m/32Mi", "100m/64Mi")]).await;
    resize(&world, "web", "30m/48Mi", "150m/96Mi");
    world.until("it is resized", |w| is_resized(w, "web", "30m/48Mi", "150m/96Mi")).await;
    let set = world.fake.resources("web", "app").unwrap();
    assert_eq!(
        (set.cpu_shares, set.cpu_quota, set.memory_limit_bytes),
        (Some(30), Some(15_000), Some(96 << 20))
    );
    let cgroup = &cgroup_of(&world, "web");
    assert_eq!(world.cgroups.text(cgroup, "memory.max").as_deref(), Some("100663296"));
    assert_eq!(world.cgroups.text(cgroup, "cpu.max").as_deref(), Some("15000 100000"));
    let status = world.api_status("web");
    assert_eq!(json!(status.allocated_resources), json!({"cpu": "30m", "memory": "48Mi"}));
    assert_eq!(status.observed_generation, Some(2));
    assert_eq!((restarts(&world, "web"), world.fake.count(Method::StopContainer)), (0, 0));
    for (reason, prefix) in
        [("ResizeStarted", "Pod resize started: "), ("ResizeCompleted", "Pod resize completed: ")]
    {
        let events = world.api_events(reason);
        assert_eq!(events.len(), 1, "{reason}");
        let message = events[0].message.clone().unwrap();
        assert!(message.starts_with(prefix) && message.ends_with(",\"generation\":2}"), "{message}");
    }
}

#[tokio::test(start_paused = true)]
async fn resize_waits_for_capacity_and_the_more_important_pod_comes_first() {
    let world = World::joined().await;
    for (name, priority) in [("low", 0), ("high", 100), ("big", 0)] {
        let manifest = sized(name, if name == "big" { "2/1Mi" } else { "1/1Mi" }, "3/1Gi");
        world.create(&manifest.spec(json!({"priority": priority})));
        world.until("it is ready", |w| w.is_ready_in_api(name)).await;
    }
    resize(&world, "low", "3/1Mi", "3/1Gi");
    world.until("it waits", |w| pending(w, "low").as_deref() == Some("Deferred")).await;
    resize(&world, "high", "2/1Mi", "3/1Gi");
    world.until("it waits", |w| pending(w, "high").as_deref() == Some("Deferred")).await;
    let why = condition(&world, "low", "PodResizePending").unwrap().message.unwrap();
    assert_eq!(why, "Node didn't have enough resource: cpu, requested: 3000, used: 3000, capacity: 4000");
    assert_eq!(world.recorded("ResizeDeferred"), 2);
    world.delete("big", Some(0));
    world.until("the important one is resized", |w| is_resized(w, "high", "2/1Mi", "3/1Gi")).await;
    assert_eq!(pending(&world, "low").as_deref(), Some("Deferred"), "there is only one CPU left");
    world.delete("high", Some(0));
    world.until("the other one is resized", |w| is_resized(w, "low", "3/1Mi", "3/1Gi")).await;
    assert_eq!((restarts(&world, "low"), pending(&world, "low")), (0, None));
}

#[tokio::test(start_paused = true)]
async fn resize_that_waits_is_withdrawn_with_its_request() {
    let world = with(&[("web", "1/1Mi", "2/1Gi")]).await;
    resize(&world, "web", "9/1Mi", "9/1Gi");
    world.until("it waits", |w| pending(w, "web").as_deref() == Some("Deferred")).await;
    resize(&world, "web", "1/1Mi", "2/1Gi");
    world.until("it does not wait", |w| pending(w, "web").is_none()).await;
    assert_eq!(world.fake.count(Method::UpdateContainerResources), 0);
    assert_eq!(world.recorded("ResizeStarted"), 0);
}

#[tokio::test(start_paused = true)]
async fn only_the_container_whose_policy_requires_it_is_restarted() {
    let world = World::joined().await;
    let policy = json!([{"resourceName": "memory", "restartPolicy": "RestartContainer"}]);
    let resources = resources("20m/32Mi", "100m/64Mi");
    let app = container_with("app", json!({"resources": resources, "resizePolicy": policy}));
    let other = container_with("other", json!({"resources": resources}));
    world.create(&pod("web", [app, other]));
    world.until("it is ready", |w| w.is_ready_in_api("web")).await;
    resize(&world, "web", "30m/32Mi", "100m/64Mi");
    world.until("it has more CPU", |w| is_resized(w, "web", "30m/32Mi", "100m/64Mi")).await;
    assert_eq!(restarts(&world, "web"), 0);
    resize(&world, "web", "30m/32Mi", "100m/128Mi");
    world.until("it has more memory", |w| is_resized(w, "web", "30m/32Mi", "100m/128Mi")).await;
    world.until("it runs again", |w| w.is_ready_in_api("web")).await;
    let statuses = world.api_status("web").container_statuses.unwrap();
    assert_eq!(statuses.iter().map(|s| s.restart_count).collect::<Vec<_>>(), [1, 0]);
    assert_eq!(world.fake.resources("web", "app").unwrap().memory_limit_bytes, Some(128 << 20));
    let killing = world.api_events("Killing");
    assert_eq!(killing[0].message.as_deref(), Some("Container app resize requires restart"));
    assert_eq!(world.recorded("ResizeCompleted"), 2);
}

#[tokio::test(start_paused = true)]
async fn memory_is_not_taken_away_while_it_is_in_use() {
    let world = with(&[("web", "20m/32Mi", "100m/64Mi")]).await;
    let cgroup = &cgroup_of(&world, "web");
    world.cgroups.write(cgroup, "memory.current", "41943040");
    resize(&world, "web", "20m/16Mi", "100m/32Mi");
    let failed = |w: &World| {
        condition(w, "web", "PodResizeInProgress").and_then(|c| c.reason).as_deref() == Some("Error")
    };
    world.until("it failed", failed).await;
    let why = condition(&world, "web", "PodResizeInProgress").unwrap().message.unwrap();
    assert_eq!(
        why,
        "cannot decrease memory limits: attempting to set pod memory limit (33554432) below current usage (41943040)"
    );
    world.advance(seconds(60)).await;
    assert_eq!((world.recorded("ResizeError"), world.fake.count(Method::UpdateContainerResources)), (1, 0));
    world.cgroups.write(cgroup, "memory.current", "8388608");
    world.until("it is resized", |w| is_resized(w, "web", "20m/16Mi", "100m/32Mi")).await;
    assert_eq!(world.cgroups.text(cgroup, "memory.max").as_deref(), Some("33554432"));
    assert_eq!(world.recorded("ResizeCompleted"), 1);
}

#[tokio::test(start_paused = true)]
async fn runtime_may_refuse_the_limits_of_the_pod() {
    let world = with(&[("web", "20m/32Mi", "100m/64Mi")]).await;
    world
        .fake
        .fault(Method::UpdatePodSandboxResources, Fault::Failed("no capacity in the machine".to_owned()));
    resize(&world, "web", "30m/48Mi", "150m/96Mi");
    world.until("it is refused", |w| w.recorded("ResizeError") == 1).await;
    let why = condition(&world, "web", "PodResizeInProgress").and_then(|c| c.message).unwrap();
    assert!(
        why.starts_with("failed to notify runtime for UpdatePodSandboxResources (resource=memory)"),
        "{why}"
    );
    assert!(why.ends_with("no capacity in the machine"), "{why}");
    assert_eq!(updates(&world), 0, "its containers would get more than it may use");
    world.until("it is resized", |w| is_resized(w, "web", "30m/48Mi", "150m/96Mi")).await;
    let (_, limits) = world.fake.sandbox_resources("web").unwrap();
    assert_eq!(limits.unwrap().memory_limit_bytes, Some(96 << 20));
}

#[tokio::test(start_paused = true)]
async fn restarted_kubelet_finishes_the_resize_and_restarts_no_container() {
    let mut world = with(&[("web", "20m/32Mi", "100m/64Mi")]).await;
    world.fake.fault_always(Method::UpdateContainerResources, Some(Fault::Failed("busy".to_owned())));
    resize(&world, "web", "30m/48Mi", "150m/96Mi");
    world.until("it is under way", |w| condition(w, "web", "PodResizeInProgress").is_some()).await;
    world.advance(seconds(2)).await;
    world.crash().await;
    world.fake.clear_faults();
    world.start().await;
    world.until("it is resized", |w| is_resized(w, "web", "30m/48Mi", "150m/96Mi")).await;
    assert_eq!(world.fake.resources("web", "app").unwrap().memory_limit_bytes, Some(96 << 20));
    assert_eq!((restarts(&world, "web"), world.fake.count(Method::StopContainer)), (0, 0));
    world.advance(seconds(2)).await;
    world.fake.forget_calls();
    world.restart().await;
    world.advance(seconds(120)).await;
    assert_eq!(updates(&world), 0, "it knows what is set");
}

#[tokio::test(start_paused = true)]
async fn resize_that_waits_is_not_carried_out_by_a_restarted_kubelet() {
    let mut world = World::joined().await;
    let policy = json!([{"resourceName": "memory", "restartPolicy": "RestartContainer"}]);
    let app = json!({"resources": resources("1/32Mi", "2/64Mi"), "resizePolicy": policy});
    world.create(&pod("restarted", [container_with("app", app)]));
    world.create(&sized("kept", "1/32Mi", "2/64Mi"));
    for name in ["restarted", "kept"] {
        world.until("the pod is ready", |w| w.is_ready_in_api(name)).await;
        resize(&world, name, "9/32Mi", "9/128Mi");
        world.until("it waits", |w| pending(w, name).as_deref() == Some("Deferred")).await;
    }
    world.advance(seconds(2)).await;
    world.fake.forget_calls();
    world.crash().await;
    world.start().await;
    world.advance(seconds(120)).await;
    for name in ["restarted", "kept"] {
        assert_eq!(pending(&world, name).as_deref(), Some("Deferred"), "{name}");
        assert_eq!(shown(&world, name), resources("1/32Mi", "2/64Mi"), "{name}");
    }
    assert_eq!((world.fake.count(Method::StopContainer), updates(&world)), (0, 0));
}

/// A restart that is counted as not done yet would be done again.
#[tokio::test(start_paused = true)]
async fn resize_that_requires_a_restart_restarts_once_whenever_the_kubelet_is_killed() {
    let policy = json!([{"resourceName": "memory", "restartPolicy": "RestartContainer"}]);
    let app = json!({"resources": resources("20m/32Mi", "100m/64Mi"), "resizePolicy": policy});
    let moments = [(Method::StopContainer, 1), (Method::CreateContainer, 2), (Method::StartContainer, 2)];
    for (method, times) in moments {
        let mut world = World::joined().await;
        world.create(&pod("web", [container_with("app", app.clone())]));
        world.until("it is ready", |w| w.is_ready_in_api("web")).await;
        world.advance(seconds(2)).await;
        world.fake.fault(method, Fault::TimedOutAfterDoing);
        resize(&world, "web", "20m/32Mi", "100m/128Mi");
        world.until("the call is made", |w| w.fake.count(method) == times).await;
        world.advance(Duration::from_millis(200)).await;
        world.restart().await;
        world.until("it is resized", |w| is_resized(w, "web", "20m/32Mi", "100m/128Mi")).await;
        world.advance(seconds(20)).await;
        assert_eq!(restarts(&world, "web"), 1, "killed at {method:?}");
        assert_eq!(world.fake.count(Method::CreateContainer), 2, "killed at {method:?}");
    }
}

/// A kubelet that starts later would set the larger limit of before once more, which the pod does not allow then.
#[tokio::test(start_paused = true)]
async fn smaller_resources_are_on_disk_before_the_limits_of_the_pod_shrink() {
    let world = with(&[("web", "20m/32Mi", "150m/64Mi")]).await;
    world.advance(seconds(2)).await;
    resize(&world, "web", "20m/32Mi", "70m/64Mi");
    let quota = |w: &World| w.cgroups.text(&cgroup_of(w, "web"), "cpu.max");
    world.until("the pod has a smaller limit", |w| quota(w).as_deref() == Some("7000 100000")).await;
    let on_disk = world.host.text("/var/lib/kubelet/actuated_pods_state").unwrap();
    assert!(on_disk.contains("70m") && !on_disk.contains("150m"), "{on_disk}");
}

/// As after a kubelet that kept no such records.
#[tokio::test(start_paused = true)]
async fn containers_without_a_record_count_as_started_with_what_is_allocated() {
    let mut world = World::joined().await;
    let policy = json!([{"resourceName": "memory", "restartPolicy": "RestartContainer"}]);
    let resources = resources("20m/32Mi", "100m/64Mi");
    world.create(&pod(
        "web",
        [container_with("app", json!({"resources": resources, "resizePolicy": policy}))],
    ));
    world.until("it is ready", |w| w.is_ready_in_api("web")).await;
    world.advance(seconds(2)).await;
    world.crash().await;
    let files =
        ["allocated_pods_state", "actuated_pods_state"].map(|name| format!("/var/lib/kubelet/{name}"));
    for file in &files {
        assert!(world.host.text(file).is_some_and(|text| text.contains("64Mi")), "{file}");
        world.host.delete(file);
    }
    world.start().await;
    world
        .until("both are written again", |w| {
            files.iter().all(|file| w.host.text(file).is_some_and(|text| text.contains("64Mi")))
        })
        .await;
    world.advance(seconds(120)).await;
    assert_eq!((restarts(&world, "web"), updates(&world)), (0, 0));
    resize(&world, "web", "20m/32Mi", "100m/128Mi");
    world.until("it has more memory", |w| is_resized(w, "web", "20m/32Mi", "100m/128Mi")).await;
    world.until("it runs again", |w| w.is_ready_in_api("web")).await;
    assert_eq!(restarts(&world, "web"), 1);
}

/// Power was lost before they were written. The API requests more than the node has by the time that the kubelet is back.
#[tokio::test(start_paused = true)]
async fn resources_of_a_running_pod_without_files_are_those_that_its_status_shows() {
    let mut world = with(&[("web", "20m/32Mi", "100m/64Mi")]).await;
    world.advance(seconds(2)).await;
    world.crash().await;
    for path in world.host.files_below("/var/lib/kubelet") {
        if path.contains("pods_state") || path.ends_with("pod.json") || path.ends_with("status.json") {
            world.host.delete(path);
        }
    }
    resize(&world, "web", "5/32Mi", "5/64Mi");
    world.start().await;
    world.until("that waits", |w| pending(w, "web").as_deref() == Some("Deferred")).await;
    assert_eq!(shown(&world, "web"), resources("20m/32Mi", "100m/64Mi"));
    assert_eq!((restarts(&world, "web"), updates(&world)), (0, 0));
}

/// The last pod of the node was removed while the kubelet was down, so that no other pod causes a write.
#[tokio::test(start_paused = true)]
async fn resources_of_pods_that_are_gone_are_removed_from_disk() {
    let mut world = World::joined().await;
    world.create(&sized("web", "20m/32Mi", "100m/64Mi"));
    world.until("it is ready", |w| w.is_ready_in_api("web")).await;
    world.until("it is on disk", |w| w.host.text(ALLOCATED).is_some_and(|text| text.contains("64Mi"))).await;
    world.crash().await;
    assert!(world.api().remove::<Pod>("default", "web", Some(0)));
    world.start().await;
    world.until("it is gone", |w| w.host.text(ALLOCATED).is_some_and(|text| !text.contains("64Mi"))).await;
}

#[tokio::test(start_paused = true)]
async fn resources_of_the_pod_as_a_whole_are_changed_in_its_cgroup() {
    let world = World::joined().await;
    let of_pod = |cpu: &str, memory: &str| {
        json!({"resources": {"requests": {"cpu": "20m", "memory": "32Mi"},
        "limits": {"cpu": cpu, "memory": memory}}})
    };
    world.create(&pod("web", [container_with("app", json!({}))]).spec(of_pod("100m", "64Mi")));
    world.until("it is ready", |w| w.is_ready_in_api("web")).await;
    let mut changed: Pod = world.in_api("web").unwrap();
    let resources = of_pod("200m", "128Mi")["resources"].clone();
    changed.spec.as_mut().unwrap().resources = serde_json::from_value(resources).unwrap();
    world.api().put(&changed);
    world.until("it is resized", |w| w.recorded("ResizeCompleted") == 1).await;
    let cgroup = &cgroup_of(&world, "web");
    assert_eq!(world.cgroups.text(cgroup, "memory.max").as_deref(), Some("134217728"));
    assert_eq!(world.cgroups.text(cgroup, "cpu.max").as_deref(), Some("20000 100000"));
    // A container without limits of its own has those of its pod.
    let set = world.fake.resources("web", "app").unwrap();
    assert_eq!((set.cpu_quota, set.memory_limit_bytes), (Some(20_000), Some(128 << 20)));
    assert_eq!(restarts(&world, "web"), 0);
}

#[tokio::test(start_paused = true)]
async fn request_from_while_the_kubelet_was_down_is_carried_out() {
    let mut world = with(&[("web", "20m/32Mi", "100m/64Mi")]).await;
    world.advance(seconds(2)).await;
    world.crash().await;
    resize(&world, "web", "30m/48Mi", "150m/96Mi");
    world.start().await;
    world.until("it is resized", |w| is_resized(w, "web", "30m/48Mi", "150m/96Mi")).await;
    assert_eq!(world.fake.resources("web", "app").unwrap().cpu_quota, Some(15_000));
    assert_eq!(restarts(&world, "web"), 0);
}

/// Otherwise what the pod requests would count as allocated, although it does not fit.
#[tokio::test(start_paused = true)]
async fn file_of_allocations_that_the_disk_does_not_return_ends_the_start() {
    let mut world = with(&[("web", "20m/32Mi", "100m/64Mi")]).await;
    resize(&world, "web", "5/32Mi", "5/64Mi");
    world.until("it waits", |w| pending(w, "web").as_deref() == Some("Deferred")).await;
    world.advance(seconds(2)).await;
    world.crash().await;
    world.host.fault_below(HostMethod::ReadFile, ALLOCATED, HostFault::Fails);
    let error = world.try_start().await.unwrap_err().to_string();
    assert!(error.contains(ALLOCATED), "{error}");
    world.start().await;
    world.advance(seconds(5)).await;
    assert_eq!(pending(&world, "web").as_deref(), Some("Deferred"));
    assert_eq!(world.fake.resources("web", "app").unwrap().cpu_quota, Some(10_000));
}

#[tokio::test(start_paused = true)]
async fn exclusive_resources_are_not_resized_and_the_metric_says_so() {
    let mut world = World::of_cluster();
    world.config.cpu_manager_policy = "static".to_owned();
    world.config.system_reserved.insert("cpu".to_owned(), "1".to_owned());
    world.start().await;
    world.until("the node is ready", World::is_node_ready).await;
    world.create(&sized("web", "1/1Gi", "1/1Gi"));
    world.until("the pod is ready", |w| w.is_ready_in_api("web")).await;
    resize(&world, "web", "2/1Gi", "2/1Gi");
    world.until("it is refused", |w| pending(w, "web").as_deref() == Some("Infeasible")).await;
    assert_eq!(world.recorded("ResizeInfeasible"), 1);
    let metrics = world.metrics().await;
    let series =
        "kubelet_pod_infeasible_resizes_total{reason_detail=\"guaranteed_pod_cpu_manager_static_policy\"} 1";
    assert!(metrics.contains(series), "{metrics}");
    assert!(metrics.contains("kubelet_pod_pending_resizes{reason=\"infeasible\"} 1"));
}

/// Nothing is written or called while nothing changes, whether a resize is done or waits.
#[tokio::test(start_paused = true)]
async fn node_is_quiet_after_resizes_and_while_they_wait() {
    let world = with(&[("done", "1/1Mi", "2/1Gi"), ("waits", "1/1Mi", "2/1Gi")]).await;
    resize(&world, "done", "2/1Mi", "2/1Gi");
    resize(&world, "waits", "9/1Mi", "9/1Gi");
    world.until("one is resized", |w| is_resized(w, "done", "2/1Mi", "2/1Gi")).await;
    world.until("the other one waits", |w| pending(w, "waits").is_some()).await;
    world.advance(seconds(10)).await;
    world.fake.forget_calls();
    world.api().forget_calls();
    world.advance(seconds(400)).await;
    assert_eq!(updates(&world), 0);
    for name in ["done", "waits"] {
        assert_eq!(world.api_calls(&format!("patch pods/status default/{name}")), 0, "{name}");
    }
    assert_eq!((world.recorded("ResizeDeferred"), world.recorded("ResizeStarted")), (1, 1));
}

/// `HandlePodUpdates`: a warning, and the pod goes on.
#[tokio::test(start_paused = true)]
async fn resize_that_requires_an_undeclared_feature_is_reported_once() {
    let mut world = World::of_cluster();
    world.features.pod_level_resize = false;
    world.start().await;
    world.until("the node is ready", World::is_node_ready).await;
    let sized = |cpu: &str| -> Pod {
        let mut pod = sized("web", "10m/16Mi", "20m/32Mi").object();
        let own = json!({"requests": {"cpu": cpu}, "limits": {"cpu": "1"}});
        pod.spec.as_mut().unwrap().resources = serde_json::from_value(own).unwrap();
        pod
    };
    world.api().put(&sized("100m"));
    world.until("it is ready", |w| w.is_ready_in_api("web")).await;
    let mut resized = world.in_api("web").unwrap();
    resized.spec = sized("200m")
        .spec
        .map(|spec| model::k8s::PodSpec { resources: spec.resources, ..resized.spec.clone().unwrap() });
    world.api().put(&resized);
    let reason = "FailedNodeDeclaredFeaturesCheck";
    world.until("it is reported", |w| !w.api_events(reason).is_empty()).await;
    let message =
        "Pod requires node features that are not available: InPlacePodLevelResourcesVerticalScaling";
    assert_eq!(world.api_events(reason)[0].message.as_deref(), Some(message));
    world.advance(seconds(120)).await;
    assert_eq!(world.recorded(reason), 1);
    assert!(world.is_ready_in_api("web"));
}

#[tokio::test(start_paused = true)]
async fn resources_that_could_not_be_written_on_a_full_disk_are_written_later() {
    let world = with(&[("web", "20m/32Mi", "100m/64Mi")]).await;
    world.advance(seconds(2)).await;
    let files =
        ["allocated_pods_state", "actuated_pods_state"].map(|name| format!("/var/lib/kubelet/{name}"));
    for file in &files {
        // Once for the allocation, and once for what is in force.
        for _ in 0..2 {
            world.host.fault_below(HostMethod::WriteFile, file, HostFault::Fails);
        }
    }
    resize(&world, "web", "20m/32Mi", "100m/96Mi");
    world.until("it is resized", |w| is_resized(w, "web", "20m/32Mi", "100m/96Mi")).await;
    let has_new = |w: &World, file: &String| w.host.text(file).is_some_and(|text| text.contains("96Mi"));
    world.until("both are written", |w| files.iter().all(|file| has_new(w, file))).await;
}
