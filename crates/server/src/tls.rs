//! TLS of the main port: the serving certificate, the client CA, cipher suites and curves.
//!
//! The handshake requests a client certificate and accepts any; it is verified for each request (`access`), so that a
//! certificate that expires, or whose CA is removed, is also rejected on an open connection.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{
    CipherSuite, DigitallySignedStruct, DistinguishedName, NamedGroup, RootCertStore, ServerConfig,
    SignatureScheme,
};
use tokio::sync::watch;

/// Invalid TLS configuration.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("failed to parse the serving certificate: {0}")]
    Chain(String),
    #[error("failed to parse the key of the serving certificate: {0}")]
    Key(String),
    #[error("the serving certificate does not match its key: {0}")]
    Pair(String),
    #[error("failed to parse the client CA: {0}")]
    ClientCa(String),
    #[error("{field}: none of {given:?} is supported, supported values are {}", known.join(", "))]
    NothingLeft { field: &'static str, given: Vec<String>, known: Vec<String> },
    #[error("TLS: {0}")]
    Other(String),
}

/// A certificate chain with its key.
#[derive(Clone)]
pub struct ServingPair(Arc<CertifiedKey>);

impl fmt::Debug for ServingPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServingPair").finish_non_exhaustive()
    }
}

impl ServingPair {
    /// Parses PEM: the chain with the server's own certificate first, and the key.
    ///
    /// # Errors
    /// One of them cannot be parsed, or they do not match.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, TlsError> {
        let chain = certificates(chain).map_err(TlsError::Chain)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| TlsError::Key(error.to_string()))?;
        let pair = CertifiedKey::from_der(chain, key, &ring::default_provider());
        pair.map(|pair| Self(Arc::new(pair))).map_err(|error| TlsError::Pair(error.to_string()))
    }
}

/// The CA of client certificates.
#[derive(Clone, Debug)]
pub struct ClientCa(Arc<dyn ClientCertVerifier>);

impl ClientCa {
    /// Parses PEM: one or more certificates, each of which is trusted.
    ///
    /// # Errors
    /// It cannot be parsed, or contains no usable certificate.
    pub fn from_pem(bundle: &[u8]) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(bundle).map_err(TlsError::ClientCa)? {
            roots.add(certificate).map_err(|error| TlsError::ClientCa(error.to_string()))?;
        }
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
        verifier.map(Self).map_err(|error| TlsError::ClientCa(error.to_string()))
    }

    /// Verifies that the chain (the client's own certificate first) is signed by the CA and valid at `now`.
    pub(crate) fn check(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> Result<(), String> {
        let [own, intermediates @ ..] = chain else { return Err("no certificate".to_owned()) };
        self.0.verify_client_cert(own, intermediates, now).map(|_| ()).map_err(|error| error.to_string())
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let found = found.map_err(|error| error.to_string())?;
    if found.is_empty() { Err("it contains no certificate".to_owned()) } else { Ok(found) }
}

/// The TLS fields of the configuration.
#[derive(Clone, Debug, Default)]
pub(crate) struct TlsSettings {
    /// `tlsMinVersion`; empty means 1.2, which is also the lowest supported version.
    pub(crate) min_version: String,
    /// `tlsCipherSuites`, for TLS 1.2; those of 1.3 are always offered. Empty: all.
    pub(crate) cipher_suites: Vec<String>,
    /// `tlsCurvePreferences`, the preferred first. Empty: all.
    pub(crate) curves: Vec<String>,
}

/// Uses the latest pair for each handshake; without one, handshakes fail.
pub(crate) fn server_config(
    settings: &TlsSettings,
    pair: watch::Receiver<Option<ServingPair>>,
) -> Result<Arc<ServerConfig>, TlsError> {
    let mut provider = ring::default_provider();
    choose_suites(settings, &mut provider)?;
    choose_curves(settings, &mut provider)?;
    let provider = Arc::new(provider);
    let versions: &[_] = match settings.min_version.as_str() {
        "VersionTLS13" => &[&rustls::version::TLS13],
        _ => &[&rustls::version::TLS12, &rustls::version::TLS13],
    };
    let mut config = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions)
        .map_err(|error| TlsError::Other(error.to_string()))?
        .with_client_cert_verifier(Arc::new(AcceptAnyClientCertificate(provider)))
        .with_cert_resolver(Arc::new(Latest(pair)));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // No session is resumed. Each one that may be has the client's whole chain, which would be kept for 256 of them after their
    // connections; and neither the API server nor Prometheus asks for it.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// The name in the configuration: `TLS_AES_128_GCM_SHA256`, `TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256`.
fn suite_name(suite: CipherSuite) -> String {
    suite.as_str().unwrap_or_default().replacen("TLS13_", "TLS_", 1)
}

fn choose_suites(settings: &TlsSettings, provider: &mut CryptoProvider) -> Result<(), TlsError> {
    let given = &settings.cipher_suites;
    if given.is_empty() {
        return Ok(());
    }
    let known: Vec<String> = provider.cipher_suites.iter().map(|suite| suite_name(suite.suite())).collect();
    let is_meant = |name: &str| given.iter().any(|g| g == name || format!("{g}_SHA256") == name);
    for missing in given.iter().filter(|g| !known.iter().any(|k| k == *g || *k == format!("{g}_SHA256"))) {
        tracing::warn!(suite = missing, "Ignoring unsupported cipher suite in tlsCipherSuites");
    }
    if !known.iter().any(|name| is_meant(name)) {
        return Err(TlsError::NothingLeft { field: "tlsCipherSuites", given: given.clone(), known });
    }
    provider.cipher_suites.retain(|suite| suite.tls13().is_some() || is_meant(&suite_name(suite.suite())));
    Ok(())
}

fn choose_curves(settings: &TlsSettings, provider: &mut CryptoProvider) -> Result<(), TlsError> {
    let given = &settings.curves;
    if given.is_empty() {
        return Ok(());
    }
    let mut chosen = Vec::new();
    for name in given {
        let group = curve(name).and_then(|curve| provider.kx_groups.iter().find(|g| g.name() == curve));
        match group {
            Some(group) => chosen.push(*group),
            None => tracing::warn!(curve = name, "Ignoring unsupported curve in tlsCurvePreferences"),
        }
    }
    if chosen.is_empty() {
        let known = CURVES.iter().map(|(name, ..)| (*name).to_owned()).collect();
        return Err(TlsError::NothingLeft { field: "tlsCurvePreferences", given: given.clone(), known });
    }
    provider.kx_groups = chosen;
    Ok(())
}

/// Name and number of each curve in TLS.
const CURVES: [(&str, &str, NamedGroup); 3] = [
    ("X25519", "29", NamedGroup::X25519),
    ("CurveP256", "23", NamedGroup::secp256r1),
    ("CurveP384", "24", NamedGroup::secp384r1),
];

fn curve(given: &str) -> Option<NamedGroup> {
    CURVES.iter().find(|(name, number, _)| [*name, *number].contains(&given)).map(|(.., group)| *group)
}

/// Resolves to the latest pair for any server name.
struct Latest(watch::Receiver<Option<ServingPair>>);

impl fmt::Debug for Latest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Latest").finish_non_exhaustive()
    }
}

