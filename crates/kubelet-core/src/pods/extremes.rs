//! Pods with extreme numbers go through every decision about them, and none of them panics: numbers of a pod come from its
//! author.

use std::time::Duration;

use jiff::Timestamp;
use model::containers::all_containers;
use model::k8s::{Lifecycle, LifecycleHandler, Pod, Probe, Quantity, ResourceRequirements, SleepAction};
use model::{ContainerObservation, MonoTime};
use proptest::prelude::*;
use resources_core::requests::pod_requests;

use super::actions::{PodInputs, compute_pod_actions};
use super::deadline::deadline;
use super::fixture::{Case, case};
use super::plan::{KillContainer, KillReason};
use super::termination::{
    GracePeriod, GraceSources, MIN_STOP_TIMEOUT, compute_grace, compute_kill_plan, plan_kills,
};
use crate::pods::probe::machine::ProbeState;
use crate::pods::probe::outcome::Outcome;
use crate::pods::probe::results::ProbeKind;
use crate::pods::probe::spec::ProbeSpec;

const LINE: &str = "Always init:i1 sidecar:s1 main:a main:b grace=30 \
                    | sandbox i1=exited(0,9s) s1=running a=running b=exited(1,5s,#2)";

fn any_seconds() -> impl Strategy<Value = Option<i64>> {
    prop_oneof![
        Just(None),
        prop::sample::select(vec![i64::MIN, -1, 0, 1, 30, 1_000_000_000_000, i64::MAX]).prop_map(Some),
        any::<i64>().prop_map(Some),
    ]
}

fn any_count() -> impl Strategy<Value = Option<i32>> {
    prop::option::of(prop::sample::select(vec![i32::MIN, -1, 0, 1, 10, i32::MAX]))
}

fn any_time() -> impl Strategy<Value = Timestamp> {
    let now = super::fixture::start_of_test().wall;
    prop::sample::select(vec![Timestamp::MIN, Timestamp::UNIX_EPOCH, now, Timestamp::MAX])
}

fn any_quantity() -> impl Strategy<Value = Quantity> {
    let texts =
        ["-1", "0", "1n", "9223372036854775807", "9E18", "1e30", "-1e30", "99999999999Ei", "0.000000001"];
    prop::sample::select(texts.to_vec()).prop_map(|text| Quantity(text.to_owned()))
}

prop_compose! {
    fn any_probe()(
        counts in prop::array::uniform5(any_count()),
        termination_grace_period_seconds in any_seconds(),
    ) -> Probe {
        let [initial_delay_seconds, timeout_seconds, period_seconds, success_threshold, failure_threshold] = counts;
        let exec = Some(model::k8s::ExecAction { command: Some(vec!["probe".to_owned()]) });
        Probe {
            exec, initial_delay_seconds, timeout_seconds, period_seconds, success_threshold, failure_threshold,
            termination_grace_period_seconds, ..Probe::default()
        }
    }
}

prop_compose! {
    fn any_case()(
        seconds in prop::array::uniform4(any_seconds()),
        probe in any_probe(),
        times in prop::array::uniform3(any_time()),
        exit_code in any::<i32>(),
        quantities in prop::array::uniform4(any_quantity()),
    ) -> Case {
        let mut case = case(LINE);
        let [grace, active, deletion, sleep] = seconds;
        case.pod.metadata.deletion_grace_period_seconds = deletion;
        let spec = case.pod.spec.as_mut().unwrap();
        (spec.termination_grace_period_seconds, spec.active_deadline_seconds) = (grace, active);
        let sleep = sleep.map(|seconds| LifecycleHandler { sleep: Some(SleepAction { seconds }), ..LifecycleHandler::default() });
        for container in spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()) {
            container.liveness_probe = Some(probe.clone());
            container.lifecycle = Some(Lifecycle { pre_stop: sleep.clone(), ..Lifecycle::default() });
            let [cpu, memory, disk, pages] = quantities.clone();
            let all = [("cpu", cpu), ("memory", memory), ("ephemeral-storage", disk), ("hugepages-2Mi", pages)];
            let all: std::collections::BTreeMap<_, _> =
                all.into_iter().map(|(name, quantity)| (name.to_owned(), quantity)).collect();
            container.resources = Some(ResourceRequirements {
                limits: Some(all.clone()), requests: Some(all), ..ResourceRequirements::default()
            });
        }
        for container in &mut case.observed.containers {
            let [created_at, started_at, finished_at] = times;
            container.created_at = created_at;
            container.started_at = container.started_at.map(|_| started_at);
            container.finished_at = container.finished_at.map(|_| finished_at);
            container.exit_code = exit_code;
            container.record.restart_count = u32::MAX;
            container.record.pod_termination_grace_seconds = grace;
        }
        case
    }
}

