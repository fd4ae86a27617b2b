//! Requests that a kubelet answers: logs, exec, attach, port-forward and proxies, through a running localapi to a fake
//! kubelet.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::TlsConnector;

use crate::kubelet::{FAREWELL, Kubelet, RecordedRequest};
use crate::server::{Server, TIMEOUT};

const PODS: &str = "/api/v1/namespaces/default/pods";
const CLIENT_SUBJECT: &str = "O=system:masters, CN=kube-apiserver-kubelet-client";

/// A server with a node `n` with the fake kubelet, and a pod `web` on it.
struct Cluster {
    server: Server,
    kubelet: Kubelet,
    log: mpsc::Sender<&'static str>,
}

async fn cluster() -> Cluster {
    let server = Server::start(&["--token=secret:admin:system:masters"]);
    let (log, lines) = mpsc::channel(8);
    let kubelet = Kubelet::start(&server.file("ca.crt"), lines).await;
    create_node(&server, "n", kubelet.address.port());
    create_pod(&server, "web", "n", &["main"]);
    Cluster { server, kubelet, log }
}

pub(crate) fn create_node(server: &Server, name: &str, port: u16) {
    let node = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {
            "addresses": [{"type": "Hostname", "address": name}, {"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        },
    });
    server.admin().feed(&["create", "-f", "-"], &node.to_string());
}

pub(crate) fn create_pod(server: &Server, name: &str, node: &str, containers: &[&str]) {
    let containers: Vec<Value> =
        containers.iter().map(|name| json!({"name": name, "image": "busybox"})).collect();
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": containers},
    });
    if !node.is_empty() {
        pod["spec"]["nodeName"] = json!(node);
    }
    server.admin().feed(&["create", "-f", "-"], &pod.to_string());
}

/// A port of this machine without a listener.
pub(crate) fn dead_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

pub(crate) fn requests(line: &str) -> Vec<RecordedRequest> {
    vec![RecordedRequest { client: CLIENT_SUBJECT.to_owned(), line: line.to_owned(), authorization: false }]
}

impl Cluster {
    /// Sends a request with the token, on a new connection that can be upgraded.
    async fn send(&self, request: http::request::Builder, body: &str) -> Response<Incoming> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        let authority = CertificateDer::from_pem_file(self.server.file("ca.crt")).expect("a certificate");
        roots.add(authority).expect("a good authority");
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions of TLS")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let stream = TcpStream::connect(("127.0.0.1", self.server.port())).await.expect("connected");
        let name = ServerName::try_from("127.0.0.1").expect("a name");
        let connector = TlsConnector::from(Arc::new(config));
        let stream = connector.connect(name, stream).await.expect("a handshake");
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.expect("HTTP");
        tokio::spawn(connection.with_upgrades());
        let request = request
            .header(header::HOST, "localapi")
            .header(header::AUTHORIZATION, "Bearer secret")
            .body(Full::new(Bytes::from(body.to_owned())))
            .expect("a request");
        sender.send_request(request).await.expect("a response")
    }

    /// Requests an upgrade, as a SPDY client does.
    async fn upgrade(&self, path: &str) -> Response<Incoming> {
        let request = Request::post(path)
            .header(header::CONNECTION, "Upgrade")
            .header(header::UPGRADE, "SPDY/3.1")
            .header("x-stream-protocol-version", "v4.channel.k8s.io");
        self.send(request, "").await
    }

    /// The code and message of the error.
    async fn refused(&self, path: &str) -> (u16, String) {
        let response = self.upgrade(path).await;
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        let status: Value = serde_json::from_slice(&body).expect("a Status");
        assert_eq!(status["code"], json!(code));
        (code, status["message"].as_str().unwrap_or_default().to_owned())
    }
}

