//! Plain files, directories and links.
//!
//! Never: trees and mounts (see `removal`, `mounts`), or anything that depends on what a file means.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use ports::host::{DirEntry, FileMetadata, HostError, HostResult};
use rustix::fs::{Mode, OFlags, XattrFlags};

use crate::{failed, fault};

/// Where SELinux keeps the label of a file.
const SELINUX_ATTRIBUTE: &str = "security.selinux";

/// Text files of the node (`resolv.conf`, `hosts`) are far smaller; a bigger one is a mistake.
const TEXT_LIMIT: usize = 4 << 20;
/// No directory of the kubelet has more entries; a volume of a pod may.
const MAX_ENTRIES: usize = 100_000;
/// The permission bits of a mode, with set-uid, set-gid and sticky.
pub(crate) const PERMISSIONS: u32 = 0o7777;

/// Of parents, whatever their directory permits to others.
const WRITABLE_BY_OWNER: u32 = 0o755;

pub(crate) fn ensure_dir(path: &Path, mode: u32) -> HostResult<()> {
    // As the Go kubelet's, so that either finds the permissions of the other.
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(mode & WRITABLE_BY_OWNER);
    let made = match path.is_dir() {
        true => Ok(()),
        false => fault::around("create", path, || builder.create(path)),
    };
    made.map_err(failed("create directory", path))?;
    // The umask changed the mode at creation, and an existing directory may have other permissions.
    let now = fs::metadata(path).map_err(failed("stat", path))?.permissions().mode();
    if now & PERMISSIONS != mode & PERMISSIONS {
        fs::set_permissions(path, Permissions::from_mode(mode & PERMISSIONS))
            .map_err(failed("set permissions of", path))?;
    }
    Ok(())
}

/// The directory is opened first, so a link that replaced it is refused and never followed.
pub(crate) fn set_group(path: &Path, gid: u32) -> HostResult<()> {
    const OF_THE_GROUP: u32 = 0o2770;
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = rustix::fs::open(path, flags, Mode::empty()).map_err(io::Error::from);
    let dir = File::from(dir.map_err(failed("open", path))?);
    std::os::unix::fs::fchown(&dir, None, Some(gid)).map_err(failed("set the group of", path))?;
    let mode = dir.metadata().map_err(failed("stat", path))?.permissions().mode();
    dir.set_permissions(Permissions::from_mode(mode & PERMISSIONS | OF_THE_GROUP))
        .map_err(failed("set permissions of", path))
}

pub(crate) fn filesystem_bytes(path: &Path) -> HostResult<u64> {
    let stat =
        rustix::fs::statvfs(path).map_err(io::Error::from).map_err(failed("ask for the size of", path))?;
    Ok(stat.f_blocks.saturating_mul(stat.f_frsize))
}

pub(crate) fn read_file(path: &Path, limit: usize, from_end: bool) -> HostResult<Vec<u8>> {
    let mut file = open_regular(path)?;
    let read = (|| {
        let length = file.metadata()?.len();
        if from_end {
            let skipped = length.saturating_sub(u64::try_from(limit).unwrap_or(u64::MAX));
            file.seek(SeekFrom::Start(skipped))?;
        }
        read_at_most(&mut file, limit)
    })();
    read.map_err(failed("read", path))
}

pub(crate) fn read_at_most(from: &mut impl Read, limit: usize) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    from.take(u64::try_from(limit).unwrap_or(u64::MAX)).read_to_end(&mut content)?;
    Ok(content)
}

/// Opens for reading without waiting for a writer at the other end.
pub(crate) const PROMPT_READ: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// Opens a regular file for reading.
pub(crate) fn open_regular(path: &Path) -> HostResult<File> {
    let file = rustix::fs::open(path, PROMPT_READ, Mode::empty()).map_err(failed("open", path))?;
    regular(File::from(file), path)
}

