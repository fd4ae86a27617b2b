//! Opening TCP connections, and closing them so that nothing stays behind.
//!
//! A kubelet probes thousands of times a minute; 60 s of TIME_WAIT each would use up ports and the connection table.
//! A short linger alone does not prevent that on Linux: who sends the first FIN keeps the entry. So connections are
//! set to be reset on close. HTTP and gRPC peers are given the time to close first; a TCP probe is reset at once: a
//! FIN before the reset would spare the peer an error, but a peer that answers it within the same microseconds leaves
//! an entry, and on a loaded machine that was one probe in six.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use ports::Resolver;
use ports::net::NetError;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::TcpStream;

use crate::url::{bare_host, join_host_port};

/// How long a peer that was asked to close may take before we do.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// What a peer may still send in that time.
const MAX_LEFT_OVER: u64 = 64 << 10;

/// For what pods and manifests name: probes, hooks, manifest servers.
pub(crate) static RESOLVER: Resolver = Resolver::new();

/// Connects to the first address of the host that answers. Without a deadline of its own.
pub(crate) async fn connect(host: &str, port: u16) -> Result<TcpStream, NetError> {
    if port == 0 {
        return Err(NetError::Invalid(format!("dial tcp {}: invalid port 0", join_host_port(host, port))));
    }
    let host = bare_host(host);
    let addresses = RESOLVER
        .lookup(host, port)
        .await
        .map_err(|error| NetError::Connect(format!("dial tcp: lookup {host}: {}", in_words(&error))))?;
    let mut failure = format!("dial tcp: lookup {host}: no such host");
    for address in addresses {
        match connect_to(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => failure = format!("dial tcp {address}: connect: {}", in_words(&error)),
        }
    }
    Err(NetError::Connect(failure))
}

async fn connect_to(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    // From now on closing resets, also when a call is given up half-way.
    rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO))?;
    stream.set_nodelay(true)?;
    // With nobody listening on a port of this machine the kernel may pick that very port for our end and connect us
    // to ourselves.
    if stream.local_addr()? == stream.peer_addr()? {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    Ok(stream)
}

/// Gives a peer that was asked to close the time to do it; the one who closes second keeps no entry.
pub(crate) async fn await_close(stream: impl AsyncRead + Unpin) {
    let mut left_over = stream.take(MAX_LEFT_OVER);
    let mut unread = tokio::io::sink();
    // Whatever happens, the connection is dropped next.
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, tokio::io::copy(&mut left_over, &mut unread)).await;
}

/// As Go programs say it: `connection refused`, without number and capitals.
pub(crate) fn in_words(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}
