//! Random numbers of the simulation: one generator for each purpose, so that a new use of one does not change the others.

/// A small generator (splitmix64).
#[derive(Debug)]
pub(super) struct Dice {
    state: u64,
}

impl Dice {
    pub(super) fn new(seed: u64, purpose: &str) -> Self {
        let mix = |state: u64, byte: u8| (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let mut dice = Self { state: purpose.bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, mix) };
        dice.next();
        dice
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// At least `from` and less than `to`.
    pub(super) fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.next() % (to - from).max(1)
    }

    pub(super) fn one_in(&mut self, n: u64) -> bool {
        self.between(0, n) == 0
    }

    pub(super) fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        let index = self.between(0, from.len() as u64);
        from[usize::try_from(index).unwrap()].clone()
    }

    /// Picks by weight.
    pub(super) fn weighted<T: Clone>(&mut self, from: &[(u64, T)]) -> T {
        let mut left = self.between(0, from.iter().map(|(weight, _)| weight).sum());
        for (weight, value) in from {
            if left < *weight {
                return value.clone();
            }
            left -= weight;
        }
        from[0].1.clone()
    }
}
