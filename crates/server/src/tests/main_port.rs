//! The main port over real TLS: authentication, authorization, endpoints, and connections.

use std::sync::Arc;
use std::time::Duration;

use config::{Features, KubeletConfiguration};
use fakes::FakeCluster;
use http::Method;
use model::k8s::SubjectAccessReview;
use ports::node_api::ThreadFacts;
use ports::{Clock, OwnProcess};
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::{Agent, Answer};
use crate::AccessSettings;
use crate::AuthorizationMode;
use crate::ClientCa;
use crate::MainPort;
use crate::MainServer;
use crate::ServingPair;
use crate::TokenReviews;
use crate::endpoint::Endpoint;

mod bounds;
mod reached;
mod translated;
mod walk;

/// A certificate and its key, PEM.
#[derive(Clone, Debug)]
struct Pair {
    certificate: String,
    key: String,
}

/// A CA that signs client certificates.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    fn client(&self, name: &str, group: &str) -> Pair {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::OrganizationName, group);
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Pair { certificate, key: key.serialize_pem() }
    }

    fn trusted(&self) -> ClientCa {
        ClientCa::from_pem(self.pem.as_bytes()).unwrap()
    }
}

fn serving_pair() -> Pair {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["node".to_owned()]).unwrap().self_signed(&key).unwrap();
    Pair { certificate: certificate.pem(), key: key.serialize_pem() }
}

fn served(pair: &Pair) -> ServingPair {
    ServingPair::from_pem(pair.certificate.as_bytes(), pair.key.as_bytes()).unwrap()
}

/// A fake process without facts.
#[derive(Debug)]
struct Process;

impl OwnProcess for Process {
    fn flags(&self) -> Vec<(String, String)> {
        vec![("v".to_owned(), "2".to_owned())]
    }

    fn started(&self) -> jiff::Timestamp {
        jiff::Timestamp::UNIX_EPOCH
    }

    fn command_line(&self) -> Vec<String> {
        vec!["kubelet".to_owned()]
    }

    fn set_verbosity(&self, _level: u32) {}

    fn threads(&self) -> Vec<ThreadFacts> {
        Vec::new()
    }

    fn tasks(&self) -> usize {
        0
    }

    fn memory(&self) -> Vec<(String, u64)> {
        Vec::new()
    }
}

/// A main port under test.
struct Port {
    port: u16,
    pair: Pair,
    pairs: watch::Sender<Option<ServingPair>>,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Port {
    async fn start(agent: Agent, access: AccessSettings, config: KubeletConfiguration) -> Self {
        Self::start_with(agent, access, config, true).await
    }

    async fn start_with(
        agent: Agent,
        access: AccessSettings,
        config: KubeletConfiguration,
        translates: bool,
    ) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (stop, stopped) = oneshot::channel::<()>();
        let pair = serving_pair();
        let (pairs, latest) = watch::channel(Some(served(&pair)));
        let parts = MainPort {
            api: Arc::new(agent),
            pair: latest,
            access,
            config: Arc::new(config),
            features: Features { extend_websockets: translates, ..Features::default() },
            process: Arc::new(Process),
            clock: Clock::system(),
        };
        let server = MainServer::new(parts).unwrap();
        let task = tokio::spawn(server.serve(listener, async move {
            let _ = stopped.await;
        }));
        Self { port, pair, pairs, stop: Some(stop), task }
    }

    /// A port on which every request is allowed.
    async fn open(agent: Agent, config: KubeletConfiguration) -> Self {
        Self::start(agent, allow_all(), config).await
    }

    async fn connect(&self, client: Option<&Pair>, protocol: &[u8]) -> std::io::Result<TlsStream<TcpStream>> {
        self.connect_from([127, 0, 0, 1], client, protocol).await
    }

