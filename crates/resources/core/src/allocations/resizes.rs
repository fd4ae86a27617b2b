//! Resources that the API requests for pods that have others: tried in order, each with what is left by those before it.

use std::sync::Arc;

use jiff::Timestamp;
use model::PodUid;
use model::k8s::Pod;

use super::order::{self, Waiting};
use super::{Allocations, OtherPods, Ticket};

/// A request for other resources.
#[derive(Clone, Debug)]
pub(super) struct Requested {
    pod: Arc<Pod>,
    /// Since when it waits; `None` if it was not tried yet.
    since: Option<Timestamp>,
    /// What was decided last.
    outcome: Option<ResizeOutcome>,
}

/// The decision about one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResizeVerdict {
    /// The node has the resources once these pods are preempted; the first resource that was short.
    Fits { victims: Vec<PodUid>, short_of: String },
    /// It does not have them now.
    Deferred { message: String },
    /// It never resizes this pod so.
    Infeasible { message: String, detail: &'static str },
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum ResizeOutcome {
    /// The pod has these resources now.
    Allocated {
        pod: Arc<Pod>,
        was_deferred: bool,
    },
    Deferred {
        message: String,
    },
    Infeasible {
        message: String,
        detail: &'static str,
    },
}

/// Pods to preempt for resizes, and whether any decision is another one than before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResizeDecisions {
    pub victims: Vec<(Vec<PodUid>, String)>,
    pub is_changed: bool,
}

impl Allocations {
    /// The API requests other resources for an admitted pod. `since`: it has waited before this kubelet started. The same request is
    /// not tried again if it is infeasible.
    pub fn request_resize(&mut self, ticket: Ticket, pod: Arc<Pod>, since: Option<Timestamp>) {
        let Some(entry) = self.entries.get_mut(&ticket).filter(|entry| !entry.is_open) else { return };
        let before = entry.requested.take();
        let has_same_spec = |before: &Requested| before.pod.spec == pod.spec;
        let requested = match before {
            Some(before) if has_same_spec(&before) => Requested { pod, ..*before },
            before => {
                Requested { pod, since: before.and_then(|before| before.since).or(since), outcome: None }
            }
        };
        entry.requested = Some(Box::new(requested));
    }

    /// The API requests what the pod has.
    pub fn withdraw_resize(&mut self, ticket: Ticket) {
        if let Some(entry) = self.entries.get_mut(&ticket) {
            entry.requested = None;
        }
    }

    /// Tries all resizes that wait: those that request no more first. Each takes its resources before the next is tried.
    pub fn try_resizes(
        &mut self,
        now: Timestamp,
        decide: impl Fn(&Pod, &Pod, &OtherPods<'_>) -> ResizeVerdict,
    ) -> ResizeDecisions {
        let mut tried = ResizeDecisions::default();
        for ticket in self.resizes_in_order() {
            let Some(entry) = self.entries.get(&ticket) else { continue };
            let (Some(requested), Some(others)) = (&entry.requested, self.others(ticket, |_, e| e.holds()))
            else {
                continue;
            };
            let verdict = decide(&requested.pod, &entry.pod, &others);
            self.record_verdict(ticket, verdict, now, &mut tried);
        }
        tried
    }

    /// What was decided about the pod, once if it got its resources.
    pub fn take_resize_outcome(&mut self, ticket: Ticket) -> Option<ResizeOutcome> {
        let entry = self.entries.get_mut(&ticket)?;
        let outcome = entry.requested.as_ref()?.outcome.clone();
        if matches!(outcome, Some(ResizeOutcome::Allocated { .. })) {
            entry.requested = None;
        }
        outcome
    }

    /// A resize of this pod may still get its resources.
    #[must_use]
    pub fn may_resize(&self, ticket: Ticket) -> bool {
        let requested = self.entries.get(&ticket).and_then(|entry| entry.requested.as_ref());
        requested.is_some_and(|requested| requested.may_be_tried())
    }

    fn resizes_in_order(&self) -> Vec<Ticket> {
        let waiting = self.entries.iter().filter_map(|(ticket, entry)| {
            let requested = entry.requested.as_ref().filter(|requested| requested.may_be_tried())?;
            Some((*ticket, &*requested.pod, &*entry.pod, requested.since))
        });
        let mut waiting: Vec<_> = waiting.collect();
        waiting.sort_by(|(_, requested_a, allocated_a, since_a), (_, requested_b, allocated_b, since_b)| {
            order::compare(
                &Waiting { requested: requested_a, allocated: allocated_a, since: *since_a },
                &Waiting { requested: requested_b, allocated: allocated_b, since: *since_b },
            )
        });
        waiting.into_iter().map(|(ticket, ..)| ticket).collect()
    }

    fn record_verdict(
        &mut self,
        ticket: Ticket,
        verdict: ResizeVerdict,
        now: Timestamp,
        tried: &mut ResizeDecisions,
    ) {
        let Some(entry) = self.entries.get_mut(&ticket) else { return };
        let Some(requested) = &mut entry.requested else { return };
        let outcome = match verdict {
            ResizeVerdict::Fits { victims, short_of } => {
                if !victims.is_empty() {
                    tried.victims.push((victims, short_of));
                }
                let was_deferred = matches!(requested.outcome, Some(ResizeOutcome::Deferred { .. }));
                ResizeOutcome::Allocated { pod: requested.pod.clone(), was_deferred }
            }
            ResizeVerdict::Deferred { message } => {
                requested.since.get_or_insert(now);
                ResizeOutcome::Deferred { message }
            }
            ResizeVerdict::Infeasible { message, detail } => ResizeOutcome::Infeasible { message, detail },
        };
        tried.is_changed |= requested.outcome.as_ref() != Some(&outcome);
        let allocated = match &outcome {
            ResizeOutcome::Allocated { pod, .. } => Some(pod.clone()),
            ResizeOutcome::Deferred { .. } | ResizeOutcome::Infeasible { .. } => None,
        };
        requested.outcome = Some(outcome);
        if let Some(pod) = allocated {
            entry.set_pod(pod);
        }
    }
}

impl Requested {
    const fn may_be_tried(&self) -> bool {
        matches!(self.outcome, None | Some(ResizeOutcome::Deferred { .. }))
    }
}

#[cfg(test)]
mod tests {
    use model::Amount;
    use serde_json::json;

