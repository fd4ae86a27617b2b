//! The pods of this node with their latest status: written by each pod's worker, read by the server and by the
//! checkpoint on disk, from which a restarted kubelet continues.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use base_core::pod_stage::PodStage;
use model::k8s::{Pod, PodStatus};
use model::pod_status::has_ended;
use model::{PodRef, PodUid};
use parking_lot::Mutex;
use ports::{Files, HostError};
use tokio::sync::{broadcast, watch};

use crate::damaged::{self, set_aside};
use crate::settings::Paths;

/// A pod with its status and the progress of its worker.
#[derive(Clone)]
pub struct PodEntry {
    pub identity: PodRef,
    pub pod: Arc<Pod>,
    pub status: Arc<PodStatus>,
    pub progress: PodProgress,
}

/// Progress of the pod's worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodProgress {
    pub stage: PodStage,
    /// Admission rejected the pod: it never ran on this node and never will.
    pub is_rejected: bool,
    /// No source has the pod any more.
    pub is_orphan: bool,
    /// The runtime has answered about the pod since this kubelet started.
    pub is_observed: bool,
}

impl fmt::Debug for PodEntry {
    /// Without the pod, whose variables may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("PodEntry");
        shown.field("identity", &self.identity).field("progress", &self.progress).finish_non_exhaustive()
    }
}

impl PodEntry {
    /// What an earlier kubelet left on disk can be older than what the API shows, unless the pod had ended.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.progress.is_observed || has_ended(&self.status)
    }
}

impl PodProgress {
    /// Whether a container may still run, as far as the worker knows.
    #[must_use]
    pub fn may_run(self) -> bool {
        !self.is_rejected && self.stage < PodStage::Terminated
    }

    /// Its containers are being stopped, or have been.
    #[must_use]
    pub fn is_ending(self) -> bool {
        !self.is_rejected && self.stage >= PodStage::Terminating
    }

    /// Its containers were stopped.
    #[must_use]
    pub fn is_terminated(self) -> bool {
        !self.is_rejected && self.stage >= PodStage::Terminated
    }

    /// Nothing of the pod runs or is held on this node any more.
    #[must_use]
    pub fn is_released(self) -> bool {
        self.stage == PodStage::Finished
    }
}

/// A change of a pod's status, for those who watch pods.
#[derive(Clone, Debug)]
pub enum PodChange {
    /// Nothing was known of the pod, and it is not being deleted.
    Added(PodEntry),
    Modified(PodEntry),
    /// Nothing of it is left on this node.
    Deleted(PodRef),
}

/// Changes that a reader may fall behind; tokio rounds this up to a power of two.
const WATCH_BUFFER: usize = 100;

/// Shared by all workers; every access is short.
#[derive(Clone, Debug)]
pub struct PodsView {
    entries: Arc<Mutex<Entries>>,
    /// Notifies those who wait for the next change.
    changed: Arc<watch::Sender<()>>,
    /// Exists from the first watch on.
    watches: Arc<OnceLock<broadcast::Sender<PodChange>>>,
}

#[derive(Debug, Default)]
struct Entries {
    by_uid: BTreeMap<PodUid, Versioned>,
    /// Number of entries that were made or removed so far.
    version: u64,
}

#[derive(Debug)]
struct Versioned {
    entry: PodEntry,
    /// The version of the entries with it.
    version: u64,
}

/// What changed between two looks at the pods; a pod with a status that is equal to the one before counts as changed.
#[derive(Debug)]
pub struct ViewChanges {
    pub changed: Vec<PodEntry>,
    /// Number of pods now.
    pub count: usize,
    /// For the next look.
    pub version: u64,
}

impl Default for PodsView {
    fn default() -> Self {
        Self { entries: Arc::default(), changed: Arc::new(watch::Sender::new(())), watches: Arc::default() }
    }
}

impl PodsView {
    /// Replaces the pod's entry; returns whether its status has changed.
    pub fn publish(
        &self,
        identity: &PodRef,
        pod: Arc<Pod>,
        status: Arc<PodStatus>,
        progress: PodProgress,
    ) -> bool {
        let mut entries = self.entries.lock();
        let Entries { by_uid, version } = &mut *entries;
        let before = by_uid.get(&identity.uid);
        let is_changed = before.is_none_or(|before| before.entry.status != status);
        let is_rest_same = before
            .is_some_and(|before| Arc::ptr_eq(&before.entry.pod, &pod) && before.entry.progress == progress);
        *version += 1;
        let version = *version;
        // An equal status, too: the one before need not be kept as well, neither here nor by those who look at the changes.
        let entry = PodEntry { identity: identity.clone(), pod, status, progress };
        self.report(|| compute_pod_change(before.map(|before| &before.entry), &entry, is_changed));
        by_uid.insert(identity.uid.clone(), Versioned { entry, version });
        drop(entries);
        if is_changed || !is_rest_same {
            self.changed.send_replace(());
        }
        is_changed
    }

