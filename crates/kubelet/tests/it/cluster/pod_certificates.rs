//! Certificates that the kubelet requests for pods: the test is the signer.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, CertifiedIssuer, IsCa, KeyPair,
    PublicKeyData,
};
use serde_json::{Value, json};

use super::objects::{Inside, pod};
use super::{Cluster, Node};
use crate::node::{container, restarts, uid};

const SIGNER: &str = "s.example/x";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1beta1/namespaces/default/podcertificaterequests";

/// A certificate authority that signs every request of its signer.
struct Signer {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Signer {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        Self { issuer: CertifiedIssuer::self_signed(params, key).expect("an authority") }
    }

    /// The status of a request that it issued: the certificate, then its own.
    fn issue(&self, request: &Value) -> Value {
        let stub = request["spec"]["stubPKCS10Request"].as_str().expect("a request");
        let der = STANDARD.decode(stub).expect("base64");
        let mut stub = CertificateSigningRequestParams::from_der(&der.into()).expect("PKCS#10");
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
        let (from, until) = (Duration::from_secs(now), Duration::from_secs(now + 7200));
        let epoch = rcgen::date_time_ymd(1970, 1, 1);
        (stub.params.not_before, stub.params.not_after) = (epoch + from, epoch + until);
        let leaf = stub.signed_by(&self.issuer).expect("a certificate").pem();
        let at = |time: Duration| {
            let seconds = i64::try_from(time.as_secs()).expect("a time");
            Timestamp::from_second(seconds).expect("a time").to_string()
        };
        json!({
            "conditions": [condition("Issued", &at(from))],
            "certificateChain": format!("the leaf:\n{leaf}{}", self.issuer.pem()),
            "notBefore": at(from), "notAfter": at(until), "beginRefreshAt": at(from + Duration::from_secs(3600)),
        })
    }
}

fn condition(kind: &str, at: &str) -> Value {
    json!({"type": kind, "status": "True", "reason": "Test", "message": "as the test says", "lastTransitionTime": at})
}

/// The requests of the pod that no signer has decided, when there are as many as expected.
fn pending(cluster: &Cluster, pod: &str, count: usize) -> Vec<Value> {
    cluster.node.eventually(&format!("{count} certificates are requested for {pod}"), |_| {
        let all = cluster.kubectl.list(REQUESTS)?;
        let is_pending =
            |request: &&Value| request["spec"]["podName"] == pod && request["status"]["conditions"].is_null();
        let found: Vec<Value> = all.iter().filter(is_pending).cloned().collect();
        if found.len() == count { Ok(found) } else { Err(format!("{found:?}")) }
    })
}

fn decide(cluster: &Cluster, request: &Value, status: Value) {
    let name = request["metadata"]["name"].as_str().expect("a name");
    let mut request = request.clone();
    request["status"] = status;
    let path = format!("{REQUESTS}/{name}/status");
    cluster.kubectl.run_with_input(&["replace", "--raw", &path, "-f", "-"], &request.to_string());
}

/// Whether the first certificate of the chain is for this key.
fn is_for(chain: &str, key: &str) -> bool {
    let key = KeyPair::from_pem(key).expect("a PKCS#8 key");
    let certificate = chain.split("-----").nth(2).expect("a PEM block");
    let der = STANDARD.decode(certificate.split_whitespace().collect::<String>()).expect("base64");
    let public = key.subject_public_key_info();
    der.windows(public.len()).any(|window| window == public)
}

fn until_event(cluster: &Cluster, pod: &str, expected: &str) {
    cluster.node.eventually("the event has the reason", |_| {
        let events = cluster.events("Pod", pod);
        if events.iter().any(|event| event.contains(expected)) { Ok(()) } else { Err(format!("{events:?}")) }
    });
}

