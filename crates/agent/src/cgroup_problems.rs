//! What about cgroups keeps the node from being ready: the runtime has not reported its cgroup driver, or running pods have no
//! cgroup where this kubelet looks for it. Owns these problems; the detection of the driver and the pod workers write them.

use std::collections::BTreeMap;
use std::sync::Arc;

use kubelet_core::pods::cgroup_loss::cgroup_problem;
use model::{PodRef, PodUid};
use parking_lot::Mutex;

/// Clones share everything.
#[derive(Clone, Debug, Default)]
pub struct CgroupProblems(Arc<Mutex<Problems>>);

#[derive(Debug, Default)]
struct Problems {
    driver: Option<String>,
    /// Pods that go on without a cgroup, with the reason. Bounded by the running pods: each worker removes its own.
    kept: BTreeMap<PodUid, (PodRef, String)>,
}

impl CgroupProblems {
    pub(crate) fn driver_unknown(&self, error: &str) {
        self.0.lock().driver = Some(format!("cgroup driver of the container runtime is not known: {error}"));
    }

    pub(crate) fn driver_known(&self) {
        self.0.lock().driver = None;
    }

    /// The pod goes on without a cgroup, until the result is dropped.
    pub(crate) fn keep(&self, pod: &PodRef, why: &str) -> PodWithoutCgroup {
        self.0.lock().kept.insert(pod.uid.clone(), (pod.clone(), why.to_owned()));
        PodWithoutCgroup { problems: self.clone(), uid: pod.uid.clone() }
    }

    /// The problems as parts of the node's Ready message.
    #[must_use]
    pub fn texts(&self) -> Vec<String> {
        let problems = self.0.lock();
        let first = problems.kept.values().next().map(|(pod, why)| format!("pod {pod}: {why}"));
        let kept = cgroup_problem(problems.kept.len(), &first.unwrap_or_default());
        problems.driver.clone().into_iter().chain(kept).collect()
    }
}

/// A pod that goes on without a cgroup.
#[derive(Debug)]
pub(crate) struct PodWithoutCgroup {
    problems: CgroupProblems,
    uid: PodUid,
}

impl PodWithoutCgroup {
    /// Returns whether the reason is another one.
    pub(crate) fn update(&self, why: &str) -> bool {
        let mut problems = self.problems.0.lock();
        let Some((_, known)) = problems.kept.get_mut(&self.uid) else { return false };
        let is_new = known != why;
        if is_new {
            why.clone_into(known);
        }
        is_new
    }
}

impl Drop for PodWithoutCgroup {
    fn drop(&mut self) {
        self.problems.0.lock().kept.remove(&self.uid);
    }
}
