//! Certificates of pods in projected volumes (docs/behaviour/volumes.md): the PodCertificateRequest, and what follows from its
//! state and the time.
//!
//! ```text
//! Initial --Create--> Waiting --Issued--> InUse --refresh time: Create--> InUse, renewing --Issued--> InUse
//!    ^                 |  |                 ^                                   |  |
//!    `---- deleted ----'  |                 `------------- deleted -------------'  |
//!                         `--Denied, Failed--> Refused <--Denied, Failed-----------'
//! ```
//! Owns: the states of one certificate with their deadlines, and the texts about them. Never: generating a key, calling the API, reading
//! a clock, drawing a random number.

use std::time::Duration;

use jiff::Timestamp;
use model::containers::spec_of;
use model::k8s::{
    ByteString, ObjectMeta, OwnerReference, Pod, PodCertificateProjection, PodCertificateRequest,
    PodCertificateRequestSpec, PodCertificateRequestStatus,
};
use model::time::wall_after;
use model::{Credential, MonoTime, Now, PodKeyType, PrivateKey};

use super::pem;

/// Certificates of one pod. Each is a key in memory, and a PodCertificateRequest at each renewal.
pub const MAX_CERTIFICATES: usize = 64;
/// A longer chain is refused; the API takes none.
const MAX_CHAIN: usize = 100 << 10;
/// A request that the watch does not show for this long, and up to [`JITTER`] longer, was deleted.
const ASSUME_DELETED: Duration = Duration::from_secs(10 * 60);
/// Renewals come up to this much later than the signer proposes, so that those of many pods do not come at once.
const JITTER: Duration = Duration::from_secs(5 * 60);
/// A certificate is used for at least this long before it is renewed, whatever the clocks of signer and node show.
const SHORTEST_USE: Duration = Duration::from_secs(60);
/// A renewal that is not complete after this time is overdue.
const OVERDUE: Duration = Duration::from_secs(10 * 60);
/// Delay after the first request that could not be created; it doubles with each further one.
const FIRST_RETRY: Duration = Duration::from_millis(500);
const LONGEST_RETRY: Duration = Duration::from_secs(5 * 60);
/// The service account of a pod whose spec names none.
const DEFAULT_ACCOUNT: &str = "default";

/// Names a `podCertificate` source of a pod: its volume, and its place among the sources of the volume.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CertificateId {
    pub volume: String,
    pub index: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub struct CertificateSource {
    pub id: CertificateId,
    pub projection: PodCertificateProjection,
}

/// The `podCertificate` sources of a pod.
#[must_use]
pub fn certificate_sources(pod: &Pod) -> Vec<CertificateSource> {
    let mut found = Vec::new();
    for volume in spec_of(pod).volumes.iter().flatten() {
        let sources = volume.projected.as_ref().and_then(|projected| projected.sources.as_deref());
        for (index, source) in sources.unwrap_or_default().iter().enumerate() {
            let Some(projection) = source.pod_certificate.clone() else { continue };
            let id = CertificateId { volume: volume.name.clone(), index };
            found.push(CertificateSource { id, projection });
        }
    }
    found
}

/// The name of a type of key that the API does not know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown key type {0:?}")]
pub struct UnknownKeyType(String);

/// The type of key with that name in the API.
///
/// # Errors
/// The API does not know the name.
pub fn key_type(name: &str) -> Result<PodKeyType, UnknownKeyType> {
    match name {
        "ECDSAP256" => Ok(PodKeyType::EcdsaP256),
        "ECDSAP384" => Ok(PodKeyType::EcdsaP384),
        "ECDSAP521" => Ok(PodKeyType::EcdsaP521),
        "ED25519" => Ok(PodKeyType::Ed25519),
        "RSA3072" => Ok(PodKeyType::Rsa3072),
        "RSA4096" => Ok(PodKeyType::Rsa4096),
        _ => Err(UnknownKeyType(name.to_owned())),
    }
}

