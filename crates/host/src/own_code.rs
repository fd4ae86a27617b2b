//! The code of this process in memory. Owns one of the crate's few unsafe blocks.
//!
//! Code that only a start or a change needed is not kept mapped (docs/decisions/0086-unmap-code.md).

use std::io;

use rustix::mm::Advice;

/// Unmaps the code of the program and its libraries. What runs next is mapped again from the page cache, block by block.
///
/// # Errors
/// The list of mappings cannot be read, or the kernel refuses.
#[expect(unsafe_code, reason = "a call of the kernel about memory by its address")]
pub(crate) fn unmap() -> io::Result<()> {
    let mappings = std::fs::read_to_string("/proc/self/maps")?;
    for (start, length) in mappings.lines().filter_map(code_of_a_file) {
        let start = std::ptr::without_provenance_mut(start);
        // SAFETY: the range is code mapped from a file. Nothing writes there, so that each page has the same bytes when it is mapped
        // again.
        let unmapped = unsafe { rustix::mm::madvise(start, length, Advice::LinuxDontNeed) };
        unmapped?;
    }
    Ok(())
}

/// The start and length of a mapping that is executable code of a file and not writable, from its line
/// `start-end permissions offset device inode path`.
fn code_of_a_file(line: &str) -> Option<(usize, usize)> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let [start, end] = [start, end].map(|address| usize::from_str_radix(address, 16).ok());
    let is_code = fields.next()? == "r-xp" && fields.nth(3)?.starts_with('/');
    let length = end?.checked_sub(start?)?;
    is_code.then_some((start?, length))
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
        unmap().unwrap();
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
}
