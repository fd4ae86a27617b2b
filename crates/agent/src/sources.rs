//! Config sources of static pods: a file or directory, and a URL. Each source is a task that sends the full set of its pods
//! whenever it changed; the sync loop merges them.

pub mod file;
pub mod http;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use kubelet_core::sources::DesiredPod;
use kubelet_core::sources::static_pod::{ManifestError, mark_first_seen};
use model::k8s::Pod;
use model::{KeptPod, PodSource, PodUid};
use parking_lot::Mutex;
use ports::Files;
use ports::node_api::ManifestProblem;

use crate::pods_view::load_pods;
use crate::settings::Paths;

/// All pods of one source.
#[derive(Clone, Debug)]
pub struct SourceSet {
    pub source: PodSource,
    pub pods: Vec<DesiredPod>,
    /// Every manifest of the source could be read at least once, or its pods are known from their checkpoints. Until then, a
    /// running pod that is missing here may belong to an unreadable manifest.
    pub is_complete: bool,
    /// Pods of the source that cannot be decoded. They may run from before, and are no orphans.
    pub undecodable: BTreeSet<PodUid>,
}

/// All pods of which earlier runs of the kubelet saved the spec; `None` if they cannot be read.
async fn checkpointed_pods(files: &dyn Files, paths: &Paths) -> Option<Vec<KeptPod>> {
    match load_pods(files, paths).await {
        Ok(pods) => Some(pods.into_iter().map(KeptPod::new).collect()),
        Err(error) => {
            let error = crate::error_chain::chain(&error);
            tracing::warn!(err = error, "Failed to read the checkpoint of pod sources");
            None
        }
    }
}

/// Marks the pods as first seen now.
fn seen_now(pods: Vec<Pod>, now: Timestamp) -> Vec<KeptPod> {
    let mark = |mut pod: Pod| {
        mark_first_seen(&mut pod, now);
        KeptPod::new(pod)
    };
    let mut marked: Vec<KeptPod> = pods.into_iter().map(mark).collect();
    // Collecting in place would keep the allocation of the whole pods, kilobytes for each, as long as the file exists.
    marked.shrink_to_fit();
    marked
}

fn warnings(warnings: &[ManifestError]) -> Vec<String> {
    warnings.iter().map(|w| format!("warning: {w}")).collect()
}

/// Current problems of manifests, by origin. Written by the sources, read by the server.
#[derive(Clone, Debug, Default)]
pub struct ManifestProblems {
    by_origin: Arc<Mutex<BTreeMap<String, Vec<String>>>>,
}

impl ManifestProblems {
    /// Replaces the problems of an origin; logs only new ones, so that a broken manifest is logged once per change.
    pub fn report(&self, origin: &str, problems: Vec<String>) {
        let mut by_origin = self.by_origin.lock();
        let known: BTreeSet<&String> = by_origin.get(origin).into_iter().flatten().collect();
        for problem in problems.iter().filter(|p| !known.contains(p)) {
            tracing::error!(
                origin,
                problem,
                "Failed to parse manifest, pods of its last valid version continue"
            );
        }
        if problems.is_empty() {
            by_origin.remove(origin);
        } else {
            by_origin.insert(origin.to_owned(), problems);
        }
    }

    /// Removes origins that no longer exist.
    pub fn retain(&self, mut keep: impl FnMut(&str) -> bool) {
        self.by_origin.lock().retain(|origin, _| keep(origin));
    }

    #[must_use]
    pub fn all(&self) -> Vec<ManifestProblem> {
        let by_origin = self.by_origin.lock();
        let of = |(origin, messages): (&String, &Vec<String>)| {
            messages
                .iter()
                .map(|message| ManifestProblem { origin: origin.clone(), message: message.clone() })
                .collect::<Vec<_>>()
        };
        by_origin.iter().flat_map(of).collect()
    }
}
