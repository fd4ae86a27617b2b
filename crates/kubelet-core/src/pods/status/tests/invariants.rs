//! What holds for every pod and every sequence of observations.

use model::k8s::{Pod, PodStatus};
use proptest::prelude::*;

use super::scenario::{Scenario, pod, time};
use crate::pods::status::Phase;

const CONTAINERS: [&str; 4] = ["i", "s", "a", "b"];

fn any_pod() -> impl Strategy<Value = Pod> {
    let policy = prop_oneof![Just("Always"), Just("OnFailure"), Just("Never")];
    let flags = prop_oneof![Just(""), Just(":R"), Just(":S"), Just(":N3")];
    (policy, flags, any::<bool>(), any::<bool>()).prop_map(|(policy, flags, has_init, is_static)| {
        let init = if has_init { "i:i s:sS" } else { "" };
        let source = if is_static { "static" } else { "" };
        pod(&format!("pod {init} a{flags} b policy={policy} {source}"))
    })
}

fn any_container_words() -> impl Strategy<Value = String> {
    let states = prop_oneof![
        Just(""),
        Just("running"),
        Just("created"),
        Just("unknown"),
        Just("exited(0)"),
        Just("exited(3)"),
        Just("exited(1),running"),
        Just("exited(0),exited(1)"),
    ];
    prop::collection::vec((states, 0..4_u32), 4).prop_map(|all| {
        let named = CONTAINERS.iter().zip(all).filter(|(_, (states, _))| !states.is_empty());
        named.map(|(name, (states, count))| format!("{name}=#{count}:{states} ")).collect()
    })
}

fn any_scenario() -> impl Strategy<Value = Scenario> {
    let stage = prop_oneof![5 => Just(""), 1 => Just("@terminating"), 1 => Just("@terminated")];
    let why = prop_oneof![
        3 => Just(""),
        1 => Just("why(a/CrashLoopBackOff)"),
        1 => Just("why(i/ErrImagePull)"),
        1 => Just("why(a/RestartingAllContainers)"),
        1 => Just("end(Evicted)"),
        1 => Just("starting(b)"),
        1 => Just("deleting"),
        1 => Just("unseen"),
    ];
    let sandbox = prop_oneof![Just(""), Just("box=notready"), Just("box=noip"), Just("box=none")];
    (any_container_words(), stage, why, sandbox).prop_map(|(containers, stage, why, sandbox)| {
        Scenario::parse(&format!("{containers} {stage} {why} {sandbox}"))
    })
}

fn phase(status: &PodStatus) -> Phase {
    Phase::parse(status.phase.as_deref().unwrap_or_default()).expect("a phase of ours")
}

fn restarts(status: &PodStatus) -> Vec<(String, i32)> {
    let lists = [&status.init_container_statuses, &status.container_statuses];
    lists.into_iter().flatten().flatten().map(|s| (s.name.clone(), s.restart_count)).collect()
}

fn played(pod: &Pod, steps: &[Scenario]) -> Vec<PodStatus> {
    let mut all: Vec<PodStatus> = Vec::new();
    for (minute, scenario) in (1..).zip(steps) {
        let status = scenario.compute(pod, all.last(), time(minute * 60));
        all.push(status);
    }
    all
}

proptest! {
    #[test]
    fn a_terminal_phase_never_reverts(pod in any_pod(), steps in prop::collection::vec(any_scenario(), 1..6)) {
        let all = played(&pod, &steps);
        for pair in all.windows(2) {
            if phase(&pair[0]).is_terminal() {
                prop_assert_eq!(phase(&pair[0]), phase(&pair[1]));
            }
        }
    }

    #[test]
    fn a_pod_does_not_become_terminal_while_a_container_may_run(
        pod in any_pod(),
        steps in prop::collection::vec(any_scenario(), 1..6),
    ) {
        let all = played(&pod, &steps);
        let mut was_terminal = false;
        for (scenario, status) in steps.iter().zip(&all) {
            let terminal = phase(status).is_terminal();
            let ended = scenario.stage == base_core::pod_stage::PodStage::Terminated;
            let stopped = scenario.observed.as_ref().is_some_and(|o| {
                o.containers.iter().all(|c| !super::super::containers::may_run(c.state))
            });
            if terminal && !was_terminal {
                prop_assert!(ended || stopped);
            }
            was_terminal = terminal;
        }
    }

    #[test]
    fn a_terminal_pod_is_never_ready(pod in any_pod(), steps in prop::collection::vec(any_scenario(), 1..6)) {
        for status in played(&pod, &steps).iter().filter(|s| phase(s).is_terminal()) {
            let ready = status.conditions.iter().flatten().filter(|c| c.type_.ends_with("Ready"));
            prop_assert!(ready.into_iter().all(|c| c.status == "False"));
        }
    }

    #[test]
    fn restart_counts_never_shrink(pod in any_pod(), steps in prop::collection::vec(any_scenario(), 1..6)) {
        for pair in played(&pod, &steps).windows(2) {
            for (before, after) in restarts(&pair[0]).iter().zip(restarts(&pair[1])) {
                prop_assert_eq!(&before.0, &after.0);
                prop_assert!(before.1 <= after.1);
            }
        }
    }

    #[test]
    fn computing_again_from_the_result_changes_nothing(
        pod in any_pod(),
        steps in prop::collection::vec(any_scenario(), 1..5),
    ) {
        let all = played(&pod, &steps);
        let (Some(scenario), Some(last)) = (steps.last(), all.last()) else { return Ok(()) };
        let again = scenario.compute(&pod, Some(last), time(9999));
        prop_assert_eq!(&again, last);
    }

    #[test]
    fn every_container_of_the_spec_has_one_status_in_one_state(
        pod in any_pod(),
        steps in prop::collection::vec(any_scenario(), 1..4),
    ) {
        for status in played(&pod, &steps) {
            let names: Vec<String> = restarts(&status).into_iter().map(|(name, _)| name).collect();
            let expected: Vec<&str> = model::containers::all_containers(&pod).map(|c| c.name()).collect();
            prop_assert_eq!(names, expected);
            for container in status.container_statuses.iter().flatten() {
                let state = container.state.as_ref().expect("a state");
                let set = [state.waiting.is_some(), state.running.is_some(), state.terminated.is_some()];
                prop_assert_eq!(set.iter().filter(|is_set| **is_set).count(), 1);
            }
        }
    }
}
