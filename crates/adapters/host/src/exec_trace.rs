//! Processes that a command left running in a container: found by its session, ended by SIGKILL.
//!
//! Every command that a runtime starts in a container leads a session of its own, which its children inherit. A runtime
//! that ends the command does not end those children; they would pile up with every probe that hangs.
//! Never: processes that the container itself started.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

use ports::host::ExecTrace;
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::container_processes::{ContainerCgroups, is_named_for};

/// The kernel counts start times in ticks of this length, on every architecture.
const TICK: Duration = Duration::from_millis(10);
/// How often processes are searched for, because children may start while their parents are killed.
const ROUNDS: usize = 5;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Process {
    parent: u32,
    session: u32,
    /// Since boot, in ticks.
    started: u64,
}

type Processes = BTreeMap<u32, Process>;

/// A container whose processes are searched for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Container<'a> {
    pub(crate) id: &'a str,
    /// `/proc`.
    pub(crate) proc: &'a Path,
    pub(crate) cgroups: &'a ContainerCgroups,
}

/// The command's session among those of the container that began no longer ago than `age`.
pub(crate) fn find(container: Container<'_>, command: &[String], age: Duration) -> ExecTrace {
    let (proc, processes) = (container.proc, container.processes());
    let since = uptime_ticks(proc).saturating_sub(ticks(age));
    let young = || processes.iter().filter(|(_, process)| process.started >= since);
    // The container's own first process may be as young as its first probe.
    let first = first(&processes);
    let mut leaders: Vec<(u32, u64)> = young()
        .filter(|(pid, process)| process.session == **pid && !processes.contains_key(&process.parent))
        .filter(|(pid, _)| Some(**pid) != first)
        .map(|(pid, process)| (*pid, process.started))
        .collect();
    // Another command may run at the same time: the one we search for has its arguments, and began first.
    leaders.sort_by_key(|(pid, started)| (!has_arguments(proc, *pid, command), *started));
    let leader = leaders.first().map(|(pid, _)| *pid);
    let known = first.map(|pid| pipes(proc, pid)).unwrap_or_default();
    let orphans = young()
        .filter(|(_, process)| !proc.join(process.session.to_string()).exists())
        .filter(|(pid, _)| pipes(proc, **pid).difference(&known).next().is_some())
        .map(|(_, process)| process.session);
    ExecTrace { is_running: leader.is_some(), sessions: leader.into_iter().chain(orphans).collect() }
}

/// Kills the sessions, and what was started from them meanwhile.
pub(crate) fn end(container: Container<'_>, trace: &ExecTrace) {
    // With the time when it started: a number may be given to another process.
    let mut marked: BTreeMap<u32, u64> = BTreeMap::new();
    for _ in 0..ROUNDS {
        let processes = container.processes();
        let is_same = |pid: &u32, started: u64| processes.get(pid).is_some_and(|p| p.started == started);
        marked.retain(|pid, started| is_same(pid, *started));
        let sessions = processes.iter().filter(|(_, p)| trace.sessions.contains(&p.session));
        marked.extend(sessions.map(|(pid, p)| (*pid, p.started)));
        // Children nearly always have higher numbers than their parents; the next round finds the rest.
        let children: Vec<_> = processes.iter().filter(|(_, p)| marked.contains_key(&p.parent)).collect();
        marked.extend(children.into_iter().map(|(pid, p)| (*pid, p.started)));
        if marked.is_empty() {
            return;
        }
        for (pid, started) in &marked {
            kill(container, *pid, *started);
        }
    }
}

/// Kills the process if it is still the one that was found.
fn kill(container: Container<'_>, pid: u32, started: u64) {
    let Some(id) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return };
    // From here on the descriptor names this process, whatever becomes of its number.
    let descriptor = rustix::process::pidfd_open(id, PidfdFlags::empty());
    let is_same =
        container.has(pid) && process(container.proc, pid).is_some_and(|process| process.started == started);
    if !is_same {
        return;
    }
    // It may have ended by itself just now.
    let _ = match descriptor {
        Ok(descriptor) => rustix::process::pidfd_send_signal(descriptor, Signal::KILL),
        // Linux before 5.3.
        Err(rustix::io::Errno::NOSYS) => rustix::process::kill_process(id, Signal::KILL),
        Err(_) => return,
    };
}

