//! What holds for every pod in every world, and that deciding and acting in turn comes to rest.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::cgroup::CgroupState;
use model::containers::{self, ContainerRef};
use model::{
    ContainerKind, ContainerObservation, ContainerState, SandboxId, SandboxObservation, SandboxState,
};
use proptest::prelude::*;
use resources_core::allocations::Ended;

use crate::pods::actions::{find_usable, may_run};
use crate::pods::backoff;
use crate::pods::fixture::{Case, case, hash_in, new_instance, show};
use crate::pods::plan::{KillContainer, PodPlan, PodStep, StartContainer, WaitingReason};
use crate::pods::probe::results::{ProbeKind, Verdict};
use crate::pods::restart::{has_changed, has_failed};

const NAMES: [&str; 7] = ["i1", "s1", "i2", "s2", "a", "b", "e"];

/// Any pod of a few containers, in any state the runtime may show.
fn any_line() -> impl Strategy<Value = String> {
    let policy = prop::sample::select(vec!["Always", "OnFailure", "Never"]);
    let init = prop::sample::select(vec![
        "",
        "init:i1",
        "init:i1(OnFailure)",
        "init:i1 init:i2",
        "sidecar:s1",
        "sidecar:s1(startup,liveness)",
        "init:i1 sidecar:s1(startup) init:i2(Never,in42=RestartAll)",
        "sidecar:s1 init:i1 sidecar:s2(liveness=3s)",
    ]);
    let main = prop::sample::select(vec![
        "main:a",
        "main:a main:b",
        "main:a(Never,in42=Restart) main:b(liveness)",
        "main:a(OnFailure,in42=RestartAll) main:b(Always)",
        "main:a(startup=5s,liveness) main:b debug:e",
        "hostNetwork main:a main:b",
    ]);
    let cgroup = prop::sample::select(vec!["", "", "", "cgroup=missing", "cgroup=changed"]);
    let world = (any_sandboxes(), proptest::collection::vec(any_instance(), 0..6), any_memory(), cgroup);
    (policy, init, main, world).prop_map(|(policy, init, main, (sandboxes, instances, memory, cgroup))| {
        let sandboxes_count = sandboxes.split_whitespace().count();
        let instances = number(&instances, sandboxes_count);
        let known: BTreeSet<&str> =
            instances.split_whitespace().filter_map(|t| Some(t.split_once('=')?.0)).collect();
        let memory: Vec<String> = memory
            .into_iter()
            .filter(|(name, _)| known.contains(name))
            .map(|(name, what)| format!("{name}{what}"))
            .collect();
        format!("{policy} {init} {main} | {sandboxes} {instances} {} {cgroup}", memory.join(" "))
    })
}

fn any_sandboxes() -> impl Strategy<Value = String> {
    let state =
        prop::sample::select(vec!["sandbox", "sandbox", "sandbox=dead", "sandbox=noip", "sandbox=host"]);
    proptest::collection::vec(state, 0..3).prop_map(|states| states.join(" "))
}

type Instance = (&'static str, &'static str, usize);

fn any_instance() -> impl Strategy<Value = Instance> {
    let names: Vec<&'static str> = NAMES.into_iter().chain(["x"]).collect();
    let states = vec![
        "created(",
        "running(",
        "running(",
        "running(old,",
        "unknown(",
        "exited(0,",
        "exited(0,",
        "exited(1,5s,",
        "exited(42,2s,",
        "exited(0,OOMKilled,",
        "exited(1,old,",
    ];
    (prop::sample::select(names), prop::sample::select(states), 0..3_usize)
}

fn any_memory() -> impl Strategy<Value = Vec<(&'static str, &'static str)>> {
    let what = vec!["!liveness", "!startup", "+startup"];
    proptest::collection::vec((prop::sample::select(NAMES.to_vec()), prop::sample::select(what)), 0..4)
}

/// Gives instances restart counts that grow with age, and a sandbox each.
fn number(instances: &[Instance], sandboxes: usize) -> String {
    let mut left: BTreeMap<&str, usize> = BTreeMap::new();
    for (name, _, _) in instances {
        *left.entry(name).or_default() += 1;
    }
    let mut tokens = Vec::new();
    for (name, state, age) in instances {
        let count = left.get_mut(name).unwrap();
        *count -= 1;
        let sandbox = sandboxes.saturating_sub(1).saturating_sub(*age);
        tokens.push(format!("{name}={state}#{count},sb{sandbox})"));
    }
    tokens.join(" ")
}

fn kills(plan: &PodPlan) -> &[KillContainer] {
    match &plan.step {
        PodStep::Settled | PodStep::RepairCgroup => &[],
        PodStep::CreateSandbox { kill, .. }
        | PodStep::Converge { kill, .. }
        | PodStep::Teardown { kill, .. } => kill,
    }
}

