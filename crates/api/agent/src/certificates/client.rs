//! Keeps the client certificate valid: rotates it before it expires, loads it from disk, or bootstraps again; ends the
//! process when none of these works for too long.
//!
//! Owns the count of failures. What to do next is decided in `api_core::certificates`.

use std::sync::Arc;
use std::time::Duration;

use api_core::certificates::{
    CertificateState, CertificateStep, CertificateUse, EXIT_AFTER, SIGNING_TIMEOUT, compute_certificate_step,
    wanted_names,
};
use base_agent::metrics::Metrics;
use base_agent::rng::Rng;
use jiff::{SignedDuration, Timestamp};
use model::{CertificateFacts, CertificateNames};
use ports::certificates::CertificateError;
use ports::{ClientIdentity, Clock, Cluster};
use tokio_util::sync::CancellationToken;

use super::join::{Join, JoinError};
use super::signing::{NewCertificate, SigningError};
use super::store::{PairStore, StoredPair};
use crate::metrics::CertificateMetrics;

/// The wall clock may jump, so it is checked this often during a wait.
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// Keeps the client certificate valid until dropped.
#[derive(Debug)]
pub struct ClientCertificate {
    pub store: PairStore,
    pub identity: Arc<dyn ClientIdentity>,
    pub cluster: Arc<dyn Cluster>,
    pub clock: Clock,
    /// Jitter of the rotation deadline.
    pub rng: Rng,
    pub node_name: String,
    /// `rotateCertificates`.
    pub rotates: bool,
    pub has_bootstrap: bool,
    /// The certificate in use was embedded in the kubeconfig.
    pub is_embedded: bool,
    /// The certificate in use.
    pub current: Option<CertificateFacts>,
    pub metrics: Metrics,
    /// Cancelled when the process is to end.
    pub must_exit: CancellationToken,
}

/// Failures since the last success.
#[derive(Debug, Default)]
struct Failures {
    invalid_since: Option<Timestamp>,
    count: u32,
    last_failure: Option<Timestamp>,
}

#[derive(Debug, thiserror::Error)]
enum RenewError {
    #[error(transparent)]
    Signing(#[from] SigningError),
    #[error(transparent)]
    Join(#[from] JoinError),
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    #[error("no bootstrap kubeconfig is configured")]
    NoBootstrap,
}

impl ClientCertificate {
    pub async fn run(mut self) {
        let wanted = wanted_names(CertificateUse::Client, &self.node_name, [], []);
        let mut failures = Failures::default();
        let mut random = self.rng.share();
        let metrics = self.metrics.clone();
        loop {
            let step = self.step(&wanted, &mut failures, random).await;
            metrics.get::<CertificateMetrics>().uses(CertificateUse::Client, self.current.as_ref());
            let outcome = match step {
                CertificateStep::Wait { until } => {
                    self.wait(until).await;
                    continue;
                }
                CertificateStep::Keep => {
                    self.wait(Timestamp::MAX).await;
                    continue;
                }
                CertificateStep::Exit => {
                    tracing::error!(
                        since = ?EXIT_AFTER,
                        "It has been too long since the client certificate was valid and the API server is reachable, exiting"
                    );
                    return self.must_exit.cancel();
                }
                CertificateStep::Request => self.renew(&wanted).await,
                CertificateStep::Bootstrap => self.join().await,
            };
            match outcome {
                Ok(facts) => {
                    tracing::info!(not_after = %facts.not_after, "Rotated client certificate");
                    (self.current, failures, random) = (Some(facts), Failures::default(), self.rng.share());
                    self.is_embedded = false;
                }
                Err(error) => {
                    failures.count = failures.count.saturating_add(1);
                    metrics.get::<CertificateMetrics>().failed(CertificateUse::Client);
                    failures.last_failure = Some(self.clock.now().wall);
                    tracing::warn!(err = %error, "Failed to rotate client certificate, retrying");
                }
            }
        }
    }

    async fn step(
        &mut self,
        wanted: &CertificateNames,
        failures: &mut Failures,
        random: f64,
    ) -> CertificateStep {
        let now = self.clock.now().wall;
        if !self.is_good(now) {
            self.load_from_disk(now).await;
        }
        let is_good = self.is_good(now);
        failures.invalid_since = if is_good { None } else { failures.invalid_since.or(Some(now)) };
        let state = CertificateState {
            kind: CertificateUse::Client,
            current: self.current.as_ref(),
            wanted,
            dns_name_suffices: false,
            random,
            rotates: self.rotates,
            is_embedded: self.is_embedded,
            has_bootstrap: self.has_bootstrap,
            is_api_reachable: !is_good && self.api_answers().await,
            invalid_since: failures.invalid_since,
            failures: failures.count,
            last_failure: failures.last_failure,
        };
        compute_certificate_step(&state, now)
    }

    fn is_good(&self, now: Timestamp) -> bool {
        self.current.as_ref().is_some_and(|facts| facts.is_good_at(now))
    }

    /// Any response counts, also an error status.
    async fn api_answers(&self) -> bool {
        self.cluster.healthy().await.map_or_else(|error| !error.is_uncertain(), |()| true)
    }

    /// Another process may have written a valid certificate to the path of the kubeconfig.
    async fn load_from_disk(&mut self, now: Timestamp) {
        let pair = match self.identity.on_disk().await {
            Ok(Some(pair)) => pair,
            Ok(None) => return,
            Err(error) => return tracing::debug!(err = %error, "Failed to load client certificate from disk"),
        };
        let Ok(facts) = self.store.certificates.read(&pair) else { return };
        if !facts.is_good_at(now) {
            return;
        }
        match self.identity.show(&pair) {
            Ok(()) => {
                tracing::info!(not_after = %facts.not_after, "Client certificate was rotated on disk");
                self.current = Some(facts);
            }
            Err(error) => tracing::warn!(err = %error, "Failed to load client certificate from disk"),
        }
    }

    /// A new certificate is used at once, even if it cannot be written to disk.
    async fn renew(&self, wanted: &CertificateNames) -> Result<CertificateFacts, RenewError> {
        let request = NewCertificate {
            cluster: &*self.cluster,
            certificates: &*self.store.certificates,
            clock: self.clock,
            kind: CertificateUse::Client,
            names: wanted,
        };
        let StoredPair { pair, facts } = request.run().await?;
        self.identity.show(&pair)?;
        self.store.save_or_warn(&pair, self.clock).await;
        Ok(facts)
    }

    async fn join(&self) -> Result<CertificateFacts, RenewError> {
        let cluster = self.identity.bootstrap().await?.ok_or(RenewError::NoBootstrap)?;
        tracing::warn!("Client certificate is no longer valid, bootstrapping again");
        let join = Join {
            cluster: &*cluster,
            clock: self.clock,
            store: &self.store,
            node_name: &self.node_name,
            timeout: SIGNING_TIMEOUT,
        };
        let StoredPair { pair, facts } = join.run().await?;
        self.identity.show(&pair)?;
        Ok(facts)
    }

    async fn wait(&self, until: Timestamp) {
        wait_until(self.clock, until).await;
    }
}

/// Waits until then, but no longer than [`CLOCK_CHECK_INTERVAL`].
pub(super) async fn wait_until(clock: Clock, until: Timestamp) {
    let now = clock.now();
    let left = until.duration_since(now.wall).max(SignedDuration::ZERO).unsigned_abs();
    clock.sleep_until(now.mono + left.min(CLOCK_CHECK_INTERVAL)).await;
}
