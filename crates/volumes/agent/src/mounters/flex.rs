//! Volumes of FlexVolume drivers: the driver mounts them, and what it does not support the kubelet does.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use base_agent::context::Context;
use base_agent::error_chain::chain;
use model::PodUid;
use ports::host::HostPathKind;
use ports::{Cluster, HostError};
use volumes_core::engine::ReadyVolume;
use volumes_core::flex::{
    Answer, CallError, Command, FlexPlan, check_device, device_mount, driver_of, options, pod_options,
    secret_options, unique_name,
};
use volumes_core::types::{is_static_plugin, volume_dir};

use super::super::device::{self, DeviceMount};
use super::super::flex::{FlexDriver, installed, mounted_devices};
use super::super::mount_context::{MARK, MountContext, MountError};
use super::super::ownership::change_group;
use super::super::shared::Shared;
use super::super::{attachment, remove_empty};
use super::expansion::Expandable;
use super::flex_expansion::FlexExpander;
use super::{Attached, Mounter, TearDown, TerminatingPod};

const DIRECTORY_MODE: u32 = 0o750;
/// The filesystem of a device that the kubelet mounts for a volume that names none.
const DEFAULT_FS: &str = "ext4";

#[async_trait]
impl Mounter for FlexPlan {
    /// A volume that is ready may have grown.
    async fn find(&self, mount_context: &MountContext<'_>) -> Option<Result<ReadyVolume, MountError>> {
        let (ctx, flex) = (mount_context.ctx, &mount_context.shared.flex);
        let name = unique_name(&self.driver, &mount_context.plan.name);
        if !flex.is_growing(&name, &mount_context.identity().uid) || !mount_context.is_marked().await {
            return None;
        }
        let driver = flex.get(ctx, &self.driver).await.ok()?;
        let call = Call { plan: self, mount_context, driver, target: mount_context.volume_dir() };
        if !ctx.mounts.is_mount_point(&call.target).await.ok()? {
            return None;
        }
        if let Some(cluster) = &mount_context.shared.cluster {
            let device = call.attached().await.ok()?;
            call.expandable(&**cluster, device).expand_in_use().await;
        }
        Some(Ok(call.ready()))
    }

    async fn set_up(&self, mount_context: &MountContext<'_>) -> Result<ReadyVolume, MountError> {
        let ctx = mount_context.ctx;
        let driver = mount_context.shared.flex.get(ctx, &self.driver).await.map_err(MountError::NoPlugin)?;
        let call = Call { plan: self, mount_context, driver, target: mount_context.volume_dir() };
        let is_mounted = ctx.mounts.is_mount_point(&call.target).await?;
        // Shows also that the pod uses the device of the volume.
        if call.driver.capabilities.attach {
            attachment::record_in_use(mount_context, &call.unique_name())?;
        }
        mount_context.ensure_mark_dir().await?;
        mount_context.set_measured(call.driver.capabilities.supports_metrics).await?;
        if mount_context.claim.is_some() && call.driver.capabilities.requires_fs_resize {
            mount_context.shared.flex.add_growing(&call.unique_name(), mount_context.identity().uid.clone());
        }
        if !(is_mounted && mount_context.is_marked().await) {
            call.set_up(is_mounted).await?;
        }
        Ok(call.ready())
    }

    async fn tear_down(&self, mount_context: &MountContext<'_>) -> Result<(), HostError> {
        let (ctx, target) = (mount_context.ctx, mount_context.volume_dir());
        if !ctx.mounts.is_mount_point(&target).await? {
            return Ok(());
        }
        let driver = mount_context.shared.flex.get(ctx, &self.driver).await.map_err(HostError::Invalid)?;
        driver.unmount(Command::Unmount, &target).await.map_err(HostError::Invalid)
    }
}

/// The calls for one volume of a pod.
struct Call<'a> {
    plan: &'a FlexPlan,
    mount_context: &'a MountContext<'a>,
    driver: FlexDriver<'a>,
    target: PathBuf,
}

