//! The user who made a request.

use std::collections::BTreeMap;

use jiff::Timestamp;
use model::k8s::UserInfo;
use rustls_pki_types::CertificateDer;
use x509_parser::prelude::{FromDer, X509Certificate};

const AUTHENTICATED: &str = "system:authenticated";
const ANONYMOUS: &str = "system:anonymous";
const UNAUTHENTICATED: &str = "system:unauthenticated";

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) uid: Option<String>,
    pub(crate) groups: Vec<String>,
    pub(crate) extra: BTreeMap<String, Vec<String>>,
}

impl User {
    pub(crate) fn anonymous() -> Self {
        Self {
            name: ANONYMOUS.to_owned(),
            uid: None,
            groups: vec![UNAUTHENTICATED.to_owned()],
            extra: BTreeMap::new(),
        }
    }

    pub(crate) fn is_anonymous(&self) -> bool {
        self.name == ANONYMOUS
    }

    /// The last CN is the name, each O a group. `None`: the certificate cannot be parsed or has no CN.
    pub(crate) fn of_certificate(certificate: &CertificateDer<'_>) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
        let subject = certificate.subject();
        // The last of several, as in Go.
        let name = subject.iter_common_name().filter_map(|name| name.as_str().ok()).last()?.to_owned();
        let groups = subject.iter_organization().filter_map(|group| group.as_str().ok());
        let groups = groups.map(str::to_owned).collect();
        (!name.is_empty()).then(|| Self { name, uid: None, groups, extra: BTreeMap::new() }.authenticated())
    }

    /// The user of a TokenReview. `None`: it has no name.
    pub(crate) fn of_review(user: UserInfo) -> Option<Self> {
        let name = user.username.filter(|name| !name.is_empty())?;
        let user = Self {
            name,
            uid: user.uid.filter(|uid| !uid.is_empty()),
            groups: user.groups.unwrap_or_default(),
            extra: user.extra.unwrap_or_default().into_iter().collect(),
        };
        Some(user.authenticated())
    }

    fn authenticated(mut self) -> Self {
        if !self.groups.iter().any(|group| group == AUTHENTICATED) {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }
}

/// When the certificate expires; `None` if it cannot be parsed.
pub(crate) fn not_after(certificate: &CertificateDer<'_>) -> Option<Timestamp> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    Timestamp::from_second(certificate.validity().not_after.timestamp()).ok()
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::*;

    #[test]
    fn the_last_common_name_of_a_certificate_is_the_user() {
        let key = KeyPair::generate().unwrap();
        let user = |names: &[&str]| {
            let mut params = CertificateParams::default();
            params.distinguished_name = rcgen::DistinguishedName::new();
            // A second name of the same type needs the object identifier itself.
            let kinds = [DnType::CommonName, DnType::CustomDnType(vec![2, 5, 4, 3])];
            for (kind, name) in kinds.into_iter().zip(names) {
                params.distinguished_name.push(kind, *name);
            }
            let certificate = params.self_signed(&key).unwrap();
            User::of_certificate(certificate.der()).map(|user| user.name)
        };
        assert_eq!(user(&["first", "last"]), Some("last".to_owned()));
        assert_eq!(user(&["only"]), Some("only".to_owned()));
        assert_eq!(user(&["first", ""]), None, "as in Go");
        assert_eq!(user(&[]), None);
    }
}
