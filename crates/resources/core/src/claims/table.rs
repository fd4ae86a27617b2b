//! The ResourceClaims that are prepared on this node, or may be: which pods use them, and what each driver returned.
//!
//! ```text
//! begin_prepare    --> batches --> NodePrepareResources of each driver   --> prepared   --> end
//! begin_unprepare  --> batches --> NodeUnprepareResources of each driver --> unprepared --> end
//! ```
//! A claim is busy between `begin_*` and `end_*`: nothing else is begun for it. A pod's reference is in the table before the first call,
//! and leaves it only after the last one has succeeded, so whatever happens in between is undone.

use std::collections::{BTreeMap, BTreeSet};

use model::PodUid;
use model::dra::{ClaimAnswers, ClaimDevice, ClaimId, DeviceKey};

/// The claims of one call, by driver.
pub type Batches = BTreeMap<String, Vec<ClaimId>>;

/// A claim that a pod may use, with the drivers of its devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocatedClaim {
    pub id: ClaimId,
    pub drivers: BTreeSet<String>,
}

/// Result of [`ClaimTable::begin_prepare`] and [`ClaimTable::begin_unprepare`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Begin {
    /// Another operation on one of the claims is under way. Nothing was changed.
    Busy,
    /// The calls to make, possibly none.
    Ready(Batches),
}

/// Another claim had the name before, and pods that used it are not cleaned up yet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "old ResourceClaim with same name {name} and different UID {uid} still exists (previous pod force-deleted?!)"
)]
pub struct OldClaim {
    pub name: String,
    pub uid: String,
}

