//! Config sources of static pods: a file or directory, and a URL. Each source is a task that sends the full set of its pods
//! whenever it changed; the sync loop merges them.
#![forbid(unsafe_code)]

mod file;
mod http;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use base_core::pod_stage::RuntimePresence;
use jiff::Timestamp;
use model::k8s::Pod;
use model::{MonoTime, PodSource, PodUid};
use parking_lot::Mutex;
use ports::Files;
use ports::node_api::ManifestProblem;
use sources_core::duplicates::{ManifestPods, Owners, UniquePods, compute_unique_pods, has_duplicates};
use sources_core::static_pod::{ManifestError, mark_first_seen};
use sources_core::{DesiredPod, is_every_pod_known};

use base_agent::cache::PodCache;
use base_agent::context::Context;
use base_agent::pods_view::load_pods;
use base_agent::retry_delay::RetryDelay;
use base_agent::settings::Paths;
use tokio::sync::mpsc;

use file::FileSource;
use http::HttpSource;

/// Starts the sources of static pods that are configured, and returns them. `cache` has what an earlier kubelet ran.
#[must_use]
pub fn start(
    ctx: &Context,
    cache: &PodCache,
    problems: &ManifestProblems,
    sets: &mpsc::Sender<SourceSet>,
) -> Vec<PodSource> {
    let config = ctx.config();
    let mut started = Vec::new();
    let node = NodePods { files: ctx.files.clone(), paths: ctx.settings.paths.clone(), cache: cache.clone() };
    if !config.static_pod_path.is_empty() {
        started.push(PodSource::File);
        let source = FileSource {
            node: node.clone(),
            clock: ctx.clock,
            path: config.static_pod_path.clone().into(),
            period: config.file_check_frequency.as_std(),
            node_name: ctx.settings.node_name.clone(),
            features: ctx.node_facts.features,
            problems: problems.clone(),
            sets: sets.clone(),
        };
        ctx.tasks.spawn("file source", source.run());
    }
    if !config.static_pod_url.is_empty() {
        let headers = config.static_pod_url_header.iter();
        started.push(PodSource::Http);
        let source = HttpSource {
            net: ctx.net.clone(),
            node,
            clock: ctx.clock,
            url: config.static_pod_url.clone(),
            headers: headers
                .flat_map(|(name, values)| values.iter().map(|value| (name.clone(), value.clone())))
                .collect(),
            period: config.http_check_frequency.as_std(),
            node_name: ctx.settings.node_name.clone(),
            features: ctx.node_facts.features,
            problems: problems.clone(),
            sets: sets.clone(),
        };
        ctx.tasks.spawn("http source", source.run());
    }
    started
}

/// All pods of one source.
#[derive(Clone, Debug)]
pub struct SourceSet {
    pub source: PodSource,
    pub pods: Vec<DesiredPod>,
    /// Every manifest of the source could be read at least once, or it is known from checkpoints which pods it had. Until then, a
    /// running pod that is missing here may belong to an unreadable manifest.
    pub is_complete: bool,
    /// Pods of the source that cannot be decoded. They may run from before, and are no orphans.
    pub undecodable: BTreeSet<PodUid>,
}

/// What is on this node of pods that an earlier kubelet ran: the place of the checkpoints, and what the runtime has.
#[derive(Clone, Debug)]
pub struct NodePods {
    pub files: Arc<dyn Files>,
    /// Has the directory of pod checkpoints.
    pub paths: Paths,
    pub cache: PodCache,
}

/// The pods of which earlier runs of the kubelet saved the spec.
struct Checkpoints {
    pods: Vec<Arc<Pod>>,
    /// No other pod is on the node, so that a source which cannot be read had no other pods than these.
    is_every_pod_known: bool,
    /// The runtime has been listed, without which that is not known.
    is_listed: bool,
}

