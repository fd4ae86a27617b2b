//! `p/a: exited@1 running@2 | box notready@1 | logs … | links …` in; removals and their reasons out. Pods `p` are live, the
//! content of `x` is removable, others are gone. Instances are named after their pod, container and creation time.

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;
use crate::pods::fixture::case;

fn at(seconds: &str) -> Timestamp {
    Timestamp::from_second(seconds.parse().expect("seconds")).expect("a time")
}

#[derive(Clone, Debug, Default)]
struct World {
    containers: Vec<GcContainer>,
    sandboxes: Vec<GcSandbox>,
    log_dirs: Vec<String>,
    log_links: Vec<LogLink>,
}

impl World {
    fn parse(text: &str) -> Self {
        let mut world = Self::default();
        for part in text.split('|').map(str::trim).filter(|part| !part.is_empty()) {
            let (head, items) = part.split_once(':').expect("what: items");
            for item in items.split_whitespace() {
                world.add(head, item);
            }
        }
        world
    }

    fn add(&mut self, head: &str, item: &str) {
        match (head, head.split_once('/')) {
            ("logs", _) => self.log_dirs.push(item.to_owned()),
            ("links", _) => {
                let (name, target_exists) = item.strip_suffix('!').map_or((item, true), |name| (name, false));
                self.log_links.push(LogLink { name: name.to_owned(), target_exists });
            }
            (_, Some((pod, "box"))) => {
                let (state, time) = item.split_once('@').expect("state@time");
                let state = if state == "ready" { SandboxState::Ready } else { SandboxState::NotReady };
                let id = SandboxId::from(format!("{pod}.{time}"));
                self.sandboxes.retain(|s| s.id != id);
                self.sandboxes.push(GcSandbox { id, pod: pod.into(), state, created_at: at(time) });
            }
            (_, Some((pod, name))) => {
                let (state, place) = item.split_once('@').expect("state@time");
                let (time, sandbox) = place.split_once('^').unwrap_or((place, "0"));
                let id = ContainerId::from(format!("{pod}{name}{time}"));
                self.containers.retain(|c| c.id != id);
                self.containers.push(GcContainer {
                    id,
                    sandbox: format!("{pod}.{sandbox}").into(),
                    pod: pod.into(),
                    name: name.into(),
                    state: match state {
                        "created" => ContainerState::Created,
                        "running" => ContainerState::Running,
                        "exited" => ContainerState::Exited,
                        "unknown" => ContainerState::Unknown,
                        other => panic!("no state {other}"),
                    },
                    created_at: at(time),
                });
            }
            _ => panic!("no part {head}"),
        }
    }

    fn plan(&self, policy: GcPolicy, sources_ready: bool) -> GcPlan {
        let fates = [("p", PodFate::Live), ("q", PodFate::Live), ("x", PodFate::ContentRemovable)];
        compute_gc(&GcInputs {
            containers: &self.containers,
            sandboxes: &self.sandboxes,
            pods: &fates.into_iter().map(|(pod, fate)| (pod.into(), fate)).collect(),
            log_dirs: &self.log_dirs,
            log_links: &self.log_links,
            policy,
            sources_ready,
            now: at("100"),
        })
    }
}

fn shown(plan: &GcPlan) -> String {
    let containers = plan.containers.iter().map(|(id, why)| format!("{id} ({why:?})"));
    let sandboxes = plan.sandboxes.iter().map(|(id, why)| format!("box {id} ({why:?})"));
    let dirs = plan.log_dirs.iter().map(|name| format!("logs {name}"));
    let links = plan.log_links.iter().map(|name| format!("link {name}"));
    containers.chain(sandboxes).chain(dirs).chain(links).collect::<Vec<_>>().join(", ")
}

#[track_caller]
fn check(text: &str, expected: Expect) {
    expected.assert_eq(&shown(&World::parse(text).plan(GcPolicy::default(), true)));
}

#[track_caller]
fn check_policy(policy: GcPolicy, text: &str, expected: Expect) {
    expected.assert_eq(&shown(&World::parse(text).plan(policy, true)));
}

