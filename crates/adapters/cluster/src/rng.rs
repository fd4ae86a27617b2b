//! Random numbers for jitter, so that nodes and watches do not act at the same time. Seeded, so that a run can be repeated.

use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug)]
pub(crate) struct Rng(AtomicU64);

impl Rng {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    /// A number in `0..limit`; for jitter only. SplitMix64.
    pub(crate) fn below(&self, limit: u64) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut bits = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)) % limit.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_numbers_stay_below_the_limit_and_differ() {
        let rng = Rng::new(7);
        let drawn: std::collections::BTreeSet<u64> = (0..1000).map(|_| rng.below(300)).collect();
        assert!(drawn.len() > 200 && drawn.iter().all(|value| *value < 300), "{drawn:?}");
        assert_eq!(Rng::new(7).below(300), Rng::new(7).below(300));
    }
}
