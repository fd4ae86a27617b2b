//! The calls of the Pods API, with a fake agent.

use ports::node_api::EventsLost;
use tonic::Code;

use super::*;
use crate::tests::Agent;

fn pod(uid: &str, phase: &str) -> Pod {
    let pod = serde_json::json!({
        "metadata": {"name": format!("pod-{uid}"), "namespace": "default", "uid": uid}, "status": {"phase": phase},
    });
    serde_json::from_value(pod).unwrap()
}

fn server(agent: Agent) -> PodsOfNode {
    let clock = Clock::system();
    PodsOfNode { api: Arc::new(agent), clock, limiter: Arc::new(Mutex::new(limiter(clock.mono()))) }
}

fn encoded_as(pod: &Pod) -> Vec<u8> {
    encode_pod(pod).unwrap()
}

#[tokio::test]
async fn pods_are_listed_by_uid_and_found_by_uid() {
    let pods = [pod("c", "Running"), pod("a", "Pending"), pod("b", "Failed")];
    let server = server(Agent::with_all(pods.to_vec()));
    let listed = server.list_pods(tonic::Request::new(v1alpha1::ListPodsRequest {})).await.unwrap();
    assert_eq!(listed.into_inner().pods, [&pods[1], &pods[2], &pods[0]].map(encoded_as));
    let get = |uid: &str| {
        let (server, pod_uid) = (server.clone(), uid.to_owned());
        async move { server.get_pod(tonic::Request::new(v1alpha1::GetPodRequest { pod_uid })).await }
    };
    assert_eq!(get("b").await.unwrap().into_inner().pod, encoded_as(&pods[2]));
    let error = get("none").await.unwrap_err();
    assert_eq!((error.code(), error.message()), (Code::NotFound, "pod with UID none not found"));
}

#[tokio::test]
async fn watch_has_all_pods_then_the_end_of_the_list_then_changes() {
    let [a, b, changed, gone] =
        [pod("a", "Running"), pod("b", "Running"), pod("a", "Failed"), pod("a", "Failed")];
    let events = [
        Ok(PodEvent::Added(Box::new(b.clone()))),
        Ok(PodEvent::Modified(Box::new(changed.clone()))),
        Ok(PodEvent::Deleted(Box::new(gone.clone()))),
    ];
    let server = server(Agent::with_all(vec![a.clone()]).with_events(events.to_vec()));
    let stream = server.watch_pods(tonic::Request::new(v1alpha1::WatchPodsRequest {})).await.unwrap();
    let events: Vec<_> = stream.into_inner().map(|event| event.unwrap()).collect().await;
    let event = |kind: EventType, pod: Vec<u8>| v1alpha1::WatchPodsEvent { r#type: kind.into(), pod };
    let expected = [
        event(EventType::Added, encoded_as(&a)),
        event(EventType::InitialSyncComplete, Vec::new()),
        event(EventType::Added, encoded_as(&b)),
        event(EventType::Modified, encoded_as(&changed)),
        event(EventType::Deleted, encoded_as(&gone)),
    ];
    assert_eq!(events, expected);
}

#[tokio::test]
async fn watch_of_a_slow_client_ends_with_resource_exhausted_and_is_counted() {
    let agent = Agent::default().with_events(vec![Err(EventsLost)]);
    let dropped = agent.dropped.clone();
    let stream = server(agent).watch_pods(tonic::Request::new(v1alpha1::WatchPodsRequest {})).await.unwrap();
    let events: Vec<_> = stream.into_inner().collect().await;
    let [Ok(synced), Err(error)] = &events[..] else { panic!("{events:?}") };
    assert_eq!(synced.r#type(), EventType::InitialSyncComplete);
    assert_eq!((error.code(), error.message()), (Code::ResourceExhausted, "watch client channel closed"));
    assert_eq!(dropped.0.load(std::sync::atomic::Ordering::Relaxed), 1);
}
