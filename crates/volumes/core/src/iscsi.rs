//! Disks of iSCSI targets: what a volume needs, where it is on the node, and what is recorded about it. All names are those of the Go
//! kubelet, so that either kubelet finds the volumes of the other. Never: running `iscsiadm`, or reading sysfs.

pub mod commands;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::block::{BlockMap, DEVICES};
use super::csi::plan::SecretName;

/// The name of the type, and its directory below `plugins` of the kubelet's root directory.
pub const PLUGIN: &str = "kubernetes.io/iscsi";
/// In the directory of a disk, below what is mounted there: what a later logout needs.
pub const RECORD: &str = "iscsi.json";
/// The largest record that is read.
pub const MAX_RECORD: usize = 1 << 16;
const IFACE_PREFIX: &str = "iface-";
/// How the name of a target begins, after a portal.
const TARGET_NAMES: [&str; 3] = ["-iqn.", "-eui.", "-naa."];
const DEFAULT_PORT: &str = "3260";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IscsiPlan {
    pub disk: IscsiDisk,
    /// As the volume names it, without a port that it does not name.
    pub target_portal: String,
    pub chap_discovery: bool,
    pub chap_session: bool,
    pub secret: Option<SecretName>,
    pub fs_type: String,
    pub options: Vec<String>,
    /// `volumeMode: Block`
    pub is_device: bool,
}

/// The disk, as the record has it: exactly the fields that Go's encoder writes, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct IscsiDisk {
    pub vol_name: String,
    pub portals: Vec<String>,
    pub iqn: String,
    pub lun: String,
    /// The interface that the volume names.
    pub init_iface: String,
    /// The interface that is used: a copy of the other one if the volume names an initiator.
    pub iface: String,
    pub initiator_name: String,
    /// Always null.
    pub metrics_provider: Option<()>,
}

impl IscsiDisk {
    /// The directory where it is mounted for all pods.
    #[must_use]
    pub fn global_mount(&self, root: &Path) -> PathBuf {
        disks_dir(root).join(self.inside())
    }

    /// What pods share of it if they see the device.
    #[must_use]
    pub fn block_map(&self, root: &Path) -> BlockMap {
        BlockMap { dir: disks_dir(root).join(DEVICES).join(self.inside()) }
    }

    fn inside(&self) -> PathBuf {
        let Self { portals, iqn, lun, iface, .. } = self;
        let portal = portals.first().map(String::as_str).unwrap_or_default();
        Path::new(&format!("{IFACE_PREFIX}{iface}")).join(format!("{portal}-{iqn}-lun-{lun}"))
    }

    #[must_use]
    pub fn to_record(&self) -> String {
        // Strings and lists of them can always be written.
        let mut text = serde_json::to_string(self).unwrap_or_default();
        text.push('\n');
        text
    }

    /// # Errors
    /// The record is damaged.
    pub fn of_record(record: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(record).map_err(|error| format!("iscsi: decode err: {error}"))
    }

    /// What the path of its mount, or of its map, says about a disk without a record; `None` if it is of something else.
    #[must_use]
    pub fn of_global_mount(path: &Path) -> Option<Self> {
        let (device, iface) = (path.file_name()?.to_str()?, path.parent()?.file_name()?.to_str()?);
        let (target, lun) = device.rsplit_once("-lun-")?;
        let at = TARGET_NAMES.iter().filter_map(|name| target.find(name)).min()?;
        let (portal, iqn) = target.split_at(at);
        Some(Self {
            portals: vec![portal.to_owned()],
            iqn: iqn.strip_prefix('-')?.to_owned(),
            lun: lun.to_owned(),
            iface: iface.strip_prefix(IFACE_PREFIX)?.to_owned(),
            ..Self::default()
        })
    }

    /// Without repetitions.
    #[must_use]
    pub fn distinct_portals(&self) -> Vec<&str> {
        let mut seen = BTreeSet::new();
        let portals = self.portals.iter().map(String::as_str);
        portals.filter(|portal| !portal.is_empty() && seen.insert(*portal)).collect()
    }

