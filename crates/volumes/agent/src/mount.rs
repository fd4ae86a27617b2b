//! Sets up one volume: plans it, lets the mounter of its type work, and reports failures as events.

use std::path::{Path, PathBuf};

use api_agent::objects::PodObjects;
use base_agent::context::Context;
use base_agent::error_chain::chain;
use base_agent::events::PersistentVolumeRef;
use base_agent::settings::Paths;
use base_core::downward::DownwardFacts;
use model::k8s::{Pod, Volume};
use model::{MonoTime, PodRef};
use ports::Files;
use tokio_util::sync::CancellationToken;
use volumes_core::bound_volume;
use volumes_core::engine::{Attempt, ReadyVolume};
use volumes_core::plan::{Claimed, SpecPlan, claimed_plan, spec_plan};
use volumes_core::types::{VolumeType, type_in, volume_dir};

use super::claims::{self, BoundClaim, ClaimError};
use super::indexed_pod::IndexedPod;
use super::mount_context::{LONGEST_NAME, MARK, MountContext, MountError};
use super::mounters::{Mounter, Steps, mounter};
use super::shared::Shared;
use crate::metrics::VolumeMetrics;

/// An event about a volume.
#[derive(Debug)]
pub(crate) struct Failure {
    pub reason: &'static str,
    pub message: String,
}

/// How the attempt ended.
#[derive(Debug)]
pub(super) struct MountOutcome {
    pub attempt: Attempt,
    pub failure: Option<Failure>,
}

impl MountOutcome {
    pub(crate) fn panicked() -> Self {
        Self { attempt: Attempt::Failed, failure: None }
    }

    /// The pod's worker reports it, in one message for all such volumes of the pod.
    fn refused(why: String) -> Self {
        Self { attempt: Attempt::Refused(why), failure: None }
    }
}

/// The volume to mount.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    pub pod: &'a IndexedPod,
    pub objects: &'a PodObjects,
    pub volume: &'a str,
    /// An attempt was cancelled before its end: what it may have mounted is removed first.
    pub is_uncertain: bool,
    pub(super) requested_at: MonoTime,
}

/// Sets up the volume of that name, or finds that it is ready. Idempotent.
pub(crate) async fn mount(
    ctx: &Context,
    wanted: Wanted<'_>,
    shared: &Shared,
    terminating: &CancellationToken,
) -> MountOutcome {
    let Wanted { pod, objects, volume, is_uncertain, requested_at } = wanted;
    let planning_began = ctx.clock.mono();
    let (Claimed { plan, gid, node_affinity }, claim) = match Box::pin(plan(shared, pod, volume)).await {
        Ok(planned) => planned,
        Err(why) => return MountOutcome::refused(why),
    };
    let allocatable = shared.allocatable.get();
    let mount_context = MountContext {
        ctx,
        pod,
        volume,
        plan: &plan,
        claim: claim.as_deref(),
        node_affinity: node_affinity.as_deref(),
        objects,
        facts: DownwardFacts {
            container: "",
            pod_ips: &[],
            host_ips: ctx.host_ips(),
            allocatable: &allocatable,
        },
        now: ctx.clock.now().wall,
        shared,
        terminating,
    };
    let mounter = mounter(&plan.source);
    let mounted = match mounter.find(&mount_context).await {
        Some(found) => found,
        None => measured(&mount_context, mounter, planning_began, requested_at, is_uncertain).await,
    };
    let mounted = mounted.map(|ready| ReadyVolume {
        gid,
        read_only: plan.read_only,
        relabel: plan.is_relabelled && ready.relabel,
        ..ready
    });
    outcome(&plan.name, mounter.steps(), mounted)
}

/// Mounts the volume, and counts how long that took.
async fn measured(
    mount_context: &MountContext<'_>,
    mounter: &dyn Mounter,
    planning_began: MonoTime,
    requested_at: MonoTime,
    is_uncertain: bool,
) -> Result<ReadyVolume, MountError> {
    let MountContext { ctx, plan, .. } = mount_context;
    let (clock, metrics) = (ctx.clock, ctx.metrics.get::<VolumeMetrics>());
    let began = clock.mono();
    let name = plan.qualified_plugin_name();
    let is_migrated = plan.is_migrated();
    // What waits for its attachment does so while it is mounted.
    let took = began.saturating_since(planning_began);
    metrics.operated("verify_controller_attached_volume", &name, is_migrated, true, took);
    let mounted = recreate(mount_context, mounter, is_uncertain).await;
    let ended = clock.mono();
    let took = ended.saturating_since(began);
    metrics.operated(mounter.steps().operation, &name, is_migrated, mounted.is_ok(), took);
    if mounted.is_ok() {
        metrics.mounted(&name, ended.saturating_since(requested_at));
    }
    mounted
}

