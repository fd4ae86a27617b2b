//! What one pod went through, in bounded memory.
//!
//! Owns how repeats are merged and what is forgotten first. What happens again and again, such as a failing pull, is two steps: the first
//! time, and the latest with the number of repeats. So the first start of a pod stays whole, whatever follows.

use std::borrow::Cow;

use jiff::Timestamp;
use model::explain::TrailStep;
use model::text::cut;

/// The most that a trail takes up, texts included.
pub const MAX_BYTES: usize = 3 << 10;
/// A longer message is truncated.
const MAX_MESSAGE: usize = 300;
/// The duration of a step that goes on.
const OPEN: u32 = u32::MAX;

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
    is_warning: bool,
    is_event: bool,
}

impl Step {
    fn has_key(&self, new: &NewStep<'_>) -> bool {
        self.reason == new.reason && self.container.as_deref() == new.container
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

    /// Everything has ended that still goes on: the work was cancelled.
    pub fn end_all(&mut self, at: Timestamp) {
        for step in self.steps.iter_mut().filter(|step| step.took == OPEN) {
            step.took = duration(step.began, at);
        }
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
            is_warning: new.is_warning,
            is_event: new.is_event,
        });
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
    fn repeats_are_the_first_time_and_the_latest_with_their_number() {
        let mut trail = Trail::default();
        for second in 1..=40 {
            trail.record(&of_app("BackOff", "restarting"), at(second));
            trail.record(&of_app("Started", ""), at(second));
        }
        assert_eq!(shown(&trail), "BackOff@1+0*1 Started@1+0*1 BackOff@40+0*39 Started@40+0*39");
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
