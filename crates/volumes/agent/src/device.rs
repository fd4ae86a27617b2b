//! Block devices with a filesystem, mounted once for all pods that use them.
//!
//! Owns: that one task at a time works on a device, so that it is never formatted twice, nor unmounted while a pod is about to
//! use it.
//! What a device needs before it is mounted is decided in `volumes_core::device`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use base_agent::context::Context;
use base_agent::error_chain::chain;
use model::PodUid;
use ports::host::ProgramOutput;
use ports::{Files, HostError};
use volumes_core::device::{
    Content, Step, compute_content, compute_resize, compute_step, evaluate_check, mount_failed,
};
use volumes_core::types::volume_dir;

use super::mount_context::{MountContext, MountError};
use super::permits::Permits;
use super::{LOCAL_PLUGIN as PLUGIN, program};

/// Below the root directory: where devices are mounted, by the names of their PersistentVolumes.
const MOUNTS: &str = "plugins/kubernetes.io/local-volume/mounts";
const DIRECTORY_MODE: u32 = 0o750;
/// To probe a device, or to mount it.
pub(super) const ANSWER: Duration = Duration::from_secs(120);
/// To format or check one, which takes longer the larger it is.
const LONG_WORK: Duration = Duration::from_secs(3600);

/// A device with a filesystem.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceMount<'a> {
    pub device: &'a str,
    /// The filesystem that is made if nothing is on the device.
    pub fs_type: &'a str,
    pub options: &'a [String],
    /// Where it is mounted for all pods.
    pub target: &'a Path,
}

/// Where the device of a local volume is mounted for all pods.
pub(super) fn local_mount(ctx: &Context, name: &str) -> PathBuf {
    ctx.settings.paths.root.join(MOUNTS).join(name)
}

/// Mounts the device on the directory that all pods share, after formatting it if nothing is on it. Idempotent; the caller
/// holds the permit of the device.
pub(crate) async fn stage(
    mount_context: &MountContext<'_>,
    mount: &DeviceMount<'_>,
) -> Result<(), MountError> {
    let DeviceMount { device, fs_type, target, .. } = *mount;
    if mount_context.ctx.mounts.is_mount_point(target).await? {
        return Ok(());
    }
    mount_context.ctx.files.ensure_dir(target, DIRECTORY_MODE).await?;
    let content = probe(mount_context, device).await?;
    let read_only = mount_context.plan.read_only;
    match compute_step(&content, fs_type, read_only, device).map_err(MountError::Device)? {
        Step::Format { program: path, args } => {
            let call = program(&path, args, LONG_WORK);
            mount_context
                .unless_leaving(mount_context.ctx.processes.run_program(&call))
                .await
                .map_err(device_failed)?;
        }
        Step::Check => {
            // Without `--`: fsck passes what follows it to the checker and checks no device. The path is absolute.
            let call = program("fsck", vec!["-a".to_owned(), device.to_owned()], LONG_WORK);
            match mount_context.unless_leaving(mount_context.ctx.processes.run(&call)).await {
                Ok(end) => evaluate_check(end.code, &output_of(&end), device).map_err(MountError::Device)?,
                // A machine without the program mounts unchecked.
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(device_failed(error)),
            }
        }
        Step::Nothing => {}
    }
    run_mount(mount_context, &content, mount).await
}

async fn probe(mount_context: &MountContext<'_>, device: &str) -> Result<Content, MountError> {
    let args = ["-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export", "--"].map(str::to_owned).into_iter();
    let call = program("blkid", args.chain([device.to_owned()]).collect(), ANSWER);
    let end =
        mount_context.unless_leaving(mount_context.ctx.processes.run(&call)).await.map_err(device_failed)?;
    compute_content(end.code, &output_of(&end), &end.stderr).map_err(MountError::Device)
}

