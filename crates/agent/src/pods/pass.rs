//! Executes the plan that `kubelet-core` computed for one pod, and reports the result.
//!
//! Owns no state: a pass is an owned child of its pod's worker, which drops it when it must stop. Dropping is safe at every
//! await, because the next decision is made from a fresh observation, which shows an incomplete step.

mod claims;
pub mod files;
mod image_volumes;
pub mod kill;
pub mod prepare;
pub mod resize;
pub mod sandbox;
pub mod start;
mod trail;

use std::collections::BTreeMap;
use std::sync::Arc;

use api_agent::objects::PodObjects;
use kubelet_core::pods::plan::{KillContainer, KillReason, PodPlan, PodStep, RemoveContainer};
use model::containers::spec_of;
use model::k8s::Pod;
use model::{MonoTime, PodObservation, PodRef, SandboxId};
use resources_core::amounts::Amounts;
use tokio::sync::oneshot;

use crate::pods::handles::PodHandles;
pub(crate) use crate::pods::messages::{PassEvent, Waiting, WorkerMessage, WorkerSender};
use crate::pods::pass::kill::KillProgress;
use crate::pods::pass::prepare::{Prepared, PreparedFor};
use crate::pods::pass::trail::Work;

/// The inputs of a pass.
#[derive(Clone, Debug)]
pub struct PassContext {
    pub handles: Arc<PodHandles>,
    pub pod: Arc<Pod>,
    pub identity: PodRef,
    pub observed: Arc<PodObservation>,
    pub objects: PodObjects,
    pub(crate) events: WorkerSender,
    /// What earlier tries of this step have done.
    pub(crate) kills: KillProgress,
}

impl PassContext {
    pub(crate) async fn report(&self, event: PassEvent) {
        // The worker has ended only when the pod is dropped; then the event is not needed.
        let _ = self.events.send(Box::new(WorkerMessage::Pass(event))).await;
    }

    /// The container has these amounts, or is about to be created with them. They are on disk once this returns if it, or its last
    /// instance, had others.
    async fn record_amounts(&self, container: String, amounts: Amounts) {
        let (is_resized, reply) = oneshot::channel();
        self.report(PassEvent::Amounts { container, amounts, is_resized }).await;
        if reply.await.unwrap_or_default() {
            self.handles.resources.amount_files.save().await;
        }
    }
}

/// When a failed step is retried, if nothing changes before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// With a delay that grows with each failure in a row.
    BackingOff,
    /// At this time, when a change is expected or a back-off ends.
    At(MonoTime),
}

impl Retry {
    /// The earlier of two, where a known time is earlier than an unknown one.
    #[must_use]
    pub fn earliest(a: Option<Self>, b: Option<Self>) -> Option<Self> {
        match (a, b) {
            (Some(Self::At(a)), Some(Self::At(b))) => Some(Self::At(a.min(b))),
            (Some(at @ Self::At(_)), _) | (_, Some(at @ Self::At(_))) => Some(at),
            (Some(Self::BackingOff), _) | (_, Some(Self::BackingOff)) => Some(Self::BackingOff),
            (None, None) => None,
        }
    }
}

/// Result of a pass.
#[derive(Debug, Default)]
pub struct PassReport {
    /// Directories and volumes are ready; later passes need not prepare them again.
    pub prepared: Option<Arc<Prepared>>,
    /// Set if something failed.
    pub retry: Option<Retry>,
}

/// Executes one step.
pub async fn run(context: PassContext, plan: PodPlan, prepared: Option<Arc<Prepared>>) -> PassReport {
    let mut report = PassReport { prepared, retry: None };
    report.retry = execute_step(&context, plan.step, &mut report.prepared).await.err();
    report
}

