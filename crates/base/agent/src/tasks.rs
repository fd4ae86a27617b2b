//! The only module that spawns tasks: every task has a name, and all of them end when their set is cancelled.
//!
//! A task that panics is never lost silently. An essential task ends the process, so that the service manager restarts it
//! ([`TaskSet::spawn`]); a task that serves one pod is started again ([`TaskSet::spawn_restarting`]); the panic of a task
//! that serves one object or one round of work is only logged ([`TaskSet::spawn_isolated`]).

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use base_core::backoff::task_restart_delay;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use ports::Clock;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// After running this long without a panic, the restart delay of a task is reset.
const CALM_AFTER: Duration = Duration::from_secs(600);

/// The result of the work; `None` if it panicked, which must not keep others waiting.
pub async fn guarded<T>(work: impl Future<Output = T> + Send) -> Option<T> {
    AssertUnwindSafe(work).catch_unwind().await.ok()
}

/// A set of tasks that end together. Clones share the set.
#[derive(Clone, Debug)]
pub struct TaskSet {
    tracker: TaskTracker,
    cancel: CancellationToken,
    failed: CancellationToken,
}

impl Default for TaskSet {
    fn default() -> Self {
        Self::new()
    }
}

impl TaskSet {
    #[must_use]
    pub fn new() -> Self {
        Self {
            tracker: TaskTracker::new(),
            cancel: CancellationToken::new(),
            failed: CancellationToken::new(),
        }
    }

    /// Cancelled when the set is to stop.
    #[must_use]
    pub fn cancelled(&self) -> CancellationToken {
        self.cancel.clone()
    }

    /// Cancelled when an essential task has panicked: the process must end, and is not healthy.
    #[must_use]
    pub fn failed(&self) -> CancellationToken {
        self.failed.clone()
    }

    /// Runs an essential task until it ends or the set stops, which drops it at its next await. A panic fails the set.
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.spawn_essential(name, Box::pin(task));
    }

    /// Boxed first: each future around one of its own type would be another 2 kB of code, and have space for it twice.
    fn spawn_essential(&self, name: &'static str, task: BoxFuture<'static, ()>) {
        let failed = self.failed.clone();
        self.spawn_cancelled(name, async move {
            if AssertUnwindSafe(with_injected_panic(name, task)).catch_unwind().await.is_err() {
                tracing::error!(task = name, "Task panicked, exiting so that the kubelet is restarted");
                failed.cancel();
            }
        });
    }

    /// Runs a task that is not essential. A panic ends only this task, and is logged with its name.
    pub fn spawn_isolated(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.spawn_cancelled(name, with_injected_panic(name, Box::pin(task) as BoxFuture<'static, ()>));
    }

    /// Runs a task that serves one pod. After a panic `make` creates it again, with a delay that grows from a second to five
    /// minutes. `report` is called with that delay.
    pub fn spawn_restarting<F: Future<Output = ()> + Send + 'static>(
        &self,
        name: &'static str,
        clock: Clock,
        report: impl Fn(Duration) + Send + 'static,
        mut make: impl FnMut() -> F + Send + 'static,
    ) {
        self.spawn_cancelled(name, async move {
            let mut panics = 0_u32;
            loop {
                let began = clock.mono();
                let task: BoxFuture<'static, ()> = Box::pin(make());
                let task = Box::pin(with_injected_panic(name, task));
                if AssertUnwindSafe(task).catch_unwind().await.is_ok() {
                    return;
                }
                let ran_for = clock.mono().saturating_since(began);
                panics = if ran_for > CALM_AFTER { 1 } else { panics.saturating_add(1) };
                let delay = task_restart_delay(panics);
                report(delay);
                clock.sleep_until(clock.mono() + delay).await;
            }
        });
    }

    fn spawn_cancelled(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.spawn_boxed(name, Box::pin(until_cancelled(self.cancel.clone(), Box::pin(task))));
    }

    /// Runs a task that watches for the cancellation itself.
    pub fn spawn_to_end(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.spawn_boxed(name, Box::pin(task));
    }

    /// Each kind of task that Tokio runs is 2 kB of code, so that it is given boxed futures only.
    fn spawn_boxed(&self, name: &'static str, task: BoxFuture<'static, ()>) {
        self.tracker.spawn(async move {
            if AssertUnwindSafe(task).catch_unwind().await.is_err() {
                tracing::error!(task = name, "Task panicked, other tasks continue");
            }
        });
    }

    /// Stops every task and waits until all have ended.
    pub async fn stop(&self) {
        self.cancel.cancel();
        self.tracker.close();
        self.tracker.wait().await;
    }
}

