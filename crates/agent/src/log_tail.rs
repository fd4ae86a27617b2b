//! The end of a container's log, for `terminationMessagePolicy: FallbackToLogsOnError`.

use std::path::Path;

use ports::Files;

/// Limits for a termination message from a log.
const LINES: usize = 80;
const BYTES: usize = 2048;
/// Log lines carry a time and a stream each, so more is read than is shown.
const READ: usize = 16 << 10;

/// The last lines that a container wrote, without the prefix of the runtime. Empty if there is no log. Links are followed,
/// as in `container_logs::open`.
pub(crate) async fn read_log_tail(files: &dyn Files, log: &Path) -> String {
    let raw = files.read_file(log, READ, true).await.unwrap_or_default();
    tail(&String::from_utf8_lossy(&raw), raw.len() == READ)
}

/// The messages of the last lines; `is_cut`: the text may begin within a line.
fn tail(text: &str, is_cut: bool) -> String {
    let lines: Vec<&str> = text.split_inclusive('\n').skip(usize::from(is_cut)).collect();
    let from = lines.len().saturating_sub(LINES);
    let joined: String = lines[from..].iter().map(|line| message(line)).collect();
    let mut start = joined.len().saturating_sub(BYTES);
    while !joined.is_char_boundary(start) {
        start += 1;
    }
    joined[start..].to_owned()
}

/// `<time> <stream> <F|P> <message>\n`; a partial line (P) goes on in the next one.
fn message(line: &str) -> &str {
    let mut parts = line.splitn(4, ' ');
    let (Some(_), Some("stdout" | "stderr"), Some(tag)) = (parts.next(), parts.next(), parts.next()) else {
        return line;
    };
    let text = parts.next().unwrap_or_default();
    if tag.starts_with('P') { text.trim_end_matches('\n') } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_prefixes_are_removed_and_partial_lines_joined() {
        let log = "2026-01-01T00:00:00Z stdout F one\n2026-01-01T00:00:00Z stderr P tw\n2026-01-01T00:00:00Z stderr F o\n";
        assert_eq!(tail(log, false), "one\ntwo\n");
    }

    #[test]
    fn termination_message_has_the_last_80_lines_or_2048_bytes() {
        let log: String = (0..200).map(|n| format!("2026-01-01T00:00:00Z stdout F line {n}\n")).collect();
        let shown = tail(&log, false);
        assert!(shown.starts_with("line 120\n") && shown.ends_with("line 199\n"), "{shown}");
        let wide = format!("2026-01-01T00:00:00Z stdout F {}\n", "ä".repeat(5000));
        assert!(tail(&wide, false).len() <= BYTES);
    }

    #[test]
    fn incomplete_first_line_is_left_out() {
        assert_eq!(tail("half a line\n2026-01-01T00:00:00Z stdout F whole\n", true), "whole\n");
    }
}
