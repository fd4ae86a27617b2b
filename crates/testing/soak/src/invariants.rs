//! What must hold at every moment of a soak, whatever fails: no pod is lost, no container runs twice, restart counts only grow, and
//! a job that has succeeded stays so.
//!
//! A fold over observations. What could not be observed (the API server or the runtime was away) is not checked.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::Value;

/// A container that the runtime lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeContainer {
    pub id: String,
    pub pod_uid: String,
    pub pod_name: String,
    pub name: String,
    pub attempt: u32,
    pub is_running: bool,
}

/// The world at one moment. The API is asked before the runtime.
#[derive(Clone, Debug, Default)]
pub struct Observation {
    /// The pods of the API, with the mirror pods.
    pub api: Option<Vec<Value>>,
    pub runtime: Option<Vec<RuntimeContainer>>,
}

/// An API pod whose deletion was not requested.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DesiredPod {
    pub uid: String,
    pub name: String,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Violation {
    /// It is not in the API, and its deletion was not requested.
    PodLost {
        pod: String,
    },
    /// A pod that restarts its containers has ended.
    PodEnded {
        pod: String,
        phase: String,
    },
    /// It had succeeded before.
    JobRanAgain {
        pod: String,
    },
    RunsTwice {
        pod: String,
        container: String,
        ids: Vec<String>,
    },
    /// In the status that the API has.
    RestartCountWentDown {
        pod: String,
        container: String,
        from: i64,
        to: i64,
    },
    /// A container runs whose number is not above that of an earlier one.
    AttemptWentDown {
        pod: String,
        container: String,
        from: u32,
        to: u32,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PodLost { pod } => {
                write!(out, "pod {pod} is not in the API, and its deletion was not requested")
            }
            Self::PodEnded { pod, phase } => write!(out, "pod {pod} ended with the phase {phase}"),
            Self::JobRanAgain { pod } => write!(out, "pod {pod} ran again after it had succeeded"),
            Self::RunsTwice { pod, container, ids } => {
                write!(out, "container {container} of pod {pod} runs more than once: {ids:?}")
            }
            Self::RestartCountWentDown { pod, container, from, to } => {
                write!(out, "restart count of container {container} of pod {pod} went from {from} to {to}")
            }
            Self::AttemptWentDown { pod, container, from, to } => write!(
                out,
                "container {container} of pod {pod} runs with the attempt {to} after one with the attempt {from}"
            ),
        }
    }
}

/// What earlier observations showed.
#[derive(Debug, Default)]
pub struct Invariants {
    /// By UID and container, as the API showed it.
    restarts: BTreeMap<(String, String), i64>,
    /// The running container with the highest number.
    attempts: BTreeMap<(String, String), (u32, String)>,
    succeeded: BTreeSet<String>,
}

impl Invariants {
    pub fn check(&mut self, desired: &BTreeSet<DesiredPod>, observed: &Observation) -> BTreeSet<Violation> {
        let succeeded_before = self.succeeded.clone();
        let mut found = BTreeSet::new();
        if let Some(pods) = &observed.api {
            found.extend(lost(desired, pods));
            for pod in pods.iter().filter(|pod| !is_mirror(pod)) {
                found.extend(self.check_phase(pod));
                found.extend(self.check_restarts(pod));
            }
        }
        if let Some(containers) = &observed.runtime {
            found.extend(twice(containers));
            for container in containers.iter().filter(|container| container.is_running) {
                if succeeded_before.contains(&container.pod_uid) {
                    found.insert(Violation::JobRanAgain { pod: container.pod_name.clone() });
                }
                found.extend(self.check_attempt(container));
            }
        }
        found
    }

