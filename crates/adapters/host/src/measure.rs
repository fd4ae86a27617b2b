//! Reads what is measured: small files of the kernel, cgroup hierarchies, open files, filesystems and directories. Never:
//! interpreting the numbers.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use model::stats::{FilesystemSpace, OpenFiles, TreeUsage};
use ports::host::HostResult;
use rustix::fs::{AtFlags, FileType, Mode, Stat};
use rustix::io::Errno;

use crate::failed;
use crate::walk::{self, Entry, TreeWork, Visit, Visitor, Walk};

/// A file of the kernel that is longer than this is no small one, and its end is not read.
const MAX_BYTES: u64 = 1 << 20;
/// Files of the kernel have no size to go by. With space for nearly all of them, none is read in many small pieces.
pub(crate) const FIRST_READ: usize = 8 << 10;
/// No known software creates cgroups deeper than this.
const MAX_LEVELS: usize = 12;
/// More cgroups than a node ever has; what is beyond them is not seen.
const MAX_DIRECTORIES: usize = 20_000;
/// Files with several names that are remembered during a walk, 8 bytes each.
const MAX_LINKED: usize = 1 << 17;
/// Divides by many numbers of names without a rest.
const WHOLE: u64 = 720_720 << 20;
/// Blocks are counted in these, whatever the filesystem has.
const BLOCK_BYTES: u64 = 512;

pub(crate) fn read_each(paths: &[PathBuf]) -> Vec<Option<String>> {
    let mut content = Vec::with_capacity(FIRST_READ);
    let mut read = |path: &PathBuf| {
        content.clear();
        fs::File::open(path).ok()?.take(MAX_BYTES).read_to_end(&mut content).ok()?;
        str::from_utf8(&content).ok().map(str::to_owned)
    };
    paths.iter().map(&mut read).collect()
}

