//! Implements the `Net` port: HTTP, TCP and gRPC calls to pods and manifest servers.
//!
//! Owns [`LinuxNet`]. `dial` opens and closes connections, `tls` adds TLS, `http_get` and `grpc_health` are the protocols.
//!
//! Architecture invariants:
//! - one call, one connection: nothing is pooled, kept alive or retried;
//! - every call ends at its deadline, whatever the peer does, and leaves no port in TIME_WAIT (see `dial`);
//! - proxies and the environment are not used: the target of a call depends only on its arguments.
#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        clippy::disallowed_types,
        reason = "tests run on real sockets and real time"
    )
)]

mod dial;
mod grpc_health;
mod http_get;
mod tls;
mod url;

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use ports::net::{GrpcHealth, HttpAnswer, HttpGet, Net, NetError};

use crate::tls::Tls;

/// Paths of the CA bundles of distributions; the first that exists is used.
const TRUSTED: [&str; 2] = ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"];

/// The network of this machine.
#[derive(Debug)]
pub struct LinuxNet {
    tls: Tls,
}

impl LinuxNet {
    #[must_use]
    pub fn new() -> Self {
        Self::trusting(TRUSTED.map(PathBuf::from).to_vec())
    }

    /// Verifies certificates with the CAs in the first of these PEM files that exists. It is read once, on first use.
    #[must_use]
    pub fn trusting(files: Vec<PathBuf>) -> Self {
        Self { tls: Tls::new(files) }
    }
}

impl Default for LinuxNet {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Net for LinuxNet {
    async fn http_get(&self, request: &HttpGet) -> Result<HttpAnswer, NetError> {
        http_get::get(&self.tls, request).await
    }

    async fn resolve(&self, name: &str, timeout: Duration) -> Result<Vec<IpAddr>, NetError> {
        match tokio::time::timeout(timeout, dial::RESOLVER.lookup(name, 0)).await {
            Ok(Ok(found)) => Ok(found.into_iter().map(|address| address.ip()).collect()),
            Ok(Err(error)) => Err(NetError::Connect(format!("lookup {name}: {error}"))),
            Err(_) => Err(NetError::TimedOut { what: format!("lookup {name}"), after: timeout }),
        }
    }

    async fn tcp_connect(&self, host: &str, port: u16, timeout: Duration) -> Result<(), NetError> {
        match tokio::time::timeout(timeout, dial::connect(host, port)).await {
            Ok(connected) => connected.map(drop),
            Err(_) => Err(NetError::TimedOut {
                what: format!("dial tcp {}: i/o timeout", url::join_host_port(host, port)),
                after: timeout,
            }),
        }
    }

    async fn grpc_health(
        &self,
        host: IpAddr,
        port: u16,
        service: &str,
        timeout: Duration,
    ) -> Result<GrpcHealth, NetError> {
        grpc_health::check(host, port, service, timeout).await
    }
}

#[cfg(test)]
mod tests;
