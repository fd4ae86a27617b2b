//! Container logs in the formats of container runtimes, filtered as requested: pure, piece by piece, in bounded memory.
//!
//! Two formats are parsed, line by line: CRI (`<time> <stream> <P|F> <text>`, where a P continues in the next line of its
//! stream) and json-file (`{"log":"…","stream":"…","time":"…"}`). A line in neither format is skipped.

mod instance;
mod tail;

use jiff::Timestamp;
use serde::Deserialize;

pub use instance::{LogInstance, find_instance};
pub use tail::TailSearch;

/// A longer line is processed in parts; runtimes split lines far earlier (16 KiB).
const MAX_LINE_BYTES: usize = 256 << 10;

/// Which lines of a log are shown, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogFilter {
    pub since: Option<Timestamp>,
    /// Each line begins with its timestamp.
    pub timestamps: bool,
    /// `stdout` or `stderr`; `None` shows both.
    pub stream: Option<&'static str>,
    /// Maximum number of bytes to show.
    pub limit_bytes: Option<u64>,
}

/// Filters a log.
#[derive(Debug)]
pub struct LogReader {
    filter: LogFilter,
    left: Option<u64>,
    /// Input that is not a complete line yet.
    pending: Vec<u8>,
    /// State of a line that is processed in parts.
    rest: Option<Rest>,
    /// The next output begins a line.
    at_line_start: bool,
}

/// What to do with the rest of a line that exceeds the maximum length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    Show { is_partial: bool },
    Skip,
}

impl LogReader {
    #[must_use]
    pub const fn new(filter: LogFilter) -> Self {
        let left = filter.limit_bytes;
        Self { filter, left, pending: Vec::new(), rest: None, at_line_start: true }
    }

    /// The byte limit is reached.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.left == Some(0)
    }

    /// Processes the next piece of the log and returns what is shown of it.
    pub fn feed(&mut self, piece: &[u8]) -> Vec<u8> {
        let mut shown = Vec::new();
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            if let Some(rest) = self.rest {
                self.continue_long(rest, part, &mut shown);
                continue;
            }
            self.pending.extend_from_slice(part);
            if part.ends_with(b"\n") {
                let line = std::mem::take(&mut self.pending);
                self.line(&line, &mut shown);
            } else if self.pending.len() > MAX_LINE_BYTES {
                self.begin_long(&mut shown);
            }
        }
        shown
    }

    /// Ends the log: an incomplete last line counts as a line.
    pub fn finish(&mut self) -> Vec<u8> {
        let mut shown = Vec::new();
        let line = std::mem::take(&mut self.pending);
        if !line.is_empty() {
            self.line(&line, &mut shown);
        }
        self.rest = None;
        shown
    }

    fn line(&mut self, line: &[u8], shown: &mut Vec<u8>) {
        if let Some(record) = parse_cri(line) {
            let text = if record.is_partial { without_end(record.text) } else { record.text };
            self.show(record.time, record.stream, text, shown);
        } else if let Some(record) = parse_json(line) {
            self.show(&record.time, &record.stream, record.log.as_bytes(), shown);
        }
    }

    /// Shows the beginning of a line that exceeds the maximum length.
    fn begin_long(&mut self, shown: &mut Vec<u8>) {
        let line = std::mem::take(&mut self.pending);
        self.rest = Some(match parse_cri(&line) {
            Some(record) if self.is_wanted(record.time, record.stream) => {
                self.show(record.time, record.stream, record.text, shown);
                Rest::Show { is_partial: record.is_partial }
            }
            Some(_) | None => Rest::Skip,
        });
    }

    fn continue_long(&mut self, rest: Rest, part: &[u8], shown: &mut Vec<u8>) {
        match rest {
            Rest::Show { is_partial: true } => self.put(without_end(part), shown),
            Rest::Show { is_partial: false } => self.put(part, shown),
            Rest::Skip => {}
        }
        if part.ends_with(b"\n") {
            self.rest = None;
        }
    }

    fn is_wanted(&self, time: &str, stream: &str) -> bool {
        let is_new = self.filter.since.is_none_or(|since| {
            // Lines with an unreadable time are not filtered by time.
            time.parse::<Timestamp>().map_or(true, |time| time >= since)
        });
        is_new && self.filter.stream.is_none_or(|wanted| wanted == stream)
    }

    fn show(&mut self, time: &str, stream: &str, text: &[u8], shown: &mut Vec<u8>) {
        if !self.is_wanted(time, stream) {
            return;
        }
        if self.filter.timestamps && self.at_line_start {
            self.put(format!("{} ", fixed_nanos(time)).as_bytes(), shown);
        }
        self.put(text, shown);
        self.at_line_start = text.last().is_none_or(|last| *last == b'\n');
    }

    fn put(&mut self, text: &[u8], shown: &mut Vec<u8>) {
        let max = self.left.map_or(usize::MAX, |left| usize::try_from(left).unwrap_or(usize::MAX));
        let text = text.get(..max.min(text.len())).unwrap_or_default();
        shown.extend_from_slice(text);
        let written = u64::try_from(text.len()).unwrap_or(u64::MAX);
        self.left = self.left.map(|left| left.saturating_sub(written));
    }
}