impl NodePods {
    /// `None` if they cannot be read.
    async fn checkpoints(&self) -> Option<Checkpoints> {
        match load_pods(&*self.files, &self.paths).await {
            Ok(pods) => {
                let pods: Vec<Arc<Pod>> = pods.into_iter().map(Arc::new).collect();
                let is_listed = self.cache.listings().borrow().is_some();
                let is_every_pod_known = self.knows_every_pod(&pods).await;
                Some(Checkpoints { pods, is_every_pod_known, is_listed })
            }
            Err(error) => {
                let error = base_agent::error_chain::chain(&error);
                tracing::warn!(err = error, "Failed to read the checkpoint of pod sources");
                None
            }
        }
    }

    async fn knows_every_pod(&self, checkpointed: &[Arc<Pod>]) -> bool {
        let Some(on_disk) = self.directories().await else { return false };
        let mut known = self.cache.subscribed();
        known.extend(checkpointed.iter().map(|pod| PodUid::of(pod)));
        let running = self.cache.presence().map(|pods| {
            let running = pods.into_iter().filter(|(_, (_, presence))| *presence == RuntimePresence::MayRun);
            running.map(|(uid, _)| uid).collect()
        });
        is_every_pod_known(&known, &on_disk, running.as_ref())
    }

    /// The pods with a directory, whichever kubelet made it; `None` if that is not known.
    async fn directories(&self) -> Option<BTreeSet<PodUid>> {
        let entries = self.files.list_dir(&self.paths.pods()).await.ok()?;
        Some(entries.into_iter().filter(|entry| entry.is_dir).map(|entry| PodUid::from(entry.name)).collect())
    }

    /// One pod for each name that the manifests define.
    async fn unique(&self, manifests: &[ManifestPods<'_>], owners: &Owners, node_name: &str) -> UniquePods {
        let on_node = match has_duplicates(manifests) {
            true => self.directories().await.unwrap_or_default(),
            false => BTreeSet::new(),
        };
        compute_unique_pods(manifests, owners, &on_node, node_name)
    }
}

/// Marks the pods as first seen now.
fn seen_now(pods: Vec<Pod>, now: Timestamp) -> Vec<Arc<Pod>> {
    let mark = |mut pod: Pod| {
        mark_first_seen(&mut pod, now);
        Arc::new(pod)
    };
    let mut marked: Vec<Arc<Pod>> = pods.into_iter().map(mark).collect();
    // Collecting in place would keep the allocation of the whole pods, kilobytes for each, as long as the file exists.
    marked.shrink_to_fit();
    marked
}

/// When an error that continues is logged again: after a minute, and then after twice as long each time, up to an hour.
#[derive(Debug)]
struct RepeatedError {
    /// `None` for an error that is new.
    next: Option<MonoTime>,
    delay: RetryDelay,
}

const FIRST_REPEAT: Duration = Duration::from_secs(60);
const LONGEST_REPEAT: Duration = Duration::from_secs(3600);

impl Default for RepeatedError {
    fn default() -> Self {
        Self { next: None, delay: RetryDelay::new(FIRST_REPEAT, LONGEST_REPEAT) }
    }
}

impl RepeatedError {
    /// Whether it is logged now.
    fn is_due(&mut self, now: MonoTime) -> bool {
        let is_due = self.next.is_none_or(|at| at <= now);
        if is_due {
            self.next = Some(now + self.delay.take());
        }
        is_due
    }

    /// It has ended.
    fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Something wrong with a manifest, or with the place of all manifests.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Problem {
    Warning(String),
    /// Its last valid version stays in effect.
    Invalid(String),
    /// It defines a pod that another manifest defines.
    Duplicate(String),
    /// Nothing is known about it now.
    Unreadable(String),
}

impl Problem {
    fn warnings(warnings: &[ManifestError]) -> Vec<Self> {
        warnings.iter().map(|warning| Self::Warning(warning.to_string())).collect()
    }

    fn errors(errors: &[ManifestError]) -> Vec<Self> {
        errors.iter().map(|error| Self::Invalid(error.to_string())).collect()
    }

