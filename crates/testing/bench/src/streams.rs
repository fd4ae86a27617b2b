//! What followers of a log, exec sessions and watch events cost a kubelet in memory, while they last and after they have gone.
//!
//! The kubelet is a member of a cluster of `localapi`, with one pod on a fake runtime; a streaming server in this process accepts the
//! exec sessions and sends nothing. Clients present a certificate over TLS and use HTTP/1.1, so each has a connection of its own, of
//! which the main port allows 1,024.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cluster::ApiHandle;
use fakes::{FakeCri, FakeRuntime, Program};
use harness::PrivateCgroup;
use localapi::{LocalApi, Options};
use model::k8s::Pod;
use ports::cluster::{Deletion, Part, Patch, Selection};
use ports::{Clock, Cluster};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::{BenchError, Effort, Outcome, failed};
use harness::api::{NAMESPACE, administrator, is_ready};
use harness::node::{Memory, NODE_NAME, Node, OwnCgroup, sleeping_pod, until};

const IMAGE: &str = "localhost/idle:1";
const POD: &str = "streams";
const POLL: Duration = Duration::from_millis(200);
/// Before memory is read: due work is done, and free memory was returned.
const SETTLE: Duration = Duration::from_secs(15);
/// Of a response.
const MAX_HEAD_BYTES: usize = 8 << 10;
/// Both sides of an exec session are files of this process.
const OPEN_FILES: u64 = 8192;
const FOLLOW: &str = "GET /containerLogs/default/streams/main?follow=true HTTP/1.1\r\nHost: node\r\n\r\n";
const EXEC: &str = "POST /exec/default/streams/main?command=sh&output=1 HTTP/1.1\r\nHost: node\r\n\
                    Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\
                    X-Stream-Protocol-Version: v4.channel.k8s.io\r\nContent-Length: 0\r\n\r\n";

type Client = StreamOwned<ClientConnection, TcpStream>;

/// Memory of one kubelet.
#[derive(Debug)]
pub(crate) struct Streams {
    /// With one pod, before any stream.
    pub(crate) before: Memory,
    /// In the order in which they were measured.
    pub(crate) loads: Vec<Load>,
}

/// Many streams of one kind, or events.
#[derive(Debug)]
pub(crate) struct Load {
    pub(crate) what: &'static str,
    pub(crate) count: usize,
    /// While they are open; `None` for events.
    pub(crate) during: Option<Memory>,
    /// After they have gone.
    pub(crate) after: Memory,
}

pub(crate) async fn measure(program: &Path, effort: Effort) -> Outcome<Streams> {
    let limit = getrlimit(Resource::Nofile);
    let current = limit.current.map(|current| current.max(OPEN_FILES));
    setrlimit(Resource::Nofile, Rlimit { current, ..limit })
        .map_err(failed("raise the limit of open files"))?;
    let dir = tempfile::tempdir().map_err(failed("make a temporary directory"))?;
    let runtime = FakeRuntime::with_clock(Clock::system());
    runtime.image(IMAGE).write_logs().program("main", Program::runs().printing(&["started"]));
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(failed("serve streams"))?;
    let address = listener.local_addr().map_err(failed("serve streams"))?;
    runtime.stream_from(&format!("http://{address}"));
    let mut tasks = JoinSet::new();
    tasks.spawn(serve_streams(listener));
    let server = FakeCri::serve(Arc::new(runtime.clone()), &dir.path().join("cri.sock"));
    let server = server.map_err(failed("serve a fake runtime"))?;
    let api = LocalApi::start(Options::default()).await.map_err(failed("start the API server"))?;
    let admin = administrator(&api)?;
    let cgroup = OwnCgroup(PrivateCgroup::of(dir.path()));
    let mut node = Node::new(dir.path(), &server.endpoint(), &cgroup.0)?;
    node.join(&api.node_kubeconfig(NODE_NAME).map_err(failed("make a kubeconfig"))?)?;
    let credentials = Credentials::new(&node)?;
    node.start(program)?;
    let streams = load(&node, &admin, &runtime, &credentials, effort).await;
    node.kill()?;
    server.stop().await;
    api.stop().await;
    streams
}

