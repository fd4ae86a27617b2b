//! The serving certificate of a node without configured certificate files.

use std::sync::Arc;
use std::time::Duration;

use api_agent::certificates::{ClusterSigned, PairStore, SelfSigned};
use api_core::certificates::{CertificateUse, wanted_names};
use base_agent::metrics::Metrics;
use base_agent::rng::Rng;
use base_agent::tasks::TaskSet;
use fakes::{FakeCertificates, FakeCluster, FakeHost, Verdict};
use model::k8s::{CertificateSigningRequest, NodeAddress};
use model::{CertificateFacts, CertificateNames, PemPair};
use ports::{Certificates, Clock};
use tokio::sync::watch;

const HOUR: Duration = Duration::from_secs(3600);
const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(86400);

struct Server {
    clock: Clock,
    api: FakeCluster,
    host: FakeHost,
    certificates: Arc<FakeCertificates>,
    addresses: watch::Sender<Vec<NodeAddress>>,
    serves: watch::Sender<Option<Arc<PemPair>>>,
    tasks: TaskSet,
}

impl Server {
    fn new() -> Self {
        let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
        Self {
            clock,
            api: FakeCluster::with_clock(clock),
            host: FakeHost::new(),
            certificates: Arc::default(),
            addresses: watch::channel(Vec::new()).0,
            serves: watch::channel(None).0,
            tasks: TaskSet::new(),
        }
    }

    fn start_signed(&self) {
        let signed = ClusterSigned {
            store: PairStore {
                files: Arc::new(self.host.clone()),
                certificates: self.certificates.clone(),
                dir: "/pki".into(),
                name: "kubelet-server",
            },
            cluster: Arc::new(self.api.clone()),
            clock: self.clock,
            rng: Rng::from_seed(1),
            node_name: "edge-1".to_owned(),
            addresses: self.addresses.subscribe(),
            dns_name_suffices: false,
            metrics: Metrics::default(),
            serves: self.serves.clone(),
        };
        self.tasks.spawn("signed", signed.run());
    }

    fn start_self_signed(&self) {
        let own = SelfSigned {
            files: Arc::new(self.host.clone()),
            certificates: self.certificates.clone(),
            clock: self.clock,
            rng: Rng::from_seed(1),
            dir: "/pki".into(),
            names: names(),
            serves: self.serves.clone(),
        };
        self.tasks.spawn("self-signed", async {
            let facts = own.prepare().await.unwrap();
            own.run(facts).await;
        });
    }

    fn address(&self, ip: &str) {
        let addresses = [("InternalIP", ip), ("Hostname", "edge-1")];
        let node =
            |(type_, address): (&str, &str)| NodeAddress { type_: type_.into(), address: address.into() };
        self.addresses.send_replace(addresses.map(node).to_vec());
    }

    async fn advance(&self, time: Duration) {
        self.clock.sleep_until(self.clock.mono() + time).await;
    }

    async fn sign(&self) -> usize {
        self.advance(MINUTE).await;
        let signed = self.api.decide_signing_requests(Verdict::Sign(DAY), self.clock.now().wall);
        self.advance(Duration::from_secs(1)).await;
        signed
    }

    fn served(&self) -> Option<CertificateFacts> {
        let pair = self.serves.borrow().clone()?;
        Some(self.certificates.read(&pair).unwrap())
    }
}

fn names() -> CertificateNames {
    wanted_names(CertificateUse::Serving, "edge-1", ["edge-1".to_owned()], [])
}

#[tokio::test(start_paused = true)]
async fn serving_certificate_covers_node_addresses_and_is_requested_again_on_change() {
    let server = Server::new();
    server.start_signed();
    server.advance(HOUR).await;
    assert!(server.api.all::<CertificateSigningRequest>().is_empty(), "no address, no request");
    server.address("10.0.0.1");
    assert_eq!(server.sign().await, 1);
    let first = server.served().unwrap();
    assert_eq!(first.names.ip_addresses, ["10.0.0.1".parse().unwrap()].into());
    assert_eq!(first.names.dns_names, ["edge-1".to_owned()].into());
    server.advance(HOUR).await;
    server.address("10.0.0.2");
    assert_eq!(server.sign().await, 1);
    assert_eq!(server.served().unwrap().names.ip_addresses, ["10.0.0.2".parse().unwrap()].into());
    let requests = server.api.all::<CertificateSigningRequest>();
    assert!(requests.iter().all(|request| request.spec.signer_name == "kubernetes.io/kubelet-serving"));
}

#[tokio::test(start_paused = true)]
async fn restart_serves_the_existing_certificate() {
    let server = Server::new();
    server.address("10.0.0.1");
    server.start_signed();
    server.sign().await;
    let before = server.served().unwrap();
    server.tasks.stop().await;
    server.serves.send_replace(None);
    let again = Server { tasks: TaskSet::new(), ..server };
    again.start_signed();
    again.advance(MINUTE).await;
    assert_eq!(again.served().unwrap(), before);
    assert_eq!(again.api.all::<CertificateSigningRequest>().len(), 1);
    again.advance(16 * HOUR).await;
    assert_eq!(again.sign().await, 0);
    let mut minutes = 0;
    while again.sign().await == 0 {
        minutes += 1;
        assert!(minutes < 6 * 60, "renewed in time");
    }
    assert_ne!(again.served().unwrap(), before);
}

#[tokio::test(start_paused = true)]
async fn self_signed_serving_certificate_is_valid_for_a_year() {
    let server = Server::new();
    server.start_self_signed();
    server.advance(MINUTE).await;
    let made = server.served().unwrap();
    assert_eq!(made.not_after.duration_since(made.not_before).as_hours(), 365 * 24);
    assert!(server.host.exists("/pki/kubelet.crt") && server.host.exists("/pki/kubelet.key"));
    let again = Server { tasks: TaskSet::new(), serves: watch::channel(None).0, ..server };
    again.start_self_signed();
    again.advance(MINUTE).await;
    assert_eq!(again.served().unwrap(), made, "it is kept over a restart");
}

#[tokio::test(start_paused = true)]
async fn damaged_or_expired_self_signed_pair_is_replaced() {
    let server = Server::new();
    let old = server.certificates.pair(&names(), server.clock.now().wall, MINUTE);
    server.host.put("/pki/kubelet.crt", &old.certificate).put("/pki/kubelet.key", &old.key);
    server.advance(2 * MINUTE).await;
    server.start_self_signed();
    server.advance(MINUTE).await;
    let made = server.served().unwrap();
    assert!(made.is_good_at(server.clock.now().wall));
    server.host.put("/pki/kubelet.crt", "rubbish");
    let again = Server { tasks: TaskSet::new(), serves: watch::channel(None).0, ..server };
    again.start_self_signed();
    again.advance(MINUTE).await;
    let renewed = again.served().unwrap();
    assert!(renewed.not_before > made.not_before);
    again.advance(340 * DAY).await;
    assert!(again.served().unwrap().not_before > renewed.not_before, "it is renewed before it ends");
}
