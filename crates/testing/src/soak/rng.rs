//! Numbers that look random and follow from a seed (SplitMix64).

use std::time::Duration;

#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    pub const fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 up to and without `end`; 0 if that is 0.
    pub const fn below(&mut self, end: u64) -> u64 {
        match end {
            0 => 0,
            end => self.next() % end,
        }
    }

    pub const fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// A time between both, in whole milliseconds.
    pub fn between(&mut self, least: Duration, greatest: Duration) -> Duration {
        let span = greatest.saturating_sub(least).as_millis();
        least + Duration::from_millis(self.below(u64::try_from(span).unwrap_or(u64::MAX)))
    }

    /// One of them; `None` if there are none.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        let index = self.below(from.len() as u64);
        from.get(usize::try_from(index).unwrap_or(0))
    }
}