fn plan(case: &Case, now: model::Now) {
    let inputs = PodInputs {
        pod: &case.pod,
        observed: &case.observed,
        memory: &case.memory,
        cgroup: case.cgroup,
        features: case.features,
        now,
    };
    let _ = compute_pod_actions(&inputs);
}

/// Every kill of the pod: each leaves the runtime a timeout that fits its fields.
fn kill(case: &Case, kill_override: Option<i64>) {
    let kill_of = |container: &ContainerObservation| KillContainer {
        id: container.id.clone(),
        name: container.name.clone(),
        why: KillReason::LivenessFailed,
        grace: None,
    };
    let single: Vec<KillContainer> = case.observed.containers.iter().map(kill_of).collect();
    let grace = compute_grace(GraceSources::of(&case.pod, kill_override), Some(GracePeriod::MIN));
    let first = compute_grace(GraceSources::of(&case.pod, kill_override), None);
    assert!(grace <= first && first.kill_deadline() >= first.as_duration());
    let known = compute_kill_plan(Some(&case.pod), &case.observed, first).kills;
    let orphan = compute_kill_plan(None, &case.observed, first).kills;
    for kill in plan_kills(&case.pod, &case.observed, &single).into_iter().chain(known).chain(orphan) {
        // Go counts nanoseconds in 64 bits.
        assert!(i64::try_from(kill.stop_timeout(Duration::ZERO).as_nanos()).is_ok(), "{:?}", kill.grace);
        assert_eq!(kill.stop_timeout(Duration::MAX), MIN_STOP_TIMEOUT);
        let _ = MonoTime::from_start(Duration::from_secs(1)) + kill.grace;
    }
}

fn probe(pod: &Pod, now: MonoTime) {
    for container in all_containers(pod) {
        let Some(probe) = container.liveness_probe() else { continue };
        let spec = ProbeSpec::of(probe, ProbeKind::Liveness, &container).unwrap();
        for offset in [Duration::ZERO, spec.period] {
            let mut state = ProbeState::begin(&spec, now, offset);
            for outcome in
                [Outcome::Failure("no".to_owned()), Outcome::Error("?".to_owned()), Outcome::Success]
            {
                state.hurry(&spec, now);
                let _ = state.step(&spec, outcome, now + spec.timeout);
                let _ = state.next_at();
            }
        }
    }
}

proptest! {
    #[test]
    fn pods_with_extreme_numbers_go_through_every_decision_without_a_panic(
        case in any_case(),
        kill_override in any_seconds(),
        wall in any_time(),
        mono in prop::sample::select(vec![Duration::ZERO, Duration::from_secs(10_000), Duration::MAX]),
    ) {
        let now = model::Now { wall, mono: MonoTime::from_start(mono) };
        plan(&case, now);
        kill(&case, kill_override);
        probe(&case.pod, now.mono);
        if let Some(at) = deadline(&case.pod, wall) {
            let _ = now.mono_at(at);
        }
        let _ = case.ended(true);
        let _ = pod_requests(&case.pod);
        let _ = model::qos::QosClass::of(&case.pod);
    }
}
