//! `pkg/apis/certificates/validation`: TestValidatePodCertificateRequestCreate and its tests of status updates.

use rcgen::{CertificateParams, CertifiedIssuer, DistinguishedName, KeyPair};
use serde_json::json;

use super::super::{FieldError, check};
use super::*;

const FROM: i64 = 1_800_000_000;
/// `openssl req -new -subj / -outform DER` with a new key on P-521, and of RSA with 3072 bits.
const OF_OPENSSL: [&str; 2] = [
    "MIIBQzCBpQIBADAAMIGbMBAGByqGSM49AgEGBSuBBAAjA4GGAAQBA7cSp4n+ooX7uutFdV/q7WgcGoy6ajp0qfMEqLb7KANBJvH0\
    LGNnjTEfN3lw+daFCXh6nNxUZbO0C0C3lAqsG+0BxNmbgV9TLGfu5Koq+luK3csoZALCmys2cwkOY67dftn0FdI4NhuyKfIDZE1O\
    +EoOgamx81WyhGF537vMoHsUCL6gADAKBggqhkjOPQQDBAOBjAAwgYgCQgFplFG5CtyawywlVQHavRwfmt+XRypAhFW3wFeD3erv\
    qriEeLZ0zTnoQpteW9pAPkPuIVaRj+s8AfG5Od4eokDroAJCANfMRrQBVhzJG1mZ55MtMZEGYyifxcCYAZ9eWL8lVNbq4RUpvvbB\
    c9dyAMyWHo/HbHQwPUY+sjT3Z4IhdJO9/hXw",
    "MIIDRTCCAa0CAQAwADCCAaIwDQYJKoZIhvcNAQEBBQADggGPADCCAYoCggGBAKFEx0miC7xAkrPlXjcllDjqOMrGFopoIIYv2Rev\
    MHjICNr/ezZqXigcU9J8Fk0whmMjwp/JuRfzCrib0GjAfrngjUODjaTNO0Adj9jMc8ZL4eNNNfvZrd+FKfKuZOPv0b8LT13ybO7k\
    fuJeVTfdGMIQwxJHDvVAdUPzr0wlgIwlD4m6FB/+hCa3jD/Mf4AR41JPZD8H98dz1tN6IfEFWJxSC8a2LhINr+v1hpaYOZK9j8ml\
    B0q0qCrR40Dv/afiDup15X74JmGR8je8/VpvnPwc8vq7oXcSKSCRJRrMpWoV0Fd8CzgacYFpXQk1mZ4VIIxHN6jXL8cLP/BIqz11\
    7LEq37xoIfEMgNZd60i0LA8O2V54sQ6UYwniW51/tdSVwPbPS8h4d30Q940lh34XyWoR8LgIGi+zPIpvxsmrAL5NzKdIRzWjUrfA\
    yntU/HJxM+MXmf4uzMWNHAIWJaFhXndRv7uDvPKtZVEWE7oNgGo+unUTW/l2YXKdDepdMZnRJwIDAQABoAAwDQYJKoZIhvcNAQEL\
    BQADggGBAJ6EVJ1cChrIPWlOPcs4400IP73Ly/C9/u9pwadis3CrqBg1L3nDNOv3yas83qGApn+Wg3cAUEIzWVlvSgBq0Ri5wx1g\
    MGIfamOOY35xHHEpQTlncnAkzSdN9YkH7gyOf8sjswQvKb/P1ZM/g9oMyKXyqz0mEaYxgzplkWhNXuiaAVmdumCxEP155I0B1p0t\
    wLe8oJiYC6VoQV+X0qdmj9TQ5L3uKZpMRmYZkawdnRZX5kZJPLohwrNvqYU24sP+SL7R/rm6IwruVzgrZ1N4iHvn3GAQyfezaUfX\
    AWvidXz1Y6y5PKUiYJoHZKLPLOzI7IhgoUUEA+nx3kuFGPpzPsbThc3zWovW8sUESna0f//UHzgU+kNQFfwElswPvGlPY1A5tX0M\
    3f7OMzwmP3gyjzJ3dXUxGc60xlKbwsiN6yP6SIMnjioMqdniDwm4Zouh6sHGJTDllEuPQ+T50/JrWG8GZT5bW9IQkZEAB1+6J4Xe\
    YjKsV+boj6zdkDQJCtzpTA==",
];

