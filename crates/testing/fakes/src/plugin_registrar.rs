//! A plugin that registers as vendors' plugins do: a gRPC server at a socket in the kubelet's registration directory, which
//! answers GetInfo and records every NotifyRegistrationStatus.
//!
//! Runs in a thread with its own runtime, so that synchronous and asynchronous tests can use it. Removes its socket when dropped,
//! unless another took its place; [`PluginRegistrar::crash`] leaves it behind.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use grpc_api::plugin_registration as wire;
use grpc_api::plugin_registration::registration_server::{Registration, RegistrationServer};
use parking_lot::Mutex;
use ports::plugins::PluginInfo;
use tokio::net::UnixListener;
use tokio::sync::oneshot;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

/// What the plugin does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegistrarFault {
    /// No call is ever answered.
    Hangs,
    /// NotifyRegistrationStatus fails, after it was recorded.
    FailsNotification,
}

/// A running plugin with a registration socket.
#[derive(Debug)]
pub struct PluginRegistrar {
    socket: PathBuf,
    inode: u64,
    state: State,
    stop: Option<oneshot::Sender<()>>,
    server: Option<JoinHandle<()>>,
}

#[derive(Clone, Debug)]
struct State {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug)]
struct Shared {
    info: PluginInfo,
    fault: Option<RegistrarFault>,
    info_calls: usize,
    notified: Vec<Result<(), String>>,
}

impl PluginRegistrar {
    /// Listens at the socket, replacing what is there, and answers with this.
    ///
    /// # Panics
    /// The socket cannot be opened.
    #[must_use]
    #[expect(clippy::expect_used, reason = "a test cannot go on without")]
    pub fn serve(socket: &Path, info: PluginInfo) -> Self {
        let shared = Shared { info, fault: None, info_calls: 0, notified: Vec::new() };
        let state = State { shared: Arc::new(Mutex::new(shared)) };
        let _ = std::fs::remove_file(socket);
        let listener = std::os::unix::net::UnixListener::bind(socket).expect("a socket");
        let inode = std::fs::metadata(socket).expect("its metadata").ino();
        let (stop, stopped) = oneshot::channel();
        let service = RegistrationServer::new(state.clone());
        let server = std::thread::spawn(move || run(listener, service, stopped));
        Self { socket: socket.to_owned(), inode, state, stop: Some(stop), server: Some(server) }
    }

    /// The outcomes that the kubelet has reported, in order.
    #[must_use]
    pub fn notified(&self) -> Vec<Result<(), String>> {
        self.state.shared.lock().notified.clone()
    }

    /// How many times the kubelet has called GetInfo.
    #[must_use]
    pub fn info_calls(&self) -> usize {
        self.state.shared.lock().info_calls
    }

    /// What it does wrong from now on; nothing at first.
    pub fn set_fault(&self, fault: Option<RegistrarFault>) {
        self.state.shared.lock().fault = fault;
    }

    /// Ends as if it was killed: the socket stays, and nothing listens.
    pub fn crash(mut self) {
        self.end();
    }

    /// Ends the server, with all its connections. Harmless if that has happened.
    fn end(&mut self) {
        drop(self.stop.take());
        if let Some(server) = self.server.take() {
            let _ = server.join();
        }
    }
}

impl Drop for PluginRegistrar {
    fn drop(&mut self) {
        let was_running = self.server.is_some();
        self.end();
        let is_own = std::fs::metadata(&self.socket).is_ok_and(|found| found.ino() == self.inode);
        if was_running && is_own {
            let _ = std::fs::remove_file(&self.socket);
        }
    }
}

/// Serves until the sender of `stopped` is dropped.
#[expect(clippy::expect_used, reason = "a test cannot go on without")]
fn run(
    listener: std::os::unix::net::UnixListener,
    service: RegistrationServer<State>,
    stopped: oneshot::Receiver<()>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        listener.set_nonblocking(true).expect("a socket that does not block");
        let listener = UnixListener::from_std(listener).expect("a socket");
        let server = Server::builder().add_service(service);
        tokio::select! {
            _ = server.serve_with_incoming(UnixListenerStream::new(listener)) => {}
            _ = stopped => {}
        }
    });
}

#[tonic::async_trait]
impl Registration for State {
    async fn get_info(&self, _: Request<wire::InfoRequest>) -> Result<Response<wire::PluginInfo>, Status> {
        let (info, fault) = {
            let mut shared = self.shared.lock();
            shared.info_calls += 1;
            (shared.info.clone(), shared.fault)
        };
        if fault == Some(RegistrarFault::Hangs) {
            std::future::pending::<()>().await;
        }
        let PluginInfo { kind, name, endpoint, supported_versions } = info;
        Ok(Response::new(wire::PluginInfo { r#type: kind, name, endpoint, supported_versions }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<wire::RegistrationStatus>,
    ) -> Result<Response<wire::RegistrationStatusResponse>, Status> {
        let wire::RegistrationStatus { plugin_registered, error } = request.into_inner();
        let outcome = if plugin_registered { Ok(()) } else { Err(error) };
        let fault = {
            let mut shared = self.shared.lock();
            shared.notified.push(outcome);
            shared.fault
        };
        match fault {
            Some(RegistrarFault::Hangs) => std::future::pending().await,
            Some(RegistrarFault::FailsNotification) => Err(Status::unknown("not now")),
            None => Ok(Response::new(wire::RegistrationStatusResponse {})),
        }
    }
}
