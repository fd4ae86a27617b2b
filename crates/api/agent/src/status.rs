//! Writes the status of pods to the API, and deletes terminated pods there.
//!
//! Owns the calls under way and the answers of the API. There is one call for each pod at a time, the newest status of a
//! pod wins, and no pod waits for another. What to send is decided in `api_core::status_patch` by comparison with the
//! API's object, so that changes by other clients are noticed, too.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api_core::reflector::ObjectKey;
use api_core::retry::compute_retry_delay;
use api_core::status_patch::{StatusSync, SyncFacts, compute_status_sync};
use api_core::status_queue::{
    StatusFailure, WaitingStatus, compute_status_order, compute_status_retry, compute_status_urgency,
};
use base_agent::context::Context;
use base_agent::pods_view::{PodEntry, PodsView, ViewChanges};
use base_core::pod_kind::is_static_pod;
use model::k8s::{Pod, PodStatus};
use model::{MonoTime, Now, PodUid};
use ports::Cluster;
use ports::cluster::{ClusterError, ClusterResult, Deletion, Part, Patch};
use sources_core::ApiPod;
use tokio::task::JoinSet;

use super::reflector::{Store, StoreReader, keep_pod};
use crate::metrics::ApiMetrics;

/// Concurrent calls.
const MAX_CALLS: usize = 16;
/// After a rejected call, a changed status waits this long.
const AFTER_REJECTION: Duration = Duration::from_secs(1);

/// Writes pod statuses until dropped.
#[derive(Debug)]
pub struct StatusWriter {
    ctx: Arc<Context>,
    /// The pods of this node with their status.
    views: PodsView,
    cluster: Arc<dyn Cluster>,
    in_api: StoreReader<ApiPod>,
    /// The pods of the API have changed since the last look at them.
    is_api_changed: bool,
    /// Of the last look at the pods of this node.
    version: u64,
    /// One entry for each pod of this node, by its UID on this node.
    pods: BTreeMap<PodUid, Progress>,
    /// The pods to compare. Nothing has changed for the others since they were compared, or they have a call under way.
    due: BTreeSet<PodUid>,
    under_way: BTreeSet<PodUid>,
    calls: JoinSet<Answer>,
}

/// Progress of one pod's status.
#[derive(Debug)]
struct Progress {
    key: ObjectKey,
    /// The pod as the watch last showed it.
    seen: Option<Arc<ApiPod>>,
    /// The pod as the API returned it for our last patch, which the watch shows a little later.
    answer: Option<Arc<ApiPod>>,
    /// These two were compared, and need no call.
    settled: Option<(PodEntry, Arc<ApiPod>)>,
    failing: Option<Failing>,
    /// The API has accepted its deletion. The API server shows the pod once more then, with a grace period of zero.
    is_deleted: bool,
    /// Since when the API lacks the newest status.
    behind_since: Option<MonoTime>,
    /// Since when the pod waits for a call, or for the comparison that shows that it needs none.
    waiting_since: Option<MonoTime>,
}

#[derive(Clone, Debug)]
struct Failing {
    delay: Duration,
    until: MonoTime,
    /// What the API rejected. Once one of the two changes, the pod waits only until `changed_until`.
    rejected: Option<Attempt>,
    changed_until: MonoTime,
}

impl Failing {
    /// When the pod may have the next call.
    fn until(&self, status: &Arc<PodStatus>, in_api: &Arc<ApiPod>) -> MonoTime {
        match &self.rejected {
            Some(rejected) if !rejected.is_same(status, in_api) => self.changed_until,
            Some(_) | None => self.until,
        }
    }
}

/// A status that was sent, and the pod of the API that it was for.
#[derive(Clone, Debug)]
struct Attempt {
    status: Arc<PodStatus>,
    in_api: Arc<ApiPod>,
}