    async fn connect_from(
        &self,
        from: [u8; 4],
        client: Option<&Pair>,
        protocol: &[u8],
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.pair.certificate.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.unwrap().with_root_certificates(roots);
        let mut config = match client {
            None => builder.with_no_client_auth(),
            Some(pair) => {
                let chain = vec![CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap()];
                let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        config.alpn_protocols = vec![protocol.to_vec()];
        let socket = tokio::net::TcpSocket::new_v4()?;
        socket.bind((from, 0).into())?;
        let stream = socket.connect(([127, 0, 0, 1], self.port).into()).await?;
        // The request follows the end of the handshake, to which the server sends no answer: without this the kernel waits for its
        // acknowledgement, in which time a paused clock moves on.
        stream.set_nodelay(true)?;
        TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("node").unwrap(), stream).await
    }

    async fn ask(&self, method: &str, path: &str, who: &Caller) -> Answer {
        let mut stream = self.connect(who.certificate.as_ref(), b"http/1.1").await.unwrap();
        let token = who.token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
        let request = format!("{method} {path} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n{token}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        Answer { head: head.to_ascii_lowercase(), body: body.to_owned() }
    }

    async fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &Caller::default()).await
    }
}

/// The credentials of a client.
#[derive(Clone, Debug, Default)]
struct Caller {
    certificate: Option<Pair>,
    token: Option<&'static str>,
}

fn allow_all() -> AccessSettings {
    AccessSettings {
        node_name: "n1".to_owned(),
        anonymous: true,
        client_ca: None,
        token_review: None,
        authorization: AuthorizationMode::AlwaysAllow,
    }
}

const TTL: Duration = Duration::from_secs(120);

fn with_reviews(cluster: &FakeCluster, authority: &Authority, anonymous: bool) -> AccessSettings {
    let cluster = Arc::new(cluster.clone());
    AccessSettings {
        node_name: "n1".to_owned(),
        anonymous,
        client_ca: Some(watch::channel(authority.trusted()).1),
        token_review: Some(TokenReviews { cluster: cluster.clone(), ttl: TTL }),
        authorization: AuthorizationMode::Review { cluster, allowed_ttl: TTL, denied_ttl: TTL },
    }
}

/// The user, verb and subresource of a review.
fn attributes(review: &SubjectAccessReview) -> (String, String, String) {
    let attributes = review.spec.resource_attributes.clone().unwrap_or_default();
    assert_eq!(attributes.resource.as_deref(), Some("nodes"));
    assert_eq!(attributes.name.as_deref(), Some("n1"));
    let text = |text: Option<String>| text.unwrap_or_default();
    (text(review.spec.user.clone()), text(attributes.verb), text(attributes.subresource))
}

/// First no user is allowed anything; then each subresource in turn.
#[tokio::test]
async fn every_endpoint_and_method_requires_authentication_and_authorization() {
    let (cluster, authority) = (FakeCluster::new(), Authority::new());
    cluster.accept_token("good", "scraper");
    let port = Port::start(
        Agent::default(),
        with_reviews(&cluster, &authority, false),
        KubeletConfiguration::default(),
    )
    .await;
    let strangers = [
        Caller::default(),
        Caller { token: Some("bad"), ..Caller::default() },
        Caller { certificate: Some(Authority::new().client("root", "system:masters")), token: None },
    ];
    let known = [
        (Caller { token: Some("good"), ..Caller::default() }, "scraper"),
        (Caller { certificate: Some(authority.client("admin", "ops")), token: None }, "admin"),
    ];
    cluster.set_access(|_| false);
    let paths = Endpoint::ALL.iter().flat_map(|endpoint| {
        let root = endpoint.root();
        [root.to_owned(), format!("{root}/"), format!("{root}/ns/pod/main")]
    });
    let mut walked = 0;
    for path in paths.chain(["/".to_owned(), "/nothing/here".to_owned()]) {
        for method in ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"] {
            for stranger in &strangers {
                let answer = port.ask(method, &path, stranger).await;
                assert_eq!((answer.status(), answer.body.as_str()), (401, "Unauthorized"), "{method} {path}");
            }
            for (caller, name) in &known {
                let answer = port.ask(method, &path, caller).await;
                let of =
                    crate::access::attributes::of(&Method::from_bytes(method.as_bytes()).unwrap(), &path);
                let expected = format!(
                    "Forbidden (user={name}, verb={}, resource=nodes, subresource(s)=[{}])",
                    of.verb,
                    of.subresources.join(" ")
                );
                assert_eq!((answer.status(), answer.body), (403, expected), "{method} {path}");
            }
            walked += 1;
        }
    }
    assert_eq!(walked, (Endpoint::ALL.len() * 3 + 2) * 6);
}

