//! Run-once mode: start the pods of the manifests, wait until every pod runs or has ended, and report the result of each.
//! The containers keep running when the kubelet exits.

use std::time::Duration;

use base_agent::pods_view::PodEntry;
use kubelet_core::pods::plan::RestartPolicy;
use model::PodRef;
use model::containers::spec_of;
use model::k8s::{ContainerStatus, PodStatus};

use crate::Agent;

/// A pod that has not started by then has failed.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Result of one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodOutcome {
    pub pod: PodRef,
    pub verdict: Verdict,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Running,
    Succeeded,
    /// With the reason and message of its status.
    Failed(String),
}

/// Result of the run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub pods: Vec<PodOutcome>,
    /// Manifests that could not be used.
    pub problems: Vec<String>,
}

impl Outcome {
    /// Logs a line for each pod; returns whether all of them succeeded or run.
    #[must_use]
    pub fn report(&self) -> bool {
        for PodOutcome { pod, verdict } in &self.pods {
            match verdict {
                Verdict::Running => tracing::info!(pod = %pod, "Run once: pod is running"),
                Verdict::Succeeded => tracing::info!(pod = %pod, "Run once: pod succeeded"),
                Verdict::Failed(why) => tracing::error!(pod = %pod, err = why, "Run once: pod failed"),
            }
        }
        for problem in &self.problems {
            tracing::error!(problem, "Run once: failed to parse manifest");
        }
        let is_failure = |outcome: &PodOutcome| matches!(outcome.verdict, Verdict::Failed(_));
        self.problems.is_empty() && !self.pods.iter().any(is_failure)
    }
}

/// Waits for the results of all pods of all sources.
pub async fn run(agent: &Agent) -> Outcome {
    let (clock, pods) = (agent.context().clock, agent.pods());
    let deadline = clock.mono() + TIMEOUT;
    let mut ready = agent.sources_ready();
    // The sender lives as long as the sync loop, and that as long as the agent.
    let _ = ready.wait_for(|ready| *ready).await;
    let mut changes = pods.changes();
    loop {
        let entries = pods.all();
        let verdicts: Vec<Option<Verdict>> = entries.iter().map(verdict).collect();
        let is_decided = verdicts.iter().all(Option::is_some) && entries.len() == agent.desired_pods();
        let is_working = |entry: &PodEntry| entry.status.phase.as_deref() == Some("Running");
        let is_late = clock.mono() >= deadline && !entries.iter().any(is_working);
        if is_decided || is_late {
            return outcome(agent, &entries, verdicts);
        }
        tokio::select! {
            _ = changes.changed() => {}
            () = clock.sleep_until(deadline), if clock.mono() < deadline => {}
        }
    }
}

fn outcome(agent: &Agent, entries: &[PodEntry], verdicts: Vec<Option<Verdict>>) -> Outcome {
    let late = |entry: &PodEntry| {
        let status = &entry.status;
        let phase = status.phase.as_deref().unwrap_or("unknown");
        Verdict::Failed(format!("phase {phase} after {TIMEOUT:?}: {}", explain(status)))
    };
    let pods = entries.iter().zip(verdicts).map(|(entry, verdict)| PodOutcome {
        pod: entry.identity.clone(),
        verdict: verdict.unwrap_or_else(|| late(entry)),
    });
    let problems = agent.manifest_problems().all();
    let is_problem = |p: &ports::node_api::ManifestProblem| !p.message.starts_with("warning: ");
    Outcome {
        pods: pods.collect(),
        problems: problems
            .into_iter()
            .filter(is_problem)
            .map(|p| format!("{}: {}", p.origin, p.message))
            .collect(),
    }
}

/// `None`: not decided yet. A pod with `restartPolicy: Always` succeeds once it runs; any other must end.
fn verdict(entry: &PodEntry) -> Option<Verdict> {
    let status = &*entry.status;
    let policy = RestartPolicy::parse(spec_of(&entry.pod).restart_policy.as_deref());
    match status.phase.as_deref() {
        Some("Succeeded") => Some(Verdict::Succeeded),
        Some("Failed") => Some(Verdict::Failed(explain(status))),
        Some("Running") if policy == RestartPolicy::Always && containers(status).all(has_started) => {
            Some(Verdict::Running)
        }
        _ if is_backing_off(status) => Some(Verdict::Failed(explain(status))),
        _ => None,
    }
}

fn containers(status: &PodStatus) -> impl Iterator<Item = &ContainerStatus> {
    status.container_statuses.iter().flatten()
}

fn has_started(container: &ContainerStatus) -> bool {
    container.state.as_ref().is_some_and(|state| state.running.is_some() || state.terminated.is_some())
}

/// Whether a container is in a back-off, so that waiting longer is unlikely to help.
fn is_backing_off(status: &PodStatus) -> bool {
    let all = status.init_container_statuses.iter().flatten().chain(containers(status));
    let reasons = all.filter_map(|c| c.state.as_ref()?.waiting.as_ref()?.reason.as_deref());
    reasons.into_iter().any(|reason| {
        matches!(
            reason,
            "CrashLoopBackOff"
                | "ImagePullBackOff"
                | "ErrImageNeverPull"
                | "InvalidImageName"
                | "CreateContainerConfigError"
        )
    })
}

fn explain(status: &PodStatus) -> String {
    let all = status.init_container_statuses.iter().flatten().chain(containers(status));
    let states = all.filter_map(|container| {
        let state = container.state.as_ref()?;
        let waiting = state.waiting.as_ref().map(|w| (w.reason.as_deref(), w.message.as_deref(), None));
        let ended =
            state.terminated.as_ref().map(|t| (t.reason.as_deref(), t.message.as_deref(), Some(t.exit_code)));
        let (reason, message, code) = waiting.or(ended)?;
        let code = code.map(|code| format!(" (exit code {code})")).unwrap_or_default();
        let message = message.map(|m| format!(": {m}")).unwrap_or_default();
        Some(format!("{}: {}{code}{message}", container.name, reason.unwrap_or("no reason given")))
    });
    let own =
        status.reason.as_ref().map(|r| format!("{r}: {}", status.message.as_deref().unwrap_or_default()));
    own.into_iter().chain(states).collect::<Vec<_>>().join("; ")
}
