//! Cases map an observed pod to its allocation. Also: no order of admission, exit and release overcommits the node.

use model::Amount;
use model::containers::find_container;
use model::k8s::Node;
use proptest::prelude::*;

use super::*;
use crate::pods::fixture::{Case, case};
use crate::resources::admission::fit::{Fit, FitFacts, compute_fit};

/// What the pod still holds: `a=1 b=1 together=2`, or `nothing` if it was released.
#[track_caller]
fn check(line: &str, is_stopping: bool, expected: &str) {
    let case = case(line);
    assert_eq!(shown(&case, is_stopping), expected, "{line}");
}

fn shown(case: &Case, is_stopping: bool) -> String {
    let ended = case.ended(is_stopping);
    let mut allocations = Allocations::default();
    let ticket = allocations.ask(KeptPod::new(case.pod.clone()));
    allocations.admit(ticket);
    allocations.note(ticket, ended);
    let Some(held) = allocations.held().next() else { return "nothing".to_owned() };
    let cpus = |requests: Requests| requests.get("cpu").map(ToString::to_string);
    let mut shown = Vec::new();
    for name in ["i", "s", "a", "b"] {
        let container = find_container(&case.pod, name);
        let cpus = container.and_then(|container| cpus(held.of_container(&container)));
        shown.extend(cpus.map(|cpus| format!("{name}={cpus}")));
    }
    shown.push(format!("together={}", cpus(held.requests()).unwrap_or_else(|| "0".to_owned())));
    shown.join(" ")
}

#[test]
fn container_that_never_runs_again_releases_its_allocation() {
    let two = "main:a(cpu=2) main:b(cpu=1)";
    check(&format!("Never {two} |"), false, "a=2 b=1 together=3");
    check(&format!("Never {two} | sandbox a=running b=running"), false, "a=2 b=1 together=3");
    check(&format!("Never {two} | sandbox a=exited(1) b=running"), false, "b=1 together=1");
    check(&format!("OnFailure {two} | sandbox a=exited(0) b=running"), false, "b=1 together=1");
    check(&format!("OnFailure {two} | sandbox a=exited(1) b=running"), false, "a=2 b=1 together=3");
    check(&format!("Always {two} | sandbox a=exited(0) b=running"), false, "a=2 b=1 together=3");
    check(&format!("Never {two} | sandbox a=exited(0) b=unknown"), false, "b=1 together=1");
    // A changed spec starts no container again that has ended.
    check(&format!("Never {two} | sandbox a=exited(0,old) b=running"), false, "b=1 together=1");
}

#[test]
fn container_restarted_by_a_rule_keeps_its_allocation() {
    let by_rule = "Never main:a(cpu=2,in42=Restart) main:b(cpu=1)";
    check(&format!("{by_rule} | sandbox a=exited(42) b=running"), false, "a=2 b=1 together=3");
    check(&format!("{by_rule} | sandbox a=exited(1) b=running"), false, "b=1 together=1");
    let all = "Never main:a(cpu=2) main:b(cpu=1,in42=RestartAll)";
    check(&format!("{all} | sandbox a=exited(0) b=running"), false, "a=2 b=1 together=3");
    check(&format!("{all} | sandbox a=exited(0) b=running norestartall"), false, "b=1 together=1");
    check(&format!("{all} | sandbox a=exited(0) b=exited(42)"), false, "a=2 b=1 together=3");
    check(&format!("{all} | sandbox a=exited(0) b=exited(1)"), false, "nothing");
}

#[test]
fn finished_pod_releases_its_allocation_before_its_sandbox_is_removed() {
    check("Never main:a(cpu=2) | sandbox a=exited(0)", false, "nothing");
    check("Never main:a(cpu=2) | sandbox a=exited(1)", false, "nothing");
    check("OnFailure main:a(cpu=2) | sandbox a=exited(1)", false, "a=2 together=2");
    check("Never sidecar:s(cpu=1) main:a(cpu=2) | sandbox s=running a=exited(0)", false, "s=1 together=1");
    check("Never sidecar:s(cpu=1) main:a(cpu=2) | sandbox s=exited(0) a=exited(0)", false, "nothing");
    check("Never init:i(cpu=3) main:a(cpu=2) | sandbox i=exited(1)", false, "nothing");
    check("Never main:a(cpu=2) |", false, "a=2 together=2");
}

#[test]
fn init_containers_release_their_allocation_once_they_cannot_run_again() {
    let line = "init:i(cpu=3) main:a(cpu=2) | sandbox a=running i=exited(0)";
    check(&format!("Never {line}"), false, "a=2 together=2");
    check(&format!("OnFailure {line}"), false, "i=3 a=2 together=3");
    check(
        "Never init:i(cpu=3) main:a(Always,cpu=2) | sandbox a=running i=exited(0)",
        false,
        "i=3 a=2 together=3",
    );
    check("Never init:i(cpu=3) main:a(cpu=2) | sandbox i=running", false, "i=3 a=2 together=3");
}

