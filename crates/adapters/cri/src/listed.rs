//! What the last listings have shown, by ID. Of an entry only the state can change, so the next listing makes no new copy of the
//! rest. Also the source of each container's sandbox, which the status of a container does not have.
//!
//! Bounded by the sandboxes and containers of the node, because every full listing forgets what it does not have.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;

use cri_api::v1 as wire;
use hyper::body::Bytes;
use model::request::ContainerRequest;
use model::{ContainerId, ContainerState, PodRef, SandboxId};
use parking_lot::Mutex;
use ports::runtime::{ContainerSummary, SandboxSummary, Scope};
use prost::Message as _;

use crate::convert::{container, sandbox};

/// Images of containers that do not exist any more are forgotten beyond this number.
const MAX_UNUSED_IMAGES: usize = 64;
const NO_ID: &str = "it has no id";
const NO_METADATA: &str = "it has no metadata";

/// A container as the listing returns it, without the name of its image and annotations.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct ListedContainer {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(string, tag = "2")]
    sandbox_id: String,
    #[prost(message, optional, tag = "3")]
    metadata: Option<wire::ContainerMetadata>,
    /// Not decoded, as they are read once.
    #[prost(bytes = "bytes", tag = "5")]
    image_ref: Bytes,
    #[prost(int32, tag = "6")]
    state: i32,
    #[prost(bytes = "bytes", repeated, tag = "8")]
    labels: Vec<Bytes>,
    #[prost(bytes = "bytes", tag = "10")]
    image_id: Bytes,
}

/// A sandbox as the listing returns it, without labels and annotations.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct ListedSandbox {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(message, optional, tag = "2")]
    metadata: Option<wire::PodSandboxMetadata>,
    #[prost(int32, tag = "3")]
    state: i32,
}

/// An entry of a map.
#[derive(Clone, PartialEq, Eq, prost::Message)]
struct Label {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Debug, Default)]
pub(crate) struct Listed {
    sandboxes: Mutex<HashMap<SandboxId, SandboxSummary>>,
    containers: Mutex<HashMap<ContainerId, ContainerSummary>>,
    /// The images of those containers.
    images: Mutex<HashSet<Arc<str>>>,
}

impl Listed {
    pub(crate) fn sandbox_of(&self, container: &ContainerId) -> Option<SandboxId> {
        self.containers.lock().get(container).map(|known| known.sandbox_id.clone())
    }

    /// A new container.
    pub(crate) fn created(
        &self,
        id: &ContainerId,
        sandbox: &SandboxId,
        request: &ContainerRequest,
        pod: &PodRef,
    ) {
        let new = ContainerSummary {
            id: id.clone(),
            sandbox_id: sandbox.clone(),
            pod: pod.clone(),
            name: Arc::from(request.name.as_str()),
            attempt: request.attempt,
            state: ContainerState::Created,
            // The runtime knows its id; the next listing has it.
            image_id: Arc::default(),
        };
        self.containers.lock().insert(id.clone(), new);
    }