impl Container<'_> {
    /// Zombies are left out, and so is a process whose number meanwhile is that of another.
    fn processes(self) -> Processes {
        let pids = self.cgroups.processes(self.id).into_iter().filter(|pid| self.has(*pid));
        pids.filter_map(|pid| Some((pid, process(self.proc, pid)?))).collect()
    }

    /// Whether the process is in the container's cgroup or below it.
    fn has(self, pid: u32) -> bool {
        let cgroups = fs::read_to_string(self.proc.join(pid.to_string()).join("cgroup")).unwrap_or_default();
        cgroups.split(['/', '\n']).any(|name| is_named_for(name, self.id))
    }
}

/// `None`: it has exited or is a zombie.
fn process(proc: &Path, pid: u32) -> Option<Process> {
    parse_stat(&fs::read_to_string(proc.join(pid.to_string()).join("stat")).ok()?)
}

/// `None` for a zombie. The program's name stands in brackets and may hold anything.
fn parse_stat(stat: &str) -> Option<Process> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    let small = |index: usize| u32::try_from(number(index)?).ok();
    let is_zombie = matches!(*fields.first()?, "Z" | "X");
    (!is_zombie).then_some(())?;
    Some(Process { parent: small(1)?, session: small(3)?, started: number(19)? })
}

/// For fuzzers: a name in brackets changes nothing of what is read behind it.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn check_stat(stat: &str) {
    if let Some((_, behind)) = stat.rsplit_once(')') {
        assert_eq!(parse_stat(stat), parse_stat(&format!("1 (S) 1 (x){behind}")));
    } else {
        assert_eq!(parse_stat(stat), None);
    }
}

fn uptime_ticks(proc: &Path) -> u64 {
    let text = fs::read_to_string(proc.join("uptime")).unwrap_or_default();
    let seconds = text.split_whitespace().next().and_then(|s| s.parse::<f64>().ok()).unwrap_or_default();
    ticks(Duration::try_from_secs_f64(seconds).unwrap_or_default())
}

fn ticks(time: Duration) -> u64 {
    u64::try_from(time.as_nanos() / TICK.as_nanos()).unwrap_or(u64::MAX)
}

/// A script's command line has its interpreter in front, so only the end is compared.
fn has_arguments(proc: &Path, pid: u32, command: &[String]) -> bool {
    let line = fs::read(proc.join(pid.to_string()).join("cmdline")).unwrap_or_default();
    let wanted: Vec<u8> = command.iter().flat_map(|arg| arg.bytes().chain([0])).collect();
    line.ends_with(&wanted)
}

/// The oldest process of the container.
fn first(processes: &Processes) -> Option<u32> {
    processes.iter().min_by_key(|(_, process)| process.started).map(|(pid, _)| *pid)
}

