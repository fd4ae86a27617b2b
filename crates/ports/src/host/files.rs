//! Files and directories of the node: the kubelet's own state, logs, manifests, and the kernel's files.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use jiff::Timestamp;
use model::plugins::SocketTree;
use model::stats::{FilesystemSpace, TreeUsage};

use super::{HostError, HostResult};

/// One file of a directory of manifests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestFile {
    pub path: PathBuf,
    pub content: Result<Vec<u8>, String>,
}

/// A directory entry with what log rotation and garbage collection need to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    pub name: String,
    pub is_dir: bool,
    pub is_symlink: bool,
    /// Of a link, whether its target exists; true for everything else.
    pub target_exists: bool,
    pub size_bytes: u64,
}

/// What distinguishes a file from every other, also after it was renamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIdentity {
    pub device: u64,
    pub inode: u64,
}

/// Metadata of what a path leads to, links followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileMetadata {
    pub is_dir: bool,
    pub modified: Timestamp,
    /// The group that owns it.
    pub gid: u32,
}

/// Something changed below a watched path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirectoryChange {
    /// Entries that were deleted or moved away. One that exists all the same was created again.
    pub removed: BTreeSet<PathBuf>,
}

/// An open regular file: it stays the same file when its name goes to another.
#[async_trait]
pub trait OpenFile: Send + Sync + std::fmt::Debug {
    fn identity(&self) -> FileIdentity;
    async fn size_bytes(&self) -> HostResult<u64>;
    /// At most `limit` bytes starting at `offset`; fewer where the file ends.
    async fn read_at(&self, offset: u64, limit: usize) -> HostResult<Vec<u8>>;
}

