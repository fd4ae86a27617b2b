//! Opens connections: TCP, through a proxy if one is configured, TLS, and negotiation of the HTTP version.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ports::Resolver;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::access::{Access, ProxyUrl, ServerUrl};
use crate::error::{AccessError, in_full};
use crate::tls::{self, Tls};

/// For all addresses of a name together.
const CONNECT: Duration = Duration::from_secs(30);
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Limit for the headers of a proxy's response.
const MAX_PROXY_HEAD: usize = 16 << 10;
/// A peer that vanished is detected within about a minute: three probes, and the same time for unacknowledged data.
const KEEPALIVE: Duration = Duration::from_secs(30);
const KEEPALIVE_PROBES: u32 = 3;
const UNACKNOWLEDGED: Duration = Duration::from_secs(60);

/// Not shared with probes, because their lookups must not delay those of the API server.
static RESOLVER: Resolver = Resolver::new();

/// Why a connection could not be opened. Cloned for every call that waited for it.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct DialError(String);

impl DialError {
    pub(crate) const fn new(problem: String) -> Self {
        Self(problem)
    }
}

pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// An open connection, before the HTTP handshake.
pub(crate) struct Dialed {
    pub(crate) stream: Box<dyn Stream>,
    pub(crate) http2: bool,
    /// Version of its TLS configuration.
    pub(crate) version: u64,
}

/// Address, proxy and TLS of connections.
#[derive(Debug)]
pub(crate) struct Dialer {
    server: ServerUrl,
    name: String,
    proxy: Option<ProxyUrl>,
    /// `None` for plain HTTP.
    tls: Option<Arc<Tls>>,
}

impl Dialer {
    pub(crate) fn new(access: &Access, tls: Option<Arc<Tls>>) -> Self {
        let name = access.server_name.clone().unwrap_or_else(|| access.server.host.clone());
        Self { server: access.server.clone(), name, proxy: access.proxy.clone(), tls }
    }

    /// Version of the TLS configuration for the next connection.
    pub(crate) fn version(&self) -> u64 {
        self.tls.as_ref().map_or(0, |tls| tls.version())
    }

    pub(crate) async fn dial(&self) -> Result<Dialed, DialError> {
        let stream = self.reach().await?;
        let Some(tls) = &self.tls else { return Ok(Dialed { stream, http2: false, version: 0 }) };
        let (config, version) = tls.current();
        let handshake = TlsConnector::from(config).connect(server_name(&self.name)?, stream);
        let stream = within(HANDSHAKE, "tls handshake", handshake).await?;
        let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        Ok(Dialed { stream: Box::new(stream), http2, version })
    }

    /// A stream to the server.
    async fn reach(&self) -> Result<Box<dyn Stream>, DialError> {
        let Some(proxy) = &self.proxy else {
            return Ok(Box::new(connect(&self.server.host, self.server.port).await?));
        };
        let tcp = connect(&proxy.host, proxy.port).await?;
        let mut stream: Box<dyn Stream> = Box::new(tcp);
        if proxy.tls {
            let config = tls::for_proxies().map_err(refused)?;
            let handshake = TlsConnector::from(config).connect(server_name(&proxy.host)?, stream);
            stream = Box::new(within(HANDSHAKE, "tls handshake with the proxy", handshake).await?);
        }
        within(CONNECT, "proxy", tunnel(&mut stream, proxy, &self.server)).await?;
        Ok(stream)
    }
}

fn refused(error: AccessError) -> DialError {
    DialError(error.to_string())
}

fn server_name(name: &str) -> Result<ServerName<'static>, DialError> {
    ServerName::try_from(name.to_owned())
        .map_err(|_| DialError(format!("{name:?} is not a valid server name")))
}

async fn within<T>(
    limit: Duration,
    what: &str,
    step: impl Future<Output = io::Result<T>>,
) -> Result<T, DialError> {
    match tokio::time::timeout(limit, step).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(DialError(format!("{what}: {}", in_full(&error)))),
        Err(_) => Err(DialError(format!("{what}: timed out after {limit:?}"))),
    }
}

async fn connect(host: &str, port: u16) -> Result<TcpStream, DialError> {
    let addresses: Vec<SocketAddr> =
        within(CONNECT, &format!("lookup {host}"), async { RESOLVER.lookup(host, port).await }).await?;
    let share = CONNECT / u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1);
    let mut failure = DialError(format!("lookup {host}: no such host"));
    for address in addresses {
        match within(share, &format!("dial tcp {address}"), connect_to(address)).await {
            Ok(stream) => return Ok(stream),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

async fn connect_to(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    // If no process listens on a port of this machine, the kernel may choose that port as the source port.
    if stream.local_addr()? == stream.peer_addr()? {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    stream.set_nodelay(true)?;
    rustix::net::sockopt::set_socket_keepalive(&stream, true)?;
    rustix::net::sockopt::set_tcp_keepidle(&stream, KEEPALIVE)?;
    rustix::net::sockopt::set_tcp_keepintvl(&stream, KEEPALIVE / KEEPALIVE_PROBES)?;
    rustix::net::sockopt::set_tcp_keepcnt(&stream, KEEPALIVE_PROBES)?;
    let unacknowledged = u32::try_from(UNACKNOWLEDGED.as_millis()).unwrap_or(u32::MAX);
    rustix::net::sockopt::set_tcp_user_timeout(&stream, unacknowledged)?;
    Ok(stream)
}

/// Requests a connection to the server from the proxy (CONNECT).
async fn tunnel(stream: &mut Box<dyn Stream>, proxy: &ProxyUrl, server: &ServerUrl) -> io::Result<()> {
    let host = if server.host.contains(':') { format!("[{}]", server.host) } else { server.host.clone() };
    let target = format!("{host}:{}", server.port);
    let mut request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n");
    if let Some(userinfo) = &proxy.userinfo {
        let login = crate::encode::base64(crate::encode::percent_decoded(userinfo).as_bytes());
        request.push_str(&format!("Proxy-Authorization: Basic {login}\r\n"));
    }
    request.push_str("\r\n");
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await?;
    // Byte by byte, because data after the empty line comes from the server.
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= MAX_PROXY_HEAD {
            return Err(io::Error::other("the headers of its response are too long"));
        }
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head);
    let first = head.lines().next().unwrap_or_default();
    match first.split(' ').nth(1) {
        Some(code) if code.starts_with('2') => Ok(()),
        _ => Err(io::Error::other(format!("it rejected a connection to {target}: {first}"))),
    }
}
