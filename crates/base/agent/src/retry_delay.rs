//! The delay before something that failed is tried again. It doubles each time, up to a limit.

use std::time::Duration;

/// Starts with the first delay.
#[derive(Clone, Copy, Debug)]
pub struct RetryDelay {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl RetryDelay {
    #[must_use]
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, next: first }
    }

    /// The delay before the next try. The one after it is twice as long.
    pub fn take(&mut self) -> Duration {
        let delay = self.next;
        self.next = (delay * 2).min(self.longest);
        delay
    }

    /// It succeeded, or the failure is another one: the next delay is the first one again.
    pub const fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_delay_doubles_up_to_the_limit_and_starts_again_after_a_reset() {
        let mut delay = RetryDelay::new(Duration::from_secs(1), Duration::from_secs(5));
        let mut taken = |count: usize| (0..count).map(|_| delay.take().as_secs()).collect::<Vec<_>>();
        assert_eq!(taken(5), [1, 2, 4, 5, 5]);
        delay.reset();
        assert_eq!(delay.take().as_secs(), 1);
    }
}
