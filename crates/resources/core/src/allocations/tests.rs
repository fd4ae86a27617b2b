//! No order of admission, exit and release overcommits the node.

use model::Amount;
use model::k8s::Node;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::admission::fit::{Fit, FitFacts, compute_fit};

fn pod(uid: usize, cpus: &[i64]) -> Pod {
    let container = |(n, cpu): (usize, &i64)| json!({"name": n.to_string(), "resources": {"requests": {"cpu": cpu.to_string()}}});
    let containers: Vec<_> = cpus.iter().enumerate().map(container).collect();
    let metadata = json!({"name": "p", "uid": uid.to_string()});
    serde_json::from_value(
        json!({"metadata": metadata, "spec": {"restartPolicy": "Never", "containers": containers}}),
    )
    .unwrap()
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
                    let ticket = allocations.ask(Arc::new(pod.clone()));
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
                        prop_assert_eq!(allocations.record(*ticket, ended.clone()), is_new, "reported once");
                    }
                },
                Event::IsOver(n) => if let Some(n) = at(n) {
                    let (ticket, cpus, ended) = &mut there[n];
                    let is_new = *ended != Ended::All;
                    *ended = Ended::All;
                    cpus.fill(0);
                    prop_assert_eq!(allocations.record(*ticket, Ended::All), is_new, "reported once");
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
