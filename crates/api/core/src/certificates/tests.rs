//! A certificate with a lifetime of a thousand seconds, from 1000 to 2000, and the next step.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn client() -> CertificateNames {
    wanted_names(CertificateUse::Client, "n1", [], [])
}

fn serving(ip: &str) -> CertificateNames {
    wanted_names(CertificateUse::Serving, "n1", ["n1".to_owned()], [ip.parse().unwrap()])
}

fn certificate(names: CertificateNames) -> CertificateFacts {
    CertificateFacts { not_before: at(1000), not_after: at(2000), names }
}

/// The step at that second; options change the state from that of a valid client certificate in the middle of its rotation
/// span.
#[track_caller]
fn check(options: &str, second: i64, expected: &str) {
    let (mut current, usual) = (Some(certificate(client())), client());
    let mut state = CertificateState {
        kind: CertificateUse::Client,
        current: None,
        wanted: &usual,
        dns_name_suffices: false,
        random: 0.5,
        rotates: true,
        is_embedded: false,
        has_bootstrap: false,
        is_api_reachable: true,
        invalid_since: None,
        failures: 0,
        last_failure: None,
    };
    let mut names = None;
    for word in options.split_whitespace() {
        match word.split_once('=').unwrap_or((word, "")) {
            ("none", _) => current = None,
            ("serving", _) => {
                state.kind = CertificateUse::Serving;
                (current, names) =
                    (current.map(|_| certificate(serving("10.0.0.1"))), Some(serving("10.0.0.1")));
            }
            ("moved", _) => names = Some(serving("10.0.0.2")),
            ("nameless", _) => names = Some(client()),
            ("dns-only", _) => {
                names = Some(wanted_names(CertificateUse::Serving, "n1", ["n1".to_owned()], []));
            }
            ("dns-suffices", _) => state.dns_name_suffices = true,
            ("fixed", _) => state.rotates = false,
            ("embedded", _) => state.is_embedded = true,
            ("bootstrap", _) => state.has_bootstrap = true,
            ("offline", _) => state.is_api_reachable = false,
            ("invalid", since) => state.invalid_since = Some(at(since.parse().unwrap())),
            ("failed", times) => {
                state.failures = times.parse().unwrap();
                state.last_failure = Some(at(second - 1));
            }
            ("failed-at", second) => state.last_failure = Some(at(second.parse().unwrap())),
            (other, _) => panic!("{other}?"),
        }
    }
    let wanted = names.unwrap_or_else(client);
    let state = CertificateState { current: current.as_ref(), wanted: &wanted, ..state };
    let shown = match compute_certificate_step(&state, at(second)) {
        CertificateStep::Wait { until } => format!("wait until {}", until.as_second()),
        CertificateStep::Keep => "keep".into(),
        CertificateStep::Request => "request".into(),
        CertificateStep::Bootstrap => "bootstrap".into(),
        CertificateStep::Exit => "exit".into(),
    };
    assert_eq!(shown, expected, "{options} {second}");
}

/// `certificate_manager.go`: a certificate from the kubeconfig is rotated when the manager starts.
#[test]
fn embedded_client_certificate_is_rotated_at_once() {
    check("embedded", 1000, "request");
    check("embedded failed=1", 1001, "wait until 1002");
    check("embedded bootstrap", 1000, "request");
    check("embedded fixed", 1000, "wait until 2000");
}

#[test]
fn a_good_certificate_is_renewed_towards_the_end_of_its_life() {
    check("", 1000, "wait until 1800");
    check("", 1799, "wait until 1800");
    check("", 1800, "request");
    check("bootstrap", 1900, "request");
    check("fixed", 1900, "wait until 2000");
}

#[test]
fn expired_client_certificate_is_replaced_by_bootstrapping_if_possible() {
    check("bootstrap invalid=2000", 2000, "bootstrap");
    check("bootstrap invalid=2000", 2000 + 3600, "bootstrap");
    check("bootstrap none", 1000, "bootstrap");
    check("bootstrap fixed invalid=2000", 2001, "bootstrap");
    check("", 999, "request");
}

#[test]
fn process_exits_after_five_minutes_without_valid_certificate_if_the_api_answers() {
    check("invalid=2000", 2000, "request");
    check("invalid=2000", 2299, "request");
    check("invalid=2000", 2300, "exit");
    check("invalid=2000 offline", 2300, "request");
    check("none invalid=1000", 1300, "exit");
}

#[test]
fn failed_requests_back_off_to_two_minutes() {
    for (failures, until) in [(1, 1901), (2, 1903), (3, 1907), (6, 1963), (7, 2027), (40, 2027)] {
        check(&format!("failed={failures}"), 1900, &format!("wait until {until}"));
    }
    check("failed=0", 1900, "request");
}

#[test]
fn failed_request_is_repeated_at_once_after_the_clock_was_set_back() {
    check("failed=3 failed-at=1950", 1900, "request");
    check("failed=3 failed-at=1900", 1900, "wait until 1908");
}

#[test]
fn a_serving_certificate_follows_the_addresses_of_the_node() {
    check("serving", 1500, "wait until 1800");
    check("serving moved", 1500, "request");
    check("none serving nameless", 1500, "keep");
    check("none serving nameless dns-suffices", 1500, "keep");
    check("none serving dns-only", 1500, "keep");
    check("none serving dns-only dns-suffices", 1500, "request");
    check("none serving", 1500, "request");
    check("none serving bootstrap invalid=1000", 1500, "request");
    check("serving fixed moved", 1500, "keep");
    check("serving invalid=2000", 9000, "request");
}

