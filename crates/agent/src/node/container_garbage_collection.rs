//! Container garbage collection: dead containers and sandboxes, log directories of removed pods, dangling log symlinks.
//!
//! Owns no state: what to remove is decided in `kubelet_core::node::garbage_collection` from the pod cache, so that no extra listing is needed. It
//! runs periodically, and at once under disk pressure.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base_agent::cache::PodCache;
use base_agent::context::Context;
use base_agent::error_chain::chain;
use base_agent::pods_view::PodsView;
use kubelet_core::node::eviction::message::EVICTED;
use kubelet_core::node::garbage_collection::{
    GcContainer, GcInputs, GcPlan, GcPolicy, GcSandbox, LogLink, PodFate, compute_gc,
};
use model::{ContainerId, PodUid};
use tokio::sync::{mpsc, oneshot, watch};

use base_agent::removers::Remover;

const CONTAINER_GC_FAILED: &str = "ContainerGCFailed";
const PERIOD: Duration = Duration::from_secs(60);

/// What to do with the containers of pods that have ended and still exist in their source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// Keep them, so that their logs can be read.
    Kept,
    /// Under disk pressure: remove them.
    Removed,
}

#[derive(Debug)]
pub(crate) struct ContainerGarbageCollector {
    ctx: Arc<Context>,
    cache: PodCache,
    pods: PodsView,
    sources_ready: watch::Receiver<bool>,
    requests: mpsc::Receiver<oneshot::Sender<bool>>,
    superseded: mpsc::Receiver<ContainerId>,
}

impl ContainerGarbageCollector {
    pub(crate) fn new(
        ctx: Arc<Context>,
        cache: PodCache,
        pods: PodsView,
        sources_ready: watch::Receiver<bool>,
        superseded: mpsc::Receiver<ContainerId>,
    ) -> (Self, Remover) {
        // The only sender waits for each answer.
        let (sender, requests) = mpsc::channel(1);
        (Self { ctx, cache, pods, sources_ready, requests, superseded }, sender)
    }

    /// Runs until all senders are dropped.
    pub(crate) async fn run(mut self) {
        let mut next = self.ctx.clock.mono() + PERIOD;
        loop {
            tokio::select! {
                requested = self.requests.recv() => match requested {
                    Some(done) => {
                        let is_less = self.collect(Ended::Removed).await;
                        // The sender may have stopped waiting.
                        let _ = done.send(is_less);
                    }
                    None => return,
                },
                Some(id) = self.superseded.recv() => self.remove_superseded(&id).await,
                () = self.ctx.clock.sleep_until(next) => {
                    let _ = self.collect(Ended::Kept).await;
                    next = self.ctx.clock.mono() + PERIOD;
                }
            }
        }
    }

    /// One that cannot be removed now is found again by the periodic run.
    async fn remove_superseded(&self, id: &ContainerId) {
        if let Err(err) = self.ctx.runtime.remove_container(id).await {
            tracing::warn!(containerID = %id, %err, "Failed to remove dead container");
        }
    }

    /// Returns whether there was any container to remove.
    async fn collect(&self, ended: Ended) -> bool {
        let plan = self.decide(ended).await;
        let is_any = !plan.containers.is_empty();
        let problems = self.act(plan).await;
        if let Some(first) = problems.first() {
            self.ctx.recorder.node_warning(CONTAINER_GC_FAILED, first.clone());
        }
        is_any
    }

