//! Generates and parses keys, signing requests and certificates. When, and for which names, is decided elsewhere.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use model::{CertificateFacts, CertificateNames, PemPair, PodKey, PodKeyType, PrivateKey};
use ports::Certificates;
use ports::certificates::CertificateResult;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, KeyPair, KeyUsagePurpose, SanType,
};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::sync::Semaphore;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::pod_keys::failed;
use crate::{encode, pod_keys};

/// Characters of a line in PEM.
const PEM_LINE: usize = 64;
/// The clocks of other machines may be behind.
const BACKDATED: Duration = Duration::from_secs(3600);

static POD_KEYS: Semaphore = Semaphore::const_new(1);

/// [`Certificates`] by X.509 and P-256.
#[derive(Clone, Copy, Debug, Default)]
pub struct X509;

#[async_trait]
impl Certificates for X509 {
    fn new_key(&self) -> CertificateResult<String> {
        Ok(key_pem(&generate()?))
    }

    async fn new_pod_key(&self, kind: PodKeyType) -> CertificateResult<PodKey> {
        // Keys of RSA take a processor for seconds. One at a time, so that many of them leave threads for the work on files.
        let _turn = POD_KEYS.acquire().await;
        let generated = tokio::task::spawn_blocking(move || pod_keys::generate(kind)).await;
        let pod_keys::SignedKey { key, request } =
            generated.map_err(|error| failed("failed to generate a key", &error))??;
        Ok(PodKey { key: PrivateKey::new(&pem("PRIVATE KEY", &key)), request })
    }

    fn key_id(&self, key: &str) -> CertificateResult<String> {
        let id = CertificateParams::default().key_identifier(&key_pair(key)?);
        Ok(id.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    fn signing_request(&self, key: &str, names: &CertificateNames) -> CertificateResult<String> {
        let key = key_pair(key)?;
        let request = params(names)?.serialize_request(&key);
        let request = request.map_err(|error| failed("failed to create a signing request", &error))?;
        Ok(pem("CERTIFICATE REQUEST", request.der()))
    }

    fn self_signed(
        &self,
        names: &CertificateNames,
        now: Timestamp,
        life: Duration,
    ) -> CertificateResult<PemPair> {
        let made = |error: rcgen::Error| failed("failed to create a certificate", &error);
        let name = format!("{}-ca@{}", names.common_name, now.as_second());
        let mut authority = params(&CertificateNames { common_name: name, ..CertificateNames::default() })?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let mut own = params(names)?;
        own.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        own.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let epoch = rcgen::date_time_ymd(1970, 1, 1);
        let seconds = Duration::from_secs(u64::try_from(now.as_second()).unwrap_or(0));
        for params in [&mut authority, &mut own] {
            params.not_before = epoch + seconds.saturating_sub(BACKDATED);
            params.not_after = epoch + seconds + life;
        }
        let issuer = CertifiedIssuer::self_signed(authority, generate()?).map_err(made)?;
        let key = generate()?;
        let certificate = own.signed_by(&key, &issuer).map_err(made)?;
        let chain = [certificate.der(), issuer.der()].map(|der| pem("CERTIFICATE", der)).concat();
        Ok(PemPair { certificate: chain, key: key_pem(&key) })
    }

    fn read(&self, pair: &PemPair) -> CertificateResult<CertificateFacts> {
        let facts = facts(pair.certificate.as_bytes())?;
        certified(&pair.certificate, &pair.key)?;
        Ok(facts)
    }
}

/// When the first certificate of a PEM text ends.
///
/// # Errors
/// There is none, or it cannot be parsed.
pub fn end_of_certificate(pem: &[u8]) -> CertificateResult<Timestamp> {
    facts(pem).map(|facts| facts.not_after)
}

/// Parses the first certificate of a PEM text, which may also contain a key.
///
/// # Errors
/// There is none, or it cannot be parsed.
fn facts(pem: &[u8]) -> CertificateResult<CertificateFacts> {
    let der =
        CertificateDer::from_pem_slice(pem).map_err(|error| failed("no PEM block CERTIFICATE", &error))?;
    let (_, certificate) =
        X509Certificate::from_der(&der).map_err(|error| failed("failed to parse the certificate", &error))?;
    let at = |seconds: i64| {
        Timestamp::from_second(seconds)
            .map_err(|error| failed("failed to parse the validity of the certificate", &error))
    };
    Ok(CertificateFacts {
        not_before: at(certificate.validity().not_before.timestamp())?,
        not_after: at(certificate.validity().not_after.timestamp())?,
        names: names(&certificate)?,
    })
}

fn names(certificate: &X509Certificate<'_>) -> CertificateResult<CertificateNames> {
    let subject = certificate.subject();
    let text = |attribute: &x509_parser::x509::AttributeTypeAndValue<'_>| {
        attribute.as_str().map(str::to_owned).unwrap_or_default()
    };
    let mut names = CertificateNames {
        common_name: subject.iter_common_name().next().map(text).unwrap_or_default(),
        organizations: subject.iter_organization().map(text).collect(),
        ..CertificateNames::default()
    };
    let alternatives = certificate
        .subject_alternative_name()
        .map_err(|error| failed("failed to parse the alternative names of the certificate", &error))?;
    for name in alternatives.iter().flat_map(|extension| &extension.value.general_names) {
        if let GeneralName::DNSName(name) = name {
            names.dns_names.insert((*name).to_owned());
        }
        if let GeneralName::IPAddress(bytes) = name {
            names.ip_addresses.extend(address(bytes));
        }
    }
    Ok(names)
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(|octets| IpAddr::V4(Ipv4Addr::from(octets)));
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(|octets| IpAddr::V6(Ipv6Addr::from(octets)))).ok()
}

