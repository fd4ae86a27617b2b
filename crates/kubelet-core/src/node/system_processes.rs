//! Which processes are to be moved or scored, from what `/proc` says of them.

use std::collections::BTreeSet;

use model::cgroup::{CgroupVersion, ProcessFacts};

use crate::serving::stats::place::own_cgroup;

/// The container runtime is the last that the kernel may kill, as we are: it holds all the containers.
pub const RUNTIME_OOM_SCORE: i32 = -999;

/// How often a list of processes is read before it must have stopped changing.
pub const MAX_ROUNDS: usize = 10;

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

/// What is left to do with a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Adjustment {
    pub moves: bool,
    pub scores: bool,
}

/// Why a process stays as it is, although it is named. The text follows its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Untouchable {
    #[error("is the first of all, or a thread of the kernel")]
    System,
    /// What is in a container has its place from whoever made that.
    #[error("is in a container")]
    Contained,
}

/// What a process needs to be in a cgroup (`None`: wherever it is) and to have a score. One that is further down is in
/// it, too: a service that systemd has put into a slice stays in its own cgroup.
pub fn compute_adjustment(
    facts: &ProcessFacts,
    cgroup: Option<&str>,
    score: i32,
    version: CgroupVersion,
) -> Result<Adjustment, Untouchable> {
    if !is_movable(facts.pid, facts.executable.as_deref()) {
        return Err(Untouchable::System);
    }
    if !facts.is_on_node {
        return Err(Untouchable::Contained);
    }
    let place = place(&facts.cgroups, version);
    let moves = cgroup.is_some_and(|cgroup| !place.is_some_and(|place| is_within(place, cgroup)));
    Ok(Adjustment { moves, scores: facts.oom_score_adj != score })
}

/// Where a process counts as being. On version 1 it can be somewhere else in each tree: systemd's says where it belongs,
/// even if nothing limits it there; without one, the trees that limit something must agree.
fn place(cgroups: &str, version: CgroupVersion) -> Option<&str> {
    match version {
        CgroupVersion::V2 => own_cgroup(cgroups, ""),
        CgroupVersion::V1 => own_cgroup(cgroups, "name=systemd").or_else(|| {
            own_cgroup(cgroups, "cpu").filter(|path| own_cgroup(cgroups, "memory") == Some(path))
        }),
    }
}

fn is_within(place: &str, cgroup: &str) -> bool {
    place.strip_prefix(cgroup).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