async fn body(response: Response<Incoming>) -> String {
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    String::from_utf8(body.to_vec()).expect("text")
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_reads_logs_with_every_option() {
    let cluster = cluster().await;
    let kubectl = cluster.server.admin();
    cluster.kubelet.take_requests();
    let log = kubectl.ok(&["logs", "web"]);
    assert_eq!(log, "/containerLogs/default/web/main? \n");
    assert_eq!(cluster.kubelet.take_requests(), requests("GET /containerLogs/default/web/main"));
    let options = ["--tail=3", "--timestamps", "--previous", "--limit-bytes=100", "--since=5s"];
    kubectl.ok(&[&["logs", "web", "-c", "main"], options.as_slice()].concat());
    let query = "limitBytes=100&previous=true&sinceSeconds=5&tailLines=3&timestamps=true";
    assert_eq!(
        cluster.kubelet.take_requests(),
        requests(&format!("GET /containerLogs/default/web/main?{query}"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn followed_log_is_streamed_line_by_line() {
    let cluster = cluster().await;
    let mut follower = cluster
        .server
        .admin()
        .command(&["logs", "-f", "web"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("kubectl follows");
    let mut lines = BufReader::new(follower.stdout.take().expect("its output")).lines();
    let mut next = || lines.next().map(|line| line.expect("text"));
    cluster.log.send("one\n").await.expect("the log has a follower");
    assert_eq!(next().as_deref(), Some("one"));
    cluster.log.send("two\n").await.expect("the log has a follower");
    assert_eq!(next().as_deref(), Some("two"));
    drop(cluster.log);
    assert_eq!(next(), None);
    assert!(follower.wait().expect("kubectl ends").success());
}

#[tokio::test(flavor = "multi_thread")]
async fn log_streams_and_tunnels_end_when_the_server_stops() {
    let mut cluster = cluster().await;
    let path = format!("{PODS}/web/log?follow=true");
    let mut log = cluster.send(Request::get(path), "").await.into_body();
    cluster.log.send("one\n").await.expect("the log has a follower");
    let first = log.frame().await.expect("a line").expect("a good line");
    assert_eq!(first.into_data().expect("data"), "one\n");
    let tunnel = cluster.upgrade(&format!("{PODS}/web/exec?command=cat")).await;
    let mut tunnel = TokioIo::new(hyper::upgrade::on(tunnel).await.expect("upgraded"));
    cluster.server.stop();
    assert!(log.frame().await.is_none_or(|frame| frame.is_err()), "the log breaks off");
    assert!(tunnel.read(&mut [0; 1]).await.map_or(true, |read| read == 0), "and so does the tunnel");
}

#[tokio::test(flavor = "multi_thread")]
async fn log_errors_have_the_messages_of_the_real_server() {
    let cluster = cluster().await;
    let kubectl = cluster.server.admin();
    create_pod(&cluster.server, "many", "n", &["one", "refusing"]);
    create_pod(&cluster.server, "unbound", "", &["main"]);
    create_node(&cluster.server, "dead", dead_port());
    create_pod(&cluster.server, "lost", "dead", &["main"]);
    create_pod(&cluster.server, "astray", "nowhere", &["main"]);
    let refused = |arguments: &[&str]| kubectl.refused(&[&["logs"], arguments].concat(), "");
    assert!(refused(&["web", "-c", "x"]).contains("container x is not valid for pod web"));
    let waiting = refused(&["many", "-c", "refusing"]);
    assert!(waiting.contains("(BadRequest): container \"refusing\" is waiting to start"), "{waiting}");
    assert!(refused(&["gone"]).contains("pods \"gone\" not found"));
    assert!(refused(&["astray"]).contains("nodes \"nowhere\" not found"));
    let lost = refused(&["lost"]);
    let expected = "Error from server: Get \"https://127.0.0.1:";
    assert!(lost.starts_with(expected) && lost.contains(": dial tcp 127.0.0.1:"), "{lost}");
    // The pod has not started, so its log is empty.
    assert_eq!(kubectl.ok(&["logs", "unbound"]), "");
    let many = cluster.send(Request::get(format!("{PODS}/many/log")), "").await;
    assert_eq!(many.status(), StatusCode::BAD_REQUEST);
    let expected = "a container name must be specified for pod many, choose one of: [one refusing]";
    assert!(body(many).await.contains(expected));
}

#[tokio::test(flavor = "multi_thread")]
async fn upgraded_connection_can_be_half_closed() {
    let cluster = cluster().await;
    cluster.kubelet.take_requests();
    for (path, line) in [
        (
            "exec?command=sh&command=-c&stdin=true&stdout=true&tty=true",
            "/exec/default/web/main?command=sh&command=-c&input=1&output=1&tty=1",
        ),
        ("portforward", "/portForward/default/web"),
    ] {
        let response = cluster.upgrade(&format!("{PODS}/web/{path}")).await;
        assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
        assert_eq!(response.headers()[header::UPGRADE], "SPDY/3.1");
        assert_eq!(cluster.kubelet.take_requests(), requests(&format!("POST {line}")));
        let tunnel = TokioIo::new(hyper::upgrade::on(response).await.expect("upgraded"));
        let (mut read, mut write) = tokio::io::split(tunnel);
        write.write_all(b"hello").await.expect("written");
        let mut echoed = [0; 5];
        read.read_exact(&mut echoed).await.expect("echoed");
        assert_eq!(&echoed, b"hello");
        // The backend can still write after the client has closed its half.
        write.shutdown().await.expect("half closed");
        let mut rest = Vec::new();
        read.read_to_end(&mut rest).await.expect("the end");
        assert_eq!(rest, FAREWELL);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tunnel_applies_backpressure() {
    let mut cluster = cluster().await;
    let response = cluster.upgrade(&format!("{PODS}/web/attach?stdout=1")).await;
    let tunnel = hyper::upgrade::on(response).await.expect("upgraded");
    let stalled = cluster.kubelet.stalled.wait_for(Option::is_some);
    let written = tokio::time::timeout(TIMEOUT, stalled).await.expect("the writer waits for the reader");
    let written = written.expect("the fake kubelet runs").expect("a number");
    // The buffers of four sockets are in between.
    assert!(written < 64 * 1024 * 1024, "{written} unread bytes were accepted");
    drop(tunnel);
}

#[tokio::test(flavor = "multi_thread")]
async fn exec_and_attach_errors_have_the_messages_of_the_real_server() {
    let cluster = cluster().await;
    create_pod(&cluster.server, "many", "n", &["one", "refusing"]);
    create_pod(&cluster.server, "unbound", "", &["main"]);
    create_node(&cluster.server, "dead", dead_port());
    create_pod(&cluster.server, "lost", "dead", &["main"]);
    let refused = async |path: &str| cluster.refused(&format!("{PODS}/{path}")).await;
    let unbound = "pod unbound does not have a host assigned".to_owned();
    assert_eq!(refused("unbound/exec?command=x").await, (400, unbound.clone()));
    assert_eq!(refused("unbound/portforward").await, (400, unbound));
    let unknown = "container x is not valid for pod web".to_owned();
    assert_eq!(refused("web/attach?container=x").await, (400, unknown));
    assert_eq!(refused("gone/exec?command=x").await, (404, "pods \"gone\" not found".to_owned()));
    let (code, message) = refused("lost/exec?command=x").await;
    assert!(
        code == 500 && message.starts_with("error dialing backend: dial tcp 127.0.0.1:"),
        "{code} {message}"
    );
    // The error of the kubelet is forwarded unchanged.
    let own = cluster.upgrade(&format!("{PODS}/many/exec?container=refusing&command=x")).await;
    assert_eq!(own.status(), StatusCode::BAD_REQUEST);
    assert_eq!(body(own).await, "container \"refusing\" is waiting to start");
    let plain = cluster.send(Request::post(format!("{PODS}/web/exec?command=x")), "").await;
    assert_eq!(plain.status(), StatusCode::BAD_REQUEST);
    assert!(body(plain).await.contains("Upgrade request required"));
}

#[tokio::test(flavor = "multi_thread")]
async fn node_proxy_forwards_requests_to_the_kubelet() {
    let cluster = cluster().await;
    cluster.kubelet.take_requests();
    let path = "/api/v1/nodes/n/proxy/some/p%2Fath/?q=a%20b";
    let response = cluster.send(Request::put(path), "sent").await;
    assert_eq!(body(response).await, "/some/p%2Fath/?q=a%20b sent\n");
    assert_eq!(cluster.kubelet.take_requests(), requests("PUT /some/p%2Fath/?q=a%20b"));
    let port = cluster.kubelet.address.port();
    let named =
        cluster.server.admin().ok(&["get", "--raw", &format!("/api/v1/nodes/https:n:{port}/proxy/x")]);
    assert_eq!(named, "/x? \n");
    let bare = cluster.send(Request::get("/api/v1/nodes/n/proxy"), "").await;
    assert_eq!(bare.status(), StatusCode::MOVED_PERMANENTLY);
    // Another port of a node on the loopback address, and a pod without an address, are refused.
    for path in ["/api/v1/nodes/n:1/proxy/", &format!("{PODS}/web/proxy/")] {
        let response = cluster.send(Request::get(path), "").await;
        assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{path}");
        assert!(body(response).await.contains("address not allowed"));
    }
    create_node(&cluster.server, "dead", dead_port());
    let response = cluster.send(Request::get("/api/v1/nodes/dead/proxy/x"), "").await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(body(response).await.starts_with("error trying to reach service: dial tcp 127.0.0.1:"));
}

#[tokio::test(flavor = "multi_thread")]
async fn node_may_not_access_another_kubelet() {
    let server = Server::start(&["--node=n"]);
    create_pod(&server, "web", "m", &["main"]);
    let node = server.kubectl("n.kubeconfig");
    let refused = node.refused(&["get", "--raw", &format!("{PODS}/web/log")], "");
    assert!(refused.contains("cannot get resource \"pods/log\""), "{refused}");
    let refused = node.refused(&["get", "--raw", "/api/v1/nodes/m/proxy/pods"], "");
    assert!(refused.contains("cannot get resource \"nodes/proxy\""), "{refused}");
}
