//! From a bootstrap token to a node's certificate, and to one that ends.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

use crate::server::{Kubectl, Server, eventually};

const TOKEN: &str = "--bootstrap-token=abcdef.0123456789abcdef";

/// Asks for a client certificate for a node; the key that goes with it.
fn ask(kubectl: &Kubectl, node: &str) -> KeyPair {
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
fn a_bootstrap_token_becomes_a_certificate_that_ends() {
    let server = Server::start(&[TOKEN, "--certificate-lifetime-seconds=20"]);
    let newcomer = server.kubectl("bootstrap.kubeconfig");
    let key = ask(&newcomer, "joiner");
    let signed = certificate(&newcomer);
    let table = newcomer.ok(&["get", "csr"]);
    assert!(table.contains("Approved,Issued") && table.contains("system:bootstrap:abcdef"), "{table}");
    let node = as_node(&server, &signed, &key);
    node.feed(&["create", "-f", "-"], "apiVersion: v1\nkind: Node\nmetadata: {name: joiner}\n");
    eventually("the certificate to end", || {
        let output = node.run(&["get", "node", "joiner"], "");
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        (!output.status.success() && complaint.contains("logged in")).then_some(())
    });
}

#[test]
fn without_automatic_approval_a_person_decides() {
    let server = Server::start(&[TOKEN, "--approve-by-hand"]);
    let newcomer = server.kubectl("bootstrap.kubeconfig");
    ask(&newcomer, "joiner");
    assert!(newcomer.ok(&["get", "csr"]).contains("Pending"));
    let admin = server.admin();
    admin.ok(&["certificate", "approve", "csr"]);
    assert!(!certificate(&newcomer).is_empty());
}
