//! What fuzzers (`scripts/fuzz`) throw at the readers of logs: each function takes any bytes, and panics where a promise
//! is broken. What was found once lies in `fuzz/corpus`, and is tried again with every test run.

use jiff::Timestamp;

use crate::container_log::{LogFilter, LogReader, TailSearch};

/// A name, which is also that of a corpus, and what is done with each input.
pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: &[Target] = &[("log_lines", log_lines), ("log_tail", log_tail)];

/// A log is shown the same in whatever pieces it is read, and never more of it than was requested.
pub fn log_lines(data: &[u8]) {
    let Some((choice, log)) = data.split_first() else { return };
    let has = |bit: u8| choice & bit != 0;
    let limit = has(4).then_some(u64::from(choice >> 4));
    let filter = LogFilter {
        since: has(1).then_some(Timestamp::UNIX_EPOCH),
        timestamps: has(2),
        stream: has(8).then_some("stdout"),
        limit_bytes: limit,
    };
    let shown = |pieces: &mut dyn Iterator<Item = &[u8]>| {
        let mut reader = LogReader::new(filter.clone());
        let mut shown: Vec<u8> = pieces.flat_map(|piece| reader.feed(piece)).collect();
        shown.extend(reader.finish());
        shown
    };
    let whole = shown(&mut std::iter::once(log));
    let pieces = shown(&mut log.chunks(usize::from(choice >> 4) + 1));
    assert_eq!(whole, pieces, "the size of pieces does not show");
    assert!(limit.is_none_or(|limit| whole.len() as u64 <= limit), "no more than requested");
}

/// The last lines of a log are as many as were requested, or all.
pub fn log_tail(data: &[u8]) {
    let Some((lines, log)) = data.split_first() else { return };
    let mut search = TailSearch::new(log.len() as u64, u64::from(*lines));
    while let Some((from, length)) = search.next_block() {
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        search.feed(&log[from..from + length]);
    }
    let start = usize::try_from(search.start()).unwrap_or(usize::MAX);
    let found = log[start..].split_inclusive(|byte| *byte == b'\n').count();
    let all = log.split_inclusive(|byte| *byte == b'\n').count();
    assert_eq!(found, all.min(usize::from(*lines)));
}

#[cfg(test)]
mod tests {
    #[test]
    fn fuzz_corpus_violates_no_property() {
        fixtures::run_fuzz_corpus(super::TARGETS);
    }
}
