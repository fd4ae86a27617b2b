//! What the node as a whole knows of its runtime: asked every five seconds, published for all.
//!
//! Readiness comes from the runtime's own status and the relist, never from a single pod: a pod that cannot be
//! inspected is named in the message and leaves the node ready.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use model::{MonoTime, PodUid};
use ports::runtime::{RuntimeCondition, RuntimeResult, RuntimeStatus, RuntimeVersion};
use ports::{Clock, Runtime};
use tokio::sync::watch;

use crate::events::Recorder;
use crate::pleg::PlegHandle;

const PERIOD: Duration = Duration::from_secs(5);
/// Until the node is ready for the first time it is looked at more often, though not forever.
const FIRST_PERIOD: Duration = Duration::from_millis(100);
const FIRST_PERIODS_FOR: Duration = Duration::from_secs(120);
/// A runtime that has not answered for this long is down.
const RUNTIME_DOWN_AFTER: Duration = Duration::from_secs(30);

/// The runtime as last seen.
#[derive(Clone, Debug, Default)]
pub struct NodeView {
    pub version: RuntimeVersion,
    pub status: RuntimeStatus,
    /// The runtime has answered once; before that its status is not known.
    pub has_answered: bool,
    /// Last time the runtime said that it is ready; `None` before the first.
    pub last_ready: Option<MonoTime>,
    /// Why the last question was not answered.
    pub error: Option<String>,
}

impl NodeView {
    /// Why the pod network cannot be used, if so.
    #[must_use]
    pub fn network_problem(&self) -> Option<String> {
        network_problem(self.has_answered.then_some(&self.status))
    }

    /// Everything that keeps the node from being ready, in the words of its condition; empty when it is.
    #[must_use]
    pub fn problems(&self, pleg: &PlegHandle, is_shutting_down: bool, now: MonoTime) -> Vec<String> {
        let mut problems = runtime_problems(
            self.has_answered.then_some(&self.status),
            self.last_ready,
            pleg.problem(now),
            now,
        );
        problems.extend(self.network_problem());
        problems.extend(is_shutting_down.then(|| kubelet_core::shutdown::PROBLEM.to_owned()));
        problems
    }
}

/// Why the runtime keeps the node from being ready, in the order and the words of the Go kubelet (`runtime.go`).
fn runtime_problems(
    status: Option<&RuntimeStatus>,
    last_ready: Option<MonoTime>,
    pleg: Option<String>,
    now: MonoTime,
) -> Vec<String> {
    let mut problems = Vec::new();
    match last_ready {
        None => problems.push("container runtime status check may not have completed yet".to_owned()),
        Some(at) if now.saturating_since(at) >= RUNTIME_DOWN_AFTER => {
            problems.push("container runtime is down".to_owned());
        }
        Some(_) => {}
    }
    problems.extend(pleg.map(|why| format!("PLEG is not healthy: {why}")));
    if let Some(status) = status.filter(|status| !status.runtime_ready.status) {
        problems
            .push(format!("container runtime not ready: {}", shown("RuntimeReady", &status.runtime_ready)));
    }
    problems
}

/// `None` for a status is one that is not known yet.
fn network_problem(status: Option<&RuntimeStatus>) -> Option<String> {
    let Some(status) = status else { return Some("network state unknown".to_owned()) };
    let network = &status.network_ready;
    let problem = || format!("container runtime network not ready: {}", shown("NetworkReady", network));
    (!network.status).then(problem)
}

/// A condition of the runtime, as the Go kubelet writes it.
fn shown(name: &str, condition: &RuntimeCondition) -> String {
    let RuntimeCondition { status, reason, message } = condition;
    format!("{name}={status} reason:{reason} message:{message}")
}

/// Asks the runtime now and every five seconds (at first more often, and when the machine is about to end), and says what changed: about the node as events NodeReady and
/// NodeNotReady, about pods that cannot be looked at as events of their own.
#[derive(Debug)]
pub struct NodeWatch {
    pub runtime: Arc<dyn Runtime>,
    pub clock: Clock,
    pub pleg: PlegHandle,
    pub recorder: Recorder,
    pub view: watch::Sender<NodeView>,
    pub shutting_down: watch::Receiver<bool>,
    /// Nobody else tells how the node is.
    pub stands_alone: bool,
}

/// What was said last, so that nothing is said twice.
#[derive(Debug, Default)]
struct Said {
    is_runtime_ready: Option<bool>,
    problems: Option<Vec<String>>,
    stuck: BTreeSet<PodUid>,
    was_ready: bool,
}

impl NodeWatch {
    /// Runs until dropped.
    pub async fn run(mut self) {
        let mut said = Said::default();
        loop {
            let now = self.look().await;
            self.report(&mut said, now);
            let is_starting = !said.was_ready && now.since_start() < FIRST_PERIODS_FOR;
            let period = if is_starting { FIRST_PERIOD } else { PERIOD };
            tokio::select! {
                () = self.clock.sleep_until(now + period) => {}
                Ok(()) = self.shutting_down.changed() => {}
            }
        }
    }

