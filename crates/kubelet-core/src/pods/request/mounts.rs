//! The mounts of a container (docs/behaviour/volumes.md). Never mounts anything: the paths on the host are inputs, ready to
//! be bound.

use std::collections::BTreeMap;

use model::containers::ContainerRef;
use model::env_value::EnvValue;
use model::k8s::VolumeMount;
use model::request::{Device, Mount, MountedImage, Propagation};
use volumes_core::has_sub_path;

use super::{ConfigError, PodFacts};
use crate::pods::env::{expand_sub_path, values_by_name};

/// A volume of the pod, mounted on the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeMountPoint {
    pub host_path: String,
    /// The volume itself is read-only, whatever the container requests.
    pub read_only: bool,
    /// The volume belongs to this pod alone and may be relabeled for SELinux.
    pub selinux_relabel: bool,
    /// The volume is a block device without files.
    pub is_device: bool,
    /// The image of an image volume; then there is no path.
    pub image: Option<MountedImage>,
}

/// Host paths for one container.
#[derive(Clone, Copy, Debug)]
pub struct HostPaths<'a> {
    /// By the name of the volume.
    pub volumes: &'a BTreeMap<String, VolumeMountPoint>,
    /// By index in the container's `volumeMounts`: where a `subPath` or `subPathExpr` is bound, or its path in an image.
    pub sub_paths: &'a BTreeMap<usize, String>,
    /// The file that is mounted at the container's `terminationMessagePath`.
    pub termination_log: Option<&'a str>,
    /// SELinux labels are supported.
    pub selinux_enabled: bool,
}

const HOSTS_FILE: &str = "/etc/hosts";

/// Volumes in the order of the spec, then `/etc/hosts`, then the termination log.
///
/// # Errors
/// A volume or a sub-path has no path on the host, or a mount option is not supported.
pub fn container_mounts(
    container: &ContainerRef<'_>,
    host: HostPaths<'_>,
    facts: &PodFacts,
) -> Result<Vec<Mount>, ConfigError> {
    let mut mounts = Vec::new();
    for (index, mount) in container.volume_mounts().iter().enumerate() {
        mounts.push(volume_mount(container, index, mount, host, facts)?);
    }
    let has_own_hosts_file = mounts.iter().any(|mount| mount.container_path == HOSTS_FILE);
    if let Some(host_path) = facts.hosts_file.as_ref().filter(|_| !has_own_hosts_file) {
        mounts.push(kubelet_file(host_path, HOSTS_FILE, host.selinux_enabled));
    }
    let path = container.termination_message_path();
    if let Some(host_path) = host.termination_log.filter(|_| !path.is_empty()) {
        mounts.push(kubelet_file(host_path, &absolute(path), host.selinux_enabled));
    }
    Ok(mounts)
}

/// The block devices of the container that exist.
#[must_use]
pub fn container_devices(
    container: &ContainerRef<'_>,
    volumes: &BTreeMap<String, VolumeMountPoint>,
) -> Vec<Device> {
    let devices = container.volume_devices().iter().filter_map(|device| {
        let point = volumes.get(&device.name).filter(|point| point.is_device)?;
        Some(Device {
            container_path: device.device_path.clone(),
            host_path: point.host_path.clone(),
            permissions: if point.read_only { "mr" } else { "mrw" }.to_owned(),
        })
    });
    devices.collect()
}

fn kubelet_file(host_path: &str, container_path: &str, selinux_relabel: bool) -> Mount {
    Mount {
        container_path: container_path.to_owned(),
        host_path: host_path.to_owned(),
        selinux_relabel,
        ..Mount::default()
    }
}

