//! The process itself: lock file, limits, OOM score, signals, systemd.

use std::convert::Infallible;
use std::io;
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use config::Resolved;
use kubelet_core::node::kernel::{TUNABLES, TunablePlan, UserNamespace, compute_tunable};
use ports::{Clock, Files, HostError, NodeApi};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::private_paths;

/// Raises the file limit and lowers the OOM score. A failure is logged, and the node works without.
pub(crate) fn set_limits(resolved: &Resolved) {
    let files = u64::try_from(resolved.kubelet.max_open_files).unwrap_or(1_000_000);
    if let Err(error) = host::process::set_nofile_limit(files) {
        tracing::warn!(files, err = %error, "Failed to set the limit of open files");
    }
    let score = i16::try_from(resolved.kubelet.oom_score_adj).unwrap_or(-999);
    if let Err(error) = host::process::set_own_oom_score_adj(score) {
        tracing::warn!(score, err = %error, "Failed to set the kubelet's OOM score");
    }
}

const KERNEL_SETTINGS: &str = "/proc/sys";

/// The user namespace of this process.
pub(crate) fn user_namespace(is_allowed: bool) -> UserNamespace {
    UserNamespace::of(std::fs::read_to_string("/proc/self/uid_map").ok().as_deref(), is_allowed)
}

/// Fails if this user namespace keeps the kubelet from reading the kernel log, and it may not go on without.
pub(crate) fn check_kernel_log(path: &Path, namespace: UserNamespace) -> Result<(), String> {
    // Elsewhere it is not opened here: that may wait, for instance for the other end of a pipe.
    if namespace != UserNamespace::NotAllowed {
        return Ok(());
    }
    let problem = std::fs::File::open(path)
        .err()
        .map(|error| namespace.refuse(&format!("failed to open the kernel log {}: {error}", path.display())));
    problem.flatten().map_or(Ok(()), Err)
}

/// Changes kernel settings to the values that pods need. If `is_protected`, each other value is an error.
pub(crate) fn tune_kernel(is_protected: bool, namespace: UserNamespace) -> Result<(), String> {
    let dir = private_paths::path(private_paths::KERNEL_SETTINGS).unwrap_or_else(|| KERNEL_SETTINGS.into());
    let mut refused = Vec::new();
    for tunable in TUNABLES {
        let path = Path::new(&dir).join(tunable.path);
        let now = std::fs::read_to_string(&path).ok();
        match compute_tunable(tunable, now.as_deref(), is_protected) {
            TunablePlan::Leave => {}
            TunablePlan::Set => match std::fs::write(&path, tunable.value.to_string()) {
                Ok(()) => tracing::info!(
                    setting = tunable.path,
                    value = tunable.value,
                    was = now,
                    "Changed kernel flag"
                ),
                Err(error) => {
                    let problem = format!("failed to change kernel flag {}: {error}", tunable.path);
                    if let Some(why) = namespace.refuse(&problem) {
                        return Err(why);
                    }
                    tracing::warn!(setting = tunable.path, value = tunable.value, err = %error, "Failed to change kernel flag");
                }
            },
            TunablePlan::Refuse(why) => refused.push(why),
        }
    }
    if refused.is_empty() { Ok(()) } else { Err(format!("protectKernelDefaults: {}", refused.join(", "))) }
}

/// Creates the root directory and makes it a shared mount, for volumes with mount propagation. A failure is logged, because
/// other pods run without; the runtime refuses containers that need it. It is not undone at the end: the pods outlive this
/// process.
pub(crate) async fn share_root_dir(files: &dyn Files, root: &Path) -> Result<(), HostError> {
    files.make_dir(root, 0o750).await?;
    if let Err(error) = host::process::ensure_shared_mount(root) {
        let error = base_agent::error_chain::chain(&error);
        tracing::error!(root = %root.display(), err = error, "Root directory is not a shared mount, mount propagation does not work");
    }
    Ok(())
}

/// SIGTERM and SIGINT, received by a separate thread, so that the second signal ends a process that hangs.
pub(crate) struct Signals {
    first: CancellationToken,
}

impl Signals {
    /// Starts the thread. The first signal resolves [`Self::first`], and the second ends the process with code 1.
    pub(crate) fn listen() -> io::Result<Self> {
        let first = CancellationToken::new();
        let received = first.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let mut stream = {
            let _inside = runtime.enter();
            [signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?]
        };
        let listening = move || {
            runtime.block_on(next(&mut stream));
            received.cancel();
            runtime.block_on(next(&mut stream));
            exit_at_once();
        };
        std::thread::Builder::new().name("signals".into()).stack_size(STACK_BYTES).spawn(listening)?;
        Ok(Self { first })
    }

    /// Returns when a signal has come, at once if it came before.
    pub(crate) async fn first(&self) {
        self.first.cancelled().await;
    }
}

/// Timeout for writing the log after a second signal.
const LAST_FLUSH_TIMEOUT: Duration = Duration::from_millis(200);
/// The thread only waits.
const STACK_BYTES: usize = 256 << 10;

/// Cancel safe: signals wait in the stream.
async fn next([terminate, interrupt]: &mut [Signal; 2]) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

#[expect(clippy::exit, reason = "the rest of the process may hang; nothing it could still do is waited for")]
fn exit_at_once() {
    crate::logging::flush(LAST_FLUSH_TIMEOUT);
    std::process::exit(1)
}

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
