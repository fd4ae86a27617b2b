//! The endpoints over a real connection, with a fake agent.
#![expect(clippy::disallowed_methods, reason = "tests own the servers they start, and join them")]

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::{StreamExt, stream};
use model::NodeLogOptions;
use model::explain::PodExplanation;
use model::inventory::PodSelection;
use model::k8s::{ObjectMeta, Pod};
use ports::NodeApi;
use ports::node_api::{
    EventsLost, LogPieces, LogSource, LogView, ManifestProblem, Measurements, PodEvent, PodEvents,
    PodRefusal, PodTarget, SystemLog, SystemLogError, TextPieces,
};
use ports::request_metrics::{PodResourcesCall, RequestKind, Review, ServingObserver};
use ports::runtime::Streams;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::serve_healthz;
use crate::serve_read_only;

mod main_port;

/// A fake agent with configured responses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Agent {
    pods: Vec<Pod>,
    runtime_is_down: bool,
    sync_loop_age: Duration,
    refuses_device_plugins: bool,
    metrics: String,
    log: Option<String>,
    /// If set, logs are empty and never end; this counts their readers.
    readers: Option<tokio::sync::watch::Sender<()>>,
    /// Port of the runtime's streaming server; `None`: no container runs.
    streaming: Option<u16>,
    /// What a watch of pods gets.
    pod_events: Vec<Result<PodEvent, EventsLost>>,
    pub(crate) dropped: Arc<Dropped>,
}

/// Counts the events of pods that clients did not get.
#[derive(Debug, Default)]
pub(crate) struct Dropped(pub(crate) AtomicUsize);