#[tokio::test]
async fn permission_applies_to_one_verb_and_one_subresource() {
    let (cluster, authority) = (FakeCluster::new(), Authority::new());
    cluster.accept_token("good", "scraper");
    cluster.set_access(|review| {
        let (user, verb, subresource) = attributes(review);
        assert!(
            review.spec.groups.as_ref().is_some_and(|groups| groups.contains(&"system:authenticated".into()))
        );
        user == "scraper" && verb == "get" && subresource == "metrics"
    });
    let agent = Agent { metrics: "up 1\n".to_owned(), ..Agent::default() };
    let port =
        Port::start(agent, with_reviews(&cluster, &authority, true), KubeletConfiguration::default()).await;
    let caller = Caller { token: Some("good"), ..Caller::default() };
    let answer = port.ask("GET", "/metrics", &caller).await;
    assert_eq!((answer.status(), answer.unchunked()), (200, "Kubelet\nup 1\n".to_owned()));
    assert_eq!(port.ask("POST", "/metrics", &caller).await.status(), 403);
    assert_eq!(port.ask("GET", "/pods", &caller).await.status(), 403);
}

#[tokio::test]
async fn proxy_permission_also_allows_endpoints_with_their_own_subresource() {
    let (cluster, authority) = (FakeCluster::new(), Authority::new());
    cluster.set_access(|review| attributes(review).2 == "proxy");
    let port = Port::start(
        Agent::default(),
        with_reviews(&cluster, &authority, false),
        KubeletConfiguration::default(),
    )
    .await;
    let caller = Caller { certificate: Some(authority.client("old", "monitoring")), token: None };
    assert_eq!(port.ask("GET", "/pods", &caller).await.status(), 200);
    assert_eq!(port.ask("GET", "/metrics", &caller).await.status(), 403, "metrics has no such way in");
}

#[tokio::test]
async fn request_without_credentials_is_system_anonymous_if_enabled() {
    let (cluster, authority) = (FakeCluster::new(), Authority::new());
    cluster.set_access(|review| {
        let groups = review.spec.groups.clone().unwrap_or_default();
        attributes(review).0 == "system:anonymous" && groups == ["system:unauthenticated"]
    });
    let port = Port::start(
        Agent::default(),
        with_reviews(&cluster, &authority, true),
        KubeletConfiguration::default(),
    )
    .await;
    assert_eq!(port.get("/pods").await.status(), 200);
    // Invalid credentials are not treated as anonymous.
    let liar = Caller { token: Some("bad"), ..Caller::default() };
    assert_eq!(port.ask("GET", "/pods", &liar).await.status(), 401);
}

#[tokio::test]
async fn reviews_of_the_api_server_are_cached() {
    let (cluster, authority) = (FakeCluster::new(), Authority::new());
    cluster.accept_token("good", "scraper").set_access(|_| true);
    let port = Port::start(
        Agent::default(),
        with_reviews(&cluster, &authority, false),
        KubeletConfiguration::default(),
    )
    .await;
    for token in ["good", "bad", "good", "bad"] {
        let caller = Caller { token: Some(token), ..Caller::default() };
        port.ask("GET", "/metrics", &caller).await;
    }
    assert_eq!(
        cluster.call_lines().iter().map(|line| line.trim().to_owned()).collect::<Vec<_>>(),
        ["create tokenreviews", "create subjectaccessreviews", "create tokenreviews"]
    );
}

#[tokio::test]
async fn requests_are_rejected_while_the_api_server_does_not_respond() {
    let (cluster, authority) = (FakeCluster::new(), Authority::new());
    cluster.set_outage(Some(fakes::fake_cluster::Outage::Refused));
    let port = Port::start(
        Agent::default(),
        with_reviews(&cluster, &authority, false),
        KubeletConfiguration::default(),
    )
    .await;
    let caller = Caller { token: Some("good"), ..Caller::default() };
    assert_eq!(port.ask("GET", "/pods", &caller).await.status(), 401);
    let caller = Caller { certificate: Some(authority.client("admin", "ops")), token: None };
    let answer = port.ask("GET", "/pods", &caller).await;
    assert_eq!(answer.status(), 500);
    assert_eq!(
        answer.body,
        "Authorization error (user=admin, verb=get, resource=nodes, subresource(s)=[pods proxy])"
    );
}