    async fn look(&self) -> MonoTime {
        let answer = self.ask().await;
        let now = self.clock.mono();
        self.view.send_modify(|view| {
            match answer {
                Ok((version, status)) => {
                    if let Some(version) = version {
                        view.version = version;
                    }
                    view.error = None;
                    view.has_answered = true;
                    if status.runtime_ready.status {
                        view.last_ready = Some(now);
                    }
                    view.status = status;
                }
                Err(error) => {
                    view.error = Some(error.to_string());
                    // It may come back as another version.
                    view.version =
                        RuntimeVersion { name: view.version.name.clone(), ..RuntimeVersion::default() };
                }
            }
        });
        now
    }

    /// The runtime's status, and its version if that is not known yet. One without a version that we understand is as
    /// good as none.
    async fn ask(&self) -> RuntimeResult<(Option<RuntimeVersion>, RuntimeStatus)> {
        let status = self.runtime.status().await?;
        let is_unknown = self.view.borrow().version.version.is_empty();
        let version = if is_unknown { Some(self.runtime.version().await?) } else { None };
        Ok((version, status))
    }

    fn report(&self, said: &mut Said, now: MonoTime) {
        let view = self.view.borrow().clone();
        report_runtime(&view, &mut said.is_runtime_ready);
        let problems = view.problems(&self.pleg, *self.shutting_down.borrow(), now);
        said.was_ready |= problems.is_empty();
        // Until the runtime has answered once nothing is known, and nothing is said.
        if self.stands_alone && view.last_ready.is_some() && said.problems.as_ref() != Some(&problems) {
            match problems.as_slice() {
                [] => self.recorder.node_normal("NodeReady", "Node status is now: NodeReady"),
                problems => self.recorder.node_warning("NodeNotReady", problems.join("; ")),
            }
            said.problems = Some(problems);
        }
        let stuck = self.pleg.stuck_pods();
        for (pod, why) in stuck.iter().filter(|(pod, _)| !said.stuck.contains(&pod.uid)) {
            self.recorder.warning(
                pod,
                None,
                "FailedSync",
                format!("the runtime cannot say how this pod is: {why}"),
            );
        }
        said.stuck = stuck.into_iter().map(|(pod, _)| pod.uid).collect();
    }
}

fn report_runtime(view: &NodeView, said: &mut Option<bool>) {
    let is_ready = view.error.is_none() && view.status.runtime_ready.status;
    if *said == Some(is_ready) {
        return;
    }
    *said = Some(is_ready);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> MonoTime {
        MonoTime::from_start(Duration::from_secs(seconds))
    }

    fn status(runtime: bool, network: bool) -> RuntimeStatus {
        let condition = |status: bool, reason: &str, message: &str| RuntimeCondition {
            status,
            reason: if status { String::new() } else { reason.to_owned() },
            message: if status { String::new() } else { message.to_owned() },
        };
        RuntimeStatus {
            runtime_ready: condition(runtime, "Broken", "the shim is gone"),
            network_ready: condition(network, "NetworkPluginNotReady", "cni plugin not initialized"),
            ..RuntimeStatus::default()
        }
    }

    /// `runtime_test.go` (TestRuntimeErrors…) and `kubelet_test.go` (TestUpdateRuntimeUp): which messages, in which order.
    #[test]
    fn runtime_and_network_problems_are_worded_as_in_the_go_kubelet() {
        const UNKNOWN: &str = "container runtime status check may not have completed yet";
        const NOT_READY: &str =
            "container runtime not ready: RuntimeReady=false reason:Broken message:the shim is gone";
        const NO_NETWORK: &str = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady \
                                  message:cni plugin not initialized";
        let check = |status: Option<RuntimeStatus>, last_ready: Option<u64>, now: u64, expected: &[&str]| {
            let mut problems = runtime_problems(status.as_ref(), last_ready.map(at), None, at(now));
            problems.extend(network_problem(status.as_ref()));
            assert_eq!(problems, expected, "{status:?} {last_ready:?} {now}");
        };
        check(None, None, 1, &[UNKNOWN, "network state unknown"]);
        check(Some(status(false, false)), None, 1, &[UNKNOWN, NOT_READY, NO_NETWORK]);
        check(Some(status(true, false)), Some(1), 1, &[NO_NETWORK]);
        check(Some(status(true, true)), Some(1), 30, &[]);
        check(Some(status(false, true)), Some(1), 2, &[NOT_READY]);
        check(Some(status(true, true)), Some(1), 31, &["container runtime is down"]);
        check(Some(status(false, true)), Some(1), 31, &["container runtime is down", NOT_READY]);
        let pleg = Some("pleg has yet to be successful".to_owned());
        assert_eq!(
            runtime_problems(None, None, pleg, at(1)),
            [UNKNOWN, "PLEG is not healthy: pleg has yet to be successful"]
        );
    }
}