    /// # Errors
    /// What a sandbox lacks.
    pub(crate) fn sandbox(&self, from: ListedSandbox) -> Result<SandboxSummary, &'static str> {
        let state = sandbox::state(from.state);
        if let Some(known) = self.sandboxes.lock().get(from.id.as_str()) {
            return Ok(SandboxSummary { state, ..known.clone() });
        }
        if from.id.is_empty() {
            return Err(NO_ID);
        }
        let (pod, attempt) = sandbox::identity(from.metadata.ok_or(NO_METADATA)?);
        let new = SandboxSummary { id: SandboxId::from(from.id), pod, attempt, state };
        self.sandboxes.lock().insert(new.id.clone(), new.clone());
        Ok(new)
    }

    /// # Errors
    /// What a container lacks.
    pub(crate) fn container(&self, from: ListedContainer) -> Result<ContainerSummary, &'static str> {
        let state = container::state(from.state);
        if let Some(known) = self.containers.lock().get_mut(from.id.as_str()) {
            if known.image_id.is_empty() {
                known.image_id = self.image(&from);
            }
            return Ok(ContainerSummary { state, ..known.clone() });
        }
        if from.id.is_empty() {
            return Err(NO_ID);
        }
        let image_id = self.image(&from);
        let metadata = from.metadata.ok_or(NO_METADATA)?;
        let sandbox_id = SandboxId::from(from.sandbox_id);
        let new = ContainerSummary {
            id: ContainerId::from(from.id),
            pod: self.pod_of(&from.labels, &sandbox_id),
            sandbox_id,
            name: Arc::from(metadata.name),
            attempt: metadata.attempt,
            state,
            image_id,
        };
        self.containers.lock().insert(new.id.clone(), new.clone());
        Ok(new)
    }

    /// The image of a container: one copy for all containers of it.
    fn image(&self, from: &ListedContainer) -> Arc<str> {
        let id = if from.image_ref.is_empty() { &from.image_id } else { &from.image_ref };
        let id = String::from_utf8_lossy(id);
        let mut images = self.images.lock();
        if let Some(known) = images.get(&*id) {
            return known.clone();
        }
        let new: Arc<str> = id.as_ref().into();
        images.insert(new.clone());
        new
    }

    /// The pod of these labels: its sandbox's copy, if that has the same.
    fn pod_of(&self, labels: &[Bytes], sandbox: &SandboxId) -> PodRef {
        // One that is malformed is none of the kubelet's.
        let labels: Vec<Label> =
            labels.iter().filter_map(|label| Label::decode(label.clone()).ok()).collect();
        let label =
            |key: &str| labels.iter().find(|label| label.key == key).map(|label| label.value.as_str());
        let pod = PodRef::from_labels(label);
        let sandboxes = self.sandboxes.lock();
        let same = sandboxes.get(sandbox).map(|known| &known.pod).filter(|known| **known == pod);
        same.cloned().unwrap_or(pod)
    }

    /// Forgets the sandboxes that a listing of the whole node does not have.
    pub(crate) fn keep_sandboxes(&self, scope: &Scope, listed: &[SandboxSummary]) {
        keep(&self.sandboxes, scope, listed.iter().map(|sandbox| &sandbox.id));
    }

    /// The same for containers.
    pub(crate) fn keep_containers(&self, scope: &Scope, listed: &[ContainerSummary]) {
        keep(&self.containers, scope, listed.iter().map(|container| &container.id));
        let mut images = self.images.lock();
        if images.len() > MAX_UNUSED_IMAGES {
            // The table itself holds one.
            images.retain(|image| Arc::strong_count(image) > 1);
        }
    }
}

