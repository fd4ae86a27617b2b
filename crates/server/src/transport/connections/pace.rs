//! Limits how fast connections are accepted, and how much CPU time TLS handshakes get: everything runs on one thread, and a
//! client needs no credentials to start a handshake.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// This many connections are accepted at once, and then none until `INTERVAL` has passed since the first of them.
const BURST: u32 = 64;
const INTERVAL: Duration = Duration::from_millis(32);

/// Handshakes get this fraction (one third) of the thread's time.
const SHARE: u32 = 3;
/// CPU time that handshakes may use at once after a pause.
const ALLOWANCE: Duration = Duration::from_millis(20);

/// Limits the rate at which connections are accepted.
#[derive(Debug)]
pub(super) struct AcceptPace {
    began: Instant,
    accepted: u32,
}

impl Default for AcceptPace {
    fn default() -> Self {
        Self { began: Instant::now(), accepted: 0 }
    }
}

impl AcceptPace {
    /// Cancel safe.
    pub(super) async fn wait(&mut self) {
        if self.accepted >= BURST {
            tokio::time::sleep_until(self.began + INTERVAL).await;
        }
        if self.began.elapsed() >= INTERVAL {
            *self = Self::default();
        }
    }

    pub(super) const fn accepted(&mut self) {
        self.accepted += 1;
    }
}

/// Runs handshakes in turn, the longest waiting first, within their share of the time.
#[derive(Debug)]
pub(super) struct HandshakePace {
    turn: Semaphore,
    debt: Mutex<Debt>,
}

impl Default for HandshakePace {
    fn default() -> Self {
        let debt = Debt { used: Duration::ZERO, at: Instant::now() };
        Self { turn: Semaphore::new(1), debt: Mutex::new(debt) }
    }
}

/// CPU time that was used and not yet compensated, as of `at`.
#[derive(Clone, Copy, Debug)]
struct Debt {
    used: Duration,
    at: Instant,
}

impl Debt {
    fn at(self, now: Instant) -> Self {
        let made_up = now.saturating_duration_since(self.at) / SHARE;
        Self { used: self.used.saturating_sub(made_up), at: now }
    }

    fn add(&mut self, began: Instant, now: Instant) {
        *self = self.at(now);
        self.used += now.saturating_duration_since(began);
    }

    /// When handshakes may run again.
    fn due(self) -> Instant {
        self.at + self.used.saturating_sub(ALLOWANCE) * SHARE
    }
}

impl HandshakePace {
    /// Runs the handshake, each step when its turn has come.
    pub(super) async fn run<F: Future>(&self, handshake: F) -> F::Output {
        let mut handshake = pin!(handshake);
        loop {
            // The semaphore is never closed.
            let turn = self.turn.acquire().await.ok();
            let due = self.debt.lock().due();
            tokio::time::sleep_until(due).await;
            let began = Instant::now();
            let step = poll_fn(|cx| Poll::Ready(handshake.as_mut().poll(cx))).await;
            self.debt.lock().add(began, Instant::now());
            drop(turn);
            match step {
                Poll::Ready(done) => return done,
                Poll::Pending => woken().await,
            }
        }
    }
}

/// Returns when this task is woken the next time, possibly spuriously.
async fn woken() {
    let mut is_first = true;
    poll_fn(|_| if std::mem::take(&mut is_first) { Poll::Pending } else { Poll::Ready(()) }).await;
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Each step takes 30 ms of CPU time.
    #[tokio::test(start_paused = true)]
    async fn handshakes_get_a_third_of_the_time_and_take_turns() {
        let pace = Arc::new(HandshakePace::default());
        let began = Instant::now();
        let order = Arc::new(Mutex::new(Vec::new()));
        let handshakes: Vec<_> = (0..20)
            .map(|number| {
                let (pace, order) = (Arc::clone(&pace), Arc::clone(&order));
                async move {
                    pace.run(poll_fn(|_| {
                        order.lock().push(number);
                        Poll::Ready(())
                    }))
                    .await;
                    pace.debt.lock().used += Duration::from_millis(30);
                }
            })
            .collect();
        futures_util::future::join_all(handshakes).await;
        let took = began.elapsed();
        assert!(took >= Duration::from_millis(30 * 3 * 18), "{took:?}");
        assert!(took <= Duration::from_millis(30 * 3 * 20), "{took:?}");
        assert_eq!(*order.lock(), (0..20).collect::<Vec<_>>());
    }

    #[tokio::test(start_paused = true)]
    async fn flood_of_connections_is_accepted_at_a_bounded_rate() {
        let mut pace = AcceptPace::default();
        let began = Instant::now();
        for _ in 0..64 * 10 {
            pace.wait().await;
            pace.accepted();
        }
        assert!(began.elapsed() >= INTERVAL * 9, "{:?}", began.elapsed());
        tokio::time::advance(Duration::from_secs(1)).await;
        let began = Instant::now();
        pace.wait().await;
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
}
