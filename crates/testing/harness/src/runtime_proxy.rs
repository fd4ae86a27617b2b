//! A proxy between a kubelet and a real runtime: it forwards every gRPC call unchanged, except that a share of them, chosen by a
//! seed, is delayed, fails, is never passed on, or loses its answer after the runtime has acted.
//!
//! Streams are forwarded; only a lost connection affects them.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body as HttpBody, Bytes, Frame};
use parking_lot::Mutex;
use tokio::io::DuplexStream;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http;
use tonic::transport::Channel;

use crate::runtime_calls::{CallHandler, connect, forward, is_stream, method_of, serve_calls};
use fixtures::rng::Rng;

/// Between the socket of a client and the server behind it.
const BUFFER: usize = 64 << 10;
/// A call that is not passed on ends after this, if its client waits so long.
const HANG: Duration = Duration::from_secs(20);

/// What happens to one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallFault {
    Delayed(Duration),
    /// Fails with `UNAVAILABLE`; the runtime does nothing.
    Unavailable,
    /// Fails with `DEADLINE_EXCEEDED` after the runtime has acted.
    DeadlineExceeded,
    /// The runtime never gets it, and the client no answer for a long time.
    Dropped,
    /// All connections break; the runtime does nothing.
    Cut,
    /// All connections break after the runtime has acted.
    CutAfterActing,
    /// Fails with an error of the runtime, which does nothing.
    Refused,
    /// Succeeds with this message, and the runtime does nothing.
    Answered(&'static [u8]),
    /// Fails with `DEADLINE_EXCEEDED` at once, and the runtime acts so much later.
    ActsLate(Duration),
}

/// Calls that a test lets fail.
#[derive(Clone, Debug)]
pub struct CallRule {
    /// As the protocol names it: `RunPodSandbox`.
    pub method: &'static str,
    /// Only calls whose request has this text; all if it is empty.
    pub about: String,
    /// Only so many calls.
    pub times: usize,
    pub fault: CallFault,
}

/// Which fault a call meets, if any.
#[must_use]
pub fn compute_call_fault(rng: &mut Rng, percent: u64) -> Option<CallFault> {
    if !rng.percent(percent) {
        return None;
    }
    Some(match rng.below(10) {
        0..4 => CallFault::Delayed(rng.between(Duration::from_millis(50), Duration::from_secs(3))),
        4 | 5 => CallFault::Unavailable,
        6 | 7 => CallFault::DeadlineExceeded,
        8 if rng.percent(50) => CallFault::Dropped,
        8 => CallFault::Cut,
        _ => CallFault::CutAfterActing,
    })
}

#[derive(Debug)]
struct Shared {
    runtime: Channel,
    random: Mutex<(Rng, u64)>,
    rules: Mutex<Vec<CallRule>>,
    faults: AtomicU64,
    cuts: watch::Sender<u64>,
}

impl Shared {
    fn next_fault(&self, method: &str) -> Option<CallFault> {
        if is_stream(method) {
            return None;
        }
        let (rng, percent) = &mut *self.random.lock();
        let fault = compute_call_fault(rng, *percent);
        self.faults.fetch_add(u64::from(fault.is_some()), Ordering::Relaxed);
        fault
    }

    /// The fault of the first rule for this call, which is used up by that.
    fn ruled_fault(&self, method: &str, request: &[u8]) -> Option<CallFault> {
        let mut rules = self.rules.lock();
        let has =
            |text: &str| text.is_empty() || request.windows(text.len()).any(|part| part == text.as_bytes());
        let rule =
            rules.iter_mut().find(|rule| rule.method == method && rule.times > 0 && has(&rule.about))?;
        rule.times -= 1;
        self.faults.fetch_add(1, Ordering::Relaxed);
        Some(rule.fault)
    }

    fn has_rules_for(&self, method: &str) -> bool {
        self.rules.lock().iter().any(|rule| rule.method == method)
    }

    fn cut(&self) {
        self.cuts.send_modify(|count| *count += 1);
    }
}

/// A running proxy; it ends when this is dropped.
#[derive(Debug)]
pub struct RuntimeProxy {
    socket: PathBuf,
    shared: Arc<Shared>,
    tasks: Vec<JoinHandle<()>>,
}

impl RuntimeProxy {
    /// Serves at `socket`, in tasks of the current tokio runtime. The runtime may start later, and again.
    pub fn serve(socket: &Path, runtime: &Path, seed: u64) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            runtime: connect(runtime)?,
            random: Mutex::new((Rng::new(seed), 0)),
            rules: Mutex::default(),
            faults: AtomicU64::new(0),
            cuts: watch::Sender::new(0),
        });
        let listener = UnixListener::bind(socket)?;
        let (connections, incoming) = mpsc::channel(16);
        let accepting = tokio::spawn(accept(listener, connections, shared.cuts.subscribe()));
        let serving = serve_calls(&shared).serve_with_incoming(ReceiverStream::new(incoming));
        let serving = tokio::spawn(async move {
            // It ends by abort; an error before that shows as refused connections.
            let _ = serving.await;
        });
        Ok(Self { socket: socket.to_owned(), shared, tasks: vec![accepting, serving] })
    }

    /// `unix://…`, the format of the kubelet's configuration.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("unix://{}", self.socket.display())
    }

    /// From now on this many of 100 calls meet a fault.
    pub fn set_fault_percent(&self, percent: u64) {
        self.shared.random.lock().1 = percent;
    }

    /// Adds a rule. The first one that applies to a call counts.
    pub fn add_rule(&self, rule: CallRule) {
        self.shared.rules.lock().push(rule);
    }

    pub fn clear_rules(&self) {
        self.shared.rules.lock().clear();
    }

    /// How many calls have met a fault.
    #[must_use]
    pub fn faults(&self) -> u64 {
        self.shared.faults.load(Ordering::Relaxed)
    }
}

