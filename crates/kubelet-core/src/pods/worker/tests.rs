//! Scenarios of the pod worker, and its invariants under any order of events.

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;
use crate::pods::fixture;
use crate::pods::fixture::start_of_test;

fn pod(deletion: Option<i64>) -> Arc<Pod> {
    let mut pod = fixture::pod("grace=30 main:a");
    pod.metadata.deletion_grace_period_seconds = deletion;
    pod.metadata.deletion_timestamp =
        deletion.map(|_| model::k8s::Time("2026-01-01T00:00:00Z".parse().unwrap()));
    Arc::new(pod)
}

fn at(seconds: u64) -> Now {
    let start = start_of_test();
    Now { wall: start.wall + Duration::from_secs(seconds), mono: start.mono + Duration::from_secs(seconds) }
}

fn show_effect(effect: &WorkerEffect) -> String {
    match effect {
        WorkerEffect::SyncPass => "sync".into(),
        WorkerEffect::TerminatePass { grace, cause, .. } => {
            format!("terminate {}s {cause:?}", grace.as_secs())
        }
        WorkerEffect::CancelAct => "cancel".into(),
        WorkerEffect::Observe => "observe".into(),
        WorkerEffect::ReleaseResources { .. } => "release".into(),
        WorkerEffect::PublishStage(stage) => format!("publish {stage:?}"),
        WorkerEffect::WakeIn(after) => format!("wake in {}s", after.as_secs()),
        WorkerEffect::Forget => "forget".into(),
        WorkerEffect::Hide => "hide".into(),
        WorkerEffect::StartAgain => "start again".into(),
    }
}

/// `Kill=5` is a kill with that grace, `Deleted=5` an API deletion; `Stopped-3` was observed three seconds ago.
fn parse(word: &str, now: Now) -> WorkerEvent {
    let (name, number) = word.split_once('=').map_or((word, None), |(name, n)| (name, n.parse().ok()));
    let (name, age) = name.split_once('-').map_or((name, 0), |(name, n)| (name, n.parse().unwrap()));
    let taken_at = now.mono - Duration::from_secs(age);
    match name {
        "Desired" => WorkerEvent::Desired(pod(None)),
        "Deleted" => WorkerEvent::Desired(pod(number)),
        "Kill" => WorkerEvent::Kill { cause: TerminationCause::Evicted, grace_override: number },
        "Removed" => WorkerEvent::Removed,
        "Stopped" => WorkerEvent::Observed { stopped: true, taken_at },
        "Alive" => WorkerEvent::Observed { stopped: false, taken_at },
        "Wake" => WorkerEvent::Wake,
        "Progressed" => WorkerEvent::ActDone(ActOutcome::Progressed),
        "Settled" => WorkerEvent::ActDone(ActOutcome::Settled),
        "Completed" => WorkerEvent::ActDone(ActOutcome::PodCompleted),
        "Failed" => WorkerEvent::ActDone(ActOutcome::Failed { retry_after: Duration::from_secs(10) }),
        "Released" => WorkerEvent::Released { ok: true },
        "NotReleased" => WorkerEvent::Released { ok: false },
        _ => panic!("{word}?"),
    }
}

/// Runs a scenario, one event a second: each line is an event and the effects of the worker.
#[track_caller]
fn check(scenario: &str, expected: Expect) {
    let (mut state, mut effects) = (None, Vec::new());
    let mut lines = Vec::new();
    for (second, word) in (0..).zip(scenario.split_whitespace()) {
        let now = at(second);
        let (next, done) = match (state.take(), word) {
            (None, "Orphan") => WorkerState::orphan(PodRef::of(&pod(None)), now),
            (None, _) => {
                let WorkerEvent::Desired(pod) = parse(word, now) else { panic!("{word} cannot be first") };
                WorkerState::new(pod, now)
            }
            (Some(state), _) => on_event(state, parse(word, now), now),
        };
        effects.clone_from(&done);
        let shown: Vec<String> = effects.iter().map(show_effect).collect();
        lines.push(format!("{word}: {}", if shown.is_empty() { "-".into() } else { shown.join(", ") }));
        state = Some(next);
    }
    expected.assert_eq(&(lines.join("\n") + "\n"));
}

