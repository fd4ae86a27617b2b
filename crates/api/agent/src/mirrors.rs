//! Mirror pods: the API objects that show static pods. Which one to create or delete is decided in
//! `api_core::mirror`; whatever happens to a mirror pod, its static pod keeps running.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api_core::mirror::{MirrorOwner, MirrorStep, compute_mirror};
use api_core::reflector::ObjectKey;
use api_core::retry::compute_retry_delay;
use base_agent::context::Context;
use base_agent::pods_view::{PodEntry, PodsView};
use base_core::pod_kind::is_static_pod;
use model::k8s::Node;
use ports::Cluster;
use ports::cluster::{ClusterError, ClusterResult, Deletion};
use sources_core::ApiPod;
use tokio::sync::watch;

use super::reflector::StoreReader;

/// Interval of a full comparison, which also retries what failed.
const SWEEP: Duration = Duration::from_secs(10);

/// Reconciles the mirror pods until dropped.
#[derive(Debug)]
pub struct Mirrors {
    pub ctx: Arc<Context>,
    pub pods: PodsView,
    pub cluster: Arc<dyn Cluster>,
    pub in_api: StoreReader<ApiPod>,
    pub node: StoreReader<Node>,
    /// The static pods of all sources.
    pub wanted: watch::Receiver<BTreeSet<ObjectKey>>,
    /// All sources have reported, and none of them had an invalid manifest.
    pub sources: watch::Receiver<bool>,
}

impl Mirrors {
    pub async fn run(mut self) {
        let clock = self.ctx.clock;
        let mut changes = self.pods.changes();
        // The reflector outlives this task, except at the end of the process.
        if self.in_api.wait_for(|seen| seen.is_complete).await.is_err() {
            return;
        }
        // The watch shows an executed step a little later; until then it is not repeated.
        let mut executed: BTreeMap<ObjectKey, Option<String>> = BTreeMap::new();
        let mut next_sweep = clock.mono() + SWEEP;
        loop {
            if let Some(requested) = self.reconcile(&mut executed).await {
                let delay = compute_retry_delay(SWEEP, Some(requested), self.ctx.rng.share());
                next_sweep = next_sweep.max(clock.mono() + delay);
            }
            tokio::select! {
                Ok(()) = changes.changed() => {}
                Ok(()) = self.in_api.changed() => {}
                Ok(()) = self.node.changed() => {}
                Ok(()) = self.wanted.changed() => {}
                Ok(()) = self.sources.changed() => {}
                () = clock.sleep_until(next_sweep) => {
                    executed.clear();
                    next_sweep = clock.mono() + SWEEP;
                }
            }
        }
    }

    /// Executes one step for each static pod and each mirror pod that needs one. `executed` has the UID of the mirror pod for
    /// which a step was executed already. Returns how long an overloaded API server asks to wait.
    async fn reconcile(&mut self, executed: &mut BTreeMap<ObjectKey, Option<String>>) -> Option<Duration> {
        let steps = self.steps();
        let mut requested = None;
        executed.retain(|key, in_view| self.mirror_uid(key) == *in_view);
        for (key, step) in steps {
            if executed.contains_key(&key) {
                continue;
            }
            let in_view = self.mirror_uid(&key);
            match self.execute(&key, step).await {
                Ok(()) => {}
                Err(error) => {
                    tracing::warn!(pod = %key, err = %error, "Failed to update mirror pod");
                    requested = requested.max(error.retry_after());
                }
            }
            executed.insert(key, in_view);
        }
        requested
    }

    fn steps(&mut self) -> Vec<(ObjectKey, MirrorStep)> {
        let node = super::reflector::own_node(&self.node.borrow_and_update());
        let owner = node.as_deref().and_then(|node| {
            Some(MirrorOwner {
                node: node.metadata.name.as_deref()?,
                node_uid: node.metadata.uid.as_deref()?,
            })
        });
        // Of two pods of that name, the mirror shows the one that has not ended.
        let mut statics = self.pods.matching(|entry| is_static_pod(&entry.pod));
        statics.sort_by_key(|entry| !entry.progress.is_ending());
        let entries: BTreeMap<ObjectKey, PodEntry> =
            statics.into_iter().map(|entry| (super::meta::key_of_pod(&entry.identity), entry)).collect();
        let may_remove = *self.sources.borrow_and_update();
        let wanted = self.wanted.borrow_and_update();
        let seen = self.in_api.borrow_and_update();
        let mirrors = seen.objects.iter().filter(|(_, in_api)| in_api.is_mirror).map(|(key, _)| &**key);
        let keys: BTreeSet<&ObjectKey> = entries.keys().chain(mirrors).collect();
        let mut steps = Vec::new();
        for key in keys {
            let entry = entries.get(key);
            // Desired, but its worker has not published a status yet.
            let is_coming = entry.is_none() && (wanted.contains(key) || !may_remove);
            if is_coming {
                continue;
            }
            let mirror = seen.objects.get(key).filter(|in_api| in_api.is_mirror).map(|in_api| &*in_api.pod);
            let static_pod = entry.map(|entry| (&*entry.pod, entry.progress.is_ending()));
            match compute_mirror(static_pod, mirror, owner) {
                MirrorStep::Nothing => {}
                step @ (MirrorStep::Create(_) | MirrorStep::Delete { .. }) => steps.push((key.clone(), step)),
            }
        }
        steps
    }

    fn mirror_uid(&self, key: &ObjectKey) -> Option<String> {
        Some(self.in_api.borrow().objects.get(key)?.identity.uid.to_string())
    }

    async fn execute(&self, key: &ObjectKey, step: MirrorStep) -> ClusterResult<()> {
        let pods = self.cluster.pods();
        match step {
            MirrorStep::Nothing => Ok(()),
            MirrorStep::Create(pod) => {
                tracing::info!(pod = %key, "Creating a mirror pod for static pod");
                pods.create(&key.namespace, &pod).await.map(drop)
            }
            MirrorStep::Delete { uid } => {
                tracing::info!(pod = %key, uid, "Deleting mirror pod");
                let deletion = Deletion { uid: Some(uid), grace_seconds: Some(0) };
                match pods.delete(&key.namespace, &key.name, &deletion).await {
                    Err(ClusterError::NotFound { .. }) | Ok(()) => Ok(()),
                    Err(error) => Err(error),
                }
            }
        }
    }
}
