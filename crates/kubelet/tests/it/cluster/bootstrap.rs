//! A node that has only a bootstrap token: it requests its certificate, waits for the approval, and is a member from then on.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use cluster::X509;
use model::PemPair;
use ports::Certificates;
use serde_json::{Value, json};

use crate::node::{FOREVER, Node, shell_pod};

use super::api_server::ApiServer;
use super::{Cluster, bound};

const TOKEN: &str = "--bootstrap-token=abcdef.0123456789abcdef";

/// A node with bootstrap credentials; its kubelet is not started yet.
pub(crate) fn node_with_bootstrap(api: &[&str], extra: Value) -> Cluster {
    let mut node = Node::on_containerd(extra);
    let mut arguments = vec![TOKEN, "--no-service-accounts", "--verbose"];
    arguments.extend(api);
    let api = ApiServer::start(node.path("api"), &arguments);
    let (bootstrap, kubeconfig) = (api.file("bootstrap.kubeconfig"), node.path("etc/kubelet.conf"));
    for (flag, path) in [("--bootstrap-kubeconfig", bootstrap), ("--kubeconfig", kubeconfig)] {
        node.add_flags(&[flag, path.to_str().expect("a path")]);
    }
    Cluster::of(node, api)
}

/// All certificate signing requests, as `name requestor signer conditions`.
pub(super) fn requests(cluster: &Cluster) -> Vec<String> {
    let all = cluster.kubectl.list("/apis/certificates.k8s.io/v1/certificatesigningrequests");
    let line = |request: &Value| {
        let conditions = request["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let kinds: Vec<&str> = conditions.iter().filter_map(|one| one["type"].as_str()).collect();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let issued = if request["status"]["certificate"].is_string() { ",Issued" } else { "" };
        let spec = &request["spec"];
        let [by, signer] = [text(&spec["username"]), text(&spec["signerName"])];
        format!("{} {by} {signer} {}{issued}", text(&request["metadata"]["name"]), kinds.join(","))
    };
    all.expect("requests").iter().map(line).collect()
}

/// The only signing request.
#[track_caller]
fn only_request(cluster: &Cluster) -> String {
    let all = requests(cluster);
    assert_eq!(all.len(), 1, "{all:?}");
    all.into_iter().next().expect("one")
}

/// Waits for the only signing request, still pending; returns its name.
#[track_caller]
fn pending(cluster: &Cluster) -> String {
    let request = cluster.node.eventually("a request is pending", |_| {
        let all = requests(cluster);
        let one = all.first().filter(|one| one.ends_with("kubelet ")).cloned();
        one.ok_or_else(|| format!("{all:?}"))
    });
    request.split(' ').next().expect("a name").to_owned()
}

/// Certificate and key as they are on disk.
fn pair_in_use(cluster: &Cluster) -> (String, String) {
    let pair = std::fs::read_to_string(cluster.node.path("pki/kubelet-client-current.pem")).expect("a pair");
    let end = pair.rfind("-----BEGIN").expect("a key after the certificate");
    (pair[..end].to_owned(), pair[end..].to_owned())
}

#[test]
fn tls_bootstrap_with_a_token_joins_and_keeps_its_certificate_over_restart() {
    let mut cluster = node_with_bootstrap(&[], json!({}));
    cluster.node.start_kubelet();
    cluster.wait_until_ready();
    let request = only_request(&cluster);
    assert!(request.starts_with("node-csr-"), "{request}");
    let rest = "system:bootstrap:abcdef kubernetes.io/kube-apiserver-client-kubelet Approved,Issued";
    assert!(request.ends_with(rest), "{request}");

    let current = cluster.node.path("pki/kubelet-client-current.pem");
    let target = std::fs::read_link(&current).expect("a link to the pair in use");
    let dated = target.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    assert!(dated.starts_with("kubelet-client-20"), "{}", target.display());
    let pair = std::fs::read_to_string(&current).expect("the pair in use");
    assert!(pair.contains("BEGIN CERTIFICATE") && pair.contains("PRIVATE KEY"), "{pair}");
    let mode = std::fs::metadata(&current).expect("its mode").permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    assert!(!cluster.node.path("pki/kubelet-client.key.tmp").exists(), "the key is with its certificate");
    let kubeconfig = std::fs::read_to_string(cluster.node.path("etc/kubelet.conf")).expect("it is written");
    for part in ["default-cluster", "default-auth", "default-context", current.to_str().expect("a path")] {
        assert!(kubeconfig.contains(part), "{part:?} is missing in {kubeconfig}");
    }
    assert!(!kubeconfig.contains("0123456789abcdef"), "the token is not copied: {kubeconfig}");

    cluster.kubectl.apply(&[bound(shell_pod("first", FOREVER))]);
    cluster.running("first");
    // The bootstrap credentials are gone and not needed.
    std::fs::remove_file(cluster.api.file("bootstrap.kubeconfig")).expect("removed");
    cluster.node.restart_kubelet();
    cluster.kubectl.apply(&[bound(shell_pod("second", FOREVER))]);
    cluster.running("second");
    assert_eq!(only_request(&cluster), request, "the previous certificate is used");
    assert_eq!(std::fs::read_link(&current).expect("a link"), target);
}

/// As a power cut leaves it: the symlink exists, and its target is empty.
#[test]
fn an_empty_current_certificate_falls_back_to_an_older_pair() {
    let mut cluster = node_with_bootstrap(&[], json!({}));
    cluster.node.start_kubelet();
    cluster.wait_until_ready();
    cluster.kubectl.apply(&[bound(shell_pod("first", FOREVER))]);
    let before = cluster.running("first");
    cluster.node.kill_kubelet();
    let current = cluster.node.path("pki/kubelet-client-current.pem");
    let newest = std::fs::read_link(&current).expect("a link to the pair in use");
    let older = cluster.node.path("pki/kubelet-client-2020-01-01-00-00-00.pem");
    std::fs::copy(&newest, &older).expect("an older pair");
    std::fs::write(&newest, "").expect("emptied");
    std::fs::remove_file(cluster.api.file("bootstrap.kubeconfig")).expect("removed");
    cluster.node.start_kubelet();
    cluster.node.wait_for_log("Current certificate is damaged, using an older one");
    cluster.kubectl.apply(&[bound(shell_pod("second", FOREVER))]);
    cluster.running("second");
    assert_eq!(std::fs::read_link(&current).expect("a link"), older);
    let after = cluster.running("first");
    let id = |pod: &Value| pod["status"]["containerStatuses"][0]["containerID"].clone();
    assert_eq!(id(&after), id(&before));
    only_request(&cluster);
}

#[test]
fn tls_bootstrap_waits_for_csr_approval_over_a_restart_with_one_request() {
    let mut cluster = node_with_bootstrap(&["--approve-by-hand"], json!({}));
    cluster.node.spawn_kubelet();
    let name = pending(&cluster);
    cluster.node.wait_for_log("Waiting for the certificate signing request to be approved");
    cluster.node.kill_kubelet();
    cluster.node.spawn_kubelet();
    cluster.node.eventually("the next kubelet waits too", |node| {
        let waits =
            node.kubelet_log().matches("Waiting for the certificate signing request to be approved").count();
        if waits == 2 { Ok(()) } else { Err(format!("{waits} times")) }
    });
    assert_eq!(pending(&cluster), name, "the same key gives the same request");
    let complaint = cluster.kubectl.get("node", "node").expect_err("it has not joined");
    assert!(complaint.contains("NotFound"), "{complaint}");
    cluster.kubectl.ok(&["certificate", "approve", &name]);
    cluster.wait_until_ready();
    assert!(only_request(&cluster).ends_with("Approved,Issued"), "{:?}", requests(&cluster));
}

#[test]
fn start_that_waits_for_csr_approval_is_reported_to_systemd_as_done_with_the_reason() {
    let mut cluster = node_with_bootstrap(&["--approve-by-hand"], json!({}));
    let path = cluster.node.path("notify.sock");
    let systemd = UnixDatagram::bind(&path).expect("a socket");
    systemd.set_read_timeout(Some(fixtures::stretched(Duration::from_secs(60)))).expect("a timeout");
    cluster.node.set_variable("NOTIFY_SOCKET", path.clone());
    let next = || {
        let mut buffer = [0; 256];
        let length = systemd.recv(&mut buffer).expect("a message");
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };
    cluster.node.spawn_kubelet();
    let name = pending(&cluster);
    let reported = next();
    assert!(reported.starts_with("READY=1\nSTATUS=waiting for the client certificate"), "{reported}");
    cluster.kubectl.ok(&["certificate", "approve", &name]);
    cluster.wait_until_ready();
    assert_eq!([next(), next()], ["STATUS=", "READY=1"]);
}

#[test]
fn denied_csr_ends_the_kubelet_and_a_later_bootstrap_joins() {
    let mut cluster = node_with_bootstrap(&["--approve-by-hand"], json!({}));
    cluster.node.spawn_kubelet();
    let name = pending(&cluster);
    cluster.kubectl.ok(&["certificate", "deny", &name]);
    for lives in 1..=2 {
        assert_eq!(cluster.node.wait_for_exit().code(), Some(1));
        let log = cluster.node.kubelet_log();
        let message =
            format!("E: --bootstrap-kubeconfig: {name}: certificate signing request is denied, reason: ");
        assert_eq!(log.matches(&message).count(), lives, "{log}");
        // Another start gets the same answer, not a second request.
        assert!(only_request(&cluster).ends_with("Denied"), "{:?}", requests(&cluster));
        cluster.node.spawn_kubelet();
    }
    assert_eq!(cluster.node.wait_for_exit().code(), Some(1));
    cluster.kubectl.ok(&["delete", "csr", &name]);
    cluster.node.spawn_kubelet();
    let name = pending(&cluster);
    cluster.kubectl.ok(&["certificate", "approve", &name]);
    cluster.wait_until_ready();
}

#[test]
fn kubelet_with_an_expired_client_certificate_bootstraps_again() {
    let mut cluster = node_with_bootstrap(&["--certificate-lifetime-seconds=8"], json!({}));
    cluster.node.start_kubelet();
    cluster.wait_until_ready();
    let node = cluster.kubectl.get("node", "node").expect("the node");
    cluster.node.kill_kubelet();
    let (certificate, key) = pair_in_use(&cluster);
    let end = X509.read(&PemPair { certificate, key: key.clone() }).expect("a certificate").not_after;
    cluster.node.eventually("the certificate has expired", |_| {
        let now = jiff::Timestamp::now();
        if now > end { Ok(()) } else { Err(format!("{now}")) }
    });
    cluster.node.start_kubelet();
    cluster.node.wait_for_log("the client certificate in ");
    cluster.kubectl.apply(&[bound(shell_pod("late", FOREVER))]);
    cluster.running("late");
    assert_ne!(pair_in_use(&cluster).1, key, "it has another key too");
    let after = cluster.kubectl.get("node", "node").expect("the node");
    assert_eq!(after["metadata"]["uid"], node["metadata"]["uid"], "the node is the same");
}
