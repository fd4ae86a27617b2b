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
use tokio::net::UnixStream;
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
    // The URI only sets the `:authority` header; the path of the socket is not part of it.
    Endpoint::from_static("http://localhost")
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_max_header_list_size(MAX_HEADER_BYTES)
        .connect_with_connector(Dial { socket: Arc::new(socket.to_path_buf()) })
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
        Box::pin(async move { Ok(TokioIo::new(UnixStream::connect(&*socket).await?)) })
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
