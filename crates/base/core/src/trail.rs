//! What one pod went through, in bounded memory.
//!
//! Owns how repeats are merged and what is forgotten first. What happens again and again, such as a failing pull, is two steps: the first
//! time, and the latest with the number of repeats. So the first start of a pod stays whole, whatever follows.

use std::borrow::Cow;

use jiff::Timestamp;
use model::explain::TrailStep;
use model::text::cut;

use crate::waits::{DueWait, LASTING, REPEAT_AFTER, REPORT_AFTER, wait_of};

/// The most that a trail takes up, texts included.
pub const MAX_BYTES: usize = 3 << 10;
/// A longer message is truncated.
const MAX_MESSAGE: usize = 300;
/// The duration of a step that goes on.
const OPEN: u32 = u32::MAX;
/// In milliseconds: a wait that was shorter is not kept.
const BRIEF: u32 = 1000;

/// A step to be recorded.
#[derive(Clone, Debug)]
pub struct NewStep<'a> {
    pub reason: Cow<'static, str>,
    pub container: Option<&'a str>,
    pub message: &'a str,
    pub is_warning: bool,
    pub is_event: bool,
}

impl<'a> NewStep<'a> {
    /// A step of the whole pod that is no event.
    #[must_use]
    pub const fn new(reason: &'static str, message: &'a str) -> Self {
        Self { reason: Cow::Borrowed(reason), container: None, message, is_warning: false, is_event: false }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Trail {
    steps: Vec<Step>,
}

#[derive(Clone, Debug)]
struct Step {
    reason: Cow<'static, str>,
    container: Option<Box<str>>,
    message: Box<str>,
    /// In milliseconds since the epoch.
    began: i64,
    /// In milliseconds, or [`OPEN`].
    took: u32,
    count: u32,
    /// When an event last said that it goes on, in seconds after it began; 0: never.
    reported: u32,
    is_warning: bool,
    is_event: bool,
    is_restored: bool,
}

/// A step from before the kubelet started.
#[derive(Clone, Debug)]
pub struct RestoredStep {
    pub reason: &'static str,
    pub container: Option<Box<str>>,
    pub message: String,
    pub began: Timestamp,
    pub ended: Timestamp,
    pub is_warning: bool,
}

/// The probe that a failure is about, which is its first word: the probes of a container fail one apart from the other.
fn probe_of<'a>(reason: &str, message: &'a str) -> Option<&'a str> {
    if reason == "Unhealthy" { message.split(' ').next() } else { None }
}

impl Step {
    fn has_key(&self, new: &NewStep<'_>) -> bool {
        self.reason == new.reason
            && self.container.as_deref() == new.container
            && probe_of(&self.reason, &self.message) == probe_of(&new.reason, new.message)
    }

    fn bytes(&self) -> usize {
        let reason = match &self.reason {
            Cow::Borrowed(_) => 0,
            Cow::Owned(text) => text.len(),
        };
        size_of::<Self>() + reason + self.container.as_ref().map_or(0, |name| name.len()) + self.message.len()
    }

    fn show(&self) -> TrailStep {
        let at = |millisecond| Timestamp::from_millisecond(millisecond).unwrap_or_default();
        let ended = (self.took != OPEN).then(|| at(self.began.saturating_add(i64::from(self.took))));
        TrailStep {
            reason: self.reason.to_string(),
            container: self.container.as_deref().map(str::to_owned),
            message: self.message.to_string(),
            began: at(self.began),
            ended,
            count: self.count,
            is_warning: self.is_warning,
            is_event: self.is_event,
            is_restored: self.is_restored,
        }
    }
}

impl From<RestoredStep> for Step {
    fn from(step: RestoredStep) -> Self {
        let RestoredStep { reason, container, message, began, ended, is_warning } = step;
        Self {
            reason: Cow::Borrowed(reason),
            container,
            message: Box::from(&*cut(&message, MAX_MESSAGE)),
            began: began.as_millisecond(),
            took: duration(began.as_millisecond(), ended),
            count: 1,
            reported: 0,
            is_warning,
            is_event: false,
            is_restored: true,
        }
    }
}

impl Trail {
    /// Something happened at one moment.
    pub fn record(&mut self, new: &NewStep<'_>, at: Timestamp) {
        self.add(new, at, 0);
    }

