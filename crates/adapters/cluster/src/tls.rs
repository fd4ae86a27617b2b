//! TLS of the API client: CA bundle and client certificate, both of which may change while connections are open.
//!
//! Every change creates a new configuration with a higher version. Connections store their version, so that the pool can
//! detect outdated ones. A new configuration is created, instead of resolving the certificate at each handshake, because
//! resumed TLS sessions keep the identity they began with.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};

use crate::access::{Access, Content, IdentitySource, Trust};
use crate::error::AccessError;

/// Paths of the CA bundles of distributions; the first that exists is used.
const TRUSTED: [&str; 2] = ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"];

/// A client certificate with its intermediates and its key.
pub struct ClientIdentity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl fmt::Debug for ClientIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientIdentity").field("certificates", &self.chain.len()).finish_non_exhaustive()
    }
}

impl Clone for ClientIdentity {
    fn clone(&self) -> Self {
        Self { chain: self.chain.clone(), key: self.key.clone_key() }
    }
}

impl ClientIdentity {
    /// Parses PEM; certificate and key may be in one text, passed twice.
    ///
    /// # Errors
    /// It contains no certificate or no key.
    pub fn from_pem(certificate: &[u8], key: &[u8]) -> Result<Self, AccessError> {
        let chain: Vec<_> =
            CertificateDer::pem_slice_iter(certificate).collect::<Result<_, _>>().map_err(|error| {
                AccessError::new(format!("failed to parse the client certificate as PEM: {error}"))
            })?;
        if chain.is_empty() {
            return Err(AccessError::new("the client certificate has no PEM block CERTIFICATE"));
        }
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| {
            AccessError::new(format!("the client key has no PEM block with a private key: {error}"))
        })?;
        Ok(Self { chain, key })
    }
}

/// The TLS configuration of one [`Access`].
pub(crate) struct Tls {
    trust: Trust,
    identity: Option<IdentitySource>,
    http2: bool,
    state: Mutex<State>,
}

struct State {
    authorities: Vec<u8>,
    identity_pem: Option<(Vec<u8>, Vec<u8>)>,
    identity: Option<ClientIdentity>,
    config: Arc<ClientConfig>,
    version: u64,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("trust", &self.trust)
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads the files of the access.
    pub(crate) fn new(access: &Access, http2: bool) -> Result<Self, AccessError> {
        let authorities = read_authorities(&access.trust)?;
        let identity_pem = access.identity.as_ref().map(read_identity).transpose()?;
        let identity =
            identity_pem.as_ref().map(|(cert, key)| ClientIdentity::from_pem(cert, key)).transpose()?;
        let config = configure(&access.trust, &authorities, identity.as_ref(), http2)?;
        let state = State { authorities, identity_pem, identity, config, version: 0 };
        Ok(Self {
            trust: access.trust.clone(),
            identity: access.identity.clone(),
            http2,
            state: Mutex::new(state),
        })
    }

    pub(crate) fn current(&self) -> (Arc<ClientConfig>, u64) {
        let state = self.state.lock();
        (Arc::clone(&state.config), state.version)
    }

    pub(crate) fn version(&self) -> u64 {
        self.state.lock().version
    }

    /// Uses this client certificate for new connections.
    pub(crate) fn set_identity(&self, identity: ClientIdentity) -> Result<(), AccessError> {
        let mut state = self.state.lock();
        state.config = configure(&self.trust, &state.authorities, Some(&identity), self.http2)?;
        state.identity = Some(identity);
        state.version += 1;
        drop(state);
        Ok(())
    }

    /// Reads the files again, and returns whether they have changed. Invalid files change nothing.
    pub(crate) fn reload(&self) -> Result<bool, AccessError> {
        let authorities = read_authorities(&self.trust)?;
        let identity_pem = self.identity.as_ref().map(read_identity).transpose()?;
        let mut state = self.state.lock();
        let same_identity = state.identity_pem == identity_pem;
        if state.authorities == authorities && same_identity {
            return Ok(false);
        }
        let identity = match &identity_pem {
            Some((certificate, key)) if !same_identity => Some(ClientIdentity::from_pem(certificate, key)?),
            Some(_) | None => state.identity.clone(),
        };
        state.config = configure(&self.trust, &authorities, identity.as_ref(), self.http2)?;
        (state.authorities, state.identity_pem, state.identity) = (authorities, identity_pem, identity);
        state.version += 1;
        drop(state);
        Ok(true)
    }
}

/// A configuration with the CAs of this machine and without a client certificate, for HTTPS proxies.
pub(crate) fn for_proxies() -> Result<Arc<ClientConfig>, AccessError> {
    configure(&Trust::System, &read_authorities(&Trust::System)?, None, false)
}

impl Content {
    pub(crate) fn read(&self) -> Result<Vec<u8>, AccessError> {
        match self {
            Self::Inline(content) => Ok(content.clone()),
            Self::File(path) => std::fs::read(path).map_err(|error| AccessError::unreadable(path, &error)),
        }
    }
}

fn read_identity(source: &IdentitySource) -> Result<(Vec<u8>, Vec<u8>), AccessError> {
    Ok((source.certificate.read()?, source.key.read()?))
}

fn read_authorities(trust: &Trust) -> Result<Vec<u8>, AccessError> {
    match trust {
        Trust::Anyone => Ok(Vec::new()),
        Trust::Authorities(content) => content.read(),
        Trust::System => {
            let found = TRUSTED.map(PathBuf::from).iter().find_map(|path| std::fs::read(path).ok());
            found.ok_or_else(|| {
                let paths = TRUSTED.join(", ");
                AccessError::new(format!(
                    "no certificate authority is configured, and none of {paths} can be read"
                ))
            })
        }
    }
}

fn configure(
    trust: &Trust,
    authorities: &[u8],
    identity: Option<&ClientIdentity>,
    http2: bool,
) -> Result<Arc<ClientConfig>, AccessError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| AccessError::new(format!("tls: {error}")))?;
    let builder = match trust {
        Trust::Anyone => {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AcceptAny { provider }))
        }
        Trust::Authorities(_) | Trust::System => builder.with_root_certificates(roots(trust, authorities)?),
    };
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            builder.with_client_auth_cert(identity.chain.clone(), identity.key.clone_key()).map_err(
                |error| AccessError::new(format!("the client certificate does not match its key: {error}")),
            )?
        }
    };
    if http2 {
        config.alpn_protocols.push(b"h2".to_vec());
    }
    config.alpn_protocols.push(b"http/1.1".to_vec());
    Ok(Arc::new(config))
}

fn roots(trust: &Trust, authorities: &[u8]) -> Result<RootCertStore, AccessError> {
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_slice_iter(authorities).filter_map(Result::ok);
    let (added, _unusable) = roots.add_parsable_certificates(certificates);
    if added == 0 {
        let what = match trust {
            Trust::Authorities(Content::File(path)) => path.display().to_string(),
            Trust::Authorities(Content::Inline(_)) | Trust::System | Trust::Anyone => {
                "the certificate authority".to_owned()
            }
        };
        return Err(AccessError::new(format!("no usable PEM block CERTIFICATE in {what}")));
    }
    Ok(roots)
}

/// For `insecure-skip-tls-verify`.
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
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
