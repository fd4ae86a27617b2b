//! Requests to the local socket of the kubelet.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

/// The kubelet answers from memory.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The largest answer: a thousand pods have some megabytes.
const MAX_ANSWER: usize = 64 << 20;

#[derive(Debug)]
pub(crate) struct Client {
    socket: PathBuf,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    #[error("no kubelet runs on this machine: {} does not exist (--root-dir names another root directory)", .0.display())]
    Absent(PathBuf),
    #[error("the kubelet is not running: nothing listens at {}", .0.display())]
    NotRunning(PathBuf),
    #[error("permission to open {} is denied; run the command as root", .0.display())]
    Denied(PathBuf),
    #[error("failed to open {}: {source}", socket.display())]
    Open { socket: PathBuf, source: std::io::Error },
    #[error("the kubelet has not answered for {} s", TIMEOUT.as_secs())]
    TimedOut,
    #[error("the kubelet answered with {status}: {text}")]
    Refused { status: StatusCode, text: String },
    #[error("failed to read the answer of the kubelet: {0}")]
    Broken(String),
}

impl Client {
    pub(crate) const fn new(socket: PathBuf) -> Self {
        Self { socket }
    }

    /// The document at that path.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        let body =
            tokio::time::timeout(TIMEOUT, self.fetch(path)).await.map_err(|_| ClientError::TimedOut)??;
        serde_json::from_slice(&body).map_err(|error| ClientError::Broken(error.to_string()))
    }

    async fn fetch(&self, path: &str) -> Result<Bytes, ClientError> {
        let stream = UnixStream::connect(&self.socket).await.map_err(|error| self.refused(error))?;
        let broken = |error: hyper::Error| ClientError::Broken(error.to_string());
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        let request = Request::get(path).header(HOST, "kubelet").body(Empty::<Bytes>::new());
        let request = request.map_err(|error| ClientError::Broken(error.to_string()))?;
        let exchange = async {
            let response = sender.send_request(request).await.map_err(broken)?;
            let (status, body) = (response.status(), Limited::new(response.into_body(), MAX_ANSWER));
            let body =
                body.collect().await.map_err(|error| ClientError::Broken(error.to_string()))?.to_bytes();
            match status {
                StatusCode::OK => Ok(body),
                status => {
                    let text = String::from_utf8_lossy(&body).trim().to_owned();
                    Err(ClientError::Refused { status, text })
                }
            }
        };
        tokio::pin!(exchange);
        tokio::pin!(connection);
        tokio::select! {
            answer = &mut exchange => answer,
            // The end of the connection is an error only if the answer is not complete.
            ended = &mut connection => {
                ended.map_err(broken)?;
                exchange.await
            }
        }
    }

    fn refused(&self, source: std::io::Error) -> ClientError {
        let socket = self.socket.clone();
        let kind = source.kind();
        if kind == ErrorKind::NotFound {
            ClientError::Absent(socket)
        } else if kind == ErrorKind::ConnectionRefused {
            ClientError::NotRunning(socket)
        } else if kind == ErrorKind::PermissionDenied {
            ClientError::Denied(socket)
        } else {
            ClientError::Open { socket, source }
        }
    }
}

/// The text as a part of a query.
pub(crate) fn escaped(text: &str) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'/' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    text.bytes().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    fn error(socket: PathBuf) -> String {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let answer = runtime.block_on(Client::new(socket).get::<serde_json::Value>("/v1/pods"));
        answer.expect_err("nothing answers").to_string()
    }

    #[test]
    fn socket_that_is_absent_or_left_by_a_killed_kubelet_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("kubelet.sock");
        assert!(error(socket.clone()).starts_with("no kubelet runs on this machine"));
        drop(UnixListener::bind(&socket).unwrap());
        assert!(error(socket).starts_with("the kubelet is not running"));
    }

    #[test]
    fn words_are_escaped_for_the_query() {
        assert_eq!(escaped("default/web-1"), "default/web-1");
        assert_eq!(escaped("a b&c=ä"), "a%20b%26c%3D%C3%A4");
    }
}
