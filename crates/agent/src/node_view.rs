//! The state of the container runtime as `node::readiness` last observed it, published for all tasks.

use std::time::Duration;

use jiff::Timestamp;
use model::MonoTime;
use model::explain::EvictionSignal;
use ports::runtime::{RuntimeCondition, RuntimeStatus, RuntimeVersion};
use stats_core::near::NearLimits;

/// A runtime that has not answered for this long is down.
pub(crate) const RUNTIME_DOWN_AFTER: Duration = Duration::from_secs(30);

/// The last observation of the runtime.
#[derive(Clone, Debug, Default)]
pub struct NodeView {
    pub version: RuntimeVersion,
    pub status: RuntimeStatus,
    /// The runtime has answered once; before that its status is not known.
    pub has_answered: bool,
    /// Last time the runtime reported that it is ready; `None` before the first.
    pub last_ready: Option<MonoTime>,
    /// Error of the last status call, if it failed.
    pub error: Option<String>,
}

/// How the lease of the node is, by which the cluster knows that it is alive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseView {
    pub renewed_at: Option<Timestamp>,
    /// Error of the last try, if it failed.
    pub error: Option<String>,
    /// It failed because the API server is overloaded, and said so.
    pub is_overloaded: bool,
}

/// What `node::shutdown` knows of the end of the machine, besides that it has begun.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShutdownView {
    /// When the periods of all pods have passed; `None` while the machine is not shutting down.
    pub ends_by: Option<Timestamp>,
    /// Why there is no connection to logind, while there is none.
    pub error: Option<String>,
}

/// How near the node and its pods are to an eviction, as last measured.
#[derive(Clone, Debug, Default)]
pub struct EvictionView {
    pub signals: Vec<EvictionSignal>,
    /// Pods that use most of their limits of local storage.
    pub near_storage: NearLimits,
}

/// What keeps the node from being ready, besides the runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OtherProblems {
    /// Why the PLEG is not healthy.
    pub pleg: Option<String>,
    /// Why volumes cannot be used: there is no CSINode yet.
    pub storage: Option<String>,
    pub is_shutting_down: bool,
    /// The cgroup driver is not known, or running pods have no cgroup.
    pub cgroups: Vec<String>,
}

impl NodeView {
    /// The prefix of container ids in the API: `containerd`, `cri-o`; empty before the runtime has answered for the first time.
    #[must_use]
    pub fn runtime_name(&self) -> &str {
        &self.version.name
    }

    /// A call to the runtime, which was ready, has hung for so long that it counts as down. Such a call has no error yet.
    pub(crate) fn is_runtime_silent(&self, now: MonoTime) -> bool {
        self.status.runtime_ready.status && self.last_ready.is_some_and(|at| is_down(at, now))
    }

    /// Why the pod network cannot be used, if so.
    #[must_use]
    pub fn network_problem(&self) -> Option<String> {
        network_problem(self.has_answered.then_some(&self.status))
    }

    /// Everything that keeps the node from being ready, as messages for its Ready condition, in the order of the Go kubelet;
    /// empty when it is.
    #[must_use]
    pub fn problems(&self, others: OtherProblems, now: MonoTime) -> Vec<String> {
        let status = self.has_answered.then_some(&self.status);
        let mut problems = runtime_problems(status, self.last_ready, others.pleg, now);
        problems.extend(self.network_problem());
        problems.extend(others.storage);
        problems.extend(others.cgroups);
        problems.extend(others.is_shutting_down.then(|| kubelet_core::node::shutdown::PROBLEM.to_owned()));
        problems
    }
}

fn is_down(last_ready: MonoTime, now: MonoTime) -> bool {
    now.saturating_since(last_ready) >= RUNTIME_DOWN_AFTER
}

/// Why the runtime keeps the node from being ready, with the messages and the order of the Go kubelet (`runtime.go`).
fn runtime_problems(
    status: Option<&RuntimeStatus>,
    last_ready: Option<MonoTime>,
    pleg: Option<String>,
    now: MonoTime,
) -> Vec<String> {
    let mut problems = Vec::new();
    match last_ready {
        None => problems.push("container runtime status check may not have completed yet".to_owned()),
        Some(at) if is_down(at, now) => problems.push("container runtime is down".to_owned()),
        Some(_) => {}
    }
    problems.extend(pleg.map(|why| format!("PLEG is not healthy: {why}")));
    if let Some(status) = status.filter(|status| !status.runtime_ready.status) {
        problems
            .push(format!("container runtime not ready: {}", shown("RuntimeReady", &status.runtime_ready)));
    }
    problems
}

/// `status` is `None` as long as the runtime has not answered.
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

    #[test]
    fn runtime_that_was_ready_and_answers_nothing_for_long_is_silent() {
        let is_silent = |runtime: bool, last_ready: Option<u64>, now: u64| {
            let status = status(runtime, true);
            let view = NodeView { status, last_ready: last_ready.map(at), ..NodeView::default() };
            view.is_runtime_silent(at(now))
        };
        assert!(!is_silent(true, Some(1), 30) && is_silent(true, Some(1), 31));
        assert!(!is_silent(false, Some(1), 31), "it has answered that it is not ready");
        assert!(!is_silent(true, None, 31), "it has never been ready");
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