async fn load(
    node: &Node,
    admin: &ApiHandle,
    runtime: &FakeRuntime,
    credentials: &Credentials,
    effort: Effort,
) -> Outcome<Streams> {
    until(node, "the node to be ready", POLL, async || is_ready(admin).await).await?;
    let mut manifest = sleeping_pod(POD, IMAGE);
    manifest["spec"]["nodeName"] = NODE_NAME.into();
    let pod: Pod = serde_json::from_value(manifest).map_err(failed("make a pod"))?;
    admin.pods().create(NAMESPACE, &pod).await.map_err(failed("create a pod"))?;
    until(node, "the pod to run", POLL, async || {
        let pod = admin.pods().get(NAMESPACE, POD).await.map_err(failed("get the pod"))?;
        let phase = pod.status.and_then(|status| status.phase);
        Ok((phase.as_deref() == Some("Running") && !runtime.running().is_empty()).then_some(()))
    })
    .await?;
    let target = credentials.target(node)?;
    // Code that runs once, such as that of a handshake, is not counted with the streams.
    drop(target.open_all(FOLLOW, 1).await?);
    drop(target.open_all(EXEC, 1).await?);
    let before = settled(node).await?;
    let mut loads = Vec::new();
    for _ in 0..effort.stream_bursts {
        loads.push(streams(node, &target, "log followers", FOLLOW, effort.followers).await?);
    }
    for _ in 0..effort.stream_bursts {
        loads.push(streams(node, &target, "exec sessions", EXEC, effort.execs).await?);
    }
    loads.push(watch_events(node, admin, effort.watch_events).await?);
    loads.push(removed_pod(node, admin).await?);
    Ok(Streams { before, loads })
}

async fn streams(
    node: &Node,
    target: &Target,
    what: &'static str,
    request: &'static str,
    count: usize,
) -> Outcome<Load> {
    let open = target.open_all(request, count).await?;
    let during = Some(settled(node).await?);
    drop(open);
    Ok(Load { what, count, during, after: settled(node).await? })
}

/// Changes the pod many times; the kubelet has read every change once nothing is sent any more.
async fn watch_events(node: &Node, admin: &ApiHandle, count: usize) -> Outcome<Load> {
    for number in 0..count {
        let patch = json!({"metadata": {"annotations": {"bench": number.to_string()}}});
        let patched = admin.pods().patch(NAMESPACE, POD, Part::Whole, &Patch::Merge(patch)).await;
        patched.map_err(failed("change the pod"))?;
    }
    Ok(Load { what: "watch events", count, during: None, after: settled(node).await? })
}

/// After a pod was removed the kubelet returns free memory to the kernel: what it kept until then was free.
async fn removed_pod(node: &Node, admin: &ApiHandle) -> Outcome<Load> {
    let deleted = admin.pods().delete(NAMESPACE, POD, &Deletion::default()).await;
    deleted.map_err(failed("delete the pod"))?;
    until(node, "the pod to be gone", POLL, async || {
        let left = admin.pods().list(&Selection::default()).await.map_err(failed("list pods"))?;
        Ok(left.items.is_empty().then_some(()))
    })
    .await?;
    Ok(Load { what: "removed pod", count: 1, during: None, after: settled(node).await? })
}

async fn settled(node: &Node) -> Outcome<Memory> {
    tokio::time::sleep(SETTLE).await;
    node.exact_memory()
}

/// Accepts every upgrade, and sends nothing.
async fn serve_streams(listener: TcpListener) {
    let mut sessions = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                if let Ok((stream, _)) = accepted {
                    sessions.spawn(serve_stream(stream));
                }
            }
            Some(_) = sessions.join_next() => {}
        }
    }
}

async fn serve_stream(mut stream: tokio::net::TcpStream) {
    const UPGRADED: &[u8] =
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\
                              X-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n";
    let mut buffer = [0; MAX_HEAD_BYTES];
    // The head of the request, which is sent at once; an error shows at the client.
    if stream.read(&mut buffer).await.is_ok() && stream.write_all(UPGRADED).await.is_ok() {
        while stream.read(&mut buffer).await.is_ok_and(|bytes| bytes > 0) {}
    }
}