    pub fn forget(&self, uid: &PodUid) {
        let mut entries = self.entries.lock();
        if let Some(Versioned { entry, .. }) = entries.by_uid.remove(uid) {
            entries.version += 1;
            let was_reported = entry.progress.is_released();
            self.report(|| (!was_reported).then_some(PodChange::Deleted(entry.identity)));
            drop(entries);
            self.changed.send_replace(());
        }
    }

    #[must_use]
    pub fn get(&self, uid: &PodUid) -> Option<PodEntry> {
        self.entries.lock().by_uid.get(uid).map(|pod| pod.entry.clone())
    }

    #[must_use]
    pub fn all(&self) -> Vec<PodEntry> {
        self.matching(|_| true)
    }

    /// The pods for which the condition holds.
    #[must_use]
    pub fn matching(&self, is_meant: impl Fn(&PodEntry) -> bool) -> Vec<PodEntry> {
        let entries = self.entries.lock();
        entries.by_uid.values().map(|pod| &pod.entry).filter(|entry| is_meant(entry)).cloned().collect()
    }

    /// What has changed since that version; 0 is before the first pod. A pod that is gone only counts less.
    pub fn changed_since(&self, version: u64) -> ViewChanges {
        let entries = self.entries.lock();
        let changed = match entries.version > version {
            true => {
                let changed = entries.by_uid.values().filter(|pod| pod.version > version);
                changed.map(|pod| pod.entry.clone()).collect()
            }
            false => Vec::new(),
        };
        ViewChanges { changed, count: entries.by_uid.len(), version: entries.version }
    }

    #[must_use]
    pub fn contains(&self, uid: &PodUid) -> bool {
        self.entries.lock().by_uid.contains_key(uid)
    }

    /// Number of pods.
    #[must_use]
    pub fn count(&self) -> usize {
        self.entries.lock().by_uid.len()
    }

    /// Every change from now on, in order.
    #[must_use]
    pub fn watch(&self) -> broadcast::Receiver<PodChange> {
        self.watches.get_or_init(|| broadcast::Sender::new(WATCH_BUFFER)).subscribe()
    }

    /// Costs nothing without a watch. Called with the entries locked, so that changes stay in order.
    fn report(&self, change: impl FnOnce() -> Option<PodChange>) {
        let watches = self.watches.get().filter(|watches| watches.receiver_count() > 0);
        if let Some((watches, change)) = watches.and_then(|watches| Some((watches, change()?))) {
            // The last reader may have gone meanwhile.
            let _ = watches.send(change);
        }
    }

