//! Rules for PodCertificateRequests. A rule of the real server that needs its clock is missing: `status.notBefore` must be within five
//! minutes of now.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use p521::ecdsa::signature::Verifier as _;
use p521::ecdsa::{Signature, VerifyingKey};
use serde_json::Value;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::public_key::PublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

use super::field::FieldValue;
use super::{ErrorList, Reason, names, signing};

const MIN_SECONDS: i64 = 3600;
const MAX_SECONDS: i64 = 91 * 86_400;
/// Of the signers of Kubernetes itself.
const MAX_KUBERNETES_SECONDS: i64 = 86_400;
const MAX_UID: usize = 128;
const MAX_REQUEST: usize = 10 * 1024;
const MAX_CHAIN: usize = 100 * 1024;
const MAX_ANNOTATIONS: usize = 256 * 1024;
const DECISIONS: [&str; 3] = ["Denied", "Failed", "Issued"];
/// Between the validity of the certificate and its refresh.
const MARGIN: SignedDuration = SignedDuration::from_mins(10);
const MIN_LIFE: SignedDuration = SignedDuration::from_hours(1);
const ED25519: &str = "1.3.101.112";
const ECDSA_WITH_SHA512: &str = "1.2.840.10045.4.3.4";
/// P-256, P-384 and P-521.
const CURVES: [&str; 3] = ["1.2.840.10045.3.1.7", "1.3.132.0.34", "1.3.132.0.35"];

pub(super) fn check(request: &FieldValue<'_>, old: Option<&FieldValue<'_>>, errors: &mut ErrorList) {
    match old {
        None => check_spec(&request.at("spec"), errors),
        Some(old) => {
            let (spec, before) = (request.at("spec"), old.at("spec"));
            if spec.value != before.value {
                errors.invalid(&spec.path, spec.value.clone(), "field is immutable");
            }
        }
    }
}

fn check_spec(spec: &FieldValue<'_>, errors: &mut ErrorList) {
    signing::check_signer(&spec.at("signerName"), errors);
    let mut size = 0;
    for (key, value) in spec.entries("unverifiedUserAnnotations") {
        let path = "spec.unverifiedUserAnnotations";
        errors.all_invalid(path, key, names::label_key_problems(&key.to_lowercase()));
        if !key.contains('/') {
            errors.invalid(path, key, "must be domain-prefixed");
        }
        size += key.len() + value.text().len();
    }
    if size > MAX_ANNOTATIONS {
        errors.too_long("spec.unverifiedUserAnnotations", MAX_ANNOTATIONS);
    }
    for field in ["podName", "serviceAccountName", "nodeName"] {
        let name = spec.at(field);
        errors.all_invalid(&name.path, name.text(), names::subdomain_problems(name.text()));
    }
    for field in ["podUID", "serviceAccountUID", "nodeUID"] {
        let uid = spec.at(field);
        match uid.text().len() {
            0 => errors.invalid(&uid.path, "", "must not be empty"),
            1..=MAX_UID => {}
            _ => errors.too_long(&uid.path, MAX_UID),
        }
    }
    check_expiration(spec, errors);
    let stub = spec.at("stubPKCS10Request");
    if let Err(problem) = read_stub(stub.text(), |_| ()) {
        match problem {
            StubProblem::TooLong => errors.too_long(&stub.path, MAX_REQUEST),
            StubProblem::Invalid(why) => errors.invalid(&stub.path, stub.text(), why),
        }
    }
}

fn check_expiration(spec: &FieldValue<'_>, errors: &mut ErrorList) {
    let seconds = spec.at("maxExpirationSeconds");
    let Some(number) = seconds.number() else { return errors.required(&seconds.path, "must be set") };
    let domain = spec.text_at("signerName").split('/').next().unwrap_or_default();
    let is_kubernetes = domain == "kubernetes.io" || domain.ends_with(".kubernetes.io");
    let max = if is_kubernetes { MAX_KUBERNETES_SECONDS } else { MAX_SECONDS };
    if !(MIN_SECONDS..=max).contains(&number) {
        errors.invalid(&seconds.path, number, format!("must be in the range [{MIN_SECONDS}, {max}]"));
    }
}

