//! Accepts connections and serves HTTP on them, within limits: HTTP/1.1, and HTTP/2 on ports with TLS.

mod pace;
pub(crate) mod table;

use std::convert::Infallible;
use std::fmt;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use futures_util::future::BoxFuture;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use ports::request_metrics::ServingObserver;
use rustls_pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tower_service::Service;
use tracing::Instrument;

use crate::access::{Admitted, Gate};
use crate::answer;
use crate::transport::counted::Counted;
use pace::{AcceptPace, HandshakePace};
use table::{ConnectionTable, OpenConnection, Peer, Served, TableLimits};

/// Limits of a port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Open connections; further clients wait in the kernel's queue.
    pub(crate) connections: usize,
    /// Connections of one address without an authenticated request.
    pub(crate) per_peer: usize,
    /// Until the first request of a connection is allowed.
    pub(crate) first_request: Duration,
    /// For the head of a later request, which is also the idle timeout.
    pub(crate) idle: Duration,
    /// Maximum age of a connection, so that a client that never reads its response is not served forever.
    pub(crate) age: Duration,
}

/// Limits of ports without TLS.
pub(crate) const PLAIN: Limits = Limits {
    connections: 512,
    per_peer: 128,
    first_request: Duration::from_secs(10),
    idle: Duration::from_secs(10),
    age: Duration::from_secs(300),
};

/// For the TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long requests under way may take when the connection's age is reached or the server shuts down.
const GRACE: Duration = Duration::from_secs(5);
/// Delay before accepting again when the process is out of file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// Limit for the head of a request.
const MAX_HEAD_BYTES: usize = 64 << 10;
/// Concurrent requests on one connection (HTTP/2).
const MAX_STREAMS: u32 = 100;
/// Flow-control window for request bodies (HTTP/2), of a stream and of a connection: no endpoint needs more than a few bytes.
const WINDOW_BYTES: u32 = 64 << 10;
/// Requests of one connection that may wait for authentication before the first was allowed.
const MAX_UNDER_REVIEW: usize = 8;
/// Requests of one connection that may be rejected before the first was allowed.
const MAX_REFUSED: usize = 16;
/// Keepalive interval of idle connections (HTTP/2).
const PING_INTERVAL: Duration = Duration::from_secs(30);

/// Router, access control and limits of a port.
pub(crate) struct ServedPort {
    pub(crate) router: Router,
    /// `None`: no authentication and authorization.
    pub(crate) gate: Option<Gate>,
    pub(crate) tls: Option<TlsAcceptor>,
    pub(crate) limits: Limits,
    /// Counts requests.
    pub(crate) observer: Option<Arc<dyn ServingObserver>>,
    /// How many requests and streams there are.
    pub(crate) requests: watch::Sender<usize>,
}

/// A request of a port, until the last byte of its response was sent or its stream ended.
struct InFlight(Arc<ServedPort>);

impl InFlight {
    fn begin(port: &Arc<ServedPort>) -> Self {
        port.requests.send_modify(|count| *count += 1);
        Self(Arc::clone(port))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.requests.send_modify(|count| *count = count.saturating_sub(1));
    }
}

impl fmt::Debug for ServedPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServedPort").field("limits", &self.limits).finish_non_exhaustive()
    }
}

pub(crate) async fn serve(
    listener: TcpListener,
    port: ServedPort,
    shutdown: impl Future<Output = ()> + Send,
) {
    let mut shutdown = pin!(shutdown);
    let limits = TableLimits { connections: port.limits.connections, per_peer: port.limits.per_peer };
    let table = ConnectionTable::new(limits);
    let port = Arc::new(port);
    let (stop, stopped) = watch::channel(());
    let handshakes = Arc::new(HandshakePace::default());
    let mut pace = AcceptPace::default();
    let mut open = JoinSet::new();
    loop {
        // Cancel safe: a connection that is not accepted yet stays in the kernel's queue.
        let next = async {
            pace.wait().await;
            table.wait_for_slot().await;
            listener.accept().await
        };
        let (stream, address) = tokio::select! {
            () = &mut shutdown => break,
            Some(_) = open.join_next() => continue,
            accepted = next => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(err = %error, "Failed to accept connection");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                    continue;
                }
            },
        };
        pace.accepted();
        // Dropping a rejected connection closes it.
        if let Some(slot) = table.open(peer(address)) {
            let accepted = Accepted { stream, slot: Arc::new(slot), handshakes: Arc::clone(&handshakes) };
            open.spawn(serve_one(accepted, Arc::clone(&port), stopped.clone()));
        }
    }
    drop(listener);
    drop(stop);
    // Each connection ends within the grace period.
    while open.join_next().await.is_some() {}
}

