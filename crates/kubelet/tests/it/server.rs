//! The main port of the built binary (10250 in production): TLS, authentication, and its endpoints.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use fakes::FakeRuntime;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};

use crate::node::{FOREVER, Node, once_pod, shell_pod};

pub(crate) type Stream = StreamOwned<ClientConnection, TcpStream>;

/// A certificate and its key, PEM.
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// A response, split into its parts.
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// In lower case.
    pub(crate) head: String,
    pub(crate) body: String,
}

/// A connection to the main port, which must show the certificate in the file.
pub(crate) fn connect(
    node: &Node,
    served: &std::path::Path,
    client: Option<&Pair>,
) -> Result<Stream, String> {
    // A self-signed certificate is followed by its authority.
    let roots = std::fs::read(served).map_err(|error| error.to_string())?;
    connect_to(node.main_port(), "node", &roots, client)
}

/// A connection to a server of that name, at a port of this machine, verified with one of these certificates.
pub(crate) fn connect_to(
    port: u16,
    name: &str,
    trusted: &[u8],
    client: Option<&Pair>,
) -> Result<Stream, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(trusted) {
        roots.add(certificate.map_err(|e| text(&e))?).map_err(|e| text(&e))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|e| text(&e))?.with_root_certificates(roots);
    let config = match client {
        None => builder.with_no_client_auth(),
        Some(pair) => {
            let chain = vec![CertificateDer::from_pem_slice(pair.certificate.as_bytes()).expect("PEM")];
            let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).expect("PEM");
            builder.with_client_auth_cert(chain, key).expect("a pair")
        }
    };
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    let session = ClientConnection::new(Arc::new(config), name).map_err(|e| text(&e))?;
    let stream = TcpStream::connect(("127.0.0.1", port)).map_err(|e| text(&e))?;
    stream.set_read_timeout(Some(Duration::from_secs(120))).map_err(|e| text(&e))?;
    Ok(StreamOwned::new(session, stream))
}

pub(crate) fn request(stream: Stream, method: &str, path: &str) -> Result<Answer, String> {
    send(stream, &format!("{method} {path}"), "", "")
}

/// `headers` are whole lines.
pub(crate) fn send(mut stream: Stream, what: &str, headers: &str, body: &str) -> Result<Answer, String> {
    let request = format!("{what} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n{headers}");
    let request = format!("{request}Content-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).map_err(|error| error.to_string())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).map_err(|error| error.to_string())?;
    // A body that is not text is checked by its beginning.
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("no head")?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or("no status")?;
    let head = head.to_ascii_lowercase();
    let body = if head.contains("transfer-encoding: chunked") { dechunked(body) } else { body.to_owned() };
    Ok(Answer { status, head, body })
}

fn dechunked(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).expect("the size of a chunk");
        whole.push_str(&rest[..size]);
        body = rest[size..].trim_start_matches("\r\n");
        if size == 0 {
            break;
        }
    }
    whole
}

/// A GET without credentials, from a kubelet that made its own certificate.
pub(crate) fn get(node: &Node, path: &str) -> Result<Answer, String> {
    request(connect(node, &node.path("pki/kubelet.crt"), None)?, "GET", path)
}

pub(crate) fn authority() -> (rcgen::Issuer<'static, rcgen::KeyPair>, String) {
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let pem = params.self_signed(&key).expect("signed").pem();
    (rcgen::Issuer::new(params, key), pem)
}

pub(crate) fn client(issuer: &rcgen::Issuer<'_, rcgen::KeyPair>) -> Pair {
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name.push(rcgen::DnType::CommonName, "admin");
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    let certificate = params.signed_by(&key, issuer).expect("signed").pem();
    Pair { certificate, key: key.serialize_pem() }
}

fn serving(dir: &std::path::Path) {
    let key = rcgen::KeyPair::generate().expect("a key");
    let params = rcgen::CertificateParams::new(vec!["node".to_owned()]).expect("a name");
    let certificate = params.self_signed(&key).expect("signed").pem();
    std::fs::write(dir.join("tls.key"), key.serialize_pem()).expect("written");
    std::fs::write(dir.join("tls.crt"), certificate).expect("written");
}

