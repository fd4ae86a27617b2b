//! Memory that this process does not need: what the C library's allocator keeps, and code that has run. Owns five of the crate's few
//! unsafe blocks.
//!
//! A setting of the allocator that can only be made before a program starts is passed in an environment variable; the process then
//! executes itself once more (docs/decisions/0089-allocator-without-thread-caches.md).

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::mm::Advice;

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

/// Unmaps the code of the program and its libraries. What runs next is mapped again from the page cache, block by block.
///
/// # Errors
/// The list of mappings cannot be read.
#[expect(unsafe_code, reason = "a call of the kernel about memory by its address")]
pub(crate) fn unmap_code() -> io::Result<()> {
    let mappings = std::fs::read_to_string("/proc/self/maps")?;
    for (start, length) in mappings.lines().filter_map(code_of_a_file) {
        let start = std::ptr::without_provenance_mut(start);
        // SAFETY: the range is code mapped from a file. Nothing is written there, so that each page has the same bytes when it is mapped
        // again.
        let unmapped = unsafe { rustix::mm::madvise(start, length, Advice::LinuxDontNeed) };
        unmapped?;
    }
    Ok(())
}

/// The start and length of a mapping that is executable code of a file and was never writable, from its line
/// `start-end permissions offset device inode path`.
fn code_of_a_file(line: &str) -> Option<(usize, usize)> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let [start, end] = [start, end].map(|address| usize::from_str_radix(address, 16).ok());
    let is_code = fields.next()? == "r-xp" && fields.nth(3)?.starts_with('/');
    let length = end?.checked_sub(start?)?;
    is_code.then_some((start?, length))
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
    fn only_code_of_files_is_unmapped() {
        let code = "55d0c1a00000-55d0c1a03000 r-xp 00389000 fe:00 1234   /usr/bin/kubelet";
        assert_eq!(code_of_a_file(code), Some((0x55d0_c1a0_0000, 0x3000)));
        for other in [
            "55d0c1a00000-55d0c1a03000 r--p 00000000 fe:00 1234   /usr/bin/kubelet",
            "55d0c1a00000-55d0c1a03000 rwxp 00000000 fe:00 1234   /usr/bin/kubelet",
            "7ffd1f1f0000-7ffd1f1f2000 r-xp 00000000 00:00 0      [vdso]",
            "7f0000000000-7f0000001000 r-xp 00000000 00:00 0",
            "",
        ] {
            assert_eq!(code_of_a_file(other), None, "{other}");
        }
    }

    #[test]
    fn code_that_runs_again_is_mapped_again() {
        let before = resident_code();
        unmap_code().unwrap();
        let after = resident_code();
        assert!(0 < after && after < before, "{before} kB before, {after} kB after");
    }

    /// In kilobytes.
    fn resident_code() -> u64 {
        let all = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut is_code = false;
        let mut kilobytes = 0;
        for line in all.lines() {
            if let Some(resident) = line.strip_prefix("Rss:") {
                let resident: u64 = resident.trim().strip_suffix(" kB").unwrap().parse().unwrap();
                kilobytes += if is_code { resident } else { 0 };
            } else if line.contains(" r") {
                is_code = code_of_a_file(line).is_some();
            }
        }
        kilobytes
    }

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
