//! Certificates that live for two minutes are rotated while the node works: no request, watch or connection fails.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use base64::Engine;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::json;

use crate::node::{FOREVER, Node, names_in, shell_pod};

use super::bootstrap::{node_with_bootstrap, requests};
use super::{Cluster, bound};

/// They are valid for half as long again, because a signer backdates them; they are renewed 66 to 102 seconds after the
/// signature, so that a machine may stall for a while without consequences.
const LIFE: &str = "--certificate-lifetime-seconds=120";
const LIVES: Duration = Duration::from_secs(120);

/// A request in the API server's log, with its status.
fn answered(cluster: &Cluster) -> Vec<(String, u16)> {
    let log = cluster.api.log();
    let request = |line: &str| {
        let (_, rest) = line.split_once("request=\"")?;
        let (request, rest) = rest.split_once('"')?;
        let status = rest.trim().strip_prefix("status=")?.parse().ok()?;
        Some((request.to_owned(), status))
    };
    log.lines().filter_map(request).collect()
}

/// How often the kubelet has opened a watch of each collection.
fn watches(cluster: &Cluster) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for (request, _) in answered(cluster) {
        // Requests for certificates come and go with each renewal.
        let is_watch = request.contains("allowWatchBookmarks=true");
        // Watches of one namespace are kubectl's: it waits with them.
        if is_watch && !request.contains("certificatesigningrequests") && !request.contains("/namespaces/") {
            let collection = request.split('?').next().unwrap_or_default().to_owned();
            *counts.entry(collection).or_default() += 1;
        }
    }
    counts
}

/// Warnings in the kubelet's log from that line on that concern failed calls or certificates.
fn warnings(node: &Node, from: usize) -> Vec<String> {
    let log = node.kubelet_log();
    let patterns = [
        "unauthorized",
        "forbidden",
        "no answer within",
        "timed out after",
        "cannot be reached",
        "ertificate",
    ];
    let is_meant =
        |line: &&str| line.starts_with(['W', 'E']) && patterns.iter().any(|pattern| line.contains(pattern));
    log.lines().skip(from).filter(is_meant).map(str::to_owned).collect()
}

fn pair_in_use(cluster: &Cluster, kind: &str) -> PathBuf {
    let link = cluster.node.path(&format!("pki/kubelet-{kind}-current.pem"));
    std::fs::read_link(link).expect("a link to the pair in use")
}

/// The certificate that the main port shows to a new client that trusts the cluster's CA.
fn served(cluster: &Cluster) -> Result<CertificateDer<'static>, String> {
    let mut stream = crate::server::connect(&cluster.node, &cluster.api.file("ca.crt"), None)?;
    stream.conn.complete_io(&mut stream.sock).map_err(|error| error.to_string())?;
    let presented = stream.conn.peer_certificates().and_then(|chain| chain.first().cloned());
    presented.map(CertificateDer::into_owned).ok_or_else(|| "it shows none".to_owned())
}

/// The certificate in the file that is in use.
fn stored(cluster: &Cluster) -> Result<CertificateDer<'static>, String> {
    let file = cluster.node.path("pki/kubelet-server-current.pem");
    CertificateDer::from_pem_file(file).map_err(|error| error.to_string())
}

/// The certificate metrics, once certificates are valid and were rotated at least so many times.
#[track_caller]
fn check_certificate_metrics(cluster: &Cluster, replaced: usize) {
    let value = |text: &str, name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("kubelet_{name} ")));
        line.and_then(|value| value.parse::<f64>().ok()).unwrap_or_else(|| panic!("no {name} in {text}"))
    };
    let rotation =
        |text: &str, what: &str| value(text, &format!("certificate_manager_server_rotation_seconds_{what}"));
    let text = cluster.node.eventually("every replaced certificate is counted", |node| {
        let text = node.get("/metrics")?;
        if rotation(&text, "count") >= replaced as f64 { Ok(text) } else { Err(text) }
    });
    for kind in ["client", "server"] {
        let left = value(&text, &format!("certificate_manager_{kind}_ttl_seconds"));
        assert!((0.0..=LIVES.as_secs_f64()).contains(&left), "{text}");
    }
    let failed = ["certificate_manager_client_expiration_renew_errors", "server_expiration_renew_errors"];
    assert_eq!(failed.map(|name| value(&text, name)), [0.0, 0.0]);
    // A certificate is backdated by 60 seconds and replaced at 126 to 162.
    let age = rotation(&text, "sum") / rotation(&text, "count");
    assert!((120.0..=180.0).contains(&age), "{text}");
}

/// A pod is created, read and deleted.
fn visit(cluster: &Cluster, name: &str) {
    cluster.kubectl.apply(&[bound(shell_pod(name, &format!("echo hello from {name}; {FOREVER}")))]);
    let pod = cluster.running(name);
    // The container runs a moment before its shell has written.
    cluster.node.eventually("the log has the pod's output", |_| {
        let output = cluster.kubectl.ok(&["logs", name]);
        if output == format!("hello from {name}\n") { Ok(()) } else { Err(output) }
    });
    cluster.kubectl.ok(&["delete", "pod", name]);
    cluster.wait_until_gone(&pod);
}