/// Why a volume does not show a certificate; the text goes into the event FailedMount.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialError {
    #[error(
        "podCertificate projection is not available on this node: the feature gate PodCertificateRequest is off, or the node is standalone"
    )]
    NotAvailable,
    #[error("pod has {count} podCertificate sources, but a pod may have at most {MAX_CERTIFICATES}")]
    TooMany { count: usize },
    #[error("credential bundle is not issued yet")]
    NotIssued,
    #[error("credential bundle is not issued yet: {why}")]
    NotRequested { why: String },
    #[error("PodCertificateRequest was permanently denied: reason={:?} message={:?}", .0.reason, .0.message)]
    Denied(Refusal),
    #[error("PodCertificateRequest was permanently failed: reason={:?} message={:?}", .0.reason, .0.message)]
    Failed(Refusal),
    #[error(transparent)]
    KeyType(#[from] UnknownKeyType),
}

/// What a signer refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub reason: String,
    pub message: String,
}

/// The state of one certificate. It is only in memory: after a restart every certificate is issued again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CertificateState {
    #[default]
    Initial,
    Waiting(PendingRequest),
    InUse {
        certificate: IssuedCertificate,
        /// The next one was requested.
        renewal: Option<PendingRequest>,
    },
    Denied(Refusal),
    Failed(Refusal),
}

/// A PodCertificateRequest that was created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingRequest {
    pub name: String,
    pub key: PrivateKey,
    /// If the request does not exist then, it was deleted.
    pub abandon_at: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuedCertificate {
    pub credential: Credential,
    pub refresh_at: Timestamp,
    pub not_after: Timestamp,
    is_overdue_reported: bool,
    is_expiry_reported: bool,
}

impl CertificateState {
    /// What the volume shows.
    ///
    /// # Errors
    /// No certificate was issued, or the signer refused one.
    pub fn credential(&self) -> Result<Credential, CredentialError> {
        match self {
            Self::Initial | Self::Waiting(_) => Err(CredentialError::NotIssued),
            Self::InUse { certificate, renewal: _ } => Ok(certificate.credential.clone()),
            Self::Denied(refusal) => Err(CredentialError::Denied(refusal.clone())),
            Self::Failed(refusal) => Err(CredentialError::Failed(refusal.clone())),
        }
    }

    /// The state after a request was created with that key. `random` is from 0 to 1.
    #[must_use]
    pub fn requested(&self, name: &str, key: PrivateKey, random: f64, now: Now) -> Self {
        let abandon_at = wall_after(now.wall, ASSUME_DELETED + JITTER.mul_f64(random.clamp(0.0, 1.0)));
        let pending = PendingRequest { name: name.to_owned(), key, abandon_at };
        match self {
            Self::InUse { certificate, renewal: _ } => {
                Self::InUse { certificate: certificate.clone(), renewal: Some(pending) }
            }
            Self::Initial | Self::Waiting(_) => Self::Waiting(pending),
            Self::Denied(_) | Self::Failed(_) => self.clone(),
        }
    }

    /// The request that is waited for.
    #[must_use]
    pub const fn pending(&self) -> Option<&PendingRequest> {
        match self {
            Self::Waiting(pending) | Self::InUse { renewal: Some(pending), .. } => Some(pending),
            Self::Initial | Self::InUse { renewal: None, .. } | Self::Denied(_) | Self::Failed(_) => None,
        }
    }

    /// For the metric of states.
    #[must_use]
    pub const fn status(&self) -> CertificateStatus {
        match self {
            Self::Initial | Self::Waiting(_) => CertificateStatus::NotIssued,
            Self::Denied(_) => CertificateStatus::Denied,
            Self::Failed(_) => CertificateStatus::Failed,
            Self::InUse { certificate, renewal: _ } => CertificateStatus::Issued {
                refresh_at: certificate.refresh_at,
                not_after: certificate.not_after,
            },
        }
    }
}

