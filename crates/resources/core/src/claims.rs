//! Which ResourceClaims a pod uses, and whether it may use them now. A pod does not start without the devices of its claims.
//!
//! Owns the rules of `k8s.io/dynamic-resource-allocation/resourceclaim`: names, owner, reservation; what of a claim a container gets
//! (`containers`); which claims are prepared on this node (`table`), and the file of them (`checkpoint`); the health of their devices
//! (`health`) and the file of it (`health_file`). Never calls a driver.

pub mod checkpoint;
pub mod containers;
pub mod driver;
pub mod health;
pub mod health_file;
pub mod table;

use std::collections::{BTreeMap, BTreeSet};

use model::PodRef;
use model::containers::spec_of;
use model::k8s::{ClaimConsumer, Pod, PodStatus, ResourceClaim};

/// The API group of PodGroups.
const SCHEDULING_GROUP: &str = "scheduling.k8s.io";

/// Why a pod cannot have the devices of its claims now. The messages are those of the Go kubelet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    #[error("pod \"{pod}\": ResourceClaim not created yet")]
    NotCreated { pod: String },
    #[error("pod \"{pod}\", spec.resourceClaim \"{entry}\": none of the supported fields are set")]
    NoSource { pod: String, entry: String },
    #[error("ResourceClaim {claim} was not created for Pod {pod} (Pod is not owner)")]
    NotOwner { pod: String, claim: String },
    #[error(
        "ResourceClaim {claim} was not created for Pod {pod} (neither Pod nor PodGroup {group} is the owner)"
    )]
    NotOwnerNorGroup { pod: String, claim: String, group: String },
    #[error("pod {pod} ({pod_uid}) is not allowed to use ResourceClaim {claim} ({claim_uid})")]
    NotReserved { pod: String, pod_uid: String, claim: String, claim_uid: String },
    #[error("ResourceClaim {claim}: not allocated")]
    NotAllocated { claim: String },
    #[error("DRA driver name is empty")]
    NamelessDriver,
    #[error("DRA driver {driver} is not registered")]
    NotRegistered { driver: String },
    #[error(transparent)]
    OldClaim(#[from] table::OldClaim),
    #[error("internal error: unable to get claim info for ResourceClaim {claim} in namespace {namespace}")]
    NotPrepared { claim: String, namespace: String },
}

/// A ResourceClaim that a pod uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodClaim {
    pub name: String,
    /// It was made from a template for this pod, and no other may use it.
    pub is_generated: bool,
}

/// The user of a claim.
#[derive(Clone, Copy, Debug)]
pub struct ClaimUser<'a> {
    pub pod: &'a PodRef,
    /// The PodGroup of the pod, if claims of groups are supported (`DRAWorkloadResourceClaims`).
    pub group: Option<&'a str>,
}

/// The name of the PodGroup that the pod belongs to.
#[must_use]
pub fn pod_group(pod: &Pod) -> Option<&str> {
    spec_of(pod).scheduling_group.as_ref()?.pod_group_name.as_deref().filter(|name| !name.is_empty())
}

/// The claims that the pod uses, each once: those of its spec, and the one that the scheduler made for its extended resources. `status`
/// is that of the pod in the API, which has the names of generated claims.
///
/// # Errors
/// A claim has no name yet.
pub fn compute_pod_claims(pod: &Pod, status: Option<&PodStatus>) -> Result<Vec<PodClaim>, ClaimError> {
    let names = named_claims(pod, status)?;
    let mut found: Vec<PodClaim> = Vec::new();
    let mut known = BTreeSet::new();
    for (_, claim) in names {
        if known.insert(claim.name.clone()) {
            found.push(claim);
        }
    }
    let extended = status.and_then(|status| status.extended_resource_claim_status.as_ref());
    if let Some(extended) = extended.filter(|extended| known.insert(extended.resource_claim_name.clone())) {
        found.push(PodClaim { name: extended.resource_claim_name.clone(), is_generated: false });
    }
    Ok(found)
}

/// Each entry of `spec.resourceClaims` that has a claim, in order.
fn named_claims<'a>(
    pod: &'a Pod,
    status: Option<&'a PodStatus>,
) -> Result<Vec<(&'a str, PodClaim)>, ClaimError> {
    claim_entries(pod, status).collect()
}