fn volume_mount(
    container: &ContainerRef<'_>,
    index: usize,
    mount: &VolumeMount,
    host: HostPaths<'_>,
    facts: &PodFacts,
) -> Result<Mount, ConfigError> {
    let (volume, container) = (mount.name.clone(), container.name().to_owned());
    let Some(point) = host.volumes.get(&mount.name) else {
        return Err(ConfigError::NoVolume { volume, container });
    };
    let host_path = match (has_sub_path(mount), host.sub_paths.get(&index)) {
        (false, _) => &point.host_path,
        (true, Some(bound)) => bound,
        (true, None) => return Err(ConfigError::NoSubPath { volume, container }),
    };
    // The runtime finds the sub-path of an image, which is nowhere on the node.
    let (host_path, image_sub_path) = match (&point.image, has_sub_path(mount)) {
        (None, _) => (host_path.clone(), String::new()),
        (Some(_), true) => (String::new(), host_path.clone()),
        (Some(_), false) => (String::new(), String::new()),
    };
    Ok(Mount {
        container_path: absolute(&mount.mount_path),
        host_path,
        image: point.image.clone(),
        image_sub_path,
        read_only: mount.read_only.unwrap_or(false) || point.read_only || point.image.is_some(),
        recursive_read_only: recursive_read_only(mount, facts)?,
        selinux_relabel: point.selinux_relabel && host.selinux_enabled,
        propagation: propagation(mount)?,
    })
}

/// A sub-path of a volume that must be bound on the host before the container is created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubPath {
    /// Index in the container's `volumeMounts`.
    pub index: usize,
    pub volume: String,
    /// Relative to the volume, without `..`.
    pub path: String,
}

/// The sub-paths a container mounts, with variables expanded.
///
/// # Errors
/// A variable has no value, or the path leads out of its volume.
pub fn compute_sub_paths(
    container: &ContainerRef<'_>,
    env: &[(String, EnvValue)],
) -> Result<Vec<SubPath>, ConfigError> {
    let values = values_by_name(env);
    let with_sub_path = container.volume_mounts().iter().enumerate().filter(|(_, mount)| has_sub_path(mount));
    with_sub_path
        .map(|(index, mount)| {
            let refused = |problem: String| ConfigError::SubPath { volume: mount.name.clone(), problem };
            let path = match mount.sub_path_expr.as_deref().filter(|expression| !expression.is_empty()) {
                Some(expression) => {
                    expand_sub_path(expression, &values).map_err(|e| refused(e.to_string()))?
                }
                None => mount.sub_path.clone().unwrap_or_default(),
            };
            if path.starts_with('/') {
                return Err(refused(format!("{path:?} must not be an absolute path")));
            }
            if path.split('/').any(|part| part == "..") {
                return Err(refused(format!("{path:?} must not contain '..'")));
            }
            Ok(SubPath { index, volume: mount.name.clone(), path })
        })
        .collect()
}

fn absolute(path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("/{path}") }
}

fn propagation(mount: &VolumeMount) -> Result<Propagation, ConfigError> {
    match mount.mount_propagation.as_deref() {
        None | Some("" | "None") => Ok(Propagation::Private),
        Some("HostToContainer") => Ok(Propagation::HostToContainer),
        Some("Bidirectional") => Ok(Propagation::Bidirectional),
        Some(other) => Err(ConfigError::Propagation { volume: mount.name.clone(), value: other.to_owned() }),
    }
}

fn recursive_read_only(mount: &VolumeMount, facts: &PodFacts) -> Result<bool, ConfigError> {
    let must = match mount.recursive_read_only.as_deref() {
        None | Some("" | "Disabled") => return Ok(false),
        Some("IfPossible") => false,
        Some("Enabled") => true,
        Some(_) => return Err(refused(mount, "there is no such mode")),
    };
    if !mount.read_only.unwrap_or(false) {
        return Err(refused(mount, "it is not read-only"));
    }
    if propagation(mount)? != Propagation::Private {
        return Err(refused(mount, "its mount propagation is not None"));
    }
    if must && !facts.recursive_read_only {
        return Err(refused(mount, "it is not supported by the runtime"));
    }
    Ok(facts.recursive_read_only)
}

fn refused(mount: &VolumeMount, problem: &'static str) -> ConfigError {
    ConfigError::RecursiveReadOnly { volume: mount.name.clone(), problem }
}
