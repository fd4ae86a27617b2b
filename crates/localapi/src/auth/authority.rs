//! The certificate authority: creates its own certificate, the server's and those of clients, and signs certificate
//! requests. Approval is not its task.

use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use x509_parser::time::ASN1Time;

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
/// How long before its creation a certificate is valid, for clients whose clock is behind.
const LEEWAY: Duration = Duration::from_secs(300);

/// A certificate could not be created, read or signed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AuthorityError {
    #[error("failed to {what}: {source}")]
    Rcgen { what: &'static str, source: rcgen::Error },
    #[error("time {0} is out of range for a certificate")]
    Time(Timestamp),
    #[error("failed to read the authority's certificate: {0}")]
    Pem(rustls_pki_types::pem::Error),
}

fn failed(what: &'static str) -> impl Fn(rcgen::Error) -> AuthorityError {
    move |source| AuthorityError::Rcgen { what, source }
}

/// A certificate and its key, both PEM.
#[derive(Clone)]
pub struct KeyAndCertificate {
    pub certificate: String,
    pub key: String,
}

impl std::fmt::Debug for KeyAndCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyAndCertificate").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

/// The validity period of a certificate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Validity {
    pub(crate) from: Timestamp,
    pub(crate) until: Timestamp,
}

impl Validity {
    /// Starts shortly before `now`, by half the lifetime at most.
    pub(crate) fn starting(now: Timestamp, lifetime: Duration) -> Self {
        Self { from: shifted(now, -1, LEEWAY.min(lifetime / 2)), until: shifted(now, 1, lifetime) }
    }
}

fn shifted(at: Timestamp, sign: i64, by: Duration) -> Timestamp {
    let seconds = i64::try_from(by.as_secs()).unwrap_or(i64::MAX).saturating_mul(sign);
    Timestamp::from_second(at.as_second().saturating_add(seconds)).unwrap_or(at)
}

/// The authority of one cluster.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    pem: KeyAndCertificate,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

impl Authority {
    pub(crate) fn generate(now: Timestamp) -> Result<Self, AuthorityError> {
        let key = KeyPair::generate().map_err(failed("generate the authority's key"))?;
        let mut params = CertificateParams::default();
        params.distinguished_name = subject("localapi-ca", None);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        limit(&mut params, Validity::starting(now, YEAR * 10))?;
        let certificate = params.self_signed(&key).map_err(failed("sign the authority's certificate"))?;
        Self::from_pem(KeyAndCertificate { certificate: certificate.pem(), key: key.serialize_pem() })
    }

    pub(crate) fn from_pem(pem: KeyAndCertificate) -> Result<Self, AuthorityError> {
        let key = KeyPair::from_pem(&pem.key).map_err(failed("read the authority's key"))?;
        let issuer = Issuer::from_ca_cert_pem(&pem.certificate, key)
            .map_err(failed("read the authority's certificate"))?;
        let certificate =
            CertificateDer::from_pem_slice(pem.certificate.as_bytes()).map_err(AuthorityError::Pem)?;
        Ok(Self { issuer, certificate, pem })
    }

    pub(crate) fn pem(&self) -> &KeyAndCertificate {
        &self.pem
    }

    pub(crate) fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// A client certificate for a user, in a group or in none. (`rcgen` writes one organization at most.)
    pub(crate) fn client(
        &self,
        user: &str,
        group: Option<&str>,
        validity: Validity,
    ) -> Result<KeyAndCertificate, AuthorityError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = subject(user, group);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.certify(params, validity)
    }

    /// The API server's own certificate, for these names and addresses.
    pub(crate) fn server(
        &self,
        names: &[&str],
        addresses: &[IpAddr],
        now: Timestamp,
    ) -> Result<KeyAndCertificate, AuthorityError> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).map_err(failed("name the server"))?;
        params.subject_alt_names.extend(addresses.iter().copied().map(SanType::IpAddress));
        params.distinguished_name = subject("kube-apiserver", None);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.certify(params, Validity::starting(now, YEAR))
    }

    fn certify(
        &self,
        mut params: CertificateParams,
        validity: Validity,
    ) -> Result<KeyAndCertificate, AuthorityError> {
        let key = KeyPair::generate().map_err(failed("generate a key"))?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        limit(&mut params, validity)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(failed("sign a certificate"))?;
        Ok(KeyAndCertificate { certificate: certificate.pem(), key: key.serialize_pem() })
    }

    /// Signs a request unchanged, apart from the usages and the validity of the signer; returns PEM.
    pub(crate) fn sign(
        &self,
        mut request: CertificateSigningRequestParams,
        usage: ExtendedKeyUsagePurpose,
        validity: Validity,
    ) -> Result<String, AuthorityError> {
        request.params.extended_key_usages = vec![usage];
        request.params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        request.params.is_ca = IsCa::ExplicitNoCa;
        limit(&mut request.params, validity)?;
        let certificate = request.signed_by(&self.issuer).map_err(failed("sign a request"))?;
        Ok(certificate.pem())
    }
}

fn subject(name: &str, group: Option<&str>) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    if let Some(group) = group {
        subject.push(DnType::OrganizationName, group);
    }
    subject.push(DnType::CommonName, name);
    subject
}

fn limit(params: &mut CertificateParams, validity: Validity) -> Result<(), AuthorityError> {
    let date = |at: Timestamp| {
        ASN1Time::from_timestamp(at.as_second())
            .map(|time| time.to_datetime())
            .map_err(|_| AuthorityError::Time(at))
    };
    params.not_before = date(validity.from)?;
    params.not_after = date(validity.until)?;
    params.use_authority_key_identifier_extension = true;
    Ok(())
}
