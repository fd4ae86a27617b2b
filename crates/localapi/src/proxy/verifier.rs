//! Verifies the serving certificates of kubelets. A certificate of this cluster's authority must be valid; any other is
//! accepted, as by a real server without `--kubelet-certificate-authority`.

use std::sync::Arc;
use std::time::Duration;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::clock::Clock;

#[derive(Debug)]
pub(super) struct Verifier {
    own_authority: Option<OwnAuthority>,
    provider: Arc<CryptoProvider>,
}

/// Verifies certificates of the cluster's authority.
#[derive(Debug)]
struct OwnAuthority {
    verifier: Arc<WebPkiServerVerifier>,
    /// The authority's subject, DER.
    issuer: Vec<u8>,
    clock: Clock,
}

impl Verifier {
    /// Verifies certificates of `authority`, and accepts all others.
    pub(super) fn of(
        authority: &CertificateDer<'static>,
        clock: Clock,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, String> {
        let (_, own) = X509Certificate::from_der(authority).map_err(|error| error.to_string())?;
        let issuer = own.subject().as_raw().to_vec();
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone()).map_err(|error| error.to_string())?;
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Self { own_authority: Some(OwnAuthority { verifier, issuer, clock }), provider })
    }

    /// Accepts any certificate whose private key the server has.
    pub(super) fn accepting_any(provider: Arc<CryptoProvider>) -> Self {
        Self { own_authority: None, provider }
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(authority) = &self.own_authority else { return Ok(ServerCertVerified::assertion()) };
        let (_, certificate) =
            X509Certificate::from_der(own).map_err(|_| Error::from(CertificateError::BadEncoding))?;
        if certificate.issuer().as_raw() != authority.issuer {
            return Ok(ServerCertVerified::assertion());
        }
        let seconds =
            u64::try_from(authority.clock.now().as_second()).map_err(|_| Error::FailedToGetCurrentTime)?;
        let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        authority.verifier.verify_server_cert(own, intermediates, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use jiff::Timestamp;
    use rustls_pki_types::pem::PemObject;

    use super::*;
    use crate::auth::authority::Authority;

    fn now() -> Timestamp {
        Timestamp::from_second(1_800_000_000).unwrap()
    }

    fn serving(authority: &Authority) -> CertificateDer<'static> {
        let own = authority.server(&["n"], &[IpAddr::V4(Ipv4Addr::LOCALHOST)], now()).unwrap();
        CertificateDer::from_pem_slice(own.certificate.as_bytes()).unwrap()
    }

    fn is_accepted(verifier: &Verifier, certificate: &CertificateDer<'_>, name: &str) -> bool {
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let at = UnixTime::since_unix_epoch(Duration::ZERO);
        verifier.verify_server_cert(certificate, &[], &name, &[], at).is_ok()
    }

    #[test]
    fn certificate_of_the_own_authority_must_be_valid() {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let authority = Authority::generate(now()).unwrap();
        let verifier = |clock| Verifier::of(authority.certificate(), clock, Arc::clone(&provider)).unwrap();
        let (today, own) = (verifier(Clock::from_fn(now)), serving(&authority));
        assert!(is_accepted(&today, &own, "127.0.0.1") && is_accepted(&today, &own, "n"));
        assert!(!is_accepted(&today, &own, "127.0.0.2"), "another host's certificate");
        let in_two_years = verifier(Clock::from_fn(|| Timestamp::from_second(1_863_072_000).unwrap()));
        assert!(!is_accepted(&in_two_years, &own, "n"), "an expired certificate");
        let forged = serving(&Authority::generate(now()).unwrap());
        assert!(
            !is_accepted(&today, &forged, "n"),
            "a certificate that another authority of the same name signed"
        );
        assert!(is_accepted(&Verifier::accepting_any(provider), &forged, "n"));
    }

    #[test]
    fn certificate_of_another_authority_is_accepted() {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let authority = Authority::generate(now()).unwrap();
        let verifier = Verifier::of(authority.certificate(), Clock::from_fn(now), provider).unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(["elsewhere".to_owned()]).unwrap();
        let own = params.self_signed(&key).unwrap();
        assert!(is_accepted(&verifier, own.der(), "n"));
    }
}
