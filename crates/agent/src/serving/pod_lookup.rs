//! Finds pods and containers of this node for requests of clients.

use std::sync::Arc;
use std::time::Duration;

use api_core::mirror::is_uid_of_pod;
use model::{ContainerId, ContainerState, PodObservation, PodRef, PodUid, SandboxId};
use ports::node_api::{PodRefusal, PodTarget};
use sources_core::ApiPod;

use api_agent::meta::key_of_pod;
use api_agent::reflector::StoreReader;
use base_agent::cache::PodCache;
use base_agent::context::Context;
use base_agent::pods_view::{PodEntry, PodsView};

/// How long a request waits for the first inspection of its pod: an agent that has just started knows its pods before it knows what
/// the runtime has of them.
const FIRST_INSPECTION: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
pub(crate) struct PodLookup {
    pub(crate) ctx: Arc<Context>,
    pub(crate) cache: PodCache,
    pub(crate) pods: PodsView,
    /// The pods bound to this node in the API, mirror pods among them; empty for a standalone kubelet.
    pub(crate) in_api: StoreReader<ApiPod>,
}

impl PodLookup {
    /// The pod of that name; if there are two, the one that has not ended.
    pub(crate) fn pod(&self, namespace: &str, name: &str) -> Result<PodEntry, PodRefusal> {
        let is_meant = |entry: &PodEntry| {
            let PodRef { namespace: of_pod, name: its, .. } = &entry.identity;
            **of_pod == *namespace && **its == *name
        };
        let found = self.pods.matching(is_meant).into_iter().max_by_key(|entry| entry.progress.may_run());
        found.ok_or_else(|| PodRefusal::NotFound(format!("pod {name:?} does not exist")))
    }

    pub(crate) async fn running_container(
        &self,
        pod: &PodTarget,
        name: &str,
    ) -> Result<ContainerId, PodRefusal> {
        let found = self.running_container_of(&self.uid(pod)?, name).await;
        found.ok_or_else(|| PodRefusal::Invalid(format!("container not found ({name:?})")))
    }

    pub(crate) async fn running_container_of(&self, uid: &PodUid, name: &str) -> Option<ContainerId> {
        let observed = self.observed(uid).await?;
        let mut running = observed.containers.iter().filter(|one| one.state == ContainerState::Running);
        running.find(|one| &*one.name == name).map(|container| container.id.clone())
    }

    pub(crate) async fn ready_sandbox(&self, pod: &PodTarget) -> Result<SandboxId, PodRefusal> {
        let observed = self.observed(&self.uid(pod)?).await;
        let found = observed.as_ref().and_then(|observed| observed.ready_sandboxes().next());
        let name = || format!("{}_{}", pod.pod, pod.namespace);
        found
            .map(|sandbox| sandbox.id.clone())
            .ok_or_else(|| PodRefusal::Invalid(format!("pod not found ({:?})", name())))
    }

    /// What the runtime has of the pod, as last inspected.
    async fn observed(&self, uid: &PodUid) -> Option<Arc<PodObservation>> {
        let mut inspected = self.cache.subscribe(uid);
        let give_up_at = self.ctx.clock.mono() + FIRST_INSPECTION;
        tokio::select! {
            biased;
            observed = inspected.wait_for(Option::is_some) => observed.ok()?.clone(),
            () = self.ctx.clock.sleep_until(give_up_at) => None,
        }
    }

    /// The UID of the pod; a UID in the request must be its own, or that of its mirror pod.
    fn uid(&self, target: &PodTarget) -> Result<PodUid, PodRefusal> {
        let PodEntry { identity, pod, .. } = self.pod(&target.namespace, &target.pod)?;
        if let Some(uid) = &target.uid {
            let in_api =
                self.in_api.borrow().objects.get(&key_of_pod(&identity)).map(|in_api| in_api.pod.clone());
            if !is_uid_of_pod(uid, &pod, in_api.as_deref()) {
                let text = format!("pod {:?} with UID {uid:?} does not exist", target.pod);
                return Err(PodRefusal::NotFound(text));
            }
        }
        Ok(identity.uid)
    }
}
