//! System processes of the node: the kubelet itself, the container runtime, and the rest of the system.
//!
//! Owns their cgroups, if the configuration names some, and the OOM score of the kubelet and the runtime. The limits of those
//! cgroups are not set here (but in `node::cgroups`, or by their creator). A failure does not end the kubelet: it is logged
//! once, and retried a minute later.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use base_agent::context::Context;
use base_agent::error_chain::chain;
use kubelet_core::node::system_processes::{
    MAX_ROUNDS, RUNTIME_OOM_SCORE, compute_adjustment, is_movable, new_ones,
};
use model::cgroup::{CgroupPath, CgroupSettings, ProcessFacts};
use ports::host::HostResult;
use resources_agent::cgroup_values::cgroup_version;
use tokio::sync::watch;

use crate::node_view::NodeView;

/// Interval at which processes that were started or moved since are moved to their cgroup.
const PERIOD: Duration = Duration::from_secs(60);
/// The interval if no cgroup is configured, when only our own OOM score could have changed.
const QUIET_PERIOD: Duration = Duration::from_secs(300);

/// The error about a process or a cgroup.
type Outcome = Result<(), String>;

#[derive(Debug)]
pub(crate) struct SystemProcesses {
    ctx: Arc<Context>,
    node: watch::Receiver<NodeView>,
    kubelet: LastOutcome,
    runtime: LastOutcome,
    system: LastOutcome,
}

impl SystemProcesses {
    pub(crate) fn new(ctx: Arc<Context>, node: watch::Receiver<NodeView>) -> Self {
        let [kubelet, runtime, system] = ["kubelet", "container runtime", "system"].map(LastOutcome::new);
        Self { ctx, node, kubelet, runtime, system }
    }

    /// Runs until dropped.
    pub(crate) async fn run(mut self) {
        let clock = self.ctx.clock;
        let settings = &self.ctx.settings.processes;
        let names = [&settings.kubelet, &settings.runtime, &settings.system];
        let period = if names.iter().any(|name| name.is_some()) { PERIOD } else { QUIET_PERIOD };
        // Waits for the runtime's first answer; before, no process may listen on its socket.
        if self.node.wait_for(|view| view.last_ready.is_some()).await.is_err() {
            return;
        }
        loop {
            self.round().await;
            clock.sleep_until(clock.mono() + period).await;
        }
    }

    /// The rest of the system comes last, so that no process with its own cgroup is moved there first.
    async fn round(&mut self) {
        let ctx = self.ctx.clone();
        let settings = &ctx.settings.processes;
        let own = adjust(&ctx, settings.own_pid, settings.kubelet.as_ref(), ctx.config().oom_score_adj).await;
        self.kubelet.report(own);
        if let Some(cgroup) = &settings.runtime {
            self.runtime.report(adjust_runtime(&ctx, cgroup).await);
        }
        if let Some(cgroup) = &settings.system {
            self.system.report(move_system_processes(&ctx, cgroup).await);
        }
    }
}

/// The runtime is the process that listens on its socket: its name and its PID file differ between runtimes.
async fn adjust_runtime(ctx: &Context, cgroup: &CgroupPath) -> Outcome {
    let socket = &ctx.settings.processes.runtime_socket;
    let listener = ctx.cgroups.listener(socket).await.map_err(|error| chain(&error))?;
    let Some(pid) = listener else {
        return Err(format!("no process on this node listens on {}", socket.display()));
    };
    adjust(ctx, pid, Some(cgroup), RUNTIME_OOM_SCORE).await
}

/// Moves a process into its cgroup and sets its OOM score; a failure of one does not prevent the other.
async fn adjust(ctx: &Context, pid: u32, cgroup: Option<&CgroupPath>, score: i32) -> Outcome {
    let Some(facts) = facts(ctx, pid).await else { return Ok(()) };
    let path = cgroup.map(|cgroup| &*cgroup.path);
    let adjustment = match compute_adjustment(&facts, path, score, cgroup_version(ctx)) {
        Ok(adjustment) => adjustment,
        // No cgroup is configured.
        Err(_) if cgroup.is_none() => return Ok(()),
        Err(why) => return Err(format!("process {pid} {why}")),
    };
    let (mut moved, mut scored) = (Ok(()), Ok(()));
    if let Some(cgroup) = cgroup.filter(|_| adjustment.moves) {
        moved = enter(ctx, cgroup, pid).await;
    }
    if adjustment.scores {
        scored = ctx.cgroups.set_oom_score_adj(pid, score).await;
    }
    let failed = [moved, scored].into_iter().filter_map(Result::err);
    let problems: Vec<String> = failed.map(|error| chain(&error)).collect();
    match problems.as_slice() {
        [] => Ok(()),
        _ if has_exited(ctx, pid).await => Ok(()),
        problems => Err(problems.join("; ")),
    }
}

/// Moves all movable processes out of the root cgroup, and those that they start meanwhile.
async fn move_system_processes(ctx: &Context, cgroup: &CgroupPath) -> Outcome {
    let root = CgroupPath::directory("/");
    let (mut done, mut outcome) = (BTreeSet::new(), Ok(()));
    for _ in 0..MAX_ROUNDS {
        let listed = ctx.cgroups.members(&root).await.map_err(|error| chain(&error))?;
        let new = new_ones(&listed, &done);
        if new.is_empty() {
            return outcome;
        }
        for process in ctx.cgroups.facts_of(&new).await {
            let moves = is_movable(process.pid, process.executable.as_deref());
            if moves
                && let Err(error) = enter(ctx, cgroup, process.pid).await
                && !has_exited(ctx, process.pid).await
            {
                outcome = Err(chain(&error));
            }
        }
        done.extend(new);
    }
    outcome
}

async fn enter(ctx: &Context, cgroup: &CgroupPath, pid: u32) -> HostResult<()> {
    ctx.cgroups.ensure(cgroup, &CgroupSettings::default()).await?;
    ctx.cgroups.join(cgroup, pid).await?;
    tracing::info!(pid, %cgroup, "Moved process into cgroup");
    Ok(())
}

async fn facts(ctx: &Context, pid: u32) -> Option<ProcessFacts> {
    ctx.cgroups.facts_of(&[pid]).await.pop()
}

async fn has_exited(ctx: &Context, pid: u32) -> bool {
    facts(ctx, pid).await.is_none()
}

/// The last error for one cgroup, so that it is logged once and not every minute.
#[derive(Debug)]
struct LastOutcome {
    of: &'static str,
    last: Outcome,
}

impl LastOutcome {
    const fn new(of: &'static str) -> Self {
        Self { of, last: Ok(()) }
    }

    fn report(&mut self, outcome: Outcome) {
        if let Err(why) = &outcome
            && self.last != outcome
        {
            tracing::warn!(of = self.of, err = why, "Failed to set up system process");
        }
        self.last = outcome;
    }
}
