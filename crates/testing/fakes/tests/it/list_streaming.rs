//! Lists that the runtime streams in parts: they are the same as those in one message, may be larger than one, and a runtime that does
//! not stream them is asked once.

use std::sync::Arc;
use std::time::Duration;

use cri::CriRuntime;
use fakes::{FakeCri, FakeRuntime, Fault, Method};
use futures_util::StreamExt;
use model::request::SandboxRequest;
use ports::Runtime;
use ports::runtime::{RuntimeError, Scope};
use prost::Message;
use tempfile::TempDir;

use crate::world::{Case, Does, World};

const TIMEOUT: Duration = Duration::from_secs(10);

/// A runtime behind a socket; a client that streams lists, and one that does not.
struct Wire {
    dir: TempDir,
    fake: FakeRuntime,
    server: FakeCri,
    streaming: Arc<CriRuntime>,
    unary: Arc<CriRuntime>,
}

fn wire(runtime_streams: bool, timeout: Duration) -> Wire {
    let dir = tempfile::tempdir().unwrap();
    let fake = crate::fake::fake();
    let (runtime, socket) = (Arc::new(fake.clone()), dir.path().join("cri.sock"));
    let server = match runtime_streams {
        true => FakeCri::serve_streaming_lists(runtime, &socket, 2),
        false => FakeCri::serve(runtime, &socket),
    };
    let server = server.unwrap();
    let client = || CriRuntime::new(&server.endpoint(), "", timeout).unwrap();
    let (streaming, unary) = (Arc::new(client().streaming_lists(true)), Arc::new(client()));
    Wire { dir, fake, server, streaming, unary }
}

fn world(wire: &Wire) -> World {
    World {
        runtime: Arc::clone(&wire.streaming) as Arc<dyn Runtime>,
        logs: wire.dir.path().join("logs"),
        cgroup_root: "/kubelet-test".to_owned(),
        has_processes: false,
        fake: Some(wire.fake.clone()),
    }
}

async fn run(case: Case) {
    let wire = wire(true, TIMEOUT);
    case(world(&wire)).await;
}

contract!(
    #[tokio::test]
    run
);

/// Five pods, so that a list has several parts.
async fn start_pods(wire: &Wire) {
    let world = world(wire);
    for pod in ["a", "b", "c", "d", "e"] {
        let sandbox = world.run_sandbox(pod).await;
        world.start(&sandbox, "app", Does::Sleep).await;
    }
}

/// All lists of a client, as text. The times and numbers of a measurement differ between two calls.
async fn lists(client: &CriRuntime) -> Vec<String> {
    let mut all = Vec::new();
    for scope in [Scope::Node, Scope::Pod("uid-of-c".into()), Scope::Pod("uid-of-missing".into())] {
        all.push(format!("{:?}", client.list_sandboxes(&scope).await.unwrap()));
        all.push(format!("{:?}", client.list_containers(&scope).await.unwrap()));
        let stats = client.list_container_stats(&scope).await.unwrap();
        all.push(format!("{:?}", stats.iter().map(|stats| &stats.id).collect::<Vec<_>>()));
        let stats = client.list_sandbox_stats(&scope).await.unwrap();
        all.push(format!("{:?}", stats.iter().map(|stats| &stats.id).collect::<Vec<_>>()));
    }
    let metrics = client.list_sandbox_metrics().await.unwrap();
    all.push(format!("{:?}", metrics.iter().map(|metrics| &metrics.sandbox).collect::<Vec<_>>()));
    all.push(format!("{:?}", client.list_images().await.unwrap()));
    all
}

#[tokio::test]
async fn streamed_lists_are_those_of_the_unary_calls() {
    let wire = wire(true, TIMEOUT);
    start_pods(&wire).await;
    assert_eq!(wire.streaming.list_containers(&Scope::Node).await.unwrap().len(), 5);
    let before = wire.server.stream_calls();
    assert!(before > 0);
    assert_eq!(lists(&wire.streaming).await, lists(&wire.unary).await);
    assert_eq!(
        wire.server.stream_calls() - before,
        14,
        "each list of the streaming client, none of the other"
    );
}

