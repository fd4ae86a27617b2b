//! When a pod's worker wakes next without any message.

use std::time::Duration;

use model::MonoTime;

#[derive(Debug)]
pub(super) struct Alarm {
    /// The next full sync, whatever happens.
    resync_at: MonoTime,
    /// The earliest moment that something else is due.
    wake_at: Option<MonoTime>,
    /// A turn of the worker is due then, in which nothing is decided but which steps are under way.
    turn_at: Option<MonoTime>,
    /// The pod was requested to terminate, and should have ended by then.
    pub(super) late_at: Option<MonoTime>,
    /// The pod waits until then for the end of pods that were preempted for it.
    pub(super) preemption: Option<PreemptionWait>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct PreemptionWait {
    pub(super) timeout: Duration,
    pub(super) until: MonoTime,
}

impl Alarm {
    pub(super) const fn new(now: MonoTime) -> Self {
        Self { resync_at: now, wake_at: None, turn_at: None, late_at: None, preemption: None }
    }

    pub(super) fn next(&self) -> MonoTime {
        [self.wake_at, self.turn_at].into_iter().flatten().fold(self.resync_at, MonoTime::min)
    }

    pub(super) const fn turn_at(&mut self, at: MonoTime) {
        self.turn_at = Some(at);
    }

    pub(super) fn no_later_than(&mut self, at: MonoTime) {
        self.wake_at = Some(self.wake_at.map_or(at, |known| known.min(at)));
    }

    pub(super) const fn resync_at(&mut self, at: MonoTime) {
        self.resync_at = at;
    }

    pub(super) fn is_resync_due(&self, now: MonoTime) -> bool {
        self.resync_at <= now
    }

    /// Whether something else is due, which is then taken as done.
    pub(super) fn take_due(&mut self, now: MonoTime) -> bool {
        self.turn_at.take_if(|at| *at <= now);
        self.wake_at.take_if(|at| *at <= now).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> MonoTime {
        MonoTime::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn alarm_rings_at_the_earliest_moment_and_then_at_the_resync() {
        let mut alarm = Alarm::new(at(0));
        alarm.resync_at(at(60));
        assert_eq!(alarm.next(), at(60));
        alarm.no_later_than(at(30));
        alarm.no_later_than(at(40));
        assert_eq!(alarm.next(), at(30));
        assert!(!alarm.take_due(at(29)) && alarm.take_due(at(30)) && !alarm.take_due(at(31)));
        assert_eq!(alarm.next(), at(60));
        assert!(alarm.is_resync_due(at(60)) && !alarm.is_resync_due(at(59)));
        alarm.turn_at(at(45));
        assert_eq!(alarm.next(), at(45));
        assert!(!alarm.take_due(at(45)), "nothing is decided then");
        assert_eq!(alarm.next(), at(60));
    }
}
