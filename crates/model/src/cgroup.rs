//! Words about cgroups that more than one room uses.

use std::fmt;

/// Who makes cgroups, and so how their names are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupDriver {
    /// The runtime and the kubelet themselves, as directories: `/kubepods/burstable/pod1234`.
    Cgroupfs,
    /// systemd, as slices and scopes: `kubepods-burstable-pod1234.slice`.
    Systemd,
}

impl CgroupDriver {
    /// As `cgroupDriver` spells it; `None` for any other word.
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

/// Which kind of cgroups the machine has. One with both kinds counts as the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CgroupVersion {
    /// A tree for each controller.
    V1,
    /// One tree.
    V2,
}

/// One cgroup, in every tree that the machine has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CgroupPath {
    /// From the root of a tree: `/kubepods/burstable/pod1234`, or `/kubepods.slice/kubepods-pod1234.slice`.
    pub path: Box<str>,
    /// It is systemd's, which is asked to make and remove it.
    pub is_slice: bool,
}

impl CgroupPath {
    /// A cgroup that is made as a directory.
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

/// What the kernel says of a process, as far as it matters for where it belongs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessFacts {
    pub pid: u32,
    /// The file that it runs; a thread of the kernel runs none.
    pub executable: Option<String>,
    /// The lines of its `/proc/<pid>/cgroup`.
    pub cgroups: String,
    /// It sees the same processes as the first of all, so it is in no container; false if that cannot be told.
    pub is_on_node: bool,
    /// How eagerly it is killed when memory runs out: -1000 to 1000.
    pub oom_score_adj: i32,
}

/// So much memory used in a cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryMark {
    /// From the root of a tree.
    pub cgroup: Box<str>,
    pub bytes: u64,
}

/// One file of a cgroup and what is to be in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupFile {
    /// The tree that has it; `""` where there is but one.
    pub controller: &'static str,
    pub name: String,
    pub text: String,
    /// Not every kernel has it; where it is not, nothing is lost.
    pub is_optional: bool,
}

/// How a cgroup is, compared with how it should be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CgroupState {
    #[default]
    AsItShouldBe,
    /// It is there, and something in it says otherwise.
    Changed,
    /// There is none, at least in one of the trees that limit something.
    Missing,
}

/// A property of a slice, as systemd calls it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitProperty {
    pub name: &'static str,
    /// `u64::MAX`: no limit.
    pub value: u64,
}

/// What a cgroup is to be like: the same numbers for the kernel and for systemd.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CgroupSettings {
    /// In the order in which they are written.
    pub files: Vec<CgroupFile>,
    /// For a slice; the files are written there too, because systemd does not know all of them.
    pub properties: Vec<UnitProperty>,
}