/// No task runs once the set stops: it would take what others have dropped for an end that they decided.
async fn until_cancelled(cancel: CancellationToken, task: BoxFuture<'static, ()>) {
    tokio::select! {
        biased;
        () = cancel.cancelled() => {}
        () = task => {}
    }
}

#[cfg(not(debug_assertions))]
async fn with_injected_panic<T>(_name: &'static str, task: impl Future<Output = T>) -> T {
    task.await
}

/// For tests: in builds with debug assertions, if `KUBELET_PANIC_IN` names a file, a task panics once that file holds its
/// name.
#[cfg(debug_assertions)]
async fn with_injected_panic<T>(name: &'static str, task: impl Future<Output = T>) -> T {
    use std::path::PathBuf;
    use std::sync::OnceLock;

    static FILE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let Some(file) = FILE.get_or_init(|| std::env::var_os("KUBELET_PANIC_IN").map(PathBuf::from)) else {
        return task.await;
    };
    let is_named = || std::fs::read_to_string(file).is_ok_and(|names| names.lines().any(|line| line == name));
    let named = async {
        while !is_named() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::select! {
        done = task => done,
        () = named => panic!("injected by a test"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    fn boom() {
        std::panic::panic_any("a bug");
    }

    #[tokio::test(start_paused = true)]
    async fn panic_in_an_essential_task_fails_the_set_and_in_an_isolated_task_does_not() {
        let tasks = TaskSet::new();
        tasks.spawn_isolated("isolated", async { boom() });
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!tasks.failed().is_cancelled());
        tasks.spawn("essential", async { boom() });
        tasks.failed().cancelled().await;
        tasks.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn task_that_waits_for_another_one_does_not_see_its_end_when_the_set_stops() {
        for _ in 0..20 {
            let (tasks, has_seen) = (TaskSet::new(), Arc::new(AtomicU32::new(0)));
            let (sender, receiver) = tokio::sync::oneshot::channel::<()>();
            let seen = has_seen.clone();
            tasks.spawn("keeps", async move {
                let _sender = sender;
                std::future::pending::<()>().await;
            });
            tasks.spawn("waits", async move {
                let _ = receiver.await;
                seen.fetch_add(1, Ordering::Relaxed);
            });
            tokio::task::yield_now().await;
            tasks.stop().await;
            assert_eq!(has_seen.load(Ordering::Relaxed), 0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn task_of_a_pod_is_restarted_after_a_panic_with_growing_delays() {
        let (tasks, clock) = (TaskSet::new(), Clock::starting_at(jiff::Timestamp::UNIX_EPOCH));
        let (runs, delays) = (Arc::new(AtomicU32::new(0)), Arc::new(parking_lot::Mutex::new(Vec::new())));
        let (counted, noted) = (runs.clone(), delays.clone());
        tasks.spawn_restarting(
            "worker",
            clock,
            move |delay| noted.lock().push(delay.as_secs()),
            move || {
                let run = counted.fetch_add(1, Ordering::Relaxed);
                async move {
                    if run < 11 {
                        boom();
                    }
                }
            },
        );
        while runs.load(Ordering::Relaxed) < 12 {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(*delays.lock(), [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        assert!(!tasks.failed().is_cancelled());
        tasks.stop().await;
        assert_eq!(runs.load(Ordering::Relaxed), 12, "a task that ends without a panic is not started again");
    }
}
