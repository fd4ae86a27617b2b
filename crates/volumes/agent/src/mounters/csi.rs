//! Volumes of CSI drivers: staged once for each node, published for each pod.
//!
//! Before a driver is called, the pod is in the table of staged volumes and the call's data is on disk, so that whatever becomes of
//! the call, of this kubelet or of the pod, the volume is found and taken away again. A volume with a mark was published completely.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use api_agent::attachments::AttachError;
use async_trait::async_trait;
use base_agent::context::Context;
use model::PodUid;
use model::csi::NodeCapabilities;
use ports::HostError;
use ports::host::HostPathKind;
use ports::plugins::PluginError;
use volumes_core::attachment::attachment_name;
use volumes_core::csi::Lifecycle;
use volumes_core::csi::paths::{DevicePaths, GLOBAL_MOUNT, IN_POD, MOUNT, VOLUME_DATA, staged_dir};
use volumes_core::csi::plan::{CsiPlan, SecretName};
use volumes_core::csi::requests::{CallFacts, PublishFacts, publish_request, stage_request};
use volumes_core::csi::rules::{DriverRules, GroupFacts, changes_group};
use volumes_core::csi::staging::{StagedVolume, VolumeUser};
use volumes_core::csi::volume_data::{PublishedData, StagedData};
use volumes_core::engine::ReadyVolume;

use super::super::csi::{Awaited, CsiObjects, Driver, staged_volume, staging_path, text, tokens, unpublish};
use super::super::mount_context::{MountContext, MountError};
use super::super::ownership::change_group;
use super::super::remove_empty;
use super::super::shared::Shared;
use super::csi_expansion::CsiExpander;
use super::expansion::Expandable;
use super::{MAP_VOLUME, MOUNT_VOLUME, Mounter, Steps, TearDown, TerminatingPod, csi_label};

/// Of directories to mount on: only root may read them.
const DIRECTORY_MODE: u32 = 0o750;
/// Of the data next to a volume, as the Go kubelet has it.
const DATA_MODE: u32 = 0o644;

const TAKEN: &str = "volume uses the ReadWriteOncePod access mode and is already in use by another pod";

#[async_trait]
impl Mounter for CsiPlan {
    fn steps(&self) -> &'static Steps {
        if self.is_device { &MAP_VOLUME } else { &MOUNT_VOLUME }
    }

    /// A driver that wants it is called again with each sync of the pod; that counts as mounting.
    async fn find(&self, mount_context: &MountContext<'_>) -> Option<Result<ReadyVolume, MountError>> {
        if !mount_context.is_marked().await {
            return None;
        }
        let call = match Call::prepare(self, mount_context).await {
            Ok(call) => call,
            Err(error) => return Some(Err(error)),
        };
        if call.rules.requires_republish {
            return None;
        }
        match call.is_target_there().await {
            Ok(true) => {}
            Ok(false) => return None,
            Err(error) => return Some(Err(error.into())),
        }
        call.record_published();
        call.expandable().expand_in_use().await;
        Some(Ok(call.ready()))
    }

    async fn set_up(&self, mount_context: &MountContext<'_>) -> Result<ReadyVolume, MountError> {
        let call = Call::prepare(self, mount_context).await?;
        let is_marked = mount_context.is_marked().await;
        let is_published = is_marked && call.is_target_there().await?;
        let attached = call.attached().await?;
        // One pod at a time: none is published while the volume is staged, or unstaged.
        let permit = mount_context.shared.csi.staged.acquire(&call.volume);
        let permit = mount_context.unless_leaving(permit).await?;
        call.check_no_other_pod().await?;
        if is_marked && !is_published {
            mount_context.unmark().await?;
        }
        let driver = call.driver()?;
        let capabilities = call.capabilities(&driver).await?;
        let facts = call.facts(capabilities, &attached);
        let staging = call.stage(&driver, &facts).await?;
        call.publish(&driver, &facts, staging, is_published).await?;
        if is_published {
            drop(permit);
            call.expandable().expand_in_use().await;
        } else {
            call.change_group(capabilities).await?;
            call.expandable().expand_while_mounting().await.map_err(MountError::Expansion)?;
            mount_context.mark().await?;
        }
        Ok(call.ready())
    }
}

