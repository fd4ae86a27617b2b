//! Reads the whole program and its libraries into memory, so that a disk that hangs or fails later does not stop the kubelet at the first
//! instruction that it has not executed before.
//!
//! The kernel may still reclaim these pages when memory is short; they are files, and no memory of the process itself.

use std::fs;
use std::io;

use rustix::mm::Advice;

const STACK_BYTES: usize = 64 << 10;

/// Starts to read in a thread of its own, which ends by itself: a slow disk delays nothing.
///
/// # Errors
/// The thread cannot be started.
pub fn keep_program_in_memory() -> io::Result<()> {
    let thread = std::thread::Builder::new().name("program".into()).stack_size(STACK_BYTES);
    thread.spawn(|| match fs::read_to_string("/proc/self/maps") {
        Ok(maps) => maps.lines().filter_map(file_mapping).for_each(populate),
        Err(error) => tracing::debug!(err = %error, "Failed to read the program's mappings"),
    })?;
    Ok(())
}

/// The addresses of a mapping of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mapping {
    begin: usize,
    end: usize,
}

/// The mapping of a line of `maps`, if it is one of a file: `begin-end permissions offset device inode path`.
fn file_mapping(line: &str) -> Option<Mapping> {
    let mut fields = line.split_ascii_whitespace();
    let (range, permissions) = (fields.next()?, fields.next()?);
    let inode = fields.nth(2)?;
    if inode == "0" || !permissions.starts_with('r') {
        return None;
    }
    let (begin, end) = range.split_once('-')?;
    let address = |text| usize::from_str_radix(text, 16).ok();
    Some(Mapping { begin: address(begin)?, end: address(end)? })
}

/// A mapping that went meanwhile, or a kernel that does not know the advice (before 5.14), changes nothing.
#[expect(
    unsafe_code,
    reason = "the advice reads pages into memory and changes no content, but rustix cannot know the address"
)]
fn populate(Mapping { begin, end }: Mapping) {
    let address = std::ptr::with_exposed_provenance_mut(begin);
    // SAFETY: MADV_POPULATE_READ only makes the kernel read pages that are mapped, or fail.
    let populated =
        unsafe { rustix::mm::madvise(address, end.saturating_sub(begin), Advice::LinuxPopulateRead) };
    if let Err(error) = populated {
        tracing::debug!(err = %error, "Failed to read a part of the program into memory");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_readable_mappings_of_files_are_read() {
        let lines = [
            "55e0c8a00000-55e0c8b00000 r-xp 00001000 fe:00 1234  /usr/bin/kubelet",
            "55e0c8c00000-55e0c8c01000 rw-p 00100000 fe:00 1234  /usr/bin/kubelet",
            "55e0c8d00000-55e0c8d01000 ---p 00100000 fe:00 1234  /usr/lib/libc.so.6",
            "7ffe1000-7ffe2000 rw-p 00000000 00:00 0  [stack]",
            "55e0c9d00000-55e0c9e00000 rw-p 00000000 00:00 0",
            "",
            "x-y r--p 0 0 1",
        ];
        let found = lines.iter().filter_map(|line| file_mapping(line));
        let found: Vec<_> = found.map(|Mapping { begin, end }| (begin, end)).collect();
        assert_eq!(found, [(0x55e0_c8a0_0000, 0x55e0_c8b0_0000), (0x55e0_c8c0_0000, 0x55e0_c8c0_1000)]);
    }
}
