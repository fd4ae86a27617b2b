//! How the C library's allocator keeps memory. Owns two of the crate's few unsafe blocks.

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