pub(crate) fn directories_below(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut ahead = vec![(String::new(), 0)];
    while let Some((path, level)) = ahead.pop() {
        let Ok(entries) = fs::read_dir(root.join(path.trim_start_matches('/'))) else { continue };
        // One that was removed meanwhile, or whose name is not UTF-8, is skipped.
        let directories = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        for name in directories.filter_map(|entry| entry.file_name().into_string().ok()) {
            if found.len() >= MAX_DIRECTORIES {
                return found;
            }
            let child = format!("{path}/{name}");
            if level < MAX_LEVELS {
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

/// The measurement of trees one after the other, as far as it has come. Other filesystems mounted inside are not counted, nor is what
/// goes away during the walk.
#[derive(Debug)]
pub(crate) struct Measurement {
    /// What is left to measure, the next one last.
    paths: Vec<PathBuf>,
    with_directories: bool,
    current: Option<(Walk, Meter)>,
    sum: TreeUsage,
}

impl Measurement {
    pub(crate) fn of_tree(path: PathBuf) -> Self {
        Self { paths: vec![path], with_directories: true, current: None, sum: TreeUsage::default() }
    }

    /// Without directories, for trees whose directories are the kubelet's own.
    pub(crate) fn of_files(mut paths: Vec<PathBuf>) -> Self {
        paths.reverse();
        Self { paths, with_directories: false, current: None, sum: TreeUsage::default() }
    }

    fn begin(&mut self, path: &Path) -> HostResult<()> {
        let root = match rustix::fs::lstat(path) {
            Ok(root) => root,
            Err(Errno::NOENT) => return Ok(()),
            Err(error) => return Err(failed("measure", path)(error)),
        };
        let (device, with_directories) = (root.st_dev, self.with_directories);
        let mut meter = Meter { device, with_directories, ..Meter::default() };
        meter.count(&root);
        let opened = match is_directory(&root) {
            true => rustix::fs::open(path, walk::OPEN_DIR, Mode::empty()).map(Some),
            false => Ok(None),
        };
        match opened {
            Ok(Some(top)) => {
                let walk = Walk::new(top, path).map_err(failed("measure", path))?;
                self.current = Some((walk, meter));
            }
            // No directory, or removed or replaced since.
            Ok(None) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => self.add(&meter),
            Err(error) => return Err(failed("measure", path)(error)),
        }
        Ok(())
    }

    fn add(&mut self, meter: &Meter) {
        let one = meter.usage();
        self.sum.bytes = self.sum.bytes.saturating_add(one.bytes);
        self.sum.inodes = self.sum.inodes.saturating_add(one.inodes);
    }
}

impl TreeWork for Measurement {
    type Output = TreeUsage;

    fn advance(&mut self, entries: usize) -> HostResult<Option<TreeUsage>> {
        if self.current.is_none() {
            match self.paths.pop() {
                Some(path) => self.begin(&path)?,
                None => return Ok(Some(self.sum)),
            }
        }
        if let Some((mut walk, mut meter)) = self.current.take() {
            match walk.advance(&mut meter, entries)? {
                true => self.add(&meter),
                false => self.current = Some((walk, meter)),
            }
        }
        let is_done = self.current.is_none() && self.paths.is_empty();
        Ok(is_done.then_some(self.sum))
    }
}

/// Adds up what a tree uses.
#[derive(Debug, Default)]
struct Meter {
    device: u64,
    with_directories: bool,
    usage: TreeUsage,
    /// Inode numbers of files with several names.
    linked: BTreeSet<u64>,
    /// Inodes in parts of [`WHOLE`], for files with several names that `linked` had no space for.
    shares: u64,
}

impl Meter {
    fn count(&mut self, stat: &Stat) {
        let bytes = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(BLOCK_BYTES);
        #[cfg_attr(
            target_arch = "x86_64",
            expect(clippy::useless_conversion, reason = "narrower on other architectures")
        )]
        let links = u64::from(stat.st_nlink);
        if is_directory(stat) {
            if !self.with_directories {
                return;
            }
        } else if links > 1 {
            if self.linked.contains(&stat.st_ino) {
                return;
            }
            if self.linked.len() >= MAX_LINKED {
                // Each name counts its part: together they are the file.
                self.usage.bytes = self.usage.bytes.saturating_add(bytes.div_ceil(links));
                self.shares = self.shares.saturating_add(WHOLE / links);
                return;
            }
            self.linked.insert(stat.st_ino);
        }
        self.usage.bytes = self.usage.bytes.saturating_add(bytes);
        self.usage.inodes += 1;
    }

    fn usage(&self) -> TreeUsage {
        let inodes = self.usage.inodes.saturating_add(self.shares.div_ceil(WHOLE));
        TreeUsage { inodes, ..self.usage }
    }
}

impl Visitor for Meter {
    fn visit(&mut self, entry: &Entry<'_>) -> HostResult<Visit> {
        let Ok(stat) = rustix::fs::statat(entry.dir, entry.name, AtFlags::SYMLINK_NOFOLLOW) else {
            return Ok(Visit::Next);
        };
        if stat.st_dev != self.device {
            return Ok(Visit::Next);
        }
        self.count(&stat);
        Ok(if is_directory(&stat) { Visit::Enter } else { Visit::Next })
    }

    fn unreadable(&mut self, path: PathBuf, why: Errno) -> HostResult<()> {
        if why == Errno::NAMETOOLONG {
            let path = path.display().to_string();
            tracing::warn!(path, "Directory nesting exceeds the limit, deeper directories are not measured");
        }
        Ok(())
    }
}

fn is_directory(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree_usage(path: &Path) -> HostResult<TreeUsage> {
        walk::complete(Measurement::of_tree(path.to_path_buf()))
    }

    fn files_usage(path: &Path) -> HostResult<TreeUsage> {
        walk::complete(Measurement::of_files(vec![path.to_path_buf()]))
    }

    #[test]
    fn tree_usage_counts_blocks_and_hard_links_once() {
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
    fn files_with_several_names_count_once_also_where_there_are_too_many_to_remember() {
        let stat = |path: &Path| rustix::fs::lstat(path).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("one"), dir.path().join("two"));
        fs::write(&one, vec![1; 64 << 10]).unwrap();
        fs::hard_link(&one, &two).unwrap();
        let (stat, names) = (stat(&one), [&one, &two]);
        let mut meter = Meter { device: stat.st_dev, ..Meter::default() };
        // Inode numbers of files that are elsewhere.
        meter.linked = (0..MAX_LINKED as u64).map(|n| u64::MAX - n).collect();
        names.iter().for_each(|_| meter.count(&stat));
        assert_eq!(meter.linked.len(), MAX_LINKED);
        let bytes = u64::try_from(stat.st_blocks).unwrap() * BLOCK_BYTES;
        assert_eq!(meter.usage(), TreeUsage { bytes, inodes: 1 });
    }

    #[test]
    fn files_alone_are_measured_without_the_directories_they_are_in() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("container")).unwrap();
        assert_eq!(files_usage(dir.path()).unwrap(), TreeUsage::default());
        let log = dir.path().join("container/00000000");
        fs::write(&log, vec![1; 64 << 10]).unwrap();
        let usage = files_usage(dir.path()).unwrap();
        assert!(usage.bytes >= 64 << 10 && usage.inodes == 1, "{usage:?}");
        assert_eq!(files_usage(&log).unwrap(), usage);
        assert_eq!(files_usage(&dir.path().join("absent")).unwrap(), TreeUsage::default());
    }

    #[test]
    fn filesystem_space_is_read_and_fails_for_a_missing_path() {
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
    fn unreadable_files_do_not_fail_the_others() {
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
