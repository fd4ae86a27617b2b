//! Cgroups in memory, with processes that may survive some SIGKILLs.
//!
//! Owns [`FakeCgroups`]. It has one hierarchy and does not show which cgroup version it is.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use model::cgroup::{CgroupPath, CgroupSettings, CgroupState, MemoryMark, ProcessFacts, UnitValue};
use parking_lot::Mutex;
use ports::cgroups::CgroupRemoval;
use ports::host::HostResult;
use ports::{Cgroups, HostError};
use tokio::sync::Notify;

/// The fake. Clones share everything.
#[derive(Clone, Debug, Default)]
pub struct FakeCgroups {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// By path: what was written, by the name of the file.
    cgroups: BTreeMap<String, BTreeMap<String, String>>,
    /// The systemd properties of slices, by path and name.
    properties: BTreeMap<(String, &'static str), UnitValue>,
    /// Live processes, in their cgroups.
    processes: Vec<Process>,
    /// Creating or writing anything below these fails.
    broken: Vec<String>,
    /// The watched memory thresholds, and the watchers to notify.
    marks: Vec<MemoryMark>,
    alarm: Arc<Notify>,
    /// By socket, the process that serves it.
    listeners: BTreeMap<PathBuf, u32>,
    /// No OOM score may be lowered.
    rejects_scores: bool,
}

#[derive(Debug)]
struct Process {
    cgroup: String,
    /// So many SIGKILLs do not end it.
    endures: u32,
    facts: ProcessFacts,
    /// Starts another process at the moment before it is moved for the first time.
    child: Option<u32>,
}

impl Process {
    fn new(cgroup: &str, pid: u32) -> Self {
        let executable = Some("/bin/program".to_owned());
        let facts = ProcessFacts { pid, executable, is_on_node: true, ..ProcessFacts::default() };
        Self { cgroup: cgroup.to_owned(), endures: 0, facts, child: None }
    }
}

impl FakeCgroups {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Every cgroup, sorted.
    #[must_use]
    pub fn paths(&self) -> Vec<String> {
        self.state.lock().cgroups.keys().cloned().collect()
    }

    /// A systemd property of a slice; `None` if it was never set.
    #[must_use]
    pub fn property(&self, slice: &str, name: &'static str) -> Option<UnitValue> {
        self.state.lock().properties.get(&(slice.to_owned(), name)).cloned()
    }

    /// The content of a file; `None` if it was never written.
    #[must_use]
    pub fn text(&self, cgroup: &str, file: &str) -> Option<String> {
        self.state.lock().cgroups.get(cgroup)?.get(file).cloned()
    }

    /// Creates a cgroup, as another program would.
    pub fn create(&self, cgroup: &str) -> &Self {
        self.state.lock().make(cgroup);
        self
    }

    /// Writes into a file, as another program would.
    pub fn write(&self, cgroup: &str, file: &str, text: &str) -> &Self {
        let mut state = self.state.lock();
        state.make(cgroup);
        let files = state.cgroups.get_mut(cgroup);
        files.and_then(|files| files.insert(file.to_owned(), text.to_owned()));
        drop(state);
        self
    }

    /// Removes a cgroup with everything below it, as another program would; its processes are moved elsewhere.
    pub fn remove_cgroup(&self, cgroup: &str) -> &Self {
        let mut state = self.state.lock();
        state.cgroups.retain(|path, _| !is_inside(path, cgroup));
        state
            .processes
            .iter_mut()
            .filter(|p| is_inside(&p.cgroup, cgroup))
            .for_each(|p| p.cgroup = "/".into());
        drop(state);
        self
    }

    /// The machine starts again: there are no cgroups, processes and watched thresholds.
    pub fn reboot(&self) -> &Self {
        let mut state = self.state.lock();
        state.cgroups.clear();
        state.processes.clear();
        state.marks.clear();
        drop(state);
        self
    }

    /// A process in a cgroup that survives so many SIGKILLs.
    pub fn add_process(&self, cgroup: &str, pid: u32, endures: u32) -> &Self {
        self.state.lock().processes.push(Process { endures, ..Process::new(cgroup, pid) });
        self
    }