#[track_caller]
fn check_early(text: &str, expected: Expect) {
    expected.assert_eq(&shown(&World::parse(text).plan(GcPolicy::default(), false)));
}

#[test]
fn one_dead_instance_of_each_container_is_kept() {
    check("p/a: exited@1", expect![[""]]);
    check("p/a: exited@1 running@2", expect![[""]]);
    check("p/a: exited@1 exited@2 running@3", expect!["pa1 (Superseded)"]);
    check("p/a: exited@1 exited@2 exited@3", expect!["pa1 (Superseded), pa2 (Superseded)"]);
    check("p/a: exited@1 exited@2 | p/b: exited@3", expect!["pa1 (Superseded)"]);
    check("p/a: exited@1 exited@2 | q/a: exited@3 exited@4", expect!["pa1 (Superseded), qa3 (Superseded)"]);
    check("p/a: exited@1 created@2", expect!["pa1 (Superseded)"]);
    check("p/a: unknown@1 exited@2", expect![[""]]);
}

#[test]
fn containers_of_pods_that_are_gone_are_removed_unless_running() {
    check("gone/a: exited@1 exited@2 running@3", expect!["gonea1 (PodGone), gonea2 (PodGone)"]);
    check("x/a: exited@1 | x/b: unknown@2", expect!["xa1 (PodGone), xb2 (PodGone)"]);
}

#[test]
fn no_pod_is_gone_until_all_sources_are_ready() {
    check_early(
        "gone/a: exited@1 exited@2 | gone/box: notready@0 notready@1",
        expect!["gonea1 (Superseded)"],
    );
    check_early("x/a: exited@1 | logs: ns_n_gone ns_n_x", expect!["xa1 (PodGone)"]);
}

#[test]
fn container_gc_policy_never_removes_the_newest_instance() {
    let keep = |dead_per_container| GcPolicy { dead_per_container, ..GcPolicy::default() };
    check_policy(keep(0), "p/a: exited@1 exited@2", expect!["pa1 (Superseded)"]);
    check_policy(keep(0), "p/a: exited@1 running@2", expect!["pa1 (Superseded)"]);
    check_policy(keep(3), "p/a: exited@1 exited@2 exited@3 exited@4", expect!["pa1 (Superseded)"]);
}

#[test]
fn containers_younger_than_the_minimum_age_stay() {
    let policy = GcPolicy { age_min: Duration::from_secs(60), ..GcPolicy::default() };
    check_policy(
        policy,
        "p/a: exited@39 exited@40 exited@41 exited@90",
        expect!["pa39 (Superseded), pa40 (Superseded)"],
    );
}

/// `kuberuntime/kuberuntime_gc_test.go`, TestContainerGC: what is removed. Creation times are those of the table, `90` is
/// young. Where the Go kubelet removes the newest instance of a container of a live pod, or more than the limit requires,
/// ours does not (docs/decisions/0067).
#[test]
fn container_gc_table() {
    let policy = GcPolicy { age_min: Duration::from_secs(60), dead_per_container: 2, dead_total: Some(6) };
    let per_node = GcPolicy { dead_per_container: 100, dead_total: Some(4), ..policy };
    let unlimited = GcPolicy { dead_per_container: 100, dead_total: None, ..policy };
    for (name, policy, world, expected) in [
        (
            "max containers without a limit per container",
            per_node,
            "p/bar: exited@4 exited@3 exited@2 exited@1 exited@0",
            "pbar0 (TooManyDead)",
        ),
        ("no limits", unlimited, "p/bar: exited@2 exited@1 exited@0", ""),
        ("recently started", policy, "p/bar: exited@90 exited@91 exited@92", ""),
        ("oldest of a container", policy, "p/bar: exited@2 exited@1 exited@0", "pbar0 (Superseded)"),
        ("running", policy, "p/bar: exited@2 exited@1 running@0", ""),
        ("limits not exceeded", policy, "p/bar: exited@1 exited@0", ""),
        (
            "per UID and container",
            policy,
            "p/bar: exited@2 exited@1 exited@0 | q/baz: exited@2 exited@1 exited@0 | q/bar: exited@2 exited@1 exited@0",
            "pbar0 (Superseded), qbar0 (Superseded), qbaz0 (Superseded)",
        ),
        (
            "all of terminating pods but what runs",
            policy,
            "x/bar: exited@2 exited@1 | p/bar2: exited@1 | x/bar3: running@0",
            "xbar1 (PodGone), xbar2 (PodGone)",
        ),
        (
            "deleted pods respect the age too",
            policy,
            "p/bar: exited@1 exited@0 | deleted/bar1: exited@90 exited@1 exited@0",
            "deletedbar10 (PodGone), deletedbar11 (PodGone)",
        ),
    ] {
        assert_eq!(shown(&World::parse(world).plan(policy, true)), expected, "{name}");
    }
    let early = World::parse("deleted/bar1: exited@0").plan(policy, false);
    assert_eq!(shown(&early), "", "not all sources ready");
}

