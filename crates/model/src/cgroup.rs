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
