//! A node that has no certificate yet, and the approval or denial of its request.

use std::sync::Arc;
use std::time::Duration;

use api_agent::certificates::{Join, JoinError, PairStore, SigningError, StoredPair};
use api_core::certificates::{BOOTSTRAP_TIMEOUT, CertificateUse, wanted_names};
use fakes::{ClusterFault, FakeCertificates, FakeCluster, FakeHost, Outage, Verb, Verdict};
use jiff::Timestamp;
use model::k8s::CertificateSigningRequest;
use ports::{Certificates, Clock, ClusterError};

const DIR: &str = "/var/lib/kubelet/pki";
const CURRENT: &str = "/var/lib/kubelet/pki/kubelet-client-current.pem";
const KEY: &str = "/var/lib/kubelet/pki/kubelet-client.key.tmp";
const DAY: Duration = Duration::from_secs(86400);

struct Newcomer {
    clock: Clock,
    api: FakeCluster,
    host: FakeHost,
    certificates: Arc<FakeCertificates>,
    store: PairStore,
}

impl Newcomer {
    fn new() -> Self {
        let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
        let (host, certificates) = (FakeHost::new(), Arc::new(FakeCertificates::default()));
        let store = PairStore {
            files: Arc::new(host.clone()),
            certificates: certificates.clone(),
            dir: DIR.into(),
            name: "kubelet-client",
        };
        Self { clock, api: FakeCluster::with_clock(clock), host, certificates, store }
    }

    async fn join(&self) -> Result<StoredPair, JoinError> {
        let join = Join {
            cluster: &self.api,
            clock: self.clock,
            store: &self.store,
            node_name: "edge-1",
            timeout: BOOTSTRAP_TIMEOUT,
        };
        join.run().await
    }

    async fn advance(&self, time: Duration) {
        self.clock.sleep_until(self.clock.mono() + time).await;
    }

    /// Approves or denies after a while.
    async fn decide(&self, verdict: Verdict, after: Duration) -> usize {
        self.advance(after).await;
        self.api.decide_signing_requests(verdict, self.now())
    }

    fn now(&self) -> Timestamp {
        self.clock.now().wall
    }

    fn requests(&self) -> Vec<CertificateSigningRequest> {
        self.api.all()
    }
}

const fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(minutes * 60)
}

#[tokio::test(start_paused = true)]
async fn bootstrap_joins_when_the_csr_is_approved() {
    let node = Newcomer::new();
    let (joined, decided) = tokio::join!(node.join(), node.decide(Verdict::Sign(DAY), minutes(50)));
    let joined = joined.unwrap();
    assert_eq!(decided, 1);
    assert_eq!(joined.facts.names, wanted_names(CertificateUse::Client, "edge-1", [], []));
    assert_eq!(node.store.load().await.unwrap().unwrap(), joined_with_file(&node, &joined));
    assert!(!node.host.exists(KEY), "the key is only in the pair now");
    let request = &node.requests()[0];
    assert_eq!(request.spec.signer_name, "kubernetes.io/kube-apiserver-client-kubelet");
    assert_eq!(request.metadata.name.as_deref(), Some("node-csr-id1"));
}

/// What a restart reads back: certificate and key come from one file, which has both.
fn joined_with_file(node: &Newcomer, joined: &StoredPair) -> StoredPair {
    let text = node.host.text(CURRENT).unwrap();
    assert_eq!(text, format!("{}{}", joined.pair.certificate, joined.pair.key));
    let pair = model::PemPair { certificate: text.clone(), key: text };
    StoredPair { facts: node.certificates.read(&pair).unwrap(), pair }
}

#[tokio::test(start_paused = true)]
async fn bootstrap_reuses_its_csr_after_a_crash() {
    let node = Newcomer::new();
    tokio::select! {
        _ = node.join() => panic!("it has not been approved"),
        () = node.advance(minutes(5)) => {}
    }
    assert!(node.host.exists(KEY));
    let (joined, _) = tokio::join!(node.join(), node.decide(Verdict::Sign(DAY), minutes(1)));
    joined.unwrap();
    assert_eq!(node.requests().len(), 1, "requested once");
}

#[tokio::test(start_paused = true)]
async fn denied_bootstrap_csr_is_an_error_and_not_repeated() {
    let node = Newcomer::new();
    let (joined, _) = tokio::join!(node.join(), node.decide(Verdict::Deny, minutes(1)));
    let error = joined.unwrap_err().to_string();
    assert_eq!(
        error,
        "node-csr-id1: certificate signing request is denied, reason: Test, message: as the test says"
    );
    assert!(matches!(node.join().await, Err(JoinError::Signing(SigningError::Refused { .. }))));
    assert_eq!(node.requests().len(), 1);
    assert!(!node.host.exists(CURRENT));
}

#[tokio::test(start_paused = true)]
async fn bootstrap_csr_without_answer_for_an_hour_is_an_error() {
    let node = Newcomer::new();
    let begun = node.now();
    let error = node.join().await.unwrap_err().to_string();
    assert_eq!(
        error,
        "timed out after 3600s waiting for certificate signing request node-csr-id1 to be approved and signed"
    );
    assert_eq!(node.now().duration_since(begun).as_secs(), 3600);
}