fn user_of(mount_context: &MountContext<'_>) -> VolumeUser {
    VolumeUser { pod: mount_context.identity().uid.clone(), name: mount_context.plan.name.clone() }
}

/// Drivers unmount what they mounted; volumes that no pod uses any more are unstaged.
#[derive(Debug)]
pub(super) struct Unpublish;

#[async_trait]
impl TearDown for Unpublish {
    fn holds(&self, plugin_dir: &str) -> bool {
        plugin_dir == IN_POD
    }

    async fn before_unmount(
        &self,
        ctx: &Context,
        shared: &Shared,
        terminating: &TerminatingPod<'_>,
    ) -> Result<(), String> {
        let volumes = terminating.csi.as_ref().map_err(Clone::clone)?;
        unpublish(ctx, &shared.csi, terminating.uid, volumes).await
    }

    fn after_removal(&self, shared: &Shared, uid: &PodUid) {
        shared.csi.release(uid);
    }
}

/// The calls for one volume of a pod.
struct Call<'a> {
    plan: &'a CsiPlan,
    mount_context: &'a MountContext<'a>,
    objects: &'a CsiObjects,
    rules: DriverRules,
    volume: StagedVolume,
    /// Of a device.
    device_paths: DevicePaths,
    /// Where the driver publishes the volume.
    target: PathBuf,
    /// The SELinux label with which the driver mounts the volume.
    label: Option<String>,
}

impl<'a> Call<'a> {
    /// Reads what the driver asks for. From here on the pod uses the volume.
    async fn prepare(plan: &'a CsiPlan, mount_context: &'a MountContext<'a>) -> Result<Self, MountError> {
        let csi = &mount_context.shared.csi;
        let objects = csi.objects().map_err(MountError::Invalid)?;
        let rules = objects.rules(&plan.driver).await.map_err(MountError::Failed)?;
        rules.check_lifecycle(&plan.driver, plan.lifecycle).map_err(|error| {
            set_up_failed(&format!("mounter.SetupAt failed to check volume lifecycle mode: {error}"))
        })?;
        let (uid, name) = (&mount_context.identity().uid, &mount_context.plan.name);
        let device_paths = DevicePaths::of(&mount_context.ctx.settings.paths.root, name);
        let target = match plan.is_device {
            true => device_paths.publish_dir.join(uid.as_str()),
            false => mount_context.volume_dir().join(MOUNT),
        };
        let volume = staged_volume(plan, name);
        let label = match plan.lifecycle {
            Lifecycle::Persistent => {
                if mount_context.ctx.node_facts.selinux_enabled {
                    // The other users count.
                    csi.complete().await;
                }
                csi_label::add_user(plan, &rules, mount_context, &volume, user_of(mount_context))?
            }
            // As in the Go kubelet, only PersistentVolumes are mounted with a label.
            Lifecycle::Ephemeral => None,
        };
        Ok(Self { plan, mount_context, objects, rules, volume, device_paths, target, label })
    }

    fn is_published_elsewhere(&self) -> bool {
        let staged = &self.mount_context.shared.csi.staged;
        staged.is_published_elsewhere(&self.volume, &self.mount_context.identity().uid)
    }

    /// A volume with the access mode ReadWriteOncePod only is for one pod at a time.
    async fn check_no_other_pod(&self) -> Result<(), MountError> {
        if !self.plan.is_of_one_pod() {
            return Ok(());
        }
        self.mount_context.shared.csi.staged.complete().await;
        match self.is_published_elsewhere() {
            true => Err(MountError::Failed(TAKEN.to_owned())),
            false => Ok(()),
        }
    }

