//! Executes a kill plan: events, preStop hooks and signals, in turns, all within the grace period.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use base_core::trail::NewStep;
use kubelet_core::pods::plan::{KillContainer, KillReason};
use kubelet_core::pods::restart::restarts_after_kill;
use kubelet_core::pods::termination::{ContainerKill, killing_message, plan_kills};
use model::containers::find_container;
use model::k8s::Pod;
use model::{ContainerId, ContainerObservation, ContainerState, MonoTime, PodObservation, PodRef};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::PassContext;
use crate::metrics::KubeletMetrics;
use crate::pods::handles::PodHandles;
use crate::pods::hooks::{HookContext, run_handler};

/// The pod whose containers are stopped.
#[derive(Clone, Copy, Debug)]
pub struct KillTarget<'a> {
    pub pod: &'a PodRef,
    /// `None` for a pod whose spec is not known.
    pub spec: Option<&'a Pod>,
    pub observed: &'a PodObservation,
    pub progress: &'a KillProgress,
}

/// What was done to stop containers, so that a stop that is repeated does not do it again: the event `Killing`, and the hook. Clones
/// share it.
#[derive(Clone, Debug, Default)]
pub struct KillProgress(Arc<Mutex<Done>>);

/// Bounded by the containers of the pod.
#[derive(Debug, Default)]
struct Done {
    announced: BTreeMap<ContainerId, KillReason>,
    /// Containers whose hook has ended, or has used up its time.
    hooks: BTreeSet<ContainerId>,
}

impl KillProgress {
    /// Returns whether the kill is new.
    fn announce(&self, kill: &ContainerKill) -> bool {
        self.0.lock().announced.insert(kill.id.clone(), kill.why) != Some(kill.why)
    }

    fn hook_ended(&self, container: &ContainerId) {
        self.0.lock().hooks.insert(container.clone());
    }

    fn has_hook_ended(&self, container: &ContainerId) -> bool {
        self.0.lock().hooks.contains(container)
    }

    /// Forgets containers that do not exist any more.
    pub(crate) fn retain(&self, exists: impl Fn(&ContainerId) -> bool) {
        let mut done = self.0.lock();
        done.announced.retain(|id, _| exists(id));
        done.hooks.retain(|id| exists(id));
    }
}

/// The step of a preStop hook in the trail.
const PRE_STOP: &str = "RunningPreStopHook";
/// How long the runtime may take to report the end of a hook after the end of its container.
const HOOK_FAILURE_TIMEOUT: Duration = Duration::from_secs(1);

/// How far the containers are stopped.
#[derive(Debug)]
struct Progress {
    /// Number of containers of each turn that are not stopped yet; later turns wait for earlier ones.
    left: BTreeMap<usize, usize>,
    have_all_stopped: bool,
}

type Turns = watch::Sender<Progress>;

/// Stops the containers of a step. Returns whether the runtime has stopped all of them.
pub async fn kill_all(context: &PassContext, kills: &[KillContainer]) -> bool {
    let pod = &*context.pod;
    let kills = plan_kills(pod, &context.observed, kills);
    let kill_target = KillTarget {
        pod: &context.identity,
        spec: Some(pod),
        observed: &context.observed,
        progress: &context.kills,
    };
    kill_in_turns(&context.handles, kill_target, &kills).await
}

/// Stops the containers: all hooks at once, then the signals in turns. Failures are logged; the next observation shows
/// which containers still run. Returns whether the runtime has stopped all of them.
pub async fn kill_in_turns(
    handles: &PodHandles,
    kill_target: KillTarget<'_>,
    kills: &[ContainerKill],
) -> bool {
    let mut left: BTreeMap<usize, usize> = BTreeMap::new();
    for kill in kills {
        *left.entry(kill.turn).or_default() += 1;
    }
    let turns = watch::Sender::new(Progress { left, have_all_stopped: true });
    let began = handles.ctx.clock.mono();
    let each = kills.iter().filter_map(|kill| {
        let container = kill_target.observed.container(&kill.id)?;
        Some(kill_one(handles, kill_target, kill, container, began, &turns))
    });
    futures_util::future::join_all(each).await;
    turns.borrow().have_all_stopped
}

async fn kill_one(
    handles: &PodHandles,
    kill_target: KillTarget<'_>,
    kill: &ContainerKill,
    container: &ContainerObservation,
    began: MonoTime,
    turns: &Turns,
) {
    if kill_target.progress.announce(kill) {
        record_killing(handles, kill_target, kill);
    }
    let deadline = began + kill.grace;
    let mut hook = pin!(async {
        if container.state == ContainerState::Running {
            run_pre_stop(handles, kill_target, kill, container).await;
        }
    });
    let hook_ended = tokio::select! {
        () = &mut hook => true,
        () = handles.ctx.clock.sleep_until(deadline) => false,
    };
    let end = async {
        await_turn(handles, kill.turn, deadline, turns).await;
        let used = handles.ctx.clock.mono().saturating_since(began);
        let is_stopped = stop(handles, kill_target.pod, kill, used).await;
        turns.send_modify(|progress| {
            progress.have_all_stopped &= is_stopped;
            if let Entry::Occupied(mut count) = progress.left.entry(kill.turn) {
                *count.get_mut() = count.get().saturating_sub(1);
                if *count.get() == 0 {
                    count.remove();
                }
            }
        });
    };
    if hook_ended {
        end.await;
    } else {
        hook_overran(handles, kill_target, kill);
        kill_target.progress.hook_ended(&kill.id);
        if !end_while_hook_runs(handles, kill, end, hook).await {
            record_hook_failure(handles, kill_target, kill);
        }
    }
}

