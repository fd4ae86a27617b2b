//! Unmounts for a caller that has the time to find the holders of a busy mount, and to retry.

use std::path::Path;
use std::time::Duration;

use ports::HostError;
use ports::host::HostResult;

use crate::mounts::{is_busy, unmount_one};
use crate::{failed, holders, loop_devices};

/// Unmounts one mount. Success if it is unmounted already; if it is busy, the error names the processes that hold it.
pub(crate) fn unmount_or_report(mount_point: &Path) -> HostResult<()> {
    // One that the Go kubelet attached to a block device keeps the mount busy, and no process holds it.
    loop_devices::detach_from(mount_point).map_err(failed("detach the loop devices of", mount_point))?;
    let seen = || holders::describe(Path::new("/proc"), mount_point);
    let unmounted = retry_without_holder(|| unmount_one(mount_point), seen, || std::thread::sleep(PAUSE));
    match unmounted {
        Err((error, holders)) if is_busy(&error) => {
            let holders = if holders.is_empty() { "no holder was found".to_owned() } else { holders };
            Err(HostError::Invalid(format!(
                "unmount {}: device or resource busy ({holders})",
                mount_point.display()
            )))
        }
        unmounted => unmounted.map_err(|(error, _)| error),
    }
}

/// How often unmounting is retried for a busy mount without a known holder, and the pause in between.
const TRIES: usize = 5;
const PAUSE: Duration = Duration::from_millis(10);

/// Retries as long as a mount is busy and no holder is found: the kernel removes the namespace of a container after the
/// container ended, a process that is being started has its parent's files until its own program begins, and a program that
/// scans `/proc` holds what it reads. All that passes quickly; the volume engine's back-off is half a second. The error comes
/// with the holders that were found.
fn retry_without_holder(
    mut unmount: impl FnMut() -> HostResult<()>,
    seen: impl Fn() -> String,
    pause: impl Fn(),
) -> Result<(), (HostError, String)> {
    let mut tries = 1;
    loop {
        let error = match unmount() {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        let holders = if is_busy(&error) { seen() } else { String::new() };
        if !is_busy(&error) || !holders.is_empty() || tries == TRIES {
            return Err((error, holders));
        }
        tries += 1;
        pause();
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;
    use crate::failed;

    /// Unmounts a mount that is busy for that many attempts, with these holders; returns the result and the number of attempts.
    fn try_busy(times: usize, holders: &str) -> (Result<(), String>, usize) {
        let mut tries = 0;
        let unmount = || {
            tries += 1;
            if tries > times { Ok(()) } else { Err(failed("unmount", Path::new("/m"))(Errno::BUSY)) }
        };
        let came =
            retry_without_holder(unmount, || holders.to_owned(), || ()).map_err(|(_, holders)| holders);
        (came, tries)
    }

    #[test]
    fn unmount_of_a_busy_mount_without_a_known_holder_is_retried() {
        assert_eq!(try_busy(0, ""), (Ok(()), 1));
        assert_eq!(try_busy(2, ""), (Ok(()), 3));
        assert_eq!(try_busy(TRIES, ""), (Err(String::new()), TRIES));
    }

    #[test]
    fn unmount_of_a_mount_with_a_known_holder_fails_at_once() {
        assert_eq!(try_busy(2, "sleep (pid 7)"), (Err("sleep (pid 7)".to_owned()), 1));
    }

    #[test]
    fn unmount_is_not_retried_unless_the_mount_is_busy() {
        let unmount = || Err(failed("unmount", Path::new("/m"))(Errno::PERM));
        let came = retry_without_holder(unmount, || panic!("holders of an idle mount"), || panic!("a pause"));
        assert!(matches!(came, Err((HostError::Io { .. }, holders)) if holders.is_empty()));
    }
}
