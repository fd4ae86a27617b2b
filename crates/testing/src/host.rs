//! A machine in memory: directories, files, links and mounts that survive any number of kubelets, with calls that fail
//! or hang on request.
//!
//! Owns [`FakeHost`]. Never blocks and never spawns, so it works on tokio's paused time.

mod firewall;
mod port;
mod tree;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::stats::FilesystemSpace;
use parking_lot::Mutex;
use ports::HostError;
use ports::host::{HostResult, MachineInfo, ProgramCall, SubordinateIds};
use tokio::sync::broadcast;

use firewall::Firewalls;
use tree::{Node, Tree};

/// Changes that a slow watcher may fall behind; missing some is told as one change.
const CHANGES_KEPT: usize = 256;

/// The steps of the machine, by what they do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HostMethod {
    EnsureDir,
    WriteFile,
    ReadFile,
    ListDir,
    RemoveFile,
    RemoveTree,
    Rename,
    EnsureSymlink,
    Compress,
    ReadManifests,
    EnsureHostPath,
    EnsureTmpfs,
    BindVolume,
    GiveTreeToGroup,
    WritePayload,
    IsMountPoint,
    UnmountTree,
    BindSubPath,
    ReadText,
    RunProgram,
}

/// How a step goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostFault {
    /// Fails with an I/O error; nothing was done.
    Fails,
    /// Never answers; nothing was done.
    Hangs,
    /// Was given up: what it was to do may still happen.
    GivesUp,
    /// Was given up, and done all the same.
    GivesUpAndIsDone,
}

/// A change of the tree, for watchers.
#[derive(Clone, Debug)]
struct Changed {
    path: PathBuf,
    is_removed: bool,
}

/// What can be swapped out; nothing at first.
#[derive(Clone, Copy, Debug, Default)]
struct Swap {
    bytes: u64,
    takes_tmpfs: bool,
}

/// The fake. Clones share everything.
#[derive(Clone, Debug)]
pub struct FakeHost {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    tree: Mutex<Tree>,
    faults: Mutex<BTreeMap<HostMethod, VecDeque<Ambush>>>,
    changes: broadcast::Sender<Changed>,
    machine: MachineInfo,
    swap: Mutex<Swap>,
    subordinate_ids: Mutex<Option<SubordinateIds>>,
    programs: Mutex<BTreeMap<PathBuf, Result<String, String>>>,
    program_calls: Mutex<Vec<ProgramCall>>,
    firewalls: Mutex<Firewalls>,
    /// By where the filesystem begins; there is one at the root.
    spaces: Mutex<BTreeMap<PathBuf, FilesystemSpace>>,
    /// By directory; `None` where filesystems count nothing.
    projects: Mutex<Option<BTreeMap<PathBuf, u32>>>,
    /// Files whose content a power cut loses.
    unflushed: Mutex<BTreeSet<PathBuf>>,
}

/// Half full.
const SPACE: FilesystemSpace = FilesystemSpace {
    device: 1,
    capacity_bytes: 100 << 30,
    available_bytes: 50 << 30,
    used_bytes: 50 << 30,
    inodes: 1_000_000,
    inodes_free: 500_000,
};

/// A fault that waits for a call about a path.
#[derive(Debug)]
struct Ambush {
    below: PathBuf,
    fault: HostFault,
}

impl Default for FakeHost {
    fn default() -> Self {
        Self::new()
    }
}