impl Call<'_> {
    async fn set_up(&self, is_mounted: bool) -> Result<(), MountError> {
        let (mount_context, capabilities) = (self.mount_context, self.driver.capabilities);
        let staged = match capabilities.attach && !is_mounted {
            true => {
                let permit = mount_context.shared.devices.acquire(&self.unique_name()).await?;
                Some((permit, self.stage().await?))
            }
            false => None,
        };
        if !is_mounted {
            self.mount().await?;
        }
        let device = staged.map(|(_permit, device)| device);
        let group = mount_context.group().filter(|_| capabilities.fs_group && !mount_context.plan.read_only);
        if let Some(gid) = group
            && let Err(error) = change_group(mount_context, &self.target, gid).await
        {
            // As in the Go kubelet: filesystems of some drivers have no owners.
            tracing::warn!(driver = self.plan.driver, path = %self.target.display(), ?error, "Failed to change the group of a FlexVolume");
        }
        self.expand(device).await?;
        Ok(mount_context.mark().await?)
    }

    /// `device`: to which the volume was attached just now.
    async fn expand(&self, device: Option<String>) -> Result<(), MountError> {
        let (name, uid) = (self.unique_name(), self.mount_context.identity().uid.clone());
        let Some(cluster) = &self.mount_context.shared.cluster else { return Ok(()) };
        if !self.mount_context.shared.flex.is_growing(&name, &uid) {
            return Ok(());
        }
        let _permit = self.mount_context.shared.devices.acquire(&name).await?;
        let device = match device {
            Some(device) => device,
            None => self.attached().await?,
        };
        self.expandable(&**cluster, device).expand_while_mounting().await.map_err(MountError::Expansion)
    }

    fn expandable<'c>(
        &'c self,
        cluster: &'c dyn Cluster,
        device: String,
    ) -> Expandable<'c, FlexExpander<'c>> {
        let Self { mount_context, driver, .. } = self;
        let (unique_name, options) = (self.unique_name(), self.options(BTreeMap::new()));
        let expander = FlexExpander { mount_context, driver, unique_name, options, device };
        Expandable { mount_context, cluster, expander }
    }

    /// The device to which the controller attached the volume; empty if it has none.
    async fn attached(&self) -> Result<String, MountError> {
        match self.driver.capabilities.attach {
            true => attachment::attached(self.mount_context, &self.unique_name()).await,
            false => Ok(String::new()),
        }
    }

    fn ready(&self) -> ReadyVolume {
        let relabel = self.driver.capabilities.selinux_relabel;
        ReadyVolume { relabel, ..ReadyVolume::at(self.target.clone()) }
    }

    fn unique_name(&self) -> String {
        unique_name(&self.plan.driver, &self.mount_context.plan.name)
    }

    /// Mounts the device of the volume for all pods, and returns it. The caller has the permit of the device.
    async fn stage(&self) -> Result<String, MountError> {
        let mount_context = self.mount_context;
        let options = self.options(BTreeMap::new());
        match self.call(Command::GetVolumeName, vec![options.clone()]).await? {
            // The answer is not used, as in the Go kubelet.
            Ok(_) | Err(CallError::NotSupported) => {}
            Err(error) => return Err(failed(error, MountError::Attach)),
        }
        let attached = attachment::attached(mount_context, &self.unique_name()).await?;
        let waited = self.call(Command::WaitForAttach, vec![attached.clone(), options.clone()]).await?;
        let device = match waited {
            Ok(answer) => answer.device,
            Err(CallError::NotSupported) => attached,
            Err(error) => return Err(failed(error, MountError::Attach)),
        };
        let root = &mount_context.ctx.settings.paths.root;
        let target = device_mount(root, &self.plan.driver, &mount_context.plan.name);
        if mount_context.ctx.mounts.is_mount_point(&target).await? {
            return Ok(device);
        }
        mount_context.ctx.files.ensure_dir(&target, DIRECTORY_MODE).await?;
        let args = vec![target.display().to_string(), device.clone(), options];
        match self.call(Command::MountDevice, args).await? {
            Ok(_) => Ok(device),
            // A driver that mounts volumes without a device.
            Err(CallError::NotSupported) if device.is_empty() => Ok(device),
            Err(CallError::NotSupported) => {
                self.stage_device(&device, &target).await?;
                Ok(device)
            }
            Err(CallError::NotFinished(why)) => Err(MountError::DeviceUnknown(why)),
            Err(CallError::Failed(why)) => Err(MountError::Device(why)),
        }
    }

    /// Mounts the device that the driver does not mount.
    async fn stage_device(&self, device: &str, target: &Path) -> Result<(), MountError> {
        let mount_context = self.mount_context;
        check_device(device).map_err(MountError::Device)?;
        let kind = HostPathKind::BlockDevice;
        let found = mount_context.ctx.mounts.ensure_host_path(Path::new(device), kind).await;
        found.map_err(|error| match error {
            HostError::NotFinished(_) => error.into(),
            HostError::Io { .. } | HostError::Invalid(_) => {
                MountError::Device(format!("device {device:?} is not a block device of this node"))
            }
        })?;
        let fs_type = Some(&*self.plan.fs_type).filter(|fs_type| !fs_type.is_empty()).unwrap_or(DEFAULT_FS);
        device::stage(mount_context, &DeviceMount { device, fs_type, options: &[], target }).await
    }

    async fn mount(&self) -> Result<(), MountError> {
        let (mount_context, target) = (self.mount_context, &self.target);
        let ctx = mount_context.ctx;
        let mut extra = pod_options(mount_context.pod.get(), mount_context.group());
        extra.extend(self.secrets().await.map_err(MountError::Failed)?);
        ctx.files.ensure_dir(target, DIRECTORY_MODE).await?;
        let args = vec![target.display().to_string(), self.options(extra)];
        let why = match self.call(Command::Mount, args).await? {
            Ok(_) => return Ok(()),
            Err(CallError::NotFinished(why)) => return Err(MountError::Unknown(why)),
            Err(CallError::NotSupported) => {
                let root = &ctx.settings.paths.root;
                let source = device_mount(root, &self.plan.driver, &mount_context.plan.name);
                match ctx.mounts.bind_volume(&source, target, &[]).await {
                    Ok(()) => return Ok(()),
                    Err(error) => chain(&error),
                }
            }
            Err(CallError::Failed(why)) => why,
        };
        // Nothing is mounted, so that the driver is not called to unmount it.
        if let Err(err) = remove_empty(ctx, target, None).await {
            tracing::warn!(path = %target.display(), err = chain(&err), "Failed to remove the directory of a FlexVolume");
        }
        Err(MountError::Failed(why))
    }

    async fn secrets(&self) -> Result<BTreeMap<String, String>, String> {
        let Some(secret) = &self.plan.secret else { return Ok(BTreeMap::new()) };
        let Some(cluster) = &self.mount_context.shared.cluster else {
            return Err("cannot get kube client".to_owned());
        };
        let failed =
            |error: String| format!("couldn't get secret {}/{} err: {error}", secret.namespace, secret.name);
        let read = cluster.secrets().get(&secret.namespace, &secret.name).await;
        let read = read.map_err(|error| failed(error.to_string()))?;
        secret_options(&self.plan.driver, &read).map_err(failed)
    }

    fn options(&self, extra: BTreeMap<String, String>) -> String {
        let plan = self.mount_context.plan;
        options(self.plan, &plan.name, plan.read_only, extra)
    }

    /// Kills the driver's program when the pod is deleted: what it may have done is undone with the pod.
    async fn call(
        &self,
        command: Command,
        args: Vec<String>,
    ) -> Result<Result<Answer, CallError>, MountError> {
        let call = async { Ok(self.driver.call(command, args).await) };
        Ok(self.mount_context.unless_leaving(call).await?)
    }
}

