//! What the local socket may request from the agent besides `NodeApi`: what is on this node, by kind.

use async_trait::async_trait;
use model::explain::Explanation;
use model::inventory::{
    AllocationItem, CgroupItem, ClaimItem, EventItem, ImageItem, Inventory, NodeUsage, PluginItem,
    PodSelection, VolumeItem,
};
use model::k8s::Pod;

/// No answer waits longer than some seconds for the runtime, a disk or another task: what is missing then is a problem of the answer.
#[async_trait]
pub trait NodeInventory: Send + Sync + std::fmt::Debug {
    /// The pods of this node that are meant, with their current status.
    fn selected_pods(&self, selection: &PodSelection) -> Vec<Pod>;
    async fn images(&self) -> Inventory<ImageItem>;
    async fn volumes(&self, of: &PodSelection) -> Inventory<VolumeItem>;
    /// Those of the namespace, and used by the pods that are named or have the labels.
    fn claims(&self, of: &PodSelection) -> Inventory<ClaimItem>;
    fn allocations(&self, of: &PodSelection) -> Inventory<AllocationItem>;
    async fn cgroups(&self, of: &PodSelection) -> Inventory<CgroupItem>;
    fn plugins(&self) -> Inventory<PluginItem>;
    /// The latest last; those of the node and of PersistentVolumes only if no pods are named.
    fn events(&self, of: &PodSelection) -> Inventory<EventItem>;
    async fn usage(&self, of: &PodSelection) -> NodeUsage;
    /// Why an image is as it is; `None` if neither the runtime nor a pod has one of that name.
    async fn explain_image(&self, name: &str) -> Option<Explanation>;
    /// Why volumes are as they are: of that name, or `pod/volume` or `namespace/pod/volume`.
    async fn explain_volumes(&self, words: &str) -> Vec<Explanation>;
}