impl FakeHost {
    /// A machine of four cores with nothing on it but `/etc/hosts` and `/etc/resolv.conf`.
    #[must_use]
    pub fn new() -> Self {
        let (changes, _) = broadcast::channel(CHANGES_KEPT);
        let machine = MachineInfo {
            cpus: 4,
            memory_bytes: 8 << 30,
            hostname: "node".to_owned(),
            boot_id: "boot".to_owned(),
            machine_id: "machine".to_owned(),
            kernel_version: "6.12.0".to_owned(),
            os_image: "Fake Linux".to_owned(),
            hugepage_sizes: Vec::new(),
            architecture: "amd64".to_owned(),
            system_uuid: "a-b-c".to_owned(),
            ..MachineInfo::default()
        };
        let shared = Shared {
            tree: Mutex::default(),
            faults: Mutex::default(),
            changes,
            machine,
            swap: Mutex::default(),
            subordinate_ids: Mutex::default(),
            programs: Mutex::default(),
            program_calls: Mutex::default(),
            firewalls: Mutex::default(),
            spaces: Mutex::new([(PathBuf::from("/"), SPACE)].into()),
            projects: Mutex::default(),
            unflushed: Mutex::default(),
        };
        let host = Self { shared: Arc::new(shared) };
        host.put("/etc/hosts", "127.0.0.1\tlocalhost\n").put("/etc/resolv.conf", "nameserver 10.0.0.2\n");
        host
    }

    // ---- what happens from outside ----

    /// The power goes: files that were not written durably are there, and empty.
    pub fn power_cut(&self) -> &Self {
        for path in std::mem::take(&mut *self.shared.unflushed.lock()) {
            if self.text(&path).is_some() {
                self.put(&path, "");
            }
        }
        self
    }

    /// Writes a file, with the directories above it.
    pub fn put(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> &Self {
        self.change(path.as_ref(), |tree| {
            tree.write(path.as_ref(), content.as_ref());
        });
        self
    }

    /// Puts a block device there, with the directories above it.
    pub fn put_device(&self, path: impl AsRef<Path>) -> &Self {
        self.change(path.as_ref(), |tree| tree.put(path.as_ref(), Node::Device));
        self
    }

    /// Removes a file, or a directory with all in it. Mounts in it go too.
    pub fn delete(&self, path: impl AsRef<Path>) -> &Self {
        self.change(path.as_ref(), |tree| tree.wipe(path.as_ref()));
        self
    }

    /// What is set aside for every user (nothing at first).
    pub fn set_subordinate_ids(&self, ids: SubordinateIds) -> &Self {
        *self.shared.subordinate_ids.lock() = Some(ids);
        self
    }

    /// So much can be swapped out, or of filesystems in memory too.
    pub fn set_swap(&self, bytes: u64, takes_tmpfs: bool) -> &Self {
        *self.shared.swap.lock() = Swap { bytes, takes_tmpfs };
        self
    }

    /// What `iptables` or `ip6tables` was told to make: `TABLE CHAIN` and `TABLE CHAIN RULE`.
    #[must_use]
    pub fn firewall(&self, program: impl AsRef<Path>) -> Vec<String> {
        self.shared.firewalls.lock().of(program.as_ref())
    }

    /// Somebody else takes everything out of them.
    pub fn empty_firewalls(&self) -> &Self {
        self.shared.firewalls.lock().empty();
        self
    }

    /// Installs a program that always answers this, or fails with this complaint. One called `mount` mounts as well, and
    /// those called `iptables` and `ip6tables` remember what they are told.
    pub fn set_program(&self, path: impl AsRef<Path>, answer: Result<&str, &str>) -> &Self {
        let answer = answer.map(str::to_owned).map_err(str::to_owned);
        self.shared.programs.lock().insert(path.as_ref().to_owned(), answer);
        self
    }

    /// A filesystem from that directory on, or a change of the one that begins there (at first `/`, half full of 100 GiB).
    pub fn set_space(&self, below: impl AsRef<Path>, change: impl FnOnce(&mut FilesystemSpace)) -> &Self {
        change(self.shared.spaces.lock().entry(below.as_ref().to_owned()).or_insert(SPACE));
        self
    }

    /// From now on filesystems count what projects have, and a kibibyte more for each: a file that is deleted and still open.
    pub fn count_projects(&self) -> &Self {
        self.shared.projects.lock().get_or_insert_default();
        self
    }

    /// The directories that have a project.
    #[must_use]
    pub fn projects(&self) -> BTreeMap<PathBuf, u32> {
        self.shared.projects.lock().clone().unwrap_or_default()
    }

    /// Every run of a program so far.
    #[must_use]
    pub fn program_calls(&self) -> Vec<ProgramCall> {
        self.shared.program_calls.lock().clone()
    }

    /// The next call of that step meets this fault. Faults queue up.
    pub fn fault(&self, method: HostMethod, fault: HostFault) -> &Self {
        self.fault_below(method, "", fault)
    }

    /// The same for the next call about that path or one below it; others pass.
    pub fn fault_below(&self, method: HostMethod, path: impl AsRef<Path>, fault: HostFault) -> &Self {
        let ambush = Ambush { below: path.as_ref().to_owned(), fault };
        self.shared.faults.lock().entry(method).or_default().push_back(ambush);
        self
    }

    /// Forgets the faults that nothing has met yet.
    pub fn calm(&self) {
        self.shared.faults.lock().clear();
    }

    // ---- looking ----

    /// The content of a file, `None` if there is none.
    #[must_use]
    pub fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        let tree = self.shared.tree.lock();
        tree.content(path.as_ref()).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    /// Whether anything is there, a directory included.
    #[must_use]
    pub fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.shared.tree.lock().exists(path.as_ref())
    }

