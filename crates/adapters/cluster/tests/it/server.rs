//! An HTTPS server with configured responses, which records the requests of each connection.

use std::convert::Infallible;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cluster::access::Access;
use cluster::{ApiHandle, ApiServer, HandleSettings, ProxyEnv, Settings, kubeconfig};
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use http::{Request, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use ports::{Clock, TraceContext};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::CertificateDer;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::authority::{Authority, Pair};

/// Long enough that only a call that hangs gets there.
pub(crate) const LONG: Duration = Duration::from_secs(30);

const BREAK_AFTER: Duration = Duration::from_millis(200);

/// One recorded request.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    /// Counts from 0.
    pub(crate) connection: usize,
    pub(crate) http2: bool,
    pub(crate) method: String,
    /// Path and query.
    pub(crate) target: String,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: String,
    /// The client's certificate.
    pub(crate) client: Option<CertificateDer<'static>>,
}

impl Recorded {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// `GET /api/v1/nodes/edge-1`.
    pub(crate) fn line(&self) -> String {
        format!("{} {}", self.method, self.target)
    }
}

/// The server's response to a request.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    code: u16,
    headers: Vec<(&'static str, String)>,
    steps: Vec<Step>,
    delay: Duration,
}

#[derive(Clone, Debug)]
enum Step {
    Send(Bytes),
    /// Nothing is sent for a while.
    Pause(Duration),
    /// The connection is aborted, after the earlier part of the body had time to arrive.
    Break,
    /// The body stays open without further data.
    Silence,
}

impl Reply {
    pub(crate) fn json(value: &Value) -> Self {
        Self::text(200, &value.to_string())
    }

    pub(crate) fn text(code: u16, text: &str) -> Self {
        let steps = vec![Step::Send(text.to_owned().into())];
        Self { code, headers: Vec::new(), steps, delay: Duration::ZERO }
    }

    /// `metav1.Status`.
    pub(crate) fn status(code: u16, reason: &str, message: &str) -> Self {
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
            "message": message, "reason": reason, "code": code});
        Self::text(code, &status.to_string())
    }

    pub(crate) fn lines(lines: &[Value]) -> Self {
        let steps = lines.iter().map(|line| Step::Send(format!("{line}\n").into())).collect();
        Self { code: 200, headers: Vec::new(), steps, delay: Duration::ZERO }
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    pub(crate) fn chunk(mut self, text: &str) -> Self {
        self.steps.push(Step::Send(text.to_owned().into()));
        self
    }

    /// Compressed, as an API server does with large responses.
    pub(crate) fn gzip(text: &str) -> Self {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text.as_bytes()).unwrap();
        let steps = vec![Step::Send(encoder.finish().unwrap().into())];
        let headers = vec![("Content-Encoding", "gzip".to_owned())];
        Self { code: 200, headers, steps, delay: Duration::ZERO }
    }

    pub(crate) fn pause(mut self, time: Duration) -> Self {
        self.steps.push(Step::Pause(time));
        self
    }

    pub(crate) fn then_break(mut self) -> Self {
        self.steps.push(Step::Break);
        self
    }

    pub(crate) fn then_silence(mut self) -> Self {
        self.steps.push(Step::Silence);
        self
    }

    pub(crate) fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }
}

type Answer = Arc<dyn Fn(&Recorded) -> Reply + Send + Sync>;

/// Options of the server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    pub(crate) http1_only: bool,
    /// Maximum number of concurrent streams.
    pub(crate) streams: Option<u32>,
    /// Names in its certificate; 127.0.0.1 if none is given.
    pub(crate) names: Vec<&'static str>,
}

pub(crate) struct TestServer {
    pub(crate) port: u16,
    pub(crate) authority: Authority,
    /// For kubeconfig files and their referenced files.
    pub(crate) dir: TempDir,
    log: Arc<Log>,
    goaway: watch::Sender<u64>,
    /// Dropping it ends all tasks.
    tasks: Arc<Mutex<JoinSet<()>>>,
}

#[derive(Default)]
struct Log {
    requests: Mutex<Vec<Recorded>>,
    connections: Mutex<usize>,
}

impl TestServer {
    pub(crate) async fn start(answer: impl Fn(&Recorded) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_with(Options::default(), answer).await
    }

    pub(crate) async fn start_with(
        options: Options,
        answer: impl Fn(&Recorded) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let authority = Authority::new("test authority");
        let names = if options.names.is_empty() { &["127.0.0.1"][..] } else { &options.names };
        let tls = acceptor(&authority, &authority.server(names), options.http1_only);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (log, tasks) = (Arc::new(Log::default()), Arc::new(Mutex::new(JoinSet::new())));
        let (goaway, signal) = watch::channel(0);
        let accept = {
            let (log, tasks, answer) = (Arc::clone(&log), Arc::downgrade(&tasks), Arc::new(answer) as Answer);
            async move {
                while let Ok((stream, _)) = listener.accept().await {
                    let Some(tasks) = tasks.upgrade() else { return };
                    let connection = {
                        let mut count = log.connections.lock();
                        *count += 1;
                        *count - 1
                    };
                    let (tls, answer) = (tls.clone(), Arc::clone(&answer));
                    let (log, signal, streams) = (Arc::clone(&log), signal.clone(), options.streams);
                    tasks.lock().spawn(async move {
                        if let Ok(stream) = tls.accept(stream).await {
                            serve(stream, connection, streams, log, answer, signal).await;
                        }
                    });
                }
            }
        };
        tasks.lock().spawn(accept);
        Self { port, authority, dir: tempfile::tempdir().unwrap(), log, goaway, tasks }
    }