    fn check_phase(&mut self, pod: &Value) -> Option<Violation> {
        let (uid, name) = (text(pod, "/metadata/uid"), text(pod, "/metadata/name").to_owned());
        let phase = text(pod, "/status/phase");
        let is_deleted = pod.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null());
        let may_end = is_deleted || text(pod, "/spec/restartPolicy") != "Always";
        if self.succeeded.contains(uid) && phase != "Succeeded" && !is_deleted {
            return Some(Violation::JobRanAgain { pod: name });
        }
        match phase {
            "Failed" if !is_deleted => Some(Violation::PodEnded { pod: name, phase: phase.to_owned() }),
            "Succeeded" if !may_end => Some(Violation::PodEnded { pod: name, phase: phase.to_owned() }),
            "Succeeded" => {
                self.succeeded.insert(uid.to_owned());
                None
            }
            _ => None,
        }
    }

    fn check_restarts(&mut self, pod: &Value) -> Vec<Violation> {
        let (uid, name) = (text(pod, "/metadata/uid"), text(pod, "/metadata/name"));
        let mut found = Vec::new();
        for list in ["initContainerStatuses", "containerStatuses"] {
            for status in pod["status"][list].as_array().map(Vec::as_slice).unwrap_or_default() {
                let container = text(status, "/name").to_owned();
                let to = status["restartCount"].as_i64().unwrap_or_default();
                let from = self.restarts.entry((uid.to_owned(), container.clone())).or_insert(to);
                if to < *from {
                    let pod = name.to_owned();
                    found.push(Violation::RestartCountWentDown { pod, container, from: *from, to });
                }
                *from = to.max(*from);
            }
        }
        found
    }

    fn check_attempt(&mut self, running: &RuntimeContainer) -> Option<Violation> {
        let key = (running.pod_uid.clone(), running.name.clone());
        let Some((attempt, id)) = self.attempts.get(&key) else {
            self.attempts.insert(key, (running.attempt, running.id.clone()));
            return None;
        };
        if *id == running.id {
            return None;
        }
        let (from, to) = (*attempt, running.attempt);
        self.attempts.insert(key, (to.max(from), running.id.clone()));
        let (pod, container) = (running.pod_name.clone(), running.name.clone());
        (to <= from).then_some(Violation::AttemptWentDown { pod, container, from, to })
    }
}

fn lost(desired: &BTreeSet<DesiredPod>, pods: &[Value]) -> Vec<Violation> {
    let uids: BTreeSet<&str> = pods.iter().map(|pod| text(pod, "/metadata/uid")).collect();
    let lost = desired.iter().filter(|pod| !uids.contains(pod.uid.as_str()));
    lost.map(|pod| Violation::PodLost { pod: pod.name.clone() }).collect()
}

/// By the pod's name: two versions of a static pod have different UIDs, and the first ends before the second starts.
fn twice(containers: &[RuntimeContainer]) -> Vec<Violation> {
    let mut running: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    for container in containers.iter().filter(|container| container.is_running) {
        running.entry((&container.pod_name, &container.name)).or_default().push(container.id.clone());
    }
    let twice = running.into_iter().filter(|(_, ids)| ids.len() > 1);
    twice
        .map(|((pod, container), ids)| Violation::RunsTwice {
            pod: pod.to_owned(),
            container: container.to_owned(),
            ids,
        })
        .collect()
}

/// A mirror pod is created again by the kubelet when it is missing.
#[must_use]
pub fn is_mirror(pod: &Value) -> bool {
    static_uid(pod).is_some()
}

/// The UID of the static pod that a mirror pod shows.
#[must_use]
pub fn static_uid(pod: &Value) -> Option<&str> {
    pod["metadata"]["annotations"]["kubernetes.io/config.mirror"].as_str()
}

