use std::fmt::Write as _;

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::*;

const START: i64 = 1_800_000_000;
const PEM: &str = "-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n";

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(START + seconds).unwrap()
}

fn now(seconds: i64) -> Now {
    Now { wall: at(seconds), mono: MonoTime::from_start(Duration::from_secs(seconds.unsigned_abs())) }
}

/// One certificate and what the node sees of its request. Every step and its time is written down.
struct Scenario {
    state: CertificateState,
    status: Option<Value>,
    seen: &'static str,
    retry_at: Option<MonoTime>,
    random: f64,
    requests: u32,
    text: String,
}

impl Scenario {
    fn new() -> Self {
        Self {
            state: CertificateState::Initial,
            status: None,
            seen: "missing",
            retry_at: None,
            random: 0.0,
            requests: 0,
            text: String::new(),
        }
    }

    fn see(&mut self, seen: &'static str, status: Value) -> &mut Self {
        (self.seen, self.status) = (seen, Some(status));
        self
    }

    /// Does all that is to be done at this time. A request is created unless `is_api_away`.
    fn pass(&mut self, seconds: i64, is_api_away: bool) -> &mut Self {
        loop {
            let request: Option<PodCertificateRequest> = self.status.as_ref().map(|status| {
                let metadata = json!({"namespace": "ns", "name": "req-1"});
                serde_json::from_value(json!({"metadata": metadata, "status": status})).unwrap()
            });
            let step = compute_certificate_step(&CertificateInputs {
                state: &self.state,
                request: match (self.seen, &request) {
                    ("found", Some(request)) => SeenRequest::Found(request),
                    ("missing", _) => SeenRequest::Missing,
                    _ => SeenRequest::Unknown,
                },
                retry_at: self.retry_at,
                random: self.random,
                now: now(seconds),
            });
            let text = match step {
                CertificateStep::Wait { until } => {
                    let until =
                        until.map_or("it changes".to_owned(), |at| at.since_start().as_secs().to_string());
                    let _ = writeln!(self.text, "{seconds}: wait until {until}");
                    return self;
                }
                CertificateStep::Create if is_api_away => {
                    self.retry_at = Some(now(seconds).mono + compute_create_delay(8));
                    "create failed".to_owned()
                }
                CertificateStep::Create => {
                    self.requests += 1;
                    self.seen = "missing";
                    let key = PrivateKey::new(&format!("key {}", self.requests));
                    self.state = self.state.requested("req-1", key, self.random, now(seconds));
                    "create".to_owned()
                }
                CertificateStep::Become { state, event, reason } => {
                    self.state = state;
                    let event = event.map(|event| format!(" [{}: {}]", event.reason, event.message));
                    format!("{reason}{}", event.unwrap_or_default())
                }
            };
            let shown = match self.state.credential() {
                Ok(credential) => format!("{} with {:?}", credential.key.pem(), credential.chain),
                Err(error) => error.to_string(),
            };
            let label = self.state.status().label(at(seconds));
            let _ = writeln!(self.text, "{seconds}: {text}; {label}: {shown}");
        }
    }

    fn check(&self, expected: &Expect) {
        expected.assert_eq(&self.text);
    }
}

fn issued(begin: i64, end: i64) -> Value {
    json!({
        "conditions": [{"type": "Issued", "status": "True", "reason": "R", "message": "", "lastTransitionTime": at(0)}],
        "certificateChain": PEM, "beginRefreshAt": at(begin), "notBefore": at(0), "notAfter": at(end),
    })
}

fn refused(kind: &str) -> Value {
    json!({"conditions": [{"type": kind, "status": "True", "reason": "Why", "message": "not \"you\"", "lastTransitionTime": at(0)}]})
}

