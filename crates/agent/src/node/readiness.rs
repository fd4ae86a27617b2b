//! Polls the status of the container runtime every five seconds, and publishes it.
//!
//! Readiness comes from the runtime's own status and the relist, never from a single pod: a pod that cannot be
//! inspected is named in the message and leaves the node ready.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use base_agent::events::Recorder;
use model::{MonoTime, PodUid};
use ports::runtime::{RuntimeResult, RuntimeStatus, RuntimeVersion};
use ports::{Clock, Runtime};
use tokio::sync::watch;

use crate::cgroup_problems::CgroupProblems;
use crate::node_view::{NodeView, OtherProblems};
use crate::pods::pleg::PlegHandle;

const PERIOD: Duration = Duration::from_secs(5);
/// Until the node is ready for the first time it is polled more often, for a limited time.
const FIRST_PERIOD: Duration = Duration::from_millis(100);
const FIRST_PERIODS_FOR: Duration = Duration::from_secs(120);

/// Polls the runtime every five seconds (more often at first, and at a node shutdown), and records changes: events NodeReady
/// and NodeNotReady of a standalone node, and an event for each pod that cannot be inspected.
#[derive(Debug)]
pub struct NodeWatch {
    pub runtime: Arc<dyn Runtime>,
    pub clock: Clock,
    pub pleg: PlegHandle,
    pub recorder: Recorder,
    pub cgroups: CgroupProblems,
    pub view: watch::Sender<NodeView>,
    pub shutting_down: watch::Receiver<bool>,
    /// Without an API the readiness of the node is reported as an event.
    pub is_standalone: bool,
}

/// The last reports, so that only changes are reported.
#[derive(Debug, Default)]
struct Reported {
    is_runtime_ready: Option<bool>,
    problems: Option<Vec<String>>,
    stuck: BTreeSet<PodUid>,
    was_ready: bool,
}

impl NodeWatch {
    /// Runs until dropped.
    pub async fn run(mut self) {
        let mut reported = Reported::default();
        loop {
            let now = self.poll(&mut reported).await;
            self.report(&mut reported, now);
            let is_starting = !reported.was_ready && now.since_start() < FIRST_PERIODS_FOR;
            let period = if is_starting { FIRST_PERIOD } else { PERIOD };
            tokio::select! {
                () = self.clock.sleep_until(now + period) => {}
                Ok(()) = self.shutting_down.changed() => {}
            }
        }
    }

    async fn poll(&self, reported: &mut Reported) -> MonoTime {
        let answer = self.await_runtime(reported).await;
        let now = self.clock.mono();
        self.view.send_modify(|view| {
            match answer {
                Ok(status) => {
                    view.error = None;
                    view.has_answered = true;
                    if status.runtime_ready.status {
                        view.last_ready = Some(now);
                    }
                    view.status = status;
                }
                Err(error) => {
                    view.error = Some(error.to_string());
                    // The runtime may have been restarted with another version.
                    view.version =
                        RuntimeVersion { name: view.version.name.clone(), ..RuntimeVersion::default() };
                }
            }
        });
        now
    }

    /// The answer of the runtime. While there is none, what the node's readiness is by now is reported all the same.
    async fn await_runtime(&self, reported: &mut Reported) -> RuntimeResult<RuntimeStatus> {
        let mut query = pin!(self.query_runtime());
        loop {
            tokio::select! {
                answer = &mut query => return answer,
                () = self.clock.sleep_until(self.clock.mono() + PERIOD) => {
                    self.view.send_modify(|_| {});
                    self.report(reported, self.clock.mono());
                }
            }
        }
    }

    /// The runtime's status; before it, its version if that is not known yet, because the PLEG waits for the name. A version that cannot
    /// be parsed is an error.
    async fn query_runtime(&self) -> RuntimeResult<RuntimeStatus> {
        let is_unknown = self.view.borrow().version.version.is_empty();
        if is_unknown {
            let version = self.runtime.version().await?;
            self.view.send_modify(|view| view.version = version);
        }
        self.runtime.status().await
    }

    fn report(&self, reported: &mut Reported, now: MonoTime) {
        let view = self.view.borrow().clone();
        report_runtime(&view, &mut reported.is_runtime_ready);
        let others = OtherProblems {
            pleg: self.pleg.problem(now),
            // A standalone node, whose readiness is reported here, has no CSINode.
            storage: None,
            is_shutting_down: *self.shutting_down.borrow(),
            cgroups: self.cgroups.texts(),
        };
        let problems = view.problems(others, now);
        reported.was_ready |= problems.is_empty();
        // No event until the runtime has answered once.
        if self.is_standalone && view.last_ready.is_some() && reported.problems.as_ref() != Some(&problems) {
            match problems.as_slice() {
                [] => self.recorder.node_normal("NodeReady", "Node status is now: NodeReady"),
                problems => self.recorder.node_warning("NodeNotReady", problems.join("; ")),
            }
            reported.problems = Some(problems);
        }
        let stuck = self.pleg.stuck_pods();
        for (pod, why) in stuck.iter().filter(|(pod, _)| !reported.stuck.contains(&pod.uid)) {
            self.recorder.warning(
                pod,
                None,
                "FailedSync",
                format!("failed to get pod status from the container runtime: {why}"),
            );
        }
        reported.stuck = stuck.into_iter().map(|(pod, _)| pod.uid).collect();
    }
}

fn report_runtime(view: &NodeView, reported: &mut Option<bool>) {
    let is_ready = view.error.is_none() && view.status.runtime_ready.status;
    if *reported == Some(is_ready) {
        return;
    }
    *reported = Some(is_ready);
    if is_ready {
        tracing::info!(
            name = view.version.name,
            version = view.version.version,
            "Container runtime is ready"
        );
    } else {
        let why = view.error.as_deref().unwrap_or(&view.status.runtime_ready.message);
        tracing::error!(err = why, "Container runtime is not ready");
    }
}