enum StubProblem {
    TooLong,
    Invalid(&'static str),
}

/// Reads the PKCS#10 request in base64: its signature, and the type of its key.
fn read_stub<T>(text: &str, read: impl FnOnce(&SubjectPublicKeyInfo<'_>) -> T) -> Result<T, StubProblem> {
    let invalid = StubProblem::Invalid;
    let der = STANDARD.decode(text).map_err(|_| invalid("must be base64"))?;
    if der.len() > MAX_REQUEST {
        return Err(StubProblem::TooLong);
    }
    let unreadable = || invalid("must be a valid PKCS#10 certificate signing request");
    let (rest, request) = X509CertificationRequest::from_der(&der).map_err(|_| unreadable())?;
    if !rest.is_empty() {
        return Err(unreadable());
    }
    if !signature_is_valid(&request) {
        return Err(invalid("could not verify the signature of the request"));
    }
    let key = &request.certification_request_info.subject_pki;
    match (key.algorithm.algorithm.to_id_string().as_str(), key.parsed()) {
        (ED25519, _) => {}
        (_, Ok(PublicKey::EC(_))) => {
            let curve = key.algorithm.parameters.as_ref().and_then(|curve| curve.as_oid().ok());
            if !curve.is_some_and(|curve| CURVES.contains(&curve.to_id_string().as_str())) {
                return Err(invalid("elliptic public keys must use curve P256, P384 or P521"));
            }
        }
        (_, Ok(PublicKey::RSA(rsa))) if [3072, 4096].contains(&rsa.key_size()) => {}
        (_, Ok(PublicKey::RSA(_))) => {
            return Err(invalid("RSA keys must have modulus size 3072 or 4096"));
        }
        (_, Ok(_) | Err(_)) => {
            return Err(invalid("unknown public key type; supported types are Ed25519, ECDSA, and RSA"));
        }
    }
    Ok(read(key))
}

/// Whether the request is signed by its own key. ring verifies no signatures of P-521.
fn signature_is_valid(request: &X509CertificationRequest<'_>) -> bool {
    if request.signature_algorithm.algorithm.to_id_string() != ECDSA_WITH_SHA512 {
        return request.verify_signature().is_ok();
    }
    let info = &request.certification_request_info;
    let key = VerifyingKey::from_sec1_bytes(&info.subject_pki.subject_public_key.data);
    let signature = Signature::from_der(&request.signature_value.data);
    key.is_ok_and(|key| signature.is_ok_and(|signature| key.verify(info.raw, &signature).is_ok()))
}

/// An update of the status: once a request is decided, it stays so.
pub(super) fn check_status(request: &FieldValue<'_>, old: &FieldValue<'_>, errors: &mut ErrorList) {
    let before = errors.errors.len();
    let mut decided = 0;
    for condition in request.items("status.conditions") {
        let kind = condition.at("type");
        errors.one_of(&kind, &DECISIONS);
        decided += usize::from(DECISIONS.contains(&kind.text()));
        if decided > 1 {
            let detail = "There may be at most one condition with type \"Issued\", \"Denied\", or \"Failed\"";
            errors.invalid(&kind.path, kind.text(), detail);
        }
        errors.one_of(&condition.at("status"), &["True"]);
        for field in ["lastTransitionTime", "reason"] {
            if condition.text_at(field).is_empty() {
                errors.required(condition.at(field).path, "");
            }
        }
    }
    if errors.errors.len() > before {
        return;
    }
    let status = request.at("status");
    if decision(old).is_some() {
        if status.value != old.at("status").value {
            let detail = "immutable after PodCertificateRequest is issued, denied, or failed";
            errors.invalid(&status.path, status.value.clone(), detail);
        }
        return;
    }
    match decision(request) {
        Some("Issued") => {
            if let Err((path, value, why)) = check_issued(request) {
                errors.add(path, Reason::Invalid, format!("Invalid value: {value}: {why}"));
            }
        }
        Some(_) => {
            let has_more =
                status.value.as_object().is_some_and(|fields| fields.keys().any(|key| key != "conditions"));
            if has_more {
                let detail = "non-condition status fields must be empty when denying or failing the PodCertificateRequest";
                errors.invalid(&status.path, status.value.clone(), detail);
            }
        }
        None => {}
    }
}

/// The type of the condition that decides the request.
fn decision<'a>(request: &FieldValue<'a>) -> Option<&'a str> {
    let conditions = request.items("status.conditions");
    conditions.iter().map(|condition| condition.text_at("type")).find(|kind| DECISIONS.contains(kind))
}

