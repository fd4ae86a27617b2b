//! Mounts of volumes, and what is done inside a volume. Pods write to volumes, and a volume's server or device may stop
//! answering, so these steps follow no link that leads outside and may be cancelled ([`HostError::NotFinished`]).

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use jiff::Timestamp;
use model::payload::Payload;
use model::stats::TreeUsage;

use super::{HostError, HostResult};

/// What a `hostPath` must be before it is mounted; `spec.volumes[].hostPath.type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HostPathKind {
    /// Anything, also nothing.
    Unset,
    DirectoryOrCreate,
    Directory,
    FileOrCreate,
    File,
    Socket,
    CharDevice,
    BlockDevice,
}

/// When the ownership of a volume is changed; `spec.securityContext.fsGroupChangePolicy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GroupPolicy {
    /// Everything in it, each time.
    Always,
    /// Only if the root directory of the volume does not belong to the group already.
    OnRootMismatch,
}

/// Mounts, and the contents of volumes.
#[async_trait]
pub trait Mounts: Send + Sync + std::fmt::Debug {
    async fn is_mount_point(&self, path: &Path) -> HostResult<bool>;
    /// The other places where what is mounted at the path is mounted. An implementation without a mount table has none.
    async fn other_mounts(&self, _path: &Path) -> HostResult<Vec<PathBuf>> {
        Ok(Vec::new())
    }
    /// Unmounts whatever is mounted at or below the path, innermost first. Success if nothing is.
    async fn unmount_tree(&self, path: &Path) -> HostResult<()>;
    /// Checks a hostPath against its type and creates it if the type demands that.
    async fn ensure_host_path(&self, path: &Path, kind: HostPathKind) -> HostResult<()>;
    /// Mounts a tmpfs of that size (0: the kernel's default) unless one is mounted there already.
    async fn ensure_tmpfs(&self, path: &Path, size_bytes: u64) -> HostResult<()>;
    /// Whether the contents of a tmpfs ([`Self::ensure_tmpfs`]) are never swapped out.
    fn keeps_tmpfs_in_memory(&self) -> bool;
    /// Mounts a hugetlbfs with pages of that size unless one is mounted there already.
    async fn ensure_huge_pages(&self, path: &Path, _page_bytes: u64) -> HostResult<()> {
        Err(HostError::Invalid(format!("{}: the kernel has no huge pages", path.display())))
    }
    /// Bind-mounts a directory, or a device in an existing directory, at `target`, which is created. `options`: as for `mount`,
    /// those that a bind mount can have (`ro`, `noexec`). Idempotent.
    async fn bind_volume(&self, source: &Path, target: &Path, options: &[String]) -> HostResult<()>;
    /// Bind-mounts `sub_path` inside the volume at `target`, opening it component by component so that no link can lead
    /// outside; creates it as a directory (with the volume's mode) if it does not exist. Idempotent.
    async fn bind_sub_path(&self, volume: &Path, sub_path: &str, target: &Path) -> HostResult<()>;

    /// Makes a volume show exactly these files: a reader sees all of the old ones or all of the new. `group` may read
    /// all of them. Returns whether anything changed.
    async fn write_payload(
        &self,
        volume: &Path,
        payload: &Payload,
        group: Option<u32>,
        now: Timestamp,
    ) -> HostResult<bool>;
    /// Reads a regular file inside a volume. No link that a container created there leads outside; a file longer than
    /// `limit` is an error.
    async fn read_in_volume(&self, volume: &Path, inside: &str, limit: usize) -> HostResult<Vec<u8>>;
    /// What the directory uses with everything below it on the same filesystem; nothing if it does not exist.
    async fn tree_usage(&self, _path: &Path) -> HostResult<TreeUsage> {
        Ok(TreeUsage::default())
    }

    /// Changes the group of the directory itself: its members may write, and files created in it inherit the group. Does
    /// nothing where files have no owners.
    async fn set_group(&self, _path: &Path, _gid: u32) -> HostResult<()> {
        Ok(())
    }
    /// Changes the group of the directory and everything below it on the same filesystem; the group may then read and write.
    /// May take hours; dropping the future ends it. Does nothing where files have no owners.
    async fn set_tree_group(&self, _path: &Path, _gid: u32, _policy: GroupPolicy) -> HostResult<()> {
        Ok(())
    }

    /// The quota project of a directory, which files created in it inherit; 0 if it has none. Fails on filesystems without
    /// project quotas.
    async fn project_of(&self, path: &Path) -> HostResult<u32> {
        Err(HostError::Invalid(format!("{}: the filesystem has no project quotas", path.display())))
    }
    /// Sets the quota project of the directory; files created in it from now on inherit it.
    async fn set_project(&self, path: &Path, _project: u32) -> HostResult<()> {
        Err(HostError::Invalid(format!("{}: the filesystem has no project quotas", path.display())))
    }
    /// What the filesystem of the directory counts for that project; fails if it does not count.
    async fn project_usage(&self, path: &Path, _project: u32) -> HostResult<TreeUsage> {
        Err(HostError::Invalid(format!("{}: the filesystem has no project quotas", path.display())))
    }
}
