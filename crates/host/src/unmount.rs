//! Unmounting for a caller that has the time to find out who holds a mount, and to try again.

use std::path::Path;
use std::time::Duration;

use ports::HostError;
use ports::host::HostResult;

use crate::holders;
use crate::mounts::{is_busy, unmount_one};

/// Takes one mount away. Success if it is gone already; where it is busy, the error names who holds it.
pub(crate) fn unmount_or_tell(mount_point: &Path) -> HostResult<()> {
    let seen = || holders::told(Path::new("/proc"), mount_point);
    let unmounted = while_nobody_is_seen(|| unmount_one(mount_point), seen, || std::thread::sleep(MOMENT));
    match unmounted {
        Err((error, holders)) if is_busy(&error) => {
            let holders = if holders.is_empty() { "nobody is seen to hold it".to_owned() } else { holders };
            Err(HostError::Invalid(format!(
                "unmount {}: device or resource busy ({holders})",
                mount_point.display()
            )))
        }
        unmounted => unmounted.map_err(|(error, _)| error),
    }
}

/// How often a mount that is busy without a holder is tried, and how long it is left alone between that.
const TRIES: usize = 5;
const MOMENT: Duration = Duration::from_millis(10);

/// Tries again as long as a mount is busy and nobody is seen to hold it: the kernel takes apart the namespace of a container
/// that has ended after it has ended, a process that is being started has its parent's files until its own program begins,
/// and whoever looks through `/proc` holds what he looks at. All that passes in moments; the engine's back-off is half a
/// second. With the error comes who was seen.
fn while_nobody_is_seen(
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

    /// Tries a mount that is busy so many times, while these are seen to hold it; what came of it, and after how many tries.
    fn try_busy(times: usize, holders: &str) -> (Result<(), String>, usize) {
        let mut tries = 0;
        let unmount = || {
            tries += 1;
            if tries > times { Ok(()) } else { Err(failed("unmount", Path::new("/m"))(Errno::BUSY)) }
        };
        let came =
            while_nobody_is_seen(unmount, || holders.to_owned(), || ()).map_err(|(_, holders)| holders);
        (came, tries)
    }

    #[test]
    fn a_mount_that_nobody_is_seen_to_hold_is_tried_again_a_few_times() {
        assert_eq!(try_busy(0, ""), (Ok(()), 1));
        assert_eq!(try_busy(2, ""), (Ok(()), 3));
        assert_eq!(try_busy(TRIES, ""), (Err(String::new()), TRIES));
    }

    #[test]
    fn a_mount_whose_holder_is_seen_is_left_to_him() {
        assert_eq!(try_busy(2, "sleep (pid 7)"), (Err("sleep (pid 7)".to_owned()), 1));
    }

    #[test]
    fn a_mount_that_cannot_go_for_another_reason_is_not_tried_again() {
        let unmount = || Err(failed("unmount", Path::new("/m"))(Errno::PERM));
        let came = while_nobody_is_seen(unmount, || panic!("nobody asks"), || panic!("nobody waits"));
        assert!(matches!(came, Err((HostError::Io { .. }, holders)) if holders.is_empty()));
    }
}
