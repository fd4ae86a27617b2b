//! Connections to kubelets and pods: name resolution, TLS with the right client certificate, and one request on each
//! connection.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ::http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use rustls::ClientConfig;
use rustls::crypto::CryptoProvider;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::location::{Channel, HostPort, Location};
use super::verifier::Verifier;
use super::{StreamPermit, Streams};
use crate::auth::MASTERS;
use crate::auth::authority::{Authority, Validity};
use crate::clock::Clock;
use crate::http::Body;

/// The user name of this server at a kubelet, as kubeadm sets it for the real server.
const CLIENT: &str = "kube-apiserver-kubelet-client";
const CLIENT_LIFETIME: Duration = Duration::from_secs(365 * 24 * 3600);
/// The timeout of name resolution, connection and handshake together.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);

/// A request without a response. The messages are those of the real server.
#[derive(Debug, thiserror::Error)]
pub(super) enum SendError {
    #[error("address not allowed")]
    NotAllowed,
    #[error("dial tcp {0}: {1}")]
    Dial(HostPort, std::io::Error),
    #[error("dial tcp {0}: i/o timeout")]
    TimedOut(HostPort),
    #[error("tls: {0}")]
    Tls(std::io::Error),
    #[error("{0}")]
    Http(#[from] hyper::Error),
}

/// The TLS configurations for connections to backends.
#[derive(Debug)]
pub(crate) struct Backends {
    kubelet: Arc<ClientConfig>,
    kubelet_unverified: Arc<ClientConfig>,
    unverified: Arc<ClientConfig>,
}

impl Backends {
    /// Creates the client certificate that kubelets require.
    pub(crate) fn new(
        authority: &Authority,
        clock: &Clock,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, String> {
        let verifying = Verifier::of(authority.certificate(), clock.clone(), Arc::clone(provider))?;
        let accepting_any = || Verifier::accepting_any(Arc::clone(provider));
        Ok(Self {
            kubelet: Arc::new(as_kubelet_client(authority, clock.now(), verifying, provider)?),
            kubelet_unverified: Arc::new(as_kubelet_client(
                authority,
                clock.now(),
                accepting_any(),
                provider,
            )?),
            unverified: Arc::new(config(accepting_any(), provider)?.with_no_client_auth()),
        })
    }

    /// Sends one request on a new connection and returns the head of the response; its body is streamed.
    pub(super) async fn send(
        &self,
        streams: &Streams,
        permit: StreamPermit,
        location: &Location,
        request: Request<Body>,
    ) -> Result<Response<Incoming>, SendError> {
        let host_port = &location.host_port;
        let config = match location.channel {
            Channel::Plain => None,
            Channel::Kubelet => Some(&self.kubelet),
            Channel::KubeletUnverified => Some(&self.kubelet_unverified),
            Channel::Tls => Some(&self.unverified),
        };
        let guarded = matches!(location.channel, Channel::Plain | Channel::Tls);
        let dialed = timeout(DIAL_TIMEOUT, async {
            let stream = connect(host_port, guarded).await?;
            Ok::<_, SendError>(match config {
                None => Connection::Plain(stream),
                Some(config) => Connection::Tls(Box::new(secure(host_port, stream, config).await?)),
            })
        });
        match dialed.await.map_err(|_| SendError::TimedOut(host_port.clone()))?? {
            Connection::Plain(stream) => exchange(streams, permit, stream, request).await,
            Connection::Tls(stream) => exchange(streams, permit, stream, request).await,
        }
    }
}

enum Connection {
    Plain(TcpStream),
    Tls(Box<tokio_rustls::client::TlsStream<TcpStream>>),
}

fn config(
    verifier: Verifier,
    provider: &Arc<CryptoProvider>,
) -> Result<rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert>, String> {
    let builder = ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)))
}

fn as_kubelet_client(
    authority: &Authority,
    now: Timestamp,
    verifier: Verifier,
    provider: &Arc<CryptoProvider>,
) -> Result<ClientConfig, String> {
    let validity = Validity::starting(now, CLIENT_LIFETIME);
    let own = authority.client(CLIENT, Some(MASTERS), validity).map_err(|error| error.to_string())?;
    let certificate =
        CertificateDer::from_pem_slice(own.certificate.as_bytes()).map_err(|error| error.to_string())?;
    let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).map_err(|error| error.to_string())?;
    config(verifier, provider)?
        .with_client_auth_cert(vec![certificate], key)
        .map_err(|error| error.to_string())
}

/// Connects to the first reachable address. If `guarded`, addresses that are only valid on this machine are refused, because
/// the status of a pod can contain any address.
async fn connect(host_port: &HostPort, guarded: bool) -> Result<TcpStream, SendError> {
    let failed = |error| SendError::Dial(host_port.clone(), error);
    let addresses: Vec<SocketAddr> =
        lookup_host((host_port.host.as_str(), host_port.port)).await.map_err(failed)?.collect();
    if guarded && !addresses.iter().all(|address| is_global(address.ip())) {
        return Err(SendError::NotAllowed);
    }
    let stream = TcpStream::connect(addresses.as_slice()).await.map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    Ok(stream)
}

fn is_global(address: IpAddr) -> bool {
    let local = match address {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_unicast_link_local() || v6.to_ipv4_mapped().is_some(),
    };
    !local && !address.is_unspecified() && !address.is_loopback() && !address.is_multicast()
}

async fn secure(
    host_port: &HostPort,
    stream: TcpStream,
    config: &Arc<ClientConfig>,
) -> Result<tokio_rustls::client::TlsStream<TcpStream>, SendError> {
    let name = ServerName::try_from(host_port.host.clone())
        .map_err(|error| SendError::Dial(host_port.clone(), std::io::Error::other(error)))?;
    TlsConnector::from(Arc::clone(config)).connect(name, stream).await.map_err(SendError::Tls)
}

async fn exchange(
    streams: &Streams,
    permit: StreamPermit,
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    request: Request<Body>,
) -> Result<Response<Incoming>, SendError> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    streams.run(permit, async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(err = %error, "connection to a backend failed");
        }
    });
    Ok(sender.send_request(request).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_link_local_and_multicast_addresses_are_not_global() {
        for (address, expected) in [
            ("10.0.0.1", true),
            ("192.168.1.1", true),
            ("fd00::1", true),
            ("127.0.0.1", false),
            ("169.254.169.254", false),
            ("0.0.0.0", false),
            ("224.0.0.1", false),
            ("255.255.255.255", false),
            ("::1", false),
            ("fe80::1", false),
            ("::ffff:127.0.0.1", false),
        ] {
            assert_eq!(is_global(address.parse().unwrap()), expected, "{address}");
        }
    }
}