#[test]
fn pod_certificate_volumes_show_what_the_signer_issued_and_why_it_did_not() {
    let node = Node::on_containerd(json!({"featureGates": {"PodCertificateRequest": true}}));
    let mut cluster = Cluster::with_api(node, &[]);
    cluster.node.start_kubelet();
    cluster.wait_until_ready();
    let source = |key_type: &str, paths: Value| {
        let mut source =
            json!({"signerName": SIGNER, "keyType": key_type, "userAnnotations": {"s.example/for": "test"}});
        source.as_object_mut().expect("a map").extend(paths.as_object().expect("paths").clone());
        json!({"podCertificate": source})
    };
    let volume =
        |sources: Value| json!([{"name": "id", "projected": {"sources": sources, "defaultMode": 0o440}}]);
    let bundle = json!({"credentialBundlePath": "bundle.pem"});
    let files = json!({"keyPath": "key.pem", "certificateChainPath": "chain.pem"});
    let rsa = json!({"keyPath": "rsa.pem", "certificateChainPath": "rsa-chain.pem"});
    cluster.kubectl.apply(&[
        pod(
            "web",
            volume(json!([
                source("ED25519", bundle.clone()),
                source("ECDSAP384", files),
                source("RSA3072", rsa),
            ])),
            json!({}),
        ),
        pod("denied", volume(json!([source("ECDSAP256", bundle.clone())])), json!({})),
        pod("undecided", volume(json!([source("ECDSAP521", bundle)])), json!({})),
    ]);
    let signer = Signer::new();
    let requests = pending(&cluster, "web", 3);
    let web = cluster.kubectl.get("pod", "web").expect("the pod");
    for request in &requests {
        assert_eq!(request["spec"]["podUID"], web["metadata"]["uid"]);
        assert_eq!(request["spec"]["nodeName"], "node");
        assert_eq!(request["spec"]["serviceAccountName"], "default");
        assert_eq!(request["spec"]["maxExpirationSeconds"], 86_400);
        assert_eq!(request["spec"]["unverifiedUserAnnotations"]["s.example/for"], "test");
        assert_eq!(request["metadata"]["ownerReferences"][0]["uid"], web["metadata"]["uid"]);
        decide(&cluster, request, signer.issue(request));
    }
    let denied = pending(&cluster, "denied", 1).remove(0);
    pending(&cluster, "undecided", 1);
    decide(&cluster, &denied, json!({"conditions": [condition("Denied", "2026-01-01T00:00:00Z")]}));

    let web = cluster.running("web");
    let inside = Inside::of(&cluster, &web);
    let file = |path: &str| inside.file(&format!("vol/id/{path}")).expect("a file of the volume");
    let (text, key, chain) = (file("bundle.pem"), file("key.pem"), file("chain.pem"));
    let (rsa_key, rsa_chain) = (file("rsa.pem"), file("rsa-chain.pem"));
    let (bundle_key, bundle_chain) = text.split_at(text.find("-----BEGIN CERTIFICATE").expect("a chain"));
    for (key, chain) in
        [(bundle_key, bundle_chain), (key.as_str(), chain.as_str()), (rsa_key.as_str(), rsa_chain.as_str())]
    {
        assert!(key.starts_with("-----BEGIN PRIVATE KEY-----\n") && is_for(chain, key), "{chain}");
        assert!(chain.starts_with("-----BEGIN CERTIFICATE-----\n"), "without the text before it: {chain}");
        assert_eq!(chain.matches("BEGIN CERTIFICATE").count(), 2);
    }
    let mounts = std::fs::read_to_string(inside.0.join("mounts")).expect("the mounts of the container");
    let mount = mounts.lines().find(|line| line.split(' ').nth(1) == Some("/vol/id")).expect("the volume");
    assert_eq!(mount.split(' ').nth(2), Some("tmpfs"), "keys are only in memory: {mount}");

    let name = denied["metadata"]["name"].as_str().expect("a name");
    for (pod, expected) in [
        (
            "denied",
            format!(
                "Denied: PodCertificateRequest default/{name} was denied, reason=\"Test\", message=\"as the test says\""
            ),
        ),
        (
            "denied",
            "PodCertificateRequest was permanently denied: reason=\"Test\" message=\"as the test says\""
                .to_owned(),
        ),
    ] {
        until_event(&cluster, pod, &expected);
    }
    cluster.node.eventually("the states are counted", |node| {
        let metrics = node.get("/metrics")?;
        let states: Vec<&str> =
            metrics.lines().filter(|line| line.starts_with("kubelet_podcertificate")).collect();
        let expected = [("denied", 1), ("fresh", 3), ("not_yet_issued", 1)];
        let expected = expected.map(|(state, count)| {
            format!("kubelet_podcertificate_states{{signer_name=\"{SIGNER}\",state=\"{state}\"}} {count}")
        });
        if states == expected { Ok(()) } else { Err(format!("{states:?}")) }
    });

    // Keys are only in memory: after a restart all certificates are issued again, while containers run.
    cluster.node.restart_kubelet();
    for request in pending(&cluster, "web", 3) {
        decide(&cluster, &request, signer.issue(&request));
    }
    cluster.node.eventually("the new key is shown", |_| {
        let now = inside.file("vol/id/bundle.pem")?;
        if now == text { Err("the old one".to_owned()) } else { Ok(()) }
    });
    let after = cluster.running("web");
    assert_eq!((restarts(&after, "main"), uid(&after)), (0, uid(&web)));
    assert_eq!(container(&after, "main")["containerID"], container(&web, "main")["containerID"]);
    cluster.kubectl.ok(&["delete", "pod", "web", "denied", "undecided"]);
    cluster.wait_until_gone(&web);
}