fn record_killing(handles: &PodHandles, kill_target: KillTarget<'_>, kill: &ContainerKill) {
    let spec = kill_target.spec.and_then(|pod| Some((pod, find_container(pod, &kill.name)?)));
    let features = handles.ctx.node_facts.features;
    let restarts = spec.is_some_and(|(pod, spec)| restarts_after_kill(pod, &spec, kill.why, features));
    let message = killing_message(&kill.name, spec.map(|(_, spec)| spec.kind), kill.why, restarts);
    handles.ctx.recorder.normal(kill_target.pod, Some(&kill.name), "Killing", message);
}

fn hook_overran(handles: &PodHandles, kill_target: KillTarget<'_>, kill: &ContainerKill) {
    if kill.pre_stop.as_ref().is_some_and(|handler| handler.sleep.is_some()) {
        handles.ctx.metrics.get::<KubeletMetrics>().sleep_was_cut();
    }
    tracing::info!(pod = %kill_target.pod, containerName = %kill.name, "PreStop hook not completed in grace period");
}

/// Stops a container whose hook used up the grace period. The hook runs until the container is killed, as in the Go
/// kubelet; the runtime would kill the process of a hook as soon as its call is dropped. Returns whether the hook has
/// ended, too: the end of the container ends an exec or HTTP hook, and a sleep is not awaited.
async fn end_while_hook_runs(
    handles: &PodHandles,
    kill: &ContainerKill,
    end: impl Future<Output = ()>,
    mut hook: Pin<&mut impl Future<Output = ()>>,
) -> bool {
    let mut end = pin!(end);
    tokio::select! {
        () = &mut end => {}
        () = &mut hook => {
            end.await;
            return true;
        }
    }
    if kill.pre_stop.as_ref().is_none_or(|handler| handler.sleep.is_some()) {
        return true;
    }
    tokio::select! {
        () = hook => true,
        () = handles.ctx.clock.sleep_until(handles.ctx.clock.mono() + HOOK_FAILURE_TIMEOUT) => false,
    }
}

async fn await_turn(handles: &PodHandles, turn: usize, deadline: MonoTime, turns: &Turns) {
    let mut progress = turns.subscribe();
    tokio::select! {
        // The sender outlives this future, so the wait ends only with the turn.
        _ = progress.wait_for(|now| now.left.range(..turn).next().is_none()) => {}
        () = handles.ctx.clock.sleep_until(deadline) => {}
    }
}

/// Returns whether the container is stopped.
async fn stop(handles: &PodHandles, pod: &PodRef, kill: &ContainerKill, used: Duration) -> bool {
    match handles.ctx.runtime.stop_container(&kill.id, kill.stop_timeout(used)).await {
        Ok(()) => true,
        Err(error) if error.is_not_found() => true,
        Err(error) => {
            let message = format!("error killing pod: {error}");
            handles.ctx.recorder.warning(pod, Some(&kill.name), "FailedKillPod", message);
            false
        }
    }
}

async fn run_pre_stop(
    handles: &PodHandles,
    kill_target: KillTarget<'_>,
    kill: &ContainerKill,
    container: &ContainerObservation,
) {
    let Some(handler) = kill.pre_stop.as_ref().filter(|_| !kill_target.progress.has_hook_ended(&kill.id))
    else {
        return;
    };
    let pod_ip = kill_target.observed.sandboxes.iter().find_map(|s| s.ips.first().copied());
    let hook = HookContext {
        runtime: &*handles.ctx.runtime,
        net: &*handles.ctx.net,
        recorder: &handles.ctx.recorder,
        metrics: &handles.ctx.metrics,
        pod: kill_target.pod,
        pod_ip: pod_ip.or_else(|| handles.ctx.host_ips().first().copied()),
        container_id: &container.id,
        container_name: &kill.name,
        container: kill_target.spec.and_then(|pod| find_container(pod, &kill.name)),
    };
    let trails = &handles.ctx.recorder.trails;
    let step = NewStep { container: Some(&kill.name), ..NewStep::new(PRE_STOP, "") };
    trails.begin(&kill_target.pod.uid, &step);
    let result = run_handler(&hook, handler).await;
    trails.end(&kill_target.pod.uid, PRE_STOP, Some(&kill.name));
    kill_target.progress.hook_ended(&kill.id);
    if let Err(why) = result {
        tracing::warn!(pod = %kill_target.pod, containerName = %kill.name, err = why, "PreStop hook failed");
        record_hook_failure(handles, kill_target, kill);
    }
}

/// The output of the hook may contain secrets, so it is not part of the event, which more people can read.
fn record_hook_failure(handles: &PodHandles, kill_target: KillTarget<'_>, kill: &ContainerKill) {
    handles.ctx.recorder.warning(
        kill_target.pod,
        Some(&kill.name),
        "FailedPreStopHook",
        "PreStopHook failed",
    );
}
