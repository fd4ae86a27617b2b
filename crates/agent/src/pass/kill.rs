//! Stopping containers as a kill plan says: events, preStop hooks, signals, in turns, all within the grace period.

use std::collections::BTreeMap;

use kubelet_core::pod::plan::KillContainer;
use kubelet_core::pod::restart::restarts_after_kill;
use kubelet_core::pod::termination::{ContainerKill, killing_message, plan_kills};
use model::containers::find_container;
use model::k8s::Pod;
use model::{ContainerObservation, ContainerState, MonoTime, PodObservation, PodRef};
use tokio::sync::watch;

use super::PassContext;
use crate::engine::Engine;
use crate::hooks::{HookContext, run_handler};

/// Whose containers are stopped.
#[derive(Clone, Copy, Debug)]
pub struct Victim<'a> {
    pub pod: &'a PodRef,
    /// Absent for a pod whose spec is gone.
    pub spec: Option<&'a Pod>,
    pub observed: &'a PodObservation,
}

/// How many containers of each turn are not stopped yet; later turns wait for earlier ones.
type Turns = watch::Sender<BTreeMap<usize, usize>>;

/// Stops what a step of a pod's plan asks for.
pub async fn kill_all(context: &PassContext, kills: &[KillContainer]) {
    let kills = plan_kills(&context.pod, &context.observed, kills);
    let victim = Victim { pod: &context.identity, spec: Some(&context.pod), observed: &context.observed };
    kill_in_turns(&context.engine, victim, &kills).await;
}

/// Stops the containers: all hooks at once, then the signals in turns. What fails is logged; the next look shows who
/// is left.
pub async fn kill_in_turns(engine: &Engine, victim: Victim<'_>, kills: &[ContainerKill]) {
    let mut left: BTreeMap<usize, usize> = BTreeMap::new();
    for kill in kills {
        *left.entry(kill.turn).or_default() += 1;
    }
    let turns = watch::Sender::new(left);
    let began = engine.clock.mono();
    let each = kills.iter().filter_map(|kill| {
        let container = victim.observed.container(&kill.id)?;
        Some(kill_one(engine, victim, (kill, container), began, &turns))
    });
    futures_util::future::join_all(each).await;
}

async fn kill_one(
    engine: &Engine,
    victim: Victim<'_>,
    target: (&ContainerKill, &ContainerObservation),
    began: MonoTime,
    turns: &Turns,
) {
    let (kill, container) = target;
    let spec = victim.spec.and_then(|pod| Some((pod, find_container(pod, &kill.name)?)));
    let features = engine.node_facts.features;
    let restarts = spec.is_some_and(|(pod, spec)| restarts_after_kill(pod, &spec, kill.why, features));
    let message = killing_message(&kill.name, spec.map(|(_, spec)| spec.kind), kill.why, restarts);
    engine.recorder.normal(victim.pod, Some(&kill.name), "Killing", message);
    let deadline = began + kill.grace;
    if container.state == ContainerState::Running {
        run_pre_stop(engine, victim, target, deadline).await;
    }
    await_turn(engine, kill.turn, deadline, turns).await;
    let used = engine.clock.mono().saturating_since(began);
    stop(engine, victim.pod, kill, used).await;
    turns.send_modify(|left| {
        if let Some(count) = left.get_mut(&kill.turn) {
            *count = count.saturating_sub(1);
        }
    });
}

async fn await_turn(engine: &Engine, turn: usize, deadline: MonoTime, turns: &Turns) {
    let mut left = turns.subscribe();
    tokio::select! {
        // The sender outlives this future, so waiting ends only with the turn.
        _ = left.wait_for(|left| left.range(..turn).all(|(_, count)| *count == 0)) => {}
        () = engine.clock.sleep_until(deadline) => {}
    }
}

async fn stop(engine: &Engine, pod: &PodRef, kill: &ContainerKill, used: std::time::Duration) {
    match engine.runtime.stop_container(&kill.id, kill.stop_timeout(used)).await {
        Ok(()) => {}
        Err(error) if error.is_not_found() => {}
        Err(error) => {
            engine.recorder.warning(
                pod,
                Some(&kill.name),
                "FailedKillPod",
                format!("error killing pod: {error}"),
            );
        }
    }
}

/// A hook that is still running when the grace period ends is abandoned.
async fn run_pre_stop(
    engine: &Engine,
    victim: Victim<'_>,
    target: (&ContainerKill, &ContainerObservation),
    deadline: MonoTime,
) {
    let (kill, container) = target;
    let Some(handler) = &kill.pre_stop else { return };
    let pod_ip = victim.observed.sandboxes.iter().find_map(|s| s.ips.first().copied());
    let hook = HookContext {
        runtime: &*engine.runtime,
        net: &*engine.net,
        recorder: &engine.recorder,
        metrics: &engine.metrics,
        pod: victim.pod,
        pod_ip: pod_ip.or_else(|| engine.host_ips().first().copied()),
        container_id: &container.id,
        container_name: &kill.name,
        container: victim.spec.and_then(|pod| find_container(pod, &kill.name)),
    };
    // The output of the hook may hold secrets: events, which more people can read, do not show it.
    let report_failure =
        || engine.recorder.warning(victim.pod, Some(&kill.name), "FailedPreStopHook", "PreStopHook failed");
    tokio::select! {
        result = run_handler(&hook, handler) => if let Err(why) = result {
            tracing::warn!(pod = %victim.pod, containerName = %kill.name, err = why, "PreStop hook failed");
            report_failure();
        },
        () = engine.clock.sleep_until(deadline) => {
            tracing::info!(pod = %victim.pod, containerName = %kill.name, "PreStop hook not completed in grace period");
            match handler.sleep {
                Some(_) => engine.metrics.sleep_was_cut(),
                // What it called ends with the container, which is killed now; in the Go kubelet the hook fails by that.
                None => report_failure(),
            }
        }
    }
}
