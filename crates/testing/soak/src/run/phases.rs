//! The course of a soak: every kind of pod once, the inventory, the schedule, the end of all faults, the inventory again.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::clock::{ClockState, compute_disturbances, compute_outstanding};
use crate::convergence::{Desired, compute_unconverged};
use crate::invariants::{Invariants, Violation};
use crate::leaks::{Inventory, Leak, compute_leaks};
use crate::schedule::{
    Action, CLOCK_AHEAD, CLOCK_BEHIND, PodKind, PodPlan, Size, Source, Step, compute_schedule,
};
use tokio::time::Instant;

use crate::run::drive::Requested;
use crate::run::observe::Sample;
use crate::run::report::{Report, Span};
use crate::run::stand::{Stand, run};
use crate::run::{Arguments, Outcome};
use harness::node::NODE_NAME;

/// Between two observations.
const POLL: Duration = Duration::from_secs(2);
/// Until every pod is as desired after the last fault. Back-off of volumes reaches two minutes.
const CONVERGENCE_TIMEOUT: Duration = Duration::from_secs(300);
/// Until every deleted pod is gone.
const DELETION_TIMEOUT: Duration = Duration::from_secs(240);
/// Until threads and idle connections have ended.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(90);
/// How long to wait after the first pods are gone, before the inventory that later ones are compared with.
const SETTLE: Duration = Duration::from_secs(15);
/// Until the kubelet has renewed its lease and restarted every crashed container after a jump of its clock. The longest back-off is
/// 20 s, and the lease is renewed every 10 s.
const CLOCK_TIMEOUT: Duration = Duration::from_secs(60);
/// A pod that has not gone for so long may have lost its task in containerd.
const LOST_TASKS: Duration = Duration::from_secs(30);

pub(crate) async fn soak(arguments: &Arguments) -> Outcome<Report> {
    let schedule = compute_schedule(arguments.seed, arguments.extent);
    let stand = Stand::start(arguments).await?;
    let mut soak = Soak::new(arguments, stand);
    let done = soak.run(schedule).await;
    let Soak { stand, mut report, requested, .. } = soak;
    report.problems.extend(done.err().map(|error| error.to_string()));
    report.counts = requested.counts;
    report.call_faults = stand.proxy.faults();
    report
        .problems
        .extend(stand.driver.violations().iter().map(|what| format!("call to the CSI driver: {what}")));
    if !report.holds() || report.after.has_lost_of_runtime() {
        report.containerd_log = std::fs::read_to_string(stand.containerd_dir().join("containerd.log")).ok();
        report.kubelet_log = Some(stand.kubelet_log());
    }
    report.problems.extend(stand.stop().await.iter().map(|left| format!("left at the end: {left}")));
    Ok(report)
}

struct Soak {
    stand: Stand,
    requested: Requested,
    invariants: Invariants,
    report: Report,
    seed: u64,
    /// Of the schedule, once it has begun.
    began: Option<Instant>,
    lost_tasks_at: Instant,
}

impl Soak {
    fn new(arguments: &Arguments, stand: Stand) -> Self {
        Self {
            stand,
            requested: Requested::new(),
            invariants: Invariants::default(),
            report: Report::new(arguments),
            seed: arguments.seed,
            began: None,
            lost_tasks_at: Instant::now(),
        }
    }

    async fn run(&mut self, schedule: Vec<Step>) -> Outcome<()> {
        eprintln!("starting a pod of every kind");
        for step in warm_up() {
            self.requested.act(&mut self.stand, step, self.seed).await?;
        }
        self.converge("the first pods").await?;
        self.jump_clock().await?;
        self.delete_all().await?;
        tokio::time::sleep(SETTLE).await;
        let before = self.stand.inventory().await?;
        self.report.before = before.clone();
        self.requested.counts.clear();
        eprintln!("{} steps in {} s", schedule.len(), self.report.extent.duration.as_secs());
        self.follow(schedule).await?;
        eprintln!("waiting until every pod is as desired");
        self.converge("the end").await?;
        eprintln!("deleting every pod");
        self.delete_all().await?;
        let leaks = self.settle(&before).await?;
        self.report.leaks = leaks.iter().map(Leak::to_string).collect();
        Ok(())
    }