fn peer(address: SocketAddr) -> Peer {
    Peer::Address(address.ip().to_canonical())
}

/// A new connection.
struct Accepted {
    stream: TcpStream,
    slot: Arc<OpenConnection>,
    handshakes: Arc<HandshakePace>,
}

/// Errors of single connections are not logged: any client can cause them.
async fn serve_one(accepted: Accepted, port: Arc<ServedPort>, mut stopped: watch::Receiver<()>) {
    let Accepted { stream, slot, handshakes } = accepted;
    let Some(tls) = &port.tls else {
        return Connection::new(&port, slot, Vec::new()).http1(stream, stopped).await;
    };
    // TCP_NODELAY, for small responses and keystrokes. A failure has no other effect than a delay.
    let _ = stream.set_nodelay(true);
    let stream = tokio::select! {
        _ = stopped.changed() => return,
        () = slot.closed() => return,
        shaken = tokio::time::timeout(HANDSHAKE_TIMEOUT, handshakes.run(tls.accept(stream))) => match shaken {
            Ok(Ok(stream)) => stream,
            Ok(Err(_)) | Err(_) => return,
        },
    };
    let session = stream.get_ref().1;
    let certificates = session.peer_certificates().unwrap_or_default();
    let certificates = certificates.iter().map(|certificate| certificate.clone().into_owned()).collect();
    let speaks_http2 = session.alpn_protocol() == Some(b"h2");
    let connection = Connection::new(&port, slot, certificates);
    if speaks_http2 {
        connection.http2(stream, stopped).await
    } else {
        connection.http1(stream, stopped).await
    }
}

/// Continues a connection after a protocol upgrade, and keeps its slot in the table.
#[derive(Clone, Default)]
pub(crate) struct AfterUpgrade {
    work: Arc<Mutex<Option<BoxFuture<'static, ()>>>>,
    request: Arc<Mutex<Option<UpgradeRequest>>>,
}

/// The upgraded request counts as in flight until the connection ends.
type UpgradeRequest = (Option<Counted>, Served, InFlight);

impl AfterUpgrade {
    pub(crate) fn run(&self, work: impl Future<Output = ()> + Send + 'static) {
        *self.work.lock() = Some(Box::pin(work));
    }

    /// What runs after the upgrade, if there was one.
    pub(crate) fn take(&self) -> Option<BoxFuture<'static, ()>> {
        self.work.lock().take()
    }

    fn keep(&self, request: UpgradeRequest) {
        *self.request.lock() = Some(request);
    }
}

/// One connection with its requests and its client certificates.
#[derive(Clone)]
struct Connection {
    port: Arc<ServedPort>,
    slot: Arc<OpenConnection>,
    certificates: Arc<[CertificateDer<'static>]>,
    /// Number of responses under way.
    under_way: Arc<watch::Sender<usize>>,
    after: AfterUpgrade,
}

impl Connection {
    fn new(
        port: &Arc<ServedPort>,
        slot: Arc<OpenConnection>,
        certificates: Vec<CertificateDer<'static>>,
    ) -> Self {
        Self {
            port: Arc::clone(port),
            slot,
            certificates: certificates.into(),
            under_way: Arc::new(watch::Sender::new(0)),
            after: AfterUpgrade::default(),
        }
    }

    async fn http1(
        self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        mut stopped: watch::Receiver<()>,
    ) {
        let service = service_fn(|mut request| {
            request.extensions_mut().insert(self.after.clone());
            self.clone().answer(request)
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.port.limits.idle)
            .max_buf_size(MAX_HEAD_BYTES)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades();
        let mut connection = pin!(connection);
        let ended = tokio::select! {
            _ = &mut connection => None,
            ending = self.ends(&mut stopped) => Some(ending),
        };
        match ended {
            None => {}
            Some(Ending::AtOnce) => return,
            Some(Ending::Gracefully) => {
                connection.as_mut().graceful_shutdown();
                let _ = tokio::time::timeout(GRACE, connection).await;
                return;
            }
        }
        let upgraded = self.after.take();
        if let Some(upgraded) = upgraded {
            tokio::select! {
                () = upgraded => {}
                _ = stopped.changed() => {}
            }
        }
    }

    async fn http2(
        self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        mut stopped: watch::Receiver<()>,
    ) {
        let service = service_fn(|request| self.clone().answer(request));
        let connection = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_INTERVAL)
            .max_concurrent_streams(MAX_STREAMS)
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .max_header_list_size(u32::try_from(MAX_HEAD_BYTES).unwrap_or(u32::MAX))
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = pin!(connection);
        tokio::select! {
            _ = &mut connection => return,
            ending = self.ends(&mut stopped) => if ending == Ending::AtOnce { return },
            () = idles(self.under_way.subscribe(), self.port.limits.idle) => {}
        }
        connection.as_mut().graceful_shutdown();
        let _ = tokio::time::timeout(GRACE, connection).await;
    }

