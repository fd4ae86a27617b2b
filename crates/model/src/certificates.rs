//! Certificates of the node and of pods: names, validity, and keys.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;

/// The subject and alternative names of a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateNames {
    pub common_name: String,
    pub organizations: BTreeSet<String>,
    pub dns_names: BTreeSet<String>,
    pub ip_addresses: BTreeSet<IpAddr>,
}

impl CertificateNames {
    /// Whether a certificate with these names includes all of `wanted`; additional names are allowed.
    #[must_use]
    pub fn cover(&self, wanted: &Self) -> bool {
        self.common_name == wanted.common_name
            && self.organizations.is_superset(&wanted.organizations)
            && self.dns_names.is_superset(&wanted.dns_names)
            && self.ip_addresses.is_superset(&wanted.ip_addresses)
    }

    /// Whether a certificate can be requested for them: a cluster signs one for addresses; DNS names alone may not be enough.
    #[must_use]
    pub fn can_be_served(&self, dns_name_suffices: bool) -> bool {
        !self.ip_addresses.is_empty() || (dns_name_suffices && !self.dns_names.is_empty())
    }
}

/// Names and validity of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFacts {
    pub not_before: Timestamp,
    pub not_after: Timestamp,
    pub names: CertificateNames,
}

impl CertificateFacts {
    /// Whether `now` is within its validity.
    #[must_use]
    pub fn is_good_at(&self, now: Timestamp) -> bool {
        self.not_before <= now && now < self.not_after
    }
}

/// A certificate with its intermediates, and its key; both PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct PemPair {
    pub certificate: String,
    pub key: String,
}

/// Without the key, for logs.
impl std::fmt::Debug for PemPair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PemPair").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

/// A type of key of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodKeyType {
    EcdsaP256,
    EcdsaP384,
    EcdsaP521,
    Ed25519,
    Rsa3072,
    Rsa4096,
}

/// A private key: PKCS#8, PEM. Clones share it.
#[derive(Clone, PartialEq, Eq)]
pub struct PrivateKey(Arc<str>);

impl PrivateKey {
    #[must_use]
    pub fn new(pem: &str) -> Self {
        Self(pem.into())
    }

    #[must_use]
    pub fn pem(&self) -> &str {
        &self.0
    }
}

/// Without the key, for logs.
impl std::fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PrivateKey")
    }
}

/// A new key of a pod, with a certificate request that it signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodKey {
    pub key: PrivateKey,
    /// PKCS#10, DER, with an empty subject.
    pub request: Vec<u8>,
}

/// What a pod authenticates itself with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    pub key: PrivateKey,
    /// The certificate, then its intermediates; PEM.
    pub chain: Arc<str>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_hides_private_keys() {
        let key = PrivateKey::new("secret");
        let (pod_key, credential) = (
            PodKey { key: key.clone(), request: Vec::new() },
            Credential { key: key.clone(), chain: "PEM".into() },
        );
        let text = format!("{key:?} {pod_key:?} {credential:?}");
        assert!(!text.contains("secret") && text.contains("PEM"), "{text}");
        assert_eq!(key.pem(), "secret");
    }
}
