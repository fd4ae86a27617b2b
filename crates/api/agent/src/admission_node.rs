//! The Node that pods are admitted to: that of the API, or what this kubelet knows of it while the API has none.
//!
//! Owns the Node that was used last, because its labels still hold after the object was deleted.

use std::sync::Arc;

use model::k8s::Node;
use parking_lot::Mutex;

use super::reflector::{StoreReader, own_node};

/// Clones share what was used last.
#[derive(Clone, Debug)]
pub struct AdmissionNode {
    seen: StoreReader<Node>,
    /// From the settings and the machine.
    own: Arc<Node>,
    is_standalone: bool,
    last: Arc<Mutex<Option<Arc<Node>>>>,
}

impl AdmissionNode {
    pub fn new(seen: StoreReader<Node>, own: Node, is_standalone: bool) -> Self {
        Self { seen, own: Arc::new(own), is_standalone, last: Arc::default() }
    }

    /// Whether the API server has said that it has no Node object of this node.
    pub fn is_missing(&self) -> bool {
        let seen = self.seen.borrow();
        !self.is_standalone && seen.is_complete && own_node(&seen).is_none()
    }

    /// `None` until the API server has listed the Node of a node of a cluster.
    pub fn get(&self) -> Option<Arc<Node>> {
        if self.is_standalone {
            return Some(self.own.clone());
        }
        let seen = self.seen.borrow();
        let mut last = self.last.lock();
        if let Some(node) = own_node(&seen) {
            *last = Some(node);
        }
        seen.is_complete.then(|| last.as_ref().unwrap_or(&self.own).clone())
    }
}

#[cfg(test)]
mod tests {
    use api_core::reflector::ObjectKey;
    use model::k8s::ObjectMeta;
    use tokio::sync::watch;

    use super::*;
    use crate::reflector::Store;

    fn node(uid: &str) -> Node {
        Node {
            metadata: ObjectMeta { uid: Some(uid.to_owned()), ..ObjectMeta::default() },
            ..Node::default()
        }
    }

    #[test]
    fn node_of_the_api_counts_then_the_last_one_seen_then_the_own_one() {
        let api = watch::Sender::new(Store::<Node>::default());
        let nodes = AdmissionNode::new(api.subscribe(), node("own"), false);
        let uid = || nodes.get().and_then(|node| node.metadata.uid.clone());
        assert_eq!(uid(), None, "the list has not arrived");
        let standalone = AdmissionNode::new(api.subscribe(), node("own"), true);
        assert_eq!(standalone.get().and_then(|node| node.metadata.uid.clone()).as_deref(), Some("own"));
        api.send_modify(|seen| seen.is_complete = true);
        assert_eq!(uid().as_deref(), Some("own"));
        let key = ObjectKey { namespace: String::new(), name: "node".to_owned() };
        api.send_modify(|seen| drop(seen.objects.insert(Arc::new(key.clone()), Arc::new(node("api")))));
        assert_eq!(uid().as_deref(), Some("api"));
        api.send_modify(|seen| drop(seen.objects.remove(&key)));
        assert_eq!(uid().as_deref(), Some("api"), "its labels still hold");
    }
}
