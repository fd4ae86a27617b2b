//! What must hold while the wall clock of the kubelet jumps and nothing else fails: containers go on, back-offs end, probes keep
//! their period, and the lease is renewed.

use std::collections::BTreeMap;
use std::time::Duration;

use super::invariants::RuntimeContainer;
use super::schedule::PodKind;

/// Between two probes of [`PodKind::NamedProbe`].
const PROBE_PERIOD: Duration = Duration::from_secs(5);
/// Probes of one pod that may be more or fewer than its period explains.
const PROBE_ALLOWANCE: u64 = 2;
/// Seconds between a renewal of the lease and its observation.
const LEASE_AGE: std::ops::RangeInclusive<i64> = -2..=20;

/// A container by the names of its pod and of itself.
type Name = (String, String);

/// The node at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClockState {
    /// Ids of running containers that do not end by themselves.
    running: BTreeMap<Name, String>,
    /// Restarts so far of those that end by themselves.
    restarts: BTreeMap<Name, u32>,
    probed_pods: u64,
    probes: u64,
    /// Of the lease, in seconds after the machine's clock.
    renewed: Option<i64>,
}

impl ClockState {
    /// `kinds` are those of the pods by name, static ones with the name of the node; `probes` are all requests so far of pods of
    /// [`PodKind::NamedProbe`].
    #[must_use]
    pub fn new(
        kinds: &BTreeMap<String, PodKind>,
        containers: &[RuntimeContainer],
        probes: u64,
        renewed: Option<i64>,
    ) -> Self {
        let mut state = Self { probes, renewed, ..Self::default() };
        state.probed_pods = kinds.values().filter(|kind| **kind == PodKind::NamedProbe).count() as u64;
        for container in containers {
            let name = (container.pod_name.clone(), container.name.clone());
            match kinds.get(&container.pod_name) {
                Some(PodKind::CrashLoop | PodKind::OutOfMemory) => {
                    let restarts = state.restarts.entry(name).or_default();
                    *restarts = container.attempt.max(*restarts);
                }
                Some(_) if container.is_running => {
                    state.running.insert(name, container.id.clone());
                }
                Some(_) | None => {}
            }
        }
        state
    }
}

/// What is still to happen after the clock was set to differ by so many seconds.
#[must_use]
pub fn compute_outstanding(before: &ClockState, now: &ClockState, seconds: i64) -> Vec<String> {
    let mut found = Vec::new();
    for ((pod, container), restarts) in &before.restarts {
        let now = now.restarts.get(&(pod.clone(), container.clone())).copied().unwrap_or_default();
        if now <= *restarts {
            found.push(format!("container {container} of pod {pod} was not restarted, after {now} restarts"));
        }
    }
    let is_renewed = now.renewed.is_some_and(|renewed| LEASE_AGE.contains(&(seconds - renewed)));
    if !is_renewed {
        found.push(format!("the lease was renewed at {:?} s, the clock is at {seconds} s", now.renewed));
    }
    found
}

/// What happened since then and should not have.
#[must_use]
pub fn compute_disturbances(before: &ClockState, now: &ClockState, elapsed: Duration) -> Vec<String> {
    let mut found = Vec::new();
    for (name, id) in &before.running {
        if now.running.get(name) != Some(id) {
            found.push(format!("container {} of pod {} did not go on", name.1, name.0));
        }
    }
    let probes = now.probes.saturating_sub(before.probes);
    let expected = elapsed.as_secs() / PROBE_PERIOD.as_secs();
    let least = before.probed_pods * expected.saturating_sub(PROBE_ALLOWANCE);
    let greatest = before.probed_pods * (expected + PROBE_ALLOWANCE);
    if !(least..=greatest).contains(&probes) {
        found.push(format!(
            "{} pods were probed {probes} times in {} s, expected are {least} to {greatest}",
            before.probed_pods,
            elapsed.as_secs()
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const ELAPSED: Duration = Duration::from_secs(30);

    fn container(pod: &str, id: &str, attempt: u32, is_running: bool) -> RuntimeContainer {
        RuntimeContainer {
            id: id.to_owned(),
            pod_uid: String::new(),
            pod_name: pod.to_owned(),
            name: "main".to_owned(),
            attempt,
            is_running,
        }
    }

    fn state(plain: &str, restarts: u32, probes: u64, renewed: i64) -> ClockState {
        let kinds = [("web", PodKind::Plain), ("loop", PodKind::CrashLoop), ("named", PodKind::NamedProbe)];
        let kinds = kinds.map(|(name, kind)| (name.to_owned(), kind)).into();
        let containers = [
            container("web", plain, 0, true),
            container("loop", "old", restarts.saturating_sub(1), false),
            container("loop", "new", restarts, false),
            container("foreign", "x", 0, true),
        ];
        ClockState::new(&kinds, &containers, probes, Some(renewed))
    }

    #[test]
    fn soak_accepts_a_clock_that_jumps() {
        let (before, after) = (state("a", 3, 100, -5), state("a", 4, 106, 3595));
        assert_eq!(compute_outstanding(&before, &after, 3600), Vec::<String>::new());
        assert_eq!(compute_disturbances(&before, &after, ELAPSED), Vec::<String>::new());
    }

    #[test]
    fn soak_finds_a_back_off_and_a_lease_that_wait_for_the_clock() {
        let (before, after) = (state("a", 3, 100, -5), state("a", 3, 106, -30));
        assert_eq!(
            compute_outstanding(&before, &after, -240),
            [
                "container main of pod loop was not restarted, after 3 restarts",
                "the lease was renewed at Some(-30) s, the clock is at -240 s",
            ]
        );
    }

    #[test]
    fn soak_finds_restarts_and_a_storm_of_probes_after_a_jump() {
        let before = state("a", 3, 100, 0);
        let expected = ["container main of pod web did not go on"];
        assert_eq!(compute_disturbances(&before, &state("b", 3, 106, 0), ELAPSED), expected);
        let storm = ["1 pods were probed 20 times in 30 s, expected are 4 to 8"];
        assert_eq!(compute_disturbances(&before, &state("a", 3, 120, 0), ELAPSED), storm);
        let none = ["1 pods were probed 0 times in 30 s, expected are 4 to 8"];
        assert_eq!(compute_disturbances(&before, &state("a", 3, 100, 0), ELAPSED), none);
    }
}