/// What the metric of states is computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateStatus {
    NotIssued,
    Denied,
    Failed,
    Issued { refresh_at: Timestamp, not_after: Timestamp },
}

impl CertificateStatus {
    /// The value of the label `state`.
    #[must_use]
    pub fn label(self, now: Timestamp) -> &'static str {
        match self {
            Self::NotIssued => "not_yet_issued",
            Self::Denied => "denied",
            Self::Failed => "failed",
            Self::Issued { not_after, .. } if now >= not_after => "expired",
            Self::Issued { refresh_at, .. } if now >= wall_after(refresh_at, OVERDUE) => {
                "overdue_for_refresh"
            }
            Self::Issued { .. } => "fresh",
        }
    }
}

/// What the watch shows of the request that is waited for.
#[derive(Clone, Copy, Debug)]
pub enum SeenRequest<'a> {
    /// The first list is not complete.
    Unknown,
    Missing,
    Found(&'a PodCertificateRequest),
}

/// What the next step depends on.
#[derive(Clone, Copy, Debug)]
pub struct CertificateInputs<'a> {
    pub state: &'a CertificateState,
    pub request: SeenRequest<'a>,
    /// No request is created before this time, because creating the last one failed.
    pub retry_at: Option<MonoTime>,
    /// From 0 to 1.
    pub random: f64,
    pub now: Now,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateStep {
    /// Nothing until then, or until the request changes.
    Wait { until: Option<MonoTime> },
    /// Generate a key, and create a request for it.
    Create,
    /// The state changes, because of `reason`.
    Become { state: CertificateState, event: Option<CertificateEvent>, reason: &'static str },
}

/// A warning about the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateEvent {
    pub reason: &'static str,
    pub message: String,
}

/// Decides the next step of one certificate.
#[must_use]
pub fn compute_certificate_step(inputs: &CertificateInputs<'_>) -> CertificateStep {
    let now = inputs.now;
    match inputs.state {
        CertificateState::Denied(_) | CertificateState::Failed(_) => CertificateStep::Wait { until: None },
        CertificateState::Initial => create(inputs, None),
        CertificateState::Waiting(pending) => match inputs.request {
            SeenRequest::Found(request) => settle(request, pending, inputs).unwrap_or(WAIT),
            SeenRequest::Unknown => WAIT,
            SeenRequest::Missing if now.wall >= pending.abandon_at => deleted(CertificateState::Initial),
            SeenRequest::Missing => wait(now, pending.abandon_at),
        },
        CertificateState::InUse { certificate, renewal: None } => {
            if now.wall < certificate.refresh_at {
                return wait(now, certificate.refresh_at);
            }
            report(certificate, None, now).unwrap_or_else(|| create(inputs, certificate.next_report()))
        }
        CertificateState::InUse { certificate, renewal: Some(pending) } => {
            renew(certificate, pending, inputs)
        }
    }
}

const WAIT: CertificateStep = CertificateStep::Wait { until: None };

fn wait(now: Now, until: Timestamp) -> CertificateStep {
    CertificateStep::Wait { until: Some(now.mono_at(until)) }
}

fn deleted(state: CertificateState) -> CertificateStep {
    CertificateStep::Become {
        state,
        event: None,
        reason: "PodCertificateRequest appears to have been deleted",
    }
}

/// Unless the last attempt was a moment ago. `report_at`: there may be something to report before.
fn create(inputs: &CertificateInputs<'_>, report_at: Option<Timestamp>) -> CertificateStep {
    match inputs.retry_at.filter(|at| inputs.now.mono < *at) {
        None => CertificateStep::Create,
        Some(retry_at) => {
            let until = report_at.map_or(retry_at, |at| inputs.now.mono_at(at).min(retry_at));
            CertificateStep::Wait { until: Some(until) }
        }
    }
}