impl Attempt {
    fn is_same(&self, status: &Arc<PodStatus>, in_api: &Arc<ApiPod>) -> bool {
        self.status == *status && self.in_api.resource_version == in_api.resource_version
    }
}

/// Result of one call.
struct Answer {
    uid: PodUid,
    /// The status and the API object that were compared.
    compared: (PodEntry, Arc<ApiPod>),
    /// The pod was deleted; it needs no further call until one of the two changes.
    is_deletion: bool,
    result: ClusterResult<Option<Pod>>,
}

/// A pod whose status and object in the API have to be compared.
struct Candidate {
    uid: PodUid,
    entry: PodEntry,
    in_api: Arc<ApiPod>,
}

/// A call to make for one pod.
struct Job {
    uid: PodUid,
    entry: PodEntry,
    in_api: Arc<ApiPod>,
    sync: StatusSync,
}

impl StatusWriter {
    pub fn new(
        ctx: Arc<Context>,
        views: PodsView,
        cluster: Arc<dyn Cluster>,
        in_api: StoreReader<ApiPod>,
    ) -> Self {
        Self {
            ctx,
            views,
            cluster,
            in_api,
            is_api_changed: true,
            version: 0,
            pods: BTreeMap::new(),
            due: BTreeSet::new(),
            under_way: BTreeSet::new(),
            calls: JoinSet::new(),
        }
    }

    /// Every select arm is cancel safe: watches and join sets lose nothing.
    pub async fn run(mut self) {
        let clock = self.ctx.clock;
        let mut changes = self.views.changes();
        loop {
            let retry = self.start_calls(clock.mono());
            tokio::select! {
                Some(answer) = self.calls.join_next(), if !self.calls.is_empty() => {
                    match answer {
                        Ok(answer) => self.handle_answer(answer),
                        // Otherwise its pod would count as having a call under way forever.
                        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                        Err(_) => {}
                    }
                }
                Ok(()) = changes.changed() => {}
                Ok(()) = self.in_api.changed() => self.is_api_changed = true,
                () = clock.sleep_until(retry.unwrap_or(MonoTime::ZERO)), if retry.is_some() => {}
            }
        }
    }

    /// Starts a call for each pod that needs one and has none under way, as long as slots are free, in a fair order. Returns
    /// when the first pod in back-off may be tried again.
    fn start_calls(&mut self, now: MonoTime) -> Option<MonoTime> {
        self.record_changes();
        let (candidates, retry) = self.candidates(now);
        let waiting: Vec<WaitingStatus> = candidates
            .iter()
            .map(|Candidate { uid, entry, in_api }| WaitingStatus {
                since: self.pods.get(uid).and_then(|pod| pod.waiting_since).unwrap_or(now),
                urgency: compute_status_urgency(in_api, &entry.status),
            })
            .collect();
        let mut candidates: Vec<Option<Candidate>> = candidates.into_iter().map(Some).collect();
        for index in compute_status_order(&waiting) {
            if self.calls.len() >= MAX_CALLS {
                break;
            }
            let job = candidates[index].take().and_then(|candidate| self.job(candidate, now));
            if let Some(job) = job {
                self.start(job);
            }
        }
        let behind = self.pods.values().filter(|pod| pod.behind_since.is_some()).count();
        self.ctx.metrics.get::<ApiMetrics>().set_statuses_behind(behind);
        retry
    }

    /// Notes which pods have to be compared, because they or their objects in the API have changed.
    fn record_changes(&mut self) {
        let ViewChanges { changed, count, version } = self.views.changed_since(self.version);
        self.version = version;
        let seen = self.in_api.borrow_and_update();
        if std::mem::take(&mut self.is_api_changed) || seen.has_changed() {
            for (uid, progress) in &mut self.pods {
                if progress.look(&seen) {
                    self.due.insert(uid.clone());
                }
            }
        }
        for entry in changed {
            let uid = entry.identity.uid.clone();
            let is_new = || Progress::new(super::meta::key_of_pod(&entry.identity), &seen);
            self.pods.entry(uid.clone()).or_insert_with(is_new);
            self.due.insert(uid);
        }
        if self.pods.len() > count {
            self.pods.retain(|uid, _| self.views.contains(uid));
        }
    }