/// Makes the filesystem on the device as large as it.
///
/// # Errors
/// The complete text.
pub(crate) async fn resize(
    mount_context: &MountContext<'_>,
    device: &str,
    mount_point: &Path,
) -> Result<(), String> {
    let content = probe(mount_context, device).await.map_err(|error| {
        let (MountError::Device(why) | MountError::Unknown(why)) = error else {
            return format!("ResizeFS.Resize - error checking format for device {device}");
        };
        format!("ResizeFS.Resize - error checking format for device {device}: {why}")
    })?;
    let resize = compute_resize(&content, device, &mount_point.to_string_lossy())?;
    let Some((path, args)) = resize else { return Ok(()) };
    let resized = mount_context.ctx.processes.run_program(&program(path, args, LONG_WORK)).await;
    resized.map(drop).map_err(|error| format!("resize of device {device} failed: {}", chain(&error)))
}

async fn run_mount(
    mount_context: &MountContext<'_>,
    content: &Content,
    mount: &DeviceMount<'_>,
) -> Result<(), MountError> {
    let DeviceMount { device, fs_type, options, target } = *mount;
    let access = if mount_context.plan.read_only { "ro" } else { "defaults" };
    let options: Vec<&str> = [access].into_iter().chain(options.iter().map(String::as_str)).collect();
    let texts = ["-t", fs_type, "-o", &options.join(","), "--"].map(str::to_owned).into_iter();
    let paths = [device.to_owned(), target.display().to_string()];
    let call = program("mount", texts.chain(paths).collect(), ANSWER);
    let mounted = mount_context.unless_leaving(mount_context.ctx.processes.run_program(&call)).await;
    mounted.map(drop).map_err(|error| match error {
        HostError::NotFinished(_) => error.into(),
        HostError::Io { .. } | HostError::Invalid(_) => {
            let failed = mount_failed(content, fs_type, &chain(&error));
            if failed.is_mismatch {
                report_mismatch(mount_context, &failed.message);
            }
            MountError::Device(failed.message)
        }
    })
}

/// Reports it on the PersistentVolume, which is wrong, and not the pod.
fn report_mismatch(mount_context: &MountContext<'_>, why: &str) {
    let Some(volume) = mount_context.claim.map(|claim| &claim.volume) else { return };
    let message = format!("MountVolume failed for volume {:?} {why}", mount_context.plan.name);
    let recorder = &mount_context.ctx.recorder;
    recorder.persistent_volume_warning(volume, "FailedMountOnFilesystemMismatch", message);
}

fn device_failed(error: HostError) -> MountError {
    match error {
        HostError::NotFinished(_) => error.into(),
        HostError::Io { .. } | HostError::Invalid(_) => MountError::Device(chain(&error)),
    }
}

fn output_of(end: &ProgramOutput) -> String {
    String::from_utf8_lossy(&end.output).into_owned()
}

/// The devices that the pod uses, by its directory.
pub(super) async fn used_by(files: &dyn Files, pod_dir: &Path) -> Vec<String> {
    // A directory that cannot be listed cannot be removed either, so the tear-down is repeated.
    files.list_names(&pod_dir.join("volumes").join(PLUGIN)).await.unwrap_or_default()
}

/// Unmounts those devices that no pod uses any more.
pub(crate) async fn release(ctx: &Context, devices: &Permits, names: &[String]) -> Result<(), HostError> {
    for name in names {
        let target = local_mount(ctx, name);
        let _permit = devices.acquire(name).await?;
        if ctx.mounts.is_mount_point(&target).await? {
            if is_used(ctx, PLUGIN, name).await? {
                continue;
            }
            ctx.mounts.unmount_tree(&target).await?;
        }
        ctx.files.remove_tree(&target).await?;
    }
    Ok(())
}

/// Some pod has the volume of that name mounted.
pub(super) async fn is_used(ctx: &Context, plugin_dir: &str, name: &str) -> Result<bool, HostError> {
    let paths = &ctx.settings.paths;
    for uid in ctx.files.list_names(&paths.pods()).await? {
        let target = volume_dir(&paths.pod(&PodUid::from(uid)), plugin_dir, name);
        if ctx.mounts.is_mount_point(&target).await? {
            return Ok(true);
        }
    }
    Ok(false)
}