fn starts(plan: &PodPlan) -> &[StartContainer] {
    match &plan.step {
        PodStep::Converge { start, .. } => start,
        PodStep::Settled
        | PodStep::RepairCgroup
        | PodStep::CreateSandbox { .. }
        | PodStep::Teardown { .. } => &[],
    }
}

fn newest_here<'a>(case: &'a Case, name: &str) -> Option<&'a ContainerObservation> {
    let sandbox = &case.observed.sandboxes.first()?.id;
    case.observed.newest(name).filter(|c| c.sandbox_id == *sandbox)
}

/// The init chain is complete, derived from its end instead of by walking it.
fn init_is_done(case: &Case) -> bool {
    let was_done = containers::regular_containers(&case.pod).any(|c| newest_here(case, c.name()).is_some());
    let last = containers::init_containers(&case.pod).next_back();
    was_done || last.is_none_or(|last| has_passed(case, &last))
}

fn has_passed(case: &Case, container: &ContainerRef<'_>) -> bool {
    let Some(instance) = newest_here(case, container.name()) else { return false };
    if container.kind == ContainerKind::Sidecar {
        let startup = case.memory.verdicts.get(&instance.id).startup;
        let is_started = container.startup_probe().is_none() || startup == Some(Verdict::Success);
        return instance.state == ContainerState::Running && is_started;
    }
    instance.state == ContainerState::Exited && !has_failed(container.kind, instance.into())
}

fn check_invariants(case: &Case, plan: &PodPlan) -> Result<(), TestCaseError> {
    prop_assert_eq!(plan, &case.plan(), "the same world gives the same plan");
    let started: BTreeSet<&str> = starts(plan).iter().map(|s| &*s.name).collect();
    prop_assert_eq!(started.len(), starts(plan).len(), "one name starts once");
    for kill in kills(plan) {
        let target = case.observed.container(&kill.id);
        prop_assert!(target.is_some_and(may_run), "only what may run is killed");
        prop_assert!(!started.contains(&*kill.name), "{} is killed and started", kill.name);
    }
    for start in starts(plan) {
        let name = &*start.name;
        prop_assert!(!case.observed.instances(name).any(may_run), "{name} may still run");
        let count = case.observed.newest(name).map_or(0, |c| c.record.restart_count + 1);
        prop_assert_eq!(
            start.restart_count,
            count.max(case.memory.log_restarts.get(name).map_or(0, |n| n + 1))
        );
        prop_assert!(
            start.kind != ContainerKind::Regular || init_is_done(case),
            "{name} starts before init is done"
        );
        prop_assert!(plan.waiting.iter().all(|w| *w.container != *name), "{name} starts and waits");
    }
    let waits = plan.waiting.iter().any(|w| matches!(w.reason, WaitingReason::CrashLoopBackOff { .. }));
    prop_assert_eq!(plan.wake_at.is_some(), waits);
    prop_assert!(plan.wake_at.is_none_or(|at| at > case.now.mono), "waking is in the future");
    check_ended(case, plan, &started)?;
    check_removals(case, plan)
}

/// Nothing is kept for what has ended, so it must not begin again.
fn check_ended(case: &Case, plan: &PodPlan, started: &BTreeSet<&str>) -> Result<(), TestCaseError> {
    let ended = case.ended(false);
    for name in NAMES.iter().filter(|name| ended.has(name)) {
        prop_assert!(!started.contains(name), "{name} has ended and starts");
        prop_assert!(!case.observed.newest(name).is_some_and(may_run), "{name} has ended and runs");
    }
    if ended == Ended::All {
        let is_new = matches!(plan.step, PodStep::CreateSandbox { .. });
        prop_assert!(!is_new && started.is_empty(), "the pod has ended and goes on");
        prop_assert_eq!(case.ended(true), Ended::All, "what is over is so while it is stopped, too");
    }
    Ok(())
}

fn check_removals(case: &Case, plan: &PodPlan) -> Result<(), TestCaseError> {
    let PodStep::Converge { kill, remove, .. } = &plan.step else { return Ok(()) };
    for removed in remove {
        let is_killed = kill.iter().any(|k| k.id == removed.id);
        let is_dead = case.observed.container(&removed.id).is_some_and(|c| !may_run(c));
        prop_assert!(is_killed || is_dead, "{} may still run", removed.id);
    }
    Ok(())
}