fn at(seconds: i64) -> String {
    Timestamp::from_second(FROM + seconds).unwrap().to_string()
}

fn request(key: &KeyPair) -> Value {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let stub = params.serialize_request(key).unwrap();
    json!({"metadata": {"name": "req-1", "namespace": "ns"}, "spec": {
        "signerName": "s.example/x", "podName": "web", "podUID": "u1", "serviceAccountName": "default",
        "serviceAccountUID": "u2", "nodeName": "n", "nodeUID": "u3", "maxExpirationSeconds": 86400,
        "stubPKCS10Request": STANDARD.encode(stub.der()),
    }})
}

fn chain(key: &KeyPair, life: i64) -> String {
    let mut params = CertificateParams::new(vec!["web.example".to_owned()]).unwrap();
    let seconds = |at: i64| std::time::Duration::from_secs(u64::try_from(at).unwrap());
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    (params.not_before, params.not_after) = (epoch + seconds(FROM), epoch + seconds(FROM + life));
    let authority = KeyPair::generate().unwrap();
    let issuer = CertifiedIssuer::self_signed(CertificateParams::default(), authority).unwrap();
    params.signed_by(key, &issuer).unwrap().pem()
}

fn issued(key: &KeyPair, life: i64, changes: &[(&str, Value)]) -> Value {
    let mut new = request(key);
    new["status"] = json!({
        "conditions": [{"type": "Issued", "status": "True", "reason": "R", "message": "", "lastTransitionTime": at(0)}],
        "certificateChain": chain(key, life), "notBefore": at(0), "notAfter": at(life), "beginRefreshAt": at(life / 2),
    });
    for (path, value) in changes {
        *new.pointer_mut(path).unwrap() = value.clone();
    }
    new
}

fn problems(errors: Vec<FieldError>) -> Vec<String> {
    errors.iter().map(|error| format!("{}: {}", error.field, error.message)).collect()
}

/// The end of each message.
#[track_caller]
fn assert_refused(errors: Vec<FieldError>, expected: &[(&str, &str)]) {
    let found = problems(errors);
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, (field, end)) in found.iter().zip(expected) {
        assert!(
            found.starts_with(&format!("{field}: ")) && found.ends_with(end),
            "{found} is not {field} {end}"
        );
    }
}

#[test]
fn pod_certificate_request_needs_a_signed_request_of_a_known_key_type() {
    for algorithm in [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384, &rcgen::PKCS_ED25519] {
        let key = KeyPair::generate_for(algorithm).unwrap();
        assert_refused(check("podcertificaterequests", &request(&key), None), &[]);
    }
    let key = KeyPair::generate().unwrap();
    for stub in OF_OPENSSL {
        let mut new = request(&key);
        new["spec"]["stubPKCS10Request"] = json!(stub);
        assert_refused(check("podcertificaterequests", &new, None), &[]);
    }
    let refused = |path: &str, value: Value| {
        let mut new = request(&key);
        *new.pointer_mut(path).unwrap() = value;
        check("podcertificaterequests", &new, None)
    };
    let der = STANDARD.decode(request(&key)["spec"]["stubPKCS10Request"].as_str().unwrap()).unwrap();
    let mut forged = der.clone();
    *forged.last_mut().unwrap() ^= 1;
    let stub = "/spec/stubPKCS10Request";
    let is_invalid = |value: Value, end: &str| {
        assert_refused(refused(stub, value), &[("spec.stubPKCS10Request", end)]);
    };
    is_invalid(json!(""), "must be a valid PKCS#10 certificate signing request");
    is_invalid(json!(STANDARD.encode(forged)), "could not verify the signature of the request");
    let mut forged = STANDARD.decode(OF_OPENSSL[0]).unwrap();
    *forged.last_mut().unwrap() ^= 1;
    is_invalid(json!(STANDARD.encode(forged)), "could not verify the signature of the request");
    is_invalid(json!(STANDARD.encode(vec![0; 10_241])), "may not be more than 10240 bytes");
    for (path, value, field, end) in [
        ("/spec/signerName", json!("x"), "spec.signerName", "\"example.com/signer-name\""),
        ("/spec/podUID", json!(""), "spec.podUID", "must not be empty"),
        ("/spec/nodeUID", json!("u".repeat(129)), "spec.nodeUID", "may not be more than 128 bytes"),
        ("/spec/maxExpirationSeconds", Value::Null, "spec.maxExpirationSeconds", "must be set"),
        ("/spec/maxExpirationSeconds", json!(3599), "spec.maxExpirationSeconds", "[3600, 7862400]"),
        ("/spec/maxExpirationSeconds", json!(7_862_401), "spec.maxExpirationSeconds", "[3600, 7862400]"),
    ] {
        assert_refused(refused(path, value), &[(field, end)]);
    }
    let mut new = request(&key);
    new["spec"]["signerName"] = json!("kubernetes.io/kube-apiserver-client-pod");
    new["spec"]["maxExpirationSeconds"] = json!(86_401);
    new["spec"]["unverifiedUserAnnotations"] = json!({"plain": "x"});
    let errors = check("podcertificaterequests", &new, None);
    assert_refused(
        errors,
        &[
            ("spec.unverifiedUserAnnotations", "must be domain-prefixed"),
            ("spec.maxExpirationSeconds", "[3600, 86400]"),
        ],
    );
}

