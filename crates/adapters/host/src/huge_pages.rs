//! Volumes of huge pages.

use std::ffi::CString;
use std::io;
use std::path::Path;

use ports::host::HostResult;
use rustix::mount::MountFlags;

use crate::{failed, fault, files, mounts};

const MODE: u32 = 0o777;

/// Without a size, as in the Go kubelet: the limits of the cgroups bound what the pod takes.
pub(crate) fn ensure(path: &Path, page_bytes: u64) -> HostResult<()> {
    if mounts::mounted_at(path)?.is_some_and(|mount| mount.fs_type == "hugetlbfs") {
        return Ok(());
    }
    files::ensure_dir(path, MODE)?;
    fault::around("mount", path, || mount(path, page_bytes)).map_err(failed("mount huge pages on", path))
}

fn mount(path: &Path, page_bytes: u64) -> io::Result<()> {
    let options = CString::new(format!("mode={MODE:o},pagesize={page_bytes}"))?;
    rustix::mount::mount("nodev", path, "hugetlbfs", MountFlags::empty(), options.as_c_str())?;
    Ok(())
}