impl ResolvesServerCert for Latest {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.borrow().as_ref().map(|pair| Arc::clone(&pair.0))
    }
}

/// Limits for the certificate chain of a client and its bytes, which are kept as long as the connection lives.
const MAX_CHAIN: usize = 8;
const MAX_CHAIN_BYTES: usize = 16 << 10;

/// Requests a client certificate, accepts any whose key the client has, and also none.
#[derive(Debug)]
struct AcceptAnyClientCertificate(Arc<CryptoProvider>);

impl ClientCertVerifier for AcceptAnyClientCertificate {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        own: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let bytes = intermediates.iter().map(|certificate| certificate.len()).sum::<usize>() + own.len();
        if intermediates.len() >= MAX_CHAIN || bytes > MAX_CHAIN_BYTES {
            return Err(rustls::Error::InvalidCertificate(
                rustls::CertificateError::ApplicationVerificationFailure,
            ));
        }
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn offered(settings: &TlsSettings) -> Result<(Vec<String>, Vec<NamedGroup>), TlsError> {
        let config = server_config(settings, watch::channel(None).1)?;
        let provider = config.crypto_provider();
        let suites = provider.cipher_suites.iter().map(|suite| suite_name(suite.suite())).collect();
        Ok((suites, provider.kx_groups.iter().map(|group| group.name()).collect()))
    }

