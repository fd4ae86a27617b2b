//! Manifests on disk: one file, or the files of a directory. Changes are noticed by inotify and, in case an event was
//! missed, by a periodic scan. A file that cannot be read or parsed keeps its last valid version, so that a partly written
//! or broken manifest never stops a running pod. The version from before a restart is known from the pods' checkpoints.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use config::Features;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use kubelet_core::sources::static_pod::{Origin, parse_manifest};
use kubelet_core::sources::{DesiredPod, last_described_by};
use model::KeptPod;
use model::PodSource;
use ports::host::{DirectoryChange, ManifestFile};
use ports::{Clock, Files};
use tokio::sync::mpsc;

use crate::settings::Paths;

use super::{ManifestProblems, SourceSet, checkpointed_pods, seen_now, warnings};

pub struct FileSource {
    pub files: Arc<dyn Files>,
    pub clock: Clock,
    pub path: PathBuf,
    pub period: Duration,
    pub node_name: String,
    /// Has the directory of pod checkpoints.
    pub paths: Paths,
    pub features: Features,
    pub problems: ManifestProblems,
    pub sets: mpsc::Sender<SourceSet>,
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
    pods: Option<Vec<KeptPod>>,
}

fn set_of(known: &BTreeMap<PathBuf, Known>) -> SourceSet {
    let is_complete = known.values().all(|file| file.pods.is_some());
    let pods = known.values().filter_map(|file| file.pods.as_ref()).flatten().cloned();
    let pods = pods.map(DesiredPod::of_manifest).collect();
    SourceSet { source: PodSource::File, pods, is_complete, undecodable: BTreeSet::new() }
}

impl FileSource {
    /// Runs until dropped. Every select arm is cancel safe.
    pub async fn run(self) {
        let mut known = BTreeMap::new();
        let mut changes = self.open_watch().await;
        loop {
            if let Some(set) = self.read(&mut known).await
                && self.sets.send(set).await.is_err()
            {
                return;
            }
            let next = self.clock.mono() + self.period;
            tokio::select! {
                change = changes.next() => match change {
                    Some(change) => if self.forget(&mut known, &change.removed).await.is_err() {
                        return;
                    },
                    None => changes = stream::pending().boxed(),
                },
                () = self.clock.sleep_until(next) => {}
            }
        }
    }

    /// Reports the pods of deleted files as removed, whether or not the files exist again by now: a manifest that is deleted
    /// and written again restarts its pod, as in the Go kubelet. `Err`: the receiver was dropped.
    async fn forget(
        &self,
        known: &mut BTreeMap<PathBuf, Known>,
        removed: &BTreeSet<PathBuf>,
    ) -> Result<(), ()> {
        if removed.iter().filter(|path| known.remove(*path).is_some()).count() == 0 {
            return Ok(());
        }
        self.sets.send(set_of(known)).await.map_err(drop)
    }

    async fn open_watch(&self) -> BoxStream<'static, DirectoryChange> {
        self.files.watch(&self.path).await.unwrap_or_else(|error| {
            let error = crate::error_chain::chain(&error);
            tracing::warn!(path = %self.path.display(), err = error, "Failed to watch manifests, reading them periodically only");
            stream::pending().boxed()
        })
    }

    /// Reads all files; `None` if the directory cannot be read, because then nothing is known about its pods.
    async fn read(&self, known: &mut BTreeMap<PathBuf, Known>) -> Option<SourceSet> {
        let origin = format!("file:{}", self.path.display());
        let files = match self.files.read_manifests(&self.path).await {
            Ok(files) => files,
            Err(error) if error.is_not_found() => Vec::new(),
            Err(error) => {
                self.problems.report(&origin, vec![crate::error_chain::chain(&error)]);
                return None;
            }
        };
        self.problems.report(&origin, Vec::new());
        known.retain(|path, _| files.iter().any(|file| file.path == *path));
        self.problems.retain(|o| {
            !o.starts_with("file:") || files.iter().any(|file| o.ends_with(&*file.path.to_string_lossy()))
        });
        for file in files {
            let entry = known.entry(file.path.clone()).or_default();
            self.read_one(file, entry);
        }
        self.load_checkpoints(known).await;
        Some(set_of(known))
    }

    /// For files that were never valid since the start, uses the pods from their checkpoints.
    async fn load_checkpoints(&self, known: &mut BTreeMap<PathBuf, Known>) {
        if known.values().all(|file| file.pods.is_some()) {
            return;
        }
        let Some(checkpointed) = checkpointed_pods(&*self.files, &self.paths).await else { return };
        for (path, file) in known.iter_mut().filter(|(_, file)| file.pods.is_none()) {
            let pods = last_described_by(&Origin::File(path.display().to_string()), &checkpointed);
            tracing::info!(path = %path.display(), pods = pods.len(), "Failed to parse manifest since the start, continuing its pods from their checkpoints");
            file.pods = Some(pods);
        }
    }

    fn read_one(&self, file: ManifestFile, known: &mut Known) {
        let origin = format!("file:{}", file.path.display());
        let content = match file.content {
            Ok(content) => content,
            Err(why) => return self.problems.report(&origin, vec![why]),
        };
        let is_unchanged = !known.content.is_empty() && known.content == content;
        if is_unchanged {
            return;
        }
        match parse_manifest(
            &content,
            &Origin::File(file.path.display().to_string()),
            &self.node_name,
            self.features,
        ) {
            Ok(parsed) => {
                self.problems.report(&origin, warnings(&parsed.warnings));
                known.pods = Some(seen_now(parsed.pods, self.clock.now().wall));
            }
            Err(errors) => self.problems.report(&origin, errors.iter().map(ToString::to_string).collect()),
        }
        known.content = content;
    }
}
