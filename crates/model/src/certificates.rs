//! Certificates as far as this node has any: for whom they are, how long they are good, and the key that belongs to one.

use std::collections::BTreeSet;
use std::net::IpAddr;

use jiff::Timestamp;

/// Whom a certificate is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateNames {
    pub common_name: String,
    pub organizations: BTreeSet<String>,
    pub dns_names: BTreeSet<String>,
    pub ip_addresses: BTreeSet<IpAddr>,
}

impl CertificateNames {
    /// A certificate with these names serves where `wanted` are needed; more than that does no harm.
    #[must_use]
    pub fn cover(&self, wanted: &Self) -> bool {
        self.common_name == wanted.common_name
            && self.organizations.is_superset(&wanted.organizations)
            && self.dns_names.is_superset(&wanted.dns_names)
            && self.ip_addresses.is_superset(&wanted.ip_addresses)
    }

    /// Somebody can be served under these names.
    #[must_use]
    pub fn has_address(&self) -> bool {
        !self.dns_names.is_empty() || !self.ip_addresses.is_empty()
    }
}

/// What a certificate says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFacts {
    pub not_before: Timestamp,
    pub not_after: Timestamp,
    pub names: CertificateNames,
}

impl CertificateFacts {
    /// It is neither of the future nor of the past.
    #[must_use]
    pub fn is_good_at(&self, now: Timestamp) -> bool {
        self.not_before <= now && now < self.not_after
    }
}

/// A certificate, with those up to its authority behind it, and its key; both PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct PemPair {
    pub certificate: String,
    pub key: String,
}

/// Keys stay out of logs.
impl std::fmt::Debug for PemPair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PemPair").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}