    fn ready(&self) -> ReadyVolume {
        match self.plan.is_device {
            true => ReadyVolume { is_device: true, ..ReadyVolume::at(self.link()) },
            false => ReadyVolume { relabel: self.label.is_none(), ..ReadyVolume::at(self.target.clone()) },
        }
    }

    /// By which containers get a device.
    fn link(&self) -> PathBuf {
        self.mount_context.pod_dir().join("volumeDevices").join(IN_POD).join(&self.mount_context.plan.name)
    }

    async fn is_target_there(&self) -> Result<bool, HostError> {
        let mounts = &self.mount_context.ctx.mounts;
        match self.plan.is_device {
            true => Ok(mounts.ensure_host_path(&self.target, HostPathKind::BlockDevice).await.is_ok()),
            false => mounts.is_mount_point(&self.target).await,
        }
    }

    fn expandable(&self) -> Expandable<'_, CsiExpander<'_>> {
        let Self { plan, mount_context, objects, volume, target, .. } = self;
        let expander = CsiExpander { mount_context, objects, plan, volume, target };
        Expandable { mount_context, cluster: &*objects.cluster, expander }
    }

    /// The volume of the pod is ready, so it is also staged.
    fn record_published(&self) {
        if self.plan.lifecycle == Lifecycle::Persistent {
            self.mount_context.shared.csi.staged.set_staged(&self.volume, true);
        }
    }

    /// What the volume's attacher wants the driver to know; nothing if the volume needs no attachment.
    async fn attached(&self) -> Result<BTreeMap<String, String>, MountError> {
        if self.plan.lifecycle == Lifecycle::Ephemeral || !self.rules.attach_required {
            return Ok(BTreeMap::new());
        }
        let MountContext { ctx, volume, shared, terminating, .. } = self.mount_context;
        let (pod, driver) = (&self.mount_context.identity().uid, &self.plan.driver);
        let attachment = attachment_name(&self.plan.handle, driver, &ctx.settings.node_name);
        let waits_for = Awaited { attachment: attachment.clone(), driver: driver.clone() };
        shared.csi.awaited.insert(pod, volume, waits_for);
        let attached = self.objects.attached(self.plan, attachment.clone(), terminating).await;
        match &attached {
            Ok(_) => shared.csi.awaited.remove(pod, volume),
            Err(AttachError::Refused(_)) if self.objects.api.attachments.is_node_full(&attachment).await => {
                shared.csi.update_allocatable(driver).await;
            }
            Err(_) => {}
        }
        Ok(attached?)
    }

    fn driver(&self) -> Result<Driver, MountError> {
        let driver = self.mount_context.shared.csi.drivers.get(&self.plan.driver);
        driver.map(|driver| driver.for_volume(self.plan)).map_err(|error| match self.plan.lifecycle {
            Lifecycle::Persistent => MountError::Device(text(&format!(
                "attacher.MountDevice failed to create newCsiDriverClient: {error}"
            ))),
            Lifecycle::Ephemeral => {
                set_up_failed(&format!("mounter.SetUpAt failed to get CSI client: {error}"))
            }
        })
    }

    async fn capabilities(&self, driver: &Driver) -> Result<NodeCapabilities, MountError> {
        let capabilities = self.unless_leaving(driver.capabilities()).await?;
        capabilities.map_err(|error| self.stage_failed(&error))
    }

