//! The state machine of one probe of one container instance: the verdict from its outcomes, and the time of the next
//! attempt.
//!
//! Owns: thresholds, retries, waiting times and the texts of events. Never: a clock, random numbers, or carrying a probe out.
//! A new container instance gets a new state.
//!
//! ```text
//! waiting (initial delay) -> probing --verdict--> probing (readiness, liveness that succeeds)
//!                                    \--verdict--> on hold (liveness that failed, startup either way)
//! ```

use std::time::Duration;

use model::MonoTime;

use super::outcome::Outcome;
use super::results::{ProbeKind, Verdict};
use super::spec::ProbeSpec;

/// Number of attempts to execute a probe before it waits for the next period.
const ATTEMPTS_MAX: u32 = 3;

/// The verdict before any result: a container is alive, not ready, and its startup is unknown.
#[must_use]
pub const fn initial_verdict(kind: ProbeKind) -> Verdict {
    match kind {
        ProbeKind::Liveness => Verdict::Success,
        ProbeKind::Readiness => Verdict::Failure,
        ProbeKind::Startup => Verdict::Unknown,
    }
}

/// Whether a probe may run now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    Open,
    /// Not now: the container has not started yet, or the startup probe is done.
    Closed,
    /// Never again: the pod is being deleted, and its containers must not restart. A liveness verdict reads as
    /// Success from now on.
    Over,
}

/// The startup probe runs first and alone. A terminating pod has only its readiness probed, until its containers are gone.
#[must_use]
pub const fn gate(kind: ProbeKind, has_started: bool, is_deleting: bool) -> Gate {
    match kind {
        ProbeKind::Liveness | ProbeKind::Startup if is_deleting => Gate::Over,
        ProbeKind::Startup if has_started => Gate::Closed,
        ProbeKind::Startup => Gate::Open,
        ProbeKind::Liveness | ProbeKind::Readiness if has_started => Gate::Open,
        ProbeKind::Liveness | ProbeKind::Readiness => Gate::Closed,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeEventReason {
    Unhealthy,
    ProbeWarning,
}

impl ProbeEventReason {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unhealthy => "Unhealthy",
            Self::ProbeWarning => "ProbeWarning",
        }
    }
}

/// A Warning event about the container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeEvent {
    pub reason: ProbeEventReason,
    pub message: String,
}

/// The result of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeDecision {
    /// The new verdict, if it changed.
    pub verdict: Option<Verdict>,
    /// `None`: on hold, until there is a new container instance.
    pub next_at: Option<MonoTime>,
    pub event: Option<ProbeEvent>,
}

