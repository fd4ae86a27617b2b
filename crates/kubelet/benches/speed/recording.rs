//! Records the CRI calls that a kubelet makes: a proxy in front of the runtime that forwards every call unchanged and keeps the
//! bytes of requests and responses, and when each call began and ended.
//!
//! It never interprets a message; streams are forwarded and not kept.

use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::stream;
use http_body_util::BodyExt;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::net::UnixListener;
use tokio::task::JoinSet;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::NamedService;
use tonic::transport::{Channel, Endpoint, Server};

const STREAMS: &[&str] = &["GetContainerEvents"];

/// One call without its metadata.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// `/runtime.v1.RuntimeService/RunPodSandbox`
    pub(crate) path: String,
    /// With the frame of gRPC around the message, as in `response`.
    pub(crate) request: Vec<u8>,
    pub(crate) response: Vec<u8>,
    pub(crate) began: Timestamp,
    /// `None` while the call runs.
    pub(crate) ended: Option<Timestamp>,
}

impl Call {
    pub(crate) fn method(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }
}

#[derive(Debug)]
struct Shared {
    runtime: Channel,
    /// `None` while nothing is recorded.
    calls: Mutex<Option<Vec<Arc<Mutex<Call>>>>>,
}

/// A running proxy; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Recorder {
    socket: PathBuf,
    shared: Arc<Shared>,
    _serving: JoinSet<()>,
}

impl Recorder {
    /// Serves at `socket`, in a task of the current tokio runtime.
    pub(crate) fn serve(socket: &Path, runtime: &Path) -> io::Result<Self> {
        let channel = connect(runtime)?;
        let shared = Arc::new(Shared { runtime: channel, calls: Mutex::new(None) });
        let listener = UnixListener::bind(socket)?;
        let incoming = Box::pin(stream::unfold(listener, |listener| async move {
            Some((listener.accept().await.map(|(client, _)| client), listener))
        }));
        let serving = Server::builder()
            .add_service(RuntimeService(Arc::clone(&shared)))
            .add_service(ImageService(Arc::clone(&shared)))
            .serve_with_incoming(incoming);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            // It ends with the set; an error before that shows as refused connections.
            let _ = serving.await;
        });
        Ok(Self { socket: socket.to_owned(), shared, _serving: tasks })
    }

    /// `unix://…`, the format of the kubelet's configuration.
    pub(crate) fn endpoint(&self) -> String {
        format!("unix://{}", self.socket.display())
    }

    /// Another client of the proxy.
    pub(crate) fn client(&self) -> io::Result<Channel> {
        connect(&self.socket)
    }

    /// Records calls from now on.
    pub(crate) fn start(&self) {
        *self.shared.calls.lock() = Some(Vec::new());
    }

    /// Ends the recording, and returns the calls in the order in which they began.
    pub(crate) fn stop(&self) -> Vec<Call> {
        let calls = self.shared.calls.lock().take().unwrap_or_default();
        calls.iter().map(|call| call.lock().clone()).collect()
    }
}

fn connect(socket: &Path) -> io::Result<Channel> {
    let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display())).map_err(io::Error::other)?;
    Ok(endpoint.connect_lazy())
}

#[derive(Clone)]
struct RuntimeService(Arc<Shared>);
#[derive(Clone)]
struct ImageService(Arc<Shared>);

impl NamedService for RuntimeService {
    const NAME: &'static str = "runtime.v1.RuntimeService";
}

impl NamedService for ImageService {
    const NAME: &'static str = "runtime.v1.ImageService";
}

impl Service<http::Request<Body>> for RuntimeService {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(answer(Arc::clone(&self.0), request))
    }
}

impl Service<http::Request<Body>> for ImageService {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(answer(Arc::clone(&self.0), request))
    }
}

async fn answer(
    shared: Arc<Shared>,
    request: http::Request<Body>,
) -> Result<http::Response<Body>, Infallible> {
    let Some(call) = shared.begin(request.uri().path()) else {
        return Ok(forward(&shared, request).await);
    };
    let kept = Arc::clone(&call);
    let request = request.map(|body| {
        Body::new(body.map_frame(move |frame| {
            kept.lock().request.extend(frame.data_ref().into_iter().flatten());
            frame
        }))
    });
    let response = forward(&shared, request).await;
    // An error has no frame.
    call.lock().ended = Some(Timestamp::now());
    Ok(response.map(|body| {
        Body::new(body.map_frame(move |frame| {
            let mut call = call.lock();
            call.response.extend(frame.data_ref().into_iter().flatten());
            call.ended = Some(Timestamp::now());
            drop(call);
            frame
        }))
    }))
}

impl Shared {
    /// `None` if this call is not to be recorded.
    fn begin(&self, path: &str) -> Option<Arc<Mutex<Call>>> {
        let mut calls = self.calls.lock();
        let calls = calls.as_mut()?;
        let call = Call {
            path: path.to_owned(),
            request: Vec::new(),
            response: Vec::new(),
            began: Timestamp::now(),
            ended: None,
        };
        if STREAMS.contains(&call.method()) {
            return None;
        }
        let call = Arc::new(Mutex::new(call));
        calls.push(Arc::clone(&call));
        Some(call)
    }
}

async fn forward(shared: &Shared, request: http::Request<Body>) -> http::Response<Body> {
    let mut runtime = shared.runtime.clone();
    let ready = std::future::poll_fn(|cx| runtime.poll_ready(cx)).await;
    let answer = match ready {
        Ok(()) => runtime.call(request).await,
        Err(error) => Err(error),
    };
    answer.unwrap_or_else(|error| {
        Status::unavailable(format!("the runtime cannot be reached: {error}")).into_http()
    })
}
