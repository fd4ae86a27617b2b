//! Warnings and errors that come again and again: the first is logged at once, and then one with the number of those before it, after
//! ten seconds and then after twice as long each time, up to ten minutes.
//!
//! So a runtime or an API server that is away, or a probe that fails, is said at once and does not fill the log, wherever it is retried.
//! Bounded: of the lines, only hashes are kept, and only of the latest.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

/// Different lines that are known at a time; of more, those that have not come for the longest time are forgotten.
const MAX_LINES: usize = 256;
const FIRST_DELAY: SignedDuration = SignedDuration::from_secs(10);
const MAX_DELAY: SignedDuration = SignedDuration::from_secs(600);

/// What to do with a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeat {
    /// It is new.
    First,
    /// It is counted, and not logged.
    Silent,
    /// It is logged: so many were not, and it came first at that time.
    Repeated { count: u64, since: Timestamp },
}

#[derive(Debug, Default)]
pub(super) struct Repeats {
    lines: Mutex<BTreeMap<u64, Line>>,
}

#[derive(Debug)]
struct Line {
    since: Timestamp,
    last_seen: Timestamp,
    last_logged: Timestamp,
    /// It is logged again so long after that.
    delay: SignedDuration,
    /// Not logged since it was last logged.
    silent: u64,
}

impl Line {
    const fn new(now: Timestamp) -> Self {
        Self { since: now, last_seen: now, last_logged: now, delay: FIRST_DELAY, silent: 0 }
    }

    /// It has not come for so long that the next one is a first one again, or the clock was set back.
    fn has_ended(&self, now: Timestamp) -> bool {
        now < self.last_seen || now.duration_since(self.last_seen) > self.delay.saturating_mul(2)
    }
}

impl Repeats {
    /// `place` and `fields` identify the line.
    pub(super) fn see(&self, place: (&str, u32), fields: &impl Hash, now: Timestamp) -> Repeat {
        let mut hasher = DefaultHasher::new();
        (place, fields).hash(&mut hasher);
        let key = hasher.finish();
        let mut lines = self.lines.lock();
        let Some(line) = lines.get_mut(&key).filter(|line| !line.has_ended(now)) else {
            make_space(&mut lines, now);
            lines.insert(key, Line::new(now));
            return Repeat::First;
        };
        line.last_seen = now;
        if now.duration_since(line.last_logged) < line.delay {
            line.silent += 1;
            return Repeat::Silent;
        }
        line.delay = line.delay.saturating_mul(2).min(MAX_DELAY);
        line.last_logged = now;
        Repeat::Repeated { count: std::mem::take(&mut line.silent) + 1, since: line.since }
    }
}

fn make_space(lines: &mut BTreeMap<u64, Line>, now: Timestamp) {
    if lines.len() < MAX_LINES {
        return;
    }
    lines.retain(|_, line| !line.has_ended(now));
    if lines.len() >= MAX_LINES
        && let Some(oldest) = lines.iter().min_by_key(|(_, line)| line.last_seen).map(|(key, _)| *key)
    {
        lines.remove(&oldest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Timestamp {
        Timestamp::from_second(1_000_000 + i64::try_from(second).unwrap()).unwrap()
    }

    #[test]
    fn line_that_comes_each_second_is_logged_at_once_and_then_with_a_back_off_and_a_count() {
        let repeats = Repeats::default();
        let mut logged = Vec::new();
        for second in 0..1500 {
            match repeats.see(("a.rs", 1), &"away", at(second)) {
                Repeat::First => logged.push((second, 0)),
                Repeat::Silent => {}
                Repeat::Repeated { count, since } => {
                    assert_eq!(since, at(0));
                    logged.push((second, count));
                }
            }
        }
        let expected = [(0, 0), (10, 10), (30, 20), (70, 40), (150, 80), (310, 160), (630, 320), (1230, 600)];
        assert_eq!(logged, expected);
    }

    #[test]
    fn other_lines_and_lines_after_a_pause_are_logged_at_once() {
        let repeats = Repeats::default();
        let see = |line, text, second| repeats.see(("a.rs", line), &text, at(second));
        assert_eq!(see(1, "away", 10), Repeat::First);
        assert_eq!(see(1, "refused", 10), Repeat::First);
        assert_eq!(see(2, "away", 10), Repeat::First);
        assert_eq!(see(1, "away", 11), Repeat::Silent);
        assert_eq!(see(1, "away", 32), Repeat::First, "it was away for more than twice the delay");
        assert_eq!(see(1, "away", 5), Repeat::First, "the clock was set back");
    }

    #[test]
    fn memory_is_bounded() {
        let repeats = Repeats::default();
        for number in 0..10_000_u32 {
            assert_eq!(repeats.see(("a.rs", number), &"text", at(0)), Repeat::First);
        }
        assert!(repeats.lines.lock().len() <= MAX_LINES);
    }
}