    /// A kernel thread, in the root cgroup.
    pub fn add_kernel_thread(&self, pid: u32) -> &Self {
        let mut thread = Process::new("/", pid);
        thread.facts.executable = None;
        self.state.lock().processes.push(thread);
        self
    }

    /// A process in a cgroup that starts another one just before it is moved.
    pub fn add_parent(&self, cgroup: &str, pid: u32, child: u32) -> &Self {
        self.state.lock().processes.push(Process { child: Some(child), ..Process::new(cgroup, pid) });
        self
    }

    /// Sets the process that serves a socket.
    pub fn listen(&self, socket: &str, pid: u32) -> &Self {
        self.state.lock().listeners.insert(socket.into(), pid);
        self
    }

    /// From now on no score may be set.
    pub fn reject_scores(&self) -> &Self {
        self.state.lock().rejects_scores = true;
        self
    }

    /// The cgroup of a process, and its score.
    #[must_use]
    pub fn process_cgroup(&self, pid: u32) -> Option<(String, i32)> {
        let state = self.state.lock();
        let process = state.processes.iter().find(|process| process.facts.pid == pid)?;
        Some((process.cgroup.clone(), process.facts.oom_score_adj))
    }

    /// The memory usage at which watchers are notified.
    #[must_use]
    pub fn memory_thresholds(&self) -> Vec<MemoryMark> {
        self.state.lock().marks.clone()
    }

    /// Signals that one of the thresholds is reached.
    pub fn notify_memory_threshold(&self) {
        self.state.lock().alarm.notify_one();
    }

    /// From now on nothing can be created or written there.
    pub fn fail_below(&self, cgroup: &str) -> &Self {
        self.state.lock().broken.push(cgroup.to_owned());
        self
    }

    /// Everything works again.
    pub fn repair(&self) {
        self.state.lock().broken.clear();
    }
}

impl State {
    fn make(&mut self, path: &str) {
        let ends = path.match_indices('/').map(|(at, _)| at).filter(|at| *at > 0).chain([path.len()]);
        for end in ends {
            self.cgroups.entry(path[..end].to_owned()).or_default();
        }
    }

    fn check(&self, path: &str) -> HostResult<()> {
        if self.broken.iter().any(|broken| is_inside(path, broken)) {
            return Err(HostError::Invalid(format!("scripted: {path} is broken")));
        }
        Ok(())
    }

    fn pids(&self, path: &str) -> Vec<u32> {
        self.processes.iter().filter(|p| is_inside(&p.cgroup, path)).map(|p| p.facts.pid).collect()
    }
}

fn is_inside(path: &str, above: &str) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[async_trait]
impl Cgroups for FakeCgroups {
    async fn exists(&self, cgroup: &CgroupPath) -> bool {
        self.state.lock().cgroups.contains_key(&*cgroup.path)
    }

    async fn ensure(&self, cgroup: &CgroupPath, settings: &CgroupSettings) -> HostResult<()> {
        let mut state = self.state.lock();
        state.check(&cgroup.path)?;
        state.make(&cgroup.path);
        let files = state.cgroups.entry(cgroup.path.to_string()).or_default();
        files.extend(settings.files.iter().map(|file| (file.name.clone(), file.text.clone())));
        if cgroup.is_slice {
            let path = || cgroup.path.to_string();
            let properties = settings.properties.iter();
            state
                .properties
                .extend(properties.map(|property| ((path(), property.name), property.value.clone())));
        }
        Ok(())
    }

    async fn compare(&self, cgroup: &CgroupPath, settings: &CgroupSettings) -> HostResult<CgroupState> {
        let state = self.state.lock();
        state.check(&cgroup.path)?;
        let Some(written) = state.cgroups.get(&*cgroup.path) else { return Ok(CgroupState::Missing) };
        let is_so = settings.files.iter().all(|file| written.get(&file.name) == Some(&file.text));
        Ok(if is_so { CgroupState::UpToDate } else { CgroupState::Changed })
    }

