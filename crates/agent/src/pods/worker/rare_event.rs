//! What only few workers wait for: resources of pods that end, the health of devices, a resize that waits.
//!
//! Owns one future for all of them, which exists only while a pod has something to wait for: the future of a worker has space for
//! everything that it may await, for as long as the pod lives.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use resources_agent::admissions::{AdmissionSlot, Change};
use resources_agent::devices::HealthListener;
use tokio::sync::watch;

use super::PodWorker;
use super::resize::{allocations_changed, sources_reported};

#[derive(Clone, Copy, Debug)]
pub(super) enum RareEvent {
    /// A pod has ended that this one waits for.
    ResourcesFreed,
    DeviceHealthChanged,
    /// With the cause.
    AllocationsChanged(&'static str),
    SourcesReported,
}

/// The next event; `None` if the pod waits for none. Cancel safe: channels lose nothing.
pub(super) fn next<'a>(
    slot: Option<&'a mut AdmissionSlot>,
    device_health: Option<&'a HealthListener>,
    resizes: Option<&'a mut watch::Receiver<Change>>,
    sources_ready: Option<&'a mut watch::Receiver<bool>>,
) -> Option<BoxFuture<'a, RareEvent>> {
    let slot = slot.filter(|slot| slot.must_wait());
    let waits = slot.is_some() || device_health.is_some() || resizes.is_some() || sources_ready.is_some();
    waits.then(|| any(slot, device_health, resizes, sources_ready).boxed())
}

async fn any(
    slot: Option<&mut AdmissionSlot>,
    device_health: Option<&HealthListener>,
    resizes: Option<&mut watch::Receiver<Change>>,
    sources_ready: Option<&mut watch::Receiver<bool>>,
) -> RareEvent {
    tokio::select! {
        biased;
        () = resources_freed(slot) => RareEvent::ResourcesFreed,
        () = device_health_changed(device_health) => RareEvent::DeviceHealthChanged,
        trigger = allocations_changed(resizes) => RareEvent::AllocationsChanged(trigger),
        () = sources_reported(sources_ready) => RareEvent::SourcesReported,
    }
}

/// Never resolves for a pod without a slot.
async fn resources_freed(slot: Option<&mut AdmissionSlot>) {
    match slot {
        Some(slot) => slot.resources_freed().await,
        None => std::future::pending().await,
    }
}

/// Never resolves for a pod without devices.
async fn device_health_changed(listener: Option<&HealthListener>) {
    match listener {
        Some(listener) => listener.changed().await,
        None => std::future::pending().await,
    }
}

impl PodWorker {
    pub(super) fn handle_rare_event(&mut self, event: RareEvent) {
        match event {
            // The next pass is tried after every turn, and the status is computed.
            RareEvent::ResourcesFreed | RareEvent::DeviceHealthChanged => {}
            RareEvent::AllocationsChanged(trigger) => self.try_resizes(trigger),
            RareEvent::SourcesReported => self.try_requested_resize(),
        }
    }
}