/// Why the answer of a driver is not a success. The messages are those of the Go kubelet; `method` is that of the call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    #[error("{method} returned result for unknown claim UID {uid}")]
    Unknown { method: &'static str, uid: String },
    #[error("{method} failed for ResourceClaim {claim}: {message}")]
    Failed { method: &'static str, claim: String, message: String },
    #[error("{method} skipped {count} ResourceClaims")]
    Skipped { method: &'static str, count: usize },
}

pub const PREPARE: &str = "NodePrepareResources";
pub const UNPREPARE: &str = "NodeUnprepareResources";

/// Namespace and name.
type Key = (String, String);

/// What one driver has done for a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriverState {
    pub devices: Vec<ClaimDevice>,
    /// By a call of this process: a file of an earlier one proves nothing, because the node may have rebooted since.
    pub is_prepared: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    pub uid: String,
    pub pods: BTreeSet<PodUid>,
    /// A driver is in it until it has unprepared the claim.
    pub drivers: BTreeMap<String, DriverState>,
    is_busy: bool,
    /// The runtime did not find a device of the claim.
    is_unresolved: bool,
}

impl Entry {
    /// Of an earlier process.
    pub(super) const fn restored(
        uid: String,
        pods: BTreeSet<PodUid>,
        drivers: BTreeMap<String, DriverState>,
    ) -> Self {
        Self { uid, pods, drivers, is_busy: false, is_unresolved: false }
    }

    /// An operation of a driver is under way.
    #[must_use]
    pub const fn is_busy(&self) -> bool {
        self.is_busy
    }

    #[must_use]
    pub fn is_prepared(&self) -> bool {
        self.drivers.values().all(|driver| driver.is_prepared)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimTable {
    claims: BTreeMap<Key, Entry>,
}

fn key(id: &ClaimId) -> Key {
    (id.namespace.clone(), id.name.clone())
}

/// The request of the claim that a request of a device is for.
pub(super) fn base(request: &str) -> &str {
    request.split_once('/').map_or(request, |(request, _)| request)
}

fn id(key: &Key, entry: &Entry) -> ClaimId {
    ClaimId { namespace: key.0.clone(), name: key.1.clone(), uid: entry.uid.clone() }
}

impl ClaimTable {
    /// With a claim of an earlier process.
    pub(super) fn restore(&mut self, id: &ClaimId, entry: Entry) {
        self.claims.insert(key(id), entry);
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.claims.is_empty()
    }

    pub fn claims(&self) -> impl Iterator<Item = (ClaimId, &Entry)> {
        self.claims.iter().map(|(key, entry)| (id(key, entry), entry))
    }

    /// Whether the pod refers to a claim.
    #[must_use]
    pub fn is_used_by(&self, pod: &PodUid) -> bool {
        self.claims.values().any(|entry| entry.pods.contains(pod))
    }

    /// Every pod that refers to a claim.
    #[must_use]
    pub fn pods(&self) -> BTreeSet<PodUid> {
        self.claims.values().flat_map(|entry| entry.pods.iter().cloned()).collect()
    }

    /// The pods whose claims have one of these devices of the driver.
    #[must_use]
    pub fn pods_with(&self, driver: &str, devices: &BTreeSet<DeviceKey>) -> BTreeSet<PodUid> {
        let is_one = |device: &ClaimDevice| devices.contains(&device.key());
        let has_one =
            |entry: &&Entry| entry.drivers.get(driver).is_some_and(|state| state.devices.iter().any(is_one));
        self.claims.values().filter(has_one).flat_map(|entry| entry.pods.iter().cloned()).collect()
    }

    /// Whether one of the pod's claims must be prepared again before a container starts with it.
    #[must_use]
    pub fn is_unresolved(&self, pod: &PodUid) -> bool {
        self.claims.values().any(|entry| entry.is_unresolved && entry.pods.contains(pod))
    }

    /// The devices of the claim that serve the request, or all of them without one; `None` if the claim is not known here. Each device
    /// comes with its driver. One for a subrequest `request/sub` of a prioritized list serves the request.
    #[must_use]
    pub fn devices(
        &self,
        namespace: &str,
        name: &str,
        request: Option<&str>,
    ) -> Option<Vec<(&str, &ClaimDevice)>> {
        let entry = self.claims.get(&(namespace.to_owned(), name.to_owned()))?;
        let serves = |device: &ClaimDevice| {
            request.is_none_or(|request| {
                device.requests.is_empty() || device.requests.iter().any(|served| base(served) == request)
            })
        };
        let all = entry
            .drivers
            .iter()
            .flat_map(|(driver, state)| state.devices.iter().map(move |device| (driver.as_str(), device)));
        Some(all.filter(|(_, device)| serves(device)).collect())
    }

    /// The number of prepared claims, by driver and in all.
    #[must_use]
    pub fn counts(&self) -> (BTreeMap<&str, u64>, u64) {
        let (mut by_driver, mut all) = (BTreeMap::new(), 0);
        for entry in self.claims.values().filter(|entry| entry.is_prepared()) {
            all += 1;
            for driver in entry.drivers.keys() {
                *by_driver.entry(driver.as_str()).or_default() += 1;
            }
        }
        (by_driver, all)
    }

    /// The pod uses these claims from now on. Returns what drivers have to prepare.
    ///
    /// # Errors
    /// An older claim of the same name is still here. Nothing was changed.
    pub fn begin_prepare(&mut self, pod: &PodUid, wanted: &[AllocatedClaim]) -> Result<Begin, OldClaim> {
        let mut is_busy = false;
        for claim in wanted {
            let Some(entry) = self.claims.get(&key(&claim.id)) else { continue };
            if entry.uid != claim.id.uid {
                return Err(OldClaim { name: claim.id.name.clone(), uid: entry.uid.clone() });
            }
            is_busy |= entry.is_busy;
        }
        if is_busy {
            return Ok(Begin::Busy);
        }
        let mut batches = Batches::new();
        for claim in wanted {
            let entry = self.claims.entry(key(&claim.id)).or_default();
            entry.uid.clone_from(&claim.id.uid);
            entry.pods.insert(pod.clone());
            for driver in &claim.drivers {
                entry.drivers.entry(driver.clone()).or_default();
            }
            for (driver, state) in &mut entry.drivers {
                state.is_prepared &= !entry.is_unresolved;
                if !state.is_prepared {
                    entry.is_busy = true;
                    batches.entry(driver.clone()).or_default().push(claim.id.clone());
                }
            }
        }
        Ok(Begin::Ready(batches))
    }

    /// The pod has ended: its references to claims that other pods use are removed. Returns what drivers have to unprepare.
    pub fn begin_unprepare(&mut self, pod: &PodUid) -> Begin {
        let own = || self.claims.values().filter(|entry| entry.pods.contains(pod));
        if own().any(|entry| entry.is_busy) {
            return Begin::Busy;
        }
        let mut batches = Batches::new();
        for (key, entry) in self.claims.iter_mut().filter(|(_, entry)| entry.pods.contains(pod)) {
            if entry.pods.len() > 1 {
                entry.pods.remove(pod);
                continue;
            }
            entry.is_busy = true;
            let claim = id(key, entry);
            for (driver, state) in &mut entry.drivers {
                // A call that fails may have happened.
                state.is_prepared = false;
                batches.entry(driver.clone()).or_default().push(claim.clone());
            }
        }
        Begin::Ready(batches)
    }

    /// Records what a driver returned about the claims it was called for.
    ///
    /// # Errors
    /// Some claim is not prepared. Those that are prepared are recorded all the same.
    pub fn prepared(
        &mut self,
        driver: &str,
        asked: &[ClaimId],
        answers: ClaimAnswers<Vec<ClaimDevice>>,
    ) -> Result<(), AnswerError> {
        evaluate(PREPARE, asked, answers, |claim, devices| {
            if let Some(entry) = self.entry_of(claim) {
                entry.drivers.insert(driver.to_owned(), DriverState { devices, is_prepared: true });
                if entry.is_prepared() {
                    entry.is_unresolved = false;
                }
            }
        })
    }

    /// The same after an unprepare: the driver has nothing to do with those claims any more.
    ///
    /// # Errors
    /// Some claim is not unprepared.
    pub fn unprepared(
        &mut self,
        driver: &str,
        asked: &[ClaimId],
        answers: ClaimAnswers<()>,
    ) -> Result<(), AnswerError> {
        evaluate(UNPREPARE, asked, answers, |claim, ()| {
            if let Some(entry) = self.entry_of(claim) {
                entry.drivers.remove(driver);
            }
        })
    }

    /// The unprepare for the pod has ended: claims that no driver has to do with any more are forgotten.
    pub fn end_unprepare(&mut self, pod: &PodUid) {
        let is_own = |entry: &Entry| entry.pods.len() == 1 && entry.pods.contains(pod);
        self.claims.retain(|_, entry| !(is_own(entry) && entry.is_busy && entry.drivers.is_empty()));
        for entry in self.claims.values_mut().filter(|entry| is_own(entry)) {
            entry.is_busy = false;
        }
    }

    /// The prepare has ended for which these claims were in the batches. Others of the pod may be busy with another operation.
    pub fn end_prepare<'a>(&mut self, claims: impl IntoIterator<Item = &'a ClaimId>) {
        for claim in claims {
            if let Some(entry) = self.entry_of(claim) {
                entry.is_busy = false;
            }
        }
    }

    /// The runtime did not find a device of some claim of the pod: they are prepared again before its next container starts.
    pub fn set_unresolved(&mut self, pod: &PodUid) {
        for entry in self.claims.values_mut().filter(|entry| entry.pods.contains(pod)) {
            entry.is_unresolved = true;
        }
    }

    fn entry_of(&mut self, claim: &ClaimId) -> Option<&mut Entry> {
        self.claims.get_mut(&key(claim)).filter(|entry| entry.uid == claim.uid)
    }
}

/// Applies each success; returns the first failure.
fn evaluate<T>(
    method: &'static str,
    asked: &[ClaimId],
    answers: ClaimAnswers<T>,
    mut apply: impl FnMut(&ClaimId, T),
) -> Result<(), AnswerError> {
    let mut failure = None;
    let skipped = asked.len().saturating_sub(answers.len());
    for (uid, answer) in answers {
        let claim = asked.iter().find(|claim| claim.uid == uid);
        let error = match (claim, answer) {
            (None, _) => AnswerError::Unknown { method, uid },
            (Some(claim), Err(message)) => AnswerError::Failed { method, claim: claim.name.clone(), message },
            (Some(claim), Ok(value)) => {
                apply(claim, value);
                continue;
            }
        };
        failure.get_or_insert(error);
    }
    match failure {
        Some(failure) => Err(failure),
        None if skipped > 0 => Err(AnswerError::Skipped { method, count: skipped }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