    /// Waits until the connection must be closed.
    async fn ends(&self, stopped: &mut watch::Receiver<()>) -> Ending {
        tokio::select! {
            _ = stopped.changed() => Ending::Gracefully,
            () = tokio::time::sleep(self.port.limits.age) => Ending::Gracefully,
            () = self.slot.closed() => Ending::AtOnce,
            () = self.first_request_is_late() => Ending::AtOnce,
        }
    }

    /// Never returns once a request was allowed.
    async fn first_request_is_late(&self) {
        idles(self.under_way.subscribe(), self.port.limits.first_request).await;
        if self.slot.has_served() {
            std::future::pending().await
        }
    }

    async fn answer(self, request: Request<Incoming>) -> Result<Response, Infallible> {
        let (method, path) = (request.method().as_str(), request.uri().path());
        let parent = request.headers().get("traceparent").and_then(|value| value.to_str().ok());
        let span = tracing::info_span!(target: "trace", "HTTP", otel.name = format!("{method} {path}"),
            otel.kind = "server", http.request.method = method, url.path = path, traceparent = parent,
            http.response.status_code = tracing::field::Empty);
        let answer = self.reviewed(request).instrument(span.clone()).await?;
        span.record("http.response.status_code", answer.status().as_u16());
        Ok(answer)
    }

    async fn reviewed(self, request: Request<Incoming>) -> Result<Response, Infallible> {
        let busy = Busy::new(&self.under_way);
        let (parts, body) = request.into_parts();
        let counted = self.port.observer.as_ref().map(|observer| {
            Counted::begin(observer, &parts.method, parts.uri.path(), self.port.gate.is_some())
        });
        if let Some(gate) = &self.port.gate {
            let Some(_reviewed) = self.slot.begin_review(MAX_UNDER_REVIEW) else {
                return Ok(answer::error(
                    StatusCode::TOO_MANY_REQUESTS,
                    "too many requests are waiting for authentication",
                ));
            };
            let (method, path, headers) = (&parts.method, parts.uri.path(), &parts.headers);
            match gate.admit(method, path, headers, &self.certificates).await {
                Ok(Admitted { is_anonymous: true }) => {}
                Ok(Admitted { is_anonymous: false }) => self.slot.trust(),
                Err(refused) => {
                    self.slot.refused(MAX_REFUSED);
                    return Ok(*refused);
                }
            }
        }
        let served = self.slot.serve(self.port.gate.is_some());
        let in_flight = InFlight::begin(&self.port);
        let request = Request::from_parts(parts, Body::new(body));
        let mut router = self.port.router.clone();
        poll_fn(|cx| Service::<Request<Body>>::poll_ready(&mut router, cx)).await?;
        let response = router.call(request).await?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            self.after.keep((counted, served, in_flight));
            return Ok(response);
        }
        // A response is under way until its last byte was sent.
        Ok(response.map(|body| {
            Body::new(body.map_frame(move |frame| {
                let _until_the_end = (&busy, &counted, &served, &in_flight);
                frame
            }))
        }))
    }
}

/// Why a connection is closed by the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    AtOnce,
    /// Requests under way are served within the grace period.
    Gracefully,
}

/// Counts a response as under way as long as it lives.
struct Busy(Arc<watch::Sender<usize>>);

impl Busy {
    fn new(under_way: &Arc<watch::Sender<usize>>) -> Self {
        under_way.send_modify(|count| *count += 1);
        Self(Arc::clone(under_way))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}

/// Returns when no response was under way for that long.
async fn idles(mut under_way: watch::Receiver<usize>, limit: Duration) {
    loop {
        let is_idle = *under_way.borrow_and_update() == 0;
        tokio::select! {
            changed = under_way.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(limit), if is_idle => return,
        }
    }
}