/// A client certificate whose authority the kubelet trusts.
struct Credentials {
    certificate: String,
    key: String,
}

impl Credentials {
    /// Adds the authority to the configuration of the kubelet, which must not run yet.
    fn new(node: &Node) -> Outcome<Self> {
        let new_key = || rcgen::KeyPair::generate().map_err(failed("make a key"));
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let authority_key = new_key()?;
        let authority = params.self_signed(&authority_key).map_err(failed("sign"))?.pem();
        let issuer = rcgen::Issuer::new(params, authority_key);
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name.push(rcgen::DnType::CommonName, "bench");
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        let key = new_key()?;
        let certificate = params.signed_by(&key, &issuer).map_err(failed("sign"))?.pem();

        let file = node.dir.join("client-ca.crt");
        std::fs::write(&file, authority).map_err(failed("write the client authority"))?;
        let mut config = configuration(node)?;
        config["authentication"]["x509"] = json!({"clientCAFile": file});
        std::fs::write(node.dir.join("kubelet.json"), config.to_string())
            .map_err(failed("write the configuration"))?;
        Ok(Self { certificate, key: key.serialize_pem() })
    }

    /// The main port of a running kubelet.
    fn target(&self, node: &Node) -> Outcome<Target> {
        let served = std::fs::read(node.dir.join("pki/kubelet.crt"))
            .map_err(failed("read the kubelet's certificate"))?;
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&served) {
            let certificate = certificate.map_err(failed("read the kubelet's certificate"))?;
            roots.add(certificate).map_err(failed("trust the kubelet's certificate"))?;
        }
        let certificate = CertificateDer::from_pem_slice(self.certificate.as_bytes());
        let chain = vec![certificate.map_err(failed("read the client certificate"))?];
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).map_err(failed("read the key"))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(failed("configure TLS"))?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)
            .map_err(failed("configure TLS"))?;
        let port = configuration(node)?["port"].as_u64().and_then(|port| u16::try_from(port).ok());
        let port = port.ok_or_else(|| BenchError("the configuration has no port".to_owned()))?;
        Ok(Target { address: SocketAddr::from(([127, 0, 0, 1], port)), config: Arc::new(config) })
    }
}

fn configuration(node: &Node) -> Outcome<Value> {
    let text =
        std::fs::read_to_string(node.dir.join("kubelet.json")).map_err(failed("read the configuration"))?;
    serde_json::from_str(&text).map_err(failed("read the configuration"))
}

#[derive(Clone)]
struct Target {
    address: SocketAddr,
    config: Arc<ClientConfig>,
}

impl Target {
    /// Opens them one after the other; each has received the head of its response.
    async fn open_all(&self, request: &'static str, count: usize) -> Outcome<Vec<Client>> {
        let target = self.clone();
        let opened = tokio::task::spawn_blocking(move || {
            (0..count)
                .map(|number| target.open(request).map_err(failed(format!("stream {number}"))))
                .collect::<Outcome<Vec<Client>>>()
        });
        opened.await.map_err(failed("open streams"))?
    }

    fn open(&self, request: &str) -> Outcome<Client> {
        let name = ServerName::try_from(NODE_NAME).map_err(failed("name the server"))?;
        let session = ClientConnection::new(Arc::clone(&self.config), name).map_err(failed("begin TLS"))?;
        let stream = TcpStream::connect(self.address).map_err(failed("connect"))?;
        stream.set_read_timeout(Some(Duration::from_secs(60))).map_err(failed("connect"))?;
        let mut client = StreamOwned::new(session, stream);
        client.write_all(request.as_bytes()).map_err(failed("send a request"))?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") && head.len() < MAX_HEAD_BYTES {
            let mut byte = [0];
            client.read_exact(&mut byte).map_err(failed("read a response"))?;
            head.extend(byte);
        }
        let head = String::from_utf8_lossy(&head);
        if head.starts_with("HTTP/1.1 200 ") || head.starts_with("HTTP/1.1 101 ") {
            Ok(client)
        } else {
            Err(BenchError(head.into_owned()))
        }
    }
}
