//! Project quotas of ext4 and xfs: which project files inherit from their directory, and what the filesystem counts
//! for a project.
//!
//! Owns all unsafe code of the crate except that of `async_inotify`, `loop_devices` and `free_memory`: rustix has no call for
//! either.

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::{io, ptr};

use model::stats::TreeUsage;
use ports::host::HostResult;
use rustix::fs::{Mode, OFlags};
use rustix::ioctl::{Getter, Opcode, Setter, opcode};

use crate::failed;

/// `struct fsxattr` of `linux/fs.h`.
#[repr(C)]
struct Attributes {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    cow_extent_size: u32,
    padding: [u8; 8],
}

const GET: Opcode = opcode::read::<Attributes>(b'X', 31);
const SET: Opcode = opcode::write::<Attributes>(b'X', 32);
/// Files created in the directory inherit its project.
const PASSED_ON: u32 = 0x200;
/// The kind of quota.
const OF_PROJECTS: libc::c_int = 2;

pub(crate) fn project_of(path: &Path) -> HostResult<u32> {
    let directory = open(path)?;
    let attributes = attributes(&directory).map_err(failed("read the project of", path))?;
    Ok(if attributes.flags & PASSED_ON == 0 { 0 } else { attributes.project })
}

pub(crate) fn set_project(path: &Path, project: u32) -> HostResult<()> {
    let directory = open(path)?;
    let mut attributes = attributes(&directory).map_err(failed("read the project of", path))?;
    attributes.flags |= PASSED_ON;
    attributes.project = project;
    set_attributes(&directory, attributes).map_err(failed("set the project of", path))
}

pub(crate) fn project_usage(path: &Path, project: u32) -> HostResult<TreeUsage> {
    let counted = count(&open(path)?, project);
    match counted {
        Ok(used) => Ok(used),
        // xfs knows only projects that have something.
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(TreeUsage::default()),
        Err(error) => Err(failed("read the quota of a project on the filesystem of", path)(error)),
    }
}

fn open(path: &Path) -> HostResult<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map_err(failed("open", path))
}

#[expect(unsafe_code, reason = "the kernel writes a structure whose layout only its header defines")]
fn attributes(directory: &OwnedFd) -> io::Result<Attributes> {
    // SAFETY: FS_IOC_FSGETXATTR fills in one `struct fsxattr`, whose layout `Attributes` has: 28 bytes, which are also part
    // of the number, so that another size would be another call.
    Ok(unsafe { rustix::ioctl::ioctl(directory, Getter::<GET, Attributes>::new()) }?)
}

#[expect(unsafe_code, reason = "the kernel reads a structure whose layout only its header defines")]
fn set_attributes(directory: &OwnedFd, attributes: Attributes) -> io::Result<()> {
    // SAFETY: FS_IOC_FSSETXATTR reads one `struct fsxattr` and keeps no pointer to it.
    Ok(unsafe { rustix::ioctl::ioctl(directory, Setter::<SET, Attributes>::new(attributes)) }?)
}

#[expect(unsafe_code, reason = "no crate that we have wraps quotactl_fd")]
fn count(directory: &OwnedFd, project: u32) -> io::Result<TreeUsage> {
    let mut quota = MaybeUninit::<libc::dqblk>::zeroed();
    let command = libc::QCMD(libc::Q_GETQUOTA, OF_PROJECTS);
    // SAFETY: Q_GETQUOTA writes one `struct if_dqblk`, which is libc's `dqblk`, to an address that is good for one and that
    // outlives the call; the descriptor is open. All bytes are set before, and any bytes make numbers.
    let quota = unsafe {
        let address: *mut libc::dqblk = ptr::from_mut(&mut quota).cast();
        if libc::syscall(libc::SYS_quotactl_fd, directory.as_raw_fd(), command, project, address) != 0 {
            return Err(io::Error::last_os_error());
        }
        quota.assume_init()
    };
    Ok(TreeUsage { bytes: quota.dqb_curspace, inodes: quota.dqb_curinodes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn project_quota_calls_fail_on_filesystems_without_quotas() {
        let dir = tempfile::tempdir().unwrap();
        let error = project_usage(dir.path(), 1_048_577).unwrap_err().to_string();
        assert!(error.starts_with("read the quota of a project on the filesystem of /"), "{error}");
        assert!(project_of(&dir.path().join("absent")).unwrap_err().is_not_found());
        std::fs::write(dir.path().join("file"), "").unwrap();
        project_of(&dir.path().join("file")).unwrap_err();
        // Not every filesystem supports projects; on one that does, this directory has none.
        assert_eq!(project_of(dir.path()).unwrap_or(0), 0);
    }
}
