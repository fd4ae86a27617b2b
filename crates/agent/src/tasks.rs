//! The one place that spawns: every task has a name, its panic is reported instead of lost, and all of them end with
//! the cancellation of the set.

use std::future::Future;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// A family of tasks that ends together. Clones share the family.
#[derive(Clone, Debug)]
pub struct TaskSet {
    tracker: TaskTracker,
    cancel: CancellationToken,
}

impl Default for TaskSet {
    fn default() -> Self {
        Self::new()
    }
}

impl TaskSet {
    #[must_use]
    pub fn new() -> Self {
        Self { tracker: TaskTracker::new(), cancel: CancellationToken::new() }
    }

    /// Cancelled when the set is told to stop.
    #[must_use]
    pub fn cancelled(&self) -> CancellationToken {
        self.cancel.clone()
    }

    /// Runs a task until it ends or the set stops; it is dropped at its next await then. A panic inside ends only this
    /// task, and is logged with its name.
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let cancel = self.cancel.clone();
        // Boxed, because a block that takes a future in and then waits for it has room for it twice.
        let task = Box::pin(task);
        self.spawn_to_end(name, async move {
            tokio::select! {
                () = cancel.cancelled() => {}
                () = task => {}
            }
        });
    }

    /// Runs a task that watches for the cancellation itself.
    pub fn spawn_to_end(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let inner = self.tracker.spawn(task);
        self.tracker.spawn(async move {
            if let Err(error) = inner.await
                && error.is_panic()
            {
                tracing::error!(task = name, "A task panicked; the others go on");
            }
        });
    }

    /// Tells every task to stop and waits until all have.
    pub async fn stop(&self) {
        self.cancel.cancel();
        self.tracker.close();
        self.tracker.wait().await;
    }
}