    async fn follow(&mut self, schedule: Vec<Step>) -> Outcome<()> {
        let began = *self.began.insert(Instant::now());
        let mut steps = schedule.into_iter().peekable();
        let mut observe_at = began;
        while let Some(step) = steps.peek() {
            let due = began + step.at;
            tokio::time::sleep_until(due.min(observe_at)).await;
            if Instant::now() >= observe_at {
                self.observe().await?;
                observe_at = Instant::now() + POLL;
            }
            if Instant::now() >= due
                && let Some(step) = steps.next()
            {
                self.carry_out(step.action).await?;
            }
        }
        Ok(())
    }

    async fn carry_out(&mut self, action: Action) -> Outcome<()> {
        match &action {
            Action::Begin(fault) => {
                self.report.spans.push(Span { fault: *fault, from: self.second(), to: None })
            }
            Action::End(fault) => {
                let open =
                    self.report.spans.iter().position(|span| span.fault == *fault && span.to.is_none());
                let now = self.second();
                if let Some(span) = open.and_then(|index| self.report.spans.get_mut(index)) {
                    span.to = Some(now);
                }
            }
            Action::Create(_)
            | Action::Edit(_)
            | Action::Resize(_)
            | Action::Delete { .. }
            | Action::ChangeConfigMap { .. } => {}
        }
        // Faults that make choices of their own get a different seed each time.
        self.seed = self.seed.wrapping_add(1);
        self.requested.act(&mut self.stand, action, self.seed).await
    }

    fn second(&self) -> f64 {
        self.began.map_or(0.0, |began| began.elapsed().as_secs_f64())
    }

    /// One sample, and the check of all invariants.
    async fn observe(&mut self) -> Outcome<crate::invariants::Observation> {
        if self.requested.must_run() && self.stand.node.has_exited()? {
            self.report.problems.push(format!("{:.0} s: the kubelet exited by itself", self.second()));
            self.stand.node.start(&self.stand.kubelet.clone())?;
        }
        let desired = self.requested.desired();
        let observed = self.stand.observe().await;
        for violation in self.invariants.check(&desired, &observed) {
            self.violation(&violation);
        }
        let running = observed.runtime.as_ref().map(|containers| {
            let running = containers.iter().filter(|one| one.is_running);
            running.map(|one| one.pod_uid.as_str()).collect::<BTreeSet<_>>().len()
        });
        if self.began.is_some() {
            let (second, process) = (self.second(), self.stand.process_sample());
            let desired = self.requested.pods.len();
            self.report.samples.push(Sample { second, desired, running, process });
        }
        self.kill_lost_tasks();
        Ok(observed)
    }

    fn violation(&mut self, violation: &Violation) {
        let text = violation.to_string();
        if !self.report.violations.iter().any(|(_, known)| *known == text) {
            eprintln!("{:.0} s: VIOLATION: {text}", self.second());
            self.report.violations.push((self.second(), text));
        }
    }

