//! Spans of the built binary, as a collector receives them by OTLP.

use std::sync::Arc;

use fakes::FakeRuntime;
use grpc_api::otlp as wire;
use grpc_api::otlp::trace_service_server::{TraceService, TraceServiceServer};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tonic::{Request, Response, Status};

use crate::node::{FOREVER, Node, free_port, shell_pod};
use crate::server::{connect, send};

/// The spans that a collector received, and the resource attributes of their sender.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<(Vec<wire::KeyValue>, Vec<wire::Span>)>>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<wire::ExportTraceServiceRequest>,
    ) -> Result<Response<wire::ExportTraceServiceResponse>, Status> {
        let mut received = self.0.lock();
        for of_one in request.into_inner().resource_spans {
            received.0 = of_one.resource.unwrap_or_default().attributes;
            received.1.extend(of_one.scope_spans.into_iter().flat_map(|scope| scope.spans));
        }
        Ok(Response::new(wire::ExportTraceServiceResponse {}))
    }
}

impl Collector {
    /// A collector at a port of its own, for the rest of the process.
    fn start() -> (Self, String) {
        let collector = Self::default();
        let service = TraceServiceServer::new(collector.clone());
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a listener");
        let address = listener.local_addr().expect("an address");
        listener.set_nonblocking(true).expect("a listener that does not block");
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let serving = async move {
                let listener = tokio::net::TcpListener::from_std(listener).expect("the same listener");
                let incoming = tonic::transport::server::TcpIncoming::from(listener);
                tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming).await
            };
            runtime.expect("a runtime").block_on(serving).expect("a collector");
        });
        (collector, address.to_string())
    }

    fn find(&self, matches: impl Fn(&wire::Span) -> bool) -> Result<wire::Span, String> {
        let received = self.0.lock();
        let names = || received.1.iter().map(|span| span.name.as_str()).collect::<Vec<_>>().join(" ");
        received.1.iter().find(|span| matches(span)).cloned().ok_or_else(names)
    }
}

fn text(attributes: &[wire::KeyValue], key: &str) -> Option<String> {
    let value = attributes.iter().find(|attribute| attribute.key == key)?.value.as_ref()?.value.as_ref()?;
    match value {
        wire::any_value::Value::StringValue(text) => Some(text.clone()),
        wire::any_value::Value::IntValue(number) => Some(number.to_string()),
        wire::any_value::Value::BoolValue(truth) => Some(truth.to_string()),
    }
}

fn fake_pod() -> Value {
    let mut pod = shell_pod("web", FOREVER);
    pod["spec"]["containers"][0]["imagePullPolicy"] = "IfNotPresent".into();
    pod
}

fn traced(endpoint: &str, per_million: u32) -> Node {
    let tracing = json!({"tracing": {"endpoint": endpoint, "samplingRatePerMillion": per_million}});
    let node = Node::on_fake(&FakeRuntime::with_clock(ports::Clock::system()), tracing);
    node.apply("web", &fake_pod());
    node.running("web");
    node
}

#[test]
fn tracing_exports_pod_syncs_with_cri_calls_and_requests_with_parent_spans() {
    let (collector, endpoint) = Collector::start();
    let node = traced(&endpoint, 1_000_000);
    let call = node.eventually("the RunPodSandbox call has a span", |_| {
        collector.find(|span| span.name == "RunPodSandbox")
    });
    assert_eq!((call.kind, text(&call.attributes, "rpc.system").as_deref()), (3, Some("grpc")));
    let sync = node.eventually("the surrounding sync has a span", |_| {
        collector.find(|span| span.span_id == call.parent_span_id)
    });
    assert_eq!((&*sync.name, &sync.trace_id), ("syncPod", &call.trace_id));
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let span = format!("00-{}-{}-01", hex(&call.trace_id), hex(&call.span_id));
    let spans = node.spans_sent_to_the_fake();
    assert!(spans.contains(&span), "the runtime may continue the trace: {span} in {spans:?}");
    assert!(text(&sync.attributes, "k8s.pod").is_some_and(|pod| pod.contains("web-node")), "{sync:?}");
    assert_eq!(text(&collector.0.lock().0, "service.name").as_deref(), Some("kubelet"));
    let stream = connect(&node, &node.path("pki/kubelet.crt"), None).expect("a connection");
    let parent = "traceparent: 00-0123456789abcdef0123456789abcdef-0011223344556677-01\r\n";
    assert_eq!(send(stream, "GET /none", parent, "").expect("an answer").status, 404);
    let request =
        node.eventually("the request has a span", |_| collector.find(|span| span.name == "GET /none"));
    assert_eq!(request.parent_span_id, [0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77]);
    assert_eq!(text(&request.attributes, "http.response.status_code").as_deref(), Some("404"));
    assert!(request.start_time_unix_nano <= request.end_time_unix_nano);
}

#[test]
fn pods_run_while_the_tracing_collector_is_unreachable() {
    let node = traced(&format!("127.0.0.1:{}", free_port()), 1_000_000);
    node.wait_for_log("Failed to export spans");
    node.running("web");
}
