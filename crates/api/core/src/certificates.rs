//! The certificates of the kubelet (docs/behaviour/certificates.md): when one is renewed, what the signing request
//! contains, and when the process exits.
//!
//! Owns: the deadlines, the fields of a signing request, and when a node bootstraps again. Never: creating a key, parsing a
//! certificate, reading a file, calling the API.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use model::k8s::{
    ByteString, CertificateSigningRequest, CertificateSigningRequestSpec, NodeAddress, ObjectMeta,
};
use model::{CertificateFacts, CertificateNames};

/// A certificate is renewed after this share of its lifetime, and up to [`SPREAD`] later.
const EARLIEST: f64 = 0.7;
const SPREAD: f64 = 0.2;
/// A request that is not signed within this time is created again.
pub const SIGNING_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// The first certificate of a node may need the approval of an administrator.
pub const BOOTSTRAP_TIMEOUT: Duration = Duration::from_secs(3600);
/// Without a valid certificate for this time, while the API answers, the process exits, because a restart may provide a
/// valid certificate.
pub const EXIT_AFTER: Duration = Duration::from_secs(5 * 60);
const FIRST_DELAY: Duration = Duration::from_secs(2);
const MAX_DELAY: Duration = Duration::from_secs(128);

/// What a certificate is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CertificateUse {
    /// The client certificate for the API.
    Client,
    /// The serving certificate of the kubelet's own endpoint.
    Serving,
}

