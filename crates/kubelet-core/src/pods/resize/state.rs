//! How far the resize of a pod has come, as its conditions `PodResizePending` and `PodResizeInProgress` show it.

use std::borrow::Cow;

use jiff::Timestamp;
use model::k8s::{PodCondition, PodStatus, Time};

use super::accept::DEFERRED;

pub const PENDING: &str = "PodResizePending";
pub const IN_PROGRESS: &str = "PodResizeInProgress";
/// The reason of the condition `PodResizeInProgress` after a failed attempt.
const FAILED: &str = "Error";

/// A condition that is true while the pod has it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stage {
    reason: Cow<'static, str>,
    message: String,
    /// The generation of the pod that requested the resources.
    generation: i64,
    since: Timestamp,
    /// The last change of anything in it.
    changed: Timestamp,
}

/// Both may be there at once: a resize is under way, and the next one waits. Boxed, because most pods are never resized.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResizeState {
    pending: Option<Box<Stage>>,
    in_progress: Option<Box<Stage>>,
}

impl ResizeState {
    /// What an earlier kubelet reported.
    #[must_use]
    pub fn of_status(status: &PodStatus) -> Self {
        let stage = |kind: &str| {
            let condition = status.conditions.iter().flatten().find(|c| c.type_ == kind)?;
            let since = condition.last_transition_time.as_ref()?.0;
            Some(Box::new(Stage {
                reason: Cow::Owned(condition.reason.clone().unwrap_or_default()),
                message: condition.message.clone().unwrap_or_default(),
                generation: condition.observed_generation.unwrap_or_default(),
                since,
                changed: condition.last_probe_time.as_ref().map_or(since, |time| time.0),
            }))
        };
        Self { pending: stage(PENDING), in_progress: stage(IN_PROGRESS) }
    }

    /// The resize waits, or is never carried out. Returns whether an event is due: the first time, for another reason, and
    /// for another request.
    pub fn wait(&mut self, reason: &'static str, message: String, generation: i64, now: Timestamp) -> bool {
        let before = self.pending.take();
        let is_same = before.as_ref().is_some_and(|before| before.reason == reason);
        let is_event_due = !is_same || before.as_ref().is_some_and(|before| before.generation != generation);
        self.pending = Some(changed(before, Cow::Borrowed(reason), message, generation, now));
        is_event_due
    }

    /// Nothing waits any more.
    pub fn stop_waiting(&mut self) {
        self.pending = None;
    }

    #[must_use]
    pub fn is_deferred(&self) -> bool {
        self.pending.as_ref().is_some_and(|stage| stage.reason == DEFERRED)
    }

    /// `Infeasible` or `Deferred`, if a resize waits.
    #[must_use]
    pub fn waits_for(&self) -> Option<&str> {
        self.pending.as_ref().map(|stage| &*stage.reason)
    }

    #[must_use]
    pub fn waits_since(&self) -> Option<Timestamp> {
        self.pending.as_ref().map(|stage| stage.since)
    }

    #[must_use]
    pub const fn is_in_progress(&self) -> bool {
        self.in_progress.is_some()
    }

    /// The resources are allocated.
    pub fn begin(&mut self, generation: i64, now: Timestamp) {
        self.pending = None;
        self.in_progress = Some(changed(None, Cow::Borrowed(""), String::new(), generation, now));
    }

    /// Something runs with other resources than are allocated: so it is if an earlier kubelet did not finish.
    pub fn record_in_progress(&mut self, generation: i64, now: Timestamp) {
        if self.in_progress.is_none() {
            self.in_progress = Some(changed(None, Cow::Borrowed(""), String::new(), generation, now));
        }
    }

    /// An attempt failed. Returns the generation of the request if an event is due.
    pub fn fail(&mut self, message: String, generation: i64, now: Timestamp) -> Option<i64> {
        let before = self.in_progress.take();
        let generation = before.as_ref().map_or(generation, |before| before.generation);
        let is_same = before.as_ref().is_some_and(|b| b.reason == FAILED && b.message == message);
        self.in_progress = Some(changed(before, Cow::Borrowed(FAILED), message, generation, now));
        (!is_same).then_some(generation)
    }

    /// Everything runs with what is allocated. Returns the generation of a resize that this completes.
    pub fn complete(&mut self) -> Option<i64> {
        self.in_progress.take().map(|stage| stage.generation)
    }