#[tokio::test]
async fn replaced_client_ca_applies_at_once() {
    let (old, new) = (Authority::new(), Authority::new());
    let (sender, latest) = watch::channel(old.trusted());
    let access = AccessSettings { client_ca: Some(latest), anonymous: false, ..allow_all() };
    let port = Port::start(Agent::default(), access, KubeletConfiguration::default()).await;
    let of = |authority: &Authority| Caller { certificate: Some(authority.client("a", "b")), token: None };
    let statuses = async |port: &Port| {
        (
            port.ask("GET", "/pods", &of(&old)).await.status(),
            port.ask("GET", "/pods", &of(&new)).await.status(),
        )
    };
    assert_eq!(statuses(&port).await, (200, 401));
    sender.send_replace(new.trusted());
    assert_eq!(statuses(&port).await, (401, 200));
}

#[tokio::test]
async fn latest_serving_certificate_is_used() {
    let mut port = Port::open(Agent::default(), KubeletConfiguration::default()).await;
    let next = serving_pair();
    port.pairs.send_replace(Some(served(&next)));
    assert!(port.connect(None, b"http/1.1").await.is_err(), "the old one is not served any more");
    port.pair = next;
    assert_eq!(port.get("/healthz").await.body, "ok");
    port.pairs.send_replace(None);
    assert!(port.connect(None, b"http/1.1").await.is_err());
}

#[tokio::test]
async fn runningpods_endpoint_lists_pods_of_the_runtime() {
    let port = Port::open(Agent::default(), KubeletConfiguration::default()).await;
    assert_eq!(port.get("/runningpods/").await.json()["items"][0]["metadata"]["name"], "running");
    let answer = port.get("/runningpods").await;
    assert_eq!((answer.status(), answer.header("location")), (301, Some("/runningpods/")));
    let agent = Agent { runtime_is_down: true, ..Agent::default() };
    let port = Port::open(agent, KubeletConfiguration::default()).await;
    port.get("/runningpods/").await.check(500, "runtime is down\n");
}

#[tokio::test]
async fn debug_manifests_lists_problems() {
    let port = Port::open(Agent::default(), KubeletConfiguration::default()).await;
    let expected = json!([{"origin": "file:/m/web.yaml", "message": "line 3: \"oops\""}]);
    assert_eq!(port.get("/debug/manifests").await.json(), expected);
}

#[tokio::test]
async fn start_of_a_pod_is_a_picture_and_unknown_pods_are_not_found() {
    let port = Port::open(Agent::default(), KubeletConfiguration::default()).await;
    let answer = port.get("/debug/pods/explained/start.svg").await;
    assert_eq!((answer.status(), answer.header("content-type")), (200, Some("image/svg+xml")));
    assert!(answer.body.starts_with("<svg"), "{}", answer.body);
    let text = "no pod with UID \"other\" is known to this node\n";
    port.get("/debug/pods/other/start.svg").await.check(404, text);
}

#[tokio::test]
async fn configz_shows_the_configuration_with_its_kind() {
    let config = KubeletConfiguration { max_pods: 7, ..KubeletConfiguration::default() };
    let shown = Port::open(Agent::default(), config).await.get("/configz").await.json();
    let shown = &shown["kubeletconfig"];
    assert_eq!(shown["kind"], "KubeletConfiguration");
    assert_eq!(shown["apiVersion"], "kubelet.config.k8s.io/v1beta1");
    assert_eq!((&shown["maxPods"], &shown["syncFrequency"]), (&json!(7), &json!("1m0s")));
    let is_shown = |field: &str| shown.get(field).is_some();
    assert!(!is_shown("podCIDR") && !is_shown("evictionSoft") && !is_shown("readOnlyPort"), "{shown:#}");
}

#[tokio::test]
async fn disabled_endpoint_groups_report_that() {
    let debugging =
        KubeletConfiguration { enable_debugging_handlers: false, ..KubeletConfiguration::default() };
    let port = Port::open(Agent::default(), debugging).await;
    for (method, path, text) in [
        ("POST", "/run/ns/pod/main", "Debug endpoints are disabled.\n"),
        ("POST", "/exec/ns/pod/main", "Debug endpoints are disabled.\n"),
        ("GET", "/attach/ns/pod/main", "Debug endpoints are disabled.\n"),
        ("POST", "/portForward/ns/pod", "Debug endpoints are disabled.\n"),
        ("GET", "/containerLogs/ns/pod/main", "Debug endpoints are disabled.\n"),
        ("GET", "/runningpods/", "Debug endpoints are disabled.\n"),
        ("GET", "/logs/", "Debug endpoints are disabled.\n"),
        ("GET", "/debug/pprof/heap", "Debug endpoints are disabled.\n"),
    ] {
        port.ask(method, path, &Caller::default()).await.check(405, text);
    }
    port.get("/healthz").await.check(200, "ok");
    let single = KubeletConfiguration {
        enable_system_log_handler: false,
        enable_profiling_handler: false,
        enable_debug_flags_handler: false,
        ..KubeletConfiguration::default()
    };
    let port = Port::open(Agent::default(), single).await;
    port.get("/logs/syslog").await.check(405, "logs endpoint is disabled.\n");
    port.get("/debug/pprof/").await.check(405, "profiling endpoint is disabled.\n");
    port.ask("PUT", "/debug/flags/v", &Caller::default()).await.check(405, "flags endpoint is disabled.\n");
    assert_eq!(port.get("/configz").await.status(), 200);
}

