//! A value that one task sets and others follow, of which a node has hundreds.
//!
//! Owns: the latest value, and waking those who wait for a change. Like `tokio::sync::watch`, whose channel has a quarter of a kilobyte
//! more, because it divides its waiters into eight lists.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

#[derive(Debug)]
struct Shared<T> {
    latest: Mutex<Latest<T>>,
    changed: Notify,
    followers: AtomicUsize,
}

#[derive(Debug)]
struct Latest<T> {
    value: T,
    /// How often it was set.
    version: u64,
}

/// Sets the value.
#[derive(Debug)]
pub(crate) struct Followed<T>(Arc<Shared<T>>);

/// Sees the latest value; values between may be missed.
#[derive(Debug)]
pub(crate) struct Follower<T> {
    shared: Arc<Shared<T>>,
    seen: u64,
}

impl<T> Followed<T> {
    pub(crate) fn new(value: T) -> Self {
        let latest = Mutex::new(Latest { value, version: 0 });
        Self(Arc::new(Shared { latest, changed: Notify::new(), followers: AtomicUsize::new(0) }))
    }

    /// The follower has seen the current value.
    pub(crate) fn follow(&self) -> Follower<T> {
        self.0.followers.fetch_add(1, Ordering::Relaxed);
        Follower { shared: self.0.clone(), seen: self.0.latest.lock().version }
    }

    pub(crate) fn has_followers(&self) -> bool {
        self.0.followers.load(Ordering::Relaxed) > 0
    }

    /// `see` must be short, and use nothing that follows or sets this value.
    pub(crate) fn read<R>(&self, see: impl FnOnce(&T) -> R) -> R {
        see(&self.0.latest.lock().value)
    }

    pub(crate) fn modify(&self, set: impl FnOnce(&mut T)) {
        self.modify_if(|value| {
            set(value);
            true
        });
    }

    /// Wakes the followers only if `set` returns `true`.
    pub(crate) fn modify_if(&self, set: impl FnOnce(&mut T) -> bool) {
        let mut latest = self.0.latest.lock();
        if set(&mut latest.value) {
            latest.version += 1;
            drop(latest);
            self.0.changed.notify_waiters();
        }
    }
}

impl<T> Follower<T> {
    /// See [`Followed::read`]. The value counts as seen.
    pub(crate) fn read_and_see<R>(&mut self, see: impl FnOnce(&T) -> R) -> R {
        let latest = self.shared.latest.lock();
        self.seen = latest.version;
        see(&latest.value)
    }

    /// See [`Followed::read`].
    pub(crate) fn read<R>(&self, see: impl FnOnce(&T) -> R) -> R {
        see(&self.shared.latest.lock().value)
    }

    /// Waits for a value that was not seen; then it counts as seen. Cancel safe.
    pub(crate) async fn changed(&mut self) {
        loop {
            // It is woken by every change from here on.
            let change = self.shared.changed.notified();
            let version = self.shared.latest.lock().version;
            if version != self.seen {
                self.seen = version;
                return;
            }
            change.await;
        }
    }
}

impl<T> Clone for Follower<T> {
    fn clone(&self) -> Self {
        self.shared.followers.fetch_add(1, Ordering::Relaxed);
        Self { shared: self.shared.clone(), seen: self.seen }
    }
}

impl<T> Drop for Follower<T> {
    fn drop(&mut self) {
        self.shared.followers.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn is_quiet(follower: &mut Follower<u32>) -> bool {
        tokio::time::timeout(Duration::from_secs(60), follower.changed()).await.is_err()
    }

    #[tokio::test(start_paused = true)]
    async fn each_follower_is_woken_by_a_change_and_then_waits_for_the_next() {
        let followed = Followed::new(1);
        let (mut one, mut other) = (followed.follow(), followed.follow());
        assert!(is_quiet(&mut one).await);
        followed.modify(|value| *value = 2);
        followed.modify(|value| *value = 3);
        one.changed().await;
        other.changed().await;
        assert_eq!((one.read(|value| *value), followed.read(|value| *value)), (3, 3));
        assert!(is_quiet(&mut one).await && is_quiet(&mut other).await);
        let change = async {
            tokio::task::yield_now().await;
            followed.modify(|value| *value = 4);
        };
        tokio::join!(one.changed(), other.changed(), change);
    }

    #[tokio::test(start_paused = true)]
    async fn change_that_is_refused_or_was_read_wakes_no_follower() {
        let followed = Followed::new(1);
        let mut follower = followed.follow();
        followed.modify_if(|_| false);
        assert!(is_quiet(&mut follower).await);
        followed.modify(|value| *value = 2);
        assert_eq!(follower.read_and_see(|value| *value), 2);
        assert!(is_quiet(&mut follower).await);
    }

    #[test]
    fn followers_are_counted() {
        let followed = Followed::new(1);
        let one = followed.follow();
        let other = one.clone();
        drop(one);
        assert!(followed.has_followers());
        drop(other);
        assert!(!followed.has_followers());
    }
}