    /// Waits until every pod is as desired; what is not in time becomes part of the report.
    async fn converge(&mut self, what: &str) -> Outcome<()> {
        let deadline = Instant::now() + CONVERGENCE_TIMEOUT;
        let began = Instant::now();
        loop {
            let observed = self.observe().await?;
            let node = self.stand.node_state(&observed);
            let desired = Desired {
                pods: self.requested.pods.values().collect(),
                config_version: self.requested.config_version,
                node_name: NODE_NAME,
            };
            let unconverged = compute_unconverged(&desired, &observed, &node);
            if unconverged.is_empty() {
                eprintln!("{what}: as desired after {:.0} s", began.elapsed().as_secs_f64());
                // That of the first pods is replaced.
                self.report.convergence_seconds = Some(began.elapsed().as_secs_f64());
                return Ok(());
            }
            if Instant::now() > deadline {
                self.report.convergence_seconds = None;
                self.report.unconverged.extend(unconverged.iter().map(|line| format!("{what}: {line}")));
                return Ok(());
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// An hour forward, back again, minutes back, and back again, without any other fault.
    async fn jump_clock(&mut self) -> Outcome<()> {
        for seconds in [CLOCK_AHEAD, 0, CLOCK_BEHIND, 0] {
            let before = self.clock_state().await?;
            self.stand.clock.set(seconds)?;
            let began = Instant::now();
            let (after, outstanding) = loop {
                let now = self.clock_state().await?;
                let outstanding = compute_outstanding(&before, &now, seconds);
                if outstanding.is_empty() || began.elapsed() > CLOCK_TIMEOUT {
                    break (now, outstanding);
                }
                tokio::time::sleep(POLL).await;
            };
            let disturbances = compute_disturbances(&before, &after, began.elapsed());
            eprintln!("the clock differs by {seconds} s: {:.0} s", began.elapsed().as_secs_f64());
            for what in outstanding.into_iter().chain(disturbances) {
                self.report.problems.push(format!("the clock differs by {seconds} s: {what}"));
            }
        }
        self.converge("the clock is right again").await
    }

    async fn clock_state(&mut self) -> Outcome<ClockState> {
        let observed = self.observe().await?;
        let kinds = self.requested.pods.values().map(|plan| match plan.source {
            Source::Api => (plan.name.clone(), plan.kind),
            Source::Static => (format!("{}-{NODE_NAME}", plan.name), plan.kind),
        });
        let containers = observed.runtime.unwrap_or_default();
        let renewed = self.stand.lease_renewed().await;
        Ok(ClockState::new(&kinds.collect(), &containers, self.stand.probes(), renewed))
    }

    async fn delete_all(&mut self) -> Outcome<()> {
        for plan in self.requested.pods.values().cloned().collect::<Vec<_>>() {
            self.requested.act(&mut self.stand, Action::Delete { plan, force: false }, self.seed).await?;
        }
        let deadline = Instant::now() + DELETION_TIMEOUT;
        loop {
            let observed = self.observe().await?;
            let pods = observed.api.as_ref().map_or(1, Vec::len);
            let containers = observed.runtime.as_ref().map_or(1, Vec::len);
            let left = names_in(&self.stand.node.dir.join("root/pods"));
            if pods == 0 && containers == 0 && left == 0 {
                return Ok(());
            }
            if Instant::now() > deadline {
                let left = format!(
                    "deleted pods are not gone: {pods} in the API, {containers} containers, {left} directories"
                );
                self.report.unconverged.push(left);
                return Ok(());
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Waits until nothing is left; returns what is after the time.
    async fn settle(&mut self, before: &Inventory) -> Outcome<Vec<Leak>> {
        let deadline = Instant::now() + SETTLE_TIMEOUT;
        loop {
            self.observe().await?;
            let after = self.stand.inventory().await?;
            let leaks = compute_leaks(before, &after);
            self.report.after = after;
            if leaks.is_empty() || Instant::now() > deadline {
                return Ok(leaks);
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Does what an operator does where containerd 1.6 refuses forever to remove a container: it has lost the task of a start whose
    /// client died. The kubelet reports it (`FailedKillPod`) and tries again.
    fn kill_lost_tasks(&mut self) {
        const REFUSAL: &str = "cannot delete running task ";
        if self.lost_tasks_at.elapsed() < LOST_TASKS || self.stand.containerd.pid().is_none() {
            return;
        }
        self.lost_tasks_at = Instant::now();
        let log = self.stand.kubelet_log();
        let tasks = log.split(REFUSAL).skip(1).filter_map(|rest| rest.split(':').next());
        for task in tasks.collect::<BTreeSet<_>>() {
            let mut ctr = harness::containerd::command("ctr");
            ctr.arg("--address").arg(self.stand.containerd.socket()).args(["--namespace", "k8s.io"]);
            // If it is gone by now, there is nothing to end.
            if run(ctr.args(["tasks", "delete", "--force", task])).is_ok() {
                self.report.lost_tasks += 1;
            }
        }
    }
}

/// A pod of every kind, and what pays for code that runs for the first time.
fn warm_up() -> Vec<Action> {
    let mut steps = Vec::new();
    for (number, kind) in PodKind::ALL.into_iter().enumerate() {
        for source in [Source::Api, Source::Static] {
            if source == Source::Api || kind.may_be_static() {
                let name = format!("first-{number}-{source:?}").to_lowercase();
                steps.push(Action::Create(PodPlan { name, kind, source, version: 1, size: Size::FIRST }));
            }
        }
    }
    steps
}

fn names_in(dir: &std::path::Path) -> usize {
    std::fs::read_dir(dir).map_or(0, Iterator::count)
}
