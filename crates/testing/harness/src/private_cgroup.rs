//! What a kubelet under test has of the machine for itself: a parent cgroup for its pods, and kernel settings that are only
//! files. It affects no other program, and nothing is left.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use model::CgroupDriver;

use crate::cgroup_path::cgroup_path;
use crate::containerd::{cgroup_dirs_of, cgroup_driver, cgroup_root_of};

pub const CGROUP_MOUNT: &str = "/sys/fs/cgroup";
/// A killed process may take a moment to leave.
const SETTLE_TIME: Duration = Duration::from_secs(20);
/// The values that the kubelet requires of the kernel.
const SETTINGS: [(&str, &str); 6] = [
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];

/// The cgroup of a test directory: `cgroupRoot` of a kubelet there. A containerd that runs in the same directory removes it at
/// its end, too.
#[derive(Clone, Debug)]
pub struct PrivateCgroup {
    dir: PathBuf,
}

impl PrivateCgroup {
    #[must_use]
    pub fn of(dir: &Path) -> Self {
        Self { dir: dir.to_path_buf() }
    }

    /// From the root of each hierarchy.
    #[must_use]
    pub fn path(&self) -> String {
        cgroup_root_of(&self.dir)
    }

    /// Creates it in every hierarchy that limits a resource.
    pub fn make(&self) -> io::Result<()> {
        match cgroup_driver() {
            CgroupDriver::Cgroupfs => {
                trees().into_iter().try_for_each(|tree| fs::create_dir_all(self.inside(&tree)))
            }
            CgroupDriver::Systemd => self.systemctl("start"),
        }
    }

    /// With systemd it is a slice, which exists once it is started.
    fn systemctl(&self, verb: &str) -> io::Result<()> {
        let slice = cgroup_path(CgroupDriver::Systemd, &self.path());
        let status = Command::new("systemctl").args([verb, &slice]).status()?;
        if status.success() { Ok(()) } else { Err(io::Error::other(format!("systemctl {verb} {slice}"))) }
    }

    /// The paths of a cgroup inside it, in every hierarchy that has it: cgroups of the kubelet, by the names that they have as
    /// directories. With systemd they are slices.
    #[must_use]
    pub fn find(&self, below: &str) -> Vec<PathBuf> {
        let path = cgroup_path(cgroup_driver(), &format!("{}/{below}", self.path()));
        let all = trees().into_iter().chain([Path::new(CGROUP_MOUNT).join("unified")]);
        all.map(|tree| tree.join(&path)).filter(|dir| dir.exists()).collect()
    }

    fn inside(&self, tree: &Path) -> PathBuf {
        tree.join(cgroup_path(cgroup_driver(), &self.path()))
    }

    /// Removes it from the bottom up; returns what is left of it after a generous time.
    #[must_use]
    pub fn remove(&self) -> Vec<PathBuf> {
        if cgroup_driver() == CgroupDriver::Systemd {
            // What it leaves is found below.
            let _ = self.systemctl("stop");
        }
        let deadline = Instant::now() + SETTLE_TIME;
        loop {
            let mut left = cgroup_dirs_of(&self.dir);
            left.retain(|dir| fs::remove_dir(dir).is_err() && dir.exists());
            if left.is_empty() || Instant::now() > deadline {
                return left;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The hierarchies that limit a resource: all of version 1, or the one of version 2.
fn trees() -> Vec<PathBuf> {
    let mount = Path::new(CGROUP_MOUNT);
    if mount.join("cgroup.controllers").exists() {
        return vec![mount.to_path_buf()];
    }
    let entries = fs::read_dir(mount).into_iter().flatten().flatten();
    let trees = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    trees.map(|entry| entry.path()).filter(|tree| !tree.join("cgroup.controllers").exists()).collect()
}

/// Kernel settings with the values that the kubelet requires, in the layout of `/proc/sys`.
pub fn make_kernel_settings(dir: &Path) -> io::Result<()> {
    for (name, value) in SETTINGS {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().unwrap_or(dir))?;
        fs::write(path, value)?;
    }
    Ok(())
}