impl ServingObserver for Dropped {
    fn request_began(&self, _: RequestKind) {}
    fn request_ended(&self, _: RequestKind, _: Duration) {}
    fn websocket_asked(&self, _: &'static str) {}
    fn certificate_believed(&self, _: Duration) {}
    fn token_looked_up(&self, _: bool, _: Duration) {}
    fn reviewed(&self, _: Review, _: &'static str, _: Duration) {}
    fn pod_resources_called(&self, _: &'static str, _: PodResourcesCall, _: bool) {}
    fn pod_watch_event_dropped(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
    fn checked(&self, _: &'static str, _: bool) {}
}

impl Agent {
    pub(crate) fn with_pods(names: &[String]) -> Self {
        Self { pods: names.iter().map(|name| pod(name)).collect(), ..Self::default() }
    }

    pub(crate) fn with_pod(pod: Pod) -> Self {
        Self::with_all(vec![pod])
    }

    pub(crate) fn with_all(pods: Vec<Pod>) -> Self {
        Self { pods, ..Self::default() }
    }

    pub(crate) fn with_events(self, pod_events: Vec<Result<PodEvent, EventsLost>>) -> Self {
        Self { pod_events, ..self }
    }

    fn url(&self, path: &str) -> Result<String, PodRefusal> {
        let port =
            self.streaming.ok_or_else(|| PodRefusal::Invalid("container not found (\"main\")".to_owned()))?;
        Ok(format!("http://127.0.0.1:{port}/{path}"))
    }
}

#[async_trait]
impl NodeApi for Agent {
    fn pods(&self) -> Vec<Pod> {
        self.pods.clone()
    }

    fn watch_pods(&self) -> PodEvents {
        stream::iter(self.pod_events.clone()).boxed()
    }

    fn observer(&self) -> Option<Arc<dyn ServingObserver>> {
        Some(self.dropped.clone())
    }

    async fn running_pods(&self) -> Result<Vec<Pod>, String> {
        if self.runtime_is_down { Err("runtime is down".into()) } else { Ok(vec![pod("running")]) }
    }

    async fn container_log(&self, source: &LogSource, view: &LogView) -> Result<LogPieces, PodRefusal> {
        if let Some(readers) = &self.readers {
            let reader = readers.subscribe();
            let silent = stream::pending().inspect(move |_| {
                let _as_long_as_it_is_read = &reader;
            });
            return Ok(silent.boxed());
        }
        let Some(log) = &self.log else {
            return Err(PodRefusal::NotFound(format!("pod {:?} does not exist", source.pod)));
        };
        if source.previous {
            return Err(PodRefusal::Invalid("no previous container".to_owned()));
        }
        let pieces = [Ok(format!("{view:?}\n").into_bytes()), Ok(log.clone().into_bytes())];
        Ok(stream::iter(pieces).boxed())
    }

    async fn exec(
        &self,
        pod: &PodTarget,
        container: &str,
        command: &[String],
        streams: Streams,
    ) -> Result<String, PodRefusal> {
        self.url(&format!(
            "exec/{}/{}/{container}/{}/{}",
            pod.namespace,
            pod.pod,
            command.join("+"),
            streams.tty
        ))
    }

    async fn attach(
        &self,
        pod: &PodTarget,
        container: &str,
        _streams: Streams,
    ) -> Result<String, PodRefusal> {
        self.url(&format!("attach/{}/{}/{container}", pod.namespace, pod.pod))
    }

    async fn port_forward(&self, pod: &PodTarget, ports: &[u16]) -> Result<String, PodRefusal> {
        self.url(&format!("ports/{}/{}/{ports:?}", pod.namespace, pod.pod).replace(' ', ""))
    }

    async fn run(
        &self,
        _pod: &PodTarget,
        container: &str,
        command: &[String],
    ) -> Result<Vec<u8>, PodRefusal> {
        if command == ["false"] {
            return Err(PodRefusal::Failed("command 'false' exited with 1: ".to_owned()));
        }
        Ok(format!("{container}: {command:?}").into_bytes())
    }

    async fn system_log(&self, inside: &Path) -> Result<SystemLog, SystemLogError> {
        Err(if inside == Path::new("secret") { SystemLogError::Denied } else { SystemLogError::NotFound })
    }

    async fn service_logs(&self, services: &[String], options: &NodeLogOptions) -> LogPieces {
        stream::iter([Ok(format!("{services:?} {:?}", options.tail_lines).into_bytes())]).boxed()
    }

    async fn checkpoint(
        &self,
        pod: &PodTarget,
        container: &str,
        timeout: Option<Duration>,
    ) -> Result<PathBuf, PodRefusal> {
        match (&*pod.pod, container) {
            ("web", "main") => Ok(format!("/checkpoints/{timeout:?}").into()),
            ("web", _) => Err(PodRefusal::NotFound(format!("container {container} does not exist"))),
            _ => Err(PodRefusal::Failed("criu is missing".to_owned())),
        }
    }

    fn explain_pods(&self, _of: &PodSelection) -> Vec<PodExplanation> {
        vec![PodExplanation { uid: "explained".to_owned(), ..PodExplanation::default() }]
    }

    fn manifest_problems(&self) -> Vec<ManifestProblem> {
        vec![ManifestProblem { origin: "file:/m/web.yaml".into(), message: "line 3: \"oops\"".into() }]
    }

    fn takes_device_plugins(&self) -> bool {
        !self.refuses_device_plugins
    }

    fn sync_loop_age(&self) -> (Duration, Duration) {
        (self.sync_loop_age, Duration::from_secs(120))
    }

    async fn measurements(&self, what: Measurements) -> Result<TextPieces, String> {
        if self.runtime_is_down {
            return Err("no statistics available".to_owned());
        }
        let pieces = [format!("{what:?}\n"), self.metrics.clone()];
        Ok(stream::iter(pieces).boxed())
    }
}

fn pod(name: &str) -> Pod {
    let metadata = ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() };
    Pod { metadata, ..Pod::default() }
}

/// A server under test.
struct Server {
    port: u16,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Server {
    async fn read_only(agent: Agent) -> Self {
        Self::start(agent, true).await
    }

    async fn healthz(agent: Agent) -> Self {
        Self::start(agent, false).await
    }

    async fn start(agent: Agent, read_only: bool) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async move {
            let _ = stopped.await;
        };
        let agent: Arc<dyn NodeApi> = Arc::new(agent);
        let task = tokio::spawn(async move {
            if read_only {
                serve_read_only(listener, agent, shutdown).await;
            } else {
                serve_healthz(listener, agent, shutdown).await;
            }
        });
        Self { port, stop: Some(stop), task }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(("127.0.0.1", self.port)).await.unwrap()
    }

    async fn ask(&self, method: &str, path: &str) -> Answer {
        let mut stream = self.connect().await;
        let request = format!("{method} {path} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        Answer { head: head.to_ascii_lowercase(), body: body.to_owned() }
    }

    async fn get(&self, path: &str) -> Answer {
        self.ask("GET", path).await
    }
}

#[derive(Debug)]
struct Answer {
    /// Status line and headers in lower case.
    head: String,
    body: String,
}

impl Answer {
    fn status(&self) -> u16 {
        self.head.split(' ').nth(1).unwrap().parse().unwrap()
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.head
            .lines()
            .skip(1)
            .find_map(|line| line.split_once(": ").filter(|(n, _)| *n == name))
            .map(|h| h.1)
    }

    fn json(&self) -> Value {
        assert_eq!(self.header("content-type"), Some("application/json"));
        serde_json::from_str(&self.body).unwrap()
    }

    /// The body without its chunks.
    fn unchunked(&self) -> String {
        assert_eq!(self.header("transfer-encoding"), Some("chunked"));
        let mut lines = self.body.split("\r\n");
        let mut whole = String::new();
        while let (Some(_size), Some(chunk)) = (lines.next(), lines.next()) {
            whole.push_str(chunk);
        }
        whole
    }

    #[track_caller]
    fn check(&self, status: u16, body: &str) {
        assert_eq!((self.status(), self.body.as_str()), (status, body));
        assert_eq!(self.header("content-type"), Some("text/plain; charset=utf-8"));
    }
}

fn hanging() -> Agent {
    Agent { sync_loop_age: Duration::from_secs(121), ..Agent::default() }
}

#[tokio::test]
async fn healthz_succeeds_while_the_sync_loop_runs() {
    let just_in_time = Agent { sync_loop_age: Duration::from_secs(120), ..Agent::default() };
    for server in [Server::healthz(just_in_time.clone()).await, Server::read_only(just_in_time).await] {
        server.get("/healthz").await.check(200, "ok");
    }
}

#[tokio::test]
async fn healthz_reports_a_hanging_sync_loop_on_both_ports() {
    let reason = "sync loop took longer than expected: last round 121 s ago, limit 120 s";
    let port = Server::healthz(hanging()).await;
    let report = format!("[+]ping ok\n[-]syncloop failed: {reason}\nhealthz check failed\n");
    port.get("/healthz").await.check(500, &report);
    let port = Server::read_only(hanging()).await;
    let report = format!(
        "[+]ping ok\n[+]log ok\n[-]syncloop failed: {reason}\n[+]device-plugin ok\nhealthz check failed\n"
    );
    port.get("/healthz").await.check(500, &report);
    port.get("/healthz/device-plugin").await.check(200, "ok");
    port.get("/healthz/ping").await.check(200, "ok");
    port.get("/healthz/log").await.check(200, "ok");
    port.get("/healthz/syncloop").await.check(500, &format!("internal server error: {reason}\n"));
}

#[tokio::test]
async fn healthz_lists_checks_with_verbose() {
    let server = Server::read_only(Agent::default()).await;
    let report = "[+]ping ok\n[+]log ok\n[+]syncloop ok\n[+]device-plugin ok\nhealthz check passed\n";
    server.get("/healthz?verbose").await.check(200, report);
    server.get("/healthz?x=1&verbose=true").await.check(200, report);
    server.get("/healthz?verbosely").await.check(200, "ok");
}

#[tokio::test]
async fn healthz_fails_if_device_plugins_cannot_register() {
    let server = Server::read_only(Agent { refuses_device_plugins: true, ..Agent::default() }).await;
    let reason = "device plugin registration gRPC server failed and no device plugins can register";
    let report = format!(
        "[+]ping ok\n[+]log ok\n[+]syncloop ok\n[-]device-plugin failed: {reason}\nhealthz check failed\n"
    );
    server.get("/healthz").await.check(500, &report);
    let single = format!("internal server error: {reason}\n");
    server.get("/healthz/device-plugin").await.check(500, &single);
}

#[tokio::test]
async fn health_port_serves_only_healthz() {
    let server = Server::healthz(Agent::default()).await;
    for path in ["/", "/pods", "/metrics", "/healthz/ping"] {
        server.get(path).await.check(404, "404 page not found\n");
    }
}

#[tokio::test]
async fn pods_endpoint_returns_a_pod_list() {
    let server = Server::read_only(Agent { pods: vec![pod("a"), pod("b")], ..Agent::default() }).await;
    let expected = json!({
        "kind": "PodList",
        "apiVersion": "v1",
        "metadata": {},
        "items": [{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}],
    });
    assert_eq!(server.get("/pods").await.json(), expected);
    let empty = Server::read_only(Agent::default()).await.get("/pods").await.json();
    assert_eq!(empty, json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": []}));
}

/// Problems may contain parts of manifests, and the read-only port has no authentication.
#[tokio::test]
async fn read_only_port_does_not_serve_debug_manifests() {
    let server = Server::read_only(Agent::default()).await;
    server.get("/debug/manifests").await.check(404, "404 page not found\n");
}

#[tokio::test]
async fn metrics_endpoints_serve_prometheus_text() {
    let agent = Agent { metrics: "kubelet_running_pods 1\n".into(), ..Agent::default() };
    let server = Server::read_only(agent).await;
    for (path, what) in [
        ("/metrics", "Kubelet"),
        ("/metrics/cadvisor", "Cadvisor"),
        ("/metrics/resource", "Resource"),
        ("/metrics/probes", "Probes"),
    ] {
        let answer = server.get(path).await;
        assert_eq!((answer.status(), answer.unchunked()), (200, format!("{what}\nkubelet_running_pods 1\n")));
        assert_eq!(answer.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    }
}

#[tokio::test]
async fn stats_summary_is_complete_or_cpu_and_memory_only() {
    let server = Server::read_only(Agent::default()).await;
    let only = |only: bool| format!("Summary {{ only_cpu_and_memory: {only} }}\n");
    for (method, query, expected) in [
        ("GET", "", only(false)),
        ("POST", "", only(false)),
        ("GET", "?only_cpu_and_memory=false", only(false)),
        ("GET", "?only_cpu_and_memory=true", only(true)),
        ("POST", "?only_cpu_and_memory=1", only(true)),
    ] {
        let answer = server.ask(method, &format!("/stats/summary{query}")).await;
        assert_eq!((answer.status(), answer.unchunked()), (200, expected), "{method} {query}");
        assert_eq!(answer.header("content-type"), Some("application/json"));
    }
    let text = "invalid query: only_cpu_and_memory must be true or false, not \"maybe\"\n";
    server.get("/stats/summary?only_cpu_and_memory=maybe").await.check(400, text);
    server.ask("PUT", "/stats/summary").await.check(405, "405: Method Not Allowed\n");
    let server = Server::read_only(Agent { runtime_is_down: true, ..Agent::default() }).await;
    server.get("/stats/summary").await.check(500, "no statistics available\n");
}

#[tokio::test]
async fn unknown_methods_and_paths_are_rejected() {
    let server = Server::read_only(Agent::default()).await;
    for (method, path) in [("POST", "/pods"), ("DELETE", "/healthz"), ("PUT", "/metrics")] {
        let answer = server.ask(method, path).await;
        answer.check(405, "405: Method Not Allowed\n");
        assert_eq!(answer.header("allow"), Some("get,head"));
    }
    for path in ["/", "/pod", "/pods/", "/runner", "/healthz/other", "/debug/flags"] {
        server.get(path).await.check(404, "404 page not found\n");
    }
}

#[tokio::test]
async fn debugging_endpoints_of_the_read_only_port_are_disabled_for_every_method() {
    let server = Server::read_only(Agent::default()).await;
    for (method, path) in [
        ("POST", "/run/ns/pod/container?cmd=ls"),
        ("GET", "/exec/ns/pod/container"),
        ("POST", "/attach/ns/pod/container"),
        ("POST", "/portForward/ns/pod"),
        ("GET", "/containerLogs/ns/pod/container"),
        ("GET", "/runningpods"),
        ("GET", "/runningpods/"),
        ("GET", "/logs/"),
        ("GET", "/debug/pprof/heap"),
    ] {
        server.ask(method, path).await.check(405, "Debug endpoints are disabled.\n");
    }
    for path in ["/configz", "/flagz", "/statusz", "/checkpoint/ns/pod/container", "/debug/flags/v"] {
        server.get(path).await.check(404, "404 page not found\n");
    }
}

#[tokio::test(start_paused = true)]
async fn connection_with_an_unfinished_request_times_out() {
    let server = Server::read_only(Agent::default()).await;
    let mut slow = server.connect().await;
    slow.write_all(b"GET /pods HTTP/1.1\r\nHost: ").await.unwrap();
    let mut answer = Vec::new();
    slow.read_to_end(&mut answer).await.unwrap();
    assert!(!String::from_utf8_lossy(&answer).contains(" 200 "));
}

#[tokio::test(start_paused = true)]
async fn connection_that_never_reads_its_response_times_out() {
    // More than the buffers of a connection hold.
    let long = 64 << 20;
    let server = Server::read_only(Agent { metrics: "x".repeat(long), ..Agent::default() }).await;
    let mut slow = server.connect().await;
    slow.write_all(b"GET /metrics HTTP/1.1\r\nHost: node\r\n\r\n").await.unwrap();
    let mut first = [0; 15];
    slow.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200 OK");
    tokio::time::sleep(Duration::from_secs(400)).await;
    let mut rest = Vec::new();
    // The kernel may close the connection with a FIN or a reset.
    let _ = slow.read_to_end(&mut rest).await;
    assert!(rest.len() < long);
}

#[tokio::test]
async fn idle_connections_of_a_peer_are_closed_for_a_new_one_on_the_read_only_port() {
    let server = Server::read_only(Agent::default()).await;
    let mut held = Vec::new();
    for _ in 0..512 {
        held.push(server.connect().await);
    }
    server.get("/healthz").await.check(200, "ok");
    assert_eq!(held[0].read(&mut [0]).await.unwrap_or(0), 0, "the oldest was closed");
    let newest = held.last_mut().unwrap();
    newest.write_all(b"GET /healthz HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    newest.read_to_string(&mut answer).await.unwrap();
    assert!(answer.ends_with("\r\n\r\nok"), "{answer}");
}

#[tokio::test]
async fn shutdown_ends_the_server_and_frees_its_port() {
    let mut server = Server::healthz(Agent::default()).await;
    let mut idle = server.connect().await;
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: node\r\n\r\n").await.unwrap();
    let mut first = [0; 15];
    idle.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200 OK");
    server.stop.take().unwrap().send(()).unwrap();
    // The idle connection is closed at once.
    idle.read_to_end(&mut Vec::new()).await.unwrap();
    (&mut server.task).await.unwrap();
    let refused = TcpStream::connect(("127.0.0.1", server.port)).await.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
}
