//! The process of the driver: a thread that serves its socket until it is stopped or dies.

use std::io;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use grpc_api::csi::identity_server::IdentityServer;
use grpc_api::csi::node_server::NodeServer;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnixListenerStream;

use super::Shared;
use super::faults::Break;
use super::service::Service;

/// How long the tasks of a driver that ends may take to notice it.
const END_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Server {
    breaks: mpsc::Sender<Break>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens on the socket, in place of what is there.
    pub(super) fn start(socket: &Path, shared: &Arc<Shared>) -> io::Result<Self> {
        if let Some(dir) = socket.parent() {
            std::fs::create_dir_all(dir)?;
        }
        let _ = std::fs::remove_file(socket);
        let listener = UnixListener::bind(socket)?;
        listener.set_nonblocking(true)?;
        let (breaks, received) = mpsc::channel(16);
        let service = Service { shared: Arc::clone(shared), breaks: breaks.clone() };
        let thread = std::thread::Builder::new().name("CSI driver".to_owned());
        let thread = thread.spawn(move || {
            // A driver without a runtime does not answer, which its test reports.
            let _ = run(listener, &service, received);
        })?;
        Ok(Self { breaks, thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails if it has died already.
        let _ = self.breaks.try_send(Break::Process);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Each round has a runtime of its own: its end breaks the connections.
fn run(listener: UnixListener, service: &Service, mut breaks: mpsc::Receiver<Break>) -> io::Result<()> {
    loop {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let accepting = listener.try_clone()?;
        let end = runtime.block_on(async {
            let incoming = UnixListenerStream::new(tokio::net::UnixListener::from_std(accepting)?);
            let recorder = service.clone();
            let node = NodeServer::with_interceptor(service.clone(), move |request| {
                recorder.record_deadline(request)
            });
            let served = tonic::transport::Server::builder()
                .add_service(IdentityServer::new(service.clone()))
                .add_service(node)
                .serve_with_incoming(incoming);
            tokio::select! {
                ended = served => ended.map(|()| Break::Process).map_err(io::Error::other),
                end = breaks.recv() => Ok(end.unwrap_or(Break::Process)),
            }
        });
        match end {
            Ok(Break::Connections) => runtime.shutdown_timeout(END_TIMEOUT),
            Ok(Break::Process) | Err(_) => {
                // No client gets a new connection after it has lost one.
                drop(listener);
                runtime.shutdown_timeout(END_TIMEOUT);
                return end.map(|_| ());
            }
        }
    }
}