/// The same, with an error for each entry whose claim has no name yet.
fn claim_entries<'a>(
    pod: &'a Pod,
    status: Option<&'a PodStatus>,
) -> impl Iterator<Item = Result<(&'a str, PodClaim), ClaimError>> {
    let generated: BTreeMap<&str, Option<&String>> = status
        .and_then(|status| status.resource_claim_statuses.as_ref())
        .into_iter()
        .flatten()
        .map(|claim| (claim.name.as_str(), claim.resource_claim_name.as_ref()))
        .collect();
    spec_of(pod).resource_claims.iter().flatten().filter_map(move |entry| {
        let claim = match (&entry.resource_claim_name, &entry.resource_claim_template_name) {
            (Some(name), _) => Ok(PodClaim { name: name.clone(), is_generated: false }),
            (None, Some(_)) => match generated.get(entry.name.as_str()) {
                Some(Some(name)) => Ok(PodClaim { name: (*name).clone(), is_generated: true }),
                // The controller found that the pod needs none.
                Some(None) => return None,
                None => Err(ClaimError::NotCreated { pod: name_of(pod) }),
            },
            (None, None) => Err(ClaimError::NoSource { pod: name_of(pod), entry: entry.name.clone() }),
        };
        Some(claim.map(|claim| (entry.name.as_str(), claim)))
    })
}

/// Whether the pod may use the claim; returns the drivers that must prepare it.
///
/// # Errors
/// The claim belongs to another pod or group of pods, is not reserved for this one, or has no devices yet.
pub fn check_claim<'a>(
    user: ClaimUser<'_>,
    wanted: &PodClaim,
    claim: &'a ResourceClaim,
) -> Result<BTreeSet<&'a str>, ClaimError> {
    let (pod, name, uid) = (user.pod, wanted.name.clone(), user.pod.uid.as_str());
    if wanted.is_generated {
        check_owner(user, &name, claim)?;
    }
    let mut reserved_for = claim.status.iter().flat_map(|status| status.reserved_for.iter().flatten());
    let is_group = |consumer: &ClaimConsumer| {
        consumer.api_group == SCHEDULING_GROUP
            && consumer.resource == "podgroups"
            && user.group == Some(&*consumer.name)
    };
    if !reserved_for.any(|consumer| consumer.uid == uid || is_group(consumer)) {
        return Err(ClaimError::NotReserved {
            pod: pod.name.to_string(),
            pod_uid: uid.to_owned(),
            claim: name,
            claim_uid: claim.metadata.uid.clone().unwrap_or_default(),
        });
    }
    let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
    let Some(allocation) = allocation else { return Err(ClaimError::NotAllocated { claim: name }) };
    let devices = allocation.devices.iter().flat_map(|devices| devices.results.iter().flatten());
    let drivers: BTreeSet<&str> = devices.map(|device| device.driver.as_str()).collect();
    if drivers.contains("") { Err(ClaimError::NamelessDriver) } else { Ok(drivers) }
}

/// A claim that was made from a template belongs to the pod, or to its group.
fn check_owner(user: ClaimUser<'_>, name: &str, claim: &ResourceClaim) -> Result<(), ClaimError> {
    let ClaimUser { pod, group } = user;
    if is_controlled_by(claim, pod.uid.as_str()) {
        return Ok(());
    }
    let (pod, claim_name) = (format!("{}/{}", pod.namespace, pod.name), format!("{}/{name}", pod.namespace));
    let Some(group) = group else { return Err(ClaimError::NotOwner { pod, claim: claim_name }) };
    let mut owners = claim.metadata.owner_references.iter().flatten();
    let is_of_group = owners.any(|owner| {
        let api_group = owner.api_version.split_once('/').map(|(group, _)| group);
        owner.controller == Some(true)
            && owner.kind == "PodGroup"
            && api_group == Some(SCHEDULING_GROUP)
            && owner.name == group
    });
    if is_of_group {
        return Ok(());
    }
    Err(ClaimError::NotOwnerNorGroup { pod, claim: claim_name, group: group.to_owned() })
}

fn is_controlled_by(claim: &ResourceClaim, uid: &str) -> bool {
    let owners = claim.metadata.owner_references.iter().flatten();
    owners.into_iter().any(|owner| owner.controller == Some(true) && owner.uid == uid)
}

fn name_of(pod: &Pod) -> String {
    let (namespace, name) = (pod.metadata.namespace.as_deref(), pod.metadata.name.as_deref());
    format!("{}/{}", namespace.unwrap_or_default(), name.unwrap_or_default())
}

#[cfg(test)]
mod tests;
