//! Certificate signing requests: from a bootstrap token to a node's certificate and its expiration.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

use crate::server::{Kubectl, Server, eventually};

const TOKEN: &str = "--bootstrap-token=abcdef.0123456789abcdef";

/// Requests a client certificate for a node; returns its key.
fn request_certificate(kubectl: &Kubectl, node: &str) -> KeyPair {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(DnType::CommonName, format!("system:node:{node}"));
    let pem = params.serialize_request(&key).and_then(|request| request.pem()).expect("a request");
    let request = serde_json::json!({
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": "csr"},
        "spec": {
            "request": STANDARD.encode(pem),
            "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
            "usages": ["digital signature", "client auth"],
        },
    });
    kubectl.feed(&["create", "-f", "-"], &request.to_string());
    key
}

fn certificate(kubectl: &Kubectl) -> String {
    eventually("the certificate", || {
        let signed = kubectl.ok(&["get", "csr", "csr", "-o", "jsonpath={.status.certificate}"]);
        (!signed.is_empty()).then_some(signed)
    })
}

/// kubectl with the signed certificate.
fn as_node(server: &Server, certificate: &str, key: &KeyPair) -> Kubectl {
    let config = std::fs::read(server.file("bootstrap.kubeconfig")).expect("a kubeconfig");
    let mut config: serde_json::Value = serde_json::from_slice(&config).expect("JSON");
    config["users"][0]["user"] = serde_json::json!({
        "client-certificate-data": certificate,
        "client-key-data": STANDARD.encode(key.serialize_pem()),
    });
    std::fs::write(server.file("joined.kubeconfig"), config.to_string()).expect("written");
    server.kubectl("joined.kubeconfig")
}

#[test]
fn bootstrap_token_obtains_a_certificate_that_expires() {
    let server = Server::start(&[TOKEN, "--certificate-lifetime-seconds=20"]);
    let bootstrapper = server.kubectl("bootstrap.kubeconfig");
    let key = request_certificate(&bootstrapper, "joiner");
    let signed = certificate(&bootstrapper);
    let table = bootstrapper.ok(&["get", "csr"]);
    assert!(table.contains("Approved,Issued") && table.contains("system:bootstrap:abcdef"), "{table}");
    let node = as_node(&server, &signed, &key);
    node.feed(&["create", "-f", "-"], "apiVersion: v1\nkind: Node\nmetadata: {name: joiner}\n");
    eventually("the certificate to expire", || {
        let output = node.run(&["get", "node", "joiner"], "");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        (!output.status.success() && stderr.contains("logged in")).then_some(())
    });
}

#[test]
fn certificate_is_approved_by_kubectl_with_manual_approval() {
    let server = Server::start(&[TOKEN, "--approve-by-hand"]);
    let bootstrapper = server.kubectl("bootstrap.kubeconfig");
    request_certificate(&bootstrapper, "joiner");
    assert!(bootstrapper.ok(&["get", "csr"]).contains("Pending"));
    let admin = server.admin();
    admin.ok(&["certificate", "approve", "csr"]);
    assert!(!certificate(&bootstrapper).is_empty());
}
