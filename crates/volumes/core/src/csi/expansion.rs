//! When a volume that has grown is expanded on this node, and what the claim's status says before and after it. A controller has
//! enlarged the volume by then; what is left is its filesystem.
//!
//! A claim has `allocatedResourceStatuses` or `allocatedResources` if its controller can recover from failed expansions: then its
//! status says whether the node is to expand, and how far. With an older controller the PersistentVolume alone says it.

use jiff::Timestamp;
use model::k8s::{PersistentVolumeClaim, PersistentVolumeClaimCondition, Quantity};
use model::quantity::Amount;
use serde_json::{Map, Value, json};

/// The resource that a claim asks for.
const STORAGE: &str = "storage";
const PENDING: &str = "NodeResizePending";
const IN_PROGRESS: &str = "NodeResizeInProgress";
const INFEASIBLE: &str = "NodeResizeInfeasible";
/// The condition of a failed expansion.
const ERROR: &str = "NodeResizeError";
/// Conditions about expansions; all of them end with it.
const CONDITIONS: [&str; 4] = ["FileSystemResizePending", "Resizing", "ControllerResizeError", ERROR];
/// The claim's annotation that says that its controller did everything.
const NOT_REQUIRED: &str = "volume.kubernetes.io/node-expansion-not-required";
/// The length of an error in a condition.
const MAX_MESSAGE: usize = 1024;

/// What this node remembers of a volume while pods use it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// The size to which it is expanded here; at first that of the claim's status.
    pub size: Amount,
    /// Its driver does not expand volumes that are in use.
    pub is_refused_in_use: bool,
    /// An expansion failed, and is certainly not going on.
    pub has_failed: bool,
}

impl Known {
    /// What is known of a volume at first.
    #[must_use]
    pub fn of(claim: &PersistentVolumeClaim) -> Self {
        Self { size: capacity(claim), ..Self::default() }
    }
}

/// How a pod uses the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeUse {
    /// It is being mounted; otherwise it is expanded while it is in use.
    pub is_mounting: bool,
    pub read_only: bool,
}

/// What is to be done now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    None,
    /// Nothing is left to do for this size.
    Done(Amount),
    /// The volume has grown to that size, but must not be written to.
    ReadOnly(Amount),
    Expand(Expansion),
}

/// A call of NodeExpandVolume, and what is reported to the claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expansion {
    pub size: Amount,
    /// As the API writes it.
    text: String,
    claim: ClaimUpdates,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClaimUpdates {
    /// Of an older controller: only success.
    OnSuccess,
    /// The claim has the size already, from another node.
    None,
    All {
        /// A failure means that the user must ask for another size.
        failure_is_infeasible: bool,
    },
}

/// How NodeExpandVolume failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The driver has no such call.
    Unsupported,
    /// The call did not happen, or may still be going on.
    Transient,
    InUse,
    Infeasible,
    Final,
}

/// What follows from a failure.
#[derive(Clone, Debug, PartialEq)]
pub struct AfterFailure {
    /// Of the claim's status.
    pub patch: Option<Value>,
    pub outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// As if it had been expanded.
    Done,
    /// The pod is mounted with the volume as it is; not tried again while the volume is in use.
    RefusedInUse,
    /// An error, and tried again.
    Failed { is_final: bool },
}

/// The kind of an error with that gRPC code. `is_final`: the driver will not carry out the call later.
#[must_use]
pub fn failure_kind(code: Option<&str>, is_final: bool) -> FailureKind {
    match code {
        Some("FailedPrecondition") => FailureKind::InUse,
        Some("InvalidArgument" | "OutOfRange" | "NotFound") => FailureKind::Infeasible,
        Some(_) | None if is_final => FailureKind::Final,
        Some(_) | None => FailureKind::Transient,
    }
}