/// A fifo or device, which could keep us waiting forever, is refused.
pub(crate) fn regular(file: File, path: &Path) -> HostResult<File> {
    let kind = file.metadata().map_err(failed("stat", path))?;
    if kind.is_file() {
        Ok(file)
    } else {
        Err(HostError::Invalid(format!("{} is not a regular file", path.display())))
    }
}

pub(crate) fn read_text(path: &Path) -> HostResult<String> {
    let content = read_file(path, TEXT_LIMIT, false)?;
    String::from_utf8(content)
        .map_err(|_| HostError::Invalid(format!("{} is not UTF-8 text", path.display())))
}

pub(crate) fn metadata(path: &Path) -> HostResult<FileMetadata> {
    let metadata = fs::metadata(path).map_err(failed("stat", path))?;
    let modified = metadata.modified().map_err(failed("stat", path))?;
    // A time out of range counts as the epoch.
    Ok(FileMetadata {
        is_dir: metadata.is_dir(),
        modified: modified.try_into().unwrap_or(Timestamp::UNIX_EPOCH),
        gid: metadata.gid(),
    })
}

pub(crate) fn list_dir(path: &Path) -> HostResult<Vec<DirEntry>> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed("list", path)(error)),
    };
    let mut listed = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed("list", path))?;
        check_length(path, listed.len())?;
        match describe(&entry) {
            Ok(described) => listed.push(described),
            // Removed since it was listed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed("stat", &entry.path())(error)),
        }
    }
    listed.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(listed)
}

/// Without a `stat` of the entries: one of them may be a mount that does not answer.
pub(crate) fn list_names(path: &Path) -> HostResult<Vec<String>> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed("list", path)(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        check_length(path, names.len())?;
        let name = entry.map_err(failed("list", path))?.file_name();
        names.push(name.to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

fn check_length(path: &Path, listed: usize) -> HostResult<()> {
    if listed < MAX_ENTRIES {
        return Ok(());
    }
    Err(HostError::Invalid(format!("{} has more than {MAX_ENTRIES} entries", path.display())))
}

fn describe(entry: &fs::DirEntry) -> io::Result<DirEntry> {
    let metadata = entry.metadata()?;
    let is_symlink = metadata.is_symlink();
    Ok(DirEntry {
        name: entry.file_name().to_string_lossy().into_owned(),
        is_dir: metadata.is_dir(),
        is_symlink,
        target_exists: !is_symlink || fs::metadata(entry.path()).is_ok(),
        size_bytes: metadata.len(),
    })
}

pub(crate) fn remove_file(path: &Path) -> HostResult<()> {
    match fault::around("remove", path, || fs::remove_file(path)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove file", path)(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

pub(crate) fn set_selinux_label(path: &Path, label: &str) -> HostResult<()> {
    let set = rustix::fs::setxattr(path, SELINUX_ATTRIBUTE, label.as_bytes(), XattrFlags::empty());
    set.map_err(failed("set SELinux label", path))
}

pub(crate) fn compress(path: &Path) -> HostResult<()> {
    let mut original = open_regular(path)?;
    let temporary = with_suffix(path, ".tmp");
    let compressed = with_suffix(path, ".gz");
    let packed = gzip(&mut original, &temporary).and_then(|()| fs::rename(&temporary, &compressed));
    packed.map_err(|error| {
        // Best effort: the first error is the one to report.
        let _ = fs::remove_file(&temporary);
        failed("compress", path)(error)
    })?;
    remove_file(path)
}

fn gzip(from: &mut File, to: &Path) -> io::Result<()> {
    let permissions = from.metadata()?.permissions();
    // An interrupted run may have left the name behind, or another program a link to another file.
    match fs::remove_file(to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let packed = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?;
    packed.set_permissions(permissions)?;
    let mut encoder = GzEncoder::new(packed, Compression::default());
    io::copy(from, &mut encoder)?;
    encoder.finish()?;
    Ok(())
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut longer = path.as_os_str().to_os_string();
    longer.push(suffix);
    PathBuf::from(longer)
}
