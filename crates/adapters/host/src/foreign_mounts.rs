//! Which mounts are of foreign filesystems: neither the node's own, on which the kubelet works anyway, nor in memory.
//!
//! Every access to a volume asks. The mount table, which has several lines for each pod, is read again only after it has changed:
//! the kernel reports a change at an open file of it. Never touches what is mounted.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use ports::host::HostResult;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::failed;
use crate::mounts::{self, MOUNT_TABLE, Mount};

/// Filesystems in this kernel's memory, which need no server or device.
const IN_MEMORY: [&str; 17] = [
    "tmpfs",
    "ramfs",
    "devtmpfs",
    "proc",
    "sysfs",
    "cgroup",
    "cgroup2",
    "hugetlbfs",
    "mqueue",
    "devpts",
    "bpf",
    "debugfs",
    "tracefs",
    "securityfs",
    "configfs",
    "pstore",
    "binfmt_misc",
];

/// The foreign mounts of this process's mount table.
#[derive(Debug)]
pub(crate) struct ForeignMounts {
    /// Paths on the node's own filesystems.
    own: Vec<PathBuf>,
    last: Mutex<Option<Table>>,
}

/// What was found when the table was read last.
#[derive(Debug)]
struct Table {
    file: File,
    foreign: Arc<[Mount]>,
}

impl ForeignMounts {
    pub(crate) fn new(own: Vec<PathBuf>) -> Self {
        Self { own, last: Mutex::default() }
    }

    /// The mount that the path leads to, if it is foreign. Links are followed, but nothing on the mount itself is touched.
    pub(crate) fn on_way(&self, path: &Path) -> HostResult<Option<PathBuf>> {
        let foreign = self.current()?;
        Ok(mounts::first_on_way(&foreign, path)?.map(|mount| mount.mount_point.clone()))
    }

    /// Recognises the foreign ones in a table.
    pub(crate) fn among<'a>(&self, table: &'a [Mount]) -> impl Fn(&Mount) -> bool + use<'a> {
        let own = self.own.iter();
        let devices: Vec<&str> = own.filter_map(|path| Some(&*mounts::holder(table, path)?.device)).collect();
        move |mount| !IN_MEMORY.contains(&&*mount.fs_type) && !devices.contains(&&*mount.device)
    }

    fn current(&self) -> HostResult<Arc<[Mount]>> {
        let mut last = self.last.lock();
        if let Some(table) = &*last
            && !table.has_changed()?
        {
            return Ok(table.foreign.clone());
        }
        // Opened before it is read: a change after that is reported at the next time.
        let read = || failed("read", Path::new(MOUNT_TABLE));
        let file = File::open(MOUNT_TABLE).map_err(read())?;
        let foreign = self.visible(&mounts::read_open(&file).map_err(read())?);
        *last = Some(Table { file, foreign: foreign.clone() });
        Ok(foreign)
    }

    /// Without those that a later mount at the same path covers.
    fn visible(&self, table: &[Mount]) -> Arc<[Mount]> {
        let is_foreign = self.among(table);
        let foreign = table.iter().filter(|mount| is_foreign(mount));
        let is_visible = |mount: &&Mount| {
            mounts::holder(table, &mount.mount_point).is_some_and(|holder| std::ptr::eq(holder, *mount))
        };
        foreign.filter(is_visible).cloned().collect()
    }
}

impl Table {
    /// Since it was opened, or asked the last time.
    fn has_changed(&self) -> HostResult<bool> {
        let mut asked = [PollFd::new(&self.file, PollFlags::PRI)];
        poll(&mut asked, Some(&Timespec::default())).map_err(failed("watch", Path::new(MOUNT_TABLE)))?;
        Ok(asked.iter().any(|file| file.revents().intersects(PollFlags::PRI | PollFlags::ERR)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(own: &str, lines: &[(&str, &str, &str)]) -> Vec<String> {
        let line = |(device, point, kind): &(&str, &str, &str)| {
            format!("1 1 {device} / {point} rw - {kind} source rw\n")
        };
        let table = mounts::parse_table(lines.iter().map(line).collect::<String>().as_bytes());
        let foreign = ForeignMounts::new(vec![own.into()]).visible(&table);
        foreign.iter().map(|mount| mount.mount_point.display().to_string()).collect()
    }

    #[test]
    fn own_filesystems_and_those_in_memory_are_not_foreign() {
        let table = [
            ("8:1", "/", "ext4"),
            ("0:5", "/proc", "proc"),
            ("8:2", "/data", "xfs"),
            ("8:1", "/pods/a/bound", "ext4"),
            ("0:9", "/pods/a/token", "tmpfs"),
            ("0:40", "/pods/a/share", "nfs4"),
        ];
        assert_eq!(found("/pods", &table), ["/data", "/pods/a/share"]);
        assert_eq!(found("/data/pods", &table), ["/", "/pods/a/bound", "/pods/a/share"]);
    }

    #[test]
    fn a_covered_mount_is_not_foreign() {
        let root = ("8:1", "/", "ext4");
        let (share, bound) = (("0:40", "/pods/a", "nfs4"), ("8:1", "/pods/a", "ext4"));
        assert_eq!(found("/pods", &[root, share, bound]), Vec::<String>::new());
        assert_eq!(found("/pods", &[root, bound, share]), ["/pods/a"]);
    }
}
