//! The machine: directories, mounts, files and limits, in kubelet-sized steps rather than system calls.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use jiff::Timestamp;
use model::payload::Payload;
use model::request::IdRange;
use model::stats::{FilesystemSpace, OpenFiles, TreeUsage};

/// Why a step on the machine failed.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    #[error("{what} {path}")]
    Io {
        /// What we were doing, as a verb phrase: `create directory`, `mount tmpfs on`.
        what: &'static str,
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The path is not what it must be. The text is complete: it names the path and what was expected.
    #[error("{0}")]
    Invalid(String),
    /// The work did not end in time, or would have had to wait for such work. What it was to do may still happen. The text
    /// is complete.
    #[error("{0}")]
    GivenUp(String),
}

impl HostError {
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        match self {
            Self::Io { source, .. } => source.kind() == std::io::ErrorKind::NotFound,
            Self::Invalid(_) | Self::GivenUp(_) => false,
        }
    }
}

pub type HostResult<T> = Result<T, HostError>;

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

/// When a tree is given to a group; `spec.securityContext.fsGroupChangePolicy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GroupPolicy {
    /// Everything in it, each time.
    Always,
    /// Only if the top does not belong to the group already.
    OnRootMismatch,
}

/// One file of a directory of manifests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestFile {
    pub path: PathBuf,
    pub content: Result<Vec<u8>, String>,
}

/// A directory entry with what log rotation and collection need to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    pub name: String,
    pub is_dir: bool,
    pub is_symlink: bool,
    /// Of a link, whether its target exists; true for everything else.
    pub target_exists: bool,
    pub size_bytes: u64,
}

/// What tells one file from another, whatever its name is by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIdentity {
    pub device: u64,
    pub inode: u64,
}

/// What is at a path, links followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathFacts {
    pub is_dir: bool,
    pub modified: Timestamp,
    /// The group that it belongs to.
    pub gid: u32,
}

/// What a command writes, piece by piece. An error is the last of them.
pub type CommandOutput = BoxStream<'static, HostResult<Vec<u8>>>;

/// A regular file that was opened: it stays the same one when its name goes to another.
/// Something changed below a watched path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirectoryChange {
    /// Entries that were deleted or moved away. One that exists all the same was created again.
    pub removed: BTreeSet<PathBuf>,
}

#[async_trait]
pub trait OpenFile: Send + Sync + std::fmt::Debug {
    fn identity(&self) -> FileIdentity;
    async fn size_bytes(&self) -> HostResult<u64>;
    /// At most `limit` bytes from there on; fewer where the file ends.
    async fn read_at(&self, offset: u64, limit: usize) -> HostResult<Vec<u8>>;
}

/// The node as a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineInfo {
    pub cpus: u32,
    /// Of the processors, those that are no second thread of another; 0 if the machine does not say.
    pub physical_cores: u32,
    /// Packages that the cores are in; 0 if the machine does not say.
    pub sockets: u32,
    /// Books of sockets, and drawers of books: only machines of IBM's Z series have them.
    pub books: u32,
    pub drawers: u32,
    pub memory_bytes: u64,
    /// The kernel gives memory away in pieces of so many bytes.
    pub page_bytes: u64,
    pub hostname: String,
    pub boot_id: String,
    pub machine_id: String,
    pub kernel_version: String,
    pub os_image: String,
    /// Sizes of huge pages the kernel has, small ones first, in the words of cgroups: `2MB`, `1GB`.
    pub hugepage_sizes: Vec<String>,
    /// Bytes set aside as huge pages when the machine was first looked at, by the size in the API's words: `2Mi`.
    pub hugepages: BTreeMap<String, u64>,
    pub swap_bytes: u64,
    /// The firmware's name for the machine, or the machine id where it has none.
    pub system_uuid: String,
    /// In Go's words: `amd64`, `arm64`.
    pub architecture: String,
    /// `/sys/devices/system/cpu/cpu<n>/thermal_throttle` of each possible processor that has it.
    pub thermal_throttle_paths: Vec<String>,
    /// The kernel has SELinux with a policy loaded.
    pub selinux_enabled: bool,
}

/// What the machine sets aside for the user namespaces of one user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubordinateIds {
    pub uids: Vec<IdRange>,
    pub gids: Vec<IdRange>,
}