#[tokio::test]
async fn runtime_without_list_streaming_is_asked_once_for_each_service() {
    let wire = wire(false, TIMEOUT);
    start_pods(&wire).await;
    for _ in 0..2 {
        assert_eq!(lists(&wire.streaming).await, lists(&wire.unary).await);
    }
    assert_eq!(wire.server.stream_calls(), 2, "the runtime service and the image service");
}

#[tokio::test]
async fn streamed_list_may_be_larger_than_a_message() {
    let wire = wire(true, TIMEOUT);
    let large = |number: usize| {
        let uid = format!("large-{number}");
        let pod = model::PodRef::new("default", &"x".repeat(3 << 20), uid.as_str());
        SandboxRequest { pod, ..world(&wire).sandbox_request(&uid) }
    };
    for number in 0..6 {
        wire.fake.run_sandbox(&large(number)).await.unwrap();
    }
    let error = wire.unary.list_sandboxes(&Scope::Node).await.unwrap_err();
    assert!(matches!(error, RuntimeError::Failed { .. }), "{error:?}");
    assert_eq!(wire.streaming.list_sandboxes(&Scope::Node).await.unwrap().len(), 6);
}

#[tokio::test]
async fn streamed_list_that_fails_is_an_error_of_the_list_call_and_streaming_stays_on() {
    let wire = wire(true, Duration::from_millis(300));
    wire.fake.fault(Method::ListContainers, Fault::Failed("disk on fire".to_owned()));
    let error = wire.streaming.list_containers(&Scope::Node).await.unwrap_err();
    assert!(matches!(&error, RuntimeError::Failed { call: "ListContainers", .. }), "{error:?}");
    wire.fake.fault(Method::ListContainers, Fault::Hang);
    let error = wire.streaming.list_containers(&Scope::Node).await.unwrap_err();
    assert!(matches!(&error, RuntimeError::TimedOut { call: "ListContainers", .. }), "{error:?}");
    wire.streaming.list_containers(&Scope::Node).await.unwrap();
    assert_eq!(wire.server.stream_calls(), 3);
}

/// The numbers in docs/behaviour/container-runtime.md: run it with `--nocapture`.
#[tokio::test]
async fn list_of_a_thousand_containers_is_never_in_memory_as_a_whole_message() {
    let dir = tempfile::tempdir().unwrap();
    let (fake, socket) = (crate::fake::fake(), dir.path().join("cri.sock"));
    let server = FakeCri::serve_streaming_lists(Arc::new(fake.clone()), &socket, 100).unwrap();
    let client = || CriRuntime::new(&server.endpoint(), "", TIMEOUT).unwrap();
    let (streaming, unary) = (client().streaming_lists(true), client());
    let logs = dir.path().join("logs");
    let runtime: Arc<dyn Runtime> = Arc::new(fake.clone());
    let cgroup_root = "/kubelet-test".to_owned();
    let world = World { runtime, logs, cgroup_root, has_processes: false, fake: Some(fake) };
    for number in 0..1000 {
        let sandbox = world.run_sandbox(&format!("pod-{number:04}")).await;
        world.start(&sandbox, "app", Does::Sleep).await;
    }
    let mut took = Vec::new();
    for client in [&unary, &streaming] {
        client.list_containers(&Scope::Node).await.unwrap();
        let began = std::time::Instant::now();
        for _ in 0..20 {
            assert_eq!(client.list_containers(&Scope::Node).await.unwrap().len(), 1000);
        }
        took.push(began.elapsed() / 20);
    }
    let mut raw = cri_api::v1::runtime_service_client::RuntimeServiceClient::new(channel(&server).await);
    let whole = raw.list_containers(cri_api::v1::ListContainersRequest::default()).await.unwrap();
    let whole = whole.into_inner().encoded_len();
    let parts = raw.stream_containers(cri_api::v1::StreamContainersRequest::default()).await.unwrap();
    let parts = parts.into_inner().map(|part| part.unwrap().encoded_len());
    let largest = parts.fold(0, |largest, part| std::future::ready(part.max(largest))).await;
    println!("one message of {whole} bytes in {:?}, parts of up to {largest} in {:?}", took[0], took[1]);
    assert!(largest * 9 < whole, "{largest} of {whole}");
}

async fn channel(server: &FakeCri) -> tonic::transport::Channel {
    tonic::transport::Endpoint::from_shared(server.endpoint()).unwrap().connect().await.unwrap()
}
