//! Waits for inotify events without blocking a thread.
//!
//! Owns one of the crate's few unsafe blocks.

use std::ffi::OsStr;
use std::io;

use inotify::{Event, Inotify};
use tokio::io::unix::AsyncFd;

/// Of one read, in bytes.
const BUFFER: usize = 8192;

/// Waits for events and handles all of them, until one is an error. Needs a tokio runtime around it only for the call, so that watches
/// can be set up outside of any.
pub(crate) async fn read_burst(
    inotify: Inotify,
    mut handle: impl FnMut(Event<&OsStr>) -> io::Result<()>,
) -> io::Result<Inotify> {
    let mut ready = waiting(inotify)?;
    let mut buffer = vec![0; BUFFER];
    let mut seen_any = false;
    loop {
        let taken = if seen_any {
            ready.get_mut().read_events(&mut buffer)
        } else {
            let mut guard = ready.readable_mut().await?;
            match guard.try_io(|inotify| inotify.get_mut().read_events(&mut buffer)) {
                Ok(taken) => taken,
                Err(_not_ready) => continue,
            }
        };
        match taken {
            Ok(mut events) => events.try_for_each(&mut handle)?,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(ready.into_inner()),
            Err(error) => return Err(error),
        }
        seen_any = true;
    }
}

/// Needs a tokio runtime around it.
#[expect(unsafe_code, reason = "tokio wants a promise about the descriptor that no type can express")]
pub(crate) fn waiting(inotify: Inotify) -> io::Result<AsyncFd<Inotify>> {
    // SAFETY: an `Inotify` owns its descriptor, answers the same one for its whole life and closes it only when it is
    // dropped; there is no method that replaces it. Only `into_inner` removes it from the `AsyncFd`, and
    // unregisters it first.
    Ok(unsafe { AsyncFd::register(inotify) }?)
}
