//! Rules for certificate signing requests.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::field::FieldValue;
use super::{ErrorList, Reason, names};

/// The shortest duration that a request may specify, in seconds.
const MIN_SECONDS: i64 = 600;
const LEGACY_SIGNER: &str = "kubernetes.io/legacy-unknown";
const BEGIN: &str = "-----BEGIN CERTIFICATE REQUEST-----";
const END: &str = "-----END CERTIFICATE REQUEST-----";
const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

pub(super) fn check(request: &FieldValue<'_>, errors: &mut ErrorList) {
    let spec = request.at("spec");
    if !is_request(spec.text_at("request")) {
        let message = "Invalid value: PEM block type must be CERTIFICATE REQUEST";
        errors.add("spec.request", Reason::Invalid, message);
    }
    let usages = spec.items("usages");
    if usages.is_empty() {
        errors.required("spec.usages", "usages is required");
    }
    let mut seen = BTreeSet::new();
    for usage in usages {
        errors.one_of(&usage, &USAGES);
        if !seen.insert(usage.text()) {
            errors.duplicate(&usage.path, usage.text());
        }
    }
    check_signer(&spec.at("signerName"), errors);
    let seconds = spec.at("expirationSeconds");
    if let Some(number) = seconds.number().filter(|number| *number < MIN_SECONDS) {
        let detail = "may not specify a duration less than 600 seconds (10 minutes)";
        errors.invalid(&seconds.path, number, detail);
    }
    let conditions = request.items("status.conditions");
    let has = |kind: &str| conditions.iter().any(|condition| condition.text_at("type") == kind);
    if has("Approved")
        && let Some(denied) = conditions.iter().find(|condition| condition.text_at("type") == "Denied")
    {
        let detail = "Approved and Denied conditions are mutually exclusive";
        errors.invalid(format!("{}.type", denied.path), "Denied", detail);
    }
}

/// Whether the base64 string contains one PEM block of the right type, with base64 content. The signer parses the content.
fn is_request(text: &str) -> bool {
    let Some(pem) = STANDARD.decode(text).ok().and_then(|bytes| String::from_utf8(bytes).ok()) else {
        return false;
    };
    let Some((_, rest)) = pem.split_once(BEGIN) else { return false };
    let Some((body, _)) = rest.split_once(END) else { return false };
    let body: String = body.split_whitespace().collect();
    STANDARD.decode(body).is_ok_and(|bytes| !bytes.is_empty())
}

/// `example.com/signer`.
pub(super) fn check_signer(signer: &FieldValue<'_>, errors: &mut ErrorList) {
    let text = signer.text();
    if text.is_empty() {
        return errors.required(&signer.path, "");
    }
    if text == LEGACY_SIGNER {
        let detail = "the legacy signerName is not allowed via this API version";
        return errors.invalid(&signer.path, text, detail);
    }
    let is_qualified = text.split_once('/').is_some_and(|(domain, path)| {
        domain.contains('.')
            && names::subdomain_problems(domain).is_empty()
            && names::subdomain_problems(path).is_empty()
    });
    if !is_qualified {
        let detail = "must be a fully qualified domain and path of the form \"example.com/signer-name\"";
        errors.invalid(&signer.path, text, detail);
    }
}