    /// Every file, link and directory strictly below the path, sorted.
    #[must_use]
    pub fn files_below(&self, path: impl AsRef<Path>) -> Vec<String> {
        self.shared.tree.lock().below(path.as_ref()).map(|path| path.display().to_string()).collect()
    }

    /// Every mount as `<kind> <where>`, sorted by where: `tmpfs /run/x`, `bind /a/b`.
    #[must_use]
    pub fn mounts(&self) -> Vec<String> {
        self.shared.tree.lock().mounts.iter().map(|(at, kind)| format!("{kind} {}", at.display())).collect()
    }

    /// The fault that a call meets, before what it does or after that.
    fn meet(&self, method: HostMethod, path: &Path, is_done: bool) -> Option<HostFault> {
        let mut faults = self.shared.faults.lock();
        let waiting = faults.get_mut(&method)?;
        let meets = |ambush: &Ambush| {
            path.starts_with(&ambush.below) && is_done == (ambush.fault == HostFault::GivesUpAndIsDone)
        };
        let index = waiting.iter().position(meets)?;
        waiting.remove(index).map(|ambush| ambush.fault)
    }

    /// Lets a call meet its fault.
    async fn begin(&self, method: HostMethod, what: &'static str, path: &Path) -> HostResult<()> {
        self.suffer(self.meet(method, path, false), what, path).await
    }

    /// The same once the call has done what it was to do.
    async fn end(&self, method: HostMethod, what: &'static str, path: &Path) -> HostResult<()> {
        self.suffer(self.meet(method, path, true), what, path).await
    }

    async fn suffer(&self, fault: Option<HostFault>, what: &'static str, path: &Path) -> HostResult<()> {
        match fault {
            None => Ok(()),
            Some(HostFault::Fails) => Err(HostError::Io {
                what,
                path: path.to_owned(),
                source: std::io::Error::other("scripted: input/output error"),
            }),
            Some(HostFault::GivesUp | HostFault::GivesUpAndIsDone) => {
                Err(HostError::GivenUp(format!("{what} {}: no answer (scripted)", path.display())))
            }
            Some(HostFault::Hangs) => std::future::pending().await,
        }
    }

    /// Changes the tree and tells the watchers.
    fn change<T>(&self, path: &Path, change: impl FnOnce(&mut Tree) -> T) -> T {
        let mut tree = self.shared.tree.lock();
        let result = change(&mut tree);
        let is_removed = !tree.exists(path);
        drop(tree);
        // Nobody may be watching.
        let _ = self.shared.changes.send(Changed { path: path.to_owned(), is_removed });
        result
    }
}

#[cfg(test)]
mod tests;
