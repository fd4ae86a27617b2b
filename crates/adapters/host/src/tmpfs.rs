//! Volumes in memory.

use std::ffi::CString;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use ports::host::HostResult;
use rustix::mount::{FsOpenFlags, MountFlags};

use crate::{failed, fault, files, mounts};

/// Permissions of a fresh mount, the kernel's default. The sticky bit keeps users from removing
/// each other's files, and directories made for a subPath inherit it.
const MODE: u32 = 0o1777;
/// Of the directory below.
const DIRECTORY_MODE: u32 = 0o777;

pub(crate) fn ensure_tmpfs(path: &Path, size_bytes: u64) -> HostResult<()> {
    if mounts::mounted_at(path)?.is_some_and(|mount| mount.fs_type == "tmpfs") {
        return Ok(());
    }
    files::ensure_dir(path, DIRECTORY_MODE)?;
    // Swapped out, a secret would reach the disk. Kernels before 6.4 do not know the option.
    fault::around("mount", path, || mount(path, size_bytes, true).or_else(|_| mount(path, size_bytes, false)))
        .map_err(failed("mount tmpfs on", path))
}

fn mount(path: &Path, size_bytes: u64, noswap: bool) -> io::Result<()> {
    let options = CString::new(options(size_bytes, noswap))?;
    rustix::mount::mount("tmpfs", path, "tmpfs", MountFlags::empty(), options.as_c_str())?;
    Ok(())
}

/// Creates such a filesystem without mounting it.
pub(crate) fn stays_in_memory() -> bool {
    let context = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC);
    context.is_ok_and(|context| rustix::mount::fsconfig_set_flag(context.as_fd(), "noswap").is_ok())
}

fn options(size_bytes: u64, noswap: bool) -> String {
    let mut options = format!("mode={MODE:o}");
    if size_bytes > 0 {
        options.push_str(&format!(",size={size_bytes}"));
    }
    if noswap {
        options.push_str(",noswap");
    }
    options
}

#[cfg(test)]
mod tests {
    use super::options;

    #[test]
    fn tmpfs_of_size_zero_has_the_kernel_default() {
        assert_eq!(options(0, false), "mode=1777");
        assert_eq!(options(65536, true), "mode=1777,size=65536,noswap");
    }
}
