//! Leftovers on the node that belong to no pod and no worker any more.
//!
//! Compares the desired pods, the workers, the running pods and the directories on disk. The cleanup is carried out
//! elsewhere, and dead containers are removed by garbage collection.

use base_core::pod_stage::RuntimePresence;
use std::collections::{BTreeMap, BTreeSet};

use model::PodUid;

/// The progress of a pod's worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerProgress {
    Working,
    /// Everything of the pod is stopped and cleaned up.
    Finished,
}

#[derive(Clone, Copy, Debug)]
pub struct CleanupInputs<'a> {
    /// Pods that some source lists.
    pub desired: &'a BTreeSet<PodUid>,
    pub workers: &'a BTreeMap<PodUid, WorkerProgress>,
    pub runtime: &'a BTreeMap<PodUid, RuntimePresence>,
    /// Pods with a directory below `<root>/pods`.
    pub dirs: &'a BTreeSet<PodUid>,
    /// Until every source has reported, nothing counts as a leftover.
    pub sources_ready: bool,
}

/// What to clean up; each list in the order of UIDs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CleanupPlan {
    /// Stop these pods: they run although no source lists them and they have no worker.
    pub kill_orphans: Vec<PodUid>,
    /// Remove the directories of these pods.
    pub remove_dirs: Vec<PodUid>,
    /// Drop the finished workers of these pods, and all other data about them.
    pub forget: Vec<PodUid>,
}

#[must_use]
pub fn compute_cleanup(inputs: &CleanupInputs<'_>) -> CleanupPlan {
    if !inputs.sources_ready {
        return CleanupPlan::default();
    }
    let is_claimed = |pod: &PodUid| inputs.desired.contains(pod) || inputs.workers.contains_key(pod);
    let may_run = |pod: &PodUid| inputs.runtime.get(pod) == Some(&RuntimePresence::MayRun);
    let orphans = inputs.runtime.keys().filter(|pod| may_run(pod) && !is_claimed(pod));
    let dirs = inputs.dirs.iter().filter(|pod| !is_claimed(pod) && !may_run(pod));
    let finished = inputs.workers.iter().filter(|(pod, progress)| match progress {
        WorkerProgress::Working => false,
        WorkerProgress::Finished => !inputs.desired.contains(*pod),
    });
    CleanupPlan {
        kill_orphans: orphans.cloned().collect(),
        remove_dirs: dirs.cloned().collect(),
        forget: finished.map(|(pod, _)| pod.clone()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    use super::*;

    /// `desired=a,b working=c finished=d running=e dead=f dirs=g`.
    fn plan(text: &str, sources_ready: bool) -> CleanupPlan {
        let pods = |key: &str| -> BTreeSet<PodUid> {
            let words = text.split_whitespace().filter_map(|word| word.split_once('='));
            words.filter(|(k, _)| *k == key).flat_map(|(_, v)| v.split(',')).map(PodUid::from).collect()
        };
        let of = |key: &str, what| pods(key).into_iter().map(move |pod| (pod, what));
        let working = pods("working").into_iter().map(|pod| (pod, WorkerProgress::Working));
        let finished = pods("finished").into_iter().map(|pod| (pod, WorkerProgress::Finished));
        compute_cleanup(&CleanupInputs {
            desired: &pods("desired"),
            workers: &working.chain(finished).collect(),
            runtime: &of("running", RuntimePresence::MayRun)
                .chain(of("dead", RuntimePresence::Dead))
                .collect(),
            dirs: &pods("dirs"),
            sources_ready,
        })
    }

    #[track_caller]
    fn check(text: &str, expected: Expect) {
        let plan = plan(text, true);
        let list = |what: &str, pods: &[PodUid]| {
            let pods: Vec<&str> = pods.iter().map(PodUid::as_str).collect();
            (!pods.is_empty()).then(|| format!("{what} {}", pods.join(",")))
        };
        let parts = [
            list("kill", &plan.kill_orphans),
            list("remove dir of", &plan.remove_dirs),
            list("forget", &plan.forget),
        ];
        expected.assert_eq(&parts.into_iter().flatten().collect::<Vec<_>>().join("; "));
    }

    #[test]
    fn orphaned_running_pods_are_killed() {
        check("running=a", expect!["kill a"]);
        check("desired=a running=a", expect![[""]]);
        check("working=a running=a", expect![[""]]);
        check("dead=a", expect![[""]]);
    }

    #[test]
    fn pod_directories_are_removed_after_worker_and_containers() {
        check("dirs=a", expect!["remove dir of a"]);
        check("dirs=a running=a", expect!["kill a"]);
        check("dirs=a dead=a", expect!["remove dir of a"]);
        check("dirs=a working=a", expect![[""]]);
        check("dirs=a desired=a", expect![[""]]);
        check("dirs=a finished=a", expect!["forget a"]);
    }

    #[test]
    fn finished_workers_are_dropped_with_their_pod() {
        check("finished=a", expect!["forget a"]);
        check("finished=a desired=a", expect![[""]]);
        check("working=a", expect![[""]]);
    }

    #[test]
    fn housekeeping_combines_all_cleanups() {
        check(
            "desired=a,b working=a,c finished=d running=a,c,e dead=f dirs=a,c,d,e,f,g",
            expect!["kill e; remove dir of f,g; forget d"],
        );
    }

    proptest! {
        #[test]
        fn nothing_is_cleaned_up_before_every_source_has_reported(
            text in "(running|finished|dirs)=[a-d] (running|dirs)=[a-d] desired=[a-d]",
        ) {
            prop_assert_eq!(plan(&text, false), CleanupPlan::default());
        }

        #[test]
        fn desired_pods_are_never_cleaned_up(
            text in "(running|finished|dirs)=[a-d] (running|dirs)=[a-d] working=[a-d]",
        ) {
            prop_assert_eq!(plan(&format!("{text} desired=a,b,c,d"), true), CleanupPlan::default());
        }
    }
}