/// Whether a volume of that capacity is to be expanded now.
#[must_use]
pub fn compute_step(
    claim: &PersistentVolumeClaim,
    volume: Option<&Quantity>,
    known: Known,
    how: VolumeUse,
) -> Step {
    let Some((volume, desired)) = volume.zip(amount(volume)) else { return Step::None };
    let is_wanted = match how.is_mounting {
        true => capacity(claim) < desired,
        false => !known.is_refused_in_use && !known.size.is_zero(),
    };
    if !is_wanted || known.size >= desired {
        return Step::None;
    }
    if how.read_only {
        return Step::ReadOnly(desired);
    }
    let status = claim.status.as_ref();
    let allocated = status.and_then(|status| status.allocated_resources.as_ref());
    match (resize_status(claim), allocated) {
        ("", None) => {
            Step::Expand(Expansion { size: desired, text: volume.0.clone(), claim: ClaimUpdates::OnSuccess })
        }
        (_, allocated) => {
            let zero = Quantity("0".to_owned());
            let size = allocated.and_then(|all| all.get(STORAGE)).unwrap_or(&zero);
            compute_recoverable(claim, size, known)
        }
    }
}

/// With a controller that recovers from failures: the claim's status says whether it is this node's turn.
fn compute_recoverable(claim: &PersistentVolumeClaim, size: &Quantity, known: Known) -> Step {
    let Some(wanted) = amount(Some(size)) else { return Step::None };
    let status = resize_status(claim);
    let is_updated = status.is_empty() && capacity(claim) >= wanted;
    let expand = |claim| Step::Expand(Expansion { size: wanted, text: size.0.clone(), claim });
    if is_updated {
        // Filesystems that several nodes have mounted are expanded on each of them.
        return if is_shared(claim) && !is_not_required(claim) {
            expand(ClaimUpdates::None)
        } else {
            Step::Done(wanted)
        };
    }
    match status {
        PENDING | IN_PROGRESS => {
            let failure_is_infeasible = known.has_failed && requested(claim) != wanted;
            expand(ClaimUpdates::All { failure_is_infeasible })
        }
        _ => Step::None,
    }
}

impl Expansion {
    /// The patch of the claim's status before the call; `None` if nothing is to change.
    #[must_use]
    pub fn begin_patch(&self, claim: &PersistentVolumeClaim) -> Option<Value> {
        match self.claim {
            ClaimUpdates::All { .. } if resize_status(claim) != IN_PROGRESS => {
                let statuses = json!({"allocatedResourceStatuses": {STORAGE: IN_PROGRESS}});
                Some(versioned(claim, statuses))
            }
            ClaimUpdates::All { .. } | ClaimUpdates::OnSuccess | ClaimUpdates::None => None,
        }
    }

    /// The patch after the volume was expanded; `None` if nothing is to change.
    #[must_use]
    pub fn finished_patch(&self, claim: &PersistentVolumeClaim) -> Option<Value> {
        match self.claim {
            ClaimUpdates::None => return None,
            ClaimUpdates::OnSuccess if capacity(claim) >= self.size => return None,
            ClaimUpdates::OnSuccess | ClaimUpdates::All { .. } => {}
        }
        let mut status = Map::new();
        status.insert("capacity".to_owned(), json!({STORAGE: self.text}));
        if !resize_status(claim).is_empty() {
            status.insert("allocatedResourceStatuses".to_owned(), json!({STORAGE: null}));
        }
        let is_of_expansion =
            |condition: &&PersistentVolumeClaimCondition| CONDITIONS.contains(&&*condition.type_);
        let ended = conditions(claim).iter().filter(is_of_expansion);
        let ended: Vec<Value> =
            ended.map(|condition| json!({"$patch": "delete", "type": condition.type_})).collect();
        if !ended.is_empty() {
            status.insert("conditions".to_owned(), Value::Array(ended));
        }
        Some(versioned(claim, Value::Object(status)))
    }