    async fn decide(&self, ended: Ended) -> GcPlan {
        let ctx = &self.ctx;
        let observed = self.cache.in_runtime();
        let containers: Vec<GcContainer> = observed
            .iter()
            .flat_map(|pod| pod.containers.iter().map(|c| (pod.pod.uid.clone(), c)))
            .map(|(pod, c)| GcContainer {
                id: c.id.clone(),
                sandbox: c.sandbox_id.clone(),
                pod,
                name: c.name.clone(),
                state: c.state,
                created_at: c.created_at,
            })
            .collect();
        let sandboxes: Vec<GcSandbox> = observed
            .iter()
            .flat_map(|pod| &pod.sandboxes)
            .map(|s| GcSandbox {
                id: s.id.clone(),
                pod: s.pod.uid.clone(),
                state: s.state,
                created_at: s.created_at,
            })
            .collect();
        let subscribed = self.cache.subscribed();
        let fate = |uid: PodUid| (uid.clone(), self.fate(&uid, ended));
        let pods: BTreeMap<PodUid, PodFate> = subscribed.into_iter().map(fate).collect();
        let (log_dirs, log_links) = self.list_logs().await;
        compute_gc(&GcInputs {
            containers: &containers,
            sandboxes: &sandboxes,
            pods: &pods,
            log_dirs: &log_dirs,
            log_links: &log_links,
            policy: self.policy(),
            sources_ready: *self.sources_ready.borrow(),
            now: ctx.clock.now().wall,
        })
    }

    /// For a pod that has a worker.
    fn fate(&self, uid: &PodUid, ended: Ended) -> PodFate {
        let Some(entry) = self.pods.get(uid) else { return PodFate::Live };
        let is_deleted = entry.pod.metadata.deletion_timestamp.is_some();
        let is_evicted = entry.status.reason.as_deref() == Some(EVICTED);
        let is_unread = is_deleted || is_evicted || ended == Ended::Removed;
        let has_ended = entry.progress.is_terminated();
        if has_ended && is_unread { PodFate::ContentRemovable } else { PodFate::Live }
    }

    fn policy(&self) -> GcPolicy {
        let flags = &self.ctx.settings.flags;
        let dead_per_container = usize::try_from(flags.maximum_dead_containers_per_container);
        GcPolicy {
            // Negative: no limit.
            dead_per_container: dead_per_container.unwrap_or(usize::MAX),
            dead_total: usize::try_from(flags.maximum_dead_containers).ok(),
            age_min: flags.minimum_container_ttl.as_std(),
        }
    }

    async fn list_logs(&self) -> (Vec<String>, Vec<LogLink>) {
        let dirs = self.ctx.files.list_dir(self.ctx.pod_logs()).await.unwrap_or_default();
        let links =
            self.ctx.files.list_dir(&self.ctx.settings.paths.container_links).await.unwrap_or_default();
        let dirs = dirs.into_iter().filter(|e| e.is_dir).map(|e| e.name).collect();
        let links = links.into_iter().filter(|e| e.is_symlink);
        (dirs, links.map(|e| LogLink { name: e.name, target_exists: e.target_exists }).collect())
    }

    /// Executes the plan. Failures are logged and retried in the next pass; returns the errors of the runtime.
    async fn act(&self, plan: GcPlan) -> Vec<String> {
        let (ctx, mut problems) = (&self.ctx, Vec::new());
        for (id, why) in plan.containers {
            if let Err(error) = ctx.runtime.remove_container(&id).await {
                tracing::warn!(containerID = %id, reason = ?why, err = %error, "Failed to remove dead container");
                problems.push(error.to_string());
            }
        }
        for (id, why) in plan.sandboxes {
            let removed = async {
                ctx.runtime.stop_sandbox(&id).await?;
                ctx.runtime.remove_sandbox(&id).await
            };
            if let Err(error) = removed.await {
                tracing::warn!(sandbox = %id, reason = ?why, err = %error, "Failed to remove dead pod sandbox");
                problems.push(error.to_string());
            }
        }
        for dir in plan.log_dirs {
            if let Err(error) = ctx.files.remove_tree(&ctx.pod_logs().join(&dir)).await {
                tracing::warn!(dir, err = chain(&error), "Failed to remove log directory");
            }
        }
        for link in plan.log_links {
            if let Err(error) = ctx.files.remove_file(&ctx.settings.paths.container_links.join(&link)).await {
                tracing::warn!(link, err = chain(&error), "Failed to remove legacy log symlink");
            }
        }
        problems
    }
}