/// `kuberuntime/kuberuntime_gc_test.go`, TestSandboxGC and TestPodLogDirectoryGC.
#[test]
fn sandbox_gc_table() {
    for (name, world, expected) in [
        ("notready of a deleted pod", "gone/box: notready@0", "box gone.0 (PodGone)"),
        ("ready of a deleted pod", "gone/box: ready@0", ""),
        ("existing pods", "p/box: ready@0 | q/box: notready@0", ""),
        ("older exited", "p/box: notready@1 notready@0", "box p.0 (Superseded)"),
        ("older exited with containers", "p/box: notready@1 notready@0 | p/a: exited@5^0", ""),
        ("of terminating pods", "p/box: ready@0 | x/box: notready@0", "box x.0 (PodGone)"),
        ("with containers", "p/box: notready@0 | p/a: exited@5^0", ""),
        (
            "several",
            "p/box: ready@1 notready@0 | q/box: notready@1 notready@0 | q/a: exited@5^1 | gone/box: notready@0",
            "box gone.0 (PodGone), box p.0 (Superseded), box q.0 (Superseded)",
        ),
        ("log directories", "logs: ns_name_p ns_name_654", "logs ns_name_654"),
    ] {
        assert_eq!(shown(&World::parse(world).plan(GcPolicy::default(), true)), expected, "{name}");
    }
    let early = World::parse("logs: ns_name_654").plan(GcPolicy::default(), false);
    assert_eq!(shown(&early), "", "not all sources ready");
}

#[test]
fn max_containers_of_the_node_removes_the_oldest_dead_instances() {
    let policy = GcPolicy { dead_total: Some(2), ..GcPolicy::default() };
    check_policy(
        policy,
        "p/a: exited@1 running@5 | p/b: exited@2 running@6 | q/a: exited@3 running@7",
        expect!["pa1 (TooManyDead)"],
    );
    check_policy(policy, "p/a: exited@1 | p/b: exited@2 | q/a: exited@3", expect![[""]]);
}

#[test]
fn dead_sandboxes_are_removed_when_empty_and_not_the_newest() {
    check("p/box: notready@1", expect![[""]]);
    check("p/box: notready@1 notready@2", expect!["box p.1 (Superseded)"]);
    check("p/box: notready@1 ready@2", expect!["box p.1 (Superseded)"]);
    check("p/box: ready@1 notready@2", expect![[""]]);
    check("p/box: notready@1 notready@2 | p/a: exited@1^1", expect![[""]]);
    check(
        "p/box: notready@1 ready@2 | p/a: exited@1^1 exited@2^2 running@3^2",
        expect!["pa1 (Superseded), box p.1 (Superseded)"],
    );
}

#[test]
fn all_sandboxes_of_pods_that_are_gone_are_removed() {
    check("gone/box: notready@1 notready@2", expect!["box gone.1 (PodGone), box gone.2 (PodGone)"]);
    check("gone/box: ready@1", expect![[""]]);
    check("x/box: notready@1 | x/a: exited@2^1", expect!["xa2 (PodGone), box x.1 (PodGone)"]);
    check("gone/box: notready@1 | gone/a: running@2^1", expect![[""]]);
}