    use super::*;
    use crate::allocations::RememberedAmounts;
    use crate::amounts_file::PodResources;
    use crate::requests::pod_requests;

    fn pod(uid: &str, cpus: i64) -> Arc<Pod> {
        let container = json!({"name": "c", "resources": {"requests": {"cpu": cpus.to_string()}}});
        let pod = json!({"metadata": {"uid": uid}, "spec": {"containers": [container]}});
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    /// A node with four CPUs.
    fn decide(requested: &Pod, _: &Pod, others: &OtherPods<'_>) -> ResizeVerdict {
        let cpus = |amount: Option<&Amount>| amount.copied().unwrap_or_default().units();
        let used: i64 = others.allocations.iter().map(|other| cpus(other.requests().get("cpu"))).sum();
        match cpus(pod_requests(requested).get("cpu")) {
            9.. => ResizeVerdict::Infeasible { message: "never".to_owned(), detail: "test" },
            wanted if used + wanted > 4 => ResizeVerdict::Deferred { message: format!("{used} used") },
            _ => ResizeVerdict::Fits { victims: Vec::new(), short_of: String::new() },
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn admitted(cpus: &[(&str, i64)]) -> (Allocations, Vec<Ticket>) {
        let mut table = Allocations::default();
        let tickets = cpus.iter().map(|(uid, cpus)| {
            let ticket = table.ask(pod(uid, *cpus));
            table.admit(ticket);
            ticket
        });
        let tickets = tickets.collect();
        (table, tickets)
    }

    fn allocated(table: &Allocations) -> Vec<i64> {
        table.held().map(|one| one.requests()["cpu"].units()).collect()
    }

    #[test]
    fn resize_gets_what_is_free_and_waits_for_the_rest() {
        let (mut table, pods) = admitted(&[("a", 1), ("b", 2)]);
        table.request_resize(pods[0], pod("a", 2), None);
        assert!(table.try_resizes(at(1), decide).is_changed);
        assert_eq!(allocated(&table), [2, 2]);
        let outcome = ResizeOutcome::Allocated { pod: pod("a", 2), was_deferred: false };
        assert_eq!(table.take_resize_outcome(pods[0]), Some(outcome));
        assert_eq!(table.take_resize_outcome(pods[0]), None, "it is reported once");
        table.request_resize(pods[0], pod("a", 3), None);
        table.try_resizes(at(2), decide);
        assert_eq!(allocated(&table), [2, 2]);
        let outcome = ResizeOutcome::Deferred { message: "2 used".to_owned() };
        assert_eq!(table.take_resize_outcome(pods[0]), Some(outcome));
        assert!(table.may_resize(pods[0]));
        assert!(!table.try_resizes(at(3), decide).is_changed, "nothing is new");
        table.release(pods[1]);
        table.try_resizes(at(4), decide);
        let outcome = ResizeOutcome::Allocated { pod: pod("a", 3), was_deferred: true };
        assert_eq!(table.take_resize_outcome(pods[0]), Some(outcome));
    }

    /// A kubelet that has just started decides about one pod after the other.
    #[test]
    fn resize_does_not_get_what_an_earlier_kubelet_allocated_to_a_pod_that_is_not_decided_yet() {
        let features = config::Features::default();
        let mut table = Allocations::default();
        let remembered = |uid: &str, cpus| RememberedAmounts {
            allocated: Some(PodResources::allocated_to(&pod(uid, cpus), features)),
            ..RememberedAmounts::default()
        };
        let amounts = [("a", 1), ("b", 2)].map(|(uid, cpus)| (uid.into(), remembered(uid, cpus)));
        table.remember_amounts(amounts.into(), features);
        let first = table.ask(pod("a", 3));
        table.ask(pod("b", 2));
        let new = table.ask(pod("new", 2));
        let on_disk =
            |table: &Allocations| table.amounts().0.into_keys().map(|uid| uid.to_string()).collect();
        table.admit(first);
        table.request_resize(first, pod("a", 3), None);
        table.try_resizes(at(1), decide);
        assert_eq!(
            table.take_resize_outcome(first),
            Some(ResizeOutcome::Deferred { message: "2 used".to_owned() })
        );
        let kept: Vec<String> = on_disk(&table);
        assert_eq!(
            kept,
            ["a", "b"],
            "the next kubelet knows it, too, and a pod that is not admitted holds nothing"
        );
        assert_eq!(table.other_pods(new).unwrap().allocations.len(), 2);
    }

    #[test]
    fn pod_whose_worker_starts_again_keeps_what_was_allocated_to_it() {
        let (mut table, pods) = admitted(&[("a", 1), ("b", 1)]);
        table.request_resize(pods[0], pod("a", 3), None);
        table.try_resizes(at(1), decide);
        let again = table.ask(pod("a", 1));
        assert!(table.is_remembered(again) && !table.release(pods[0]));
        assert_eq!(table.allocated_pod(again), Some(pod("a", 3)));
        table.request_resize(pods[1], pod("b", 2), None);
        table.try_resizes(at(2), decide);
        let deferred = ResizeOutcome::Deferred { message: "3 used".to_owned() };
        assert_eq!(table.take_resize_outcome(pods[1]), Some(deferred));
    }

    #[test]
    fn what_one_resize_frees_is_there_for_the_next_at_once() {
        let (mut table, pods) = admitted(&[("a", 2), ("b", 2)]);
        table.request_resize(pods[0], pod("a", 3), None);
        table.request_resize(pods[1], pod("b", 1), None);
        table.try_resizes(at(1), decide);
        assert_eq!(allocated(&table), [3, 1]);
    }

    #[test]
    fn resize_that_waits_longer_comes_first_whatever_is_requested_meanwhile() {
        let (mut table, pods) = admitted(&[("a", 1), ("b", 1), ("c", 2)]);
        table.request_resize(pods[1], pod("b", 2), None);
        table.try_resizes(at(1), decide);
        table.request_resize(pods[0], pod("a", 2), None);
        table.request_resize(pods[1], pod("b", 3), None);
        table.try_resizes(at(2), decide);
        table.release(pods[2]);
        table.try_resizes(at(3), decide);
        assert_eq!(allocated(&table), [1, 3]);
    }

    #[test]
    fn infeasible_request_is_not_tried_again_but_another_one_is() {
        let (mut table, pods) = admitted(&[("a", 1)]);
        table.request_resize(pods[0], pod("a", 9), None);
        table.try_resizes(at(1), decide);
        table.request_resize(pods[0], pod("a", 9), None);
        assert!(!table.may_resize(pods[0]));
        table.request_resize(pods[0], pod("a", 4), None);
        assert!(table.may_resize(pods[0]));
        table.withdraw_resize(pods[0]);
        assert!(!table.may_resize(pods[0]) && !table.try_resizes(at(2), decide).is_changed);
        assert_eq!(allocated(&table), [1]);
    }

    #[test]
    fn pod_that_has_ended_is_not_resized() {
        let (mut table, pods) = admitted(&[("a", 1)]);
        table.request_resize(pods[0], pod("a", 2), None);
        table.record(pods[0], super::super::Ended::All);
        assert!(!table.try_resizes(at(1), decide).is_changed);
    }

    proptest::proptest! {
        /// Requests, ends and attempts in any order: the node never gives more than it has, and what fits is given.
        #[test]
        fn resizes_never_take_more_than_the_node_has(steps in proptest::collection::vec((0_usize..4, 1_i64..6, 0..4), 1..60)) {
            let (mut table, mut pods) = admitted(&[("0", 1), ("1", 1), ("2", 1), ("3", 1)]);
            for (second, (index, cpus, what)) in steps.into_iter().enumerate() {
                let uid = index.to_string();
                match what {
                    0 => {
                        table.release(pods[index]);
                        let held: i64 = allocated(&table).into_iter().sum();
                        pods[index] = table.ask(pod(&uid, 1));
                        if held < 4 {
                            table.admit(pods[index]);
                        }
                    }
                    1 => table.withdraw_resize(pods[index]),
                    _ => table.request_resize(pods[index], pod(&uid, cpus), None),
                }
                table.try_resizes(at(i64::try_from(second).unwrap()), decide);
                let held: i64 = allocated(&table).into_iter().sum();
                proptest::prop_assert!(held <= 4, "{held}");
                let waiting = table.resizes_in_order();
                for ticket in waiting {
                    let (entry, others) = (&table.entries[&ticket], table.others(ticket, |_, e| !e.is_open).unwrap());
                    let wanted = &entry.requested.as_ref().unwrap().pod;
                    let fits = matches!(decide(wanted, &entry.pod, &others), ResizeVerdict::Fits { .. });
                    proptest::prop_assert!(!fits, "a resize waits although it fits");
                }
            }
        }
    }
}
