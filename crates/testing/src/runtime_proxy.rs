//! A proxy between a kubelet and a real runtime: it forwards every gRPC call unchanged, except that a share of them, chosen by a
//! seed, is delayed, fails, is never passed on, or loses its answer after the runtime has acted.
//!
//! Streams are forwarded; only a lost connection affects them.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

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
use crate::soak::rng::Rng;

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
        match self.next_fault(method_of(request.uri().path())) {
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
