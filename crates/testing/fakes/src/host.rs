//! A machine in memory: directories, files, links and mounts that survive any number of kubelets, with calls that fail
//! or hang on request.
//!
//! Owns [`FakeHost`]. Never blocks and never spawns, so it works on tokio's paused time.

mod files;
mod firewall;
mod machine;
mod mounts;
mod plugin_mounts;
mod port;
mod processes;
mod tree;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use model::stats::FilesystemSpace;
use model::topology::MachineTopology;
use parking_lot::Mutex;
use ports::HostError;
use ports::host::{HostResult, MachineInfo, ProgramCall, SubordinateIds};
use tokio::sync::broadcast;

use firewall::Firewalls;
use tree::{Node, Tree};

/// By how many changes a slow watcher may fall behind; missed ones are reported as one change.
const CHANGES_KEPT: usize = 256;

/// The operations of the machine.
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
    SetTreeGroup,
    WritePayload,
    IsMountPoint,
    UnmountTree,
    BindSubPath,
    ReadText,
    RunProgram,
}

/// How an operation fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostFault {
    /// Fails with an I/O error; nothing was done.
    Fails,
    /// Never answers; nothing was done.
    Hangs,
    /// Timed out: its effect may still happen.
    TimesOut,
    /// Timed out, but done all the same.
    TimesOutButDone,
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

/// What a program does whose command line contains certain words.
#[derive(Clone, Debug)]
enum Effect {
    Put(PathBuf, String),
    Link(PathBuf, PathBuf),
    Delete(PathBuf),
    Exit(i32, String),
}

/// The fake. Clones share everything.
#[derive(Clone, Debug)]
pub struct FakeHost {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    tree: Mutex<Tree>,
    faults: Mutex<BTreeMap<HostMethod, VecDeque<PendingFault>>>,
    changes: broadcast::Sender<Changed>,
    machine: MachineInfo,
    /// `None`: as many equal processors as `machine` has.
    topology: Mutex<Option<MachineTopology>>,
    swap: Mutex<Swap>,
    subordinate_ids: Mutex<Option<SubordinateIds>>,
    programs: Mutex<BTreeMap<PathBuf, Result<String, String>>>,
    program_calls: Mutex<Vec<ProgramCall>>,
    program_effects: Mutex<Vec<(String, Effect)>>,
    firewalls: Mutex<Firewalls>,
    /// By mount point; there is one at the root.
    spaces: Mutex<BTreeMap<PathBuf, FilesystemSpace>>,
    /// Project ids by directory; `None` where filesystems have no project quotas.
    projects: Mutex<Option<BTreeMap<PathBuf, u32>>>,
    /// Files whose content a power cut loses.
    unflushed: Mutex<BTreeSet<PathBuf>>,
    selinux_labels: Mutex<BTreeMap<PathBuf, String>>,
    /// How often the machine has started again.
    reboots: AtomicU64,
    breakage: Mutex<Breakage>,
}

