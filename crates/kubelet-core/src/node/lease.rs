//! The node's lease, the sign that it lives (docs/behaviour/node-status.md): what to ask of the API next.
//!
//! Owns: which call comes next and when. Never: making the call. The lease is left to expire when the kubelet stops.

use std::time::Duration;

use model::k8s::{Lease, LeaseSpec, MicroTime, ObjectMeta, OwnerReference};
use model::{MonoTime, Now};

/// Where the leases of nodes are kept.
pub const LEASE_NAMESPACE: &str = "kube-node-lease";
/// So many attempts to renew follow each other at once before the next period is waited for.
const RENEW_ATTEMPTS: u32 = 5;
const FIRST_DELAY: Duration = Duration::from_millis(100);
const LONGEST_DELAY: Duration = Duration::from_secs(7);
/// The share of the period by which a renewal may come late.
const JITTER: f64 = 0.04;

/// What to do about the lease.
#[derive(Clone, Debug, PartialEq)]
pub enum LeaseStep {
    Get,
    Create(Box<Lease>),
    /// Replaces the lease, provided it is still the version we know.
    Update(Box<Lease>),
    Wait {
        until: MonoTime,
    },
}

/// What the API said to the last step.
#[derive(Clone, Debug, PartialEq)]
pub enum LeaseAnswer {
    /// The lease as it is now: read, created or updated.
    Lease(Box<Lease>),
    NotFound,
    /// It changed since we read it, or somebody else created it.
    Conflict,
    /// Anything else; the call may have happened.
    Failed,
}

/// Where the lease of one node stands.
#[derive(Clone, Debug)]
pub struct NodeLease {
    node: String,
    duration_seconds: i32,
    latest: Option<Lease>,
    stage: Stage,
    /// Heartbeats that failed since the last one that got through.
    failures: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing to do before `due`.
    Renewed { due: MonoTime },
    /// Renewing what we know; so many attempts have failed.
    Renewing { failed: u32 },
    /// We do not know the lease and look for it, not before `due`.
    Looking { due: MonoTime, delay: Duration },
    /// There is none.
    Creating { delay: Duration },
}

impl NodeLease {
    /// `duration_seconds` is `nodeLeaseDurationSeconds`.
    #[must_use]
    pub fn new(node: &str, duration_seconds: i32) -> Self {
        Self {
            node: node.to_owned(),
            duration_seconds,
            latest: None,
            stage: Stage::Looking { due: MonoTime::ZERO, delay: Duration::ZERO },
            failures: 0,
        }
    }

    /// The next step. `node_uid` is known once the Node was seen: the lease then goes away with it.
    #[must_use]
    pub fn next(&self, node_uid: Option<&str>, now: Now) -> LeaseStep {
        match (self.stage, &self.latest) {
            (Stage::Renewed { due } | Stage::Looking { due, .. }, _) if now.mono < due => {
                LeaseStep::Wait { until: due }
            }
            (Stage::Renewed { .. } | Stage::Renewing { .. }, Some(latest)) => {
                LeaseStep::Update(Box::new(self.renewed(latest.clone(), node_uid, now)))
            }
            (Stage::Creating { .. }, _) => {
                let meta = ObjectMeta {
                    name: Some(self.node.clone()),
                    namespace: Some(LEASE_NAMESPACE.to_owned()),
                    ..ObjectMeta::default()
                };
                let lease = Lease { metadata: meta, spec: None };
                LeaseStep::Create(Box::new(self.renewed(lease, node_uid, now)))
            }
            (Stage::Renewed { .. } | Stage::Renewing { .. }, None) | (Stage::Looking { .. }, _) => {
                LeaseStep::Get
            }
        }
    }

    /// Takes the answer to the step that [`NodeLease::next`] named. `random` is from 0 to 1. True: connections to the
    /// API may be dead without knowing it, and should be opened again.
    pub fn note(&mut self, step: &LeaseStep, answer: LeaseAnswer, random: f64, now: MonoTime) -> bool {
        match (step, answer) {
            (LeaseStep::Wait { .. }, _) => return false,
            (LeaseStep::Get, LeaseAnswer::Lease(lease)) => {
                self.latest = Some(*lease);
                self.stage = Stage::Renewing { failed: 0 };
            }
            (LeaseStep::Get, LeaseAnswer::NotFound) => {
                self.latest = None;
                self.stage = Stage::Creating { delay: self.delay() };
            }
            (LeaseStep::Create(_) | LeaseStep::Update(_), LeaseAnswer::Lease(lease)) => {
                self.latest = Some(*lease);
                self.stage = Stage::Renewed { due: now + self.period(random) };
                self.failures = 0;
            }
            // Somebody wrote it meanwhile: read it, and go on from there.
            (LeaseStep::Create(_) | LeaseStep::Update(_), LeaseAnswer::Conflict | LeaseAnswer::NotFound) => {
                self.stage = Stage::Looking { due: now, delay: self.delay() };
            }
            (LeaseStep::Update(_), LeaseAnswer::Failed) => return self.note_failed_renewal(random, now),
            (LeaseStep::Get, LeaseAnswer::Conflict | LeaseAnswer::Failed)
            | (LeaseStep::Create(_), LeaseAnswer::Failed) => {
                let delay = (self.delay() * 2).clamp(FIRST_DELAY, LONGEST_DELAY);
                self.stage = Stage::Looking { due: now + delay, delay };
            }
        }
        false
    }

    fn note_failed_renewal(&mut self, random: f64, now: MonoTime) -> bool {
        let failed = match self.stage {
            Stage::Renewing { failed } => failed + 1,
            Stage::Renewed { .. } | Stage::Looking { .. } | Stage::Creating { .. } => 1,
        };
        self.failures = self.failures.saturating_add(1);
        self.stage = if failed < RENEW_ATTEMPTS {
            Stage::Renewing { failed }
        } else {
            Stage::Renewed { due: now + self.period(random) }
        };
        self.failures > 1
    }

    /// The delay reached while looking; none otherwise.
    const fn delay(&self) -> Duration {
        match self.stage {
            Stage::Looking { delay, .. } | Stage::Creating { delay } => delay,
            Stage::Renewed { .. } | Stage::Renewing { .. } => Duration::ZERO,
        }
    }

    fn period(&self, random: f64) -> Duration {
        let seconds = f64::from(self.duration_seconds.max(1));
        Duration::from_secs_f64(seconds / 4.0 * (1.0 + JITTER * random.clamp(0.0, 1.0)))
    }

    fn renewed(&self, mut lease: Lease, node_uid: Option<&str>, now: Now) -> Lease {
        let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
        spec.holder_identity = Some(self.node.clone());
        spec.lease_duration_seconds = Some(self.duration_seconds);
        spec.renew_time = Some(MicroTime(now.wall));
        let owners = lease.metadata.owner_references.get_or_insert_default();
        if let Some(uid) = node_uid.filter(|_| owners.is_empty()) {
            owners.push(OwnerReference {
                api_version: "v1".to_owned(),
                kind: "Node".to_owned(),
                name: self.node.clone(),
                uid: uid.to_owned(),
                ..OwnerReference::default()
            });
        }
        if owners.is_empty() {
            lease.metadata.owner_references = None;
        }
        lease
    }
}

#[cfg(test)]
mod tests;