#[test]
fn stopping_pod_releases_exited_containers_and_finally_itself() {
    let line = "Always sidecar:s(cpu=1) main:a(cpu=2) main:b(cpu=4)";
    check(&format!("{line} | sandbox s=running a=exited(137) b=running"), true, "s=1 b=4 together=5");
    check(&format!("{line} | sandbox s=running a=exited(137)"), true, "s=1 b=4 together=5");
    check(&format!("{line} | sandbox s=exited(0) a=exited(137) b=exited(0)"), true, "together=0");
    check("Never main:a(cpu=2) | sandbox a=exited(0)", true, "nothing");
}

fn pod(uid: usize, cpus: &[i64]) -> Pod {
    let words: Vec<String> = cpus.iter().enumerate().map(|(n, cpu)| format!("main:{n}(cpu={cpu})")).collect();
    let mut pod = case(&format!("Never {} |", words.join(" "))).pod;
    pod.metadata.uid = Some(uid.to_string());
    pod
}

const CAPACITY: i64 = 10;

fn fits(allocations: &Allocations, ticket: Ticket, pod: &Pod) -> bool {
    let node = Node::default();
    let quantity = |text: String| model::k8s::Quantity(text);
    let allocatable =
        [("cpu", CAPACITY), ("pods", 4)].map(|(name, n)| (name.to_owned(), quantity(n.to_string()))).into();
    let others = allocations.other_pods(ticket).unwrap();
    let facts = FitFacts {
        may_preempt: true,
        node: &node,
        allocatable: &allocatable,
        active: &others.allocations,
        features: Features::default(),
    };
    compute_fit(pod, &facts) == Fit::Fits
}

fn held(allocations: &Allocations) -> Amount {
    allocations.held().filter_map(|held| held.requests().remove("cpu")).fold(Amount::ZERO, |a, b| a + b)
}

#[derive(Clone, Debug)]
enum Event {
    Comes(Vec<i64>),
    /// The pod and its container of that number, among those there are.
    Ends(usize, usize),
    IsOver(usize),
    Leaves(usize),
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        prop::collection::vec(0..5_i64, 1..4).prop_map(Event::Comes),
        (0..6_usize, 0..3_usize).prop_map(|(pod, container)| Event::Ends(pod, container)),
        (0..6_usize).prop_map(Event::IsOver),
        (0..6_usize).prop_map(Event::Leaves),
    ]
}

proptest! {
    /// Pods are added, admitted, lose containers, end and are released in any order. The allocations are compared with a plain list of what
    /// each container holds, which must come to the same sum.
    #[test]
    fn node_is_never_overcommitted_and_allocations_are_released_once(
        events in prop::collection::vec(any_event(), 0..60),
    ) {
        let mut allocations = Allocations::default();
        let mut there: Vec<(Ticket, Vec<i64>, Ended)> = Vec::new();
        for (uid, event) in events.into_iter().enumerate() {
            let at = |n: usize| (!there.is_empty()).then(|| n % there.len().max(1));
            match event {
                Event::Comes(cpus) => {
                    let pod = pod(uid, &cpus);
                    let ticket = allocations.ask(KeptPod::new(pod.clone()));
                    if fits(&allocations, ticket, &pod) {
                        allocations.admit(ticket);
                        there.push((ticket, cpus, Ended::default()));
                    } else {
                        prop_assert!(allocations.release(ticket));
                    }
                }
                Event::Ends(n, container) => if let Some(n) = at(n) {
                    let (ticket, cpus, ended) = &mut there[n];
                    if let Ended::Containers(names) = ended {
                        let at = container % cpus.len();
                        let is_new = names.insert(at.to_string().into());
                        cpus[at] = 0;
                        prop_assert_eq!(allocations.note(*ticket, ended.clone()), is_new, "reported once");
                    }
                },
                Event::IsOver(n) => if let Some(n) = at(n) {
                    let (ticket, cpus, ended) = &mut there[n];
                    let is_new = *ended != Ended::All;
                    *ended = Ended::All;
                    cpus.fill(0);
                    prop_assert_eq!(allocations.note(*ticket, Ended::All), is_new, "reported once");
                    prop_assert!(!allocations.has(*ticket));
                },
                Event::Leaves(n) => if let Some(n) = at(n) {
                    let (ticket, _, _) = there.remove(n);
                    prop_assert!(allocations.release(ticket));
                    prop_assert!(!allocations.release(ticket), "once");
                },
            }
            let expected: i64 = there.iter().flat_map(|(_, cpus, _)| cpus).sum();
            prop_assert_eq!(held(&allocations), Amount::from_units(expected));
            prop_assert!(expected <= CAPACITY, "{expected} of {CAPACITY}");
            prop_assert!(allocations.held().count() <= 4);
        }
        for (ticket, _, _) in there {
            allocations.release(ticket);
        }
        prop_assert_eq!(held(&allocations), Amount::ZERO);
    }
}
