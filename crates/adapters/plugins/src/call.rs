//! One call to a plugin: its connection, its deadline, and the conversion of gRPC errors. Knows no methods.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use ports::plugins::{PluginError, PluginResult};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Response, Status};
use tower_service::Service;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A plugin may have thousands of devices.
pub(crate) const MAX_RECEIVE_BYTES: usize = 16 << 20;
/// The message of an error is a header, and may contain the output of programs.
const MAX_HEADER_BYTES: u32 = 1 << 20;

/// A connection to the socket. It is not opened again after it broke, because another plugin may listen then.
pub(crate) async fn connect(socket: &Path) -> PluginResult<Channel> {
    connect_with(socket, None).await
}

/// The same; `until_end` is dropped when the connection ends.
pub(crate) async fn connect_with(
    socket: &Path,
    until_end: Option<oneshot::Sender<()>>,
) -> PluginResult<Channel> {
    // The URI only sets the `:authority` header; the path of the socket is not part of it.
    Endpoint::from_static("http://localhost")
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_max_header_list_size(MAX_HEADER_BYTES)
        .connect_with_connector(Dial { socket: Arc::new(socket.to_path_buf()), until_end })
        .await
        .map_err(|error| PluginError::Unreachable {
            socket: socket.to_path_buf(),
            message: root_cause(&error),
        })
}

/// The first cause, as Go words the errors of the operating system: `connection refused`.
pub(crate) fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
    if let Some(cause) = error.source() {
        return root_cause(cause);
    }
    let text = error.to_string();
    match text.split_once(" (os error ") {
        Some((message, _)) => message.to_lowercase(),
        None => text,
    }
}

/// Opens the socket for any URI.
struct Dial {
    socket: Arc<PathBuf>,
    /// Taken by the first connection.
    until_end: Option<oneshot::Sender<()>>,
}

impl Service<Uri> for Dial {
    type Response = TokioIo<Connection>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<Connection>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let (socket, until_end) = (Arc::clone(&self.socket), self.until_end.take());
        Box::pin(async move {
            let stream = UnixStream::connect(&*socket).await?;
            Ok(TokioIo::new(Connection { stream, _until_end: until_end }))
        })
    }
}

/// A stream, and what is dropped with it.
struct Connection {
    stream: UnixStream,
    _until_end: Option<oneshot::Sender<()>>,
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// Waits for the response, no longer than `after`.
pub(crate) async fn answer<T>(
    call: &'static str,
    after: Duration,
    answer: impl Future<Output = Result<Response<T>, Status>>,
) -> PluginResult<T> {
    match tokio::time::timeout(after, answer).await {
        Ok(Ok(response)) => Ok(response.into_inner()),
        Ok(Err(status)) => Err(failed(&status)),
        Err(_) => Err(PluginError::TimedOut { call, after }),
    }
}

/// Formatted as in Go's gRPC clients, because people search for that text.
pub(crate) fn failed(status: &Status) -> PluginError {
    let code = status.code();
    let code = if code == Code::Cancelled { "Canceled".to_owned() } else { format!("{code:?}") };
    PluginError::Failed { code, message: status.message().to_owned() }
}
