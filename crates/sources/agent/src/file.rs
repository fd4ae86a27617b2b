//! Manifests on disk: one file, or the files of a directory. Changes are noticed by inotify and, in case an event was
//! missed, by a periodic scan. A file that cannot be read or parsed keeps its last valid version, so that a partly written
//! or broken manifest never stops a running pod. The version from before a restart is known from the pods' checkpoints.
//!
//! A path that cannot be read, for whatever reason, is not an empty directory: nothing is known about its pods, and they stay.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use config::Features;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use model::PodSource;
use model::k8s::Pod;
use ports::Clock;
use ports::host::{DirectoryChange, ManifestFile};
use sources_core::duplicates::{ManifestPods, Owners, is_backup_name};
use sources_core::static_pod::{Origin, parse_manifest};
use sources_core::{DesiredPod, last_described_by, last_described_by_files};
use tokio::sync::mpsc;

use super::{ManifestProblems, NodePods, Problem, RepeatedError, SourceSet, seen_now};

pub(crate) struct FileSource {
    pub(crate) node: NodePods,
    pub(crate) clock: Clock,
    pub(crate) path: PathBuf,
    pub(crate) period: Duration,
    pub(crate) node_name: String,
    pub(crate) features: Features,
    pub(crate) problems: ManifestProblems,
    pub(crate) sets: mpsc::Sender<SourceSet>,
}

impl std::fmt::Debug for FileSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileSource").field("path", &self.path).finish_non_exhaustive()
    }
}

/// A file: its bytes, and the pods of its last valid version.
#[derive(Debug, Default)]
struct Known {
    content: Vec<u8>,
    /// `None`: there was no valid version yet, and the checkpoints were not read.
    pods: Option<Vec<Arc<Pod>>>,
    /// There was a valid version since the start.
    was_valid: bool,
    /// What is wrong with the content, or remarkable about the file.
    problems: Vec<Problem>,
    /// Why it cannot be read now.
    unreadable: Option<Problem>,
}

impl Known {
    fn problems(&self) -> Vec<Problem> {
        self.problems.iter().chain(&self.unreadable).cloned().collect()
    }
}

/// What the source knows.
#[derive(Debug, Default)]
struct State {
    files: BTreeMap<PathBuf, Known>,
    was_read: bool,
    /// Until the path was read: the pods of all files, from their checkpoints.
    remembered: Option<Vec<Arc<Pod>>>,
    /// No running pod can be one of a manifest that was never valid.
    is_complete: bool,
    /// Before the runtime was listed, that is not known.
    awaits_listing: bool,
    owners: Owners,
    unreadable: RepeatedError,
}

impl State {
    fn was_valid(&self) -> bool {
        self.was_read && self.files.values().all(|file| file.was_valid)
    }

    /// The pods of a manifest are neither known from it nor from checkpoints.
    fn has_unknown_pods(&self) -> bool {
        let knows_path = self.was_read || self.remembered.is_some();
        !knows_path || self.files.values().any(|file| file.pods.is_none())
    }
}

impl FileSource {
    /// Runs until dropped. Every select arm is cancel safe.
    pub(crate) async fn run(self) {
        let mut state = State::default();
        let mut changes = None;
        let mut listings = self.node.cache.listings();
        loop {
            if changes.is_none() {
                changes = self.open_watch(&state).await;
            }
            listings.mark_unchanged();
            let set = self.read(&mut state).await;
            if self.sets.send(set).await.is_err() {
                return;
            }
            let next = self.clock.mono() + self.period;
            tokio::select! {
                change = next_change(&mut changes) => match change {
                    Some(change) => if self.forget(&mut state, &change.removed).await.is_err() {
                        return;
                    },
                    None => changes = None,
                },
                // Whether the runtime has other pods than those of checkpoints is known from its first listing on.
                Ok(()) = listings.changed(), if state.awaits_listing => {}
                () = self.clock.sleep_until(next) => {}
            }
        }
    }

    /// Reports the pods of deleted files as removed, whether or not the files exist again by now: a manifest that is deleted
    /// and written again restarts its pod, as in the Go kubelet. `Err`: the receiver was dropped.
    async fn forget(&self, state: &mut State, removed: &BTreeSet<PathBuf>) -> Result<(), ()> {
        // A single file that vanishes is a path that cannot be read, as a directory would be.
        let removed = removed.iter().filter(|path| **path != self.path);
        if removed.filter(|path| state.files.remove(*path).is_some()).count() == 0 {
            return Ok(());
        }
        let set = self.set_of(state).await;
        self.sets.send(set).await.map_err(drop)
    }