/// What a step consists of is boxed one by one: a future has space for the largest of those that it awaits, and with many pods that
/// start at one time that is most of what they need.
async fn execute_step(
    context: &PassContext,
    step: PodStep,
    prepared: &mut Option<Arc<Prepared>>,
) -> Result<(), Retry> {
    match step {
        PodStep::Settled => Ok(()),
        PodStep::RepairCgroup => Box::pin(prepare::repair_cgroup(context)).await,
        PodStep::CreateSandbox { attempt, stop, kill, why } => {
            stop_containers(context, &kill).await;
            stop_sandboxes(context, &stop).await?;
            // Not before the containers are stopped: once the cgroup exists again, no process of this pod may be outside it.
            if prepared.is_some() {
                Box::pin(prepare::ensure_cgroup(context)).await?;
            }
            let prepared = ensure_prepared(context, prepared, PreparedFor::Sandbox).await?;
            let claims = Box::pin(claims::ensure_claims(context));
            let has_claims = spec_of(&context.pod).resource_claims.is_some();
            context.traced_if(has_claims, Work::PrepareClaims, claims).await?;
            let created = Box::pin(sandbox::create(context, &prepared, attempt, why));
            context.traced(Work::CreateSandbox, None, created).await
        }
        PodStep::Converge { sandbox, kill, remove, resize, start } => {
            let prepared = ensure_prepared(context, prepared, PreparedFor::Containers).await?;
            if resize.is_some() || kill.iter().any(|kill| kill.why == KillReason::ResizeRequiresRestart) {
                // A kubelet that starts later finishes the resize. A full disk holds up no resize.
                context.handles.resources.amount_files.save().await;
            }
            // What could not be stopped or removed keeps no other container from being started.
            let is_killed = stop_containers(context, &kill).await;
            let removed = Box::pin(remove_all(context, &remove));
            let is_removed = context.traced_if(!remove.is_empty(), Work::RemoveContainers, removed).await;
            let cleared = if is_killed && is_removed { None } else { Some(Retry::BackingOff) };
            // A resize that fails keeps no container from being started.
            let resized = match &resize {
                Some(resize) => {
                    let resized = Box::pin(resize::carry_out(context, &sandbox, resize));
                    context.traced(Work::Resize, None, resized).await
                }
                None => None,
            };
            let started = match start.as_slice() {
                [] => None,
                start => Box::pin(start::start_all(context, &prepared, &sandbox, start)).await,
            };
            Retry::earliest(cleared, Retry::earliest(resized, started)).map_or(Ok(()), Err)
        }
        PodStep::Teardown { kill, stop, why } => {
            tracing::info!(pod = %context.identity, reason = ?why, "Pod finished, stopped its sandbox");
            let is_killed = stop_containers(context, &kill).await;
            stop_sandboxes(context, &stop).await?;
            if is_killed { Ok(()) } else { Err(Retry::BackingOff) }
        }
    }
}

/// Returns whether all are stopped.
async fn stop_containers(context: &PassContext, kill: &[KillContainer]) -> bool {
    let stopped = Box::pin(kill::kill_all(context, kill));
    context.traced_if(!kill.is_empty(), Work::StopContainers, stopped).await
}

async fn stop_sandboxes(context: &PassContext, stop: &[SandboxId]) -> Result<(), Retry> {
    let stopped = Box::pin(sandbox::stop_all(context, stop));
    context.traced_if(!stop.is_empty(), Work::StopSandbox, stopped).await
}

/// Removes old instances in order, and their logs unless the restart count is derived from them. Returns whether all are removed.
async fn remove_all(context: &PassContext, remove: &[RemoveContainer]) -> bool {
    for old in remove {
        match context.handles.ctx.runtime.remove_container(&old.id).await {
            Err(error) if !error.is_not_found() => {
                tracing::warn!(pod = %context.identity, containerName = %old.name, err = %error, "Failed to remove old container");
                return false;
            }
            Ok(()) | Err(_) => {}
        }
        if !old.why.keeps_logs() {
            files::remove_log(context, &old.id).await;
        }
    }
    true
}

/// Prepares everything that containers need, once.
async fn ensure_prepared(
    context: &PassContext,
    prepared: &mut Option<Arc<Prepared>>,
    what: PreparedFor,
) -> Result<Arc<Prepared>, Retry> {
    if let Some(prepared) = prepared {
        return Ok(prepared.clone());
    }
    let work = Box::pin(prepare::prepare(context, what));
    let fresh = Arc::new(context.traced(Work::PrepareVolumes, None, work).await?);
    Ok(prepared.insert(fresh).clone())
}

/// Waiting states by container, for the pod status.
pub type WaitingStates = BTreeMap<String, Waiting>;