#[test]
fn client_and_serving_certificates_rotate_under_load_without_failures() {
    let mut cluster = node_with_bootstrap(
        &[LIFE],
        json!({
            "rotateCertificates": true, "serverTLSBootstrap": true, "address": "0.0.0.0",
            "nodeStatusUpdateFrequency": "5s", "nodeLeaseDurationSeconds": 20,
        }),
    );
    cluster.node.start_kubelet();
    cluster.wait_until_ready();
    cluster.kubectl.apply(&[bound(shell_pod("steady", "while :; do date +%s; sleep 0.5; done"))]);
    cluster.running("steady");
    let first_served = cluster
        .node
        .eventually("the port serves the certificate that the cluster signed", |_| served(&cluster));
    let steady_log = cluster.node.path("steady.log");
    let out = std::fs::File::create(&steady_log).expect("a file");
    let mut listener = cluster.kubectl.start_into(&["logs", "--follow", "steady"], out);
    let watches_before = watches(&cluster);
    let quiet_from = cluster.node.kubelet_log().lines().count();
    let mut clients = vec![pair_in_use(&cluster, "client")];
    let mut servers = vec![pair_in_use(&cluster, "server")];
    let (mut visits, began) = (0, Instant::now());
    // Until the first ones have expired, so that everything that works after that uses a later one.
    while clients.len() < 2 || servers.len() < 2 || began.elapsed() < LIVES {
        assert!(began.elapsed() < LIVES * 3, "{clients:?} {servers:?}");
        visits += 1;
        visit(&cluster, &format!("visitor-{visits}"));
        // More visitors would take the processors from other tests and see no other certificates.
        std::thread::sleep(Duration::from_secs(1));
        for (kind, seen) in [("client", &mut clients), ("server", &mut servers)] {
            let now = pair_in_use(&cluster, kind);
            if seen.last() != Some(&now) {
                seen.push(now);
            }
        }
    }
    visit(&cluster, "last");

    let all = answered(&cluster);
    assert!(all.len() > 100, "the log of the API server has the requests: {}", all.len());
    let refused: Vec<_> =
        all.iter().filter(|(_, status)| [401, 403, 429].contains(status) || *status >= 500).collect();
    assert!(refused.is_empty(), "{refused:?}");
    assert!(!cluster.api.log().contains("is not trusted"), "{}", cluster.api.log());
    assert_eq!(watches(&cluster), watches_before, "no watch was restarted");
    assert_eq!(warnings(&cluster.node, quiet_from), Vec::<String>::new());
    assert_eq!(listener.try_wait().expect("its state"), None, "an open watch continues");
    let _ = listener.kill();
    let _ = listener.wait();
    assert!(std::fs::read_to_string(&steady_log).expect("the output").lines().count() > 60);

    cluster.node.eventually("the port serves the latest certificate", |_| {
        let (presented, kept) = (served(&cluster)?, stored(&cluster)?);
        if presented == kept && presented != first_served { Ok(()) } else { Err("another one".to_owned()) }
    });
    check_certificate_metrics(&cluster, servers.len() - 1);
    let all_requests = requests(&cluster);
    let of = |by: &str, signer: &str| {
        let wanted = format!(" {by} kubernetes.io/{signer} Approved,Issued");
        all_requests.iter().filter(|request| request.ends_with(&wanted)).count()
    };
    assert_eq!(of("system:bootstrap:abcdef", "kube-apiserver-client-kubelet"), 1, "{all_requests:?}");
    assert!(of("system:node:node", "kube-apiserver-client-kubelet") >= 1, "{all_requests:?}");
    assert!(of("system:node:node", "kubelet-serving") >= 2, "{all_requests:?}");
    cluster.node.eventually("old keys do not pile up", |node| {
        let mut names = names_in(&node.path("pki"));
        names.retain(|name| name.starts_with("kubelet-client-20"));
        if names.len() <= 3 { Ok(()) } else { Err(format!("{names:?}")) }
    });
}