/// Files and directories, by path.
#[async_trait]
pub trait Files: Send + Sync + std::fmt::Debug {
    /// Creates a directory and its parents; sets exactly these permissions on the last one, whatever the umask.
    async fn ensure_dir(&self, path: &Path, mode: u32) -> HostResult<()>;
    /// Creates a directory of the node and its parents if it does not exist. The permissions of one that exists stay, because an operator
    /// may have opened it for an agent, or closed it. An implementation without permissions needs no other method.
    async fn make_dir(&self, path: &Path, mode: u32) -> HostResult<()> {
        self.ensure_dir(path, mode).await
    }
    /// Creates or replaces a small file in one step: a reader sees the old or the new content.
    async fn write_file(&self, path: &Path, content: &[u8], mode: u32) -> HostResult<()>;
    /// As [`Self::write_file`], but keeps the inode: an existing file is truncated and written again, so that containers
    /// that have it mounted see the new content.
    async fn rewrite_file(&self, path: &Path, content: &[u8], mode: u32) -> HostResult<()> {
        self.write_file(path, content, mode).await
    }
    /// As [`Self::write_file`]; once this returns, the content also survives a power failure. Costs milliseconds of the
    /// disk: use it for what cannot be computed again. An implementation without a disk just writes.
    async fn write_durably(&self, path: &Path, content: &[u8], mode: u32) -> HostResult<()> {
        self.write_file(path, content, mode).await
    }
    /// Reads at most `limit` bytes; `from_end` reads the last ones instead of the first.
    async fn read_file(&self, path: &Path, limit: usize, from_end: bool) -> HostResult<Vec<u8>>;
    /// Reads a text file of the node: its resolv.conf, `/etc/hosts`, a file of procfs.
    async fn read_text(&self, path: &Path) -> HostResult<String>;
    /// Reads small files of the kernel (procfs, cgroups) in one go; `None` for a file that is missing or cannot be read.
    async fn read_each(&self, paths: Vec<PathBuf>) -> Vec<Option<String>> {
        let mut texts = Vec::with_capacity(paths.len());
        for path in paths {
            texts.push(self.read_text(&path).await.ok());
        }
        texts
    }
    /// Opens a regular file for reading.
    async fn open_file(&self, path: &Path) -> HostResult<Box<dyn OpenFile>>;
    /// As [`Self::open_file`], for a file below `root`: the kernel takes `root` for `/`, wherever links inside point to.
    async fn open_below(&self, root: &Path, inside: &str) -> HostResult<Box<dyn OpenFile>> {
        self.open_file(&root.join(inside)).await
    }
    /// Metadata of what is at the path, links followed. An implementation without metadata fails.
    async fn metadata(&self, path: &Path) -> HostResult<FileMetadata> {
        Err(HostError::Invalid(format!("{} has no metadata", path.display())))
    }
    /// The path without links on the way. An implementation without links returns it as it is.
    async fn resolve(&self, path: &Path) -> HostResult<PathBuf> {
        Ok(path.to_owned())
    }
    /// The entries of a directory, sorted by name; empty if the directory does not exist.
    async fn list_dir(&self, path: &Path) -> HostResult<Vec<DirEntry>>;
    /// The names in a directory, sorted, without a `stat` of the entries; empty if the directory does not exist.
    async fn list_names(&self, path: &Path) -> HostResult<Vec<String>> {
        Ok(self.list_dir(path).await?.into_iter().map(|entry| entry.name).collect())
    }
    /// Every directory below `root`, as paths relative to it (`/a`, `/a/b`); links are not followed. Empty where directories
    /// cannot be walked.
    async fn directories_below(&self, _root: &Path) -> Vec<String> {
        Vec::new()
    }
    /// Removes a file or a link. Success if it does not exist.
    async fn remove_file(&self, path: &Path) -> HostResult<()>;
    /// Removes what writes of a killed kubelet left in the directory: files that had not replaced another one yet. An implementation
    /// without such files does nothing.
    async fn remove_unfinished(&self, _dir: &Path) -> HostResult<()> {
        Ok(())
    }
    /// Removes a tree, refusing to leave its filesystem: a mount inside makes it fail before anything behind the mount
    /// is touched. Success if it does not exist.
    async fn remove_tree(&self, path: &Path) -> HostResult<()>;
    async fn rename(&self, from: &Path, to: &Path) -> HostResult<()>;
    /// Makes `link` point to `target`, replacing what it pointed to.
    async fn ensure_symlink(&self, target: &Path, link: &Path) -> HostResult<()>;
    /// As [`Self::ensure_symlink`], with the promise of [`Self::write_durably`].
    async fn symlink_durably(&self, target: &Path, link: &Path) -> HostResult<()> {
        self.ensure_symlink(target, link).await
    }
    /// Gives the file or directory an SELinux label, not what is in it.
    async fn set_selinux_label(&self, path: &Path, label: &str) -> HostResult<()>;
    /// Writes `path` gzipped to `path` + `.gz` and removes the original.
    async fn compress(&self, path: &Path) -> HostResult<()>;

    /// A manifest file, or the files directly in a directory of manifests (no dot files, none over 10 MiB), sorted by
    /// name. A file that cannot be read is listed with the reason.
    async fn read_manifests(&self, path: &Path) -> HostResult<Vec<ManifestFile>>;
    /// Yields whenever something in the directory (or the file) may have changed; bursts may be folded into one. Nothing that happens
    /// after this returns is missed.
    async fn watch(&self, path: &Path) -> HostResult<BoxStream<'static, DirectoryChange>>;
    /// Yields the sockets below a directory at once, and again after each change of them. Entries that start with a dot are
    /// ignored, and links to directories are not followed. Ends when the directory cannot be watched any more.
    fn watch_sockets(&self, root: &Path) -> HostResult<BoxStream<'static, SocketTree>>;

    /// The size of the filesystem that holds the path.
    async fn filesystem_bytes(&self, path: &Path) -> HostResult<u64>;
    /// Capacity and free space of the filesystem that holds the path.
    async fn filesystem_space(&self, path: &Path) -> HostResult<FilesystemSpace> {
        Ok(FilesystemSpace {
            capacity_bytes: self.filesystem_bytes(path).await?,
            ..FilesystemSpace::default()
        })
    }
    /// What the files at and below these paths of the kubelet's own directories use, without directories. A path that does
    /// not exist uses nothing.
    async fn files_usage(&self, _paths: &[PathBuf]) -> HostResult<TreeUsage> {
        Ok(TreeUsage::default())
    }
}
