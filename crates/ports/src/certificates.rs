//! Keys and certificates, and who we are to the API.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use model::{CertificateFacts, CertificateNames, PemPair};

use crate::cluster::Cluster;

/// What is wrong with a key, a certificate or a way to the API. The text is complete.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CertificateError(pub String);

pub type CertificateResult<T> = Result<T, CertificateError>;

/// Makes keys and reads certificates. Keeps nothing.
pub trait Certificates: Send + Sync + std::fmt::Debug {
    /// A fresh P-256 key, PEM.
    fn new_key(&self) -> CertificateResult<String>;
    /// The same letters and digits for the same key; they tell nothing of it. An error for what is no key.
    fn key_id(&self, key: &str) -> CertificateResult<String>;
    /// A signing request (PKCS#10, PEM) for the holder of the key.
    fn signing_request(&self, key: &str, names: &CertificateNames) -> CertificateResult<String>;
    /// A serving certificate by an authority that is made for it and forgotten.
    fn self_signed(
        &self,
        names: &CertificateNames,
        now: Timestamp,
        life: Duration,
    ) -> CertificateResult<PemPair>;
    /// What the certificate says, once it is certain that the key belongs to it.
    fn read(&self, pair: &PemPair) -> CertificateResult<CertificateFacts>;
}

/// As whom the API knows us. Calls under way are never lost by a change.
#[async_trait]
pub trait ClientIdentity: Send + Sync + std::fmt::Debug {
    /// From now on calls show this certificate.
    fn show(&self, pair: &PemPair) -> CertificateResult<()>;
    /// Reads again the files that say whom to trust and who we are. Whether anything in them was new; what cannot be
    /// used changes nothing.
    async fn reload(&self) -> CertificateResult<bool>;
    /// The certificate and key that the configuration names, as they are now; `None` where it names none.
    async fn on_disk(&self) -> CertificateResult<Option<PemPair>>;
    /// The API as seen by a node that has yet to join; `None` where nothing says how.
    async fn bootstrap(&self) -> CertificateResult<Option<Arc<dyn Cluster>>>;
}