impl CertificateUse {
    #[must_use]
    pub const fn signer(self) -> &'static str {
        match self {
            Self::Client => "kubernetes.io/kube-apiserver-client-kubelet",
            Self::Serving => "kubernetes.io/kubelet-serving",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    Ecdsa,
    Rsa,
}

/// The names that a certificate of this node must have. A serving certificate also has the node's addresses.
#[must_use]
pub fn wanted_names(
    kind: CertificateUse,
    node: &str,
    dns_names: impl IntoIterator<Item = String>,
    ip_addresses: impl IntoIterator<Item = IpAddr>,
) -> CertificateNames {
    let mut names = CertificateNames {
        common_name: format!("system:node:{node}"),
        organizations: BTreeSet::from(["system:nodes".to_owned()]),
        ..CertificateNames::default()
    };
    match kind {
        CertificateUse::Client => {}
        CertificateUse::Serving => {
            names.dns_names.extend(dns_names);
            names.ip_addresses.extend(ip_addresses);
        }
    }
    names
}

/// The names and addresses by which a node with these addresses is reached. A host name may be an address.
#[must_use]
pub fn serving_addresses(addresses: &[NodeAddress]) -> (BTreeSet<String>, BTreeSet<IpAddr>) {
    let (mut names, mut ips) = (BTreeSet::new(), BTreeSet::new());
    for NodeAddress { address, type_ } in addresses {
        match (type_.as_str(), address.parse::<IpAddr>()) {
            (_, Err(_)) if address.is_empty() => {}
            ("Hostname" | "InternalIP" | "ExternalIP", Ok(ip)) => {
                ips.insert(ip);
            }
            ("Hostname" | "InternalDNS" | "ExternalDNS", _) => {
                names.insert(address.clone());
            }
            _ => {}
        }
    }
    (names, ips)
}

/// When a certificate is renewed: after 70 to 90 % of its lifetime, by `random` (from 0 to 1).
#[must_use]
pub fn rotation_deadline(certificate: &CertificateFacts, random: f64) -> Timestamp {
    let life = certificate.not_after.duration_since(certificate.not_before).max(SignedDuration::ZERO);
    let share = EARLIEST + SPREAD * random.clamp(0.0, 1.0);
    certificate.not_before.saturating_add(life.mul_f64(share)).unwrap_or(certificate.not_before)
}

/// The facts that decide the next step.
#[derive(Clone, Copy, Debug)]
pub struct CertificateState<'a> {
    pub kind: CertificateUse,
    /// The certificate in use.
    pub current: Option<&'a CertificateFacts>,
    pub wanted: &'a CertificateNames,
    /// A serving certificate may be requested for a node without an IP address (gate `AllowDNSOnlyNodeCSR`).
    pub dns_name_suffices: bool,
    /// Position of the renewal in its time span, from 0 to 1: drawn once for each certificate.
    pub random: f64,
    /// Rotation is enabled (`rotateCertificates`, `serverTLSBootstrap`).
    pub rotates: bool,
    /// The certificate in use was embedded in the kubeconfig, as kubeadm does for control plane nodes: it is renewed
    /// immediately.
    pub is_embedded: bool,
    /// A bootstrap kubeconfig exists.
    pub has_bootstrap: bool,
    /// The API answered recently.
    pub is_api_reachable: bool,
    /// Since when there has been no valid certificate; `None` if there is one.
    pub invalid_since: Option<Timestamp>,
    /// Consecutive failed requests, and the time of the last one.
    pub failures: u32,
    pub last_failure: Option<Timestamp>,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateStep {
    /// Nothing before this time: the certificate is valid, or the last request failed.
    Wait { until: Timestamp },
    /// Nothing: it is valid and not rotated; or the names to request are not known yet.
    Keep,
    /// Request a new one with the certificate in use, or with the other credentials of the kubeconfig.
    Request,
    /// Request one with the bootstrap kubeconfig: the certificate in use is missing or expired.
    Bootstrap,
    /// Exit the process with code 1.
    Exit,
}

/// Decides what to do about one certificate.
#[must_use]
pub fn compute_certificate_step(state: &CertificateState<'_>, now: Timestamp) -> CertificateStep {
    let good = state.current.filter(|certificate| certificate.is_good_at(now));
    let due = match good {
        Some(good) if !state.rotates => return keep_until_end(state, good),
        Some(_) if state.is_embedded => Timestamp::MIN,
        Some(good) if good.names.cover(state.wanted) => rotation_deadline(good, state.random),
        Some(_) | None => Timestamp::MIN,
    };
    if now < due {
        return CertificateStep::Wait { until: due };
    }
    match state.kind {
        CertificateUse::Serving if !state.wanted.can_be_served(state.dns_name_suffices) => {
            return CertificateStep::Keep;
        }
        CertificateUse::Serving => {}
        CertificateUse::Client => {
            let is_overdue = |since| now.duration_since(since).unsigned_abs() >= EXIT_AFTER;
            let may_heal = state.has_bootstrap;
            if good.is_none()
                && !may_heal
                && state.is_api_reachable
                && state.invalid_since.is_some_and(is_overdue)
            {
                return CertificateStep::Exit;
            }
        }
    }
    if let Some(until) = retry_at(state, now).filter(|until| now < *until) {
        return CertificateStep::Wait { until };
    }
    match (good, state.kind, state.has_bootstrap) {
        (None, CertificateUse::Client, true) => CertificateStep::Bootstrap,
        (None, CertificateUse::Client, false) | (Some(_), _, _) | (None, CertificateUse::Serving, _) => {
            CertificateStep::Request
        }
    }
}

/// A client certificate that is not rotated here may be replaced on disk by another program, or by bootstrapping once it
/// has expired.
fn keep_until_end(state: &CertificateState<'_>, good: &CertificateFacts) -> CertificateStep {
    match state.kind {
        CertificateUse::Client => CertificateStep::Wait { until: good.not_after },
        CertificateUse::Serving => CertificateStep::Keep,
    }
}

/// Back-off after failed requests: two seconds, doubling to about two minutes.
#[must_use]
pub fn retry_delay(failures: u32) -> Duration {
    FIRST_DELAY.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(MAX_DELAY)
}

fn retry_at(state: &CertificateState<'_>, now: Timestamp) -> Option<Timestamp> {
    if state.failures == 0 {
        return None;
    }
    // Not after the clock was set back behind the failure: the retry would wait until the clock has caught up.
    let last_failure = state.last_failure.filter(|failed| *failed <= now)?;
    last_failure.checked_add(retry_delay(state.failures)).ok()
}

/// The key usages of the certificate. Only RSA keys can encipher other keys.
#[must_use]
pub fn usages(kind: CertificateUse, key: KeyKind) -> Vec<&'static str> {
    let mut usages = vec!["digital signature"];
    match key {
        KeyKind::Rsa => usages.push("key encipherment"),
        KeyKind::Ecdsa => {}
    }
    usages.push(match kind {
        CertificateUse::Client => "client auth",
        CertificateUse::Serving => "server auth",
    });
    usages
}