    /// The pods that may need a call now, and when the first of the pods in back-off may be tried again.
    fn candidates(&mut self, now: MonoTime) -> (Vec<Candidate>, Option<MonoTime>) {
        let (mut candidates, mut retry) = (Vec::new(), None::<MonoTime>);
        let Self { due, pods, views, under_way, .. } = self;
        due.retain(|uid| {
            let entry = views.get(uid).filter(PodEntry::is_current);
            let Some((entry, progress)) = entry.zip(pods.get_mut(uid)) else { return false };
            let Some(in_api) = progress.latest() else { return false };
            if under_way.contains(uid) || progress.is_settled(&entry, &in_api) {
                return false;
            }
            let until = progress.failing.as_ref().map(|failing| failing.until(&entry.status, &in_api));
            if let Some(until) = until.filter(|until| *until > now) {
                retry = Some(retry.map_or(until, |retry| retry.min(until)));
                return true;
            }
            progress.waiting_since.get_or_insert(now);
            candidates.push(Candidate { uid: uid.clone(), entry, in_api });
            true
        });
        (candidates, retry)
    }

    /// The static pod has ended, and the mirror pod shows another one of its name.
    fn is_replaced(&self, entry: &PodEntry) -> bool {
        let (pod, is_ended) = (&entry.identity, entry.progress.is_terminated());
        let replaces = |other: &PodEntry| {
            is_static_pod(&other.pod) && !other.progress.is_ending() && other.identity.has_full_name_of(pod)
        };
        is_ended && !self.views.matching(replaces).is_empty()
    }

    /// The call that the pod needs, if any.
    fn job(&mut self, candidate: Candidate, now: MonoTime) -> Option<Job> {
        let Candidate { uid, entry, in_api } = candidate;
        self.due.remove(&uid);
        // The API object of a static pod is its mirror pod, which has another UID.
        let shown_as = match is_static_pod(&entry.pod) {
            true if in_api.is_mirror && !self.is_replaced(&entry) => in_api.identity.uid.clone(),
            true => return None,
            false => uid.clone(),
        };
        let facts =
            SyncFacts { may_run: entry.progress.may_run(), is_released: entry.progress.is_released() };
        let progress = self.pods.get_mut(&uid)?;
        progress.waiting_since = None;
        match compute_status_sync(&shown_as, Some(&in_api), &entry.status, facts) {
            StatusSync::Delete { .. } if progress.is_deleted => {
                progress.settled = Some((entry, in_api));
                None
            }
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
            let ObjectKey { namespace, name } = super::meta::key_of_pod(&in_api.identity);
            let pods = cluster.pods();
            let is_deletion = matches!(sync, StatusSync::Delete { .. });
            let result = match sync {
                StatusSync::Patch(patch) => {
                    let patch = Patch::Strategic(patch);
                    let patched = pods.patch(&namespace, &name, Part::Status, &patch).await;
                    patched.map(Some)
                }
                StatusSync::Delete { uid } => {
                    tracing::info!(pod = %in_api.identity, uid, "Pod fully terminated, removing it from the API server");
                    let deletion = Deletion { uid: Some(uid), grace_seconds: Some(0) };
                    pods.delete(&namespace, &name, &deletion).await.map(|()| None)
                }
                StatusSync::Forget | StatusSync::Nothing => Ok(None),
            };
            Answer { uid, compared: (entry, in_api), is_deletion, result }
        });
    }

    fn handle_answer(&mut self, answer: Answer) {
        let Answer { uid, compared, is_deletion, result } = answer;
        self.under_way.remove(&uid);
        self.due.insert(uid.clone());
        let Some(progress) = self.pods.get_mut(&uid) else { return };
        let Now { mono: now, wall } = self.ctx.clock.now();
        match result {
            Ok(pod) => {
                self.ctx.metrics.get::<ApiMetrics>().status_accepted(wall);
                if let Some(since) = progress.behind_since.take() {
                    self.ctx.metrics.get::<ApiMetrics>().status_synced(now.saturating_since(since));
                }
                progress.failing = None;
                progress.is_deleted |= is_deletion;
                let pod = pod.map(|pod| keep_pod(pod, Some(&compared.1), wall));
                let was_kept = pod.as_ref().is_none_or(|pod| !pod.version().is_same_as(compared.1.version()));
                // A deleted object may stay because of a finalizer; it is not deleted again. A patch that changed nothing
                // is not sent again: the API server drops fields that it does not know or whose feature gate is off.
                progress.settled = (is_deletion || !was_kept).then_some(compared);
                if pod.is_some() && was_kept {
                    progress.answer = pod;
                }
            }
            Err(error) => {
                // If the pod is gone, or was replaced by another of its name, the watch reports that.
                let is_known = matches!(error, ClusterError::NotFound { .. } | ClusterError::Conflict { .. });
                if !is_known {
                    tracing::warn!(pod = %compared.0.identity, err = %error, "Failed to update pod status");
                }
                let (entry, in_api) = compared;
                let requested = error.retry_after();
                let rejected = matches!(error, ClusterError::Invalid { .. });
                let rejected = rejected.then_some(Attempt { status: entry.status, in_api });
                let delay = progress.next_delay(rejected.as_ref());
                let until = now + compute_retry_delay(delay, requested, self.ctx.rng.share());
                progress.failing =
                    Some(Failing { delay, until, rejected, changed_until: now + AFTER_REJECTION });
            }
        }
    }
}

