//! Golden tables for stopping pods and containers.

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;
use crate::pods::fixture;
use crate::pods::fixture::case;
use crate::pods::plan::PodStep;

fn show_kill(kill: &ContainerKill) -> String {
    let hook = match &kill.pre_stop {
        Some(LifecycleHandler { sleep: Some(sleep), .. }) => format!(" after sleep {}", sleep.seconds),
        Some(handler) => format!(" after {handler:?}"),
        None => String::new(),
    };
    format!("{}: {} {:?} {}s{hook}", kill.turn, kill.id, kill.why, kill.grace.as_secs())
}

fn show(kills: &[ContainerKill], stop: &[SandboxId]) -> String {
    let kills = kills.iter().map(show_kill);
    kills.chain(stop.iter().map(|id| format!("stop {id}"))).collect::<Vec<_>>().join("; ")
}

#[track_caller]
fn check_pod(line: &str, expected: Expect) {
    let case = case(line);
    let plan = compute_kill_plan(Some(&case.pod), &case.observed, GracePeriod::from_seconds(20));
    expected.assert_eq(&show(&plan.kills, &plan.stop));
}

/// The kills of the next step.
#[track_caller]
fn check_step(line: &str, deletion: Option<i64>, expected: Expect) {
    let mut case = case(line);
    case.pod.metadata.deletion_grace_period_seconds = deletion;
    let kills = match case.plan().step {
        PodStep::Settled | PodStep::RepairCgroup => Vec::new(),
        PodStep::CreateSandbox { kill, .. }
        | PodStep::Converge { kill, .. }
        | PodStep::Teardown { kill, .. } => kill,
    };
    expected.assert_eq(&show(&plan_kills(&case.pod, &case.observed, &kills), &[]));
}

#[test]
fn sidecars_stop_last_and_in_reverse() {
    check_pod("main:a | sandbox a=running", expect!["0: a-0 PodTerminating 20s; stop sb0"]);
    check_pod(
        "main:a main:b | sandbox b=running a=running",
        expect!["0: b-0 PodTerminating 20s; 0: a-0 PodTerminating 20s; stop sb0"],
    );
    check_pod(
        "sidecar:s1 sidecar:s2 main:a | sandbox a=running s2=running s1=running",
        expect![
            "0: a-0 PodTerminating 20s; 1: s2-0 PodTerminating 20s; 2: s1-0 PodTerminating 20s; stop sb0"
        ],
    );
    check_pod(
        "sidecar:s1 init:i1 sidecar:s2 main:a | sandbox i1=running s1=running",
        expect!["0: i1-0 PodTerminating 20s; 2: s1-0 PodTerminating 20s; stop sb0"],
    );
    check_pod(
        "sidecar:s1 main:a debug:e | sandbox s1=unknown e=running a=exited(0)",
        expect!["0: e-0 PodTerminating 20s; 1: s1-0 PodTerminating 20s; stop sb0"],
    );
    check_pod(
        "main:a | sandbox a=running x=running",
        expect!["0: a-0 PodTerminating 20s; 0: x-0 PodTerminating 20s; stop sb0"],
    );
}

#[test]
fn only_running_containers_are_killed_but_every_sandbox_is_stopped() {
    check_pod("main:a |", expect![[""]]);
    check_pod(
        "main:a main:b | sandbox=dead sandbox=dead a=exited(0) b=created",
        expect!["stop sb1; stop sb0"],
    );
    check_pod(
        "main:a | sandbox sandbox=dead a=running(#1) a=running(sb0)",
        expect!["0: a-1 PodTerminating 20s; 0: a-0 PodTerminating 20s; stop sb1; stop sb0"],
    );
}

#[test]
fn pre_stop_hooks_come_from_the_spec() {
    check_pod(
        "sidecar:s1(stop=3) main:a(stop=5) main:b | sandbox b=running a=running s1=running",
        expect![
            "0: b-0 PodTerminating 20s; 0: a-0 PodTerminating 20s after sleep 5; 1: s1-0 PodTerminating 20s after sleep 3; stop sb0"
        ],
    );
}

