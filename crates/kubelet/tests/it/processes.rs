//! Processes that run inside a container next to its main process, read from `/proc` of the machine.

use std::collections::BTreeMap;
use std::path::Path;

use crate::node::names_in;

/// The processes of one command that was run in a container: they share a session. Process id and command line of each.
pub(crate) type Commands = BTreeMap<u32, Vec<(u32, String)>>;

/// The live processes in the container of that first process that have the text in their command line, by session.
///
/// A process that was sent SIGKILL has ended, even if a busy machine has not scheduled it since: it never executes another
/// instruction of its program. It is not counted, and neither is a zombie.
pub(crate) fn commands_of(first: u32, text: &str) -> Commands {
    let namespace = |pid: u32| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let own = namespace(first);
    assert!(own.is_some(), "the container runs");
    let mut found = Commands::new();
    for pid in names_in(Path::new("/proc")).iter().filter_map(|name| name.parse::<u32>().ok()) {
        if namespace(pid) != own {
            continue;
        }
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if let Some(session) = live_session(pid).filter(|_| line.contains(text)) {
            found.entry(session).or_default().push((pid, line));
        }
    }
    found
}

/// The processes that this one started, by any of its threads: the kernel lists each as the child of a thread.
pub(crate) fn children_of(pid: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the process");
    let of_thread = |thread: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(thread.ok()?.path().join("children")).ok()
    };
    let text: String = threads.filter_map(of_thread).collect();
    text.split_whitespace().map(|pid| pid.parse().expect("a process id")).collect()
}

/// The session of a live process.
fn live_session(pid: u32) -> Option<u32> {
    /// The kernel's flag (PF_EXITING) of a process that is exiting.
    const EXITING: u64 = 0x4;
    let read = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).ok();
    if is_killed(&read("status")?) {
        return None;
    }
    let stat = read("stat")?;
    // After the name: state, parent, group, session, terminal, foreground group, flags.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let flags: u64 = fields.get(6)?.parse().ok()?;
    let is_ending = matches!(*fields.first()?, "Z" | "X") || flags & EXITING != 0;
    if is_ending { None } else { fields.get(3)?.parse().ok() }
}

/// Whether SIGKILL is pending, for the thread or the process.
fn is_killed(status: &str) -> bool {
    const SIGKILL: u64 = 1 << 8;
    let pending = status.lines().filter_map(|line| line.split_once(":\t"));
    let mut pending = pending.filter(|(name, _)| matches!(*name, "SigPnd" | "ShdPnd"));
    pending.any(|(_, mask)| u64::from_str_radix(mask.trim(), 16).is_ok_and(|mask| mask & SIGKILL != 0))
}

#[test]
fn a_process_lives_until_it_is_killed() {
    let mut child = std::process::Command::new("sleep").arg("3600").spawn().expect("a process");
    assert!(live_session(child.id()).is_some());
    child.kill().expect("it is killed");
    // Not reaped yet: pending, exiting or a zombie, depending on the progress of the machine.
    assert_eq!(live_session(child.id()), None);
    child.wait().expect("it is reaped");
    assert!(is_killed("Name:\tsleep\nSigPnd:\t0000000000000100\nShdPnd:\t0000000000000000\n"));
    assert!(is_killed("SigPnd:\t0000000000000000\nShdPnd:\t0000000000004100\n"));
    assert!(!is_killed("SigPnd:\t0000000000004000\nSigBlk:\t0000000000000100\n"));
}
