//! Reading what is measured: small files of the kernel, trees of cgroups, open files, filesystems and directories.
//! Nothing here knows what the numbers mean.

use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};

use model::stats::{FilesystemSpace, OpenFiles, TreeUsage};
use ports::host::HostResult;

use crate::failed;

/// A file of the kernel that is longer than this is no small one, and its end is not read.
const MOST_BYTES: u64 = 1 << 20;
/// Cgroups deeper than this are nobody's that we know.
const MOST_LEVELS: usize = 12;
/// More cgroups than a node ever has; what is beyond them is not seen.
const MOST_DIRECTORIES: usize = 20_000;
/// Blocks are counted in these, whatever the filesystem has.
const BLOCK_BYTES: u64 = 512;

pub(crate) fn read_each(paths: &[PathBuf]) -> Vec<Option<String>> {
    let read = |path: &PathBuf| {
        let mut text = String::new();
        // Such files have no size to go by; most of them are a few bytes long.
        fs::File::open(path).ok()?.take(MOST_BYTES).read_to_string(&mut text).ok()?;
        Some(text)
    };
    paths.iter().map(read).collect()
}

pub(crate) fn directories_below(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut ahead = vec![(String::new(), 0)];
    while let Some((path, level)) = ahead.pop() {
        let Ok(entries) = fs::read_dir(root.join(path.trim_start_matches('/'))) else { continue };
        // One that is gone meanwhile, or whose name is no text, is none that is looked for.
        let directories = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        for name in directories.filter_map(|entry| entry.file_name().into_string().ok()) {
            if found.len() >= MOST_DIRECTORIES {
                return found;
            }
            let child = format!("{path}/{name}");
            if level < MOST_LEVELS {
                ahead.push((child.clone(), level + 1));
            }
            found.push(child);
        }
    }
    found
}

pub(crate) fn open_files(proc: &Path, pids: &[u32]) -> OpenFiles {
    let mut open = OpenFiles::default();
    for pid in pids {
        let Ok(entries) = fs::read_dir(proc.join(pid.to_string()).join("fd")) else { continue };
        for entry in entries.flatten() {
            open.descriptors += 1;
            let target = fs::read_link(entry.path());
            open.sockets +=
                u64::from(target.is_ok_and(|target| target.to_string_lossy().starts_with("socket:")));
        }
    }
    open
}

pub(crate) fn filesystem_space(path: &Path) -> HostResult<FilesystemSpace> {
    let device = fs::metadata(path).map_err(failed("measure the filesystem of", path))?.dev();
    let stat = rustix::fs::statvfs(path).map_err(failed("measure the filesystem of", path))?;
    let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
    Ok(FilesystemSpace {
        device,
        capacity_bytes: bytes(stat.f_blocks),
        available_bytes: bytes(stat.f_bavail),
        used_bytes: bytes(stat.f_blocks.saturating_sub(stat.f_bfree)),
        inodes: stat.f_files,
        inodes_free: stat.f_ffree,
    })
}

/// Other filesystems mounted inside are others' matter. What goes away while we look does not count.
pub(crate) fn tree_usage(path: &Path) -> HostResult<TreeUsage> {
    let root = match fs::symlink_metadata(path) {
        Ok(root) => root,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(TreeUsage::default()),
        Err(error) => return Err(failed("measure", path)(error)),
    };
    let mut usage = TreeUsage { bytes: root.blocks().saturating_mul(BLOCK_BYTES), inodes: 1 };
    let mut seen = BTreeSet::new();
    let mut ahead = if root.is_dir() { vec![path.to_path_buf()] } else { Vec::new() };
    while let Some(directory) = ahead.pop() {
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        for entry in entries.flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.dev() != root.dev() || has_been_counted(&metadata, entry.ino(), &mut seen) {
                continue;
            }
            usage.bytes = usage.bytes.saturating_add(metadata.blocks().saturating_mul(BLOCK_BYTES));
            usage.inodes += 1;
            if metadata.is_dir() {
                ahead.push(entry.path());
            }
        }
    }
    Ok(usage)
}

/// Only files with several names can be met twice.
fn has_been_counted(metadata: &Metadata, inode: u64, seen: &mut BTreeSet<u64>) -> bool {
    !metadata.is_dir() && metadata.nlink() > 1 && !seen.insert(inode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_takes_its_blocks_and_a_file_with_two_names_counts_once() {
        let dir = tempfile::tempdir().unwrap();
        let empty = tree_usage(dir.path()).unwrap();
        assert_eq!(empty.inodes, 1);
        fs::create_dir(dir.path().join("sub")).unwrap();
        fs::write(dir.path().join("sub/file"), vec![1; 256 << 10]).unwrap();
        let one = tree_usage(dir.path()).unwrap();
        assert_eq!(one.inodes, 3);
        assert!(one.bytes >= empty.bytes + (256 << 10), "{one:?}");
        fs::hard_link(dir.path().join("sub/file"), dir.path().join("again")).unwrap();
        std::os::unix::fs::symlink("/", dir.path().join("elsewhere")).unwrap();
        let linked = tree_usage(dir.path()).unwrap();
        assert_eq!(linked.inodes, 4);
        assert!(linked.bytes < one.bytes + (64 << 10), "{linked:?}");
        assert_eq!(tree_usage(&dir.path().join("absent")).unwrap(), TreeUsage::default());
    }

    #[test]
    fn a_filesystem_has_room_and_one_that_is_not_there_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let space = filesystem_space(dir.path()).unwrap();
        assert!(space.capacity_bytes >= space.available_bytes && space.capacity_bytes > 0, "{space:?}");
        assert!(space.capacity_bytes >= space.used_bytes);
        let error = filesystem_space(&dir.path().join("absent")).unwrap_err();
        assert!(error.is_not_found());
    }

    #[test]
    fn directories_are_named_from_their_root_and_links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        fs::write(dir.path().join("a/file"), "").unwrap();
        std::os::unix::fs::symlink(dir.path(), dir.path().join("a/loop")).unwrap();
        let mut found = directories_below(dir.path());
        found.sort();
        assert_eq!(found, ["/a", "/a/b"]);
        assert_eq!(directories_below(&dir.path().join("absent")), Vec::<String>::new());
    }

    #[test]
    fn files_are_read_each_for_itself() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("one"), "1\n").unwrap();
        let paths = [dir.path().join("one"), dir.path().join("none"), dir.path().to_path_buf()];
        assert_eq!(read_each(&paths), [Some("1\n".to_owned()), None, None]);
    }

    #[test]
    fn open_files_of_a_process_are_counted() {
        let _socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let open = open_files(Path::new("/proc"), &[std::process::id(), u32::MAX]);
        assert!(open.descriptors > open.sockets && open.sockets > 0, "{open:?}");
    }
}