    /// By the manifest that defines the pods that are not used.
    fn duplicates(errors: Vec<(String, String)>) -> BTreeMap<String, Vec<Self>> {
        let mut by_manifest: BTreeMap<String, Vec<Self>> = BTreeMap::new();
        for (manifest, error) in errors {
            let known = by_manifest.entry(manifest).or_default();
            if known.len() < MAX_DUPLICATES {
                known.push(Self::Duplicate(error));
            }
        }
        by_manifest
    }

    fn log(&self, origin: &str) {
        match self {
            Self::Warning(problem) => tracing::warn!(origin, problem, "Parsed manifest with a warning"),
            Self::Invalid(problem) => {
                tracing::error!(
                    origin,
                    problem,
                    "Failed to parse manifest, pods of its last valid version continue"
                );
            }
            Self::Duplicate(problem) => {
                tracing::error!(origin, problem, "Ignored a pod that is defined twice, the first one stays");
            }
            Self::Unreadable(problem) => {
                tracing::error!(origin, problem, "Failed to read manifests, their pods stay as they are");
            }
        }
    }

    fn message(&self) -> String {
        match self {
            Self::Warning(text) => format!("warning: {text}"),
            Self::Invalid(text) | Self::Duplicate(text) | Self::Unreadable(text) => text.clone(),
        }
    }
}

/// Of each manifest; one may have any number of pods of one name.
const MAX_DUPLICATES: usize = 20;

/// Current problems of manifests, by origin. Written by the sources, read by the server.
#[derive(Clone, Debug, Default)]
pub struct ManifestProblems {
    by_origin: Arc<Mutex<BTreeMap<String, Vec<Problem>>>>,
}

impl ManifestProblems {
    /// Replaces the problems of an origin; logs only new ones, so that a broken manifest is logged once per change.
    pub fn report(&self, origin: &str, problems: Vec<Problem>) {
        let mut by_origin = self.by_origin.lock();
        let known: BTreeSet<&Problem> = by_origin.get(origin).into_iter().flatten().collect();
        problems.iter().filter(|problem| !known.contains(problem)).for_each(|problem| problem.log(origin));
        if problems.is_empty() {
            by_origin.remove(origin);
        } else {
            by_origin.insert(origin.to_owned(), problems);
        }
    }

    /// Replaces the problems of an origin that cannot be read; logs that again with a back-off, for as long as it continues.
    fn report_unreadable(&self, origin: &str, why: String, repeat: &mut RepeatedError, now: MonoTime) {
        let problem = Problem::Unreadable(why);
        if repeat.is_due(now) {
            problem.log(origin);
        }
        self.by_origin.lock().insert(origin.to_owned(), vec![problem]);
    }

    /// Removes origins that no longer exist.
    pub fn retain(&self, mut keep: impl FnMut(&str) -> bool) {
        self.by_origin.lock().retain(|origin, _| keep(origin));
    }

    #[must_use]
    pub fn all(&self) -> Vec<ManifestProblem> {
        let by_origin = self.by_origin.lock();
        let of = |(origin, problems): (&String, &Vec<Problem>)| {
            let problem =
                |problem: &Problem| ManifestProblem { origin: origin.clone(), message: problem.message() };
            problems.iter().map(problem).collect::<Vec<_>>()
        };
        by_origin.iter().flat_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_that_continues_is_logged_again_with_a_back_off_up_to_an_hour() {
        let (mut repeat, start) = (RepeatedError::default(), MonoTime::ZERO);
        let mut logged = Vec::new();
        for minute in 0..300 {
            let now = start + Duration::from_secs(60 * minute);
            if repeat.is_due(now) {
                logged.push(minute);
            }
        }
        assert_eq!(logged, [0, 1, 3, 7, 15, 31, 63, 123, 183, 243]);
        repeat.clear();
        assert!(repeat.is_due(start), "another one");
    }
}
