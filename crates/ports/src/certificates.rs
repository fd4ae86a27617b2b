//! Keys and certificates, and the identity of the kubelet as a client of the API.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use model::{CertificateFacts, CertificateNames, PemPair, PodKey, PodKeyType};

use crate::cluster::Cluster;

/// What is wrong with a key, a certificate or a kubeconfig. The text is complete.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CertificateError(pub String);

pub type CertificateResult<T> = Result<T, CertificateError>;

/// Generates keys and reads certificates. Stateless.
#[async_trait]
pub trait Certificates: Send + Sync + std::fmt::Debug {
    /// A fresh P-256 key, PEM.
    fn new_key(&self) -> CertificateResult<String>;
    /// A fresh key of a pod, with a certificate request (PKCS#10) that has no subject and is signed by it.
    async fn new_pod_key(&self, kind: PodKeyType) -> CertificateResult<PodKey>;
    /// A digest of the key, which reveals nothing of it. Fails for text that is not a key.
    fn key_id(&self, key: &str) -> CertificateResult<String>;
    /// A certificate signing request (PKCS#10, PEM) for the holder of the key.
    fn signing_request(&self, key: &str, names: &CertificateNames) -> CertificateResult<String>;
    /// A serving certificate, signed by a certificate authority that is generated for it and discarded.
    fn self_signed(
        &self,
        names: &CertificateNames,
        now: Timestamp,
        life: Duration,
    ) -> CertificateResult<PemPair>;
    /// The fields of the certificate, after checking that the key belongs to it.
    fn read(&self, pair: &PemPair) -> CertificateResult<CertificateFacts>;
}

/// The client certificate of the kubelet. A change never breaks calls under way.
#[async_trait]
pub trait ClientIdentity: Send + Sync + std::fmt::Debug {
    /// Uses this certificate for all later calls.
    fn show(&self, pair: &PemPair) -> CertificateResult<()>;
    /// Reads the certificate authorities and the client certificate again. Returns whether anything changed; invalid files
    /// change nothing.
    async fn reload(&self) -> CertificateResult<bool>;
    /// The current certificate and key of the kubeconfig; `None` if it names none.
    async fn on_disk(&self) -> CertificateResult<Option<PemPair>>;
    /// The API as a node reaches it before it has joined; `None` without a bootstrap kubeconfig.
    async fn bootstrap(&self) -> CertificateResult<Option<Arc<dyn Cluster>>>;
}
