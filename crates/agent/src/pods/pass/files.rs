//! Files of a container: hosts file, termination log, log directory and symlink, bind mounts of subPaths.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use api_core::env_objects::EnvFile;
use base_agent::error_chain::chain;
use kubelet_core::pods::env::{LONGEST_ENV_FILE, MAX_ENV_FILES_TOTAL, required_env_files};
use kubelet_core::pods::hostname::compute_hostname;
use kubelet_core::pods::hosts_file::{host_network_hosts_file, pod_hosts_file};
use kubelet_core::pods::request::mounts::{SubPath, compute_sub_paths};
use logs_core::log_paths;
use model::ContainerId;
use model::containers::{ContainerRef, spec_of};
use model::env_value::EnvValue;
use model::k8s::Pod;
use model::request::{MountedImage, SandboxRequest};
use ports::HostError;
use volumes_agent::{ReadyVolumes, ensure_sub_path};

use super::PassContext;
use base_agent::pod_files::{hosts_file_path, termination_log_path};

/// Writes the pod's `/etc/hosts` once; `None` if the container mounts its own or the pod has no address.
pub async fn ensure_hosts_file(
    context: &PassContext,
    container: &ContainerRef<'_>,
    ips: &[IpAddr],
) -> Result<Option<String>, String> {
    let brings_its_own = container.volume_mounts().iter().any(|m| m.mount_path == "/etc/hosts");
    if brings_its_own || ips.is_empty() {
        return Ok(None);
    }
    let handles = &context.handles;
    let path = hosts_file_path(&handles.ctx.settings.paths.pod(&context.identity.uid));
    let pod = &*context.pod;
    let text = if uses_host_network(pod) {
        let node_file = handles.ctx.files.read_text(Path::new("/etc/hosts")).await.map_err(|e| chain(&e))?;
        host_network_hosts_file(pod, &node_file)
    } else {
        let facts = &handles.ctx.node_facts;
        let hostname =
            compute_hostname(pod, &facts.config.cluster_domain, facts.features).map_err(|e| e.to_string())?;
        pod_hosts_file(pod, &hostname, ips)
    };
    // Written in place, as in the Go kubelet: the mounts of running containers follow the inode. A replaced file could be
    // filled without being counted.
    let is_there =
        handles.ctx.files.read_file(&path, 1 << 20, false).await.is_ok_and(|old| old == text.as_bytes());
    if !is_there {
        handles.ctx.files.rewrite_file(&path, text.as_bytes(), 0o644).await.map_err(|e| chain(&e))?;
    }
    Ok(Some(path.display().to_string()))
}

pub async fn ensure_termination_log(
    context: &PassContext,
    container: &ContainerRef<'_>,
    restart_count: u32,
) -> Result<Option<String>, String> {
    if container.termination_message_path().is_empty() {
        return Ok(None);
    }
    let handles = &context.handles;
    let dir = handles.ctx.settings.paths.pod(&context.identity.uid);
    let path = termination_log_path(&dir, container.name(), restart_count);
    handles.ctx.files.write_file(&path, b"", 0o666).await.map_err(|e| chain(&e))?;
    Ok(Some(path.display().to_string()))
}

/// Bind-mounts every subPath of the container to its own path; returns them by position. A subPath of an image volume is a
/// path in the image.
pub async fn ensure_sub_paths(
    context: &PassContext,
    container: &ContainerRef<'_>,
    env: &[(String, EnvValue)],
    volumes: &ReadyVolumes,
    shown: &BTreeMap<String, MountedImage>,
) -> Result<BTreeMap<usize, String>, String> {
    let mut bound = BTreeMap::new();
    let pod_dir = context.handles.ctx.settings.paths.pod(&context.identity.uid);
    for SubPath { index, path, .. } in compute_sub_paths(container, env).map_err(|error| error.to_string())? {
        let Some(mount) = container.volume_mounts().get(index) else { continue };
        // The runtime resolves a subPath of an image itself.
        if shown.contains_key(&mount.name) {
            bound.insert(index, path);
            continue;
        }
        let Some(volume) = volumes.get(&*mount.name).map(|ready| &*ready.path) else { continue };
        let mounts = &*context.handles.ctx.mounts;
        let target = ensure_sub_path(mounts, &pod_dir, container.name(), index, mount, volume, &path).await;
        let target = target.map_err(|error| error.to_string())?;
        bound.insert(index, target.display().to_string());
    }
    Ok(bound)
}

/// The files that the container takes variables from, if they exist; `None` if the feature is off.
pub async fn read_env_files(
    context: &PassContext,
    container: &ContainerRef<'_>,
    volumes: &ReadyVolumes,
) -> Result<Option<BTreeMap<EnvFile, String>>, String> {
    if !context.handles.ctx.node_facts.features.env_files {
        return Ok(None);
    }
    let mut texts = BTreeMap::new();
    let mut total = 0;
    for file in required_env_files(container) {
        let Some(volume) = volumes.get(&*file.volume) else { continue };
        match context.handles.ctx.mounts.read_in_volume(&volume.path, &file.path, LONGEST_ENV_FILE).await {
            Ok(content) => {
                let text = String::from_utf8(content);
                let text = text.map_err(|_| format!("env file {:?} is not UTF-8 text", file.path))?;
                total += text.len();
                if total > MAX_ENV_FILES_TOTAL {
                    return Err(format!("env files are larger than {MAX_ENV_FILES_TOTAL} bytes together"));
                }
                texts.insert(file, text);
            }
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(chain(&error)),
        }
    }
    Ok(Some(texts))
}

/// The directory that the runtime writes the container's log into.
pub async fn ensure_log_dir(
    context: &PassContext,
    sandbox: &SandboxRequest,
    container: &ContainerRef<'_>,
) -> Result<(), String> {
    let dir = Path::new(&sandbox.log_directory).join(container.name());
    context.handles.ctx.files.ensure_dir(&dir, 0o755).await.map_err(|e| chain(&e))
}

/// Creates the legacy symlink to the log for log collectors. Failures are only logged, because the pod does not depend on it.
pub async fn link_log(
    context: &PassContext,
    sandbox: &SandboxRequest,
    container: &str,
    id: &ContainerId,
    restart_count: u32,
) {
    let handles = &context.handles;
    let log = Path::new(&sandbox.log_directory).join(log_paths::container_log(container, restart_count));
    let name = log_paths::container_link_name(&context.identity, container, id.as_str());
    let link = handles.ctx.settings.paths.container_links.join(name);
    if let Err(error) = handles.ctx.files.ensure_symlink(&log, &link).await {
        tracing::warn!(pod = %context.identity, containerName = container, err = chain(&error), "Failed to create legacy log symlink");
    }
}

/// Removes the log of a removed instance, and the symlink to it.
pub async fn remove_log(context: &PassContext, id: &ContainerId) {
    let Some(old) = context.observed.container(id) else { return };
    let links = &context.handles.ctx.settings.paths.container_links;
    let link = links.join(log_paths::container_link_name(&context.identity, &old.name, id.as_str()));
    for path in [PathBuf::from(&old.log_path), link] {
        if path.as_os_str().is_empty() {
            continue;
        }
        if let Err(error) = context.handles.ctx.files.remove_file(&path).await {
            log_leftover(&path, &error);
        }
    }
}

fn log_leftover(path: &Path, error: &HostError) {
    tracing::warn!(path = %path.display(), err = chain(error), "Failed to remove log, garbage collection retries");
}

/// Pods with `hostNetwork` do not wait for the runtime's network.
#[must_use]
pub fn uses_host_network(pod: &Pod) -> bool {
    spec_of(pod).host_network.unwrap_or(false)
}
