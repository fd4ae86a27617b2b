//! What volumes of CSI drivers need apart from the volume itself: the registered drivers, the table of staged volumes, and the objects of
//! the API that say how a driver is called.
//!
//! The calls for one volume of a pod are in `mounters/csi.rs`; what is decided about them, in `volumes_core::csi`. A call
//! that timed out may still happen: it is repeated before anything else is done to its volume.

mod awaited;
mod drivers;
mod expansion;
mod metered;
mod objects;
mod registration;
mod staging;
mod stats;
mod tear_down;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use api_core::csi_node::update_period;
use model::PodUid;
use model::k8s::Volume;
use ports::plugins::Plugins;
use ports::{Cluster, HostError};
use volumes_core::csi::paths::{DevicePaths, GLOBAL_MOUNT, MOUNT, VOLUME_DATA, staged_dir, volume_dir};
use volumes_core::csi::plan::CsiPlan;
use volumes_core::csi::staging::StagedVolume;
use volumes_core::csi::volume_data::{MAX_BYTES, PublishedData};
use volumes_core::may_have_driver;

use api_agent::csi::CsiApi;
use base_agent::context::Context;
use base_agent::error_chain::chain;

pub(crate) use awaited::{Awaited, AwaitedAttachments, AwaitedVolumes};
pub(crate) use drivers::{Driver, Drivers};
pub(crate) use expansion::Expansions;
pub(crate) use objects::{CsiObjects, tokens};
pub use registration::KIND;
pub(crate) use staging::StagedVolumes;
pub use stats::csi_volume_at;
pub(crate) use tear_down::{PodVolume, pod_volumes, unpublish};

/// The state that all CSI volumes share; clones are the same.
#[derive(Clone, Debug)]
pub struct Csi {
    pub drivers: Drivers,
    pub staged: Arc<StagedVolumes>,
    pub expansions: Arc<Expansions>,
    pub(crate) awaited: AwaitedAttachments,
    /// `None` for a standalone kubelet.
    objects: Option<Arc<CsiObjects>>,
}

impl Csi {
    /// Starts what keeps the numbers of the drivers up to date in the API. `api`: `None` for a standalone kubelet.
    pub fn start(
        ctx: &Arc<Context>,
        plugins: Arc<dyn Plugins>,
        api: Option<(CsiApi, Arc<dyn Cluster>)>,
    ) -> Self {
        let drivers = Drivers::new(ctx.clone(), plugins);
        let objects = api.map(|(api, cluster)| Arc::new(CsiObjects { api, cluster }));
        let staged = Arc::new(StagedVolumes::new(ctx.clone(), drivers.clone(), objects.clone()));
        let (expansions, awaited) = Default::default();
        let csi = Self { drivers, staged, expansions, awaited, objects };
        if let Some(objects) = &csi.objects {
            objects.api.start_updates(ctx, Arc::new(csi.clone()));
        }
        csi
    }

    /// Waits until what an earlier kubelet left is known.
    pub async fn complete(&self) {
        self.staged.complete().await;
    }

    /// Everything of the pod is gone from disk: the volumes that it was the last to use are unstaged.
    pub fn release(&self, pod: &PodUid) {
        self.awaited.remove_pod(pod);
        self.staged.remove_pod(pod);
        self.expansions.retain(|volume| self.staged.is_used(volume));
    }

    /// Whether one of the volumes is not attached because the node has too many of its driver, and the driver's number is kept up to date,
    /// so that the scheduler knows better now.
    pub(crate) async fn is_node_full(&self, volumes: &AwaitedVolumes) -> bool {
        let Some(objects) = &self.objects else { return false };
        for Awaited { attachment, driver } in volumes.values() {
            let object = objects.api.drivers.get(driver).await;
            let has_period =
                object.is_ok_and(|object| object.is_some_and(|object| update_period(&object).is_some()));
            if has_period && objects.api.attachments.is_node_full(attachment).await {
                return true;
            }
        }
        false
    }

    /// The volume of the pod is a driver's: it is looked at with each sync of the pod.
    pub(super) fn is_refreshed(&self, pod: &PodUid, volume: &Volume) -> bool {
        volume.csi.is_some() || (may_have_driver(volume) && self.staged.is_used_by(pod))
    }

    /// # Errors
    /// A standalone kubelet has no API, which CSI volumes need.
    pub fn objects(&self) -> Result<&CsiObjects, String> {
        self.objects.as_deref().ok_or_else(|| text("failed to get a kubernetes client"))
    }
}

/// An error message of the Go kubelet's CSI volumes.
pub(crate) fn text(message: &str) -> String {
    format!("{}: {message}", volumes_core::csi::PLUGIN)
}

/// The volume as its driver stages it.
pub(super) fn staged_volume(plan: &CsiPlan, name: &str) -> StagedVolume {
    StagedVolume {
        driver: plan.driver.clone(),
        handle: plan.handle.clone(),
        device: plan.is_device.then(|| name.to_owned()),
    }
}

/// Where the driver stages the volume.
pub(super) fn staging_path(ctx: &Context, volume: &StagedVolume) -> PathBuf {
    let root = &ctx.settings.paths.root;
    match &volume.device {
        Some(name) => DevicePaths::of(root, name).staging,
        None => staged_dir(root, &volume.driver, &volume.handle).join(GLOBAL_MOUNT),
    }
}

/// The data of a volume in that directory; `None` if there is none.
///
/// # Errors
/// It cannot be read, which does not mean that there is none.
async fn read_data(ctx: &Context, dir: &Path) -> Result<Option<Vec<u8>>, HostError> {
    match ctx.files.read_file(&dir.join(VOLUME_DATA), MAX_BYTES, false).await {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// What is recorded in that directory about a volume of a pod; `None` if nothing is.
///
/// # Errors
/// It cannot be read, or is damaged.
async fn read_published(ctx: &Context, dir: &Path) -> Result<Option<PublishedData>, String> {
    let content = read_data(ctx, dir).await.map_err(|error| chain(&error))?;
    let path = dir.join(VOLUME_DATA);
    let failed = |error| text(&format!("failed to parse volume data file [{}]: {error}", path.display()));
    content.map(|content| PublishedData::parse(&content).map_err(failed)).transpose()
}

/// What is on disk about a volume that was published to the pod, and where it is published.
async fn published(ctx: &Context, pod: &PodUid, name: &str) -> Option<(PublishedData, PathBuf)> {
    let paths = &ctx.settings.paths;
    let dir = volume_dir(&paths.pod(pod), name);
    if let Ok(Some(data)) = read_published(ctx, &dir).await {
        return Some((data, dir.join(MOUNT)));
    }
    let device = DevicePaths::of(&paths.root, name);
    let data = read_published(ctx, &device.data_dir()).await.ok()??;
    Some((data, device.publish_dir.join(pod.as_str())))
}