#[test]
fn log_directories_are_removed_with_their_pods() {
    check("logs: ns_name_p ns_name_gone ns_name_x", expect!["logs ns_name_gone, logs ns_name_x"]);
    check("logs: lost+found _ a_b a__c ns_name_", expect![[""]]);
    check("logs: ns_name_gone | gone/a: running@1", expect![[""]]);
}

#[test]
fn dangling_log_links_are_removed_unless_their_container_still_writes() {
    check("links: n_ns_a-pa1.log!", expect!["link n_ns_a-pa1.log"]);
    check("links: n_ns_a-pa1.log", expect![[""]]);
    check("links: n_ns_a-pa1.log! | p/a: running@1", expect![[""]]);
    check("links: n_ns_a-pa1.log! | p/a: exited@1", expect!["link n_ns_a-pa1.log"]);
    check("links: odd!", expect!["link odd"]);
}

fn any_world() -> impl Strategy<Value = String> {
    let container =
        (prop_oneof!["p", "q", "x", "gone"], "[ab]", "(created|running|exited|unknown)", 0..50, 0..3)
            .prop_map(|(pod, name, state, time, sandbox)| format!("{pod}/{name}: {state}@{time}^{sandbox}"));
    let sandbox = (prop_oneof!["p", "q", "x", "gone"], "(ready|notready)", 0..3)
        .prop_map(|(pod, state, time)| format!("{pod}/box: {state}@{time}"));
    prop::collection::vec(prop_oneof![3 => container, 1 => sandbox], 0..20).prop_map(|all| all.join(" | "))
}

fn newest<'a>(world: &'a World, of: &GcContainer) -> Option<&'a GcContainer> {
    let instances = world.containers.iter().filter(|c| c.pod == of.pod && c.name == of.name);
    instances.max_by_key(|c| (c.created_at, c.id.clone()))
}

proptest! {
    #[test]
    fn nothing_that_runs_and_no_newest_of_a_live_pod_is_removed(
        text in any_world(),
        dead_per_container in 0..3_usize,
        dead_total in prop::option::of(0..4_usize),
        ready in any::<bool>(),
    ) {
        let world = World::parse(&text);
        let policy = GcPolicy { dead_per_container, dead_total, age_min: Duration::ZERO };
        let plan = world.plan(policy, ready);
        for (id, why) in &plan.containers {
            let container = world.containers.iter().find(|c| c.id == *id).expect("a listed one");
            prop_assert_ne!(container.state, ContainerState::Running);
            if *why != GcReason::PodGone {
                prop_assert!(newest(&world, container).is_some_and(|c| c.id != *id));
            }
        }
    }

    #[test]
    fn sandbox_is_removed_only_after_all_its_containers(text in any_world(), ready in any::<bool>()) {
        let world = World::parse(&text);
        let plan = world.plan(GcPolicy::default(), ready);
        for (id, _) in &plan.sandboxes {
            for container in world.containers.iter().filter(|c| c.sandbox == *id) {
                prop_assert!(plan.containers.iter().any(|(gone, _)| *gone == container.id));
            }
        }
    }
}

/// `pod_container_deletor.go`: the names of those that ended, how many dead ones stay, and what is removed.
#[test]
fn dead_containers_beyond_the_newest_are_superseded() {
    let observed = case(
        "main:a main:b | sandbox a=running(#4) a=exited(1,5s,#3) a=exited(1,15s,#2) a=exited(1,25s,#1) a=exited(0,30s,#0) \
         b=exited(0,5s,#1) b=exited(0,9s,#0)",
    );
    let superseded = |names: &[&str], kept| {
        let names = names.iter().map(|name| Arc::from(*name)).collect();
        let ids = compute_superseded(&observed.observed, &names, kept);
        ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(superseded(&["a"], 1), "a-2 a-1 a-0");
    assert_eq!(superseded(&["a"], 0), "a-2 a-1 a-0", "the newest stays");
    assert_eq!(superseded(&["a", "b"], 2), "a-1 a-0");
    assert_eq!(superseded(&["a", "b"], 1), "a-2 a-1 a-0 b-0");
    assert_eq!(superseded(&["a", "b"], usize::MAX), "");
    assert_eq!(superseded(&[], 1), "");
}