fn renew(
    certificate: &IssuedCertificate,
    pending: &PendingRequest,
    inputs: &CertificateInputs<'_>,
) -> CertificateStep {
    let now = inputs.now;
    let abandon_at = match inputs.request {
        SeenRequest::Found(request) => match settle(request, pending, inputs) {
            Some(step) => return step,
            None => None,
        },
        SeenRequest::Unknown => None,
        SeenRequest::Missing if now.wall >= pending.abandon_at => {
            let certificate = certificate.clone();
            return deleted(CertificateState::InUse { certificate, renewal: None });
        }
        SeenRequest::Missing => Some(pending.abandon_at),
    };
    report(certificate, Some(pending), now).unwrap_or_else(|| {
        let next = certificate.next_report().into_iter().chain(abandon_at).min();
        CertificateStep::Wait { until: next.map(|at| now.mono_at(at)) }
    })
}

impl IssuedCertificate {
    fn overdue_at(&self) -> Timestamp {
        wall_after(self.refresh_at, OVERDUE)
    }

    /// When an event is due that was not recorded yet.
    fn next_report(&self) -> Option<Timestamp> {
        let overdue = (!self.is_overdue_reported).then(|| self.overdue_at());
        let expiry = (!self.is_expiry_reported).then_some(self.not_after);
        overdue.into_iter().chain(expiry).min()
    }
}

/// The events about a certificate that was not renewed in time, each once.
fn report(
    certificate: &IssuedCertificate,
    renewal: Option<&PendingRequest>,
    now: Now,
) -> Option<CertificateStep> {
    let mut certificate = certificate.clone();
    let (reason, text) = if !certificate.is_overdue_reported && now.wall >= certificate.overdue_at() {
        certificate.is_overdue_reported = true;
        ("CertificateOverdueForRefresh", "PodCertificate refresh overdue")
    } else if !certificate.is_expiry_reported && now.wall >= certificate.not_after {
        certificate.is_expiry_reported = true;
        ("CertificateExpired", "PodCertificate expired")
    } else {
        return None;
    };
    Some(CertificateStep::Become {
        state: CertificateState::InUse { certificate, renewal: renewal.cloned() },
        event: Some(CertificateEvent { reason, message: text.to_owned() }),
        reason: text,
    })
}

/// What the signer decided; `None` while it has not.
fn settle(
    request: &PodCertificateRequest,
    pending: &PendingRequest,
    inputs: &CertificateInputs<'_>,
) -> Option<CertificateStep> {
    let status = request.status.as_ref()?;
    let mut conditions = status.conditions.iter().flatten();
    let decided = conditions.find(|c| ["Denied", "Failed", "Issued"].contains(&c.type_.as_str()))?;
    let refusal = Refusal { reason: decided.reason.clone(), message: decided.message.clone() };
    Some(match decided.type_.as_str() {
        "Denied" => refused(request, CertificateState::Denied(refusal.clone()), &refusal),
        "Failed" => refused(request, CertificateState::Failed(refusal.clone()), &refusal),
        _ => match issued(status, pending, inputs) {
            Ok(certificate) => CertificateStep::Become {
                state: CertificateState::InUse { certificate, renewal: None },
                event: None,
                reason: "PodCertificateRequest issued",
            },
            Err(problem) => {
                let refusal =
                    Refusal { reason: "InvalidCertificate".to_owned(), message: problem.to_owned() };
                refused(request, CertificateState::Failed(refusal.clone()), &refusal)
            }
        },
    })
}

fn refused(request: &PodCertificateRequest, state: CertificateState, refusal: &Refusal) -> CertificateStep {
    let (reason, verb) = match &state {
        CertificateState::Denied(_) => ("Denied", "was denied"),
        CertificateState::Initial
        | CertificateState::Waiting(_)
        | CertificateState::InUse { .. }
        | CertificateState::Failed(_) => ("Failed", "failed"),
    };
    let name = |text: &Option<String>| text.clone().unwrap_or_default();
    let message = format!(
        "PodCertificateRequest {}/{} {verb}, reason={:?}, message={:?}",
        name(&request.metadata.namespace),
        name(&request.metadata.name),
        refusal.reason,
        refusal.message
    );
    let event = Some(CertificateEvent { reason, message });
    CertificateStep::Become { state, event, reason: "PodCertificateRequest refused" }
}

