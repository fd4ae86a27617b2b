//! Waits for inotify events without blocking a thread.
//!
//! Owns one of the crate's few unsafe blocks.

use std::io;

use inotify::Inotify;
use tokio::io::unix::AsyncFd;

/// Needs a tokio runtime around it.
#[expect(unsafe_code, reason = "tokio wants a promise about the descriptor that no type can express")]
pub(crate) fn waiting(inotify: Inotify) -> io::Result<AsyncFd<Inotify>> {
    // SAFETY: an `Inotify` owns its descriptor, answers the same one for its whole life and closes it only when it is
    // dropped; there is no method that replaces it. Only `into_inner` removes it from the `AsyncFd`, and
    // unregisters it first.
    Ok(unsafe { AsyncFd::register(inotify) }?)
}
