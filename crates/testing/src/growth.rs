//! How fast work grows with its input, by processor time.
//!
//! Owns: the measure and the limits that let a test fail for work that grows with the square of its input, and not on a slow or busy
//! machine: only the time that the thread itself ran counts, the shortest of several runs, and a factor between four (work in
//! proportion) and sixteen (its square) decides, for inputs of which one is four times the other.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Work that takes less with the larger input is not evaluated: too short to measure, and too short to matter.
const FLOOR: Duration = Duration::from_millis(60);
/// The larger input may take so many times the smaller one's time. In proportion it is 4, times a logarithm.
const MAX_FACTOR: u32 = 9;
/// Attempts, of which one within the limit is enough: noise only ever adds time.
const ATTEMPTS: usize = 4;

/// The processor time of this thread.
#[must_use]
pub fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(seconds.unwrap_or(0), nanos.unwrap_or(0))
}

fn cost(work: &mut dyn FnMut()) -> Duration {
    let began = thread_cpu_time();
    work();
    thread_cpu_time().saturating_sub(began)
}

/// `Some`: the work on an input four times as large takes so much more that it grows faster than n log n; the text has the times.
pub fn grows_too_fast(small: &mut dyn FnMut(), large: &mut dyn FnMut()) -> Option<String> {
    let (mut least_small, mut least_large) = (Duration::MAX, Duration::MAX);
    for _ in 0..ATTEMPTS {
        least_small = least_small.min(cost(small));
        least_large = least_large.min(cost(large));
        if least_large < FLOOR || least_large < least_small.max(FLOOR / 40).saturating_mul(MAX_FACTOR) {
            return None;
        }
    }
    Some(format!("{least_small:?}, and {least_large:?} for four times as much"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(n: usize) -> impl FnMut() {
        move || {
            let list: Vec<usize> = (0..n).collect();
            let found = list.iter().filter(|wanted| list.iter().rev().any(|other| other == *wanted)).count();
            assert_eq!(found, n);
        }
    }

    fn sorted(n: usize) -> impl FnMut() {
        move || {
            let set: std::collections::BTreeSet<String> =
                (0..n).map(|i| (i * 7919 % n).to_string()).collect();
            assert_eq!(set.len(), n);
        }
    }

    #[test]
    fn growth_of_a_square_is_found_and_that_of_a_sorted_set_is_not() {
        let found = grows_too_fast(&mut pairs(2000), &mut pairs(8000));
        assert!(found.is_some());
        assert_eq!(grows_too_fast(&mut sorted(20_000), &mut sorted(80_000)), None);
    }
}