#[test]
fn kubelet_port_serves_tls_with_a_self_signed_certificate_kept_over_restart() {
    let mut node = Node::on_fake(&FakeRuntime::with_clock(ports::Clock::system()), json!({}));
    let made = std::fs::read(node.path("pki/kubelet.crt")).expect("a certificate");
    assert_eq!(get(&node, "/healthz").expect("an answer").body, "ok");
    let shown = get(&node, "/configz").expect("an answer").body;
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    assert_eq!(shown["kubeletconfig"]["port"], node.main_port());
    node.restart_kubelet();
    assert_eq!(std::fs::read(node.path("pki/kubelet.crt")).expect("a certificate"), made);
    assert_eq!(get(&node, "/pods").expect("an answer").status, 200);
}

#[test]
fn client_ca_file_admits_only_clients_with_a_certificate_of_the_ca() {
    let runtime = FakeRuntime::with_clock(ports::Clock::system());
    let mut node = Node::on_fake(&runtime, json!({}));
    let ((issuer, pem), (stranger, _)) = (authority(), authority());
    std::fs::write(node.path("ca.crt"), pem).expect("written");
    node.configure(json!({"authentication": {
        "anonymous": {"enabled": false}, "webhook": {"enabled": false},
        "x509": {"clientCAFile": node.path("ca.crt")},
    }}));
    node.restart_kubelet();
    let served = node.path("pki/kubelet.crt");
    let status = |pair: Option<&Pair>| {
        request(connect(&node, &served, pair).expect("a connection"), "GET", "/pods")
            .expect("an answer")
            .status
    };
    assert_eq!(status(None), 401);
    assert_eq!(status(Some(&client(&stranger))), 401);
    assert_eq!(status(Some(&client(&issuer))), 200);
}

#[test]
fn tls_cert_file_is_served_and_reloaded_when_replaced() {
    let runtime = FakeRuntime::with_clock(ports::Clock::system());
    let mut node = Node::on_fake(&runtime, json!({}));
    serving(&node.path(""));
    node.configure(json!({
        "tlsCertFile": node.path("tls.crt"), "tlsPrivateKeyFile": node.path("tls.key"),
    }));
    node.restart_kubelet();
    let healthy = |node: &Node| {
        let stream = connect(node, &node.path("tls.crt"), None)?;
        request(stream, "GET", "/healthz").map(|answer| assert_eq!(answer.body, "ok"))
    };
    healthy(&node).expect("the certificate of the files is served");
    serving(&node.path(""));
    node.eventually("the new pair is served", healthy);
}

/// The file that the other feature gate reloads shows when the files were read.
#[test]
fn tls_files_are_not_reloaded_with_the_feature_gate_off() {
    let runtime = FakeRuntime::with_clock(ports::Clock::system());
    let mut node = Node::on_fake(&runtime, json!({}));
    let [(first, pem), (second, second_pem), (third, third_pem)] = std::array::from_fn(|_| authority());
    std::fs::write(node.path("ca.crt"), pem).expect("written");
    serving(&node.path(""));
    node.configure(json!({
        "tlsCertFile": node.path("tls.crt"), "tlsPrivateKeyFile": node.path("tls.key"),
        "authentication": {
            "anonymous": {"enabled": false}, "webhook": {"enabled": false},
            "x509": {"clientCAFile": node.path("ca.crt")},
        },
        "featureGates": {"ReloadKubeletClientCAFile": false},
    }));
    node.restart_kubelet();
    let status = |node: &Node, served: &std::path::Path, issuer: &rcgen::Issuer<'_, rcgen::KeyPair>| {
        let stream = connect(node, served, Some(&client(issuer)))?;
        request(stream, "GET", "/pods").map(|answer| answer.status)
    };
    let served = node.path("tls.crt");
    assert_eq!(status(&node, &served, &first), Ok(200));
    std::fs::write(node.path("ca.crt"), second_pem).expect("written");
    serving(&node.path(""));
    node.eventually("the new pair is served", |node| status(node, &served, &first));
    assert_eq!([status(&node, &served, &first), status(&node, &served, &second)], [Ok(200), Ok(401)]);

    node.configure(json!({"featureGates": {"ReloadKubeletServerCertificateFile": false}}));
    node.restart_kubelet();
    let old = node.path("old.crt");
    std::fs::copy(&served, &old).expect("copied");
    serving(&node.path(""));
    std::fs::write(node.path("ca.crt"), third_pem).expect("written");
    node.eventually("the new CA is trusted", |node| match status(node, &old, &third)? {
        200 => Ok(()),
        other => Err(other.to_string()),
    });
    assert!(status(&node, &served, &third).is_err(), "the new pair is not served");
}