impl ProbeDecision {
    #[must_use]
    pub const fn on_hold(&self) -> bool {
        self.next_at.is_none()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeState {
    verdict: Verdict,
    /// The last outcome (success or failure) and its number in a row.
    streak: Option<(bool, u32)>,
    failed_attempts: u32,
    /// The start of the current period; the next ones follow at a fixed interval, however long a probe takes.
    due: MonoTime,
    on_hold: bool,
}

impl ProbeState {
    /// A probe of an instance that started at `started_at`. `offset` spreads the probes after a start of the kubelet; it is
    /// zero otherwise.
    #[must_use]
    pub fn begin(spec: &ProbeSpec, started_at: MonoTime, offset: Duration) -> Self {
        Self {
            verdict: initial_verdict(spec.kind),
            streak: None,
            failed_attempts: 0,
            due: started_at + spec.initial_delay + offset,
            on_hold: false,
        }
    }

    /// Sets the verdict of the previous kubelet.
    #[must_use]
    pub fn seeded(mut self, kind: ProbeKind, verdict: Verdict) -> Self {
        self.verdict = verdict;
        self.on_hold = kind == ProbeKind::Startup && verdict == Verdict::Success;
        self
    }

    #[must_use]
    pub const fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// The time of the next attempt; `None` while on hold.
    #[must_use]
    pub const fn next_at(&self) -> Option<MonoTime> {
        if self.on_hold { None } else { Some(self.due) }
    }

    /// Runs the probe without waiting for the period, because other components wait for readiness. The initial delay still
    /// applies.
    pub fn hurry(&mut self, spec: &ProbeSpec, now: MonoTime) {
        let is_waiting_for_period = self.streak.is_some() || self.failed_attempts > 0;
        if is_waiting_for_period && self.due > now && self.due.saturating_since(now) <= spec.period {
            self.due = now;
        }
    }

    /// Handles the outcome of an attempt that ended at `now`.
    pub fn step(&mut self, spec: &ProbeSpec, outcome: Outcome, now: MonoTime) -> ProbeDecision {
        if self.on_hold {
            return ProbeDecision { verdict: None, next_at: None, event: None };
        }
        if matches!(outcome, Outcome::Error(_)) && self.failed_attempts + 1 < ATTEMPTS_MAX {
            self.failed_attempts += 1;
            return ProbeDecision { verdict: None, next_at: Some(now), event: None };
        }
        self.failed_attempts = 0;
        self.due = next_period(self.due, spec.period, now);
        let event = event_for(spec.kind, &outcome);
        let verdict = match outcome {
            Outcome::Success | Outcome::Warning(_) => self.count(spec, true),
            Outcome::Failure(_) => self.count(spec, false),
            // An execution error is no result for the container, so it neither breaks nor extends a streak.
            Outcome::Error(_) => None,
        };
        let changed = verdict.filter(|verdict| *verdict != self.verdict);
        if let Some(verdict) = verdict {
            self.verdict = verdict;
            self.on_hold = has_done_its_work(spec.kind, verdict);
        }
        ProbeDecision { verdict: changed, next_at: self.next_at(), event }
    }

    /// The verdict, if the threshold is reached.
    fn count(&mut self, spec: &ProbeSpec, is_good: bool) -> Option<Verdict> {
        let run = match self.streak {
            Some((was_good, run)) if was_good == is_good => run.saturating_add(1),
            Some(_) | None => 1,
        };
        self.streak = Some((is_good, run));
        let (threshold, verdict) = if is_good {
            (spec.success_threshold, Verdict::Success)
        } else {
            (spec.failure_threshold, Verdict::Failure)
        };
        (run >= threshold).then_some(verdict)
    }
}

/// A container whose liveness or startup probe failed is about to be killed, so it is not probed any more. A container that
/// has started needs no further startup probe.
const fn has_done_its_work(kind: ProbeKind, verdict: Verdict) -> bool {
    match (kind, verdict) {
        (ProbeKind::Startup, Verdict::Success | Verdict::Failure)
        | (ProbeKind::Liveness, Verdict::Failure) => true,
        (ProbeKind::Startup, Verdict::Unknown)
        | (ProbeKind::Liveness, Verdict::Success | Verdict::Unknown)
        | (ProbeKind::Readiness, Verdict::Success | Verdict::Failure | Verdict::Unknown) => false,
    }
}

/// The first time after `now` that is a whole number of periods after `due`. Missed periods are skipped.
fn next_period(due: MonoTime, period: Duration, now: MonoTime) -> MonoTime {
    let period = period.max(Duration::from_secs(1));
    let missed = now.saturating_since(due).as_nanos() / period.as_nanos();
    due + period.saturating_mul(u32::try_from(missed).unwrap_or(u32::MAX).saturating_add(1))
}

fn event_for(kind: ProbeKind, outcome: &Outcome) -> Option<ProbeEvent> {
    let title = kind.title();
    let (reason, message) = match outcome {
        Outcome::Success => return None,
        Outcome::Warning(what) => (ProbeEventReason::ProbeWarning, format!("{title} probe warning: {what}")),
        Outcome::Failure(what) => (ProbeEventReason::Unhealthy, format!("{title} probe failed: {what}")),
        Outcome::Error(what) => (
            ProbeEventReason::Unhealthy,
            format!("{title} probe errored and resulted in unknown state: {what}"),
        ),
    };
    Some(ProbeEvent { reason, message })
}

#[cfg(test)]
mod tests;