fn without_end(text: &[u8]) -> &[u8] {
    text.strip_suffix(b"\n").unwrap_or(text)
}

#[derive(Debug, PartialEq, Eq)]
struct CriLine<'a> {
    time: &'a str,
    stream: &'a str,
    is_partial: bool,
    /// With its end of line, if it was read.
    text: &'a [u8],
}

/// `None`: not a line of this format.
fn parse_cri(line: &[u8]) -> Option<CriLine<'_>> {
    let mut parts = line.splitn(4, |byte| *byte == b' ');
    let (time, stream, tags) = (parts.next()?, parts.next()?, parts.next()?);
    let (time, stream) = (std::str::from_utf8(time).ok()?, std::str::from_utf8(stream).ok()?);
    let is_time = time.len() >= 20 && time.as_bytes().get(10) == Some(&b'T');
    if !is_time || !["stdout", "stderr"].contains(&stream) {
        return None;
    }
    // Further tags may follow the first after a colon. An empty text may come without its space.
    let (tags, end) = match tags.strip_suffix(b"\n") {
        Some(tags) => (tags, &b"\n"[..]),
        None => (tags, &b""[..]),
    };
    let is_partial = match tags.split(|byte| *byte == b':').next()? {
        b"P" => true,
        b"F" => false,
        _ => return None,
    };
    Some(CriLine { time, stream, is_partial, text: parts.next().unwrap_or(end) })
}

#[derive(Debug, Deserialize)]
struct JsonLine {
    #[serde(default)]
    log: String,
    #[serde(default)]
    stream: String,
    #[serde(default)]
    time: String,
}

fn parse_json(line: &[u8]) -> Option<JsonLine> {
    if line.first() == Some(&b'{') { serde_json::from_slice(line).ok() } else { None }
}

/// The time with nine digits of fraction, and `Z` for `+00:00`, which CRI-O writes, so that columns align; unchanged if it is not a
/// time.
fn fixed_nanos(time: &str) -> String {
    const SECONDS: usize = "2026-01-01T00:00:00".len();
    let Some((seconds, rest)) = time.split_at_checked(SECONDS) else { return time.to_owned() };
    let fraction = rest.strip_prefix('.').unwrap_or_default();
    let digits: String = fraction.chars().take_while(char::is_ascii_digit).collect();
    let zone = if rest.starts_with('.') { rest.get(1 + digits.len()..).unwrap_or_default() } else { rest };
    let zone = if matches!(zone, "+00:00" | "-00:00") { "Z" } else { zone };
    format!("{seconds}.{digits:0<9.9}{zone}")
}

#[cfg(test)]
mod tests;
