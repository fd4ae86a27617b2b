//! A CRI server on a unix socket, in front of any `Runtime`: for tests of the adapter, and for measuring a kubelet against a
//! runtime without cost of its own.
//!
//! Serves every method of the port. The streaming lists return `Unimplemented`, as those of most runtimes do, unless a test wants them.

mod answer;
mod request;
mod service;
mod stats;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cri_api::v1::image_service_server::ImageServiceServer;
use cri_api::v1::runtime_service_server::RuntimeServiceServer;
use futures_util::StreamExt;
use parking_lot::Mutex;
use ports::Runtime;
use ports::trace::TRACEPARENT;
use tokio::net::UnixListener;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::Request;
use tonic::transport::Server;

use self::service::Service;

/// A running server; when this is dropped, it stops and its socket is removed.
#[derive(Debug)]
pub struct FakeCri {
    socket: PathBuf,
    task: JoinHandle<()>,
    traces: Arc<Mutex<BTreeSet<String>>>,
    connections: Arc<AtomicUsize>,
    stream_calls: Arc<AtomicUsize>,
}

impl FakeCri {
    /// Serves `runtime` at `socket`, in a task of the current tokio runtime.
    pub fn serve(runtime: Arc<dyn Runtime>, socket: &Path) -> io::Result<Self> {
        Self::start(runtime, socket, None)
    }

    /// The same with streaming lists, in parts of so many entries.
    pub fn serve_streaming_lists(runtime: Arc<dyn Runtime>, socket: &Path, part: usize) -> io::Result<Self> {
        Self::start(runtime, socket, Some(part))
    }

    fn start(runtime: Arc<dyn Runtime>, socket: &Path, part: Option<usize>) -> io::Result<Self> {
        let listener = UnixListener::bind(socket)?;
        let stream_calls: Arc<AtomicUsize> = Arc::default();
        let service = Service::new(runtime, part, Arc::clone(&stream_calls));
        let traces: Arc<Mutex<BTreeSet<String>>> = Arc::default();
        let recorded = Arc::clone(&traces);
        let listen = move |request: Request<()>| {
            let parent = request.metadata().get(TRACEPARENT).and_then(|parent| parent.to_str().ok());
            recorded.lock().extend(parent.map(str::to_owned));
            Ok(request)
        };
        let connections: Arc<AtomicUsize> = Arc::default();
        let counted = Arc::clone(&connections);
        let incoming = UnixListenerStream::new(listener).inspect(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        let serving = Server::builder()
            .add_service(RuntimeServiceServer::with_interceptor(service.clone(), listen))
            .add_service(ImageServiceServer::new(service))
            .serve_with_incoming(incoming);
        let task = tokio::spawn(async move {
            // It ends by abort; an error before that shows as refused connections.
            let _ = serving.await;
        });
        Ok(Self { socket: socket.to_path_buf(), task, traces, connections, stream_calls })
    }

    /// The span ids in the trace headers of calls for containers and sandboxes.
    #[must_use]
    pub fn traces(&self) -> BTreeSet<String> {
        self.traces.lock().clone()
    }

    /// How many connections there have been.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// How many calls for streamed lists there have been.
    #[must_use]
    pub fn stream_calls(&self) -> usize {
        self.stream_calls.load(Ordering::Relaxed)
    }

    /// `unix://…`, the format of the kubelet's configuration.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("unix://{}", self.socket.display())
    }

    /// Stops the server and waits until it has ended. Open connections are different: hyper serves each in a task of its own, so
    /// they live until the client closes them or the tokio runtime ends.
    pub async fn stop(mut self) {
        self.task.abort();
        // The abort was requested here.
        let _ = (&mut self.task).await;
    }
}

impl Drop for FakeCri {
    fn drop(&mut self) {
        self.task.abort();
        // The directory may have been removed already.
        let _ = std::fs::remove_file(&self.socket);
    }
}