/// The request to create; `pem` is the PKCS#10 request in PEM. Without a name the API generates one.
#[must_use]
pub fn signing_request(
    kind: CertificateUse,
    key: KeyKind,
    pem: &[u8],
    name: Option<String>,
) -> CertificateSigningRequest {
    let generate_name = name.is_none().then(|| "csr-".to_owned());
    CertificateSigningRequest {
        metadata: ObjectMeta { name, generate_name, ..ObjectMeta::default() },
        spec: CertificateSigningRequestSpec {
            request: ByteString(pem.to_vec()),
            signer_name: kind.signer().to_owned(),
            usages: Some(usages(kind, key).into_iter().map(str::to_owned).collect()),
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    }
}

/// The name of the first request of a node. The same key gives the same name, so the request is found again.
#[must_use]
pub fn bootstrap_request_name(key_id: &str) -> String {
    format!("node-csr-{key_id}")
}

/// The credentials in the kubeconfig at start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginFound {
    /// The credentials cannot be used, or there is no kubeconfig; the text says why.
    Unusable(String),
    /// A certificate, and the file that contains it.
    Certificate { facts: CertificateFacts, origin: String },
    /// A token, a password or an exec plugin: only the API knows whether it is valid.
    Secret,
    /// No credentials.
    Nothing,
}

/// Why the node has to bootstrap; `None` if its credentials can be used.
#[must_use]
pub fn compute_bootstrap_reason(found: &LoginFound, now: Timestamp) -> Option<String> {
    match found {
        LoginFound::Unusable(problem) => Some(problem.clone()),
        LoginFound::Certificate { facts, .. } if now < facts.not_after => None,
        LoginFound::Certificate { facts, origin } => {
            Some(format!("the client certificate in {origin} expired at {}", facts.not_after))
        }
        LoginFound::Secret => None,
        LoginFound::Nothing => Some("the kubeconfig has no credentials".to_owned()),
    }
}

/// The state of a signing request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SigningOutcome {
    Pending,
    /// The signed chain in PEM.
    Signed(Vec<u8>),
    /// It was denied, or signing failed, with the API's message.
    Refused(String),
}

/// The state of a signing request. A denial counts even if there is a certificate.
#[must_use]
pub fn signing_outcome(request: &CertificateSigningRequest) -> SigningOutcome {
    let Some(status) = &request.status else { return SigningOutcome::Pending };
    let refused =
        status.conditions.iter().flatten().find(|c| ["Denied", "Failed"].contains(&c.type_.as_str()));
    if let Some(refused) = refused {
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        let (reason, message) = (text(&refused.reason), text(&refused.message));
        return SigningOutcome::Refused(format!(
            "certificate signing request is {}, reason: {reason}, message: {message}",
            refused.type_.to_lowercase()
        ));
    }
    let is_approved =
        status.conditions.iter().flatten().any(|c| c.type_ == "Approved" && c.status != "False");
    match &status.certificate {
        Some(pem) if is_approved && !pem.0.is_empty() => SigningOutcome::Signed(pem.0.clone()),
        Some(_) | None => SigningOutcome::Pending,
    }
}

#[cfg(test)]
mod tests;