#[test]
fn pre_stop_hooks_come_from_the_record_if_the_spec_is_gone() {
    let mut case = case("sidecar:s1 main:a(stop=5) | sandbox a=running s1=running x=running");
    for container in &mut case.observed.containers {
        container.record.pre_stop_handler = Some(r#"{"sleep":{"seconds":7}}"#.into());
    }
    case.observed.containers[1].record.pre_stop_handler = Some("not json".into());
    let orphan = compute_kill_plan(None, &case.observed, GracePeriod::MIN);
    expect!["0: a-0 PodTerminating 1s after sleep 7; 0: s1-0 PodTerminating 1s; 0: x-0 PodTerminating 1s after sleep 7; stop sb0"].assert_eq(&show(&orphan.kills, &orphan.stop));
    let known = compute_kill_plan(Some(&case.pod), &case.observed, GracePeriod::MIN);
    expect!["0: a-0 PodTerminating 1s after sleep 5; 0: x-0 PodTerminating 1s after sleep 7; 1: s1-0 PodTerminating 1s; stop sb0"].assert_eq(&show(&known.kills, &known.stop));
}

#[test]
fn container_grace_period_is_that_of_deletion_probe_or_pod() {
    let line = "grace=30 main:a(liveness=5s,stop=1) | sandbox a=running a!liveness";
    check_step(line, None, expect!["0: a-0 LivenessFailed 5s after sleep 1"]);
    check_step(line, Some(9), expect!["0: a-0 LivenessFailed 9s after sleep 1"]);
    check_step(
        "grace=30 main:a(liveness) | sandbox a=running a!liveness",
        None,
        expect!["0: a-0 LivenessFailed 30s"],
    );
    check_step(
        "grace=30 main:a(startup=6s) | sandbox a=running a!startup",
        None,
        expect!["0: a-0 StartupFailed 6s"],
    );
    check_step("grace=30 main:a | sandbox a=running(old)", None, expect!["0: a-0 SpecChanged 30s"]);
    check_step("main:a | sandbox a=running(old)", None, expect!["0: a-0 SpecChanged 2s"]);
}

#[test]
fn restart_all_skips_hooks_and_grace_period() {
    let line = "Never grace=30 sidecar:s1(stop=4) main:a(Never,in42=RestartAll) main:b(stop=3) | sandbox b=running s1=running a=exited(42)";
    check_step(line, None, expect!["0: b-0 RestartAllContainers 0s; 0: s1-0 RestartAllContainers 0s"]);
    check_step(line, Some(9), expect!["0: b-0 RestartAllContainers 0s; 0: s1-0 RestartAllContainers 0s"]);
}

#[test]
fn finished_pod_and_replaced_sandbox_stop_in_order() {
    check_step(
        "Never grace=30 sidecar:s1 sidecar:s2 main:a | sandbox a=exited(0) s1=running s2=running",
        None,
        expect!["1: s2-0 PodFinished 30s; 2: s1-0 PodFinished 30s"],
    );
    check_step(
        "grace=30 sidecar:s1 main:a | sandbox=dead s1=running a=running",
        None,
        expect!["0: a-0 SandboxReplaced 30s; 1: s1-0 SandboxReplaced 30s"],
    );
    check_step(
        "grace=30 sidecar:s1 main:a | sandbox s1=running(old) a=running(old)",
        None,
        expect!["0: s1-0 SpecChanged 30s; 0: a-0 SpecChanged 30s"],
    );
}

#[test]
fn orphaned_pods_use_the_recorded_grace_period() {
    let mut case = case("main:a | sandbox a=running");
    case.observed.containers[0].record.pod_termination_grace_seconds = Some(12);
    let container = &case.observed.containers[0];
    let kill = KillContainer {
        id: container.id.clone(),
        name: container.name.clone(),
        why: KillReason::NotInSpec,
        grace: None,
    };
    assert_eq!(container_grace(None, &container.record, &kill), Duration::from_secs(12));
    assert_eq!(container_grace(None, &ContainerRecord::default(), &kill), MIN_STOP_TIMEOUT);
}

#[test]
fn pre_stop_hook_time_counts_against_the_grace_period() {
    let case = case("main:a | sandbox a=running");
    let plan = compute_kill_plan(Some(&case.pod), &case.observed, GracePeriod::from_seconds(20));
    let timeout = |used| plan.kills[0].stop_timeout(Duration::from_secs(used)).as_secs();
    assert_eq!([timeout(0), timeout(15), timeout(19), timeout(500)], [20, 5, 2, 2]);
}

#[test]
fn pod_grace_period_comes_from_the_source_with_precedence() {
    let grace = |spec, deletion, kill_override, previous: Option<i64>| {
        let sources = GraceSources { spec, deletion, kill_override };
        compute_grace(sources, previous.map(GracePeriod::from_seconds)).as_secs()
    };
    assert_eq!(grace(None, None, None, None), 1);
    assert_eq!(grace(Some(30), None, None, None), 30);
    assert_eq!(
        grace(Some(30), Some(60), None, None),
        60,
        "an API deletion may also lengthen the spec's period"
    );
    assert_eq!(grace(Some(30), Some(60), Some(20), None), 20);
    assert_eq!(grace(Some(30), Some(10), Some(20), None), 10);
    assert_eq!(grace(Some(30), Some(0), None, None), 1);
    assert_eq!(grace(Some(-3), None, None, None), 1);
    assert_eq!(grace(Some(30), Some(60), None, Some(5)), 5, "a promise that was made shorter stays so");
    assert_eq!(grace(Some(30), None, None, Some(40)), 40, "the spec no longer counts once a period was set");
}

/// `pod_workers_test.go`, Test_calculateEffectiveGracePeriod.
#[test]
fn calculate_effective_grace_period_table() {
    for (name, deletion, kill_override, expected) in [
        ("termination grace period of the spec", None, None, 30),
        ("deletionGracePeriodSeconds", Some(5), None, 5),
        ("override", Some(5), Some(2), 2),
        ("deletionGracePeriodSeconds of zero", Some(0), None, 1),
        ("override of zero", Some(5), Some(0), 1),
    ] {
        let sources = GraceSources { spec: Some(30), deletion, kill_override };
        assert_eq!(compute_grace(sources, None).as_secs(), expected, "{name}");
    }
}

#[test]
fn kill_deadline_is_one_and_a_half_grace_periods() {
    assert_eq!(GracePeriod::MIN.kill_deadline().as_secs(), 10);
    assert_eq!(GracePeriod::from_seconds(30).kill_deadline().as_secs(), 45);
}

/// `killPodNow` in `pod_workers.go`.
#[test]
fn preemption_waits_for_the_longest_kill_deadline_of_the_victims() {
    let timeout = |graces: &[&str]| {
        let pods: Vec<Pod> = graces.iter().map(|grace| fixture::pod(grace)).collect();
        compute_preemption_timeout(pods.iter()).as_secs()
    };
    assert_eq!(timeout(&["grace=30"]), 45);
    assert_eq!(timeout(&["grace=0", "grace=2", ""]), 10);
    assert_eq!(timeout(&["grace=2", "grace=60", "grace=30"]), 90);
    assert_eq!(
        preemption_timed_out(&PodRef::new("ns", "web", "u"), Duration::from_secs(45)),
        "preempted pod ns/web did not end within 45s, starting without waiting for it"
    );
}

#[test]
fn grace_period_sources_are_read_from_the_pod() {
    let mut pod = fixture::pod("grace=30 main:a");
    pod.metadata.deletion_grace_period_seconds = Some(4);
    let expected = GraceSources { spec: Some(30), deletion: Some(4), kill_override: Some(2) };
    assert_eq!(GraceSources::of(&pod, Some(2)), expected);
}

proptest! {
    #[test]
    fn grace_period_never_grows(
        spec in proptest::option::of(any::<i64>()),
        deletion in proptest::option::of(any::<i64>()),
        kill_override in proptest::option::of(any::<i64>()),
        previous in any::<i64>(),
    ) {
        let previous = GracePeriod::from_seconds(previous);
        let grace = compute_grace(GraceSources { spec, deletion, kill_override }, Some(previous));
        prop_assert!(grace <= previous);
        prop_assert!(grace >= GracePeriod::MIN);
    }
}

// Go kubelet: computePodActions and computeInitContainerActions.
#[test]
fn killing_event_mentions_a_restart_only_if_there_is_one() {
    let message = |kind, why, restarts| killing_message("app", kind, why, restarts);
    let regular = Some(ContainerKind::Regular);
    let cases = [
        (KillReason::SpecChanged, true, "Container app definition changed, will be restarted"),
        (KillReason::LivenessFailed, true, "Container app failed liveness probe, will be restarted"),
        (KillReason::LivenessFailed, false, "Container app failed liveness probe"),
        (KillReason::StartupFailed, true, "Container app failed startup probe, will be restarted"),
        (KillReason::StartupFailed, false, "Container app failed startup probe"),
        (KillReason::UnknownState, true, "Container is in \"unknown\" state, try killing it before restart"),
        (KillReason::PostStartHookFailed, true, "FailedPostStartHook"),
        // Go kubelet: SyncPod passes this reason when it resets containers.
        (KillReason::RestartAllContainers, true, "killing"),
        (KillReason::PodTerminating, false, "Stopping container app"),
        (KillReason::PodFinished, false, "Stopping container app"),
    ];
    for (why, restarts, expected) in cases {
        assert_eq!(message(regular, why, restarts), expected);
    }
    let sidecar = Some(ContainerKind::Sidecar);
    assert_eq!(
        message(sidecar, KillReason::LivenessFailed, true),
        "Init container app failed liveness probe"
    );
    assert_eq!(message(sidecar, KillReason::SpecChanged, true), "Init container app definition changed");
    assert_eq!(
        message(sidecar, KillReason::UnknownState, true),
        "Init container is in \"unknown\" state, try killing it before restart"
    );
}