#[test]
fn pod_certificate_is_requested_used_and_renewed_with_a_new_key() {
    let mut scenario = Scenario::new();
    scenario.pass(0, false).see("found", json!({})).pass(1, false);
    scenario.see("found", issued(3600, 7200)).pass(2, false).pass(3600 + 1, false);
    scenario.see("found", issued(7200, 10800)).pass(3700, false);
    scenario.check(&expect![[r#"
        0: create; not_yet_issued: credential bundle is not issued yet
        0: wait until 600
        1: wait until it changes
        2: PodCertificateRequest issued; fresh: key 1 with "-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n"
        2: wait until 3600
        3601: create; fresh: key 1 with "-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n"
        3601: wait until 4200
        3700: PodCertificateRequest issued; fresh: key 2 with "-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n"
        3700: wait until 7200
    "#]]);
}

#[test]
fn pod_certificate_renewal_comes_up_to_five_minutes_later_and_not_at_once() {
    let mut scenario = Scenario::new();
    scenario.random = 0.5;
    scenario.pass(0, false).see("found", issued(3600, 7200)).pass(2, false);
    scenario.check(&expect![[r#"
        0: create; not_yet_issued: credential bundle is not issued yet
        0: wait until 750
        2: PodCertificateRequest issued; fresh: key 1 with "-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n"
        2: wait until 3750
    "#]]);
    let mut scenario = Scenario::new();
    scenario.pass(0, false).see("found", issued(-3600, 7200)).pass(2, false);
    scenario.check(&expect![[r#"
        0: create; not_yet_issued: credential bundle is not issued yet
        0: wait until 600
        2: PodCertificateRequest issued; fresh: key 1 with "-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n"
        2: wait until 62
    "#]]);
}

#[test]
fn denied_or_failed_pod_certificate_stays_so() {
    for (kind, expected) in [
        (
            "Denied",
            expect![[r#"
        0: create; not_yet_issued: credential bundle is not issued yet
        0: wait until 600
        1: PodCertificateRequest refused [Denied: PodCertificateRequest ns/req-1 was denied, reason="Why", message="not \"you\""]; denied: PodCertificateRequest was permanently denied: reason="Why" message="not \"you\""
        1: wait until it changes
        100000: wait until it changes
    "#]],
        ),
        (
            "Failed",
            expect![[r#"
        0: create; not_yet_issued: credential bundle is not issued yet
        0: wait until 600
        1: PodCertificateRequest refused [Failed: PodCertificateRequest ns/req-1 failed, reason="Why", message="not \"you\""]; failed: PodCertificateRequest was permanently failed: reason="Why" message="not \"you\""
        1: wait until it changes
        100000: wait until it changes
    "#]],
        ),
    ] {
        let mut scenario = Scenario::new();
        scenario.pass(0, false).see("found", refused(kind)).pass(1, false).pass(100_000, false);
        scenario.check(&expected);
    }
    let mut scenario = Scenario::new();
    scenario.pass(0, false).see("found", issued(3600, 7200)).pass(1, false).pass(3600, false);
    scenario.see("found", refused("Denied")).pass(3601, false);
    scenario.check(&expect![[r#"
        0: create; not_yet_issued: credential bundle is not issued yet
        0: wait until 600
        1: PodCertificateRequest issued; fresh: key 1 with "-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n"
        1: wait until 3600
        3600: create; fresh: key 1 with "-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n"
        3600: wait until 4200
        3601: PodCertificateRequest refused [Denied: PodCertificateRequest ns/req-1 was denied, reason="Why", message="not \"you\""]; denied: PodCertificateRequest was permanently denied: reason="Why" message="not \"you\""
        3601: wait until it changes
    "#]]);
}

#[test]
fn pod_certificate_request_that_was_deleted_is_created_again_after_ten_minutes() {
    let mut scenario = Scenario::new();
    scenario.pass(0, false).pass(599, false).see("unknown", json!({})).pass(601, false);
    scenario.see("missing", json!({})).pass(601, false);
    scenario.check(&expect![[r#"
        0: create; not_yet_issued: credential bundle is not issued yet
        0: wait until 600
        599: wait until 600
        601: wait until it changes
        601: PodCertificateRequest appears to have been deleted; not_yet_issued: credential bundle is not issued yet
        601: create; not_yet_issued: credential bundle is not issued yet
        601: wait until 1201
    "#]]);
    let mut scenario = Scenario::new();
    scenario
        .pass(0, false)
        .see("found", issued(3600, 7200))
        .pass(1, false)
        .pass(3600, false)
        .pass(4199, false);
    scenario.pass(4200, false);
    scenario.check(&expect![[r#"
        0: create; not_yet_issued: credential bundle is not issued yet
        0: wait until 600
        1: PodCertificateRequest issued; fresh: key 1 with "-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n"
        1: wait until 3600
        3600: create; fresh: key 1 with "-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n"
        3600: wait until 4200
        4199: wait until 4200
        4200: PodCertificateRequest appears to have been deleted; overdue_for_refresh: key 1 with "-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n"
        4200: PodCertificate refresh overdue [CertificateOverdueForRefresh: PodCertificate refresh overdue]; overdue_for_refresh: key 1 with "-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n"
        4200: create; overdue_for_refresh: key 1 with "-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n"
        4200: wait until 4800
    "#]]);
}

#[test]
fn pod_certificate_that_is_not_renewed_is_reported_overdue_and_expired_once() {
    let mut scenario = Scenario::new();
    scenario.pass(0, false).see("found", issued(3600, 7200)).pass(1, false);
    // The API server is away when the renewal is due.
    scenario.pass(3600, true).pass(4300, true).pass(8000, true);
    scenario.check(&expect![[r#"
        0: create; not_yet_issued: credential bundle is not issued yet
        0: wait until 600
        1: PodCertificateRequest issued; fresh: key 1 with "-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n"
        1: wait until 3600
        3600: create failed; fresh: key 1 with "-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n"
        3600: wait until 3664
        4300: PodCertificate refresh overdue [CertificateOverdueForRefresh: PodCertificate refresh overdue]; overdue_for_refresh: key 1 with "-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n"
        4300: create failed; overdue_for_refresh: key 1 with "-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n"
        4300: wait until 4364
        8000: PodCertificate expired [CertificateExpired: PodCertificate expired]; expired: key 1 with "-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n"
        8000: create failed; expired: key 1 with "-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n"
        8000: wait until 8064
    "#]]);
    // The signer is away.
    let mut scenario = Scenario::new();
    scenario.pass(0, false).see("found", issued(3600, 7200)).pass(1, false).pass(3600, false);
    scenario.see("found", json!({})).pass(3601, false).pass(4200, false).pass(7200, false).pass(9000, false);
    scenario.check(&expect![[r#"
        0: create; not_yet_issued: credential bundle is not issued yet
        0: wait until 600
        1: PodCertificateRequest issued; fresh: key 1 with "-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n"
        1: wait until 3600
        3600: create; fresh: key 1 with "-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n"
        3600: wait until 4200
        3601: wait until 4200
        4200: PodCertificate refresh overdue [CertificateOverdueForRefresh: PodCertificate refresh overdue]; overdue_for_refresh: key 1 with "-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n"
        4200: wait until 7200
        7200: PodCertificate expired [CertificateExpired: PodCertificate expired]; expired: key 1 with "-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n"
        7200: wait until it changes
        9000: wait until it changes
    "#]]);
}

#[test]
fn status_that_has_no_usable_certificate_counts_as_failed() {
    let mut lines = String::new();
    for (field, value) in [
        ("certificateChain", json!("no PEM")),
        ("certificateChain", json!(PEM.repeat(4000))),
        ("beginRefreshAt", Value::Null),
        ("notAfter", Value::Null),
    ] {
        let mut status = issued(3600, 7200);
        status[field] = value;
        let mut scenario = Scenario::new();
        scenario.pass(0, false).see("found", status).pass(1, false);
        lines.push_str(&format!("{}\n", scenario.state.credential().unwrap_err()));
    }
    expect![[r#"
        PodCertificateRequest was permanently failed: reason="InvalidCertificate" message="status.certificateChain has no certificate"
        PodCertificateRequest was permanently failed: reason="InvalidCertificate" message="status.certificateChain is larger than 102400 bytes"
        PodCertificateRequest was permanently failed: reason="InvalidCertificate" message="status.beginRefreshAt is not set"
        PodCertificateRequest was permanently failed: reason="InvalidCertificate" message="status.notAfter is not set"
    "#]].assert_eq(&lines);
}

#[test]
fn certificate_chain_has_each_block_as_a_plain_certificate() {
    let chain = "leaf:\n-----BEGIN CERTIFICATE-----\nA: b\n\nQUJD\n-----END CERTIFICATE-----\ntext\n-----BEGIN X509 CRL-----\nREVG\n-----END X509 CRL-----\n-----BEGIN X-----\nQ";
    let mut status = issued(3600, 7200);
    status["certificateChain"] = json!(chain);
    let mut scenario = Scenario::new();
    scenario.pass(0, false).see("found", status).pass(1, false);
    let credential = scenario.state.credential().unwrap();
    assert_eq!(&*credential.chain, format!("{PEM}{}", PEM.replace("QUJD", "REVG")));
}

#[test]
fn creating_a_request_is_retried_at_growing_intervals() {
    let delays: Vec<u128> = (1..12).map(|failures| compute_create_delay(failures).as_millis()).collect();
    assert_eq!(delays, [500, 1000, 2000, 4000, 8000, 16_000, 32_000, 64_000, 128_000, 256_000, 300_000]);
    assert_eq!(compute_create_delay(u32::MAX), LONGEST_RETRY);
}

#[test]
fn key_types_of_the_api_are_known() {
    let text = |name: &str| match key_type(name) {
        Ok(kind) => format!("{kind:?}"),
        Err(error) => error.to_string(),
    };
    let names = ["ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519", "RSA3072", "RSA4096", "rsa", ""];
    let all: String = names.iter().map(|name| format!("{name}: {}\n", text(name))).collect();
    expect![[r#"
        ECDSAP256: EcdsaP256
        ECDSAP384: EcdsaP384
        ECDSAP521: EcdsaP521
        ED25519: Ed25519
        RSA3072: Rsa3072
        RSA4096: Rsa4096
        rsa: unknown key type "rsa"
        : unknown key type ""
    "#]]
    .assert_eq(&all);
}

#[test]
fn certificate_request_names_pod_account_and_node() {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"namespace": "ns", "name": "web", "uid": "u1"},
        "spec": {"containers": [], "volumes": [
            {"name": "a", "emptyDir": {}},
            {"name": "b", "projected": {"sources": [
                {"secret": {"name": "s"}},
                {"podCertificate": {"signerName": "s.example/x", "keyType": "ED25519", "maxExpirationSeconds": 7200,
                    "userAnnotations": {"s.example/dns": "web"}, "credentialBundlePath": "bundle.pem"}},
            ]}},
        ]},
    }))
    .unwrap();
    let sources = certificate_sources(&pod);
    let ids: Vec<&CertificateId> = sources.iter().map(|source| &source.id).collect();
    assert_eq!(ids, [&CertificateId { volume: "b".to_owned(), index: 1 }]);
    let facts = RequestFacts { service_account_uid: "u2", node_name: "n", node_uid: "u3", stub: b"abc" };
    let request = compute_certificate_request(&pod, &sources[0].projection, &facts);
    expect![[r#"
        {
          "apiVersion": "certificates.k8s.io/v1beta1",
          "kind": "PodCertificateRequest",
          "metadata": {
            "generateName": "req-",
            "namespace": "ns",
            "ownerReferences": [
              {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": "web",
                "uid": "u1"
              }
            ]
          },
          "spec": {
            "maxExpirationSeconds": 7200,
            "nodeName": "n",
            "nodeUID": "u3",
            "podName": "web",
            "podUID": "u1",
            "serviceAccountName": "default",
            "serviceAccountUID": "u2",
            "signerName": "s.example/x",
            "stubPKCS10Request": "YWJj",
            "unverifiedUserAnnotations": {
              "s.example/dns": "web"
            }
          }
        }"#]]
    .assert_eq(&serde_json::to_string_pretty(&request).unwrap());
}