#[test]
fn key_encipherment_is_requested_for_rsa_keys_only() {
    use {
        CertificateUse::{Client, Serving},
        KeyKind::{Ecdsa, Rsa},
    };
    assert_eq!(usages(Client, Ecdsa), ["digital signature", "client auth"]);
    assert_eq!(usages(Client, Rsa), ["digital signature", "key encipherment", "client auth"]);
    assert_eq!(usages(Serving, Ecdsa), ["digital signature", "server auth"]);
    assert_eq!(usages(Serving, Rsa), ["digital signature", "key encipherment", "server auth"]);
}

#[test]
fn a_request_names_its_signer() {
    let request = json!(signing_request(CertificateUse::Serving, KeyKind::Ecdsa, b"pem", None));
    assert_eq!(request["spec"]["signerName"], "kubernetes.io/kubelet-serving");
    assert_eq!(request["spec"]["request"], "cGVt");
    assert_eq!(request["metadata"], json!({"generateName": "csr-"}));
    let name = Some(bootstrap_request_name("0a1b"));
    let first = json!(signing_request(CertificateUse::Client, KeyKind::Ecdsa, b"pem", name));
    assert_eq!(first["metadata"], json!({"name": "node-csr-0a1b"}));
    assert_eq!(CertificateUse::Client.signer(), "kubernetes.io/kube-apiserver-client-kubelet");
}

#[track_caller]
fn check_outcome(status: &Value, expected: &SigningOutcome) {
    let request = json!({"spec": {"request": "", "signerName": "s"}, "status": status});
    assert_eq!(signing_outcome(&serde_json::from_value(request).unwrap()), *expected, "{status}");
}

#[test]
fn signing_request_is_pending_until_signed_or_denied() {
    let approved = json!({"type": "Approved", "status": "True"});
    check_outcome(&Value::Null, &SigningOutcome::Pending);
    check_outcome(&json!({"conditions": [approved]}), &SigningOutcome::Pending);
    check_outcome(&json!({"certificate": "cGVt"}), &SigningOutcome::Pending);
    check_outcome(
        &json!({"conditions": [approved], "certificate": "cGVt"}),
        &SigningOutcome::Signed(b"pem".to_vec()),
    );
    check_outcome(
        &json!({"conditions": [approved, {"type": "Denied", "status": "True", "reason": "R", "message": "m"}]}),
        &SigningOutcome::Refused("certificate signing request is denied, reason: R, message: m".into()),
    );
}

#[test]
fn a_node_serves_under_each_of_its_addresses() {
    let addresses = json!([
        {"type": "InternalIP", "address": "10.0.0.1"}, {"type": "ExternalIP", "address": "no address"},
        {"type": "Hostname", "address": "10.0.0.1"}, {"type": "Hostname", "address": "n1"},
        {"type": "InternalDNS", "address": "n1.example"}, {"type": "ExternalDNS", "address": ""},
    ]);
    let addresses: Vec<NodeAddress> = serde_json::from_value(addresses).unwrap();
    let (names, ips) = serving_addresses(&addresses);
    assert_eq!(Vec::from_iter(names), ["n1", "n1.example"]);
    assert_eq!(Vec::from_iter(ips), ["10.0.0.1".parse::<IpAddr>().unwrap()]);
}

#[test]
fn node_bootstraps_only_without_usable_credentials() {
    let found = |facts| LoginFound::Certificate { facts, origin: "/pki/c.pem".into() };
    assert_eq!(compute_bootstrap_reason(&found(certificate(client())), at(1999)), None);
    let reason = compute_bootstrap_reason(&found(certificate(client())), at(2000)).unwrap();
    assert_eq!(reason, "the client certificate in /pki/c.pem expired at 1970-01-01T00:33:20Z");
    assert_eq!(compute_bootstrap_reason(&LoginFound::Secret, at(2000)), None);
    assert!(compute_bootstrap_reason(&LoginFound::Nothing, at(0)).is_some());
    let broken = LoginFound::Unusable("no such file".into());
    assert_eq!(compute_bootstrap_reason(&broken, at(0)).as_deref(), Some("no such file"));
}

#[test]
fn certificate_may_have_additional_names_but_not_another_node() {
    let mut names = serving("10.0.0.1");
    assert!(names.cover(&serving("10.0.0.1")));
    names.ip_addresses.insert("10.0.0.2".parse().unwrap());
    assert!(names.cover(&serving("10.0.0.1")));
    assert!(!serving("10.0.0.1").cover(&names));
    names.common_name = "system:node:n2".into();
    assert!(!names.cover(&serving("10.0.0.1")));
}

proptest! {
    #[test]
    fn renewal_falls_between_seventy_and_ninety_percent(from in -1_000_000_i64..1_000_000, life in 0..1_000_000_i64, random in -1.0..2.0) {
        let certificate = CertificateFacts { not_before: at(from), not_after: at(from + life), names: client() };
        let deadline = rotation_deadline(&certificate, random);
        let share = deadline.duration_since(at(from)).as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let life = life as f64;
        prop_assert!(share >= 0.7 * life - 1e-6 && share <= 0.9 * life + 1e-6);
    }

    #[test]
    fn a_wait_always_ends_in_the_future(second in 0..4000_i64, failures in 0..9_u32, bootstrap: bool, rotates: bool) {
        let (current, wanted) = (certificate(client()), client());
        let state = CertificateState {
            kind: CertificateUse::Client, current: Some(&current), wanted: &wanted,
            dns_name_suffices: false, random: 0.3, rotates, is_embedded: false,
            has_bootstrap: bootstrap, is_api_reachable: true, invalid_since: None, failures, last_failure: Some(at(second)),
        };
        if let CertificateStep::Wait { until } = compute_certificate_step(&state, at(second)) {
            prop_assert!(until > at(second));
        }
    }
}
