//! Full names of pods that ended lately.
//!
//! A call to create a sandbox that the kubelet no longer waits for may still succeed in the runtime, after its pod was seen to have none. A
//! later pod of the same full name must not start while it is there.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use model::{MonoTime, PodRef};

/// A runtime completes or ends a given-up call within this time: twice the usual limit of one that creates a sandbox.
const KEPT: Duration = Duration::from_secs(8 * 60);
/// More pods than end in that time on any real node; the oldest are forgotten first.
const MAX_NAMES: usize = 1024;

/// The pods that ended lately, oldest first. Their texts would keep the pages in use around which they were allocated; two names with one
/// hash only cause a listing.
#[derive(Clone, Debug, Default)]
pub struct EndedNames(VecDeque<Ended>);

#[derive(Clone, Copy, Debug)]
struct Ended {
    name: u64,
    uid: u64,
    at: MonoTime,
}

impl Ended {
    fn of(pod: &PodRef, at: MonoTime) -> Self {
        Self { name: hash(&(&pod.namespace, &pod.name)), uid: hash(&pod.uid), at }
    }
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

impl EndedNames {
    /// Notes that everything of the pod is removed.
    pub fn record(&mut self, pod: &PodRef, now: MonoTime) {
        let is_old = |oldest: &Ended| now.saturating_since(oldest.at) > KEPT;
        while self.0.len() >= MAX_NAMES || self.0.front().is_some_and(is_old) {
            self.0.pop_front();
        }
        self.0.push_back(Ended::of(pod, now));
    }

    /// Whether another pod of that full name ended lately.
    #[must_use]
    pub fn has_another(&self, pod: &PodRef, now: MonoTime) -> bool {
        let pod = Ended::of(pod, now);
        let is_another = |other: &&Ended| other.name == pod.name && other.uid != pod.uid;
        self.0.iter().filter(is_another).any(|other| now.saturating_since(other.at) <= KEPT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> MonoTime {
        MonoTime::from_start(Duration::from_secs(seconds))
    }

    #[test]
    fn another_pod_of_the_name_counts_for_eight_minutes() {
        let mut ended = EndedNames::default();
        ended.record(&PodRef::new("ns", "web", "1"), at(0));
        assert!(ended.has_another(&PodRef::new("ns", "web", "2"), at(480)));
        assert!(!ended.has_another(&PodRef::new("ns", "web", "2"), at(481)));
        assert!(
            !ended.has_another(&PodRef::new("ns", "web", "1"), at(1)),
            "the pod itself looks for its own sandbox"
        );
        assert!(!ended.has_another(&PodRef::new("other", "web", "2"), at(1)));
        assert!(!ended.has_another(&PodRef::new("ns", "db", "2"), at(1)));
    }

    #[test]
    fn names_are_bounded_in_number_and_age() {
        let mut ended = EndedNames::default();
        for number in 0..5000 {
            ended.record(&PodRef::new("ns", "web", number.to_string()), at(number / 100));
        }
        assert_eq!(ended.0.len(), MAX_NAMES);
        ended.record(&PodRef::new("ns", "web", "last"), at(1000));
        assert_eq!(ended.0.len(), 1, "the others are too old");
    }
}