#[test]
fn pod_certificate_request_never_changes_its_spec() {
    let old = request(&KeyPair::generate().unwrap());
    let mut new = old.clone();
    assert_refused(check("podcertificaterequests", &new, Some(&old)), &[]);
    new["spec"]["nodeName"] = json!("m");
    assert_refused(check("podcertificaterequests", &new, Some(&old)), &[("spec", "field is immutable")]);
}

#[test]
fn issued_pod_certificate_is_for_the_requested_key_and_its_times() {
    let (key, rules) = (KeyPair::generate().unwrap(), "podcertificaterequests/status");
    let old = request(&key);
    let refused =
        |life: i64, changes: &[(&str, Value)]| check(rules, &issued(&key, life, changes), Some(&old));
    assert_refused(refused(7200, &[]), &[]);
    let other = chain(&KeyPair::generate().unwrap(), 7200);
    let chain_path = "/status/certificateChain";
    for (life, path, value, field, end) in [
        (7200, chain_path, json!(""), "status.certificateChain", "at least one certificate"),
        (7200, chain_path, json!(other), "status.certificateChain", "the requested public key"),
        (7200, "/status/notBefore", json!(at(1)), "status.notBefore", "in the leaf certificate"),
        (7200, "/status/notAfter", Value::Null, "status.notAfter", "with the issued certificate"),
        (7200, "/status/notAfter", json!(at(7201)), "status.notAfter", "in the leaf certificate"),
        (7200, "/status/beginRefreshAt", json!(at(599)), "status.beginRefreshAt", "after status.notBefore"),
        (7200, "/status/beginRefreshAt", json!(at(6601)), "status.beginRefreshAt", "before status.notAfter"),
        (3599, "/status/beginRefreshAt", json!(at(600)), "status.certificateChain", "must be >= 1 hour"),
        (
            86_401,
            "/status/beginRefreshAt",
            json!(at(600)),
            "status.certificateChain",
            "maxExpirationSeconds (86400)",
        ),
        (7200, "/status/conditions/0/status", json!("False"), "status.conditions[0].status", "\"True\""),
        (7200, "/status/conditions/0/reason", json!(""), "status.conditions[0].reason", "Required value"),
    ] {
        assert_refused(refused(life, &[(path, value)]), &[(field, end)]);
    }
    let denied = refused(7200, &[("/status/conditions/0/type", json!("Denied"))]);
    assert_refused(denied, &[("status", "when denying or failing the PodCertificateRequest")]);
    let (old, new) =
        (issued(&key, 7200, &[]), issued(&key, 7200, &[("/status/beginRefreshAt", json!(at(700)))]));
    assert_refused(check(rules, &new, Some(&old)), &[("status", "issued, denied, or failed")]);
    assert_refused(check(rules, &old, Some(&old)), &[]);
}