/// What a broken machine does wrong although it reports success: tests show with it that they would detect that.
#[derive(Clone, Copy, Debug, Default)]
struct Breakage {
    ignores_flushes: bool,
    ignores_unmounts: bool,
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

/// A queued fault for a call with a path.
#[derive(Debug)]
struct PendingFault {
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
            topology: Mutex::default(),
            swap: Mutex::default(),
            subordinate_ids: Mutex::default(),
            programs: Mutex::default(),
            program_calls: Mutex::default(),
            program_effects: Mutex::default(),
            firewalls: Mutex::default(),
            spaces: Mutex::new([(PathBuf::from("/"), SPACE)].into()),
            projects: Mutex::default(),
            unflushed: Mutex::default(),
            selinux_labels: Mutex::default(),
            reboots: AtomicU64::new(0),
            breakage: Mutex::default(),
        };
        let host = Self { shared: Arc::new(shared) };
        host.put("/etc/hosts", "127.0.0.1\tlocalhost\n").put("/etc/resolv.conf", "nameserver 10.0.0.2\n");
        host
    }

    // ---- what happens from outside ----

    /// A power cut: files that were not written durably exist, and are empty.
    pub fn power_cut(&self) -> &Self {
        for path in std::mem::take(&mut *self.shared.unflushed.lock()) {
            if self.text(&path).is_some() {
                self.put(&path, "");
            }
        }
        self
    }

    /// What was written until now survives a power cut.
    pub fn sync(&self) -> &Self {
        self.shared.unflushed.lock().clear();
        self
    }

    /// The machine starts again: nothing is mounted, and what was in memory is lost. Every other file stays.
    pub fn reboot(&self) -> &Self {
        self.shared.reboots.fetch_add(1, Ordering::Relaxed);
        self.change(Path::new("/"), |tree| tree.unmount_tree(Path::new("/")));
        self
    }

    /// From now on the disk reports that it has written durably, and has not: a power cut loses that, too.
    pub fn ignore_flushes(&self) -> &Self {
        self.shared.breakage.lock().ignores_flushes = true;
        self
    }

    /// From now on the machine reports that it has unmounted trees, and has not.
    pub fn ignore_unmounts(&self) -> &Self {
        self.shared.breakage.lock().ignores_unmounts = true;
        self
    }

    /// Writes a file and creates its parent directories.
    pub fn put(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> &Self {
        self.change(path.as_ref(), |tree| {
            tree.write(path.as_ref(), content.as_ref());
        });
        self
    }

    /// Creates a block device and its parent directories.
    pub fn put_device(&self, path: impl AsRef<Path>) -> &Self {
        self.change(path.as_ref(), |tree| tree.put(path.as_ref(), Node::Device));
        self
    }

    /// Creates a link and its parent directories. Links never lead back to themselves.
    pub fn put_link(&self, path: impl AsRef<Path>, target: impl AsRef<Path>) -> &Self {
        let node = Node::Link(target.as_ref().to_owned());
        self.change(path.as_ref(), |tree| tree.put(path.as_ref(), node));
        self
    }

    /// The SELinux labels that were set, by path.
    #[must_use]
    pub fn selinux_labels(&self) -> BTreeMap<PathBuf, String> {
        self.shared.selinux_labels.lock().clone()
    }

    /// Creates a socket and its parent directories. One that was there before is replaced.
    pub fn put_socket(&self, path: impl AsRef<Path>) -> &Self {
        self.change(path.as_ref(), |tree| tree.put_socket(path.as_ref()));
        self
    }

    /// Removes a file, or a directory with everything in it, including its mounts.
    pub fn delete(&self, path: impl AsRef<Path>) -> &Self {
        self.change(path.as_ref(), |tree| tree.wipe(path.as_ref()));
        self
    }

    /// Sets the subuid ranges of every user (none at first).
    pub fn set_subordinate_ids(&self, ids: SubordinateIds) -> &Self {
        *self.shared.subordinate_ids.lock() = Some(ids);
        self
    }

    /// Sets the processors and NUMA nodes (at first one node).
    pub fn set_topology(&self, topology: MachineTopology) -> &Self {
        *self.shared.topology.lock() = Some(topology);
        self
    }

    /// Sets the swap size, and whether tmpfs can be swapped out.
    pub fn set_swap(&self, bytes: u64, takes_tmpfs: bool) -> &Self {
        *self.shared.swap.lock() = Swap { bytes, takes_tmpfs };
        self
    }

    /// What `iptables` or `ip6tables` created: `TABLE CHAIN` and `TABLE CHAIN RULE`.
    #[must_use]
    pub fn firewall(&self, program: impl AsRef<Path>) -> Vec<String> {
        self.shared.firewalls.lock().of(program.as_ref())
    }

    /// Another program flushes all tables.
    pub fn flush_firewalls(&self) -> &Self {
        self.shared.firewalls.lock().empty();
        self
    }

    /// Installs a program with this fixed output or error. One called `mount` mounts as well, and those called `iptables` and
    /// `ip6tables` remember their rules.
    pub fn set_program(&self, path: impl AsRef<Path>, answer: Result<&str, &str>) -> &Self {
        let answer = answer.map(str::to_owned).map_err(str::to_owned);
        self.shared.programs.lock().insert(path.as_ref().to_owned(), answer);
        self
    }

    /// Each program whose command line contains the words writes the file.
    pub fn put_when_run(&self, words: &str, path: impl AsRef<Path>, content: &str) -> &Self {
        self.add_effect(words, Effect::Put(path.as_ref().to_owned(), content.to_owned()))
    }

    /// Each program whose command line contains the words makes the link.
    pub fn link_when_run(&self, words: &str, path: impl AsRef<Path>, target: impl AsRef<Path>) -> &Self {
        self.add_effect(words, Effect::Link(path.as_ref().to_owned(), target.as_ref().to_owned()))
    }

    /// Each program whose command line contains the words removes the file or directory.
    pub fn delete_when_run(&self, words: &str, path: impl AsRef<Path>) -> &Self {
        self.add_effect(words, Effect::Delete(path.as_ref().to_owned()))
    }

    /// Each program whose command line contains the words does nothing else, and fails.
    pub fn set_exit(&self, words: &str, code: i32, output: &str) -> &Self {
        self.add_effect(words, Effect::Exit(code, output.to_owned()))
    }

    fn add_effect(&self, words: &str, effect: Effect) -> &Self {
        self.shared.program_effects.lock().push((words.to_owned(), effect));
        self
    }

    /// Adds a filesystem at that directory, or changes the one that is mounted there (at first `/`, half full of 100 GiB).
    pub fn set_space(&self, below: impl AsRef<Path>, change: impl FnOnce(&mut FilesystemSpace)) -> &Self {
        change(self.shared.spaces.lock().entry(below.as_ref().to_owned()).or_insert(SPACE));
        self
    }

    /// From now on filesystems have project quotas, which count a kibibyte more for each project: a file that is deleted and
    /// still open.
    pub fn enable_project_quotas(&self) -> &Self {
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

    /// The fault applies to the next call of that operation. Faults queue up.
    pub fn fault(&self, method: HostMethod, fault: HostFault) -> &Self {
        self.fault_below(method, "", fault)
    }

    /// The fault applies to the next call with that path or one below it; others succeed.
    pub fn fault_below(&self, method: HostMethod, path: impl AsRef<Path>, fault: HostFault) -> &Self {
        let pending = PendingFault { below: path.as_ref().to_owned(), fault };
        self.shared.faults.lock().entry(method).or_default().push_back(pending);
        self
    }

    /// Clears the faults that have not been applied yet.
    pub fn clear_faults(&self) {
        self.shared.faults.lock().clear();
    }

    // ---- inspection ----

    /// The number of faults of that operation that have not been applied yet.
    #[must_use]
    pub fn pending_faults(&self, method: HostMethod) -> usize {
        self.shared.faults.lock().get(&method).map_or(0, VecDeque::len)
    }

    /// The content of a file, `None` if there is none.
    #[must_use]
    pub fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        let tree = self.shared.tree.lock();
        tree.content(path.as_ref()).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    /// Whether a file or directory exists.
    #[must_use]
    pub fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.shared.tree.lock().exists(path.as_ref())
    }

    /// Every file, link and directory strictly below the path, sorted.
    #[must_use]
    pub fn files_below(&self, path: impl AsRef<Path>) -> Vec<String> {
        self.shared.tree.lock().below(path.as_ref()).map(|path| path.display().to_string()).collect()
    }

    /// Every mount as `<kind> <path>`, sorted by path: `tmpfs /run/x`, `bind /a/b`.
    #[must_use]
    pub fn mounts(&self) -> Vec<String> {
        self.shared.tree.lock().mounts.iter().map(|(at, kind)| format!("{kind} {}", at.display())).collect()
    }

    /// The fault that applies to a call, before its effect or after it.
    fn meet(&self, method: HostMethod, path: &Path, is_done: bool) -> Option<HostFault> {
        let mut faults = self.shared.faults.lock();
        let waiting = faults.get_mut(&method)?;
        let meets = |pending: &PendingFault| {
            path.starts_with(&pending.below) && is_done == (pending.fault == HostFault::TimesOutButDone)
        };
        let index = waiting.iter().position(meets)?;
        waiting.remove(index).map(|pending| pending.fault)
    }

    /// Applies the fault of a call.
    async fn begin(&self, method: HostMethod, what: &'static str, path: &Path) -> HostResult<()> {
        self.suffer(self.meet(method, path, false), what, path).await
    }

    /// Does the same after the effect of the call.
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
            Some(HostFault::TimesOut | HostFault::TimesOutButDone) => {
                Err(HostError::NotFinished(format!("{what} {}: no answer (scripted)", path.display())))
            }
            Some(HostFault::Hangs) => std::future::pending().await,
        }
    }

    /// Changes the tree and notifies the watchers.
    fn change<T>(&self, path: &Path, change: impl FnOnce(&mut Tree) -> T) -> T {
        let mut tree = self.shared.tree.lock();
        let result = change(&mut tree);
        let is_removed = !tree.exists(path);
        drop(tree);
        // There may be no watcher.
        let _ = self.shared.changes.send(Changed { path: path.to_owned(), is_removed });
        result
    }
}

#[cfg(test)]
mod tests;
