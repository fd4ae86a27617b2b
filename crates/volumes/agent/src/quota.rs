//! Directories whose size the filesystem counts, by project quotas. The directory itself stores its project, also for the next
//! kubelet; only a lock for choosing one is kept here.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::Ordering;

use base_agent::context::Context;
use base_agent::error_chain::chain;
use model::k8s::{Pod, Volume};
use model::stats::TreeUsage;
use ports::HostError;
use ports::host::HostResult;
use volumes_core::quota::{believable, free_project, is_counted, is_ours};

use super::EMPTY_DIRS;
use super::mount_context::MountContext;
use super::shared::Projects;

/// How many projects are tried for a directory, if each was found to have files already.
const TRIES: usize = 64;

/// Lets the filesystem count the contents of the directory, if that is enabled and supported.
pub(crate) async fn ensure(mount_context: &MountContext<'_>, path: &Path) {
    let features = mount_context.ctx.node_facts.features;
    let pod = mount_context.pod;
    let volume = pod.volume(mount_context.volume);
    let is_counted = volume.is_ok_and(|volume| is_counted(pod.get(), volume, features));
    if !is_counted {
        return;
    }
    let projects = &mount_context.shared.projects;
    match join(mount_context.ctx, projects, path).await {
        Ok(()) => {}
        // A filesystem without quotas is no failure of the volume.
        Err(error) if !projects.is_logged.swap(true, Ordering::Relaxed) => {
            let error = chain(&error);
            tracing::warn!(err = error, "Project quotas are unavailable, measuring volumes by walking them");
        }
        Err(_) => {}
    }
}

async fn join(ctx: &Context, projects: &Projects, path: &Path) -> HostResult<()> {
    let stops = |_| HostError::NotFinished("the kubelet stops".to_owned());
    let _permit = projects.permit.acquire().await.map_err(stops)?;
    // Files that exist already would stay uncounted.
    if is_ours(ctx.mounts.project_of(path).await?) || !ctx.files.list_names(path).await?.is_empty() {
        return Ok(());
    }
    let mut taken = taken(ctx).await?;
    for _ in 0..TRIES {
        let Some(project) = free_project(&taken) else { break };
        // Files outside of pods may have it.
        if ctx.mounts.project_usage(path, project).await?.inodes == 0 {
            return ctx.mounts.set_project(path, project).await;
        }
        taken.insert(project);
    }
    Err(HostError::Invalid("all projects that were tried have files".to_owned()))
}

/// The projects of all volumes on disk.
async fn taken(ctx: &Context) -> HostResult<BTreeSet<u32>> {
    let (paths, mut taken) = (&ctx.settings.paths, BTreeSet::new());
    for uid in ctx.files.list_names(&paths.pods()).await? {
        let volumes = paths.pods().join(uid).join(EMPTY_DIRS);
        for name in ctx.files.list_names(&volumes).await? {
            // A volume that was removed meanwhile has none.
            taken.extend(ctx.mounts.project_of(&volumes.join(name)).await.ok());
        }
    }
    Ok(taken)
}

/// What the filesystem counted in the volume; `None`: the volume has to be walked.
pub async fn counted(ctx: &Context, pod: &Pod, volume: &Volume, path: &Path) -> Option<TreeUsage> {
    if !is_counted(pod, volume, ctx.node_facts.features) {
        return None;
    }
    let project = ctx.mounts.project_of(path).await.ok().filter(|project| is_ours(*project))?;
    ctx.mounts.project_usage(path, project).await.ok().and_then(believable)
}