impl Progress {
    fn new(key: ObjectKey, store: &Store<ApiPod>) -> Self {
        let seen = store.objects.get(&key).cloned();
        Self {
            key,
            seen,
            answer: None,
            settled: None,
            failing: None,
            is_deleted: false,
            behind_since: None,
            waiting_since: None,
        }
    }

    /// Returns whether the pod's object in the API is another than before.
    fn look(&mut self, store: &Store<ApiPod>) -> bool {
        let now = store.objects.get(&self.key);
        let is_same = match (&self.seen, now) {
            (Some(before), Some(now)) => Arc::ptr_eq(before, now),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        if !is_same {
            self.seen = now.cloned();
        }
        !is_same
    }

    /// The newest known version of the pod in the API, if it is there: the watch shows an answer a little later.
    fn latest(&mut self) -> Option<Arc<ApiPod>> {
        let seen = self.seen.as_ref()?;
        self.answer.take_if(|answer| !answer.version().is_newer_than(seen.version()));
        Some(self.answer.as_ref().unwrap_or(seen).clone())
    }

    fn is_settled(&self, entry: &PodEntry, in_api: &Arc<ApiPod>) -> bool {
        self.settled.as_ref().is_some_and(|(settled, with)| {
            Arc::ptr_eq(&settled.status, &entry.status)
                && settled.progress == entry.progress
                && Arc::ptr_eq(with, in_api)
        })
    }

    /// How long the pod waits after a failed call. `rejected` has the attempt if the API rejected it.
    fn next_delay(&self, rejected: Option<&Attempt>) -> Duration {
        let before = self.failing.as_ref();
        match rejected {
            Some(Attempt { status, in_api }) => {
                let same =
                    |before: &&Failing| before.rejected.as_ref().is_some_and(|of| of.is_same(status, in_api));
                compute_status_retry(before.filter(same).map(|f| f.delay), StatusFailure::Rejected)
            }
            None => compute_status_retry(
                before.filter(|f| f.rejected.is_none()).map(|f| f.delay),
                StatusFailure::Temporary,
            ),
        }
    }
}
