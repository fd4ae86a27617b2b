//! Scenarios of API objects that no client can decode: each costs only itself.

use fakes::Outage;
use model::k8s::{ConfigMap, Pod, RuntimeClass, Service};
use serde_json::{Value, json};

use crate::pods::{container, container_with, pod};
use crate::world::{World, seconds};

/// An object that an API server stored and that is not one of its kind.
fn malformed(name: &str, fields: &Value) -> Value {
    let mut object = fields.clone();
    object["metadata"] = json!({"name": name, "namespace": "default"});
    object
}

/// A pod of this node.
fn malformed_pod(name: &str) -> Value {
    malformed(name, &json!({"spec": {"nodeName": "node", "containers": 7}}))
}

fn lists_of_pods(world: &World) -> usize {
    world.api_calls("list pods spec.nodeName=node")
}

fn events_about(world: &World, pod: &str) -> Vec<String> {
    let events = world.agent.as_ref().unwrap().recorder().latest();
    let about = events.into_iter().filter(|event| {
        event.reason == "FailedValidation" && event.about.pod().is_some_and(|about| &*about.name == pod)
    });
    about.map(|event| event.message).collect()
}

#[tokio::test(start_paused = true)]
async fn pod_that_cannot_be_decoded_costs_only_itself() {
    let mut world = World::joined().await;
    world.create(&pod("before", [container("app")]));
    world.until("the first pod is ready", |w| w.is_ready_in_api("before")).await;
    world.api().put_json::<Pod>(malformed_pod("bad"));
    world.until("an event names the pod", |w| !events_about(w, "bad").is_empty()).await;
    world.create(&pod("later", [container("app")]));
    world.until("a later pod is ready", |w| w.is_ready_in_api("later")).await;
    world.api().remove::<Pod>("default", "before", Some(0));
    world.until("a deleted pod is gone", |w| !w.runs("before/app")).await;
    assert!(events_about(&world, "bad")[0].starts_with("Pod is not started, because it cannot be decoded: "));
    let metrics = world.metrics().await;
    assert!(metrics.contains("kubelet_rs_api_objects_malformed_total{resource=\"pods\"} 1"), "{metrics}");

    world.restart().await;
    world.create(&pod("after", [container("app")]));
    world.until("a pod after the restart is ready", |w| w.is_ready_in_api("after")).await;
    world.api().remove::<Pod>("default", "bad", Some(0));
    world.create(&pod("last", [container("app")]));
    world.until("the last pod is ready", |w| w.is_ready_in_api("last")).await;
    assert_eq!(events_about(&world, "bad").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn pod_that_cannot_be_decoded_any_more_keeps_running_until_it_is_deleted() {
    let mut world = World::joined().await;
    world.create(&pod("web", [container("app")]));
    world.until("the pod is ready", |w| w.is_ready_in_api("web")).await;
    let lists = lists_of_pods(&world);
    for version in 0..50 {
        let mut bad = malformed_pod("web");
        bad["metadata"]["labels"] = json!({"version": version.to_string()});
        world.api().put_json::<Pod>(bad);
        world.advance(seconds(1)).await;
    }
    assert!(world.runs("web/app"));
    assert_eq!(lists_of_pods(&world), lists, "fifty updates cost no list");
    assert_eq!(events_about(&world, "web").len(), 1);
    // Also a list does not mean that the pod is gone.
    world.api().set_outage(Some(Outage::Refused));
    world.api().put_json::<Pod>(malformed_pod("web"));
    world.api().compact().set_outage(None);
    world.until("pods are listed again", |w| lists_of_pods(w) > lists).await;
    world.advance(seconds(60)).await;
    assert!(world.runs("web/app"));
    world.restart().await;
    world.advance(seconds(120)).await;
    assert!(world.runs("web/app"), "after a restart, it is no orphan");
    world.api().remove::<Pod>("default", "web", Some(0));
    world.until("the deleted pod is gone", |w| !w.runs("web/app")).await;
}

#[tokio::test(start_paused = true)]
async fn pod_that_cannot_be_decoded_after_a_restart_is_no_orphan() {
    let mut world = World::joined().await;
    for name in ["web", "gone"] {
        world.create(&pod(name, [container("app")]));
        world.until("the pod is ready", |w| w.is_ready_in_api(name)).await;
    }
    world.crash().await;
    let web = world.in_api("web").unwrap();
    let mut bad = malformed_pod("web");
    bad["metadata"]["uid"] = web.metadata.uid.clone().into();
    world.api().put_json::<Pod>(bad);
    world.api().remove::<Pod>("default", "gone", Some(0));
    world.start().await;
    world.until("an orphan is stopped", |w| !w.runs("gone/app")).await;
    world.advance(seconds(120)).await;
    assert!(world.runs("web/app"));
    world.api().remove::<Pod>("default", "web", Some(0));
    world.until("the deleted pod is stopped", |w| !w.runs("web/app")).await;
}

#[tokio::test(start_paused = true)]
async fn pod_waits_only_for_its_own_malformed_objects_and_shows_the_reason() {
    let mut world = World::of_cluster();
    world.api().put_json::<Service>(malformed("bad", &json!({"spec": 7})));
    world.api().put_json::<RuntimeClass>(malformed("bad", &json!({"handler": 7})));
    world.api().put_json::<ConfigMap>(malformed("cfg", &json!({"data": 7})));
    world.start().await;
    world.until("the node is ready", World::is_node_ready).await;
    let env = json!({"env": [{"name": "COLOR", "valueFrom": {"configMapKeyRef": {"name": "cfg", "key": "color"}}}]});
    world.create(&pod("waits", [container_with("app", env)]));
    world.create(&pod("web", [container("app")]));
    world.until("the other pod is ready", |w| w.is_ready_in_api("web")).await;
    let shows = |w: &World| {
        let waiting = w.api_status("waits").container_statuses?.first()?.state.clone()?.waiting?;
        waiting.message.filter(|message| message.starts_with("configmap \"cfg\" cannot be decoded: "))
    };
    world.until("the reason shows", |w| shows(w).is_some()).await;
    let good = serde_json::from_value::<ConfigMap>(malformed("cfg", &json!({"data": {"color": "red"}})));
    world.api().put(&good.unwrap());
    world.until("the pod is ready", |w| w.is_ready_in_api("waits")).await;
}
