//! The PodResources API of the built binary, as device monitoring agents use it.

use std::os::unix::fs::PermissionsExt;

use fakes::FakeRuntime;
use grpc_api::pod_resources as v1;
use grpc_api::pod_resources::pod_resources_lister_client::PodResourcesListerClient;
use grpc_api::pod_resources_alpha::{self as v1alpha1, pod_resources_lister_client as alpha};
use serde_json::json;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

use crate::node::{FOREVER, Node, shell, shell_pod};

pub(crate) async fn channel(node: &Node) -> Channel {
    let socket = node.path("root/pod-resources/kubelet.sock");
    let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display())).expect("an endpoint");
    endpoint.connect().await.expect("a connection")
}

pub(crate) fn within<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(work)
}

#[test]
fn pod_resources_api_lists_containers_and_allocatable_resources() {
    let mut node = Node::on_fake(&FakeRuntime::with_clock(ports::Clock::system()), json!({}));
    let mut pod = shell_pod("web", FOREVER);
    let mut sidecar = shell("sidecar", FOREVER);
    sidecar["restartPolicy"] = "Always".into();
    sidecar["imagePullPolicy"] = "IfNotPresent".into();
    pod["spec"]["initContainers"] = json!([sidecar]);
    pod["spec"]["containers"][0]["imagePullPolicy"] = "IfNotPresent".into();
    node.apply("web", &pod);
    node.running("web");
    // A socket that another kubelet has left must not prevent the start.
    node.restart_kubelet();
    node.running("web");
    let mode = std::fs::metadata(node.path("root/pod-resources/kubelet.sock")).expect("a socket");
    assert_eq!(mode.permissions().mode() & 0o777, 0o600);
    within(async {
        let channel = channel(&node).await;
        let mut client = PodResourcesListerClient::new(channel.clone());
        let named = |name: &str| v1::ContainerResources { name: name.to_owned(), ..Default::default() };
        let expected = v1::PodResources {
            name: "web-node".to_owned(),
            namespace: "default".to_owned(),
            containers: vec![named("sidecar"), named("main")],
        };
        let listed = client.list(v1::ListPodResourcesRequest {}).await.expect("a list").into_inner();
        assert_eq!(listed.pod_resources, std::slice::from_ref(&expected));
        let ask = |name: &str| v1::GetPodResourcesRequest {
            pod_name: name.to_owned(),
            pod_namespace: "default".to_owned(),
        };
        let one = client.get(ask("web-node")).await.expect("an answer").into_inner();
        assert_eq!(one.pod_resources, Some(expected));
        let none = client.get(ask("none")).await.expect_err("no such pod");
        assert_eq!(none.message(), "pod none in namespace default not found");
        let free = client.get_allocatable_resources(v1::AllocatableResourcesRequest {}).await;
        assert_eq!(free.expect("an answer").into_inner(), v1::AllocatableResourcesResponse::default());
        let mut old = alpha::PodResourcesListerClient::new(channel);
        let listed = old.list(v1alpha1::ListPodResourcesRequest {}).await.expect("a list").into_inner();
        let names = listed.pod_resources.iter().flat_map(|pod| &pod.containers).map(|c| c.name.as_str());
        assert_eq!(names.collect::<Vec<_>>(), ["main"], "it knows no sidecars");
    });
    let metrics = node.get("/metrics").expect("metrics");
    for (what, version, count) in [
        ("requests_total", "v1", 4),
        ("requests_total", "v1alpha1", 1),
        ("requests_list", "v1", 1),
        ("requests_get", "v1", 2),
        ("errors_get", "v1", 1),
        ("requests_get_allocatable", "v1", 1),
    ] {
        let line =
            format!("kubelet_pod_resources_endpoint_{what}{{server_api_version=\"{version}\"}} {count}\n");
        assert!(metrics.contains(&line), "{line} in {metrics}");
    }
}

#[test]
fn pod_resources_api_rejects_clients_over_the_rate_limit() {
    let node = Node::on_fake(&FakeRuntime::with_clock(ports::Clock::system()), json!({}));
    within(async {
        let client = PodResourcesListerClient::new(channel(&node).await);
        // Concurrently: at 100 a second, a thousand calls would take ten seconds.
        let calls = (0..1000).map(|_| {
            let mut client = client.clone();
            async move { client.list(v1::ListPodResourcesRequest {}).await }
        });
        let answers = futures_util::future::join_all(calls).await;
        let refused: Vec<_> = answers.iter().filter_map(|answer| answer.as_ref().err()).collect();
        assert!(!refused.is_empty() && refused.len() < 1000, "{}", refused.len());
        let other = refused.iter().find(|error| error.code() != Code::ResourceExhausted);
        assert!(other.is_none(), "{other:?}");
        assert_eq!(refused[0].message(), "rejected by rate limit");
    });
}
