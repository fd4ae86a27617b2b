//! A library for tests, to be preloaded into a program: its wall clock differs from the machine's by the number of seconds in a
//! file, from the moment at which the number is written. The monotonic clock, and the clock of every other program, stay the same.
//!
//! Owns the replacement of the C library's `clock_gettime`, and nothing else. `scripts/soak` preloads it into the kubelet.
//!
//! `libfaketime` is not used: it leaves files in `/dev/shm` when its program is killed, and its `clock_nanosleep` fails with `EINVAL`
//! if the monotonic clock is not to be changed.

use std::ffi::c_int;
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};

/// The variable of the environment with the path of the file: eight bytes, a signed number in the byte order of the machine.
const VARIABLE: &str = "WALL_CLOCK_OFFSET_FILE";

static OFFSET: OnceLock<Option<&'static AtomicI64>> = OnceLock::new();

#[expect(unsafe_code, reason = "it replaces a function of the C library")]
#[unsafe(no_mangle)]
extern "C" fn clock_gettime(clock: libc::clockid_t, time: *mut libc::timespec) -> c_int {
    // SAFETY: the caller passes a pointer as clock_gettime(2) requires, and the kernel checks it.
    let result = unsafe { libc::syscall(libc::SYS_clock_gettime, clock, time) };
    if result != 0 {
        return -1;
    }
    if clock == libc::CLOCK_REALTIME
        && let Some(offset) = OFFSET.get_or_init(map_offset)
    {
        // SAFETY: the call above has just written to it.
        unsafe { (*time).tv_sec += offset.load(Ordering::Relaxed) };
    }
    0
}

/// The number in the file, as it is at each moment; `None` without one.
#[expect(unsafe_code, reason = "no crate of ours maps files into memory")]
fn map_offset() -> Option<&'static AtomicI64> {
    let file = File::open(std::env::var_os(VARIABLE)?).ok()?;
    let size = size_of::<AtomicI64>();
    if file.metadata().ok()?.len() < size as u64 {
        return None;
    }
    // SAFETY: a new mapping, which nothing else uses and which is never unmapped.
    let mapped =
        unsafe { libc::mmap(ptr::null_mut(), size, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    // SAFETY: the mapping begins at a page, has the size of the number, and its file is never made shorter.
    (mapped != libc::MAP_FAILED).then(|| unsafe { &*mapped.cast::<AtomicI64>() })
}