#[test]
fn pod_is_synced_until_it_settles_and_again_on_changes() {
    check(
        "Desired Progressed Settled Alive Settled Wake Settled",
        expect![[r#"
        Desired: publish Syncing, sync
        Progressed: sync
        Settled: -
        Alive: sync
        Settled: -
        Wake: sync
        Settled: -
    "#]],
    );
    check(
        "Desired Alive Alive Settled Settled",
        expect![[r#"
        Desired: publish Syncing, sync
        Alive: -
        Alive: -
        Settled: sync
        Settled: -
    "#]],
    );
    check(
        "Desired Failed Wake Settled Desired Failed Released",
        expect![[r#"
        Desired: publish Syncing, sync
        Failed: wake in 10s
        Wake: sync
        Settled: -
        Desired: sync
        Failed: wake in 10s
        Released: -
    "#]],
    );
    check(
        "Desired Desired Failed Settled",
        expect![[r#"
        Desired: publish Syncing, sync
        Desired: -
        Failed: sync
        Settled: -
    "#]],
    );
}

#[test]
fn deleted_pod_terminates_in_order() {
    check(
        "Desired Settled Deleted=20 Progressed Stopped Released Removed",
        expect![[r#"
        Desired: publish Syncing, sync
        Settled: -
        Deleted=20: publish Terminating, terminate 20s Deleted
        Progressed: observe
        Stopped: publish Terminated, release
        Released: publish Finished
        Removed: forget
    "#]],
    );
    check(
        "Deleted=20 Settled Stopped Released Removed",
        expect![[r#"
        Deleted=20: publish Terminating, terminate 20s Deleted
        Settled: observe
        Stopped: publish Terminated, release
        Released: publish Finished
        Removed: forget
    "#]],
    );
    check(
        "Desired Settled Removed Settled Stopped Released",
        expect![[r#"
        Desired: publish Syncing, sync
        Settled: -
        Removed: publish Terminating, terminate 30s Removed
        Settled: observe
        Stopped: publish Terminated, release
        Released: publish Finished, forget
    "#]],
    );
    check(
        "Desired Completed Progressed Stopped Released Desired Removed Desired",
        expect![[r#"
        Desired: publish Syncing, sync
        Completed: publish Terminating, terminate 30s Completed
        Progressed: observe
        Stopped: publish Terminated, release
        Released: publish Finished
        Desired: -
        Removed: forget
        Desired: hide
    "#]],
    );
    check(
        "Orphan Progressed Stopped Released",
        expect![[r#"
        Orphan: publish Terminating, terminate 1s Orphan
        Progressed: observe
        Stopped: publish Terminated, release
        Released: publish Finished, forget
    "#]],
    );
}

#[test]
fn pass_in_flight_is_cancelled_and_awaited() {
    check(
        "Desired Kill=5 Failed Progressed Stopped",
        expect![[r#"
        Desired: publish Syncing, sync
        Kill=5: publish Terminating, cancel
        Failed: terminate 5s Evicted
        Progressed: observe
        Stopped: publish Terminated, release
    "#]],
    );
    check(
        "Desired Kill=5 Stopped Failed Stopped",
        expect![[r#"
        Desired: publish Syncing, sync
        Kill=5: publish Terminating, cancel
        Stopped: -
        Failed: terminate 5s Evicted
        Stopped: -
    "#]],
    );
}

#[test]
fn shorter_grace_period_restarts_the_kill_and_a_longer_one_is_ignored() {
    check(
        "Desired Settled Deleted=20 Kill=5 Failed Deleted=10 Kill=5 Kill Kill=1 Settled",
        expect![[r#"
        Desired: publish Syncing, sync
        Settled: -
        Deleted=20: publish Terminating, terminate 20s Deleted
        Kill=5: cancel
        Failed: terminate 5s Deleted
        Deleted=10: -
        Kill=5: -
        Kill: -
        Kill=1: cancel
        Settled: terminate 1s Deleted
    "#]],
    );
    check(
        "Desired Settled Kill=5 Settled Deleted=2",
        expect![[r#"
        Desired: publish Syncing, sync
        Settled: -
        Kill=5: publish Terminating, terminate 5s Evicted
        Settled: observe
        Deleted=2: terminate 2s Evicted
    "#]],
    );
}

#[test]
fn only_a_new_observation_proves_that_a_pod_has_stopped() {
    check(
        "Desired Settled Removed Settled Stopped-5 Alive Wake Wake Settled Stopped",
        expect![[r#"
        Desired: publish Syncing, sync
        Settled: -
        Removed: publish Terminating, terminate 30s Removed
        Settled: observe
        Stopped-5: -
        Alive: wake in 1s
        Wake: terminate 30s Removed
        Wake: -
        Settled: observe
        Stopped: publish Terminated, release
    "#]],
    );
    check(
        "Desired Settled Removed Failed Alive Wake Failed Stopped",
        expect![[r#"
        Desired: publish Syncing, sync
        Settled: -
        Removed: publish Terminating, terminate 30s Removed
        Failed: observe, wake in 10s
        Alive: wake in 1s
        Wake: terminate 30s Removed
        Failed: observe, wake in 10s
        Stopped: publish Terminated, release
    "#]],
    );
}

#[test]
fn failed_release_is_retried() {
    check(
        "Desired Settled Removed Settled Stopped NotReleased Wake Wake Kill=1 Released",
        expect![[r#"
        Desired: publish Syncing, sync
        Settled: -
        Removed: publish Terminating, terminate 30s Removed
        Settled: observe
        Stopped: publish Terminated, release
        NotReleased: wake in 1s
        Wake: release
        Wake: -
        Kill=1: -
        Released: publish Finished, forget
    "#]],
    );
}

#[test]
fn termination_that_fails_again_and_again_backs_off() {
    check(
        "Desired Settled Removed Settled Alive Wake Settled Alive Wake Wake Settled Alive Wake",
        expect![[r#"
        Desired: publish Syncing, sync
        Settled: -
        Removed: publish Terminating, terminate 30s Removed
        Settled: observe
        Alive: wake in 1s
        Wake: terminate 30s Removed
        Settled: observe
        Alive: wake in 2s
        Wake: wake in 1s
        Wake: terminate 30s Removed
        Settled: observe
        Alive: wake in 4s
        Wake: wake in 3s
    "#]],
    );
    let delays: Vec<u64> = (1..8).map(|failures| retry_after(failures).as_secs()).collect();
    assert_eq!((delays, retry_after(u32::MAX)), (vec![1, 2, 4, 8, 16, 16, 16], Duration::from_secs(16)));
}

/// The runtime carries out a call whose caller has gone.
#[test]
fn sandbox_created_after_the_pod_has_ended_is_stopped_and_released() {
    check(
        "Desired Settled Kill Settled Stopped Released Stopped Alive Alive Settled Alive Wake Settled Stopped Released Removed",
        expect![[r#"
        Desired: publish Syncing, sync
        Settled: -
        Kill: publish Terminating, terminate 30s Evicted
        Settled: observe
        Stopped: publish Terminated, release
        Released: publish Finished
        Stopped: -
        Alive: terminate 1s Evicted
        Alive: -
        Settled: observe
        Alive: wake in 1s
        Wake: terminate 1s Evicted
        Settled: observe
        Stopped: release
        Released: -
        Removed: forget
    "#]],
    );
    check(
        "Desired Settled Kill Settled Stopped Alive Released Removed Settled",
        expect![[r#"
        Desired: publish Syncing, sync
        Settled: -
        Kill: publish Terminating, terminate 30s Evicted
        Settled: observe
        Stopped: publish Terminated, release
        Alive: -
        Released: publish Finished, terminate 1s Evicted
        Removed: -
        Settled: forget
    "#]],
    );
}

#[test]
fn same_uid_can_return_after_its_removal() {
    check(
        "Desired Settled Removed Desired Settled Stopped Released",
        expect![[r#"
        Desired: publish Syncing, sync
        Settled: -
        Removed: publish Terminating, terminate 30s Removed
        Desired: -
        Settled: observe
        Stopped: publish Terminated, release
        Released: publish Finished, start again
    "#]],
    );
    check(
        "Desired Settled Removed Settled Stopped Desired Released",
        expect![[r#"
        Desired: publish Syncing, sync
        Settled: -
        Removed: publish Terminating, terminate 30s Removed
        Settled: observe
        Stopped: publish Terminated, release
        Desired: -
        Released: publish Finished, start again
    "#]],
    );
    check(
        "Desired Settled Removed Settled Stopped Desired Removed Released",
        expect![[r#"
        Desired: publish Syncing, sync
        Settled: -
        Removed: publish Terminating, terminate 30s Removed
        Settled: observe
        Stopped: publish Terminated, release
        Desired: -
        Removed: -
        Released: publish Finished, forget
    "#]],
    );
    check(
        "Desired Settled Removed Settled Stopped Released Desired",
        expect![[r#"
        Desired: publish Syncing, sync
        Settled: -
        Removed: publish Terminating, terminate 30s Removed
        Settled: observe
        Stopped: publish Terminated, release
        Released: publish Finished, forget
        Desired: hide
    "#]],
    );
    check(
        "Desired Settled Removed Deleted=3 Settled Stopped Released",
        expect![[r#"
        Desired: publish Syncing, sync
        Settled: -
        Removed: publish Terminating, terminate 30s Removed
        Deleted=3: -
        Settled: observe
        Stopped: publish Terminated, release
        Released: publish Finished, start again
    "#]],
    );
    check(
        "Desired Completed Desired Settled Stopped Desired Released Desired",
        expect![[r#"
        Desired: publish Syncing, sync
        Completed: publish Terminating, terminate 30s Completed
        Desired: -
        Settled: observe
        Stopped: publish Terminated, release
        Desired: -
        Released: publish Finished
        Desired: -
    "#]],
    );
    check(
        "Orphan Desired Settled Stopped Released",
        expect![[r#"
        Orphan: publish Terminating, terminate 1s Orphan
        Desired: -
        Settled: observe
        Stopped: publish Terminated, release
        Released: publish Finished, start again
    "#]],
    );
}

const WORDS: [&str; 20] = [
    "Desired",
    "Deleted=20",
    "Deleted=3",
    "Kill=5",
    "Kill=40",
    "Kill",
    "Removed",
    "Stopped",
    "Stopped-1",
    "Stopped-9",
    "Alive",
    "Alive-9",
    "Wake",
    "Progressed",
    "Settled",
    "Completed",
    "Failed",
    "Released",
    "NotReleased",
    "Desired",
];

/// What a task that carries out the effects sees of the worker.
#[derive(Default)]
struct Watcher {
    in_flight: bool,
    act_ended: MonoTime,
    stage: Option<PodStage>,
    grace: Option<GracePeriod>,
    releasing: bool,
}

impl Watcher {
    /// Only events that can happen: a pass or a release reports its end only while it runs.
    fn can_happen(&self, event: &WorkerEvent) -> bool {
        match event {
            WorkerEvent::ActDone(_) => self.in_flight,
            WorkerEvent::Released { .. } => self.releasing,
            WorkerEvent::Desired(_)
            | WorkerEvent::Kill { .. }
            | WorkerEvent::Removed
            | WorkerEvent::Observed { .. }
            | WorkerEvent::Wake => true,
        }
    }

    fn see_event(&mut self, event: &WorkerEvent, now: Now) {
        match event {
            WorkerEvent::ActDone(_) => (self.in_flight, self.act_ended) = (false, now.mono),
            WorkerEvent::Released { .. } => self.releasing = false,
            WorkerEvent::Desired(_)
            | WorkerEvent::Kill { .. }
            | WorkerEvent::Removed
            | WorkerEvent::Observed { .. }
            | WorkerEvent::Wake => {}
        }
    }

    fn see_effect(
        &mut self,
        effect: &WorkerEffect,
        event: Option<&WorkerEvent>,
    ) -> Result<(), TestCaseError> {
        match effect {
            WorkerEffect::SyncPass => {
                prop_assert!(!self.in_flight, "two passes at once");
                prop_assert_eq!(self.stage, Some(PodStage::Syncing));
                self.in_flight = true;
                self.grace = None;
            }
            WorkerEffect::TerminatePass { grace, .. } => {
                prop_assert!(!self.in_flight, "two passes at once");
                prop_assert!(matches!(self.stage, Some(PodStage::Terminating | PodStage::Finished)));
                prop_assert!(self.grace.is_none_or(|before| *grace <= before), "grace grew");
                (self.in_flight, self.grace) = (true, Some(*grace));
            }
            WorkerEffect::CancelAct => prop_assert!(self.in_flight, "nothing to cancel"),
            WorkerEffect::ReleaseResources { .. } => {
                prop_assert!(
                    !self.releasing && !self.in_flight,
                    "two releases at once, or one during a pass"
                );
                prop_assert!(matches!(self.stage, Some(PodStage::Terminated | PodStage::Finished)));
                self.releasing = true;
            }
            WorkerEffect::PublishStage(stage) => self.see_stage(*stage, event)?,
            WorkerEffect::Forget => {
                prop_assert!(
                    !self.in_flight && !self.releasing,
                    "records are removed while the pod is stopped"
                );
            }
            WorkerEffect::Observe
            | WorkerEffect::WakeIn(_)
            | WorkerEffect::Hide
            | WorkerEffect::StartAgain => {}
        }
        Ok(())
    }

    fn see_stage(&mut self, stage: PodStage, event: Option<&WorkerEvent>) -> Result<(), TestCaseError> {
        let allowed = match (self.stage, stage) {
            (None, PodStage::Syncing | PodStage::Terminating)
            | (Some(PodStage::Syncing), PodStage::Terminating)
            | (Some(PodStage::Terminated), PodStage::Finished) => true,
            (Some(PodStage::Terminating), PodStage::Terminated) => {
                let act_ended = self.act_ended;
                !self.in_flight
                    && matches!(event, Some(WorkerEvent::Observed { stopped: true, taken_at }) if *taken_at >= act_ended)
            }
            _ => false,
        };
        prop_assert!(allowed, "{:?} -> {:?} by {:?}", self.stage, stage, event);
        if stage == PodStage::Terminating {
            self.grace = None;
        }
        self.stage = Some(stage);
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn invariants_hold_in_any_order_of_events(words in proptest::collection::vec(0..WORDS.len(), 1..60)) {
        let mut watcher = Watcher::default();
        let (mut state, begun) = WorkerState::new(pod(None), at(0));
        for effect in &begun {
            watcher.see_effect(effect, None)?;
        }
        for (second, word) in (1..).zip(words) {
            let now = at(second);
            let event = parse(WORDS[word], now);
            if !watcher.can_happen(&event) {
                continue;
            }
            watcher.see_event(&event, now);
            let (next, effects) = on_event(state, event.clone(), now);
            for effect in &effects {
                watcher.see_effect(effect, Some(&event))?;
            }
            prop_assert_eq!(Some(next.stage()), watcher.stage, "the stage that is published is the stage");
            state = next;
        }
    }

    /// Whatever has happened, a pod that is removed ends if passes and releases succeed.
    #[test]
    fn removed_pod_always_terminates(words in proptest::collection::vec(0..WORDS.len(), 0..40)) {
        let mut watcher = Watcher::default();
        let (mut state, begun) = WorkerState::new(pod(None), at(0));
        let mut events: Vec<&str> = words.into_iter().map(|word| WORDS[word]).collect();
        for effect in &begun {
            watcher.see_effect(effect, None)?;
        }
        events.extend(["Removed", "Settled", "Settled", "Stopped", "NotReleased", "Wake", "Released"]);
        // Once more, for a pod that was already ending to be added again when it was removed.
        events.extend(["Removed", "Settled", "Settled", "Stopped", "Released"]);
        for (second, word) in (1..).zip(events) {
            let (now, event) = (at(second), parse(word, at(second)));
            if watcher.can_happen(&event) {
                watcher.see_event(&event, now);
                let (next, effects) = on_event(state, event.clone(), now);
                for effect in &effects {
                    watcher.see_effect(effect, Some(&event))?;
                }
                state = next;
            }
        }
        prop_assert_eq!(state.stage(), PodStage::Finished);
    }
}
