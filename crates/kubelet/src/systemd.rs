//! What systemd is notified of: that the kubelet is ready, what it waits for, and that it runs (the watchdog).

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::time::Duration;

use ports::{Clock, NodeApi};
use tokio_util::sync::CancellationToken;

/// Notifies systemd that the kubelet is ready, if systemd started it.
pub(crate) fn notify_ready() {
    notify_or_warn(&notify, "READY=1");
}

fn notify(state: &str) -> io::Result<()> {
    host::process::sd_notify(state).map(drop)
}

fn notify_or_warn(notify: &impl Fn(&str) -> io::Result<()>, state: &str) {
    if let Err(error) = notify(state) {
        tracing::warn!(err = %error, state, "Failed to notify systemd");
    }
}

/// For so long a start may wait for others before systemd counts it as done.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// Waits for what others must do, an operator for example, however long that takes. After a while systemd counts the start as done, so that
/// the command that started the unit does not wait, too, and shows `status` until the end of the wait.
pub(crate) async fn wait_for_others<T>(status: &str, clock: Clock, waiting: impl Future<Output = T>) -> T {
    wait_notifying(status, clock, watchdog_period(), &notify, waiting).await
}

async fn wait_notifying<T>(
    status: &str,
    clock: Clock,
    watchdog_period: Option<Duration>,
    notify: &impl Fn(&str) -> io::Result<()>,
    waiting: impl Future<Output = T>,
) -> T {
    let mut waiting = pin!(waiting);
    tokio::select! {
        done = &mut waiting => return done,
        () = clock.sleep_until(clock.mono() + START_TIMEOUT) => {}
    }
    notify_or_warn(notify, &format!("READY=1\nSTATUS={status}"));
    // From now on the watchdog counts.
    let watchdog = async {
        match watchdog_period {
            Some(period) => notify_periodically(period, clock, || None, || notify("WATCHDOG=1")).await,
            None => std::future::pending().await,
        }
    };
    let done = tokio::select! {
        done = waiting => done,
        never = watchdog => match never {},
    };
    notify_or_warn(notify, "STATUS=");
    done
}

/// How often to notify the systemd watchdog; `None` if it is not enabled.
fn watchdog_period() -> Option<Duration> {
    let interval =
        host::process::watchdog_interval().filter(|interval| *interval > Duration::from_secs(1))?;
    Some(interval / 2)
}

/// Notifies the systemd watchdog, if it is enabled, twice per interval while the sync loop runs and device plugins can register.
pub(crate) async fn notify_watchdog(api: std::sync::Arc<dyn NodeApi>, clock: Clock, stop: CancellationToken) {
    let Some(period) = watchdog_period() else { return };
    let running = notify_periodically(
        period,
        clock,
        || problem(api.sync_loop_age(), api.takes_device_plugins()),
        || notify("WATCHDOG=1"),
    );
    tokio::select! {
        () = stop.cancelled() => {}
        never = running => match never {},
    }
}

/// Why the kubelet is to be restarted. `sync_loop_age` is the time since the last iteration of the sync loop, and its maximum.
fn problem(sync_loop_age: (Duration, Duration), takes_device_plugins: bool) -> Option<&'static str> {
    let (age, limit) = sync_loop_age;
    if age > limit {
        return Some("sync loop is stuck");
    }
    (!takes_device_plugins).then_some("device plugins cannot register")
}

/// Runs until dropped.
async fn notify_periodically(
    period: Duration,
    clock: Clock,
    problem: impl Fn() -> Option<&'static str>,
    mut notify: impl FnMut() -> io::Result<()>,
) -> Infallible {
    loop {
        clock.sleep_until(clock.mono() + period).await;
        if let Some(problem) = problem() {
            tracing::error!(err = problem, "Kubelet is not healthy, not notifying the systemd watchdog");
        } else if let Err(error) = notify_with_retries(clock, &mut notify).await {
            tracing::warn!(err = %error, "Failed to notify the systemd watchdog");
        }
    }
}

/// Retries after one second and after two more: systemd kills a kubelet that does not notify it.
async fn notify_with_retries(clock: Clock, notify: &mut impl FnMut() -> io::Result<()>) -> io::Result<()> {
    for pause in [1, 2] {
        if notify().is_ok() {
            return Ok(());
        }
        clock.sleep_until(clock.mono() + Duration::from_secs(pause)).await;
    }
    notify()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// Runs for that long, with this number of failures first; returns the second of each attempt.
    async fn attempts_within(
        seconds: u64,
        mut failures: u32,
        problem: impl Fn(u64) -> Option<&'static str>,
    ) -> Vec<u64> {
        let clock = Clock::starting_at(jiff::Timestamp::UNIX_EPOCH);
        let began = clock.mono();
        let now = || clock.mono().saturating_since(began).as_secs();
        let tries = RefCell::new(Vec::new());
        let notify = || {
            tries.borrow_mut().push(now());
            let fails = failures > 0;
            failures = failures.saturating_sub(1);
            if fails { Err(io::Error::from(io::ErrorKind::ConnectionRefused)) } else { Ok(()) }
        };
        let running = notify_periodically(Duration::from_secs(10), clock, || problem(now()), notify);
        let ended = tokio::time::timeout(Duration::from_secs(seconds), running).await;
        assert!(ended.is_err(), "it never ends by itself");
        tries.into_inner()
    }

    #[test]
    fn watchdog_is_not_notified_by_a_stuck_sync_loop_or_without_registration_of_device_plugins() {
        let (young, old) =
            ((Duration::ZERO, Duration::from_secs(60)), (Duration::from_secs(61), Duration::from_secs(60)));
        assert_eq!(problem(young, true), None);
        assert_eq!(problem(old, true), Some("sync loop is stuck"));
        assert_eq!(problem(young, false), Some("device plugins cannot register"));
    }

    /// What is reported to systemd while something takes that long.
    async fn reported_during(seconds: u64) -> Vec<String> {
        let clock = Clock::starting_at(jiff::Timestamp::UNIX_EPOCH);
        let reported = RefCell::new(Vec::new());
        let notify = |state: &str| {
            reported.borrow_mut().push(state.to_owned());
            Ok(())
        };
        let waiting = async {
            clock.sleep_until(clock.mono() + Duration::from_secs(seconds)).await;
            seconds
        };
        let period = Some(Duration::from_secs(30));
        assert_eq!(wait_notifying("waiting", clock, period, &notify, waiting).await, seconds);
        reported.into_inner()
    }

    #[tokio::test(start_paused = true)]
    async fn start_that_waits_long_for_others_counts_as_done_and_keeps_the_watchdog_quiet() {
        assert_eq!(reported_during(9).await, Vec::<String>::new());
        assert_eq!(reported_during(11).await, ["READY=1\nSTATUS=waiting", "STATUS="]);
        let watched = ["READY=1\nSTATUS=waiting", "WATCHDOG=1", "WATCHDOG=1", "STATUS="];
        assert_eq!(reported_during(75).await, watched);
    }

    #[tokio::test(start_paused = true)]
    async fn watchdog_is_notified_while_the_sync_loop_runs() {
        let hangs_between = |now| (15..35).contains(&now).then_some("sync loop is stuck");
        assert_eq!(attempts_within(55, 0, hangs_between).await, [10, 40, 50]);
    }

    #[tokio::test(start_paused = true)]
    async fn failed_watchdog_notification_is_retried_twice() {
        let healthy = |_| None;
        assert_eq!(attempts_within(25, 1, healthy).await, [10, 11, 21]);
        assert_eq!(attempts_within(25, 9, healthy).await, [10, 11, 13, 23, 24]);
    }
}