#[test]
fn invalid_tls_cert_file_fails_the_start_with_its_path() {
    let runtime = FakeRuntime::with_clock(ports::Clock::system());
    let mut node = Node::on_fake(&runtime, json!({}));
    node.kill_kubelet();
    std::fs::write(node.path("tls.crt"), "nonsense").expect("written");
    node.configure(json!({
        "tlsCertFile": node.path("tls.crt"), "tlsPrivateKeyFile": node.path("none.key"),
    }));
    node.spawn_kubelet();
    assert_eq!(node.wait_for_exit().code(), Some(1));
    node.wait_for_log("E: tlsCertFile, tlsPrivateKeyFile: open");
}

/// The logs of a container through the main port.
pub(crate) fn log(node: &Node, pod: &str, query: &str) -> Result<String, String> {
    let answer = get(node, &format!("/containerLogs/default/{pod}-node/main?{query}"))?;
    if answer.status == 200 { Ok(answer.body) } else { Err(format!("{}: {}", answer.status, answer.body)) }
}

#[test]
fn container_logs_support_follow_tail_lines_and_limits() {
    let node = Node::start_with(json!({"featureGates": {"PodLogsQuerySplitStreams": true}}));
    // Standard output and standard error reach the log independently: one waits until the other has arrived.
    let script = "echo two >&2; while [ ! -e /tmp/next ]; do sleep 0.1; done; echo one; echo three; \
                  while [ ! -e /tmp/go ]; do sleep 0.1; done; echo four";
    let mut pod = once_pod("talker", script);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "tmp", "mountPath": "/tmp"}]);
    pod["spec"]["volumes"] =
        json!([{"name": "tmp", "hostPath": {"path": node.path("go"), "type": "DirectoryOrCreate"}}]);
    node.apply("talker", &pod);
    node.running("talker");
    let logs = |query: &str| log(&node, "talker", query).expect("a log");
    let has_lines = |count: usize| {
        node.eventually("the lines are present", |node| {
            let logs = log(node, "talker", "")?;
            if logs.lines().count() == count { Ok(()) } else { Err(logs) }
        });
    };
    has_lines(1);
    std::fs::write(node.path("go/next"), "").expect("written");
    has_lines(3);
    assert_eq!(logs("tailLines=1"), "three\n");
    assert_eq!(logs("limitBytes=6"), &logs("")[..6]);
    assert_eq!(logs("stream=Stderr"), "two\n");
    assert_eq!(logs("sinceTime=2999-01-01T00:00:00Z"), "");
    let timed = logs("timestamps=true&tailLines=1");
    assert!(
        timed.len() == "2026-01-01T00:00:00.000000000Z three\n".len() && timed.ends_with("Z three\n"),
        "{timed}"
    );
    // Follow returns new lines until the container exits.
    let follower = std::thread::scope(|scope| {
        let follower = scope.spawn(|| log(&node, "talker", "follow=true"));
        std::fs::write(node.path("go/go"), "").expect("written");
        follower.join().expect("the follow request ends")
    });
    let mut lines: Vec<_> = follower.expect("a log").lines().map(str::to_owned).collect();
    assert_eq!(lines.pop().as_deref(), Some("four"));
    lines.sort();
    assert_eq!(lines, ["one", "three", "two"]);
    for (path, status) in [
        ("/containerLogs/default/talker-node/none", 404),
        ("/containerLogs/default/none/main", 404),
        ("/containerLogs/default/talker-node/main?tailLines=x", 400),
        ("/containerLogs/default/talker-node/main?previous=true", 400),
        ("/containerLogs/default/talker-node/main?tailLines=-1", 422),
    ] {
        assert_eq!(get(&node, path).expect("an answer").status, status, "{path}");
    }
}