    /// `None`: it cannot be watched now, and is tried again after the period. Logged at the first attempt only.
    async fn open_watch(&self, state: &State) -> Option<BoxStream<'static, DirectoryChange>> {
        let opened = self.node.files.watch(&self.path).await;
        if let Err(error) = &opened
            && !state.was_read
            && state.remembered.is_none()
        {
            let error = base_agent::error_chain::chain(error);
            tracing::warn!(path = %self.path.display(), err = error, "Failed to watch manifests, reading them periodically only");
        }
        opened.ok()
    }

    /// Reads all files. Of a path that cannot be read the last known pods stay.
    async fn read(&self, state: &mut State) -> SourceSet {
        match self.read_files().await {
            Ok(files) => {
                state.unreadable.clear();
                self.take(state, files);
            }
            Err(why) => {
                // The path may be the only manifest.
                if let Some(file) = state.files.get_mut(&self.path) {
                    file.unreadable = Some(Problem::Unreadable(why.clone()));
                }
                let (origin, now) = (origin_of(&self.path), self.clock.mono());
                self.problems.report_unreadable(&origin, why, &mut state.unreadable, now);
            }
        }
        self.load_checkpoints(state).await;
        self.set_of(state).await
    }

    async fn read_files(&self) -> Result<Vec<ManifestFile>, String> {
        let files = self.node.files.read_manifests(&self.path).await;
        let files = files.map_err(|error| base_agent::error_chain::chain(&error))?;
        match files.as_slice() {
            [ManifestFile { path, content: Err(why) }] if *path == self.path => {
                Err(format!("{}: {why}", path.display()))
            }
            _ => Ok(files),
        }
    }

    fn take(&self, state: &mut State, files: Vec<ManifestFile>) {
        (state.was_read, state.remembered) = (true, None);
        let present: BTreeSet<PathBuf> = files.iter().map(|file| file.path.clone()).collect();
        state.files.retain(|path, _| present.contains(path));
        let paths: BTreeSet<String> = files.iter().map(|file| origin_of(&file.path)).collect();
        self.problems.retain(|origin| !origin.starts_with("file:") || paths.contains(origin));
        for file in files {
            let known = state.files.entry(file.path.clone()).or_default();
            self.read_one(file, known);
        }
    }

    /// For files that were never valid since the start, and for all while the path was never read, uses the pods from their
    /// checkpoints.
    async fn load_checkpoints(&self, state: &mut State) {
        state.awaits_listing = false;
        state.is_complete = state.is_complete || state.was_valid();
        if state.is_complete && !state.has_unknown_pods() {
            return;
        }
        let Some(checkpoints) = self.node.checkpoints().await else { return };
        if !state.was_read && state.remembered.is_none() {
            let pods = last_described_by_files(&checkpoints.pods);
            tracing::info!(path = %self.path.display(), pods = pods.len(), "Failed to read manifests since the start, continuing static pods from their checkpoints");
            state.remembered = Some(pods);
        }
        for (path, file) in state.files.iter_mut().filter(|(_, file)| file.pods.is_none()) {
            let pods = last_described_by(&Origin::File(path.display().to_string()), &checkpoints.pods);
            tracing::info!(path = %path.display(), pods = pods.len(), "Failed to parse manifest since the start, continuing its pods from their checkpoints");
            file.pods = Some(pods);
        }
        state.is_complete = state.is_complete || checkpoints.is_every_pod_known;
        state.awaits_listing = !state.is_complete && !checkpoints.is_listed;
    }

    fn read_one(&self, file: ManifestFile, known: &mut Known) {
        let content = match file.content {
            Ok(content) => content,
            Err(why) => {
                known.unreadable = Some(Problem::Unreadable(why));
                return;
            }
        };
        known.unreadable = None;
        let is_unchanged = !known.content.is_empty() && known.content == content;
        if is_unchanged {
            return;
        }
        let path = file.path.display().to_string();
        known.problems = backup_warning(&path).into_iter().collect();
        // Its writer was interrupted, or the disk was full. A manifest without pods has a comment or an empty list.
        if content.trim_ascii().is_empty() {
            let problem = format!("{path}: empty file; delete it to end the pods of its last version");
            known.problems.push(Problem::Invalid(problem));
            known.content = content;
            return;
        }
        match parse_manifest(&content, &Origin::File(path), &self.node_name, self.features) {
            Ok(parsed) => {
                known.problems.extend(Problem::warnings(&parsed.warnings));
                known.pods = Some(seen_now(parsed.pods, self.clock.now().wall));
                known.was_valid = true;
            }
            Err(errors) => known.problems.extend(Problem::errors(&errors)),
        }
        known.content = content;
    }

    /// The pods of all files, one for each name; reports what is wrong with the files.
    async fn set_of(&self, state: &mut State) -> SourceSet {
        let set = |pods: Vec<Arc<Pod>>, is_complete| SourceSet {
            source: PodSource::File,
            pods: pods.into_iter().map(DesiredPod::of_manifest).collect(),
            is_complete,
            undecodable: BTreeSet::new(),
        };
        if !state.was_read {
            return set(state.remembered.clone().unwrap_or_default(), state.is_complete);
        }
        let origins: Vec<String> = state.files.keys().map(|path| path.display().to_string()).collect();
        let pods = state.files.values().map(|file| file.pods.as_deref().unwrap_or_default());
        let manifests = origins.iter().zip(pods).map(|(origin, pods)| ManifestPods { origin, pods });
        let manifests: Vec<ManifestPods<'_>> = manifests.collect();
        let unique = self.node.unique(&manifests, &state.owners, &self.node_name).await;
        let mut duplicates = Problem::duplicates(unique.errors);
        for (path, file) in &state.files {
            let mut problems = file.problems();
            problems.extend(duplicates.remove(&*path.to_string_lossy()).unwrap_or_default());
            self.problems.report(&origin_of(path), problems);
        }
        state.owners = unique.owners;
        set(unique.pods, state.is_complete)
    }
}

fn origin_of(path: &Path) -> String {
    format!("file:{}", path.display())
}

/// Cancel safe: a stream loses nothing.
async fn next_change(changes: &mut Option<BoxStream<'static, DirectoryChange>>) -> Option<DirectoryChange> {
    match changes {
        Some(changes) => changes.next().await,
        None => std::future::pending().await,
    }
}

fn backup_warning(path: &str) -> Option<Problem> {
    let text = || {
        format!(
            "{path} looks like a backup and is read as a manifest, as every file is whose name does not begin with a dot"
        )
    };
    is_backup_name(path).then(|| Problem::Warning(text()))
}