    /// What follows when the call failed with that error.
    #[must_use]
    pub fn after_failure(
        &self,
        claim: &PersistentVolumeClaim,
        kind: FailureKind,
        error: &str,
        now: Timestamp,
    ) -> AfterFailure {
        let is_quiet = match self.claim {
            ClaimUpdates::OnSuccess | ClaimUpdates::None => kind == FailureKind::Unsupported,
            ClaimUpdates::All { .. } => false,
        };
        if is_quiet {
            return AfterFailure { patch: None, outcome: Outcome::Done };
        }
        let is_final = kind != FailureKind::Transient;
        let patch = match self.claim {
            ClaimUpdates::OnSuccess => None,
            ClaimUpdates::None => {
                is_final.then(|| failed_patch(claim, kind == FailureKind::Infeasible, error, now)).flatten()
            }
            ClaimUpdates::All { failure_is_infeasible } => {
                let is_infeasible = failure_is_infeasible || kind == FailureKind::Infeasible;
                is_final.then(|| failed_patch(claim, is_infeasible, error, now)).flatten()
            }
        };
        let outcome = match kind {
            FailureKind::InUse => Outcome::RefusedInUse,
            FailureKind::Unsupported
            | FailureKind::Infeasible
            | FailureKind::Final
            | FailureKind::Transient => Outcome::Failed { is_final },
        };
        AfterFailure { patch, outcome }
    }
}

/// `None` if the claim says all of it already.
fn failed_patch(
    claim: &PersistentVolumeClaim,
    is_infeasible: bool,
    error: &str,
    now: Timestamp,
) -> Option<Value> {
    let mut status = Map::new();
    if is_infeasible && resize_status(claim) != INFEASIBLE {
        status.insert("allocatedResourceStatuses".to_owned(), json!({STORAGE: INFEASIBLE}));
    }
    let is_set =
        |condition: &PersistentVolumeClaimCondition| condition.type_ == ERROR && condition.status == "True";
    if !conditions(claim).iter().any(is_set) {
        let message = format!("failed to expand pvc with {error}");
        let message = model::text::cut(&message, MAX_MESSAGE);
        let at = format!("{:.0}", now);
        let condition =
            json!([{"type": ERROR, "status": "True", "lastTransitionTime": at, "message": message}]);
        status.insert("conditions".to_owned(), condition);
    }
    (!status.is_empty()).then(|| json!({"status": status}))
}

/// Refused by the server if the claim has changed meanwhile.
fn versioned(claim: &PersistentVolumeClaim, status: Value) -> Value {
    json!({"metadata": {"resourceVersion": claim.metadata.resource_version}, "status": status})
}

fn amount(quantity: Option<&Quantity>) -> Option<Amount> {
    quantity.and_then(|quantity| Amount::of(quantity).ok())
}

/// 0 if the status has none.
fn capacity(claim: &PersistentVolumeClaim) -> Amount {
    let capacity = claim.status.as_ref().and_then(|status| status.capacity.as_ref()?.get(STORAGE));
    amount(capacity).unwrap_or(Amount::ZERO)
}

fn requested(claim: &PersistentVolumeClaim) -> Amount {
    let resources = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref());
    let requested = resources.and_then(|resources| resources.requests.as_ref()?.get(STORAGE));
    amount(requested).unwrap_or(Amount::ZERO)
}

/// Empty if there is none.
fn resize_status(claim: &PersistentVolumeClaim) -> &str {
    let statuses = claim.status.as_ref().and_then(|status| status.allocated_resource_statuses.as_ref());
    statuses.and_then(|statuses| statuses.get(STORAGE)).map_or("", String::as_str)
}

fn conditions(claim: &PersistentVolumeClaim) -> &[PersistentVolumeClaimCondition] {
    claim.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default()
}

fn is_shared(claim: &PersistentVolumeClaim) -> bool {
    let modes = claim.spec.as_ref().and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default();
    modes.iter().any(|mode| mode == "ReadWriteMany")
}

fn is_not_required(claim: &PersistentVolumeClaim) -> bool {
    claim.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(NOT_REQUIRED))
}

#[cfg(test)]
mod tests;
