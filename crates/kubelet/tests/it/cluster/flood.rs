//! Floods of clients without credentials at the main port: clients with credentials are answered, the lease is renewed and probes
//! are on time.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fakes::FakeRuntime;
use fixtures::stretched;
use serde_json::json;

use crate::node::{FOREVER, Node, shell_pod};
use crate::server;

use super::{Cluster, bound};

/// Probed once a second by the kubelet; records the times.
struct Probed {
    port: u16,
    probe_times: std::sync::mpsc::Receiver<Instant>,
}

impl Probed {
    fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (sender, probe_times) = std::sync::mpsc::sync_channel(1000);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.expect("a connection");
                let _ = stream.read(&mut [0; 1024]);
                let _ =
                    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
                if sender.send(Instant::now()).is_err() {
                    return;
                }
            }
        });
        Self { port, probe_times }
    }

    /// The longest time between two probes since the last call.
    fn longest_gap(&self) -> Duration {
        let times: Vec<_> = self.probe_times.try_iter().collect();
        assert!(times.len() > 2, "it is probed: {}", times.len());
        times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
    }
}

/// Clients that only make TLS handshakes, one after the other and in several threads, until stopped.
fn handshakes(port: u16, roots: &[u8], stop: &Arc<AtomicBool>) -> Vec<JoinHandle<usize>> {
    let flood = |_| {
        let (roots, stop) = (roots.to_vec(), Arc::clone(stop));
        std::thread::spawn(move || {
            let (mut idle, mut count) = (Vec::new(), 0);
            while !stop.load(Ordering::Relaxed) {
                // A connection that the server closes meanwhile is the purpose of this test.
                if let Ok(mut stream) = server::connect_to(port, "node", &roots, None) {
                    count += usize::from(stream.conn.complete_io(&mut stream.sock).is_ok());
                    idle.push(stream);
                }
                if idle.len() > 300 {
                    idle.remove(0);
                }
            }
            count
        })
    };
    (0..3).map(flood).collect()
}

fn renewals(cluster: &Cluster) -> usize {
    let log = cluster.api.log();
    log.lines().filter(|line| line.contains("\"PUT ") && line.contains("/leases/node")).count()
}

#[test]
fn idle_tls_connections_and_handshake_floods_delay_no_authenticated_client() {
    let runtime = FakeRuntime::with_clock(ports::Clock::system());
    let mut node = Node::with_fake(&runtime, json!({"nodeLeaseDurationSeconds": 4}));
    let (issuer, pem) = server::authority();
    std::fs::write(node.path("ca.crt"), pem).expect("written");
    node.configure(json!({"authentication": {
        "anonymous": {"enabled": false}, "webhook": {"enabled": false},
        "x509": {"clientCAFile": node.path("ca.crt")},
    }}));
    let api = super::api_server::ApiServer::start(
        node.path("api"),
        &["--node", "node", "--no-service-accounts", "--verbose"],
    );
    let kubeconfig = api.file("node.kubeconfig");
    node.add_flags(&["--kubeconfig", kubeconfig.to_str().expect("a path")]);
    let mut cluster = Cluster::of(node, api);
    cluster.node.start_kubelet();
    let probed = Probed::start();
    let mut pod = shell_pod("probed", FOREVER);
    pod["spec"]["containers"][0]["imagePullPolicy"] = "IfNotPresent".into();
    pod["spec"]["containers"][0]["livenessProbe"] = json!({
        "httpGet": {"host": "127.0.0.1", "port": probed.port, "path": "/"},
        "periodSeconds": 1, "timeoutSeconds": 5,
    });
    cluster.kubectl.apply(&[bound(pod)]);
    cluster.running("probed");
    probed.probe_times.recv_timeout(stretched(Duration::from_secs(60))).expect("it is probed");

    // Connections that never send a byte, and others that only make handshakes.
    let port = cluster.node.main_port();
    let idle: Vec<_> =
        (0..1024).map(|_| TcpStream::connect(("127.0.0.1", port)).expect("connected")).collect();
    let roots = std::fs::read(cluster.node.path("pki/kubelet.crt")).expect("a certificate");
    let stop = Arc::new(AtomicBool::new(false));
    let flood = handshakes(port, &roots, &stop);
    let (began, renewed) = (Instant::now(), renewals(&cluster));
    let admin = server::client(&issuer);
    let mut answers = 0;
    while began.elapsed() < stretched(Duration::from_secs(10)) {
        let sent_at = Instant::now();
        let stream = server::connect(&cluster.node, &cluster.node.path("pki/kubelet.crt"), Some(&admin));
        let answer = server::request(stream.expect("a connection"), "GET", "/pods").expect("an answer");
        assert_eq!(answer.status, 200);
        assert!(sent_at.elapsed() < stretched(Duration::from_secs(5)), "{:?}", sent_at.elapsed());
        answers += 1;
    }
    stop.store(true, Ordering::Relaxed);
    let shaken: usize = flood.into_iter().map(|thread| thread.join().expect("it ends")).sum();
    let seconds = usize::try_from(began.elapsed().as_secs()).expect("a number");
    let renewed = renewals(&cluster) - renewed;
    assert!(answers > 2 && shaken > 10, "{answers} answers next to {shaken} handshakes");
    // A quarter of its duration is one second.
    assert!(renewed * 2 >= seconds, "{renewed} renewals in {seconds} s");
    let gap = probed.longest_gap();
    assert!(gap < stretched(Duration::from_secs(4)), "no probe for {gap:?}");
    let pod = cluster.kubectl.get("pod", "probed").expect("the pod");
    assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 0);
    drop(idle);
}
