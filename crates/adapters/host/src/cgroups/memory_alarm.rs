//! Memory thresholds of cgroup v1: an event is registered with the kernel for each threshold, and is removed when its descriptor is
//! closed.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use model::cgroup::MemoryMark;
use ports::host::HostResult;
use rustix::event::{EventfdFlags, eventfd};
use tokio::net::unix::pipe::Receiver;

use super::trees::{inside, put};
use crate::failed;

const USAGE: &str = "memory.usage_in_bytes";

/// One event for all thresholds, which may have been passed already.
pub(super) fn arm(tree: &Path, marks: &[MemoryMark]) -> HostResult<OwnedFd> {
    let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
    let event = eventfd(0, flags).map_err(failed("make an event for", tree))?;
    for mark in marks {
        let cgroup = inside(tree, &mark.cgroup);
        register(&event, &cgroup, mark.bytes).map_err(failed("watch the memory of", &cgroup))?;
    }
    Ok(event)
}

/// The kernel reports thresholds that are passed from now on; those passed before are found by reading the usage.
fn register(event: &OwnedFd, cgroup: &Path, bytes: u64) -> io::Result<()> {
    let path = cgroup.join(USAGE);
    let usage = File::open(&path)?;
    let words = format!("{} {} {bytes}", event.as_raw_fd(), usage.as_raw_fd());
    put(&cgroup.join("cgroup.event_control"), &words)?;
    if fs::read_to_string(&path)?.trim().parse::<u64>().is_ok_and(|used| used >= bytes) {
        rustix::io::write(event, &1_u64.to_ne_bytes())?;
    }
    Ok(())
}

/// Ends with the event. It is read as a pipe is: tokio need not know what it is.
pub(super) fn wait(event: OwnedFd, tree: &Path) -> HostResult<impl Future<Output = ()> + use<>> {
    let event = Receiver::from_owned_fd_unchecked(event).map_err(failed("wait for", tree))?;
    Ok(async move {
        // Fails only when the async runtime ends.
        let _ = event.readable().await;
    })
}