    /// Something begins that takes time; nothing if it is under way already.
    pub fn begin(&mut self, new: &NewStep<'_>, at: Timestamp) {
        if !self.steps.iter().any(|step| step.took == OPEN && step.has_key(new)) {
            self.add(new, at, OPEN);
        }
    }

    /// The latest step with this reason and container has ended; nothing if it had ended before.
    pub fn end(&mut self, reason: &str, container: Option<&str>, at: Timestamp) {
        let is_meant = |step: &&mut Step| {
            step.took == OPEN && step.reason == reason && step.container.as_deref() == container
        };
        if let Some(step) = self.steps.iter_mut().rev().find(is_meant) {
            step.took = duration(step.began, at);
        }
    }

    /// As [`Self::end`], for what happens often and counts only when it lasts: a brief step is forgotten.
    pub fn end_wait(&mut self, reason: &str, at: Timestamp) {
        self.end(reason, None, at);
        self.steps.retain(|step| step.reason != reason || step.took >= BRIEF || step.count > 1);
    }

    /// Everything has ended that still goes on, except what lasts over several tries: the work was cancelled.
    pub fn end_all(&mut self, at: Timestamp) {
        for step in self.steps.iter_mut().filter(|step| step.took == OPEN) {
            if !LASTING.contains(&&*step.reason) {
                step.took = duration(step.began, at);
            }
        }
    }

    /// The waits that an event should name now. Each is due once, and again from time to time.
    pub fn take_due_waits(&mut self, now: Timestamp) -> Vec<DueWait> {
        let mut due = Vec::new();
        for index in 0..self.steps.len() {
            let Some(wait) = self.due_wait(index, now) else { continue };
            if let Some(step) = self.steps.get_mut(index) {
                step.reported = duration(step.began, now) / 1000;
            }
            due.push(wait);
        }
        due
    }

    fn due_wait(&self, index: usize, now: Timestamp) -> Option<DueWait> {
        let step = self.steps.get(index).filter(|step| step.took == OPEN)?;
        let lasted = now.as_millisecond().saturating_sub(step.began);
        let wait = wait_of(&step.reason, &step.message).filter(|_| lasted >= milliseconds(REPORT_AFTER))?;
        let is_name = |other: &&Step| {
            other.began >= step.began
                && wait.named_by.contains(&&*other.reason)
                && (step.container.is_none() || other.container == step.container)
        };
        let named = self.steps.iter().filter(is_name).map(|other| other.began).max();
        let reported =
            (step.reported > 0).then(|| step.began.saturating_add(i64::from(step.reported) * 1000));
        let is_recent = |at: i64| now.as_millisecond().saturating_sub(at) < milliseconds(REPEAT_AFTER);
        if named.max(reported).is_some_and(is_recent) {
            return None;
        }
        let container = step.container.as_deref().map(str::to_owned);
        Some(DueWait { reason: wait.reason, message: wait.message, container, is_first: reported.is_none() })
    }

    /// What was before everything that is recorded, oldest first.
    pub fn restore(&mut self, steps: Vec<RestoredStep>) {
        self.steps.splice(0..0, steps.into_iter().map(Step::from));
        self.forget_oldest();
    }

    /// The steps, by the time when they began.
    #[must_use]
    pub fn steps(&self) -> Vec<TrailStep> {
        let mut steps: Vec<TrailStep> = self.steps.iter().map(Step::show).collect();
        steps.sort_by_key(|step| step.began);
        steps
    }

    fn add(&mut self, new: &NewStep<'_>, at: Timestamp, took: u32) {
        let known = self.steps.iter().filter(|step| step.has_key(new)).count();
        let repeats = match known {
            0 | 1 => 0,
            _ => self.take_latest(new).map_or(0, |latest| latest.count),
        };
        self.steps.push(Step {
            reason: new.reason.clone(),
            container: new.container.map(Box::from),
            message: Box::from(&*cut(new.message, MAX_MESSAGE)),
            began: at.as_millisecond(),
            took,
            count: repeats.saturating_add(1),
            reported: 0,
            is_warning: new.is_warning,
            is_restored: false,
            is_event: new.is_event,
        });
        self.forget_oldest();
    }

    fn forget_oldest(&mut self) {
        while self.bytes() > MAX_BYTES && self.steps.len() > 1 {
            self.steps.remove(0);
        }
    }

    fn take_latest(&mut self, new: &NewStep<'_>) -> Option<Step> {
        let index = self.steps.iter().rposition(|step| step.has_key(new))?;
        Some(self.steps.remove(index))
    }

