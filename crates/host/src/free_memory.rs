//! Gives freed memory back to the kernel. Owns one of the crate's few unsafe blocks.

#[expect(unsafe_code, reason = "a call of the C library that no crate wraps")]
pub(crate) fn release() {
    // SAFETY: malloc_trim takes the locks of the allocator itself and touches no memory that is in use.
    unsafe { libc::malloc_trim(0) };
}
