//! TLS client: verifies certificates, or accepts any certificate.
//!
//! Shares nothing with the TLS of the API client (`cluster::tls`): adapters do not depend on each other, and what looks alike differs.
//! That one verifies the signatures of a handshake although it accepts any certificate, resumes sessions and reloads its files.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use ports::net::NetError;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::url::bare_host;

/// The first bytes of a plain HTTP response.
const PLAIN: [u8; 5] = *b"HTTP/";

/// Both TLS configurations, each created on first use.
pub(crate) struct Tls {
    trusted: Vec<PathBuf>,
    verifying: OnceLock<Result<Arc<ClientConfig>, String>>,
    accepting: OnceLock<Result<Arc<ClientConfig>, String>>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("trusted", &self.trusted).finish_non_exhaustive()
    }
}

impl Tls {
    pub(crate) fn new(trusted: Vec<PathBuf>) -> Self {
        Self { trusted, verifying: OnceLock::new(), accepting: OnceLock::new() }
    }

    pub(crate) async fn connect(
        &self,
        stream: TcpStream,
        host: &str,
        verify: bool,
    ) -> Result<TlsStream<Sniffed>, NetError> {
        let config = if verify {
            self.verifying.get_or_init(|| verifying(&self.trusted))
        } else {
            self.accepting.get_or_init(accepting)
        };
        let config = config.clone().map_err(NetError::Protocol)?;
        let name = match ServerName::try_from(bare_host(host).to_owned()) {
            Ok(name) => name,
            Err(error) if verify => return Err(NetError::Invalid(format!("{host}: {error}"))),
            // There is no name to send, and without verification none is compared.
            Err(_) => ServerName::from(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        };
        let sniffed = Sniffed { stream, first: [0; 5], seen: 0 };
        let handshake = TlsConnector::from(config).connect(name, sniffed).into_fallible();
        handshake.await.map_err(|(error, sniffed)| match sniffed.first {
            PLAIN => NetError::PlainHttpServer,
            _ => NetError::Protocol(format!("tls: {error}")),
        })
    }
}

fn builder() -> Result<rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("tls: {error}"))
}

fn verifying(trusted: &[PathBuf]) -> Result<Arc<ClientConfig>, String> {
    let names: Vec<_> = trusted.iter().map(|path| path.display().to_string()).collect();
    let pem = trusted
        .iter()
        .find_map(|path| std::fs::read(path).ok())
        .ok_or_else(|| format!("tls: no trusted certificates: none of {} can be read", names.join(", ")))?;
    let mut roots = RootCertStore::empty();
    let (added, _unusable) =
        roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok));
    if added == 0 {
        return Err(format!("tls: no trusted certificates in {}", names.join(", ")));
    }
    Ok(without_sessions(builder()?.with_root_certificates(roots).with_no_client_auth()))
}

fn accepting() -> Result<Arc<ClientConfig>, String> {
    let config = builder()?;
    let verifier = Arc::new(AcceptAny { provider: Arc::clone(config.crypto_provider()) });
    Ok(without_sessions(config.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()))
}

/// No session is resumed: each probe is a new client, as the server's next one will be, and nothing is kept between probes.
fn without_sessions(mut config: ClientConfig) -> Arc<ClientConfig> {
    config.resumption = Resumption::disabled();
    Arc::new(config)
}

/// For probes, which do not verify certificates.
#[derive(Debug)]
struct AcceptAny {
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AcceptAny {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// A connection that records the first bytes it received.
#[derive(Debug)]
pub(crate) struct Sniffed {
    stream: TcpStream,
    first: [u8; 5],
    seen: usize,
}

impl AsyncRead for Sniffed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let seen = self.seen;
        let fresh = buffer.filled().get(before..).unwrap_or_default();
        for (slot, byte) in self.first.iter_mut().skip(seen).zip(fresh) {
            *slot = *byte;
        }
        self.seen = seen.saturating_add(fresh.len());
        polled
    }
}

impl AsyncWrite for Sniffed {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, content: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, content)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
