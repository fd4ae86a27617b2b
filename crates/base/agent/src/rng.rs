//! Random numbers from one seed for the process, with a generator for each purpose, so that a simulated run can be repeated.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A small generator (splitmix64); for spreading load, not for secrets.
#[derive(Debug)]
pub struct Rng {
    state: AtomicU64,
}

impl Rng {
    #[must_use]
    pub const fn from_seed(seed: u64) -> Self {
        Self { state: AtomicU64::new(seed) }
    }

    /// A separate generator for one purpose.
    #[must_use]
    pub fn branch(&self) -> Self {
        Self::from_seed(self.next())
    }

    fn next(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut z = self.state.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniformly distributed between 0 and 1.
    #[must_use]
    pub fn share(&self) -> f64 {
        // The upper half fits exactly.
        let upper = u32::try_from(self.next() >> 32).unwrap_or(u32::MAX);
        f64::from(upper) / f64::from(u32::MAX)
    }

    /// Uniformly distributed between zero and `max`.
    #[must_use]
    pub fn up_to(&self, max: Duration) -> Duration {
        let share = self.next() >> 32;
        let nanos = (max.as_nanos() * u128::from(share)) >> 32;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_durations_stay_within_bounds_and_differ() {
        let rng = Rng::from_seed(7);
        let max = Duration::from_secs(60);
        let draws: Vec<_> = (0..100).map(|_| rng.up_to(max)).collect();
        assert!(draws.iter().all(|d| *d < max));
        assert!(draws.windows(2).any(|pair| pair[0] != pair[1]));
    }
}
