//! Scenarios of pods that start.

use std::time::Duration;

use fakes::{Fault, Method, Program};
use model::k8s::ConfigMap;
use serde_json::json;

use crate::pods::{container, container_with, pod};
use crate::world::{World, seconds};

#[tokio::test(start_paused = true)]
async fn pod_start_makes_its_cri_calls_in_order() {
    let world = World::started().await;
    world.apply(&pod("web", [container("app")]));
    world.until("the pod runs", |w| w.phase("web").as_deref() == Some("Running")).await;
    let expected = [
        "RunPodSandbox web-node",
        "PullImage app:1",
        "CreateContainer web-node/app",
        "StartContainer web-node/app",
    ];
    assert_eq!(world.fake.call_lines(), expected);
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    assert!(world.now() < seconds(5), "it took until {:?}", world.now());
}

/// `dns.go`: CheckLimitsForResolvConf, and MissingClusterDNS about the node and the pod.
#[tokio::test(start_paused = true)]
async fn dns_problems_of_the_node_are_events_about_the_node() {
    let mut world = World::new();
    world.config.cluster_dns = Vec::new();
    world.host.put("/etc/resolv.conf", format!("search {}\n", "d ".repeat(30)));
    world.start().await;
    world.until("the file is checked", |w| w.recorded("CheckLimitsForResolvConf") == 1).await;
    world.apply(&pod("web", [container("app")]));
    world.until("both are warned about", |w| w.recorded("MissingClusterDNS") == 2).await;
    let events = world.agent.as_ref().unwrap().recorder().latest();
    let about_node = |reason: &str| {
        let found = events
            .iter()
            .find(|event| event.reason == reason && event.about == base_agent::events::EventObject::Node);
        found.map(|event| event.message.clone()).unwrap()
    };
    assert_eq!(
        about_node("CheckLimitsForResolvConf"),
        "Resolv.conf file '/etc/resolv.conf' contains search line consisting of more than 29 domains!"
    );
    assert_eq!(
        about_node("MissingClusterDNS"),
        "kubelet does not have ClusterDNS IP configured and cannot create Pod using \"ClusterFirst\" policy. Falling back \
         to \"Default\" policy."
    );
}

/// The start waits for the first status of the runtime; no event, no retry after a second.
#[tokio::test(start_paused = true)]
async fn first_pod_starts_as_soon_as_the_runtime_status_arrives() {
    let mut world = World::new();
    world.apply(&pod("web", [container("app")]));
    world.fake.latency(Method::Status, Duration::from_millis(400));
    world.start().await;
    let began = world.now();
    let sandbox = world.until("the sandbox runs", |w| !w.times_of("RunPodSandbox web-node").is_empty()).await;
    assert!(sandbox - began < Duration::from_millis(700), "after {:?}", sandbox - began);
    assert_eq!(world.recorded("NetworkNotReady"), 0);
}

