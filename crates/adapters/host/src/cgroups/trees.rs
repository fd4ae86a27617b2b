//! The trees of cgroups as directories: one for each controller of version 1, a single one of version 2.
//!
//! A machine with both has the controllers in trees of version 1 and an empty tree of version 2 next to them, in
//! which no cgroup is created, but what a runtime made there for a pod is removed with the pod.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use model::cgroup::{CgroupFile, CgroupState, CgroupVersion};
use ports::cgroups::CgroupRemoval;
use ports::host::{HostError, HostResult};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process};

use crate::{failed, measure};

/// Only cgroups of version 2 have it.
const CONTROLLERS: &str = "cgroup.controllers";
const PROCESSES: &str = "cgroup.procs";
/// In these trees of version 1 a limit of a pod is found.
const LIMITING: [&str; 2] = ["cpu", "memory"];
/// What a cgroup of `cpuset` needs before a process can be in it; it begins with none.
const CPUSET: [&str; 2] = ["cpuset.cpus", "cpuset.mems"];
/// How often new processes are searched for, because a process may start another one before it is killed.
const KILL_ROUNDS: usize = 10;
/// How many processes are open at a time while they are killed.
const KILL_BATCH: usize = 256;

#[derive(Clone, Debug)]
pub(super) struct Trees {
    root: PathBuf,
    version: CgroupVersion,
}

impl Trees {
    pub(super) const fn new(root: PathBuf, version: CgroupVersion) -> Self {
        Self { root, version }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Where version 1 counts memory.
    pub(super) fn memory_tree(&self) -> HostResult<PathBuf> {
        match self.version {
            CgroupVersion::V1 => Ok(self.root.join("memory")),
            CgroupVersion::V2 => Err(HostError::Invalid("cgroup v2 cannot watch memory".to_owned())),
        }
    }

    /// Every tree. Links are left out, because they are other names of an existing tree.
    fn all(&self) -> Vec<PathBuf> {
        match self.version {
            CgroupVersion::V2 => vec![self.root.clone()],
            CgroupVersion::V1 => directories(&self.root).map(|name| self.root.join(name)).collect(),
        }
    }

    /// The trees in which cgroups are made.
    fn ours(&self) -> Vec<PathBuf> {
        let mut all = self.all();
        if self.version == CgroupVersion::V1 {
            all.retain(|tree| !tree.join(CONTROLLERS).exists());
        }
        all
    }

    /// The trees in which a limit of a pod is found.
    pub(super) fn limiting(&self) -> Vec<PathBuf> {
        match self.version {
            CgroupVersion::V1 => LIMITING.map(|tree| self.root.join(tree)).to_vec(),
            CgroupVersion::V2 => vec![self.root.clone()],
        }
    }

    pub(super) fn exists(&self, path: &str) -> bool {
        self.limiting().iter().all(|tree| inside(tree, path).is_dir())
    }

    /// Whether it is in some tree.
    pub(super) fn has_any(&self, path: &str) -> bool {
        self.all().iter().any(|tree| inside(tree, path).is_dir())
    }

    /// Makes the cgroup in every tree, with those above it.
    pub(super) fn make(&self, path: &str) -> HostResult<()> {
        for tree in self.ours() {
            let mut dir = tree;
            self.hand_down(&dir);
            let mut parts = path.split('/').filter(|part| !part.is_empty()).peekable();
            while let Some(part) = parts.next() {
                dir.push(part);
                match fs::create_dir(&dir) {
                    Ok(()) => {}
                    Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                    Err(error) => return Err(failed("make cgroup", &dir)(error)),
                }
                self.inherit_cpus(&dir).map_err(failed("hand CPUs to cgroup", &dir))?;
                if parts.peek().is_some() {
                    self.hand_down(&dir);
                }
            }
        }
        Ok(())
    }

    /// Version 2: a parent enables the controllers of its children. If that is refused, the files that are written next are
    /// missing.
    fn hand_down(&self, dir: &Path) {
        if self.version == CgroupVersion::V1 {
            return;
        }
        let read = |name: &str| fs::read_to_string(dir.join(name)).unwrap_or_default();
        let (available, given) = (read(CONTROLLERS), read("cgroup.subtree_control"));
        let given: Vec<&str> = given.split_whitespace().collect();
        for controller in available.split_whitespace().filter(|controller| !given.contains(controller)) {
            let _ = put(&dir.join("cgroup.subtree_control"), &format!("+{controller}"));
        }
    }

    /// Version 1: a cgroup begins without CPUs and memory nodes, and no process can enter it.
    fn inherit_cpus(&self, dir: &Path) -> io::Result<()> {
        if self.version == CgroupVersion::V2 {
            return Ok(());
        }
        for name in CPUSET {
            let own = dir.join(name);
            if !own.exists() || !fs::read_to_string(&own)?.trim().is_empty() {
                continue;
            }
            let above = dir.parent().unwrap_or(dir).join(name);
            put(&own, fs::read_to_string(above)?.trim())?;
        }
        Ok(())
    }

    /// Writes the values that differ. What is refused is tried once more after the rest, because limits depend on each other:
    /// a shorter period is fine only with a smaller quota.
    pub(super) fn write(&self, path: &str, files: &[CgroupFile]) -> HostResult<()> {
        let mut refused = Vec::new();
        for file in files {
            let at = self.place_of(file, path);
            if !is_so(file, &at).map_err(failed("read", &at))? && put(&at, &file.text).is_err() {
                refused.push((at, &file.text));
            }
        }
        refused.into_iter().try_for_each(|(at, text)| put(&at, text).map_err(failed("write", &at)))
    }

    /// Only reads. A missing file counts as a different value: either its hierarchy lacks the cgroup, which writing creates, or
    /// writing returns the error.
    pub(super) fn compare(&self, path: &str, files: &[CgroupFile]) -> HostResult<CgroupState> {
        for tree in self.limiting() {
            let at = inside(&tree, path);
            match fs::metadata(&at) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(CgroupState::Missing),
                Err(error) => return Err(failed("read cgroup", &at)(error)),
            }
        }
        for file in files {
            let at = self.place_of(file, path);
            match is_so(file, &at) {
                Ok(true) => {}
                Ok(false) => return Ok(CgroupState::Changed),
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(CgroupState::Changed),
                Err(error) => return Err(failed("read", &at)(error)),
            }
        }
        Ok(CgroupState::UpToDate)
    }

