//! A client certificate over weeks: renewed in time, reloaded from disk, replaced by a new bootstrap, or lost for good.

use std::sync::Arc;
use std::time::Duration;

use api_agent::certificates::{ClientCertificate, PairStore};
use api_core::certificates::{CertificateUse, wanted_names};
use async_trait::async_trait;
use base_agent::metrics::Metrics;
use base_agent::rng::Rng;
use base_agent::tasks::TaskSet;
use fakes::{
    ClusterFault, FakeCertificates, FakeCluster, FakeHost, HostFault, HostMethod, Outage, Verb, Verdict,
};
use jiff::Timestamp;
use model::k8s::CertificateSigningRequest;
use model::{CertificateFacts, PemPair};
use parking_lot::Mutex;
use ports::certificates::CertificateResult;
use ports::{Certificates, ClientIdentity, Clock, Cluster};
use tokio_util::sync::CancellationToken;

const HOUR: Duration = Duration::from_secs(3600);
const MINUTE: Duration = Duration::from_secs(60);
const CURRENT: &str = "/pki/kubelet-client-current.pem";

/// Remembers the certificates that were presented.
#[derive(Debug, Default)]
struct Presented {
    pairs: Mutex<Vec<PemPair>>,
    on_disk: Mutex<Option<PemPair>>,
    bootstrap: Mutex<Option<FakeCluster>>,
}

#[async_trait]
impl ClientIdentity for Presented {
    fn show(&self, pair: &PemPair) -> CertificateResult<()> {
        self.pairs.lock().push(pair.clone());
        Ok(())
    }

    async fn reload(&self) -> CertificateResult<bool> {
        Ok(false)
    }

    async fn on_disk(&self) -> CertificateResult<Option<PemPair>> {
        Ok(self.on_disk.lock().clone())
    }

    async fn bootstrap(&self) -> CertificateResult<Option<Arc<dyn Cluster>>> {
        Ok(self.bootstrap.lock().clone().map(|cluster| Arc::new(cluster) as Arc<dyn Cluster>))
    }
}

struct Member {
    clock: Clock,
    api: FakeCluster,
    host: FakeHost,
    certificates: Arc<FakeCertificates>,
    identity: Arc<Presented>,
    must_exit: CancellationToken,
    tasks: TaskSet,
}

impl Member {
    fn new() -> Self {
        let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
        Self {
            clock,
            api: FakeCluster::with_clock(clock),
            host: FakeHost::new(),
            certificates: Arc::default(),
            identity: Arc::default(),
            must_exit: CancellationToken::new(),
            tasks: TaskSet::new(),
        }
    }

    /// A pair that is valid from now on.
    fn pair(&self, life: Duration) -> PemPair {
        let names = wanted_names(CertificateUse::Client, "edge-1", [], []);
        self.certificates.pair(&names, self.now(), life)
    }

    /// Keeps a certificate with this lifetime valid.
    fn keep(&self, life: Duration, rotates: bool) {
        self.tasks.spawn("keeper", self.keeper(life, rotates).run());
    }

    fn keeper(&self, life: Duration, rotates: bool) -> ClientCertificate {
        let current = self.certificates.read(&self.pair(life)).unwrap();
        ClientCertificate {
            store: PairStore {
                files: Arc::new(self.host.clone()),
                certificates: self.certificates.clone(),
                dir: "/pki".into(),
                name: "kubelet-client",
            },
            identity: self.identity.clone(),
            cluster: Arc::new(self.api.clone()),
            clock: self.clock,
            rng: Rng::from_seed(1),
            node_name: "edge-1".to_owned(),
            rotates,
            has_bootstrap: self.identity.bootstrap.lock().is_some(),
            is_embedded: false,
            current: Some(current),
            metrics: Metrics::default(),
            must_exit: self.must_exit.clone(),
        }
    }

    async fn advance(&self, time: Duration) {
        self.clock.sleep_until(self.clock.mono() + time).await;
    }

    /// Lets time pass while every request is signed.
    async fn advance_signing(&self, api: &FakeCluster, time: Duration, life: Duration) {
        let end = self.clock.mono() + time;
        while self.clock.mono() < end {
            self.advance(Duration::from_secs(10)).await;
            api.decide_signing_requests(Verdict::Sign(life), self.now());
        }
    }

    fn now(&self) -> Timestamp {
        self.clock.now().wall
    }

    fn requests(&self) -> usize {
        self.api.all::<CertificateSigningRequest>().len()
    }