#[tokio::test(start_paused = true)]
async fn bootstrap_survives_an_unreachable_api() {
    let node = Newcomer::new();
    node.api.set_outage(Some(Outage::Refused));
    let trouble = async {
        node.advance(minutes(4)).await;
        node.api.set_outage(None);
        node.advance(minutes(3)).await;
        assert_eq!(node.requests().len(), 1);
        node.api.set_outage(Some(Outage::Refused));
        node.advance(minutes(3)).await;
        node.api.set_outage(None);
        node.decide(Verdict::Sign(DAY), Duration::ZERO).await
    };
    let (joined, decided) = tokio::join!(node.join(), trouble);
    joined.unwrap();
    assert_eq!((decided, node.requests().len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn bootstrap_without_permission_fails_at_once() {
    let node = Newcomer::new();
    let forbidden = ClusterError::Forbidden { call: String::new(), message: "not you".to_owned() };
    node.api.fault(Verb::Create, "certificatesigningrequests", ClusterFault::Refused(forbidden));
    let error = node.join().await.unwrap_err();
    assert!(error.to_string().ends_with("forbidden: not you"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn damaged_bootstrap_key_is_replaced_and_a_damaged_pair_reported() {
    let node = Newcomer::new();
    node.host.put(KEY, "rubbish").put(CURRENT, "rubbish");
    let error = node.store.load().await.unwrap_err().to_string();
    assert_eq!(error, format!("{CURRENT}: it is no certificate"));
    let (joined, _) = tokio::join!(node.join(), node.decide(Verdict::Sign(DAY), minutes(1)));
    joined.unwrap();
    assert!(node.store.load().await.unwrap().is_some());
}

async fn saved(node: &Newcomer, count: usize) -> Vec<StoredPair> {
    let names = wanted_names(CertificateUse::Client, "edge-1", [], []);
    let mut pairs = Vec::new();
    for _ in 0..count {
        let pair = node.certificates.pair(&names, node.now(), DAY);
        node.store.save(&pair, node.now()).await.unwrap();
        pairs.push(node.store.load().await.unwrap().unwrap());
        node.advance(minutes(1)).await;
    }
    pairs
}

#[tokio::test(start_paused = true)]
async fn power_cut_does_not_lose_the_client_certificate() {
    let node = Newcomer::new();
    let pairs = saved(&node, 2).await;
    node.host.power_cut();
    assert_eq!(node.store.load().await.unwrap().as_ref(), pairs.last());
}

#[tokio::test(start_paused = true)]
async fn an_empty_current_certificate_falls_back_to_the_newest_older_pair() {
    let node = Newcomer::new();
    let pairs = saved(&node, 3).await;
    let dated = |minute: u32| format!("{DIR}/kubelet-client-2026-01-01-00-0{minute}-00.pem");
    node.host.put(dated(2), "");
    assert_eq!(node.store.load().await.unwrap().as_ref(), pairs.get(1));
    assert_eq!(node.host.text(CURRENT), node.host.text(dated(1)), "the kubeconfig names the link");
    node.host.put(dated(1), "damaged").put(dated(0), "");
    assert!(node.store.load().await.is_err(), "there is none left");
    // An operator who removes the link wants the node to bootstrap again.
    node.host.delete(CURRENT).put(dated(0), "");
    assert_eq!(node.store.load().await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn certificate_for_another_node_is_rejected() {
    let node = Newcomer::new();
    let meddle = async {
        node.advance(minutes(1)).await;
        let mut request = node.requests().remove(0);
        let text = String::from_utf8(request.spec.request.0).unwrap().replace("edge-1", "edge-2");
        request.spec.request.0 = text.into_bytes();
        node.api.put(&request);
        node.decide(Verdict::Sign(DAY), Duration::ZERO).await
    };
    let (joined, _) = tokio::join!(node.join(), meddle);
    let error = joined.unwrap_err().to_string();
    assert!(error.contains("edge-2") && error.contains("but must be for"), "{error}");
    assert!(!node.host.exists(CURRENT) && !node.host.exists(KEY));
}

#[tokio::test(start_paused = true)]
async fn old_certificate_pairs_are_pruned_and_other_files_kept() {
    let node = Newcomer::new();
    node.host.put(format!("{DIR}/kubelet-client-of-mine.pem"), "x");
    let names = wanted_names(CertificateUse::Client, "edge-1", [], []);
    for _ in 0..5 {
        let pair = node.certificates.pair(&names, node.now(), DAY);
        node.store.save(&pair, node.now()).await.unwrap();
        node.advance(minutes(1)).await;
    }
    let files = node.host.files_below(DIR);
    assert_eq!(files.iter().filter(|file| file.contains("-2026-01-01-00-0")).count(), 3, "{files:?}");
    assert!(files.iter().any(|file| file.ends_with("kubelet-client-of-mine.pem")), "{files:?}");
    assert!(node.host.text(CURRENT).unwrap().contains("key 5"));
}

/// The Go kubelet names its files in local time: here ten hours ahead of UTC, which ours are in.
#[tokio::test(start_paused = true)]
async fn certificate_files_of_the_go_kubelet_named_in_local_time_are_older_than_new_ones() {
    let node = Newcomer::new();
    let names = wanted_names(CertificateUse::Client, "edge-1", [], []);
    for minute in 0..3 {
        let pair = node.certificates.pair(&names, node.now(), DAY);
        let path = format!("{DIR}/kubelet-client-2026-01-01-10-0{minute}-00.pem");
        node.host.put(path, format!("{}{}", pair.certificate, pair.key));
        node.advance(minutes(1)).await;
    }
    let pairs = saved(&node, 2).await;
    assert_eq!(node.store.load().await.unwrap().as_ref(), pairs.last());
    let mut files = node.host.files_below(DIR);
    files.retain(|file| file.contains("-2026-01-01-"));
    let names = ["00-03-00", "00-04-00", "10-02-00"];
    assert_eq!(files, names.map(|time| format!("{DIR}/kubelet-client-2026-01-01-{time}.pem")));
    // After a power cut, the newest valid one replaces the current one.
    node.host.put(format!("{DIR}/kubelet-client-2026-01-01-00-04-00.pem"), "");
    assert_eq!(node.store.load().await.unwrap().as_ref(), pairs.first());
}
