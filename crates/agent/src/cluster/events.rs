//! Events on their way to the API.
//!
//! Owns the memory of what was told lately, by which events are counted up, combined or dropped
//! (`kubelet_core::events`). Events are hints for people: one that cannot be told is dropped after a few tries, and none
//! ever holds up what it tells of.

use std::sync::Arc;
use std::time::Duration;

use kubelet_core::events::{EventCorrelator, EventKey, EventStep, Occurrence};
use model::k8s::{self, Node, ObjectReference};
use ports::Cluster;
use ports::cluster::{ClusterError, ClusterResult, Part, Patch};
use tokio::sync::mpsc;

use super::follow::Copy;
use crate::engine::Engine;
use crate::events::{Event, EventType};

/// A call that may succeed later is made so often, this far apart.
const TRIES: u32 = 12;
const RETRY: Duration = Duration::from_secs(10);

/// Tells events until dropped.
pub(crate) struct EventTeller {
    engine: Arc<Engine>,
    cluster: Arc<dyn Cluster>,
    node: Copy<Node>,
    correlator: EventCorrelator,
}

impl EventTeller {
    pub(crate) fn new(engine: Arc<Engine>, cluster: Arc<dyn Cluster>, node: Copy<Node>) -> Self {
        Self { correlator: EventCorrelator::new(&engine.settings.node_name), engine, cluster, node }
    }

    pub(crate) async fn run(mut self, mut events: mpsc::Receiver<Event>) {
        while let Some(event) = events.recv().await {
            let occurrence = self.occurrence(event);
            let step = self.correlator.correlate(occurrence, self.engine.clock.now());
            self.tell(step).await;
        }
    }

    async fn tell(&mut self, step: EventStep) {
        match step {
            EventStep::Drop => {}
            EventStep::Create { event, key } => self.create(&event, &key).await,
            EventStep::Patch { namespace, name, patch, event, key } => {
                let patch = Patch::Strategic(patch);
                let patched =
                    self.try_often(|events| events.patch(&namespace, &name, Part::Whole, &patch)).await;
                match patched {
                    Ok(_) => {}
                    Err(ClusterError::NotFound { .. }) => {
                        let event = self.renamed(*event);
                        self.create(&event, &key).await;
                    }
                    Err(error) => self.lose(&key, &error),
                }
            }
        }
    }

    async fn create(&mut self, event: &k8s::Event, key: &EventKey) {
        let namespace = event.metadata.namespace.clone().unwrap_or_default();
        match self.try_often(|events| events.create(&namespace, event)).await {
            Ok(created) => {
                self.correlator.note_created(key, created.metadata.name.as_deref().unwrap_or_default());
            }
            // An attempt that seemed to fail got through.
            Err(ClusterError::AlreadyExists { .. }) => {}
            Err(error) => self.lose(key, &error),
        }
    }

    fn lose(&mut self, key: &EventKey, error: &ClusterError) {
        tracing::warn!(%error, "An event was not told to the API");
        self.correlator.note_lost(key);
    }

    /// Makes the call until it succeeds, cannot succeed, or was made often enough.
    async fn try_often<'a, F>(
        &'a self,
        call: impl Fn(&'a dyn ports::cluster::Collection<k8s::Event>) -> F,
    ) -> ClusterResult<k8s::Event>
    where
        F: Future<Output = ClusterResult<k8s::Event>>,
    {
        let mut tries = 1;
        loop {
            match call(self.cluster.events()).await {
                Err(error) if error.may_pass() && tries < TRIES => {
                    tracing::debug!(%error, tries, "An event waits to be told");
                }
                outcome => return outcome,
            }
            tries += 1;
            let wait = RETRY + self.engine.chance.up_to(RETRY / 10);
            self.engine.clock.sleep_until(self.engine.clock.mono() + wait).await;
        }
    }

    /// The same event under a name that was not used yet.
    fn renamed(&mut self, mut event: k8s::Event) -> k8s::Event {
        let about = event.involved_object.name.as_deref().unwrap_or_default();
        event.metadata.name = Some(self.correlator.new_name(about, self.engine.clock.now().wall));
        event.metadata.resource_version = None;
        event
    }

    fn occurrence(&self, event: Event) -> Occurrence {
        let about = match &event.pod {
            Some(pod) => {
                let known = self.engine.pods.get(&pod.uid);
                ObjectReference {
                    api_version: Some("v1".to_owned()),
                    kind: Some("Pod".to_owned()),
                    name: Some(pod.name.to_string()),
                    namespace: Some(pod.namespace.to_string()),
                    uid: Some(pod.uid.to_string()),
                    resource_version: known.as_ref().and_then(|e| e.pod.metadata.resource_version.clone()),
                    field_path: event
                        .container
                        .as_deref()
                        .and_then(|name| field_path(known.as_ref().map(|e| &*e.pod)?, name)),
                }
            }
            None => ObjectReference {
                kind: Some("Node".to_owned()),
                name: Some(self.engine.settings.node_name.clone()),
                // Before the Node was seen its name stands for it, as `kubectl describe node` expects.
                uid: Some(self.node_uid()),
                ..ObjectReference::default()
            },
        };
        Occurrence {
            about,
            is_warning: event.kind == EventType::Warning,
            reason: event.reason.into_owned(),
            message: event.message,
        }
    }

    fn node_uid(&self) -> String {
        let uid = super::own_node(&self.node.borrow()).and_then(|node| node.metadata.uid.clone());
        uid.unwrap_or_else(|| self.engine.settings.node_name.clone())
    }
}

/// Where in the pod the container is: `spec.containers{web}`.
fn field_path(pod: &k8s::Pod, container: &str) -> Option<String> {
    let found = model::containers::find_container(pod, container)?;
    let list = match found.kind {
        model::ContainerKind::Init | model::ContainerKind::Sidecar => "initContainers",
        model::ContainerKind::Regular => "containers",
        model::ContainerKind::Ephemeral => "ephemeralContainers",
    };
    Some(format!("spec.{list}{{{container}}}"))
}