/// kubeadm embeds the client certificate of a control plane node in its kubeconfig, and waits for `kubelet-client-current.pem` to
/// point the kubeconfig at it.
#[test]
fn embedded_client_certificate_is_stored_and_rotated_at_once() {
    let mut cluster = Cluster::start_with(json!({"rotateCertificates": true}));
    cluster.wait_until_ready();
    let issued = "system:node:node kubernetes.io/kube-apiserver-client-kubelet Approved,Issued";
    let one_issued = |cluster: &Cluster| {
        let all = requests(cluster);
        let is_one = all.len() == 1 && all.iter().all(|request| request.ends_with(issued));
        if is_one { Ok(()) } else { Err(format!("{all:?}")) }
    };
    cluster.node.eventually("a certificate was requested and issued", |_| one_issued(&cluster));
    let kubeconfig = std::fs::read_to_string(cluster.api.file("node.kubeconfig")).expect("a kubeconfig");
    cluster.node.eventually("the pair in use differs from that of the kubeconfig", |node| {
        let pair = std::fs::read(node.path("pki/kubelet-client-current.pem")).map_err(|e| e.to_string())?;
        let end = pair.windows(10).rposition(|part| part == b"-----BEGIN").unwrap_or_default();
        let certificate = base64::engine::general_purpose::STANDARD.encode(&pair[..end]);
        if kubeconfig.contains(&certificate) { Err("the same".to_owned()) } else { Ok(()) }
    });
    assert!(
        pair_in_use(&cluster, "client")
            .file_name()
            .is_some_and(|n| n.to_string_lossy().starts_with("kubelet-client-20"))
    );
    cluster.node.restart_kubelet();
    cluster.kubectl.apply(&[bound(shell_pod("second", FOREVER))]);
    cluster.running("second");
    one_issued(&cluster).expect("the stored certificate is used");
}

#[test]
fn serving_certificate_waits_for_csr_approval_and_is_kept_over_a_restart() {
    let node = Node::on_containerd(json!({"serverTLSBootstrap": true, "address": "0.0.0.0"}));
    let mut cluster = Cluster::with_api(node, &["--approve-by-hand", "--no-service-accounts"]);
    cluster.node.start_kubelet();
    cluster.wait_until_ready();
    cluster.kubectl.apply(&[bound(shell_pod("web", &format!("echo hello; {FOREVER}")))]);
    cluster.running("web");
    let request = cluster.node.eventually("the node has requested a certificate", |_| {
        let all = requests(&cluster);
        all.first().cloned().ok_or_else(|| "nothing was requested".to_owned())
    });
    assert!(request.ends_with(" system:node:node kubernetes.io/kubelet-serving "), "{request}");
    assert!(served(&cluster).is_err(), "no unsigned certificate is served");
    assert!(!cluster.node.path("pki/kubelet.crt").exists());
    cluster.kubectl.attempt(&["logs", "web"]).expect_err("nor can the API server call the node");
    let name = request.split(' ').next().expect("a name");
    cluster.kubectl.ok(&["certificate", "approve", name]);
    let presented = cluster.node.eventually("the port serves the signed certificate", |_| served(&cluster));
    assert_eq!(cluster.kubectl.ok(&["logs", "web"]), "hello\n");
    cluster.node.restart_kubelet();
    let after = cluster.node.eventually("the port serves", |_| served(&cluster));
    assert_eq!(after, presented, "the previous certificate");
    // A later pod shows that the node has used the API since.
    cluster.kubectl.apply(&[bound(shell_pod("late", FOREVER))]);
    cluster.running("late");
    assert_eq!(requests(&cluster).len(), 1, "{:?}", requests(&cluster));
}

/// The pending signing request of the client certificate.
pub(crate) fn pending_request(cluster: &Cluster) -> Result<String, String> {
    let all = requests(cluster);
    let found = all.iter().find(|request| request.ends_with("kube-apiserver-client-kubelet "));
    let name = found.and_then(|request| request.split(' ').next()).map(str::to_owned);
    name.ok_or_else(|| format!("{all:?}"))
}

#[test]
fn denied_certificate_renewal_is_counted_and_requested_again() {
    let mut cluster = node_with_bootstrap(&["--approve-by-hand", LIFE], json!({"rotateCertificates": true}));
    cluster.node.spawn_kubelet();
    let first = cluster.node.eventually("the node requests a certificate", |_| pending_request(&cluster));
    cluster.kubectl.ok(&["certificate", "approve", &first]);
    cluster.wait_until_ready();
    let joined = pair_in_use(&cluster, "client");
    let denied = cluster.node.eventually("the certificate is due", |_| pending_request(&cluster));
    cluster.kubectl.ok(&["certificate", "deny", &denied]);
    cluster
        .node
        .wait_for_log(&format!("{denied}: certificate signing request is denied, reason: KubectlDeny"));
    cluster.node.eventually("it is counted", |node| {
        let text = node.get("/metrics")?;
        let name = "kubelet_certificate_manager_client_expiration_renew_errors";
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
        let count = line.strip_prefix(name).and_then(|count| count.trim().parse::<u64>().ok());
        if count.is_some_and(|count| count > 0) { Ok(()) } else { Err(line) }
    });
    let again = cluster.node.eventually("it is called again", |_| pending_request(&cluster));
    assert_ne!(again, denied);
    cluster.kubectl.ok(&["certificate", "approve", &again]);
    cluster.node.eventually("another pair is in use", |_| {
        let now = pair_in_use(&cluster, "client");
        if now == joined { Err(now.display().to_string()) } else { Ok(()) }
    });
    cluster.kubectl.apply(&[bound(shell_pod("web", FOREVER))]);
    cluster.running("web");
}
