//! Locks that refuse a second kubelet: of the root directory, and of the container runtime. The kernel releases both when the process
//! ends, whatever ended it.
//!
//! The root directory itself is locked, without a file in it. For the runtime there is a file next to its socket, because two kubelets
//! with different root directories would stop each other's pods; it has the process id and the root directory of its holder.
//! Never: waiting without limit, or stopping the other kubelet.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;
use tokio::time::Instant;

/// How long another kubelet may still take to end.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The same for one that was killed: only a thread that waits for a disk takes longer.
const TIMEOUT_AFTER_KILL: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(50);
/// More than the longest path.
const MAX_HOLDER_BYTES: u64 = 8192;

/// Holds a lock until dropped.
#[derive(Debug)]
pub struct NodeLock {
    _locked: File,
}

/// Another process that holds a lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    /// `None`: the kernel does not show it, as in another process namespace.
    pub pid: Option<u32>,
    pub root_dir: Option<PathBuf>,
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.pid, &self.root_dir) {
            (Some(pid), Some(root)) => write!(f, "process {pid}, root directory {}", root.display()),
            (Some(pid), None) => write!(f, "process {pid}"),
            (None, _) => f.write_str("a process that is not visible here"),
        }
    }
}

/// Why there is no lock.
#[derive(Debug, thiserror::Error)]
pub enum NodeLockError {
    #[error("used by another kubelet ({0})")]
    Held(Holder),
    /// The filesystem has no locks, or is read-only.
    #[error("{0}")]
    Unavailable(#[from] io::Error),
}

/// Locks the root directory, which is created if it does not exist.
///
/// # Errors
/// Another kubelet has it, or it cannot be locked.
pub async fn lock_root_dir(root: &Path) -> Result<NodeLock, NodeLockError> {
    make_dir(root, 0o750)?;
    let open = || OpenOptions::new().read(true).custom_flags(directory_flags()).open(root);
    let holder = |dir: &File| {
        let metadata = dir.metadata()?;
        Ok(Holder { pid: holder_of(&metadata), root_dir: None })
    };
    match lock_when_free(open, holder).await {
        Err(NodeLockError::Held(holder)) if holder.pid.is_some_and(is_killed) => {
            tracing::warn!(%holder, root = %root.display(), "Kubelet was killed and cannot end, continuing without the lock of the root directory");
            Ok(NodeLock { _locked: open()? })
        }
        lock => lock,
    }
}

/// Locks the runtime behind this socket for the kubelet with that root directory.
///
/// # Errors
/// Another kubelet has it, or it cannot be locked.
pub async fn lock_runtime(socket: &Path, root: &Path) -> Result<NodeLock, NodeLockError> {
    let path = runtime_lock_path(socket)?;
    let open = || open_lock_file(&path);
    let lock = match lock_when_free(open, read_holder).await {
        Err(NodeLockError::Held(holder)) if holder.pid.is_some_and(is_killed) => {
            // It will never run again, but a thread of it waits for a disk, and keeps the file open. A file in its place is free.
            tracing::warn!(%holder, "Kubelet was killed and cannot end, continuing without it");
            fs::remove_file(&path)?;
            lock_when_free(open, read_holder).await?
        }
        lock => lock?,
    };
    if let Err(error) = write_holder(&lock._locked, root) {
        tracing::warn!(path = %path.display(), err = %error, "Failed to write the lock file of the container runtime");
    }
    Ok(lock)
}

/// Next to the socket, wherever a link leads: a bind mount of its directory has the file, too.
fn runtime_lock_path(socket: &Path) -> io::Result<PathBuf> {
    let invalid = || io::Error::other(format!("{} is not a path of a socket", socket.display()));
    let (dir, name) = socket.parent().zip(socket.file_name()).ok_or_else(invalid)?;
    // The runtime may start later, and makes its directory in the same way.
    make_dir(dir, 0o755)?;
    let real = fs::canonicalize(socket).or_else(|_| fs::canonicalize(dir).map(|dir| dir.join(name)))?;
    let mut name = real.file_name().ok_or_else(invalid)?.to_os_string();
    name.push(".kubelet-lock");
    Ok(real.with_file_name(name))
}

fn make_dir(dir: &Path, mode: u32) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(mode).create(dir)
}

fn directory_flags() -> i32 {
    i32::try_from(OFlags::DIRECTORY.bits()).unwrap_or_default()
}

fn open_lock_file(path: &Path) -> io::Result<File> {
    // Others must not open it: whoever can read a file can lock it.
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Tries until the other process has ended or the time is over. The file is opened again each time: another may have its name by now.
async fn lock_when_free(
    open: impl Fn() -> io::Result<File>,
    holder: impl Fn(&File) -> io::Result<Holder>,
) -> Result<NodeLock, NodeLockError> {
    let began = Instant::now();
    loop {
        let file = open()?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) if is_same(&file, &open()?)? => return Ok(NodeLock { _locked: file }),
            // It was replaced meanwhile.
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let holder = holder(&file)?;
                let timeout = if holder.pid.is_some_and(is_killed) { TIMEOUT_AFTER_KILL } else { TIMEOUT };
                if began.elapsed() > timeout {
                    return Err(NodeLockError::Held(holder));
                }
            }
            Err(error) => return Err(NodeLockError::Unavailable(error.into())),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn is_same(a: &File, b: &File) -> io::Result<bool> {
    let (a, b) = (a.metadata()?, b.metadata()?);
    Ok((a.dev(), a.ino()) == (b.dev(), b.ino()))
}

fn write_holder(mut file: &File, root: &Path) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(format!("{}\n{}\n", std::process::id(), root.display()).as_bytes())
}

