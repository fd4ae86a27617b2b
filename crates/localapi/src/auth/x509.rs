//! Client certificates. The TLS handshake accepts any certificate whose private key the client has, as the real server
//! does. Each request verifies the chain and the validity period, so that a certificate that expires on an open connection
//! stops working.

use std::sync::Arc;

use jiff::Timestamp;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, UnixTime};
use x509_parser::prelude::{FromDer, X509Certificate, X509Name};

use super::User;

/// Verifies certificate chains against one authority.
#[derive(Clone, Debug)]
pub(crate) struct ClientCertificates(Arc<dyn ClientCertVerifier>);

/// The certificate of the authority cannot be used as a root.
#[derive(Debug, thiserror::Error)]
#[error("the authority's certificate cannot be used to verify clients: {0}")]
pub(crate) struct InvalidAuthority(String);

impl ClientCertificates {
    pub(crate) fn of(
        authority: &CertificateDer<'static>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, InvalidAuthority> {
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone()).map_err(|error| InvalidAuthority(error.to_string()))?;
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map(Self)
            .map_err(|error| InvalidAuthority(error.to_string()))
    }

    /// The user of a chain (the client's certificate first), or why it is invalid.
    pub(crate) fn user(&self, chain: &[CertificateDer<'_>], now: Timestamp) -> Result<User, String> {
        let [own, intermediates @ ..] = chain else { return Err("no certificate".to_owned()) };
        let seconds = u64::try_from(now.as_second()).map_err(|_| "the clock is before 1970".to_owned())?;
        let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
        self.0.verify_client_cert(own, intermediates, now).map_err(|error| error.to_string())?;
        let (_, certificate) = X509Certificate::from_der(own).map_err(|error| error.to_string())?;
        user_of(certificate.subject()).ok_or_else(|| "the certificate names no user".to_owned())
    }

    /// The verifier of the handshake: requests a certificate, but does not require one.
    pub(crate) fn for_handshake(&self) -> Arc<dyn ClientCertVerifier> {
        Arc::new(OptionalCertificate(Arc::clone(&self.0)))
    }
}

/// CN is the user, each O a group.
pub(crate) fn user_of(subject: &X509Name<'_>) -> Option<User> {
    let name = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
    let groups = subject.iter_organization().filter_map(|group| group.as_str().ok()).map(str::to_owned);
    Some(User::new(name, groups))
}

/// Accepts any chain, because each request verifies it.
#[derive(Debug)]
struct OptionalCertificate(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for OptionalCertificate {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _own: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::auth::authority::{Authority, Validity};
    use rustls_pki_types::pem::PemObject;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn chain(authority: &Authority, lifetime: u64) -> CertificateDer<'static> {
        let validity = Validity::starting(at(0), Duration::from_secs(lifetime));
        let client = authority.client("system:node:n", Some("system:nodes"), validity).unwrap();
        CertificateDer::from_pem_slice(client.certificate.as_bytes()).unwrap()
    }

    fn verifier(authority: &Authority) -> ClientCertificates {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        ClientCertificates::of(authority.certificate(), provider).unwrap()
    }

    #[test]
    fn certificate_identifies_user_and_groups_until_it_expires() {
        let authority = Authority::generate(at(0)).unwrap();
        let (verifier, own) = (verifier(&authority), [chain(&authority, 120)]);
        let user = verifier.user(&own, at(100)).unwrap();
        assert_eq!(user.name, "system:node:n");
        assert_eq!(user.groups, ["system:nodes"]);
        assert_eq!(user.node(), Some("n"));
        assert!(verifier.user(&own, at(121)).unwrap_err().contains("xpired"));
    }

    #[test]
    fn certificate_of_another_authority_is_refused() {
        let other = Authority::generate(at(0)).unwrap();
        let verifier = verifier(&Authority::generate(at(0)).unwrap());
        assert!(verifier.user(&[chain(&other, 120)], at(1)).is_err());
        assert!(verifier.user(&[], at(1)).is_err());
    }
}
