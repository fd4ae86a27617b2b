//! Calls over the network: to pods (probes, hooks) and to servers of manifests.

use std::net::IpAddr;
use std::time::Duration;

use async_trait::async_trait;

/// Why a call failed. The text is shown in events, so a user can act on it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetError {
    /// No connection: refused, unreachable, or closed before an answer.
    #[error("{0}")]
    Connect(String),
    /// No (complete) answer in time.
    #[error("{what}: no answer within {after:?}")]
    TimedOut { what: String, after: Duration },
    /// The peer speaks plain HTTP where TLS was expected.
    #[error("server gave HTTP response to HTTPS client")]
    PlainHttpServer,
    /// A TLS or protocol error.
    #[error("{0}")]
    Protocol(String),
    /// The call itself is malformed: bad URL, header or port.
    #[error("{0}")]
    Invalid(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    Http,
    Https,
}

/// A GET. Probes and hooks do not verify certificates, follow redirects only on the same host, use no proxy and no
/// keep-alive, and close their connection with a short `SO_LINGER` so that no port stays in TIME_WAIT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpGet {
    pub scheme: Scheme,
    pub host: String,
    pub port: u16,
    /// Path and query.
    pub path: String,
    pub headers: Vec<(String, String)>,
    /// `None`: until the caller drops the future.
    pub timeout: Option<Duration>,
    /// Stop reading the body here.
    pub max_body_bytes: usize,
    /// Whether the server's certificate must be valid (manifest servers) or not (probes).
    pub verify_tls: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpAnswer {
    pub status: u16,
    pub body: Vec<u8>,
    /// The body was longer than `max_body_bytes`.
    pub truncated: bool,
    /// A redirect pointed to another host and was therefore not followed.
    pub redirected_elsewhere: bool,
}

/// How the gRPC health service answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GrpcHealth {
    Serving,
    /// Answered, with another status.
    NotServing(String),
    /// The server does not have the health service, with its message.
    Unimplemented(String),
}

#[async_trait]
pub trait Net: Send + Sync + std::fmt::Debug {
    async fn http_get(&self, request: &HttpGet) -> Result<HttpAnswer, NetError>;
    /// The addresses of a host name, in the resolver's order.
    async fn resolve(&self, name: &str, timeout: Duration) -> Result<Vec<IpAddr>, NetError>;
    /// Opens a TCP connection and closes it again.
    async fn tcp_connect(&self, host: &str, port: u16, timeout: Duration) -> Result<(), NetError>;
    /// Calls `grpc.health.v1.Health/Check`.
    async fn grpc_health(
        &self,
        host: IpAddr,
        port: u16,
        service: &str,
        timeout: Duration,
    ) -> Result<GrpcHealth, NetError>;
}