#[tokio::test]
async fn endpoints_without_a_refusal_are_unknown_without_debugging_handlers() {
    let debugging =
        KubeletConfiguration { enable_debugging_handlers: false, ..KubeletConfiguration::default() };
    let port = Port::open(Agent::default(), debugging).await;
    for (method, path) in [
        ("GET", "/flagz"),
        ("GET", "/statusz"),
        ("GET", "/configz"),
        ("POST", "/checkpoint/ns/pod/main"),
        ("GET", "/debug/manifests"),
        ("GET", "/debug/pods/uid/start.svg"),
        ("PUT", "/debug/flags/v"),
    ] {
        port.ask(method, path, &Caller::default()).await.check(404, "404 page not found\n");
    }
}

#[tokio::test]
async fn http2_is_negotiated_by_alpn() {
    let port = Port::open(Agent::default(), KubeletConfiguration::default()).await;
    let stream = port.connect(None, b"h2").await.unwrap();
    let io = hyper_util::rt::TokioIo::new(stream);
    let executor = hyper_util::rt::TokioExecutor::new();
    let (mut sender, connection) = hyper::client::conn::http2::handshake(executor, io).await.unwrap();
    let connection = tokio::spawn(connection);
    for _ in 0..3 {
        let request = http::Request::get("https://node/healthz").body(String::new()).unwrap();
        let answer = sender.send_request(request).await.unwrap();
        assert_eq!((answer.status().as_u16(), answer.version()), (200, http::Version::HTTP_2));
    }
    drop(sender);
    connection.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn connection_without_a_handshake_or_request_times_out() {
    let port = Port::open(Agent::default(), KubeletConfiguration::default()).await;
    let mut silent = TcpStream::connect(("127.0.0.1", port.port)).await.unwrap();
    assert_eq!(silent.read_to_end(&mut Vec::new()).await.unwrap_or(0), 0);
    for protocol in [b"http/1.1".as_slice(), b"h2"] {
        let mut idle = port.connect(None, protocol).await.unwrap();
        let _ = idle.read_to_end(&mut Vec::new()).await;
    }
}

#[tokio::test]
async fn too_long_request_head_is_rejected() {
    let port = Port::open(Agent::default(), KubeletConfiguration::default()).await;
    let mut stream = port.connect(None, b"http/1.1").await.unwrap();
    let head = format!("GET /pods HTTP/1.1\r\nHost: node\r\nX: {}\r\n\r\n", "x".repeat(1 << 20));
    let (mut answers, mut requests) = tokio::io::split(&mut stream);
    let mut answer = Vec::new();
    // Rejected while it is still being sent.
    let (_, _) = tokio::join!(requests.write_all(head.as_bytes()), answers.read_to_end(&mut answer));
    assert!(answer.starts_with(b"HTTP/1.1 431 "), "{}", String::from_utf8_lossy(&answer));
}

#[tokio::test]
async fn shutdown_of_the_main_port_ends_its_connections() {
    let mut port = Port::open(Agent::default(), KubeletConfiguration::default()).await;
    let mut held = Vec::new();
    for protocol in [b"http/1.1".as_slice(), b"h2"] {
        held.push(port.connect(None, protocol).await.unwrap());
    }
    let _half_open = TcpStream::connect(("127.0.0.1", port.port)).await.unwrap();
    port.stop.take().unwrap().send(()).unwrap();
    (&mut port.task).await.unwrap();
    for mut stream in held {
        let _ = stream.read_to_end(&mut Vec::new()).await;
    }
}
