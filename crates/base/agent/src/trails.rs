//! What the pods of this node went through, and the last pods that are gone: recorded by all tasks, shown at the local socket.
//!
//! In memory only. After a restart the trail of a pod begins again; what the runtime and files have of earlier times is in its status.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use base_core::trail::{NewStep, Trail};
use jiff::Timestamp;
use model::explain::TrailStep;
use model::{PodRef, PodUid};
use parking_lot::Mutex;
use ports::Clock;

/// Pods that are gone and still known.
const MAX_GONE: usize = 100;
/// Of a pod that is gone only so many of the latest steps are known.
const MAX_STEPS_OF_GONE: usize = 8;

/// Shared by all tasks; every access is short.
#[derive(Clone, Debug)]
pub struct PodTrails {
    clock: Clock,
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    pods: BTreeMap<PodUid, PodTrail>,
    gone: VecDeque<GonePod>,
}

#[derive(Debug, Default)]
struct PodTrail {
    trail: Trail,
    next_try: Option<Timestamp>,
}

/// A pod that is no longer on this node.
#[derive(Clone, Debug)]
pub struct GonePod {
    pub identity: PodRef,
    pub gone_at: Timestamp,
    /// Its last phase, with the reason if it has one.
    pub last_phase: String,
    pub steps: Vec<TrailStep>,
}

impl PodTrails {
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self { clock, inner: Arc::default() }
    }

    /// The pod is on this node from now on. What is recorded of other pods is ignored.
    pub fn open(&self, pod: &PodRef) {
        self.inner.lock().pods.entry(pod.uid.clone()).or_default();
    }

    /// The pod is no longer on this node.
    pub fn close(&self, pod: &PodRef, last_phase: String) {
        let mut inner = self.inner.lock();
        let Some(trail) = inner.pods.remove(&pod.uid) else { return };
        let mut steps = trail.trail.steps();
        steps.drain(..steps.len().saturating_sub(MAX_STEPS_OF_GONE));
        if inner.gone.len() == MAX_GONE {
            inner.gone.pop_front();
        }
        let gone_at = self.clock.now().wall;
        inner.gone.push_back(GonePod { identity: pod.clone(), gone_at, last_phase, steps });
    }

    pub fn record(&self, pod: &PodUid, step: &NewStep<'_>) {
        self.with(pod, |trail, now| trail.trail.record(step, now));
    }

    /// Something begins that takes time; [`Self::end`] or [`Self::end_all`] follows.
    pub fn begin(&self, pod: &PodUid, step: &NewStep<'_>) {
        self.with(pod, |trail, now| trail.trail.begin(step, now));
    }

    pub fn end(&self, pod: &PodUid, reason: &str, container: Option<&str>) {
        self.with(pod, |trail, now| trail.trail.end(reason, container, now));
    }

    /// Whatever was under way has ended or was cancelled; the next try is at that time, if one is planned.
    pub fn end_all(&self, pod: &PodUid, next_try: Option<Timestamp>) {
        self.with(pod, |trail, now| {
            trail.trail.end_all(now);
            trail.next_try = next_try;
        });
    }

    /// The steps of a pod on this node, and when something is tried again.
    #[must_use]
    pub fn of(&self, pod: &PodUid) -> (Vec<TrailStep>, Option<Timestamp>) {
        let inner = self.inner.lock();
        inner.pods.get(pod).map(|trail| (trail.trail.steps(), trail.next_try)).unwrap_or_default()
    }

    /// The last pods that are gone, oldest first.
    #[must_use]
    pub fn gone(&self) -> Vec<GonePod> {
        self.inner.lock().gone.iter().cloned().collect()
    }

    fn with(&self, pod: &PodUid, change: impl FnOnce(&mut PodTrail, Timestamp)) {
        let now = self.clock.now().wall;
        if let Some(trail) = self.inner.lock().pods.get_mut(pod) {
            change(trail, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(uid: &str) -> PodRef {
        PodRef::new("default", uid, uid)
    }

    #[tokio::test(start_paused = true)]
    async fn steps_of_pods_that_are_not_on_this_node_are_ignored() {
        let trails = PodTrails::new(Clock::starting_at(Timestamp::UNIX_EPOCH));
        trails.record(&"a".into(), &NewStep::new("Late", ""));
        assert!(trails.of(&"a".into()).0.is_empty() && trails.inner.lock().pods.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_hundred_pods_that_are_gone_are_known_with_their_last_steps() {
        let trails = PodTrails::new(Clock::starting_at(Timestamp::UNIX_EPOCH));
        for number in 0..120 {
            let pod = pod(&number.to_string());
            trails.open(&pod);
            for reason in ["1", "2", "3", "4", "5", "6", "7", "8", "9"] {
                trails.record(&pod.uid, &NewStep::new(reason, ""));
            }
            trails.close(&pod, "Succeeded".to_owned());
        }
        let gone = trails.gone();
        assert_eq!((gone.len(), &*gone[0].identity.name), (MAX_GONE, "20"));
        assert_eq!(gone[0].steps.first().map(|step| step.reason.as_str()), Some("2"));
        assert!(trails.inner.lock().pods.is_empty());
    }
}