    /// The pod has ended.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// The conditions, in the order of the Go kubelet.
    pub fn conditions(&self) -> impl Iterator<Item = PodCondition> + '_ {
        let both = [(PENDING, &self.pending), (IN_PROGRESS, &self.in_progress)];
        both.into_iter().filter_map(|(kind, stage)| Some(condition(kind, stage.as_ref()?)))
    }
}

fn changed(
    before: Option<Box<Stage>>,
    reason: Cow<'static, str>,
    message: String,
    generation: i64,
    now: Timestamp,
) -> Box<Stage> {
    let since = before.as_ref().filter(|before| before.reason == reason).map_or(now, |before| before.since);
    let stage = Stage { reason, message, generation, since, changed: now };
    // A condition in which nothing changes is not written again.
    match before {
        Some(before) if (Stage { changed: before.changed, ..stage.clone() }) == *before => before,
        _ => Box::new(stage),
    }
}

fn condition(kind: &str, stage: &Stage) -> PodCondition {
    let seconds = |time: Timestamp| Time(Timestamp::from_second(time.as_second()).unwrap_or(time));
    PodCondition {
        type_: kind.to_owned(),
        status: "True".to_owned(),
        reason: (!stage.reason.is_empty()).then(|| stage.reason.clone().into_owned()),
        message: (!stage.message.is_empty()).then(|| stage.message.clone()),
        last_transition_time: Some(seconds(stage.since)),
        last_probe_time: Some(seconds(stage.changed)),
        observed_generation: (stage.generation > 0).then_some(stage.generation),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::accept::INFEASIBLE;
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn shown(state: &ResizeState) -> Value {
        json!(state.conditions().collect::<Vec<_>>())
    }

    #[test]
    fn resize_that_waits_has_an_event_for_each_reason_and_request() {
        let mut state = ResizeState::default();
        let mut wait = |reason, message: &str, generation, second| {
            state.wait(reason, message.to_owned(), generation, at(second))
        };
        assert!(wait(DEFERRED, "no cpu", 2, 1));
        assert!(!wait(DEFERRED, "no cpu", 2, 2), "nothing changes");
        assert!(!wait(DEFERRED, "no memory", 2, 3), "only the message changes");
        assert!(wait(DEFERRED, "no memory", 3, 4));
        assert!(wait(INFEASIBLE, "never", 3, 5));
        assert_eq!(
            shown(&state),
            json!([{
                "type": "PodResizePending", "status": "True", "reason": "Infeasible", "message": "never",
                "observedGeneration": 3, "lastTransitionTime": "1970-01-01T00:00:05Z",
                "lastProbeTime": "1970-01-01T00:00:05Z",
            }])
        );
    }

    #[test]
    fn condition_in_which_nothing_changes_stays_as_it_was() {
        let mut state = ResizeState::default();
        state.wait(DEFERRED, "no cpu".to_owned(), 2, at(1));
        state.record_in_progress(1, at(1));
        state.fail("busy".to_owned(), 1, at(1));
        let before = state.clone();
        state.wait(DEFERRED, "no cpu".to_owned(), 2, at(60));
        state.record_in_progress(2, at(60));
        assert_eq!(state.fail("busy".to_owned(), 2, at(60)), None);
        assert_eq!(state, before);
    }

    /// The condition is that of the recorded pod `resized`.
    #[test]
    fn resize_in_progress_keeps_its_generation_until_it_is_complete() {
        let mut state = ResizeState::default();
        state.wait(DEFERRED, "no cpu".to_owned(), 2, at(1));
        state.begin(2, at(5));
        assert_eq!(
            shown(&state),
            json!([{
                "type": "PodResizeInProgress", "status": "True", "observedGeneration": 2,
                "lastTransitionTime": "1970-01-01T00:00:05Z", "lastProbeTime": "1970-01-01T00:00:05Z",
            }])
        );
        assert_eq!(state.fail("busy".to_owned(), 3, at(6)), Some(2));
        assert_eq!(state.fail("very busy".to_owned(), 3, at(7)), Some(2));
        assert_eq!(state.complete(), Some(2));
        assert_eq!((state.complete(), shown(&state)), (None, json!([])));
    }

    #[test]
    fn conditions_of_an_earlier_kubelet_are_taken_over() {
        let mut state = ResizeState::default();
        state.begin(2, at(1));
        state.wait(DEFERRED, "no cpu".to_owned(), 3, at(2));
        let status = PodStatus { conditions: Some(state.conditions().collect()), ..PodStatus::default() };
        assert_eq!(ResizeState::of_status(&status), state);
        assert_eq!(ResizeState::of_status(&PodStatus::default()), ResizeState::default());
    }
}
