//! Which IDs of the node each pod with its own user namespace gets (`hostUsers: false`;
//! docs/behaviour/security-context.md).
//!
//! Owns the arithmetic and the content of the file `userns` in a pod's directory, which a restarted kubelet reads back.
//! Never reads or writes that file. No two pods ever share an id, whatever ranges the files of other kubelets name.

use std::collections::{BTreeMap, BTreeSet};

use model::PodUid;
use model::request::{IdMapping, IdRange};
use serde::{Deserialize, Serialize};

use crate::pods::request::IdMappings;

/// Lengths and first ids are multiples of it.
const UNIT: u32 = 65_536;

/// Why there is no range for a pod. The messages are complete sentences for an event, without the pod's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UsernsError {
    #[error("can't set `spec.hostUsers: false`, runtime does not support user namespaces")]
    RuntimeCannot,
    #[error("can't set `spec.hostUsers: false`, RuntimeClass handler {0:?} does not support user namespaces")]
    HandlerCannot(String),
    #[error("kubelet mappings: {0}")]
    Pool(String),
    #[error("create user namespace: could not find an empty slot to allocate a user namespace")]
    Exhausted,
    #[error(
        "create user namespace: which ids are free is not known, because pod {pod} has an unreadable file: {problem}"
    )]
    Unreadable { pod: PodUid, problem: String },
    #[error("user namespace: invalid user namespace mappings file: {0}")]
    InvalidFile(String),
    #[error("user namespace: range picked for pod {pod} already taken by pod {by}")]
    Taken { pod: PodUid, by: PodUid },
}

/// The IDs for pods, and their allocations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserNamespaces {
    pool: IdRange,
    /// `userNamespaces.idsPerPod`.
    per_pod: u32,
    used: BTreeMap<PodUid, IdRange>,
    /// Pods whose range is not known.
    unknown: BTreeMap<PodUid, String>,
}

impl UserNamespaces {
    /// `subordinate` are the subordinate uid and gid ranges of the user `kubelet`; without them the IDs directly above the
    /// node's own are used.
    ///
    /// # Errors
    /// The ranges differ, are more than one, are not aligned, overlap the node's own IDs, or do not suffice for `max_pods`
    /// pods.
    pub fn new(
        subordinate: Option<(&[IdRange], &[IdRange])>,
        per_pod: u32,
        max_pods: u32,
    ) -> Result<Self, UsernsError> {
        let pool = match subordinate {
            Some((uids, gids)) => single_range(uids, gids)?,
            None => IdRange { first: per_pod, length: per_pod.saturating_mul(max_pods) },
        };
        check_pool(pool, per_pod, max_pods).map_err(UsernsError::Pool)?;
        Ok(Self { pool, per_pod, used: BTreeMap::new(), unknown: BTreeMap::new() })
    }

    /// The range of the pod, if it has one.
    #[must_use]
    pub fn get(&self, pod: &PodUid) -> Option<IdMappings> {
        self.used.get(pod).copied().map(mappings)
    }

    /// The pod's range: its existing one, else the lowest free one.
    ///
    /// # Errors
    /// None is free, or it is not known which are.
    pub fn allocate(&mut self, pod: &PodUid) -> Result<IdMappings, UsernsError> {
        if let Some(range) = self.used.get(pod) {
            return Ok(mappings(*range));
        }
        if let Some((pod, problem)) = self.unknown.first_key_value() {
            return Err(UsernsError::Unreadable { pod: pod.clone(), problem: problem.clone() });
        }
        // Ranges of other lengths, from before a change of the configuration, may lie across several slots.
        let taken: BTreeSet<IdRange> = self.used.values().copied().collect();
        let slots = (0..self.pool.length / self.per_pod).map(|slot| self.slot(slot));
        let free = slots.into_iter().find(|slot| !taken.iter().any(|other| overlap(*slot, *other)));
        let range = free.ok_or(UsernsError::Exhausted)?;
        self.used.insert(pod.clone(), range);
        Ok(mappings(range))
    }

    /// Restores the range that an earlier kubelet wrote into the pod's file. A range of another length or outside the
    /// configured IDs is kept, because the pod may be running with it.
    ///
    /// # Errors
    /// The file is invalid, or its IDs belong to another pod. Then no new range is allocated until that pod is gone.
    pub fn record(&mut self, pod: &PodUid, file: &str) -> Result<IdMappings, UsernsError> {
        let recorded = parse_file(file).map_err(UsernsError::InvalidFile).and_then(|range| {
            let other = self.used.iter().find(|(uid, used)| *uid != pod && overlap(range, **used));
            match other {
                Some((by, _)) => Err(UsernsError::Taken { pod: pod.clone(), by: by.clone() }),
                None => Ok(range),
            }
        });
        match recorded {
            Ok(range) => {
                self.unknown.remove(pod);
                self.used.insert(pod.clone(), range);
                Ok(mappings(range))
            }
            Err(error) => {
                self.unknown.insert(pod.clone(), error.to_string());
                Err(error)
            }
        }
    }

