//! Requests to the local socket of the kubelet.

use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    CONNECTION, HOST, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Collected, Empty, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

/// The kubelet answers from memory.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The runtime may be asked before a log or a command begins.
const STREAM_TIMEOUT: Duration = Duration::from_secs(45);
/// The key is for servers that cannot know otherwise whether a client means a WebSocket.
const WEBSOCKET: [(HeaderName, &str); 5] = [
    (CONNECTION, "Upgrade"),
    (UPGRADE, "websocket"),
    (SEC_WEBSOCKET_VERSION, "13"),
    (SEC_WEBSOCKET_KEY, "a3ViZWxldCBleGVjIGtleQ=="),
    (SEC_WEBSOCKET_PROTOCOL, "v5.channel.k8s.io"),
];
/// The largest answer: a thousand pods have some megabytes.
const MAX_ANSWER: usize = 64 << 20;

#[derive(Clone, Debug)]
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
    #[error("the kubelet has not answered for {} s", .0.as_secs())]
    TimedOut(Duration),
    /// The text is that of the kubelet, which says what is wrong.
    #[error("{}", if text.is_empty() { status.as_str() } else { text })]
    Refused { status: StatusCode, text: String },
    #[error("the answer broke off; the log of the kubelet says why")]
    BrokenOff,
    #[error("failed to read the answer of the kubelet: {0}")]
    Broken(String),
}

impl Client {
    pub(crate) const fn new(socket: PathBuf) -> Self {
        Self { socket }
    }

    /// What is at that path.
    pub(crate) async fn get_bytes(&self, path: &str) -> Result<Bytes, ClientError> {
        let fetched = tokio::time::timeout(TIMEOUT, self.fetch(path)).await;
        fetched.map_err(|_| ClientError::TimedOut(TIMEOUT))?
    }

    /// The document at that path.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        let body = self.get_bytes(path).await?;
        serde_json::from_slice(&body).map_err(|error| ClientError::Broken(error.to_string()))
    }

    async fn fetch(&self, path: &str) -> Result<Bytes, ClientError> {
        let (mut sender, connection) = self.connect().await?;
        let exchange = async {
            let response = sender.send_request(request(path)?).await.map_err(broken)?;
            match response.status() {
                StatusCode::OK => body(response).await,
                _ => Err(refusal(response).await),
            }
        };
        drive(exchange, connection).await
    }

    /// Asks for something to be done; its answer is of no interest.
    pub(crate) async fn post(&self, path: &str) -> Result<(), ClientError> {
        let (mut sender, connection) = self.connect().await?;
        let exchange = async {
            let mut request = request(path)?;
            *request.method_mut() = Method::POST;
            let response = sender.send_request(request).await.map_err(|_| ClientError::BrokenOff)?;
            match response.status() {
                StatusCode::OK => Ok(()),
                _ => Err(refusal(response).await),
            }
        };
        let done = tokio::time::timeout(TIMEOUT, drive(exchange, connection)).await;
        done.map_err(|_| ClientError::TimedOut(TIMEOUT))?
    }

    /// Passes on an answer piece by piece, until it ends or the receiver wants no more.
    pub(crate) async fn stream(
        &self,
        path: &str,
        mut receive: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<(), ClientError> {
        let (mut sender, connection) = self.connect().await?;
        let exchange = async {
            let response = sender.send_request(request(path)?);
            let response = tokio::time::timeout(STREAM_TIMEOUT, response).await;
            let response = response.map_err(|_| ClientError::TimedOut(STREAM_TIMEOUT))?.map_err(broken)?;
            if response.status() != StatusCode::OK {
                return Err(refusal(response).await);
            }
            let mut body = response.into_body();
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|_| ClientError::BrokenOff)?;
                if frame.data_ref().is_some_and(|data| receive(data).is_break()) {
                    break;
                }
            }
            Ok(())
        };
        drive(exchange, connection).await
    }

    /// Requests a WebSocket with the channels of a command, and returns what `talk` returns.
    pub(crate) async fn upgrade<T, F>(
        &self,
        path: &str,
        talk: impl FnOnce(Upgraded) -> F,
    ) -> Result<T, ClientError>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let (mut sender, connection) = self.connect().await?;
        let exchange = async {
            let mut request = request(path)?;
            let headers = WEBSOCKET.map(|(name, value)| (name, HeaderValue::from_static(value)));
            request.headers_mut().extend(headers);
            let response = tokio::time::timeout(STREAM_TIMEOUT, sender.send_request(request)).await;
            let mut response =
                response.map_err(|_| ClientError::TimedOut(STREAM_TIMEOUT))?.map_err(broken)?;
            if response.status() != StatusCode::SWITCHING_PROTOCOLS {
                return Err(refusal(response).await);
            }
            talk(hyper::upgrade::on(&mut response).await.map_err(broken)?).await
        };
        drive(exchange, connection.with_upgrades()).await
    }

    async fn connect(&self) -> Result<(SendRequest<Empty<Bytes>>, Connection), ClientError> {
        let stream = UnixStream::connect(&self.socket).await.map_err(|error| self.refused(error))?;
        http1::handshake(TokioIo::new(stream)).await.map_err(broken)
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

type Connection = http1::Connection<TokioIo<UnixStream>, Empty<Bytes>>;

fn request(path: &str) -> Result<Request<Empty<Bytes>>, ClientError> {
    let request = Request::get(path).header(HOST, "kubelet").body(Empty::new());
    request.map_err(|error| ClientError::Broken(error.to_string()))
}

async fn body(response: Response<Incoming>) -> Result<Bytes, ClientError> {
    let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
    body.map(Collected::to_bytes).map_err(|error| ClientError::Broken(error.to_string()))
}

async fn refusal(response: Response<Incoming>) -> ClientError {
    let status = response.status();
    match body(response).await {
        Ok(body) => ClientError::Refused { status, text: String::from_utf8_lossy(&body).trim().to_owned() },
        Err(error) => error,
    }
}

/// Carries out the exchange, which needs the connection to be polled.
async fn drive<T>(
    exchange: impl Future<Output = Result<T, ClientError>>,
    connection: impl Future<Output = Result<(), hyper::Error>>,
) -> Result<T, ClientError> {
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

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn broken(error: hyper::Error) -> ClientError {
    ClientError::Broken(error.to_string())
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