/// Pipes that the process has as its input and outputs.
fn pipes(proc: &Path, pid: u32) -> BTreeSet<String> {
    let dir = proc.join(pid.to_string()).join("fd");
    let targets = ["0", "1", "2"].into_iter().filter_map(|fd| fs::read_link(dir.join(fd)).ok());
    targets.map(|target| target.display().to_string()).filter(|target| target.starts_with("pipe:")).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// The container's cgroup in the made-up machine.
    const CGROUP: &str = "cgroup/cpu/k8s.io/abc123";

    /// A process in a made-up `/proc`: its pid, parent, session, start tick, command line and standard output.
    fn add(proc: &Path, ids: [u32; 3], started: u64, line: &str, stdout: &str) {
        let [pid, parent, session] = ids;
        let list = proc.join(CGROUP).join("cgroup.procs");
        let others = fs::read_to_string(&list).unwrap_or_default();
        fs::write(&list, format!("{others}{pid}\n")).unwrap();
        add_outside(proc, [pid, parent, session], started, line, stdout);
    }

    /// A process that the kernel does not list in the container's cgroup.
    fn add_outside(proc: &Path, [pid, parent, session]: [u32; 3], started: u64, line: &str, stdout: &str) {
        let dir = proc.join(pid.to_string());
        fs::create_dir_all(dir.join("fd")).unwrap();
        let zeros = "0 ".repeat(15);
        fs::write(dir.join("stat"), format!("{pid} (a) b) S {parent} 1 {session} {zeros}{started} 0 0"))
            .unwrap();
        fs::write(dir.join("cgroup"), "0::/k8s.io/abc123\n").unwrap();
        fs::write(dir.join("cmdline"), line.replace(' ', "\0") + "\0").unwrap();
        symlink(stdout, dir.join("fd/1")).unwrap();
    }

    fn machine() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("uptime"), "100.00 50.00\n").unwrap();
        fs::create_dir_all(dir.path().join(CGROUP)).unwrap();
        add(dir.path(), [10, 1, 10], 100, "server", "pipe:[1]");
        add(dir.path(), [11, 10, 10], 9_950, "worker of server", "pipe:[1]");
        dir
    }

    /// Calls it with the container of that id.
    fn with<T>(dir: &tempfile::TempDir, id: &str, call: impl FnOnce(Container<'_>) -> T) -> T {
        let cgroups = ContainerCgroups::new(dir.path().join("cgroup"));
        call(Container { id, proc: dir.path(), cgroups: &cgroups })
    }

    fn find_in(dir: &tempfile::TempDir, id: &str, text: &str, age: Duration) -> ExecTrace {
        with(dir, id, |container| find(container, &command(text), age))
    }

    fn command(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn proc_stat_is_parsed_after_the_process_name() {
        let line = "7 (x) S 1) S 3 4 5 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 77 0";
        assert_eq!(parse_stat(line), Some(Process { parent: 3, session: 5, started: 77 }));
        assert_eq!(parse_stat("7 (x) Z 3 4 5"), None);
        assert_eq!(parse_stat("nonsense"), None);
    }

    /// The made-up process has the number of a real one, which must live on.
    #[test]
    fn process_with_a_reused_pid_is_not_killed() {
        let dir = machine();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id();
        add(dir.path(), [pid, 10, pid], 9_990, "sleep 60", "pipe:[5]");
        with(&dir, "abc123", |container| kill(container, pid, 9_930));
        with(&dir, "another", |container| kill(container, pid, 9_990));
        assert!(child.try_wait().unwrap().is_none(), "it was not the one that was found");
        with(&dir, "abc123", |container| kill(container, pid, 9_990));
        let ended = child.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended), Some(9));
    }

    #[test]
    fn exec_is_found_by_its_arguments() {
        let dir = machine();
        add(dir.path(), [20, 1, 20], 9_910, "/bin/other", "pipe:[2]");
        add(dir.path(), [21, 1, 21], 9_920, "/bin/sh /probe.sh now", "pipe:[3]");
        add(dir.path(), [22, 21, 21], 9_921, "sleep 9", "pipe:[3]");
        let found = find_in(&dir, "abc123", "/probe.sh now", Duration::from_secs(1));
        assert_eq!(found, ExecTrace { is_running: true, sessions: [21].into() });
        let older = find_in(&dir, "abc123", "/probe.sh now", Duration::from_millis(100));
        assert_eq!(older, ExecTrace::default());
    }

    #[test]
    fn container_as_young_as_its_probe_is_not_mistaken_for_the_probe() {
        let dir = machine();
        let found = find_in(&dir, "abc123", "server", Duration::from_secs(90));
        assert_eq!(found, ExecTrace { is_running: false, sessions: [].into() });
    }

    #[test]
    fn children_of_an_exited_command_are_found_by_its_output() {
        let dir = machine();
        add(dir.path(), [31, 10, 30], 9_930, "sleep 9", "pipe:[4]");
        add(dir.path(), [33, 10, 32], 9_930, "daemon of the server", "pipe:[1]");
        let found = find_in(&dir, "abc123", "true", Duration::from_secs(1));
        assert_eq!(found, ExecTrace { is_running: false, sessions: [30].into() });
        assert_eq!(find_in(&dir, "other", "true", Duration::from_secs(1)), ExecTrace::default());
    }

    #[test]
    fn container_without_an_id_has_no_processes() {
        let dir = machine();
        add(dir.path(), [31, 10, 30], 9_930, "sleep 9", "pipe:[4]");
        assert_eq!(find_in(&dir, "", "sleep 9", Duration::from_secs(100)), ExecTrace::default());
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        add(dir.path(), [child.id(), 10, child.id()], 9_990, "sleep 60", "pipe:[5]");
        let trace = ExecTrace { is_running: true, sessions: [child.id()].into() };
        with(&dir, "", |container| end(container, &trace));
        assert!(child.try_wait().unwrap().is_none(), "it was not killed");
        with(&dir, "abc123", |container| end(container, &trace));
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&child.wait().unwrap()), Some(9));
    }

    #[test]
    fn processes_are_not_searched_for_in_all_of_proc() {
        let dir = machine();
        add_outside(dir.path(), [31, 10, 30], 9_930, "sleep 9", "pipe:[4]");
        assert_eq!(find_in(&dir, "abc123", "sleep 9", Duration::from_secs(1)), ExecTrace::default());
    }
}