fn read_holder(mut file: &File) -> io::Result<Holder> {
    let mut text = String::new();
    file.take(MAX_HOLDER_BYTES).read_to_string(&mut text)?;
    file.rewind()?;
    let mut lines = text.lines();
    let pid = lines.next().and_then(|pid| pid.parse().ok());
    Ok(Holder { pid, root_dir: lines.next().filter(|root| !root.is_empty()).map(PathBuf::from) })
}

/// The process that has locked this directory, as the kernel shows it.
fn holder_of(metadata: &fs::Metadata) -> Option<u32> {
    let locks = fs::read_to_string("/proc/locks").ok()?;
    holder_in(&locks, metadata.ino())
}

/// A line is `1: FLOCK  ADVISORY  WRITE 1234 fd:00:5678 0 EOF`. Only the inode is compared: some filesystems show files another device
/// than the kernel's list has.
fn holder_in(locks: &str, inode: u64) -> Option<u32> {
    let holder = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let (kind, _, mode) = (fields.next()?, fields.next()?, fields.next()?);
        let (pid, file) = (fields.next()?, fields.next()?);
        let is_it = kind == "FLOCK" && mode == "WRITE" && file.rsplit(':').next()?.parse() == Ok(inode);
        is_it.then(|| pid.parse::<u32>().ok()).flatten()
    };
    locks.lines().find_map(holder)
}

/// Whether the process has got SIGKILL, after which no code of it runs any more.
fn is_killed(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/status")).is_ok_and(|status| is_killed_in(&status))
}

fn is_killed_in(status: &str) -> bool {
    const SIGKILL: u64 = 1 << 8;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let is_pending = |name: &str| {
        let mask = field(name).and_then(|mask| u64::from_str_radix(mask, 16).ok());
        mask.is_some_and(|mask| mask & SIGKILL != 0)
    };
    field("State:").is_some_and(|state| state.starts_with(['Z', 'X']))
        || is_pending("SigPnd:")
        || is_pending("ShdPnd:")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(result: Result<NodeLock, NodeLockError>) -> Holder {
        match result {
            Err(NodeLockError::Held(holder)) => holder,
            other => panic!("not held: {other:?}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn root_directory_is_locked_once_and_its_holder_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("a/root");
        let first = lock_root_dir(&root).await.unwrap();
        assert_eq!(holder(lock_root_dir(&root).await).pid, Some(std::process::id()));
        assert_eq!(fs::read_dir(&root).unwrap().count(), 0, "nothing is made in it");
        drop(first);
        lock_root_dir(&root).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn runtime_is_locked_by_its_socket_and_the_root_directory_of_its_holder_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let (socket, root) = (dir.path().join("run/c.sock"), Path::new("/var/lib/kubelet"));
        let first = lock_runtime(&socket, root).await.unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let other = dir.path().join("link.sock");
        std::os::unix::fs::symlink(&socket, &other).unwrap();
        for path in [&socket, &other] {
            let held = holder(lock_runtime(path, Path::new("/other")).await);
            let expected = format!("process {}, root directory /var/lib/kubelet", std::process::id());
            assert_eq!(held.to_string(), expected);
        }
        let neighbour = lock_runtime(&dir.path().join("run/d.sock"), root).await;
        assert!(neighbour.is_ok(), "another runtime in the same directory");
        drop(first);
        lock_runtime(&socket, root).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn lock_file_of_a_killed_process_that_cannot_end_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let (socket, root) = (dir.path().join("c.sock"), Path::new("/root"));
        let first = lock_runtime(&socket, root).await.unwrap();
        // A process that has ended and was not waited for.
        let mut child = std::process::Command::new("true").spawn().unwrap();
        while !is_killed(child.id()) {
            std::thread::yield_now();
        }
        fs::write(dir.path().join("c.sock.kubelet-lock"), format!("{}\n/root\n", child.id())).unwrap();
        let second = lock_runtime(&socket, root).await.unwrap();
        drop(first);
        assert_eq!(holder(lock_runtime(&socket, root).await).pid, Some(std::process::id()));
        drop(second);
        child.wait().unwrap();
    }

    #[test]
    fn holder_is_found_in_the_locks_of_the_kernel() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 fd:00:42 0 EOF\n2: FLOCK  ADVISORY  READ 12 fd:00:42 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 13 fd:00:42 0 EOF\n3: FLOCK  ADVISORY  WRITE 14 00:1c:42 0 EOF\n";
        assert_eq!(holder_in(locks, 42), Some(14));
        assert_eq!(holder_in(locks, 43), None);
        assert_eq!(holder_in("", 42), None);
    }

    #[test]
    fn killed_process_has_sigkill_pending_or_is_a_zombie() {
        assert!(is_killed_in("State:\tZ (zombie)\n"));
        assert!(is_killed_in(
            "State:\tD (disk sleep)\nSigPnd:\t0000000000000000\nShdPnd:\t0000000000000100\n"
        ));
        assert!(!is_killed_in(
            "State:\tD (disk sleep)\nSigPnd:\t0000000000004000\nShdPnd:\t0000000000000000\n"
        ));
        assert!(!is_killed_in(""));
    }
}
