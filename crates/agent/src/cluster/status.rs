//! Pod status on its way to the API, and the end of pods that are done there.
//!
//! Owns which calls are under way and what the API answered. One call for each pod at a time, the newest status of a pod
//! wins, and no pod waits for another. What to send is decided in `kubelet_core::status_patch`, from what the API has:
//! whatever somebody else changes there is noticed by the same comparison.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kubelet_core::mirror::is_mirror_pod;
use kubelet_core::reflector::ObjectKey;
use kubelet_core::status_patch::{StatusSync, SyncFacts, compute_status_sync};
use model::k8s::Pod;
use model::{MonoTime, PodRef, PodUid};
use ports::Cluster;
use ports::cluster::{ClusterError, ClusterResult, Deletion, Part, Patch};
use tokio::task::JoinSet;

use super::follow::Copy;
use crate::engine::Engine;
use crate::pods_view::PodEntry;

/// So many calls run side by side.
const MOST_AT_ONCE: usize = 16;
/// After a failed call the pod waits this long, and twice as long after each further one, up to the second figure.
const RETRY: Duration = Duration::from_millis(500);
const RETRY_MOST: Duration = Duration::from_secs(10);

/// Writes statuses until dropped.
pub(crate) struct StatusWriter {
    engine: Arc<Engine>,
    cluster: Arc<dyn Cluster>,
    in_api: Copy<Pod>,
    /// One entry for each pod of this node, by the UID it has here.
    pods: BTreeMap<PodUid, Progress>,
    under_way: BTreeSet<PodUid>,
    calls: JoinSet<Answer>,
}

/// How far one pod's status is.
#[derive(Debug, Default)]
struct Progress {
    /// The pod as the API answered our last patch, which the watch shows a little later.
    answer: Option<Arc<Pod>>,
    /// These two were compared, and there is nothing left to do about them.
    settled: Option<(PodEntry, Arc<Pod>)>,
    failing: Option<Failing>,
    /// Since when the API lacks something.
    behind_since: Option<MonoTime>,
}

#[derive(Clone, Copy, Debug)]
struct Failing {
    delay: Duration,
    until: MonoTime,
}

/// What one call came to.
struct Answer {
    uid: PodUid,
    /// What was compared, for a call that leaves nothing to do until one of the two changes.
    deleted: Option<(PodEntry, Arc<Pod>)>,
    result: ClusterResult<Option<Arc<Pod>>>,
}

/// What is said of one pod, and to which object.
struct Job {
    uid: PodUid,
    entry: PodEntry,
    in_api: Arc<Pod>,
    sync: StatusSync,
}

impl StatusWriter {
    pub(crate) fn new(engine: Arc<Engine>, cluster: Arc<dyn Cluster>, in_api: Copy<Pod>) -> Self {
        Self {
            engine,
            cluster,
            in_api,
            pods: BTreeMap::new(),
            under_way: BTreeSet::new(),
            calls: JoinSet::new(),
        }
    }

    /// Every select arm is cancel safe: watches and join sets lose nothing.
    pub(crate) async fn run(mut self) {
        let clock = self.engine.clock;
        let mut changes = self.engine.pods.changes();
        loop {
            let now = clock.mono();
            self.start_calls(now);
            let retries = self.pods.values().filter_map(|pod| pod.failing).map(|failing| failing.until);
            let retry = retries.filter(|at| *at > now).min();
            tokio::select! {
                Some(answer) = self.calls.join_next(), if !self.calls.is_empty() => {
                    if let Ok(answer) = answer {
                        self.take_answer(answer);
                    }
                }
                Ok(()) = changes.changed() => {}
                Ok(()) = self.in_api.changed() => {}
                () = clock.sleep_until(retry.unwrap_or(now)), if retry.is_some() => {}
            }
        }
    }

    /// Starts a call for each pod that needs one and has none under way.
    fn start_calls(&mut self, now: MonoTime) {
        let entries = self.engine.pods.all();
        let known: BTreeSet<PodUid> = entries.iter().map(|entry| PodRef::of(&entry.pod).uid).collect();
        self.pods.retain(|uid, _| known.contains(uid));
        for entry in entries {
            if self.calls.len() == MOST_AT_ONCE {
                return;
            }
            let uid = PodRef::of(&entry.pod).uid;
            let failing = self.pods.get(&uid).and_then(|pod| pod.failing);
            let must_wait = failing.is_some_and(|failing| failing.until > now);
            if self.under_way.contains(&uid) || must_wait {
                continue;
            }
            if let Some(job) = self.job(entry, uid, now) {
                self.start(job);
            }
        }
    }

