//! Serving certificates for a node without `tlsCertFile`: one signed by the cluster, or a self-signed one.
//!
//! Each publishes the pair in use through a `watch`, and replaces it when it is due. The server uses the latest for each
//! new connection.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api_core::certificates::{
    CertificateState, CertificateStep, CertificateUse, compute_certificate_step, rotation_deadline,
    serving_addresses, wanted_names,
};
use base_agent::metrics::Metrics;
use base_agent::rng::Rng;
use jiff::Timestamp;
use model::k8s::NodeAddress;
use model::{CertificateFacts, CertificateNames, PemPair};
use ports::{Certificates, Clock, Cluster, Files};
use tokio::sync::watch;

use super::client::wait_until;
use super::signing::NewCertificate;
use super::store::{self, PairStore, StoredPair};
use super::{FileError, ensure_cert_dir};
use crate::metrics::CertificateMetrics;

/// Publishes the pair in use; `None` until there is one.
pub type Serves = watch::Sender<Option<Arc<PemPair>>>;

const SELF_SIGNED_LIFE: Duration = Duration::from_secs(365 * 86400);
/// Delay before a failed write is retried.
const WRITE_RETRY: Duration = Duration::from_secs(60);

/// `serverTLSBootstrap`: the cluster signs a certificate for the node's addresses.
#[derive(Debug)]
pub struct ClusterSigned {
    pub store: PairStore,
    pub cluster: Arc<dyn Cluster>,
    pub clock: Clock,
    pub rng: Rng,
    pub node_name: String,
    /// Addresses in the node status.
    pub addresses: watch::Receiver<Vec<NodeAddress>>,
    /// A node without an IP address may have one, too.
    pub dns_name_suffices: bool,
    pub metrics: Metrics,
    pub serves: Serves,
}

impl ClusterSigned {
    /// Keeps the certificate valid until dropped.
    pub async fn run(mut self) {
        let mut current = self.stored().await;
        let (mut failures, mut last_failure, mut random) = (0_u32, None, self.rng.share());
        let metrics = self.metrics.clone();
        loop {
            metrics.get::<CertificateMetrics>().uses(CertificateUse::Serving, current.as_ref());
            let now = self.clock.now().wall;
            let wanted = self.wanted();
            let state = CertificateState {
                kind: CertificateUse::Serving,
                current: current.as_ref(),
                wanted: &wanted,
                dns_name_suffices: self.dns_name_suffices,
                random,
                rotates: true,
                is_embedded: false,
                has_bootstrap: false,
                is_api_reachable: false,
                invalid_since: None,
                failures,
                last_failure,
            };
            match compute_certificate_step(&state, now) {
                CertificateStep::Wait { until } => self.wait(until).await,
                // Both matter only for client certificates: a serving certificate never ends the process.
                CertificateStep::Keep | CertificateStep::Bootstrap | CertificateStep::Exit => {
                    self.wait(Timestamp::MAX).await;
                }
                CertificateStep::Request => match self.renew(&wanted).await {
                    Ok(facts) => {
                        if let Some(old) = &current {
                            let now = self.clock.now().wall;
                            metrics.get::<CertificateMetrics>().serving_replaced(old, now);
                        }
                        (current, failures, last_failure) = (Some(facts), 0, None);
                        random = self.rng.share();
                    }
                    Err(error) => {
                        failures = failures.saturating_add(1);
                        metrics.get::<CertificateMetrics>().failed(CertificateUse::Serving);
                        last_failure = Some(self.clock.now().wall);
                        tracing::warn!(err = %error, "Failed to rotate serving certificate, retrying");
                    }
                },
            }
        }
    }

    async fn stored(&self) -> Option<CertificateFacts> {
        let stored = self.store.load().await.unwrap_or_else(|error| {
            tracing::warn!(err = %error, "Failed to load serving certificate, requesting a new one");
            None
        });
        let StoredPair { pair, facts } =
            stored.filter(|stored| stored.facts.is_good_at(self.clock.now().wall))?;
        self.serves.send_replace(Some(Arc::new(pair)));
        Some(facts)
    }

