//! Opens TCP connections, and closes them without leaving a TIME_WAIT entry.
//!
//! A kubelet probes thousands of times a minute; 60 s of TIME_WAIT each would use up ports and the connection table.
//! A short SO_LINGER timeout alone does not prevent that on Linux, because the side that sends the first FIN keeps the entry.
//! So connections are reset on close. HTTP and gRPC peers get time to close first; a TCP probe is reset at once: a FIN before
//! the reset would avoid an error at the peer, but a peer that answers it within the same microseconds leaves an entry, and on
//! a loaded machine that was one probe in six.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use ports::Resolver;
use ports::net::NetError;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::TcpStream;

use crate::url::{bare_host, join_host_port};

/// How long a peer may take to close the connection before it is reset.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// Bytes that a peer may still send in that time.
const MAX_LEFT_OVER: u64 = 64 << 10;

/// For hosts of probes, hooks and manifest servers.
pub(crate) static RESOLVER: Resolver = Resolver::new();

/// Connects to the first address of the host that accepts. Has no deadline.
pub(crate) async fn connect(host: &str, port: u16) -> Result<TcpStream, NetError> {
    if port == 0 {
        return Err(NetError::Invalid(format!("dial tcp {}: invalid port 0", join_host_port(host, port))));
    }
    let host = bare_host(host);
    let addresses = RESOLVER
        .lookup(host, port)
        .await
        .map_err(|error| NetError::Connect(format!("dial tcp: lookup {host}: {}", error_text(&error))))?;
    let mut failure = format!("dial tcp: lookup {host}: no such host");
    for address in addresses {
        match connect_to(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => failure = format!("dial tcp {address}: connect: {}", error_text(&error)),
        }
    }
    Err(NetError::Connect(failure))
}

async fn connect_to(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    // From now on close resets the connection, also when a call is dropped.
    rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO))?;
    stream.set_nodelay(true)?;
    // If no process listens on a port of this machine, the kernel may choose that port as the source port, and the
    // socket connects to itself.
    if stream.local_addr()? == stream.peer_addr()? {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    Ok(stream)
}

/// Waits for the peer to close the connection; the side that closes second has no TIME_WAIT entry.
pub(crate) async fn await_close(stream: impl AsyncRead + Unpin) {
    let mut left_over = stream.take(MAX_LEFT_OVER);
    let mut unread = tokio::io::sink();
    // In any case the connection is dropped next.
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, tokio::io::copy(&mut left_over, &mut unread)).await;
}

/// The text of an error as in Go: `connection refused`, without its number and in lower case.
pub(crate) fn error_text(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}