    fn place_of(&self, file: &CgroupFile, path: &str) -> PathBuf {
        inside(&self.root.join(file.controller), path).join(&file.name)
    }

    pub(super) fn read(&self, path: &str, files: &[(&str, &str)]) -> Vec<Option<String>> {
        let place = |(controller, name): &(&str, &str)| inside(&self.root.join(controller), path).join(name);
        files.iter().map(|file| fs::read_to_string(place(file)).ok()).collect()
    }

    pub(super) fn children(&self, path: &str) -> Vec<String> {
        let all = self.all().into_iter().flat_map(|tree| directories(&inside(&tree, path)));
        all.collect::<BTreeSet<String>>().into_iter().collect()
    }

    /// Of all trees: in each of them a process may be elsewhere.
    pub(super) fn processes(&self, path: &str) -> Vec<u32> {
        let mut found = BTreeSet::new();
        for dir in self.all().iter().flat_map(|tree| with_all_below(&inside(tree, path))) {
            found.extend(pids(&fs::read_to_string(dir.join(PROCESSES)).unwrap_or_default()));
        }
        found.into_iter().collect()
    }

    /// On version 1 those of the first hierarchy with a controller, which has every process.
    pub(super) fn members(&self, path: &str) -> HostResult<Vec<u32>> {
        let tree = match self.version {
            CgroupVersion::V1 => self.root.join(LIMITING[0]),
            CgroupVersion::V2 => self.root.clone(),
        };
        let at = inside(&tree, path).join(PROCESSES);
        Ok(pids(&fs::read_to_string(&at).map_err(failed("read", &at))?).collect())
    }