impl Drop for RuntimeProxy {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
        // The directory may have been removed already.
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// Connects each client with the server in this process through a task that can be ended.
async fn accept(
    listener: UnixListener,
    connections: mpsc::Sender<io::Result<DuplexStream>>,
    cuts: watch::Receiver<u64>,
) {
    let mut relays = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((client, _)) = accepted else { continue };
                let (near, far) = tokio::io::duplex(BUFFER);
                if connections.send(Ok(far)).await.is_err() {
                    return;
                }
                let mut cuts = cuts.clone();
                cuts.mark_unchanged();
                relays.spawn(relay(client, near, cuts));
            }
            Some(_) = relays.join_next() => {}
        }
    }
}

async fn relay(mut client: UnixStream, mut server: DuplexStream, mut cuts: watch::Receiver<u64>) {
    tokio::select! {
        // Whatever ends it, both sides see the end of the connection.
        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
        _ = cuts.changed() => {}
    }
}

impl CallHandler for Shared {
    async fn answer(self: Arc<Self>, request: http::Request<Body>) -> http::Response<Body> {
        let forward = |request| forward(self.runtime.clone(), request);
        let method = method_of(request.uri().path()).to_owned();
        let (request, ruled) = if self.has_rules_for(&method) {
            let (request, content) = match read(request).await {
                Ok(read) => read,
                Err(status) => return status.into_http(),
            };
            (request, self.ruled_fault(&method, &content))
        } else {
            (request, None)
        };
        match ruled.or_else(|| self.next_fault(&method)) {
            Some(CallFault::Refused) => Status::unknown("refused by the test").into_http(),
            Some(CallFault::Answered(message)) => answered(message),
            Some(CallFault::ActsLate(delay)) => {
                let runtime = self.runtime.clone();
                // Its caller has gone by then.
                tokio::spawn(async move {
                    tokio::time::sleep(delay).await;
                    let _ = crate::runtime_calls::forward(runtime, request).await;
                });
                Status::deadline_exceeded("the runtime acts later").into_http()
            }
            None => forward(request).await,
            Some(CallFault::Delayed(delay)) => {
                tokio::time::sleep(delay).await;
                forward(request).await
            }
            Some(CallFault::Unavailable) => Status::unavailable("chosen by the seed").into_http(),
            Some(CallFault::DeadlineExceeded) => {
                forward(request).await;
                Status::deadline_exceeded("chosen by the seed, after the act").into_http()
            }
            Some(CallFault::Dropped) => {
                tokio::time::sleep(HANG).await;
                Status::unavailable("dropped by the seed").into_http()
            }
            Some(CallFault::Cut) => {
                self.cut();
                Status::unavailable("cut by the seed").into_http()
            }
            Some(CallFault::CutAfterActing) => {
                forward(request).await;
                self.cut();
                Status::unavailable("cut by the seed, after the act").into_http()
            }
        }
    }
}

/// The request with its content, read whole.
async fn read(request: http::Request<Body>) -> Result<(http::Request<Body>, Bytes), Status> {
    let (head, mut body) = request.into_parts();
    let mut content = Vec::new();
    while let Some(frame) = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        if let Ok(data) = frame?.into_data() {
            content.extend_from_slice(&data);
        }
    }
    let content = Bytes::from(content);
    Ok((
        http::Request::from_parts(head, Body::new(Frames([Some(Frame::data(content.clone())), None]))),
        content,
    ))
}

/// A successful response with that message.
fn answered(message: &[u8]) -> http::Response<Body> {
    let length = u32::try_from(message.len()).unwrap_or_default().to_be_bytes();
    let content = [&[0], &length[..], message].concat();
    let trailers = http::HeaderMap::from_iter([(
        http::HeaderName::from_static("grpc-status"),
        http::HeaderValue::from_static("0"),
    )]);
    let body = Body::new(Frames([Some(Frame::data(content.into())), Some(Frame::trailers(trailers))]));
    let mut answer = http::Response::new(body);
    let kind = http::HeaderValue::from_static("application/grpc");
    answer.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    answer
}

/// A body of these frames.
struct Frames([Option<Frame<Bytes>>; 2]);

impl HttpBody for Frames {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Poll::Ready(self.0.iter_mut().find_map(Option::take).map(Ok))
    }
}
