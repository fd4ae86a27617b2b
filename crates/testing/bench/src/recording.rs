//! Records the CRI calls that a kubelet makes: a proxy in front of the runtime that forwards every call unchanged and keeps the
//! bytes of requests and responses, and when each call began and ended.
//!
//! It never interprets a message; streams are forwarded and not kept.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::stream;
use harness::runtime_calls::{CallHandler, connect, forward, is_stream, method_of, serve_calls};
use http_body_util::BodyExt;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::net::UnixListener;
use tokio::task::JoinSet;
use tonic::body::Body;
use tonic::codegen::http;
use tonic::transport::Channel;

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
        method_of(&self.path)
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
        let serving = serve_calls(&shared).serve_with_incoming(incoming);
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

impl CallHandler for Shared {
    async fn answer(self: Arc<Self>, request: http::Request<Body>) -> http::Response<Body> {
        let forward = |request| forward(self.runtime.clone(), request);
        let Some(call) = self.begin(request.uri().path()) else { return forward(request).await };
        let kept = Arc::clone(&call);
        let request = request.map(|body| {
            Body::new(body.map_frame(move |frame| {
                kept.lock().request.extend(frame.data_ref().into_iter().flatten());
                frame
            }))
        });
        let response = forward(request).await;
        // An error has no frame.
        call.lock().ended = Some(Timestamp::now());
        response.map(|body| {
            Body::new(body.map_frame(move |frame| {
                let mut call = call.lock();
                call.response.extend(frame.data_ref().into_iter().flatten());
                call.ended = Some(Timestamp::now());
                drop(call);
                frame
            }))
        })
    }
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
        if is_stream(call.method()) {
            return None;
        }
        let call = Arc::new(Mutex::new(call));
        calls.push(Arc::clone(&call));
        Some(call)
    }
}