/// A command that was run in a container, as the machine sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecTrace {
    /// The command itself still runs, not only what it started.
    pub is_running: bool,
    /// The sessions of the command and of what it left behind.
    pub sessions: BTreeSet<u32>,
}

/// A program to run on the machine, on top of our own environment.
#[derive(Clone)]
pub struct ProgramCall {
    pub path: PathBuf,
    pub args: Vec<String>,
    pub env: Vec<(String, String)>,
    /// What it reads.
    pub input: Vec<u8>,
    /// It is killed when it takes longer.
    pub deadline: Duration,
}

impl std::fmt::Debug for ProgramCall {
    /// Without variables and input: there may be secrets in them.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProgramCall")
            .field("path", &self.path)
            .field("args", &self.args)
            .finish_non_exhaustive()
    }
}

/// How a program ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramEnd {
    /// `None`: a signal ended it.
    pub code: Option<i32>,
    /// What it wrote, at most a mebibyte.
    pub output: Vec<u8>,
    /// The beginning of what it complained about.
    pub complaint: String,
}

#[async_trait]
pub trait Host: Send + Sync + std::fmt::Debug {
    /// Creates a directory and its parents; sets exactly these permissions on the last one, whatever the umask.
    async fn ensure_dir(&self, path: &Path, mode: u32) -> HostResult<()>;
    /// Creates or replaces a small file in one step: a reader sees the old or the new content.
    async fn write_file(&self, path: &Path, content: &[u8], mode: u32) -> HostResult<()>;
    /// The same without a new file: what exists is cut and written again, so that containers that have the file mounted see it.
    async fn rewrite_file(&self, path: &Path, content: &[u8], mode: u32) -> HostResult<()> {
        self.write_file(path, content, mode).await
    }
    /// As [`Self::write_file`]; what was written also survives a power cut once this returns. Costs milliseconds of the disk:
    /// for what nobody can compute again. A host that loses nothing just writes.
    async fn write_durably(&self, path: &Path, content: &[u8], mode: u32) -> HostResult<()> {
        self.write_file(path, content, mode).await
    }
    /// Reads at most `limit` bytes; `from_end` reads the last ones instead of the first.
    async fn read_file(&self, path: &Path, limit: usize, from_end: bool) -> HostResult<Vec<u8>>;
    /// Reads a regular file inside a volume. No link that a container put there leads outside; a file longer than
    /// `limit` is an error.
    async fn read_in_volume(&self, volume: &Path, inside: &str, limit: usize) -> HostResult<Vec<u8>>;
    /// Opens a regular file for reading.
    async fn open_file(&self, path: &Path) -> HostResult<Box<dyn OpenFile>>;
    /// As [`Self::open_file`], of a file below `root`: the kernel takes `root` for `/`, wherever links inside point to.
    async fn open_below(&self, root: &Path, inside: &str) -> HostResult<Box<dyn OpenFile>> {
        self.open_file(&root.join(inside)).await
    }
    /// What is there. A host that keeps no times does not say.
    async fn look_at(&self, path: &Path) -> HostResult<PathFacts> {
        Err(HostError::Invalid(format!("{} has no times here", path.display())))
    }
    /// Starts `journalctl` with these arguments. What it writes to both outputs comes as it is read; it is killed when
    /// nobody reads any more. A host without a journal fails.
    async fn journal(&self, _arguments: &[String]) -> HostResult<CommandOutput> {
        Err(HostError::Invalid("this machine has no journal".to_owned()))
    }
    /// What the kernel writes to its log from now on, line by line. A host without such a log fails.
    fn kernel_log(&self, path: &Path) -> HostResult<BoxStream<'static, String>> {
        Err(HostError::Invalid(format!("{} is no kernel's log", path.display())))
    }
    /// The entries of a directory, sorted by name; empty if there is no such directory.
    async fn list_dir(&self, path: &Path) -> HostResult<Vec<DirEntry>>;
    /// Removes a file or a link. Success if there is none.
    async fn remove_file(&self, path: &Path) -> HostResult<()>;
    /// Removes a tree, refusing to leave its filesystem: a mount inside makes it fail before anything behind the mount
    /// is touched. Success if there is none.
    async fn remove_tree(&self, path: &Path) -> HostResult<()>;
    async fn rename(&self, from: &Path, to: &Path) -> HostResult<()>;
    /// Makes `link` point to `target`, replacing what it pointed to.
    async fn ensure_symlink(&self, target: &Path, link: &Path) -> HostResult<()>;
    /// As [`Self::ensure_symlink`], with the promise of [`Self::write_durably`].
    async fn link_durably(&self, target: &Path, link: &Path) -> HostResult<()> {
        self.ensure_symlink(target, link).await
    }
    /// Writes `path` gzipped to `path` + `.gz` and removes the original.
    async fn compress(&self, path: &Path) -> HostResult<()>;

    /// A manifest file, or the files directly in a directory of manifests (no dot files, none over 10 MiB), sorted by
    /// name. A file that cannot be read is listed with the reason.
    async fn read_manifests(&self, path: &Path) -> HostResult<Vec<ManifestFile>>;
    /// Yields whenever something in the directory (or the file) may have changed; bursts may be folded into one.
    fn watch(&self, path: &Path) -> HostResult<BoxStream<'static, DirectoryChange>>;

    /// Checks a hostPath against its type and creates it where the type says so.
    async fn ensure_host_path(&self, path: &Path, kind: HostPathKind) -> HostResult<()>;
    /// Mounts a tmpfs of that size (0: the kernel's default) unless one is mounted there already.
    async fn ensure_tmpfs(&self, path: &Path, size_bytes: u64) -> HostResult<()>;
    /// Mounts huge pages of that size, unless some are mounted there already.
    async fn ensure_huge_pages(&self, path: &Path, _page_bytes: u64, _size_bytes: u64) -> HostResult<()> {
        Err(HostError::Invalid(format!("{}: there are no huge pages here", path.display())))
    }
    /// Binds a directory to a place of ours, which is made for it. `options`: as `mount` has them, of those that a bind can
    /// have (`ro`, `noexec`). Idempotent.
    async fn bind_volume(&self, source: &Path, target: &Path, options: &[String]) -> HostResult<()>;
    /// Gives the directory and all below it on the same filesystem to a group, which may then read and write. May take
    /// hours; ends when it is dropped. A host that keeps no ownership does nothing.
    async fn give_tree_to_group(&self, _path: &Path, _gid: u32, _policy: GroupPolicy) -> HostResult<()> {
        Ok(())
    }
    /// The names in a directory, sorted, without a look at what they are; none if there is no such directory.
    async fn list_names(&self, path: &Path) -> HostResult<Vec<String>> {
        Ok(self.list_dir(path).await?.into_iter().map(|entry| entry.name).collect())
    }
    /// Gives the directory itself to a group: its members may write, and what is made in it belongs to the group too. A
    /// host that keeps no ownership does nothing.
    async fn give_to_group(&self, _path: &Path, _gid: u32) -> HostResult<()> {
        Ok(())
    }
    /// Makes a volume show exactly these files: a reader sees all of the old ones or all of the new. `group` may read
    /// all of them. Returns whether anything changed.
    async fn write_payload(
        &self,
        volume: &Path,
        payload: &Payload,
        group: Option<u32>,
        now: Timestamp,
    ) -> HostResult<bool>;
    async fn is_mount_point(&self, path: &Path) -> HostResult<bool>;
    /// Unmounts whatever is mounted at or below the path, innermost first. Success if nothing is.
    async fn unmount_tree(&self, path: &Path) -> HostResult<()>;
    /// Binds `sub_path` inside the volume at `target`, opening it step by step so that no link can lead outside;
    /// creates it as a directory (with the volume's mode) if it does not exist. Idempotent.
    async fn bind_sub_path(&self, volume: &Path, sub_path: &str, target: &Path) -> HostResult<()>;

    /// Finds a command that was started in the container no longer ago than `age`, and what it left running. A host
    /// without processes finds nothing.
    async fn find_exec(&self, _container: &str, _command: &[String], _age: Duration) -> ExecTrace {
        ExecTrace::default()
    }
    /// Kills what was found.
    async fn end_exec(&self, _container: &str, _trace: &ExecTrace) {}

    /// Runs a program to its end, however it ends. One that nobody waits for any more is killed with what it started; one
    /// that took too long, too, and its work is given up.
    async fn run_to_end(&self, call: &ProgramCall) -> HostResult<ProgramEnd>;
    /// The same for programs that must succeed: returns what it wrote. One that fails is an error with what it complained
    /// about.
    async fn run_program(&self, call: &ProgramCall) -> HostResult<Vec<u8>> {
        let end = self.run_to_end(call).await?;
        match (end.code, end.complaint.as_str()) {
            (Some(0), _) => Ok(end.output),
            (code, complaint) => {
                let status =
                    code.map_or("ended by a signal".to_owned(), |code| format!("exit status: {code}"));
                let problem = if complaint.is_empty() { status } else { format!("{status}: {complaint}") };
                Err(HostError::Invalid(format!("{}: {problem}", call.path.display())))
            }
        }
    }
    /// Small files of the kernel (procfs, cgroups), read in one go; `None` for one that is not there or cannot be read.
    async fn read_each(&self, paths: Vec<PathBuf>) -> Vec<Option<String>> {
        let mut texts = Vec::with_capacity(paths.len());
        for path in paths {
            texts.push(self.read_text(&path).await.ok());
        }
        texts
    }
    /// Every directory below `root`, as paths from there (`/a`, `/a/b`); links are not followed. A host without such
    /// trees has none.
    async fn directories_below(&self, _root: &Path) -> Vec<String> {
        Vec::new()
    }
    /// What these processes have open, as far as they are still there.
    async fn open_files(&self, _pids: Vec<u32>) -> OpenFiles {
        OpenFiles::default()
    }
    /// How much the filesystem has that the path is on.
    async fn filesystem_space(&self, path: &Path) -> HostResult<FilesystemSpace> {
        Ok(FilesystemSpace {
            capacity_bytes: self.filesystem_bytes(path).await?,
            ..FilesystemSpace::default()
        })
    }
    /// What the directory takes with all below it on the same filesystem; nothing if it is not there.
    async fn tree_usage(&self, _path: &Path) -> HostResult<TreeUsage> {
        Ok(TreeUsage::default())
    }

    /// What the files at and below these paths of the kubelet's own directory take, without directories. A path that does not
    /// exist takes nothing.
    async fn files_usage(&self, _paths: &[PathBuf]) -> HostResult<TreeUsage> {
        Ok(TreeUsage::default())
    }

    /// The project of a directory that it passes on to what is made in it; 0 if it has none. A host whose filesystems know of
    /// no projects fails.
    async fn project_of(&self, path: &Path) -> HostResult<u32> {
        Err(HostError::Invalid(format!("{}: there are no projects here", path.display())))
    }
    /// Gives the directory, and what is made in it from now on, to a project.
    async fn set_project(&self, path: &Path, _project: u32) -> HostResult<()> {
        Err(HostError::Invalid(format!("{}: there are no projects here", path.display())))
    }
    /// What the filesystem of the directory counts for that project; it fails where none are counted.
    async fn project_usage(&self, path: &Path, _project: u32) -> HostResult<TreeUsage> {
        Err(HostError::Invalid(format!("{}: there are no projects here", path.display())))
    }

    fn machine(&self) -> MachineInfo;
    /// Whether what is in a filesystem in memory ([`Host::ensure_tmpfs`]) is never swapped out.
    fn keeps_tmpfs_in_memory(&self) -> bool;
    /// The size of the filesystem that the path is on.
    async fn filesystem_bytes(&self, path: &Path) -> HostResult<u64>;
    /// Those of the candidates that are on an interface of this machine.
    fn own_addresses(&self, candidates: &[IpAddr]) -> Vec<IpAddr>;
    /// The address from which the default route leaves, of the preferred family if there is one.
    fn default_route_ip(&self, prefers_v6: bool) -> Option<IpAddr>;
    /// The subordinate ids of that user; `None` if it has none, or if the machine does not keep any (`getsubids` is
    /// missing).
    async fn subordinate_ids(&self, user: &str) -> HostResult<Option<SubordinateIds>>;
    /// The content of the node's resolv.conf-like file, `/etc/hosts`, and so on.
    async fn read_text(&self, path: &Path) -> HostResult<String>;
    /// AppArmor is enabled on this machine.
    fn has_apparmor(&self) -> bool;
}