#[test]
fn log_follow_continues_over_rotation() {
    let node = Node::start_with(json!({"containerLogMaxSize": "20Ki", "containerLogMonitorInterval": "3s"}));
    let script = "i=0; while [ $i -lt 120 ]; do i=$((i+1)); printf '%0500d\\n' $i; sleep 0.1; done";
    node.apply("writer", &once_pod("writer", script));
    node.running("writer");
    let followed = log(&node, "writer", "follow=true").expect("a log");
    let numbers: Vec<u32> = followed.lines().map(|line| line.parse().expect("a number")).collect();
    assert_eq!(numbers.last(), Some(&120));
    // Lines rotated away before the request may be missing; of later lines none is missing and none repeated.
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{numbers:?}");
    let rotated = node.eventually("the log was rotated", |node| {
        let pod = node.pod("writer").ok_or("no pod")?;
        let uid = crate::node::uid(&pod);
        let files = crate::node::names_in(&node.path(&format!("logs/pods/default_writer-node_{uid}/main")));
        if files.len() > 1 { Ok(files) } else { Err(format!("{files:?}")) }
    });
    assert!(rotated.iter().any(|name| name.starts_with("0.log.")), "{rotated:?}");
}

#[test]
fn run_endpoint_returns_output_and_exec_needs_an_upgrade() {
    let node = Node::start();
    node.apply("web", &shell_pod("web", FOREVER));
    node.running("web");
    let request = |method, path: &str| {
        request(connect(&node, &node.path("pki/kubelet.crt"), None).expect("a connection"), method, path)
            .expect("an answer")
    };
    let answer = request("POST", "/run/default/web-node/main?cmd=echo+hello");
    assert_eq!((answer.status, answer.body.as_str()), (200, "hello\n"));
    let answer = request("POST", "/run/default/web-node/main?cmd=false");
    assert_eq!((answer.status, answer.body.as_str()), (500, "command 'false' exited with 1: "));
    let answer = request("POST", "/exec/default/web-node/main?command=ls&output=1");
    assert_eq!((answer.status, answer.body.as_str()), (400, "Upgrade request required\n"));
}

/// Opens a stream as an old `kubectl exec` over a WebSocket does and returns its messages: channel and payload.
fn exec(node: &Node, query: &str, stdin: Option<&[u8]>) -> Vec<(u8, String)> {
    let mut stream = connect(node, &node.path("pki/kubelet.crt"), None).expect("a connection");
    let request = format!(
        "GET /exec/default/web-node/main?{query} HTTP/1.1\r\nHost: node\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         Sec-WebSocket-Protocol: v4.channel.k8s.io\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).expect("sent");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a head");
        head.extend(byte);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    if let Some(stdin) = stdin {
        // Binary, masked with zeros, on channel 0.
        let length = u8::try_from(stdin.len() + 1).expect("a short frame");
        stream.write_all(&[&[0x82, 0x80 | length, 0, 0, 0, 0, 0], stdin].concat()).expect("sent");
    }
    let mut frames = Vec::new();
    loop {
        let mut start = [0; 2];
        stream.read_exact(&mut start).expect("a frame");
        let mut length = usize::from(start[1] & 0x7f);
        if length == 126 {
            let mut long = [0; 2];
            stream.read_exact(&mut long).expect("its length");
            length = usize::from(u16::from_be_bytes(long));
        }
        let mut content = vec![0; length];
        stream.read_exact(&mut content).expect("its content");
        match (start[0] & 0x0f, content.split_first()) {
            (8, _) => return frames,
            (_, Some((channel, text))) if !text.is_empty() => {
                frames.push((*channel, String::from_utf8_lossy(text).into_owned()));
            }
            _ => {}
        }
        // The last message is the status, on channel 3.
        if frames.last().is_some_and(|(channel, _)| *channel == 3) {
            return frames;
        }
    }
}

#[test]
fn exec_connects_streams_and_returns_the_exit_code() {
    let node = Node::start();
    node.apply("web", &shell_pod("web", FOREVER));
    node.running("web");
    let shell = |script: &str| format!("command=sh&command=-c&command={script}&output=1&error=1");
    let frames = exec(&node, &shell("echo+out;sleep+0.2;echo+err+%3E%262;exit+3"), None);
    let messages: Vec<_> = frames.iter().map(|(channel, text)| (*channel, text.as_str())).collect();
    assert_eq!(&messages[..2], [(1, "out\n"), (2, "err\n")]);
    assert!(messages[2].0 == 3 && messages[2].1.contains("\"3\""), "{messages:?}");
    let frames = exec(&node, &format!("{}&input=1", shell("read+line;echo+got+$line")), Some(b"a line\n"));
    assert_eq!(frames.first(), Some(&(1, "got a line\n".to_owned())));
    assert!(frames.last().is_some_and(|(_, text)| text.contains("Success")), "{frames:?}");
}
