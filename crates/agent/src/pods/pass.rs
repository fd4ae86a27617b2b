//! Acting on one pod: carrying out the plan that `kubelet-core` made, top to bottom, and reporting how far it came.
//!
//! Owns nothing: a pass is an owned child of its pod's worker, which drops it when it must stop. Dropping is safe at
//! every await, because the next decision is made from a fresh observation, in which anything half done is seen.

pub mod files;
mod image_volumes;
pub mod kill;
pub mod prepare;
pub mod sandbox;
pub mod start;

use std::collections::BTreeMap;
use std::sync::Arc;

use kubelet_core::pod::plan::{PodPlan, PodStep, RemoveContainer};
use model::k8s::Pod;
use model::{MonoTime, PodObservation, PodRef};
use tokio::sync::mpsc;

use crate::api::objects::PodObjects;
use crate::pods::handles::PodHandles;
pub(crate) use crate::pods::messages::{PassNote, Waiting, WorkerMessage};
use crate::pods::pass::prepare::Prepared;

/// What a pass works with.
#[derive(Clone, Debug)]
pub struct PassContext {
    pub handles: Arc<PodHandles>,
    pub pod: Arc<Pod>,
    pub identity: PodRef,
    pub observed: Arc<PodObservation>,
    pub objects: PodObjects,
    pub(crate) notes: mpsc::Sender<WorkerMessage>,
}

impl PassContext {
    pub(crate) async fn note(&self, note: PassNote) {
        // The worker is gone only when the whole pod is being dropped; then nobody needs the news.
        let _ = self.notes.send(WorkerMessage::Pass(note)).await;
    }
}

/// When a step that failed is worth another try, if nothing changes before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Later and later, the more often it fails in a row.
    BackingOff,
    /// Then: something is known to change, or a back-off of its own ends.
    At(MonoTime),
}

impl Retry {
    /// The earlier of two, where a known moment beats an unknown one.
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

/// How a pass ended.
#[derive(Debug, Default)]
pub struct PassReport {
    /// Directories and volumes are in place; later passes need not make them again.
    pub prepared: Option<Arc<Prepared>>,
    /// Something failed.
    pub retry: Option<Retry>,
}

/// Carries out one step.
pub async fn run(context: PassContext, plan: PodPlan, prepared: Option<Arc<Prepared>>) -> PassReport {
    let mut report = PassReport { prepared, retry: None };
    report.retry = carry_out(&context, plan.step, &mut report.prepared).await.err();
    report
}

async fn carry_out(
    context: &PassContext,
    step: PodStep,
    prepared: &mut Option<Arc<Prepared>>,
) -> Result<(), Retry> {
    match step {
        PodStep::Settled => Ok(()),
        PodStep::RepairCgroup => prepare::repair_cgroup(context).await,
        PodStep::CreateSandbox { attempt, stop, kill, why } => {
            kill::kill_all(context, &kill).await;
            sandbox::stop_all(context, &stop).await?;
            // Only now: a cgroup that is there again must mean that nobody of this pod is elsewhere.
            if prepared.is_some() {
                prepare::ensure_cgroup(context).await?;
            }
            let prepared = ensure_prepared(context, prepared).await?;
            sandbox::create(context, &prepared, attempt, why).await
        }
        PodStep::Converge { sandbox, kill, remove, start } => {
            let prepared = ensure_prepared(context, prepared).await?;
            kill::kill_all(context, &kill).await;
            remove_all(context, &remove).await;
            start::start_all(context, &prepared, &sandbox, &start).await.map_or(Ok(()), Err)
        }
        PodStep::Teardown { kill, stop, why } => {
            tracing::info!(pod = %context.identity, reason = ?why, "Pod finished, stopped its sandbox");
            kill::kill_all(context, &kill).await;
            sandbox::stop_all(context, &stop).await
        }
    }
}

/// Removes the records of old instances in order, and their logs where nobody counts on from them.
async fn remove_all(context: &PassContext, remove: &[RemoveContainer]) {
    for old in remove {
        match context.handles.ctx.runtime.remove_container(&old.id).await {
            Err(error) if !error.is_not_found() => {
                tracing::warn!(pod = %context.identity, containerName = %old.name, err = %error, "Failed to remove old container");
                return;
            }
            Ok(()) | Err(_) => {}
        }
        if !old.why.keeps_logs() {
            files::remove_log(context, &old.id).await;
        }
    }
}

/// Makes everything ready that a container needs, once.
async fn ensure_prepared(
    context: &PassContext,
    prepared: &mut Option<Arc<Prepared>>,
) -> Result<Arc<Prepared>, Retry> {
    if let Some(prepared) = prepared {
        return Ok(prepared.clone());
    }
    let fresh = Arc::new(prepare::prepare(context).await?);
    Ok(prepared.insert(fresh).clone())
}

/// Waiting states by container, as status shows them.
pub type WaitingStates = BTreeMap<String, Waiting>;
