//! Fibre Channel disks: which disk a volume names, where it is on the node, and which links below `/dev/disk` lead to it. All names are
//! those of the Go kubelet, so that either kubelet finds the volumes of the other. Never: reading a directory, or sysfs.

use std::path::{Path, PathBuf};

use super::block::{BlockMap, DEVICES};

/// The name of the type, and its directory below `plugins` of the kubelet's root directory.
pub const PLUGIN: &str = "kubernetes.io/fc";
/// What makes each SCSI host look for all disks.
pub const RESCAN: &str = "- - -";
const BY_PATH: &str = "/dev/disk/by-path";
const BY_ID: &str = "/dev/disk/by-id";
const LUN: &str = "lun";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FcPlan {
    pub disk: FcDisk,
    /// The name of the volume in `volumesInUse` and `volumesAttached` of the node.
    pub unique_name: String,
    pub fs_type: String,
    pub options: Vec<String>,
    /// `volumeMode: Block`
    pub is_device: bool,
}

/// What a volume says about its disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FcDisk {
    /// A logical unit behind target ports, by their worldwide names.
    Lun { wwns: Vec<String>, lun: i32 },
    /// World wide identifiers, without spaces.
    Wwids(Vec<String>),
}

impl FcDisk {
    /// # Errors
    /// The volume does not say which disk it is. The text is complete.
    pub fn of_source(wwns: &[String], lun: Option<i32>, wwids: &[String]) -> Result<Self, String> {
        match lun {
            Some(lun) if !wwns.is_empty() => Ok(Self::Lun { wwns: wwns.to_vec(), lun }),
            Some(_) | None if !wwids.is_empty() => {
                Ok(Self::Wwids(wwids.iter().map(|wwid| wwid.replace(' ', "_")).collect()))
            }
            Some(_) | None => {
                Err("fc: no fc disk information found. failed to make a new mounter".to_owned())
            }
        }
    }

    /// The disk whose directory this is.
    ///
    /// # Errors
    /// It is of no disk. The text is complete.
    pub fn of_dir(path: &Path) -> Result<Self, String> {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let parts: Vec<&str> = name.split('-').collect();
        let owned = |parts: &[&str]| parts.iter().map(|part| (*part).to_owned()).collect();
        match parts.as_slice() {
            [LUN, _] => Err(format!("no wwn in: {name}")),
            [wwns @ .., LUN, lun] => match lun.parse() {
                Ok(lun) => Ok(Self::Lun { wwns: owned(wwns), lun }),
                Err(error) => Err(format!("invalid lun in: {name}: {error}")),
            },
            wwids => Ok(Self::Wwids(owned(wwids))),
        }
    }

    /// The name of its directories.
    #[must_use]
    pub fn dir_name(&self) -> String {
        match self {
            Self::Lun { wwns, lun } => format!("{}-{LUN}-{lun}", wwns.join("-")),
            Self::Wwids(wwids) => wwids.join("-"),
        }
    }

    /// The directory where it is mounted for all pods.
    #[must_use]
    pub fn global_mount(&self, root: &Path) -> PathBuf {
        root.join("plugins").join(PLUGIN).join(self.dir_name())
    }

    /// What pods share of it if they see the device.
    #[must_use]
    pub fn block_map(&self, root: &Path) -> BlockMap {
        BlockMap { dir: root.join("plugins").join(PLUGIN).join(DEVICES).join(self.dir_name()) }
    }

    /// The directory with the links to such disks.
    #[must_use]
    pub fn links_dir(&self) -> &'static Path {
        Path::new(match self {
            Self::Lun { .. } => BY_PATH,
            Self::Wwids(_) => BY_ID,
        })
    }

    /// Which of the names there lead to the disk: those of each target port or identifier.
    #[must_use]
    pub fn links<'a>(&self, names: &'a [String]) -> Vec<Vec<&'a str>> {
        let all = |is_it: &dyn Fn(&str) -> bool| {
            names.iter().map(String::as_str).filter(|name| is_it(name)).collect::<Vec<_>>()
        };
        match self {
            Self::Lun { wwns, lun } => {
                wwns.iter().map(|wwn| all(&|name| is_port_link(name, wwn, *lun))).collect()
            }
            Self::Wwids(wwids) => {
                wwids.iter().map(|wwid| all(&|name| name.strip_prefix("scsi-") == Some(wwid))).collect()
            }
        }
    }
}

/// `fc-0x<name>-lun-<number>`, also behind the address of the host adapter.
fn is_port_link(name: &str, wwn: &str, lun: i32) -> bool {
    let Some(adapter) = name.strip_suffix(&*format!("fc-0x{wwn}-{LUN}-{lun}")) else { return false };
    adapter.is_empty() || adapter.strip_prefix("pci-").is_some_and(|address| address.ends_with('-'))
}

/// The name of the volume in `volumesInUse` and `volumesAttached` of the node: lists as Go prints them.
#[must_use]
pub fn unique_name(wwns: &[String], lun: Option<i32>, wwids: &[String]) -> String {
    match lun {
        Some(lun) if !wwns.is_empty() => format!("{PLUGIN}/[{}]:{lun}", wwns.join(" ")),
        Some(_) | None => format!("{PLUGIN}/[{}]", wwids.join(" ")),
    }
}

/// The name of the volume with this directory, as far as the directory shows it.
#[must_use]
pub fn unique_name_of(dir: &Path) -> Option<String> {
    match FcDisk::of_dir(dir).ok()? {
        FcDisk::Lun { wwns, lun } => Some(unique_name(&wwns, Some(lun), &[])),
        FcDisk::Wwids(wwids) => Some(unique_name(&[], None, &wwids)),
    }
}

/// Whether the volume of that name has this directory, whose name has no spaces, and a `-` between identifiers.
#[must_use]
pub fn has_dir(unique_name: &str, dir: &Path) -> bool {
    let named = unique_name.strip_prefix(PLUGIN).and_then(|name| name.strip_prefix("/["));
    let Some((names, lun)) = named.and_then(|name| name.rsplit_once(']')) else { return false };
    let lun = lun.strip_prefix(':').map(|lun| format!("-{LUN}-{lun}")).unwrap_or_default();
    let comparable = |text: &str| text.replace([' ', '_'], "-");
    let dir = dir.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    comparable(&format!("{names}{lun}")) == comparable(dir)
}

#[cfg(test)]
mod tests;
