//! Gives back to the machine what a burst of changes leaves free in the heap: requests, answers, and versions that no watcher needs any
//! more. Between bursts it waits for changes only.

use std::sync::Arc;
use std::time::Duration;

use crate::api::Api;
use crate::store::Store;

/// Fewer changes are not worth the work. The Leases of a node at rest are as many in ten minutes.
const MIN_CHANGES: usize = 64;
/// After that many changes, the memory is released that they needed, together with that of the ones that follow.
const RELEASE_AFTER: Duration = Duration::from_secs(10);
/// Once more after the end of most bursts, and after slow watchers have taken their events.
const RELEASE_AGAIN_AFTER: Duration = Duration::from_secs(120);

/// Calls `release` after bursts, until the server ends.
pub(super) async fn run(api: Arc<Api>, release: fn()) {
    tokio::select! {
        () = release_after_bursts(&api.store, release) => {}
        () = api.closing.cancelled() => {}
    }
}

async fn release_after_bursts(store: &Store, release: fn()) {
    loop {
        changed(store, MIN_CHANGES).await;
        for wait in [RELEASE_AFTER, RELEASE_AGAIN_AFTER] {
            tokio::time::sleep(wait).await;
            release();
        }
    }
}

/// Waits for that many changes, or for so many at once that its queue is closed.
async fn changed(store: &Store, changes: usize) {
    let mut live = store.watch_everything();
    for _ in 0..changes {
        if live.event().await.is_none() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::json;

    use super::*;
    use crate::store::{Key, NotStored, Write};

    static RELEASED: AtomicUsize = AtomicUsize::new(0);

    fn change(store: &Store, times: usize) {
        for number in 0..times {
            let name = format!("m{number}");
            let object = json!({"metadata": {"name": name, "namespace": "default"}});
            let key = Key::new("configmaps", "default", &name);
            store.write(&key, |_, _| Ok::<_, NotStored>(Write::Put(object))).unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn memory_is_released_twice_after_a_burst_and_never_at_rest() {
        let store = Arc::new(Store::new(10));
        let of_task = Arc::clone(&store);
        let release = || _ = RELEASED.fetch_add(1, Ordering::Relaxed);
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(async move { release_after_bursts(&of_task, release).await });
        let released_after = async |wait| {
            tokio::time::sleep(wait).await;
            RELEASED.load(Ordering::Relaxed)
        };
        let (second, hour) = (Duration::from_secs(1), Duration::from_secs(3600));

        assert_eq!(released_after(hour).await, 0);
        change(&store, MIN_CHANGES - 1);
        assert_eq!(released_after(hour).await, 0);
        change(&store, 1);
        assert_eq!(released_after(RELEASE_AFTER + second).await, 1);
        assert_eq!(released_after(RELEASE_AGAIN_AFTER).await, 2);
        assert_eq!(released_after(hour).await, 2);
        change(&store, 2_000);
        assert_eq!(released_after(hour).await, 4);
    }
}