pub(super) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn desired() -> BTreeSet<DesiredPod> {
        [DesiredPod { uid: "u1".to_owned(), name: "web".to_owned() }].into()
    }

    fn pod(phase: &str, restarts: i64) -> Value {
        json!({
            "metadata": {"uid": "u1", "name": "web"}, "spec": {"restartPolicy": "Always"},
            "status": {"phase": phase, "containerStatuses": [{"name": "main", "restartCount": restarts}]},
        })
    }

    fn container(id: &str, attempt: u32) -> RuntimeContainer {
        RuntimeContainer {
            id: id.to_owned(),
            pod_uid: "u1".to_owned(),
            pod_name: "web".to_owned(),
            name: "main".to_owned(),
            attempt,
            is_running: true,
        }
    }

    fn observed(pods: &[Value], containers: &[RuntimeContainer]) -> Observation {
        Observation { api: Some(pods.to_vec()), runtime: Some(containers.to_vec()) }
    }

    /// What the last of these observations violates.
    fn violations(observations: &[Observation]) -> Vec<String> {
        let mut invariants = Invariants::default();
        let mut found = BTreeSet::new();
        for observation in observations {
            found = invariants.check(&desired(), observation);
        }
        found.iter().map(Violation::to_string).collect()
    }

    #[test]
    fn soak_accepts_restarts_and_what_it_cannot_observe() {
        let first = observed(&[pod("Running", 0)], &[container("c0", 0)]);
        let second = observed(&[pod("Running", 1)], &[container("c1", 1)]);
        assert_eq!(violations(&[first.clone(), Observation::default(), second]), Vec::<String>::new());
        let mut exited = container("c0", 0);
        exited.is_running = false;
        let both = observed(&[pod("Running", 1)], &[exited, container("c1", 1)]);
        assert_eq!(violations(&[first, both]), Vec::<String>::new());
    }

    #[test]
    fn soak_finds_a_lost_pod() {
        let lost = observed(&[], &[]);
        let expected = "pod web is not in the API, and its deletion was not requested";
        assert_eq!(violations(&[observed(&[pod("Running", 0)], &[]), lost]), [expected]);
    }

    #[test]
    fn soak_finds_a_pod_that_ended() {
        for phase in ["Failed", "Succeeded"] {
            let expected = format!("pod web ended with the phase {phase}");
            assert_eq!(violations(&[observed(&[pod(phase, 0)], &[])]), [expected]);
        }
        let mut deleted = pod("Failed", 0);
        deleted["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        assert_eq!(violations(&[observed(&[deleted], &[])]), Vec::<String>::new());
    }

    #[test]
    fn soak_finds_a_restart_count_that_goes_down() {
        let seen = [observed(&[pod("Running", 4)], &[]), observed(&[pod("Running", 3)], &[])];
        assert_eq!(violations(&seen), ["restart count of container main of pod web went from 4 to 3"]);
    }

    #[test]
    fn soak_finds_an_attempt_that_does_not_grow() {
        for attempt in [0, 2] {
            let pods = [pod("Running", 0)];
            let seen = [observed(&pods, &[container("a", 2)]), observed(&pods, &[container("b", attempt)])];
            let expected = format!(
                "container main of pod web runs with the attempt {attempt} after one with the attempt 2"
            );
            assert_eq!(violations(&seen), [expected]);
        }
    }

    #[test]
    fn soak_finds_a_container_that_runs_twice_even_if_the_uid_of_its_static_pod_changed() {
        let mut other = container("b", 0);
        other.pod_uid = "u2".to_owned();
        let seen = observed(&[pod("Running", 0)], &[container("a", 0), other]);
        let expected = "container main of pod web runs more than once: [\"a\", \"b\"]";
        assert_eq!(violations(&[seen]), [expected]);
    }

    #[test]
    fn soak_finds_a_job_that_runs_again() {
        let mut job = pod("Succeeded", 0);
        job["spec"]["restartPolicy"] = "OnFailure".into();
        let ended = observed(&[job.clone()], &[]);
        assert_eq!(violations(std::slice::from_ref(&ended)), Vec::<String>::new());
        let expected = "pod web ran again after it had succeeded";
        assert_eq!(violations(&[ended.clone(), observed(&[job.clone()], &[container("a", 0)])]), [expected]);
        job["status"]["phase"] = "Running".into();
        assert_eq!(violations(&[ended, observed(&[job], &[])]), [expected]);
    }
}
