//! The `Net` port with small real servers on the loopback interface.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests own the servers they start, and measure real time"
)]

use std::convert::Infallible;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hyper_util::rt::{TokioExecutor, TokioIo};
use ports::Net;
use ports::net::{GrpcHealth, HttpAnswer, HttpGet, NetError, Scheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

use crate::LinuxNet;
use crate::grpc_health::{HealthCheckRequest, HealthCheckResponse};
use crate::tls::Tls;

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Long enough that only a call that hangs gets there.
const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(200);
const HELLO: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// A server that ends with the test.
struct Server {
    port: u16,
    /// The heads of the requests it got.
    seen: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    /// Responds to each request with the result of `answer` for its head, then closes; an empty result sends nothing.
    async fn answering(answer: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        Self::start(None, answer).await
    }

    async fn with_tls(answer: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![CertificateDer::from_pem_file(fixture("cert.pem")).unwrap()],
                PrivateKeyDer::from_pem_file(fixture("key.pem")).unwrap(),
            )
            .unwrap();
        Self::start(Some(TlsAcceptor::from(Arc::new(config))), answer).await
    }

    async fn start(
        tls: Option<TlsAcceptor>,
        answer: impl Fn(&str) -> String + Send + Sync + 'static,
    ) -> Self {
        let listener = listen().await;
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let task = tokio::spawn({
            let seen = Arc::clone(&seen);
            async move {
                let mut silent: Vec<Box<dyn Send>> = Vec::new();
                while let Ok((stream, _)) = listener.accept().await {
                    let kept = match &tls {
                        None => serve(stream, &seen, &answer).await,
                        Some(tls) => match tls.accept(stream).await {
                            Ok(stream) => serve(stream, &seen, &answer).await,
                            Err(_) => None,
                        },
                    };
                    silent.extend(kept);
                }
            }
        });
        Self { port, seen, task }
    }

    fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }

    fn get(&self, path: &str) -> HttpGet {
        get(self.port, path)
    }
}

/// The stream back if it is to stay open.
async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    mut stream: S,
    seen: &Mutex<Vec<String>>,
    answer: &impl Fn(&str) -> String,
) -> Option<Box<dyn Send>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return None,
        }
    }
    let head = String::from_utf8(head).unwrap();
    let answer = answer(&head);
    seen.lock().unwrap().push(head);
    stream.write_all(answer.as_bytes()).await.unwrap();
    let complete = answer.ends_with("hello") || answer.ends_with("\r\n\r\n");
    let _ = stream.flush().await;
    if complete {
        let _ = stream.shutdown().await;
        return None;
    }
    Some(Box::new(stream))
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/fixtures").join(name)
}

fn get(port: u16, path: &str) -> HttpGet {
    HttpGet {
        scheme: Scheme::Http,
        host: "127.0.0.1".into(),
        port,
        path: path.into(),
        headers: Vec::new(),
        timeout: Some(LONG),
        max_body_bytes: 10 << 10,
        verify_tls: false,
    }
}

fn https(mut request: HttpGet) -> HttpGet {
    request.scheme = Scheme::Https;
    request
}

fn with_header(mut request: HttpGet, name: &str, value: &str) -> HttpGet {
    request.headers.push((name.into(), value.into()));
    request
}

async fn free_port() -> u16 {
    TcpListener::bind((LOCALHOST, 0)).await.unwrap().local_addr().unwrap().port()
}

fn redirect(location: &str) -> String {
    format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n")
}

/// Below the ports that the kernel gives to clients, which ended connections of any other program may still have.
async fn listen() -> TcpListener {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = std::process::id() % 10_000;
    loop {
        let port = 20_000 + (first + u32::from(NEXT.fetch_add(1, Ordering::Relaxed))) % 10_000;
        if let Ok(listener) = TcpListener::bind((LOCALHOST, u16::try_from(port).unwrap())).await {
            return listener;
        }
    }
}

/// The states of the connections from and to a port, in the kernel's numbers, without the listener.
fn states(port: u16) -> Vec<u8> {
    let port = format!(":{port:04X}");
    fs::read_to_string("/proc/net/tcp")
        .unwrap()
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|fields| fields[1].ends_with(&port) || fields[2].ends_with(&port))
        .map(|fields| u8::from_str_radix(fields[3], 16).unwrap())
        .filter(|state| *state != LISTEN)
        .collect()
}