fn params(names: &CertificateNames) -> CertificateResult<CertificateParams> {
    let wrong = |name: &str, error: &dyn std::fmt::Display| failed(&format!("invalid name {name:?}"), error);
    let mut params = CertificateParams::new(Vec::from_iter(names.dns_names.clone()))
        .map_err(|error| failed("invalid DNS names", &error))?;
    params.subject_alt_names.extend(names.ip_addresses.iter().copied().map(SanType::IpAddress));
    // The API server's signers compare the subject as a whole: organizations come first.
    params.distinguished_name = DistinguishedName::new();
    for organization in &names.organizations {
        if organization.is_empty() {
            return Err(wrong(organization, &"an organization must not be empty"));
        }
        params.distinguished_name.push(DnType::OrganizationName, organization.as_str());
    }
    if names.common_name.is_empty() {
        return Err(wrong(&names.common_name, &"a common name is required"));
    }
    params.distinguished_name.push(DnType::CommonName, names.common_name.as_str());
    Ok(params)
}

fn key_pair(key: &str) -> CertificateResult<KeyPair> {
    let der = PrivateKeyDer::from_pem_slice(key.as_bytes())
        .map_err(|error| failed("failed to parse the key as PEM", &error))?;
    KeyPair::try_from(&der).map_err(|error| failed("unusable key", &error))
}

/// Fails if the key does not match the certificate.
fn certified(certificate: &str, key: &str) -> CertificateResult<CertifiedKey> {
    let chain = CertificateDer::pem_slice_iter(certificate.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| failed("failed to parse the certificate as PEM", &error))?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
        .map_err(|error| failed("no PEM block with a private key", &error))?;
    CertifiedKey::from_der(chain, key, &rustls::crypto::ring::default_provider())
        .map_err(|error| failed("the certificate does not match its key", &error))
}

fn generate() -> CertificateResult<KeyPair> {
    KeyPair::generate().map_err(|error| failed("failed to generate a key", &error))
}

fn key_pem(key: &KeyPair) -> String {
    pem("PRIVATE KEY", key.serialized_der())
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = encode::base64(der);
    let mut pem = format!("-----BEGIN {label}-----\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        // Base64 is ASCII, so it can be split anywhere.
        let (line, tail) = rest.split_at(rest.len().min(PEM_LINE));
        pem.push_str(line);
        pem.push('\n');
        rest = tail;
    }
    pem.push_str(&format!("-----END {label}-----\n"));
    pem
}

#[cfg(test)]
mod tests {
    use x509_parser::certification_request::X509CertificationRequest;
    use x509_parser::prelude::ParsedExtension;

    use super::*;
    use crate::ClientIdentity;

    fn serving() -> CertificateNames {
        CertificateNames {
            common_name: "system:node:edge-1".to_owned(),
            organizations: ["system:nodes".to_owned()].into(),
            dns_names: ["edge-1".to_owned(), "edge-1.example.com".to_owned()].into(),
            ip_addresses: ["10.0.0.7".parse().unwrap(), "fd00::7".parse().unwrap()].into(),
        }
    }

