//! Whether the certificate that a kubelet shows is good. One that our authority signed must be; of any other nothing is
//! asked, as by a real server that was given no `--kubelet-certificate-authority`.

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
    ours: Option<Ours>,
    provider: Arc<CryptoProvider>,
}

/// What our authority signed.
#[derive(Debug)]
struct Ours {
    rules: Arc<WebPkiServerVerifier>,
    /// The authority's subject, DER.
    issuer: Vec<u8>,
    clock: Clock,
}

impl Verifier {
    /// Holds certificates of `authority` to what they say.
    pub(super) fn of(
        authority: &CertificateDer<'static>,
        clock: Clock,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, String> {
        let (_, own) = X509Certificate::from_der(authority).map_err(|error| error.to_string())?;
        let issuer = own.subject().as_raw().to_vec();
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone()).map_err(|error| error.to_string())?;
        let rules = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Self { ours: Some(Ours { rules, issuer, clock }), provider })
    }

    /// Takes any certificate whose holder has its key.
    pub(super) fn of_nobody(provider: Arc<CryptoProvider>) -> Self {
        Self { ours: None, provider }
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
        let Some(ours) = &self.ours else { return Ok(ServerCertVerified::assertion()) };
        let (_, certificate) =
            X509Certificate::from_der(own).map_err(|_| Error::from(CertificateError::BadEncoding))?;
        if certificate.issuer().as_raw() != ours.issuer {
            return Ok(ServerCertVerified::assertion());
        }
        let seconds =
            u64::try_from(ours.clock.now().as_second()).map_err(|_| Error::FailedToGetCurrentTime)?;
        let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        ours.rules.verify_server_cert(own, intermediates, name, ocsp, now)
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

    fn is_good(verifier: &Verifier, certificate: &CertificateDer<'_>, name: &str) -> bool {
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let at = UnixTime::since_unix_epoch(Duration::ZERO);
        verifier.verify_server_cert(certificate, &[], &name, &[], at).is_ok()
    }

    #[test]
    fn what_our_authority_signed_must_be_good() {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let authority = Authority::generate(now()).unwrap();
        let verifier = |clock| Verifier::of(authority.certificate(), clock, Arc::clone(&provider)).unwrap();
        let (today, own) = (verifier(Clock::from_fn(now)), serving(&authority));
        assert!(is_good(&today, &own, "127.0.0.1") && is_good(&today, &own, "n"));
        assert!(!is_good(&today, &own, "127.0.0.2"), "another host's certificate");
        let in_two_years = verifier(Clock::from_fn(|| Timestamp::from_second(1_863_072_000).unwrap()));
        assert!(!is_good(&in_two_years, &own, "n"), "an expired certificate");
        let forged = serving(&Authority::generate(now()).unwrap());
        assert!(!is_good(&today, &forged, "n"), "one that only says it is of our authority");
        assert!(is_good(&Verifier::of_nobody(provider), &forged, "n"));
    }

    #[test]
    fn nothing_is_asked_of_a_certificate_of_others() {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let authority = Authority::generate(now()).unwrap();
        let verifier = Verifier::of(authority.certificate(), Clock::from_fn(now), provider).unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(["elsewhere".to_owned()]).unwrap();
        let own = params.self_signed(&key).unwrap();
        assert!(is_good(&verifier, own.der(), "n"));
    }
}
