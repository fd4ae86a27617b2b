//! Exports of NFS servers, mounted by the machine's own `mount`, which finds `mount.nfs`.

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use base_agent::error_chain::chain;
use ports::HostError;
use ports::host::ProgramCall;
use volumes_core::engine::ReadyVolume;
use volumes_core::types::NfsPlan;

use super::super::mount_context::{MountContext, MountError};
use super::super::program;
use super::Mounter;

/// How long a server may take to answer.
const DEADLINE: Duration = Duration::from_secs(120);
const DIRECTORY_MODE: u32 = 0o750;

#[async_trait]
impl Mounter for NfsPlan {
    async fn set_up(&self, mount_context: &MountContext<'_>) -> Result<ReadyVolume, MountError> {
        let path = mount_context.volume_dir();
        if mount_context.ctx.mounts.is_mount_point(&path).await? {
            return Ok(ReadyVolume::at(path));
        }
        mount_context.ctx.files.ensure_dir(&path, DIRECTORY_MODE).await?;
        mount_context.mark().await?;
        let mounter = &mount_context.ctx.settings.flags.experimental_mounter_path;
        let call = mount_call(mounter, arguments(&self.export, &self.options, &path));
        let mounted = mount_context.unless_leaving(mount_context.ctx.processes.run_program(&call)).await;
        mounted.map_err(|error| mount_failed(error, &call))?;
        Ok(ReadyVolume::at(path))
    }

    async fn tear_down(&self, mount_context: &MountContext<'_>) -> Result<(), HostError> {
        mount_context.ctx.mounts.unmount_tree(&mount_context.volume_dir()).await
    }
}

/// `mount`, or the program that runs it where the machine itself has no helper for this filesystem (`--experimental-mounter-path`).
fn mount_call(mounter: &str, args: Vec<String>) -> ProgramCall {
    if mounter.is_empty() {
        return program("mount", args, DEADLINE);
    }
    let args = ["mount".to_owned()].into_iter().chain(args).collect();
    program(mounter, args, DEADLINE)
}

fn mount_failed(error: HostError, call: &ProgramCall) -> MountError {
    let (why, arguments) = (chain(&error), call.args.join(" "));
    let command = call.path.display();
    let text = format!(
        "mount failed: {why}
Mounting command: {command}
Mounting arguments: {arguments}"
    );
    match error {
        // Its server may answer any moment.
        HostError::NotFinished(_) => MountError::Unknown(text),
        HostError::Io { .. } | HostError::Invalid(_) => MountError::Failed(text),
    }
}

fn arguments(export: &str, options: &[String], path: &Path) -> Vec<String> {
    let mut args = vec!["-t".to_owned(), "nfs".to_owned()];
    if !options.is_empty() {
        args.extend(["-o".to_owned(), options.join(",")]);
    }
    args.extend(["--".to_owned(), export.to_owned(), path.display().to_string()]);
    args
}