    #[test]
    fn serving_signing_request_has_the_node_name_and_its_addresses() {
        let key = X509.new_key().unwrap();
        let pem = X509.signing_request(&key, &serving()).unwrap();
        assert!(pem.starts_with("-----BEGIN CERTIFICATE REQUEST-----\n"), "{pem}");
        assert!(pem.lines().all(|line| line.len() <= PEM_LINE), "{pem}");
        let der = rustls_pki_types::CertificateSigningRequestDer::from_pem_slice(pem.as_bytes()).unwrap();
        let (rest, request) = X509CertificationRequest::from_der(&der).unwrap();
        assert!(rest.is_empty());
        let info = &request.certification_request_info;
        assert_eq!(info.subject.to_string(), "O=system:nodes, CN=system:node:edge-1");
        let names = |extension: &ParsedExtension<'_>| {
            let ParsedExtension::SubjectAlternativeName(names) = extension else { return None };
            Some(names.general_names.len())
        };
        let alternatives: Vec<_> = request.requested_extensions().unwrap().filter_map(names).collect();
        assert_eq!(alternatives, [4]);
    }

    #[test]
    fn client_signing_request_has_no_addresses() {
        let names = CertificateNames { dns_names: [].into(), ip_addresses: [].into(), ..serving() };
        let pem = X509.signing_request(&X509.new_key().unwrap(), &names).unwrap();
        let der = rustls_pki_types::CertificateSigningRequestDer::from_pem_slice(pem.as_bytes()).unwrap();
        let (_, request) = X509CertificationRequest::from_der(&der).unwrap();
        assert_eq!(request.requested_extensions().into_iter().flatten().count(), 0);
    }

    #[test]
    fn self_signed_certificate_has_the_requested_names_and_lifetime() {
        let now: Timestamp = "2026-11-21T12:00:00Z".parse().unwrap();
        let year = Duration::from_secs(365 * 86400);
        let pair = X509.self_signed(&serving(), now, year).unwrap();
        assert_eq!(pair.certificate.matches("BEGIN CERTIFICATE").count(), 2);
        let facts = facts(pair.certificate.as_bytes()).unwrap();
        assert_eq!(facts.not_before, now - BACKDATED);
        assert_eq!(facts.not_after, now + year);
        assert_eq!(facts.names, serving());
        ClientIdentity::from_pem(pair.certificate.as_bytes(), pair.key.as_bytes()).unwrap();
    }

    #[test]
    fn certificate_must_match_its_key() {
        let pair = X509.self_signed(&serving(), Timestamp::UNIX_EPOCH, BACKDATED).unwrap();
        assert_eq!(X509.read(&pair).unwrap().names, serving());
        let stranger = PemPair { key: X509.new_key().unwrap(), ..pair.clone() };
        let error = X509.read(&stranger).unwrap_err().to_string();
        assert!(error.starts_with("the certificate does not match its key: "), "{error}");
        // A pair may be in one file.
        let both = format!("{}{}", pair.certificate, pair.key);
        X509.read(&PemPair { certificate: both.clone(), key: both }).unwrap();
        let keyless = PemPair { key: pair.certificate.clone(), ..pair };
        assert!(X509.read(&keyless).unwrap_err().to_string().contains("private key"));
    }

    #[test]
    fn key_id_is_stable() {
        let key = X509.new_key().unwrap();
        let id = X509.key_id(&key).unwrap();
        assert_eq!(id, X509.key_id(&key).unwrap());
        assert!(id.len() == 40 && id.bytes().all(|letter| letter.is_ascii_hexdigit()), "{id}");
        assert_ne!(id, X509.key_id(&X509.new_key().unwrap()).unwrap());
        assert!(X509.key_id("rubbish").is_err());
    }

    #[test]
    fn generated_keys_differ_and_are_not_logged() {
        assert_ne!(X509.new_key().unwrap(), X509.new_key().unwrap());
        let pair = X509.self_signed(&serving(), Timestamp::UNIX_EPOCH, BACKDATED).unwrap();
        assert!(!format!("{pair:?}").contains("PRIVATE"));
    }

    #[test]
    fn errors_name_the_invalid_certificate_or_key() {
        for text in ["", "rubbish", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            let error = facts(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains("ertificate") || error.contains("CERTIFICATE"), "{error}");
        }
        let error = X509.signing_request("rubbish", &serving()).unwrap_err().to_string();
        assert!(error.starts_with("failed to parse the key as PEM"), "{error}");
        let nameless = CertificateNames { common_name: String::new(), ..serving() };
        let error = X509.signing_request(&X509.new_key().unwrap(), &nameless).unwrap_err().to_string();
        assert!(error.contains("common name"), "{error}");
        let foreign = CertificateNames { dns_names: ["ü".to_owned()].into(), ..serving() };
        assert!(X509.signing_request(&X509.new_key().unwrap(), &foreign).is_err());
    }
}
