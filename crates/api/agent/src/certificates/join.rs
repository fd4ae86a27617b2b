//! Bootstrap: how a node obtains its first client certificate, or a new one when it has no valid one.
//!
//! Owns `kubelet-client.key.tmp`: the key of the signing request, until its certificate is issued. After a crash the same
//! key finds the same request again.

use std::path::PathBuf;
use std::time::Duration;

use api_core::certificates::{
    CertificateUse, KeyKind, bootstrap_request_name, retry_delay, signing_request, wanted_names,
};
use api_core::retry::compute_retry_delay;
use model::{CertificateNames, PemPair};
use ports::certificates::CertificateError;
use ports::{Clock, Cluster};

use super::FileError;
use super::signing::{self, SigningError};
use super::store::{self, PairStore, StoredPair};

/// How long to wait for an API server that starts together with the node.
const WAIT_FOR_API: Duration = Duration::from_secs(60);
const HEALTH_POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Why the node could not obtain a client certificate.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    #[error(transparent)]
    Signing(#[from] SigningError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    #[error("timed out after {0:?} creating the certificate signing request: {1}")]
    Unreachable(Duration, SigningError),
}

/// One bootstrap attempt.
#[derive(Clone, Debug)]
pub struct Join<'a> {
    /// The API client of the bootstrap kubeconfig.
    pub cluster: &'a dyn Cluster,
    pub clock: Clock,
    pub store: &'a PairStore,
    pub node_name: &'a str,
    /// How long approving and signing may take.
    pub timeout: Duration,
}

impl Join<'_> {
    /// Waits for the API and for the certificate, which is saved in `store` when this returns.
    ///
    /// # Errors
    /// The request was denied or not signed in time, or a file cannot be used.
    pub async fn run(&self) -> Result<StoredPair, JoinError> {
        self.wait_for_api().await;
        let key = self.key().await?;
        let names = wanted_names(CertificateUse::Client, self.node_name, [], []);
        let signed = self.sign(&key, &names).await?;
        let pair = PemPair { certificate: signed.chain, key };
        let facts = match self.check(&pair, &names) {
            Ok(facts) => facts,
            Err(problem) => {
                // With the same key, the next attempt would find the same certificate again.
                self.forget_key().await?;
                return Err(SigningError::Unusable { name: signed.request, problem }.into());
            }
        };
        self.store.save(&pair, self.clock.now().wall).await?;
        self.forget_key().await?;
        tracing::info!(not_after = %facts.not_after, "Obtained client certificate");
        Ok(StoredPair { pair, facts })
    }

    fn check(&self, pair: &PemPair, names: &CertificateNames) -> Result<model::CertificateFacts, String> {
        super::check_signed(&*self.store.certificates, pair, names)
    }

    async fn wait_for_api(&self) {
        let deadline = self.clock.mono() + WAIT_FOR_API;
        loop {
            let error = match self.cluster.healthy().await {
                Ok(()) => return,
                // The API server responds; whatever the response, the request is worth an attempt.
                Err(error) if !error.is_uncertain() => return,
                Err(error) => error,
            };
            let next = self.clock.mono() + HEALTH_POLL_INTERVAL;
            if next >= deadline {
                return tracing::warn!(err = %error, "API server does not respond, requesting the client certificate anyway");
            }
            self.clock.sleep_until(next).await;
        }
    }

    /// Retries until the API accepts the request, then waits for the certificate.
    async fn sign(&self, key: &str, names: &CertificateNames) -> Result<signing::Signed, JoinError> {
        let certificates = &self.store.certificates;
        let pem = certificates.signing_request(key, names)?;
        let name = bootstrap_request_name(&certificates.key_id(key)?);
        let request = signing_request(CertificateUse::Client, KeyKind::Ecdsa, pem.as_bytes(), Some(name));
        let deadline = self.clock.mono() + self.timeout;
        let mut failures = 0;
        loop {
            let left = deadline.since_start().saturating_sub(self.clock.mono().since_start());
            let error = match signing::sign(self.cluster, self.clock, &request, left).await {
                Err(SigningError::Cluster(error)) if error.may_pass() => error,
                outcome => return Ok(outcome?),
            };
            failures += 1;
            let delay = compute_retry_delay(retry_delay(failures), error.retry_after(), 0.0);
            let next = self.clock.mono() + delay;
            if next >= deadline {
                return Err(JoinError::Unreachable(self.timeout, error.into()));
            }
            tracing::warn!(err = %error, "Failed to create certificate signing request, retrying");
            self.clock.sleep_until(next).await;
        }
    }

    fn key_path(&self) -> PathBuf {
        self.store.dir.join(format!("{}.key.tmp", self.store.name))
    }

    async fn key(&self) -> Result<String, JoinError> {
        let (path, files) = (self.key_path(), &self.store.files);
        match store::read_text(&**files, &path).await {
            Ok(key) if self.store.certificates.key_id(&key).is_ok() => return Ok(key),
            Ok(_) | Err(FileError::Content { .. }) => {
                tracing::warn!(path = %path.display(), "Private key is damaged, generating a new one");
            }
            Err(FileError::Host(error)) if error.is_not_found() => {}
            Err(error) => return Err(error.into()),
        }
        let key = self.store.certificates.new_key()?;
        super::ensure_cert_dir(&**files, &self.store.dir).await?;
        files.write_durably(&path, key.as_bytes(), 0o600).await.map_err(FileError::from)?;
        Ok(key)
    }

    async fn forget_key(&self) -> Result<(), FileError> {
        Ok(self.store.files.remove_file(&self.key_path()).await?)
    }
}
