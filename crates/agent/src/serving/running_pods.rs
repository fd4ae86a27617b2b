//! The pods of `/runningpods/`: what runs according to the runtime, whether or not the kubelet knows such a pod.

use futures_util::stream::{self, StreamExt};
use model::k8s::{Container, ObjectMeta, Pod, PodSpec};
use model::{ContainerState, PodRef, SandboxState};
use ports::runtime::{ContainerSummary, RuntimeResult, Scope};

use crate::serving::pod_lookup::PodLookup;

/// Concurrent calls to the runtime for containers that were not inspected yet.
const CALLS: usize = 8;

pub(crate) async fn list(lookup: &PodLookup) -> RuntimeResult<Vec<Pod>> {
    let runtime = &lookup.ctx.runtime;
    let (sandboxes, containers) =
        tokio::try_join!(runtime.list_sandboxes(&Scope::Node), runtime.list_containers(&Scope::Node))?;
    let running = containers.into_iter().filter(|container| container.state == ContainerState::Running);
    let running: Vec<(ContainerSummary, Container)> =
        stream::iter(running).map(|summary| with_image(lookup, summary)).buffered(CALLS).collect().await;
    let ready = sandboxes.iter().filter(|sandbox| sandbox.state == SandboxState::Ready);
    let pods = ready.map(|sandbox| {
        let own = running.iter().filter(|(summary, _)| summary.sandbox_id == sandbox.id);
        pod(&sandbox.pod, own.map(|(_, container)| container.clone()).collect())
    });
    Ok(pods.collect())
}

/// The image is the one of its last inspection, because it never changes.
async fn with_image(lookup: &PodLookup, summary: ContainerSummary) -> (ContainerSummary, Container) {
    let inspected = lookup.cache.get(&summary.pod.uid);
    let image = match inspected.as_ref().and_then(|pod| pod.container(&summary.id)) {
        Some(container) => Some(container.image.clone()),
        None => lookup.ctx.runtime.container_status(&summary.id).await.ok().map(|status| status.image),
    };
    let container = Container { name: summary.name.to_string(), image, ..Container::default() };
    (summary, container)
}

fn pod(identity: &PodRef, containers: Vec<Container>) -> Pod {
    Pod {
        metadata: ObjectMeta {
            name: Some(identity.name.to_string()),
            namespace: Some(identity.namespace.to_string()),
            uid: Some(identity.uid.to_string()),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec { containers, ..PodSpec::default() }),
        status: None,
    }
}
