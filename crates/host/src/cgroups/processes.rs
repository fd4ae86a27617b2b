//! Processes that are no pod's: what `/proc` says of them, how eagerly the kernel may kill them, and who serves a socket.

use std::fs;
use std::path::Path;

use model::cgroup::ProcessFacts;
use ports::host::HostResult;
use tokio::net::UnixStream;

use super::trees::put;
use crate::failed;

pub(super) const PROC: &str = "/proc";
const OOM_SCORE: &str = "oom_score_adj";

/// Of those that are still there.
pub(super) fn facts_of(proc: &Path, pids: &[u32]) -> Vec<ProcessFacts> {
    pids.iter().filter_map(|pid| facts(&proc.join(pid.to_string()), *pid)).collect()
}

fn facts(dir: &Path, pid: u32) -> Option<ProcessFacts> {
    let read = |name: &str| fs::read_to_string(dir.join(name)).ok();
    let (cgroups, score, status) = (read("cgroup")?, read(OOM_SCORE)?, read("status")?);
    let executable = fs::read_link(dir.join("exe")).ok();
    Some(ProcessFacts {
        pid,
        executable: executable.map(|path| path.to_string_lossy().into_owned()),
        cgroups,
        is_on_node: has_one_number(&status),
        oom_score_adj: score.trim().parse().ok()?,
    })
}

/// Each namespace of processes that it is in has a number for it, from ours on inwards. (`/proc/1/ns/pid` says the same, but
/// not to everybody.)
fn has_one_number(status: &str) -> bool {
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    numbers.is_some_and(|numbers| numbers.split_whitespace().count() == 1)
}

pub(super) fn set_oom_score_adj(proc: &Path, pid: u32, score: i32) -> HostResult<()> {
    let at = proc.join(pid.to_string()).join(OOM_SCORE);
    put(&at, &score.to_string()).map_err(failed("write", &at))
}

/// The kernel notes who began to listen, and tells whoever connects.
pub(super) async fn listener(socket: &Path) -> HostResult<Option<u32>> {
    let asked = async { UnixStream::connect(socket).await?.peer_cred() };
    let pid = asked.await.map_err(failed("ask who listens on", socket))?.pid();
    // Somebody in another namespace of processes is shown as 0.
    Ok(pid.and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid > 0))
}