    /// Resolves with every change.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}

/// What a new entry means for those who watch: a change of the status (`is_status_changed`), or the end of the pod.
fn compute_pod_change(
    before: Option<&PodEntry>,
    entry: &PodEntry,
    is_status_changed: bool,
) -> Option<PodChange> {
    if entry.progress.is_released() {
        let was_released = before.is_some_and(|before| before.progress.is_released());
        return (!was_released).then(|| PodChange::Deleted(entry.identity.clone()));
    }
    let is_new = before.is_none() && entry.pod.metadata.deletion_timestamp.is_none();
    let change = if is_new { PodChange::Added } else { PodChange::Modified };
    is_status_changed.then(|| change(entry.clone()))
}

/// Path of the checkpoint of a pod's status.
fn checkpoint_path(paths: &Paths, uid: &PodUid) -> PathBuf {
    paths.pod(uid).join("status.json")
}

/// Path of the checkpoint of a pod's last spec.
fn spec_path(paths: &Paths, uid: &PodUid) -> PathBuf {
    paths.pod(uid).join("pod.json")
}

/// Writes the spec to disk, so that a restarted kubelet that finds the pod running without a manifest can still terminate
/// it with its hooks, grace period and order. Returns whether it is there; a failure is in the log.
pub async fn save_pod(files: &dyn Files, paths: &Paths, uid: &PodUid, pod: &Pod) -> bool {
    let Ok(json) = serde_json::to_vec(pod) else { return true };
    let saved = async {
        files.ensure_dir(&paths.pod(uid), 0o750).await?;
        files.write_file(&spec_path(paths, uid), &json, 0o600).await
    };
    if let Err(error) = saved.await {
        tracing::warn!(podUID = %uid, err = crate::error_chain::chain(&error), "Failed to write pod checkpoint");
        return false;
    }
    true
}

/// The pod's last spec as an earlier run of the kubelet wrote it; `None` if there is none or it is damaged.
pub async fn load_pod(files: &dyn Files, paths: &Paths, uid: &PodUid) -> Option<Pod> {
    read_pod(files, paths, uid).await.ok()?
}

/// Every pod spec that earlier runs of the kubelet wrote and that is not damaged.
///
/// # Errors
/// The directory or a file in it exists and cannot be read, so that the set of pods is not known.
pub async fn load_pods(files: &dyn Files, paths: &Paths) -> Result<Vec<Pod>, HostError> {
    let mut pods = Vec::new();
    for entry in files.list_dir(&paths.pods()).await?.into_iter().filter(|entry| entry.is_dir) {
        match read_pod(files, paths, &PodUid::from(entry.name)).await {
            Ok(pod) => pods.extend(pod),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(pods)
}

/// `None`: it is damaged.
async fn read_pod(files: &dyn Files, paths: &Paths, uid: &PodUid) -> Result<Option<Pod>, HostError> {
    const LIMIT: usize = 11 << 20;
    let json = files.read_file(&spec_path(paths, uid), LIMIT, false).await?;
    let pod = model::k8s::pod_from_json(&json).ok();
    let pod = pod.filter(|pod| PodUid::of(pod) == *uid);
    if pod.is_none() {
        set_aside(files, &spec_path(paths, uid)).await;
    }
    Ok(pod)
}

/// Writes the status next to the pod's other files; from it a restarted kubelet has what the runtime does not know (start time,
/// readiness, why the pod failed). A final status must survive a power failure, because the pod would run again without it.
/// Returns whether it is there; a failure is in the log.
pub async fn save_checkpoint(files: &dyn Files, paths: &Paths, uid: &PodUid, status: &PodStatus) -> bool {
    let Ok(json) = serde_json::to_vec(status) else { return true };
    let saved = async {
        files.ensure_dir(&paths.pod(uid), 0o750).await?;
        let path = checkpoint_path(paths, uid);
        if has_ended(status) {
            files.write_durably(&path, &json, 0o600).await
        } else {
            files.write_file(&path, &json, 0o600).await
        }
    };
    if let Err(error) = saved.await {
        tracing::warn!(podUID = %uid, err = crate::error_chain::chain(&error), "Failed to write status checkpoint");
        return false;
    }
    true
}

/// Removes the status, for a new pod with the same UID.
///
/// # Errors
/// The file cannot be removed.
pub async fn remove_checkpoint(files: &dyn Files, paths: &Paths, uid: &PodUid) -> Result<(), HostError> {
    match files.remove_file(&checkpoint_path(paths, uid)).await {
        Err(error) if !error.is_not_found() => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The status that an earlier run of the kubelet wrote; `None` if there is none or it is damaged.
pub async fn load_checkpoint(files: &dyn Files, paths: &Paths, uid: &PodUid) -> Option<PodStatus> {
    const LIMIT: usize = 1 << 20;
    let path = checkpoint_path(paths, uid);
    match damaged::load(files, &path, LIMIT, "status checkpoint", |json| serde_json::from_slice(json)).await {
        Ok(file) => file.intact(),
        Err(error) => {
            let error = crate::error_chain::chain(&error);
            tracing::warn!(podUID = %uid, err = error, "Failed to read status checkpoint, starting with an empty status");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use base_core::pod_stage::PodStage;
    use serde_json::json;

    use super::*;

    fn status(phase: &str) -> Arc<PodStatus> {
        Arc::new(serde_json::from_value(json!({"phase": phase})).unwrap())
    }

    #[test]
    fn equal_status_replaces_the_one_before_and_is_no_change() {
        let (view, uid) = (PodsView::default(), PodUid::from("u"));
        let identity = PodRef::new("n", "p", "u");
        let pod = Arc::new(Pod::default());
        let progress =
            PodProgress { stage: PodStage::Syncing, is_rejected: false, is_orphan: false, is_observed: true };
        let publish =
            |status: &Arc<PodStatus>| view.publish(&identity, pod.clone(), status.clone(), progress);
        let (first, equal, other) = (status("Pending"), status("Pending"), status("Running"));
        assert!(publish(&first));
        let mut changes = view.changes();
        changes.mark_unchanged();
        assert!(!publish(&equal) && !changes.has_changed().unwrap());
        assert!(Arc::ptr_eq(&view.get(&uid).unwrap().status, &equal), "the one before is not kept");
        assert!(publish(&other) && changes.has_changed().unwrap());
    }

    #[test]
    fn only_the_pods_that_have_changed_since_the_last_look_are_shown() {
        let view = PodsView::default();
        let progress =
            PodProgress { stage: PodStage::Syncing, is_rejected: false, is_orphan: false, is_observed: true };
        let publish = |name: &str, phase: &str| {
            let pod = Arc::new(Pod::default());
            view.publish(&PodRef::new("n", name, name), pod, status(phase), progress);
        };
        let look = |version: u64| {
            let ViewChanges { changed, count, version } = view.changed_since(version);
            let names: Vec<String> = changed.iter().map(|entry| entry.identity.name.to_string()).collect();
            (names.join(" "), count, version)
        };
        publish("a", "Pending");
        publish("b", "Pending");
        let (first, count, version) = look(0);
        assert_eq!((first.as_str(), count), ("a b", 2));
        assert_eq!(look(version), (String::new(), 2, version));
        publish("b", "Pending");
        let (equal, _, version) = look(version);
        assert_eq!(equal, "b", "the status before need not be kept");
        publish("b", "Running");
        view.forget(&PodUid::from("a".to_owned()));
        let (second, count, version) = look(version);
        assert_eq!((second.as_str(), count), ("b", 1));
        assert_eq!(look(version), (String::new(), 1, version));
    }

    #[tokio::test]
    async fn watch_reports_changes_of_a_status_and_the_end_of_a_pod_once() {
        let view = PodsView::default();
        let publish = |name: &str, phase: &str, stage: PodStage, is_deleted: bool| {
            let mut pod = Pod::default();
            pod.metadata.deletion_timestamp =
                is_deleted.then_some(model::k8s::Time(jiff::Timestamp::UNIX_EPOCH));
            let progress = PodProgress { stage, is_rejected: false, is_orphan: false, is_observed: true };
            view.publish(&PodRef::new("n", name, name), Arc::new(pod), status(phase), progress);
        };
        publish("unseen", "Pending", PodStage::Syncing, false);
        let mut changes = view.watch();
        publish("a", "Pending", PodStage::Syncing, false);
        publish("a", "Pending", PodStage::Terminating, false);
        publish("a", "Running", PodStage::Syncing, false);
        publish("a", "Running", PodStage::Finished, false);
        publish("a", "Failed", PodStage::Finished, false);
        view.forget(&PodUid::from("a"));
        publish("going", "Pending", PodStage::Terminating, true);
        view.forget(&PodUid::from("going"));
        view.forget(&PodUid::from("none"));
        let mut seen = Vec::new();
        while let Ok(change) = changes.try_recv() {
            seen.push(match change {
                PodChange::Added(entry) => format!("+{} {:?}", entry.identity.name, entry.status.phase),
                PodChange::Modified(entry) => format!("~{} {:?}", entry.identity.name, entry.status.phase),
                PodChange::Deleted(pod) => format!("-{}", pod.name),
            });
        }
        let expected =
            ["+a Some(\"Pending\")", "~a Some(\"Running\")", "-a", "~going Some(\"Pending\")", "-going"];
        assert_eq!(seen, expected);
    }

    #[tokio::test]
    async fn watch_that_is_not_read_loses_changes_and_others_get_all_of_them() {
        let view = PodsView::default();
        let progress =
            PodProgress { stage: PodStage::Syncing, is_rejected: false, is_orphan: false, is_observed: true };
        let (mut slow, mut reader) = (view.watch(), view.watch());
        for number in 0..1000 {
            let pod = PodRef::new("n", "p", "u");
            view.publish(&pod, Arc::new(Pod::default()), status(&number.to_string()), progress);
            reader.recv().await.unwrap();
        }
        assert!(matches!(slow.recv().await, Err(broadcast::error::RecvError::Lagged(_))));
    }
}
