//! Making one volume: what it is, which type makes it, and what is said where that fails.

use std::path::{Path, PathBuf};

use kubelet_core::downward::DownwardFacts;
use kubelet_core::volumes::bound_volume;
use kubelet_core::volumes::engine::{Attempt, ReadyVolume};
use kubelet_core::volumes::plan::{Claimed, Meaning, Shown, VolumePlan, claimed_plan, meaning, plugin_dir};
use model::containers::spec_of;
use model::k8s::{Pod, Volume};
use model::{MonoTime, PodRef};
use ports::{Files, HostError};
use tokio_util::sync::CancellationToken;

use super::claims::{self, ClaimError};
use super::device::LocalFiles;
use super::mount_context::{LONGEST_NAME, MARK, MakeError, MountContext};
use super::shared::Shared;
use super::{LOCAL_PLUGIN, VolumeOrder, device, empty_dir, host_path, local, nfs, payload};
use crate::context::Context;
use crate::error_chain::chain;
use crate::settings::Paths;

/// An event about a volume.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// How the attempt ended.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) attempt: Attempt,
    pub(super) failure: Option<Failure>,
}

impl Made {
    pub(super) fn panicked() -> Self {
        Self { attempt: Attempt::Failed, failure: None }
    }

    /// Whoever waits says it, in words for all such volumes of the pod.
    fn refused(why: String) -> Self {
        Self { attempt: Attempt::Refused(why), failure: None }
    }
}

/// What is to be made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    pub(super) order: &'a VolumeOrder,
    pub(super) volume: &'a str,
    /// An attempt was given up before its end: what it may have mounted goes first.
    pub(super) is_uncertain: bool,
    pub(super) requested_at: MonoTime,
}

/// Makes the volume of that name, or sees that it is as it should be. Idempotent.
pub(super) async fn make(
    ctx: &Context,
    wanted: Wanted<'_>,
    shared: &Shared,
    leaving: &CancellationToken,
) -> Made {
    let Wanted { order, volume: name, is_uncertain, requested_at } = wanted;
    let volumes = spec_of(&order.pod).volumes.as_deref().unwrap_or_default();
    let Some(volume) = volumes.iter().find(|volume| volume.name == name) else {
        return Made::refused(format!("the pod has no volume {name:?}"));
    };
    let asked_at = ctx.clock.mono();
    let Claimed { plan, gid } = match plan(shared, order, volume).await {
        Ok(planned) => planned,
        Err(why) => return Made::refused(why),
    };
    let allocatable = shared.allocatable.get();
    let mount_context = MountContext {
        ctx,
        pod: &order.pod,
        volume,
        objects: &order.objects,
        facts: DownwardFacts {
            container: "",
            pod_ips: &[],
            host_ips: ctx.host_ips(),
            allocatable: &allocatable,
        },
        now: ctx.clock.now().wall,
        shared,
        leaving,
    };
    let began = ctx.clock.mono();
    // With what is to be mounted it is settled that nothing must be attached: no type that we have needs it.
    let (plugin, took) = (plugin_of(&mount_context, &plan), began.saturating_since(asked_at));
    ctx.metrics.volumes.operated("verify_controller_attached_volume", plugin, true, took);
    let made = recreate(&mount_context, &plan, is_uncertain).await;
    let made = made.map(|ready| ReadyVolume { gid, relabel: plan.is_relabelled(), ..ready });
    let ended = ctx.clock.mono();
    ctx.metrics.volumes.operated(act_of(&plan), plugin, made.is_ok(), ended.saturating_since(began));
    if made.is_ok() {
        ctx.metrics.volumes.mounted(plugin, ended.saturating_since(requested_at));
    }
    outcome(&mount_context, &plan, made)
}

async fn plan(shared: &Shared, order: &VolumeOrder, volume: &Volume) -> Result<Claimed, String> {
    let wanted = match meaning(&order.pod, volume)? {
        Meaning::Plan(plan) => return Ok(Claimed { plan, gid: None }),
        Meaning::Claim(wanted) => wanted,
    };
    let namespace = PodRef::of(&order.pod).namespace;
    let failed = |error: String| format!("error processing PVC {namespace}/{}: {error}", wanted.name);
    let claim = claims::claim(shared.cluster.as_ref(), &namespace, &wanted.name).await;
    let claim = claim.map_err(|error: ClaimError| failed(error.to_string()))?;
    let bound = bound_volume(&order.pod, &wanted, &claim).map_err(failed)?;
    let volume_of = claims::persistent_volume(shared.cluster.as_ref(), bound).await;
    let volume_of = volume_of.map_err(|error| failed(error.to_string()))?;
    claimed_plan(&order.pod, (volume, &wanted), &claim, &volume_of).map_err(failed)
}

/// What an attempt that was given up may have mounted meanwhile, nobody has seen whole.
async fn recreate(
    mount_context: &MountContext<'_>,
    plan: &VolumePlan,
    is_uncertain: bool,
) -> Result<ReadyVolume, MakeError> {
    if is_uncertain {
        clear(mount_context, plan).await.map_err(|error| MakeError::GivenUp(chain(&error)))?;
    }
    make_type(mount_context, plan).await
}

/// The pod's own mount first, and then that of the device, unless another pod uses it.
async fn clear(mount_context: &MountContext<'_>, plan: &VolumePlan) -> Result<(), HostError> {
    let Some(place) = mount_point(mount_context, plan) else { return Ok(()) };
    mount_context.ctx.mounts.unmount_tree(&place).await?;
    match plan {
        VolumePlan::Local { volume, .. } => {
            let names = [volume.clone()];
            device::release(mount_context.ctx, &mount_context.shared.devices, &names).await
        }
        VolumePlan::Nfs { .. }
        | VolumePlan::EmptyDir(_)
        | VolumePlan::HostPath { .. }
        | VolumePlan::Payload => Ok(()),
    }
}