    fn shown(&self) -> Vec<CertificateFacts> {
        self.identity.pairs.lock().iter().map(|pair| self.certificates.read(pair).unwrap()).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn certificate_is_rotated_at_70_to_90_percent_of_its_lifetime_forever() {
    let node = Member::new();
    node.keep(HOUR, true);
    node.advance(41 * MINUTE).await;
    assert_eq!(node.requests(), 0);
    node.advance_signing(&node.api, 10 * HOUR, HOUR).await;
    let shown = node.shown();
    assert!((10..=16).contains(&shown.len()), "{shown:?}");
    for (old, new) in shown.iter().zip(&shown[1..]) {
        let age = new.not_before.duration_since(old.not_before).as_secs();
        assert!((2520..=3255).contains(&age), "{age}");
    }
    let last = node.identity.pairs.lock().last().cloned().unwrap();
    assert_eq!(node.host.text(CURRENT).unwrap(), format!("{}{}", last.certificate, last.key));
}

#[tokio::test(start_paused = true)]
async fn embedded_client_certificate_is_renewed_at_once_and_then_in_time() {
    let node = Member::new();
    node.tasks.spawn("keeper", ClientCertificate { is_embedded: true, ..node.keeper(HOUR, true) }.run());
    node.advance_signing(&node.api, MINUTE, HOUR).await;
    assert_eq!((node.requests(), node.shown().len()), (1, 1));
    let pair = node.identity.pairs.lock().last().cloned().unwrap();
    assert_eq!(node.host.text(CURRENT).unwrap(), format!("{}{}", pair.certificate, pair.key));
    node.advance_signing(&node.api, 40 * MINUTE, HOUR).await;
    assert_eq!(node.requests(), 1, "the renewed certificate is used until its own deadline");
}

#[tokio::test(start_paused = true)]
async fn unsigned_renewal_csr_is_repeated_after_15_minutes() {
    let node = Member::new();
    node.keep(10 * HOUR, true);
    node.advance(7 * HOUR).await;
    while node.requests() == 0 {
        node.advance(MINUTE).await;
    }
    node.advance(14 * MINUTE).await;
    assert_eq!(node.requests(), 1);
    node.advance(2 * MINUTE).await;
    assert_eq!(node.requests(), 2);
    node.advance_signing(&node.api, MINUTE, HOUR).await;
    assert_eq!(node.shown().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn denied_renewal_csr_backs_off() {
    let node = Member::new();
    node.keep(HOUR, true);
    for _ in 0..60 {
        node.advance(MINUTE).await;
        node.api.decide_signing_requests(Verdict::Deny, node.now());
    }
    assert!((2..=15).contains(&node.requests()), "{}", node.requests());
    assert!(node.shown().is_empty());
}

#[tokio::test(start_paused = true)]
async fn full_disk_loses_no_certificate() {
    let node = Member::new();
    node.host.fault(HostMethod::WriteFile, HostFault::Fails);
    node.keep(HOUR, true);
    node.advance_signing(&node.api, HOUR, HOUR).await;
    assert_eq!(node.shown().len(), 1);
    assert!(!node.host.exists(CURRENT));
}

#[tokio::test(start_paused = true)]
async fn hanging_disk_delays_no_certificate_rotation() {
    let node = Member::new();
    node.host.fault(HostMethod::WriteFile, HostFault::Hangs);
    node.keep(HOUR, true);
    node.advance_signing(&node.api, 2 * HOUR, HOUR).await;
    assert_eq!(node.shown().len(), 2, "each is presented, and the next is requested in time");
}

#[tokio::test(start_paused = true)]
async fn expired_client_certificate_is_replaced_by_a_new_bootstrap() {
    let node = Member::new();
    let newcomers = FakeCluster::with_clock(node.clock);
    *node.identity.bootstrap.lock() = Some(newcomers.clone());
    // The API rejects the unknown client for each request.
    node.api.fault_always(Verb::Create, "", Some(ClusterFault::Unreachable));
    node.keep(HOUR, false);
    node.advance(59 * MINUTE).await;
    assert!(newcomers.all::<CertificateSigningRequest>().is_empty());
    node.advance_signing(&newcomers, 5 * MINUTE, HOUR).await;
    assert_eq!(node.shown().len(), 1);
    assert!(!node.must_exit.is_cancelled());
    assert!(node.host.exists(CURRENT));
}

#[tokio::test(start_paused = true)]
async fn certificate_replaced_on_disk_is_loaded() {
    let node = Member::new();
    let newcomers = FakeCluster::with_clock(node.clock);
    *node.identity.bootstrap.lock() = Some(newcomers.clone());
    node.keep(HOUR, false);
    node.advance(50 * MINUTE).await;
    *node.identity.on_disk.lock() = Some(node.pair(2 * HOUR));
    node.advance(HOUR).await;
    assert_eq!(node.shown().len(), 1);
    assert!(newcomers.all::<CertificateSigningRequest>().is_empty());
}

#[tokio::test(start_paused = true)]
async fn expired_certificate_without_bootstrap_ends_the_process_after_the_api_answered_for_long() {
    let node = Member::new();
    node.keep(HOUR, true);
    node.api.set_outage(Some(Outage::Refused));
    node.advance(3 * HOUR).await;
    assert!(!node.must_exit.is_cancelled(), "no error names the certificate");
    node.api.set_outage(None);
    let refused = ports::ClusterError::Unauthorized { call: String::new(), message: "who?".to_owned() };
    node.api.fault_always(Verb::Create, "certificatesigningrequests", Some(ClusterFault::Refused(refused)));
    node.advance(10 * MINUTE).await;
    assert!(node.must_exit.is_cancelled());
}
