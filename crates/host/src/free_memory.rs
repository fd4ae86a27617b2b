//! How the C library's allocator keeps memory. Owns four of the crate's few unsafe blocks.
//!
//! A setting of the allocator that can only be made before a program starts is passed in an environment variable; the process then
//! executes itself once more (docs/decisions/0089-allocator-without-thread-caches.md).

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The environment variable with the settings of the C library, and the one without caches of freed pieces for each thread. Each
/// such piece keeps the page around it in use.
const TUNABLES: &str = "GLIBC_TUNABLES";
const WITHOUT_THREAD_CACHES: &str = "glibc.malloc.tcache_count=0";

#[expect(unsafe_code, reason = "a call of the C library that no crate wraps")]
pub(crate) fn release() {
    // SAFETY: malloc_trim takes the locks of the allocator itself and touches no memory that is in use.
    unsafe { libc::malloc_trim(0) };
}

#[expect(unsafe_code, reason = "a call of the C library that no crate wraps")]
pub(crate) fn share_one_arena() {
    // SAFETY: mallopt sets a number in the allocator and touches no memory that is in use.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}

/// Returns once this program runs without caches of freed memory for each thread. The caller has started no thread.
///
/// # Errors
/// The program cannot be executed again, and goes on with the caches.
#[expect(
    unsafe_code,
    clippy::disallowed_methods,
    reason = "programs that this one starts must not inherit the setting, and no other thread runs"
)]
pub(crate) fn disable_thread_caches() -> io::Result<()> {
    let current = std::env::var_os(TUNABLES);
    match next_step(current.as_deref()) {
        Step::Execute(tunables) => {
            let mut arguments = std::env::args_os();
            let mut again = Command::new(std::env::current_exe()?);
            if let Some(name) = arguments.next() {
                again.arg0(name);
            }
            Err(again.args(arguments).env(TUNABLES, tunables).exec())
        }
        Step::Restore(Some(tunables)) => {
            // SAFETY: no other thread runs that could read the environment.
            unsafe { std::env::set_var(TUNABLES, tunables) };
            Ok(())
        }
        Step::Restore(None) => {
            // SAFETY: no other thread runs that could read the environment.
            unsafe { std::env::remove_var(TUNABLES) };
            Ok(())
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// Execute the program again with these settings.
    Execute(OsString),
    /// The program has the setting: restore what the user had set.
    Restore(Option<OsString>),
}

fn next_step(tunables: Option<&OsStr>) -> Step {
    let ours = WITHOUT_THREAD_CACHES.as_bytes();
    let Some(tunables) = tunables.map(OsStr::as_bytes).filter(|tunables| !tunables.is_empty()) else {
        return Step::Execute(WITHOUT_THREAD_CACHES.into());
    };
    match tunables.strip_suffix(ours) {
        Some([]) => Step::Restore(None),
        Some([users @ .., b':']) => Step::Restore(Some(OsStr::from_bytes(users).to_owned())),
        Some(_) | None => Step::Execute(OsString::from_vec([tunables, b":", ours].concat())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_is_executed_once_more_and_the_users_settings_are_restored() {
        for users in
            [None, Some(""), Some("glibc.malloc.arena_max=1"), Some("a=1:glibc.malloc.tcache_count=7")]
        {
            let Step::Execute(with_ours) = next_step(users.map(OsStr::new)) else { panic!("{users:?}") };
            let restored = users.filter(|users| !users.is_empty()).map(OsString::from);
            assert_eq!(next_step(Some(&with_ours)), Step::Restore(restored), "{users:?}");
        }
    }
}