    /// The interface was made for this volume, and goes with it.
    #[must_use]
    pub fn has_own_iface(&self) -> bool {
        let portal = self.portals.first().map(String::as_str).unwrap_or_default();
        !self.initiator_name.is_empty() && self.iface == own_iface(portal, &self.vol_name)
    }

    /// The beginning of the names of directories of disks of the same target.
    #[must_use]
    pub fn target_prefix(&self) -> String {
        format!("{}-{}", self.portals.first().map(String::as_str).unwrap_or_default(), self.iqn)
    }
}

/// Contains a directory for each interface, and in it one for each disk.
#[must_use]
pub fn disks_dir(root: &Path) -> PathBuf {
    root.join("plugins").join(PLUGIN)
}

/// The interface that is made for a volume that names an initiator.
#[must_use]
pub fn own_iface(portal: &str, volume: &str) -> String {
    format!("{portal}:{volume}")
}

/// The name of the volume in `volumesInUse` and `volumesAttached` of the node.
#[must_use]
pub fn unique_name(target_portal: &str, iqn: &str, lun: &str) -> String {
    format!("{PLUGIN}/{target_portal}:{iqn}:{lun}")
}

/// The names that the volume with this global mount may have: its portal may have been named without a port.
#[must_use]
pub fn unique_names(global: &Path) -> Vec<String> {
    let Some(disk) = IscsiDisk::of_global_mount(global) else { return Vec::new() };
    let portal = disk.portals.first().map(String::as_str).unwrap_or_default();
    let bare = portal.strip_suffix(DEFAULT_PORT).and_then(|portal| portal.strip_suffix(':'));
    let portals = [Some(portal), bare].into_iter().flatten();
    portals.map(|portal| unique_name(portal, &disk.iqn, &disk.lun)).collect()
}

/// With the usual port if it has none.
#[must_use]
pub fn with_port(portal: &str) -> String {
    if portal.contains(':') { portal.to_owned() } else { format!("{portal}:{DEFAULT_PORT}") }
}

/// A portal, from an address and a port as sysfs has them.
#[must_use]
pub fn portal_of(address: &str, port: &str) -> String {
    let (address, port) = (address.trim(), port.trim());
    if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") }
}

/// The name of the device below `/dev/disk/by-path`, in two parts; of another transport than TCP the PCI address is between `pci-`
/// and the second.
#[must_use]
pub fn device_name(portal: &str, iqn: &str, lun: &str) -> String {
    let portal = match portal.starts_with('[') {
        true => portal.replace(['[', ']'], ""),
        false => portal.to_owned(),
    };
    format!("ip-{portal}-iscsi-{iqn}-lun-{lun}")
}

/// Which of the names below `/dev/disk/by-path` is the device.
#[must_use]
pub fn find_device<'a>(names: &'a [String], transport: &str, device: &str) -> Option<&'a str> {
    let is_it = |name: &&String| match transport {
        "tcp" => *name == device,
        _ => name.strip_prefix("pci-").is_some_and(|rest| rest.ends_with(&format!("-{device}"))),
    };
    names.iter().find(is_it).map(String::as_str)
}

/// How often all portals of a disk are tried, and after how many attempts two of them are enough.
pub const MAX_ATTEMPTS: usize = 5;
const MIN_ATTEMPTS: usize = 2;
const MIN_PATHS: usize = 2;

/// What follows an attempt to reach a disk through each of its portals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterAttempt {
    Mount,
    TryOthers,
    Fail,
}

#[must_use]
pub fn after_attempt(attempt: usize, found: usize, portals: usize) -> AfterAttempt {
    match found {
        0 => AfterAttempt::Fail,
        _ if found == portals || attempt >= MAX_ATTEMPTS => AfterAttempt::Mount,
        _ if found >= MIN_PATHS && attempt >= MIN_ATTEMPTS => AfterAttempt::Mount,
        _ => AfterAttempt::TryOthers,
    }
}

#[cfg(test)]
mod tests;
