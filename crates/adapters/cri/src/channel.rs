//! The connection: HTTP/2 over a Unix socket, opened on demand and again after it broke. Knows no calls.
//!
//! HTTP/2 keeps the memory of its largest number of concurrent calls as long as the connection lives: about 3 kB for each. So a connection
//! that had many is replaced some time later; the calls that it still has end on it.

use std::future::{Future, poll_fn};
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::{Request, Response, Uri};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::UnixStream;
use tokio::time::Instant;
use tonic::body::Body;
use tonic::transport::{Channel, Endpoint};
use tower_service::Service;

/// Listings of a full node are large; this is the usual limit of CRI clients.
pub(crate) const MAX_RECEIVE_BYTES: usize = 16 * 1024 * 1024;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Concurrent calls after which a connection is replaced, once it has had fewer for [`CALM`].
const MANY_CALLS: usize = 32;
const CALM: Duration = Duration::from_secs(5);

/// A handle to the connection; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    socket: Arc<Path>,
    current: Arc<Mutex<Current>>,
}

#[derive(Debug)]
struct Current {
    channel: Channel,
    load: Arc<Mutex<Load>>,
}

impl Connection {
    /// Does not connect yet.
    pub(crate) fn new(socket: &Path) -> Self {
        let current = Current { channel: connect_lazily(socket), load: Arc::default() };
        Self { socket: socket.into(), current: Arc::new(Mutex::new(current)) }
    }

    /// The channel for a call that begins now.
    fn channel(&self) -> (Channel, OpenCall) {
        let (now, mut current) = (Instant::now(), self.current.lock());
        if current.load.lock().is_to_replace(now) {
            *current = Current { channel: connect_lazily(&self.socket), load: Arc::default() };
        }
        current.load.lock().begin(now);
        (current.channel.clone(), OpenCall(current.load.clone()))
    }
}

impl Service<Request<Body>> for Connection {
    type Response = Response<Body>;
    type Error = tonic::transport::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (mut channel, open) = self.channel();
        Box::pin(async move {
            let _open = open;
            poll_fn(|context| channel.poll_ready(context)).await?;
            channel.call(request).await
        })
    }
}

/// A call that waits for its response, until this is dropped.
struct OpenCall(Arc<Mutex<Load>>);

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.0.lock().end();
    }
}

/// The calls of one connection that wait for their responses.
#[derive(Debug, Default)]
struct Load {
    open: usize,
    /// When it last had many.
    many_at: Option<Instant>,
}

impl Load {
    fn is_to_replace(&self, now: Instant) -> bool {
        self.open < MANY_CALLS && self.many_at.is_some_and(|at| now.saturating_duration_since(at) >= CALM)
    }

    fn begin(&mut self, now: Instant) {
        self.open += 1;
        if self.open >= MANY_CALLS {
            self.many_at = Some(now);
        }
    }

    const fn end(&mut self) {
        self.open -= 1;
    }
}

/// A channel to `socket` that connects at its first call, and again at the first call after it broke.
///
/// Every call without a connection dials once, immediately. No back-off is needed, because the kernel itself responds on a
/// Unix socket, and a delay of up to three seconds between dials, as in Go's clients, would only notice the runtime late.
/// Callers limit their rate.
fn connect_lazily(socket: &Path) -> Channel {
    // The URI only sets the `:authority` header; the path of the socket is not part of it.
    Endpoint::from_static("http://localhost")
        // A header table would keep many small allocations for the life of the connection.
        .http2_header_table_size(0)
        .connect_timeout(CONNECT_TIMEOUT)
        .connect_with_connector_lazy(Dial { socket: Arc::new(socket.to_path_buf()) })
}

/// Opens the socket for any URI.
struct Dial {
    socket: Arc<PathBuf>,
}

impl Service<Uri> for Dial {
    type Response = TokioIo<UnixStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<UnixStream>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let socket = Arc::clone(&self.socket);
        Box::pin(async move {
            let stream = UnixStream::connect(&*socket).await.map_err(|error| {
                io::Error::new(error.kind(), format!("connect to {}: {error}", socket.display()))
            })?;
            Ok(TokioIo::new(stream))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_is_replaced_some_time_after_it_had_many_calls() {
        let (start, mut load) = (Instant::now(), Load::default());
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut is_to_replace = Vec::new();
        for open in [MANY_CALLS - 1, MANY_CALLS] {
            while load.open < open {
                load.begin(at(1));
            }
            is_to_replace.push(load.is_to_replace(at(100)));
        }
        load.end();
        is_to_replace.extend([at(5), at(6)].map(|now| load.is_to_replace(now)));
        assert_eq!(is_to_replace, [false, false, false, true], "few calls, many, few soon after, and later");
    }

    #[test]
    fn time_counts_from_the_last_moment_with_many_calls() {
        let (start, mut load) = (Instant::now(), Load::default());
        (0..MANY_CALLS).for_each(|_| load.begin(start));
        load.end();
        load.begin(start + CALM);
        load.end();
        assert!(!load.is_to_replace(start + CALM + CALM / 2) && load.is_to_replace(start + CALM * 2));
    }
}