/// The certificate of a request that was issued.
///
/// # Errors
/// The API server would not accept such a status; another server may.
fn issued(
    status: &PodCertificateRequestStatus,
    pending: &PendingRequest,
    inputs: &CertificateInputs<'_>,
) -> Result<IssuedCertificate, &'static str> {
    let chain = status.certificate_chain.as_deref().unwrap_or_default();
    if chain.len() > MAX_CHAIN {
        return Err("status.certificateChain is larger than 102400 bytes");
    }
    let chain: String = pem::blocks(chain).iter().map(|block| pem::certificate(&block.base64)).collect();
    if chain.is_empty() {
        return Err("status.certificateChain has no certificate");
    }
    let begin = status.begin_refresh_at.as_ref().ok_or("status.beginRefreshAt is not set")?.0;
    let not_after = status.not_after.as_ref().ok_or("status.notAfter is not set")?.0;
    let proposed = wall_after(begin, JITTER.mul_f64(inputs.random.clamp(0.0, 1.0)));
    Ok(IssuedCertificate {
        credential: Credential { key: pending.key.clone(), chain: chain.into() },
        refresh_at: proposed.max(wall_after(inputs.now.wall, SHORTEST_USE)),
        not_after,
        is_overdue_reported: false,
        is_expiry_reported: false,
    })
}

/// The delay after `failures` requests in a row that could not be created.
#[must_use]
pub fn compute_create_delay(failures: u32) -> Duration {
    let doubled = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
    FIRST_RETRY.saturating_mul(doubled).min(LONGEST_RETRY)
}

/// The service account that a pod runs as.
#[must_use]
pub fn service_account_of(pod: &Pod) -> &str {
    let named = spec_of(pod).service_account_name.as_deref();
    named.filter(|name| !name.is_empty()).unwrap_or(DEFAULT_ACCOUNT)
}

/// What a request names besides its pod.
#[derive(Clone, Copy, Debug)]
pub struct RequestFacts<'a> {
    pub service_account_uid: &'a str,
    pub node_name: &'a str,
    pub node_uid: &'a str,
    /// PKCS#10, DER.
    pub stub: &'a [u8],
}

/// The request to create; the API generates its name.
#[must_use]
pub fn compute_certificate_request(
    pod: &Pod,
    projection: &PodCertificateProjection,
    facts: &RequestFacts<'_>,
) -> PodCertificateRequest {
    let name = pod.metadata.name.clone().unwrap_or_default();
    let uid = pod.metadata.uid.clone().unwrap_or_default();
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        name: name.clone(),
        uid: uid.clone(),
        ..OwnerReference::default()
    };
    PodCertificateRequest {
        metadata: ObjectMeta {
            generate_name: Some("req-".to_owned()),
            namespace: pod.metadata.namespace.clone(),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: PodCertificateRequestSpec {
            signer_name: projection.signer_name.clone(),
            pod_name: name,
            pod_uid: uid,
            service_account_name: service_account_of(pod).to_owned(),
            service_account_uid: facts.service_account_uid.to_owned(),
            node_name: facts.node_name.to_owned(),
            node_uid: facts.node_uid.to_owned(),
            max_expiration_seconds: projection.max_expiration_seconds,
            stub_pkc_s10_request: ByteString(facts.stub.to_vec()),
            unverified_user_annotations: projection.user_annotations.clone(),
            ..PodCertificateRequestSpec::default()
        },
        status: None,
    }
}

#[cfg(test)]
mod tests;
