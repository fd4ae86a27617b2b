//! The desired pods of all config sources, merged.
//!
//! Owns: the last set of each source, which changes follow from a new set, and whether all sources have reported. Never:
//! reading a source, validating a pod, starting or stopping anything.
//!
//! A source always reports its full set. Sources are independent: a set of one never changes pods of another. Mirror pods,
//! by which the API shows static pods, are not desired pods: the reader of the API leaves them out.
#![forbid(unsafe_code)]

mod api_pod;
pub mod duplicates;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod static_pod;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use model::annotations::{CONFIG_FILE, CONFIG_MIRROR, CONFIG_SEEN, CONFIG_SOURCE};
use model::k8s::{Pod, PodStatus};
use model::{PodRef, PodSource, PodUid};

pub use api_pod::ApiPod;

use crate::static_pod::Origin;

/// What to do about a pod because of a new set of its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodOp {
    /// The source does not list it any more: the object is gone. Its containers still have to be stopped.
    Remove,
    Add,
    /// A field changed that the kubelet acts on.
    Update,
    /// The object has a deletion timestamp, or its grace period changed: stop it gracefully.
    Delete,
    /// Only the status changed, which the kubelet writes: write it again if it differs.
    Reconcile,
}

#[derive(Clone, Debug)]
pub struct PodChange {
    pub op: PodOp,
    pub source: PodSource,
    /// The new pod; for `Remove`, the last known one.
    pub desired: DesiredPod,
}

/// A pod that its source wants.
#[derive(Clone, Debug)]
pub struct DesiredPod {
    pub identity: PodRef,
    /// As it was when a field last changed that the kubelet acts on: one copy for all that work with it. Its status may be older.
    pub pod: Arc<Pod>,
    /// A pod of the API as it is there now.
    pub in_api: Option<Arc<ApiPod>>,
}

impl DesiredPod {
    #[must_use]
    pub fn of_manifest(pod: Arc<Pod>) -> Self {
        Self { identity: PodRef::of(&pod), pod, in_api: None }
    }

    #[must_use]
    pub fn of_api(in_api: Arc<ApiPod>) -> Self {
        Self { identity: in_api.identity.clone(), pod: in_api.pod.clone(), in_api: Some(in_api) }
    }

    /// The status that the source has of the pod now.
    #[must_use]
    pub fn status(&self) -> Option<Arc<PodStatus>> {
        match &self.in_api {
            Some(in_api) => in_api.status.clone(),
            None => self.pod.status.clone().map(Arc::new),
        }
    }
}

/// A pod that was left out, because its source has an earlier one with the same name.
#[derive(Clone, Debug)]
pub struct DuplicatePod {
    pub source: PodSource,
    pub pod: PodRef,
}

impl DuplicatePod {
    /// The message of the event (reason FailedValidation) about it.
    #[must_use]
    pub fn message(&self) -> String {
        let pod = &self.pod;
        format!(
            "Error validating pod {}({}) from {} due to duplicate pod name {:?}, ignoring",
            pod.full_name(),
            pod.uid,
            self.source,
            &*pod.name
        )
    }
}

/// The changes that follow from one set.
#[derive(Clone, Debug, Default)]
pub struct SourceReport {
    /// Removals, then additions (oldest pod first), updates, deletions, reconciliations.
    pub changes: Vec<PodChange>,
    pub duplicates: Vec<DuplicatePod>,
}

/// The pods that a file or the manifest server described, from all checkpoints of earlier kubelets. Of several pods with
/// one name, the last seen one is used.
#[must_use]
pub fn last_described_by(origin: &Origin, written_down: &[Arc<Pod>]) -> Vec<Arc<Pod>> {
    newest_of(origin.source(), written_down, |pod| match origin {
        Origin::File(path) => annotation(pod, CONFIG_FILE) == Some(path),
        // There is one server, and its address is not in the checkpoint.
        Origin::Url(_) => true,
    })
}

/// The pods that all files described, wherever they were, from all checkpoints of earlier kubelets: the path of the manifests may be
/// written wrongly now.
#[must_use]
pub fn last_described_by_files(written_down: &[Arc<Pod>]) -> Vec<Arc<Pod>> {
    newest_of(PodSource::File, written_down, |_| true)
}

fn newest_of(source: PodSource, written_down: &[Arc<Pod>], is_meant: impl Fn(&Pod) -> bool) -> Vec<Arc<Pod>> {
    let mut newest: BTreeMap<String, (Option<Timestamp>, &Arc<Pod>)> = BTreeMap::new();
    for pod in written_down {
        if !is_meant(pod) || annotation(pod, CONFIG_SOURCE) != Some(source.as_str()) {
            continue;
        }
        let seen = annotation(pod, CONFIG_SEEN).and_then(|seen| seen.parse::<Timestamp>().ok());
        let known = newest.entry(PodRef::of(pod).full_name()).or_insert((seen, pod));
        if known.0 < seen {
            *known = (seen, pod);
        }
    }
    newest.into_values().map(|(_, pod)| pod.clone()).collect()
}

