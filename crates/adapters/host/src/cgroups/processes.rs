//! Processes outside of pods: their facts from `/proc`, their `oom_score_adj`, and the process that serves a socket.

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

/// Each PID namespace of the process has a number for it, from ours inwards. (`/proc/1/ns/pid` shows the same, but not without
/// privileges.)
fn has_one_number(status: &str) -> bool {
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    numbers.is_some_and(|numbers| numbers.split_whitespace().count() == 1)
}

pub(super) fn set_oom_score_adj(proc: &Path, pid: u32, score: i32) -> HostResult<()> {
    let at = proc.join(pid.to_string()).join(OOM_SCORE);
    put(&at, &score.to_string()).map_err(failed("write", &at))
}

/// The kernel records the process that began to listen, and reports it to a client (`SO_PEERCRED`).
pub(super) async fn listener(socket: &Path) -> HostResult<Option<u32>> {
    let connected = async { UnixStream::connect(socket).await?.peer_cred() };
    let pid = connected.await.map_err(failed("find the listener of", socket))?.pid();
    // A process in another PID namespace is shown as 0.
    Ok(pid.and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid > 0))
}
