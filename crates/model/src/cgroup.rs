//! Types for cgroups that more than one crate uses.

use std::fmt;

/// The cgroup driver: it creates cgroups, and determines the form of their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupDriver {
    /// `cgroupfs`: directories, created by the runtime and the kubelet: `/kubepods/burstable/pod1234`.
    Cgroupfs,
    /// `systemd`: slices and scopes: `kubepods-burstable-pod1234.slice`.
    Systemd,
}

impl CgroupDriver {
    /// Parses a value of `cgroupDriver`; `None` for an unknown one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "cgroupfs" => Some(Self::Cgroupfs),
            "systemd" => Some(Self::Systemd),
            _ => None,
        }
    }
}

impl fmt::Display for CgroupDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cgroupfs => "cgroupfs",
            Self::Systemd => "systemd",
        })
    }
}

/// The cgroup version of the machine. A hybrid hierarchy counts as version 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CgroupVersion {
    /// A hierarchy for each controller.
    V1,
    /// A unified hierarchy.
    V2,
}

/// One cgroup, in every hierarchy of the machine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CgroupPath {
    /// From the root of a hierarchy: `/kubepods/burstable/pod1234`, or `/kubepods.slice/kubepods-pod1234.slice`.
    pub path: Box<str>,
    /// A slice, which systemd creates and removes on request.
    pub is_slice: bool,
}

impl CgroupPath {
    /// A cgroup that is created as a directory.
    #[must_use]
    pub fn directory(path: impl Into<Box<str>>) -> Self {
        Self { path: path.into(), is_slice: false }
    }

    /// The last part: with systemd, the name of the unit.
    #[must_use]
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }
}

impl fmt::Display for CgroupPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)
    }
}

/// Facts about a process that determine its cgroup and OOM score.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessFacts {
    pub pid: u32,
    /// Its executable; a kernel thread has none.
    pub executable: Option<String>,
    /// The lines of its `/proc/<pid>/cgroup`.
    pub cgroups: String,
    /// It is in the PID namespace of the init process, so not in a container; false if that is not known.
    pub is_on_node: bool,
    /// `oom_score_adj`: -1000 to 1000.
    pub oom_score_adj: i32,
}

/// A threshold of memory usage in a cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryMark {
    /// From the root of a hierarchy.
    pub cgroup: Box<str>,
    pub bytes: u64,
}

/// One file of a cgroup and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupFile {
    /// The controller's hierarchy; `""` for the unified one.
    pub controller: &'static str,
    pub name: String,
    pub text: String,
    /// Not every kernel has this file; a missing one is ignored.
    pub is_optional: bool,
}

/// A cgroup's state, compared with the desired settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CgroupState {
    #[default]
    /// It exists with the desired settings.
    UpToDate,
    /// It exists, and some setting differs.
    Changed,
    /// It does not exist in at least one hierarchy with limits.
    Missing,
}

/// A systemd property of a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitProperty {
    pub name: &'static str,
    pub value: UnitValue,
}

/// The value of a systemd property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnitValue {
    /// `u64::MAX`: no limit.
    Number(u64),
    /// A set of CPUs: one bit each, those with low numbers first.
    Bits(Vec<u8>),
}

impl From<u64> for UnitValue {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

/// Desired settings of a cgroup, for the kernel and for systemd.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CgroupSettings {
    /// In the order in which they are written.
    pub files: Vec<CgroupFile>,
    /// For a slice; its files are written, too, because systemd does not support all of them.
    pub properties: Vec<UnitProperty>,
}