/// Whether it is known which pods a source had that cannot be read now: each pod of the node has a checkpoint with its source, or a
/// worker (`known`). A pod of another kubelet has neither, and may be one of that source. `running` has the pods of the runtime that
/// may run; `None` until it was listed.
#[must_use]
pub fn is_every_pod_known(
    known: &BTreeSet<PodUid>,
    on_disk: &BTreeSet<PodUid>,
    running: Option<&BTreeSet<PodUid>>,
) -> bool {
    running.is_some_and(|running| on_disk.is_subset(known) && running.is_subset(known))
}

/// The sources that have reported. Nothing may be cleaned up before all have: a pod that seems to be an orphan may be
/// desired by a source that is still being read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourcesReady {
    expected: BTreeSet<PodSource>,
    seen: BTreeSet<PodSource>,
}

impl SourcesReady {
    pub fn new(expected: impl IntoIterator<Item = PodSource>) -> Self {
        Self { expected: expected.into_iter().collect(), seen: BTreeSet::new() }
    }

    pub fn saw(&mut self, source: PodSource) {
        self.seen.insert(source);
    }

    #[must_use]
    pub fn has_seen(&self, source: PodSource) -> bool {
        self.seen.contains(&source)
    }

    #[must_use]
    pub fn all_ready(&self) -> bool {
        self.missing().next().is_none()
    }

    pub fn missing(&self) -> impl Iterator<Item = PodSource> {
        self.expected.difference(&self.seen).copied()
    }
}

/// The desired pods of all sources.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    ready: SourcesReady,
    /// In the order of the source, without duplicates.
    by_source: BTreeMap<PodSource, Vec<DesiredPod>>,
}

impl Sources {
    pub fn new(expected: impl IntoIterator<Item = PodSource>) -> Self {
        Self { ready: SourcesReady::new(expected), ..Self::default() }
    }

    #[must_use]
    pub const fn ready(&self) -> &SourcesReady {
        &self.ready
    }

    /// Every pod of any source.
    pub fn pods(&self) -> impl Iterator<Item = (PodSource, &DesiredPod)> {
        self.by_source.iter().flat_map(|(source, pods)| pods.iter().map(|known| (*source, known)))
    }

    /// Replaces the set of one source. Static pods get their source's annotation, and keep the time at which they were first seen;
    /// pods of the API have both already.
    pub fn set(&mut self, source: PodSource, pods: Vec<DesiredPod>, now: Timestamp) -> SourceReport {
        self.ready.saw(source);
        let old = self.by_source.remove(&source).unwrap_or_default();
        let Matched { pods, removed, duplicates } = matched(source, old, pods);
        let mut changes = Vec::new();
        let mut new = Vec::with_capacity(pods.len());
        for (pod, known) in pods {
            let desired = match known {
                Some(known) if is_same_version(&known, &pod) => known,
                known => {
                    let desired = adopt(pod, source, known.as_ref(), now);
                    if let Some(op) = op_for(known.as_ref(), &desired) {
                        changes.push(PodChange { op, source, desired: desired.clone() });
                    }
                    desired
                }
            };
            new.push(desired);
        }
        let removed = removed.into_iter().map(|desired| PodChange { op: PodOp::Remove, source, desired });
        changes.extend(removed);
        self.by_source.insert(source, new);
        changes.sort_by_cached_key(order);
        SourceReport { changes, duplicates }
    }
}

/// A new set of a source next to its last one.
struct Matched {
    /// Each with what was known of it.
    pods: Vec<(DesiredPod, Option<DesiredPod>)>,
    removed: Vec<DesiredPod>,
    duplicates: Vec<DuplicatePod>,
}

fn matched(source: PodSource, old: Vec<DesiredPod>, pods: Vec<DesiredPod>) -> Matched {
    let is_same_pod = |(known, pod): (&DesiredPod, &DesiredPod)| known.identity == pod.identity;
    // Nearly always one of many pods has changed, and none has come or gone.
    if old.len() == pods.len() && old.iter().zip(&pods).all(is_same_pod) {
        let pods = pods.into_iter().zip(old.into_iter().map(Some)).collect();
        return Matched { pods, removed: Vec::new(), duplicates: Vec::new() };
    }
    let (pods, duplicates) = without_duplicates(source, pods);
    let by_uid = |known: DesiredPod| (known.identity.uid.clone(), known);
    let mut old: BTreeMap<PodUid, DesiredPod> = old.into_iter().map(by_uid).collect();
    let with_known = |pod: DesiredPod| {
        let known = old.remove(&pod.identity.uid);
        (pod, known)
    };
    let pods = pods.into_iter().map(with_known).collect();
    Matched { pods, removed: old.into_values().collect(), duplicates }
}

