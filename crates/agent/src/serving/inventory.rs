//! What is on this node, by kind, for the local socket: made from the views of all tasks when it is requested. Nothing is kept.
//!
//! An answer never waits long: what the runtime, a disk or a task does not deliver in time is a problem that the answer names.

mod events;
mod images;
mod resources;
mod usage;
mod volumes;
mod why;

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use base_agent::context::Context;
use jiff::Timestamp;
use model::explain::Explanation;
use model::inventory::{
    AllocationItem, CgroupItem, ClaimItem, EventItem, ImageItem, Inventory, NodeUsage, PluginItem,
    PodSelection, VolumeItem,
};
use model::k8s::Pod;
use model::{MonoTime, PodUid};
use ports::NodeInventory;

use crate::serving::explain::selected;
use crate::serving::node_api::{AgentApi, with_status};
use crate::serving::pod_lookup::PodLookup;

/// How long an answer waits for the runtime, a disk or another task.
const TIMEOUT: Duration = Duration::from_secs(2);

#[async_trait]
impl NodeInventory for AgentApi {
    fn selected_pods(&self, selection: &PodSelection) -> Vec<Pod> {
        selected(&self.lookup, selection).into_iter().map(with_status).collect()
    }

    async fn images(&self) -> Inventory<ImageItem> {
        images::list(self).await
    }

    async fn volumes(&self, of: &PodSelection) -> Inventory<VolumeItem> {
        volumes::list(self, of).await
    }

    fn claims(&self, of: &PodSelection) -> Inventory<ClaimItem> {
        resources::claims(self, of)
    }

    fn allocations(&self, of: &PodSelection) -> Inventory<AllocationItem> {
        resources::allocations(self, of)
    }

    async fn cgroups(&self, of: &PodSelection) -> Inventory<CgroupItem> {
        usage::cgroups(self, of).await
    }

    fn plugins(&self) -> Inventory<PluginItem> {
        resources::plugins(self)
    }

    fn events(&self, of: &PodSelection) -> Inventory<EventItem> {
        events::list(&self.lookup, of)
    }

    async fn usage(&self, of: &PodSelection) -> NodeUsage {
        usage::of_pods(self, of).await
    }

    async fn explain_image(&self, name: &str) -> Option<Explanation> {
        why::image(self, name).await
    }

    async fn explain_volumes(&self, words: &str) -> Vec<Explanation> {
        why::volumes(self, words).await
    }
}

/// The result of the work, unless it takes too long.
async fn in_time<T>(ctx: &Context, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        done = work => Some(done),
        () = ctx.clock.sleep_until(ctx.clock.mono() + TIMEOUT) => None,
    }
}

/// `namespace/name` of every pod of this node.
fn pod_names(lookup: &PodLookup) -> BTreeMap<PodUid, String> {
    lookup.pods.all().iter().map(|entry| (entry.identity.uid.clone(), entry.identity.to_string())).collect()
}

/// The wall clock at that moment, as far as the clock was not set since.
fn wall_time(ctx: &Context, at: MonoTime) -> Timestamp {
    let now = ctx.clock.now();
    let (since, until) = (now.mono.saturating_since(at), at.saturating_since(now.mono));
    now.wall.checked_sub(since).and_then(|wall| wall.checked_add(until)).unwrap_or(now.wall)
}
