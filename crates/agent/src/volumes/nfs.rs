//! Exports of NFS servers, mounted by the machine's own `mount`, which finds `mount.nfs`.

use std::path::Path;
use std::time::Duration;

use kubelet_core::volumes::engine::ReadyVolume;
use ports::HostError;

use super::mount_context::{MakeError, MountContext};
use super::program;
use crate::error_chain::chain;

pub(super) const PLUGIN: &str = "kubernetes.io~nfs";
/// A server that does not answer is given up.
const DEADLINE: Duration = Duration::from_secs(120);
const DIRECTORY_MODE: u32 = 0o750;

pub(super) async fn mount(
    mount_context: &MountContext<'_>,
    (name, export): (&str, &str),
    options: &[String],
    read_only: bool,
) -> Result<ReadyVolume, MakeError> {
    let path = mount_context.pod_dir().join("volumes").join(PLUGIN).join(name);
    let ready = ReadyVolume { read_only, ..ReadyVolume::at(path.clone()) };
    if mount_context.ctx.mounts.is_mount_point(&path).await? {
        return Ok(ready);
    }
    mount_context.ctx.files.ensure_dir(&path, DIRECTORY_MODE).await?;
    mount_context.mark(PLUGIN, name).await?;
    let call = program("mount", arguments(export, options, &path), DEADLINE);
    let mounted = mount_context.unless_leaving(mount_context.ctx.processes.run_program(&call)).await;
    mounted.map_err(|error| {
        let (why, arguments) = (chain(&error), call.args.join(" "));
        let text = format!("mount failed: {why}\nMounting command: mount\nMounting arguments: {arguments}");
        match error {
            // Its server may answer any moment.
            HostError::GivenUp(_) => MakeError::GivenUp(text),
            HostError::Io { .. } | HostError::Invalid(_) => MakeError::Failed(text),
        }
    })?;
    Ok(ready)
}

fn arguments(export: &str, options: &[String], path: &Path) -> Vec<String> {
    let mut args = vec!["-t".to_owned(), "nfs".to_owned()];
    if !options.is_empty() {
        args.extend(["-o".to_owned(), options.join(",")]);
    }
    args.extend(["--".to_owned(), export.to_owned(), path.display().to_string()]);
    args
}