type Order = (PodOp, Option<Timestamp>, PodUid);

fn order(change: &PodChange) -> Order {
    let created = change.desired.pod.metadata.creation_timestamp.as_ref().map(|created| created.0);
    (change.op, created, change.desired.identity.uid.clone())
}

/// The first pod of each name and of each UID is used.
fn without_duplicates(source: PodSource, pods: Vec<DesiredPod>) -> (Vec<DesiredPod>, Vec<DuplicatePod>) {
    let (mut names, mut uids) = (BTreeSet::new(), BTreeSet::new());
    let is_first = |pod: &DesiredPod| {
        let PodRef { namespace, name, uid } = pod.identity.clone();
        names.insert((namespace, name)) && uids.insert(uid)
    };
    let (kept, duplicates): (Vec<_>, Vec<_>) = pods.into_iter().partition(is_first);
    let left_out = |pod: DesiredPod| DuplicatePod { source, pod: pod.identity.clone() };
    (kept, duplicates.into_iter().map(left_out).collect())
}

/// Whether both are the same version of a pod of the API.
fn is_same_version(a: &DesiredPod, b: &DesiredPod) -> bool {
    a.in_api.as_ref().zip(b.in_api.as_ref()).is_some_and(|(a, b)| a.version().is_same_as(b.version()))
}

/// The pod with the annotations of a static one.
fn adopt(new: DesiredPod, source: PodSource, known: Option<&DesiredPod>, now: Timestamp) -> DesiredPod {
    match new.in_api {
        Some(_) => new,
        None => {
            let mut pod = new.pod;
            annotate(&mut pod, source, known.map(|known| &*known.pod), now);
            DesiredPod { pod, ..new }
        }
    }
}

/// The generation may change with a field that this kubelet does not know.
fn is_other_generation(a: &Pod, b: &Pod) -> bool {
    a.metadata.generation != b.metadata.generation || differs_semantically(a, b)
}

/// Annotates the pod with its source and the time at which it was first seen.
fn annotate(pod: &mut Arc<Pod>, source: PodSource, known: Option<&Pod>, now: Timestamp) {
    // The annotation of a pod from the API may have been written by any client: only the kubelet knows when it saw the pod.
    let of_pod = || annotation(pod, CONFIG_SEEN).filter(|_| source.is_static());
    let seen = known.and_then(|known| annotation(known, CONFIG_SEEN)).or_else(of_pod);
    let seen = seen.map_or_else(|| now.to_string(), str::to_owned);
    let needs_source = annotation(pod, CONFIG_SOURCE) != Some(source.as_str());
    if needs_source || annotation(pod, CONFIG_SEEN) != Some(&seen) {
        let annotations = Arc::make_mut(pod).metadata.annotations.get_or_insert_default();
        annotations.insert(CONFIG_SOURCE.to_owned(), source.as_str().to_owned());
        annotations.insert(CONFIG_SEEN.to_owned(), seen);
    }
}

fn annotation<'a>(pod: &'a Pod, key: &str) -> Option<&'a str> {
    pod.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

fn op_for(known: Option<&DesiredPod>, new: &DesiredPod) -> Option<PodOp> {
    let Some(known) = known else { return Some(PodOp::Add) };
    if !Arc::ptr_eq(&known.pod, &new.pod) && differs_semantically(&known.pod, &new.pod) {
        return Some(if new.pod.metadata.deletion_timestamp.is_some() {
            PodOp::Delete
        } else {
            PodOp::Update
        });
    }
    let has_same_status = match (&known.in_api, &new.in_api) {
        (Some(known), Some(new)) => known.status == new.status,
        (None, _) | (_, None) => known.status() == new.status(),
    };
    (!has_same_status).then_some(PodOp::Reconcile)
}

/// A field changed that the kubelet acts on. Resource versions, managed fields and the annotations of sources do not count.
#[must_use]
pub fn differs_semantically(a: &Pod, b: &Pod) -> bool {
    let (left, right) = (&a.metadata, &b.metadata);
    a.spec != b.spec
        || left.deletion_timestamp != right.deletion_timestamp
        || left.deletion_grace_period_seconds != right.deletion_grace_period_seconds
        || !entries(left.labels.as_ref()).eq(entries(right.labels.as_ref()))
        || !entries(left.annotations.as_ref())
            .filter(acts)
            .eq(entries(right.annotations.as_ref()).filter(acts))
}

fn entries(map: Option<&BTreeMap<String, String>>) -> impl Iterator<Item = (&String, &String)> {
    map.into_iter().flatten()
}

fn acts((key, _): &(&String, &String)) -> bool {
    ![CONFIG_SOURCE, CONFIG_MIRROR, CONFIG_SEEN].contains(&key.as_str())
}

#[cfg(test)]
mod tests;