/// A runtime in ten lines: what is killed exits, what is started runs.
fn act(case: &mut Case, plan: &PodPlan) {
    backoff::record_step(&mut case.memory.backoff, &case.pod, &case.observed, &plan.step, case.now);
    for kill in kills(plan) {
        case.memory.killed.insert(kill.id.clone(), kill.why);
        let target = case.observed.containers.iter_mut().find(|c| c.id == kill.id);
        exit(target.unwrap(), 137, case.now.wall);
    }
    match &plan.step {
        PodStep::Settled => {}
        PodStep::RepairCgroup => case.cgroup = CgroupState::UpToDate,
        PodStep::Teardown { stop, .. } => stop_sandboxes(case, stop),
        PodStep::CreateSandbox { attempt, stop, .. } => {
            case.cgroup = CgroupState::UpToDate;
            stop_sandboxes(case, stop);
            create_sandbox(case, *attempt);
        }
        PodStep::Converge { sandbox, remove, start, .. } => {
            for removed in remove.iter().filter(|r| r.why.keeps_logs()) {
                let count = case.observed.container(&removed.id).unwrap().record.restart_count;
                let highest = case.memory.log_restarts.entry(removed.name.to_string()).or_default();
                *highest = count.max(*highest);
            }
            case.observed.containers.retain(|c| remove.iter().all(|r| r.id != c.id));
            for start in start {
                create_container(case, sandbox, start);
            }
        }
    }
}

fn exit(container: &mut ContainerObservation, code: i32, at: jiff::Timestamp) {
    container.state = ContainerState::Exited;
    container.exit_code = code;
    container.finished_at = Some(at);
}

fn stop_sandboxes(case: &mut Case, stop: &[SandboxId]) {
    for sandbox in case.observed.sandboxes.iter_mut().filter(|s| stop.contains(&s.id)) {
        sandbox.state = SandboxState::NotReady;
    }
}

fn create_sandbox(case: &mut Case, attempt: u32) {
    let host = containers::spec_of(&case.pod).host_network == Some(true);
    let template = super::case(if host { "| sandbox=host" } else { "| sandbox" });
    let template = template.observed.sandboxes.into_iter().next().unwrap();
    let id = SandboxId::new(format!("sb{attempt}"));
    case.observed.sandboxes.insert(0, SandboxObservation { id, attempt, ..template });
}

fn create_container(case: &mut Case, sandbox: &SandboxId, start: &StartContainer) {
    let hash = hash_in(&case.pod, &start.name);
    let mut created = new_instance(&start.name, sandbox.clone(), hash, case.now);
    created.state = ContainerState::Running;
    created.record.restart_count = start.restart_count;
    created.id = format!("{}-{}", start.name, start.restart_count).into();
    assert!(case.observed.container(&created.id).is_none(), "{} exists already", created.id);
    case.observed.containers.insert(0, created);
}

/// Time passes: init containers succeed, sidecars start up, everything else runs on.
fn live(case: &mut Case) -> bool {
    let mut has_changed = false;
    let running: Vec<_> = case.observed.running().map(|c| (c.id.clone(), c.name.clone())).collect();
    for (id, name) in running {
        let Some(container) = containers::find_container(&case.pod, &name) else { continue };
        match container.kind {
            ContainerKind::Init => {
                let at = case.now.wall;
                exit(case.observed.containers.iter_mut().find(|c| c.id == id).unwrap(), 0, at);
                has_changed = true;
            }
            ContainerKind::Sidecar => {
                let has_startup = container.startup_probe().is_some();
                let is_silent = case.memory.verdicts.get(&id).startup.is_none();
                has_changed |= has_startup
                    && is_silent
                    && case.memory.verdicts.set(&id, ProbeKind::Startup, Verdict::Success);
            }
            ContainerKind::Regular | ContainerKind::Ephemeral => {}
        }
    }
    has_changed
}

fn pass_time(case: &mut Case, by: Duration) {
    case.now.mono = case.now.mono + by;
    case.now.wall += by;
}

fn has_changed_spec(case: &Case) -> bool {
    let changed = |instance: &ContainerObservation| {
        let container = containers::find_container(&case.pod, &instance.name);
        container.is_some_and(|container| has_changed(&container, instance))
    };
    case.observed.containers.iter().any(changed)
}

fn is_init(case: &Case, name: &str) -> bool {
    containers::find_container(&case.pod, name).is_some_and(|container| container.kind == ContainerKind::Init)
}

