//! The processes of the node that are no pod's: the kubelet itself, the container runtime, and the rest of the system.
//!
//! Owns: in which cgroups they are, where the configuration names some, and how eagerly the kernel kills us and the runtime
//! when memory runs out. Limits of those cgroups are others' (`node_cgroups`, or whoever made them). Nothing here ends the
//! kubelet: what fails is said once, and tried again a minute later.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kubelet_core::cgroup::processes::{
    MAX_ROUNDS, RUNTIME_OOM_SCORE, compute_adjustment, is_movable, new_ones,
};
use model::cgroup::{CgroupPath, CgroupSettings, ProcessFacts};
use ports::host::HostResult;
use tokio::sync::watch;

use crate::context::Context;
use crate::error_chain::chain;
use crate::node_view::NodeView;

/// Whoever was started or moved since is put where it belongs after this long.
const PERIOD: Duration = Duration::from_secs(60);
/// Where no cgroup is named, only our own score could have been changed.
const QUIET_PERIOD: Duration = Duration::from_secs(300);

/// What went wrong with a process or a cgroup, in words.
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
        // Before that nothing has the runtime's socket.
        if self.node.wait_for(|view| view.last_ready.is_some()).await.is_err() {
            return;
        }
        loop {
            self.round().await;
            clock.sleep_until(clock.mono() + period).await;
        }
    }

    /// The rest of the system comes last: nobody is moved there first who has a place of his own.
    async fn round(&mut self) {
        let ctx = self.ctx.clone();
        let settings = &ctx.settings.processes;
        let own = adjust(&ctx, settings.own_pid, settings.kubelet.as_ref(), settings.oom_score_adj).await;
        self.kubelet.report(own);
        if let Some(cgroup) = &settings.runtime {
            self.runtime.report(adjust_runtime(&ctx, cgroup).await);
        }
        if let Some(cgroup) = &settings.system {
            self.system.report(gather(&ctx, cgroup).await);
        }
    }
}

/// The runtime is whoever answers us: its name and its files differ between runtimes.
async fn adjust_runtime(ctx: &Context, cgroup: &CgroupPath) -> Outcome {
    let socket = &ctx.settings.processes.runtime_socket;
    let listener = ctx.cgroups.listener(socket).await.map_err(|error| chain(&error))?;
    let Some(pid) = listener else {
        return Err(format!("who listens on {} is not on this node", socket.display()));
    };
    adjust(ctx, pid, Some(cgroup), RUNTIME_OOM_SCORE).await
}

/// Puts a process where it belongs and gives it its score; a failure of one is no reason to leave the other.
async fn adjust(ctx: &Context, pid: u32, cgroup: Option<&CgroupPath>, score: i32) -> Outcome {
    let Some(facts) = facts(ctx, pid).await else { return Ok(()) };
    let path = cgroup.map(|cgroup| &*cgroup.path);
    let adjustment = match compute_adjustment(&facts, path, score, ctx.cgroup_version()) {
        Ok(adjustment) => adjustment,
        // Nobody has asked for anything.
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
        _ if facts_are_gone(ctx, pid).await => Ok(()),
        problems => Err(problems.join("; ")),
    }
}

/// Moves everybody out of the root of all cgroups who may be moved, and whoever they start meanwhile.
async fn gather(ctx: &Context, cgroup: &CgroupPath) -> Outcome {
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
                && !facts_are_gone(ctx, process.pid).await
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

/// Whoever has ended needs nothing any more.
async fn facts_are_gone(ctx: &Context, pid: u32) -> bool {
    facts(ctx, pid).await.is_none()
}

/// The last outcome for one cgroup, so that it is logged once and not every minute.
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
