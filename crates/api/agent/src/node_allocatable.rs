//! The node's allocatable resources: those of the Node object, or the ones this kubelet computed until there is one.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::k8s::{Node, Quantity};

use crate::reflector::{StoreReader, own_node};

#[derive(Clone, Debug)]
pub struct NodeAllocatable {
    node: StoreReader<Node>,
    /// Computed from this machine.
    computed: Arc<BTreeMap<String, Quantity>>,
}

impl NodeAllocatable {
    pub fn new(node: StoreReader<Node>, computed: BTreeMap<String, Quantity>) -> Self {
        Self { node, computed: Arc::new(computed) }
    }

    pub fn get(&self) -> BTreeMap<String, Quantity> {
        let node = own_node(&self.node.borrow());
        let reported = node.and_then(|node| node.status.as_ref()?.allocatable.clone());
        reported.unwrap_or_else(|| (*self.computed).clone())
    }
}