fn failed(error: CallError, step: fn(String) -> MountError) -> MountError {
    match error {
        CallError::NotFinished(why) => MountError::Unknown(why),
        CallError::NotSupported | CallError::Failed(_) => step(error.to_string()),
    }
}

/// Drivers unmount what they mounted, and the devices that no pod uses any more.
#[derive(Debug)]
pub(super) struct Unmount;

#[async_trait]
impl TearDown for Unmount {
    fn holds(&self, plugin_dir: &str) -> bool {
        !is_static_plugin(plugin_dir)
    }

    async fn before_unmount(
        &self,
        ctx: &Context,
        shared: &Shared,
        terminating: &TerminatingPod<'_>,
    ) -> Result<(), String> {
        let pod_dir = ctx.settings.paths.pod(terminating.uid);
        for (directory, driver) in drivers_in(ctx, &pod_dir.join("volumes")).await {
            for name in list(ctx, &pod_dir.join("volumes").join(&directory)).await {
                unmount(ctx, shared, &pod_dir, &directory, &driver, &name).await?;
            }
        }
        Ok(())
    }

    async fn after_unmount(&self, ctx: &Context, shared: &Shared, uid: &PodUid) -> Result<(), String> {
        let plugins = ctx.settings.paths.pod(uid).join("plugins");
        for (directory, driver) in drivers_in(ctx, &plugins).await {
            for name in list(ctx, &plugins.join(&directory)).await {
                unmount_device(ctx, shared, &directory, &driver, &name).await?;
            }
        }
        Ok(())
    }

