//! How the C library's allocator keeps memory. Owns two of the crate's few unsafe blocks.

use std::ops::RangeInclusive;
use std::thread;

/// The sizes of freed pieces that the C library caches for each thread, in steps of [`STEP`], and how many of each.
const CACHED_SIZES: RangeInclusive<usize> = 24..=1032;
const STEP: usize = 16;
const CACHED_OF_A_SIZE: usize = 7;

#[expect(unsafe_code, reason = "a call of the C library that no crate wraps")]
pub(crate) fn release() {
    empty_cache_of_this_thread();
    // SAFETY: malloc_trim takes the locks of the allocator itself and touches no memory that is in use.
    unsafe { libc::malloc_trim(0) };
}

#[expect(unsafe_code, reason = "a call of the C library that no crate wraps")]
pub(crate) fn share_one_arena() {
    // SAFETY: mallopt sets a number in the allocator and touches no memory that is in use.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}

/// Moves the freed pieces that the C library caches for the calling thread back to the arena. Each of them keeps the page around
/// it in use. A thread's cache is emptied when the thread ends, so they are allocated here and freed by a thread that ends.
fn empty_cache_of_this_thread() {
    let sizes = CACHED_SIZES.step_by(STEP);
    let pieces: Vec<Vec<u8>> =
        sizes.flat_map(|size| (0..CACHED_OF_A_SIZE).map(move |_| Vec::with_capacity(size))).collect();
    if let Ok(thread) = thread::Builder::new().spawn(move || drop(pieces)) {
        let _ = thread.join();
    }
}
