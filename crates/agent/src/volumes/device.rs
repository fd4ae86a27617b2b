//! Block devices with a filesystem, mounted once for all pods that use them.
//!
//! Owns: whose turn it is at a device, so that it is never formatted twice, nor unmounted while a pod is about to use it.
//! What a device needs before it is mounted is decided in `kubelet_core::volumes::device`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kubelet_core::volumes::device::{
    Content, Step, compute_content, compute_step, evaluate_check, mount_failed,
};
use model::PodUid;
use ports::host::ProgramEnd;
use ports::{Files, HostError};

use super::mount_context::{MakeError, MountContext};
use super::shared::Devices;
use super::{LOCAL_PLUGIN as PLUGIN, program};
use crate::context::Context;
use crate::error_chain::chain;

/// Below the root directory: where devices are mounted, by the names of their PersistentVolumes.
const MOUNTS: &str = "plugins/kubernetes.io/local-volume/mounts";
const DIRECTORY_MODE: u32 = 0o750;
/// To look at a device, or to mount it.
const ANSWER: Duration = Duration::from_secs(120);
/// To format or check one, which takes longer the larger it is.
const LONG_WORK: Duration = Duration::from_secs(3600);

/// What is bound into the pods: a directory, or a device that is to be seen as files.
#[derive(Clone, Copy, Debug)]
pub(super) struct LocalFiles<'a> {
    pub(super) source: &'a Path,
    pub(super) fs_type: &'a str,
    pub(super) options: &'a [String],
    pub(super) read_only: bool,
}

/// Mounts the device at the place that all pods share, formatted before if nothing is on it. Idempotent; whoever calls has
/// the device's turn.
pub(super) async fn stage(
    mount_context: &MountContext<'_>,
    name: &str,
    files: LocalFiles<'_>,
) -> Result<PathBuf, MakeError> {
    let place = mount_context.ctx.settings.paths.root.join(MOUNTS).join(name);
    if mount_context.ctx.mounts.is_mount_point(&place).await? {
        return Ok(place);
    }
    mount_context.ctx.files.ensure_dir(&place, DIRECTORY_MODE).await?;
    let content = look_at(mount_context, files.source).await?;
    let device = files.source.display().to_string();
    match compute_step(&content, files.fs_type, files.read_only, &device).map_err(MakeError::Device)? {
        Step::Format { program: path, args } => {
            let call = program(&path, args, LONG_WORK);
            mount_context
                .unless_leaving(mount_context.ctx.processes.run_program(&call))
                .await
                .map_err(device_failed)?;
        }
        Step::Check => {
            // Without `--`: fsck hands what comes after it to the checker and looks at no device. The path is absolute.
            let call = program("fsck", vec!["-a".to_owned(), device.clone()], LONG_WORK);
            match mount_context.unless_leaving(mount_context.ctx.processes.run_to_end(&call)).await {
                Ok(end) => evaluate_check(end.code, &said(&end), &device).map_err(MakeError::Device)?,
                // A machine without the program mounts unchecked.
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(device_failed(error)),
            }
        }
        Step::Nothing => {}
    }
    mount(mount_context, &content, files, &place).await?;
    Ok(place)
}

async fn look_at(mount_context: &MountContext<'_>, device: &Path) -> Result<Content, MakeError> {
    let args = ["-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export", "--"].map(str::to_owned).into_iter();
    let call = program("blkid", args.chain([device.display().to_string()]).collect(), ANSWER);
    let end = mount_context
        .unless_leaving(mount_context.ctx.processes.run_to_end(&call))
        .await
        .map_err(device_failed)?;
    compute_content(end.code, &said(&end), &end.complaint).map_err(MakeError::Device)
}

async fn mount(
    mount_context: &MountContext<'_>,
    content: &Content,
    files: LocalFiles<'_>,
    place: &Path,
) -> Result<(), MakeError> {
    let access = if files.read_only { "ro" } else { "defaults" };
    let options: Vec<&str> = [access].into_iter().chain(files.options.iter().map(String::as_str)).collect();
    let texts = ["-t", files.fs_type, "-o", &options.join(","), "--"].map(str::to_owned).into_iter();
    let places = [files.source, place].map(|path| path.display().to_string());
    let call = program("mount", texts.chain(places).collect(), ANSWER);
    let mounted = mount_context.unless_leaving(mount_context.ctx.processes.run_program(&call)).await;
    mounted.map(drop).map_err(|error| match error {
        HostError::GivenUp(_) => error.into(),
        HostError::Io { .. } | HostError::Invalid(_) => {
            MakeError::Device(mount_failed(content, files.fs_type, &chain(&error)))
        }
    })
}

fn device_failed(error: HostError) -> MakeError {
    match error {
        HostError::GivenUp(_) => error.into(),
        HostError::Io { .. } | HostError::Invalid(_) => MakeError::Device(chain(&error)),
    }
}

fn said(end: &ProgramEnd) -> String {
    String::from_utf8_lossy(&end.output).into_owned()
}

/// The devices that the pod uses, as the disk tells.
pub(super) async fn used_by(files: &dyn Files, pod_dir: &Path) -> Vec<String> {
    // What cannot be listed is not removed either, and so is looked at again.
    files.list_names(&pod_dir.join("volumes").join(PLUGIN)).await.unwrap_or_default()
}

/// Unmounts those of the devices that no pod uses any more.
pub(super) async fn release(ctx: &Context, devices: &Devices, names: &[String]) -> Result<(), HostError> {
    for name in names {
        let place = ctx.settings.paths.root.join(MOUNTS).join(name);
        let _turn = devices.turn(name).await?;
        if ctx.mounts.is_mount_point(&place).await? {
            if is_used(ctx, name).await? {
                continue;
            }
            ctx.mounts.unmount_tree(&place).await?;
        }
        ctx.files.remove_tree(&place).await?;
    }
    Ok(())
}

/// Some pod has the PersistentVolume mounted.
pub(super) async fn is_used(ctx: &Context, name: &str) -> Result<bool, HostError> {
    let paths = &ctx.settings.paths;
    for uid in ctx.files.list_names(&paths.pods()).await? {
        let place = paths.pod(&PodUid::from(uid)).join("volumes").join(PLUGIN).join(name);
        if ctx.mounts.is_mount_point(&place).await? {
            return Ok(true);
        }
    }
    Ok(false)
}
