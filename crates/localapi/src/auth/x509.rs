//! Client certificates. The handshake takes any certificate whose holder has its key, as the real server does; whether
//! our authority signed it and whether it is still good is asked at each request, so that a certificate that expires on
//! an open connection stops working.

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

/// Checks chains against one authority.
#[derive(Clone, Debug)]
pub(crate) struct ClientCertificates(Arc<dyn ClientCertVerifier>);

/// The authority's certificate cannot be trusted at all.
#[derive(Debug, thiserror::Error)]
#[error("the authority's certificate cannot be used to check clients: {0}")]
pub(crate) struct BadAuthority(String);

impl ClientCertificates {
    pub(crate) fn of(
        authority: &CertificateDer<'static>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, BadAuthority> {
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone()).map_err(|error| BadAuthority(error.to_string()))?;
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map(Self)
            .map_err(|error| BadAuthority(error.to_string()))
    }

    /// The user of a chain (its own certificate first), or why it is not believed.
    pub(crate) fn user(&self, chain: &[CertificateDer<'_>], now: Timestamp) -> Result<User, String> {
        let [own, intermediates @ ..] = chain else { return Err("no certificate".to_owned()) };
        let seconds = u64::try_from(now.as_second()).map_err(|_| "the clock is before 1970".to_owned())?;
        let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
        self.0.verify_client_cert(own, intermediates, now).map_err(|error| error.to_string())?;
        let (_, certificate) = X509Certificate::from_der(own).map_err(|error| error.to_string())?;
        user_of(certificate.subject()).ok_or_else(|| "the certificate names no user".to_owned())
    }

    /// For the handshake: asks for a certificate, and takes none for an answer.
    pub(crate) fn for_handshake(&self) -> Arc<dyn ClientCertVerifier> {
        Arc::new(AskAndTake(Arc::clone(&self.0)))
    }
}

/// CN is the user, each O a group.
pub(crate) fn user_of(subject: &X509Name<'_>) -> Option<User> {
    let name = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
    let groups = subject.iter_organization().filter_map(|group| group.as_str().ok()).map(str::to_owned);
    Some(User::new(name, groups))
}

/// Leaves the judgement of the chain to each request.
#[derive(Debug)]
struct AskAndTake(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for AskAndTake {
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

    fn checker(authority: &Authority) -> ClientCertificates {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        ClientCertificates::of(authority.certificate(), provider).unwrap()
    }

    #[test]
    fn a_certificate_names_a_user_and_groups_until_it_expires() {
        let authority = Authority::generate(at(0)).unwrap();
        let (checker, own) = (checker(&authority), [chain(&authority, 120)]);
        let user = checker.user(&own, at(100)).unwrap();
        assert_eq!(user.name, "system:node:n");
        assert_eq!(user.groups, ["system:nodes"]);
        assert_eq!(user.node(), Some("n"));
        assert!(checker.user(&own, at(121)).unwrap_err().contains("xpired"));
    }

    #[test]
    fn a_stranger_is_not_believed() {
        let stranger = Authority::generate(at(0)).unwrap();
        let checker = checker(&Authority::generate(at(0)).unwrap());
        assert!(checker.user(&[chain(&stranger, 120)], at(1)).is_err());
        assert!(checker.user(&[], at(1)).is_err());
    }
}
