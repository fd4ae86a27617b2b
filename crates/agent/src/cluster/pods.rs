//! The pods that the API binds to this node, as one more source of the sync loop.

use std::sync::Arc;

use kubelet_core::mirror::is_mirror_pod;
use model::PodSource;
use model::k8s::{Node, Pod};
use ports::cluster::Selection;
use tokio::sync::mpsc;

use super::follow::{Copy, Followed};
use crate::sources::SourceSet;

/// Pods of this node, in all namespaces.
pub(crate) fn on_node(node: &str) -> Selection {
    Selection { fields: Some(format!("spec.nodeName={node}")), ..Selection::default() }
}

/// Hands the pods over whenever they change, until dropped. The first time is after the Node was seen: labels that
/// decide on admission are known then.
pub(crate) async fn feed(mut pods: Copy<Pod>, mut node: Copy<Node>, sets: mpsc::Sender<SourceSet>) {
    // An error means that the follower is gone, at the end of the process.
    if node.wait_for(|seen| super::own_node(seen).is_some()).await.is_err() {
        return;
    }
    if pods.wait_for(|seen| seen.is_complete).await.is_err() {
        return;
    }
    loop {
        let set =
            SourceSet { source: PodSource::Api, pods: to_run(&pods.borrow_and_update()), is_complete: true };
        if sets.send(set).await.is_err() || pods.changed().await.is_err() {
            return;
        }
    }
}

/// Mirrors only show static pods; what they show runs already.
fn to_run(seen: &Followed<Pod>) -> Vec<Arc<Pod>> {
    seen.objects.values().filter(|pod| !is_mirror_pod(pod)).cloned().collect()
}
