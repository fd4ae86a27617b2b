//! The connection: HTTP/2 over a Unix socket, opened on demand and again after it broke. Knows no calls.

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};
use tower_service::Service;

/// Listings of a full node are large; this is the usual limit of CRI clients.
pub(crate) const MAX_RECEIVE_BYTES: usize = 16 * 1024 * 1024;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A channel to `socket` that connects at its first call, and again at the first call after it broke.
///
/// Every call without a connection dials once, immediately. No back-off is needed, because the kernel itself responds on a
/// Unix socket, and a delay of up to three seconds between dials, as in Go's clients, would only notice the runtime late.
/// Callers limit their rate.
pub(crate) fn connect_lazily(socket: &Path) -> Channel {
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
