//! The node lease, the heartbeat of the node (docs/behaviour/node-status.md): which API call comes next.
//!
//! Owns: which call comes next and when. Never: making the call. The lease is left to expire when the kubelet stops.

use std::time::Duration;

use base_core::node_owner::owner_reference;
use model::k8s::{Lease, LeaseSpec, MicroTime, ObjectMeta};
use model::{MonoTime, Now};

use api_core::retry::compute_retry_delay;

/// Where the leases of nodes are kept.
pub const LEASE_NAMESPACE: &str = "kube-node-lease";
/// Number of immediate attempts to renew before the next period.
const RENEW_ATTEMPTS: u32 = 5;
const FIRST_DELAY: Duration = Duration::from_millis(100);
const MAX_DELAY: Duration = Duration::from_secs(7);
/// The least delay after a renewal that the server refused.
const REFUSED_DELAY: Duration = Duration::from_secs(1);
/// The share of the period by which a renewal may come late.
const JITTER: f64 = 0.04;

/// What to do about the lease.
#[derive(Clone, Debug, PartialEq)]
pub enum LeaseStep {
    Get,
    Create(Box<Lease>),
    /// Replaces the lease if its resource version is still the known one.
    Update(Box<Lease>),
    Wait {
        until: MonoTime,
    },
}

/// The API's answer to the last step.
#[derive(Clone, Debug, PartialEq)]
pub enum LeaseAnswer {
    /// The current lease: read, created or updated.
    Lease(Box<Lease>),
    NotFound,
    /// The lease was changed since it was read, or another client created it.
    Conflict,
    /// The server is overloaded: it asks for no request before this much time has passed.
    Refused {
        retry_after: Duration,
    },
    /// Any other error; the request may have been executed.
    Failed,
}

/// State of the lease of one node.
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
    /// The lease is unknown and is read, but not before `due`.
    Reading { due: MonoTime, delay: Duration },
    /// The lease does not exist.
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
            stage: Stage::Reading { due: MonoTime::ZERO, delay: Duration::ZERO },
            failures: 0,
        }
    }

    /// The next step. `node_uid` is known once the Node was read: it becomes the owner, so that the lease is deleted with
    /// the Node.
    #[must_use]
    pub fn next(&self, node_uid: Option<&str>, now: Now) -> LeaseStep {
        match (self.stage, &self.latest) {
            (Stage::Renewed { due } | Stage::Reading { due, .. }, _) if now.mono < due => {
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
            (Stage::Renewed { .. } | Stage::Renewing { .. }, None) | (Stage::Reading { .. }, _) => {
                LeaseStep::Get
            }
        }
    }

    /// Handles the answer to the step that [`NodeLease::next`] returned. `random` is from 0 to 1. Returns true if
    /// connections to the API may be dead and should be reopened.
    pub fn record(&mut self, step: &LeaseStep, answer: LeaseAnswer, random: f64, now: MonoTime) -> bool {
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
            // Another client wrote it in the meantime: read it again.
            (LeaseStep::Create(_) | LeaseStep::Update(_), LeaseAnswer::Conflict | LeaseAnswer::NotFound) => {
                self.stage = Stage::Reading { due: now, delay: self.delay() };
            }
            (LeaseStep::Update(_), LeaseAnswer::Failed) => return self.record_failed_renewal(random, now),
            (LeaseStep::Update(_), LeaseAnswer::Refused { retry_after }) => {
                // A heartbeat for each period is what the server has to bear, because without one the node counts as lost.
                let delay = compute_retry_delay(REFUSED_DELAY, Some(retry_after), random);
                self.failures = self.failures.saturating_add(1);
                self.stage = Stage::Renewed { due: now + delay.min(self.period(random)) };
            }
            (LeaseStep::Get | LeaseStep::Create(_), LeaseAnswer::Refused { retry_after }) => {
                let delay = (self.delay() * 2).clamp(FIRST_DELAY, MAX_DELAY);
                let due =
                    now + compute_retry_delay(delay, Some(retry_after), random).min(self.period(random));
                self.stage = Stage::Reading { due, delay };
            }
            (LeaseStep::Get, LeaseAnswer::Conflict | LeaseAnswer::Failed)
            | (LeaseStep::Create(_), LeaseAnswer::Failed) => {
                let delay = (self.delay() * 2).clamp(FIRST_DELAY, MAX_DELAY);
                self.stage = Stage::Reading { due: now + delay, delay };
            }
        }
        false
    }

    fn record_failed_renewal(&mut self, random: f64, now: MonoTime) -> bool {
        let failed = match self.stage {
            Stage::Renewing { failed } => failed + 1,
            Stage::Renewed { .. } | Stage::Reading { .. } | Stage::Creating { .. } => 1,
        };
        self.failures = self.failures.saturating_add(1);
        self.stage = if failed < RENEW_ATTEMPTS {
            Stage::Renewing { failed }
        } else {
            Stage::Renewed { due: now + self.period(random) }
        };
        self.failures > 1
    }

    /// The back-off reached while reading; zero otherwise.
    const fn delay(&self) -> Duration {
        match self.stage {
            Stage::Reading { delay, .. } | Stage::Creating { delay } => delay,
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
            owners.push(owner_reference(&self.node, uid));
        }
        if owners.is_empty() {
            lease.metadata.owner_references = None;
        }
        lease
    }
}

#[cfg(test)]
mod tests;