fn keep<'a, K: Eq + Hash + 'a, V>(
    table: &Mutex<HashMap<K, V>>,
    scope: &Scope,
    listed: impl Iterator<Item = &'a K>,
) {
    match scope {
        Scope::Pod(_) => {}
        Scope::Node => {
            let listed: HashSet<&K> = listed.collect();
            let mut table = table.lock();
            if table.len() > listed.len() {
                table.retain(|id, _| listed.contains(id));
                table.shrink_to_fit();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use model::SandboxState;
    use model::annotations as keys;

    use super::*;

    fn container(id: &str, uid: &str) -> ListedContainer {
        let labels = [
            (keys::POD_NAMESPACE_LABEL, "default"),
            (keys::POD_NAME_LABEL, "web"),
            (keys::POD_UID_LABEL, uid),
            (keys::CONTAINER_NAME_LABEL, "main"),
        ];
        let full = wire::Container {
            id: id.to_owned(),
            pod_sandbox_id: "s1".to_owned(),
            metadata: Some(wire::ContainerMetadata { name: "main".to_owned(), attempt: 2 }),
            image: Some(wire::ImageSpec { image: "busybox".to_owned(), ..Default::default() }),
            image_ref: "sha256:1".to_owned(),
            image_id: "sha256:1".to_owned(),
            state: wire::ContainerState::ContainerRunning.into(),
            created_at: 1_700_000_000_000_000_001,
            labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            annotations: BTreeMap::from([("a".to_owned(), "b".to_owned())]),
        };
        ListedContainer::decode(full.encode_to_vec().as_slice()).expect("a container")
    }

    fn sandbox(id: &str, uid: &str) -> ListedSandbox {
        let full = wire::PodSandbox {
            id: id.to_owned(),
            metadata: Some(wire::PodSandboxMetadata {
                name: "web".to_owned(),
                uid: uid.to_owned(),
                namespace: "default".to_owned(),
                attempt: 1,
            }),
            state: wire::PodSandboxState::SandboxNotready.into(),
            created_at: 1_700_000_000_000_000_002,
            labels: BTreeMap::from([("a".to_owned(), "b".to_owned())]),
            annotations: BTreeMap::from([("c".to_owned(), "d".to_owned())]),
            runtime_handler: "kata".to_owned(),
        };
        ListedSandbox::decode(full.encode_to_vec().as_slice()).expect("a sandbox")
    }

    #[test]
    fn entries_have_what_the_full_messages_have() {
        let listed = Listed::default();
        let sandbox = listed.sandbox(sandbox("s1", "u1")).expect("it has metadata");
        let pod = PodRef::new("default", "web", "u1");
        let state = SandboxState::NotReady;
        assert_eq!(sandbox, SandboxSummary { id: "s1".into(), pod: pod.clone(), attempt: 1, state });
        let container = listed.container(container("c1", "u1")).expect("it has metadata");
        let expected = ContainerSummary {
            id: "c1".into(),
            sandbox_id: "s1".into(),
            pod,
            name: "main".into(),
            attempt: 2,
            state: ContainerState::Running,
            image_id: "sha256:1".into(),
        };
        assert_eq!(container, expected);
        assert!(Arc::ptr_eq(&container.pod.name, &sandbox.pod.name), "one copy of the pod's name");
    }

    #[test]
    fn next_listing_has_the_new_state_and_copies_nothing() {
        let listed = Listed::default();
        let first = listed.container(container("c1", "u1")).expect("it has metadata");
        let exited = wire::ContainerState::ContainerExited.into();
        let second = listed.container(ListedContainer { state: exited, ..container("c1", "u1") });
        let second = second.expect("it has metadata");
        assert_eq!((first.state, second.state), (ContainerState::Running, ContainerState::Exited));
        assert!(Arc::ptr_eq(&first.pod.name, &second.pod.name) && Arc::ptr_eq(&first.name, &second.name));
        let other = listed.container(container("c2", "u1")).expect("it has metadata");
        assert!(Arc::ptr_eq(&first.image_id, &other.image_id), "one copy of the image's id");
    }

    #[test]
    fn only_a_listing_of_the_node_forgets_and_it_keeps_what_it_has() {
        let listed = Listed::default();
        let kept = listed.container(container("c1", "u1")).expect("it has metadata");
        listed.container(container("c2", "u2")).expect("it has metadata");
        listed.keep_containers(&Scope::Pod("u1".into()), std::slice::from_ref(&kept));
        assert_eq!(listed.sandbox_of(&"c2".into()), Some("s1".into()));
        listed.keep_containers(&Scope::Node, &[kept]);
        assert_eq!(listed.sandbox_of(&"c2".into()), None);
        assert_eq!(listed.sandbox_of(&"c1".into()), Some("s1".into()));
    }

    #[test]
    fn entries_without_id_or_metadata_are_left_out_and_foreign_containers_have_no_pod() {
        let listed = Listed::default();
        assert_eq!(listed.sandbox(ListedSandbox::default()), Err(NO_ID));
        let nameless = ListedSandbox { id: "s1".to_owned(), ..Default::default() };
        assert_eq!(listed.sandbox(nameless), Err(NO_METADATA));
        assert_eq!(listed.container(ListedContainer::default()), Err(NO_ID));
        let labels = vec![Bytes::from_static(b"\x0a\x09x")];
        let foreign = ListedContainer { labels, ..container("c1", "u1") };
        assert_eq!(listed.container(foreign).expect("it has metadata").pod, PodRef::new("", "", ""));
    }
}