    pub(crate) fn requests(&self) -> Vec<Recorded> {
        self.log.requests.lock().clone()
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.requests().iter().map(Recorded::line).collect()
    }

    pub(crate) fn connections(&self) -> usize {
        *self.log.connections.lock()
    }

    /// Shuts down every connection gracefully: calls under way are finished.
    pub(crate) fn go_away(&self) {
        self.goaway.send_modify(|count| *count += 1);
    }

    /// Stops listening, and aborts every connection.
    pub(crate) fn die(&self) {
        self.tasks.lock().abort_all();
    }

    /// A kubeconfig for this server with these further fields of its cluster and user.
    pub(crate) fn access_with(&self, cluster: &Value, user: &Value, proxies: &ProxyEnv) -> Access {
        let mut all = json!({
            "server": format!("https://127.0.0.1:{}", self.port),
            "certificate-authority": "ca.crt",
        });
        for (key, value) in cluster.as_object().into_iter().flatten() {
            all[key] = value.clone();
        }
        std::fs::write(self.dir.path().join("ca.crt"), self.authority.pem()).unwrap();
        let path = self.dir.path().join("kubeconfig");
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": all}],
            "users": [{"name": "u", "user": user}],
        });
        std::fs::write(&path, config.to_string()).unwrap();
        kubeconfig::read(&path, proxies).unwrap()
    }

    pub(crate) fn api_for(&self, user: &Value) -> ApiServer {
        api(self.access_with(&json!({}), user, &ProxyEnv::default()), true)
    }

    /// A handle without a rate limit.
    pub(crate) fn handle(&self) -> ApiHandle {
        self.api_for(&json!({})).handle(UNLIMITED)
    }
}

pub(crate) const UNLIMITED: HandleSettings = HandleSettings { budget: None, deadline: LONG };

pub(crate) fn api(access: Access, http2: bool) -> ApiServer {
    api_with(access, http2, None)
}

pub(crate) fn api_traced(access: Access, trace: Option<Arc<dyn TraceContext>>) -> ApiServer {
    api_with(access, true, trace)
}

fn api_with(access: Access, http2: bool, trace: Option<Arc<dyn TraceContext>>) -> ApiServer {
    let user_agent = "kubelet/v1.36.2 (linux/amd64) kubernetes/test".to_owned();
    ApiServer::new(access, Settings { user_agent, http2, clock: Clock::system(), seed: 1, trace }).unwrap()
}

fn acceptor(authority: &Authority, pair: &Pair, http1_only: bool) -> TlsAcceptor {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut clients = RootCertStore::empty();
    clients.add(authority.certificate()).unwrap();
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(clients), Arc::clone(&provider))
        .allow_unauthenticated()
        .build()
        .unwrap();
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(pair.chain(), pair.private_key())
        .unwrap();
    let h2: &[&[u8]] = if http1_only { &[b"http/1.1"] } else { &[b"h2", b"http/1.1"] };
    config.alpn_protocols = h2.iter().map(|name| name.to_vec()).collect();
    TlsAcceptor::from(Arc::new(config))
}

async fn serve(
    stream: TlsStream<TcpStream>,
    connection: usize,
    streams: Option<u32>,
    log: Arc<Log>,
    answer: Answer,
    mut goaway: watch::Receiver<u64>,
) {
    let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let certificates = stream.get_ref().1.peer_certificates();
    let client = certificates.and_then(<[_]>::first).map(|certificate| certificate.clone().into_owned());
    let service = service_fn(move |request: Request<Incoming>| {
        let (log, answer, client) = (Arc::clone(&log), Arc::clone(&answer), client.clone());
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
            let recorded = Recorded {
                connection,
                http2,
                method: head.method.to_string(),
                target: head.uri.path_and_query().unwrap().to_string(),
                headers: head.headers,
                body: String::from_utf8(body.to_vec()).unwrap(),
                client,
            };
            log.requests.lock().push(recorded.clone());
            let reply = answer(&recorded);
            silent_for(reply.delay).await;
            Ok::<_, Infallible>(respond(reply))
        }
    });
    let io = TokioIo::new(stream);
    goaway.mark_unchanged();
    macro_rules! drive {
        ($serving:expr) => {{
            let mut serving = std::pin::pin!($serving);
            tokio::select! {
                _ = serving.as_mut() => return,
                Ok(()) = goaway.changed() => serving.as_mut().graceful_shutdown(),
            }
            let _ = serving.await;
        }};
    }
    if http2 {
        let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        drive!(builder.max_concurrent_streams(streams).serve_connection(io, service));
    } else {
        drive!(hyper::server::conn::http1::Builder::new().serve_connection(io, service));
    }
}

fn respond(reply: Reply) -> Response<StreamBody<BoxStream<'static, io::Result<Frame<Bytes>>>>> {
    let frames = stream::iter(reply.steps).then(|step| async move {
        match step {
            Step::Send(bytes) => Ok(Frame::data(bytes)),
            Step::Pause(time) => {
                silent_for(time).await;
                Ok(Frame::data(Bytes::new()))
            }
            Step::Break => {
                // A reset overtakes data that was not sent yet.
                silent_for(BREAK_AFTER).await;
                Err(io::Error::other("aborted by the test"))
            }
            Step::Silence => std::future::pending().await,
        }
    });
    let mut response = Response::builder().status(reply.code);
    for (name, value) in reply.headers {
        response = response.header(name, value);
    }
    response.body(StreamBody::new(frames.boxed())).unwrap()
}

/// The configured delay of a response.
async fn silent_for(time: Duration) {
    let _ = tokio::time::timeout(time, std::future::pending::<()>()).await;
}
