//! Which processes are moved or get an OOM score, from `/proc`.

use std::collections::BTreeSet;

use model::cgroup::{CgroupVersion, ProcessFacts};

use stats_core::cgroup_path::own_cgroup;

/// The container runtime is among the last processes that the kernel may kill, like the kubelet: it manages all containers.
pub const RUNTIME_OOM_SCORE: i32 = -999;

/// Maximum number of times that a changing list of processes is read.
pub const MAX_ROUNDS: usize = 10;

/// Processes that were not handled yet. A process may have started a child just before it was moved, and the child was not
/// moved with it; so the list is read until it contains nothing new.
#[must_use]
pub fn new_ones(listed: &[u32], done: &BTreeSet<u32>) -> Vec<u32> {
    listed.iter().copied().filter(|pid| !done.contains(pid)).collect()
}

/// Whether a process of the root cgroup may be moved: not init, and no kernel thread.
#[must_use]
pub fn is_movable(pid: u32, executable: Option<&str>) -> bool {
    // A kernel thread has no executable.
    pid > 1 && executable.is_some_and(|path| !path.is_empty())
}

/// What has to change for a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Adjustment {
    pub moves: bool,
    pub scores: bool,
}

/// Why a process is not adjusted although it is configured. The text follows its process ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Untouchable {
    #[error("is init or a kernel thread")]
    System,
    /// The container runtime chose the cgroup of a process in a container.
    #[error("is in a container")]
    Contained,
}

/// What a process needs to be in a cgroup (`None`: any) and to have a score. A process in a child cgroup is in it, too: a
/// service that systemd has put into a slice stays in its own cgroup.
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
    let cgroup_of = cgroup_of(&facts.cgroups, version);
    let moves = cgroup.is_some_and(|cgroup| !cgroup_of.is_some_and(|cgroup_of| is_within(cgroup_of, cgroup)));
    Ok(Adjustment { moves, scores: facts.oom_score_adj != score })
}

/// The cgroup of a process. On version 1 it can differ between hierarchies: systemd's hierarchy decides, even if no
/// controller limits it there; without one, the CPU and memory hierarchies must agree.
fn cgroup_of(cgroups: &str, version: CgroupVersion) -> Option<&str> {
    match version {
        CgroupVersion::V2 => own_cgroup(cgroups, ""),
        CgroupVersion::V1 => own_cgroup(cgroups, "name=systemd").or_else(|| {
            own_cgroup(cgroups, "cpu").filter(|path| own_cgroup(cgroups, "memory") == Some(path))
        }),
    }
}

fn is_within(cgroup_of: &str, cgroup: &str) -> bool {
    cgroup_of.strip_prefix(cgroup).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests;