/// Decides, acts and lets time pass until nothing happens any more.
fn run_until_rest(case: &mut Case) -> Result<(), TestCaseError> {
    let mut history = Vec::new();
    let mut had_ended: Vec<&str> = Vec::new();
    let mut last_sandbox = None;
    for _ in 0..60 {
        let plan = case.plan();
        check_invariants(case, &plan)?;
        let ended = case.ended(false);
        // A spec that changed makes a pod go on that had ended, and init containers count as long as their sandbox is there.
        let sandbox = find_usable(&case.pod, &case.observed).ok().map(|sandbox| sandbox.id.clone());
        let is_elsewhere = std::mem::replace(&mut last_sandbox, sandbox) != last_sandbox;
        let goes_on = |name: &str| has_changed_spec(case) || (is_elsewhere && is_init(case, name));
        had_ended.retain(|name| !goes_on(name));
        prop_assert!(had_ended.iter().all(|name| ended.has(name)), "{had_ended:?} had ended: {ended:?}");
        had_ended = NAMES.into_iter().filter(|name| ended.has(name)).collect();
        history.push(show(&plan, case.now));
        act(case, &plan);
        let has_changed = live(case);
        let wait = plan.wake_at.map(|at| at.saturating_since(case.now.mono));
        match (&plan.step, wait) {
            (PodStep::Settled, None) if !has_changed => return Ok(()),
            (PodStep::Settled, Some(wait)) => pass_time(case, wait),
            _ => pass_time(case, Duration::from_secs(1)),
        }
    }
    Err(TestCaseError::fail(format!("no rest after:\n{}", history.join("\n"))))
}

/// A settled pod either has all desired containers in one sandbox, or nothing.
fn check_rest(case: &Case) -> Result<(), TestCaseError> {
    let running: Vec<&ContainerObservation> =
        case.observed.containers.iter().filter(|c| may_run(c)).collect();
    if running.is_empty() {
        prop_assert_eq!(case.observed.ready_sandboxes().count(), 0, "an empty sandbox is left");
        return Ok(());
    }
    prop_assert_eq!(case.observed.ready_sandboxes().count(), 1);
    let mut names = BTreeSet::new();
    for container in running {
        // A debug container of unknown state is left alone.
        let is_ephemeral = containers::ephemeral_containers(&case.pod).any(|c| c.name() == &*container.name);
        prop_assert!(container.state == ContainerState::Running || is_ephemeral, "{:?}", container.state);
        prop_assert_eq!(&container.sandbox_id, &case.observed.sandboxes[0].id);
        prop_assert!(names.insert(&*container.name), "two of {}", container.name);
        prop_assert!(containers::find_container(&case.pod, &container.name).is_some());
    }
    let sidecars = containers::init_containers(&case.pod).filter(|c| c.kind == ContainerKind::Sidecar);
    for sidecar in sidecars {
        prop_assert!(names.contains(sidecar.name()), "{sidecar} does not run");
    }
    let any_regular = containers::regular_containers(&case.pod).any(|c| names.contains(c.name()));
    prop_assert!(any_regular, "only sidecars keep the pod alive");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn every_pod_settles_and_keeps_the_invariants(line in any_line()) {
        let mut case = case(&line);
        run_until_rest(&mut case)?;
        check_rest(&case)?;
    }

    /// A kubelet that restarts in between forgets what it killed and how long to wait, and still comes to rest.
    #[test]
    fn kubelet_restart_does_not_change_the_final_state(line in any_line(), passes in 0..6) {
        let mut case = case(&line);
        for _ in 0..passes {
            let plan = case.plan();
            act(&mut case, &plan);
            live(&mut case);
        }
        let fresh = super::case(&line);
        (case.memory.killed, case.memory.backoff, case.memory.verdicts) = (fresh.memory.killed, fresh.memory.backoff, Default::default());
        run_until_rest(&mut case)?;
        check_rest(&case)?;
    }
}

#[test]
fn new_pod_starts_its_containers_in_order() {
    let mut case = case("init:i1 sidecar:s1(startup) init:i2 main:a main:b |");
    let mut passes = Vec::new();
    for _ in 0..8 {
        let plan = case.plan();
        passes.push(show(&plan, case.now));
        act(&mut case, &plan);
        live(&mut case);
    }
    expect_test::expect![[r#"
        create sandbox 0 NoSandbox
        start Init i1#0 NeverStarted
        start Sidecar s1#0 NeverStarted
        start Init i2#0 NeverStarted
        start Regular a#0 NeverStarted; start Regular b#0 NeverStarted
        settled
        settled
        settled"#]]
    .assert_eq(&passes.join("\n"));
}

#[test]
fn crash_loop_back_off_grows_with_each_restart() {
    let mut case = case("main:a | sandbox");
    let mut waits = Vec::new();
    while waits.len() < 8 {
        let plan = case.plan();
        act(&mut case, &plan);
        match plan.wake_at {
            Some(at) => {
                let wait = at.saturating_since(case.now.mono);
                waits.push(wait.as_secs());
                pass_time(&mut case, wait);
            }
            None => {
                let at = case.now.wall;
                exit(&mut case.observed.containers[0], 1, at);
                case.observed.containers.truncate(2);
            }
        }
    }
    assert_eq!(waits, [10, 20, 40, 80, 160, 300, 300, 300]);
}