    async fn read(
        &self,
        cgroup: &CgroupPath,
        files: &[(&'static str, &'static str)],
    ) -> HostResult<Vec<Option<String>>> {
        let state = self.state.lock();
        state.check(&cgroup.path)?;
        let written = state.cgroups.get(&*cgroup.path);
        Ok(files.iter().map(|(_, name)| written?.get(*name).cloned()).collect())
    }

    async fn children(&self, cgroup: &CgroupPath) -> Vec<String> {
        let state = self.state.lock();
        let below =
            state.cgroups.keys().filter_map(|path| path.strip_prefix(&*cgroup.path)?.strip_prefix('/'));
        below.filter(|rest| !rest.contains('/')).map(str::to_owned).collect()
    }

    async fn processes(&self, cgroup: &CgroupPath) -> Vec<u32> {
        self.state.lock().pids(&cgroup.path)
    }

    async fn kill(&self, cgroup: &CgroupPath) -> HostResult<()> {
        self.state.lock().processes.retain_mut(|process| {
            let is_hit = is_inside(&process.cgroup, &cgroup.path);
            let survives = !is_hit || process.endures > 0;
            process.endures = process.endures.saturating_sub(u32::from(is_hit));
            survives
        });
        Ok(())
    }

    async fn remove(&self, cgroup: &CgroupPath) -> HostResult<CgroupRemoval> {
        let mut state = self.state.lock();
        let pids = state.pids(&cgroup.path);
        if !pids.is_empty() {
            return Ok(CgroupRemoval::Busy { pids });
        }
        state.cgroups.retain(|path, _| !is_inside(path, &cgroup.path));
        Ok(CgroupRemoval::Gone)
    }

    async fn join(&self, cgroup: &CgroupPath, pid: u32) -> HostResult<()> {
        let mut state = self.state.lock();
        state.check(&cgroup.path)?;
        let Some(process) = state.processes.iter_mut().find(|process| process.facts.pid == pid) else {
            return Err(HostError::Invalid(format!("there is no process {pid}")));
        };
        let from = std::mem::replace(&mut process.cgroup, cgroup.path.to_string());
        let child = process.child.take();
        state.processes.extend(child.map(|child| Process::new(&from, child)));
        Ok(())
    }

    async fn members(&self, cgroup: &CgroupPath) -> HostResult<Vec<u32>> {
        let state = self.state.lock();
        let members = state.processes.iter().filter(|process| *process.cgroup == *cgroup.path);
        Ok(members.map(|process| process.facts.pid).collect())
    }

    async fn facts_of(&self, pids: &[u32]) -> Vec<ProcessFacts> {
        let state = self.state.lock();
        let requested = state.processes.iter().filter(|process| pids.contains(&process.facts.pid));
        let cgroups = |process: &Process| format!("1:name=systemd:{0}\n0::{0}\n", process.cgroup);
        requested.map(|process| ProcessFacts { cgroups: cgroups(process), ..process.facts.clone() }).collect()
    }

    async fn listener(&self, socket: &Path) -> HostResult<Option<u32>> {
        Ok(self.state.lock().listeners.get(socket).copied())
    }

    async fn set_oom_score_adj(&self, pid: u32, score: i32) -> HostResult<()> {
        let mut state = self.state.lock();
        if state.rejects_scores {
            return Err(HostError::Invalid("scripted: scores stay as they are".to_owned()));
        }
        let processes = state.processes.iter_mut().filter(|process| process.facts.pid == pid);
        processes.for_each(|process| process.facts.oom_score_adj = score);
        Ok(())
    }

    async fn watch_memory(&self, marks: &[MemoryMark]) -> HostResult<BoxFuture<'static, ()>> {
        let mut state = self.state.lock();
        for mark in marks {
            state.check(&mark.cgroup)?;
        }
        marks.clone_into(&mut state.marks);
        state.alarm = Arc::default();
        let alarm = state.alarm.clone();
        Ok(async move { alarm.notified().await }.boxed())
    }
}