    fn texts(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn cipher_suites_restrict_tls12_and_not_tls13() {
        let names = ["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_RSA_WITH_AES_128_CBC_SHA"];
        let settings = TlsSettings { cipher_suites: texts(&names), ..TlsSettings::default() };
        let (suites, _) = offered(&settings).unwrap();
        assert_eq!(
            suites,
            [
                "TLS_AES_256_GCM_SHA384",
                "TLS_AES_128_GCM_SHA256",
                "TLS_CHACHA20_POLY1305_SHA256",
                "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
            ]
        );
        let settings =
            TlsSettings { cipher_suites: texts(&["TLS_RSA_WITH_RC4_128_SHA"]), ..TlsSettings::default() };
        let refused = offered(&settings).unwrap_err().to_string();
        assert!(refused.starts_with("tlsCipherSuites: none of"), "{refused}");
    }

    #[test]
    fn cipher_suite_may_be_named_without_its_hash() {
        let name = "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305";
        let settings = TlsSettings { cipher_suites: texts(&[name]), ..TlsSettings::default() };
        assert!(offered(&settings).unwrap().0.contains(&format!("{name}_SHA256")));
    }

    /// The server's error for a client that supports at most TLS 1.2, before there is a certificate.
    fn answer_to_tls12(min_version: &str) -> rustls::Error {
        let settings = TlsSettings { min_version: min_version.to_owned(), ..TlsSettings::default() };
        let server = server_config(&settings, watch::channel(None).1).unwrap();
        let client = rustls::ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS12])
            .unwrap()
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        let mut client = rustls::ClientConnection::new(Arc::new(client), "node".try_into().unwrap()).unwrap();
        let mut hello = Vec::new();
        client.write_tls(&mut hello).unwrap();
        let mut server = rustls::ServerConnection::new(server).unwrap();
        server.read_tls(&mut hello.as_slice()).unwrap();
        server.process_new_packets().unwrap_err()
    }

    #[test]
    fn clients_below_the_minimum_tls_version_are_rejected() {
        let is_too_old = |error: &rustls::Error| matches!(error, rustls::Error::PeerIncompatible(_));
        assert!(is_too_old(&answer_to_tls12("VersionTLS13")));
        for allowed in ["", "VersionTLS12"] {
            let lacks_certificate = answer_to_tls12(allowed);
            assert!(!is_too_old(&lacks_certificate), "{lacks_certificate}");
        }
    }

    /// A certificate for `node` that signs itself, and a client that trusts it and would resume its sessions.
    fn pair_and_client(
        version: &'static rustls::SupportedProtocolVersion,
    ) -> (ServingPair, Arc<rustls::ClientConfig>) {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate =
            rcgen::CertificateParams::new(vec!["node".to_owned()]).unwrap().self_signed(&key).unwrap();
        let pair =
            ServingPair::from_pem(certificate.pem().as_bytes(), key.serialize_pem().as_bytes()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(certificate.der().clone()).unwrap();
        let client = rustls::ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        (pair, Arc::new(client))
    }

    /// Whether the handshake of a new connection was a full one.
    fn handshake(
        client: &Arc<rustls::ClientConfig>,
        server: &Arc<ServerConfig>,
    ) -> Option<rustls::HandshakeKind> {
        let mut client =
            rustls::ClientConnection::new(Arc::clone(client), "node".try_into().unwrap()).unwrap();
        let mut server = rustls::ServerConnection::new(Arc::clone(server)).unwrap();
        // The last round brings the tickets, which follow the handshake.
        for _ in 0..4 {
            let mut sent = Vec::new();
            while client.wants_write() {
                client.write_tls(&mut sent).unwrap();
            }
            server.read_tls(&mut sent.as_slice()).unwrap();
            server.process_new_packets().unwrap();
            let mut sent = Vec::new();
            while server.wants_write() {
                server.write_tls(&mut sent).unwrap();
            }
            client.read_tls(&mut sent.as_slice()).unwrap();
            client.process_new_packets().unwrap();
        }
        assert!(!client.is_handshaking() && !server.is_handshaking());
        server.handshake_kind()
    }

    #[test]
    fn no_session_is_kept_for_a_client_that_would_resume_it() {
        for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
            let (pair, client) = pair_and_client(version);
            let (_sender, pair) = watch::channel(Some(pair));
            let server = server_config(&TlsSettings::default(), pair).unwrap();
            for _ in 0..2 {
                assert_eq!(handshake(&client, &server), Some(rustls::HandshakeKind::Full));
            }
        }
    }

    #[test]
    fn tls_curves_keep_the_order_of_the_configuration() {
        let settings =
            TlsSettings { curves: texts(&["CurveP384", "CurveP521", "29"]), ..TlsSettings::default() };
        assert_eq!(offered(&settings).unwrap().1, [NamedGroup::secp384r1, NamedGroup::X25519]);
        let settings = TlsSettings { curves: texts(&["CurveP521"]), ..TlsSettings::default() };
        let refused = offered(&settings).unwrap_err().to_string();
        assert!(refused.ends_with("supported values are X25519, CurveP256, CurveP384"), "{refused}");
    }

    #[test]
    fn client_certificate_chain_is_bounded() {
        let verifier = AcceptAnyClientCertificate(Arc::new(ring::default_provider()));
        let taken = |own: usize, intermediates: &[usize]| {
            let certificate = |length: usize| CertificateDer::from(vec![0; length]);
            let chain: Vec<_> = intermediates.iter().map(|length| certificate(*length)).collect();
            verifier
                .verify_client_cert(&certificate(own), &chain, UnixTime::since_unix_epoch(Duration::ZERO))
                .is_ok()
        };
        assert!(taken(1000, &[]) && taken(2000, &[2000, 2000, 2000, 2000]));
        assert!(!taken(20 << 10, &[]) && !taken(1000, &[8 << 10, 8 << 10]) && !taken(10, &[10; 20]));
    }

    #[test]
    fn invalid_certificates_are_rejected_with_their_role() {
        let refused = |outcome: Result<ServingPair, TlsError>| outcome.unwrap_err().to_string();
        assert!(refused(ServingPair::from_pem(b"", b"")).contains("it contains no certificate"));
        assert!(ClientCa::from_pem(b"nonsense").unwrap_err().to_string().contains("the client CA"));
    }
}
