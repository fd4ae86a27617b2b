//! `hostPath` volumes: checks that the path is of the type that the pod specifies.

use std::fs::{self, FileType, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use ports::host::{HostError, HostPathKind, HostResult};

use crate::{failed, files};

/// Of directories made for `DirectoryOrCreate`.
const DIRECTORY_MODE: u32 = 0o755;
/// Of files made for `FileOrCreate`.
const FILE_MODE: u32 = 0o644;

/// Links are followed, as they are when the container sees the path.
pub(crate) fn ensure_host_path(path: &Path, kind: HostPathKind) -> HostResult<()> {
    if kind == HostPathKind::Unset {
        return Ok(());
    }
    let there = match fs::metadata(path) {
        Ok(metadata) => Some(metadata.file_type()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(failed("check hostPath", path)(error)),
    };
    match (kind, there) {
        (HostPathKind::DirectoryOrCreate, None) => files::ensure_dir(path, DIRECTORY_MODE),
        (HostPathKind::FileOrCreate, None) => create_file(path),
        (kind, there) => match expected(kind) {
            Some((fits, noun)) if !there.is_some_and(|there| fits(&there)) => Err(HostError::Invalid(
                format!("hostPath type check failed: {} is not a {noun}", path.display()),
            )),
            Some(_) | None => Ok(()),
        },
    }
}

type Fits = fn(&FileType) -> bool;

/// The check and the text for a failure; `None` if anything is accepted.
fn expected(kind: HostPathKind) -> Option<(Fits, &'static str)> {
    match kind {
        HostPathKind::Unset => None,
        HostPathKind::Directory | HostPathKind::DirectoryOrCreate => Some((FileType::is_dir, "directory")),
        HostPathKind::File | HostPathKind::FileOrCreate => Some((FileType::is_file, "file")),
        HostPathKind::Socket => Some((FileTypeExt::is_socket, "socket file")),
        HostPathKind::CharDevice => Some((FileTypeExt::is_char_device, "character device")),
        HostPathKind::BlockDevice => Some((FileTypeExt::is_block_device, "block device")),
    }
}

/// Unlike a directory's, a file's parents must exist.
fn create_file(path: &Path) -> HostResult<()> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(FILE_MODE)
        .open(path)
        .and_then(|file| file.set_permissions(Permissions::from_mode(FILE_MODE)))
        .map_err(failed("create file", path))
}
