//! Files that are written again without becoming another file.

use std::fs::{File, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use ports::host::HostResult;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::atomic::{self, Durability};
use crate::failed;
use crate::files::{PERMISSIONS, regular};

/// Writes into the file itself if it exists, so that containers that have it mounted see the new content, and no deleted file
/// keeps growing.
pub(crate) fn rewrite_file(path: &Path, content: &[u8], mode: u32) -> HostResult<()> {
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => {
            let mut file = regular(File::from(file), path)?;
            let written = file.set_len(0).and_then(|()| file.write_all(content));
            let written =
                written.and_then(|()| file.set_permissions(Permissions::from_mode(mode & PERMISSIONS)));
            written.map_err(failed("write file", path))
        }
        Err(Errno::NOENT) => atomic::write(path, content, mode, Durability::Cached),
        Err(error) => Err(failed("open", path)(error)),
    }
}
