//! What this kubelet makes of the entries of a root directory.

use config::KubeletConfiguration;
use jiff::Timestamp;
use model::{MonoTime, Now};
use resources_core::amounts_file;
use resources_core::claims::checkpoint::{DRA_STATE_FILE, DraStateError, parse_dra_state};
use resources_core::claims::health_file::{HEALTH_STATE_FILE, parse_health_state};
use resources_core::cpus::{CPU_STATE_FILE, CpuStateError, parse_cpu_state};
use resources_core::devices::checkpoint::parse_checkpoint;
use resources_core::memory::MemoryPolicy;
use resources_core::memory::checkpoint::{
    FILE as MEMORY_STATE_FILE, MemoryCheckpointError, parse_memory_checkpoint,
};
use serde::Serialize;

use crate::node::shutdown::STATE_FILE as SHUTDOWN_STATE_FILE;

/// The device checkpoint, by its path below the root directory.
pub const DEVICES: &str = "device-plugins/kubelet_internal_checkpoint";

/// Directories whose content is for this kubelet, too.
const DIRECTORIES: [&str; 10] = [
    "checkpoints",
    "device-plugins",
    "image_manager",
    "pki",
    "plugins",
    "plugins_registry",
    "pod-resources",
    "pods",
    "seccomp",
    "single-node",
];

/// kubeadm's files, which the flags of its drop-in name.
const KUBEADM: [&str; 3] = ["config.yaml", "instance-config.yaml", "kubeadm-flags.env"];

/// A file or directory in the root directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootEntry {
    /// Below the root directory.
    pub path: String,
    /// `None` for a directory, and for a file that this kubelet does not read.
    pub text: Option<String>,
    pub is_dir: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum FileUse {
    /// It is read and continued.
    Used,
    /// The kubelet does not start with it.
    Refused,
    /// It is damaged: the kubelet renames it and starts without it.
    SetAside,
    /// It is not known, and stays as it is.
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FileReport {
    pub path: String,
    #[serde(rename = "use")]
    pub usage: FileUse,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why: String,
}

/// What the formats of state files depend on.
#[derive(Clone, Copy, Debug)]
pub struct StateSettings<'a> {
    pub config: &'a KubeletConfiguration,
    pub has_pod_level_managers: bool,
}

/// `None` for what needs no mention.
#[must_use]
pub fn compute_file(entry: &RootEntry, settings: StateSettings<'_>) -> Option<FileReport> {
    let (usage, why) = match (&*entry.path, &entry.text) {
        (path, _) if entry.is_dir && DIRECTORIES.contains(&path) => return None,
        (path, _) if KUBEADM.contains(&path) => return None,
        (CPU_STATE_FILE, Some(text)) => cpus(text, settings),
        (MEMORY_STATE_FILE, Some(text)) => memory(text, settings),
        (amounts_file::ALLOCATED | amounts_file::ACTUATED, Some(text)) => {
            set_aside_if(amounts_file::parse(text).map(drop))
        }
        (DEVICES, Some(text)) => {
            set_aside_if(parse_checkpoint(text, |_| None).map(drop).map_err(|error| error.to_string()))
        }
        (DRA_STATE_FILE, Some(text)) => refuse_if(parse_dra_state(text).map(drop)),
        (HEALTH_STATE_FILE, Some(text)) => {
            // At any time: what is too old is not damaged.
            let now = Now { wall: Timestamp::UNIX_EPOCH, mono: MonoTime::ZERO };
            set_aside_if(parse_health_state(text, now).map(drop).map_err(|error| error.to_string()))
        }
        (SHUTDOWN_STATE_FILE, _) => (FileUse::Used, String::new()),
        _ => (FileUse::Unknown, String::new()),
    };
    Some(FileReport { path: entry.path.clone(), usage, why })
}

fn set_aside_if(parsed: Result<(), String>) -> (FileUse, String) {
    match parsed {
        Ok(()) => (FileUse::Used, String::new()),
        Err(why) => (FileUse::SetAside, why),
    }
}

/// Without it, claims would never be unprepared.
fn refuse_if(parsed: Result<(), DraStateError>) -> (FileUse, String) {
    match parsed {
        Ok(()) => (FileUse::Used, String::new()),
        Err(error) => (FileUse::Refused, error.to_string()),
    }
}

fn cpus(text: &str, settings: StateSettings<'_>) -> (FileUse, String) {
    let policy = &*settings.config.cpu_manager_policy;
    match parse_cpu_state(text, policy, settings.has_pod_level_managers, |_| None) {
        Ok(_) => (FileUse::Used, String::new()),
        Err(error) => {
            let is_of_other_policy = matches!(error, CpuStateError::Policy { .. });
            (refused(policy == "none" && !is_of_other_policy), error.to_string())
        }
    }
}

fn memory(text: &str, settings: StateSettings<'_>) -> (FileUse, String) {
    let policy = memory_policy(settings.config);
    match parse_memory_checkpoint(text, policy, settings.has_pod_level_managers) {
        Ok(_) => (FileUse::Used, String::new()),
        Err(error) => {
            let is_of_other_policy = matches!(error, MemoryCheckpointError::OtherPolicy { .. });
            (refused(policy == "None" && !is_of_other_policy), error.to_string())
        }
    }
}

/// The name of the configured policy in the state file.
pub(super) fn memory_policy(config: &KubeletConfiguration) -> &'static str {
    match &*config.memory_manager_policy {
        MemoryPolicy::NAME => MemoryPolicy::NAME,
        _ => "None",
    }
}

/// A damaged file has nothing to lose without a policy that gives away CPUs or memory.
const fn refused(has_nothing_to_lose: bool) -> FileUse {
    if has_nothing_to_lose { FileUse::SetAside } else { FileUse::Refused }
}