    pub(super) fn kill(&self, path: &str) -> HostResult<()> {
        if self.version == CgroupVersion::V2 {
            // The kernel kills all of them at once.
            match put(&inside(&self.root, path).join("cgroup.kill"), "1") {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(failed("kill all in cgroup", Path::new(path))(error)),
            }
        }
        let mut hit = BTreeSet::new();
        for _ in 0..KILL_ROUNDS {
            let new: Vec<u32> = self.processes(path).into_iter().filter(|pid| hit.insert(*pid)).collect();
            if new.is_empty() {
                break;
            }
            for batch in new.chunks(KILL_BATCH) {
                self.kill_those(path, batch).map_err(failed("kill a process of", Path::new(path)))?;
            }
        }
        Ok(())
    }

    /// Kills those that still are in the cgroup: since the list was read, the number of one may have been given to another process.
    pub(super) fn kill_those(&self, path: &str, pids: &[u32]) -> Result<(), Errno> {
        let ids = pids.iter().filter_map(|pid| Some((*pid, Pid::from_raw(pid.cast_signed())?)));
        // From here on a descriptor names its process, whatever becomes of the number.
        let opened: Vec<_> =
            ids.map(|(pid, id)| (pid, id, rustix::process::pidfd_open(id, PidfdFlags::empty()))).collect();
        let now: BTreeSet<u32> = self.processes(path).into_iter().collect();
        for (_, id, descriptor) in opened.into_iter().filter(|(pid, ..)| now.contains(pid)) {
            let killed = match descriptor {
                Ok(descriptor) => rustix::process::pidfd_send_signal(descriptor, Signal::KILL),
                // Linux before 5.3.
                Err(Errno::NOSYS) => kill_process(id, Signal::KILL),
                Err(error) => Err(error),
            };
            match killed {
                // It has ended by itself.
                Ok(()) | Err(Errno::SRCH) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    pub(super) fn remove(&self, path: &str) -> HostResult<CgroupRemoval> {
        let mut is_busy = false;
        for tree in self.all() {
            for dir in with_all_below(&inside(&tree, path)) {
                match fs::remove_dir(&dir) {
                    Ok(()) => {}
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    Err(error)
                        if matches!(error.kind(), ErrorKind::ResourceBusy | ErrorKind::DirectoryNotEmpty) =>
                    {
                        is_busy = true;
                    }
                    Err(error) => return Err(failed("remove cgroup", &dir)(error)),
                }
            }
        }
        Ok(if is_busy { CgroupRemoval::Busy { pids: self.processes(path) } } else { CgroupRemoval::Gone })
    }

    pub(super) fn join(&self, path: &str, pid: u32) -> HostResult<()> {
        for tree in self.ours() {
            let at = inside(&tree, path).join(PROCESSES);
            put(&at, &pid.to_string()).map_err(failed("move a process into", &at))?;
        }
        Ok(())
    }
}

pub(super) fn inside(tree: &Path, path: &str) -> PathBuf {
    tree.join(path.trim_start_matches('/'))
}

/// What is in another namespace of processes is shown as 0.
/// Whether the file has the value, or is one that may be missing.
fn is_so(file: &CgroupFile, at: &Path) -> io::Result<bool> {
    match fs::read_to_string(at) {
        Ok(now) => Ok(now.trim() == file.text),
        Err(error) if file.is_optional && error.kind() == ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

fn pids(text: &str) -> impl Iterator<Item = u32> {
    text.lines().filter_map(|line| line.parse::<u32>().ok()).filter(|pid| *pid > 0)
}

/// The file must exist: a cgroup has a fixed set of files.
pub(super) fn put(path: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes())
}

fn directories(dir: &Path) -> impl Iterator<Item = String> + use<> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    directories.filter_map(|entry| entry.file_name().into_string().ok())
}

/// The directory and all below it, the innermost first; empty if it does not exist.
fn with_all_below(dir: &Path) -> Vec<PathBuf> {
    if !dir.is_dir() {
        return Vec::new();
    }
    let mut below = measure::directories_below(dir);
    // A child has its parent's name as a prefix, and is sorted after it.
    below.sort_unstable_by(|a, b| b.cmp(a));
    let below = below.into_iter().map(|path| inside(dir, &path));
    below.chain([dir.to_path_buf()]).collect()
}
