//! Just enough of the `ustar` format to write an image layer: directories, files, links and pipes, owned by root.

const BLOCK: usize = 512;

/// The type of an entry.
#[derive(Clone, Copy, Debug)]
pub(super) enum Entry<'a> {
    Directory,
    File(&'a [u8]),
    Symlink(&'a str),
    Pipe,
}

#[derive(Debug, Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
}

impl Archive {
    /// Adds an entry. Names are short here (100 characters is the format's limit) and cut if they are not.
    pub(super) fn add(&mut self, path: &str, mode: u32, entry: Entry<'_>) {
        let (kind, content, target): (u8, &[u8], &str) = match entry {
            Entry::Directory => (b'5', &[], ""),
            Entry::File(content) => (b'0', content, ""),
            Entry::Symlink(target) => (b'2', &[], target),
            Entry::Pipe => (b'6', &[], ""),
        };
        self.bytes.extend_from_slice(&header(path, mode, kind, content.len(), target));
        self.bytes.extend_from_slice(content);
        let used = self.bytes.len() % BLOCK;
        if used > 0 {
            self.bytes.resize(self.bytes.len() + BLOCK - used, 0);
        }
    }

    /// The archive, terminated by its two empty blocks.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.bytes.resize(self.bytes.len() + 2 * BLOCK, 0);
        self.bytes
    }
}

fn header(path: &str, mode: u32, kind: u8, size: usize, target: &str) -> [u8; BLOCK] {
    let mut block = [0_u8; BLOCK];
    let mut put = |at: usize, width: usize, text: &str| {
        for (slot, byte) in block.iter_mut().skip(at).take(width).zip(text.bytes()) {
            *slot = byte;
        }
    };
    put(0, 100, path);
    put(100, 8, &format!("{mode:07o}"));
    put(108, 8, "0000000"); // owner
    put(116, 8, "0000000"); // group
    put(124, 12, &format!("{size:011o}"));
    put(136, 12, "00000000000"); // modified in 1970, so that equal content gives equal digests
    put(148, 8, "        "); // the checksum counts as blanks while it is computed
    put(157, 100, target);
    put(257, 8, "ustar\x0000");
    if let Some(slot) = block.get_mut(156) {
        *slot = kind;
    }
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    let checksum = format!("{sum:06o}\0 ");
    for (slot, byte) in block.iter_mut().skip(148).take(8).zip(checksum.bytes()) {
        *slot = byte;
    }
    block
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Command, Stdio};

    #[test]
    fn system_tar_reads_our_archives() {
        let mut archive = Archive::default();
        archive.add("bin/", 0o755, Entry::Directory);
        archive.add("bin/tool", 0o755, Entry::File(b"hello"));
        archive.add("bin/link", 0o777, Entry::Symlink("tool"));
        archive.add("pipe", 0o600, Entry::Pipe);
        let mut tar = Command::new("tar")
            .args(["--list", "--verbose", "--numeric-owner", "--utc"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        tar.stdin.take().unwrap().write_all(&archive.finish()).unwrap();
        let output = tar.wait_with_output().unwrap();
        let listing = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<String> =
            listing.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(
            lines,
            [
                "drwxr-xr-x 0/0 0 1970-01-01 00:00 bin/",
                "-rwxr-xr-x 0/0 5 1970-01-01 00:00 bin/tool",
                "lrwxrwxrwx 0/0 0 1970-01-01 00:00 bin/link -> tool",
                "prw------- 0/0 0 1970-01-01 00:00 pipe",
            ]
        );
        assert!(output.status.success());
    }
}
