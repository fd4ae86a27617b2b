//! Waits of pods: each that lasts has an event, and nothing is recorded while nothing changes.

use std::collections::BTreeSet;

use fakes::{Fault, HostFault, HostMethod, Method, Outage};
use model::PodUid;
use model::explain::Check;
use model::inventory::PodSelection;
use serde_json::json;

use crate::pods::{Manifest, container, container_with, pod};
use crate::world::{PODS, World, seconds};

const HALF_HOUR: u64 = 1800;

impl World {
    /// The waits that events about the pod have named, in order of their reasons.
    fn named(&self, pod: &str) -> BTreeSet<String> {
        let latest = self.agent.iter().flat_map(|agent| agent.recorder().latest());
        let of_pod = latest.filter(|event| {
            event.about.pod().is_some_and(|about| *about.name == *format!("{pod}-node"))
                && event.reason.starts_with("WaitingFor")
        });
        of_pod.map(|event| event.reason.into_owned()).collect()
    }

    fn uid_of(&self, pod: &str) -> PodUid {
        let full = format!("{pod}-node");
        let entries = self.agent.as_ref().unwrap().pods().all();
        entries.into_iter().find(|entry| *entry.identity.name == *full).unwrap().identity.uid
    }
}

fn names(reason: &str) -> BTreeSet<String> {
    BTreeSet::from([reason.to_owned()])
}

/// The pod hangs in that call, and an event names the wait.
async fn hangs_in(method: Method, manifest: Manifest, reason: &str) {
    let world = World::started().await;
    world.runtime.fault("stuck-node", method, Some(Fault::Hang));
    world.apply(&manifest);
    world.advance(seconds(8)).await;
    assert_eq!(world.named("stuck"), BTreeSet::new(), "{reason} after 8 s");
    world.advance(seconds(8)).await;
    assert_eq!(world.named("stuck"), names(reason), "after 16 s");
    let text = world.metrics().await;
    assert!(text.contains(&format!("kubelet_rs_pod_waits_total{{reason=\"{reason}\"}} 1\n")), "{text}");
    assert!(text.contains("kubelet_rs_waiting_pods{reason="), "{text}");
}

#[tokio::test(start_paused = true)]
async fn each_step_of_a_start_that_hangs_is_named_by_an_event() {
    let plain = || pod("stuck", [container("app")]);
    hangs_in(Method::RunPodSandbox, plain(), "WaitingForSandbox").await;
    hangs_in(Method::CreateContainer, plain(), "WaitingForContainerCreation").await;
    hangs_in(Method::StartContainer, plain(), "WaitingForContainerStart").await;
    let hook = json!({"lifecycle": {"postStart": {"exec": {"command": ["begin"]}}}});
    let hooked = pod("stuck", [container_with("app", hook)]);
    hangs_in(Method::ExecSync, hooked, "WaitingForPostStartHook").await;
}

#[tokio::test(start_paused = true)]
async fn pull_that_takes_its_time_is_named_by_the_event_that_it_began_with() {
    let world = World::started().await;
    world.runtime.fault("stuck-node", Method::PullImage, Some(Fault::Hang));
    world.apply(&pod("stuck", [container("big")]));
    world.advance(seconds(HALF_HOUR - 60)).await;
    assert_eq!((world.recorded("Pulling"), world.named("stuck")), (1, BTreeSet::new()));
    world.advance(seconds(120)).await;
    assert_eq!(world.named("stuck"), names("WaitingForImage"));
}

