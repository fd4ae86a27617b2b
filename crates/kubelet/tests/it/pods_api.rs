//! The Pods API of the built binary.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use fakes::FakeRuntime;
use fixtures::stretched;
use grpc_api::pods as v1alpha1;
use grpc_api::pods::EventType;
use grpc_api::pods::pods_client::PodsClient;
use serde_json::json;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

use crate::node::{FOREVER, Node, shell_pod, uid};
use crate::pod_resources::within;

const SOCKET: &str = "root/pods-api/pods-api.sock";

async fn channel(node: &Node) -> Channel {
    let endpoint = Endpoint::from_shared(format!("unix://{}", node.path(SOCKET).display()));
    endpoint.expect("an endpoint").connect().await.expect("a connection")
}

/// Whether the encoded pod has these texts, each as a field or an item of a list.
fn has(encoded: &[u8], texts: &[&str]) -> bool {
    let field = |text: &str| [&[u8::try_from(text.len()).expect("a short text")], text.as_bytes()].concat();
    texts.iter().all(|text| encoded.windows(text.len() + 1).any(|window| window == field(text)))
}

/// Reads events until one is of that kind and its pod has these texts; returns the kinds of those before it.
async fn until(
    events: &mut tonic::Streaming<v1alpha1::WatchPodsEvent>,
    kind: EventType,
    texts: &[&str],
) -> Vec<EventType> {
    let mut before = Vec::new();
    let read = async {
        loop {
            let event = events.message().await.expect("a stream").expect("an event");
            if event.r#type() == kind && has(&event.pod, texts) {
                return;
            }
            before.push(event.r#type());
        }
    };
    let outcome = tokio::time::timeout(stretched(Duration::from_secs(60)), read).await;
    assert!(outcome.is_ok(), "no {kind:?} with {texts:?} after {before:?}");
    before
}

fn pulled(name: &str) -> serde_json::Value {
    let mut pod = shell_pod(name, FOREVER);
    pod["spec"]["containers"][0]["imagePullPolicy"] = "IfNotPresent".into();
    pod
}

#[test]
fn pods_api_lists_gets_and_watches_pods() {
    let runtime = FakeRuntime::with_clock(ports::Clock::system());
    let mut node = Node::with_fake(&runtime, json!({"featureGates": {"PodsAPI": true}}));
    // A socket that another kubelet has left must not prevent the start.
    node.start_kubelet();
    node.restart_kubelet();
    node.apply("web", &pulled("web"));
    let web = node.running("web");
    let mode = std::fs::metadata(node.path(SOCKET)).expect("a socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    within(async {
        let mut client = PodsClient::new(channel(&node).await);
        let pods = client.list_pods(v1alpha1::ListPodsRequest {}).await.expect("pods").into_inner().pods;
        assert!(pods.len() == 1 && has(&pods[0], &["web-node", "default", "Running"]), "{pods:?}");
        let get = |pod_uid: String| v1alpha1::GetPodRequest { pod_uid };
        let one = client.get_pod(get(uid(&web))).await.expect("a pod").into_inner().pod;
        assert!(has(&one, &["web-node", "Running"]), "{one:?}");
        let none = client.get_pod(get("none".to_owned())).await.expect_err("no such pod");
        assert_eq!((none.code(), none.message()), (Code::NotFound, "pod with UID none not found"));

        let watch = client.watch_pods(v1alpha1::WatchPodsRequest {}).await;
        let mut events = watch.expect("a watch").into_inner();
        let before = until(&mut events, EventType::InitialSyncComplete, &[]).await;
        assert_eq!(before, [EventType::Added]);
        node.apply("late", &pulled("late"));
        let before = until(&mut events, EventType::Added, &["late-node", "Pending"]).await;
        assert_eq!(before, [], "the first that is known of it");
        until(&mut events, EventType::Modified, &["late-node", "Running"]).await;
        node.delete("late");
        until(&mut events, EventType::Deleted, &["late-node"]).await;
    });
    let metrics = node.get("/metrics").expect("metrics");
    assert!(metrics.contains("kubelet_pod_watch_events_dropped_total 0\n"), "{metrics}");
}

#[test]
fn pods_api_limits_calls_and_not_watches() {
    let runtime = FakeRuntime::with_clock(ports::Clock::system());
    let node = Node::on_fake(&runtime, json!({"featureGates": {"PodsAPI": true}}));
    within(async {
        let client = PodsClient::new(channel(&node).await);
        // Concurrently: at 100 a second, a thousand calls would take ten seconds.
        let calls = (0..1000).map(|_| {
            let mut client = client.clone();
            async move { client.list_pods(v1alpha1::ListPodsRequest {}).await }
        });
        let answers = futures_util::future::join_all(calls).await;
        let refused: Vec<_> = answers.iter().filter_map(|answer| answer.as_ref().err()).collect();
        assert!(!refused.is_empty() && refused.len() < 1000, "{}", refused.len());
        assert!(refused.iter().all(|error| error.message() == "rejected by rate limit"), "{refused:?}");
        let watches = (0..50).map(|_| {
            let mut client = client.clone();
            async move { client.watch_pods(v1alpha1::WatchPodsRequest {}).await }
        });
        let watches = futures_util::future::join_all(watches).await;
        assert_eq!(watches.iter().filter(|watch| watch.is_ok()).count(), 50);
    });
}

#[test]
fn pods_api_is_not_served_without_its_gate() {
    let node = Node::on_fake(&FakeRuntime::with_clock(ports::Clock::system()), json!({}));
    assert!(!node.path(SOCKET).exists());
}
