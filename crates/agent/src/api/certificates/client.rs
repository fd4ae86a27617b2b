//! The client certificate, kept good: renewed before it ends, taken over from disk, healed by joining again; and the end
//! of the process when none of that is possible.
//!
//! Owns the count of failures. What to do next is decided in `kubelet_core::certificates`.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kubelet_core::certificates::{
    CertificateState, CertificateStep, CertificateUse, EXIT_AFTER, SIGNING_TIMEOUT, compute_certificate_step,
    wanted_names,
};
use model::{CertificateFacts, CertificateNames};
use ports::certificates::CertificateError;
use ports::{ClientIdentity, Clock, Cluster};
use tokio_util::sync::CancellationToken;

use super::join::{Join, JoinError};
use super::signing::{Order, SigningError};
use super::store::{PairStore, StoredPair};
use crate::metrics::Metrics;
use crate::rng::Rng;

/// The wall clock may jump: it is looked at so often, whatever there is to wait for.
const LOOK: Duration = Duration::from_secs(60);

/// Keeps the client certificate good until dropped.
#[derive(Debug)]
pub struct ClientCertificate {
    pub store: PairStore,
    pub identity: Arc<dyn ClientIdentity>,
    pub cluster: Arc<dyn Cluster>,
    pub clock: Clock,
    /// Where in its span each renewal falls.
    pub rng: Rng,
    pub node_name: String,
    /// `rotateCertificates`.
    pub rotates: bool,
    pub has_bootstrap: bool,
    /// What is in use was embedded in the kubeconfig.
    pub is_embedded: bool,
    /// What is in use.
    pub current: Option<CertificateFacts>,
    pub metrics: Arc<Metrics>,
    /// Cancelled when the process is to end.
    pub given_up: CancellationToken,
}

/// What went wrong since the last success.
#[derive(Debug, Default)]
struct Trouble {
    invalid_since: Option<Timestamp>,
    failures: u32,
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
    #[error("there is no bootstrap kubeconfig")]
    NoBootstrap,
}

impl ClientCertificate {
    pub async fn run(mut self) {
        let wanted = wanted_names(CertificateUse::Client, &self.node_name, [], []);
        let mut trouble = Trouble::default();
        let mut random = self.rng.share();
        let metrics = self.metrics.clone();
        loop {
            let step = self.step(&wanted, &mut trouble, random).await;
            metrics.certificates.uses(CertificateUse::Client, self.current.as_ref());
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
                    return self.given_up.cancel();
                }
                CertificateStep::Request => self.renew(&wanted).await,
                CertificateStep::Bootstrap => self.join().await,
            };
            match outcome {
                Ok(facts) => {
                    tracing::info!(not_after = %facts.not_after, "Rotated client certificate");
                    (self.current, trouble, random) = (Some(facts), Trouble::default(), self.rng.share());
                    self.is_embedded = false;
                }
                Err(error) => {
                    trouble.failures = trouble.failures.saturating_add(1);
                    metrics.certificates.failed(CertificateUse::Client);
                    trouble.last_failure = Some(self.clock.now().wall);
                    tracing::warn!(err = %error, "Failed to rotate client certificate, retrying");
                }
            }
        }
    }

    async fn step(
        &mut self,
        wanted: &CertificateNames,
        trouble: &mut Trouble,
        random: f64,
    ) -> CertificateStep {
        let now = self.clock.now().wall;
        if !self.is_good(now) {
            self.take_over(now).await;
        }
        let is_good = self.is_good(now);
        trouble.invalid_since = if is_good { None } else { trouble.invalid_since.or(Some(now)) };
        let state = CertificateState {
            kind: CertificateUse::Client,
            current: self.current.as_ref(),
            wanted,
            random,
            rotates: self.rotates,
            is_embedded: self.is_embedded,
            has_bootstrap: self.has_bootstrap,
            is_api_reachable: !is_good && self.api_answers().await,
            invalid_since: trouble.invalid_since,
            failures: trouble.failures,
            last_failure: trouble.last_failure,
        };
        compute_certificate_step(&state, now)
    }

    fn is_good(&self, now: Timestamp) -> bool {
        self.current.as_ref().is_some_and(|facts| facts.is_good_at(now))
    }

    /// Any answer will do, a refusal too.
    async fn api_answers(&self) -> bool {
        self.cluster.healthy().await.map_or_else(|error| !error.is_uncertain(), |()| true)
    }

    /// Somebody else may have put a good certificate where the kubeconfig says.
    async fn take_over(&mut self, now: Timestamp) {
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

    /// A good certificate is used at once, whether the disk takes it or not.
    async fn renew(&self, wanted: &CertificateNames) -> Result<CertificateFacts, RenewError> {
        let order = Order {
            cluster: &*self.cluster,
            certificates: &*self.store.certificates,
            clock: self.clock,
            kind: CertificateUse::Client,
            names: wanted,
        };
        let StoredPair { pair, facts } = order.run().await?;
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

/// Waits until then, or for a while.
pub(super) async fn wait_until(clock: Clock, until: Timestamp) {
    let now = clock.now();
    let left = until.duration_since(now.wall).max(SignedDuration::ZERO).unsigned_abs();
    clock.sleep_until(now.mono + left.min(LOOK)).await;
}