/// Where the volume is mounted, if others than this kernel answer for that.
fn mount_point(mount_context: &MountContext<'_>, plan: &VolumePlan) -> Option<PathBuf> {
    let volumes = mount_context.pod_dir().join("volumes");
    match plan {
        VolumePlan::Local { volume, shown: Shown::Files { .. }, .. } => {
            Some(volumes.join(LOCAL_PLUGIN).join(volume))
        }
        VolumePlan::Nfs { name, .. } => Some(volumes.join(nfs::PLUGIN).join(name)),
        VolumePlan::EmptyDir(_)
        | VolumePlan::HostPath { .. }
        | VolumePlan::Payload
        | VolumePlan::Local { shown: Shown::Device, .. } => None,
    }
}

async fn make_type(mount_context: &MountContext<'_>, plan: &VolumePlan) -> Result<ReadyVolume, MakeError> {
    match plan {
        VolumePlan::EmptyDir(medium) => empty_dir::make(mount_context, *medium).await,
        VolumePlan::HostPath { path, kind, read_only, .. } => {
            host_path::make(mount_context, path, kind, *read_only).await
        }
        VolumePlan::Payload => payload::make(mount_context).await,
        VolumePlan::Local { volume, path, shown: Shown::Device, read_only } => {
            local::map(mount_context, volume, path.as_ref(), *read_only).await
        }
        VolumePlan::Local { volume, path, shown: Shown::Files { fs_type, options }, read_only } => {
            let files = LocalFiles { source: path.as_ref(), fs_type, options, read_only: *read_only };
            local::mount(mount_context, volume, files).await
        }
        VolumePlan::Nfs { name, export, options, read_only } => {
            nfs::mount(mount_context, (name, export), options, *read_only).await
        }
    }
}

fn outcome(
    mount_context: &MountContext<'_>,
    plan: &VolumePlan,
    made: Result<ReadyVolume, MakeError>,
) -> Made {
    let (name, is_device) = match plan {
        VolumePlan::Local { volume, shown, .. } => (volume, *shown == Shown::Device),
        VolumePlan::Nfs { name, .. } | VolumePlan::HostPath { name, .. } => (name, false),
        VolumePlan::EmptyDir(_) | VolumePlan::Payload => (&mount_context.volume.name, false),
    };
    let reason = if is_device { "FailedMapVolume" } else { "FailedMount" };
    let step = if is_device { "MapVolume.SetUpDevice failed" } else { "MountVolume.SetUp failed" };
    let failure =
        |step: &str, why: String| Failure { reason, message: format!("{step} for volume {name:?} : {why}") };
    match made {
        Ok(ready) => Made { attempt: Attempt::Ready(ready), failure: None },
        Err(MakeError::Failed(why)) => Made { attempt: Attempt::Failed, failure: Some(failure(step, why)) },
        Err(MakeError::GivenUp(why)) => Made { attempt: Attempt::Unknown, failure: Some(failure(step, why)) },
        Err(MakeError::Device(why)) => {
            let failure = failure("MountVolume.MountDevice failed", why);
            Made { attempt: Attempt::Failed, failure: Some(failure) }
        }
        Err(MakeError::Invalid(why)) => {
            let step = if is_device { "MapVolume.NewBlockVolumeMapper" } else { "MountVolume.NewMounter" };
            let failure = failure(&format!("{step} initialization failed"), why);
            Made { attempt: Attempt::Failed, failure: Some(failure) }
        }
    }
}

/// The name of making such a volume in metrics.
const fn act_of(plan: &VolumePlan) -> &'static str {
    match plan {
        VolumePlan::Local { shown: Shown::Device, .. } => "map_volume",
        VolumePlan::EmptyDir(_)
        | VolumePlan::HostPath { .. }
        | VolumePlan::Payload
        | VolumePlan::Local { shown: Shown::Files { .. }, .. }
        | VolumePlan::Nfs { .. } => "volume_mount",
    }
}

/// The name of the type in metrics: `kubernetes.io/nfs`.
fn plugin_of(mount_context: &MountContext<'_>, plan: &VolumePlan) -> &'static str {
    kubelet_core::volumes::plan::plugin_name(plugin_dir(mount_context.volume, plan))
}

/// Where the volume is, if it lies in the pod's directory. One with a claim is found by the mark that it got when it was
/// made.
pub(crate) async fn path_of(files: &dyn Files, paths: &Paths, pod: &Pod, volume: &Volume) -> Option<PathBuf> {
    let directory = paths.pod(&PodRef::of(pod).uid);
    let plan = match meaning(pod, volume).ok()? {
        Meaning::Plan(VolumePlan::HostPath { .. }) => return None,
        Meaning::Plan(plan) => plan,
        Meaning::Claim(_) => return path_of_claimed(files, &directory, &volume.name).await,
    };
    Some(directory.join("volumes").join(plugin_dir(volume, &plan)).join(&volume.name))
}

async fn path_of_claimed(files: &dyn Files, directory: &Path, volume: &str) -> Option<PathBuf> {
    for plugin in [LOCAL_PLUGIN, nfs::PLUGIN] {
        let marks = directory.join("plugins").join(plugin);
        for name in files.list_names(&marks).await.unwrap_or_default() {
            let mark = files.read_file(&marks.join(&name).join(MARK), LONGEST_NAME, false).await;
            if mark.is_ok_and(|marked| marked == volume.as_bytes()) {
                return Some(directory.join("volumes").join(plugin).join(name));
            }
        }
    }
    None
}
