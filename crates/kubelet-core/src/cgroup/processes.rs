//! Which processes are to be moved or scored, from what `/proc` says of them.

use std::collections::BTreeSet;

/// How often a list of processes is read before it must have stopped changing.
pub const MOST_ROUNDS: usize = 10;

/// Processes that were not seen before: what is left to do in this round. Somebody who is adjusted may have started
/// another one a moment earlier, who is not; so the list is read until nothing in it is new.
#[must_use]
pub fn new_ones(listed: &[u32], done: &BTreeSet<u32>) -> Vec<u32> {
    listed.iter().copied().filter(|pid| !done.contains(pid)).collect()
}

/// Whether a process of the root cgroup may be moved: not the first of all, and none of the kernel's own.
#[must_use]
pub fn is_movable(pid: u32, executable: Option<&str>) -> bool {
    // A thread of the kernel has no file that it runs.
    pid > 1 && executable.is_some_and(|path| !path.is_empty())
}
