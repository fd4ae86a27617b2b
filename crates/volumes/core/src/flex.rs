//! FlexVolume drivers: programs that mount volumes. Owns their names and paths, the arguments they are called with, and what their
//! answers mean (docs/behaviour/volumes.md). Never: running one.

mod answer;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use model::Amount;
use model::containers::spec_of;
use model::k8s::{Pod, Secret};
use model::path_component_problem;

use super::csi::plan::SecretName;
use super::go_json::go_json;
use super::mount_arguments::check_device_path;

pub use answer::{Answer, CallError, Capabilities, parse_answer};

/// The name of the type, and its directory below `plugins` of the kubelet's root directory.
pub const PLUGIN: &str = "kubernetes.io/flexvolume";
/// Below the directory of a driver there: where it mounts devices for all pods.
const MOUNTS: &str = "mounts";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlexPlan {
    /// `vendor/driver`
    pub driver: String,
    pub fs_type: String,
    pub secret: Option<SecretName>,
    pub options: BTreeMap<String, String>,
}

/// What a driver is called for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Command {
    Init,
    GetVolumeName,
    WaitForAttach,
    MountDevice,
    Mount,
    Unmount,
    UnmountDevice,
    ExpandFs,
}

impl Command {
    /// The first argument.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Init => "init",
            Self::GetVolumeName => "getvolumename",
            Self::WaitForAttach => "waitforattach",
            Self::MountDevice => "mountdevice",
            Self::Mount => "mount",
            Self::Unmount => "unmount",
            Self::UnmountDevice => "unmountdevice",
            Self::ExpandFs => "expandfs",
        }
    }
}

/// # Errors
/// The driver's name leads outside the directory of drivers, or to one that is ignored.
pub fn check_driver(driver: &str) -> Result<(), String> {
    let parts = driver.split('/').chain([&*directory_name(driver)]).find_map(path_component_problem);
    match parts {
        Some(problem) => Err(format!("{PLUGIN}: driver name {driver:?} cannot be used: {problem}")),
        None if driver.starts_with('.') => {
            Err(format!("{PLUGIN}: driver name {driver:?} cannot be used: must not begin with '.'"))
        }
        None => Ok(()),
    }
}

/// The driver's name where it is one component of a path: `vendor~driver`.
#[must_use]
pub fn directory_name(driver: &str) -> String {
    driver.replace('/', "~")
}

/// The driver whose volumes are in a directory of that name.
#[must_use]
pub fn driver_of(directory: &str) -> String {
    directory.replace('~', "/")
}

/// The program of the driver, within the directory of the driver.
#[must_use]
pub fn program_name(driver: &str) -> &str {
    driver.rsplit('/').next().unwrap_or(driver)
}

/// Where the driver mounts the device of the volume for all pods.
#[must_use]
pub fn device_mount(root: &Path, driver: &str, volume: &str) -> PathBuf {
    root.join("plugins").join(PLUGIN).join(driver).join(MOUNTS).join(volume)
}

/// The name of a volume that a controller attaches, in `volumesInUse` and `volumesAttached` of the node.
#[must_use]
pub fn unique_name(driver: &str, volume: &str) -> String {
    format!("{driver}/{volume}")
}

/// The volume as the driver sees it, as one argument. Options of the volume replace none of the kubelet's: a driver mounts for the pod that
/// they name. The API server refuses such options, and a manifest of a static pod is not refused.
#[must_use]
pub fn options(plan: &FlexPlan, name: &str, read_only: bool, extra: BTreeMap<String, String>) -> String {
    let mut options = plan.options.clone();
    options.retain(|key, _| !key.starts_with("kubernetes.io/"));
    options.extend([
        ("kubernetes.io/fsType".to_owned(), plan.fs_type.clone()),
        ("kubernetes.io/readwrite".to_owned(), if read_only { "ro" } else { "rw" }.to_owned()),
        ("kubernetes.io/pvOrVolumeName".to_owned(), name.to_owned()),
    ]);
    options.extend(extra);
    go_json(&options)
}

/// # Errors
/// The kubelet cannot pass this device to programs of the node.
pub fn check_device(device: &str) -> Result<(), String> {
    check_device_path(device)
}

/// Arguments of `expandfs`: the volume as the driver sees it, its device and mount, and sizes in bytes.
#[must_use]
pub fn expand_args(
    options: &str,
    device: &str,
    target: &Path,
    size: Amount,
    old_size: Amount,
) -> Vec<String> {
    let sizes = [size, old_size].map(|size| size.units().to_string());
    [options.to_owned(), device.to_owned(), target.display().to_string()].into_iter().chain(sizes).collect()
}

/// What `mount` says about the pod in addition.
#[must_use]
pub fn pod_options(pod: &Pod, group: Option<u32>) -> BTreeMap<String, String> {
    let text = |text: Option<&String>| text.cloned().unwrap_or_default();
    let account = spec_of(pod).service_account_name.as_ref();
    let mut options = BTreeMap::from([
        ("kubernetes.io/pod.name".to_owned(), text(pod.metadata.name.as_ref())),
        ("kubernetes.io/pod.namespace".to_owned(), text(pod.metadata.namespace.as_ref())),
        ("kubernetes.io/pod.uid".to_owned(), text(pod.metadata.uid.as_ref())),
        ("kubernetes.io/serviceAccount.name".to_owned(), text(account)),
    ]);
    options.extend(group.map(|group| ("kubernetes.io/mounterArgs.FsGroup".to_owned(), group.to_string())));
    options
}

/// The values of the volume's Secret.
///
/// # Errors
/// The Secret is for another driver.
pub fn secret_options(driver: &str, secret: &Secret) -> Result<BTreeMap<String, String>, String> {
    if secret.type_.as_deref() != Some(driver) {
        return Err(format!("cannot get secret of type {driver}"));
    }
    let data = secret.data.iter().flatten();
    Ok(data.map(|(key, value)| (format!("kubernetes.io/secret/{key}"), STANDARD.encode(&value.0))).collect())
}

#[cfg(test)]
mod tests;
