//! CertificateSigningRequests: creates a request, or finds it again, and waits until it is signed or denied.

use std::time::Duration;

use api_core::certificates::{
    CertificateUse, KeyKind, SIGNING_TIMEOUT, SigningOutcome, signing_outcome, signing_request,
};
use api_core::retry::compute_retry_delay;
use base_agent::retry_delay::RetryDelay;
use futures_util::StreamExt;
use model::k8s::CertificateSigningRequest;
use model::{CertificateNames, PemPair};
use ports::certificates::CertificateError;
use ports::cluster::{Change, ClusterError, ClusterResult, Selection};
use ports::{Certificates, Clock, Cluster};

use super::store::StoredPair;

/// Delay of the first poll after a watch that ended or could not be opened; it doubles each time.
const FIRST_POLL: Duration = Duration::from_millis(100);
const LONGEST_POLL: Duration = Duration::from_secs(2);

/// Why no certificate was issued.
#[derive(Debug, thiserror::Error)]
pub enum SigningError {
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error("{name}: {message}")]
    Refused { name: String, message: String },
    #[error(
        "timed out after {after:?} waiting for certificate signing request {name} to be approved and signed"
    )]
    Unanswered { name: String, after: Duration },
    #[error("certificate signing request {name}: {problem}")]
    Unusable { name: String, problem: String },
    #[error(transparent)]
    Certificate(#[from] CertificateError),
}

/// A request for a certificate with a new key.
pub(super) struct NewCertificate<'a> {
    pub cluster: &'a dyn Cluster,
    pub certificates: &'a dyn Certificates,
    pub clock: Clock,
    pub kind: CertificateUse,
    pub names: &'a CertificateNames,
}

impl NewCertificate<'_> {
    /// Waits for the certificate; the key exists only in memory until then.
    pub(crate) async fn run(&self) -> Result<StoredPair, SigningError> {
        let key = self.certificates.new_key()?;
        let pem = self.certificates.signing_request(&key, self.names)?;
        let request = signing_request(self.kind, KeyKind::Ecdsa, pem.as_bytes(), None);
        let signed = sign(self.cluster, self.clock, &request, SIGNING_TIMEOUT).await?;
        let pair = PemPair { certificate: signed.chain, key };
        match super::check_signed(self.certificates, &pair, self.names) {
            Ok(facts) => Ok(StoredPair { pair, facts }),
            Err(problem) => Err(SigningError::Unusable { name: signed.request, problem }),
        }
    }
}

/// Waits for the signed certificate chain, PEM.
///
/// Cancel safe: the next attempt finds a request with the same name again.
pub(crate) async fn sign(
    cluster: &dyn Cluster,
    clock: Clock,
    request: &CertificateSigningRequest,
    timeout: Duration,
) -> Result<Signed, SigningError> {
    let deadline = clock.mono() + timeout;
    let created = match cluster.signing_requests().create("", request).await {
        // The request exists: from before a restart, or from an attempt whose response was lost.
        Err(ClusterError::AlreadyExists { .. }) => {
            let name = request.metadata.name.as_deref().unwrap_or_default();
            cluster.signing_requests().get("", name).await?
        }
        created => created?,
    };
    let name = created.metadata.name.clone().unwrap_or_default();
    tracing::info!(
        name,
        signer = created.spec.signer_name,
        "Waiting for the certificate signing request to be approved"
    );
    let watch = SigningRequestWatch { cluster, clock, name: name.clone() };
    tokio::select! {
        outcome = watch.outcome(created) => outcome,
        () = clock.sleep_until(deadline) => Err(SigningError::Unanswered { name, after: timeout }),
    }
}

/// A signed request.
#[derive(Debug)]
pub(super) struct Signed {
    pub request: String,
    pub chain: String,
}

struct SigningRequestWatch<'a> {
    cluster: &'a dyn Cluster,
    clock: Clock,
    name: String,
}

impl SigningRequestWatch<'_> {
    /// Waits without a timeout.
    async fn outcome(&self, mut seen: CertificateSigningRequest) -> Result<Signed, SigningError> {
        let name = self.name.clone();
        let mut pause = RetryDelay::new(FIRST_POLL, LONGEST_POLL);
        loop {
            match signing_outcome(&seen) {
                SigningOutcome::Signed(chain) => {
                    let chain = String::from_utf8(chain).map_err(|_| SigningError::Unusable {
                        name: name.clone(),
                        problem: "the signed certificate is not valid UTF-8".to_owned(),
                    })?;
                    return Ok(Signed { request: name, chain });
                }
                SigningOutcome::Refused(message) => return Err(SigningError::Refused { name, message }),
                SigningOutcome::Pending => {}
            }
            seen = match self.change(&seen).await {
                Ok(Some(changed)) => changed,
                Ok(None) => self.poll(&mut pause).await?,
                Err(error) => {
                    tracing::debug!(err = %error, name, "Failed to watch certificate signing request");
                    self.poll(&mut pause).await?
                }
            };
        }
    }

    /// The request after its next change; `None` if the watch ended first.
    async fn change(
        &self,
        seen: &CertificateSigningRequest,
    ) -> ClusterResult<Option<CertificateSigningRequest>> {
        let selection =
            Selection { fields: Some(format!("metadata.name={}", self.name)), ..Selection::default() };
        let since = seen.metadata.resource_version.clone().unwrap_or_default();
        let mut changes = self.cluster.signing_requests().watch(&selection, &since).await?;
        while let Some(change) = changes.next().await {
            match change? {
                Change::Added(request) | Change::Modified(request) => return Ok(Some(request)),
                // The poll that follows reports it.
                Change::Deleted(_) | Change::Malformed { .. } => return Ok(None),
                Change::Bookmark { .. } => {}
            }
        }
        Ok(None)
    }

    async fn poll(&self, pause: &mut RetryDelay) -> Result<CertificateSigningRequest, SigningError> {
        let mut requested = None;
        loop {
            let delay = compute_retry_delay(pause.take(), requested, 0.0);
            self.clock.sleep_until(self.clock.mono() + delay).await;
            match self.cluster.signing_requests().get("", &self.name).await {
                Err(error) if error.may_pass() => {
                    tracing::warn!(err = %error, "Failed to get certificate signing request, retrying");
                    requested = error.retry_after();
                }
                polled => return Ok(polled?),
            }
        }
    }
}
