//! Which steps of a pod's end are under way, for its trail and for events about waits.

use base_core::pod_stage::PodStage;
use base_core::waits::{
    OVER_GRACE_PERIOD, RELEASING_RESOURCES, REMOVING_FILES, STOPPING_POD, UNPREPARING_CLAIMS,
};
use jiff::{SignedDuration, Timestamp};

use super::worker::WorkerState;

/// What is known of a pod that ends.
#[derive(Clone, Copy, Debug)]
pub struct EndFacts {
    pub stage: PodStage,
    /// When its grace period ends, while it is terminating.
    pub grace_ends: Option<Timestamp>,
    /// The runtime has shown that nothing of it runs.
    pub is_stopped: bool,
    pub has_claims: bool,
    /// No source has it: what is left of it is removed.
    pub is_removed: bool,
    pub now: Timestamp,
}

/// Each step of an end, and whether it is under way.
#[must_use]
pub fn compute_end_steps(facts: &EndFacts) -> [(&'static str, bool); 5] {
    let is_terminating = facts.stage == PodStage::Terminating;
    let runs = is_terminating && !facts.is_stopped;
    let is_over = facts.grace_ends.is_some_and(|end| end <= facts.now);
    [
        (STOPPING_POD, runs),
        (OVER_GRACE_PERIOD, runs && is_over),
        (UNPREPARING_CLAIMS, is_terminating && facts.is_stopped && facts.has_claims),
        (RELEASING_RESOURCES, facts.stage == PodStage::Terminated),
        (REMOVING_FILES, facts.stage == PodStage::Finished && facts.is_removed),
    ]
}

/// When the grace period of a terminating pod ends.
#[must_use]
pub fn grace_ends(state: &WorkerState) -> Option<Timestamp> {
    match state {
        WorkerState::Terminating(state) => {
            let grace = SignedDuration::try_from(state.grace.as_duration()).unwrap_or(SignedDuration::MAX);
            Some(state.since.checked_add(grace).unwrap_or(Timestamp::MAX))
        }
        WorkerState::Syncing(_) | WorkerState::Terminated(_) | WorkerState::Finished(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn line(stage: PodStage, is_stopped: bool, now: i64) -> String {
        let at = |second| Timestamp::from_second(second).unwrap();
        let facts = |has_claims, is_removed| EndFacts {
            stage,
            grace_ends: (stage == PodStage::Terminating).then(|| at(30)),
            is_stopped,
            has_claims,
            is_removed,
            now: at(now),
        };
        let shown = |facts| {
            let steps = compute_end_steps(&facts).into_iter().filter(|(_, is_under_way)| *is_under_way);
            steps.map(|(step, _)| step).collect::<Vec<_>>().join("+")
        };
        format!(
            "{stage:?} {} at {now}: {:?}, removed {:?}, with claims {:?}\n",
            if is_stopped { "stopped" } else { "running" },
            shown(facts(false, false)),
            shown(facts(false, true)),
            shown(facts(true, true))
        )
    }

    #[test]
    fn end_goes_from_containers_to_claims_resources_and_files() {
        let lines = [
            line(PodStage::Syncing, false, 0),
            line(PodStage::Terminating, false, 0),
            line(PodStage::Terminating, false, 30),
            line(PodStage::Terminating, true, 30),
            line(PodStage::Terminated, true, 31),
            line(PodStage::Finished, true, 32),
        ];
        expect![[r#"
            Syncing running at 0: "", removed "", with claims ""
            Terminating running at 0: "StoppingPod", removed "StoppingPod", with claims "StoppingPod"
            Terminating running at 30: "StoppingPod+OverGracePeriod", removed "StoppingPod+OverGracePeriod", with claims "StoppingPod+OverGracePeriod"
            Terminating stopped at 30: "", removed "", with claims "UnpreparingClaims"
            Terminated stopped at 31: "ReleasingResources", removed "ReleasingResources", with claims "ReleasingResources"
            Finished stopped at 32: "", removed "RemovingFiles", with claims "RemovingFiles"
        "#]]
        .assert_eq(&lines.concat());
    }
}
