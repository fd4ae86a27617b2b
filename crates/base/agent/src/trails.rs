//! What the pods of this node went through, and the last pods that are gone: recorded by all tasks, shown at the local socket.
//!
//! In memory only. After a restart the trail of a pod begins with what the runtime and its last status have of earlier times.

use std::collections::BTreeMap;
use std::sync::Arc;

use base_core::trail::{NewStep, RestoredStep, Trail};
use base_core::waits::DueWait;
use jiff::Timestamp;
use model::explain::TrailStep;
use model::{PodRef, PodUid};
use parking_lot::Mutex;
use ports::Clock;

/// Pods that are gone and still known.
const MAX_GONE: usize = 100;
/// Separates the fields of a pod that is gone; no name has it.
const FIELD: char = '\t';

/// Shared by all tasks; every access is short.
#[derive(Clone, Debug)]
pub struct PodTrails {
    clock: Clock,
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    pods: BTreeMap<PodUid, PodTrail>,
    /// The events about the node, and about PersistentVolumes, whose names are in the place of a container's.
    node: Trail,
    /// A line for each pod, oldest first. One text, because a hundred small pieces between what was freed would keep their pages.
    gone: String,
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
}

impl GonePod {
    fn line(&self) -> String {
        let Self { identity: PodRef { namespace, name, uid }, gone_at, last_phase } = self;
        let last_phase = last_phase.replace([FIELD, '\n'], " ");
        format!("{gone_at}{FIELD}{namespace}{FIELD}{name}{FIELD}{uid}{FIELD}{last_phase}\n")
    }

    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.splitn(5, FIELD);
        let gone_at = fields.next()?.parse().ok()?;
        let (namespace, name, uid) = (fields.next()?, fields.next()?, fields.next()?);
        let last_phase = fields.next()?.to_owned();
        Some(Self { identity: PodRef::new(namespace, name, uid), gone_at, last_phase })
    }
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
        if inner.pods.remove(&pod.uid).is_none() {
            return;
        }
        if inner.gone.lines().count() >= MAX_GONE {
            let first = inner.gone.find('\n').map_or(0, |end| end + 1);
            inner.gone.drain(..first);
        }
        let gone = GonePod { identity: pod.clone(), gone_at: self.clock.now().wall, last_phase };
        inner.gone.push_str(&gone.line());
    }

    pub fn record(&self, pod: &PodUid, step: &NewStep<'_>) {
        self.with(pod, |trail, now| trail.trail.record(step, now));
    }

    /// An event about the node, or about the PersistentVolume whose name the step has instead of a container's.
    pub fn record_of_node(&self, step: &NewStep<'_>) {
        let now = self.clock.now().wall;
        self.inner.lock().node.record(step, now);
    }

    /// Something begins that takes time; [`Self::end`] or [`Self::end_all`] follows.
    pub fn begin(&self, pod: &PodUid, step: &NewStep<'_>) {
        self.with(pod, |trail, now| trail.trail.begin(step, now));
    }

    pub fn end(&self, pod: &PodUid, reason: &str, container: Option<&str>) {
        self.with(pod, |trail, now| trail.trail.end(reason, container, now));
    }

    /// What was before the kubelet started, oldest first.
    pub fn restore(&self, pod: &PodUid, steps: Vec<RestoredStep>) {
        self.with(pod, |trail, _| trail.trail.restore(steps));
    }

    /// Begins the step, or ends it.
    pub fn set(&self, pod: &PodUid, reason: &'static str, is_under_way: bool) {
        match is_under_way {
            true => self.begin(pod, &NewStep::new(reason, "")),
            false => self.end(pod, reason, None),
        }
    }

    /// As [`Self::end`], for a wait that counts only if it lasted.
    pub fn end_wait(&self, pod: &PodUid, reason: &str) {
        self.with(pod, |trail, now| trail.trail.end_wait(reason, now));
    }

    /// The waits of all pods that an event should name now.
    #[must_use]
    pub fn take_due_waits(&self) -> Vec<(PodUid, DueWait)> {
        let now = self.clock.now().wall;
        let mut inner = self.inner.lock();
        let due = inner
            .pods
            .iter_mut()
            .flat_map(|(uid, pod)| pod.trail.take_due_waits(now).into_iter().map(|wait| (uid.clone(), wait)));
        due.collect()
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

    /// The events about the node and about PersistentVolumes.
    #[must_use]
    pub fn of_node(&self) -> Vec<TrailStep> {
        self.inner.lock().node.steps()
    }

    /// The last pods that are gone, oldest first.
    #[must_use]
    pub fn gone(&self) -> Vec<GonePod> {
        self.inner.lock().gone.lines().filter_map(GonePod::parse).collect()
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
    async fn the_last_hundred_pods_that_are_gone_are_known_with_their_last_phase() {
        let trails = PodTrails::new(Clock::starting_at(Timestamp::UNIX_EPOCH));
        for number in 0..120 {
            let pod = pod(&number.to_string());
            trails.open(&pod);
            trails.close(&pod, "Failed (a\tb)".to_owned());
        }
        let gone = trails.gone();
        assert_eq!((gone.len(), &*gone[0].identity.name), (MAX_GONE, "20"));
        assert_eq!((&*gone[0].identity.namespace, &*gone[0].last_phase), ("default", "Failed (a b)"));
        assert!(trails.inner.lock().pods.is_empty());
    }
}
