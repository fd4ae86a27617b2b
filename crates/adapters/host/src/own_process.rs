//! The threads and the memory of this process, from procfs.

use std::fs;
use std::path::Path;
use std::time::Duration;

use ports::node_api::ThreadFacts;

/// The kinds of memory that the process has in RAM, and what was swapped out.
const KINDS: [&str; 4] = ["RssAnon", "RssFile", "RssShmem", "VmSwap"];
/// Ticks of the kernel's clock in a second, the same on every supported Linux.
const TICKS: u32 = 100;

/// The threads of this process; those that end meanwhile are left out.
#[must_use]
pub fn threads() -> Vec<ThreadFacts> {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let mut threads: Vec<_> = tasks.filter_map(|task| thread(&task.path())).collect();
    threads.sort_by_key(|thread| thread.id);
    threads
}

fn thread(task: &Path) -> Option<ThreadFacts> {
    let id = task.file_name()?.to_str()?.parse().ok()?;
    read(id, &fs::read_to_string(task.join("stat")).ok()?)
}

/// `12 (name) S …`, where a name may have brackets and blanks in it.
fn read(id: u32, stat: &str) -> Option<ThreadFacts> {
    let (head, rest) = stat.rsplit_once(") ")?;
    let name = head.split_once('(')?.1.to_owned();
    let fields: Vec<_> = rest.split(' ').collect();
    let ticks = |at: usize| fields.get(at)?.parse::<u32>().ok();
    let used = ticks(11)?.saturating_add(ticks(12)?);
    let cpu_time = Duration::from_secs(1).saturating_mul(used) / TICKS;
    Some(ThreadFacts { id, name, state: rest.chars().next()?, cpu_time })
}

/// Bytes in use, by kind.
#[must_use]
pub fn memory() -> Vec<(String, u64)> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kinds = status.lines().filter_map(|line| {
        let (kind, value) = line.split_once(':')?;
        let kib: u64 = value.trim().strip_suffix(" kB")?.parse().ok()?;
        KINDS.contains(&kind).then(|| (kind.to_owned(), kib.saturating_mul(1024)))
    });
    kinds.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_is_parsed_with_any_name() {
        let stat = "12 (a) (b) R 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0 1";
        let thread = read(12, stat).unwrap();
        assert_eq!((thread.name.as_str(), thread.state), ("a) (b", 'R'));
        assert_eq!(thread.cpu_time, Duration::from_secs(2));
        assert_eq!(read(1, "nonsense"), None);
    }

    #[test]
    fn this_process_has_threads_and_memory() {
        assert!(threads().iter().any(|thread| thread.id == std::process::id()));
        let total: u64 = memory().iter().map(|(_, bytes)| bytes).sum();
        assert!(total > 100_000, "{total}");
    }
}