    /// The pod's file cannot be read: see [`Self::record`].
    pub fn record_unreadable(&mut self, pod: &PodUid, problem: String) {
        self.unknown.insert(pod.clone(), problem);
    }

    /// The pod and its file were removed.
    pub fn release(&mut self, pod: &PodUid) {
        self.used.remove(pod);
        self.unknown.remove(pod);
    }

    const fn slot(&self, index: u32) -> IdRange {
        IdRange {
            first: self.pool.first.saturating_add(index.saturating_mul(self.per_pod)),
            length: self.per_pod,
        }
    }
}

/// Runtimes require the same single mapping for users and groups.
fn single_range(uids: &[IdRange], gids: &[IdRange]) -> Result<IdRange, UsernsError> {
    match (uids, gids) {
        ([uid], [gid]) if uid == gid => Ok(*uid),
        ([_], [_]) => Err(UsernsError::Pool(format!(
            "mismatched subuids and subgids for user \"kubelet\": {uids:?} and {gids:?}"
        ))),
        _ => Err(UsernsError::Pool(format!(
            "user \"kubelet\" must have exactly one range of subuids and one of subgids, has {} and {}",
            uids.len(),
            gids.len()
        ))),
    }
}

fn check_pool(pool: IdRange, per_pod: u32, max_pods: u32) -> Result<(), String> {
    let IdRange { first, length } = pool;
    if per_pod == 0 || !per_pod.is_multiple_of(UNIT) {
        return Err(format!("kubelet user namespace length {per_pod} is not a multiple of {UNIT}"));
    }
    if !first.is_multiple_of(per_pod) {
        return Err(format!("kubelet user assigned ID {first} is not a multiple of {per_pod}"));
    }
    if first < per_pod {
        return Err(format!("kubelet user assigned ID {first} must be greater or equal to {per_pod}"));
    }
    if !length.is_multiple_of(per_pod) {
        return Err(format!("kubelet user assigned IDs length {length} is not a multiple of {per_pod}"));
    }
    // The kernel reserves the last ID.
    if length / per_pod < max_pods || u64::from(first) + u64::from(length) > u64::from(u32::MAX) {
        return Err(format!("kubelet user assigned IDs are not enough to support {max_pods} pods"));
    }
    Ok(())
}

fn overlap(one: IdRange, two: IdRange) -> bool {
    let end = |range: IdRange| u64::from(range.first) + u64::from(range.length);
    u64::from(one.first) < end(two) && u64::from(two.first) < end(one)
}

/// The container's ids from 0 on, users and groups alike.
fn mappings(range: IdRange) -> IdMappings {
    let mapping = IdMapping { host_id: range.first, container_id: 0, length: range.length };
    IdMappings { uids: vec![mapping], gids: vec![mapping] }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    uid_mappings: Vec<FileMapping>,
    gid_mappings: Vec<FileMapping>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct FileMapping {
    host_id: u32,
    container_id: u32,
    length: u32,
}

/// The content of the pod's file.
#[must_use]
pub fn file_content(mappings: &IdMappings) -> String {
    let of = |side: &[IdMapping]| {
        side.iter()
            .map(|m| FileMapping { host_id: m.host_id, container_id: m.container_id, length: m.length })
            .collect()
    };
    let file = File { uid_mappings: of(&mappings.uids), gid_mappings: of(&mappings.gids) };
    // Lists of numbers can always be written as JSON; an empty file would count as unreadable, which is safe.
    serde_json::to_string(&file).unwrap_or_default()
}

fn parse_file(text: &str) -> Result<IdRange, String> {
    let file: File = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let ([uids], [gids]) = (&file.uid_mappings[..], &file.gid_mappings[..]) else {
        return Err("there must be exactly one mapping of UIDs and one of GIDs".to_owned());
    };
    if uids != gids {
        return Err("GID and UID mapping should be identical".to_owned());
    }
    if uids.container_id != 0 {
        return Err("UID 0 must be mapped".to_owned());
    }
    if uids.length == 0 || uids.host_id.checked_add(uids.length).is_none() {
        return Err(format!("there are no {} ids from {} on", uids.length, uids.host_id));
    }
    Ok(IdRange { first: uids.host_id, length: uids.length })
}

#[cfg(test)]
mod tests;