    fn after_removal(&self, shared: &Shared, uid: &PodUid) {
        shared.flex.release(uid);
    }

    async fn find_attached(&self, ctx: &Context) -> Vec<Attached> {
        let root = &ctx.settings.paths.root;
        let found = mounted_devices(ctx).await.into_iter().map(|(driver, volume)| {
            let name = unique_name(&driver, &volume);
            Attached {
                dir: device_mount(root, &driver, &volume),
                permit: name.clone(),
                unique_names: vec![name],
            }
        });
        found.collect()
    }
}

/// Directories that may be of drivers, with the drivers.
async fn drivers_in(ctx: &Context, parent: &Path) -> Vec<(String, String)> {
    let names = list(ctx, parent).await.into_iter().filter(|name| !is_static_plugin(name));
    names.map(|name| (name.clone(), driver_of(&name))).collect()
}

/// A directory that cannot be listed cannot be removed either, so the tear-down is repeated.
async fn list(ctx: &Context, path: &Path) -> Vec<String> {
    ctx.files.list_names(path).await.unwrap_or_default()
}

async fn unmount(
    ctx: &Context,
    shared: &Shared,
    pod_dir: &Path,
    directory: &str,
    driver: &str,
    name: &str,
) -> Result<(), String> {
    let mark_dir = pod_dir.join("plugins").join(directory).join(name);
    if installed(ctx, driver).await.is_none() {
        // What a kubelet before this one left of an unknown type is unmounted by the kernel alone.
        let is_ours = list(ctx, &mark_dir).await.iter().any(|known| known == MARK);
        return match is_ours {
            true => Err(format!("no volume plugin matched name: {driver}")),
            false => Ok(()),
        };
    }
    // Shows which devices the pod used, until everything of the pod is gone.
    ctx.files.ensure_dir(&mark_dir, DIRECTORY_MODE).await.map_err(|error| chain(&error))?;
    let driver = shared.flex.get(ctx, driver).await?;
    driver.unmount(Command::Unmount, &volume_dir(pod_dir, directory, name)).await
}

async fn unmount_device(
    ctx: &Context,
    shared: &Shared,
    directory: &str,
    driver: &str,
    name: &str,
) -> Result<(), String> {
    let target = device_mount(&ctx.settings.paths.root, driver, name);
    let unique_name = unique_name(driver, name);
    let _permit = shared.devices.acquire(&unique_name).await.map_err(|error| chain(&error))?;
    if device::is_used(ctx, directory, name).await.map_err(|error| chain(&error))? {
        return Ok(());
    }
    let is_mounted = ctx.mounts.is_mount_point(&target).await.map_err(|error| chain(&error))?;
    if is_mounted {
        shared.flex.get(ctx, driver).await?.unmount(Command::UnmountDevice, &target).await?;
    } else {
        remove_empty(ctx, &target, None).await.map_err(|error| chain(&error))?;
    }
    attachment::release(shared, &unique_name);
    Ok(())
}