#[tokio::test(start_paused = true)]
async fn wait_is_reported_again_after_half_an_hour_and_not_before() {
    let world = World::started().await;
    world.runtime.fault("stuck-node", Method::RunPodSandbox, Some(Fault::Hang));
    world.apply(&pod("stuck", [container("app")]));
    let count = |w: &World| w.recorded("WaitingForSandbox");
    world.until("it is reported", |w| count(w) == 1).await;
    world.advance(seconds(HALF_HOUR - 10)).await;
    assert_eq!(count(&world), 1, "nothing has changed");
    world.advance(seconds(20)).await;
    assert_eq!(count(&world), 2);
    let text = world.metrics().await;
    assert!(
        text.contains("kubelet_rs_pod_waits_total{reason=\"WaitingForSandbox\"} 1\n"),
        "one wait: {text}"
    );
    assert!(text.contains("kubelet_rs_waiting_pods{reason=\"WaitingForSandbox\"} 1\n"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn pods_that_run_record_nothing_for_hours() {
    let world = World::started().await;
    for number in 0..5 {
        world.apply(&pod(&format!("web-{number}"), [container("app")]));
    }
    world.until("all are ready", |w| (0..5).all(|n| w.is_ready(&format!("web-{n}")))).await;
    world.advance(seconds(10)).await;
    let all = |w: &World| w.agent.as_ref().unwrap().recorder().latest().len();
    let before = all(&world);
    world.advance(seconds(2 * 3600)).await;
    assert_eq!(all(&world), before);
}

#[tokio::test(start_paused = true)]
async fn container_that_does_not_end_is_named_once_its_grace_period_is_over() {
    let world = World::started().await;
    world.apply(&pod("stuck", [container("app")]));
    world.until("it runs", |w| w.is_ready("stuck")).await;
    world.runtime.fault("stuck-node", Method::StopContainer, Some(Fault::Hang));
    world.remove("stuck");
    let began = world.until("it is being stopped", |w| w.recorded("Killing") == 1).await;
    let named = world.until("it is named", |w| !w.named("stuck").is_empty()).await;
    assert_eq!(world.named("stuck"), names("WaitingForContainersToEnd"));
    let after = named - began;
    assert!(
        (seconds(40)..seconds(45)).contains(&after),
        "the grace period of 30 s and ten seconds: {after:?}"
    );
    world.advance(seconds(600)).await;
    assert_eq!(world.recorded("WaitingForContainersToEnd"), 1);
}

#[tokio::test(start_paused = true)]
async fn volumes_that_are_neither_mounted_nor_released_are_named() {
    let world = World::started().await;
    let volumes = json!({"volumes": [{"name": "data", "emptyDir": {"medium": "Memory"}}]});
    world.apply(&pod("stuck", [container("app")]).spec(volumes));
    world.until("it runs", |w| w.is_ready("stuck")).await;
    let dir = format!("{PODS}/{}", world.uid_of("stuck"));
    world.host.fault_below(HostMethod::UnmountTree, &dir, HostFault::Hangs);
    world.remove("stuck");
    world.until("it is named", |w| !w.named("stuck").is_empty()).await;
    assert_eq!(world.named("stuck"), names("WaitingForRelease"));
}

#[tokio::test(start_paused = true)]
async fn pod_of_which_the_runtime_says_nothing_is_named() {
    let world = World::started().await;
    world.runtime.fault("stuck-node", Method::PodSandboxStatus, Some(Fault::Slow(seconds(40))));
    world.apply(&pod("stuck", [container("app")]));
    world.until("it is named", |w| !w.named("stuck").is_empty()).await;
    assert_eq!(world.named("stuck"), names("WaitingForRuntime"));
    let explained = world.agent.as_ref().unwrap().api().explain_pods(&PodSelection::of("stuck"));
    let cause = explained[0].causes.first().expect("a cause");
    assert_eq!(cause.reason, "WaitingForRuntime", "{explained:?}");
    assert!(!cause.advice.is_empty());
    world.runtime.fault("stuck-node", Method::PodSandboxStatus, None);
    world.until("it runs all the same", |w| w.is_ready("stuck")).await;
}

impl World {
    fn node_check(&self, name: &str) -> Check {
        let node = self.agent.as_ref().unwrap().api().explain_node();
        node.checks.into_iter().find(|check| check.name == name).unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn node_says_its_taints_its_thresholds_and_what_waits_for_the_api() {
    let mut world = World::of_cluster();
    let taints = json!([{"key": "dedicated", "value": "db", "effect": "NoSchedule"}]);
    world.config.register_with_taints = serde_json::from_value(taints).unwrap();
    world.start().await;
    world.until("the node is ready", World::is_node_ready).await;
    let toleration = json!({"tolerations": [{"operator": "Exists"}]});
    world.create(&pod("web", [container("app")]).spec(toleration));
    world.until("it is ready in the API", |w| w.is_ready_in_api("web")).await;
    world.advance(seconds(15)).await;
    assert_eq!(world.node_check("taints").what, "Taints: dedicated=db:NoSchedule.");
    let queue = world.node_check("API queue").what;
    assert!(queue.starts_with("Nothing waits for the API server; it last accepted something"), "{queue}");

    world.api().set_outage(Some(Outage::Refused));
    assert!(world.fake.end_container("web", "app", 1));
    world.advance(seconds(60)).await;
    let queue = world.node_check("API queue").what;
    assert!(queue.contains("statuses of 1 pods"), "{queue}");
    assert!(queue.contains("it last accepted something 1 min"), "{queue}");
}

#[tokio::test(start_paused = true)]
async fn wait_is_one_event_of_the_api_with_a_count() {
    let world = World::joined().await;
    world.runtime.fault("web", Method::RunPodSandbox, Some(Fault::Hang));
    world.create(&pod("web", [container("app")]));
    world.advance(seconds(20)).await;
    let shown = |w: &World| {
        let events = w.api_events("WaitingForSandbox");
        let brief = |event: &model::k8s::Event| (event.type_.clone().unwrap_or_default(), event.count);
        events.iter().map(brief).collect::<Vec<_>>()
    };
    assert_eq!(shown(&world), [("Warning".to_owned(), Some(1))]);
    world.advance(seconds(HALF_HOUR)).await;
    assert_eq!(shown(&world), [("Warning".to_owned(), Some(2))]);
}