    fn wanted(&mut self) -> CertificateNames {
        let (dns_names, ips) = serving_addresses(&self.addresses.borrow_and_update());
        wanted_names(CertificateUse::Serving, &self.node_name, dns_names, ips)
    }

    async fn renew(&self, wanted: &CertificateNames) -> Result<CertificateFacts, super::SigningError> {
        let request = NewCertificate {
            cluster: &*self.cluster,
            certificates: &*self.store.certificates,
            clock: self.clock,
            kind: CertificateUse::Serving,
            names: wanted,
        };
        let StoredPair { pair, facts } = request.run().await?;
        self.serves.send_replace(Some(Arc::new(pair.clone())));
        self.store.save_or_warn(&pair, self.clock).await;
        tracing::info!(not_after = %facts.not_after, "Rotated serving certificate");
        Ok(facts)
    }

    /// Waits until then, or until the node's addresses change.
    async fn wait(&mut self, until: Timestamp) {
        let mut addresses = self.addresses.clone();
        tokio::select! {
            () = wait_until(self.clock, until) => {}
            Ok(()) = addresses.changed() => {}
        }
    }
}

/// `kubelet.crt` and `kubelet.key`: the self-signed pair if nothing else is configured.
#[derive(Debug)]
pub struct SelfSigned {
    pub files: Arc<dyn Files>,
    pub certificates: Arc<dyn Certificates>,
    pub clock: Clock,
    pub rng: Rng,
    /// `--cert-dir`.
    pub dir: PathBuf,
    pub names: CertificateNames,
    pub serves: Serves,
}

impl SelfSigned {
    /// Publishes the pair on disk, or else a new one.
    ///
    /// # Errors
    /// No pair can be generated, or a file cannot be written.
    pub async fn prepare(&self) -> Result<CertificateFacts, FileError> {
        match self.read().await {
            Ok(StoredPair { pair, facts }) if facts.is_good_at(self.clock.now().wall) => {
                self.serves.send_replace(Some(Arc::new(pair)));
                return Ok(facts);
            }
            Ok(_) => tracing::info!("Stored serving certificate has expired"),
            Err(error) => tracing::info!(err = %error, "No serving certificate available for the kubelet"),
        }
        self.make().await
    }

    /// Replaces the pair before it expires, until dropped. `facts` are those of the pair in use.
    pub async fn run(self, mut facts: CertificateFacts) {
        let mut random = self.rng.share();
        loop {
            let due = rotation_deadline(&facts, random);
            if self.clock.now().wall < due {
                wait_until(self.clock, due).await;
                continue;
            }
            match self.make().await {
                Ok(new) => facts = new,
                Err(error) => {
                    tracing::error!(err = %error, "Failed to rotate serving certificate, retrying");
                    self.clock.sleep_until(self.clock.mono() + WRITE_RETRY).await;
                }
            }
            random = self.rng.share();
        }
    }

    async fn read(&self) -> Result<StoredPair, FileError> {
        let (certificate, key) = (self.dir.join("kubelet.crt"), self.dir.join("kubelet.key"));
        store::read_pair(&*self.files, &*self.certificates, &certificate, &key).await
    }

    async fn make(&self) -> Result<CertificateFacts, FileError> {
        let path = self.dir.join("kubelet.crt");
        let content = |source| FileError::Content { path: path.display().to_string(), source };
        let made = self.certificates.self_signed(&self.names, self.clock.now().wall, SELF_SIGNED_LIFE);
        let pair = made.map_err(content)?;
        let facts = self.certificates.read(&pair).map_err(content)?;
        ensure_cert_dir(&*self.files, &self.dir).await?;
        // A reader between the two writes finds a mismatched pair, and generates a new one.
        self.files.write_durably(&self.dir.join("kubelet.key"), pair.key.as_bytes(), 0o600).await?;
        self.files.write_durably(&path, pair.certificate.as_bytes(), 0o644).await?;
        self.serves.send_replace(Some(Arc::new(pair)));
        tracing::info!(path = %path.display(), "Generated self-signed serving certificate");
        Ok(facts)
    }
}