    fn bytes(&self) -> usize {
        self.steps.iter().map(Step::bytes).sum()
    }
}

fn milliseconds(duration: std::time::Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

fn duration(began: i64, ended: Timestamp) -> u32 {
    let took = ended.as_millisecond().saturating_sub(began).max(0);
    u32::try_from(took).unwrap_or(OPEN - 1).min(OPEN - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn of_app(reason: &'static str, message: &'static str) -> NewStep<'static> {
        NewStep { container: Some("app"), ..NewStep::new(reason, message) }
    }

    /// `reason@began+duration*count`, with `+?` for what goes on.
    fn shown(trail: &Trail) -> String {
        let show = |step: TrailStep| {
            let took = step
                .ended
                .map_or("?".to_owned(), |ended| (ended.as_second() - step.began.as_second()).to_string());
            format!("{}@{}+{took}*{}", step.reason, step.began.as_second(), step.count)
        };
        trail.steps().into_iter().map(show).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn steps_that_take_time_have_a_duration_once_they_have_ended() {
        let mut trail = Trail::default();
        trail.record(&NewStep::new("Admitted", ""), at(1));
        trail.begin(&of_app("Pulling", "image x"), at(2));
        trail.begin(&of_app("Pulling", "image x"), at(3));
        assert_eq!(shown(&trail), "Admitted@1+0*1 Pulling@2+?*1", "it is under way already");
        trail.end("Pulling", None, at(4));
        assert_eq!(shown(&trail), "Admitted@1+0*1 Pulling@2+?*1", "of another container");
        trail.end("Pulling", Some("app"), at(5));
        trail.end("Pulling", Some("app"), at(9));
        assert_eq!(shown(&trail), "Admitted@1+0*1 Pulling@2+3*1");
        trail.begin(&of_app("Pulling", "image x"), at(10));
        trail.end_all(at(11));
        assert_eq!(shown(&trail), "Admitted@1+0*1 Pulling@2+3*1 Pulling@10+1*1");
    }

    #[test]
    fn failures_of_two_probes_do_not_hide_each_other() {
        let mut trail = Trail::default();
        for second in 0..6 {
            let message = if second % 2 == 0 { "Liveness probe failed" } else { "Readiness probe failed" };
            let failure = NewStep { container: Some("app"), ..NewStep::new("Unhealthy", message) };
            trail.record(&failure, at(second));
        }
        let shown: Vec<_> = trail.steps().into_iter().map(|step| (step.message, step.count)).collect();
        let (liveness, readiness) = ("Liveness probe failed".to_owned(), "Readiness probe failed".to_owned());
        let expected = [(liveness.clone(), 1), (readiness.clone(), 1), (liveness, 2), (readiness, 2)];
        assert_eq!(shown, expected);
    }

    #[test]
    fn repeats_are_the_first_time_and_the_latest_with_their_number() {
        let mut trail = Trail::default();
        for second in 1..=40 {
            trail.record(&of_app("BackOff", "restarting"), at(second));
            trail.record(&of_app("Started", ""), at(second));
        }
        assert_eq!(shown(&trail), "BackOff@1+0*1 Started@1+0*1 BackOff@40+0*39 Started@40+0*39");
    }

    /// At each of these seconds, the reasons of the waits that are due, a `!` for each first report.
    fn due_at(trail: &mut Trail, seconds: impl Iterator<Item = i64>) -> String {
        let mut shown = Vec::new();
        for second in seconds {
            for due in trail.take_due_waits(at(second)) {
                shown.push(format!("{second}:{}{}", due.reason, if due.is_first { "!" } else { "" }));
            }
        }
        shown.join(" ")
    }

    #[test]
    fn wait_is_due_after_ten_seconds_and_then_every_half_hour_while_nothing_changes() {
        let mut trail = Trail::default();
        trail.begin(&NewStep::new("CreatingSandbox", ""), at(0));
        assert_eq!(
            due_at(&mut trail, (0..3700).step_by(2)),
            "10:WaitingForSandbox! 1810:WaitingForSandbox 3610:WaitingForSandbox"
        );
        trail.end("CreatingSandbox", None, at(3700));
        assert_eq!(due_at(&mut trail, (3700..9000).step_by(2)), "");
        trail.begin(&NewStep::new("CreatingSandbox", ""), at(9000));
        assert_eq!(due_at(&mut trail, (9000..9100).step_by(2)), "9010:WaitingForSandbox!", "another wait");
    }

    #[test]
    fn wait_that_an_event_names_already_is_not_due() {
        let mut trail = Trail::default();
        trail.begin(&of_app("EnsuringImage", ""), at(0));
        trail.record(&of_app("Pulling", "Pulling image"), at(1));
        trail.begin(&NewStep { container: Some("other"), ..NewStep::new("EnsuringImage", "") }, at(1));
        let due = trail.take_due_waits(at(60));
        let containers: Vec<_> = due.iter().filter_map(|due| due.container.as_deref()).collect();
        assert_eq!(containers, ["other"], "it waits behind the pull of the first");
        assert_eq!(
            due_at(&mut trail, (61..1850).step_by(2)),
            "1801:WaitingForImage!",
            "a pull that takes half an hour"
        );
    }

    #[test]
    fn waits_that_last_over_several_tries_end_with_their_aim() {
        let mut trail = Trail::default();
        trail.begin(&NewStep::new("ReleasingResources", ""), at(0));
        trail.end_all(at(5));
        trail.record(&NewStep { is_warning: true, ..NewStep::new("FailedKillPod", "busy") }, at(5));
        assert_eq!(due_at(&mut trail, (5..2000).step_by(5)), "1805:WaitingForRelease!");
        trail.end("ReleasingResources", None, at(2000));
        assert_eq!(due_at(&mut trail, (2000..9000).step_by(5)), "");
    }

    #[test]
    fn step_with_several_meanings_is_named_by_its_message() {
        for (message, reason) in [
            (crate::waits::BEHIND_PREEMPTED, "10:WaitingForPreemption!"),
            (crate::waits::RUNTIME_UNKNOWN, "10:WaitingForRuntime!"),
            (crate::waits::BEHIND_PREVIOUS, ""),
        ] {
            let mut trail = Trail::default();
            trail.begin(&NewStep::new("WaitingToStart", message), at(0));
            assert_eq!(due_at(&mut trail, 0..20), reason, "{message}");
        }
    }

    #[test]
    fn brief_waits_for_the_runtime_are_not_kept() {
        let mut trail = Trail::default();
        for second in [0, 10] {
            trail.begin(&NewStep::new("AwaitingRuntime", ""), at(second));
            trail.end_wait("AwaitingRuntime", at(second));
        }
        assert_eq!(shown(&trail), "");
        trail.begin(&NewStep::new("AwaitingRuntime", ""), at(20));
        trail.end_wait("AwaitingRuntime", at(25));
        assert_eq!(shown(&trail), "AwaitingRuntime@20+5*1");
    }

    #[test]
    fn steps_from_before_the_start_come_first_and_are_marked() {
        let mut trail = Trail::default();
        trail.record(&NewStep::new("Accepted", ""), at(1000));
        let restored = |reason, began, ended| RestoredStep {
            reason,
            container: None,
            message: String::new(),
            began: at(began),
            ended: at(ended),
            is_warning: false,
        };
        trail.restore(vec![restored("BeforeSandbox", 10, 12), restored("Ready", 20, 20)]);
        assert_eq!(shown(&trail), "BeforeSandbox@10+2*1 Ready@20+0*1 Accepted@1000+0*1");
        let marked: Vec<bool> = trail.steps().iter().map(|step| step.is_restored).collect();
        assert_eq!(marked, [true, true, false]);
        trail.restore((0..1000).map(|second| restored("Ended", second, second)).collect());
        assert!(trail.bytes() <= MAX_BYTES);
        assert_eq!(trail.steps().pop().expect("the latest step is kept").reason, "Accepted");
    }

    #[test]
    fn trail_of_a_pod_with_a_thousand_containers_and_long_messages_stays_within_its_bound() {
        let mut trail = Trail::default();
        for number in 0..1000 {
            let name = format!("container-{number}");
            let step = NewStep {
                reason: Cow::Owned("r".repeat(40)),
                container: Some(&name),
                message: &"ä".repeat(5000),
                is_warning: true,
                is_event: true,
            };
            trail.record(&step, at(number));
            assert!(trail.bytes() <= MAX_BYTES, "{}", trail.bytes());
        }
        let latest = trail.steps().pop().expect("the latest step is kept");
        assert_eq!(latest.container.as_deref(), Some("container-999"));
    }
}