#[tokio::test(start_paused = true)]
async fn running_pod_causes_no_runtime_change() {
    let world = World::started().await;
    world.apply(&pod("web", [container("app")]));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    world.fake.forget_calls();
    world.advance(seconds(900)).await;
    assert_eq!(world.fake.call_lines(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn init_containers_run_one_by_one_before_main_containers() {
    let world = World::started().await;
    world
        .fake
        .program("first", Program::exits(0, seconds(3)))
        .program("second", Program::exits(0, seconds(3)));
    world.apply(&pod("web", [container("app")]).init([container("first"), container("second")]));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    let at = |line: &str| world.times_of(line)[0];
    assert!(at("StartContainer web-node/second") >= at("StartContainer web-node/first") + seconds(3));
    assert!(at("StartContainer web-node/app") >= at("StartContainer web-node/second") + seconds(3));
}

#[tokio::test(start_paused = true)]
async fn crash_loop_back_off_waits_10_20_and_40_seconds() {
    let world = World::started().await;
    world.fake.program("app", Program::exits(1, seconds(1)));
    world.apply(&pod("web", [container("app")]));
    world.until("five instances were started", |w| w.restarts("web", "app") >= 4).await;
    let starts: Vec<_> = ["", "#1", "#2", "#3", "#4"]
        .map(|n| world.times_of(&format!("StartContainer web-node/app{n}"))[0])
        .to_vec();
    let gaps: Vec<u64> = starts.windows(2).map(|pair| (pair[1] - pair[0]).as_secs()).collect();
    // Each instance runs for a second; noticing its end takes up to another one.
    let waits = gaps.iter().zip([0, 10, 20, 40]).map(|(gap, wait)| gap.checked_sub(wait).unwrap());
    assert!(waits.clone().all(|rest| (1..=3).contains(&rest)), "gaps {gaps:?}");
}

#[tokio::test(start_paused = true)]
async fn create_container_timeout_that_succeeded_is_adopted() {
    let world = World::started().await;
    world.fake.fault(Method::CreateContainer, Fault::TimedOutAfterDoing);
    world.apply(&pod("web", [container("app")]));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    assert_eq!(world.times_of("CreateContainer web-node/app").len(), 1);
    assert_eq!(world.fake.containers().len(), 1);
    assert_eq!(world.restarts("web", "app"), 0);
}

#[tokio::test(start_paused = true)]
async fn start_container_timeout_that_succeeded_is_not_repeated() {
    let world = World::started().await;
    world.fake.fault(Method::StartContainer, Fault::TimedOutAfterDoing);
    world.apply(&pod("web", [container("app")]));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    assert_eq!(world.times_of("StartContainer web-node/app").len(), 1);
    assert_eq!(world.fake.running(), ["web-node/app"]);
}

#[tokio::test(start_paused = true)]
async fn run_pod_sandbox_timeout_that_succeeded_is_adopted() {
    let world = World::started().await;
    world.fake.fault(Method::RunPodSandbox, Fault::TimedOutAfterDoing);
    world.apply(&pod("web", [container("app")]));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    assert_eq!(world.fake.sandboxes().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn status_of_a_new_sandbox_that_cannot_be_read_is_an_event_once() {
    let world = World::started().await;
    let failed = Fault::Failed("no such task".to_owned());
    world.fake.fault(Method::PodSandboxStatus, failed.clone()).fault(Method::PodSandboxStatus, failed);
    world.apply(&pod("web", [container("app")]));
    world.until("it runs", |w| w.runs("web-node/app")).await;
    let events = world.agent.as_ref().unwrap().recorder().latest();
    let events: Vec<_> = events.iter().filter(|event| event.reason == "FailedPodSandBoxStatus").collect();
    let [event] = events.as_slice() else { panic!("{events:?}") };
    let expected = "Unable to get pod sandbox status: rpc error: code = Unknown desc = no such task";
    assert_eq!(event.message, expected);
    assert_eq!(event.about.pod().map(|pod| &*pod.name), Some("web-node"));
}

#[tokio::test(start_paused = true)]
async fn volumes_are_mounted_before_the_container_starts_and_unmounted_after_the_pod() {
    let world = World::started().await;
    let mounts = json!({"volumeMounts": [
        {"name": "scratch", "mountPath": "/scratch"},
        {"name": "memory", "mountPath": "/memory", "subPath": "part"},
    ]});
    let volumes = json!({"volumes": [
        {"name": "scratch", "emptyDir": {}},
        {"name": "memory", "emptyDir": {"medium": "Memory"}},
        {"name": "data", "hostPath": {"path": "/data", "type": "DirectoryOrCreate"}},
    ]});
    world.apply(&pod("web", [container_with("app", mounts)]).spec(volumes));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    let kinds: Vec<String> =
        world.host.mounts().iter().filter_map(|m| m.split(' ').next().map(str::to_owned)).collect();
    assert_eq!(kinds, ["bind", "tmpfs"]);
    world.remove("web");
    world.until("nothing is left", |w| w.traces().is_empty()).await;
    assert!(world.host.exists("/data"), "processes of the machine stay");
}

#[tokio::test(start_paused = true)]
async fn failed_image_pull_backs_off_without_busy_loop() {
    let world = World::started().await;
    world.fake.unpullable("app:1", "no such image");
    world.apply(&pod("web", [container("app")]));
    world.advance(seconds(75)).await;
    let pulls: Vec<u64> = world.times_of("PullImage app:1").iter().map(Duration::as_secs).collect();
    let gaps: Vec<u64> = pulls.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.iter().zip([10, 20, 40]).all(|(gap, wait)| (wait..=wait + 2).contains(gap)), "{pulls:?}");
    let relists = world.fake.count(Method::ListPodSandbox);
    assert!(relists < 120, "the runtime was listed {relists} times");
}

/// A pod is inspected when its worker begins, after its sandbox and after its container: a listing of the node that shows a step which
/// is under way, or one that an inspection has shown meanwhile, causes no other inspection.
#[tokio::test(start_paused = true)]
async fn pods_that_start_together_are_inspected_once_for_each_step() {
    const PODS: u64 = 30;
    let world = World::joined().await;
    let latencies = [
        (Method::RunPodSandbox, 900),
        (Method::CreateContainer, 200),
        (Method::StartContainer, 300),
        (Method::ListPodSandbox, 40),
        (Method::ListContainers, 40),
        (Method::PodSandboxStatus, 20),
        (Method::ContainerStatus, 20),
    ];
    for (method, milliseconds) in latencies {
        world.fake.latency(method, Duration::from_millis(milliseconds));
    }
    let config = json!({"metadata": {"name": "cfg", "namespace": "default"}, "data": {"a": "b"}});
    let config: ConfigMap = serde_json::from_value(config).unwrap();
    world.api().put(&config);
    let volumes = json!({"volumes": [{"name": "cfg", "configMap": {"name": "cfg"}}]});
    world.advance(seconds(5)).await;
    let methods = [Method::PodSandboxStatus, Method::ContainerStatus];
    let before = methods.map(|method| world.fake.count(method));
    let names: Vec<String> = (0..PODS).map(|n| format!("web-{n}")).collect();
    for name in &names {
        world.create(&pod(name, [container("app")]).spec(volumes.clone()));
        // So that listings fall into every moment of a start.
        world.advance(Duration::from_millis(37)).await;
    }
    world.until("all are ready", |w| names.iter().all(|name| w.is_ready_in_api(name))).await;
    let [sandboxes, containers] = [0, 1].map(|n| world.fake.count(methods[n]) - before[n]);
    assert!(sandboxes <= 2 * PODS + PODS / 10, "{sandboxes} statuses of sandboxes");
    assert!(containers <= PODS + PODS / 10, "{containers} statuses of containers");
}

#[tokio::test(start_paused = true)]
async fn failed_run_pod_sandbox_is_tried_again_with_back_off() {
    let world = World::started().await;
    world.fake.fault_always(Method::RunPodSandbox, Some(Fault::Failed("no address left".to_owned())));
    world.apply(&pod("web", [container("app")]));
    world.advance(seconds(60)).await;
    let tries = world.fake.count(Method::RunPodSandbox);
    // Half a second, then one, two, four and so on.
    assert!((5..=8).contains(&tries), "{tries} tries in a minute");
    world.fake.clear_faults();
    world.until("the pod is ready", |w| w.is_ready("web")).await;
}

#[tokio::test(start_paused = true)]
async fn failed_create_container_is_tried_again_with_back_off() {
    let world = World::started().await;
    world.fake.fault_always(Method::CreateContainer, Some(Fault::Failed("no space left".to_owned())));
    world.apply(&pod("web", [container("app"), container("side")]));
    world.advance(seconds(60)).await;
    let tries = world.fake.count(Method::CreateContainer);
    assert!((10..=16).contains(&tries), "{tries} tries in a minute");
    world.fake.clear_faults();
    world.until("the pod is ready", |w| w.is_ready("web")).await;
}

fn waiting_reason(world: &World) -> Option<String> {
    world.container("web", "app")?.state?.waiting?.reason
}

/// The beginning of a runtime's error may be the reason that users see.
#[tokio::test(start_paused = true)]
async fn runtime_error_codes_become_waiting_reasons() {
    for reason in ["RROUnsupported", "ImageVolumeMountFailed"] {
        let world = World::started().await;
        let error = format!("{reason}: the runtime does not support it");
        world.fake.fault_always(Method::CreateContainer, Some(Fault::Failed(error.clone())));
        world.apply(&pod("web", [container("app")]));
        world.until("the reason shows", |w| waiting_reason(w).as_deref() == Some(reason)).await;
        let state = world.container("web", "app").unwrap().state.unwrap();
        assert_eq!(state.waiting.unwrap().message, Some(error));
    }
    for reason in ["RegistryUnavailable", "SignatureValidationFailed"] {
        let world = World::started().await;
        world.fake.unpullable("app:1", &format!("{reason}: no"));
        world.apply(&pod("web", [container("app")]));
        world.until("the reason shows", |w| waiting_reason(w).as_deref() == Some(reason)).await;
        let backs_off = |w: &World| waiting_reason(w).as_deref() == Some("ImagePullBackOff");
        world.until("the back-off shows", backs_off).await;
    }
}

#[tokio::test(start_paused = true)]
async fn serial_image_pulls_wait_in_order_without_rate_limit_rejections() {
    let mut world = World::new();
    world.config.serialize_image_pulls = true;
    (world.config.registry_pull_qps, world.config.registry_burst) = (5, 10);
    world.fake.latency(Method::PullImage, seconds(1));
    world.start().await;
    for n in 0..30 {
        world.apply(&pod(&format!("web-{n}"), [container(&format!("app{n}"))]));
    }
    world.until("all pods are ready", |w| (0..30).all(|n| w.is_ready(&format!("web-{n}")))).await;
    let pulls: Vec<_> = world.fake.calls().into_iter().filter(|c| c.method == Method::PullImage).collect();
    assert_eq!(pulls.len(), 30);
    assert!(pulls.windows(2).all(|pair| pair[1].at - pair[0].at >= seconds(1)), "one after the other");
    let failed =
        world.agent.as_ref().unwrap().recorder().latest().into_iter().filter(|e| e.reason == "Failed");
    assert_eq!(failed.map(|event| event.message).collect::<Vec<_>>(), [""; 0]);
}