const TIME_WAIT: u8 = 6;
const LISTEN: u8 = 10;

/// Waits until no connection of the port is left, and asserts that none of them is in TIME_WAIT, where it would stay for a
/// minute.
async fn expect_no_trace(port: u16) {
    let started = Instant::now();
    loop {
        let states = states(port);
        assert!(!states.contains(&TIME_WAIT), "left in TIME_WAIT: {states:?}");
        if states.is_empty() {
            return;
        }
        assert!(started.elapsed() < LONG, "still open: {states:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

// HTTP

#[tokio::test]
async fn http_response_has_status_and_body() {
    let server = Server::answering(|_| HELLO.replace("200 OK", "418 Teapot")).await;
    let answer = LinuxNet::new().http_get(&server.get("/healthz?full=1")).await.unwrap();
    let expected =
        HttpAnswer { status: 418, body: b"hello".to_vec(), truncated: false, redirected_elsewhere: false };
    assert_eq!(answer, expected);
    let expected = format!(
        "GET /healthz?full=1 HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: close\r\n\r\n",
        server.port
    );
    assert_eq!(server.seen(), [expected]);
}

#[tokio::test]
async fn http_headers_are_sent_unchanged_and_may_set_the_host() {
    let server = Server::answering(|_| HELLO.into()).await;
    let request = with_header(server.get("/"), "x-token", "a b");
    let request = with_header(request, "X-Token", "c");
    let request = with_header(request, "Host", "web.example");
    LinuxNet::new().http_get(&request).await.unwrap();
    let seen = server.seen();
    for line in ["X-Token: a b\r\n", "X-Token: c\r\n", "Host: web.example\r\n"] {
        assert!(seen[0].contains(line), "{line:?} in {seen:?}");
    }
    assert_eq!(seen[0].matches("Host:").count(), 1);
}

#[tokio::test]
async fn http_body_is_truncated_at_the_limit() {
    let server = Server::answering(|_| HELLO.into()).await;
    for (limit, body, truncated) in [(4, "hell", true), (5, "hello", false), (0, "", true)] {
        let request = HttpGet { max_body_bytes: limit, ..server.get("/") };
        let answer = LinuxNet::new().http_get(&request).await.unwrap();
        assert_eq!((answer.body, answer.truncated), (body.as_bytes().to_vec(), truncated), "limit {limit}");
    }
}

#[tokio::test]
async fn redirect_on_the_same_host_is_followed_with_the_host_header() {
    let server =
        Server::answering(
            |head| if head.starts_with("GET /old ") { redirect("new?x") } else { HELLO.into() },
        )
        .await;
    let request = with_header(server.get("/old"), "Host", "web.example");
    let answer = LinuxNet::new().http_get(&request).await.unwrap();
    assert_eq!((answer.status, answer.body, answer.redirected_elsewhere), (200, b"hello".to_vec(), false));
    let seen = server.seen();
    assert!(seen[1].starts_with("GET /new?x HTTP/1.1\r\n") && seen[1].contains("Host: web.example\r\n"));
}

#[tokio::test]
async fn redirect_to_another_host_is_reported_and_not_followed() {
    let server = Server::answering(|_| redirect("http://127.0.0.2:1/elsewhere")).await;
    let answer = LinuxNet::new().http_get(&server.get("/")).await.unwrap();
    assert_eq!((answer.status, answer.redirected_elsewhere), (302, true));
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn redirect_loop_ends() {
    let server = Server::answering(|_| redirect("/again")).await;
    let error = LinuxNet::new().http_get(&server.get("/")).await.unwrap_err();
    let url = format!("http://127.0.0.1:{}/again", server.port);
    assert_eq!(error, NetError::Protocol(format!("Get \"{url}\": stopped after 10 redirects")));
    assert_eq!(server.seen().len(), 10);
}

#[tokio::test]
async fn redirect_without_a_location_is_returned() {
    let server = Server::answering(|_| HELLO.replace("200 OK", "301 Moved")).await;
    let answer = LinuxNet::new().http_get(&server.get("/")).await.unwrap();
    assert_eq!((answer.status, answer.redirected_elsewhere), (301, false));
}

#[tokio::test]
async fn timeouts_before_the_headers_and_in_the_body_are_distinguished() {
    let server = Server::answering(|head| {
        if head.starts_with("GET /body") { HELLO.replace("hello", "hel") } else { String::new() }
    })
    .await;
    for (path, phase) in [
        ("/head", "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"),
        ("/body", "context deadline exceeded (Client.Timeout or context cancellation while reading body)"),
    ] {
        let request = HttpGet { timeout: Some(SHORT), ..server.get(path) };
        let error = LinuxNet::new().http_get(&request).await.unwrap_err();
        let what = format!("Get \"http://127.0.0.1:{}{path}\": {phase}", server.port);
        assert_eq!(error, NetError::TimedOut { what, after: SHORT });
    }
    expect_no_trace_of_ours(server).await;
}

/// A dropped call closes its connection, even if the server would keep it forever.
async fn expect_no_trace_of_ours(server: Server) {
    expect_no_trace(server.port).await;
    assert!(!server.task.is_finished());
}

#[tokio::test]
async fn closed_port_is_a_refused_connection() {
    let port = free_port().await;
    let error = LinuxNet::new().http_get(&get(port, "/")).await.unwrap_err();
    let dial = format!("dial tcp 127.0.0.1:{port}: connect: connection refused");
    assert_eq!(error, NetError::Connect(format!("Get \"http://127.0.0.1:{port}/\": {dial}")));
    let error = LinuxNet::new().tcp_connect("127.0.0.1", port, LONG).await.unwrap_err();
    assert_eq!(error, NetError::Connect(dial));
}

#[tokio::test]
async fn closed_connections_and_malformed_responses_are_reported() {
    let server = Server::answering(|head| {
        if head.starts_with("GET /babble") { "220 smtp ready\r\n\r\n".into() } else { "\r\n\r\n".into() }
    })
    .await;
    let error = LinuxNet::new().http_get(&server.get("/")).await.unwrap_err();
    assert!(matches!(&error, NetError::Connect(text) if text.ends_with(": EOF")), "{error:?}");
    let error = LinuxNet::new().http_get(&server.get("/babble")).await.unwrap_err();
    assert!(
        matches!(&error, NetError::Protocol(text) if text.contains("malformed HTTP response")),
        "{error:?}"
    );
}

#[tokio::test]
async fn invalid_requests_are_rejected_before_they_are_sent() {
    let server = Server::answering(|_| HELLO.into()).await;
    for request in [
        with_header(server.get("/"), "bad name", "x"),
        with_header(server.get("/"), "X", "a\r\nEvil: b"),
        get(0, "/"),
    ] {
        let error = LinuxNet::new().http_get(&request).await.unwrap_err();
        assert!(matches!(error, NetError::Invalid(_)), "{error:?}");
    }
    LinuxNet::new().http_get(&server.get("/a\r\nEvil: b")).await.unwrap();
    assert!(server.seen()[0].starts_with("GET /a%0D%0AEvil:%20b HTTP/1.1\r\n"));
}

// TLS

#[tokio::test]
async fn probes_accept_any_certificate() {
    let server = Server::with_tls(|_| HELLO.into()).await;
    for host in ["127.0.0.1", "localhost"] {
        let request = HttpGet { host: host.into(), ..https(server.get("/")) };
        let answer = LinuxNet::trusting(Vec::new()).http_get(&request).await.unwrap();
        assert_eq!(answer.body, b"hello", "{host}");
    }
    expect_no_trace(server.port).await;
}

#[tokio::test]
async fn no_probe_resumes_the_tls_session_of_another() {
    let server = Server::with_tls(|_| HELLO.into()).await;
    let tls = Tls::new(Vec::new());
    for _ in 0..2 {
        let stream = TcpStream::connect((LOCALHOST, server.port)).await.unwrap();
        let mut stream = tls.connect(stream, "localhost", false).await.unwrap();
        assert_eq!(stream.get_ref().1.handshake_kind(), Some(rustls::HandshakeKind::Full));
        // With the response, the client reads what it needs to resume the session.
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        stream.read_to_end(&mut Vec::new()).await.unwrap();
    }
}

#[tokio::test]
async fn verified_certificate_must_be_signed_by_a_trusted_ca() {
    let server = Server::with_tls(|_| HELLO.into()).await;
    let request = HttpGet { verify_tls: true, ..https(server.get("/")) };
    let trusting = LinuxNet::trusting(vec!["/absent".into(), fixture("cert.pem")]);
    assert_eq!(trusting.http_get(&request).await.unwrap().status, 200);
    let untrusted = LinuxNet::trusting(vec!["/absent".into()]).http_get(&request).await.unwrap_err();
    assert!(untrusted.to_string().ends_with("none of /absent can be read"), "{untrusted}");
    if Path::new("/etc/ssl/certs/ca-certificates.crt").exists() {
        let error = LinuxNet::new().http_get(&request).await.unwrap_err();
        assert!(error.to_string().contains("invalid peer certificate"), "{error}");
    }
}

#[tokio::test]
async fn plain_http_response_to_a_tls_handshake_is_recognised() {
    let listener = TcpListener::bind((LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = tokio::spawn(async move {
        for complaint in ["HTTP/1.0 400 Bad Request\r\n\r\n", "SSH-2.0-x\r\n"] {
            let (mut stream, _) = listener.accept().await.unwrap();
            // Reads the client's whole first message, so that close sends no reset.
            let mut header = [0; 5];
            stream.read_exact(&mut header).await.unwrap();
            let mut hello = vec![0; usize::from(u16::from_be_bytes([header[3], header[4]]))];
            stream.read_exact(&mut hello).await.unwrap();
            stream.write_all(complaint.as_bytes()).await.unwrap();
        }
    });
    let error = LinuxNet::new().http_get(&https(get(port, "/"))).await.unwrap_err();
    assert_eq!(error, NetError::PlainHttpServer);
    let error = LinuxNet::new().http_get(&https(get(port, "/"))).await.unwrap_err();
    assert!(matches!(error, NetError::Protocol(_)), "{error:?}");
    server.await.unwrap();
}

// No trace

#[tokio::test]
async fn two_hundred_http_probes_leave_nothing_in_time_wait() {
    let server = Server::answering(|_| HELLO.into()).await;
    let net = LinuxNet::new();
    for _ in 0..200 {
        assert_eq!(net.http_get(&server.get("/")).await.unwrap().status, 200);
    }
    expect_no_trace(server.port).await;
}

#[tokio::test]
async fn connection_of_a_server_that_does_not_close_is_reset_after_a_timeout() {
    // An incomplete second response makes the test server keep the connection.
    let server = Server::answering(|_| format!("{HELLO}HTTP/1.1")).await;
    let started = Instant::now();
    LinuxNet::new().http_get(&server.get("/")).await.unwrap();
    assert!(started.elapsed() < Duration::from_millis(900), "the answer waited for the close");
    expect_no_trace_of_ours(server).await;
}

#[tokio::test]
async fn two_hundred_tcp_probes_leave_nothing_in_time_wait_however_fast_the_peer_closes() {
    let listener = listen().await;
    let port = listener.local_addr().unwrap().port();
    let peer = std::thread::spawn(move || {
        let listener = listener.into_std().unwrap();
        listener.set_nonblocking(false).unwrap();
        for _ in 0..200 {
            let (mut stream, _) = listener.accept().unwrap();
            // Ends with an end of file or a reset; either way the peer closes in the next instant.
            let _ = std::io::Read::read(&mut stream, &mut [0; 8]);
        }
    });
    let net = LinuxNet::new();
    for _ in 0..200 {
        net.tcp_connect("127.0.0.1", port, LONG).await.unwrap();
    }
    peer.join().unwrap();
    expect_no_trace(port).await;
}

#[tokio::test]
async fn tcp_probe_without_an_answer_times_out() {
    // With a full backlog, the next connection waits.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind((LOCALHOST, 0).into()).unwrap();
    let listener = socket.listen(0).unwrap();
    let port = listener.local_addr().unwrap().port();
    let _full = TcpStream::connect((LOCALHOST, port)).await.unwrap();
    let error = LinuxNet::new().tcp_connect("127.0.0.1", port, SHORT).await.unwrap_err();
    let what = format!("dial tcp 127.0.0.1:{port}: i/o timeout");
    assert_eq!(error, NetError::TimedOut { what, after: SHORT });
}

// gRPC

/// Responds by the name of the requested service.
struct Health;

impl tower_service::Service<Request<HealthCheckRequest>> for Health {
    type Response = Response<HealthCheckResponse>;
    type Error = Status;
    type Future = std::future::Ready<Result<Self::Response, Status>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Status>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<HealthCheckRequest>) -> Self::Future {
        let agent = request.metadata().get("user-agent").unwrap().to_str().unwrap();
        assert!(agent.starts_with("kube-probe/"), "{agent}");
        let status = match request.get_ref().service.as_str() {
            "" => Ok(1),
            "down" => Ok(2),
            "odd" => Ok(77),
            "old" => Err(Status::unimplemented("unknown service grpc.health.v1.Health")),
            "broken" => Err(Status::internal("oh no")),
            _ => Err(Status::not_found("unknown service")),
        };
        std::future::ready(status.map(|status| Response::new(HealthCheckResponse { status })))
    }
}

/// A health server that records how each of its connections ended.
async fn health_server() -> Server {
    let listener = TcpListener::bind((LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let ends = Arc::clone(&seen);
    let task = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let ends = Arc::clone(&ends);
            let service = hyper::service::service_fn(|request| async {
                let codec = ProstCodec::<HealthCheckResponse, HealthCheckRequest>::default();
                Ok::<_, Infallible>(tonic::server::Grpc::new(codec).unary(Health, request).await)
            });
            let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service);
            tokio::spawn(async move {
                let end = format!("{:?}", connection.await);
                ends.lock().unwrap().push(end);
            });
        }
    });
    Server { port, seen, task }
}

#[tokio::test]
async fn grpc_health_check_requests_the_service() {
    let server = health_server().await;
    let net = LinuxNet::new();
    let ask = async |service| net.grpc_health(LOCALHOST, server.port, service, LONG).await;
    assert_eq!(ask("").await.unwrap(), GrpcHealth::Serving);
    assert_eq!(ask("down").await.unwrap(), GrpcHealth::NotServing("NOT_SERVING".into()));
    assert_eq!(ask("odd").await.unwrap(), GrpcHealth::NotServing("77".into()));
    let unknown = "rpc error: code = NotFound desc = unknown service";
    assert_eq!(ask("who").await.unwrap_err(), NetError::Protocol(unknown.into()));
    let old = "unknown service grpc.health.v1.Health";
    assert_eq!(ask("old").await.unwrap(), GrpcHealth::Unimplemented(old.into()));
    let broken = "rpc error: code = Internal desc = oh no";
    assert_eq!(ask("broken").await.unwrap_err(), NetError::Protocol(broken.into()));
}

#[tokio::test]
async fn grpc_probes_end_cleanly_and_leave_nothing_in_time_wait() {
    let server = health_server().await;
    let net = LinuxNet::new();
    for _ in 0..50 {
        net.grpc_health(LOCALHOST, server.port, "", LONG).await.unwrap();
    }
    expect_no_trace(server.port).await;
    // The server records the end of a connection a little later.
    let started = Instant::now();
    while server.seen().len() < 50 {
        assert!(started.elapsed() < LONG, "{:?}", server.seen());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let ends = server.seen();
    assert!(ends.len() == 50 && ends.iter().all(|end| end == "Ok(())"), "{ends:?}");
}

#[tokio::test]
async fn unreachable_or_silent_grpc_server_is_an_error() {
    let port = free_port().await;
    let error = LinuxNet::new().grpc_health(LOCALHOST, port, "", LONG).await.unwrap_err();
    let dial = format!("dial tcp 127.0.0.1:{port}: connect: connection refused");
    assert_eq!(error, NetError::Connect(dial));
    let silent = TcpListener::bind((LOCALHOST, 0)).await.unwrap();
    let port = silent.local_addr().unwrap().port();
    let error = LinuxNet::new().grpc_health(LOCALHOST, port, "", SHORT).await.unwrap_err();
    let what = "timeout: health rpc did not complete".to_owned();
    assert_eq!(error, NetError::TimedOut { what, after: SHORT });
}

#[tokio::test]
async fn plain_http_server_is_not_a_grpc_server() {
    let server = Server::answering(|_| HELLO.into()).await;
    let error = LinuxNet::new().grpc_health(LOCALHOST, server.port, "", LONG).await.unwrap_err();
    assert!(matches!(error, NetError::Protocol(_)), "{error}");
    assert!(!error.to_string().contains("probe failed"), "the decision about the probe adds that: {error}");
}
