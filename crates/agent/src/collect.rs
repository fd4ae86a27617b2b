//! Collecting what nobody needs any more: dead containers and sandboxes, log directories of gone pods, dangling links.
//!
//! Owns nothing: what to remove is decided in `kubelet_core::gc` from what the PLEG has seen anyway, so collecting
//! costs the runtime no listing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kubelet_core::gc::{GcContainer, GcInputs, GcPlan, GcPolicy, GcSandbox, LogLink, PodFate, compute_gc};
use model::PodUid;
use tokio::sync::watch;

use crate::engine::Engine;
use crate::volumes::chain;

const PERIOD: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct Collector {
    engine: Arc<Engine>,
    sources_ready: watch::Receiver<bool>,
}

impl Collector {
    #[must_use]
    pub const fn new(engine: Arc<Engine>, sources_ready: watch::Receiver<bool>) -> Self {
        Self { engine, sources_ready }
    }

    /// Runs until dropped.
    pub async fn run(self) {
        loop {
            self.engine.clock.sleep_until(self.engine.clock.mono() + PERIOD).await;
            let plan = self.decide().await;
            self.act(plan).await;
        }
    }

    async fn decide(&self) -> GcPlan {
        let engine = &self.engine;
        let observed = engine.cache.in_runtime();
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
        let followed: BTreeSet<PodUid> = engine.cache.followed();
        let pods: BTreeMap<PodUid, PodFate> = followed.into_iter().map(|uid| (uid, PodFate::Live)).collect();
        let (log_dirs, log_links) = self.list_logs().await;
        compute_gc(&GcInputs {
            containers: &containers,
            sandboxes: &sandboxes,
            pods: &pods,
            log_dirs: &log_dirs,
            log_links: &log_links,
            policy: self.policy(),
            sources_ready: *self.sources_ready.borrow(),
            now: engine.clock.now().wall,
        })
    }

    fn policy(&self) -> GcPolicy {
        let settings = &self.engine.settings.collection;
        GcPolicy {
            dead_per_container: usize::try_from(settings.max_per_container).unwrap_or(usize::MAX),
            dead_total: usize::try_from(settings.max_total).ok(),
            age_min: settings.min_age,
        }
    }

    async fn list_logs(&self) -> (Vec<String>, Vec<LogLink>) {
        let paths = &self.engine.settings.paths;
        let dirs = self.engine.host.list_dir(&paths.pod_logs).await.unwrap_or_default();
        let links = self.engine.host.list_dir(&paths.container_links).await.unwrap_or_default();
        let dirs = dirs.into_iter().filter(|e| e.is_dir).map(|e| e.name).collect();
        let links = links.into_iter().filter(|e| e.is_symlink);
        (dirs, links.map(|e| LogLink { name: e.name, target_exists: e.target_exists }).collect())
    }

    /// What fails is logged and tried again the next time.
    async fn act(&self, plan: GcPlan) {
        let engine = &self.engine;
        for (id, why) in plan.containers {
            if let Err(error) = engine.runtime.remove_container(&id).await {
                tracing::warn!(container_id = %id, ?why, %error, "Dead container was not removed");
            }
        }
        for (id, why) in plan.sandboxes {
            let removed = async {
                engine.runtime.stop_sandbox(&id).await?;
                engine.runtime.remove_sandbox(&id).await
            };
            if let Err(error) = removed.await {
                tracing::warn!(sandbox = %id, ?why, %error, "Dead sandbox was not removed");
            }
        }
        for dir in plan.log_dirs {
            if let Err(error) = engine.host.remove_tree(&engine.settings.paths.pod_logs.join(&dir)).await {
                tracing::warn!(dir, error = chain(&error), "Log directory was not removed");
            }
        }
        for link in plan.log_links {
            if let Err(error) =
                engine.host.remove_file(&engine.settings.paths.container_links.join(&link)).await
            {
                tracing::warn!(link, error = chain(&error), "Log link was not removed");
            }
        }
    }
}