    /// What is to be done about the pod, if anything.
    fn job(&mut self, entry: PodEntry, uid: PodUid, now: MonoTime) -> Option<Job> {
        let seen = self.in_api.borrow_and_update().objects.get(&super::key_of(&*entry.pod)).cloned()?;
        let progress = self.pods.entry(uid.clone()).or_default();
        progress.answer.take_if(|answer| !super::is_newer(&**answer, &*seen));
        let in_api = progress.answer.clone().unwrap_or(seen);
        let is_settled = |(settled, with): &(PodEntry, Arc<Pod>)| {
            Arc::ptr_eq(&settled.status, &entry.status)
                && settled.progress == entry.progress
                && Arc::ptr_eq(with, &in_api)
        };
        if progress.settled.as_ref().is_some_and(is_settled) {
            return None;
        }
        // A static pod is shown by its mirror, which has a UID of its own.
        let shown_as = match super::is_static(&entry.pod) {
            true if is_mirror_pod(&in_api) => PodUid::from(in_api.metadata.uid.clone()?),
            true => return None,
            false => uid.clone(),
        };
        let facts = SyncFacts { may_run: entry.progress.may_run(), is_released: entry.progress.is_released };
        match compute_status_sync(&shown_as, Some(&in_api), &entry.status, facts) {
            StatusSync::Forget | StatusSync::Nothing => {
                progress.behind_since = None;
                progress.settled = Some((entry, in_api));
                None
            }
            sync @ (StatusSync::Patch(_) | StatusSync::Delete { .. }) => {
                progress.behind_since.get_or_insert(now);
                Some(Job { uid, entry, in_api, sync })
            }
        }
    }

    fn start(&mut self, job: Job) {
        let cluster = self.cluster.clone();
        self.under_way.insert(job.uid.clone());
        self.calls.spawn(async move {
            let Job { uid, entry, in_api, sync } = job;
            let ObjectKey { namespace, name } = super::key_of(&*in_api);
            let pods = cluster.pods();
            let (result, deleted) = match sync {
                StatusSync::Patch(patch) => {
                    let patch = Patch::Strategic(patch);
                    let patched = pods.patch(&namespace, &name, Part::Status, &patch).await;
                    (patched.map(|pod| Some(Arc::new(pod))), None)
                }
                StatusSync::Delete { uid } => {
                    tracing::info!(pod = %PodRef::of(&in_api), uid, "Pod is finished; it leaves the API");
                    let deletion = Deletion { uid: Some(uid), grace_seconds: Some(0) };
                    let deleted = pods.delete(&namespace, &name, &deletion).await;
                    (deleted.map(|()| None), Some((entry, in_api)))
                }
                StatusSync::Forget | StatusSync::Nothing => (Ok(None), None),
            };
            Answer { uid, deleted, result }
        });
    }

    fn take_answer(&mut self, answer: Answer) {
        let Answer { uid, deleted, result } = answer;
        self.under_way.remove(&uid);
        let Some(progress) = self.pods.get_mut(&uid) else { return };
        match result {
            Ok(pod) => {
                let now = self.engine.clock.mono();
                if let Some(since) = progress.behind_since.take() {
                    self.engine.metrics.pods.status_synced(now.saturating_since(since));
                }
                progress.failing = None;
                // A deleted object may linger for somebody else's sake; it is not ours to delete it again.
                progress.settled = deleted;
                if pod.is_some() {
                    progress.answer = pod;
                }
            }
            Err(error) => {
                // Where it is gone, or replaced by another of its name, the watch will say so.
                let is_known = matches!(error, ClusterError::NotFound { .. } | ClusterError::Conflict { .. });
                if !is_known {
                    tracing::warn!(%uid, %error, "The API did not take the status of a pod");
                }
                let delay = progress.failing.map_or(RETRY, |failing| (failing.delay * 2).min(RETRY_MOST));
                let until = self.engine.clock.mono() + delay + self.engine.chance.up_to(delay / 4);
                progress.failing = Some(Failing { delay, until });
            }
        }
    }
}