async fn plan(
    shared: &Shared,
    pod: &IndexedPod,
    volume: &str,
) -> Result<(Claimed, Option<Box<BoundClaim>>), String> {
    let volume = pod.volume(volume)?;
    let wanted = match spec_plan(pod.planned(), volume)? {
        SpecPlan::Volume(plan) => return Ok((Claimed { plan, gid: None, node_affinity: None }, None)),
        SpecPlan::Claim(wanted) => wanted,
    };
    let namespace = &pod.identity().namespace;
    let failed = |error: String| format!("error processing PVC {namespace}/{}: {error}", wanted.name);
    let claim = claims::claim(shared.cluster.as_ref(), namespace, &wanted.name).await;
    let claim = claim.map_err(|error: ClaimError| failed(error.to_string()))?;
    let bound = bound_volume(pod.get(), &wanted, &claim).map_err(failed)?;
    let persistent_volume = claims::persistent_volume(shared.cluster.as_ref(), bound).await;
    let persistent_volume = persistent_volume.map_err(|error| failed(error.to_string()))?;
    let planned = claimed_plan(pod.index(), volume, &wanted, &claim, &persistent_volume);
    let planned = planned.map_err(failed)?;
    let volume = PersistentVolumeRef::of(&persistent_volume);
    let spec = persistent_volume.spec;
    let capacity = spec.and_then(|spec| spec.capacity?.get("storage").cloned());
    Ok((planned, Some(Box::new(BoundClaim { claim, volume, capacity }))))
}

/// Removes first what an attempt that timed out may have mounted meanwhile.
async fn recreate(
    mount_context: &MountContext<'_>,
    mounter: &dyn Mounter,
    is_uncertain: bool,
) -> Result<ReadyVolume, MountError> {
    mount_context.check_node().await?;
    if is_uncertain {
        let cleared = mounter.tear_down(mount_context).await;
        cleared.map_err(|error| MountError::Unknown(chain(&error)))?;
    }
    mounter.set_up(mount_context).await
}

fn outcome(name: &str, steps: &Steps, mounted: Result<ReadyVolume, MountError>) -> MountOutcome {
    let failure = |step: &str, why: String| {
        let message = format!("{step} failed for volume {name:?} : {why}");
        Some(Failure { reason: steps.reason, message })
    };
    let (attempt, failure) = match mounted {
        Ok(ready) => (Attempt::Ready(ready), None),
        Err(MountError::Failed(why)) => (Attempt::Failed, failure(steps.set_up, why)),
        Err(MountError::Unknown(why)) => (Attempt::Unknown, failure(steps.set_up, why)),
        Err(MountError::Attach(why)) => (Attempt::Failed, failure(steps.wait_for_attach, why)),
        Err(MountError::AttachByKubelet(why)) => {
            let message = format!("AttachVolume.Attach failed for volume {name:?} : {why}");
            (Attempt::Failed, Some(Failure { reason: "FailedAttachVolume", message }))
        }
        Err(MountError::Device(why)) => (Attempt::Failed, failure("MountVolume.MountDevice", why)),
        Err(MountError::DeviceUnknown(why)) => (Attempt::Unknown, failure("MountVolume.MountDevice", why)),
        Err(MountError::Map { step, why }) => (Attempt::Failed, failure(step, why)),
        Err(MountError::Expansion(why)) => {
            let message = format!("{} for volume {name:?} : {why}", steps.expansion);
            (Attempt::Failed, Some(Failure { reason: steps.reason, message }))
        }
        Err(MountError::Refused(why)) => return MountOutcome::refused(why),
        Err(MountError::OtherNodes(why)) => {
            let message = format!("{} failed for volume {name:?} : {why}", steps.node_check);
            // Of devices, too.
            (Attempt::Failed, Some(Failure { reason: "FailedMount", message }))
        }
        Err(MountError::NoPlugin(why)) => return MountOutcome::refused(why),
        Err(MountError::Invalid(why)) => {
            (Attempt::Failed, failure(&format!("{} initialization", steps.initialization), why))
        }
    };
    MountOutcome { attempt, failure }
}

/// Where the volume is, if that is in the pod's directory. One with a claim is found by the mark that it got when it was set
/// up.
pub async fn path_of(files: &dyn Files, paths: &Paths, pod: &Pod, volume: &Volume) -> Option<PathBuf> {
    let directory = paths.pod(&PodRef::of(pod).uid);
    match spec_plan(pod, volume).ok()? {
        SpecPlan::Volume(plan) => plan.volume_type.is_in_pod_dir().then(|| {
            let volume_dir = volume_dir(&directory, &plan.plugin_dir(), &plan.name);
            shown_path(volume_dir, plan.volume_type)
        }),
        SpecPlan::Claim(_) => path_of_claimed(files, &directory, &volume.name).await,
    }
}

/// What containers see of a volume in the pod's directory.
fn shown_path(volume_dir: PathBuf, volume_type: &dyn VolumeType) -> PathBuf {
    match volume_type.path_in_volume_dir() {
        "" => volume_dir,
        inside => volume_dir.join(inside),
    }
}

async fn path_of_claimed(files: &dyn Files, directory: &Path, volume: &str) -> Option<PathBuf> {
    let plugins = directory.join("plugins");
    for plugin_dir in files.list_names(&plugins).await.unwrap_or_default() {
        let volume_type = type_in(&plugin_dir);
        let marks = plugins.join(&plugin_dir);
        for name in files.list_names(&marks).await.unwrap_or_default() {
            let mark = files.read_file(&marks.join(&name).join(MARK), LONGEST_NAME, false).await;
            let is_marked =
                volume_type.marks_claimed_volumes() && mark.is_ok_and(|mark| mark == volume.as_bytes());
            if is_marked {
                return Some(shown_path(volume_dir(directory, &plugin_dir, &name), volume_type));
            }
        }
    }
    None
}