type Problem = (&'static str, Value, String);

/// The issued certificate against the request.
fn check_issued(request: &FieldValue<'_>) -> Result<(), Problem> {
    const CHAIN: &str = "status.certificateChain";
    let chain = request.text_at(CHAIN);
    let wrong = |why: &str| -> Problem { (CHAIN, Value::from(chain), why.to_owned()) };
    if chain.len() > MAX_CHAIN {
        return Err(wrong("may not be more than 102400 bytes"));
    }
    let blocks: Vec<Pem> = Pem::iter_from_buffer(chain.as_bytes()).filter_map(Result::ok).collect();
    let Some(leaf) = blocks.first() else {
        return Err(wrong("issued certificate chain must contain at least one certificate"));
    };
    if blocks.iter().any(|block| block.label != "CERTIFICATE") {
        return Err(wrong("issued certificate chain must consist entirely of CERTIFICATE PEM blocks"));
    }
    let mut certificates = blocks.iter().skip(1).map(|block| X509Certificate::from_der(&block.contents));
    let Ok((_, leaf)) = X509Certificate::from_der(&leaf.contents) else {
        return Err(wrong("leaf certificate does not parse as valid X.509"));
    };
    if certificates.any(|certificate| certificate.is_err()) {
        return Err(wrong("intermediate certificate does not parse as valid X.509"));
    }
    let stub = request.text_at("spec.stubPKCS10Request");
    if !read_stub(stub, |key| key.raw == leaf.public_key().raw).unwrap_or(false) {
        return Err(wrong("leaf certificate was not issued to the requested public key"));
    }
    check_times(request, &leaf)
}

fn check_times(request: &FieldValue<'_>, leaf: &X509Certificate<'_>) -> Result<(), Problem> {
    let time = |field: &'static str, why: &str| -> Result<Timestamp, Problem> {
        let text = request.text_at(field);
        text.parse().map_err(|_| (field, Value::from(text), why.to_owned()))
    };
    let consistent = "must be present and consistent with the issued certificate";
    let (not_before, not_after) =
        (time("status.notBefore", consistent)?, time("status.notAfter", consistent)?);
    let refresh = "must be present and in the range [notbefore+10min, notafter-10min]";
    let begin = time("status.beginRefreshAt", refresh)?;
    let validity = leaf.validity();
    let wrong = |field: &'static str, at: Timestamp, why: &str| -> Problem {
        (field, Value::from(at.to_string()), why.to_owned())
    };
    if not_before.as_second() != validity.not_before.timestamp() {
        let why = "must be set to the NotBefore time encoded in the leaf certificate";
        return Err(wrong("status.notBefore", not_before, why));
    }
    if not_after.as_second() != validity.not_after.timestamp() {
        let why = "must be set to the NotAfter time encoded in the leaf certificate";
        return Err(wrong("status.notAfter", not_after, why));
    }
    let life = not_after.duration_since(not_before);
    let too_long = |seconds: &i64| life > SignedDuration::from_secs(*seconds);
    if life < MIN_LIFE {
        let why = "leaf certificate lifetime must be >= 1 hour".to_owned();
        return Err(("status.certificateChain", Value::from(format!("{life:#}")), why));
    }
    if let Some(max) = request.at("spec.maxExpirationSeconds").number().filter(too_long) {
        let why = format!("leaf certificate lifetime must be <= spec.maxExpirationSeconds ({max})");
        return Err(("status.certificateChain", Value::from(format!("{life:#}")), why));
    }
    if begin.duration_since(not_before) < MARGIN {
        return Err(wrong(
            "status.beginRefreshAt",
            begin,
            "must be at least 10 minutes after status.notBefore",
        ));
    }
    if not_after.duration_since(begin) < MARGIN {
        return Err(wrong(
            "status.beginRefreshAt",
            begin,
            "must be at least 10 minutes before status.notAfter",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