    fn facts<'f>(
        &'f self,
        capabilities: NodeCapabilities,
        publish_context: &'f BTreeMap<String, String>,
    ) -> CallFacts<'f> {
        let group = self.mount_context.group();
        let selinux_context = self.label.as_deref();
        CallFacts { plan: self.plan, capabilities, publish_context, group, selinux_context }
    }

    /// Stages the volume, unless another pod's call did. Returns where.
    async fn stage(&self, driver: &Driver, facts: &CallFacts<'_>) -> Result<Option<PathBuf>, MountError> {
        if self.plan.lifecycle == Lifecycle::Ephemeral || !facts.capabilities.stage_unstage_volume {
            return Ok(None);
        }
        let (ctx, staged) = (self.mount_context.ctx, &self.mount_context.shared.csi.staged);
        let path = staging_path(ctx, &self.volume);
        if staged.is_staged(&self.volume) {
            return Ok(Some(path));
        }
        let secrets = self.objects.secrets(self.plan.stage_secret.as_ref()).await;
        let secrets = secrets.map_err(|error| {
            MountError::Device(secret_failed("NodeStageSecretRef", self.plan.stage_secret.as_ref(), &error))
        })?;
        self.write_staged_data(&path).await?;
        let request = stage_request(facts, path.clone(), secrets);
        match self.unless_leaving(driver.calls.stage(&request)).await? {
            Ok(()) => staged.set_staged(&self.volume, true),
            Err(error) => {
                if error.is_final() {
                    self.discard_staged_data().await;
                }
                return Err(self.stage_failed(&error));
            }
        }
        Ok(Some(path))
    }

    async fn write_staged_data(&self, path: &Path) -> Result<(), HostError> {
        let files = &self.mount_context.ctx.files;
        files.ensure_dir(path, DIRECTORY_MODE).await?;
        if self.plan.is_device {
            return self.write_published_data(&self.device_paths.data_dir()).await;
        }
        let (driver, handle) = (self.plan.driver.clone(), self.plan.handle.clone());
        let data = StagedData { driver, handle, selinux_context: self.label.clone() };
        let dir = path.parent().unwrap_or(path);
        files.write_durably(&dir.join(VOLUME_DATA), data.to_file().as_bytes(), DATA_MODE).await
    }

    /// The driver has not staged the volume, unless an earlier kubelet had it staged for another pod. What cannot be removed is
    /// removed when the volume is unstaged.
    async fn discard_staged_data(&self) {
        self.mount_context.shared.csi.staged.complete().await;
        if self.plan.is_device || self.is_published_elsewhere() {
            return;
        }
        let root = &self.mount_context.ctx.settings.paths.root;
        let dir = staged_dir(root, &self.plan.driver, &self.plan.handle);
        if let Err(err) = remove_empty(self.mount_context.ctx, &dir, Some(GLOBAL_MOUNT)).await {
            tracing::warn!(path = %dir.display(), err = %err, "Failed to remove the directory of a CSI volume");
        }
    }

    /// Publishes the volume to the pod. `is_again`: containers use it already, so it stays as it is if that fails.
    async fn publish(
        &self,
        driver: &Driver,
        facts: &CallFacts<'_>,
        staging: Option<PathBuf>,
        is_again: bool,
    ) -> Result<(), MountError> {
        let secret = self.plan.publish_secret.as_ref();
        let secrets = self.objects.secrets(secret).await;
        let secrets = secrets
            .map_err(|error| MountError::Failed(secret_failed("NodePublishSecretRef", secret, &error)))?;
        let tokens = tokens(self.mount_context.objects, &self.rules).await.map_err(|error| {
            set_up_failed(&format!(
                "mounter.SetUpAt failed to get service accoount token attributes: {error}"
            ))
        })?;
        match self.plan.is_device {
            true => self.link_device().await?,
            false => self.write_published_data(&self.mount_context.volume_dir()).await?,
        }
        let read_only = self.mount_context.plan.read_only;
        let request = {
            let pod = self.mount_context.pod.get();
            let publish = PublishFacts { pod, rules: &self.rules, read_only, tokens: &tokens };
            publish_request(facts, &publish, staging, self.target.clone(), secrets)
        };
        let staged = &self.mount_context.shared.csi.staged;
        staged.set_published(&self.volume, &user_of(self.mount_context), true);
        let published = self.unless_leaving(driver.calls.publish(&request)).await?;
        if let Err(error) = &published
            && error.is_final()
            && !is_again
            && self.discard_published_data().await
        {
            staged.set_published(&self.volume, &user_of(self.mount_context), false);
        }
        published.map_err(|error| failed_or_unknown(&error))
    }

    async fn write_published_data(&self, dir: &Path) -> Result<(), HostError> {
        let files = &self.mount_context.ctx.files;
        let node = self.mount_context.ctx.settings.node_name.clone();
        files.ensure_dir(dir, DIRECTORY_MODE).await?;
        let data = PublishedData {
            driver: self.plan.driver.clone(),
            handle: self.plan.handle.clone(),
            spec_name: self.plan.spec_name.clone(),
            attachment: attachment_name(&self.plan.handle, &self.plan.driver, &node),
            node,
            lifecycle: (!self.plan.is_device).then_some(self.plan.lifecycle),
            selinux_context: self.label.clone(),
        };
        files.write_durably(&dir.join(VOLUME_DATA), data.to_file().as_bytes(), DATA_MODE).await
    }

    /// Makes the link that shows that the pod has the device, before it has.
    async fn link_device(&self) -> Result<(), HostError> {
        let (files, link) = (&self.mount_context.ctx.files, self.link());
        files.ensure_dir(link.parent().unwrap_or(&link), DIRECTORY_MODE).await?;
        files.ensure_symlink(&self.target, &link).await?;
        self.write_published_data(&self.device_paths.data_dir()).await?;
        files.ensure_dir(&self.device_paths.publish_dir, DIRECTORY_MODE).await
    }

    /// The driver has not published the volume. What cannot be removed is removed with the pod. Returns whether nothing is left.
    async fn discard_published_data(&self) -> bool {
        if self.plan.is_device {
            return false;
        }
        let dir = self.mount_context.volume_dir();
        let removed = remove_empty(self.mount_context.ctx, &dir, Some(MOUNT)).await;
        if let Err(err) = &removed {
            tracing::warn!(path = %dir.display(), err = %err, "Failed to remove the directory of a CSI volume");
        }
        removed.is_ok()
    }

    /// Gives the files to the pod's group, unless the driver does that.
    async fn change_group(&self, capabilities: NodeCapabilities) -> Result<(), MountError> {
        let policy = self.rules.group_policy().map_err(|error| {
            set_up_failed(&format!("mounter.SetupAt failed to check fsGroup policy: {}", text(&error)))
        })?;
        let facts = GroupFacts {
            lifecycle: self.plan.lifecycle,
            fs_type: &self.plan.fs_type,
            access_modes: &self.plan.access_modes,
            read_only: self.mount_context.plan.read_only,
        };
        match self.mount_context.group() {
            Some(gid)
                if !self.plan.is_device
                    && !capabilities.volume_mount_group
                    && changes_group(policy, facts) =>
            {
                change_group(self.mount_context, &self.target, gid).await
            }
            Some(_) | None => Ok(()),
        }
    }

    fn stage_failed(&self, error: &PluginError) -> MountError {
        match (self.plan.lifecycle, error.is_final()) {
            (Lifecycle::Ephemeral, _) => failed_or_unknown(error),
            (Lifecycle::Persistent, true) => MountError::Device(error.to_string()),
            (Lifecycle::Persistent, false) => MountError::DeviceUnknown(error.to_string()),
        }
    }

    /// Gives up the call when the pod is deleted: what may have happened is undone with the pod.
    async fn unless_leaving<T>(&self, call: impl Future<Output = T>) -> Result<T, MountError> {
        Ok(self.mount_context.unless_leaving(async { Ok(call.await) }).await?)
    }
}

fn failed_or_unknown(error: &PluginError) -> MountError {
    match error.is_final() {
        true => MountError::Failed(error.to_string()),
        false => MountError::Unknown(error.to_string()),
    }
}

fn set_up_failed(message: &str) -> MountError {
    MountError::Failed(text(message))
}

fn secret_failed(field: &str, name: Option<&SecretName>, error: &str) -> String {
    let (namespace, name) = name.map(|name| (&*name.namespace, &*name.name)).unwrap_or_default();
    format!("fetching {field} {namespace}/{name} failed: {error}")
}
