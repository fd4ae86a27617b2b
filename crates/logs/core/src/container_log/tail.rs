//! Finds where the last lines of a log begin, reading backwards from its end in blocks, so that the length of the log does
//! not matter. A line is one line written by the runtime.

/// Size of one read.
const BLOCK_BYTES: u64 = 64 << 10;

/// A search in progress: requests blocks and is fed with them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TailSearch {
    /// Line ends to pass before the requested lines begin.
    wanted: u64,
    /// Everything from this offset on was searched.
    searched_from: u64,
    size: u64,
    found: Option<u64>,
}

impl TailSearch {
    /// A search in a log of that size.
    #[must_use]
    pub const fn new(size: u64, lines: u64) -> Self {
        let found = if lines == 0 { Some(size) } else { None };
        Self { wanted: lines, searched_from: size, size, found }
    }

    /// The offset and length of the next block to read; `None` when the search is over.
    #[must_use]
    pub fn next_block(&self) -> Option<(u64, usize)> {
        if self.found.is_some() || self.searched_from == 0 {
            return None;
        }
        let length = self.searched_from.min(BLOCK_BYTES);
        Some((self.searched_from - length, usize::try_from(length).unwrap_or(usize::MAX)))
    }

    /// Processes the requested block. A shorter one, because the log was truncated in the meantime, is processed as it is.
    pub fn feed(&mut self, block: &[u8]) {
        let Some((from, _)) = self.next_block() else { return };
        for (at, _) in block.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n') {
            let next_line = from.saturating_add(u64::try_from(at).unwrap_or(u64::MAX)).saturating_add(1);
            // No line begins after the end of the last line.
            if next_line >= self.size {
                continue;
            }
            self.wanted = self.wanted.saturating_sub(1);
            if self.wanted == 0 {
                self.found = Some(next_line);
                return;
            }
        }
        self.searched_from = from;
    }

    /// Where the requested lines begin; 0 if the whole log has fewer lines.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.found.unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Also returns how many bytes were read.
    fn search(log: &[u8], lines: u64) -> (usize, usize) {
        let mut search = TailSearch::new(log.len() as u64, lines);
        let mut bytes_read = 0;
        while let Some((from, length)) = search.next_block() {
            let from = usize::try_from(from).unwrap();
            bytes_read += length;
            search.feed(&log[from..from + length]);
        }
        (usize::try_from(search.start()).unwrap(), bytes_read)
    }

    #[test]
    fn tail_begins_after_the_end_of_the_previous_line() {
        for (log, lines, expected) in [
            ("a\nb\nc\n", 2, "b\nc\n"),
            ("a\nb\nc\n", 3, "a\nb\nc\n"),
            ("a\nb\nc\n", 9, "a\nb\nc\n"),
            ("a\nb\nc\n", 0, ""),
            ("a\nb\nc", 1, "c"),
            ("\n\n\n", 1, "\n"),
            ("", 5, ""),
        ] {
            assert_eq!(&log[search(log.as_bytes(), lines).0..], expected, "{log:?}, {lines}");
        }
    }

    #[test]
    fn tail_reads_a_long_log_from_its_end_only() {
        let log = "0123456789\n".repeat(1 << 20);
        let (start, bytes_read) = search(log.as_bytes(), 10);
        assert_eq!(log.len() - start, 110);
        assert_eq!(bytes_read, 64 << 10);
    }

    #[test]
    fn tail_search_ends_if_the_log_is_truncated() {
        let mut search = TailSearch::new(1 << 20, 10);
        let mut steps = 0;
        while search.next_block().is_some() {
            search.feed(b"");
            steps += 1;
        }
        assert_eq!((steps, search.start()), (16, 0));
    }

    proptest! {
        #[test]
        fn tail_equals_counting_lines_from_the_end(
            lengths in prop::collection::vec(0..5000_usize, 0..60),
            wanted in 0..70_u64,
        ) {
            let lines: Vec<String> = lengths.into_iter().map(|length| "x".repeat(length)).collect();
            let log: String = lines.iter().map(|line| format!("{line}\n")).collect();
            let skipped = lines.len().saturating_sub(usize::try_from(wanted).unwrap());
            let expected: String = lines[skipped..].iter().map(|line| format!("{line}\n")).collect();
            prop_assert_eq!(&log[search(log.as_bytes(), wanted).0..], expected);
        }
    }
}
